"""All open jobs on one screen, like `top`: the frame, and the view that `hw watch` without an id
shows.

Jobs that end while one watches stay, with how they ended, until the view is left.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from headway.model.json_types import JsonObject
from headway.views.console.cells import (
    BOLD,
    DIM,
    EMPTY,
    RED,
    REVERSE,
    YELLOW,
    Line,
    Size,
    cut,
    plain,
)
from headway.views.console.feed import JobsFeed
from headway.views.console.machine_load import MachineLoad
from headway.views.console.text_filter import found_in
from headway.views.console.theme import Theme
from headway.views.console.widgets import help_page
from headway.views.console.widgets.curve import real
from headway.views.console.widgets.footer import key_line
from headway.views.console.widgets.usage_lines import total
from headway.views.text import format as fmt
from headway.views.text import health_text, job_text, table

Job = JsonObject
_METRICS_MAX: Final = 3
_ENDED_MAX: Final = 200  # ended jobs that stay in sight
_STEPS: Final = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "pgup": -10,
    "pgdn": 10,
    "home": -(1 << 20),
    "end": 1 << 20,
}
_ASCENDING: Final = ("", "name", "state")  # the others show the largest first
_TYPED_CHARS_MAX: Final = 100
COLUMNS: Final = (
    table.Column("id", keep=table.ALWAYS), table.Column("name", keep=1), table.Column("state", keep=table.ALWAYS),
    table.Column("parameters", keep=1), table.Column("progress", keep=1), table.Column("elapsed", right=True, keep=1),
    table.Column("cpu", right=True), table.Column("memory", right=True),
)  # fmt: skip


@dataclass(slots=True)
class ListPlace:
    """Where the person is in the list. Outlives the view while one job is open."""

    chosen: str = ""
    text: str = ""  # only jobs with this
    order: str = ""
    descending: bool = False
    mode: str = "list"  # list, filter, ask, help


class JobsView:
    """`opened` is the id of the job that the person chose. `stop` is called with an id and
    `interrupt` or `terminate`.
    """

    def __init__(
        self,
        feed: JobsFeed,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        stop: Callable[[str, str], None] = lambda _id, _deed: None,
        load: MachineLoad | None = None,
    ) -> None:
        self.feed, self._now, self._stop, self.load = feed, now, stop, load
        self.jobs: dict[str, Job] = {}
        self.known = False
        self.until_over = False
        self.opened = ""
        self.notice = ""  # until the next key
        self.lost_since: datetime | None = None
        self.now = now()
        self.place = ListPlace()
        self.shown: list[Job] = []  # after filter and order, as in the last frame

    def take_news(self) -> bool:
        answers = self.feed.take()
        self.now = self._now()
        for answer in answers:
            if "lost" in answer:
                self.lost_since = self.now if answer["lost"] else None
            else:
                self.take(answer["jobs"])
        return bool(answers)

    def take(self, jobs: list[Job]) -> None:
        """Live jobs first, then ended ones, then ended ones that were shown before."""
        self.known = True
        live: dict[str, Job] = {}
        ended: dict[str, Job] = {}
        for job in jobs:
            group = ended if job["state"] in fmt.ENDED else live
            group[str(job["id"])] = job
        before = [
            (job_id, job)
            for job_id, job in self.jobs.items()
            if job["state"] in fmt.ENDED and job_id not in live and job_id not in ended
        ]
        self.jobs = {**live, **ended, **dict(before[:_ENDED_MAX])}
        self._arrange()

    def _arrange(self) -> None:
        """What is shown, in its order; the chosen job stays chosen as long as it is there."""
        place = self.place
        jobs = list(self.jobs.values())
        if place.text:
            jobs = [job for job in jobs if found_in(place.text, _searched(job, self.now))]

        orders = sort_orders(jobs)
        if place.order and place.order in orders:
            value = orders[place.order]
            known = [job for job in jobs if value(job) is not None]
            unknown = [job for job in jobs if value(job) is None]
            known.sort(key=value, reverse=place.descending)
            jobs = known + unknown
        self.shown = jobs

        ids = [str(job["id"]) for job in jobs]
        if not ids:
            place.chosen = ""
        elif place.chosen not in ids:
            place.chosen = ids[0]

    def press(self, key: str) -> str | None:
        place = self.place
        self.notice = ""
        if place.mode == "ask":
            return self._answer(key)
        if place.mode == "help":
            place.mode = "list"
            return "leave" if key in ("q", "ctrl-c") else None
        if place.mode == "filter":
            self._type(key)
            return None
        if key in ("q", "ctrl-c"):
            return "leave"
        if key == "esc":
            if not place.text:
                return "leave"
            place.text = ""
        elif key == "enter" and place.chosen:
            self.opened = place.chosen
            return "open"
        elif key in ("?", "h"):
            place.mode = "help"
        elif key == "/":
            place.mode = "filter"
        elif key == "s":
            names = list(sort_orders(list(self.jobs.values())))
            at = names.index(place.order) if place.order in names else 0
            place.order = names[(at + 1) % len(names)]
            place.descending = place.order not in _ASCENDING
        elif key == "S":
            place.descending = not place.descending
        elif key == "a":
            self.feed.with_ended = not self.feed.with_ended
            if not self.feed.with_ended:
                self.jobs = {k: v for k, v in self.jobs.items() if v["state"] not in fmt.ENDED}
            self.feed.hurry()
            self.notice = "with ended jobs" if self.feed.with_ended else "open jobs only"
        elif key == "x" and place.chosen:
            if self.jobs[place.chosen]["state"] in fmt.ENDED:
                self.notice = f"{fmt.suffix(place.chosen)} has ended already"
            else:
                place.mode = "ask"
        elif key in _STEPS and self.shown:
            ids = [str(job["id"]) for job in self.shown]
            at = ids.index(place.chosen) + _STEPS[key]
            place.chosen = ids[min(max(at, 0), len(ids) - 1)]
        self._arrange()
        return None

    def _answer(self, key: str) -> str | None:
        deeds = {"i": "interrupt", "t": "terminate"}
        if key in deeds or key in ("esc", "n", "enter", "q"):
            self.place.mode = "list"
        if key == "ctrl-c":
            return "leave"
        if key in deeds:
            self._stop(self.place.chosen, deeds[key])
            verb = "interrupting" if key == "i" else "terminating"
            self.notice = f"{verb} {fmt.suffix(self.place.chosen)}"
        return None

    def _type(self, key: str) -> None:
        place = self.place
        if key in ("enter", "esc", "ctrl-c"):
            place.mode = "list"
            if key != "enter":
                place.text = ""
        elif key == "backspace":
            place.text = place.text[:-1]
        elif key == "ctrl-u":
            place.text = ""
        else:
            text = " " if key == "space" else key
            if len(text) == 1 and text.isprintable() and len(place.text) < _TYPED_CHARS_MAX:
                place.text += text
        self._arrange()

    def frame(self, size: Size, theme: Theme) -> list[Line]:
        columns, rows = size
        lines = [cut(_head(self), columns)]
        machine = self.load.words() if self.load is not None else []
        lines.append(cut(plain(f"  {' · '.join(machine)}", DIM), columns) if machine else EMPTY)
        if self.place.mode == "help":
            lines += help_page.page(help_page.LIST, columns, rows - 3)
        else:
            lines += _table(self, columns, rows - 4, theme)
        lines += [EMPTY] * (rows - 1 - len(lines))
        return [*lines[: rows - 1], cut(_footer(self, theme, columns), columns)]

    @property
    def is_over(self) -> bool:
        """Of a list that was opened to wait for its jobs: when all of them have ended."""
        if not self.until_over or not self.jobs or self.place.mode == "ask":
            return False
        return all(fmt.is_over(job) for job in self.jobs.values())


def sort_orders(jobs: list[Job]) -> dict[str, Callable[[Job], Any]]:
    """Name of an order → its key, where None is unknown and goes last. The empty name is the
    server's order.
    """
    orders: dict[str, Callable[[Job], Any]] = {
        "": lambda job: None,
        "name": lambda job: str(job.get("name") or ""),
        "state": lambda job: str(job["state"]),
        "elapsed": lambda job: job.get("elapsed_s"),
        "cpu": lambda job: total(job.get("usage") or {}, "cpu_percent"),
        "memory": lambda job: total(job.get("usage") or {}, "memory_bytes"),
    }
    for name in _metric_names(jobs):
        orders[name] = partial(_metric_value, name)
    return orders


def _metric_value(name: str, job: Job) -> float | None:
    value = real((job.get("metrics") or {}).get(name))
    return value if value is not None and math.isfinite(value) else None


def _searched(job: Job, now: datetime) -> str:
    words = [str(job["id"]), str(job.get("name") or ""), str(job["state"]), _note(job, now)]
    words += [str(job.get("experiment") or ""), fmt.parameters(job)]
    return " ".join([*words, *(str(tag) for tag in job.get("tags") or [])])


def _footer(view: JobsView, theme: Theme, columns: int) -> Line:
    place = view.place
    if place.mode == "filter":
        typed = plain(theme.safe(place.text))
        return ((" show jobs with: ", BOLD), *typed, (" ", REVERSE), ("   enter keeps it", DIM))
    if place.mode == "ask":
        keys = [("i", "interrupt"), ("t", "terminate"), ("esc", "go on")]
        asked = f" Stop {theme.safe(fmt.suffix(place.chosen))}? "
        return ((asked, f"{BOLD};{YELLOW}"), *key_line(keys, columns - 14))
    order = f"sort: {theme.safe(place.order)}" if place.order else "sort"
    return key_line(
        [
            ("↑↓", "choose"),
            ("/", f'with "{theme.safe(place.text)}"' if place.text else "filter"),
            ("s", order),
            ("a", "open only" if view.feed.with_ended else "ended too"),
            ("x", "stop"),
            ("enter", "open"),
            ("?", "keys"),
            ("q", "leave"),
        ],
        columns,
    )


def _head(view: JobsView) -> Line:
    counts: dict[str, int] = {}
    for job in view.jobs.values():
        counts[str(job["state"])] = counts.get(str(job["state"]), 0) + 1
    words = " · ".join(f"{count} {state}" for state, count in counts.items())
    if view.place.text:
        words += f" · {len(view.shown)} shown"
    clock = view.now.astimezone().strftime("%H:%M:%S")
    head: Line = (
        ("  Headway", BOLD),
        (f"  {words or ('no open jobs' if view.known else 'asking')}   ", ""),
        (clock, DIM),
    )
    if view.notice:
        head = (*head, (f"   {view.notice}", ""))
    if view.lost_since is None:
        return head
    return (
        *head,
        (f"   no server for {fmt.clock((view.now - view.lost_since).total_seconds())}", RED),
    )


def _table(view: JobsView, columns: int, rows: int, theme: Theme) -> list[Line]:
    jobs = view.shown
    if not jobs and view.jobs:
        return [plain("  no job is like that; esc shows all", DIM)]
    if not jobs and view.known:
        more = "" if view.feed.with_ended else "; those that have ended: a"
        return [plain(f"  to start one, from any terminal: hw run python train.py{more}", DIM)]
    if not jobs:
        return []
    names = _metric_names(jobs)
    titles = (*COLUMNS, *(table.Column(theme.safe(name), right=True, limit=14) for name in names))
    cells = [[theme.safe(cell) for cell in _cells(job, names, view.now)] for job in jobs]
    laid = table.layout((*titles, table.Column("note", keep=1)), cells, columns - 2)[1]
    order = [str(job["id"]) for job in jobs]
    chosen = order.index(view.place.chosen) if view.place.chosen in order else 0
    first = min(max(chosen - rows // 2, 0), max(len(jobs) - rows, 0))
    lines = [plain(f"  {laid[0]}", BOLD)]
    for number in range(first, min(first + rows, len(jobs))):
        state = str(jobs[number]["state"])
        code = fmt.STATE_COLOURS.get(state, "") if state in fmt.ENDED else ""
        if number == chosen:
            code = BOLD
        lines.append(
            cut(plain(f"{'›' if number == chosen else ' '} {laid[number + 1]}", code), columns)
        )
    return lines


def _cells(job: Job, names: list[str], now: datetime) -> list[str]:
    found = job.get("metrics") or {}
    open_s = job.get("elapsed_s") if fmt.is_over(job) else fmt.age_s(job.get("started_at"), now)
    return [
        fmt.suffix(str(job["id"])),
        f"{job.get('name') or ''} @{job.get('host') or job['guest_of']}"
        if job.get("guest_of")
        else str(job.get("name") or ""),
        f"{fmt.STATE_MARKS.get(str(job['state']), '?')} {job['state']}",
        fmt.parameters(job),
        job_text.progress_words(job),
        fmt.clock(open_s),
        *_used(job),
        *(fmt.number(found[name]) if name in found else "" for name in names),
        _note(job, now),
    ]


def _used(job: Job) -> tuple[str, str]:
    used = job.get("usage") or {}
    cpu, memory = total(used, "cpu_percent"), total(used, "memory_bytes")
    return "" if cpu is None else f"{cpu:.0f} %", "" if memory is None else fmt.size(memory)


def _note(job: Job, now: datetime) -> str:
    state = str(job["state"])
    if state == "waiting":
        words = f"waits for {fmt.clock(job_text.waited_s(job, now))}"
        why = job_text.waiting_words(job.get("waiting") or {}, now)
        return f"{words}, {why}" if why else words
    if state == "unknown" and not fmt.is_over(job):
        return job_text.heard_words(job, now)
    if state in ("failed", "held", "unknown"):
        return _cause_words(job)
    hung = health_text.health_words(job, now)
    if hung:
        return hung
    return fmt.carried(job.get("progress"))


def _cause_words(job: Job) -> str:
    cause = job.get("cause") or job_text.last_attempt(job).get("cause") or {}
    return str(cause.get("text") or fmt.exit_words(job.get("exit_code"), job.get("signal")))


def _metric_names(jobs: list[Job]) -> list[str]:
    counts: dict[str, int] = {}
    for job in jobs:
        for name in job.get("metrics") or {}:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])[:_METRICS_MAX]

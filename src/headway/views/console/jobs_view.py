"""All open jobs on one screen, like `top`: the frame, and the view that `hw watch` without an id
shows.

Jobs that end while one watches stay, with how they ended, until the view is left.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from headway.views.console.cells import BOLD, DIM, EMPTY, RED, Line, Size, cut, plain
from headway.views.console.feed import JobsFeed
from headway.views.console.theme import Theme
from headway.views.console.widgets.usage_lines import total
from headway.views.text import format as fmt
from headway.views.text import job_text, table

Job = dict[str, Any]
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
COLUMNS: Final = (
    table.Column("id", keep=table.ALWAYS), table.Column("name", keep=1), table.Column("state", keep=table.ALWAYS),
    table.Column("progress", keep=1), table.Column("elapsed", right=True, keep=1),
    table.Column("cpu", right=True), table.Column("memory", right=True),
)  # fmt: skip


class JobsView:
    """`opened` is the id of the job that the person chose."""

    def __init__(
        self, feed: JobsFeed, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.feed, self._now = feed, now
        self.jobs: dict[str, Job] = {}
        self.known = False
        self.chosen = ""
        self.opened = ""
        self.notice = ""  # until the next key
        self.lost_since: datetime | None = None
        self.now = now()

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
        self.known = True
        fresh = {str(job["id"]): job for job in jobs}
        ended = [
            one for one in self.jobs if one not in fresh and self.jobs[one]["state"] in fmt.ENDED
        ]
        kept = {one: self.jobs[one] for one in ended[:_ENDED_MAX]}
        self.jobs = {one: job for one, job in fresh.items() if job["state"] not in fmt.ENDED}
        self.jobs |= {one: job for one, job in fresh.items() if job["state"] in fmt.ENDED} | kept
        if self.chosen not in self.jobs:
            self.chosen = next(iter(self.jobs), "")

    def press(self, key: str) -> str | None:
        order, self.notice = list(self.jobs), ""
        if key in ("q", "esc", "ctrl-c"):
            return "leave"
        if key == "enter" and self.chosen:
            self.opened = self.chosen
            return "open"
        if key in _STEPS and order:
            place = order.index(self.chosen) + _STEPS[key]
            self.chosen = order[min(max(place, 0), len(order) - 1)]
        return None

    def frame(self, size: Size, theme: Theme) -> list[Line]:
        columns, rows = size
        lines = [cut(_head(self), columns), EMPTY, *_table(self, columns, rows - 4, theme)]
        lines += [EMPTY] * (rows - 1 - len(lines))
        keys = (
            ("   ↑↓", BOLD),
            (" choose", DIM),
            ("   enter", BOLD),
            (" open", DIM),
            ("   q", BOLD),
            (" leave", DIM),
        )
        return [*lines[: rows - 1], cut(keys, columns)]

    @property
    def is_over(self) -> bool:
        return False


def _head(view: JobsView) -> Line:
    counts: dict[str, int] = {}
    for job in view.jobs.values():
        counts[str(job["state"])] = counts.get(str(job["state"]), 0) + 1
    words = " · ".join(f"{count} {state}" for state, count in counts.items())
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
    jobs = list(view.jobs.values())
    if not jobs:
        return (
            [plain("  to start one, from any terminal: hw run python train.py", DIM)]
            if view.known
            else []
        )
    names = _metric_names(jobs)
    titles = (*COLUMNS, *(table.Column(theme.safe(name), right=True, limit=14) for name in names))
    cells = [[theme.safe(cell) for cell in _cells(job, names, view.now)] for job in jobs]
    laid = table.layout((*titles, table.Column("note", keep=1)), cells, columns - 2)[1]
    order = list(view.jobs)
    chosen = order.index(view.chosen) if view.chosen in view.jobs else 0
    first = min(max(chosen - rows // 2, 0), max(len(jobs) - rows, 0))
    lines = [plain(f"  {laid[0]}", BOLD)]
    for number in range(first, min(first + rows, len(jobs))):
        state = str(jobs[number]["state"])
        code = (
            BOLD
            if number == chosen
            else fmt.STATE_COLOURS.get(state, "")
            if state in fmt.ENDED
            else ""
        )
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
        why = job_text.waiting_words(job.get("waiting") or {}, now)
        return f"waits for {fmt.clock(job_text.waited_s(job, now))}" + (f", {why}" if why else "")
    if state == "unknown" and not fmt.is_over(job):
        return job_text.heard_words(job, now)
    if state in ("failed", "held", "unknown"):
        cause = job.get("cause") or job_text.last_attempt(job).get("cause") or {}
        return str(cause.get("text") or fmt.exit_words(job.get("exit_code"), job.get("signal")))
    return fmt.carried(job.get("progress"))


def _metric_names(jobs: list[Job]) -> list[str]:
    counts: dict[str, int] = {}
    for job in jobs:
        for name in job.get("metrics") or {}:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])[:_METRICS_MAX]

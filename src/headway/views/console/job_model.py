"""All that the console knows of one job, and where the person is in it. Filled by `feed`'s answers
and by `control`.

Pure: `take` applies an answer of `follow`, nothing here asks or draws. `progress`, `usage` and
`records` may be absent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from headway.model.json_types import JsonObject
from headway.views.console.log_buffer import Log
from headway.views.console.widgets.curve import Curve, real
from headway.views.text import format as fmt
from headway.views.text import job_text

Job = JsonObject
T = TypeVar("T")
_EVENTS_KEPT = ("exception", "process_exited")
_EVENTS_MAX = 10_000
_METRICS_MAX = 200  # names with a curve; the console has room for fewer


@dataclass(slots=True)
class Metric:
    last: Any = None
    curve: Curve = field(default_factory=Curve)


@dataclass(slots=True)
class Place:
    """Where the person is: what is typed, asked, chosen and scrolled to."""

    mode: str = "log"  # log, filter, rank, ranks, curves, help, ask
    before: str = "log"  # the mode to go back to after a question
    typed: str = ""
    bottom: int | None = None  # number behind the last entry that is shown; None: the newest
    pan: int = 0  # cells scrolled to the right
    pan_max: int = 0  # in the last frame: then the end of its longest line is in sight
    page: int = 10  # rows of log in the last frame
    chosen: int = 0  # row in the list of ranks
    choices: int = 0  # rows of that list in the last frame


@dataclass(slots=True)
class Model:
    job: Job
    log: Log
    ranks: int = 1
    state: str = ""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    metrics: dict[str, Metric] = field(default_factory=dict)
    progress: list[JsonObject] = field(default_factory=list)
    usage: JsonObject = field(default_factory=dict)
    usage_curves: dict[str, Curve] = field(default_factory=dict)
    events: list[JsonObject] = field(default_factory=list)
    exits: dict[int, JsonObject] = field(default_factory=dict)  # rank → how it ended
    wrote: dict[int, datetime] = field(default_factory=dict)  # rank → when it last wrote
    said: dict[int, str] = field(default_factory=dict)  # rank → what
    newest: datetime | None = None  # the newest moment that anything of the job is known of
    answered: bool = False  # anything was told: before that, silence means nothing
    lost_since: datetime | None = None
    notice: str = ""
    # by the person at the view, who was told that the next Ctrl-C terminates
    interrupted: bool = False
    watched: bool = False  # by `hw watch`: leaving it needs no words about the job
    listed: bool = False  # opened from the list of jobs: leaving goes back there
    stays: bool = False  # the end of the job does not close the view
    leaving: bool = False  # a viewer has pressed Ctrl-C once
    place: Place = field(default_factory=Place)
    # parts of the last frame that still hold
    memo: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def remember(self, part: str, key: object, make: Callable[[], T]) -> T:
        """What `make` made last time, as long as `key` is equal: with 512 ranks, some parts cost
        milliseconds.
        """
        known = self.memo.get(part)
        if known is None or known[0] != key:
            known = self.memo[part] = (key, make())
        made: T = known[1]
        return made

    @property
    def job_id(self) -> str:
        return str(self.job["id"])

    @property
    def elapsed_s(self) -> float | None:
        if self.state in fmt.ENDED:
            found = self.job.get("elapsed_s")
            return float(found) if found is not None else None
        return fmt.age_s(self.job.get("started_at"), self.now)

    @property
    def judged_at(self) -> datetime:
        """The moment that silence is judged by: what a server that lags has not told yet was not
        silence. Only a job whose usage nobody samples, and so may have nothing to tell for long, is
        judged by our clock.
        """
        return (
            self.newest if self.newest is not None and (self.usage or self.lost_since) else self.now
        )

    def take(self, answer: JsonObject) -> None:
        """One answer of `follow`; `job` is there when the feed has asked for it again."""
        if answer.get("job") or answer.get("done"):
            self.job = answer.get("done") or answer["job"]
            self.ranks = max(self.ranks, job_text.count_processes(self.job))
            self.progress = self.job.get("progress") or self.progress
            self.memo.clear()
        self.answered = True
        self.state = str(answer.get("state") or self.state)
        lines, records = answer.get("lines") or [], answer.get("records") or []
        said = [*lines, *records]
        if answer.get("skipped"):
            self.log.skip(int(answer["skipped"]), lines[0].get("time"))
        if lines and records:
            said.sort(key=lambda one: fmt.moment(one.get("time")) or self.now)
        for one in said:
            if "levelno" in one:
                self._take_record(one)
            else:
                self._take_line(one)
        for event in answer.get("events") or []:
            self._take_event(event)
        if answer.get("done"):
            self.log.settle()
        self._take_numbers(answer)

    def _take_numbers(self, answer: JsonObject) -> None:
        for name, value in (answer.get("metrics") or {}).items():
            self._take_metric(str(name), value)
        if answer.get("progress") is not None:
            self.progress = [bar for bar in answer["progress"] if isinstance(bar, dict)]
            self.memo.pop("bars", None)
        if isinstance(answer.get("usage"), dict):
            self._take_usage(answer["usage"])

    def _take_usage(self, usage: JsonObject) -> None:
        self.usage = usage
        time_s = self._heard(usage.get("time")).timestamp()
        for name, value in usage.items():
            number = real(value)
            if number is None:
                continue
            curve = self.usage_curves.setdefault(name, Curve())
            if time_s > curve.last_s:
                curve.add(time_s, number)

    def _take_metric(self, name: str, value: object) -> None:
        if name not in self.metrics and len(self.metrics) >= _METRICS_MAX:
            return
        metric = self.metrics.setdefault(name, Metric())
        metric.last = value
        number = real(value)
        if number is not None:
            metric.curve.add(self.judged_at.timestamp(), number)

    def take_curves(self, found: JsonObject) -> None:
        """Whole curves, in place of those made of what came while we watched: `{metrics: …, usage:
        …}`. Lines that came late, from an agent that was away for longer than others, find their
        place.
        """
        for name, series in (found.get("metrics") or {}).items():
            if not series:
                continue
            if name not in self.metrics and len(self.metrics) >= _METRICS_MAX:
                continue
            last_attempt = series[-1]
            metric = self.metrics.setdefault(name, Metric())
            metric.curve = _curve(last_attempt)
            values = last_attempt.get("value")
            if metric.last is None and values:
                metric.last = values[-1]
        for name, points in (found.get("usage") or {}).items():
            self.usage_curves[name] = _curve(points)

        below = self.log.end - (self.place.bottom or 0)
        if self.log.settle() and self.place.bottom is not None:
            self.place.bottom = max(self.log.end - below, self.log.first)

    def _heard(self, time: Any) -> datetime:
        """The moment that something of the job is of; ours, if it does not say."""
        when = fmt.moment(time)
        if when is not None and (self.newest is None or when > self.newest):
            self.newest = when
        return when or self.now

    def _take_line(self, line: JsonObject) -> None:
        if not line.get("time"):  # its moment is not known yet: it came just now
            line = line | {"time": self.now.isoformat()}
        self.log.add_line(line)
        self._note_rank(line, str(line.get("text") or ""))

    def _take_record(self, record: JsonObject) -> None:
        """A record of `logging`. What a handler of the user has printed is among the lines already."""
        if record.get("printed"):
            return
        text = str(record.get("text") or "")
        level = record.get("levelno")
        if not isinstance(level, int):
            level = None
        rank = record.get("rank")
        if not isinstance(rank, int):
            rank = -1
        first, *others = text.split("\n")
        if record.get("level"):
            first = f"{record['level']} {first}"
        for line in (first, *others):
            self.log.add(line, rank, time=record.get("time"), level=level)
        self._note_rank(record, text)

    def _note_rank(self, line: JsonObject, text: str) -> None:
        rank, when = line.get("rank"), self._heard(line.get("time"))
        if isinstance(rank, int) and rank >= 0:
            self.wrote[rank] = when
            self.ranks = max(self.ranks, min(rank + 1, 1 << 16))
            if text.strip():
                self.said[rank] = text

    def _take_event(self, event: JsonObject) -> None:
        if event.get("type") in _EVENTS_KEPT and len(self.events) < _EVENTS_MAX:
            self.events.append(event)
            if event["type"] == "process_exited" and isinstance(event.get("rank"), int):
                self.exits[event["rank"]] = event.get("data") or {}
        words = job_text.event_words(event, output_seen=job_text.has_output(self.job))
        if words:
            self.log.add(f"hw: {words}", time=event.get("time"))


def _curve(points: JsonObject) -> Curve:
    """Of `{time: […], value: […]}`."""
    curve = Curve()
    for time, value in zip(points.get("time") or [], points.get("value") or [], strict=False):
        when, number = fmt.moment(time), real(value)
        if when is not None and number is not None:
            curve.add(when.timestamp(), number)
    return curve

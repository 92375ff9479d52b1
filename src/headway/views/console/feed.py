"""News for the console, asked for by a thread of its own, so that keys are answered while the
server is slow or gone.

Answers wait in a short queue: while the terminal is slow, the server is asked less often, and
nothing piles up here.
"""

import math
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from headway.model.errors import HeadwayError, NotFoundError, UnreachableError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import (
    CONSOLE_ASK_S,
    CONSOLE_BURST_LINES_MAX,
    CONSOLE_CURVES_FIRST_S,
    CONSOLE_CURVES_S,
    CONSOLE_ENDED_MAX,
    CONSOLE_JOBS_S,
    CONSOLE_LATE_S,
    CONSOLE_LINES_MAX,
    CONSOLE_PART_LINES,
    CONSOLE_WAIT_S,
    JOBS_LISTED_MAX,
)
from headway.views.api.follow import Follow
from headway.views.api.http_client import Client
from headway.views.api.source import Source, job_route, until_reached
from headway.views.console.widgets.curve import PLACES
from headway.views.text import format as fmt
from headway.views.text import job_text

Answer = JsonObject
_WAITING_MAX: Final = 4
_PROCESSES_S: Final = 1.0  # how often it is asked whether all processes have started
_SETTLE_S: Final = 60.0  # after an outage: so long agents may take to send what they have kept
# of metrics whose whole curves are asked for; a screen has room for fewer
_NAMES_MAX, _NAME_CHARS_MAX = 48, 64
_PATIENCE_S: Final = 0.5  # how often a full queue looks whether the view is still there
OPEN: Final = ("waiting", "running", "stopping", "held", "unknown")


class _Closed(Exception):
    """The view has gone: nobody wants the answer."""


class Feed:
    """`take` gives the answers that have come, in order; an error that ended the feed is raised by
    it, once.
    """

    def __init__(self, source: Source, wake: Callable[[], None]) -> None:
        # a connection of its own, made when it is first used: a server that is away is waited for
        # there
        near = Source(source.home, Client(source.client.path))
        self.source = Source.to_monitor(source.monitor) if source.monitor else near
        self._wake = wake
        self._answers: queue.Queue[Answer | HeadwayError] = queue.Queue(_WAITING_MAX)
        self._closed = threading.Event()
        self._asked_s: float | None = None  # when the question was put that is not answered yet

    @property
    def silent_s(self) -> float:
        """How long the server owes an answer."""
        asked_s = self._asked_s
        return 0.0 if asked_s is None else time.monotonic() - asked_s

    def start(self) -> None:
        threading.Thread(target=self._work, name="feed", daemon=True).start()

    def take(self) -> list[Answer]:
        found: list[Answer] = []
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, HeadwayError):
                raise answer
            found.append(answer)
        return found

    def close(self) -> None:
        self._closed.set()

    def _work(self) -> None:
        try:
            self._ask()
        except _Closed:
            pass
        except HeadwayError as error:
            self._put(error)
        # a feed that dies of anything must end the view, not leave it waiting
        except Exception as error:
            self._put(
                HeadwayError(
                    f"the live view failed: {type(error).__name__}: {error}",
                    "hw logs -f shows the output",
                )
            )
        finally:
            self.source.close()

    def _ask(self) -> None:
        raise NotImplementedError

    def _put(self, answer: Answer | HeadwayError) -> None:
        while not self._closed.is_set():
            try:
                self._answers.put(answer, timeout=_PATIENCE_S)
            except queue.Full:
                continue
            self._wake()
            return
        if not isinstance(answer, HeadwayError):
            raise _Closed

    def _lost(self) -> None:
        self._put({"lost": True})

    def _found(self) -> None:
        self._put({"lost": False})


class JobFeed(Feed):
    """The news of one job, and now and then its whole curves. With `tail`: the last lines first."""

    def __init__(
        self, source: Source, job_id: str, wake: Callable[[], None], tail: int | None = None
    ) -> None:
        super().__init__(source, wake)
        self.job_id, self.tail = job_id, tail
        self._names: list[str] = []  # metrics that a view may have room for
        # when to ask for whole curves again, and after how long then
        self._curves_s = self._pause_s = 0.0
        self._settled_s = 0.0  # until then, what comes is what was missed

    def _ask(self) -> None:
        follow = Follow(
            self.source, self.job_id, tail=self.tail, lost=self._lost, found=self._found
        )
        state, again_s = "", 0.0
        for answer in follow.answers(self._wait_s):
            if self.silent_s > CONSOLE_WAIT_S + CONSOLE_LATE_S:
                self._missed()
            self._asked_s = None
            if not answer.get("done") and (
                answer.get("state") != state or time.monotonic() > again_s
            ):
                job = answer["job"] = follow.ask(self._job)
                # it runs before its processes are known: their pids and nodes come a moment later
                again_s = (
                    time.monotonic() + _PROCESSES_S if _starts(job) or _waits(job) else math.inf
                )
            state = str(answer.get("state"))
            self._tell(answer, follow)
            if self._closed.wait(CONSOLE_ASK_S):
                return

    def _job(self, source: Source) -> Answer:
        """With what it waits for, if it does, which only rows of the list have: the queue moves on
        meanwhile.
        """
        job: Answer = source.get(job_route(self.job_id))
        if _waits(job):
            query = [("state", "waiting"), ("match", f"^{re.escape(self.job_id)}$")]
            rows = [row for row in source.get("/api/jobs", query) if row.get("id") == self.job_id]
            job["waiting"] = rows[0].get("waiting") if rows else None
            if (job["waiting"] or {}).get("ahead") is not None:  # in our queue: cheap to explain
                job["waiting"]["reason"] = self._reason(source)
        return job

    def _reason(self, source: Source) -> str | None:
        try:
            why = source.get(job_route(self.job_id, "why"))
        except NotFoundError:  # deleted meanwhile, or an older server
            return None
        return str(why["verdict"]) if why.get("verdict") else None

    def _tell(self, answer: Answer, follow: Follow) -> None:
        """The answer in parts that are soon taken, and before the last of them whole curves, when
        they are due.
        """
        self._names = list(answer.get("metrics") or self._names)[:_NAMES_MAX]
        most = CONSOLE_LINES_MAX if time.monotonic() < self._settled_s else CONSOLE_BURST_LINES_MAX
        *parts, last = parts_of(thinned(answer, most))
        for part in parts:
            self._put(part)
        if time.monotonic() >= self._curves_s:
            self._pause_s = min(max(2 * self._pause_s, CONSOLE_CURVES_FIRST_S), CONSOLE_CURVES_S)
            self._curves_s = time.monotonic() + self._pause_s
            self._put({"curves": self._curves(follow)})
        self._put(last)

    def _wait_s(self) -> float:
        self._asked_s = time.monotonic()
        return CONSOLE_WAIT_S

    def _found(self) -> None:
        self._missed()
        super()._found()

    def _missed(self) -> None:
        """The server was away: what was told meanwhile comes now, from each agent in its own time."""
        self._curves_s = self._pause_s = 0.0
        self._settled_s = time.monotonic() + _SETTLE_S

    def _curves(self, follow: Follow) -> Answer:
        """What rank 0 has logged so far, and what all have used, in few points. Older servers know
        less of that.
        """
        names = [name for name in self._names if len(name) <= _NAME_CHARS_MAX]
        logged = [("points", PLACES), ("rank", 0), ("name", names)]
        found: Answer = {}
        for key, route, query in (
            ("metrics", "metrics", logged),
            ("usage", "usage", [("points", PLACES)]),
        ):
            try:
                answer = follow.ask(lambda source: source.get(job_route(self.job_id, route), query))  # noqa: B023
            except (NotFoundError, UsageError):
                continue
            if isinstance(answer, dict):
                found[key] = next(iter(answer.values()), {})
        return found


def _starts(job: Answer) -> bool:
    """Whether it runs, and some of its processes are not known yet."""
    known = [process for process in job_text.processes(job) if process.get("pid")]
    return job.get("state") == "running" and len(known) < job_text.count_processes(job)


def _waits(job: Answer) -> bool:
    return job.get("state") == "waiting"


def thinned(answer: Answer, most: int = CONSOLE_BURST_LINES_MAX) -> Answer:
    """Of a burst only the last lines, and how many came before: nobody can read it, and keys must
    not wait for it. What was missed while the server was away is no burst.
    """
    skipped = len(answer.get("lines") or []) - most
    if skipped > 0:
        answer["skipped"], answer["lines"] = skipped, answer["lines"][skipped:]
    return answer


def parts_of(answer: Answer) -> list[Answer]:
    """The lines of a long answer some at a time; all else comes with the last of them."""
    lines = answer.get("lines") or []
    starts = range(0, len(lines), CONSOLE_PART_LINES)
    if len(starts) < 2:
        return [answer]
    parts: list[Answer] = [{"lines": lines[start : start + CONSOLE_PART_LINES]} for start in starts]
    if answer.get("skipped"):
        parts[0]["skipped"] = answer["skipped"]
    return [*parts[:-1], {**answer, **parts[-1], "skipped": 0}]


def of_array(source: Source, array: str) -> list[Answer]:
    """Its jobs, in their order."""
    try:
        found = source.get("/api/jobs", [("array", array), ("limit", JOBS_LISTED_MAX)])
    except NotFoundError:  # deleted meanwhile
        return []
    return sorted(found, key=lambda job: job.get("array_index") or 0)


class JobsFeed(Feed):
    """All jobs that have not ended, or those named and of arrays named, again and again. Ones that
    have ended since are told once more.
    """

    def __init__(
        self,
        source: Source,
        wake: Callable[[], None],
        refs: Sequence[str],
        arrays: Sequence[str] = (),
    ) -> None:
        super().__init__(source, wake)
        self.refs, self.arrays = refs, arrays
        self.with_ended = False  # changed by the view
        self._hurried = threading.Event()
        self._away = self._older = False
        self._cursor: Any = None

    def _ask(self) -> None:
        known: set[str] = set()
        while not self._closed.is_set():
            jobs = until_reached(partial(self._jobs, known), self._tell_lost)
            if self._away:
                self._away = False
                self._found()
            known = {str(job["id"]) for job in jobs if not fmt.is_over(job)}
            self._put({"jobs": jobs})
            self._hurried.wait(CONSOLE_JOBS_S)
            self._hurried.clear()

    def hurry(self) -> None:
        """Ask again at once."""
        self._cursor = None
        self._hurried.set()

    def close(self) -> None:
        super().close()
        self._hurried.set()

    def _jobs(self, known: set[str]) -> list[JsonObject]:
        if self._away:
            self.source.reconnect()
        if self.refs or self.arrays:
            chosen = self._those(self.refs)
            for array in self.arrays:
                chosen += of_array(self.source, array)
            return chosen

        live = [job for job in self._open_jobs() if not fmt.is_over(job)]
        if self.with_ended:
            listed = self.source.get("/api/jobs", [("limit", CONSOLE_ENDED_MAX)])
            return live + [job for job in listed if fmt.is_over(job)]
        ended_meanwhile = known - {str(job["id"]) for job in live}
        return live + self._those(sorted(ended_meanwhile))

    def _those(self, job_ids: Sequence[str]) -> list[JsonObject]:
        found = []
        for job_id in job_ids:
            try:
                found.append(self.source.get(job_route(job_id)))
            except NotFoundError:  # deleted meanwhile
                continue
        return found

    def _open_jobs(self) -> list[JsonObject]:
        """As soon as something has changed. An older server has no such answer and is asked for the
        list.
        """
        if not self._older:
            try:
                found = self.source.get(
                    "/api/watch", [("cursor", self._cursor), ("wait_s", CONSOLE_WAIT_S)]
                )
                self._cursor = found.get("cursor")
                return list(found["jobs"])
            except NotFoundError:
                self._older = True
        return list(self.source.get("/api/jobs", [("state", list(OPEN))]))

    def _tell_lost(self, _: UnreachableError) -> None:
        if self._closed.is_set():
            raise _Closed
        if not self._away:
            self._away = True
            self._lost()

"""What the logs of a failed attempt say of its end. Asked by the loop before it stores that end.

An attempt that failed waits for this, at most `DIAGNOSIS_WAIT_S`; so the cause that is stored, shown
and notified, and the decision to try again, rest on the logs of all ranks.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from headway.diagnose.evidence import End, Evidence, Raised, Stream
from headway.diagnose.exit import Exit, ran_out_of_memory
from headway.diagnose.reader import SIEVE, join_parts, read_stream, shape_of
from headway.diagnose.runner import Diagnosis, diagnose
from headway.home.paths import Paths
from headway.model.job import Attempt, Job, Process, State
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import (
    DIAGNOSIS_BYTES_MAX,
    DIAGNOSIS_CHUNK_BYTES,
    DIAGNOSIS_STREAM_BYTES_MIN,
    DIAGNOSIS_STREAMS_MAX,
    DIAGNOSIS_WAIT_S,
    SEEN_ATTEMPTS_MAX,
    SEEN_JOBS_MAX,
    USUAL_STREAM_BYTES_MAX,
    USUAL_STREAMS_MAX,
)
from headway.store import log_files, log_lines
from headway.store.database import Store

log = logging.getLogger(__name__)

_TROUBLE = tuple(word.decode() for word in SIEVE)


class Begins(Protocol):
    def begin(self, call: Callable[..., Any], *args: object) -> "asyncio.Future[Any]": ...


@dataclass(slots=True)
class _Asked:
    future: "asyncio.Future[Diagnosis]"
    since_s: float


class Diagnoses:
    """Diagnoses under way and done, by the key of the attempt."""

    def __init__(
        self,
        store: Store,
        paths: Paths,
        calls: Begins,
        on_done: Callable[[], None],
        clock_s: Callable[[], float],
    ) -> None:
        self._store, self._paths, self._calls = store, paths, calls
        self._on_done, self._clock_s = on_done, clock_s
        self._asked: dict[str, _Asked] = {}

    def begin(self, job: Job, attempt: Attempt, end: Exit) -> None:
        if attempt.key in self._asked:
            return
        future = self._calls.begin(diagnose_attempt, self._store, self._paths, job, attempt, end)
        future.add_done_callback(lambda _: self._on_done())
        self._asked[attempt.key] = _Asked(future, self._clock_s())

    def results(self) -> dict[str, Diagnosis | None]:
        """Those that are there, and None for those that take too long or that failed."""
        found: dict[str, Diagnosis | None] = {}
        for key, asked in self._asked.items():
            if asked.future.done():
                found[key] = self._result(key, asked.future)
            elif self._clock_s() - asked.since_s > DIAGNOSIS_WAIT_S:
                found[key] = None
        return found

    async def settle(self) -> bool:
        """Wait for all; whether there are any whose end has not been stored."""
        if self._asked:
            await asyncio.wait([asked.future for asked in self._asked.values()])
        return bool(self._asked)

    def forget(self, key: str) -> None:
        self._asked.pop(key, None)

    @staticmethod
    def _result(key: str, future: "asyncio.Future[Diagnosis]") -> Diagnosis | None:
        if future.cancelled():
            return None
        error = future.exception()
        if error is not None:
            log.error("the logs of %s could not be diagnosed", key, exc_info=error)
            return None
        return future.result()


def diagnose_attempt(
    store: Store, paths: Paths, job: Job, attempt: Attempt, end: Exit
) -> Diagnosis:
    """Reads the store; in a thread of its own."""
    with store.read() as c:
        streams = list(read_logs(c, paths, job, attempt))
        usual = usual_lines(c, paths, job)
        found = diagnose(gather(job, attempt, end, streams, usual))
        if found.fingerprint:
            found.seen_before = seen_before(c, job, found.fingerprint)
    return found


def usual_lines(c: sqlite3.Connection, paths: Paths, job: Job) -> frozenset[str]:
    """Shapes of the lines of trouble that the last good attempt of this name printed as well: no cause
    of this failure.
    """
    good = c.execute(
        "SELECT a.job, max(a.number) FROM attempts a WHERE a.job = (SELECT pk FROM jobs"
        " WHERE state = ? AND name = ? AND pk != ? ORDER BY submitted_ns DESC LIMIT 1)",
        (State.SUCCEEDED, job.spec.name, job.pk),
    ).fetchone()
    if good is None or good[0] is None:
        return frozenset()
    outputs = [one for one in log_lines.outputs(c, good[0], attempt=good[1]) if one.position]
    return frozenset(
        shape_of(line.text)
        for output in outputs[:USUAL_STREAMS_MAX]
        for line in _read(c, paths, output, output.stream, USUAL_STREAM_BYTES_MAX).lines
        if any(word in line.text.lower() for word in _TROUBLE)
    )


def seen_before(c: sqlite3.Connection, job: Job, fingerprint: str) -> JsonObject:
    """{count, jobs, came_through}: how often other jobs failed in the same way, the last of them, and
    the job of the same name that came through after one of them.
    """
    rows = c.execute(
        "SELECT j.id, j.name, a.pk FROM (SELECT pk, job, findings FROM attempts"
        " WHERE findings IS NOT NULL ORDER BY pk DESC LIMIT ?) a JOIN jobs j ON j.pk = a.job"
        " WHERE json_extract(a.findings, '$.fingerprint') = ? AND j.pk != ? AND j.deleted_ns IS NULL"
        " ORDER BY a.pk DESC",
        (SEEN_ATTEMPTS_MAX, fingerprint, job.pk),
    ).fetchall()
    if not rows:
        return {}
    last = rows[0]
    came = c.execute(
        "SELECT j.id FROM attempts a JOIN jobs j ON j.pk = a.job WHERE a.pk > ? AND j.name = ?"
        " AND j.state = ? AND j.deleted_ns IS NULL ORDER BY a.pk LIMIT 1",
        (last[2], last[1], State.SUCCEEDED),
    ).fetchone()
    names = list(dict.fromkeys(row[0] for row in rows))
    return {
        "count": len(rows),
        "jobs": names[:SEEN_JOBS_MAX],
        "came_through": came[0] if came else None,
    }


def gather(
    job: Job,
    attempt: Attempt,
    end: Exit,
    streams: list[Stream],
    usual: frozenset[str] = frozenset(),
) -> Evidence:
    node = next((task.node for task in attempt.tasks if _has_rank(task.processes, end.rank)), None)
    raised = [
        _raised(process, process.exception, task.name)
        for task in attempt.tasks
        for process in task.processes
        if process.exception
    ]
    return Evidence(
        streams=streams,
        exit_code=end.exit_code,
        signal=end.signal,
        ends=[End(end.rank, end.exit_code, end.signal, node=node)],
        raised=sorted(raised, key=lambda one: one.time_s or 0.0),
        reason=end.reason,
        oom_kills=int(ran_out_of_memory(end)),
        memory_bytes=job.spec.memory_bytes,
        time_limit_s=job.spec.max_duration_s,
        job=job.id,
        usual_lines=usual,
    )


def _has_rank(processes: list[Process], rank: int | None) -> bool:
    return rank is None or any(process.rank == rank for process in processes)


def _raised(process: Process, exception: JsonMapping, task: str) -> Raised:
    place = ""
    if exception.get("file"):
        place = f"{exception['file']}:{exception.get('line')}"
    time_ns = exception.get("time_ns")
    return Raised(
        kind=str(exception.get("exc_type") or "Exception"),
        message=str(exception.get("message") or ""),
        rank=process.rank,
        task=task,
        time_s=time_ns / 1e9 if isinstance(time_ns, int) else None,
        ended=exception.get("where", "main") == "main",
        place=place,
    )


def read_logs(c: sqlite3.Connection, paths: Paths, job: Job, attempt: Attempt) -> Iterator[Stream]:
    """stdout and stderr of every rank, those of the ranks that ended first first; of long ones the
    first part and the end.
    """
    nodes = {task.name: task.node for task in attempt.tasks}
    ended = {
        (task.name, process.rank): process.ended_ns or 0
        for task in attempt.tasks
        for process in task.processes
    }
    outputs = [one for one in log_lines.outputs(c, job.pk, attempt=attempt.number) if one.position]
    outputs.sort(key=lambda one: ended.get((one.task, one.rank or 0), 0))
    outputs = outputs[:DIAGNOSIS_STREAMS_MAX]
    share = max(DIAGNOSIS_STREAM_BYTES_MIN, DIAGNOSIS_BYTES_MAX // max(1, len(outputs)))
    several = len({(one.task, one.rank) for one in outputs}) > 1
    for output in outputs:
        name = output.stream
        if several and output.rank is not None:
            name = f"{output.stream} of rank {output.rank}"
        stream = _read(c, paths, output, name, share)
        stream.node = nodes.get(output.task)
        if not several:
            stream.rank = None  # a launcher's own: the ranks are in it
        yield stream


def _read(
    c: sqlite3.Connection, paths: Paths, output: log_lines.Output, name: str, share: int
) -> Stream:
    end = output.position
    if end <= share:
        stream = read_stream(name, _chunks(c, paths, output.pk, 0, end), output.rank, output.task)
        first = 0
    else:
        first = end - share * 3 // 4
        head = read_stream(
            name, _chunks(c, paths, output.pk, 0, share // 4), output.rank, output.task
        )
        tail = read_stream(name, _chunks(c, paths, output.pk, first, end))
        stream = join_parts(head, tail, first)
    stream.clock = log_lines.clock(c, paths, output, first, end)
    return stream


def _chunks(c: sqlite3.Connection, paths: Paths, pk: int, start: int, end: int) -> Iterator[bytes]:
    """A gap is read as blank lines: the offsets behind it stay right."""
    for at in range(start, end, DIAGNOSIS_CHUNK_BYTES):
        length = min(DIAGNOSIS_CHUNK_BYTES, end - at)
        for piece in log_files.pieces(c, paths, pk, at, length):
            yield piece.data if piece.missing is None else b"\n" * piece.length

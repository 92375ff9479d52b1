"""Batches into the database: every part at its offset, exactly once (P4). Runs in the writer
thread, inside a commit.

A part that starts beyond its stream's position is not applied; one that starts before it is cut. A
part that is not what it says is refused with a reason and leaves no trace but an event; the other
streams of the batch go on.
"""

import hashlib
import json
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from headway.model.errors import DamagedError, HeadwayError, NotFoundError
from headway.model.limits import (
    HEARD_INTERVAL_S,
    METRIC_NAMES_MAX,
    STREAM_BYTES_MAX,
    STREAMS_MAX,
)
from headway.model.record import BLOB, GAP, INDEX, OPEN, RAW, RECORDS
from headway.store import catalog, fact_rows, summaries
from headway.store.connection import count_written, touch
from headway.store.decode import Decoded, Names, Points, decode
from headway.store.decode_small import Few
from headway.store.decode_small import read as read_few
from headway.store.jsonform import whole
from headway.store.log_files import LogFiles, LogKey
from headway.wire import block
from headway.wire.batch import Part, TaskKey

_TASKS_CACHED = 1024
# in front of the name of a metric that was printed, where the program also logs one of that name
PRINTED, TENSORBOARD = "printed", "tensorboard"
_APART = {"output": PRINTED, "tensorboard": TENSORBOARD}  # by the source of a stream
_WORTH = {"": 2, "tensorboard": 1, "output": 0}
_METRICS_STREAM = re.compile(r"metrics-(\d{1,9})-(\d{1,10}-[0-9a-f]{1,16})\.(\d{1,9})\Z")
_RANKED_STREAM = re.compile(r"(?:stdout|stderr|facts|metrics|logs|media|blob)-(\d{1,9})(?=[.-]|\Z)")
_RAW_STREAM = re.compile(r"(?:stdout|stderr)-\d+\Z|agent\Z")


def _kind_of(name: str) -> str:
    """Of a stream whose first part is a gap, which does not say it."""
    if _RAW_STREAM.match(name):
        return RAW
    if name.startswith("blob-"):
        return BLOB
    return INDEX if name.endswith(".index") else RECORDS


@dataclass(slots=True)
class IngestResult:
    acks: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Process:
    """Series and bundles of one process, as far as they were needed."""

    rank: int
    process: str
    names: int  # series in the database
    series: dict[str, int] = field(default_factory=dict)
    bundles: dict[Names, tuple[int, list[int]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Stream:
    pk: int
    name: str
    kind: str
    rank: int | None
    position: int
    schemas: dict[int, Names] = field(default_factory=dict)
    refused: bool = False
    clock_told: bool = False  # that its times cannot be right


@dataclass(slots=True)
class _Rows:
    """What a batch adds, written together at its end: one statement for all costs a third of one
    for each.
    """

    # bundle, segment, rows, data
    blocks: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    # series, step, time, value, points
    latest: list[summaries.Row] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)  # of record streams


@dataclass(slots=True)
class _Task:
    pk: int
    job: int
    uuid: str
    number: int
    name: str
    events: int
    ended: bool
    heard_ns: int = 0  # when it was last written down
    streams: dict[str, _Stream] = field(default_factory=dict)
    processes: dict[tuple[int, str], _Process] = field(default_factory=dict)


class Ingester:
    """Keeps positions, schemas and keys of recent tasks in memory; the database is the truth, so it
    may forget them.
    """

    def __init__(self, files: LogFiles, clock_ns: Callable[[], int]) -> None:
        self._files, self._clock_ns = files, clock_ns
        self._tasks: OrderedDict[TaskKey, _Task] = OrderedDict()
        self._rows = _Rows()

    def forget(self) -> None:
        """After a rollback, or when jobs were deleted."""
        self._tasks.clear()
        self._rows = _Rows()

    def apply(self, c: sqlite3.Connection, key: TaskKey, parts: list[Part]) -> IngestResult:
        task = self._task(c, key)
        result, applied = IngestResult(), False
        for part in parts:
            if part.stream in result.refused:
                continue
            try:
                stream = self._stream(c, task, part)
                applied |= self._part(c, task, stream, part)
                result.acks[part.stream] = stream.position
            except HeadwayError as error:
                result.refused[part.stream] = error.message
                self._tell_refusal(c, task, part, error)
        self._write_rows(c)
        now_ns = self._clock_ns()
        if applied and now_ns - task.heard_ns >= HEARD_INTERVAL_S * 1e9:
            task.heard_ns = now_ns
            catalog.heard(c, {key: now_ns})
        return result

    def _write_rows(self, c: sqlite3.Connection) -> None:
        rows, self._rows = self._rows, _Rows()
        if rows.blocks:
            c.executemany(
                "INSERT INTO blocks (bundle, segment, rows, data) VALUES (?, ?, ?, ?)", rows.blocks
            )
            count_written(c, sum(len(row[3]) for row in rows.blocks))
            c.executemany(summaries.UPSERT, rows.latest)
        if rows.positions:
            moved = [(position, pk) for pk, position in rows.positions.items()]
            c.executemany("UPDATE streams SET position = ? WHERE pk = ?", moved)

    def _tell_refusal(
        self, c: sqlite3.Connection, task: _Task, part: Part, error: HeadwayError
    ) -> None:
        stream = task.streams.get(part.stream)
        if stream is not None and not stream.refused:
            stream.refused = True
            data = {"stream": part.stream, "offset": part.offset, "reason": error.message}
            catalog.add_event(
                c,
                task.job,
                "refused",
                data,
                self._clock_ns(),
                attempt=task.number,
                rank=stream.rank,
            )

    # -- rows that parts belong to

    def _task(self, c: sqlite3.Connection, key: TaskKey) -> _Task:
        if key in self._tasks:
            self._tasks.move_to_end(key)
            return self._tasks[key]
        row = catalog.task_row(c, key)
        if row is None:
            raise NotFoundError(f"there is no task {key}")
        events = c.execute(
            "SELECT count(*) AS n FROM events WHERE job = :job", {"job": row["job"]}
        ).fetchone()["n"]
        task = _Task(row["task"], row["job"], key.uuid, key.attempt, key.task, events, row["ended"])
        for found in c.execute(
            "SELECT pk, name, kind, rank, position FROM streams WHERE task = :pk", {"pk": task.pk}
        ):
            task.streams[found["name"]] = _Stream(
                found["pk"], found["name"], found["kind"], found["rank"], found["position"]
            )
        by_pk = {stream.pk: stream for stream in task.streams.values()}
        rows = c.execute(
            "SELECT h.* FROM schemas h JOIN streams s ON s.pk = h.stream WHERE s.task = :pk",
            {"pk": task.pk},
        )
        for found in rows:
            by_pk[found["stream"]].schemas[found["id"]] = tuple(json.loads(found["names"]))
        self._tasks[key] = task
        if len(self._tasks) > _TASKS_CACHED:
            self._tasks.popitem(last=False)
        return task

    def _stream(self, c: sqlite3.Connection, task: _Task, part: Part) -> _Stream:
        stream = task.streams.get(part.stream) or self._new_stream(c, task, part.stream, part.kind)
        if part.kind not in (stream.kind, GAP):
            raise DamagedError(f"{part.stream} is a stream of {stream.kind}, not of {part.kind}")
        return stream

    def _new_stream(self, c: sqlite3.Connection, task: _Task, name: str, kind: str) -> _Stream:
        if len(task.streams) >= STREAMS_MAX:
            raise DamagedError(f"the task has {STREAMS_MAX} streams already")
        if kind == GAP:
            kind = _kind_of(name)
        ranked = _RANKED_STREAM.match(name)
        rank = int(ranked[1]) if ranked else None
        cursor = c.execute(
            "INSERT INTO streams (task, name, kind, rank) VALUES (:task, :name, :kind, :rank)",
            {"task": task.pk, "name": name, "kind": kind, "rank": rank},
        )
        stream = task.streams[name] = _Stream(int(cursor.lastrowid or 0), name, kind, rank, 0)
        return stream

    # -- parts

    def _part(self, c: sqlite3.Connection, task: _Task, stream: _Stream, part: Part) -> bool:
        """Apply what is new of a part; whether there was anything."""
        if part.kind == GAP:
            return self._gap(c, task, stream, part)
        cut = stream.position - part.offset
        if cut < 0 or cut >= len(part.data):
            return False  # beyond the position: its sender goes back to it; or all of it is known
        data = memoryview(part.data)[cut:]
        if part.kind == RECORDS:
            self._records(c, task, stream, data)
        else:
            self._bytes(c, task, stream, data)
        self._advance(c, stream, len(data))
        return True

    def _advance(self, c: sqlite3.Connection, stream: _Stream, length: int) -> None:
        stream.position += length
        if stream.kind == RECORDS:
            self._rows.positions[stream.pk] = stream.position
            return
        c.execute(
            "UPDATE streams SET position = :position WHERE pk = :pk",
            {"position": stream.position, "pk": stream.pk},
        )

    def _gap(self, c: sqlite3.Connection, task: _Task, stream: _Stream, part: Part) -> bool:
        try:
            told = fact_rows.read_fact(memoryview(part.data))
        except ValueError as error:
            raise DamagedError(f"a gap cannot be read: {error}") from None
        length = whole(told.get("bytes"))
        if length is None or length <= 0 or part.offset + length >= STREAM_BYTES_MAX:
            raise DamagedError("a gap has no length that a stream can have")
        end = part.offset + length
        if part.offset > stream.position or end <= stream.position:
            return False
        missing, now_ns = end - stream.position, self._clock_ns()
        row = {
            "offset": stream.position, "bytes": missing, "records": whole(told.get("records")),
            "points": whole(told.get("points")), "reason": fact_rows.text(told.get("reason")) or "unknown",
        }  # fmt: skip
        c.execute(
            """INSERT INTO gaps (stream, offset, bytes, records, points, reason, time_ns)
               VALUES (:stream, :offset, :bytes, :records, :points, :reason, :now)""",
            {**row, "stream": stream.pk, "now": now_ns},
        )
        shown = {"stream": stream.name, **row}
        self._tell(c, task, stream, "gap", shown)
        if stream.kind != RECORDS:
            self._files.skip(c, self._log_key(task, stream), end)
        self._advance(c, stream, missing)
        return True

    def _log_key(self, task: _Task, stream: _Stream) -> LogKey:
        return LogKey(stream.pk, task.uuid, task.number, task.name, stream.name)

    def _bytes(self, c: sqlite3.Connection, task: _Task, stream: _Stream, data: memoryview) -> None:
        if stream.kind == INDEX and (len(data) % 16 or stream.position % 16):
            raise DamagedError("an index has entries of 16 bytes")
        # once the task has ended, its files are what a person opens next: nothing waits in the
        # database
        is_blob = stream.kind == BLOB
        key = self._log_key(task, stream)
        self._files.append(c, key, stream.position, data, direct=task.ended or is_blob)
        touch(c, task.job, "artifacts" if is_blob else "logs")

    def _records(
        self, c: sqlite3.Connection, task: _Task, stream: _Stream, data: memoryview
    ) -> None:
        few = read_few(data, stream.schemas)
        if few is not None and self._few(c, task, stream, few):
            return
        found = decode(data, stream.schemas)
        for _, kind, payload in found.others:
            if kind == OPEN:
                fact_rows.check_open(payload)
        process, segment = self._process(c, task, stream)
        if found.points:
            self._check_names(process, found)
        # from here on nothing is refused any more
        for schema, names in found.schemas.items():
            c.execute(
                "INSERT INTO schemas (stream, id, names) VALUES (:stream, :id, :names)",
                {"stream": stream.pk, "id": schema, "names": json.dumps(names)},
            )
            stream.schemas[schema] = names
        if found.others:  # first, for its opening says whose values they are
            self._facts(c, task, stream, found)
        for points in found.points:
            self._points(c, task, stream, process, segment, points)
        if found.points:
            touch(c, task.job, "metrics")

    def _few(self, c: sqlite3.Connection, task: _Task, stream: _Stream, few: Few) -> bool:
        """False where its names are new to the process: then they are counted first."""
        process, segment = self._process(c, task, stream)
        known = process.bundles.get(few.names)
        if known is None:
            return False
        self._add(*known, segment, few)
        touch(c, task.job, "metrics")
        return True

    def _facts(self, c: sqlite3.Connection, task: _Task, stream: _Stream, found: Decoded) -> None:
        x = self._context(task, stream)
        for place, kind, payload in found.others:
            x.offset = stream.position + place
            fact_rows.apply(c, x, kind, payload)
        task.events = x.events
        for rank in x.started_ranks or ():
            self._make_output(c, task, rank)
        if x.ended and not task.ended:
            task.ended = True
            for other in task.streams.values():
                if other.kind != RECORDS:
                    self._files.spill(c, self._log_key(task, other))

    def _tell(
        self, c: sqlite3.Connection, task: _Task, stream: _Stream, type_: str, data: fact_rows.Fact
    ) -> None:
        x = self._context(task, stream)
        fact_rows.event(c, x, type_, data, x.now_ns)
        task.events = x.events

    def _context(self, task: _Task, stream: _Stream) -> fact_rows.Context:
        return fact_rows.Context(
            task.job,
            task.number,
            task.pk,
            stream.pk,
            stream.name,
            stream.rank,
            self._clock_ns(),
            task.events,
        )

    def _make_output(self, c: sqlite3.Connection, task: _Task, rank: int) -> None:
        """A process has started: its output has files from now on, even if it never prints."""
        for name in (f"stdout-{rank}", f"stderr-{rank}"):
            if name not in task.streams and len(task.streams) < STREAMS_MAX:
                self._new_stream(c, task, name, RAW)
            if name in task.streams:
                self._files.touch(self._log_key(task, task.streams[name]))

    # -- points

    def _process(self, c: sqlite3.Connection, task: _Task, stream: _Stream) -> tuple[_Process, int]:
        """The process that writes this stream, and the stream's place among its segments."""
        match = _METRICS_STREAM.match(stream.name)
        name, segment = (match[2], int(match[3])) if match else (stream.name, 0)
        key = (stream.rank or 0, name)
        if key not in task.processes:
            count = c.execute(
                """SELECT count(DISTINCT m.series) AS n FROM bundles u JOIN members m ON m.bundle = u.pk
                   WHERE u.job = :job AND u.attempt = :attempt AND u.rank = :rank AND u.process = :process""",
                {"job": task.job, "attempt": task.number, "rank": key[0], "process": name},
            ).fetchone()["n"]
            task.processes[key] = _Process(key[0], name, count)
        return task.processes[key], segment

    def _check_names(self, process: _Process, found: Decoded) -> None:
        new = {
            name
            for points in found.points
            if points.names not in process.bundles
            for name in points.names
        }
        if process.names + len(new - process.series.keys()) > METRIC_NAMES_MAX:
            raise DamagedError(f"the process has more than {METRIC_NAMES_MAX:,} metric names")

    def _points(
        self,
        c: sqlite3.Connection,
        task: _Task,
        stream: _Stream,
        process: _Process,
        segment: int,
        points: Points,
    ) -> None:
        bundle, series = process.bundles.get(points.names) or self._bundle(
            c, task, process, points.names
        )
        times = self._times(c, task, stream, points)
        rows = len(points.steps)
        columns = [
            block.encode_ints(points.steps, dense=False), block.encode_ints(times, dense=False),
            *block.encode_float_rows(points.values),
        ]  # fmt: skip
        last = points.values[:, -1].tobytes()
        values = [last[i : i + 8] for i in range(0, len(last), 8)]
        self._add(
            bundle,
            series,
            segment,
            Few(
                points.names,
                rows,
                columns,
                int(points.steps[-1]),
                int(times[-1]),
                values,
                summaries.ranges(points.steps, points.values),
            ),
        )

    def _add(self, bundle: int, series: list[int], segment: int, few: Few) -> None:
        self._rows.blocks.append((bundle, segment, few.rows, block.encode(few.rows, few.columns)))
        step, time_ns, rows = few.step, few.time_us * 1000, few.rows
        self._rows.latest += [
            (pk, step, time_ns, last, rows, *extremes, rows)
            for pk, last, extremes in zip(series, few.last, few.ranges, strict=True)
        ]

    def _times(
        self, c: sqlite3.Connection, task: _Task, stream: _Stream, points: Points
    ) -> block.Ints:
        """Microseconds; a clock that cannot be right is replaced by the time of receipt, and told
        (B13): once for each stream, and again only where that was forgotten here, as by a restart.
        """
        times = points.times_ns // 1000
        low, high = fact_rows.TIME_NS_MIN // 1000, fact_rows.TIME_NS_MAX // 1000
        if times.min() >= low and times.max() < high:
            return times
        wrong = (times < low) | (times >= high)
        if not stream.clock_told:
            # the first part of it says enough: all that follow are wrong likewise
            stream.clock_told = True
            data = {
                "stream": stream.name,
                "points": int(wrong.sum()),
                "first_ns": int(points.times_ns[wrong.argmax()]),
            }
            self._tell(c, task, stream, "clock", data)
        return np.where(wrong, self._clock_ns() // 1000, times)

    def _bundle(
        self, c: sqlite3.Connection, task: _Task, process: _Process, names: Names
    ) -> tuple[int, list[int]]:
        """Key of the bundle and of its series, made where they are new."""
        series = [self._series(c, task, process, name) for name in names]
        where = {
            "job": task.job, "attempt": task.number, "rank": process.rank, "process": process.process,
            "digest": hashlib.blake2b(json.dumps(names).encode(), digest_size=16).digest(),
        }  # fmt: skip
        row = c.execute(
            """SELECT pk FROM bundles WHERE job = :job AND attempt = :attempt AND rank = :rank AND process = :process
                 AND digest = :digest""",
            where,
        ).fetchone()
        if row is None:
            cursor = c.execute(
                """INSERT INTO bundles (job, attempt, rank, process, digest)
                   VALUES (:job, :attempt, :rank, :process, :digest)""",
                where,
            )
            pk = int(cursor.lastrowid or 0)
            c.executemany(
                "INSERT INTO members (series, bundle, position) VALUES (?, ?, ?)",
                [(one, pk, place) for place, one in enumerate(series)],
            )
        else:
            pk = int(row["pk"])
        process.bundles[names] = (pk, series)
        return pk, series

    def _series(self, c: sqlite3.Connection, task: _Task, process: _Process, name: str) -> int:
        if name in process.series:
            return process.series[name]
        where = {
            "job": task.job, "attempt": task.number, "rank": process.rank, "process": process.process, "name": name,
        }  # fmt: skip
        known = self._of_rank(c, where)
        apart = self._is_apart(c, task, process, known) if process.process not in known else None
        if apart is not None:
            where["name"] = f"{apart}/{name}"
            known = self._of_rank(c, where)
        pk = known.get(process.process)
        if pk is None:
            cursor = c.execute(
                """INSERT INTO series (job, attempt, rank, process, name)
                   VALUES (:job, :attempt, :rank, :process, :name)""",
                where,
            )
            pk, process.names = int(cursor.lastrowid or 0), process.names + 1
        process.series[name] = pk
        return pk

    def _of_rank(self, c: sqlite3.Connection, where: dict[str, object]) -> dict[str, int]:
        """Series of that name and rank, by process."""
        rows = c.execute(
            "SELECT pk, process FROM series WHERE job = :job AND name = :name AND attempt = :attempt AND rank = :rank",
            where,
        )
        return {row["process"]: int(row["pk"]) for row in rows}

    def _is_apart(
        self, c: sqlite3.Connection, task: _Task, process: _Process, others: dict[str, int]
    ) -> str | None:
        """What a program logs itself, what is read from its event files and what it only prints are
        not one series; the first counts most. The word in front of the new one's name, where it is
        to be called otherwise; where it is the others that count less, they are.
        """
        mine = self._source(c, task, process.rank, process.process)
        for other, pk in others.items():
            its = self._source(c, task, process.rank, other)
            if _WORTH[its] > _WORTH[mine]:
                return _APART[mine]
            if _WORTH[its] < _WORTH[mine]:
                c.execute(
                    "UPDATE series SET name = ? || '/' || name WHERE pk = ?", (_APART[its], pk)
                )
        return None

    def _source(self, c: sqlite3.Connection, task: _Task, rank: int, process: str) -> str:
        """Where its values were read (`agent/observe/`), as the opening of its stream says; empty:
        the program logged them.
        """
        front = f"metrics-{rank}-{process}"
        row = c.execute(
            "SELECT opened FROM streams WHERE task = ? AND name > ? AND name < ? AND opened IS NOT NULL LIMIT 1",
            (task.pk, f"{front}.", f"{front}/"),  # "/" follows "."
        ).fetchone()
        source = json.loads(row["opened"]).get("source") if row is not None else ""
        return source if source in _WORTH else ""

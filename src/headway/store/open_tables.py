"""The store as plain tables for other programs: Arrow, from which `hw sql` and `hw export` are made.
Runs in the child process of `open_data`, on a read-only connection.

A table is made only when a query names it. Metrics are read by what their blocks share: the axis of
a piece once for all its metrics.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headway.home.paths import Paths
from headway.model.errors import RefusedError
from headway.model.json_types import JsonObject
from headway.model.limits import SQL_LOG_BYTES_MAX, SQL_POINTS_MAX, SQL_USAGE_ROWS_MAX
from headway.store import catalog, effective_config, log_lines
from headway.store.redone_steps import RedoneSteps
from headway.wire.block import Block
from headway.wire.filter_language import as_number

BATCH_ROWS: Final = 1 << 20
_SOME: Final = 1_000
_TIME = pa.timestamp("us", tz="UTC")
_WORD = pa.dictionary(pa.int32(), pa.string())
_INT, _REAL, _TEXT = pa.int64(), pa.float64(), pa.string()

SCHEMAS: Final[dict[str, pa.Schema]] = {
    name: pa.schema(list(columns.items()))
    for name, columns in {
        "jobs": {
            "id": _TEXT, "name": _TEXT, "experiment": _TEXT, "state": _TEXT, "cluster": _TEXT, "engine": _TEXT,
            "submitted_at": _TIME, "started_at": _TIME, "ended_at": _TIME, "elapsed_s": _REAL, "exit_code": _INT,
            "signal": _INT, "gpus": _INT, "command": _TEXT, "cwd": _TEXT, "tags": pa.list_(_TEXT), "parent": _TEXT,
            "array_index": _INT,
        },
        "attempts": {
            "job": _TEXT, "number": _INT, "state": _TEXT, "engine_id": _TEXT, "cause": _TEXT, "class": _TEXT,
            "text": _TEXT, "exit_code": _INT, "signal": _INT, "created_at": _TIME, "started_at": _TIME,
            "ended_at": _TIME,
        },
        "config": {"job": _TEXT, "key": _TEXT, "value": _TEXT, "number": _REAL},
        "metrics": {
            "job": _WORD, "attempt": pa.int32(), "rank": pa.int32(), "name": _WORD, "step": _INT, "time": _TIME,
            "value": _REAL, "redone": pa.bool_(),
        },
        "usage": {
            "job": _WORD, "attempt": pa.int32(), "task": _WORD, "span": pa.int32(), "time": _TIME, "rank": _INT,
            "key": _WORD, "value": _REAL,
        },
        "events": {
            "job": _TEXT, "time": _TIME, "type": _TEXT, "attempt": _INT, "rank": _INT, "data": _TEXT,
        },
        "logs": {
            "job": _WORD, "attempt": pa.int32(), "task": _WORD, "rank": _INT, "stream": _WORD, "offset": _INT,
            "time": _TIME, "text": _TEXT,
        },
        "findings": {
            "job": _TEXT, "attempt": _INT, "kind": _TEXT, "cause": _TEXT, "class": _TEXT, "confidence": _REAL,
            "task": _TEXT, "rank": _INT, "node": _TEXT, "text": _TEXT, "evidence": _TEXT, "advice": _TEXT,
            "since": _TIME, "until": _TIME,
        },
    }.items()
}  # fmt: skip
TABLES: Final = tuple(SCHEMAS)


def batches(
    c: sqlite3.Connection, paths: Paths, name: str, jobs: Sequence[int], *, points_max: int = SQL_POINTS_MAX
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The rows of a table, of these jobs."""
    if name == "metrics":
        yield from _metrics(c, jobs, points_max)
        return
    rows = _ROWS[name](c, paths, jobs)
    schema = SCHEMAS[name]
    columns: list[list[Any]] = [[] for _ in schema]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        if len(columns[0]) >= BATCH_ROWS // 4:
            yield _batch(schema, columns)
            columns = [[] for _ in schema]
    yield _batch(schema, columns)


def _batch(schema: pa.Schema, columns: list[list[Any]]) -> pa.RecordBatch:
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(column, _TEXT).dictionary_encode())
        else:
            arrays.append(pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chunks(c: sqlite3.Connection, select: str, jobs: Sequence[int]) -> Iterator[sqlite3.Row]:
    """`select` ends where the list of jobs stands: `… IN {}`."""
    for start in range(0, len(jobs), _SOME):
        some = list(jobs[start : start + _SOME])
        yield from c.execute(select.format(f"({', '.join('?' * len(some))})"), some)


def _us(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000


# -- small tables

Rows = Iterator[tuple[Any, ...]]


def _jobs(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    for row in _chunks(c, "SELECT * FROM jobs WHERE pk IN {}", jobs):
        spec = json.loads(row["spec"])
        elapsed_s = None
        if row["started_ns"] is not None and row["ended_ns"] is not None:
            elapsed_s = (row["ended_ns"] - row["started_ns"]) / 1e9
        command = " ".join(str(word) for word in spec.get("command") or [])
        yield (
            row["id"], row["name"], row["experiment"], row["state"], row["cluster"], row["engine"],
            _us(row["submitted_ns"]), _us(row["started_ns"]), _us(row["ended_ns"]), elapsed_s, row["exit_code"],
            row["signal"], spec.get("gpus"), _text(command), _text(str(spec.get("cwd"))), json.loads(row["tags"]),
            spec.get("parent"), row["array_index"],
        )  # fmt: skip


def _attempts(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    select = "SELECT a.*, j.id FROM attempts a JOIN jobs j ON j.pk = a.job WHERE a.job IN {} ORDER BY a.pk"
    for row in _chunks(c, select, jobs):
        cause = json.loads(row["cause"]) if row["cause"] else {}
        yield (
            row["id"], row["number"], row["state"], row["engine_id"], cause.get("cause"), cause.get("class"),
            _text(cause.get("text")), row["exit_code"], row["signal"], _us(row["created_ns"]), _us(row["started_ns"]),
            _us(row["ended_ns"]),
        )  # fmt: skip


def _config(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    for row in _chunks(c, "SELECT id, config, spec FROM jobs WHERE pk IN {}", jobs):
        for key, value in effective_config.effective(row["config"], row["spec"]).items():
            text = value if isinstance(value, str) else json.dumps(value)
            yield row["id"], _text(key), _text(text), as_number(value)


def _events(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    select = (
        "SELECT e.*, j.id FROM events e JOIN jobs j ON j.pk = e.job WHERE e.job IN {} ORDER BY e.pk"
    )
    for row in _chunks(c, select, jobs):
        yield (
            row["id"],
            _us(row["time_ns"]),
            row["type"],
            row["attempt"],
            row["rank"],
            _text(row["data"]),
        )


def _findings(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    """What the rules found. `kind`: `verdict` is why an attempt or a job ended, `finding` and
    `hypothesis` are what else speaks or could speak, `hang` and `slow` were seen while it ran.
    """
    select = """SELECT j.id, a.number, a.cause, a.findings, a.started_ns, a.ended_ns FROM attempts a
                JOIN jobs j ON j.pk = a.job WHERE a.cause IS NOT NULL AND a.job IN {} ORDER BY a.pk"""
    for row in [*_chunks(c, select, jobs)]:
        kept: JsonObject = json.loads(row["findings"] or "null") or {}
        read: list[JsonObject] = kept.get("findings") or [{}]
        told = [
            ("verdict", {**read[0], **json.loads(row["cause"])}),
            *(("finding", one) for one in read[1:]),
            *(("hypothesis", one) for one in kept.get("hypotheses") or []),
        ]
        for kind, finding in told:
            yield _finding(row["id"], row["number"], kind, finding, None, row["ended_ns"])
    own = "SELECT id, cause, ended_ns FROM jobs WHERE cause IS NOT NULL AND pk IN {}"
    for row in [*_chunks(c, own, jobs)]:
        yield _finding(row["id"], None, "verdict", json.loads(row["cause"]), None, row["ended_ns"])
    seen = """SELECT j.id, h.* FROM health h JOIN jobs j ON j.pk = h.job WHERE h.job IN {}
              ORDER BY h.pk"""
    for row in [*_chunks(c, seen, jobs)]:
        finding = json.loads(row["finding"])
        yield _finding(
            row["id"], row["attempt"], row["kind"], finding, row["since_ns"], row["ended_ns"]
        )


def _finding(
    job: str, attempt: int | None, kind: str, finding: JsonObject, since_ns: int | None,
    until_ns: int | None,
) -> tuple[Any, ...]:  # fmt: skip
    lines = [str(one.get("text", "")) for one in finding.get("evidence") or []]
    confidence = finding.get("confidence")
    return (
        job, attempt, kind, finding.get("cause"), finding.get("class"),
        float(confidence) if isinstance(confidence, int | float) else None, finding.get("task"),
        finding.get("rank"), finding.get("node"), _text(finding.get("text")), _text("\n".join(lines)) or None,
        _text(finding.get("advice")) or None, _us(since_ns), _us(until_ns),
    )  # fmt: skip


def _usage(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    """A row for each number of a sample. `span`: 0 as sampled, 1 and 2 for 10 s and 60 s."""
    select = """SELECT u.level, u.time_ns, u.data, t.name AS task, a.number, j.id FROM usage u
                JOIN tasks t ON t.pk = u.task JOIN attempts a ON a.pk = t.attempt JOIN jobs j ON j.pk = a.job
                WHERE a.job IN {} ORDER BY a.job, u.time_ns"""
    count = 0
    for row in _chunks(c, select, jobs):
        fact = json.loads(zlib.decompress(row["data"]))
        head = (row["id"], row["number"], row["task"], row["level"], _us(row["time_ns"]))
        for rank, key, value in _numbers(fact):
            count += 1
            if count > SQL_USAGE_ROWS_MAX:
                raise _too_many("usage", SQL_USAGE_ROWS_MAX, "rows")
            yield (*head, rank, key, value)


def _numbers(fact: JsonObject) -> Iterator[tuple[int | None, str, float]]:
    for key, value in fact.items():
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    yield from _numbers_of_rank(key, item)
        elif isinstance(value, dict):
            for name, number in _leaves(value, ""):
                yield None, f"{key}.{name}", number
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield None, key, float(value)


def _numbers_of_rank(key: str, item: JsonObject) -> Iterator[tuple[int | None, str, float]]:
    rank = item.get("rank")
    if not isinstance(rank, int):
        rank = None
    for name, number in _leaves(item, ""):
        if name != "rank":
            yield rank, f"{key}.{name}", number


def _leaves(values: JsonObject, prefix: str) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)


def _logs(c: sqlite3.Connection, paths: Paths, jobs: Sequence[int]) -> Rows:
    """Lines of stdout and stderr, with the time at which they were seen."""
    left = SQL_LOG_BYTES_MAX
    for row in _chunks(c, "SELECT pk, id FROM jobs WHERE pk IN {}", jobs):
        numbers = c.execute("SELECT number FROM attempts WHERE job = ?", (row["pk"],)).fetchall()
        for (number,) in numbers:
            for output in log_lines.outputs(c, row["pk"], attempt=number):
                offset = 0
                while offset < output.position:
                    found = log_lines.read_lines(c, paths, output, offset, 4 << 20, final=True)
                    after = found.cursor.get(output.pk, output.position)
                    left -= max(0, after - offset)
                    if left < 0:
                        raise _too_many("logs", SQL_LOG_BYTES_MAX, "bytes")
                    for line in found.lines:
                        yield (
                            row["id"], number, output.task, output.rank, output.stream, line.offset, line.time_us,
                            _text(line.text),
                        )  # fmt: skip
                    if after <= offset:
                        break
                    offset = after


def _text(value: str | None) -> str | None:
    """Arrow takes only what is Unicode."""
    return None if value is None else value.encode("utf-8", "replace").decode()


_ROWS: Final[dict[str, Callable[[sqlite3.Connection, Paths, Sequence[int]], Rows]]] = {
    "jobs": _jobs, "attempts": _attempts, "config": _config, "events": _events, "findings": _findings,
    "usage": _usage, "logs": _logs,
}  # fmt: skip


def _too_many(table: str, most: int, unit: str) -> RefusedError:
    return RefusedError(
        f"the table {table} of these jobs has more than {most:,} {unit}",
        "choose fewer jobs: -e EXPERIMENT, ids or --where before the query",
    )


# -- metrics


class _Collector:
    """Columns of points until there are enough for a batch."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int, int, int, Any, Any, Any, Any]] = []
        self.rows = 0
        self.jobs: dict[str, int] = {}
        self.names: dict[str, int] = {}

    def add(
        self, job: str, attempt: int, rank: int, name: str, lost_from: int | None,
        steps: Any, times: Any, values: Any,
    ) -> None:  # fmt: skip
        job_index = self.jobs.setdefault(job, len(self.jobs))
        name_index = self.names.setdefault(name, len(self.names))
        redone = np.zeros(len(values), bool) if lost_from is None else steps >= lost_from
        self.parts.append((job_index, attempt, rank, name_index, steps, times, values, redone))
        self.rows += len(values)

    def batch(self) -> pa.RecordBatch:
        counts = np.array([len(part[6]) for part in self.parts])
        words = [
            np.repeat(np.array([part[i] for part in self.parts], np.int32), counts)
            for i in range(4)
        ]
        steps, times, values, redone = (
            np.concatenate([part[i] for part in self.parts]) for i in (4, 5, 6, 7)
        )
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(words[0]), pa.array(list(self.jobs), _TEXT)),
            pa.array(words[1]), pa.array(words[2]),
            pa.DictionaryArray.from_arrays(pa.array(words[3]), pa.array(list(self.names), _TEXT)),
            pa.array(steps), pa.array(times).cast(_TIME), pa.array(values), pa.array(redone),
        ]  # fmt: skip
        self.__init__()  # type: ignore[misc]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS["metrics"])


def _metrics(
    c: sqlite3.Connection, jobs: Sequence[int], points_max: int
) -> Iterator[pa.RecordBatch]:
    total = 0
    for row in _chunks(
        c,
        "SELECT sum(l.points) AS n FROM series s JOIN latest l ON l.series = s.pk WHERE s.job IN {}",
        jobs,
    ):
        total += row["n"] or 0
    if total > points_max:
        raise _too_many("metrics", points_max, "points")
    collector = _Collector()
    for pk in jobs:
        job_id = catalog.ids_of(c, [pk]).get(pk)
        if job_id is None:
            continue
        for found in _points_of(c, pk):
            collector.add(job_id, *found)
            if collector.rows >= BATCH_ROWS:
                yield collector.batch()
    if collector.parts:
        yield collector.batch()


Piece = tuple[int, int, str, int | None, Any, Any, Any]


def _points_of(c: sqlite3.Connection, job: int) -> Iterator[Piece]:
    """(attempt, rank, name, lost from step, steps, times, values) of every piece and block of a job."""
    lost = _lost_steps(c, job)
    rows = c.execute("SELECT pk, attempt, rank, name FROM series WHERE job = ?", (job,))
    series = {
        row["pk"]: (row["attempt"], row["rank"], row["name"], lost.get(row["pk"])) for row in rows
    }
    pieces = c.execute(
        """SELECT k.series, k.axis, k.data FROM series s CROSS JOIN columns k ON k.series = s.pk
           WHERE s.job = ? AND k.level = 0 ORDER BY k.axis, k.series""",
        (job,),
    )
    axis, steps, times = None, None, None
    for row in pieces:
        if row["axis"] != axis:
            axis = row["axis"]
            found = c.execute("SELECT data FROM axes WHERE pk = ?", (axis,)).fetchone()
            block = Block(found["data"])
            steps, times = block.ints(0), block.ints(1)
        yield (*series[row["series"]], steps, times, Block(row["data"]).floats(0))
    blocks = c.execute(
        """SELECT b.bundle, b.data FROM bundles u CROSS JOIN blocks b ON b.bundle = u.pk
           WHERE u.job = ? AND b.tier >= 0 ORDER BY b.bundle, b.segment, b.pk""",
        (job,),
    ).fetchall()
    bundle, members = None, []
    for row in blocks:
        if row["bundle"] != bundle:
            bundle = row["bundle"]
            members = c.execute(
                "SELECT series, position FROM members WHERE bundle = ? ORDER BY position", (bundle,)
            ).fetchall()
        block = Block(row["data"])
        steps, times = block.ints(0), block.ints(1)
        for member in members:
            yield (*series[member["series"]], steps, times, block.floats(2 + member["position"]))


def _lost_steps(c: sqlite3.Connection, job: int) -> dict[int, int]:
    """By series, the step from which on a later attempt has done its work again."""
    several = c.execute(
        """SELECT name FROM series WHERE job = ? GROUP BY name, rank HAVING count(*) > 1
           OR max(attempt) < (SELECT max(attempt) FROM series WHERE job = ?)""",
        (job, job),
    ).fetchall()
    redone = RedoneSteps(c, job)
    found: dict[int, int] = {}
    for name in {row["name"] for row in several}:
        for one in redone.stretches(name):
            if one.lost_from is not None:
                found[one.pk] = one.lost_from
    return found

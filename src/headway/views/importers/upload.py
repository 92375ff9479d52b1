"""An imported run becomes a job: its streams, made the same way each time, are sent at the offsets that
the server asks for. What it has already is cut off, so nothing is doubled.
"""

import hashlib
import struct
import time
import uuid as uuids
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headway.model.json_types import JsonObject
from headway.model.limits import METRIC_NAME_BYTES_MAX, STREAMS_MAX
from headway.model.record import FACT, FORMAT_VERSION, OPEN, RECORDS
from headway.views.api.source import Source
from headway.views.importers.imported_run import ImportedRun, MixedStream, PointStream
from headway.wire.batch import Part, TaskKey, encode
from headway.wire.frame import encode as encode_frame
from headway.wire.frame import encode_json, encode_schema, metrics_head, metrics_struct

NAMESPACE = uuids.UUID(
    "6f1cbb5a-3b0e-5d0e-9d5c-8d0f6f9b7a11"
)  # changing it would import everything anew
PID = 1
PIECE_BYTES = 4 * 1024 * 1024
_FACT_BYTES_MAX = 900 * 1024


class Uploaded:
    def __init__(self, id_: str, is_new: bool) -> None:
        self.id, self.is_new = id_, is_new
        self.points = 0  # that were new
        self.skipped: list[str] = []


def upload(source: Source, run: ImportedRun) -> Uploaded:
    uuid = str(uuids.uuid5(NAMESPACE, f"{run.source}\n{run.key}"))
    body = {
        "uuid": uuid, "name": run.name or run.source, "source": run.source, "started_ns": run.started_ns,
        "ended_ns": max(run.ended_ns, run.started_ns), "state": run.state, "experiment": run.experiment,
        "command": run.command[:1000], "cwd": run.cwd or "/", "user": run.user, "host": run.host,
        "tags": run.tags[:64], "exit_code": run.exit_code,
    }  # fmt: skip
    answer = source.post("/api/imports", body, again=True)
    task = TaskKey(uuid, int(answer["attempt"]), str(answer["task"]))
    found = Uploaded(str(answer["id"]), bool(answer["is_new"]))
    have = {str(name): int(position) for name, position in answer["streams"].items()}
    sender = _Sender(source, task, have)
    facts = list(_facts(run))
    if facts:
        data = b"".join(facts)
        name = f"facts-0-{PID}-{hashlib.sha256(data).hexdigest()[:6]}"
        sender.send(name, [_opening(name, "facts", run.started_ns), data])
    for number, stream in enumerate(run.streams):
        if number >= STREAMS_MAX - 16:
            found.skipped.append(
                f"{len(run.streams) - number} series: a job has at most {STREAMS_MAX} streams"
            )
            break
        name = f"metrics-0-{PID}-{hashlib.sha256(stream.source.encode()).hexdigest()[:6]}.0"
        counter = _Counter(stream, found.skipped)
        sender.send(name, _chain(_opening(name, "metrics", run.started_ns), counter.frames()))
        found.points += counter.points if have.get(name, 0) == 0 else sender.sent_points(counter)
    sender.flush()
    return found


def _chain(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _opening(name: str, kind: str, time_ns: int) -> bytes:
    fields = {
        "version": FORMAT_VERSION, "stream": name, "kind": kind, "rank": 0, "pid": PID, "start": None,
        "segment": 0 if kind == "metrics" else None, "time_ns": time_ns,
    }  # fmt: skip
    return encode_json(OPEN, fields)


def _facts(run: ImportedRun) -> Iterator[bytes]:
    at = {"time_ns": run.ended_ns}
    if run.config:
        yield from _fact(run, "config", {"type": "config", **at, "config": _plain(run.config)})
    if run.tags:
        yield from _fact(run, "tags", {"type": "tags", **at, "tags": run.tags[:64]})
    for definition in run.definitions:
        yield from _fact(run, "definition", {"type": "metric", **at, **definition})
    if run.summary:
        yield from _fact(run, "summary", {"type": "summary", **at, "values": _plain(run.summary)})


def _fact(run: ImportedRun, what: str, fact: JsonObject) -> Iterator[bytes]:
    frame = encode_json(FACT, fact)
    if len(frame) > _FACT_BYTES_MAX:
        run.skipped.append(f"its {what}: larger than {_FACT_BYTES_MAX} bytes")
        return
    yield frame


def _plain(value: object) -> Any:
    """JSON can hold no NaN; names are texts."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value - value != 0.0:
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


class _Counter:
    """The frames of a stream, and how many points are in them."""

    def __init__(self, stream: PointStream | MixedStream, skipped: list[str]) -> None:
        self._stream, self._skipped = stream, skipped
        self.points = 0
        self._schemas: dict[tuple[str, ...], tuple[int, Any]] = {}

    def frames(self) -> Iterator[bytes]:
        if isinstance(self._stream, PointStream):
            names = self._stream.names
            records: Iterable[tuple[tuple[str, ...], int, int, Sequence[float]]] = (
                (names, *point) for point in self._stream.points
            )
        else:
            records = self._stream.records
        for names, step, time_ns, values in records:
            known = self._schemas.get(names)
            if known is None:
                bad = next(
                    (name for name in names if not 0 < len(name.encode()) <= METRIC_NAME_BYTES_MAX),
                    None,
                )
                if bad is not None:
                    self._skipped.append(f"metric {bad[:60]!r}: its name is empty or too long")
                    continue
                number = len(self._schemas)
                known = self._schemas[names] = (number, metrics_struct(len(names)).pack)
                yield encode_schema(number, names)
            try:
                body = known[1](*metrics_head(len(names), known[0]), step, time_ns, *values)
            except (struct.error, OverflowError):
                self._skipped.append(
                    f"{names[0][:60]!r}: a step or time that cannot be: {step!r:.40}"
                )
                continue
            self.points += len(names)
            yield encode_frame(body[0], body[6:])


class _Sender:
    """Collects parts, and posts them when there is enough. Bytes that the server has are cut off."""

    def __init__(self, source: Source, task: TaskKey, have: dict[str, int]) -> None:
        self._source, self._task, self._have = source, task, have
        self._parts: list[Part] = []
        self._size = 0
        self.new_bytes = 0

    def send(self, name: str, frames: Iterable[bytes]) -> None:
        position, offset = self._have.get(name, 0), 0
        waiting = bytearray()
        start = position
        for frame in frames:
            end = offset + len(frame)
            if end > position:
                waiting += frame[max(0, position - offset) :]
            offset = end
            if len(waiting) >= PIECE_BYTES:
                self._add(name, start, bytes(waiting))
                start += len(waiting)
                waiting.clear()
        if waiting:
            self._add(name, start, bytes(waiting))

    def sent_points(self, counter: _Counter) -> int:
        """Of a stream that was there before it is not known how many of its points are new."""
        return 0

    def _add(self, name: str, offset: int, data: bytes) -> None:
        self._parts.append(Part(name, RECORDS, offset, data))
        self._size += len(data)
        self.new_bytes += len(data)
        if self._size >= PIECE_BYTES or len(self._parts) >= 256:
            self.flush()

    def flush(self) -> None:
        if self._parts:
            body = encode(self._task, self._parts, time.time_ns())
            self._source.send("/agent/ingest", body)
            self._parts, self._size = [], 0

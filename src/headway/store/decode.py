"""Frames of one part of a record stream → facts, schemas and columns of points. Pure; called by
`ingest`.

No Python per record: a run of frames of one schema is one strided view, checked and copied by
numpy. Where schemas alternate, a small loop finds only where frames start. Anything that is not
exactly a chain of frames raises DamagedError, and then nothing of the part is applied.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.model.errors import DamagedError
from headway.model.limits import (
    FRAME_BYTES_MAX,
    METRIC_NAME_BYTES_MAX,
    RECORD_VALUES_MAX,
    SCHEMAS_MAX,
)
from headway.model.record import METRICS, SCHEMA
from headway.wire import frame
from headway.wire.block import Floats, Ints

Names = tuple[str, ...]
_MAGIC = int.from_bytes(frame.MAGIC, "little")
_START = struct.Struct("<HIBBI")  # magic, crc, kind, flags, length
_WALK = struct.Struct("<H4xHQ")  # magic, kind and flags, length and schema
_HEADS = np.dtype(
    {
        "names": ["magic", "kind", "rest"],
        "formats": ["<u2", "<u2", "<u8"],
        "offsets": [0, 6, 8],
        "itemsize": 16,
    }
)
_FIXED = frame.HEADER_BYTES + frame.METRICS_FIXED_BYTES
_RUN_MIN = 32  # frames of one schema in a row that are worth a strided view
_WALK_MAX = 4096  # frames found one by one before a run is looked for again


@dataclass(slots=True)
class Points:
    """Rows of the metrics that came in the same records, in the order written."""

    names: Names
    steps: Ints
    times_ns: Ints
    values: Floats  # names × rows


@dataclass(slots=True)
class Decoded:
    # (place, kind, payload) of frames that are neither points nor schemas
    others: list[tuple[int, int, memoryview]]
    schemas: dict[int, Names]  # newly declared
    points: list[Points]
    records: int


@dataclass(slots=True)
class _Rows:
    """Where records of one schema lie: each starts at one of `at`, all have `size` bytes."""

    size: int
    pieces: list[npt.NDArray[np.int64]]
    runs: list[tuple[int, int] | None]  # per piece: (start, count) when it is a straight run


def decode(data: memoryview, known: Mapping[int, Names]) -> Decoded:
    others: list[tuple[int, int, memoryview]] = []
    schemas: dict[int, Names] = {}
    rows: dict[int, _Rows] = {}
    pos, end, records = 0, len(data), 0
    while pos < end:
        kind, length = _start(data, pos, end)
        if kind != METRICS:
            payload = data[pos + frame.HEADER_BYTES : pos + frame.HEADER_BYTES + length]
            if kind == SCHEMA:
                _declare(payload, known, schemas)
            else:
                others.append((pos, kind, payload))
            pos += frame.HEADER_BYTES + length
            continue
        before = pos
        pos, found = _take_points(data, pos, end, rows)
        if pos == before:
            raise DamagedError(f"a record at {pos} is not whole")
        records += found
    return Decoded(others, schemas, _points(data, rows, {**known, **schemas}), records)


def _start(data: memoryview, pos: int, end: int) -> tuple[int, int]:
    """Kind and payload length of the frame at `pos`, which must lie wholly before `end`."""
    if end - pos < frame.HEADER_BYTES:
        raise DamagedError(f"a frame at {pos} is cut off")
    magic, _, kind, _, length = _START.unpack_from(data, pos)
    if magic != _MAGIC:
        raise DamagedError(f"no frame starts at {pos}")
    if length > FRAME_BYTES_MAX or pos + frame.HEADER_BYTES + length > end:
        raise DamagedError(f"the frame at {pos} is too long or cut off")
    if kind == METRICS and (
        length < frame.METRICS_FIXED_BYTES or (length - frame.METRICS_FIXED_BYTES) % 8
    ):
        raise DamagedError(f"the record at {pos} has the impossible length {length}")
    return kind, length


def _declare(payload: memoryview, known: Mapping[int, Names], schemas: dict[int, Names]) -> None:
    try:
        schema, names = frame.decode_schema(payload)
        too_long = any(len(name.encode()) > METRIC_NAME_BYTES_MAX for name in names)
    except (ValueError, struct.error, RecursionError) as error:
        raise DamagedError(f"a schema cannot be read: {error}") from None
    too_many = len(names) > RECORD_VALUES_MAX
    repeated = len(set(names)) != len(names)
    if not names or too_long or too_many or repeated:
        raise DamagedError(f"schema {schema} has no names, too many, too long or repeated ones")

    before = known.get(schema, schemas.get(schema))
    if before is not None and before != names:
        raise DamagedError(f"schema {schema} is declared twice with different names")
    if before is None and len(known) + len(schemas) >= SCHEMAS_MAX:
        raise DamagedError(f"the stream declares more than {SCHEMAS_MAX} schemas")
    if schema not in known:
        schemas[schema] = names


# -- finding records


def _take_points(data: memoryview, pos: int, end: int, rows: dict[int, _Rows]) -> tuple[int, int]:
    """Note the records that start at `pos`; where the next frame is, and how many records were
    taken.
    """
    length, schema = struct.unpack_from("<II", data, pos + 8)
    size = frame.HEADER_BYTES + length
    count = _run(data, pos, end, size)
    if count >= _RUN_MIN:
        _note(rows, schema, size, pos + np.arange(count, dtype=np.int64) * size, (pos, count))
        return pos + count * size, count
    return _walk(data, pos, end, rows)


def _run(data: memoryview, pos: int, end: int, size: int) -> int:
    """How many frames in a row have the first one's head; looks ahead in growing steps, so a short
    run is cheap.
    """
    most = (end - pos) // size
    first = np.ndarray((1,), _HEADS, data, pos)[0]
    done, ahead = 0, 2 * _RUN_MIN
    while done < most:
        part = np.ndarray((min(ahead, most - done),), _HEADS, data, pos + done * size, (size,))
        same = (
            (part["rest"] == first["rest"]) & (part["kind"] == METRICS) & (part["magic"] == _MAGIC)
        )
        if not same.all():
            return done + int(same.argmin())
        done, ahead = done + len(part), ahead * 16
    return done


def _walk(data: memoryview, pos: int, end: int, rows: dict[int, _Rows]) -> tuple[int, int]:
    """Frames one by one while they are records: only where each starts; the values are gathered
    later, all at once.
    """
    at: dict[int, list[int]] = {}  # by length and schema, as one number
    unpack, last, taken = _WALK.unpack_from, end - 16, 0
    while pos <= last and taken < _WALK_MAX:
        magic, kind, rest = unpack(data, pos)
        if magic != _MAGIC or kind != METRICS:
            break
        length = rest & 0xFFFFFFFF
        after = pos + frame.HEADER_BYTES + length
        if after > end or length < frame.METRICS_FIXED_BYTES or length & 7 != 4:
            break
        if rest in at:
            at[rest].append(pos)
        else:
            at[rest] = [pos]
        pos, taken = after, taken + 1
    for rest, starts in at.items():
        _note(
            rows,
            rest >> 32,
            frame.HEADER_BYTES + (rest & 0xFFFFFFFF),
            np.array(starts, np.int64),
            None,
        )
    return pos, taken


def _note(
    rows: dict[int, _Rows],
    schema: int,
    size: int,
    at: npt.NDArray[np.int64],
    run: tuple[int, int] | None,
) -> None:
    found = rows.setdefault(schema, _Rows(size, [], []))
    if found.size != size:
        raise DamagedError(f"records of schema {schema} differ in length")
    found.pieces.append(at)
    found.runs.append(run)


# -- records to columns


def _points(data: memoryview, rows: dict[int, _Rows], schemas: Mapping[int, Names]) -> list[Points]:
    for schema, found in rows.items():
        if schema not in schemas:
            raise DamagedError(f"a record uses schema {schema}, which was not declared")
        if found.size != _FIXED + 8 * len(schemas[schema]):
            raise DamagedError(
                f"a record of schema {schema} does not hold {len(schemas[schema])} values"
            )
    names = [name for schema in rows for name in schemas[schema]]
    if len(set(names)) == len(names):
        return [_columns(data, found, schemas[schema]) for schema, found in rows.items()]
    return _shared(data, rows, schemas)


def _columns(data: memoryview, found: _Rows, names: Names) -> Points:
    """The columns of one schema; straight runs are copied from a strided view, others are gathered
    first.
    """
    total = sum(len(piece) for piece in found.pieces)
    steps, times = np.empty(total, np.int64), np.empty(total, np.int64)
    values = np.empty((len(names), total), np.float64)
    done = 0
    for at, run in zip(found.pieces, found.runs, strict=True):
        buffer: memoryview | npt.NDArray[np.uint8] = data
        start, count = run if run is not None else (0, len(at))
        if run is None:
            everywhere = np.ndarray((len(data) - found.size + 1,), f"V{found.size}", data, 0, (1,))
            buffer = everywhere[at].view(np.uint8)
        here = slice(done, done + count)
        steps[here] = np.ndarray((count,), "<i8", buffer, start + 16, (found.size,))
        times[here] = np.ndarray((count,), "<i8", buffer, start + 24, (found.size,))
        values[:, here] = np.ndarray(
            (len(names), count), "<f8", buffer, start + _FIXED, (8, found.size)
        )
        done += count
    return Points(names, steps, times, values)


def _shared(data: memoryview, rows: dict[int, _Rows], schemas: Mapping[int, Names]) -> list[Points]:
    """Schemas that share names: names found in the same schemas go together, their rows merged in
    the order written.
    """
    homes: dict[str, tuple[int, ...]] = {}
    for schema in rows:
        for name in schemas[schema]:
            homes[name] = (*homes.get(name, ()), schema)
    together: dict[tuple[int, ...], list[str]] = {}
    for name, where in homes.items():
        together.setdefault(where, []).append(name)
    parts = {schema: _columns(data, found, schemas[schema]) for schema, found in rows.items()}
    starts = {schema: np.concatenate(found.pieces) for schema, found in rows.items()}
    return [_merged(tuple(names), where, parts, starts) for where, names in together.items()]


def _merged(
    names: Names,
    where: tuple[int, ...],
    parts: dict[int, Points],
    starts: dict[int, npt.NDArray[np.int64]],
) -> Points:
    order = np.argsort(np.concatenate([starts[schema] for schema in where]), kind="stable")
    picks = {schema: [parts[schema].names.index(name) for name in names] for schema in where}
    return Points(
        names,
        np.concatenate([parts[schema].steps for schema in where])[order],
        np.concatenate([parts[schema].times_ns for schema in where])[order],
        np.concatenate([parts[schema].values[picks[schema]] for schema in where], axis=1)[:, order],
    )

"""A part that holds a few records of one known schema, by hand: for so little, numpy costs more
than it saves. Called by `ingest`, for most parts of a job that logs now and then.

What it makes is what `decode` and `wire/block` make of the same bytes, to the bit. Whatever is out
of the ordinary (another frame, a schema that is new, a clock that cannot be right) is theirs:
`read` then gives None.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

import numpy as np

from headway.model.record import METRICS
from headway.store.fact_rows import TIME_NS_MAX, TIME_NS_MIN
from headway.store.summaries import NO_RANGE, Range
from headway.wire import block, frame

ROWS_MAX = 16
VALUES_MAX = 256  # in all rows together
_HEAD = struct.Struct("<H4xHQ")  # magic, kind and flags, length and schema
_FIXED_BYTES = frame.HEADER_BYTES + frame.METRICS_FIXED_BYTES
_MAGIC = int.from_bytes(frame.MAGIC, "little")
_WIDTHS = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))


class Few(NamedTuple):
    """The columns of a block, and of the last record what lists show."""

    names: tuple[str, ...]
    rows: int
    columns: list[bytes]
    step: int
    time_us: int
    last: list[bytes]
    ranges: list[Range]


def read(data: memoryview, known: Mapping[int, tuple[str, ...]]) -> Few | None:
    if len(data) < _FIXED_BYTES:
        return None
    _, _, rest = _HEAD.unpack_from(data)
    names, size = known.get(rest >> 32), frame.HEADER_BYTES + (rest & 0xFFFFFFFF)
    rows, over = divmod(len(data), size)
    if names is None or over or size != _FIXED_BYTES + 8 * len(names):
        return None
    if rows > ROWS_MAX or rows * len(names) > VALUES_MAX:
        return None
    found, width = _records(rows, len(names)).unpack(data), 5 + len(names)
    heads = zip(
        (_MAGIC, METRICS, rest), (found[0::width], found[1::width], found[2::width]), strict=True
    )
    times = found[4::width]
    if any(values.count(head) != rows for head, values in heads):
        return None
    if min(times) < TIME_NS_MIN or max(times) >= TIME_NS_MAX:
        return None
    steps, times_us = found[3::width], [time_ns // 1000 for time_ns in times]
    floats = [_floats(found[place::width], rows) for place in range(5, width)]
    columns = [_ints(steps), _ints(times_us), *(column for column, _ in floats)]
    last = [whole for _, whole in floats]
    ranges = [_range(steps, found[place::width]) for place in range(5, width)]
    return Few(names, rows, columns, steps[-1], times_us[-1], last, ranges)


def _range(steps: Sequence[int], values: Sequence[float]) -> Range:
    """The first of equals, as `summaries.ranges` has it."""
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return NO_RANGE
    low, high = min(finite), max(finite)
    return low, steps[values.index(low)], high, steps[values.index(high)]


@lru_cache(256)
def _records(rows: int, values: int) -> struct.Struct:
    return struct.Struct("<" + f"H4xHQqq{values}d" * rows)


@lru_cache(64)
def _numbers(form: str, count: int) -> struct.Struct:
    return struct.Struct(f"<{count}{form}")


def _floats(values: Sequence[float], rows: int) -> tuple[bytes, bytes]:
    """As `block.encode_float_rows`, and the bytes of the last one."""
    double, single = _numbers("d", rows), _numbers("f", rows)
    whole = double.pack(*values)
    try:
        half = single.pack(*values)
    except OverflowError:
        return b"\x10" + whole, whole[-8:]
    fits = double.pack(*single.unpack(half)) == whole
    return (b"\x11" + half if fits else b"\x10" + whole), whole[-8:]


def _ints(values: Sequence[int]) -> bytes:
    """As `block.encode_ints`."""
    if len(values) < 2:
        return struct.pack("<Bq", block.RAW_I64, values[0])
    deltas = [after - before for before, after in pairwise(values)]
    low, high = min(deltas), max(deltas)
    if low < -(2**63) or high >= 2**63:
        return block.encode_ints(np.array(values, np.int64), dense=False)
    if low == high:
        return struct.pack("<Bqq", block.STRIDE, values[0], low)
    width, form = next(pair for pair in _WIDTHS if high - low < 1 << (8 * pair[0]))
    above = _numbers(form, len(deltas)).pack(*(delta - low for delta in deltas))
    return struct.pack("<BqqB", block.DELTA, values[0], low, width) + above

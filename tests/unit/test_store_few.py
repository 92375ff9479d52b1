"""Parts of a few records, read by hand: the same bytes for the store as by the way that all others
go.
"""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.record import FACT
from headway.store import decode_small, summaries
from headway.store.decode import decode
from headway.store.fact_rows import TIME_NS_MAX, TIME_NS_MIN
from headway.wire import block, frame
from tests.storing import NOW_NS, record, schema

KNOWN = {0: ("a",), 3: ("loss", "lr", "norm")}
BITS = st.integers(0, 2**64 - 1).map(
    lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0]
)
VALUE = st.one_of(
    BITS, st.floats(width=32), st.floats(), st.sampled_from([0.0, -0.0, 0.5, 3.5e38, -1e-46])
)
TIME = st.integers(TIME_NS_MIN, TIME_NS_MAX - 1)
STEP = st.one_of(st.integers(0, 1000), st.integers(-(2**63), 2**63 - 1))
ROW = st.tuples(STEP, TIME, st.tuples(VALUE, VALUE, VALUE))


@given(st.sampled_from(list(KNOWN)), st.lists(ROW, min_size=1, max_size=decode_small.ROWS_MAX))
def test_what_is_read_by_hand_is_what_numpy_makes_of_it(
    number: int, rows: list[tuple[int, int, tuple[float, float, float]]]
) -> None:
    count = len(KNOWN[number])
    data = memoryview(
        b"".join(record(number, step, values[:count], time_ns) for step, time_ns, values in rows)
    )
    found = decode_small.read(data, KNOWN)
    (points,) = decode(data, KNOWN).points
    times = points.times_ns // 1000
    assert found is not None
    assert (found.names, found.rows) == (points.names, len(rows))
    assert found.columns == [
        block.encode_ints(points.steps, dense=False), block.encode_ints(times, dense=False),
        *block.encode_float_rows(points.values),
    ]  # fmt: skip
    assert (found.step, found.time_us) == (points.steps[-1], times[-1])
    assert b"".join(found.last) == np.ascontiguousarray(points.values[:, -1]).tobytes()
    assert found.ranges == summaries.ranges(points.steps, points.values)


ONE = record(0, 1, [1.0])


@pytest.mark.parametrize(
    "data",
    [
        b"", ONE[:-1], ONE + b"H", b"XW" + ONE[2:], ONE + b"XW" + ONE[2:],
        record(1, 1, [1.0]), ONE + record(3, 1, [1.0, 2.0, 3.0]), record(0, 1, [1.0, 2.0]), record(3, 1, [1.0]),
        schema(0, "a") + ONE, ONE + frame.encode(FACT, b"x" * 28), frame.encode(FACT, ONE[12:]),
        record(0, 1, [1.0], 0), ONE + record(0, 1, [1.0], -5), record(0, 1, [1.0], TIME_NS_MAX),
        ONE * (decode_small.ROWS_MAX + 1), frame.MAGIC + b"\0" * 40, b"\xff" * 64,
    ],
)  # fmt: skip
def test_whatever_is_out_of_the_ordinary_is_left_to_others(data: bytes) -> None:
    assert decode_small.read(memoryview(data), KNOWN) is None


def test_many_values_are_left_to_others() -> None:
    wide = {0: tuple(f"m{i}" for i in range(decode_small.VALUES_MAX // 2 + 1))}
    one = record(0, 1, [0.5] * len(wide[0]), NOW_NS)
    assert decode_small.read(memoryview(one), wide) is not None
    assert decode_small.read(memoryview(one * 2), wide) is None

"""Frames of a part → columns: order kept, nothing taken on trust (F13, B12, B30)."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import DamagedError
from headway.model.limits import METRIC_NAME_BYTES_MAX
from headway.model.record import FACT, METRICS
from headway.store.decode import Decoded, decode
from headway.wire import frame
from tests.storing import bits, fact, record, records, schema

SCHEMAS = {0: ("a", "b"), 1: ("c",), 2: ("a",), 3: ("b", "c", "d")}


def series(found: Decoded) -> dict[str, list[tuple[int, int]]]:
    """(step, bits of the value) of each metric, in order; each metric may stand in one group only."""
    out: dict[str, list[tuple[int, int]]] = {}
    for points in found.points:
        for name, values in zip(points.names, points.values, strict=True):
            assert name not in out
            out[name] = list(zip(points.steps.tolist(), bits(values), strict=True))
    return out


@given(
    st.lists(st.tuples(st.sampled_from(list(SCHEMAS)), st.integers(1, 90)), max_size=12),
    st.booleans(),
)
def test_any_mix_of_schemas_keeps_each_metric_in_the_order_written(
    runs: list[tuple[int, int]], odd: bool
) -> None:
    data, expected, step = b"x" if odd else b"", dict[str, list[tuple[int, int]]](), 0
    for number, count in runs:
        for _ in range(count):
            values = [float(step), np.nan, -0.0][: len(SCHEMAS[number])]
            data += record(number, step, values)
            for name, bit in zip(SCHEMAS[number], bits(values), strict=True):
                expected.setdefault(name, []).append((step, bit))
            step += 1
    found = decode(memoryview(data)[1:] if odd else memoryview(data), SCHEMAS)
    assert series(found) == expected
    assert found.records == step


def test_schemas_facts_and_points_come_apart() -> None:
    data = (
        fact({"type": "a"})
        + schema(7, "x", "y")
        + records(7, range(100), [range(100), range(100, 200)])
    )
    data += fact({"type": "b"}) + record(7, 100, [1.0, 2.0]) + frame.encode(99, b"unknown")
    found = decode(memoryview(data), {})
    assert found.schemas == {7: ("x", "y")}
    assert [kind for _, kind, _ in found.others] == [FACT, FACT, 99]
    assert [frame.frame_at(data, place) > 0 for place, _, _ in found.others] == [True, True, True]
    assert found.points[0].values[1].tolist() == [*map(float, range(100, 200)), 2.0]


@pytest.mark.parametrize("step", [0, -1, 2**62, -(2**62), 2**63 - 1])
def test_every_step_is_taken_as_it_is(step: int) -> None:
    """B12: back, repeated, negative or huge; the order is the order written."""
    data = record(2, step, [1.0]) + record(2, 5, [2.0]) + record(2, step, [3.0])
    assert decode(memoryview(data), SCHEMAS).points[0].steps.tolist() == [step, 5, step]


def _broken() -> dict[str, bytes]:
    good = records(0, range(50), [range(50), range(50)])
    return {
        "cut inside a record": good[:-1],
        "cut inside a head": good + b"HW\0",
        "not a frame": good + b"garbage that is long enough",
        "undeclared schema": good + record(9, 1, [1.0]),
        "too few values": good + record(0, 1, [1.0]),
        "too many values": good + record(0, 1, [1.0, 2.0, 3.0]),
        "impossible length": good + frame.encode(METRICS, struct.pack("<Iqq", 0, 1, 1) + b"1234"),
        "shorter than its head": good + frame.encode(METRICS, b"1234"),
        "longer than a frame may be": good
        + b"HW"
        + struct.pack("<IBBI", 0, METRICS, 0, 2**31)
        + bytes(64),
        "a length of 2**32 - 1": good + b"HW" + struct.pack("<IBBI", 0, FACT, 0, 2**32 - 1),
        "flags that nobody knows": good
        + b"HW"
        + struct.pack("<IBBI", 0, METRICS, 1, 36)
        + bytes(36),
        "schema without names": schema(5) + good,
        "schema with a name twice": schema(5, "x", "x") + good,
        "schema with a long name": schema(5, "x" * (METRIC_NAME_BYTES_MAX + 1)) + good,
        "schema that changes": schema(0, "a", "z") + good,
        "schema that is no list": frame.encode(2, struct.pack("<I", 5) + b"{}") + good,
        "schema of numbers": frame.encode(2, struct.pack("<I", 5) + b"[1]") + good,
        "schema that is cut": frame.encode(2, b"\1") + good,
        "schema nested deeply": frame.encode(2, struct.pack("<I", 5) + b"[" * 100_000) + good,
        "schema with a lone surrogate": frame.encode(2, struct.pack("<I", 5) + b'["\\ud800"]')
        + good,
    }


@pytest.mark.parametrize("what", _broken())
def test_what_is_not_a_chain_of_frames_is_refused(what: str) -> None:
    with pytest.raises(DamagedError):
        decode(memoryview(_broken()[what]), SCHEMAS)


@given(st.binary(max_size=300), st.integers(0, 3000), st.integers(0, 255))
def test_no_bytes_do_anything_but_decode_or_be_refused(junk: bytes, place: int, byte: int) -> None:
    data = bytearray(
        schema(5, "x") + records(0, range(40), [range(40), range(40)]) + fact({"type": "t"}) + junk
    )
    data[place % len(data)] = byte
    try:
        decode(memoryview(bytes(data)), SCHEMAS)
    except DamagedError:
        pass


def test_a_declared_schema_may_be_declared_again() -> None:
    assert decode(memoryview(schema(0, "a", "b") + record(0, 1, [1.0, 2.0])), SCHEMAS).schemas == {}

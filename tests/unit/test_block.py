"""Columns of points: every form gives back the same 64 bits, and damage is found (B1, F15)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from headway.model.errors import DamagedError
from headway.wire import block

INTS = npst.arrays(np.int64, st.integers(0, 200), elements=st.integers(-(2**63), 2**63 - 1))
SLOW_INTS = st.lists(st.integers(-300, 300), max_size=200).map(
    lambda d: np.cumsum(np.array(d, np.int64)) + 10**15
)
# every NaN there is
BITS = npst.arrays(np.uint64, st.integers(0, 200), elements=st.integers(0, 2**64 - 1))
FLOAT32 = npst.arrays(np.uint32, st.integers(0, 200), elements=st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("dense", [False, True])
@given(values=st.one_of(INTS, SLOW_INTS))
def test_integers_come_back(values: np.ndarray, dense: bool) -> None:
    column = block.encode_ints(values, dense=dense)
    assert block.decode_ints(column, len(values)).tolist() == values.tolist()


@given(values=BITS)
def test_floats_come_back_bit_by_bit(values: np.ndarray) -> None:
    floats = values.view(np.float64)
    assert (
        block.decode_floats(block.encode_floats(floats), len(floats)).view(np.uint64).tolist()
        == values.tolist()
    )
    (light,) = block.encode_float_rows(floats.reshape(1, -1))
    assert block.decode_floats(light, len(floats)).view(np.uint64).tolist() == values.tolist()


@given(values=FLOAT32)
def test_float32_values_come_back_as_the_float64_they_were(values: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        floats = values.view(np.float32).astype(np.float64)
    assert block.decode_floats(block.encode_floats(floats), len(floats)).view(
        np.int64
    ).tolist() == (floats.view(np.int64).tolist())


def test_special_values_survive_in_every_form() -> None:
    odd = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308, 0.1] * 9)
    signalling = np.array([0x7FF0000000000001, 0xFFF8000000000123], np.uint64).view(np.float64)
    for floats in (
        odd,
        np.concatenate([odd, signalling]),
        np.full(300, -0.0),
        np.full(300, np.nan),
    ):
        column = block.encode_floats(floats)
        assert (
            block.decode_floats(column, len(floats)).view(np.int64).tolist()
            == floats.view(np.int64).tolist()
        )


def test_values_that_came_from_float32_take_half_the_room() -> None:
    noise = np.random.default_rng(1).standard_normal(10_000)
    small, large = noise.astype(np.float32).astype(np.float64), noise
    assert len(block.encode_float_rows(small.reshape(1, -1))[0]) == 1 + 4 * 10_000
    assert len(block.encode_floats(small)) < 0.5 * len(block.encode_floats(large))


def test_a_straight_line_takes_seventeen_bytes() -> None:
    assert len(block.encode_ints(np.arange(7, 10**6, 3), dense=True)) == 17


def _some_block() -> bytes:
    steps, values = np.arange(300), np.random.default_rng(2).standard_normal((2, 300))
    columns = [block.encode_ints(steps, dense=True), block.encode_ints(steps**2, dense=True)]
    return block.encode(300, columns + [block.encode_floats(row) for row in values])


def _read_all(data: bytes) -> None:
    found = block.Block(data)
    found.check()
    assert found.rows == 300
    assert len(found.ints(0)) == len(found.floats(3)) == 300


def test_a_flipped_bit_in_a_block_is_found() -> None:
    data = _some_block()
    _read_all(data)
    head = 12 + 8 * 4
    for place in [*range(head), *range(head, len(data), 37)]:
        for bit in (0, 7):
            broken = bytearray(data)
            broken[place] ^= 1 << bit
            if 4 <= place < 8:
                assert block.Block(bytes(broken)).rows != 300  # the row in the database says 300
                continue
            with pytest.raises(DamagedError):
                _read_all(bytes(broken))


@given(cut=st.integers(0, 2000))
def test_a_cut_block_is_refused(cut: int) -> None:
    data = _some_block()
    with pytest.raises(DamagedError):
        _read_all(data[: min(cut, len(data) - 1)])

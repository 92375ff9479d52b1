"""Frames: what is written is read back; damage costs one frame; an end is an end (F2, F13, F14,
P11).
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.limits import FRAME_BYTES_MAX
from headway.model.record import FACT, METRICS
from headway.wire import frame

THREE = [
    frame.encode_json(FACT, {"type": "a", "n": 1}),
    frame.encode_schema(7, ("loss", "lr")),
    frame.encode(9, b"end"),
]


def test_frames_come_back_in_order_with_kind_and_payload() -> None:
    found = frame.frames(b"".join(THREE))
    assert [kind for kind, _ in found] == [FACT, 2, 9]
    assert frame.decode_json(found[0][1]) == {"type": "a", "n": 1}
    assert frame.decode_schema(found[1][1]) == (7, ("loss", "lr"))


def test_a_metrics_frame_packed_by_the_hot_path_is_a_frame() -> None:
    body = frame.metrics_struct(2).pack(*frame.metrics_head(2, 5), 42, 1_000, 0.5, float("nan"))
    data = frame.MAGIC + frame.crc32(body).to_bytes(4, "little") + body
    assert frame.scan(data) == frame.Scan(len(data), 1, [], waiting=False)
    ((kind, payload),) = frame.frames(data)
    assert kind == METRICS and struct.unpack_from("<Iqq", payload) == (5, 42, 1_000)


def test_every_single_flipped_bit_costs_exactly_the_frame_it_is_in() -> None:
    data = b"".join(THREE)
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            result = frame.scan(bytes(broken), final=True)
            assert result.frames == 2, (position, bit)
            assert len(frame.frames(bytes(broken), result.damaged)) == 2
            assert result.end == len(data)


@given(st.integers(0, len(b"".join(THREE))))
def test_a_torn_tail_waits_while_its_writer_lives_and_is_damage_after(cut: int) -> None:
    data = b"".join(THREE)[:cut]
    whole = sum(1 for end in _ends() if end <= cut)
    live = frame.scan(data)
    assert live.frames == whole and live.damaged == [] and live.waiting == (live.end < cut)
    dead = frame.scan(data, final=True)
    torn = data[live.end :].rstrip(b"\0")  # trailing zeros cannot be told from a preallocated tail
    assert dead.frames == whole and dead.damaged == (
        [(live.end, live.end + len(torn))] if torn else []
    )


@pytest.mark.parametrize("zeros", [1, 11, 12, 4096])
def test_a_zero_filled_tail_is_an_end_and_not_damage(zeros: int) -> None:
    data = b"".join(THREE)
    for final in (False, True):
        assert frame.scan(data + bytes(zeros), final=final) == frame.Scan(
            len(data), 3, [], waiting=False
        )


def test_a_torn_frame_before_a_zero_filled_tail_is_damage_without_the_zeros() -> None:
    data = THREE[0] + THREE[1][:-3]
    result = frame.scan(data + bytes(100), final=True)
    assert result.frames == 1 and result.damaged == [(len(THREE[0]), len(data))]


def test_a_declared_length_beyond_the_limit_is_damage_and_allocates_nothing() -> None:
    huge = frame.MAGIC + bytes(4) + struct.pack("<BBI", 1, 0, 2**32 - 1)
    assert 2**32 - 1 > FRAME_BYTES_MAX
    result = frame.scan(huge + THREE[0], final=True)
    assert result.frames == 1 and result.damaged == [(0, len(huge))]


@given(st.binary(max_size=2000))
def test_arbitrary_bytes_never_raise_and_never_become_frames_by_chance(data: bytes) -> None:
    result = frame.scan(data, final=True)
    assert 0 <= result.end <= len(data)
    assert len(frame.frames(data[: result.end], result.damaged)) == result.frames


def _ends() -> list[int]:
    ends, total = [], 0
    for item in THREE:
        total += len(item)
        ends.append(total)
    return ends

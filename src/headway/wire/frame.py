"""Frames: the unit of every record stream. Written by the client and the shim, checked by the
shipper.

    0   2  b"HW"
    2   4  crc32 of everything after it
    6   1  kind (model/record.py)
    7   1  flags, 0
    8   4  payload length
    12  …  payload

Little endian. A frame is appended in one write. A reader that meets damage looks for the next place
where a whole, correct frame starts, so a flipped bit costs one frame (P11). Zero bytes are an end,
not damage: a preallocated tail looks like that.
"""

from __future__ import annotations

import struct
from zlib import crc32

from headway.model.limits import FRAME_BYTES_MAX
from headway.model.record import FACT, METRICS, OPEN, SCHEMA
from headway.model.value import Value
from headway.wire import plain_json

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

MAGIC = b"HW"
HEADER_BYTES = 12
_HEAD = struct.Struct("<BBI")
_FRAME = struct.Struct("<2sIBBI")  # all before the payload
_CRC = struct.Struct("<I")
_SCHEMA_ID = struct.Struct("<I")
METRICS_FIXED_BYTES = 20  # schema, step, time


def encode(kind: int, payload: bytes) -> bytes:
    body = _HEAD.pack(kind, 0, len(payload)) + payload
    return MAGIC + _CRC.pack(crc32(body)) + body


def encode_json(kind: int, value: "JsonObject") -> bytes:
    """A FACT or OPEN frame. `value` must already be plain data; NaN is kept as a string by the
    caller.
    """
    return encode(kind, plain_json.dumps(value).encode())


def encode_schema(schema_id: int, names: tuple[str, ...]) -> bytes:
    return encode(SCHEMA, _SCHEMA_ID.pack(schema_id) + plain_json.dumps(names).encode())


def decode_schema(payload: bytes | memoryview) -> tuple[int, tuple[str, ...]]:
    from json import loads

    names = loads(bytes(payload[4:]))
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError("a schema is a list of names")
    return _SCHEMA_ID.unpack_from(payload)[0], tuple(names)


def decode_json(payload: bytes | memoryview) -> "JsonObject":
    from json import loads

    value = loads(bytes(payload))
    if not isinstance(value, dict):
        raise ValueError("a fact is an object")
    return value


def metrics_struct(values: int) -> struct.Struct:
    """Packs the body of a METRICS frame: kind, flags, length, schema, step, time, values."""
    return struct.Struct(f"<BBIIqq{values}d")


def metrics_head(values: int, schema_id: int) -> tuple[int, int, int, int]:
    """The constant first arguments of `metrics_struct(values).pack`."""
    return METRICS, 0, METRICS_FIXED_BYTES + 8 * values, schema_id


class Scan(Value):
    """What one look at some bytes found."""

    end: int  # bytes up to here are whole, correct frames or damage that is accounted for
    frames: int
    damaged: list[tuple[int, int]]  # ranges [from, to) inside [0, end) that are not frames
    waiting: bool  # the rest may be the start of a frame that is still being written


def frame_at(data: bytes | memoryview, pos: int) -> int:
    """Length of the correct frame at `pos`; 0 where more bytes are needed; -1 where there is none."""
    left = len(data) - pos
    if left < HEADER_BYTES:
        head = bytes(data[pos : pos + 2])
        return 0 if MAGIC.startswith(head) or head == MAGIC else -1
    if data[pos] != 0x48 or data[pos + 1] != 0x57:
        return -1
    size = int.from_bytes(data[pos + 8 : pos + 12], "little")
    if size > FRAME_BYTES_MAX:
        return -1
    total = HEADER_BYTES + size
    if total > left:
        return 0
    ok = crc32(data[pos + 6 : pos + total]) == int.from_bytes(data[pos + 2 : pos + 6], "little")
    return total if ok else -1


def scan(data: bytes, *, final: bool = False) -> Scan:
    """Check the frames in `data`, which starts at a frame.

    `final` says that nobody will write more: an incomplete tail is then damage, except that zeros
    to the end are simply the end.
    """
    view, pos, frames, size = memoryview(data), 0, 0, len(data)
    damaged: list[tuple[int, int]] = []
    while pos < size:
        pos, found = _skip_good(view, pos)
        frames += found
        if pos >= size:
            break
        # many times as fast as to strip them
        if data[pos] == 0 and data[pos:] == bytes(size - pos):
            break  # a preallocated or zero-filled tail
        resume = _next_frame(data, view, pos + 1)
        if resume is None:
            if not final:
                return Scan(pos, frames, damaged, waiting=True)
            end = size - (len(data) - len(data.rstrip(b"\0")))
            damaged.append((pos, max(end, pos)))
            return Scan(max(end, pos), frames, damaged, waiting=False)
        damaged.append((pos, resume))
        pos = resume
    return Scan(pos, frames, damaged, waiting=False)


def _skip_good(view: memoryview, pos: int) -> tuple[int, int]:
    """(end, number) of the correct frames from `pos` on. A shipper that keeps up with a million
    points a second checks half as many frames in it, so frames of one size, as a program writes
    them in a loop, are checked without parsing.
    """
    found, size, last, unpack, crc_of = 0, len(view), 0, _FRAME.unpack_from, crc32
    while pos + HEADER_BYTES <= size:
        magic, crc, _, _, length = unpack(view, pos)
        end = pos + HEADER_BYTES + length
        if (
            magic != MAGIC
            or length > FRAME_BYTES_MAX
            or end > size
            or crc_of(view[pos + 6 : end]) != crc
        ):
            break
        found += 1
        if length == last:
            again = _count_alike(view[end:], HEADER_BYTES + length)
            found, end = found + again, end + again * (HEADER_BYTES + length)
        pos, last = end, length
    return pos, found


def _count_alike(view: memoryview, size: int) -> int:
    """How many correct frames of exactly this size follow. A checksum that is right covers the
    length, too.
    """
    count = 0
    whole = view[: len(view) // size * size]
    for magic, crc, body in struct.iter_unpack(f"<2sI{size - 6}s", whole):
        if magic != MAGIC or crc32(body) != crc:
            break
        count += 1
    return count


def _next_frame(data: bytes, view: memoryview, start: int) -> int | None:
    """Where the next correct frame starts, or None if no whole one follows."""
    pos = data.find(MAGIC, start)
    while pos != -1:
        if frame_at(view, pos) > 0:
            return pos
        pos = data.find(MAGIC, pos + 1)
    return None


def frames(
    data: bytes | memoryview, damaged: list[tuple[int, int]] | None = None
) -> list[tuple[int, memoryview]]:
    """(kind, payload) of every frame in bytes that `scan` has checked."""
    view, pos, found = memoryview(data), 0, []
    skip = dict(damaged or [])
    while pos < len(view):
        if pos in skip:
            pos = skip[pos]
            continue
        if len(view) - pos < HEADER_BYTES or view[pos] != 0x48:
            break
        size = int.from_bytes(view[pos + 8 : pos + 12], "little")
        found.append((view[pos + 6], view[pos + HEADER_BYTES : pos + HEADER_BYTES + size]))
        pos += HEADER_BYTES + size
    return found


__all__ = [
    "FACT", "HEADER_BYTES", "MAGIC", "METRICS", "OPEN", "SCHEMA", "Scan", "decode_json", "decode_schema",
    "encode", "encode_json", "encode_schema", "frame_at", "frames", "metrics_head", "metrics_struct", "scan",
]  # fmt: skip

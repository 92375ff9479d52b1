"""A batch: what a shipper posts to `/agent/ingest`. Bytes of streams at their offsets.

    b"HWB1" | u32 length of the header | header, JSON | the parts' bytes, one after the other

    header {"task": {"uuid", "attempt", "task"}, "sent_ns", "parts": [{"stream", "kind", "offset",
    "length", "crc"}]}

A part of kind "gap" carries no stream bytes: its payload is JSON {"bytes", "reason", "records"?,
"points"?} and the stream's offset moves on by `bytes`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from headway.model.errors import DamagedError
from headway.model.limits import PARTS_MAX, STREAM_NAME_CHARS_MAX
from headway.model.record import STREAM_KINDS
from headway.wire.batch_head import MAGIC, encode_head

_STREAM = re.compile(rf"[a-z][a-z0-9.-]{{0,{STREAM_NAME_CHARS_MAX - 1}}}\Z")
HEADER_BYTES_MAX = 512 * 1024


@dataclass(frozen=True)
class TaskKey:
    """Names one task of one attempt, everywhere."""

    uuid: str
    attempt: int
    task: str

    def __str__(self) -> str:
        return f"{self.uuid}-{self.attempt}-{self.task}"


@dataclass(frozen=True)
class Part:
    stream: str
    kind: str
    offset: int
    data: bytes | memoryview


def encode(task: TaskKey, parts: list[Part], sent_ns: int) -> bytes:
    return b"".join([encode_head(task, parts, sent_ns), *(p.data for p in parts)])


def decode(body: bytes) -> tuple[TaskKey, int, list[Part]]:
    """Raises DamagedError for anything that is not exactly a batch; allocates nothing by a declared
    length.
    """
    if body[:4] != MAGIC or len(body) < 8:
        raise DamagedError("not a batch")
    length = int.from_bytes(body[4:8], "little")
    if length > min(HEADER_BYTES_MAX, len(body) - 8):
        raise DamagedError("the batch's header is cut off or too long")
    try:
        header = json.loads(body[8 : 8 + length])
        task = TaskKey(
            str(header["task"]["uuid"]), int(header["task"]["attempt"]), str(header["task"]["task"])
        )
        sent_ns, rows = int(header["sent_ns"]), list(header["parts"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"the batch's header cannot be read: {error}") from None
    if len(rows) > PARTS_MAX:
        raise DamagedError(f"a batch has at most {PARTS_MAX} parts")
    view, pos, parts = memoryview(body), 8 + length, []
    for row in rows:
        part, pos = _part(view, pos, row)
        parts.append(part)
    if pos != len(body):
        raise DamagedError("the batch is longer than its parts")
    return task, sent_ns, parts


def _part(view: memoryview, pos: int, row: Any) -> tuple[Part, int]:
    try:
        stream, kind, offset, length, crc = (
            row[k] for k in ("stream", "kind", "offset", "length", "crc")
        )
    except (KeyError, TypeError):
        raise DamagedError("a part lacks a field") from None
    numbers = all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**62
        for n in (offset, length, crc)
    )
    if (
        not numbers
        or kind not in STREAM_KINDS
        or not isinstance(stream, str)
        or not _STREAM.match(stream)
    ):
        raise DamagedError("a part's fields are not valid")
    data = view[pos : pos + length]
    if len(data) != length:
        raise DamagedError(f"part {stream} is cut off")
    if crc32(data) != crc:
        raise DamagedError(f"part {stream} has a wrong checksum")
    return Part(stream, kind, offset, data), pos + length

"""The slots of `progress-<rank>-<pid>-<rand>`: written in place by the client, read by the shipper.

    0   2  b"HP"
    2   4  crc32 of what follows, up to the end of the text
    6   4  sequence, one more with each write
    10  1  state: 1 running, 2 completed, 3 failed, 4 closed
    11  1  flags: 1 this is one process's share
    12  8  completed (double)
    20  8  total (double; NaN: unknown)
    28  8  started, 36 8 updated (wall clock, ns)
    44  2  length of the text, then the text: a JSON list of words

Little endian, `PROGRESS_SLOT_BYTES` each. A reader that meets half a write sees a wrong checksum
and looks again.
"""

from __future__ import annotations

import struct
from json import dumps, loads
from zlib import crc32

from headway.model.limits import PROGRESS_SLOT_BYTES
from headway.model.value import Value

MAGIC = b"HP"
RUNNING, COMPLETED, FAILED, CLOSED = 1, 2, 3, 4
STATES = {RUNNING: "running", COMPLETED: "completed", FAILED: "failed", CLOSED: "closed"}
DISTRIBUTED = 1
UNKNOWN = float("nan")
_BODY = struct.Struct("<IBBddqqH")
_CRC_END = 6
_HEAD_BYTES = _CRC_END + _BODY.size
TEXT_BYTES_MAX = PROGRESS_SLOT_BYTES - _HEAD_BYTES

pack_body = _BODY.pack
pack_head = struct.Struct(f"<2sI{_BODY.size}s").pack  # magic, checksum, body


class Slot(Value):
    """One tracker, as its process wrote it last."""

    sequence: int
    state: str
    distributed: bool
    completed: float
    total: float | None
    started_ns: int
    updated_ns: int
    words: "tuple[str, ...]"


def decode(data: bytes) -> Slot | None:
    """None for a slot that is empty, half written or damaged."""
    if data[:2] != MAGIC or len(data) < _HEAD_BYTES:
        return None
    sequence, state, flags, completed, total, started_ns, updated_ns, length = _BODY.unpack_from(
        data, _CRC_END
    )
    end = _HEAD_BYTES + length
    if end > len(data) or crc32(data[_CRC_END:end]) != int.from_bytes(data[2:_CRC_END], "little"):
        return None
    try:
        words = tuple(str(word) for word in loads(data[_HEAD_BYTES:end]))
    except (ValueError, TypeError, RecursionError):
        words = ()
    known = total if total == total and abs(total) != float("inf") else None
    if state not in STATES or completed != completed or abs(completed) == float("inf"):
        return None
    return Slot(
        sequence,
        STATES[state],
        bool(flags & DISTRIBUTED),
        completed,
        known,
        started_ns,
        updated_ns,
        words,
    )


def encode_words(words: list[str]) -> bytes:
    """A JSON list that fits into a slot; the longest words are cut first."""
    words = [
        word if len(word) <= TEXT_BYTES_MAX else word[: TEXT_BYTES_MAX - 1] + "…" for word in words
    ]
    while (
        len(
            text := dumps(words, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "replace"
            )
        )
        > TEXT_BYTES_MAX
    ):
        longest = max(range(len(words)), key=lambda i: len(words[i]))
        if len(words[longest]) <= 4:
            words = words[:-1]
        else:
            words[longest] = words[longest][: len(words[longest]) * 3 // 4 - 1] + "…"
    return text

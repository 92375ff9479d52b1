"""Messages between a server and its relay on a login node, over ssh's standard input and output.

    u32 length of the head | u32 length of the body | head, JSON | body

Questions `{"id", "do", …}` come from the server; each gets one answer `{"id", "value"}` or `{"id",
"error", "errno"}`, in any order. Before the first message, whatever a login shell prints is passed
over until a line says `mark`. Called by `engines/ssh/relay_client.py` and `agent/relay.py`.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import struct

from headway.model.errors import DamagedError
from headway.model.limits import RELAY_BANNER_BYTES_MAX, RELAY_BODY_BYTES_MAX, RELAY_HEAD_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.model.json_types import JsonObject

LENGTHS = struct.Struct(">II")
SEND, READY, NO_PYTHON, SPOILT = "send", "ready", "no-python", "spoilt"


def encode(head: "JsonObject", body: bytes = b"") -> bytes:
    text = json.dumps(head, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    if len(text) > RELAY_HEAD_BYTES_MAX or len(body) > RELAY_BODY_BYTES_MAX:
        raise DamagedError(
            f"a message of {len(text)} and {len(body)} bytes is too large for the relay"
        )
    return LENGTHS.pack(len(text), len(body)) + text + body


def receive(read: "Callable[[int], bytes]") -> "tuple[JsonObject, bytes] | None":
    """The next message; None at the end. `read(n)` gives 1 to n bytes, none at the end. Raises
    DamagedError.
    """
    lengths = exactly(read, LENGTHS.size)
    if lengths is None:
        return None
    head_length, body_length = LENGTHS.unpack(lengths)
    if head_length > RELAY_HEAD_BYTES_MAX or body_length > RELAY_BODY_BYTES_MAX:
        raise DamagedError("what came is no message of a relay")
    text, body = exactly(read, head_length), exactly(read, body_length)
    if text is None or body is None:
        return None
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise DamagedError("what came is no message of a relay")
    return head, body


def exactly(read: "Callable[[int], bytes]", length: int) -> bytes | None:
    """So many bytes; None when it ends before."""
    parts = []
    while length:
        data = read(min(length, 1 << 20))
        if not data:
            return None
        parts.append(data)
        length -= len(data)
    return b"".join(parts)


def mark_of(nonce: str) -> str:
    """By this the far side shows that it is there. Not the nonce itself: a shell may print what it
    was given.
    """
    return hashlib.sha256(nonce.encode()).hexdigest()[:32]


def find_mark(read: "Callable[[int], bytes]", mark: str) -> str | None:
    """The word after the mark, on a line of its own, whatever comes before; None at the end.

    Byte by byte: what follows the line belongs to messages."""
    line, passed = bytearray(), 0
    while data := read(1):
        passed += 1
        if data == b"\n":
            words = bytes(line).split()
            if len(words) == 2 and words[0] == mark.encode():
                return words[1].decode("ascii", "replace")
            line.clear()
        elif len(line) < 256:
            line += data
        if passed > RELAY_BANNER_BYTES_MAX:
            raise DamagedError(
                f"the login shell printed more than {RELAY_BANNER_BYTES_MAX} bytes of its own"
            )
    return None

"""JSON objects in files that become processes: with a checksum, so that a flipped bit does not turn
one command, path or variable into another one that is as valid.

    {"argv":["python","t.py"],"=check":"0123abcd"}     CRC-32 of all before `,"=check"`

The name cannot be one of a variable or a field. A file without it is one of an earlier release, and
is read as it is. Called by those who write and read task files and environments. Standard library
only.
"""

from __future__ import annotations

import json
from zlib import crc32

from headway.model.errors import DamagedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonMapping, JsonObject

CHECK = "=check"
_MARK = f',"{CHECK}":"'.encode()


def encode(value: "JsonMapping") -> bytes:
    """`ensure_ascii` keeps bytes that are not UTF-8 (as lone surrogates) through the file."""
    plain = {name: one for name, one in value.items() if name != CHECK}
    text = json.dumps(plain, ensure_ascii=True, separators=(",", ":")).encode("ascii")[:-1]
    return text + _MARK.replace(b",", b"" if text == b"{" else b",", 1) + b'%08x"}' % crc32(text)


def decode(data: bytes, what: str) -> "JsonObject":
    """Raises DamagedError, which says `what` it is."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedError(f"{what} is damaged: it is not JSON") from None
    if not isinstance(found, dict):
        raise DamagedError(f"{what} is damaged: it is not an object")
    told = found.pop(CHECK, None)
    if told is None:
        return found
    at = data.rfind(f'"{CHECK}"'.encode())
    text = data[:at].removesuffix(b",")
    if told != f"{crc32(text):08x}" or data[at:].strip() != f'"{CHECK}":"{told}"}}'.encode():
        raise DamagedError(f"{what} is damaged: its checksum is another")
    return found

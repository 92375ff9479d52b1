"""Media as facts: large ones are cut into pieces, and the fact that names them comes last. Written by
the client and by the agent, read by the store.
"""

from __future__ import annotations

from binascii import b2a_base64

from headway.model.limits import MEDIA_PIECE_BYTES
from headway.model.record import FACT
from headway.wire.frame import encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject


def media_frames(
    about: "JsonObject", kind: str, mime: str, data: bytes, meta: "JsonObject"
) -> "list[bytes]":
    """`about`: `{time_ns key name step}`."""
    places = range(0, len(data), MEDIA_PIECE_BYTES)
    pieces = [data[at : at + MEDIA_PIECE_BYTES] for at in places] or [b""]
    fact: JsonObject = {
        "type": "media", **about, "kind": kind, "mime": mime, "size": len(data), "pieces": len(pieces),
        "meta": meta,
    }  # fmt: skip
    if len(pieces) == 1:
        return [encode_json(FACT, {**fact, "base64": _base64(pieces[0])})]
    facts: list[JsonObject] = [
        {
            "type": "media_piece", "time_ns": about["time_ns"], "key": about["key"], "index": index,
            "base64": _base64(piece),
        }
        for index, piece in enumerate(pieces)
    ]  # fmt: skip
    return [encode_json(FACT, one) for one in (*facts, fact)]


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")

"""The stream `media-<rank>-<pid>-<rand>.<segment>`: images, tables and the like, as facts. Called by client/metric.py.

Small ones are one fact; a larger one is cut into pieces, so that every fact fits into a frame, and its last fact names
them. What cannot be written is counted as dropped (P5), as points are.
"""

from __future__ import annotations

import os
import time
from binascii import b2a_base64

from headway.client.backoff import Backoff
from headway.client.interrupt import raise_if_signal
from headway.client.media import Media
from headway.client.metric_values import clean_text
from headway.model.limits import MEDIA_PIECE_BYTES, SEGMENT_BYTES_MAX
from headway.model.record import FACT
from headway.wire.frame import encode_json

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from headway.client.run import Run
    from headway.model.json_types import JsonObject
    from headway.spool.writer import StreamWriter


class MediaLog:
    """A part of a run (client/run.py)."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self._backoff = Backoff()
        self._count = 0
        self._lost = [0, 0]  # things and bytes that could not be written and are not told yet
        self._reason = ""
        self._stream: StreamWriter | None = None
        self._segment = -1
        self._size = 0
        run.parts.append(self)

    def write(self, name: str, media: Media, step: int) -> None:
        """Write one down. Never raises."""
        with self.run.lock:
            try:
                for frame in self._frames(name, media, step):
                    self._append(frame)
                self._backoff.succeeded()
            except OSError as error:
                raise_if_signal(error)
                self._fail(media, error)

    def _frames(self, name: str, media: Media, step: int) -> "list[bytes]":
        self._count += 1
        key = f"{os.getpid()}-{time.time_ns():x}-{self._count}"
        data = media.data
        pieces = [
            data[at : at + MEDIA_PIECE_BYTES] for at in range(0, len(data), MEDIA_PIECE_BYTES)
        ] or [b""]
        fact: JsonObject = {
            "type": "media", "time_ns": time.time_ns(), "key": key, "name": name, "step": step, "kind": media.kind,
            "mime": media.mime, "size": len(data), "pieces": len(pieces), "meta": media.meta,
        }  # fmt: skip
        if len(pieces) == 1:
            return [encode_json(FACT, {**fact, "base64": _base64(pieces[0])})]
        facts = [
            {
                "type": "media_piece",
                "time_ns": fact["time_ns"],
                "key": key,
                "index": index,
                "base64": _base64(piece),
            }
            for index, piece in enumerate(pieces)
        ]
        return [encode_json(FACT, one) for one in (*facts, fact)]

    def _append(self, frame: bytes) -> None:
        if self._stream is not None and (
            self._size >= SEGMENT_BYTES_MAX or self._stream.size() is None
        ):
            self.close()
        if self._stream is None:
            if not self._backoff.is_over():
                raise OSError(0, self._reason or "no stream")
            self.run.start()
            self._stream = self.run.open_stream("media", self._segment + 1)
            self._segment += 1
            self._size = 0
        self._stream.append(frame)
        self._size += len(frame)

    def _fail(self, media: Media, error: OSError) -> None:
        self._reason = error.strerror or type(error).__name__
        self._lost[0] += 1
        self._lost[1] += len(media.data)
        self._backoff.failed()
        self.close()  # a torn frame stays behind; what follows starts in a file of its own
        self.run.note(
            "media", f"media cannot be written ({clean_text(self._reason)}); training goes on"
        )

    def tell(self) -> None:
        (records, size), self._lost = self._lost, [0, 0]
        if records:
            self.run.fact(
                "gap", stream="media", records=records, points=0, bytes=size, reason=self._reason
            )

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")

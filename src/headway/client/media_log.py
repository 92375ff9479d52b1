"""The stream `media-<rank>-<pid>-<rand>.<segment>`: images, tables and the like, as facts. Called by client/metric.py.

Small ones are one fact; a larger one is cut into pieces, so that every fact fits into a frame, and its last fact names
them. What cannot be written is counted as dropped (P5), as points are.
"""

from __future__ import annotations

import os
import time

from headway.client.backoff import Backoff
from headway.client.interrupt import raise_if_signal
from headway.client.media import Media
from headway.client.metric_values import clean_text
from headway.model.limits import SEGMENT_BYTES_MAX
from headway.wire.media_facts import media_frames

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from headway.client.run import Run
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
        about = {"time_ns": time.time_ns(), "key": key, "name": name, "step": step}
        return media_frames(about, media.kind, media.mime, media.data, media.meta)

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

"""Reads facts of this task back from its own spool: what the shim wrote, who said hello. Called by
the shipper.
"""

from __future__ import annotations

from headway.model.record import FACT, OPEN
from headway.spool.files import OS_FILES, Files
from headway.spool.reader import WINDOW_BYTES_MIN, read_frames
from headway.wire import frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

READS_MAX = 256  # windows of one call; the rest comes with the next


class FactTail:
    """Reads a record stream from its start, a little at a time; damage is passed over."""

    def __init__(self, fd: int, files: Files = OS_FILES) -> None:
        self.fd, self.position = fd, 0
        self.opening: JsonObject | None = None
        self._files = files

    def read(self) -> "list[tuple[int, JsonObject]]":
        """(offset, fact) of everything that came since the last call. Raises OSError."""
        found: list[tuple[int, JsonObject]] = []
        for _ in range(READS_MAX):
            if self._files.pread(self.fd, len(frame.MAGIC), self.position).strip(b"\0") == b"":
                break  # the end, or room that is allocated ahead: most looks end here
            data, scan = read_frames(self.fd, self.position, WINDOW_BYTES_MIN, False, self._files)
            if not scan.end:
                break
            self._collect(memoryview(data)[: scan.end], scan.damaged, found)
            self.position += scan.end
        return found

    def _collect(
        self,
        data: memoryview,
        damaged: list[tuple[int, int]],
        found: "list[tuple[int, JsonObject]]",
    ) -> None:
        begin = 0
        for start, stop in [*damaged, (len(data), len(data))]:
            pos = begin
            for kind, payload in frame.frames(data[begin:start]):
                value = _decode(payload) if kind in (FACT, OPEN) else None
                if kind == FACT and value is not None:
                    found.append((self.position + pos, value))
                elif kind == OPEN and value is not None:
                    self.opening = value
                pos += frame.HEADER_BYTES + len(payload)
            begin = stop


def _decode(payload: memoryview) -> "JsonObject | None":
    try:
        return frame.decode_json(payload)
    # checked bytes that are no object cost only themselves (P11)
    except (ValueError, RecursionError):
        return None

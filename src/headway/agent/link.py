"""The two pipes between shim and shipper: orders to the shim, news from it. Lines of JSON; an empty
line means "look".

The end of the pipe is the death of the other side. Called by both; made by the shim before it
forks.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

LINE_BYTES_MAX = 64 * 1024


class ShimLink:
    """One side of it. Reading never blocks; writing may fail when the other side is gone, which
    reading then tells.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        self.ended = False
        self._rest = b""
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def fileno(self) -> int:
        return self.read_fd

    def say(self, message: "JsonObject | None" = None) -> bool:
        """None: something is to be looked at. A full pipe is enough of a sign of that."""
        try:
            os.write(
                self.write_fd, b"\n" if message is None else json.dumps(message).encode() + b"\n"
            )
        except OSError:
            return False
        return True

    def hear(self) -> "list[JsonObject]":
        """Messages that have come. Sets `ended` when the other side is gone."""
        while not self.ended:
            try:
                data = os.read(self.read_fd, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.ended = not data
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        self._rest = self._rest[-LINE_BYTES_MAX:]
        return [message for message in map(_parse, lines) if message is not None]

    def close(self) -> None:
        for fd in (self.read_fd, self.write_fd):
            try:
                os.close(fd)
            except OSError:
                continue


def make_links() -> tuple[ShimLink, ShimLink]:
    """(the shim's side, the shipper's side)."""
    orders, orders_in = os.pipe()
    news, news_in = os.pipe()
    return ShimLink(orders, news_in), ShimLink(news, orders_in)


def _parse(line: bytes) -> "JsonObject | None":
    try:
        value = json.loads(line) if line else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None

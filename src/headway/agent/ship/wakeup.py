"""Rings when something is written in a folder that was quiet, so that the shipper need not look all
the time.

Called by the shipper. Linux's inotify, armed for one event only: while output flows nothing is
armed, and the writer pays nothing. Where it does not exist or sees nothing (a network file system,
memory that is mapped), it never rings, and the shipper's own slow look finds what was written.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MODIFY, _MOVED_TO, _CREATE, _ONE_SHOT = 0x2, 0x80, 0x100, 0x80000000
_EVENT_BYTES = 4096


class Bell:
    def __init__(self, folder: str) -> None:
        self._folder = os.fsencode(folder)
        self._watch: Callable[[int, bytes, int], int] | None = None
        self._fd = -1
        self.armed = False
        try:
            self._open()
        except (OSError, AttributeError, ImportError):
            pass  # not Linux, or no more watches are allowed: it never rings

    def _open(self) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_add_watch
        watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watch = watch

    def fileno(self) -> int:
        return self._fd

    def arm(self) -> bool:
        """Ring at the next write. False: it cannot."""
        if not self.armed and self._fd >= 0 and self._watch is not None:
            self.armed = (
                self._watch(self._fd, self._folder, _MODIFY | _MOVED_TO | _CREATE | _ONE_SHOT) >= 0
            )
        return self.armed

    def hear(self) -> None:
        """It has rung: take the event away."""
        self.armed = False
        try:
            while os.read(self._fd, _EVENT_BYTES):
                pass
        except OSError:
            pass  # nothing is left

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.armed = False

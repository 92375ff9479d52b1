"""Small files of /proc and /sys that are read again and again. Called by all probes.

Opening such a file costs more than reading it, so descriptors are kept, up to a budget. A
descriptor below /proc/<pid> stays with its process: once that is gone it reads nothing, also when
the number belongs to somebody else by then.
"""

from __future__ import annotations

import errno
import os

from headway.model.limits import USAGE_FILES_MAX

READS_MAX = 256  # pieces of one file
PIECE_BYTES = 1 << 14
# a piece that is shorter is the last: the kernel hands out lines as long as a page has room for one
LAST_BYTES = 2048

_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Budget:
    """How many more descriptors may be kept."""

    __slots__ = ("left",)

    def __init__(self, left: int = USAGE_FILES_MAX) -> None:
        self.left = left


class Kept:
    """One file. Nothing raises: what cannot be read is empty, and `gone` says that it will stay so."""

    __slots__ = ("_budget", "_fd", "gone", "path")

    def __init__(self, path: str, budget: Budget) -> None:
        self.path, self._budget = path, budget
        self._fd = -1
        self.gone = False  # there is no such file or process, or we may not look

    def read(self, size: int = 4096) -> bytes:
        """The first bytes of the file, as it is now."""
        if self._fd >= 0:
            try:
                return os.pread(self._fd, size, 0)
            except OSError as error:
                self._lost(error)
                return b""
        return self._open_and_read(size, whole=False)

    def read_all(self) -> bytes:
        """The whole file. The kernel hands long ones out in pieces."""
        if self._fd >= 0:
            try:
                return _pieces(self._fd)
            except OSError as error:
                self._lost(error)
                return b""
        return self._open_and_read(0, whole=True)

    def _open_and_read(self, size: int, *, whole: bool) -> bytes:
        if self.gone:
            return b""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._lost(error)
            return b""
        try:
            data = _pieces(fd) if whole else os.pread(fd, size, 0)
        except OSError as error:
            os.close(fd)
            self._lost(error)
            return b""
        self._keep(fd)
        return data

    def _keep(self, fd: int) -> None:
        if self._budget.left > 0:
            self._budget.left -= 1
            self._fd = fd
        else:
            os.close(fd)

    def _lost(self, error: OSError) -> None:
        """Short of descriptors or memory is a passing thing; everything else is not."""
        if error.errno in _SHORT:
            return
        self.close()
        self.gone = True

    def is_no_process(self, data: bytes) -> bool:
        """Whether an empty read of a process's file means that the process is gone."""
        return not data and (self.gone or self._fd >= 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._budget.left += 1


def _pieces(fd: int) -> bytes:
    parts, offset = [], 0
    for _ in range(READS_MAX):
        part = os.pread(fd, PIECE_BYTES, offset)
        parts.append(part)
        if len(part) < LAST_BYTES:
            break
        offset += len(part)
    return b"".join(parts)


class Rate:
    """A counter that only grows, as a rate. None at first, and when it went back: an interface that
    was set up anew.
    """

    __slots__ = ("_at_s", "_last")

    def __init__(self) -> None:
        self._last: float | None = None
        self._at_s = 0.0

    def take(self, value: float | None, now_s: float) -> float | None:
        last, span_s = self._last, now_s - self._at_s
        self._last, self._at_s = value, now_s
        if value is None or last is None or span_s <= 0 or value < last:
            return None
        return (value - last) / span_s

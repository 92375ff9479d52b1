"""The file operations that spool and store stand on, as one small object.

Called by everything that writes to the spool. Tests pass another one: `testing/filesystems.py` has
one that fails the Nth operation and one that loses what was not synced. `OS_FILES` is the real one.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False  # `typing` itself costs the client's cold start 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    Path = str | PathLike[str]

_ZEROS = bytes(64 * 1024)
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h


class Files:
    """Thin calls to the operating system. Every one may raise OSError; `write` may be short."""

    def open(self, path: "Path", flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    write = staticmethod(os.write)  # not a method: the client calls it for every record

    def pwrite(self, fd: int, data: "bytes | memoryview", offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def read(self, fd: int, length: int) -> bytes:
        return os.read(fd, length)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        getattr(os, "fdatasync", os.fsync)(fd)  # macOS has only fsync

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: "Path", new: "Path") -> None:
        os.rename(old, new)

    def link(self, old: "Path", new: "Path") -> None:
        """A second name; FileExistsError when it is taken, so that of several who try exactly one
        succeeds.
        """
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: "Path") -> None:
        os.unlink(path)

    def mkdir(self, path: "Path", mode: int = 0o700) -> None:
        os.mkdir(path, mode)

    def listdir(self, path: "Path") -> list[str]:
        return os.listdir(path)

    def stat(self, path: "Path") -> os.stat_result:
        """Of the name itself: a symbolic link is never followed."""
        return os.lstat(path)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def allocate(self, fd: int, offset: int, length: int) -> None:
        """Reserve real blocks, so that a later write into this range cannot meet a full disk."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, offset, length)
            return
        pos = max(offset, os.fstat(fd).st_size)  # macOS: zeros are the only portable reservation
        while pos < offset + length:
            pos += os.pwrite(fd, _ZEROS[: offset + length - pos], pos)

    def punch(self, fd: int, offset: int, length: int) -> bool:
        """Give the blocks of a range back; the size stays. False where the system cannot."""
        call = _fallocate()
        if call is None:
            return False
        number = call(fd, _PUNCH_HOLE_KEEP_SIZE, offset, length)
        if number in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        if number:
            raise OSError(number, os.strerror(number))
        return True


OS_FILES = Files()


def write_all(files: Files, fd: int, data: "bytes | memoryview") -> None:
    """Write every byte. Raises OSError with `data` partly written; the reader then finds a torn
    frame.
    """
    try:
        written = files.write(fd, data)
    except InterruptedError:
        written = 0
    if written == len(data):
        return  # nearly always
    view = memoryview(data)[written:]
    while view:
        try:
            view = view[files.write(fd, view) :]
        except InterruptedError:
            continue


def replace_file(files: Files, path: str, data: bytes, mode: int = 0o600) -> None:
    """Put `data` at `path` so that a crash leaves the old or the new content, and the new one once
    this returns.
    """
    draft = f"{path}.{os.getpid()}.tmp"
    fd = files.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        write_all(files, fd, data)
        files.fsync(fd)
    except BaseException:  # whatever it was, neither descriptor nor draft stays
        files.close(fd)
        files.unlink(draft)
        raise
    files.close(fd)
    files.rename(draft, path)
    sync_dir(files, os.path.dirname(path) or ".")


def sync_dir(files: Files, path: str) -> None:
    """Make the names in a folder durable: a file that was synced is lost if its name is not."""
    fd = files.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def _load_fallocate() -> "Callable[[int, int, int, int], int] | None":
    """Linux's fallocate(2), which Python does not offer; it answers with an errno. None elsewhere."""
    import ctypes

    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return lambda *args: ctypes.get_errno() if function(*args) else 0


_loaded: "list[Callable[[int, int, int, int], int] | None]" = []


def _fallocate() -> "Callable[[int, int, int, int], int] | None":
    if not _loaded:
        _loaded.append(_load_fallocate())
    return _loaded[0]

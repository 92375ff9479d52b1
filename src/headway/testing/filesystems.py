"""File systems for tests: one that fails the Nth operation (ring 1), one that loses what was not
synced (ring 2).

Both stand in for `spool.files.Files`. `FailingFiles` works on a real folder; `CrashFiles` keeps
everything in memory, knows what a power cut would leave, and lets a seeded random choose.
"""

import errno
import os
import stat as stat_bits
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headway.spool.files import OS_FILES, Files

Path = str | os.PathLike[str]


class FailingFiles(Files):
    """Calls the real ones, but from operation `nth` on (0-based) `times` of them fail with
    `number`.

    With `short`, a failing write first writes a part of its data, as a disk does that becomes full.
    `count` tells how many operations there were: a loop raises `nth` until a run has had fewer.
    """

    def __init__(
        self,
        nth: int,
        number: int = errno.EIO,
        *,
        times: int = 1,
        short: bool = False,
        only: frozenset[str] | None = None,
        inner: Files = OS_FILES,
    ) -> None:
        self.nth, self.number, self.times, self.short, self.only, self.inner = (
            nth,
            number,
            times,
            short,
            only,
            inner,
        )
        self.count = 0
        self.failed = 0

    def _is_due(self, operation: str) -> bool:
        if self.only is not None and operation not in self.only:
            return False
        self.count += 1
        if self.nth < self.count <= self.nth + self.times:
            self.failed += 1
            return True
        return False

    def _check(self, operation: str) -> None:
        if self._is_due(operation):
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._check("open")
        return self.inner.open(path, flags, mode)

    def write(self, fd: int, data: bytes | memoryview) -> int:  # type: ignore[override]  # a static method there
        if self._is_due("write"):
            if self.short and len(data) > 1:
                return self.inner.write(fd, memoryview(data)[: len(data) // 2])
            raise OSError(self.number, os.strerror(self.number))
        return self.inner.write(fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._check("pwrite")
        return self.inner.pwrite(fd, data, offset)

    def read(self, fd: int, length: int) -> bytes:
        self._check("read")
        return self.inner.read(fd, length)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._check("pread")
        return self.inner.pread(fd, length, offset)

    def fsync(self, fd: int) -> None:
        self._check("fsync")
        self.inner.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self._check("fdatasync")
        self.inner.fdatasync(fd)

    def close(self, fd: int) -> None:
        self.inner.close(fd)  # the descriptor is gone, whatever close(2) says
        self._check("close")

    def rename(self, old: Path, new: Path) -> None:
        self._check("rename")
        self.inner.rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        self._check("link")
        self.inner.link(old, new)

    def unlink(self, path: Path) -> None:
        self._check("unlink")
        self.inner.unlink(path)

    def mkdir(self, path: Path, mode: int = 0o700) -> None:
        self._check("mkdir")
        self.inner.mkdir(path, mode)

    def listdir(self, path: Path) -> list[str]:
        self._check("listdir")
        return self.inner.listdir(path)

    def stat(self, path: Path) -> os.stat_result:
        self._check("stat")
        return self.inner.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        self._check("fstat")
        return self.inner.fstat(fd)

    def truncate(self, fd: int, length: int) -> None:
        self._check("truncate")
        self.inner.truncate(fd, length)

    def allocate(self, fd: int, offset: int, length: int) -> None:
        self._check("allocate")
        self.inner.allocate(fd, offset, length)

    def punch(self, fd: int, offset: int, length: int) -> bool:
        self._check("punch")
        return self.inner.punch(fd, offset, length)


@dataclass
class _File:
    number: int
    mode: int
    data: bytearray = field(default_factory=bytearray)  # as every reader sees it now
    safe: bytearray = field(default_factory=bytearray)  # as of the last sync
    pending: list[tuple[int, bytes]] = field(default_factory=list)  # written since then, in order
    size_is_safe: bool = True  # False after a truncation that was not synced


@dataclass
class _Open:
    file: _File | None  # None: a folder
    path: str
    append: bool
    writable: bool
    pos: int = 0


class CrashFiles(Files):
    """A file system in memory. `crash` makes of it what a power cut could leave; all descriptors
    are then invalid.

    Of each write since the last sync, a crash keeps it, drops it, keeps its head, or leaves garbage
    in its place, each independently of the others; a name made, moved or removed since the folder's
    last sync may be the old or the new.
    """

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._safe_names: dict[str, _File] = {}
        self._folders: set[str] = {"/"}
        self._open: dict[int, _Open] = {}
        self._next = 1000

    # -- files

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        name = os.fspath(path)
        if name in self._folders:
            return self._give(_Open(None, name, False, False))
        file = self._names.get(name)
        if file is None:
            if not flags & os.O_CREAT or os.path.dirname(name) not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
            file = self._names[name] = _File(self._number(), mode)
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        writable = bool(flags & (os.O_WRONLY | os.O_RDWR))
        if flags & os.O_TRUNC and writable:
            self._cut(file, 0)
        return self._give(_Open(file, name, bool(flags & os.O_APPEND), writable))

    def _give(self, opened: _Open) -> int:
        fd = self._number()
        self._open[fd] = opened
        return fd

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _file(self, fd: int) -> tuple[_Open, _File]:
        opened = self._open.get(fd)
        if opened is None or opened.file is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return opened, opened.file

    def write(self, fd: int, data: bytes | memoryview) -> int:  # type: ignore[override]  # a static method there
        opened, file = self._file(fd)
        if opened.append:
            opened.pos = len(file.data)
        done = self.pwrite(fd, data, opened.pos)
        opened.pos += done
        return done

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        opened, file = self._file(fd)
        if not opened.writable:
            raise OSError(errno.EBADF, "Bad file descriptor")
        _put(file.data, offset, bytes(data))
        file.pending.append((offset, bytes(data)))
        return len(data)

    def read(self, fd: int, length: int) -> bytes:
        opened, _ = self._file(fd)
        data = self.pread(fd, length, opened.pos)
        opened.pos += len(data)
        return data

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return bytes(self._file(fd)[1].data[offset : offset + length])

    def truncate(self, fd: int, length: int) -> None:
        self._cut(self._file(fd)[1], length)

    def _cut(self, file: _File, length: int) -> None:
        file.data[:] = file.data[:length].ljust(length, b"\0")
        file.size_is_safe = False

    def allocate(self, fd: int, offset: int, length: int) -> None:
        _, file = self._file(fd)
        missing = offset + length - len(file.data)
        if missing > 0:
            self.pwrite(fd, bytes(missing), len(file.data))

    def punch(self, fd: int, offset: int, length: int) -> bool:
        _, file = self._file(fd)
        inside = max(0, min(length, len(file.data) - offset))
        self.pwrite(fd, bytes(inside), offset)
        return True

    def fsync(self, fd: int) -> None:
        opened = self._open.get(fd)
        if opened is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if opened.file is None:
            self._sync_names(opened.path)
            return
        opened.file.safe[:] = opened.file.data
        opened.file.pending.clear()
        opened.file.size_is_safe = True

    def fdatasync(self, fd: int) -> None:
        self.fsync(fd)

    def close(self, fd: int) -> None:
        if self._open.pop(fd, None) is None:
            raise OSError(errno.EBADF, "Bad file descriptor")

    # -- names

    def _sync_names(self, folder: str) -> None:
        def inside(name: str) -> bool:
            return os.path.dirname(name) == folder

        kept = {name: file for name, file in self._safe_names.items() if not inside(name)}
        self._safe_names = kept | {name: file for name, file in self._names.items() if inside(name)}

    def rename(self, old: Path, new: Path) -> None:
        self._names[os.fspath(new)] = self._need(old)
        del self._names[os.fspath(old)]

    def link(self, old: Path, new: Path) -> None:
        if os.fspath(new) in self._names:
            raise FileExistsError(errno.EEXIST, "File exists")
        self._names[os.fspath(new)] = self._need(old)

    def unlink(self, path: Path) -> None:
        self._need(path)
        del self._names[os.fspath(path)]

    def _need(self, path: Path) -> _File:
        file = self._names.get(os.fspath(path))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return file

    def mkdir(self, path: Path, mode: int = 0o700) -> None:
        """Folders are durable at once: what lies in them is what is tried here."""
        name = os.fspath(path)
        if name in self._folders:
            raise FileExistsError(errno.EEXIST, "File exists")
        if os.path.dirname(name) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self._folders.add(name)

    def listdir(self, path: Path) -> list[str]:
        folder = os.fspath(path)
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return [
            os.path.basename(name)
            for name in [*self._names, *self._folders]
            if os.path.dirname(name) == folder
        ]

    def stat(self, path: Path) -> os.stat_result:
        if os.fspath(path) in self._folders:
            return os.stat_result(
                (stat_bits.S_IFDIR | 0o700, 1, 1, 1, os.getuid(), os.getgid(), 0, 0, 0, 0)
            )
        return self._stat(self._need(path))

    def fstat(self, fd: int) -> os.stat_result:
        return self._stat(self._file(fd)[1])

    def _stat(self, file: _File) -> os.stat_result:
        links = sum(other is file for other in self._names.values())
        mode = stat_bits.S_IFREG | file.mode
        return os.stat_result(
            (mode, file.number, 1, links, os.getuid(), os.getgid(), len(file.data), 0, 0, 0)
        )

    # -- the power cut

    def crash(self, random: Random) -> None:
        names = dict(self._safe_names)
        for name in {*self._names, *self._safe_names}:
            if self._names.get(name) is not self._safe_names.get(name) and random.random() < 0.5:
                names.pop(name, None)
                if name in self._names:
                    names[name] = self._names[name]
        for file in {id(file): file for file in names.values()}.values():
            file.data = _after_crash(file, random)
            file.safe, file.pending, file.size_is_safe = bytearray(file.data), [], True
        self._names, self._safe_names, self._open = names, dict(names), {}


def _put(data: bytearray, offset: int, piece: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


def _after_crash(file: _File, random: Random) -> bytearray:
    data = bytearray(file.safe)
    if not file.size_is_safe and random.random() < 0.5:
        del data[len(file.data) :]
    choices: list[Callable[[bytes], bytes]] = [
        lambda piece: piece,
        lambda piece: b"",
        lambda piece: piece[: random.randrange(len(piece) + 1)],
        lambda piece: random.randbytes(len(piece)),
        lambda piece: bytes(len(piece)),  # the size reached the disk, the data did not
    ]
    for offset, piece in file.pending:
        kept = random.choice(choices)(piece)
        if kept:
            _put(data, offset, kept)
    return data

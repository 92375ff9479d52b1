"""Making a snapshot of a working tree. Called by `hw init` and by submissions with `--snapshot`.

A file whose size, times and inode are those of last time is not read again. Everything that is left
out although it is not ignored is told by name, with the reason.
"""

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter

from headway.code import file_index, manifest, tree
from headway.code.depot import Depot, content_digest
from headway.code.excluded_names import is_secret
from headway.code.manifest import EXECUTABLE, FILE, LINK, Entry
from headway.code.pack_file import PackWriter
from headway.model.errors import RefusedError
from headway.model.limits import CODE_BYTES_MAX, CODE_FILE_BYTES_MAX, CODE_FILES_MAX, MIB

_WHOLE_BYTES = 4 * MIB  # a larger file is read in pieces
_TRIES = 3
_LARGEST = 5  # files that are told by name
Found = tuple[str, int]  # path and mode


@dataclass(slots=True)
class Snapshot:
    digest: str
    root: str
    files: int
    bytes: int
    largest: list[tuple[str, int]]
    left_out: list[tuple[str, str]]  # (path, reason)
    changed: list[str]  # files that changed while they were read; taken as last read
    read: int  # files that had to be read
    new_bytes: int  # content that the store did not have


@dataclass(slots=True)
class _Work:
    tree: tree.Tree
    allowed: frozenset[str]
    depot: Depot
    old: file_index.Index
    fresh: file_index.Index = field(default_factory=file_index.Index)
    entries: list[Entry] = field(default_factory=list)  # of files that were read now
    left_out: list[tuple[str, str]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    read: int = 0

    @property
    def root(self) -> str:
        return self.tree.root


def _unfollowed(path: str) -> str:
    """The place itself, where it is a link to somewhere else."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def make(
    root: str, depot: Depot, rules: tree.CodeRules | None = None, *, skip: Sequence[str] = ()
) -> Snapshot:
    """Raises RefusedError when the tree is not one that can be taken."""
    rules = rules or tree.CodeRules()
    root = os.path.realpath(root)
    depot.make()
    place = str(depot.trees / content_digest(os.fsencode(root)).hex()[:32])
    skipped = [
        *map(os.path.realpath, skip),
        *map(_unfollowed, skip),
        os.path.realpath(depot.folder),
    ]
    look = tree.Tree(root, rules, skip=skipped)
    with depot.locked():
        look.ask()
        work = _Work(
            look,
            frozenset(path.strip("/") for path in rules.allow),
            depot,
            file_index.Index.load(place),
        )
        todo = _look(work)
        new_bytes = _read_all(work, todo)
        work.fresh.digest = _settle(work)
        if work.fresh.files is not work.old.files or work.fresh != work.old:
            work.fresh.save(place)
    if new_bytes:
        depot.merge()
    return _told(work, new_bytes)


def _told(work: _Work, new_bytes: int) -> Snapshot:
    sizes = dict(zip(work.fresh.files, map(itemgetter(0), work.fresh.files.values()), strict=True))
    sizes |= {entry.path: entry.size for entry in work.entries}
    largest = nlargest(_LARGEST, sizes.items(), key=itemgetter(1))
    left_out = sorted(work.left_out + work.tree.left_out)
    return Snapshot(
        work.fresh.digest, work.root, len(sizes), sum(sizes.values()), largest, left_out, work.changed, work.read,
        new_bytes,
    )  # fmt: skip


def _look(work: _Work) -> list[Found]:
    """Take over what has not changed; returns what must be read."""
    same = {}
    if work.old.rules:
        same = _unchanged(work)  # while git still lists
    paths = work.tree.paths(work.old.files, work.old.rules)
    work.fresh.rules = work.tree.rules

    total = 0
    if same and work.old.rules == work.fresh.rules:
        total = _take_over(work, paths, same)
    if work.fresh.files:
        paths = [path for path in paths if path not in work.fresh.files]

    todo: list[Found] = []
    while paths:
        folders, size = _compare(work, paths, todo)
        total += size
        paths = [path for folder in folders for path in work.tree.inside(folder)]
    _check_totals(work, len(work.fresh.files) + len(todo), total)
    return todo


def _unchanged(work: _Work) -> dict[str, file_index.Known]:
    """Files that are as last time; where all are, the very same dictionary."""
    known = work.old.files
    folder = os.open(work.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        same = {path: old for path, old in known.items() if _is_as(path, folder, old)}
    finally:
        os.close(folder)
    return known if len(same) == len(known) else same


def _take_over(work: _Work, paths: list[str], same: dict[str, file_index.Known]) -> int:
    """What is as last time, and is not left out now; its bytes."""
    if same is work.old.files and paths == list(same):
        work.fresh.files = same  # all of it, so nothing has to be compared any more
    else:
        work.fresh.files = {path: same[path] for path in paths if path in same}
    return sum(map(itemgetter(0), work.fresh.files.values()))


def _is_as(path: str, folder: int, known: file_index.Known) -> bool:
    try:
        s = os.lstat(path, dir_fd=folder)  # a short way to it: a long one takes twice as long
    except OSError:
        return False
    size, mtime_ns, ctime_ns, inode, mode, _ = known
    return (
        s.st_mtime_ns == mtime_ns
        and s.st_ctime_ns == ctime_ns
        and s.st_size == size
        and s.st_ino == inode
        and s.st_mode == mode
    )


def _compare(work: _Work, paths: list[str], todo: list[Found]) -> tuple[list[str], int]:
    """Folders among `paths`, whose files must be asked for, and the bytes of the others."""
    known, fresh, prefix, allowed = work.old.files, work.fresh.files, work.root + "/", work.allowed
    folders: list[str] = []
    total = 0
    for path in paths:
        try:
            s = os.lstat(prefix + path)
        except OSError:
            continue  # git still lists a file that was deleted
        mode, size = s.st_mode, s.st_size
        if mode & 0o170000 == 0o040000:
            folders.append(path)
            continue
        if (size > CODE_FILE_BYTES_MAX or is_secret(path)) and path not in allowed:
            work.left_out.append((path, _why(path, size)))
            continue
        total += size
        old = known.get(path)
        if old is not None and old[:5] == (size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, mode):
            fresh[path] = old
        else:
            todo.append((path, mode))
    return folders, total


def _why(path: str, size: int) -> str:
    if is_secret(path):
        return "its name says that it holds secrets; to take it, name it in code.allow"
    return (
        f"it has {size / MIB:,.0f} MiB, more than {CODE_FILE_BYTES_MAX // MIB}; to take it, name it in code.allow; "
        f"to be silent about it, in {tree.HWIGNORE}"
    )


def _check_totals(work: _Work, files: int, size: int) -> None:
    if files > CODE_FILES_MAX or size > CODE_BYTES_MAX:
        raise RefusedError(
            f"{work.root} has {files:,} files with {size / MIB:,.0f} MiB; "
            f"a snapshot has at most {CODE_FILES_MAX:,} and {CODE_BYTES_MAX // MIB:,} MiB",
            f"is it the folder of your code? Name what does not belong to it in {tree.HWIGNORE}",
        )


def _read_all(work: _Work, todo: list[Found]) -> int:
    if not todo:
        return 0
    known = work.depot.known()
    with work.depot.adding() as writer:
        for path, mode in todo:
            _read_one(work, path, mode, writer, known)
        return writer.size


def _read_one(work: _Work, path: str, mode: int, writer: PackWriter, known: set[bytes]) -> None:
    full = f"{work.root}/{path}"
    try:
        if stat.S_ISLNK(mode):
            _read_link(work, path, full, writer, known)
        elif stat.S_ISREG(mode):
            _read_file(work, path, full, writer, known)
        else:
            work.left_out.append((path, "it is neither a file nor a link nor a folder"))
    except FileNotFoundError:
        return  # gone since it was listed
    except OSError as error:
        work.left_out.append((path, f"it cannot be read: {error.strerror}"))


def _read_link(work: _Work, path: str, full: str, writer: PackWriter, known: set[bytes]) -> None:
    now_ns, status, target = time.time_ns(), os.lstat(full), os.readlink(full)
    leaves = _leaves(work.root, path, target)
    if leaves and path not in work.allowed:
        why = (
            f"it is a link that leaves the tree: {target}; to keep the link, name it in code.allow"
        )
        work.left_out.append((path, why))
        return
    data = target.encode("utf-8", "surrogateescape")
    digest = content_digest(data)
    if digest not in known:
        writer.add(digest, data)
    if not leaves and file_index.is_settled(status, now_ns):
        work.fresh.files[path] = _remembered(status, digest)
    work.entries.append(Entry(path, LINK, digest.hex(), len(data)))


def _remembered(s: os.stat_result, digest: bytes) -> file_index.Known:
    return (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_mode, digest)


def _leaves(root: str, path: str, target: str) -> bool:
    """By its words, and by where it leads on this machine."""
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or inside == ".." or inside.startswith("../"):
        return True
    real = os.path.realpath(os.path.join(root, path))
    return real != root and not real.startswith(root + "/")


def _read_file(work: _Work, path: str, full: str, writer: PackWriter, known: set[bytes]) -> None:
    work.read += 1
    for last in (False,) * (_TRIES - 1) + (True,):
        now_ns = time.time_ns()
        fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before = os.fstat(fd)
            digest, size = _content(fd, before.st_size, writer, known)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        steady = (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, size)
        if steady or last:
            break
    if not steady:
        work.changed.append(path)
    elif file_index.is_settled(after, now_ns):
        work.fresh.files[path] = _remembered(after, digest)
    work.entries.append(Entry(path, _kind(after.st_mode), digest.hex(), size))


def _content(fd: int, size: int, writer: PackWriter, known: set[bytes]) -> tuple[bytes, int]:
    """Digest and size of what the file holds; its content is in the store, or in the pack,
    afterwards.
    """
    if size > _WHOLE_BYTES:
        return writer.copy(fd)
    data = os.read(fd, size + 1)
    # it has grown since
    while size < len(data) <= CODE_FILE_BYTES_MAX and (more := os.read(fd, MIB)):
        data += more
    digest = content_digest(data)
    if digest not in known:
        writer.add(digest, data)
    return digest, len(data)


def _settle(work: _Work) -> str:
    """The manifest, stored. When nothing is new, it is the one of last time."""
    same = work.fresh.files is work.old.files or work.fresh.files == work.old.files
    if not work.entries and same and work.depot.has(work.old.digest):
        work.depot.touch(work.old.digest)
        return work.old.digest
    read = {entry.path for entry in work.entries}
    taken_over = [
        Entry(path, _kind(known[4]), known[5].hex(), known[0])
        for path, known in work.fresh.files.items()
        if path not in read
    ]
    return work.depot.put_manifest(manifest.encode(work.entries + taken_over))


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return LINK
    return EXECUTABLE if mode & 0o100 else FILE

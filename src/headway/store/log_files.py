"""Output of processes: bytes at offsets. Small pieces wait in the database, everything ends in
plain files.

    logs/<uuid>/<attempt>/<task>/<stream>     0600, in folders of 0700; byte N of the stream is byte N of the file

`LogFiles` belongs to the writer thread: it appends and spills. Readers use `pieces` and `read` on a
read connection, which join the file and the chunks that are still in the database. What is missing
is a hole in the file and a row in `gaps`.
"""

import ctypes
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.home.paths import Paths, sync_folder
from headway.model.errors import DamagedError, NotFoundError
from headway.model.limits import LOG_BYTES_MAX, LOG_DIRECT_BYTES, LOG_READ_BYTES_MAX
from headway.store.connection import count_written
from headway.store.query import log_path

_OPEN_FILES_MAX = 256
_NAMED_MAX = 4096  # folders known to be durable; forgetting them costs a sync
_PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_CUT_SHARE = 16  # the middle of a stream that is too long goes in steps of this share of the limit
_CUT_REASON = "log_bytes_max"


@dataclass(frozen=True, slots=True)
class LogKey:
    """A raw or index stream: its row and its file."""

    pk: int
    uuid: str
    attempt: int
    task: str
    name: str

    @property
    def place(self) -> "Place":
        """Names the file. A row's number does not: after a rollback it may be given to another
        stream.
        """
        return self.uuid, self.attempt, self.task, self.name


Place = tuple[str, int, str, str]


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a stream: `data`, or why there is none."""

    offset: int
    length: int
    data: bytes = b""
    missing: str | None = None


def _load_punch() -> "ctypes._NamedFuncPointer | None":
    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None  # not Linux: the middle of an overlong stream is kept
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return call


_punch = _load_punch()


class LogFiles:
    """Open files of streams, for the writer thread alone. `sync` makes durable what was written
    since.
    """

    def __init__(self, root: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._root, self._bytes_max = root, bytes_max
        self._open: OrderedDict[Place, int] = OrderedDict()
        self._dirty: set[Place] = set()
        self._dirty_folders: set[Path] = set()
        self._named: set[Path] = set()  # folders whose own names are durable
        # middles that go once this transaction is committed
        self._to_cut: dict[Place, tuple[int, int]] = {}

    def append(
        self, c: sqlite3.Connection, key: LogKey, offset: int, data: memoryview, *, direct: bool
    ) -> None:
        """Store bytes that start at the stream's position. A replay writes the same bytes to the
        same place.
        """
        if direct or len(data) >= LOG_DIRECT_BYTES:
            self.spill(c, key)
            self._write(key, offset, data)
            self._moved(c, key, offset + len(data))
        else:
            c.execute(
                "INSERT INTO chunks (stream, offset, data) VALUES (:stream, :offset, :data)",
                {"stream": key.pk, "offset": offset, "data": data},
            )
            count_written(c, len(data))
        if not key.name.startswith("blob-"):  # a file of an artifact is whole or worthless
            self._cut_middle(c, key, offset + len(data))

    def skip(self, c: sqlite3.Connection, key: LogKey, end: int) -> None:
        """Bytes up to `end` will never come: they are a hole in the file."""
        self.spill(c, key)
        fd = self._fd(key)
        self._keep_name(key)
        if os.fstat(fd).st_size < end:
            os.ftruncate(fd, end)
            self._dirty.add(key.place)
        self._moved(c, key, end)

    def touch(self, key: LogKey) -> None:
        """Make the file, empty, so that a person can follow it from the start. Its name is made
        durable with its first bytes: until then there is nothing to lose, and a short job that
        prints nothing costs no sync.
        """
        self._fd(key)

    def spill(self, c: sqlite3.Connection, key: LogKey) -> int:
        """Move the stream's chunks into its file; how many bytes. They leave the database with the
        commit.
        """
        rows = c.execute(
            "SELECT offset, data FROM chunks WHERE stream = :pk ORDER BY offset", {"pk": key.pk}
        ).fetchall()
        for row in rows:
            self._write(key, row["offset"], row["data"])
        if not rows:
            return 0
        c.execute("DELETE FROM chunks WHERE stream = :pk", {"pk": key.pk})
        end = rows[-1]["offset"] + len(rows[-1]["data"])
        self._moved(c, key, end)
        return sum(len(row["data"]) for row in rows)

    def sync(self) -> None:
        """Before a commit: what its rows say about files has reached the disk. An error is the
        commit's (F6).
        """
        for place in list(self._dirty):
            self._sync(place)
        try:
            for folder in self._dirty_folders:
                sync_folder(folder)
        except OSError:
            self.close()
            raise
        self._named = self._named | self._dirty_folders if len(self._named) < _NAMED_MAX else set()
        self._dirty_folders.clear()

    def _sync(self, place: Place) -> None:
        try:
            os.fdatasync(self._open[place])
        except OSError:
            # nothing is trusted any more that the kernel may have dropped; it is all written again
            self.close()
            raise
        self._dirty.discard(place)

    def after_commit(self) -> None:
        """Free the middle of overlong streams, now that the database says that it is gone."""
        for place, (start, end) in self._to_cut.items():
            if _punch is not None and place in self._open:
                # in a file system without holes the bytes stay
                _punch(self._open[place], _PUNCH, start, end - start)
        self._to_cut.clear()

    def after_rollback(self) -> None:
        self._to_cut.clear()

    def forget(self) -> None:
        """Close what is not being written: files may have been deleted."""
        for place in [place for place in self._open if place not in self._dirty]:
            os.close(self._open.pop(place))

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._dirty.clear()
        self._dirty_folders.clear()

    # -- files

    def _write(self, key: LogKey, offset: int, data: bytes | memoryview) -> None:
        fd, view = self._fd(key), memoryview(data)
        self._dirty.add(key.place)
        if offset == 0:  # the first bytes, or the same ones again after a commit that failed
            self._keep_name(key)
        while view:
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done

    def _fd(self, key: LogKey) -> int:
        if key.place in self._open:
            self._open.move_to_end(key.place)
            return self._open[key.place]
        path = self._path(key)
        self._make_folder(path.parent)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        self._make_room()  # before this one is among them: whoever asked for it is about to write
        self._open[key.place] = fd
        return fd

    def _make_room(self) -> None:
        """Close what was used longest ago; where one transaction has more files than that, they are
        synced early.
        """
        while len(self._open) >= _OPEN_FILES_MAX:
            oldest = next(iter(self._open))
            place = next((place for place in self._open if place not in self._dirty), oldest)
            if place in self._dirty:
                self._sync(place)
            os.close(self._open.pop(place))

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder != self._root:
            self._make_folder(folder.parent)
        os.mkdir(folder, 0o700)
        if folder == self._root:
            self._dirty_folders.add(folder.parent)

    def _path(self, key: LogKey) -> Path:
        return Path(log_path(str(self._root), key.uuid, key.attempt, key.task, key.name))

    def _keep_name(self, key: LogKey) -> None:
        """The file's name, and those of the folders that it lies in, shall be durable with this
        commit.
        """
        folder = self._path(key).parent
        self._dirty_folders.add(folder)
        while folder != self._root and folder not in self._named:
            folder = folder.parent
            self._dirty_folders.add(folder)

    # -- rows

    def _moved(self, c: sqlite3.Connection, key: LogKey, end: int) -> None:
        c.execute("UPDATE streams SET spilled = :end WHERE pk = :pk", {"end": end, "pk": key.pk})

    def _cut_middle(self, c: sqlite3.Connection, key: LogKey, end: int) -> None:
        """Keep head and tail of a stream that is longer than the limit; what lay between is a gap
        that is shown.
        """
        head, step = self._bytes_max // 2, max(1, self._bytes_max // _CUT_SHARE)
        tail_from = end - (self._bytes_max - head)
        if tail_from < head + step or _punch is None:
            return
        tail_from -= (tail_from - head) % step
        row = c.execute(
            "SELECT bytes FROM gaps WHERE stream = :pk AND offset = :head",
            {"pk": key.pk, "head": head},
        ).fetchone()
        done = head + (row["bytes"] if row else 0)
        if tail_from <= done:
            return
        self.spill(c, key)
        self._to_cut[key.place] = (head, tail_from)
        c.execute(
            """INSERT INTO gaps (stream, offset, bytes, reason, time_ns) VALUES (:pk, :head, :bytes, :reason, 0)
               ON CONFLICT (stream, offset) DO UPDATE SET bytes = excluded.bytes""",
            {"pk": key.pk, "head": head, "bytes": tail_from - head, "reason": _CUT_REASON},
        )


# -- reading


def stream_key(c: sqlite3.Connection, pk: int) -> LogKey:
    row = c.execute(
        """SELECT s.pk, s.name, t.name AS task, a.number, j.uuid FROM streams s JOIN tasks t ON t.pk = s.task
           JOIN attempts a ON a.pk = t.attempt JOIN jobs j ON j.pk = a.job WHERE s.pk = :pk""",
        {"pk": pk},
    ).fetchone()
    if row is None:
        raise NotFoundError("this stream has been deleted")
    return LogKey(row["pk"], row["uuid"], row["number"], row["task"], row["name"])


def pieces(
    c: sqlite3.Connection, paths: Paths, pk: int, offset: int, length: int
) -> Iterator[Piece]:
    """The bytes [offset, offset + length) as far as they are known, in order; gaps as pieces
    without data.
    """
    key = stream_key(c, pk)
    row = c.execute("SELECT position, spilled FROM streams WHERE pk = :pk", {"pk": pk}).fetchone()
    end = min(row["position"], offset + length)
    holes = c.execute(
        """SELECT offset, bytes, reason FROM gaps WHERE stream = :pk AND about IS NULL AND bytes > 0
             AND offset < :end AND offset + bytes > :start ORDER BY offset""",
        {"pk": pk, "start": offset, "end": end},
    ).fetchall()
    for hole in holes:
        if hole["offset"] > offset:
            yield _stored(c, paths, key, offset, hole["offset"], row["spilled"])
            offset = hole["offset"]
        stop = min(end, hole["offset"] + hole["bytes"])
        yield Piece(offset, stop - offset, missing=hole["reason"])
        offset = stop
    if offset < end:
        yield _stored(c, paths, key, offset, end, row["spilled"])


def _stored(
    c: sqlite3.Connection, paths: Paths, key: LogKey, start: int, end: int, spilled: int
) -> Piece:
    parts: list[bytes] = []
    if start < spilled:
        parts.append(_from_file(paths, key, start, min(end, spilled)))
    if end > spilled:
        parts += _from_chunks(c, key.pk, max(start, spilled), end)
    data = b"".join(parts)
    if len(data) != end - start:
        raise DamagedError(
            f"{key.name} lacks {end - start - len(data):,} stored bytes between {start:,} and {end:,}"
        )
    return Piece(start, len(data), data)


def _from_file(paths: Paths, key: LogKey, start: int, end: int) -> bytes:
    path = log_path(str(paths.logs), key.uuid, key.attempt, key.task, key.name)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    try:
        parts = []
        while start < end:
            part = os.pread(fd, min(end - start, 1 << 24), start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def _from_chunks(c: sqlite3.Connection, pk: int, start: int, end: int) -> list[bytes]:
    rows = c.execute(
        """SELECT offset, data FROM chunks WHERE stream = :pk AND offset < :end AND
             offset >= coalesce((SELECT max(offset) FROM chunks WHERE stream = :pk AND offset <= :start), 0)
           ORDER BY offset""",
        {"pk": pk, "start": start, "end": end},
    )
    return [row["data"][max(0, start - row["offset"]) : end - row["offset"]] for row in rows]


def mark(piece: Piece) -> bytes:
    """How a gap is shown where text is read."""
    return f"[headway: {piece.length:,} bytes missing: {piece.missing}]".encode()


def read(
    c: sqlite3.Connection, paths: Paths, pk: int, offset: int, length: int = LOG_READ_BYTES_MAX
) -> bytes:
    """The stored bytes; a gap appears as a line of its own. Without gaps these are exactly the
    bytes written.
    """
    found = pieces(c, paths, pk, offset, min(length, LOG_READ_BYTES_MAX))
    return b"".join(
        piece.data if piece.missing is None else b"\n" + mark(piece) + b"\n" for piece in found
    )

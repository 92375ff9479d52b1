"""What lies in a task's folder and how far it has grown. Called by the shipper's loop, many times a
second.

At rest a look costs one stat of the folder and one fstat per stream. Streams stay open, so that a
folder which is deleted under us (F34) costs nothing that is already open. Beside each output stream
an index is written here: 16-byte entries (offset where new bytes begin, wall clock in µs when they
were seen).
"""

from __future__ import annotations

import errno
import os
import struct

from headway.agent import process
from headway.agent.ship.events import Closed, Grown, Refused
from headway.model.errors import HeadwayError
from headway.model.limits import STREAMS_MAX
from headway.model.record import BLOB, RECORDS
from headway.spool.files import OS_FILES, Files, write_all
from headway.spool.layout import Stream, index_name, parse_stream
from headway.spool.reader import open_stream, read_opening
from headway.wire.identity import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.agent.clock import Clock
    from headway.agent.ship.stream_state import Gap
    from headway.model.json_types import JsonObject

    Event = Grown | Closed | Refused

ENTRY = struct.Struct("<QQ")
INDEX_INTERVAL_S = 0.05
_INDEX_STEP_NS = 1000  # the index counts in microseconds
FOLDER_INTERVAL_S = 1.0  # a look at the names even if the folder says that nothing changed
WRITERS_INTERVAL_S = 1.0
SUCCESSOR_S = 2.0  # a thread may still be in its last write to the segment before
_OUTPUT = ("stdout", "stderr")
# streams that roll; a segment goes as a whole once the server has it
_SEGMENTED = ("metrics", "logs", "media", "tracks")


class Names:
    """Whether a folder may hold other names than at the last look, without listing it."""

    __slots__ = ("_at_s", "_changed_ns", "_folder")

    def __init__(self, folder: str) -> None:
        self._folder, self._changed_ns, self._at_s = folder, -1, float("-inf")

    def may_have_changed(self, now_s: float) -> bool:
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
        except OSError:
            return False
        if changed_ns == self._changed_ns and now_s < self._at_s + FOLDER_INTERVAL_S:
            return False
        self._changed_ns, self._at_s = changed_ns, now_s
        return True


def _is_ours(stream: Stream) -> bool:
    """Whether this very process writes it."""
    return stream.role == "shipper" and stream.pid == os.getpid()


def _writer_key(stream: Stream) -> tuple[object, ...]:
    return stream.role, stream.rank, stream.pid, stream.rand


class Tailed:
    """One stream that is open for reading."""

    __slots__ = ("closed", "dirty", "fd", "index", "opening", "seen_s", "size", "stream")

    def __init__(self, stream: Stream, fd: int, opening: "JsonObject | None", now_s: float) -> None:
        self.stream, self.fd, self.opening, self.seen_s = stream, fd, opening, now_s
        self.size = 0
        self.closed = False
        self.dirty = False  # records that were not synced yet
        self.index: Index | None = None


class Index:
    """Writes `<output>.index`. A full disk costs times, not bytes, so errors are let go."""

    def __init__(self, task_dir: str, output: str, files: Files) -> None:
        self._files, self._fd, self._last_s, self._last_us = files, -1, -1.0, 0
        self._last_offset = -1
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        try:
            self._fd = files.open(os.path.join(task_dir, index_name(output)), flags)
            size = files.fstat(self._fd).st_size
            if size % ENTRY.size:  # a shipper was killed inside an entry
                files.truncate(self._fd, size - size % ENTRY.size)
            if size >= ENTRY.size:
                last = files.pread(
                    self._fd, ENTRY.size, size // ENTRY.size * ENTRY.size - ENTRY.size
                )
                self._last_offset, self._last_us = ENTRY.unpack(last)
        except (OSError, struct.error):
            self._fd = -1

    def add(self, offset: int, wall_ns: int, now_s: float, *, turn: bool = False) -> None:
        """`turn`: the rank has written its other stream since this one's last entry, so the entry
        is needed for their order.
        """
        if self._fd < 0 or offset <= self._last_offset:
            return
        if not turn and now_s < self._last_s + INDEX_INTERVAL_S:
            return
        # also across a restart, times never go back (F26)
        self._last_us = max(self._last_us, wall_ns // 1000)
        self._last_s, self._last_offset = now_s, offset
        try:
            write_all(self._files, self._fd, ENTRY.pack(offset, self._last_us))
        except OSError:
            self._mend()

    def _mend(self) -> None:
        """A full disk may take half an entry; what follows must start at a whole one."""
        try:
            size = self._files.fstat(self._fd).st_size
            self._files.truncate(self._fd, size - size % ENTRY.size)
        except OSError:
            self._fd = -1  # no more times for this stream, rather than wrong ones

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)


class Tail:
    def __init__(
        self, task_dir: str, clock: "Clock", cursor: "Mapping[str, int]", files: Files = OS_FILES
    ) -> None:
        self.task_dir, self.files = task_dir, files
        self.streams: dict[str, Tailed] = {}
        self.left: set[str] = set()  # streams of our own that go on under another name
        self.drops: dict[str, list[Gap]] = {}  # dropped by an earlier shipper and not yet told
        self._clock, self._cursor = clock, cursor
        self._known: set[str] = set()  # names that were looked at, good or bad
        self._names = Names(task_dir)
        self._writers_s = float("-inf")
        self._wrote_last: dict[int | None, str] = {}  # rank -> its stream that has grown last
        self._newest: dict[tuple[object, ...], Tailed] = {}  # writer -> its newest segment
        self._boot = boot_id()

    # -- looking

    def look(self, now_s: float, *, names: bool = False) -> "list[Event]":
        """Everything that changed. `names`: read the folder in any case."""
        events: list[Event] = []
        if names or self._names.may_have_changed(now_s):
            events += self._find(now_s)
        # Outputs first: each growth adds to the index of its output, which is itself a stream, and
        # the times of lines go with their bytes.
        wall_ns = self._clock.wall_ns()
        events += self._look_at_outputs(now_s, wall_ns)
        for tailed in list(self.streams.values()):
            if tailed.index is None:
                events += self._measure(tailed, now_s, wall_ns)
        if now_s >= self._writers_s + WRITERS_INTERVAL_S:
            self._writers_s = now_s
            events += self._close_orphans(now_s)
        return events

    def _look_at_outputs(self, now_s: float, wall_ns: int) -> "list[Event]":
        """One time for all. Of what a rank is seen to have written to both of its streams at once,
        the one that was written last comes last; where that is not known, stdout goes first.
        """
        grown = []
        for tailed in list(self.streams.values()):
            status = self._status(tailed) if tailed.index is not None else None
            if status is not None and status.st_size > tailed.size:
                grown.append((status.st_mtime_ns, tailed, status.st_size))
        grown.sort(key=lambda one: one[0])  # of equal ones the order stays
        ranks = [tailed.stream.rank for _, tailed, _ in grown]
        # rank -> (written, time) of its other stream
        before: dict[int | None, tuple[int, int]] = {}
        events: list[Event] = []
        for written_ns, tailed, size in grown:
            rank = tailed.stream.rank
            other_ns, time_ns = before.get(rank, (written_ns, wall_ns))
            if written_ns > other_ns:
                time_ns += _INDEX_STEP_NS
            before[rank] = (written_ns, time_ns)
            if ranks.count(rank) > 1:
                self._wrote_last.pop(rank, None)  # each of them needs an entry
            events += self.advance(tailed, size, now_s, time_ns)
        return events

    def _find(self, now_s: float) -> "list[Event]":
        try:
            names = self.files.listdir(self.task_dir)
        except OSError:
            return []
        self._reopen_shim()
        events: list[Event] = []
        for name in sorted(set(names) - self._known):
            stream = parse_stream(name)
            if stream is not None and len(self.streams) < STREAMS_MAX:
                events += self._open(stream, now_s)
        return events

    def _open(self, stream: Stream, now_s: float) -> "list[Event]":
        name = stream.name
        try:
            fd = open_stream(os.path.join(self.task_dir, name), self.files)
        except OSError:
            # not readable now: no descriptors, no permission, or just removed; looked at again
            return []
        except HeadwayError as error:
            return self._refuse(stream, error.message)
        try:
            opening = read_opening(fd, self.files) if stream.kind == RECORDS else None
        except HeadwayError as error:
            self.files.close(fd)
            return self._refuse(stream, error.message)
        except OSError:
            self.files.close(fd)
            return []
        self._known.add(name)
        tailed = self.streams[name] = Tailed(stream, fd, opening, now_s)
        if stream.role in _OUTPUT and stream.kind != "index":
            tailed.index = Index(self.task_dir, name, self.files)
        self._remember(tailed)
        return [self._grown(tailed, 0)]

    def _reopen_shim(self) -> None:
        """The shim writes its stream anew, with the same bytes, when the disk has failed it (F6)."""
        tailed = self.streams.get("shim")
        path = os.path.join(self.task_dir, "shim")
        try:
            if tailed is None or self.files.stat(path).st_ino == self.files.fstat(tailed.fd).st_ino:
                return
            fd = open_stream(path, self.files)
        except (OSError, HeadwayError):
            return
        self.files.close(tailed.fd)
        tailed.fd = fd

    def _refuse(self, stream: Stream, reason: str) -> "list[Event]":
        self._known.add(stream.name)
        return [Grown(stream.name, stream.kind, 0), Refused(stream.name, reason)]

    def _grown(self, tailed: Tailed, size: int) -> Grown:
        """The event with which the machine gets to know a stream, or its new size."""
        name, role, kind = tailed.stream.name, tailed.stream.role, tailed.stream.kind
        output = role in _OUTPUT and kind != "index"
        acked, first = self._cursor.get(name, 0), 0
        if output and tailed.size == 0:
            first = self._first_data(tailed.fd)
        gaps, whole = tuple(self.drops.get(name, ())), role in (*_SEGMENTED, "usage", "blob")
        return Grown(name, kind, size, output or whole, whole, acked, first, gaps)

    def _first_data(self, fd: int) -> int:
        """Where the bytes begin that an earlier shipper has not given back."""
        try:
            return os.lseek(fd, 0, os.SEEK_DATA)
        except AttributeError:
            return 0  # a system without holes
        except OSError as error:
            # nothing but a hole
            return self.files.fstat(fd).st_size if error.errno == errno.ENXIO else 0

    def _status(self, tailed: Tailed) -> "os.stat_result | None":
        if tailed.stream.role == "shim":
            return None  # allocated ahead, so its size says nothing; `advance` tells
        try:
            return self.files.fstat(tailed.fd)
        except OSError:
            return None

    def _measure(self, tailed: Tailed, now_s: float, wall_ns: int) -> "list[Event]":
        status = self._status(tailed)
        return [] if status is None else self.advance(tailed, status.st_size, now_s, wall_ns)

    def advance(self, tailed: Tailed, size: int, now_s: float, wall_ns: int = 0) -> "list[Event]":
        """A stream has that many bytes now."""
        if size <= tailed.size:
            return []
        if tailed.index is not None:
            # an earlier shipper saw the rest
            begin = tailed.size or min(self._cursor.get(tailed.stream.name, 0), size)
            rank, name = tailed.stream.rank, tailed.stream.name
            turn = self._wrote_last.get(rank) != name
            self._wrote_last[rank] = name
            tailed.index.add(begin, wall_ns or self._clock.wall_ns(), now_s, turn=turn)
        if tailed.opening is None and tailed.stream.kind == RECORDS:
            try:
                tailed.opening = read_opening(tailed.fd, self.files)
            except HeadwayError as error:
                return [Refused(tailed.stream.name, error.message)]
            except OSError:
                return []
        event = self._grown(tailed, size)
        tailed.size, tailed.dirty = (
            size,
            tailed.stream.kind == RECORDS and tailed.stream.role != "usage",
        )
        return [event]

    # -- closing

    def _remember(self, tailed: Tailed) -> None:
        """Keep the newest segment of each process."""
        stream = tailed.stream
        if stream.role not in _SEGMENTED:
            return
        newest = self._newest.get(_writer_key(stream))
        if newest is None or (newest.stream.segment or 0) < (stream.segment or 0):
            self._newest[_writer_key(stream)] = tailed

    def _close_orphans(self, now_s: float) -> "list[Event]":
        """Streams that nobody writes any more: the process is dead, or has gone on to the next
        segment.
        """
        events: list[Event] = []
        alive: dict[tuple[int, int | None], bool] = {}
        for tailed in list(self.streams.values()):
            stream = tailed.stream
            if tailed.closed or stream.pid is None or _is_ours(stream):
                continue
            if stream.kind == BLOB:  # it came whole
                events += self.close_stream(tailed, now_s)
                continue
            newest = self._newest.get(_writer_key(stream), tailed)
            has_successor = newest is not tailed and now_s >= newest.seen_s + SUCCESSOR_S
            rolled = has_successor or stream.name in self.left
            if rolled or not self._is_writer_alive(tailed, alive):
                events += self.close_stream(tailed, now_s)
        return events

    def _is_writer_alive(self, tailed: Tailed, alive: dict[tuple[int, int | None], bool]) -> bool:
        who = self.writer_of(tailed)
        if who is None:
            return False
        key = (who.pid, who.start)
        if key not in alive:
            alive[key] = process.is_alive(who, self._boot)
        return alive[key]

    def writer_of(self, tailed: Tailed) -> process.Identity | None:
        if tailed.stream.pid is None:
            return None
        opening = tailed.opening or {}
        start, boot = opening.get("start"), opening.get("boot_id")
        return process.Identity(
            tailed.stream.pid,
            start if isinstance(start, int) else None,
            boot if isinstance(boot, str) else None,
        )

    def close_stream(self, tailed: Tailed, now_s: float) -> "list[Event]":
        """Its writer is gone, so the size that is seen now is the last one."""
        if tailed.closed:
            return []
        tailed.closed = True
        return [*self._measure(tailed, now_s, self._clock.wall_ns()), Closed(tailed.stream.name)]

    def close_all(self, now_s: float) -> "list[Event]":
        """All processes of the task are gone."""
        events = self.look(now_s, names=True)
        for tailed in list(self.streams.values()):
            if tailed.stream.role != "agent" and not _is_ours(tailed.stream):
                events += self.close_stream(tailed, now_s)
        events += self.look(now_s, names=True)  # the indexes that were just written
        return events

    def unsynced(self) -> list[Tailed]:
        return [t for t in self.streams.values() if t.dirty]

    def forget(self, name: str) -> None:
        """The stream is acknowledged or dropped, and its file is removed."""
        tailed = self.streams.pop(name, None)
        if tailed is None:
            return
        self.files.close(tailed.fd)
        self.left.discard(name)
        if tailed.index is not None:
            tailed.index.close()
        key = _writer_key(tailed.stream)
        if self._newest.get(key) is tailed:
            del self._newest[key]

    def close(self) -> None:
        for name in list(self.streams):
            self.forget(name)

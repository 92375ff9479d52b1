"""TensorBoard event files that the processes of this task write become metrics as they grow; their
images, histograms and texts become media. Called by the shipper.

Which files they are is read from /proc: those that a process of the task holds open below its
working folder. At the end of the task the folder is walked once, for files of its processes that
were opened and closed between two looks. A program that logs a metric of the same name itself keeps
its own: the server sets ours apart (`"source": "tensorboard"`).

How far a file was read is written down before its points are, with the size of the stream that they
go to: a shipper that takes over sees whether they are there, and doubles nothing.
"""

from __future__ import annotations

import json
import os
import struct
import time
from zlib import crc32

from headway.model.limits import (
    EVENT_FILES_MAX,
    EVENT_READ_BYTES,
    EVENT_WALK_ENTRIES_MAX,
    MEDIA_BYTES_MAX,
    METRIC_NAME_BYTES_MAX,
    SEGMENT_BYTES_MAX,
)
from headway.spool.files import OS_FILES, Files, replace_file
from headway.spool.stream_names import media_name, metrics_name, new_rand
from headway.spool.writer import MetricSegment, StreamWriter
from headway.wire.frame import encode_schema
from headway.wire.identity import process_start
from headway.wire.media_facts import media_frames
from headway.wire.tfevents import EventMedia, Scalars, read_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.model.json_types import JsonObject

MARK = "tfevents"
OWN = ".headway"  # the end of the names of files with usage, which an agent writes
CURSOR = ".tfevents"
FIND_S = 2.0  # between two looks at which files are open
READ_S = 0.5  # and at whether they have grown
WALK_S = 2.0  # at the end of a task: its end is not held up by a large or slow folder
PIDS_MAX = 4096


class EventFile:
    """One file: how far it was read, and which rank writes it."""

    def __init__(self, path: str, rank: int, prefix: str, offset: int = 0) -> None:
        self.path, self.rank, self.prefix, self.offset = path, rank, prefix, offset
        self.scalars = Scalars(with_media=True)
        self.media: list[
            tuple[str, float, int, EventMedia]
        ] = []  # key, time, step; not written yet
        self.is_new = offset > 0  # what TF2 said at its beginning is to be learned first

    def read(self) -> "tuple[list[tuple[float, int, dict[str, float]]], int, int]":
        """(events, where the whole ones end, damaged ones); at most EVENT_READ_BYTES. Raises OSError."""
        with open(self.path, "rb", buffering=0) as file:
            if self.is_new:
                self._learn(file.read(min(self.offset, EVENT_READ_BYTES)))
                self.is_new = False
            if os.fstat(file.fileno()).st_size <= self.offset:
                return [], self.offset, 0
            file.seek(self.offset)
            data = file.read(EVENT_READ_BYTES)
        found = read_records(data)
        view, events, damaged = memoryview(data), [], found.damaged
        for begin, end in found.spans:
            try:
                events.append(self.scalars.read(view[begin:end]))
                self._take_media(self.offset + begin, *events[-1][:2])
            except (ValueError, ArithmeticError, LookupError, struct.error):
                damaged += 1
        return events, self.offset + found.end, damaged

    def _take_media(self, place: int, time_s: float, step: int) -> None:
        """The key is made of where it stands: the same record again is no further image."""
        taken = self.scalars.media or []
        self.scalars.media = []
        path = crc32(os.fsencode(self.path))
        for number, media in enumerate(taken):
            if len(media.data) <= MEDIA_BYTES_MAX:
                self.media.append((f"tb-{path:08x}-{place:x}-{number}", time_s, step, media))

    def _learn(self, data: bytes) -> None:
        view = memoryview(data)
        for begin, end in read_records(data).spans:
            try:
                self.scalars.read(view[begin:end])
            except (ValueError, ArithmeticError, LookupError, struct.error):
                continue
        self.scalars.media = []


class EventFiles:
    """Nothing here raises: what cannot be read or written now is tried again at the next look."""

    def __init__(
        self,
        task_dir: str,
        cwd: str,
        roots: "Callable[[], dict[int, int]]",
        say: "Callable[[str], None]",
        files: Files = OS_FILES,
    ) -> None:
        """`roots`: the pids of the ranks' first processes, with their ranks."""
        self._task_dir, self._cwd, self._roots, self._say = task_dir, cwd, roots, say
        self._files = files
        self._known: dict[str, EventFile] = {}
        self._folders: list[str] = []  # of the files, in the order in which they were met
        self._ranks: dict[int, int] = {}  # every pid that was seen, with its rank
        self._segments: dict[int, MetricSegment] = {}
        self._media: dict[int, StreamWriter] = {}  # by rank: images, histograms and texts
        self._media_count = 0
        self._rand = new_rand()
        self._earlier: dict[
            str, int
        ] = {}  # files that an earlier shipper has read, with their ranks
        self._offsets = self._load()
        self._find_s = self._read_s = 0.0
        self._damaged = 0

    def look(self, now_s: float, *, last: bool = False) -> None:
        earlier, self._earlier = self._earlier, {}
        for path, rank in earlier.items():  # in their order: the first folder has no prefix
            self._meet(path, rank)
        if last:
            self._walk()
            while self._read_all():
                continue
            self.close()
            return
        if now_s >= self._find_s:
            self._find_s = now_s + FIND_S
            self._find()
        if self._known and now_s >= self._read_s:
            self._read_s = now_s + READ_S
            self._read_all()

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        for stream in self._media.values():
            stream.close()
        self._media.clear()

    # -- which files

    def _find(self) -> None:
        for pid, rank in self._pids():
            self._ranks[pid] = rank
            for path in _open_files(pid):
                self._meet(path, rank)

    def _pids(self) -> "Iterator[tuple[int, int]]":
        left = PIDS_MAX
        for root, rank in self._roots().items():
            waiting = [root]
            while waiting and left:
                pid = waiting.pop()
                left -= 1
                yield pid, rank
                waiting += _children(pid)

    def _meet(self, path: str, rank: int) -> None:
        name = os.path.basename(path)
        if path in self._known or MARK not in name or name.endswith(OWN):
            return
        if len(self._known) >= EVENT_FILES_MAX or not _is_below(path, self._cwd):
            return
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._folders.append(folder)
        prefix = _prefix(folder, self._folders[0])
        offset = self._offsets.get(path)
        if offset is None:
            offset = self._first_offset(path)
        self._known[path] = EventFile(path, rank, prefix, offset)
        self._say(f"metrics are read from {path}")

    def _first_offset(self, path: str) -> int:
        """A file that is older than the task is extended by it: what stood there is another run's."""
        try:
            begun_ns = os.stat(os.path.join(self._task_dir, "task.json")).st_mtime_ns
            status = os.stat(path)
        except OSError:
            return 0
        digits = os.path.basename(path).partition(f"{MARK}.")[2].partition(".")[0]
        made_ns = int(digits) * 10**9 if digits.isdigit() and len(digits) < 12 else begun_ns
        return status.st_size if made_ns < begun_ns - 60 * 10**9 else 0

    def _walk(self) -> None:
        """Files of our processes that were never seen open: their names end in host, pid and number."""
        left = EVENT_WALK_ENTRIES_MAX
        try:
            begun_s = os.stat(os.path.join(self._task_dir, "task.json")).st_mtime - 2.0
        except OSError:
            return
        if os.path.realpath(self._cwd) == "/":
            return  # of an agent beside a container; nobody's runs lie all over the machine
        until_s = time.monotonic() + WALK_S
        mounts = _mount_points()
        waiting = [os.path.realpath(self._cwd)]
        while waiting and left > 0 and time.monotonic() < until_s:
            folder = waiting.pop()
            for entry in _entries(folder):
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    hidden = entry.name.startswith(".") or entry.name == "node_modules"
                    if not hidden and entry.path not in mounts:
                        waiting.append(entry.path)
                elif MARK in entry.name and entry.is_file(follow_symlinks=False):
                    self._meet_unseen(entry.path, begun_s)

    def _meet_unseen(self, path: str, begun_s: float) -> None:
        if path in self._known:
            return
        ranks = {**self._roots(), **self._ranks}
        rank = next((ranks[pid] for pid in _numbers(os.path.basename(path)) if pid in ranks), None)
        if rank is not None and _changed_since(path, begun_s):
            self._meet(path, rank)

    # -- reading

    def _read_all(self) -> bool:
        """Whether there was anything."""
        more = False
        for file in list(self._known.values()):
            try:
                events, end, damaged = file.read()
            except OSError:
                continue  # removed, or not readable now
            if damaged:
                self._damaged += damaged
                self._say(f"{file.path}: {damaged} damaged records are passed over")
            if end == file.offset:
                continue
            if not self._write(file, events, end):
                return False
            file.offset = end
            more = True
        return more

    def _write(
        self, file: EventFile, events: "list[tuple[float, int, dict[str, float]]]", end: int
    ) -> bool:
        try:
            self._write_media(file)
            segment = self._segment(file.rank)
            data, schemas = self._frames(file, events, segment)
            self._offsets[file.path] = file.offset
            size = segment.size() or 0
            self._save({
                "path": file.path, "offset": end, "stream": segment.name, "size": size, "length": len(data)
            })  # fmt: skip
            if data:
                segment.append(data)
                segment.declared.update(schemas)
            self._offsets[file.path] = end
            return True
        except OSError as error:
            self._say(f"metrics of {file.path} wait: {error.strerror}")
            self._leave(file.rank)
            return False

    def _write_media(self, file: EventFile) -> None:
        """Before the place in the file is noted: what is written twice has the same key, and the
        server keeps it once. Raises OSError.
        """
        while file.media:
            key, time_s, step, media = file.media[0]
            name = file.prefix + media.tag
            if name and len(name.encode()) <= METRIC_NAME_BYTES_MAX and abs(step) <= 2**62:
                time_ns = int(time_s * 1e9) if 0 < time_s < 4e9 else time.time_ns()
                fact = {"time_ns": time_ns, "key": key, "name": name, "step": step}
                stream = self._media_stream(file.rank)
                for frame in media_frames(fact, media.kind, media.mime, media.data, {}):
                    stream.append(frame)
            file.media.pop(0)

    def _media_stream(self, rank: int) -> StreamWriter:
        before = self._media.get(rank)
        if before is not None and 0 < (before.size() or 0) < SEGMENT_BYTES_MAX:
            return before
        number = self._media_count
        self._media_count += 1
        pid = os.getpid()
        opening = {
            "kind": "media", "rank": rank, "pid": pid, "start": process_start(), "segment": number,
        }  # fmt: skip
        name = media_name(rank, pid, self._rand, number)
        made = StreamWriter(self._task_dir, name, opening, self._files)
        if before is not None:
            before.close()
        self._media[rank] = made
        return made

    def _frames(
        self,
        file: EventFile,
        events: "list[tuple[float, int, dict[str, float]]]",
        segment: MetricSegment,
    ) -> "tuple[bytes, dict[tuple[str, ...], Any]]":
        """Points of all events as one piece; events that follow each other at one step are one record."""
        from headway.spool.writer import Schema

        schemas: dict[tuple[str, ...], Any] = {}
        frames: list[bytes] = []
        for time_s, step, values in events:
            kept = {
                file.prefix + tag: value
                for tag, value in values.items()
                if tag and len((file.prefix + tag).encode()) <= METRIC_NAME_BYTES_MAX
            }
            if not kept or not -(2**62) <= step <= 2**62:
                continue
            names = tuple(kept)
            schema = segment.declared.get(names) or schemas.get(names)
            if schema is None:
                number = segment.next_id()
                schema = schemas[names] = Schema(number, len(names))
                frames.append(encode_schema(number, names))
            time_ns = int(time_s * 1e9) if 0 < time_s < 4e9 else 0
            frames.append(schema.frame(step, time_ns, list(kept.values())))
        return b"".join(frames), schemas

    def _segment(self, rank: int) -> MetricSegment:
        before = self._segments.get(rank)
        if before is not None and 0 < (before.size() or 0) < SEGMENT_BYTES_MAX:
            return before
        number = before.number + 1 if before is not None else 0
        pid = os.getpid()
        opening = {
            "kind": "metrics", "rank": rank, "pid": pid, "start": process_start(), "segment": number,
            "source": "tensorboard",
        }  # fmt: skip
        name = metrics_name(rank, pid, self._rand, number)
        made = MetricSegment(self._task_dir, name, opening, self._files)
        if before is not None:
            before.close()
        self._segments[rank] = made
        return made

    def _leave(self, rank: int) -> None:
        for left in (self._segments.pop(rank, None), self._media.pop(rank, None)):
            if left is not None:
                left.close()
        self._rand = new_rand()  # numbers begin anew only under another name

    # -- what is written down

    def _save(self, writing: "JsonObject") -> None:
        ranks = {path: file.rank for path, file in self._known.items()}
        text = json.dumps({"offsets": self._offsets, "ranks": ranks, "writing": writing})
        replace_file(self._files, os.path.join(self._task_dir, CURSOR), text.encode())

    def _load(self) -> dict[str, int]:
        """How far an earlier shipper has come."""
        try:
            with open(os.path.join(self._task_dir, CURSOR), "rb") as file:
                found = json.loads(file.read())
            offsets = {str(path): int(offset) for path, offset in found["offsets"].items()}
            writing = found["writing"]
            if self._is_written(writing):
                offsets[writing["path"]] = int(writing["offset"])
            self._earlier = {str(path): int(rank) for path, rank in found["ranks"].items()}
            return offsets
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _is_written(self, writing: "JsonObject") -> bool:
        try:
            size = os.stat(os.path.join(self._task_dir, str(writing["stream"]))).st_size
        except OSError:
            return True  # the server had all of it, and it was removed
        return size >= int(writing["size"]) + int(writing["length"])


def _mount_points() -> set[str]:
    """A mount may hang: it is not walked into. Files on it are met while they are open."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return set()
    words = [line.split(b" ") for line in lines]
    return {os.fsdecode(line[4]).replace("\\040", " ") for line in words if len(line) > 4}


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _open_files(pid: int) -> "Iterator[str]":
    """Files that a process has open and whose names look like event files."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return  # it has ended, or is not ours to look at
    for name in names:
        try:
            path = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if MARK in path and path.startswith("/") and not path.endswith(" (deleted)"):
            yield path


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads[:256]:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += [int(word) for word in file.read(65_536).split()]
        except (OSError, ValueError):
            continue
    return found


def _is_below(path: str, folder: str) -> bool:
    top = os.path.realpath(folder).rstrip("/")
    return os.path.realpath(path).startswith(top + "/")


def _prefix(folder: str, first: str) -> str:
    """Scalars of a second folder (`validation` beside `train`) have its name in front of theirs."""
    if folder == first:
        return ""
    return os.path.relpath(folder, os.path.commonpath([folder, first])).strip("./") + "/"


def _numbers(name: str) -> set[int]:
    return {int(word) for word in name.split(".") if word.isdigit() and len(word) < 10}


def _changed_since(path: str, begun_s: float) -> bool:
    try:
        return os.stat(path).st_mtime >= begun_s
    except OSError:
        return False

"""Output by line number: any line of a log of gigabytes, of one stream or of many merged by time. For the page.

Newlines are counted once, block by block, and the counts kept in memory while a log is being looked at, those of long
logs also on disk; one that grows is counted on from where the last look ended. Merged lines are numbered too: the lines
of all streams are cut at common times into buckets, so that line N is found by reading one bucket. What is missing in a
stream is one line that says so.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headway.home.paths import Paths
from headway.model.limits import LINE_BYTES_MAX, LINE_INDEX_STREAMS_MAX, LOG_LINES_BYTES_MAX
from headway.store import line_counts, log_files
from headway.store import log_lines as store_lines
from headway.store.line_counts import Counts
from headway.store.log_lines import Output

BLOCK_BYTES = 64 * 1024
_READ_BYTES = 4 * 1024 * 1024
_BUCKET_BYTES = 128 * 1024
_LOOKUPS_MAX = 40_000  # boundaries × streams of a merged log
_ENTRIES_MAX = 2_000_000  # of the indices of all streams together; more are thinned
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Numbered:
    """A line with its number, from 0, in what was asked for."""

    number: int
    output: Output
    offset: int
    text: str
    time_us: int | None = None


@dataclass(slots=True)
class StreamIndex:
    """How many newlines lie before each block of one stream."""

    offsets: list[int] = field(
        default_factory=lambda: [0]
    )  # where blocks begin; the last is where counting goes on
    newlines: list[int] = field(default_factory=lambda: [0])
    gaps: set[int] = field(default_factory=set)  # offsets of blocks that are missing
    saved: int = 0  # as far as counts on disk go
    lock: threading.Lock = field(default_factory=threading.Lock)

    def grow(self, c: sqlite3.Connection, paths: Paths, output: Output) -> None:
        """Count what has come since. A block that was not full is counted again with what follows it."""
        with self.lock:
            if self.offsets[-1] >= output.position:
                return
            if len(self.offsets) == 1:
                self._load(c, paths, output)
            short = len(self.offsets) > 1 and self.offsets[-1] - self.offsets[-2] < BLOCK_BYTES
            if short and self.offsets[-2] not in self.gaps:
                self.offsets.pop()
                self.newlines.pop()
            while self.offsets[-1] < output.position:
                begun = self.offsets[-1]
                for piece in log_files.pieces(
                    c, paths, output.pk, begun, min(_READ_BYTES, output.position - begun)
                ):
                    self._count(piece)
                if self.offsets[-1] == begun:
                    break
            if self.offsets[-1] - self.saved >= line_counts.FROM_BYTES:
                line_counts.save(
                    c, paths, output.pk, Counts(self.offsets, self.newlines, self.gaps)
                )
                self.saved = self.offsets[-1]

    def _load(self, c: sqlite3.Connection, paths: Paths, output: Output) -> None:
        found = line_counts.load(c, paths, output.pk, output.position)
        if found is not None:
            self.offsets, self.newlines, self.gaps = found.offsets, found.newlines, found.gaps
            self.saved = self.offsets[-1]

    def _count(self, piece: log_files.Piece) -> None:
        if piece.missing is not None:
            if (
                len(self.offsets) > 1 and self.offsets[-2] in self.gaps
            ):  # a gap that was read in parts
                self.offsets[-1] = piece.offset + piece.length
                return
            self.gaps.add(self.offsets[-1])
            self.offsets.append(piece.offset + piece.length)
            self.newlines.append(self.newlines[-1] + 1)
            return
        for start in range(0, piece.length, BLOCK_BYTES):
            part = piece.data[start : start + BLOCK_BYTES]
            self.offsets.append(piece.offset + start + len(part))
            self.newlines.append(self.newlines[-1] + part.count(b"\n"))


class LineIndexes:
    """The indices of logs that were looked at lately. One per server; safe in several threads."""

    def __init__(self, count_max: int = LINE_INDEX_STREAMS_MAX) -> None:
        self._count_max = count_max
        self._streams: OrderedDict[int, StreamIndex] = OrderedDict()
        self._merged: OrderedDict[tuple[int, ...], Merged] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, pk: int) -> StreamIndex:
        with self._lock:
            found = self._streams.setdefault(pk, StreamIndex())
            self._streams.move_to_end(pk)
            while len(self._streams) > self._count_max:
                self._streams.popitem(last=False)
            return found

    def merged(self, chosen: list[Output]) -> "Merged":
        key = tuple(one.pk for one in chosen)
        with self._lock:
            found = self._merged.setdefault(key, Merged())
            self._merged.move_to_end(key)
            while len(self._merged) > 16:
                self._merged.popitem(last=False)
            return found


class Reader:
    """Reads one stream by line numbers."""

    def __init__(
        self, c: sqlite3.Connection, paths: Paths, output: Output, indexes: LineIndexes
    ) -> None:
        self.c, self.paths, self.output = c, paths, output
        self.index = indexes.of(output.pk)
        self.index.grow(c, paths, output)
        with self.index.lock:
            self._offsets = np.array(self.index.offsets, np.int64)
            self._newlines = np.array(self.index.newlines, np.int64)
            self._gaps = set(self.index.gaps)

    def newlines_before(self, offset: int) -> int:
        block = int(np.searchsorted(self._offsets, offset, side="right")) - 1
        found = int(self._newlines[block])
        start = int(self._offsets[block])
        if start == offset or start in self._gaps:
            return found
        return found + self._bytes(start, offset).count(b"\n")

    def starts_before(self, offset: int) -> int:
        """How many lines begin before this place."""
        return 0 if offset <= 0 else self.newlines_before(offset - 1) + 1

    @property
    def total(self) -> int:
        return self.starts_before(self.output.position)

    def offset_of(self, line: int) -> int:
        """Where a line begins."""
        if line <= 0:
            return 0
        block = int(np.searchsorted(self._newlines, line, side="left")) - 1
        start = int(self._offsets[block])
        end = (
            int(self._offsets[block + 1])
            if block + 1 < len(self._offsets)
            else self.output.position
        )
        if start in self._gaps:
            return end
        data = self._bytes(start, end)
        missing = line - int(self._newlines[block])
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        return start + int(ends[missing - 1]) + 1

    def lines(self, first: int, count: int, bytes_max: int = LOG_LINES_BYTES_MAX) -> list[Numbered]:
        found: list[Numbered] = []
        if first >= self.total:
            return found
        begun = self.offset_of(first)
        for offset, text in self._split(begun, min(self.output.position, begun + bytes_max)):
            if len(found) == count:
                break
            found.append(Numbered(first + len(found), self.output, offset, text))
        self._set_times(found)
        return found

    def between(self, start: int, end: int) -> list[Numbered]:
        """Lines that begin in this range of bytes; numbers count from the first of them."""
        first = self.starts_before(start)
        return self.lines(first, self.starts_before(end) - first, end - start + 16 * LINE_BYTES_MAX)

    def _split(self, begun: int, end: int) -> Iterator[tuple[int, str]]:
        """Lines from a place on, each with where it begins. One that is very long is shown by its end, which is what
        stands on a screen after a progress bar was drawn over itself."""
        rest, at = b"", begun
        for piece in log_files.pieces(self.c, self.paths, self.output.pk, begun, end - begun):
            if piece.missing is not None:
                yield at, _text(rest) + log_files.mark(piece).decode()
                rest, at = b"", piece.offset + piece.length
                continue
            data = rest + piece.data
            start = 0
            while (stop := data.find(b"\n", start)) >= 0:
                yield at + start, _text(data[start:stop])
                start = stop + 1
            rest, at = data[start:], at + start
        if rest and (
            end >= self.output.position or at == begun
        ):  # else its end is behind what was read
            yield at, _text(rest)

    def _bytes(self, start: int, end: int) -> bytes:
        pieces = log_files.pieces(self.c, self.paths, self.output.pk, start, end - start)
        return b"".join(piece.data if piece.missing is None else bytes(0) for piece in pieces)

    def _set_times(self, found: list[Numbered]) -> None:
        if self.output.index is None or not found:
            return
        entries = store_lines.read_entries(
            self.c, self.paths, self.output.index, found[0].offset, found[-1].offset
        )
        if not len(entries):
            return
        places = np.searchsorted(
            entries["offset"], np.array([line.offset for line in found], np.uint64), side="right"
        )
        for line, us in zip(found, entries["us"][np.maximum(places, 1) - 1].tolist(), strict=True):
            line.time_us = us


def _text(data: bytes) -> str:
    shown = data.removesuffix(b"\r")
    if len(shown) > LINE_BYTES_MAX:
        cut = f"[{len(shown) - LINE_BYTES_MAX:,} bytes before this are not shown] ".encode()
        shown = cut + shown[-LINE_BYTES_MAX:]
    return shown.decode("utf-8", "replace")


# -- several streams ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Merged:
    """Where the streams of a merged log are cut: `cuts[stream][k]` and `starts[stream][k]` are the place and the number
    of lines before the end of bucket k; `totals[k]` are all lines before it."""

    positions: tuple[int, ...] = ()
    cuts: Ints = field(default_factory=lambda: np.zeros((0, 1), np.int64))
    starts: Ints = field(default_factory=lambda: np.zeros((0, 1), np.int64))
    totals: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    lock: threading.Lock = field(default_factory=threading.Lock)


class MergedReader:
    """Reads several streams as one, by time; where times are equal, in the order of the streams."""

    def __init__(
        self, c: sqlite3.Connection, paths: Paths, chosen: list[Output], indexes: LineIndexes
    ) -> None:
        self.readers = [Reader(c, paths, one, indexes) for one in chosen]
        self._c, self._paths = c, paths
        self.index = indexes.merged(chosen)
        with self.index.lock:
            positions = tuple(one.position for one in chosen)
            if positions != self.index.positions:
                self._build(positions)
            self._cuts, self._starts, self._totals = (
                self.index.cuts,
                self.index.starts,
                self.index.totals,
            )

    @property
    def total(self) -> int:
        return int(self._totals[-1])

    def lines(self, first: int, count: int) -> list[Numbered]:
        found: list[Numbered] = []
        bucket = int(np.searchsorted(self._totals, first, side="right")) - 1
        while bucket < len(self._totals) - 1 and len(found) < count:
            before = int(self._totals[bucket])
            lines = self._bucket(bucket)
            for number, line in enumerate(lines, before):
                line.number = number
            found += lines[max(0, first - before) :]
            bucket += 1
        return found[:count]

    def numbers_of(self, places: list[tuple[int, int]]) -> list[int]:
        """The merged numbers of lines, given as (place of the stream among the chosen ones, offset), in order."""
        wanted: dict[int, set[tuple[int, int]]] = {}
        for stream, offset in places:
            bucket = int(np.searchsorted(self._cuts[stream], offset, side="right")) - 1
            key = (self.readers[stream].output.pk, offset)
            wanted.setdefault(min(max(bucket, 0), len(self._totals) - 2), set()).add(key)
        found: list[int] = []
        for bucket in sorted(wanted):
            for number, line in enumerate(self._bucket(bucket), int(self._totals[bucket])):
                if (line.output.pk, line.offset) in wanted[bucket]:
                    found.append(number)
        return found

    def _bucket(self, bucket: int) -> list[Numbered]:
        parts: list[Numbered] = []
        for stream, reader in enumerate(self.readers):
            start, end = int(self._cuts[stream][bucket]), int(self._cuts[stream][bucket + 1])
            if end > start:
                begun = int(self._starts[stream][bucket])
                lines = reader.lines(
                    begun, int(self._starts[stream][bucket + 1]) - begun, end - start + 1024 * 1024
                )
                parts += _rising(lines)
        return sorted(parts, key=lambda line: line.time_us or 0)

    def _build(self, positions: tuple[int, ...]) -> None:
        times, offsets = self._entries()
        boundaries = self._boundaries(times, offsets)
        shape = (len(self.readers), len(boundaries) + 2)
        cuts = np.zeros(shape, np.int64)
        starts = np.zeros(shape, np.int64)
        for stream, reader in enumerate(self.readers):
            places = np.searchsorted(times[stream], boundaries, side="right")
            ends = np.append(offsets[stream], reader.output.position)
            cuts[stream, 1:-1] = ends[places]
            cuts[stream, -1] = reader.output.position
            cuts[stream] = np.maximum.accumulate(np.minimum(cuts[stream], reader.output.position))
            known: dict[int, int] = {}
            for k, cut in enumerate(cuts[stream].tolist()):
                if cut not in known:
                    known[cut] = reader.starts_before(cut)
                starts[stream, k] = known[cut]
        self.index.cuts, self.index.starts = cuts, starts
        self.index.totals = starts.sum(axis=0) if len(self.readers) else np.zeros(2, np.int64)
        self.index.positions = positions

    def _entries(self) -> tuple[list[Ints], list[Ints]]:
        """When and where each stream was read by its agent. A clock that was set back stands still here."""
        sizes = [store_lines.entries_count(self._c, reader.output) for reader in self.readers]
        stride = sum(sizes) // _ENTRIES_MAX + 1
        times, offsets = [], []
        for reader in self.readers:
            found = store_lines.all_entries(self._c, self._paths, reader.output)[::stride]
            times.append(np.maximum.accumulate(found["us"].astype(np.int64)))
            offsets.append(found["offset"].astype(np.int64))
        return times, offsets

    def _boundaries(self, times: list[Ints], offsets: list[Ints]) -> Ints:
        """Times between which about as many bytes were written."""
        if not times or not any(len(one) for one in times):
            return np.zeros(0, np.int64)
        sizes = [
            np.diff(found, append=reader.output.position)
            for found, reader in zip(offsets, self.readers, strict=True)
        ]
        at = np.concatenate(times)
        order = np.argsort(at, kind="stable")
        written = np.cumsum(np.concatenate(sizes)[order])
        total = int(written[-1]) if len(written) else 0
        count = min(total // _BUCKET_BYTES, _LOOKUPS_MAX // max(1, len(self.readers)))
        if count < 1:
            return np.zeros(0, np.int64)
        wanted = np.linspace(0, total, count + 1)[1:]
        places = np.minimum(np.searchsorted(written, wanted), len(at) - 1)
        found: Ints = np.unique(at[order][places])
        return found


def _rising(found: list[Numbered]) -> list[Numbered]:
    """Lines of one stream keep their order when they are sorted by time."""
    latest = 0
    for line in found:
        latest = max(latest, line.time_us or 0)
        line.time_us = latest or None
    return found

"""Output as lines: the last N, from an offset on, of one process or of many merged by time. Called
by the server's API.

Bytes stay what they are in the store; here they become text, invalid UTF-8 replaced (B8), and each
line gets the time at which the agent saw it, from the `.index` stream beside it. What is missing is
a line that says so. Of a line that is longer than LINE_BYTES_MAX the beginning is shown, with a
mark where it was cut.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import merge

import numpy as np
import numpy.typing as npt

from headway.home.paths import Paths
from headway.model.limits import LINE_BYTES_MAX, LOG_READ_BYTES_MAX
from headway.model.record import RAW
from headway.store import log_files

CUT = f" … (cut here: a line is shown up to {LINE_BYTES_MAX:,} bytes; whole: hw logs ID --rank N --stream NAME > FILE)"
_TAIL_BLOCK = 256 * 1024
_SHORT_LINE_BYTES = 1024
_INDEX_BLOCK = 4096  # entries read at once
_INDEX_BYTES_MAX = 16 * 1024 * 1024  # of an index with gaps, which is read whole


@dataclass(frozen=True, slots=True)
class Output:
    """A raw stream of a job."""

    pk: int
    attempt: int
    task: str
    rank: int | None
    stream: str  # stdout, stderr or agent
    position: int
    index: int | None  # pk of its index


@dataclass(slots=True)
class Line:
    output: Output
    offset: int  # where it starts in its stream
    end: int  # where the next one starts
    text: str
    time_us: int | None = None
    open: bool = False  # it has no line end yet: what comes next belongs to it


@dataclass(slots=True)
class Lines:
    lines: list[Line]
    cursor: dict[int, int]  # stream → where to go on
    more: bool = False  # there is more already than fitted in


def outputs(
    c: sqlite3.Connection, job_pk: int, *, attempt: int | None = None, task: str | None = None,
    rank: int | None = None, stream: str | None = None,
) -> list[Output]:  # fmt: skip
    """Raw streams of an attempt (the newest, unless told otherwise) that fit all that is asked for."""
    rows = c.execute(
        """SELECT s.pk, s.name, s.rank, s.position, t.name AS task, a.number,
             (SELECT i.pk FROM streams i WHERE i.task = s.task AND i.name = s.name || '.index') AS idx
           FROM streams s JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt
           WHERE a.job = :job AND s.kind = :raw AND (:task IS NULL OR t.name = :task)
             AND (:rank IS NULL OR s.rank = :rank)
             AND a.number = coalesce(:attempt, (SELECT max(number) FROM attempts WHERE job = :job))
           ORDER BY t.pk, s.rank, s.name DESC""",
        {"job": job_pk, "raw": RAW, "task": task, "rank": rank, "attempt": attempt},
    )
    found = [
        Output(
            row["pk"],
            row["number"],
            row["task"],
            row["rank"],
            row["name"].partition("-")[0],
            row["position"],
            row["idx"],
        )
        for row in rows
    ]
    return [one for one in found if (one.stream == stream if stream else one.stream != "agent")]


# -- one stream


def tail_offset(
    c: sqlite3.Connection,
    paths: Paths,
    output: Output,
    count: int,
    bytes_max: int = LOG_READ_BYTES_MAX,
) -> int:
    """Where the last `count` lines start, at most `bytes_max` back. A last line without its end
    counts.
    """
    if count <= 0:
        return output.position
    end, found, earliest = output.position, 0, max(0, output.position - bytes_max)
    while end > earliest:
        start = max(earliest, end - _TAIL_BLOCK)
        data = _plain(c, paths, output.pk, start, end)
        last = len(data)
        if end == output.position and data.endswith(b"\n"):
            last -= 1
        while (at := data.rfind(b"\n", 0, last)) >= 0:
            found += 1
            if found == count:
                return start + at + 1
            last = at
        end = start
    return earliest


def _plain(c: sqlite3.Connection, paths: Paths, pk: int, start: int, end: int) -> bytes:
    """Bytes of exactly this length; what is missing counts as one line of its own."""
    found = b""
    for piece in log_files.pieces(c, paths, pk, start, end - start):
        found += (
            piece.data
            if piece.missing is None
            else b"\n" * min(piece.length, 1) + bytes(max(0, piece.length - 1))
        )
    return found


def read_lines(
    c: sqlite3.Connection, paths: Paths, output: Output, offset: int, limit: int, *, final: bool
) -> Lines:
    """Whole lines from `offset` on, about `limit` bytes of them. `final`: nobody will write the end
    of the last one.
    """
    lines: list[Line] = []
    rest, at = b"", offset
    skip = _is_cut_off(c, paths, output, offset)
    for piece in log_files.pieces(c, paths, output.pk, offset, max(limit, LINE_BYTES_MAX + 1)):
        if piece.missing is not None:
            skip = False
            if rest:
                lines += _split(output, rest, at)
            at, rest = piece.offset + piece.length, b""
            lines.append(Line(output, piece.offset, at, log_files.mark(piece).decode()))
            continue
        data = rest + piece.data
        if skip:
            dropped = _drawn_end(data, 0)
            skip = dropped == len(data) and not data.endswith((b"\n", b"\r"))
            data, at = data[dropped:], at + dropped
        stop = data.rfind(b"\n") + 1
        lines += _split(output, data[:stop], at)
        at, rest = at + stop, data[stop:]
    reached = at + len(rest)
    if rest and final and reached >= output.position:
        lines += _split(output, rest, at)
        at = reached
    elif len(rest) > LINE_BYTES_MAX:
        stop = rest.rfind(b"\r") + 1 or len(rest)  # what was not drawn whole waits for its end
        lines += _split(output, rest[:stop], at)
        at += stop
    _set_times(c, paths, output, lines)
    return Lines(lines, {output.pk: at}, more=reached < output.position)


def lines_at(c: sqlite3.Connection, paths: Paths, output: Output, offsets: list[int]) -> list[Line]:
    """The lines that begin at these places, in order. They may lie far apart, or side by side: then
    many are read at once.
    """
    found: list[Line] = []
    block, begun = b"", 0
    for number, offset in enumerate(offsets):
        end = block.find(b"\n", offset - begun) + 1 if begun <= offset < begun + len(block) else 0
        if not end:
            near = number + 1 < len(offsets) and offsets[number + 1] - offset < LINE_BYTES_MAX
            block, begun = (
                _first_line(c, paths, output, offset, _TAIL_BLOCK if near else _SHORT_LINE_BYTES),
                offset,
            )
            end = block.find(b"\n") + 1 or len(block)
        line = _split(output, block[offset - begun : end], offset)[0]
        if line.text.endswith(CUT):
            line.end = _line_end(c, paths, output, line.end)
        found.append(line)
    _set_times(c, paths, output, found)
    return found


def _first_line(
    c: sqlite3.Connection, paths: Paths, output: Output, offset: int, enough: int
) -> bytes:
    """Bytes from `offset` on, with a whole line if there is one. Most lines are short, so a little
    is read first.
    """
    data = b""
    for size in (enough, LINE_BYTES_MAX + 1):
        data = b""
        for piece in log_files.pieces(c, paths, output.pk, offset, size):
            if piece.missing is not None:
                break
            data += piece.data
        if b"\n" in data:
            break
    return data


def _line_end(c: sqlite3.Connection, paths: Paths, output: Output, offset: int) -> int:
    """Where the next line starts; the end of the stream if there is none."""
    while offset < output.position:
        data = _plain(c, paths, output.pk, offset - 1, offset - 1 + _TAIL_BLOCK)
        if b"\n" in data:
            return offset + data.find(b"\n")
        offset += max(1, len(data) - 1)
    return output.position


def _split(output: Output, data: bytes, offset: int) -> list[Line]:
    """Lines of `data`; of one that is too long for a view, the beginning."""
    lines = []
    for line in _split_at_newlines(data):
        for part in _parts(line):
            is_open = not part.endswith(b"\n")
            shown = part.removesuffix(b"\n").removesuffix(b"\r")
            text = shown[:LINE_BYTES_MAX].decode("utf-8", "replace")
            cut = CUT if len(shown) > LINE_BYTES_MAX else ""
            lines.append(Line(output, offset, offset + len(part), text + cut, open=is_open))
            offset += len(part)
    return lines


def _parts(line: bytes) -> Iterator[bytes]:
    """A progress bar that was redrawn very often is cut between two drawings: each part then ends
    with a whole one.
    """
    start = 0
    while len(line) - start > LINE_BYTES_MAX:
        end = line.rfind(b"\r", start + 1, start + LINE_BYTES_MAX) + 1 or _drawn_end(
            line, start + LINE_BYTES_MAX
        )
        yield line[start:end]
        start = end
    if start < len(line):
        yield line[start:]


def _drawn_end(data: bytes, start: int) -> int:
    """Where what is on the screen at `start` ends: behind the next newline or carriage return, or
    with the data.
    """
    ends = [at + 1 for at in (data.find(b"\n", start), data.find(b"\r", start)) if at >= 0]
    return min(ends, default=len(data))


def _is_cut_off(c: sqlite3.Connection, paths: Paths, output: Output, offset: int) -> bool:
    """Whether `offset` lies so deep in a line that it is shown no more: its beginning was, and the
    mark.
    """
    if offset <= LINE_BYTES_MAX or _plain(c, paths, output.pk, offset - 1, offset) in (
        b"\n",
        b"\r",
    ):
        return False
    before = _plain(c, paths, output.pk, offset - LINE_BYTES_MAX - 1, offset)
    return b"\n" not in before and b"\r" not in before


def _split_at_newlines(data: bytes) -> Iterator[bytes]:
    """A carriage return does not end a line: a progress bar is one line, however often it was
    redrawn (B15).
    """
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


# -- several streams


def read_merged(
    c: sqlite3.Connection,
    paths: Paths,
    chosen: list[Output],
    cursor: dict[int, int],
    limit: int,
    *,
    final: bool,
) -> Lines:
    """Lines of several streams by time, from a cursor on. A stream that had to be cut holds the
    others back in time.
    """
    left = {one.pk: one for one in chosen if cursor.get(one.pk, 0) < one.position}
    share = max(LINE_BYTES_MAX, limit // max(1, len(left)))
    horizon = _horizon(c, paths, left.values(), cursor, share)
    room = {pk: _room(c, paths, one, cursor.get(pk, 0), share, horizon) for pk, one in left.items()}
    parts = [
        read_lines(c, paths, one, cursor.get(pk, 0), room[pk], final=final)
        if room[pk] else Lines([], {pk: cursor.get(pk, 0)}, more=True)
        for pk, one in left.items()
    ]  # fmt: skip
    if not any(_until(part.lines, horizon) for part in parts):
        horizon = None  # a clock was set back just there
    after = dict(cursor)
    for part in parts:
        keep = _until(part.lines, horizon)
        after |= (
            {line.output.pk: line.end for line in keep[-1:]}
            if len(keep) < len(part.lines)
            else part.cursor
        )
        part.more |= len(keep) < len(part.lines)
        part.lines = keep
    ordered = list(merge(*(part.lines for part in parts), key=lambda line: line.time_us or 0))
    return Lines(ordered, after, any(part.more for part in parts))


def _horizon(
    c: sqlite3.Connection,
    paths: Paths,
    left: Iterable[Output],
    cursor: Mapping[int, int],
    share: int,
) -> int | None:
    """The time up to which every stream can be told whole; None: all of them, to their ends. Found
    in the indices: to make lines first and drop most of them costs ten times as much where many
    ranks write much.
    """
    found = []
    for one in left:
        end = cursor.get(one.pk, 0) + share
        if (
            end < one.position
            and one.index is not None
            and len(entries := read_entries(c, paths, one.index, end, end))
        ):
            place = int(np.searchsorted(entries["offset"], np.uint64(end), side="right"))
            found.append(int(entries["us"][max(place, 1) - 1]))
    return min(found, default=None)


def _room(
    c: sqlite3.Connection, paths: Paths, one: Output, start: int, share: int, horizon: int | None
) -> int:
    """How much of a stream to read: what was written until then."""
    if horizon is None or one.index is None:
        return share
    entries = read_entries(c, paths, one.index, start, start + share)
    until = np.flatnonzero(entries["us"] <= horizon)
    later = entries["offset"][until[-1] + 1 if len(until) else 0 :]
    if not len(later):
        return share
    written = int(later[0]) - start
    return min(share, written + LINE_BYTES_MAX) if written > 0 else 0


def _until(lines: list[Line], horizon: int | None) -> list[Line]:
    """Up to the last one of that time: those before it go with it also where the node's clock was
    set back.
    """
    if horizon is None:
        return lines
    count = next((n for n in range(len(lines), 0, -1) if (lines[n - 1].time_us or 0) <= horizon), 0)
    return lines[:count]


def tail_merged(
    c: sqlite3.Connection, paths: Paths, chosen: list[Output], count: int, *, final: bool
) -> Lines:
    """The last `count` lines of all streams together, by time, and the cursor behind them."""
    bytes_max = LOG_READ_BYTES_MAX // max(1, len(chosen))
    start = {one.pk: tail_offset(c, paths, one, count, bytes_max) for one in chosen}
    room = max((one.position - start[one.pk] for one in chosen), default=0)
    found = read_merged(c, paths, chosen, start, max(room, 1) * max(1, len(chosen)), final=final)
    return replace(found, lines=found.lines[-count:] if count else [])


# -- times


def _set_times(c: sqlite3.Connection, paths: Paths, output: Output, lines: list[Line]) -> None:
    """The time of a line is that of the last index entry at or before its first byte."""
    if output.index is None or not lines:
        return
    entries = read_entries(c, paths, output.index, lines[0].offset, lines[-1].offset)
    if not len(entries):
        return
    places = np.searchsorted(
        entries["offset"], np.array([line.offset for line in lines], np.uint64), side="right"
    )
    times = entries["us"][np.maximum(places, 1) - 1]
    for line, us in zip(lines, times.tolist(), strict=True):
        line.time_us = us


_ENTRY = np.dtype([("offset", "<u8"), ("us", "<u8")])
Entries = npt.NDArray[np.void]


def clock(
    c: sqlite3.Connection, paths: Paths, output: Output, first: int, last: int
) -> tuple[list[int], list[float]]:
    """When the bytes from `first` to `last` were written: offsets, rising, and the second of each."""
    if output.index is None:
        return [], []
    entries = read_entries(c, paths, output.index, first, last)
    return entries["offset"].tolist(), (entries["us"] / 1e6).tolist()


def read_entries(c: sqlite3.Connection, paths: Paths, pk: int, first: int, last: int) -> Entries:
    """Entries of an index that cover the bytes from `first` to `last`, found by bisection."""
    total = (
        c.execute("SELECT position FROM streams WHERE pk = :pk", {"pk": pk}).fetchone()["position"]
        // 16
    )
    holes = c.execute(
        "SELECT 1 FROM gaps WHERE stream = :pk AND bytes > 0 LIMIT 1", {"pk": pk}
    ).fetchone()
    if holes:
        found = log_files.pieces(c, paths, pk, 0, min(16 * total, _INDEX_BYTES_MAX))
        return np.frombuffer(b"".join(piece.data for piece in found), _ENTRY)
    low, high = 0, total
    while high - low > _INDEX_BLOCK:
        middle = (low + high) // 2
        if int(_load(c, paths, pk, middle, middle + 1)["offset"][0]) <= first:
            low = middle
        else:
            high = middle
    blocks: list[Entries] = []
    while low < total:
        blocks.append(_load(c, paths, pk, low, min(total, low + _INDEX_BLOCK)))
        low += _INDEX_BLOCK
        if int(blocks[-1]["offset"][-1]) > last:
            break
    return np.concatenate(blocks) if blocks else np.empty(0, _ENTRY)


def entries_count(c: sqlite3.Connection, output: Output) -> int:
    """How many entries the index of a stream has."""
    if output.index is None:
        return 0
    row = c.execute("SELECT position FROM streams WHERE pk = :pk", {"pk": output.index}).fetchone()
    return int(row["position"]) // 16


def all_entries(c: sqlite3.Connection, paths: Paths, output: Output) -> Entries:
    """All entries of a stream's index that are there."""
    if output.index is None:
        return np.empty(0, _ENTRY)
    size = 16 * entries_count(c, output)
    data = b"".join(piece.data for piece in log_files.pieces(c, paths, output.index, 0, size))
    return np.frombuffer(data[: len(data) // 16 * 16], _ENTRY)


def _load(c: sqlite3.Connection, paths: Paths, pk: int, start: int, end: int) -> Entries:
    found = log_files.pieces(c, paths, pk, 16 * start, 16 * (end - start))
    return np.frombuffer(b"".join(piece.data for piece in found), _ENTRY)

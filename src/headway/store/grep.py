"""Searching output with a regular expression, in a process of its own: a pattern can take forever
and is then killed.

Called by the server's API (`search`, `search_last`). The child gets pieces of streams on stdin and
answers with the places of lines that match; it has limits on time and memory and sees nothing but
those bytes.
"""

import signal
import sqlite3
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.home.paths import Paths
from headway.model.limits import GREP_TIMEOUT_S, LINE_BYTES_MAX
from headway.store import log_files
from headway.store import pattern as pattern_child
from headway.store.log_lines import Line, Output, lines_at

PIECE_BYTES = 4 * 1024 * 1024
_HEAD = struct.Struct("<IQI")  # which stream, offset, length
_FOUND = struct.Struct("<IQ")  # which stream, offset of a line

_END = 0xFFFF_FFFF  # in place of a stream: the places of one piece are complete

# Runs with the standard library only. Lines are looked for in a whole piece first, which is fast,
# then one by one. With `last` it tells the last places of each piece and then that the piece is
# done; without, every place at once.
_CHILD = (
    pattern_child.LIMITS
    + r"""
line_max, last = int(sys.argv[2]), int(sys.argv[3])
quick = re.compile(pattern.pattern, pattern.flags | re.M)
anchored = re.search(r"\\[AZ]", pattern.pattern)
while True:
    head = read(16)
    if len(head) < 16:
        break
    stream, offset, length = struct.unpack("<IQI", head)
    data = read(length)
    text = data.decode("latin-1") if data.isascii() else None
    at, places = 0, []
    while at < len(data):
        if text is not None and not anchored:
            hit = quick.search(text, at)
            if hit is None:
                break
            at = max(at, data.rfind(b"\n", 0, hit.start()) + 1)
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at:min(end, at + line_max)].decode("utf-8", "replace").removesuffix("\r")
        if pattern.search(line):
            places.append(offset + at)
            if not last:
                write(struct.pack("<IQ", stream, places.pop()))
                sys.stdout.buffer.flush()
        at = end + 1
    if last:
        write(b"".join(struct.pack("<IQ", stream, place) for place in places[-last:]))
        write(struct.pack("<IQ", 0xFFFFFFFF, 0))
        sys.stdout.buffer.flush()
"""
)


@dataclass(slots=True)
class Found:
    lines: list[Line]
    more: bool  # stopped by the limit of lines or of time
    timed_out: bool
    cursor: dict[int, int]  # stream → where to go on


def search(
    c: sqlite3.Connection, paths: Paths, chosen: list[Output], pattern: str, lines_max: int,
    timeout_s: float | None = None, begun: dict[int, int] | None = None,
) -> Found:  # fmt: skip
    """Lines of these streams that match, from `begun` on, by time; at most `lines_max`, and what
    `timeout_s` (default: GREP_TIMEOUT_S) allows.
    """
    starts = {one.pk: (begun or {}).get(one.pk, 0) for one in chosen}
    pieces = (
        (number, offset, data)
        for number, output in enumerate(chosen)
        for offset, data in _whole_lines(c, paths, output, starts[output.pk])
    )
    places, more, timed_out = _search(pattern, pieces, lines_max, timeout_s)
    found: list[Line] = []
    for number, output in enumerate(chosen):
        found += lines_at(
            c, paths, output, [offset for stream, offset in places if stream == number]
        )
    cursor = (
        _reached(starts, chosen, places, found) if more else _ends(c, paths, starts, chosen, found)
    )
    return Found(sorted(found, key=lambda line: line.time_us or 0), more, timed_out, cursor)


def search_last(
    c: sqlite3.Connection, paths: Paths, chosen: list[Output], pattern: str, count: int,
    timeout_s: float | None = None,
) -> Found:  # fmt: skip
    """The last `count` lines of all that match. Each stream is searched from its end back until it
    has given so many, so this costs as little for a million lines as for a hundred.
    """
    timeout_s = GREP_TIMEOUT_S if timeout_s is None else timeout_s
    child = _start(pattern, timeout_s, max(1, count))
    late = threading.Event()
    watch = threading.Timer(timeout_s, _stop, (child, late))
    watch.start()
    found: list[Line] = []
    try:
        pattern_child.tell_pattern(child, pattern)
        for number, output in enumerate(chosen if count else ()):
            found += lines_at(
                c, paths, output, _last_places(c, paths, output, number, child, count)
            )
    except BrokenPipeError:
        pass  # out of time, as the code below says
    finally:
        watch.cancel()
        code = pattern_child.stop_child(child)
    timed_out = late.is_set() or code == -signal.SIGXCPU
    starts = {one.pk: 0 for one in chosen}
    cursor = _ends(c, paths, starts, chosen, found)
    ordered = sorted(found, key=lambda line: line.time_us or 0)
    return Found(ordered[-count:] if count else [], timed_out, timed_out, cursor)


def _last_places(
    c: sqlite3.Connection,
    paths: Paths,
    output: Output,
    number: int,
    child: "subprocess.Popen[bytes]",
    count: int,
) -> list[int]:
    """Where the last lines of one stream begin that match, in order."""
    assert child.stdin is not None and child.stdout is not None
    found: list[int] = []
    for offset, data in _back(c, paths, output):
        child.stdin.write(_HEAD.pack(number, offset, len(data)))
        child.stdin.write(data)
        child.stdin.flush()
        here: list[int] = []
        while (
            len(told := child.stdout.read(_FOUND.size)) == _FOUND.size
            and _FOUND.unpack(told)[0] != _END
        ):
            here.append(_FOUND.unpack(told)[1])
        found = [*here, *found][-count:]
        if len(found) >= count or len(told) < _FOUND.size:
            break
    return found


def _back(c: sqlite3.Connection, paths: Paths, output: Output) -> Iterator[tuple[int, bytes]]:
    """Pieces of a stream from its end to its beginning, that begin with a line, as far as a few
    megabytes allow it.
    """
    end = output.position
    while end > 0:
        start = max(0, end - PIECE_BYTES)
        found = [
            piece
            for piece in log_files.pieces(c, paths, output.pk, start, end - start)
            if piece.data
        ]
        end = start
        for piece in reversed(found):
            data = piece.data
            cut = data.find(b"\n") + 1 if piece.offset == start and start > 0 else 0
            if 0 < cut < len(data):
                data, end = data[cut:], start + cut
            yield piece.offset + piece.length - len(data), data


def places(
    pattern: str,
    texts: Iterable[tuple[int, bytes]],
    found_max: int,
    timeout_s: float | None = None,
) -> tuple[list[int], bool, bool]:
    """Where lines match, of texts that each begin at a place; whether there may be more; whether
    time ran out.
    """
    found, more, timed_out = _search(
        pattern, ((0, place, data) for place, data in texts), found_max, timeout_s
    )
    return [place for _, place in found], more, timed_out


def find(
    c: sqlite3.Connection, paths: Paths, chosen: list[Output], pattern: str, places_max: int,
    timeout_s: float = GREP_TIMEOUT_S,
) -> tuple[list[tuple[int, int]], bool, bool]:  # fmt: skip
    """(place of the stream among the chosen ones, offset) of lines that match, stream by stream; whether there may be
    more; whether time ran out."""
    pieces = (
        (number, offset, data)
        for number, output in enumerate(chosen)
        for offset, data in _whole_lines(c, paths, output, 0)
    )
    return _search(pattern, pieces, places_max, timeout_s)


def _search(
    pattern: str, pieces: Iterable[tuple[int, int, bytes]], lines_max: int, timeout_s: float | None
) -> tuple[list[tuple[int, int]], bool, bool]:
    """(stream, offset) of lines that match; whether it stopped early; whether time ran out."""
    timeout_s = GREP_TIMEOUT_S if timeout_s is None else timeout_s
    child = _start(pattern, timeout_s)
    late = threading.Event()
    watch = threading.Timer(timeout_s, _stop, (child, late))
    watch.start()
    found: list[tuple[int, int]] = []
    reader = threading.Thread(target=_collect, args=(child, found, lines_max), daemon=True)
    reader.start()
    fed = False
    try:
        fed = _feed(pieces, pattern, child, found, lines_max)
    finally:
        if not fed:
            child.kill()
        reader.join()
        child.wait()
        watch.cancel()
        code = pattern_child.stop_child(child)
    timed_out = late.is_set() or code == -signal.SIGXCPU
    return found[:lines_max], len(found) >= lines_max or code != 0, timed_out


def _start(pattern: str, timeout_s: float, last: int = 0) -> "subprocess.Popen[bytes]":
    pattern_child.check_pattern(pattern)
    return pattern_child.start_child(_CHILD, pattern, timeout_s, str(LINE_BYTES_MAX), str(last))


def _stop(child: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    child.kill()


def _feed(
    pieces: Iterable[tuple[int, int, bytes]], pattern: str, child: "subprocess.Popen[bytes]",
    found: list[tuple[int, int]], lines_max: int,
) -> bool:  # fmt: skip
    """Send everything; False when it was cut short because enough was found or the child is gone."""
    assert child.stdin is not None
    try:
        pattern_child.tell_pattern(child, pattern)
        for number, offset, data in pieces:
            if len(found) >= lines_max:
                return False
            child.stdin.write(_HEAD.pack(number, offset, len(data)))
            child.stdin.write(data)
        child.stdin.close()
    except BrokenPipeError:
        return False
    return True


def _whole_lines(
    c: sqlite3.Connection, paths: Paths, output: Output, offset: int
) -> Iterator[tuple[int, bytes]]:
    """Pieces of a stream that end at the end of a line, as far as that can be had in a few
    megabytes.
    """
    while offset < output.position:
        for piece in log_files.pieces(c, paths, output.pk, offset, PIECE_BYTES):
            data = piece.data
            last = piece.offset + piece.length >= output.position
            if data and not last and piece.offset + piece.length == offset + PIECE_BYTES:
                data = data[: data.rfind(b"\n") + 1] or data
            if data:
                yield piece.offset, data
            after = piece.offset + (len(data) or piece.length)
        offset = after


def _collect(
    child: "subprocess.Popen[bytes]", found: list[tuple[int, int]], lines_max: int
) -> None:
    assert child.stdout is not None
    while len(found) < lines_max:
        data = child.stdout.read(_FOUND.size)
        if len(data) < _FOUND.size:
            return
        found.append(_FOUND.unpack(data))
    child.kill()


# -- where to go on


def _reached(
    starts: dict[int, int], chosen: list[Output], places: list[tuple[int, int]], found: list[Line]
) -> dict[int, int]:  # fmt: skip
    """After a search that was cut short: streams are searched one after the other, up to the last
    line found.
    """
    if not found:
        return starts
    whole = {one.pk: one.position for one in chosen[: places[-1][0]]}
    return starts | whole | {found[-1].output.pk: found[-1].end}


def _ends(
    c: sqlite3.Connection, paths: Paths, starts: dict[int, int], chosen: list[Output], found: list[Line]
) -> dict[int, int]:  # fmt: skip
    """After a whole search: a last line without its end is searched again once it has grown, unless
    it was found.
    """
    shown = {line.output.pk: line.end for line in found}
    return {
        one.pk: max(_last_end(c, paths, one, starts[one.pk]), shown.get(one.pk, 0))
        for one in chosen
    }


def _last_end(c: sqlite3.Connection, paths: Paths, output: Output, start: int) -> int:
    """Where the last whole line ends; the end of the stream if that is too far back."""
    end = start if output.position - start < LINE_BYTES_MAX else output.position
    start = max(start, output.position - LINE_BYTES_MAX)
    for piece in log_files.pieces(c, paths, output.pk, start, output.position - start):
        newline = piece.length if piece.missing is not None else piece.data.rfind(b"\n") + 1
        end = piece.offset + newline if newline else end
    return end

"""`/api/jobs/{ref}/lines` and `…/find`: output by line number, and where something is in it. For the page's log.

Numbers count from 0 in what was chosen: one stream, or all that fit, merged by time.
"""

import re
import sqlite3
from typing import Annotated, Literal

import msgspec

from headway.home.paths import Paths
from headway.model.limits import LOG_LINES_FOUND_MAX, PAGE_LINES_MAX
from headway.server.app import Route
from headway.server.contract import FoundLines, NumberedLine, NumberedLines
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode
from headway.store import grep, log_lines
from headway.store.jsonform import iso
from headway.store.line_index import LineIndexes, MergedReader, Numbered, Reader
from headway.store.log_lines import Output

# What the page jumps to when asked for the first error. Lines that only count errors ("errors: 0") are none.
ERRORS = (
    r"Traceback \(most recent call last\)|\b(?:Error|ERROR|Exception|FATAL|Fatal|CRITICAL|panic)\b(?!s?[:=]\s*0\b)"
    r"|\w+(?:Error|Exception): |\bKilled\b|Segmentation fault|CUDA error|NCCL WARN"
)


class Chosen(msgspec.Struct, forbid_unknown_fields=True):
    attempt: Count | None = None
    task: str | None = None
    rank: Count | None = None
    stream: Literal["stdout", "stderr", "agent"] | None = None


class AskedLines(Chosen, forbid_unknown_fields=True):
    first: Count = 0
    count: Annotated[int, msgspec.Meta(ge=0, le=PAGE_LINES_MAX)] = 200
    tail: bool = False  # the last `count` lines, whatever `first` says
    at: Count | None = None  # instead of `first`: from the line that holds this byte of the stream
    time_s: float | None = None  # or: around the last line that was printed by then


class AskedFind(Chosen, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    regex: bool = False
    case: bool = False
    errors: bool = False  # instead of `text`: what looks like an error
    limit: Count = LOG_LINES_FOUND_MAX


async def read_lines(call: Call) -> Reply:
    """`{total, first, lines: [{n time rank stream offset text}], bytes}`: any part of the output, by line number."""
    asked = call.query(AskedLines)
    pk = await call.services.find(call)
    return Reply(
        await call.services.slow_query(
            _read, call.services.paths, call.services.line_indexes, pk, asked
        )
    )


async def find_lines(call: Call) -> Reply:
    """`{hits: [line numbers], more, timed_out, total}`: lines with a text, or that match a regular expression."""
    asked = call.query(AskedFind)
    pk = await call.services.find(call)
    return Reply(
        await call.services.slow_query(
            _find, call.services.paths, call.services.line_indexes, pk, asked
        )
    )


def _outputs(c: sqlite3.Connection, pk: int, asked: Chosen) -> list[Output]:
    found = log_lines.outputs(
        c, pk, attempt=asked.attempt, task=asked.task, rank=asked.rank, stream=asked.stream
    )
    return [one for one in found if one.position] or found[:1]


def _reader(
    c: sqlite3.Connection, paths: Paths, indexes: LineIndexes, chosen: list[Output]
) -> Reader | MergedReader:
    if len(chosen) == 1:
        return Reader(c, paths, chosen[0], indexes)
    return MergedReader(c, paths, chosen, indexes)


def _read(
    c: sqlite3.Connection, paths: Paths, indexes: LineIndexes, pk: int, asked: AskedLines
) -> bytes:
    chosen = _outputs(c, pk, asked)
    if not chosen:
        return encode(NumberedLines(total=0, first=0, lines=[], bytes=0))
    reader = _reader(c, paths, indexes, chosen)
    total = reader.total
    first = min(asked.first, total)
    if asked.tail:
        first = max(0, total - asked.count)
    elif asked.at is not None and isinstance(reader, Reader):
        first = max(0, reader.starts_before(asked.at + 1) - 1)
    elif asked.time_s is not None:
        first = max(0, _printed_by(reader, asked.time_s) - asked.count // 2)
    found = reader.lines(first, asked.count)
    size = sum(one.position for one in chosen)
    told = [_line(line) for line in found]
    return encode(NumberedLines(total=total, first=first, lines=told, bytes=size))


def _printed_by(reader: Reader | MergedReader, time_s: float) -> int:
    """How many lines had been printed by then: their times rise, so half of them are left out with every look."""
    wanted_us = time_s * 1e6
    low = 0
    high = reader.total
    while low < high:
        middle = (low + high) // 2
        found = reader.lines(middle, 1)
        if found and found[0].time_us is not None and found[0].time_us > wanted_us:
            high = middle
        else:
            low = middle + 1
    return low


def _line(line: Numbered) -> NumberedLine:
    return NumberedLine(
        n=line.number,
        time=None if line.time_us is None else iso(line.time_us * 1000),
        rank=line.output.rank,
        stream=line.output.stream,
        offset=line.offset,
        text=line.text,
    )


def _find(
    c: sqlite3.Connection, paths: Paths, indexes: LineIndexes, pk: int, asked: AskedFind
) -> bytes:
    chosen = _outputs(c, pk, asked)
    pattern = asked.text if asked.regex else re.escape(asked.text)
    if asked.errors:
        pattern = ERRORS
    if not chosen or not pattern:
        return encode(FoundLines(hits=[], more=False, timed_out=False, total=0))
    if not asked.case and not asked.errors:
        pattern = f"(?i:{pattern})"
    places, more, timed_out = grep.find(
        c, paths, chosen, pattern, min(asked.limit, LOG_LINES_FOUND_MAX)
    )
    reader = _reader(c, paths, indexes, chosen)
    if isinstance(reader, Reader):
        hits = [reader.starts_before(offset + 1) - 1 for _, offset in places]
    else:
        hits = reader.numbers_of(places)
    return encode(FoundLines(hits=hits, more=more, timed_out=timed_out, total=reader.total))


ROUTES = [
    Route("GET", "/api/jobs/{ref}/lines", Role.READ, read_lines, answer=NumberedLines),
    Route("GET", "/api/jobs/{ref}/find", Role.READ, find_lines, answer=FoundLines),
]

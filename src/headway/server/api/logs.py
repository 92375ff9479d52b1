"""`/api/jobs/{ref}/logs` and `…/streams`: what a job wrote, as raw bytes of one stream or as lines
merged by time.

An answer is bounded. Raw bytes go on at the offset in `x-headway-next`, lines at the `cursor` of
the answer.
"""

import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from headway.home.paths import Paths
from headway.model.errors import UsageError
from headway.model.limits import (
    FOLLOW_TAIL_LINES_MAX,
    LOG_LINES_BYTES_MAX,
    LOG_LINES_FOUND_MAX,
    LOG_RAW_BYTES_MAX,
    STREAMS_MAX,
)
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode, reply_json
from headway.store import grep, jsonform, log_files, log_lines, query
from headway.store.log_lines import Line, Lines, Output

NEXT = b"x-headway-next"


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    attempt: Count | None = None
    task: str | None = None
    rank: Count | None = None
    stream: Literal["stdout", "stderr", "agent"] | None = None
    tail: Count | None = None
    bytes: Count | None = None
    offset: Count | None = None
    grep: str | None = None
    cursor: str | None = None
    format: Literal["raw", "lines"] = "lines"

    def outputs(self, c: sqlite3.Connection, pk: int) -> list[Output]:
        return log_lines.outputs(
            c, pk, attempt=self.attempt, task=self.task, rank=self.rank, stream=self.stream
        )


class LineForm(msgspec.Struct, omit_defaults=True):
    time: str | None
    rank: int | None
    task: str
    attempt: int
    stream: str
    text: str
    open: bool = False

    @classmethod
    def of(cls, found: Iterable[Line]) -> "list[LineForm]":
        return [
            cls(
                _iso(line.time_us),
                line.output.rank,
                line.output.task,
                line.output.attempt,
                line.output.stream,
                line.text,
                line.open,
            )
            for line in found
        ]


@lru_cache(4096)
def _iso(time_us: int | None) -> str | None:
    """Lines that came together share their time, so this is seldom worked out."""
    return None if time_us is None else jsonform.iso(time_us * 1000)


class Answer(msgspec.Struct):
    lines: list[LineForm]
    more: bool  # there is more than fitted in, or the search was cut short
    cursor: str
    timed_out: bool = False


async def read_logs(call: Call) -> Reply:
    asked = call.query(Asked)
    pk = await call.services.find(call)
    if asked.format == "raw":
        return await call.services.slow_query(read_raw, call.services.paths, pk, asked)
    return Reply(await call.services.slow_query(read_lines, call.services.paths, pk, asked))


async def streams(call: Call) -> Reply:
    pk = await call.services.find(call)
    return reply_json(await call.services.query(query.streams, pk, call.services.paths))


# -- raw


def read_raw(c: sqlite3.Connection, paths: Paths, pk: int, asked: Asked) -> Reply:
    """Bytes of the one stream that is meant; none yet where it has not begun."""
    if asked.grep is not None or asked.cursor is not None:
        raise UsageError("raw bytes cannot be searched", "leave out format=raw")
    chosen = asked.outputs(c, pk)
    if len(chosen) > 1:
        names = ", ".join(f"{one.stream} of rank {one.rank}" for one in chosen[:6])
        raise UsageError(
            f"{len(chosen)} streams fit: {names}", "name one: stream, and rank or task"
        )
    start = 0 if not chosen else _start(c, paths, chosen[0], asked)
    parts: list[bytes] = []
    for piece in (
        log_files.pieces(c, paths, chosen[0].pk, start, LOG_RAW_BYTES_MAX) if chosen else ()
    ):
        parts.append(piece.data if piece.missing is None else b"\n" + log_files.mark(piece) + b"\n")
        start = piece.offset + piece.length
    headers = [(NEXT, str(start).encode()), (b"content-disposition", b"attachment")]
    return Reply(b"".join(parts), content_type=b"application/octet-stream", headers=headers)


def _start(c: sqlite3.Connection, paths: Paths, output: Output, asked: Asked) -> int:
    if asked.offset is not None:
        return min(asked.offset, output.position)
    if asked.tail is not None:
        return log_lines.tail_offset(c, paths, output, asked.tail)
    return max(0, output.position - asked.bytes) if asked.bytes is not None else 0


# -- lines


def read_lines(c: sqlite3.Connection, paths: Paths, pk: int, asked: Asked) -> bytes:
    chosen = asked.outputs(c, pk)
    if asked.grep is not None:
        return encode(_search(c, paths, chosen, asked.grep, asked))
    found = _merged(c, paths, chosen, asked)
    return encode(Answer(LineForm.of(found.lines), found.more, _as_text(found.cursor)))


def _search(
    c: sqlite3.Connection, paths: Paths, chosen: list[Output], pattern: str, asked: Asked
) -> Answer:
    if asked.tail is not None and asked.cursor is None:
        last = grep.search_last(c, paths, chosen, pattern, min(asked.tail, FOLLOW_TAIL_LINES_MAX))
        return Answer(LineForm.of(last.lines), False, _as_text(last.cursor), last.timed_out)
    found = grep.search(
        c, paths, chosen, pattern, LOG_LINES_FOUND_MAX, begun=_cursor(asked.cursor or "")
    )
    return Answer(LineForm.of(found.lines), found.more, _as_text(found.cursor), found.timed_out)


def _merged(c: sqlite3.Connection, paths: Paths, chosen: list[Output], asked: Asked) -> Lines:
    """A last line without its end is shown too: whoever asks once wants to see what is there."""
    if asked.tail is not None and asked.cursor is None:
        return log_lines.tail_merged(
            c, paths, chosen, min(asked.tail, FOLLOW_TAIL_LINES_MAX), final=True
        )
    at = (
        _cursor(asked.cursor)
        if asked.cursor is not None
        else {one.pk: _start(c, paths, one, asked) for one in chosen}
    )
    begun = {one.pk: min(at.get(one.pk, 0), one.position) for one in chosen}
    return log_lines.read_merged(c, paths, chosen, begun, LOG_LINES_BYTES_MAX, final=True)


def _as_text(cursor: dict[int, int]) -> str:
    return ",".join(f"{pk}:{offset}" for pk, offset in cursor.items())


def _cursor(text: str) -> dict[int, int]:
    try:
        pairs = [part.split(":") for part in text.split(",") if part][: STREAMS_MAX + 1]
        return {int(pk): min(max(0, int(offset)), 2**62) for pk, offset in pairs}
    except ValueError:
        raise UsageError("the cursor is not one of ours") from None


ROUTES = [
    Route("GET", "/api/jobs/{ref}/logs", Role.READ, read_logs, answer=contract.Lines),
    Route("GET", "/api/jobs/{ref}/streams", Role.READ, streams, answer=list[contract.Stream]),
]

"""`/api/jobs/{ref}/follow`: what is new of a job since a cursor, as soon as there is something.
Called by live views.

The cursor is the viewer's own and says all that the server would otherwise have to remember of him:
where he is in each stream, which events he has seen, since when an unfinished line is held back. A
viewer that comes late reads on from there; one that never comes back is forgotten with his
connection (F38).
"""

import sqlite3
import time
from zlib import crc32

import msgspec

from headway.home.paths import Paths
from headway.model.job import State
from headway.model.json_types import JsonObject
from headway.model.limits import (
    FOLLOW_BYTES_MAX,
    FOLLOW_EVENTS_MAX,
    FOLLOW_HOLD_S,
    FOLLOW_METRICS_S,
    FOLLOW_RECORDS_MAX,
    FOLLOW_TAIL_LINES_MAX,
    FOLLOW_WAIT_S,
    LINE_BYTES_MAX,
    SHAPE_WAIT_S,
)
from headway.server import contract
from headway.server.api import page
from headway.server.api.logs import LineForm
from headway.server.app import Route
from headway.server.control.drain import is_over
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode
from headway.store import catalog, live_read, log_lines, log_records, query
from headway.store.log_lines import Line, Output

_HELD_S = SHAPE_WAIT_S + 0.5
_METRICS_TOLD_MAX = 1_000  # names in one answer


class Cursor(msgspec.Struct, forbid_unknown_fields=True):
    attempt: Count = 0
    at: dict[Count, Count] = {}  # stream → where to go on
    # stream → (where its unfinished line starts, since when, in ms)
    held: dict[Count, tuple[Count, Count]] = {}
    event: Count = 0
    state: str = ""
    metrics: Count = 0  # checksum of the values told last
    metrics_ms: Count = 0  # when
    record: Count | None = None  # the last log record told; None: all are new
    progress: Count = 0  # checksums of what was told last
    usage: Count = 0
    watch_ms: Count = 0  # when one of these two was told


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    cursor: Cursor | None = None
    tail: Count | None = None
    wait_s: float = 0.0
    records: bool = True  # False for a viewer that does not show log records
    # False for one that reads the bytes himself, and only wants to know that there are more
    lines: bool = True


class News(msgspec.Struct):
    """One answer, and when to look again if there is nothing in it."""

    cursor: Cursor
    state: str
    lines: list[LineForm] = []
    events: list[JsonObject] = []
    metrics: dict[str, float | str] = {}
    records: list[JsonObject] = []
    progress: list[JsonObject] | None = None  # None: as before
    usage: JsonObject | None = None  # likewise
    done: JsonObject | None = None


class Look(msgspec.Struct):
    news: News
    is_news: bool
    again_s: float


async def follow(call: Call) -> Reply:
    asked = call.read(Asked)
    pk = await call.services.find(call)
    until_s = time.monotonic() + min(max(asked.wait_s, 0.0), FOLLOW_WAIT_S)
    cursor, tail = asked.cursor, asked.tail
    with call.services.live.watch(pk) as watch:
        while True:
            watch.start(_told_just_now(cursor) | (frozenset() if asked.records else {"records"}))
            look = await call.services.query(
                look_at, call.services.paths, pk, cursor, tail, asked.records, asked.lines
            )
            cursor, tail = look.news.cursor, None
            left_s = until_s - time.monotonic()
            if look.is_news or left_s <= 0 or call.services.live.closed:
                if look.news.done is not None:
                    look.news.done["page"] = page.address(
                        call.services.about["url"], look.news.done["id"]
                    )
                return Reply(encode(look.news))
            await watch.wait(min(left_s, look.again_s))


def look_at(
    c: sqlite3.Connection, paths: Paths, pk: int, known: Cursor | None, tail: int | None, with_records: bool = True,
    with_lines: bool = True,
) -> Look:  # fmt: skip
    """All that is new at this moment of the database."""
    job = catalog.load_job(c, pk)
    # An agent tells the end of a task after everything else, so all output is there by then. Of one
    # that is held the last output may still be on its way: what looks like the start of a secret
    # waits for the rest.
    held_s = (time.time_ns() - job.state_since_ns) / 1e9 if job.state is State.HELD else 0.0
    over = is_over(job) or held_s > _HELD_S
    cursor = known or Cursor(attempt=max([1, *(attempt.number for attempt in job.attempts)]))
    now_ms, grown, more = _now_ms(), False, False
    found: list[Line] = []
    if not with_lines:
        after, grown = _grown(c, pk, cursor)
    elif known is None and tail is not None:
        found, after, more = _tail(c, paths, pk, cursor, tail, over)
        cursor.event = _last_event(c, pk)
        cursor.record = max(0, log_records.last(c, pk) - min(tail, FOLLOW_RECORDS_MAX))
    else:
        found, after, more = _read_on(c, paths, pk, cursor, now_ms, over)
    events = query.events(c, pk, cursor.event, FOLLOW_EVENTS_MAX)
    metrics, checksum = _metrics(c, pk, cursor, now_ms, over)
    logged = (
        log_records.read(c, pk, after=cursor.record or 0, limit=FOLLOW_RECORDS_MAX)
        if with_records
        else []
    )
    more |= len(logged) == FOLLOW_RECORDS_MAX
    trackers, used = _watched(c, pk, cursor, after, now_ms, over)
    done = query.job_object(c, pk, paths, time.time_ns()) if over and not more else None
    after.event = events[-1]["seq"] if events else cursor.event
    after.record = logged[-1]["seq"] if logged else cursor.record
    after.state = str(job.state)
    after.metrics, after.metrics_ms = (
        (checksum, now_ms) if metrics else (cursor.metrics, cursor.metrics_ms)
    )
    news = News(
        after, after.state, LineForm.of(found), events, metrics, logged, trackers, used, done
    )
    is_news = (
        grown
        or bool(found or events or metrics or logged or used or more or done)
        or trackers is not None
    )
    again_s = min(_again_s(after, now_ms), _HELD_S if job.state is State.HELD else FOLLOW_WAIT_S)
    return Look(news, is_news or cursor.state != after.state, again_s)


# -- lines


def _outputs(c: sqlite3.Connection, pk: int, first: int) -> list[Output]:
    """stdout and stderr of all ranks, of the attempt that the cursor is in and of later ones."""
    last = c.execute("SELECT max(number) FROM attempts WHERE job = ?", (pk,)).fetchone()[0] or first
    # also while the last one has no stream yet: a place in those before it must not be forgotten
    numbers = range(max(min(first, last), 1), last + 1)
    return [one for number in numbers for one in log_lines.outputs(c, pk, attempt=number)]


def _grown(c: sqlite3.Connection, pk: int, cursor: Cursor) -> tuple[Cursor, bool]:
    """Where the streams end by now, and whether that is further than the viewer knows."""
    chosen = _outputs(c, pk, cursor.attempt)
    at = {one.pk: one.position for one in chosen}
    attempt = max([cursor.attempt, *(one.attempt for one in chosen if one.position)])
    return msgspec.structs.replace(cursor, at=at, held={}, attempt=attempt), at != cursor.at


def _tail(
    c: sqlite3.Connection, paths: Paths, pk: int, cursor: Cursor, tail: int, over: bool
) -> tuple[list[Line], Cursor, bool]:
    chosen = log_lines.outputs(c, pk)
    found = log_lines.tail_merged(c, paths, chosen, min(tail, FOLLOW_TAIL_LINES_MAX), final=over)
    return found.lines, msgspec.structs.replace(cursor, at=found.cursor), False


def _read_on(
    c: sqlite3.Connection, paths: Paths, pk: int, cursor: Cursor, now_ms: int, over: bool
) -> tuple[list[Line], Cursor, bool]:
    """Whole lines since the cursor; unfinished ones only when they have waited long enough."""
    chosen = _outputs(c, pk, cursor.attempt)
    at = {one.pk: min(cursor.at.get(one.pk, 0), one.position) for one in chosen}
    grown = [one for one in chosen if at[one.pk] < one.position]
    found = log_lines.read_merged(c, paths, grown, at, FOLLOW_BYTES_MAX, final=over)
    after = msgspec.structs.replace(cursor, at=found.cursor, held={})
    if grown:
        after.attempt = _attempt_to_read(cursor, chosen, found.cursor)
    if found.more:
        return found.lines, after, True
    late: list[Line] = []
    for one in grown:
        start = found.cursor[one.pk]
        if start >= one.position:
            continue
        since_ms = (
            cursor.held[one.pk][1] if cursor.held.get(one.pk, (-1, 0))[0] == start else now_ms
        )
        if now_ms - since_ms >= FOLLOW_HOLD_S * 1000:
            part = log_lines.read_lines(c, paths, one, start, LINE_BYTES_MAX, final=True)
            late += part.lines
            after.at |= part.cursor
        else:
            after.held[one.pk] = (start, since_ms)
    both = sorted(found.lines + late, key=lambda line: line.time_us or 0) if late else found.lines
    return both, after, False


def _attempt_to_read(cursor: Cursor, chosen: list[Output], at: dict[int, int]) -> int:
    """The first attempt of which something is left to tell; the last one, where nothing is."""
    behind = [one.attempt for one in chosen if at[one.pk] < one.position]
    return max(cursor.attempt, min(behind, default=chosen[-1].attempt))


# -- the rest


def _last_event(c: sqlite3.Connection, pk: int) -> int:
    """A viewer who asks for the last lines does not want to hear what happened before them."""
    found = query.events(c, pk)
    return int(found[-1]["seq"]) if found else 0


def _metrics(
    c: sqlite3.Connection, pk: int, cursor: Cursor, now_ms: int, over: bool
) -> tuple[dict[str, float | str], int]:
    """Last values, when they have changed and were not told just now."""
    if not over and now_ms - cursor.metrics_ms < FOLLOW_METRICS_S * 1000:
        return {}, 0
    found = query.latest_metrics(c, pk, _METRICS_TOLD_MAX)
    checksum = crc32(encode(found))
    return (found, checksum) if found and checksum != cursor.metrics else ({}, 0)


def _watched(
    c: sqlite3.Connection, pk: int, cursor: Cursor, after: Cursor, now_ms: int, over: bool
) -> tuple[list[JsonObject] | None, JsonObject | None]:
    """Progress and the last sample of usage, likewise, each when it has changed; `after` takes note
    of it.
    """
    if not over and now_ms - cursor.watch_ms < FOLLOW_METRICS_S * 1000:
        return None, None
    trackers, used = live_read.progress(c, [pk]).get(pk, []), live_read.usage_last(c, [pk]).get(pk)
    checksums = crc32(encode(trackers)) if trackers else 0, crc32(encode(used)) if used else 0
    if checksums != (cursor.progress, cursor.usage):
        after.watch_ms = now_ms
    after.progress, after.usage = checksums
    return trackers if checksums[0] != cursor.progress else None, used if checksums[
        1
    ] != cursor.usage else None


def _told_just_now(cursor: Cursor | None) -> frozenset[str]:
    """What need not wake us, because something of it was told so recently that more of it is not
    worth a look.
    """
    since_ms = _now_ms() - FOLLOW_METRICS_S * 1000
    values = cursor is not None and cursor.metrics_ms > since_ms
    rest = cursor is not None and cursor.watch_ms > since_ms
    return frozenset({"metrics"} if values else ()) | frozenset(
        {"progress", "usage"} if rest else ()
    )


def _again_s(cursor: Cursor, now_ms: int) -> float:
    """When something will be due that no commit announces: a line that waits for its end, or values
    held back.
    """
    due_ms = [since_ms + FOLLOW_HOLD_S * 1000 for _, since_ms in cursor.held.values()]
    due_ms += [
        told_ms + FOLLOW_METRICS_S * 1000 for told_ms in (cursor.metrics_ms, cursor.watch_ms)
    ]
    coming = [ms - now_ms for ms in due_ms if ms > now_ms]
    return max(min(coming, default=FOLLOW_WAIT_S * 1000) / 1000, 0.001) + 0.001


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


ROUTES = [Route("POST", "/api/jobs/{ref}/follow", Role.READ, follow, answer=contract.Follow)]

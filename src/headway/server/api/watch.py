"""What is watched live: `/api/watch` of all open jobs, and usage, log records and timings of one.
Called by live views.

`/api/watch` has no state per viewer either: its cursor is a checksum of what he has seen.
"""

import asyncio
import logging
import sqlite3
import time
from datetime import datetime
from typing import Annotated, Literal
from zlib import crc32

import msgspec

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import (
    CURVE_POINTS_MAX,
    FOLLOW_WAIT_S,
    RECORDS_MAX,
    WATCH_INTERVAL_S,
    WATCH_JOBS_MAX,
)
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode, reply_json
from headway.store import live_read, log_records, query, usage_curves, usage_stacks

_END_NS = 2**62
_CHANGES_BY_ITSELF = "elapsed_s"  # of a row: no news


# -- all open jobs


class AskedAll(msgspec.Struct, forbid_unknown_fields=True):
    cursor: Count | None = None
    wait_s: float = 0.0
    limit: Count = WATCH_JOBS_MAX


async def watch_all(call: Call) -> Reply:
    """At once without a cursor; with one when something has changed, but not more often than a
    person can see.
    """
    asked = call.query(AskedAll)
    begun_s = time.monotonic()
    until_s = begun_s + min(max(asked.wait_s, 0.0), FOLLOW_WAIT_S)
    live = call.services.live
    with live.watch(None) as watch:
        if asked.cursor is not None and until_s > begun_s:
            await asyncio.sleep(min(WATCH_INTERVAL_S, until_s - begun_s))
        while True:
            watch.start()
            cursor, answer = await call.services.slow_query(
                look_at_all, min(asked.limit, WATCH_JOBS_MAX)
            )
            left_s = until_s - time.monotonic()
            if cursor != asked.cursor or left_s <= 0 or live.closed:
                return Reply(answer)
            await watch.wait(left_s)
            await asyncio.sleep(min(WATCH_INTERVAL_S, max(0.0, until_s - time.monotonic())))


def look_at_all(c: sqlite3.Connection, jobs_max: int) -> tuple[int, bytes]:
    rows = query.open_rows(c, jobs_max, time.time_ns())
    counts = query.count_jobs(c)
    cursor = crc32(
        encode(
            [counts, [{k: v for k, v in row.items() if k != _CHANGES_BY_ITSELF} for row in rows]]
        )
    )
    return cursor, encode({"cursor": cursor, "states": counts, "jobs": rows})


# -- usage and timings of one job


class AskedUsage(msgspec.Struct, forbid_unknown_fields=True):
    level: Count | None = None
    since: str | None = None
    until: str | None = None
    after: Count | None = None  # `next` of the last answer
    points: Count | None = None  # the last attempt's whole life in so many, and nothing else


async def usage(call: Call) -> Reply:
    asked = call.query(AskedUsage)
    if asked.level is not None and asked.level not in live_read.LEVELS:
        raise UsageError(
            f"level is {asked.level}", "valid: 0 (each sample), 1 (10 s), 2 (60 s), or leave it out"
        )
    since_ns = _time_ns(asked.since, "since", 0) if asked.after is None else asked.after
    until_ns = _time_ns(asked.until, "until", _END_NS)
    if asked.points is not None and not 2 <= asked.points <= CURVE_POINTS_MAX:
        raise UsageError(
            f"points is {asked.points}",
            f"valid: 2 to {CURVE_POINTS_MAX}, or leave it out for samples",
        )
    pk = await call.services.find(call)
    if asked.points is not None:
        return reply_json(
            {"curves": await call.services.slow_query(usage_curves.usage, pk, asked.points)}
        )
    return Reply(await call.services.slow_query(read_usage, pk, asked.level, since_ns, until_ns))


def read_usage(
    c: sqlite3.Connection, pk: int, level: int | None, since_ns: int, until_ns: int
) -> bytes:
    chosen = live_read.finest_level(c, pk) if level is None else level
    samples, after = live_read.usage(c, pk, chosen, since_ns, until_ns)
    found: JsonObject = {
        "level": chosen,
        "samples": samples,
        "checkpoints": live_read.checkpoints(c, pk),
    }
    found["windows"] = live_read.usage_windows(c, pk)
    return encode(found | {"last": live_read.usage_last(c, [pk]).get(pk), "next": after})


def _time_ns(text: str | None, name: str, default: int) -> int:
    """ISO 8601, or seconds since 1970."""
    if text is None:
        return default
    try:
        seconds = (
            float(text) if not text[:5].endswith("-") else datetime.fromisoformat(text).timestamp()
        )
        found = int(seconds * 1e9)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{name} is not a time", "such as 2026-09-21T14:13:20Z, or seconds since 1970"
        ) from None
    return min(max(found, 0), _END_NS)


async def timings(call: Call) -> Reply:
    return reply_json(await call.services.query(live_read.timings, await call.services.find(call)))


# -- log records of one job


class AskedRecords(msgspec.Struct, forbid_unknown_fields=True):
    level: str | None = None
    rank: Count | None = None
    grep: str | None = None
    after: Count = 0
    tail: Count | None = None
    limit: Count = RECORDS_MAX


async def read_records(call: Call) -> Reply:
    asked = call.query(AskedRecords)
    levelno = level_number(asked.level)
    pk = await call.services.find(call)
    return Reply(await call.services.slow_query(look_at_records, pk, asked, levelno))


def level_number(level: str | None) -> int:
    """A level's number, by its number or by its name as `logging` has it."""
    if level is None:
        return 0
    names = logging.getLevelNamesMapping()
    found = (
        int(level)
        if level.isascii() and level.isdigit() and len(level) < 5
        else names.get(level.upper())
    )
    if found is None:
        raise UsageError("there is no such level", "DEBUG INFO WARNING ERROR CRITICAL, or a number")
    return found


def look_at_records(c: sqlite3.Connection, pk: int, asked: AskedRecords, levelno: int) -> bytes:
    after = (
        asked.after
        if asked.tail is None
        else max(asked.after, log_records.last(c, pk) - asked.tail)
    )
    if asked.grep is not None:
        found, more, late = log_records.search(
            c, pk, asked.grep, after=after, levelno=levelno, rank=asked.rank
        )
    else:
        limit = max(1, min(asked.limit, RECORDS_MAX))
        found = log_records.read(c, pk, after=after, levelno=levelno, rank=asked.rank, limit=limit)
        more, late = len(found) == limit, False
    last = found[-1]["seq"] if found else after
    return encode({"records": found, "after": last, "more": more, "timed_out": late})


class AskedStacks(msgspec.Struct, forbid_unknown_fields=True):
    by: Literal["rank", "node", "gpu"] = "rank"
    attempt: Count | None = None  # the last, unless it is said
    points: Annotated[int, msgspec.Meta(ge=2, le=CURVE_POINTS_MAX)] = 300


async def usage_by(call: Call) -> Reply:
    """`{attempt, time, charts: [{name title unit stacked lines: [{label values}]}], checkpoints}`: usage of one attempt,
    a line per rank, node or GPU."""
    asked = call.query(AskedStacks)
    pk = await call.services.find(call)
    return reply_json(
        await call.services.slow_query(
            usage_stacks.usage, pk, asked.by, asked.attempt, asked.points
        )
    )


ROUTES = [
    Route("GET", "/api/watch", Role.READ, watch_all, answer=contract.Watch),
    Route("GET", "/api/jobs/{ref}/usage", Role.READ, usage, answer=contract.Usage),
    Route("GET", "/api/jobs/{ref}/usage/by", Role.READ, usage_by, answer=contract.UsageStacks),
    Route("GET", "/api/jobs/{ref}/timings", Role.READ, timings, answer=list[contract.Timing]),
    Route("GET", "/api/jobs/{ref}/records", Role.READ, read_records, answer=contract.Records),
]

"""`/api/live`: everything that an open page shows and that has changed since it asked last, in one long poll.

The page says what it shows and what it knows of it (checksums, counts), and the answer holds only the rest. Nothing is
kept here per page, so one that slept, or that a new server answers, goes on as if nothing had been (decision 020).
"""

import asyncio
import sqlite3
import time
from dataclasses import dataclass
from typing import Annotated
from zlib import crc32

import msgspec

from headway.model.errors import NotFoundError
from headway.model.json_types import JsonObject
from headway.model.limits import FOLLOW_WAIT_S, LIVE_INTERVAL_S, PAGE_NAMES_MAX, PAGE_ROWS_MAX
from headway.server import contract
from headway.server.api import page
from headway.server.app import Route, Services
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode, reply_json
from headway.store import (
    catalog,
    chart_window,
    job_groups,
    job_table,
    log_lines,
    query,
    redone_steps,
    series,
)
from headway.store.jsonform import iso, number

_POINTS_MAX = 20_000  # of one series in one answer; more than that is a new window
_METRICS_SHOWN_MAX = 64
_Name = Annotated[str, msgspec.Meta(max_length=512)]
_Names = Annotated[list[_Name], msgspec.Meta(max_length=PAGE_NAMES_MAX)]
_CHANGES_BY_ITSELF = frozenset(("elapsed_s",))


class TableAsked(msgspec.Struct, forbid_unknown_fields=True):
    query: str = ""
    sort: str = "-submitted"
    offset: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=0, le=PAGE_ROWS_MAX)] = 60
    config: _Names = []
    metrics: _Names = []
    spark: _Name | None = None
    total: int = -1  # what the page knows: of how many jobs,
    known: dict[str, Count] = {}  # and of each row its checksum


class JobAsked(msgspec.Struct, forbid_unknown_fields=True):
    ref: _Name
    known: dict[str, Count] = {}  # of each part of the job its checksum
    points: dict[str, Count] = {}  # of each series that is drawn, how many points have been logged
    bytes: Count = 0  # of output: the logs have grown if there is more


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    position: str | None = None
    wait_s: float = 0.0
    table: TableAsked | None = None
    job: JobAsked | None = None


@dataclass(slots=True)
class Look:
    """What is new for one page."""

    table: JsonObject | None = None
    job: JsonObject | None = None
    is_news: bool = False


async def live(call: Call) -> Reply:
    """`{position, wait_s, table, job}` → `{position, table, job}` with what differs from what the page knows."""
    asked = call.read(Asked)
    services = call.services
    begun_s = time.monotonic()
    until_s = begun_s + min(max(asked.wait_s, 0.0), FOLLOW_WAIT_S)
    job_pk = await services.query(_find, asked.job.ref) if asked.job else None
    wants_all = asked.table is not None
    position = asked.position
    with services.live.watch(None if wants_all else job_pk) as watch:
        while True:
            watch.start()
            now_at = services.live.changes.position()
            changed = services.live.changes.since(position)
            look = await services.query(look_at, services, asked, job_pk, changed)
            left_s = until_s - time.monotonic()
            if look.is_news or left_s <= 0 or services.live.closed:
                return reply_json({"position": now_at, "table": look.table, "job": look.job})
            position = now_at
            await watch.wait(left_s)
            await asyncio.sleep(min(LIVE_INTERVAL_S, max(0.0, until_s - time.monotonic())))


def _find(c: sqlite3.Connection, ref: str) -> int:
    if len(ref) > 128:
        raise NotFoundError("that is not a job's id")
    return catalog.resolve(c, ref)


def look_at(
    c: sqlite3.Connection,
    services: Services,
    asked: Asked,
    job_pk: int | None,
    changed: dict[int, set[str]] | None,
) -> Look:
    """`changed`: the jobs with news; None: look at everything."""
    found = Look()
    if asked.table is not None:
        is_first_look = asked.table.total < 0
        if changed is None or changed or is_first_look:
            found.table = _table(c, asked.table, changed)
    has_news = changed is None or job_pk in changed
    if asked.job is not None and job_pk is not None and has_news:
        found.job = _job(c, services, asked.job, job_pk)
    found.is_news = found.table is not None or found.job is not None
    return found


# -- the table ---------------------------------------------------------------------------------------------------------


def _table(
    c: sqlite3.Connection, asked: TableAsked, changed: dict[int, set[str]] | None
) -> JsonObject | None:
    """Rows that the page does not have as they are; `ids` is the order of all of them. None: it has it all."""
    window = job_table.window(c, asked.query, asked.sort, asked.offset, asked.limit)
    ids = catalog.ids_of(c, window.keys)
    job_changed = changed is None or any("job" in what for what in changed.values())
    fresh = []
    for pk in window.keys:
        known = asked.known.get(ids[pk])
        waits = job_changed and known is not None  # what waits depends on others
        if known is None or changed is None or pk in changed or waits:
            fresh.append(pk)
    rows = {}
    checksums = {}
    sparks = {}
    for row in job_table.rows(c, fresh, asked.config, asked.metrics, time.time_ns()):
        checksum = crc32(
            encode({name: value for name, value in row.items() if name not in _CHANGES_BY_ITSELF})
        )
        if asked.known.get(row["id"]) != checksum:
            rows[row["id"]] = row
            checksums[row["id"]] = checksum
    if asked.spark is not None:
        keys = {ids[pk]: pk for pk in window.keys}
        sparks = {job_id: _spark(c, keys[job_id], asked.spark) for job_id in rows}
    order = [ids[pk] for pk in window.keys]
    same_order = all(job_id in asked.known for job_id in order) and len(order) == len(asked.known)
    if not rows and window.total == asked.total and same_order:
        return None
    return {
        "total": window.total, "ids": order, "rows": rows, "checksums": checksums, "sparks": sparks,
        "states": query.count_jobs(c),
    }  # fmt: skip


def _spark(c: sqlite3.Connection, pk: int, name: str) -> list[float | None]:
    """A curve as small as a word: of the lowest rank, its attempts joined."""
    found = redone_steps.RedoneSteps(c, pk).read(name, points=48)
    if not found:
        return []
    points = min(found, key=lambda one: one.rank).points
    return [
        float(f"{value:.5g}") if value - value == 0 else None for value in points.values.tolist()
    ]


async def table_columns(call: Call) -> Reply:
    """`{config: […], metrics: […]}`: names that the jobs of a search have, for the choice of columns."""
    asked = call.query(ColumnsAsked)
    return Reply(
        encode(await call.services.slow_query(job_table.columns, asked.query, PAGE_ROWS_MAX))
    )


class ColumnsAsked(msgspec.Struct, forbid_unknown_fields=True):
    query: str = ""


# -- one job -----------------------------------------------------------------------------------------------------------


def _job(c: sqlite3.Connection, services: Services, asked: JobAsked, pk: int) -> JsonObject | None:
    """Parts of the job object that have changed, new points of charts, and how much output there is."""
    whole = query.job_object(c, pk, services.paths, time.time_ns(), _METRICS_SHOWN_MAX)
    whole["page"] = page.address(services.about["url"], whole["id"])
    parts = {}
    checksums = {}
    for name, value in whole.items():
        checksum = crc32(encode(value))
        checksums[name] = checksum
        if name not in _CHANGES_BY_ITSELF and asked.known.get(name) != checksum:
            parts[name] = value
    if parts:
        parts["elapsed_s"] = whole["elapsed_s"]
    keys = {int(key): count for key, count in asked.points.items() if key.isdigit()}
    points = [
        _news(key, before, found)
        for key, before, found in chart_window.news(c, keys, pk, _POINTS_MAX)
    ]
    written = sum(output.position for output in log_lines.outputs(c, pk))
    if not parts and not points and written == asked.bytes:
        return None
    return {
        "id": whole["id"],
        "parts": parts,
        "checksums": checksums,
        "points": points,
        "bytes": written,
    }


def _news(key: int, before: int, points: series.Points) -> JsonObject:
    return {
        "key": key, "from": before, "step": points.steps.tolist(), "time": (points.times_us / 1e6).tolist(),
        "value": [number(value) for value in points.values.tolist()],
    }  # fmt: skip


async def summary(call: Call) -> Reply:
    """`{states, clusters: [{name engine jobs: {state: number}}], experiments: […], tags: […], time}`: what the page's
    head and its choices show."""
    return reply_json(await call.services.query(_summary))


def _summary(c: sqlite3.Connection) -> JsonObject:
    clusters: dict[str, JsonObject] = {}
    rows = c.execute(
        """SELECT cluster, engine, state, count(*) AS n FROM jobs WHERE deleted_ns IS NULL
           GROUP BY cluster, engine, state"""
    )
    for row in rows:
        known = clusters.setdefault(
            row["cluster"], {"name": row["cluster"], "engine": row["engine"], "jobs": {}}
        )
        known["jobs"][row["state"]] = known["jobs"].get(row["state"], 0) + row["n"]
    experiments = c.execute(
        """SELECT experiment, count(*) AS n FROM jobs WHERE deleted_ns IS NULL AND experiment IS NOT NULL
           GROUP BY experiment ORDER BY max(submitted_ns) DESC LIMIT 200"""
    )
    return {
        "states": query.count_jobs(c), "clusters": list(clusters.values()), "time": iso(time.time_ns()),
        "experiments": [{"name": row["experiment"], "jobs": row["n"]} for row in experiments],
    }  # fmt: skip


class GroupsAsked(msgspec.Struct, forbid_unknown_fields=True):
    by: Annotated[list[_Name], msgspec.Meta(max_length=8)]
    query: str = ""
    metrics: _Names = []


async def groups(call: Call) -> Reply:
    """`{by, groups: [{values jobs states newest metrics: {name: {mean deviation min max jobs}}}], total, cut, left_out}`:
    the jobs of a search by experiment, by settings, or by all settings but some (`!seed`)."""
    asked = call.read(GroupsAsked)
    found = await call.services.slow_query(job_groups.read, asked.query, asked.by, asked.metrics)
    return reply_json(found)


ROUTES = [
    Route("POST", "/api/live", Role.READ, live, answer=contract.PageNews),
    Route("GET", "/api/summary", Role.READ, summary, answer=contract.PageSummary),
    Route("POST", "/api/groups", Role.READ, groups, answer=contract.PageGroups),
    Route("GET", "/api/columns", Role.READ, table_columns, answer=contract.PageColumns),
]

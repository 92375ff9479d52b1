"""The rows of `hw ls` as a table needs them: few fields, none that is empty, read without making
whole jobs.

Ten thousand jobs are a twentieth of a second here, and a sixth of the bytes of the contract's
objects (`query.job_rows`): what is shown of a job that has ended is made once and kept, as long as
its row stays equal. Called by the server's API for `brief` lists; a field that is not there is
empty, null or zero.
"""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from headway.model.job import State
from headway.model.json_types import JsonObject
from headway.model.limits import JOBS_KEPT_MAX, JOBS_LISTED_MAX
from headway.store import arrays, effective_config, health_rows, list_extras, live_read, query
from headway.store.catalog import (
    JobFilter,
    matched_texts,
    matcher_of,
    passing_of,
    states_of,
    where_of,
)
from headway.store.jsonform import iso

_ROWS = """SELECT pk, id, name, state, state_since_ns, submitted_ns, started_ns, ended_ns, exit_code, signal,
             experiment, cluster, engine, array_index, cause, tags, star, bug, description FROM jobs WHERE """
_Row = tuple[int, str, str, str, int, int, int | None, int | None, int | None, int | None, str | None, str, str,
             int | None, str | None, str, int, int, str]  # fmt: skip


class _Asked(msgspec.Struct):
    """What a person asked for that the table shows: of the spec, read past all the rest of it."""

    gpus: int = 0
    guest_of: str | None = None
    host: str = ""
    parameters: JsonObject = {}
    after: list[str] = []
    smoke: bool = False


_decode_asked = msgspec.json.Decoder(_Asked).decode
_STATES = frozenset(map(str, State))
_EXPLAINED = ("failed", "stopped", "held", "unknown")
_SOME = 1000
# pk -> (the row that it was made of, what is shown of it), of jobs that have ended: most of a long
# list
_ended: dict[int, tuple[_Row, JsonObject]] = {}


def rows(c: sqlite3.Connection, filters: JobFilter, now_ns: int) -> list[JsonObject]:
    """Jobs, newest first."""
    chosen = _chosen(c, filters)
    # taken before any is made: what is kept may be emptied by that, and by another thread's list
    shown: dict[int, JsonObject] = {}
    for row in chosen:
        kept = _ended.get(row[0])
        if kept and kept[0] == row:
            shown[row[0]] = kept[1]

    fresh = [row for row in chosen if row[0] not in shown]
    asked = _asked_of(c, [row[0] for row in fresh])
    for row in fresh:
        if row[0] in asked:
            shown[row[0]] = _made(row, asked[row[0]], now_ns)
    known = [(row, shown[row[0]]) for row in chosen if row[0] in shown]
    return _with_more(c, known, asked)


def _chosen(c: sqlite3.Connection, filters: JobFilter) -> list[_Row]:
    where, values = where_of(filters)
    most = min(filters.limit, JOBS_LISTED_MAX)
    cursor = c.cursor()
    cursor.row_factory = None  # plain tuples
    passing = passing_of(c, filters)
    with matcher_of(filters) as matcher:
        if matcher is None and passing is None:
            return cursor.execute(
                f"{_ROWS} {where} ORDER BY submitted_ns DESC, pk DESC LIMIT {most:d}", values
            ).fetchall()
        select = _ROWS.replace(" FROM", ", spec, config FROM")
        found = cursor.execute(f"{select} {where} ORDER BY submitted_ns DESC, pk DESC", values)
        rows: Iterator[tuple[Any, ...]] = iter(found)
        if passing is not None:
            rows = (row for row in rows if row[0] in passing)
        if matcher is not None:
            rows = matcher.select(rows, lambda row: matched_texts(row[1], row[-2], row[-1]))
        return [row[:-2] for row in islice(rows, most)]


def folded(c: sqlite3.Connection, filters: JobFilter, now_ns: int) -> list[JsonObject]:
    """As `rows`, but each array as one row (`is_array`)."""
    found = arrays.folded(c, filters, filters.limit) + rows(
        c, replace(filters, single=True), now_ns
    )
    return sorted(found, key=lambda row: str(row["submitted_at"]), reverse=True)[: filters.limit]


def _made(row: _Row, asked: _Asked, now_ns: int) -> JsonObject:
    """What the row itself says. Kept for the next list once the job has ended."""
    (pk, id_, name, state, since_ns, submitted_ns, started_ns, ended_ns, exit_code, signal, experiment, cluster, _,
     index, cause, tags, star, bug, description) = row  # fmt: skip
    if state not in _STATES:
        raise ValueError(f"{state!r} is no state")  # `store/row_repair.py` mends it
    found: JsonObject = {"id": id_, "name": name, "state": state, "cluster": cluster}
    found["submitted_at"] = iso(submitted_ns)
    if experiment is not None:
        found["experiment"] = experiment
    if index is not None:
        found["array_index"] = index
    if started_ns is not None:
        found["elapsed_s"] = round(
            max(0, (now_ns if ended_ns is None else ended_ns) - started_ns) / 1e9, 3
        )
    if tags != "[]":
        found["tags"] = json.loads(tags)
    if star:
        found["star"] = True
    if bug:
        found["bug"] = True
    if description:
        found["description"] = description
    for field, value in (
        ("gpus", asked.gpus),
        ("parameters", asked.parameters),
        ("smoke", asked.smoke),
    ):
        if value:
            found[field] = value
    if asked.guest_of is not None:
        found |= {"guest_of": asked.guest_of, "host": asked.host}
    if state == "waiting" and started_ns is not None:  # for its next attempt, since then
        found["state_since"] = iso(since_ns)
    if state == "unknown":
        found |= {"state_since": iso(since_ns), "ended_at": iso(ended_ns)}
    if state in _EXPLAINED:
        found |= {
            "exit_code": exit_code,
            "signal": signal,
            "cause": json.loads(cause) if cause else None,
        }
    if ended_ns is not None:
        if len(_ended) >= JOBS_KEPT_MAX:
            _ended.clear()
        _ended[pk] = (row, found)
    return found


def _with_more(
    c: sqlite3.Connection, known: list[tuple[_Row, JsonObject]], asked: dict[int, _Asked]
) -> list[JsonObject]:
    """What other tables say of them, with few queries for all."""
    # not DISTINCT over the series: a sweep has thousands of them for each job
    has_series = "SELECT pk FROM jobs j WHERE EXISTS (SELECT 1 FROM series s WHERE s.job = j.pk)"
    logged = {row[0] for row in c.execute(has_series)} if known else set()
    told = {row[0]: row for row, _ in known if row[3] not in ("succeeded", "waiting")}
    waiting = {row[0] for row, _ in known if row[3] == "waiting"}
    last = _last_attempts(c, [*told, *waiting])
    trackers = live_read.progress(c, list(told), query.ROW_TRACKERS_MAX) if told else {}
    places = list_extras.nodes(c, [row[0] for row, _ in known if row[12] != "local"])
    spoken = list_extras.heard(c, [pk for pk, row in told.items() if row[3] == "unknown"])
    before = list_extras.ahead(c) if waiting else {}
    health = health_rows.current(c, [pk for pk, row in told.items() if row[3] == "running"])
    found = []
    for row, one in known:
        pk = row[0]
        more: JsonObject = (
            {"metrics": query.latest_metrics(c, pk, query.ROW_METRICS_MAX)} if pk in logged else {}
        )
        if pk in health:
            more["health"] = health[pk]
        if trackers.get(pk):
            more["progress"] = trackers[pk]
        if row[3] in _EXPLAINED and one["cause"] is None and pk in last and last[pk]["cause"]:
            more["cause"] = json.loads(last[pk]["cause"])
        if pk in waiting:
            needed = states_of(c, asked[pk].after).values() if pk in asked else ()
            more["waiting"] = list_extras.waits_for(last.get(pk), needed, before.get(pk))
        more |= list_extras.beside(row[3], pk, places, spoken) if places or spoken else {}
        found.append({**one, **more} if more else one)
    return found


def _asked_of(c: sqlite3.Connection, keys: list[int]) -> dict[int, _Asked]:
    found: dict[int, _Asked] = {}
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        wanted = f"SELECT pk, spec FROM jobs WHERE pk IN ({marks})"  # noqa: S608  (our own words, values are parameters)
        found |= {row["pk"]: _asked(row["spec"]) for row in c.execute(wanted, some)}
    return found


def _asked(spec: str) -> _Asked:
    try:
        return _decode_asked(spec)
    # numbers that JSON does not have, which Python's writes all the same
    except msgspec.MsgspecError:
        values = json.loads(spec)
        return _Asked(
            **{
                name: values[name]
                for name in _Asked.__struct_fields__
                if values.get(name) is not None
            }
        )


def _last_attempts(c: sqlite3.Connection, keys: list[int]) -> dict[int, sqlite3.Row]:
    found: dict[int, sqlite3.Row] = {}
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        wanted = f"SELECT job, number, engine_word, cause, retry FROM attempts WHERE job IN ({marks}) ORDER BY number"  # noqa: S608  (our own words, values are parameters)
        found |= {row["job"]: row for row in c.execute(wanted, some)}
    return found


def extend(
    c: sqlite3.Connection, found: list[JsonObject], *, config: bool, usage: bool
) -> list[JsonObject]:
    """Rows with more, on request: `config`, one flat table of what was set, and `command`; `usage`,
    the last sample. Rows of arrays stay as they are.
    """
    by_id = {str(row["id"]): row for row in found if not row.get("is_array")}
    ids = list(by_id)
    for start in range(0, len(ids), _SOME):
        some = ids[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        wanted = f"SELECT pk, id, config, spec FROM jobs WHERE id IN ({marks})"  # noqa: S608  (our own words, values are parameters)
        rows_here = c.execute(wanted, some).fetchall()
        used = live_read.usage_last(c, [row["pk"] for row in rows_here]) if usage else {}
        for row in rows_here:
            # a copy: rows of ended jobs are kept for the next list
            more = by_id[row["id"]] = dict(by_id[row["id"]])
            if config:
                more["config"] = effective_config.effective(row["config"], row["spec"])
                more["command"] = effective_config.read_spec(row["spec"]).command
            if row["pk"] in used:
                more["usage"] = used[row["pk"]]
    return [by_id.get(str(row["id"]), row) for row in found]

"""The rows of `hw ls` as a table needs them: few fields, none that is empty, read without making whole jobs.

Ten thousand jobs are a tenth of a second here, and a sixth of the bytes of the contract's objects (`query.job_rows`).
Called by the server's API for `brief` lists; a field that is not there is empty, null or zero.
"""

import json
import sqlite3
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from headway.model.limits import JOBS_LISTED_MAX
from headway.store import arrays, query
from headway.store.catalog import JobFilter, compile_match, states_of, where_of
from headway.store.form import iso

_ROWS = """SELECT pk, id, name, state, state_since_ns, submitted_ns, started_ns, ended_ns, exit_code, signal,
             experiment, cluster, array_index, cause, tags, iif(json_valid(spec), NULL, spec) AS odd,
             iif(json_valid(spec), json_extract(spec, '$.gpus', '$.guest_of', '$.host', '$.parameters', '$.after',
                 '$.smoke'), NULL) AS asked
           FROM jobs WHERE """


class _Row(NamedTuple):
    """As the query has it; a name is looked up in it many times as fast as in a row of sqlite3."""

    pk: int
    id: str
    name: str
    state: str
    state_since_ns: int
    submitted_ns: int
    started_ns: int | None
    ended_ns: int | None
    exit_code: int | None
    signal: int | None
    experiment: str | None
    cluster: str
    array_index: int | None
    cause: str | None
    tags: str
    odd: str | None
    asked: str | None


_ASKED = ("gpus", "guest_of", "host", "parameters", "after", "smoke")  # of the spec, in that order
_NOTHING = '[0,null,"",{},[],false]'
_EXPLAINED = ("failed", "stopped", "held")
_SOME = 1000


def rows(c: sqlite3.Connection, filters: JobFilter, now_ns: int) -> list[dict[str, Any]]:
    """Jobs, newest first."""
    where, values = where_of(filters)
    matcher = compile_match(filters.match) if filters.match else None
    cursor = c.cursor()
    cursor.row_factory = lambda _, values: _Row._make(values)
    found = cursor.execute(f"{_ROWS} {where} ORDER BY submitted_ns DESC, pk DESC", values)
    wanted = (row for row in found if matcher is None or matcher.search(row.id))
    chosen: list[_Row] = list(islice(wanted, min(filters.limit, JOBS_LISTED_MAX)))
    logged = {row[0] for row in c.execute("SELECT DISTINCT job FROM series")} if chosen else set()
    told = (*_EXPLAINED, "waiting")
    last = _last_attempts(c, [row.pk for row in chosen if row.state in told])
    return [_row(c, row, last.get(row.pk), row.pk in logged, now_ns) for row in chosen]


def folded(c: sqlite3.Connection, filters: JobFilter, now_ns: int) -> list[dict[str, Any]]:
    """As `rows`, but each array as one row (`is_array`)."""
    found = arrays.folded(c, filters, filters.limit) + rows(c, replace(filters, single=True), now_ns)
    return sorted(found, key=lambda row: str(row["submitted_at"]), reverse=True)[: filters.limit]


def _row(c: sqlite3.Connection, row: _Row, last: sqlite3.Row | None, has_metrics: bool, now_ns: int) -> dict[str, Any]:
    found: dict[str, Any] = {"id": row.id, "name": row.name, "state": row.state, "cluster": row.cluster}
    found["submitted_at"] = iso(row.submitted_ns)
    if row.experiment is not None:
        found["experiment"] = row.experiment
    if row.array_index is not None:
        found["array_index"] = row.array_index
    if row.started_ns is not None:
        end_ns = now_ns if row.ended_ns is None else row.ended_ns
        found["elapsed_s"] = round(max(0, end_ns - row.started_ns) / 1e9, 3)
    if row.tags != "[]":
        found["tags"] = json.loads(row.tags)
    asked = _asked(row)
    found |= {name: value for name, value in asked.items() if value and name in ("gpus", "parameters", "smoke")}
    if asked.get("guest_of") is not None:
        found |= {"guest_of": asked["guest_of"], "host": asked["host"]}
    if has_metrics:
        found["metrics"] = query.latest_metrics(c, row.pk, query.ROW_METRICS_MAX)
    return found | _note(c, row, last, asked.get("after") or [])


def _asked(row: _Row) -> dict[str, Any]:
    """What a person asked for that the table shows. Most jobs asked for nothing of it."""
    if row.odd is not None:  # numbers that JSON does not have, which Python's writes all the same
        spec = json.loads(row.odd)
        return {name: spec.get(name) for name in _ASKED}
    return {} if row.asked in (_NOTHING, None) else dict(zip(_ASKED, json.loads(str(row.asked)), strict=True))


def _note(c: sqlite3.Connection, row: _Row, last: sqlite3.Row | None, after: list[str]) -> dict[str, Any]:
    """Why it stands as it does."""
    state = row.state
    if state == "unknown":
        return {"state_since": iso(row.state_since_ns)}
    if state in _EXPLAINED:
        cause = row.cause or (last["cause"] if last is not None else None)
        return {"exit_code": row.exit_code, "signal": row.signal, "cause": json.loads(cause) if cause else None}
    if state != "waiting" or (last is None and not after):
        return {}
    return {"waiting": query.waiting_words(last, states_of(c, after).values())}


def _last_attempts(c: sqlite3.Connection, keys: list[int]) -> dict[int, sqlite3.Row]:
    found: dict[int, sqlite3.Row] = {}
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        wanted = f"SELECT job, number, cause, retry FROM attempts WHERE job IN ({marks}) ORDER BY number"  # noqa: S608  (our own words, values are parameters)
        found |= {row["job"]: row for row in c.execute(wanted, some)}
    return found

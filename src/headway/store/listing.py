"""The rows of `hw ls` as a table needs them: few fields, none that is empty, read without making whole jobs.

Ten thousand jobs are a tenth of a second here, and a sixth of the bytes of the contract's objects (`query.job_rows`).
Called by the server's API for `brief` lists; a field that is not there is empty, null or zero.
"""

import json
import sqlite3
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from headway.model.limits import JOBS_LISTED_MAX
from headway.store import arrays, query
from headway.store.catalog import JobFilter, matcher_of, states_of, where_of
from headway.store.form import iso

_ROWS = """SELECT pk, id, name, state, state_since_ns, submitted_ns, started_ns, ended_ns, exit_code, signal,
             experiment, cluster, array_index, cause, tags, spec FROM jobs WHERE """
_Row = tuple[int, str, str, str, int, int, int | None, int | None, int | None, int | None, str | None, str, int | None,
             str | None, str, str]  # fmt: skip


class _Asked(msgspec.Struct):
    """What a person asked for that the table shows: of the spec, read past all the rest of it."""

    gpus: int = 0
    guest_of: str | None = None
    host: str = ""
    parameters: dict[str, Any] = {}
    after: list[str] = []
    smoke: bool = False


_decode_asked = msgspec.json.Decoder(_Asked).decode
_EXPLAINED = ("failed", "stopped", "held", "unknown")
_SOME = 1000


def rows(c: sqlite3.Connection, filters: JobFilter, now_ns: int) -> list[dict[str, Any]]:
    """Jobs, newest first."""
    where, values = where_of(filters)
    matches = matcher_of(filters)
    cursor = c.cursor()
    cursor.row_factory = None  # plain tuples
    found = cursor.execute(f"{_ROWS} {where} ORDER BY submitted_ns DESC, pk DESC", values)
    wanted = (row for row in found if matches is None or matches(row[1], row[-1]))
    chosen: list[_Row] = list(islice(wanted, min(filters.limit, JOBS_LISTED_MAX)))
    logged = {row[0] for row in c.execute("SELECT DISTINCT job FROM series")} if chosen else set()
    told = (*_EXPLAINED, "waiting")
    last = _last_attempts(c, [row[0] for row in chosen if row[3] in told])
    return [_row(c, row, last.get(row[0]), row[0] in logged, now_ns) for row in chosen]


def folded(c: sqlite3.Connection, filters: JobFilter, now_ns: int) -> list[dict[str, Any]]:
    """As `rows`, but each array as one row (`is_array`)."""
    found = arrays.folded(c, filters, filters.limit) + rows(c, replace(filters, single=True), now_ns)
    return sorted(found, key=lambda row: str(row["submitted_at"]), reverse=True)[: filters.limit]


def _row(c: sqlite3.Connection, row: _Row, last: sqlite3.Row | None, has_metrics: bool, now_ns: int) -> dict[str, Any]:
    (pk, id_, name, state, since_ns, submitted_ns, started_ns, ended_ns, exit_code, signal, experiment, cluster, index,
     cause, tags, spec) = row  # fmt: skip
    found: dict[str, Any] = {"id": id_, "name": name, "state": state, "cluster": cluster}
    found["submitted_at"] = iso(submitted_ns)
    if experiment is not None:
        found["experiment"] = experiment
    if index is not None:
        found["array_index"] = index
    if started_ns is not None:
        found["elapsed_s"] = round(max(0, (now_ns if ended_ns is None else ended_ns) - started_ns) / 1e9, 3)
    if tags != "[]":
        found["tags"] = json.loads(tags)
    asked = _asked(spec)
    for field, value in (("gpus", asked.gpus), ("parameters", asked.parameters), ("smoke", asked.smoke)):
        if value:
            found[field] = value
    if asked.guest_of is not None:
        found |= {"guest_of": asked.guest_of, "host": asked.host}
    if has_metrics:
        found["metrics"] = query.latest_metrics(c, pk, query.ROW_METRICS_MAX)
    if state == "unknown":
        found |= {"state_since": iso(since_ns), "ended_at": iso(ended_ns)}
    if state in _EXPLAINED:
        why = cause or (last["cause"] if last is not None else None)
        found |= {"exit_code": exit_code, "signal": signal, "cause": json.loads(why) if why else None}
    elif state == "waiting" and (last is not None or asked.after):
        found["waiting"] = query.waiting_words(last, states_of(c, asked.after).values())
    return found


def _asked(spec: str) -> _Asked:
    try:
        return _decode_asked(spec)
    except msgspec.MsgspecError:  # numbers that JSON does not have, which Python's writes all the same
        values = json.loads(spec)
        return _Asked(**{name: values[name] for name in _Asked.__struct_fields__ if values.get(name) is not None})


def _last_attempts(c: sqlite3.Connection, keys: list[int]) -> dict[int, sqlite3.Row]:
    found: dict[int, sqlite3.Row] = {}
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        wanted = f"SELECT job, number, cause, retry FROM attempts WHERE job IN ({marks}) ORDER BY number"  # noqa: S608  (our own words, values are parameters)
        found |= {row["job"]: row for row in c.execute(wanted, some)}
    return found

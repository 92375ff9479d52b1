"""Arrays: many jobs that were submitted as one, and are shown, stopped and repeated as one. Plain
functions on a connection; writers run inside `Store.write`. Called by
`server/control/array_verbs.py` and the API.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5
from zlib import crc32

from headway.model.errors import NotFoundError
from headway.model.ids import new_suffix
from headway.model.job import State
from headway.model.json_types import JsonMapping, JsonObject
from headway.store import job_reference
from headway.store.catalog import JobFilter, matched_texts, matcher_of, where_of
from headway.store.connection import touch
from headway.store.jsonform import iso

_OPEN = "('waiting', 'running', 'stopping', 'held', 'unknown')"
_FAILED_SHOWN = 10
# The first of these that a job of the array is in stands for the array.
_ORDER = ("running", "stopping", "held", "waiting", "unknown", "failed", "stopped", "succeeded")


@dataclass(frozen=True, slots=True)
class Row:
    """One job to insert. `spec`: JSON of its JobSpec."""

    index: int
    name: str
    spec: str


def _crc(spec: str) -> int:
    return crc32(spec.encode("utf-8", "surrogatepass"))


def job_uuid(array: str, index: int) -> str:
    """The same array and number give the same job, whoever computes it."""
    return str(uuid5(UUID(array), str(index)))


def insert(
    c: sqlite3.Connection,
    uuid: str,
    shared: JsonMapping,
    rows: Sequence[Row],
    now_ns: int,
    engine: str,
) -> str:
    """The array's id. `shared`: name, experiment, cluster, priority, tags, parent. Said twice, it
    is there once.
    """
    known = c.execute("SELECT id FROM arrays WHERE uuid = ?", (uuid,)).fetchone()
    if known is not None:
        return str(known["id"])
    taken = set[str]()
    suffix = next(_free(c, taken))
    array_id = f"{shared['name']}-{suffix}"
    c.execute(
        "INSERT INTO arrays (uuid, id, suffix, name, parent, submitted_ns) VALUES (?, ?, ?, ?, ?, ?)",
        (uuid, array_id, suffix, shared["name"], shared["parent"], now_ns),
    )
    tags, free = json.dumps(list(dict.fromkeys(shared["tags"]))), _free(c, taken)
    c.executemany(
        """INSERT INTO jobs (id, suffix, uuid, name, experiment, cluster, engine, state, state_since_ns, priority, spec,
                             spec_crc, tags, submitted_ns, array, array_index)
           VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            (f"{row.name}-{own}", own, job_uuid(uuid, row.index), row.name, shared["experiment"], shared["cluster"],
             engine, now_ns, shared["priority"], row.spec, _crc(row.spec), tags, now_ns, uuid, row.index)
            for row, own in zip(rows, free, strict=False)
        ),
    )  # fmt: skip
    _tell(c, uuid, "state", {"to": "waiting"}, now_ns, "1")
    return array_id


def _free(c: sqlite3.Connection, taken: set[str]) -> Iterator[str]:
    """Suffixes that neither a job nor an array has."""
    while True:
        suffix = new_suffix()
        found = c.execute(
            "SELECT 1 FROM jobs WHERE suffix = :s UNION ALL SELECT 1 FROM arrays WHERE suffix = :s",
            {"s": suffix},
        ).fetchone()
        if found is None and suffix not in taken:
            taken.add(suffix)
            yield suffix


def _tell(
    c: sqlite3.Connection, uuid: str, kind: str, data: JsonMapping, now_ns: int, which: str
) -> None:
    """The same event for all jobs of an array that `which` selects."""
    c.execute(
        f"""INSERT INTO events (job, time_ns, type, data)
            SELECT pk, :now, :kind, :data FROM jobs WHERE array = :uuid AND {which}""",  # noqa: S608  (our own words)
        {"now": now_ns, "kind": kind, "data": json.dumps(data), "uuid": uuid},
    )
    for row in c.execute("SELECT pk FROM jobs WHERE array = ?", (uuid,)):
        touch(c, row["pk"], "job")


def request_stop(c: sqlite3.Connection, uuid: str, now_ns: int) -> int:
    """Ask every open job of an array to stop; how many were not asked before."""
    which = f"state IN {_OPEN} AND ended_ns IS NULL AND stop_requested_ns IS NULL"
    _tell(c, uuid, "stop_requested", {}, now_ns, which)
    cursor = c.execute(
        f"UPDATE jobs SET stop_requested_ns = :now WHERE array = :uuid AND {which}",  # noqa: S608  (our own words)
        {"now": now_ns, "uuid": uuid},
    )
    return cursor.rowcount


def find(c: sqlite3.Connection, ref: str) -> str:
    """The uuid of the one array that `ref` means, where it means no job as well."""
    jobs, arrays = job_reference.find(c, ref)
    if len(arrays) == 1 and not jobs:
        return str(arrays[0]["uuid"])
    if len(jobs) + len(arrays) > 1:
        raise job_reference.ambiguous(ref, jobs, arrays)
    raise NotFoundError(f'no job or array ends in "{ref[:80]}"', "`hw ls` lists them")


def has_open_jobs(c: sqlite3.Connection, uuid: str) -> bool:
    return (
        c.execute(
            "SELECT 1 FROM jobs WHERE array = ? AND ended_ns IS NULL LIMIT 1", (uuid,)
        ).fetchone()
        is not None
    )


def selected(
    c: sqlite3.Connection, uuid: str, states: Sequence[str] = ()
) -> list[tuple[int, str, JsonObject]]:
    """(index, job uuid, spec as stored) of the jobs of an array, in order; of some states only,
    where there are any.
    """
    marks = ", ".join("?" * len(states))
    chosen = f"AND state IN ({marks})" if states else ""
    rows = c.execute(
        f"""SELECT array_index, uuid, spec FROM jobs WHERE array = ? AND deleted_ns IS NULL {chosen}
            ORDER BY array_index""",  # noqa: S608  (our own words, values are parameters)
        (uuid, *states),
    )
    return [(row["array_index"], row["uuid"], json.loads(row["spec"])) for row in rows]


# -- objects for views


def array_object(c: sqlite3.Connection, uuid: str) -> JsonObject:
    """Everything that `hw q ARRAY --json` shows."""
    (row,) = folded(c, JobFilter(array=uuid), 1) or [_empty(c, uuid)]
    failed = c.execute(
        """SELECT j.id, j.array_index,
             (SELECT a.cause FROM attempts a WHERE a.job = j.pk ORDER BY a.number DESC LIMIT 1) AS cause
           FROM jobs j WHERE j.array = ? AND j.state = 'failed' AND j.deleted_ns IS NULL
           ORDER BY j.array_index LIMIT ?""",
        (uuid, _FAILED_SHOWN),
    )
    row["failed"] = [
        {
            "id": one["id"],
            "index": one["array_index"],
            "cause": json.loads(one["cause"]) if one["cause"] else None,
        }
        for one in failed
    ]
    return row


def _empty(c: sqlite3.Connection, uuid: str) -> JsonObject:
    row = c.execute("SELECT * FROM arrays WHERE uuid = ?", (uuid,)).fetchone()
    return _object(row, {}, None, None, None, None)


def folded(c: sqlite3.Connection, filters: JobFilter, limit: int) -> list[JsonObject]:
    """One row for each array that has jobs which the filter takes, newest first; its counts are of
    those jobs.
    """
    where, values = where_of(filters)
    counted = f"""SELECT array, state, count(*) AS jobs, min(started_ns) AS started_ns, max(ended_ns) AS ended_ns,
              count(ended_ns) AS ended, min(pk) AS first FROM jobs
            WHERE {where} AND array IS NOT NULL"""  # noqa: S608  (our own words, values are parameters)
    with matcher_of(filters) as matcher:
        if matcher is not None:
            members = c.execute(
                f"SELECT pk, id, spec, config FROM jobs WHERE {where} AND array IS NOT NULL",  # noqa: S608  (our own words, values are parameters)
                values,
            )
            matched = matcher.select(
                members, lambda row: matched_texts(row["id"], row["spec"], row["config"])
            )
            values["matched"] = json.dumps([row["pk"] for row in matched])
            counted += " AND pk IN (SELECT value FROM json_each(:matched))"
    rows = c.execute(f"{counted} GROUP BY array, state", values).fetchall()
    groups: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        groups.setdefault(row["array"], []).append(row)
    found = [_of_group(c, uuid, group) for uuid, group in groups.items()]
    return sorted(found, key=lambda array: str(array["submitted_at"]), reverse=True)[:limit]


def _of_group(c: sqlite3.Connection, uuid: str, group: list[sqlite3.Row]) -> JsonObject:
    row = c.execute("SELECT * FROM arrays WHERE uuid = ?", (uuid,)).fetchone()
    states = {
        one["state"]: one["jobs"]
        for one in sorted(group, key=lambda one: _ORDER.index(one["state"]))
    }
    started = min(
        (one["started_ns"] for one in group if one["started_ns"] is not None), default=None
    )
    over = all(one["ended"] == one["jobs"] for one in group)
    ended = (
        max((one["ended_ns"] for one in group if one["ended_ns"] is not None), default=None)
        if over
        else None
    )
    job = c.execute(
        "SELECT cluster, experiment FROM jobs WHERE pk = ?", (group[0]["first"],)
    ).fetchone()
    return _object(row, states, started, ended, job["cluster"], job["experiment"])


def _object(
    row: sqlite3.Row, states: dict[str, int], started_ns: int | None, ended_ns: int | None, cluster: str | None,
    experiment: str | None,
) -> JsonObject:  # fmt: skip
    state = next((name for name in _ORDER if name in states), str(State.STOPPED))
    return {
        "id": row["id"], "uuid": row["uuid"], "name": row["name"], "is_array": True, "jobs": sum(states.values()),
        "states": states, "state": state, "experiment": experiment, "cluster": cluster, "parent": row["parent"],
        "submitted_at": iso(row["submitted_ns"]), "started_at": iso(started_ns), "ended_at": iso(ended_ns),
    }  # fmt: skip

"""Stacks that agents collected: written by `fact_rows`, read by the API and by the look at what
runs. Each task keeps its last few.
"""

import json
import sqlite3
import zlib

from headway.model.json_types import JsonObject
from headway.model.limits import STACKS_KEPT_MAX
from headway.store.connection import count_written
from headway.store.jsonform import whole
from headway.store.live_write import Origin

Fact = JsonObject


def put_stacks(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    request = whole(fact.get("request"))
    if request is None or not isinstance(fact.get("processes"), list):
        return False
    kept = {k: v for k, v in fact.items() if k not in ("type", "time_ns")}
    data = zlib.compress(json.dumps(kept, separators=(",", ":")).encode())
    c.execute(
        "INSERT INTO stacks VALUES (:task, :request, :now, :data) ON CONFLICT DO NOTHING",
        {"task": o.task, "request": request, "now": o.when_ns, "data": data},
    )
    c.execute(
        """DELETE FROM stacks WHERE task = :task AND request NOT IN
             (SELECT request FROM stacks WHERE task = :task ORDER BY request DESC LIMIT :n)""",
        {"task": o.task, "n": STACKS_KEPT_MAX},
    )
    count_written(c, len(data))
    return True


def load(c: sqlite3.Connection, job: int, attempt: int, request: int) -> dict[str, Fact]:
    """What has come for a request: the fact of each task, by name, with `time_ns`."""
    rows = c.execute(
        """SELECT t.name AS name, t.node AS node, s.time_ns AS time_ns, s.data AS data
           FROM stacks s JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt
           WHERE a.job = :job AND a.number = :attempt AND s.request = :request""",
        {"job": job, "attempt": attempt, "request": request},
    )
    return {row["name"]: _fact(row) for row in rows}


def last_request(c: sqlite3.Connection, job: int, attempt: int) -> int | None:
    """The newest collection of an attempt."""
    row = c.execute(
        """SELECT max(s.request) FROM stacks s JOIN tasks t ON t.pk = s.task
             JOIN attempts a ON a.pk = t.attempt WHERE a.job = :job AND a.number = :attempt""",
        {"job": job, "attempt": attempt},
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _fact(row: sqlite3.Row) -> Fact:
    fact: Fact = json.loads(zlib.decompress(row["data"]))
    return fact | {"time_ns": row["time_ns"], "node": row["node"]}

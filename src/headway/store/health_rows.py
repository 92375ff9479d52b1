"""Findings about jobs that run: kept with the job, so that every view tells the same. Written by the
look at what runs (`server/health`).
"""

import json
import sqlite3
from collections.abc import Iterable

from headway.model.json_types import JsonObject
from headway.model.limits import HEALTH_KEPT_MAX
from headway.store import series
from headway.store.connection import touch
from headway.store.jsonform import iso

Finding = JsonObject


def put(
    c: sqlite3.Connection,
    job: int,
    attempt: int,
    kind: str,
    finding: Finding,
    since_ns: int,
    now_ns: int,
    request: int | None = None,
) -> bool:
    """A finding that holds from now on, or still; whether it is new."""
    row = {
        "job": job, "attempt": attempt, "kind": kind, "since": since_ns, "now": now_ns,
        "request": request, "finding": json.dumps(finding),
    }  # fmt: skip
    changed = c.execute(
        """UPDATE health SET finding = :finding, found_ns = :now, request = coalesce(:request, request)
           WHERE job = :job AND attempt = :attempt AND kind = :kind AND ended_ns IS NULL""",
        row,
    ).rowcount
    if not changed:
        c.execute(
            """INSERT INTO health (job, attempt, kind, since_ns, found_ns, request, finding)
               VALUES (:job, :attempt, :kind, :since, :now, :request, :finding)""",
            row,
        )
        c.execute(
            """DELETE FROM health WHERE job = :job AND pk NOT IN
                 (SELECT pk FROM health WHERE job = :job ORDER BY pk DESC LIMIT :n)""",
            {"job": job, "n": HEALTH_KEPT_MAX},
        )
    touch(c, job, "health")
    return not changed


def close(c: sqlite3.Connection, job: int, kind: str, now_ns: int) -> int:
    """What held does so no more; how many findings that ends."""
    count = c.execute(
        "UPDATE health SET ended_ns = :now WHERE job = :job AND kind = :kind AND ended_ns IS NULL",
        {"job": job, "kind": kind, "now": now_ns},
    ).rowcount
    if count:
        touch(c, job, "health")
    return count


def close_kind(c: sqlite3.Connection, kind: str, now_ns: int) -> None:
    """Of all jobs: what was found by a server before us is looked at anew."""
    c.execute(
        "UPDATE health SET ended_ns = :now WHERE kind = :kind AND ended_ns IS NULL",
        {"kind": kind, "now": now_ns},
    )


def open_jobs(c: sqlite3.Connection, kind: str) -> dict[int, int]:
    """Jobs with a finding that holds, and since when."""
    rows = c.execute(
        "SELECT job, since_ns FROM health WHERE kind = :kind AND ended_ns IS NULL", {"kind": kind}
    )
    return {row["job"]: row["since_ns"] for row in rows}


def of_job(c: sqlite3.Connection, job: int) -> list[Finding]:
    """All findings of a job, the newest first; `since`, `until`: null where it still holds."""
    rows = c.execute("SELECT * FROM health WHERE job = :job ORDER BY pk DESC", {"job": job})
    return [_shown(row) for row in rows]


def current(c: sqlite3.Connection, jobs: Iterable[int]) -> dict[int, Finding]:
    """Of these jobs the finding that holds, in short; a hang before slowness."""
    wanted = list(jobs)
    found: dict[int, Finding] = {}
    for begin in range(0, len(wanted), 500):
        part = wanted[begin : begin + 500]
        marks = ",".join("?" * len(part))
        rows = c.execute(
            f"SELECT * FROM health WHERE ended_ns IS NULL AND job IN ({marks}) ORDER BY kind = 'hang'",  # noqa: S608  (marks)
            part,
        )
        for row in rows:
            shown = _shown(row)
            found[row["job"]] = {
                key: shown.get(key) for key in ("kind", "cause", "class", "text", "rank", "since")
            }
    return found


def _shown(row: sqlite3.Row) -> Finding:
    finding: Finding = json.loads(row["finding"])
    return finding | {
        "kind": row["kind"],
        "attempt": row["attempt"],
        "since": iso(row["since_ns"]),
        "since_ns": row["since_ns"],
        "until": iso(row["ended_ns"]),
        "until_ns": row["ended_ns"],
        "request": row["request"],
    }


def running(c: sqlite3.Connection) -> dict[int, tuple[int, float | None]]:
    """Jobs that run and are ours to look after: the number of the attempt, and the average time
    between its steps as they are stored.
    """
    rows = c.execute(
        """SELECT j.pk AS pk, max(a.number) AS number, max(a.started_ns) AS started_ns FROM jobs j
           JOIN attempts a ON a.job = j.pk
           WHERE j.state = 'running' AND j.ended_ns IS NULL AND j.deleted_ns IS NULL
             AND json_extract(j.spec, '$.guest_of') IS NULL
             AND NOT coalesce(json_extract(j.spec, '$.reserved'), 0)
           GROUP BY j.pk"""
    ).fetchall()
    return {row["pk"]: (row["number"], _average_s(c, row)) for row in rows}


def _average_s(c: sqlite3.Connection, row: sqlite3.Row) -> float | None:
    last = c.execute(
        """SELECT l.points AS points, l.time_ns AS time_ns FROM latest l JOIN series s ON s.pk = l.series
           WHERE s.job = :pk AND s.attempt = :number ORDER BY l.points DESC LIMIT 1""",
        {"pk": row["pk"], "number": row["number"]},
    ).fetchone()
    if last is None or last["points"] < 2 or row["started_ns"] is None:
        return None
    return max(0.0, float(last["time_ns"] - row["started_ns"]) / 1e9 / float(last["points"]))


def first_steps(c: sqlite3.Connection, job: int) -> dict[int, int]:
    """When each attempt made its first step: the first point of its longest series, or its first
    progress tracker.
    """
    rows = c.execute(
        """SELECT s.attempt AS attempt, s.pk AS pk, max(l.points) FROM series s
           JOIN latest l ON l.series = s.pk WHERE s.job = :job GROUP BY s.attempt""",
        {"job": job},
    ).fetchall()
    found: dict[int, int] = {}
    for row in rows:
        times = series.read_points(c, row["pk"], 2).times_us
        if len(times):
            found[row["attempt"]] = int(times[0]) * 1000
    begun = c.execute(
        """SELECT a.number AS attempt, min(p.started_ns) AS time_ns FROM progress p
           JOIN tasks t ON t.pk = p.task JOIN attempts a ON a.pk = t.attempt
           WHERE a.job = :job AND p.started_ns > 0 GROUP BY a.number""",
        {"job": job},
    )
    for row in begun:
        if row["time_ns"] is not None:
            found[row["attempt"]] = min(found.get(row["attempt"], 2**62), row["time_ns"])
    return found

"""The machine-readable contract: JSON objects for `hw q`, `hw ls`, `hw metrics` and the like, read
from the database.

Plain functions on a read connection, called by the server's API. Times are ISO 8601 in UTC, unknown
values are null, numbers that JSON cannot hold are strings.
"""

import json
import sqlite3
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

import numpy as np

from headway.home.paths import Paths
from headway.model.errors import RefusedError
from headway.model.job import Attempt, Job, Process, State, Task, count_retries
from headway.model.json_types import JsonObject
from headway.model.limits import METRIC_POINTS_MAX
from headway.model.record import RAW
from headway.store import arrays, catalog, health_rows, list_extras, live_read, redone_steps, series
from headway.store.jsonform import iso, number

ROW_METRICS_MAX = 32  # names shown per job in a list
ROW_TRACKERS_MAX = 4  # likewise
Logs = dict[tuple[int, str, str], str | None]  # attempt, task, stream → plain file


def log_path(logs: str, uuid: str, attempt: int, task: str, stream: str) -> str:
    """Where the plain file of a raw stream lies. Every word in it is made or checked by us."""
    return f"{logs}/{uuid}/{attempt}/{task}/{stream}"


# -- jobs


def job_object(
    c: sqlite3.Connection, pk: int, paths: Paths, now_ns: int, metrics_max: int | None = None
) -> JsonObject:
    """Everything that `hw q ID --json` shows; of its metrics the first `metrics_max`."""
    job = catalog.load_job(c, pk)
    engine = c.execute("SELECT engine FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()["engine"]
    last = job.attempts[-1] if job.attempts else None
    head = _head(job, engine, last.engine_id if last else None, now_ns)
    # nobody tells before the first attempt
    told: JsonObject = {"progress": [], "usage": None, "metrics": {}}
    if last:
        told = _told(c, pk, metrics_max)
    sent = streams(c, pk, paths) if last else []
    return {
        **head,
        "cause": job.cause or (last.cause if last else None),
        "health": health_rows.current(c, [pk]).get(pk),
        "priority": job.spec.priority,
        "needs": {
            "cpus": job.spec.cpus,
            "memory_bytes": job.spec.memory_bytes,
            "max_duration_s": job.spec.max_duration_s,
        },
        "retries": _retries(job),
        "hold": _hold(job, now_ns),
        "reserved": job.spec.reserved,
        "after": [
            {"id": id_, "state": state}
            for id_, state in catalog.states_of(c, job.spec.after).values()
        ],
        "output_dir": str(paths.output.absolute() / job.id),
        "outputs": _outputs(job, paths),
        "config": job.config,
        **told,
        "page": None,
        "image": job.spec.image or job.spec.definition.get("image"),
        "roles": [asdict(role) for role in job.spec.roles],
        "folders": [asdict(folder) for folder in job.spec.folders],
        "definition": job.spec.definition,
        "attempts": _attempts(job, {(s["attempt"], s["task"], s["name"]): s["path"] for s in sent}),
    }


def _told(c: sqlite3.Connection, pk: int, metrics_max: int | None) -> JsonObject:
    return {
        "progress": live_read.progress(c, [pk]).get(pk, []),
        "usage": live_read.usage_last(c, [pk]).get(pk),
        "metrics": latest_metrics(c, pk),
    }


def _retries(job: Job) -> JsonObject:
    """How often it was tried again; `next_at` and `text` while it waits for the next try."""
    total, counted = count_retries(job.attempts)
    coming = job.attempts[-1].retry or {} if job.between_tries else {}
    return {
        "total": total, "counted": counted, "max": job.spec.retry.max, "next_at": iso(coming.get("not_before_ns")),
        "text": coming.get("text"),
    }  # fmt: skip


def _hold(job: Job, now_ns: int) -> JsonObject | None:
    """What a held job keeps, and until when."""
    facts = (
        [t.held for t in job.attempts[-1].tasks if t.held and t.result is None]
        if job.attempts
        else []
    )
    if job.state is not State.HELD or not facts:
        return None
    since_ns = min(int(fact["time_ns"]) for fact in facts)
    until_ns = max(int(fact["time_ns"]) + int(fact["hold_s"] * 1e9) for fact in facts)
    gpu_hours = job.spec.gpus * max(0, now_ns - since_ns) / 3.6e12
    return {
        "since": iso(since_ns),
        "until": iso(until_ns),
        "gpus": job.spec.gpus,
        "gpu_hours": round(gpu_hours, 3),
    }


def _attempts(job: Job, logs: Logs) -> list[JsonObject]:
    return [_attempt(attempt, logs) for attempt in job.attempts]


def _outputs(job: Job, paths: Paths) -> str | None:
    """Of a cluster behind ssh: how far they have come, or why they do not; None: all are here, or
    none are expected.
    """
    if not job.spec.definition.get("host"):
        return None
    try:
        return paths.coming(job.id).read_text(errors="replace")
    except OSError:
        return None


def _engine_url(job: Job, engine_id: str | None) -> str | None:
    """The job's page in a system beside ours, as the option `url` of its cluster says."""
    url = job.spec.definition.get("url")
    if not url or (engine_id is None and "{engine_id}" in url):
        return None
    return str(url).replace("{engine_id}", str(engine_id)).replace("{id}", job.id)


def _head(job: Job, engine: str, engine_id: str | None, now_ns: int) -> JsonObject:
    spec = job.spec
    return {
        "id": job.id, "uuid": job.uuid, "name": job.name or spec.name, "experiment": spec.experiment,
        "state": str(job.state),
        "state_since": iso(job.state_since_ns), "cluster": spec.cluster, "engine": engine, "engine_id": engine_id,
        "engine_url": _engine_url(job, engine_id), "attach": None,
        "command": spec.command, "cwd": spec.cwd, "code": spec.code,
        "gpus": spec.gpus,
        "processes": spec.processes, "multi_process": spec.multi_process,
        "submitted_at": iso(job.submitted_ns), "started_at": iso(job.started_ns),
        "ended_at": iso(job.ended_ns), "elapsed_s": _elapsed_s(job, now_ns), "exit_code": job.exit_code,
        "signal": job.signal, "parent": spec.parent, "tags": job.tags,
        "star": job.star, "bug": job.bug, "description": job.description, "host": spec.host or None,
        "guest_of": spec.guest_of, "monitor": spec.monitor,
        "array": spec.array, "array_index": spec.array_index, "parameters": spec.parameters, "smoke": spec.smoke,
    }  # fmt: skip


def _elapsed_s(job: Job, now_ns: int) -> float | None:
    """Since the start; it stops growing at the end and is never negative, whatever the clock did
    (F26).
    """
    if job.started_ns is None:
        return None
    end = job.ended_ns if job.ended_ns is not None else now_ns
    return max(0, end - job.started_ns) / 1e9


def _attempt(attempt: Attempt, logs: Logs) -> JsonObject:
    return {
        "number": attempt.number, "state": str(attempt.state), "cause": attempt.cause, "exit_code": attempt.exit_code,
        "signal": attempt.signal, "engine_id": attempt.engine_id, "engine_word": attempt.engine_word,
        "retry": _retry(attempt),
        "started_at": iso(attempt.started_ns), "ended_at": iso(attempt.ended_ns),
        "tasks": [_task(attempt.number, task, logs) for task in attempt.tasks],
    }  # fmt: skip


def _retry(attempt: Attempt) -> JsonObject | None:
    """What followed its failure."""
    if attempt.retry is None:
        return None
    kept = {name: attempt.retry.get(name) for name in ("do", "counted", "text", "wait_s")}
    return {**kept, "not_before": iso(attempt.retry.get("not_before_ns"))}


def _task(number: int, task: Task, logs: Logs) -> JsonObject:
    return {
        "name": task.name, "node": task.node, "state": task.state, "heard_at": iso(task.heard_ns),
        "processes": [_process(number, task.name, process, logs) for process in task.processes],
    }  # fmt: skip


def _process(number: int, task: str, process: Process, logs: Logs) -> JsonObject:
    """`logs` are null for a process whose output is not ours, such as a script that was started
    without us.
    """
    return {
        "rank": process.rank, "local_rank": process.local_rank, "pid": process.pid, "state": process.state,
        "exit_code": process.exit_code, "signal": process.signal, "reason": process.reason,
        "started_at": iso(process.started_ns), "ended_at": iso(process.ended_ns), "exception": process.exception,
        "logs": {name: logs.get((number, task, f"{name}-{process.rank}")) for name in ("stdout", "stderr")},
    }  # fmt: skip


def job_rows(
    c: sqlite3.Connection, filters: catalog.JobFilter | None, now_ns: int
) -> list[JsonObject]:
    """`hw ls --json`: the same objects without the heavy parts, newest first."""
    return rows_of(c, catalog.list_jobs(c, filters), now_ns)


def rows_of(c: sqlite3.Connection, jobs: list[Job], now_ns: int) -> list[JsonObject]:
    """With a few queries per thousand jobs, however many there are."""
    found: list[JsonObject] = []
    before = list_extras.ahead(c) if any(job.state is State.WAITING for job in jobs) else {}
    for start in range(0, len(jobs), 1000):
        some = jobs[start : start + 1000]
        keys = [job.pk for job in some]
        engines = {
            row["job"]: row["engine"]
            for row in _about(c, "SELECT pk AS job, engine FROM jobs", "pk", keys)
        }
        tried = _about(
            c, "SELECT job, number, engine_id, engine_word, cause, retry FROM attempts", "job", keys
        )
        last = {row["job"]: row for row in sorted(tried, key=lambda row: int(row["number"]))}
        logged = {row["job"] for row in _about(c, "SELECT DISTINCT job FROM series", "job", keys)}
        trackers = live_read.progress(c, keys, ROW_TRACKERS_MAX)
        places = list_extras.nodes(c, [pk for pk in keys if engines[pk] != "local"])
        health = health_rows.current(c, [job.pk for job in some if job.state is State.RUNNING])
        spoken = list_extras.heard(c, [job.pk for job in some if job.state is State.UNKNOWN])
        for job in some:
            metrics = latest_metrics(c, job.pk, ROW_METRICS_MAX) if job.pk in logged else {}
            row = _row(
                job, engines[job.pk], last.get(job.pk), metrics, trackers.get(job.pk, []), now_ns
            )
            row["waiting"] = (
                _waiting(c, job, last.get(job.pk), before) if job.state is State.WAITING else None
            )
            row["health"] = health.get(job.pk)
            found.append(row | list_extras.beside(job.state, job.pk, places, spoken))
    return found


def _about(c: sqlite3.Connection, select: str, column: str, keys: list[int]) -> list[sqlite3.Row]:
    return c.execute(f"{select} WHERE {column} IN ({', '.join('?' * len(keys))})", keys).fetchall()


def folded_rows(c: sqlite3.Connection, filters: catalog.JobFilter, now_ns: int) -> list[JsonObject]:
    """As `job_rows`, but each array as one row (`is_array`), newest first."""
    found = arrays.folded(c, filters, filters.limit)
    found += job_rows(c, replace(filters, single=True), now_ns)
    return sorted(found, key=lambda row: str(row["submitted_at"]), reverse=True)[: filters.limit]


def _row(
    job: Job, engine: str, attempt: sqlite3.Row | None, metrics: dict[str, float | str],
    trackers: list[JsonObject], now_ns: int,
) -> JsonObject:  # fmt: skip
    return {
        **_head(job, engine, attempt["engine_id"] if attempt else None, now_ns),
        "cause": job.cause
        or (json.loads(attempt["cause"]) if attempt and attempt["cause"] else None),
        "progress": trackers,
        "metrics": metrics,
        "page": None,
        "image": job.spec.image or job.spec.definition.get("image"),
        "definition": job.spec.definition,
    }


def _waiting(
    c: sqlite3.Connection, job: Job, last: sqlite3.Row | None, before: Mapping[int, int]
) -> JsonObject | None:
    known = catalog.states_of(c, job.spec.after).values() if job.spec.after else ()
    return list_extras.waits_for(last, known, before.get(job.pk))


def open_rows(c: sqlite3.Connection, jobs_max: int, now_ns: int) -> list[JsonObject]:
    """What `hw watch` shows of all jobs that have not ended: those that run first, then those that
    wait.
    """
    jobs: list[Job] = []
    for states in (["running", "stopping", "unknown", "held"], ["waiting"]):
        jobs += catalog.list_jobs(c, catalog.JobFilter(states=states, limit=jobs_max - len(jobs)))
    used = live_read.usage_last(c, [job.pk for job in jobs])
    rows = rows_of(c, jobs, now_ns)
    return [row | {"usage": used.get(job.pk)} for job, row in zip(jobs, rows, strict=True)]


def count_jobs(c: sqlite3.Connection) -> dict[str, int]:
    rows = c.execute(
        "SELECT state, count(*) AS jobs FROM jobs WHERE deleted_ns IS NULL GROUP BY state"
    )
    return {row["state"]: row["jobs"] for row in rows}


# Steps from name to name through the index, so that a thousand ranks cost no more than one. What
# was printed before the program logged a metric of that name (`printed/loss`) is no news any more.
_LATEST = """
WITH RECURSIVE n (name) AS (
  SELECT min(name) FROM series WHERE job = :pk
  UNION ALL
  SELECT (SELECT min(s.name) FROM series s WHERE s.job = :pk AND s.name > n.name) FROM n WHERE n.name IS NOT NULL
)
SELECT n.name, (
  SELECT l.value FROM series s JOIN latest l ON l.series = s.pk WHERE s.job = :pk AND s.name = n.name
    AND s.attempt = (SELECT max(attempt) FROM series WHERE job = :pk AND name = n.name)
  ORDER BY s.rank, l.time_ns DESC LIMIT 1
) AS value FROM n WHERE n.name IS NOT NULL AND NOT ((n.name LIKE 'printed/%' OR n.name LIKE 'tensorboard/%') AND EXISTS (
  SELECT 1 FROM series s WHERE s.job = :pk AND s.name = substr(n.name, instr(n.name, '/') + 1)
)) LIMIT :limit"""


def latest_metrics(
    c: sqlite3.Connection, pk: int, names_max: int | None = None
) -> dict[str, float | str]:
    """Last value by name: of the last attempt that has the metric, and there of the lowest rank."""
    rows = c.execute(_LATEST, {"pk": pk, "limit": -1 if names_max is None else names_max})
    return {
        row["name"]: number(struct.unpack("<d", row["value"])[0])
        for row in rows
        if row["value"] is not None
    }


def latest_metric(c: sqlite3.Connection, pk: int, name: str) -> float | str | None:
    """The last value of one metric, likewise."""
    row = c.execute(
        """SELECT l.value FROM series s JOIN latest l ON l.series = s.pk
           WHERE s.job = :pk AND s.name = :name
           ORDER BY s.attempt DESC, s.rank, l.time_ns DESC LIMIT 1""",
        {"pk": pk, "name": name},
    ).fetchone()
    return None if row is None else number(struct.unpack("<d", row["value"])[0])


# -- metrics


def metrics_object(
    c: sqlite3.Connection,
    pk: int,
    names: list[str] | None = None,
    rank: int | None = None,
    points: int | None = None,
    *,
    joined: bool = False,
) -> dict[str, list[JsonObject]]:
    """`{name: [{rank attempt step time value}]}`, one entry per rank and attempt, or per rank with
    its attempts `joined`; without `points` every point.
    """
    found: dict[str, list[JsonObject]] = {}
    for one in read_metrics(c, pk, names, rank, points, joined=joined):
        found.setdefault(one.name, []).append(_series_object(one))
    return found


def read_metrics(
    c: sqlite3.Connection,
    pk: int,
    names: list[str] | None = None,
    rank: int | None = None,
    points: int | None = None,
    *,
    joined: bool = False,
) -> list[series.Series]:
    """The series asked for, all names when none is given, refused where they would be too many
    points at once.
    """
    wanted = list(dict.fromkeys(names)) if names else series.names(c, pk)
    if points is None and (count := series.count_points(c, pk, names, rank)) > METRIC_POINTS_MAX:
        raise RefusedError(
            f"that is {count:,} points; at most {METRIC_POINTS_MAX:,} at once",
            "ask with -m or --points",
        )
    if joined:
        redone = redone_steps.RedoneSteps(c, pk)
        return [one for name in wanted for one in redone.read(name, rank, points)]
    return [one for name in wanted for one in series.read_series(c, pk, name, rank, points)]


def _series_object(one: series.Series) -> JsonObject:
    values: list[float | str] = one.points.values.tolist()
    for place in np.flatnonzero(~np.isfinite(one.points.values)).tolist():
        values[place] = number(float(values[place]))
    times = np.datetime_as_string(one.points.times_us.view("<M8[us]"), timezone="UTC").tolist()
    return {
        "rank": one.rank,
        "attempt": one.attempt,
        "step": one.points.steps.tolist(),
        "time": times,
        "value": values,
    }


def metrics_columns(jobs: list[tuple[str, list[series.Series]]]) -> bytes:
    """The binary form: b"HWC1", header length, header, then step, time (µs) and value of each
    series.
    """
    head = [
        {
            "id": job_id,
            "name": one.name,
            "rank": one.rank,
            "attempt": one.attempt,
            "rows": len(one.points),
        }
        for job_id, found in jobs
        for one in found
    ]
    text = json.dumps({"series": head}).encode()
    columns = [
        column.tobytes()
        for _, found in jobs
        for one in found
        for column in (one.points.steps, one.points.times_us, one.points.values)
    ]
    return b"".join([b"HWC1", len(text).to_bytes(4, "little"), text, *columns])


# -- parts of a job


def provenance(c: sqlite3.Connection, pk: int) -> JsonObject | None:
    row = c.execute("SELECT provenance FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
    found: JsonObject | None = json.loads(row["provenance"]) if row and row["provenance"] else None
    return found


def events(c: sqlite3.Connection, pk: int, after: int = 0, limit: int = 10_000) -> list[JsonObject]:
    """What happened to a job, in order. `seq` of the last one is `after` of the next call."""
    rows = c.execute(
        "SELECT * FROM events WHERE job = :pk AND pk > :after ORDER BY pk LIMIT :limit",
        {"pk": pk, "after": after, "limit": limit},
    )
    return [
        {
            "seq": row["pk"], "time": iso(row["time_ns"]), "type": row["type"], "attempt": row["attempt"],
            "rank": row["rank"], "data": json.loads(row["data"]),
        }
        for row in rows
    ]  # fmt: skip


def streams(c: sqlite3.Connection, pk: int, paths: Paths) -> list[JsonObject]:
    rows = c.execute(
        """SELECT s.name, s.kind, s.rank, s.position, t.name AS task, a.number AS attempt, j.uuid FROM streams s
           JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt JOIN jobs j ON j.pk = a.job
           WHERE j.pk = :pk ORDER BY a.number, t.pk, s.name""",
        {"pk": pk},
    )
    return [_stream(row, str(paths.logs.absolute())) for row in rows]


def _stream(row: sqlite3.Row, logs: str) -> JsonObject:
    path = log_path(logs, row["uuid"], row["attempt"], row["task"], row["name"])
    return {
        "task": row["task"], "attempt": row["attempt"], "name": row["name"], "kind": row["kind"], "rank": row["rank"],
        "position": row["position"], "path": path if row["kind"] == RAW else None,
    }  # fmt: skip


def gaps(c: sqlite3.Connection, pk: int) -> list[JsonObject]:
    """Everything that is missing, with its reason (P5)."""
    rows: Iterable[sqlite3.Row] = c.execute(
        """SELECT g.*, s.name AS stream_name, t.name AS task, a.number AS attempt FROM gaps g
           JOIN streams s ON s.pk = g.stream JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt
           WHERE a.job = :pk ORDER BY g.time_ns, g.stream, g.offset""",
        {"pk": pk},
    )
    return [
        {
            "attempt": row["attempt"], "task": row["task"], "stream": row["stream_name"], "offset": row["offset"],
            "bytes": row["bytes"], "records": row["records"], "points": row["points"], "reason": row["reason"],
            "time": iso(row["time_ns"]),
        }
        for row in rows
    ]  # fmt: skip

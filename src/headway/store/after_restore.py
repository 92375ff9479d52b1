"""What the files of a home say of jobs after a restore, where the journal does not say it.

A restored database is older than the world. So nothing that may have run is run again: a job that
waits in it, but has left output, a spool or a folder of results, becomes `unknown`, for good, and a
person decides (`hw resubmit`). So does one that ran then and of which nothing is left. A task that
runs and is in no catalog is adopted from its spool. Called by the store in a writer's transaction.
"""

import hashlib
import json
import os
import re
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from headway.home.ownership import is_mine
from headway.home.paths import Paths
from headway.model.errors import HeadwayError
from headway.model.finding import Finding
from headway.model.job import JobSpec, State
from headway.model.json_types import JsonObject
from headway.store import catalog
from headway.wire.batch import TaskKey

_TASK = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<attempt>[0-9]{1,9})-"
    r"(?P<task>[a-z][a-z0-9-]{0,40})\Z"
)


# as `server/control` tells it
_TOLD_STATE = re.compile(
    r"headway\.control (\S+) is (?:running|succeeded|failed|stopped|held|unknown)\b"
)


@dataclass(slots=True)
class Settled:
    """What was decided, by the jobs' ids."""

    unknown: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = []
        if self.unknown:
            parts.append(
                f"how {len(self.unknown)} jobs ended is not known ({_some(self.unknown)}): they are not "
                "run again; hw resubmit ID does"
            )
        if self.adopted:
            parts.append(
                f"{len(self.adopted)} jobs were adopted from their spools ({_some(self.adopted)})"
            )
        return "; ".join(parts)


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:5]) + (" …" if len(ids) > 5 else "")


def settle(c: sqlite3.Connection, paths: Paths, now_ns: int) -> Settled:
    found = Settled()
    spools = _spools(paths)
    for folder, match in spools:
        if job_id := _adopt(c, folder, match, now_ns):
            found.adopted.append(job_id)
    in_spool = {match["uuid"] for _, match in spools}
    begun = _begun_by_log(paths)
    rows = c.execute(
        """SELECT pk, id, uuid, engine, state FROM jobs WHERE ended_ns IS NULL AND deleted_ns IS NULL
             AND state NOT IN ('succeeded', 'failed', 'stopped')"""
    ).fetchall()
    for row in rows:
        if row["uuid"] not in in_spool and _is_lost(c, paths, row, begun):
            _give_up(c, row["pk"], now_ns)
            found.unknown.append(row["id"])
    return found


def _begun_by_log(paths: Paths) -> set[str]:
    """Ids of jobs that the server's log calls started. It is bounded, so this is one sign of many."""
    found: set[str] = set()
    for path in (paths.server_log.with_name(paths.server_log.name + ".1"), paths.server_log):
        try:
            text = path.read_text("utf-8", errors="replace")
        except OSError:
            continue
        found.update(_TOLD_STATE.findall(text))
    return found


def _is_lost(c: sqlite3.Connection, paths: Paths, row: sqlite3.Row, begun: set[str]) -> bool:
    """Whether it has run, or more of it than is known, and nobody is left who could say how."""
    last = c.execute(
        "SELECT number, ended_ns FROM attempts WHERE job = ? ORDER BY number DESC LIMIT 1",
        (row["pk"],),
    ).fetchone()
    logs = paths.logs / row["uuid"]
    if last is None:
        return row["id"] in begun or logs.exists() or (paths.output / str(row["id"])).exists()
    if (logs / str(last["number"] + 1)).exists():
        return True  # a later try than the last one that is known
    if last["ended_ns"] is not None or str(row["engine"]) != "local":
        return False  # it waits for its next try; or a scheduler says what became of it
    return bool(row["state"] != "waiting") or (logs / str(last["number"])).exists()


def _give_up(c: sqlite3.Connection, pk: int, now_ns: int) -> None:
    """Final: it holds no place in the queue."""
    text = "the database was restored, and how it ended is not in it; to run it again: hw resubmit"
    cause = json.dumps(Finding("restored", "unknown", text).as_cause())
    c.execute(
        """UPDATE jobs SET state = :state, state_since_ns = max(state_since_ns, :now), ended_ns = :now,
             cause = :cause WHERE pk = :pk""",
        {"pk": pk, "state": str(State.UNKNOWN), "now": now_ns, "cause": cause},
    )
    c.execute(
        "UPDATE attempts SET state = :state, ended_ns = :now WHERE job = :pk AND ended_ns IS NULL",
        {"pk": pk, "state": str(State.UNKNOWN), "now": now_ns},
    )
    catalog.add_event(c, pk, "state", {"to": str(State.UNKNOWN), "because": "restored"}, now_ns)


def _spools(paths: Paths) -> list[tuple[Path, "re.Match[str]"]]:
    try:
        names = sorted(os.listdir(paths.spool))
    except OSError:
        return []
    return [(paths.spool / name, match) for name in names if (match := _TASK.match(name))]


def _adopt(c: sqlite3.Connection, folder: Path, match: "re.Match[str]", now_ns: int) -> str | None:
    """A job of a task that is in no catalog, made from what its agent was told; None where it is
    known, or cannot be made.
    """
    uuid, number = match["uuid"], int(match["attempt"])
    if c.execute("SELECT 1 FROM jobs WHERE uuid = ?", (uuid,)).fetchone() is not None:
        return None
    task = _load(folder / "task.json")
    if task is None or task.get("attached"):
        return None  # an attached one registers again by itself
    job_id = str(task.get("id") or "")
    name, _, suffix = job_id.rpartition("-")
    token_id, _, secret = str(task.get("token") or "").partition(".")
    try:
        spec = JobSpec([str(word) for word in task["argv"]], str(task["cwd"]), name or "adopted")
        job = catalog.insert_job(c, uuid, spec, now_ns, "local", suffix or None)
        catalog.insert_attempt(c, job.pk, number, f"{uuid}-{number}", now_ns)
        catalog.set_attempt(c, job.pk, number, engine_id=f"{uuid}-{number}-{match['task']}")
        catalog.insert_task(c, job.pk, number, match["task"], str(task.get("node") or ""))
        catalog.set_job_state(c, job.pk, State.RUNNING, now_ns, started_ns=now_ns)
        if secret:
            key = TaskKey(uuid, number, match["task"])
            digest = hashlib.sha256(secret.encode()).digest()
            catalog.insert_token(c, token_id, digest, "ingest", key, now_ns)
    except (HeadwayError, KeyError, TypeError, ValueError):
        return None
    text = "it was not in the restored database, and was adopted from its spool"
    catalog.add_event(c, job.pk, "note", {"level": "warning", "text": text}, now_ns)
    return job.id


def _load(path: Path) -> JsonObject | None:
    try:
        with open(path, "rb") as file:
            if not is_mine(os.fstat(file.fileno())):
                return None
            value = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

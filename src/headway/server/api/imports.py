"""`POST /api/imports`: a run that another tracker kept becomes a job that has ended.

Its records come by `/agent/ingest`, at the offsets that the answer tells, as an agent's would: so
the same import may be made twice, or go on where an earlier one ended, and doubles nothing.
"""

from sqlite3 import Connection

import msgspec

from headway.model.errors import RefusedError, UsageError
from headway.model.ids import check_name, name_from_command
from headway.model.job import State
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route
from headway.server.control import submit_check
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store import catalog
from headway.wire.batch import TaskKey
from headway.wire.redact import mask_argv

TASK = "worker-0"
STATES = {"succeeded": State.SUCCEEDED, "failed": State.FAILED, "stopped": State.STOPPED}


class Imported(msgspec.Struct, forbid_unknown_fields=True):
    uuid: str
    name: str
    source: str  # wandb mlflow tensorboard csv
    started_ns: int
    ended_ns: int
    state: str = "succeeded"
    experiment: str | None = None
    command: list[str] = []
    cwd: str = "/"
    user: str = ""
    host: str = ""
    tags: list[str] = []
    exit_code: int | None = None


def _plain_name(text: str) -> str:
    try:
        return check_name(text)
    except UsageError:
        return name_from_command([text])


async def imports(call: Call) -> Reply:
    told = call.read(Imported)
    if told.state not in STATES:
        raise UsageError(f"{told.state[:40]!r} is no end of a job", f"valid: {', '.join(STATES)}")
    if not 0 < told.started_ns <= told.ended_ns < 2**62:
        raise UsageError("a run ends after it has started")
    spec = submit_check.job_spec(
        {
            "command": mask_argv(told.command) or ["imported", told.source],
            "cwd": told.cwd,
            "name": _plain_name(told.name),
            "experiment": _plain_name(told.experiment) if told.experiment else None,
            "user": told.user,
            "host": told.host,
            "tags": told.tags,
            "attached": True,
        }
    )
    key = TaskKey(submit_check.job_uuid(told.uuid), 1, TASK)

    def work(c: Connection) -> JsonObject:
        job = catalog.insert_job(c, key.uuid, spec, told.started_ns)
        is_new = not job.attempts
        if not is_new and not job.spec.attached:
            raise RefusedError(f"{job.id} is a job of this server, not an imported run")
        if is_new:
            catalog.insert_attempt(c, job.pk, 1, f"{key.uuid}-1", told.started_ns)
            catalog.insert_task(c, job.pk, 1, TASK, told.host or None)
            state = STATES[told.state]
            ends = {"started_ns": told.started_ns, "ended_ns": told.ended_ns}
            catalog.set_attempt(c, job.pk, 1, state=state, exit_code=told.exit_code, **ends)
            catalog.set_job_state(
                c, job.pk, State.RUNNING, told.started_ns, started_ns=told.started_ns
            )
            catalog.set_job_state(
                c, job.pk, state, told.ended_ns, exit_code=told.exit_code, ended_ns=told.ended_ns
            )
            catalog.add_event(
                c, job.pk, "imported", {"source": told.source}, told.ended_ns, attempt=1
            )
            c.execute("DELETE FROM changes WHERE job = ?", (job.pk,))  # nobody is told of old ends
        elif job.ended_ns is not None and told.ended_ns > job.ended_ns:
            c.execute("UPDATE jobs SET ended_ns = ? WHERE pk = ?", (told.ended_ns, job.pk))
        rows = c.execute(
            """SELECT s.name, s.position FROM streams s JOIN tasks t ON t.pk = s.task
               JOIN attempts a ON a.pk = t.attempt WHERE a.job = ?""",
            (job.pk,),
        )
        streams = {row["name"]: row["position"] for row in rows}
        return {"id": job.id, "attempt": 1, "task": TASK, "is_new": is_new, "streams": streams}

    return reply_json(await call.services.write(work), 201)


ROUTES = [Route("POST", "/api/imports", Role.ADMIN, imports, answer=contract.ImportedRun)]

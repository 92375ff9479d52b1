"""What Control writes, each function one transaction of the store's writer. Called by `control.py`."""

from collections.abc import Iterable, Mapping
from sqlite3 import Connection

from headway.engines.protocol import EngineId, Plan
from headway.model.job import ENDED, Job, JobSpec, State
from headway.model.json_types import JsonObject
from headway.server.control.reconcile import Again, SetState
from headway.store import catalog
from headway.wire.batch import TaskKey


def set_engine_id(pk: int, number: int, engine_id: EngineId, c: Connection) -> None:
    catalog.set_attempt(c, pk, number, engine_id=engine_id)


def insert_attempt(
    pk: int,
    plan: Plan,
    key: str,
    tokens: Mapping[str, tuple[str, bytes]],
    now_ns: int,
    c: Connection,
) -> None:
    catalog.insert_attempt(c, pk, plan.attempt, key, now_ns)
    for task in plan.tasks:
        catalog.insert_task(c, pk, plan.attempt, task.name, task.node)
    insert_tokens(plan, tokens, now_ns, c)


def insert_tokens(
    plan: Plan, tokens: Mapping[str, tuple[str, bytes]], now_ns: int, c: Connection
) -> None:
    for name, (token_id, digest) in tokens.items():
        catalog.insert_token(c, token_id, digest, "ingest", plan.task_key(name), now_ns)


def apply_state(action: SetState, word: str | None, c: Connection) -> None:
    """Job and attempt take the state together; `word`: the engine's own for it, where it has a new
    one.
    """
    values: JsonObject = {
        "exit_code": action.exit_code,
        "signal": action.signal,
        "started_ns": action.started_ns,
        "ended_ns": action.ended_ns,
    }
    own = action.cause if action.number is None else None
    catalog.set_job_state(c, action.pk, action.state, action.since_ns, **values, cause=own)
    if action.number is not None:
        _set_attempt(c, action, action.number, word)


def _set_attempt(
    c: Connection, action: SetState, number: int, word: str | None, **more: object
) -> None:
    values: JsonObject = {
        "exit_code": action.exit_code,
        "signal": action.signal,
        "started_ns": action.begun_ns,
        "ended_ns": action.ended_ns,
        "engine_word": word,
        "cause": action.cause,
        "findings": action.findings,
    }
    known = {name: value for name, value in values.items() if value is not None}
    if action.ended_ns is not None:
        known["cause"] = action.cause  # also none: what was thought before is not true any more
    catalog.set_attempt(c, action.pk, number, state=action.state, **known, **more)


def apply_again(action: Again, word: str | None, c: Connection) -> None:
    """The attempt ends and the job waits for the next one, together: nobody sees the one without
    the other.
    """
    end = action.end
    _set_attempt(c, end, action.number, word, retry=action.retry)
    catalog.wait_again(c, action.pk, end.since_ns, end.started_ns)
    told = {
        **action.retry,
        "cause": (end.cause or {}).get("cause"),
        "because": (end.cause or {}).get("text"),
    }
    told |= {"exit_code": end.exit_code, "signal": end.signal}
    catalog.add_event(c, action.pk, "retry", told, end.since_ns, attempt=action.number)


def apply_states(actions: Iterable[SetState], c: Connection) -> None:
    for action in actions:
        apply_state(action, None, c)


def delete(job: Job, now_ns: int, c: Connection) -> None:
    if job.state not in ENDED:  # unknown for good: given up with this
        catalog.set_job_state(c, job.pk, State.STOPPED, max(now_ns, job.state_since_ns))
    catalog.mark_deleted(c, job.pk, now_ns)


def insert_attached(
    c: Connection,
    key: TaskKey,
    spec: JobSpec,
    token_id: str,
    digest: bytes,
    begun_ns: int,
    now_ns: int,
) -> Job:
    """Job, attempt, task and token in one step; said again, only a further token."""
    job = catalog.insert_job(c, key.uuid, spec, begun_ns)
    if not job.attempts:
        catalog.insert_attempt(c, job.pk, key.attempt, f"{key.uuid}-{key.attempt}", now_ns)
        catalog.insert_task(c, job.pk, key.attempt, key.task, spec.host or None)
        catalog.set_job_state(c, job.pk, State.RUNNING, now_ns, started_ns=begun_ns)
        changes = {"engine_id": str(key), "state": State.RUNNING, "started_ns": begun_ns}
        catalog.set_attempt(c, job.pk, key.attempt, **changes)
    catalog.insert_token(c, token_id, digest, "ingest", key, now_ns)
    return job


def flush(
    times: Mapping[TaskKey, int], words: Mapping[tuple[int, int], str], c: Connection
) -> None:
    """When agents were heard, and engines' words, for which no commit of their own was worth it."""
    catalog.heard(c, times)
    for (pk, number), word in words.items():
        catalog.set_attempt(c, pk, number, engine_word=word)


def end_tokens(tasks: list[TaskKey], now_ns: int, c: Connection) -> None:
    for task in tasks:
        catalog.end_tokens(c, task, now_ns)

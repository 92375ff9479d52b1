"""What the loop has done in a thread: asking an engine, planning, starting. Called by `loop.py`
through `Calls`.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headway.engines.protocol import Engine, EngineId, Given, Observation, Plan
from headway.model.errors import HeadwayError, RefusedError
from headway.model.job import Attempt, Job, JobSpec, State
from headway.model.json_types import JsonMapping, JsonObject
from headway.server.control import env_file, folder_check
from headway.server.control.blocking_calls import Calls
from headway.server.control.task_tokens import Keyring
from headway.store import arrays, catalog, series
from headway.store.database import Store

log = logging.getLogger("headway.control")


def with_private(spec: JobSpec, private: env_file.Private | None) -> JobSpec:
    """With the commands as they were given, where they are still known."""
    if private is None:
        return spec
    roles = [
        replace(role, command=private.roles.get(role.name, role.command)) for role in spec.roles
    ]
    return replace(spec, command=private.command, roles=roles)


def attempt_of(job: Job, number: int) -> Attempt | None:
    return next((attempt for attempt in job.attempts if attempt.number == number), None)


def start_of(attempt: Attempt) -> str:
    """The name of the call that starts it."""
    return f"start of {attempt.key}"


def look_at(
    engine: Engine, attempts: Sequence[Attempt]
) -> tuple[dict[str, EngineId], dict[str, Observation]]:
    """Ids by key, also of attempts whose submit was never answered, and what the engine says of
    each.
    """
    ids: dict[str, EngineId] = {}
    found: dict[str, Observation] = {}
    for attempt in attempts:
        engine_id = (
            EngineId(attempt.engine_id)
            if attempt.engine_id is not None
            else engine.find(attempt.key)
        )
        if engine_id is None:
            found[attempt.key] = Observation("gone", "not submitted")
        else:
            ids[attempt.key] = engine_id
    seen = engine.observe(list(ids.values()))
    return ids, found | {
        key: seen[engine_id] for key, engine_id in ids.items() if engine_id in seen
    }


def plan_all(
    engine: Engine, starts: Sequence[tuple[Job, int]]
) -> dict[tuple[int, int], Plan | Exception]:
    """By the job's pk and the number of the attempt."""
    found: dict[tuple[int, int], Plan | Exception] = {}
    for job, number in starts:
        try:
            found[job.pk, number] = engine.plan(job, number)
        # an engine may fail in any way, over one job and not over the next
        except Exception as error:
            found[job.pk, number] = error
    return found


def given(
    private: env_file.Private,
    tokens: Mapping[str, str],
    secret_names: list[str],
    tls: JsonMapping | None,
) -> Given:
    """What an attempt gets that is never printed. UsageError for keys of accounts that are none."""
    variables = dict(private.env)
    accounts = folder_check.take_keys(variables)
    return Given(variables, dict(tokens), secret_names, tls, accounts)


def start(
    engine: Engine,
    job: Job,
    attempt: Attempt,
    env: Path,
    keyring: Keyring,
    secret_names: list[str],
    tls: JsonMapping | None,
) -> EngineId:
    """Where its environment is gone, only what has been started can be adopted."""
    private = env_file.of_job(env, job.uuid, job.spec)
    if private is not None:
        plan = engine.plan(replace(job, spec=with_private(job.spec, private)), attempt.number)
        return engine.submit(plan, attempt.key, given(private, keyring.of(plan), secret_names, tls))
    engine_id = engine.find(attempt.key)
    if engine_id is None:
        raise RefusedError("the environment that it was submitted with is gone", "submit it again")
    return engine_id


async def nowhere() -> JsonObject | None:
    """The address of a server that listens on its socket alone."""
    return None


def sweep_private(store: Store, env: Path) -> None:
    """Remove what an earlier server left of jobs that are over."""
    with store.read() as c:
        uuids = catalog.open_uuids(c)
    env_file.sweep(env, uuids)


def forget_private(store: Store, env: Path, jobs: Sequence[Job]) -> None:
    """Remove what may not outlive these jobs; of an array, with its last job."""
    for job in jobs:
        try:
            _forget_private(store, env, job)
        except (OSError, HeadwayError) as error:
            log.error(
                "the environment of %s could not be removed, it stays until the next start: %s",
                job.id,
                error,
            )


def _forget_private(store: Store, env: Path, job: Job) -> None:
    if job.spec.array is not None:
        with store.read() as c:
            if arrays.has_open_jobs(c, job.spec.array):
                return
    env_file.remove(env, job.spec.array or job.uuid)


def states_of(store: Store, uuids: Collection[str]) -> dict[str, tuple[str, State | None]]:
    with store.read() as c:
        return catalog.states_of(c, sorted(uuids))


async def how_far(calls: Calls, store: Store, jobs: Sequence[Job]) -> dict[int, dict[int, int]]:
    """How far each attempt came of jobs whose last one has ended and that may be tried again, by
    pk.
    """
    over = [job.pk for job in jobs if job.spec.retry.max > 0 and _has_told(job)]
    return await calls.run("the store", _steps, store, over) if over else {}


def _has_told(job: Job) -> bool:
    return bool(job.attempts and job.attempts[-1].tasks) and all(
        t.result or t.held for t in job.attempts[-1].tasks
    )


def _steps(store: Store, pks: Sequence[int]) -> dict[int, dict[int, int]]:
    with store.read() as c:
        return {pk: series.reached(c, pk) for pk in pks}

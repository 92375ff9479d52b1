"""Starts and stops of many jobs that an engine does with fewer calls than one for each. Called by `loop.py`.

Only attempts whose intent was stored in the same look start together: nothing of them can have been submitted before.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headway.engines.protocol import Engine, EngineId, Start, Together, has_route
from headway.model.errors import HeadwayError, RefusedError, UnreachableError
from headway.model.job import Attempt, Job, JobSpec
from headway.server import envfile, errand
from headway.server.calls import Calls
from headway.server.reconcile import Action, Cancel, Launch, NewAttempt

AT_ONCE = 64  # jobs of no array that start with one call: it must end in time


class One(NamedTuple):
    job: Job
    attempt: Attempt
    tokens: Mapping[str, str]
    secret_names: list[str]


def starts(
    actions: Sequence[Action], jobs: Mapping[int, Job], tokens: Mapping[str, Mapping[str, str]],
    secret_names: Callable[[JobSpec], list[str]],
) -> list[One]:  # fmt: skip
    """What starts for the first time, and whose intent has just been stored."""
    fresh = {(action.pk, action.number) for action in actions if isinstance(action, NewAttempt)}
    found = []
    for action in actions:
        if not isinstance(action, Launch) or (action.pk, action.number) not in fresh:
            continue
        job = jobs[action.pk]
        attempt = next((one for one in job.attempts if one.number == action.number), None)
        if attempt is not None and attempt.key in tokens:
            found.append(One(job, attempt, tokens[attempt.key], secret_names(job.spec)))
    return found


async def start(
    ones: Sequence[One], calls: Calls, engine_of: Callable[[JobSpec], Engine | None], env: Path,
    reach: Callable[[], Awaitable[Mapping[str, Any] | None]],
    launched: Callable[[Job, Attempt, EngineId | HeadwayError], Awaitable[None]],
) -> set[int]:  # fmt: skip
    """Start what goes together, and say of each what came of it; jobs that were taken care of, by pk. `reach`: where
    agents on other machines find this server."""
    done: set[int] = set()
    for place, engine, some in portions(ones, engine_of):
        done |= {one.job.pk for one in some}
        try:
            tls = await reach() if has_route(engine) else None
            found = await calls.run(f"starts on {place}", start_all, engine, some, env, tls)
        # an engine may fail in any way; what it has started meanwhile is found again
        except Exception as error:
            found = dict.fromkeys([one.attempt.key for one in some], UnreachableError(str(error)))
        for one in some:
            await launched(one.job, one.attempt, found[one.attempt.key])
    return done


def portions(
    ones: Sequence[One], engine_of: Callable[[JobSpec], Engine | None]
) -> Iterator[tuple[str, Together, list[One]]]:
    """By place, those of one array all at once and the others some at a time; only where that saves calls."""
    for place in dict.fromkeys(one.job.spec.place for one in ones):
        mine = [one for one in ones if one.job.spec.place == place]
        engine = engine_of(mine[0].job.spec)
        if not isinstance(engine, Together) or len(mine) < 2:
            continue
        for array in dict.fromkeys(one.job.spec.array for one in mine):
            same = [one for one in mine if one.job.spec.array == array]
            size = AT_ONCE if array is None else len(same)
            for at in range(0, len(same), size):
                yield place, engine, same[at : at + size]


def start_all(
    engine: Together, ones: Sequence[One], env: Path, tls: Mapping[str, Any] | None = None
) -> dict[str, EngineId | HeadwayError]:
    """In a thread: by key, what the engine has made of each, or why it has not."""
    found: dict[str, EngineId | HeadwayError] = {}
    ready = []
    for one in ones:
        private = envfile.of_job(env, one.job.uuid, one.job.spec)
        if private is None:
            found[one.attempt.key] = RefusedError("the environment that it was submitted with is gone", "submit again")
            continue
        spec = errand.with_private(one.job.spec, private)
        try:
            plan = engine.plan(replace(one.job, spec=spec), one.attempt.number)
            given = errand.given(private, one.tokens, one.secret_names, tls)
        except HeadwayError as error:
            found[one.attempt.key] = error
            continue
        ready.append(Start(plan, one.attempt.key, given, spec.array, spec.array_index))
    return found | engine.submit_many(ready)


async def stop(
    actions: Sequence[Action], jobs: Mapping[int, Job], calls: Calls, engine_of: Callable[[JobSpec], Engine | None]
) -> list[Job]:
    """Jobs that only waited in an engine's queue and were told to stop. The others are told one by one."""
    done: list[Job] = []
    for place, engine, some in stops(actions, jobs, engine_of):
        ids = {EngineId(str(job.attempts[-1].engine_id)): job for job in some}
        with contextlib.suppress(HeadwayError):
            done += [
                ids[engine_id] for engine_id in await calls.run(f"stops on {place}", engine.cancel_many, list(ids))
            ]
    return done


def stops(
    actions: Sequence[Action], jobs: Mapping[int, Job], engine_of: Callable[[JobSpec], Engine | None]
) -> Iterator[tuple[str, Together, list[Job]]]:
    """By place, jobs that shall stop and that an engine knows."""
    asked = [jobs[action.pk] for action in actions if isinstance(action, Cancel)]
    known = [job for job in asked if job.attempts and job.attempts[-1].engine_id is not None]
    for place in dict.fromkeys(job.spec.place for job in known):
        mine = [job for job in known if job.spec.place == place]
        engine = engine_of(mine[0].spec)
        if isinstance(engine, Together) and len(mine) > 1:
            yield place, engine, mine

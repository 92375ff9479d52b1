"""Starts and stops of many jobs that an engine does with fewer calls than one for each. Called by
`loop.py`.

Starts are handed over: the engine does them in threads, some at a time, and the loop goes on
meanwhile. So a scheduler that is slow, or away, holds up nobody else's jobs (F22). What came of
each is told at one of the next looks.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headway.engines.protocol import Engine, EngineId, Start, Together
from headway.model.errors import HeadwayError, RefusedError, UnreachableError
from headway.model.job import Attempt, Job, JobSpec
from headway.model.json_types import JsonMapping
from headway.model.limits import STARTS_PORTION_MAX, STARTS_PORTIONS_MAX
from headway.server.control import env_file
from headway.server.control.blocking_calls import Calls
from headway.server.control.drain import PATIENCE_S
from headway.server.control.engine_calls import given, with_private
from headway.server.control.reconcile import Action, Cancel, Launch
from headway.server.control.task_tokens import Keyring

Outcome = EngineId | HeadwayError


@dataclass(frozen=True, slots=True)
class One:
    """A start: what to start, and what it gets beside its own."""

    job: Job
    attempt: Attempt
    secret_names: list[str]
    tls: JsonMapping | None


class Starts:
    """What engines were handed over and have not answered for, by place."""

    def __init__(
        self, calls: Calls, env: Path, keyring: Keyring, on_end: Callable[[], None]
    ) -> None:
        self._calls, self._env, self._keyring, self._on_end = calls, env, keyring, on_end
        self._keys: set[str] = set()  # of attempts that wait here or are with their engine
        self._waiting: dict[str, list[One]] = {}
        self._portions: dict[str, int] = {}  # how many are with their engine
        self._ended: list[tuple[One, Outcome]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, engine: Together, ones: Sequence[One]) -> None:
        fresh = [one for one in ones if one.attempt.key not in self._keys]
        self._keys |= {one.attempt.key for one in fresh}
        for one in fresh:
            self._waiting.setdefault(one.job.spec.place, []).append(one)
        for place in {one.job.spec.place for one in fresh}:
            self._begin(place, engine)

    def withdraw(self, keys: Collection[str]) -> None:
        """Whoever does not want to start any more, and has not begun to."""
        for place, waiting in self._waiting.items():
            self._keys -= {one.attempt.key for one in waiting if one.attempt.key in keys}
            self._waiting[place] = [one for one in waiting if one.attempt.key not in keys]

    def take(self) -> list[tuple[One, Outcome]]:
        """What has been answered since the last time."""
        ended, self._ended = self._ended, []
        self._keys -= {one.attempt.key for one, _ in ended}
        return ended

    def _begin(self, place: str, engine: Together) -> None:
        """Two portions at a time: the one is made ready while the other is with the scheduler."""
        while self._waiting.get(place) and self._portions.get(place, 0) < STARTS_PORTIONS_MAX:
            some, self._waiting[place] = _portion(self._waiting[place])
            self._portions[place] = self._portions.get(place, 0) + 1
            future = self._calls.begin(start_all, engine, some, self._env, self._keyring)
            future.add_done_callback(partial(self._end, place, engine, some))

    def _end(
        self,
        place: str,
        engine: Together,
        some: Sequence[One],
        future: "asyncio.Future[dict[str, Outcome]]",
    ) -> None:
        self._portions[place] -= 1
        if future.cancelled():
            return  # the server ends
        error = future.exception()
        # an engine may fail in any way, or leave one out; what it has started meanwhile is found
        # again
        lost = UnreachableError(
            str(error) or repr(error) if error is not None else "nothing was said about this start"
        )
        found = {} if error is not None else future.result()
        outcomes = [(one, found.get(one.attempt.key, lost)) for one in some]
        away = next((what for _, what in outcomes if isinstance(what, UnreachableError)), None)
        if away is not None:  # no sense in asking for each: all of them are tried again later
            outcomes += [(one, away) for one in self._waiting.pop(place, [])]
        self._ended += outcomes
        self._begin(place, engine)
        self._on_end()


def _portion(waiting: Sequence[One]) -> tuple[list[One], list[One]]:
    """What goes next, and the rest. Those of one array go all at once, for they may be one call of
    the engine's.
    """
    array = waiting[0].job.spec.array
    same = [one for one in waiting if one.job.spec.array == array]
    some = same if array is not None else same[:STARTS_PORTION_MAX]
    keys = {one.attempt.key for one in some}
    return some, [one for one in waiting if one.attempt.key not in keys]


def start_all(
    engine: Together, ones: Sequence[One], env: Path, keyring: Keyring
) -> dict[str, Outcome]:
    """In a thread: by key, what the engine has made of each, or why it has not."""
    found: dict[str, Outcome] = {}
    ready: list[Start] = []
    for one in ones:
        try:
            made = _ready(engine, one, env, keyring)
        except HeadwayError as error:
            found[one.attempt.key] = error
            continue
        if isinstance(made, Start):
            ready.append(made)
        else:
            found[one.attempt.key] = made
    return found | (engine.submit_many(ready) if ready else {})


def _ready(engine: Together, one: One, env: Path, keyring: Keyring) -> Start | EngineId:
    """Where its environment is gone, only what has been started can be adopted."""
    private = env_file.of_job(env, one.job.uuid, one.job.spec)
    if private is None:
        known = engine.find(one.attempt.key)
        if known is None:
            raise RefusedError(
                "the environment that it was submitted with is gone", "submit it again"
            )
        return known
    spec = with_private(one.job.spec, private)
    plan = engine.plan(replace(one.job, spec=spec), one.attempt.number)
    own = given(private, keyring.of(plan), one.secret_names, one.tls)
    return Start(plan, one.attempt.key, own, spec.array, spec.array_index)


def launches(
    actions: Sequence[Action],
    jobs: Mapping[int, Job],
    engine_of: Callable[[JobSpec], Engine | None],
) -> Iterator[tuple[Together, list[Launch]]]:
    """By place, what shall start there, where the engine takes many at once."""
    wanted = [action for action in actions if isinstance(action, Launch)]
    for place in dict.fromkeys(jobs[action.pk].spec.place for action in wanted):
        mine = [action for action in wanted if jobs[action.pk].spec.place == place]
        engine = engine_of(jobs[mine[0].pk].spec)
        if isinstance(engine, Together):
            yield engine, mine


async def stop(
    actions: Sequence[Action],
    jobs: Mapping[int, Job],
    calls: Calls,
    engine_of: Callable[[JobSpec], Engine | None],
) -> tuple[list[Job], set[str]]:
    """Jobs that only waited in an engine's queue and were told to stop, and places that cannot be
    asked now. The others are told one by one.
    """
    done: list[Job] = []
    away: set[str] = set()
    for place, engine, some in stops(actions, jobs, engine_of):
        ids = {EngineId(str(job.attempts[-1].engine_id)): job for job in some}
        try:
            call = (f"stops on {place}", engine.cancel_many, list(ids))
            told = await calls.run(*call, patience_s=PATIENCE_S, of=some[0].spec.cluster)
            # a late answer has others, too
            done += [ids[engine_id] for engine_id in told if engine_id in ids]
        except UnreachableError:
            away.add(place)
    return done, away


def stops(
    actions: Sequence[Action],
    jobs: Mapping[int, Job],
    engine_of: Callable[[JobSpec], Engine | None],
) -> Iterator[tuple[str, Together, list[Job]]]:
    """By place, jobs that shall stop and that an engine knows."""
    by_place: dict[str, list[Job]] = {}
    for action in actions:
        if not isinstance(action, Cancel):
            continue
        job = jobs[action.pk]
        if job.attempts and job.attempts[-1].engine_id is not None:
            by_place.setdefault(job.spec.place, []).append(job)
    for place, at_place in by_place.items():
        engine = engine_of(at_place[0].spec)
        if isinstance(engine, Together) and len(at_place) > 1:
            yield place, engine, at_place

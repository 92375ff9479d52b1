"""After the end of a job: its agents may still send, or may have died before they had sent
everything.

`Drain` follows the tasks of jobs that are over until nothing of them is unsent, starts a shipper
where nobody sends (F21), and then ends their tokens. Called by `control.py`.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from headway.engines.protocol import Engine, EngineId, Observation, Salvager
from headway.model.errors import HeadwayError
from headway.model.job import ENDED, Attempt, Job, JobSpec
from headway.server.control.blocking_calls import Calls
from headway.store import catalog
from headway.store.database import Store
from headway.wire.batch import TaskKey

log = logging.getLogger("headway.control")
T = TypeVar("T")

STRAYS_S = 60.0  # between two looks for spools that nobody sends
SALVAGE_FIRST_S = 2.0
SALVAGE_MAX_S = 120.0
# with an engine beyond this machine: jobs of others do not wait for one that is slow or away (F22)
PATIENCE_S = 2.0
LOOK_MAX = 100  # tasks that are over and are looked at in one step
STEP_S = 0.1  # then the others are next: nobody waits for all of many that have ended at once
DONE_MAX = 10_000  # older ones that still have a folder are looked at again now and then
PAUSE_S, PAUSE_MANY_S = 1.0, 0.2  # the second while there are more than one step looks at
# a scheduler that keeps a place for a job whose agents have told its end so long ago is told to end
# it
LINGER_S = 60.0


class Backoff:
    """When a thing may be tried again, by name. Times are monotonic seconds."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next: dict[str, tuple[float, float]] = {}  # name -> (when, wait after that)
        self._why: dict[str, str] = {}

    def is_due(self, name: str, now_s: float) -> bool:
        return name not in self._next or now_s >= self._next[name][0]

    def again(self, name: str, now_s: float, why: str = "") -> bool:
        """Whether it failed for another reason than last time."""
        wait_s = self._next.get(name, (0.0, self._first_s))[1]
        self._next[name] = (now_s + wait_s, min(2 * wait_s, self._longest_s))
        is_new = self._why.get(name) != why
        self._why[name] = why
        return is_new

    def soon(self, name: str, now_s: float) -> None:
        """It has not failed: what it needs is on its way."""
        self._next[name] = (now_s + self._first_s / 4, self._first_s)

    def why(self, name: str) -> str:
        """Why it failed last; empty where it has not."""
        return self._why.get(name, "")

    def forget(self, name: str) -> None:
        self._next.pop(name, None)
        self._why.pop(name, None)


@dataclass(frozen=True, slots=True)
class Left:
    """What an engine may still hold of an attempt that is over."""

    engine: Engine
    tasks: tuple[TaskKey, ...]
    since_s: float
    told: bool  # every task has told its end: nothing of it runs


class Drain:
    def __init__(
        self,
        store: Store,
        calls: Calls,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._calls, self._clock_s = store, calls, clock_s
        self._left: dict[EngineId, Left] = {}
        self._done: dict[EngineId, None] = {}  # found empty by this server, the last ones
        self._again = Backoff(SALVAGE_FIRST_S, SALVAGE_MAX_S)
        self._strays_s: float | None = None

    def add(self, job: Job, attempt: Attempt, engine: Engine) -> None:
        if attempt.engine_id is not None:
            tasks = tuple(TaskKey(job.uuid, attempt.number, task.name) for task in attempt.tasks)
            told = bool(tasks) and all(task.result is not None for task in attempt.tasks)
            self._left[EngineId(attempt.engine_id)] = Left(engine, tasks, self._clock_s(), told)

    @property
    def idle(self) -> bool:
        return not self._left

    @property
    def count(self) -> int:
        return len(self._left)

    def pause_s(self) -> float:
        """Until the next step, should nothing else call for it."""
        return PAUSE_S if len(self._left) <= LOOK_MAX else PAUSE_MANY_S

    async def step(
        self, engines: Mapping[str, Engine], engine_of: Callable[[JobSpec], Engine | None]
    ) -> list[TaskKey]:
        """Look at tasks that are left, in turn; those of which nothing is any more, so that their
        tokens can end.
        """
        now_s = self._clock_s()
        drained: list[TaskKey] = []
        if self._strays_s is None or now_s - self._strays_s >= STRAYS_S:
            self._strays_s = now_s
            drained += await self._find_strays(engines, engine_of)
        found = await self._look(list(islice(self._left, LOOK_MAX)))
        begin_s = self._clock_s()
        for engine_id, seen in found.items():
            if self._clock_s() - begin_s >= STEP_S:
                break
            if await self._is_drained(engine_id, seen):
                drained += self._left.pop(engine_id).tasks
                self._done[engine_id] = None
                self._again.forget(engine_id)
        while len(self._done) > DONE_MAX:
            del self._done[next(iter(self._done))]
        return drained

    async def _look(self, some: Sequence[EngineId]) -> dict[EngineId, Observation]:
        """What the engines say of them, one call each; their next turn is behind all others."""
        asked: dict[int, tuple[Engine, list[EngineId]]] = {}
        for engine_id in some:
            left = self._left[engine_id] = self._left.pop(engine_id)
            asked.setdefault(id(left.engine), (left.engine, []))[1].append(engine_id)
        found: dict[EngineId, Observation] = {}
        for engine, ids in asked.values():
            # of one that is away nothing is known, the others are looked at
            with contextlib.suppress(HeadwayError):
                found |= await self._ask(engine, f"rest of {engine.cluster}", engine.observe, ids)
        return {engine_id: seen for engine_id, seen in found.items() if engine_id in self._left}

    async def _ask(self, engine: Engine, name: str, call: Callable[..., T], *args: object) -> T:
        return await self._calls.run(
            name, call, *args, patience_s=patience_s(engine), of=engine.cluster
        )

    async def _is_drained(self, engine_id: EngineId, seen: Observation) -> bool:
        if seen.state not in ("ended", "gone"):
            await self._end_lingering(engine_id, seen)
            return False
        if seen.detail.get("salvage"):
            await self.salvage(self._left[engine_id].engine, engine_id)
            return False
        if seen.detail.get("started") is False:
            await self._discard(engine_id)
        return seen.state == "gone" or bool(seen.detail.get("drained"))

    async def _discard(self, engine_id: EngineId) -> None:
        """It never began, and never will: what it was given does not stay."""
        engine = self._left[engine_id].engine
        if isinstance(engine, Salvager):
            with contextlib.suppress(HeadwayError):
                await self._ask(engine, f"rest of {engine_id}", engine.discard, engine_id)

    async def _end_lingering(self, engine_id: EngineId, seen: Observation) -> None:
        """The scheduler's own daemons may have died with the job: it would keep its place to the
        end of its time.
        """
        left, now_s = self._left[engine_id], self._clock_s()
        there = seen.state in ("starting", "running")
        due = left.told and left.engine.queues and there and now_s - left.since_s >= LINGER_S
        if not due or not self._again.is_due(engine_id, now_s):
            return
        self._again.again(engine_id, now_s)
        log.warning(
            "%s is over, and %s still keeps a place for it: ending that",
            engine_id,
            left.engine.cluster,
        )
        with contextlib.suppress(HeadwayError):
            await self._ask(left.engine, f"end of {engine_id}", left.engine.cancel, engine_id)

    async def salvage(self, engine: Engine, engine_id: EngineId) -> None:
        """Start a shipper for a task that has none, now and then."""
        if not isinstance(engine, Salvager) or not self._again.is_due(engine_id, self._clock_s()):
            return
        self._again.again(engine_id, self._clock_s())
        if await self._ask(engine, f"salvage of {engine_id}", engine.salvage, engine_id):
            log.info("a shipper was started for what was left of %s", engine_id)

    async def _find_strays(
        self, engines: Mapping[str, Engine], engine_of: Callable[[JobSpec], Engine | None]
    ) -> list[TaskKey]:
        """Tasks of attempts that were over before this server came: by their spools, and by tokens
        that were left open. Returns those that never reached an engine.
        """
        keys = set(await self._calls.run("the store", self._open_tokens))
        for engine in list(engines.values()):
            if isinstance(engine, Salvager):
                with contextlib.suppress(HeadwayError):
                    keys |= await self._strays_of(engine)
        unheard = []
        jobs = await self._calls.run("the store", self._find, keys)
        for key in sorted(keys, key=str):
            job = jobs.get(key.uuid)
            attempt = (
                next((a for a in job.attempts if a.number == key.attempt), None) if job else None
            )
            if job is None or attempt is None or not (is_over(job) or attempt.state in ENDED):
                continue
            if attempt.engine_id is None:
                unheard.append(key)
            elif (
                EngineId(attempt.engine_id) not in self._left
                and (its := engine_of(job.spec)) is not None
            ):
                self.add(job, attempt, its)
        return unheard

    async def _strays_of(self, engine: Engine) -> set[TaskKey]:
        assert isinstance(engine, Salvager)
        found = await self._ask(engine, f"spools of {engine.cluster}", engine.tasks)
        fresh = {engine_id: key for engine_id, key in found if engine_id not in self._done}
        await self._register_strays(engine, fresh)
        return set(fresh.values())

    async def _register_strays(self, engine: Engine, tasks: Mapping[EngineId, TaskKey]) -> None:
        """Scripts that were started without us and whose shipper died before it had told the server
        of them.
        """
        known = await self._calls.run("the store", self._known, set(tasks.values()))
        unknown = [i for i, key in tasks.items() if key not in known]
        seen = await self._ask(engine, f"strays of {engine.cluster}", engine.observe, unknown)
        for engine_id, observation in seen.items():
            if observation.detail.get("salvage") and observation.detail.get("attached"):
                await self.salvage(engine, engine_id)

    def _known(self, keys: Collection[TaskKey]) -> set[TaskKey]:
        with self._store.read() as c:
            return {key for key in keys if catalog.task_row(c, key) is not None}

    def _open_tokens(self) -> list[TaskKey]:
        with self._store.read() as c:
            return catalog.open_tokens(c)

    def _find(self, keys: Collection[TaskKey]) -> dict[str, Job]:
        """Their jobs, by uuid."""
        with self._store.read() as c:
            found = {uuid: catalog.find_uuid(c, uuid) for uuid in {key.uuid for key in keys}}
            return {uuid: catalog.load_job(c, pk) for uuid, pk in found.items() if pk is not None}


def patience_s(engine: Engine) -> float | None:
    """How long the loop waits for an answer; None: as long as calls may take. A later one is kept."""
    return None if is_here(engine) else PATIENCE_S


def is_here(engine: Engine | None) -> bool:
    """Whether its tasks are plain processes of this machine."""
    return engine is not None and engine.name == "local"


def is_over(job: Job) -> bool:
    """Ended, or unknown for good: its agent was killed and its processes are gone."""
    return job.state in ENDED or job.ended_ns is not None

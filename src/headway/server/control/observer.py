"""Sees: what engines say of attempts, when agents last spoke, what there is to start jobs on. Called by
`loop.py` before each decision.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headway.engines.protocol import Observation
from headway.model.errors import HeadwayError
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.control import engine_calls, transactions
from headway.server.control.batch_start import Starts
from headway.server.control.context import Context
from headway.server.control.drain import is_here
from headway.server.control.loop_timing import Misses, Rests
from headway.server.control.reconcile import Seen
from headway.server.health.diagnosis import Diagnoses
from headway.wire.batch import TaskKey

log = logging.getLogger("headway.control")
HEARD_FLUSH_S = 5.0


class Observer:
    def __init__(
        self, context: Context, starts: Starts, diagnoses: Diagnoses, chance: Callable[[], float]
    ) -> None:
        self._context = context
        self._store, self._paths, self._settings = context.store, context.paths, context.settings
        self._calls, self._engines = context.calls, context.engines
        self._clock_ns, self._clock_s = context.clock_ns, context.clock_s
        self._attempts, self._retry = context.attempts, context.retry
        self._starts, self._diagnoses, self._chance = starts, diagnoses, chance
        # of jobs that fail in one look none is due before others
        self._started_s = context.clock_s()
        self._heard_ns: dict[TaskKey, int] = {}  # not flushed yet
        self._flushed_s = context.clock_s()
        self._rests, self._misses = Rests(), Misses()

    async def observe(self, jobs: Sequence[Job]) -> dict[str, Observation]:
        """What each engine says of its attempts. An engine that does not answer says nothing (F22)."""
        asked: dict[str, list[tuple[int, Attempt]]] = {}
        specs: dict[str, JobSpec] = {}
        for job in jobs:
            is_out = bool(job.attempts) and job.ended_ns is None and not job.between_tries
            if not is_out or self._knows_end(job):
                continue
            attempt = job.attempts[-1]
            if attempt.key not in self._starts:
                specs[job.spec.place] = job.spec
                asked.setdefault(job.spec.place, []).append((job.pk, attempt))

        answers = await asyncio.gather(
            *(self._observe_cluster(specs[place], pairs) for place, pairs in asked.items())
        )
        observations: dict[str, Observation] = {}
        for answer in answers:
            observations.update(answer)
        return observations

    def _knows_end(self, job: Job) -> bool:
        """Its agents have told all, and the machine here has no word of its own for it."""
        tasks = job.attempts[-1].tasks
        told = bool(tasks) and all(task.result is not None for task in tasks)
        return told and is_here(self._engines.get_or_none(job.spec))

    async def _observe_cluster(
        self, spec: JobSpec, asked: list[tuple[int, Attempt]]
    ) -> dict[str, Observation]:
        engine, cluster = self._engines.get_or_none(spec), spec.place
        if engine is None:
            return {}
        attempts = [attempt for _, attempt in asked]
        try:
            ids, found = await self._engines.ask(
                engine, f"cluster {cluster}", engine_calls.look_at, engine, attempts
            )
        # an engine may fail in any way; what it did not say is not known, and nothing follows from
        # it (F22)
        except Exception as error:
            log.warning("cluster %s could not be observed: %r", cluster, error)
            return {}
        for pk, attempt in asked:
            if attempt.key in found and found[attempt.key].state_word != attempt.engine_word:
                self._attempts.words[pk, attempt.number] = found[attempt.key].state_word
            # started by a server that died before it said so
            if attempt.engine_id is None and attempt.key in ids:
                attempt.engine_id = ids[attempt.key]
                await self._context.write(
                    partial(transactions.set_engine_id, pk, attempt.number, ids[attempt.key])
                )
        return found

    async def seen(self, jobs: Sequence[Job], observations: Mapping[str, Observation]) -> Seen:
        now_s = self._clock_s()
        nodes, queues = {}, set()
        for cluster, spec in {job.spec.place: job.spec for job in jobs}.items():
            if (engine := self._engines.get_or_none(spec)) is None:
                continue
            with contextlib.suppress(HeadwayError):
                nodes[cluster] = await self._engines.ask(
                    engine, f"room of {cluster}", engine.capacity
                )
            if engine.queues:
                queues.add(cluster)
        keys = [job.attempts[-1].key for job in jobs if job.attempts]
        return Seen(
            now_ns=self._clock_ns(),
            max_running=self._settings.get("max_running"),
            nodes=nodes,
            queues=frozenset(queues),
            observations=observations,
            silent_s={key: now_s - self._last_heard_s(key) for key in keys},
            missed_s=self._misses.since_s(keys, observations, now_s),
            cancelled_s={
                key: now_s - state.cancelled_s
                for key, state in self._attempts.items()
                if state.cancelled_s is not None
            },
            launches={
                key: state.launches for key, state in self._attempts.items() if state.launches
            },
            busy=frozenset(job.pk for job in jobs if self._is_busy(job, now_s)),
            rest_s=self._rests.left_s(jobs, now_s, self._clock_ns()),
            needed=await self._needed(jobs),
            reached=await engine_calls.how_far(self._calls, self._store, jobs),
            diagnoses=self._diagnoses.results(),
            chance=self._chance(),
        )

    async def _needed(self, jobs: Sequence[Job]) -> dict[str, tuple[str, State | None]]:
        """How the jobs stand that others wait for."""
        wanted = {uuid for job in jobs if not job.attempts for uuid in job.spec.after}
        return (
            await self._calls.run("the store", engine_calls.states_of, self._store, wanted)
            if wanted
            else {}
        )

    def _is_busy(self, job: Job, now_s: float) -> bool:
        """A start under way, or one that failed for now and shall wait; a job that was found or
        shall stop does not.
        """
        last = job.attempts[-1] if job.attempts else None
        if last is not None and (
            last.key in self._starts or self._calls.hangs(engine_calls.start_of(last))
        ):
            return True
        reached = last is not None and last.engine_id is not None and not job.between_tries
        return (
            not reached
            and job.stop_requested_ns is None
            and not self._retry.is_due(job.uuid, now_s)
        )

    def heard(self, task: TaskKey) -> None:
        """An agent has spoken (ingest; `commands_for` does it by itself). From any thread."""
        self._attempts.of(f"{task.uuid}-{task.attempt}").heard_s = self._clock_s()
        self._heard_ns[task] = self._clock_ns()

    async def flush(self) -> None:
        self._flushed_s = self._clock_s()
        times, self._heard_ns = self._heard_ns, {}
        words, self._attempts.words = self._attempts.words, {}
        if times or words:
            await self._context.write(partial(transactions.flush, times, words))

    def _last_heard_s(self, key: str) -> float:
        """Nobody is silent for longer than this server listens."""
        state = self._attempts.find(key)
        heard_s = 0.0 if state is None or state.heard_s is None else state.heard_s
        return max(heard_s, self._started_s)

    async def flush_if_due(self) -> None:
        if self._clock_s() - self._flushed_s > HEARD_FLUSH_S:
            await self.flush()

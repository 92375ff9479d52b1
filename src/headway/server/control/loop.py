"""The one loop that turns stored state and observations into writes and engine calls. `Control`
adds the verbs.

Whatever the loop does is written down before (the intent of an attempt) or can be found out again
(`Engine.find`), so a server killed anywhere goes on where it was (P9, P10, F23).
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from sqlite3 import Connection
from typing import Any, Protocol, TypeVar

from headway.code import checkout
from headway.engines.protocol import Distant, Engine, EngineId, Observation, Plan, has_route
from headway.engines.registry import engine_for
from headway.home.paths import Paths
from headway.model.engine_words import NOT_NOW
from headway.model.errors import HeadwayError, UnreachableError, UsageError
from headway.model.finding import Finding
from headway.model.job import Attempt, Job, JobSpec, State
from headway.model.json_types import JsonObject
from headway.model.limits import JOBS_OPEN_MAX, QUEUE_WINDOW, QUEUE_WINDOW_WIDE
from headway.server.control import (
    batch_start,
    engine_calls,
    env_file,
    loop_timing,
    reconcile,
    transactions,
)
from headway.server.control.agent_commands import Mailbox
from headway.server.control.blocking_calls import Calls, LateError
from headway.server.control.deferred_writes import Later
from headway.server.control.drain import Backoff, Drain, is_here, is_over, patience_s
from headway.server.control.loop_timing import IDLE_INTERVAL_S, INTERVAL_S, Misses, Quiet, Rests
from headway.server.control.multi_task import Tell
from headway.server.control.reconcile import (
    Action,
    Again,
    Cancel,
    Diagnose,
    Launch,
    NewAttempt,
    Salvage,
    Seen,
    SetState,
)
from headway.server.control.task_tokens import Keyring
from headway.server.health.diagnosis import Diagnoses
from headway.server.monitor.monitor_queue import Outbox
from headway.settings.clusters import HERE
from headway.store import catalog
from headway.store.database import Store
from headway.wire.batch import TaskKey

log = logging.getLogger("headway.control")
T = TypeVar("T")

# after a look, or as long as it read and thought: many commits are one look, others get their turn
PAUSE_S = 0.002
DRAINS_LATER_MAX = 16  # tasks that are over and are looked at when there is nothing else to do
HEARD_FLUSH_S = 5.0
TELL_AGAIN_S = 5.0
RETRY_FIRST_S = 1.0  # after a start that failed for now; doubles
RETRY_MAX_S = 30.0
STOP_WAIT_S = 2.0  # for an engine that shall stop a job; then its agents are told as well


class Getter(Protocol):
    def get(self, name: str) -> Any: ...


class Loop:
    def __init__(
        self,
        store: Store,
        paths: Paths,
        settings: Getter,
        *,
        make_engine: Callable[..., Engine] = engine_for,
        make_calls: Callable[[Callable[[], None]], Calls] = Calls,
        clock_ns: Callable[[], int] = time.time_ns,
        clock_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._chance = chance
        self._store, self._paths, self._settings = store, paths, settings
        self._make_engine, self._clock_ns, self._clock_s = make_engine, clock_ns, clock_s
        self._engines: dict[str, Engine] = {}
        self._mailbox = Mailbox(clock_ns() // 1_000_000)
        self._calls = make_calls(self.poke)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # of jobs that fail in one look none is due before others
        self._started_s = self._look_s = clock_s()
        self._idle, self._rest_for_s = False, INTERVAL_S
        self._thought_s = 0.0  # how long the last look read and thought; doing is mostly waiting
        self._window = QUEUE_WINDOW
        self._heard_s: dict[str, float] = {}  # attempt key -> when one of its agents last spoke
        self._heard_ns: dict[TaskKey, int] = {}  # not flushed yet
        # engines' own, by job and attempt; not flushed yet
        self._words: dict[tuple[int, int], str] = {}
        self._flushed_s = clock_s()
        self._cancelled_s: dict[str, float] = {}
        # attempt key -> since when its engine does not answer to a stop
        self._stopping_s: dict[str, float] = {}
        self._launches: dict[str, int] = {}
        self._told: dict[tuple[TaskKey, str], float] = {}  # commands that reconcile asked for
        self._late_start: dict[str, str] = {}  # place -> the name of a start there that takes long
        self._keyring = Keyring(store, clock_ns)
        self._starts = batch_start.Starts(self._calls, paths.env, self._keyring, self.poke)
        self._later = Later(store)
        self._full = False  # as many jobs run here as may, so that a new one changes nothing
        self._retry = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._rests, self._quiet, self._misses = Rests(), Quiet(), Misses()
        self._drain = Drain(store, self._calls, clock_s=clock_s)
        self._diagnoses = Diagnoses(store, paths, self._calls, self.poke, clock_s)
        # set by the server; without it no monitor is told of jobs
        self.outbox: Outbox | None = None
        # set by the server: its address
        self.reach: Callable[[], Awaitable[JsonObject | None]] = engine_calls.nowhere

    # -- life of the loop

    async def start(self) -> None:
        """Look at every open job once, then go on looking."""
        self._loop = asyncio.get_running_loop()
        self._store.listen(self._on_change)
        await self.prepare()
        self._task = asyncio.create_task(self._run(), name="headway-control")

    async def prepare(self) -> None:
        """What comes before the first look."""
        # also without open jobs: spools of jobs that are over are looked for there
        self._engine(JobSpec([], "/", HERE, cluster=HERE))
        await self._calls.run("files", engine_calls.sweep_private, self._store, self._paths.env)

    async def stop(self) -> None:
        """End the loop; jobs go on."""
        self._mailbox.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(HeadwayError):
            await self._later.settle()
            await self._flush()
        self._loop = None
        for engine in self._engines.values():
            engine.close()
        self._calls.close()

    def poke(self) -> None:
        """Decide soon. From any thread."""
        loop = self._loop
        if loop is not None:
            # the loop has ended while another thread still finishes
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

    def _on_change(self, job_pk: int, what: str) -> None:
        """What agents tell. What the loop itself and the verbs write they know, and say so where a
        look follows.
        """
        if what in ("facts", "job"):
            self._quiet.note(job_pk)
        if what == "facts":
            self.poke()

    def poke_for(self, engine: Engine) -> None:
        """A job is new. Where it could not start in any case, whoever makes room for it wakes the
        loop.
        """
        if engine.queues or not self._full:
            self.poke()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except HeadwayError as error:
                log.warning("looked in vain: %s", error)
            # a mistake in one look must not end the loop: jobs would then wait for ever
            except Exception:
                log.exception("a look failed")
            await asyncio.sleep(min(max(self._thought_s, PAUSE_S), INTERVAL_S))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._wake.wait(), IDLE_INTERVAL_S if self._idle else self._rest_for_s
                )

    async def look(self) -> None:
        """One round: read, observe, decide, execute."""
        self._wake.clear()
        self._look_s, self._full = self._clock_s(), False
        await self._take_started()
        skip = self._quiet.left_out(self._look_s, self._calls.has_late)
        jobs = await self._calls.run("the store", self._open_jobs, skip)
        self._starts.withdraw(
            {a.key for job in jobs if job.stop_requested_ns is not None for a in job.attempts}
        )
        self._idle = not skip and all(is_over(job) for job in jobs) and self._drain.idle
        observations = await self._observe(jobs)
        if any(observation.state == "gone" for observation in observations.values()):
            # A spool goes only after everything in it was committed. So what is read after the
            # engine has looked tells whether a task is gone because it has ended, or because it
            # never was (P9).
            jobs = await self._calls.run("the store", self._open_jobs, skip)
        seen = await self._seen(jobs, observations)
        by_pk = {job.pk: job for job in jobs}
        actions = reconcile.decide(jobs, seen)
        self._widen(jobs, actions)
        self._quiet.settle(jobs, actions, seen.queues)
        self._full = loop_timing.is_full(jobs, actions, seen.queues, seen.max_running)
        rest_s = loop_timing.pause_s(jobs, actions, self._engine_or_none)
        self._rest_for_s = rest_s if self._drain.idle else min(rest_s, self._drain.pause_s())
        self._thought_s = self._clock_s() - self._look_s
        await self._act(await self._end_waiting(actions, by_pk), by_pk)
        if not self._wake.is_set() or self._drain.count > DRAINS_LATER_MAX:
            self._end_tokens(await self._drain.step(self._engines, self._engine_or_none))
        if loop_timing.goes_on(jobs, actions, seen.queues, full=self._full):
            self._wake.set()
        if self._clock_s() - self._flushed_s > HEARD_FLUSH_S:
            await self._flush()

    def _open_jobs(self, skip: Collection[int] = ()) -> list[Job]:
        """Those that are ours to run; what another machine runs is only shown here (`guests.py`)."""
        with self._store.read() as c:
            wide = {engine.name for engine in self._engines.values() if engine.queues}
            found = catalog.open_jobs(c, self._window, wide, QUEUE_WINDOW_WIDE, skip)
            return [job for job in found if job.spec.guest_of is None]

    def _widen(self, jobs: Sequence[Job], actions: Sequence[Action]) -> None:
        """Where nothing in the part of the queue that was read can start, read more of it the next
        time.
        """
        started = any(isinstance(action, NewAttempt) for action in actions)
        waiting = sum(1 for job in jobs if not job.attempts)
        least = max(QUEUE_WINDOW, 2 * int(self._settings.get("max_running")))
        if started or waiting < self._window:
            self._window = least
        elif sum(1 for job in jobs if job.attempts) < self._settings.get("max_running"):
            self._window = min(4 * self._window, JOBS_OPEN_MAX)

    def _engine(self, spec: JobSpec) -> Engine:
        """By the definition that the job came with: a server that was restarted knows it, too."""
        engine = self._engines.get(spec.place)
        if engine is None:
            given = (spec.definition,) if spec.definition else ()
            engine = self._make_engine(spec.cluster, self._paths, self._settings.get, *given)
            self._engines[spec.place] = engine
        return engine

    def _engine_or_none(self, spec: JobSpec) -> Engine | None:
        try:
            return self._engine(spec)
        except UsageError:
            # this version has no such engine: its jobs are not seen, and nothing is done to them
            return None

    def distant(self) -> list[Distant]:
        """Engines in use whose tasks may be on other machines."""
        return [engine for engine in self._engines.values() if isinstance(engine, Distant)]

    # -- seeing

    async def _observe(self, jobs: Sequence[Job]) -> dict[str, Observation]:
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
        return told and is_here(self._engine_or_none(job.spec))

    async def _ask(self, engine: Engine, name: str, call: Callable[..., T], *args: object) -> T:
        """One that is slow answers later; until then nothing is known of it."""
        return await self._calls.run(
            name, call, *args, patience_s=patience_s(engine), of=engine.cluster
        )

    async def _observe_cluster(
        self, spec: JobSpec, asked: list[tuple[int, Attempt]]
    ) -> dict[str, Observation]:
        engine, cluster = self._engine_or_none(spec), spec.place
        if engine is None:
            return {}
        attempts = [attempt for _, attempt in asked]
        try:
            ids, found = await self._ask(
                engine, f"cluster {cluster}", engine_calls.look_at, engine, attempts
            )
        # an engine may fail in any way; what it did not say is not known, and nothing follows from
        # it (F22)
        except Exception as error:
            log.warning("cluster %s could not be observed: %r", cluster, error)
            return {}
        for pk, attempt in asked:
            if attempt.key in found and found[attempt.key].state_word != attempt.engine_word:
                self._words[pk, attempt.number] = found[attempt.key].state_word
            # started by a server that died before it said so
            if attempt.engine_id is None and attempt.key in ids:
                attempt.engine_id = ids[attempt.key]
                await self._write(
                    partial(transactions.set_engine_id, pk, attempt.number, ids[attempt.key])
                )
        return found

    async def _seen(self, jobs: Sequence[Job], observations: Mapping[str, Observation]) -> Seen:
        now_s = self._clock_s()
        nodes, queues = {}, set()
        for cluster, spec in {job.spec.place: job.spec for job in jobs}.items():
            if (engine := self._engine_or_none(spec)) is None:
                continue
            with contextlib.suppress(HeadwayError):
                nodes[cluster] = await self._ask(engine, f"room of {cluster}", engine.capacity)
            if engine.queues:
                queues.add(cluster)
        keys = [job.attempts[-1].key for job in jobs if job.attempts]
        return Seen(
            now_ns=self._clock_ns(),
            max_running=self._settings.get("max_running"),
            nodes=nodes,
            queues=frozenset(queues),
            observations=observations,
            silent_s={
                key: now_s - max(self._heard_s.get(key, 0.0), self._started_s) for key in keys
            },
            missed_s=self._misses.since_s(keys, observations, now_s),
            cancelled_s={key: now_s - then for key, then in self._cancelled_s.items()},
            launches=self._launches,
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
        self._heard_s[f"{task.uuid}-{task.attempt}"] = self._clock_s()
        self._heard_ns[task] = self._clock_ns()

    async def _flush(self) -> None:
        self._flushed_s = self._clock_s()
        times, self._heard_ns = self._heard_ns, {}
        words, self._words = self._words, {}
        if times or words:
            await self._write(partial(transactions.flush, times, words))

    # -- doing

    async def _act(self, actions: Sequence[Action], jobs: Mapping[int, Job]) -> None:
        """What is written down goes first, all of it to the writer at once: many jobs' changes are
        one commit.
        """
        kept = [action for action in actions if isinstance(action, SetState | Again | NewAttempt)]
        over = await self._store_all(kept, jobs)
        rest = await self._hand_over(actions, jobs)
        told, away = await batch_start.stop(rest, jobs, self._calls, self._engine_or_none)
        for job in told:
            self._cancelled_s[job.attempts[-1].key] = self._clock_s()
        asked = {job.pk for job in told}
        for action in rest:
            if not (isinstance(action, Cancel) and action.pk in asked):
                await self._execute(action, jobs[action.pk], away)
        await self._end(over)

    async def _hand_over(self, actions: Sequence[Action], jobs: Mapping[int, Job]) -> list[Action]:
        """Starts that engines do some at a time, while the loop goes on. What is left for it to do."""
        handed: set[int] = set()
        for engine, launches in batch_start.launches(actions, jobs, self._engine_or_none):
            tls = await self.reach() if has_route(engine) else None
            starts = []
            for action in launches:
                job = jobs[action.pk]
                attempt = engine_calls.attempt_of(job, action.number)
                if attempt is not None:  # else it could not be stored
                    secret_names = self._secret_names(job.spec)
                    starts.append(batch_start.One(job, attempt, secret_names, tls))
                handed.add(action.pk)
            self._starts.add(engine, starts)

        return [
            action for action in actions if not (isinstance(action, Launch) and action.pk in handed)
        ]

    async def _take_started(self) -> None:
        """What has become of what was handed over, and what the last look left to write, is stored
        before this one reads.
        """
        ended = self._starts.take()
        if ended:
            await asyncio.gather(
                *(self._launched(one.job, one.attempt, outcome) for one, outcome in ended)
            )
        await self._later.settle()

    async def _execute(self, action: Action, job: Job, away: Collection[str]) -> None:
        try:
            match action:
                case Launch():
                    await self._launch(job, action.number)
                case Cancel():
                    await self._cancel(job, away)
                case Salvage():
                    await self._salvage(job)
                case Tell():
                    self._tell(job, action)
                case Diagnose():
                    self._diagnoses.begin(job, job.attempts[-1], action.end)
        # one job's trouble must not keep the others from being looked at
        except Exception as error:
            self._failed(action, job, error)

    def _failed(self, action: Action, job: Job, error: Exception) -> None:
        if isinstance(error, LateError):  # the call goes on, and its answer is kept
            return self._retry.soon(job.uuid, self._look_s)
        if isinstance(action, NewAttempt | Launch):
            self._retry.again(job.uuid, self._look_s)
        trace = None if isinstance(error, HeadwayError) else error
        log.warning("%s of %s: %s", type(action).__name__, job.id, error, exc_info=trace)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.wrap_future(self._store.write(work))

    async def _store_all(
        self, actions: Sequence[SetState | Again | NewAttempt], jobs: Mapping[int, Job]
    ) -> list[Job]:
        """States and intents; jobs that are over. Each stands alone: what cannot be stored keeps no
        other from it.
        """
        plans = await self._plans(
            [(jobs[a.pk], a.number) for a in actions if isinstance(a, NewAttempt)]
        )
        begun = []
        for action in actions:
            try:
                if isinstance(action, NewAttempt):  # jobs of an array have not been told of yet
                    await self._admit(jobs[action.pk].uuid, jobs[action.pk].spec.monitor)
                work, done = self._work_of(action, jobs[action.pk], plans)
            # a plan may fail in any way that an engine can; the job waits, and is tried again
            except Exception as error:
                self._failed(action, jobs[action.pk], error)
            else:
                begun.append((action, done, self._store.write(work)))
        over = []
        for action, done, future in begun:
            try:
                await asyncio.wrap_future(future)
            # the writer carries whatever went wrong with this one
            except Exception as error:
                self._failed(action, jobs[action.pk], error)
                continue
            done()
            if isinstance(action, SetState) and action.ended_ns is not None:
                over.append(jobs[action.pk])
        return over

    def _work_of(
        self, action: SetState | Again | NewAttempt, job: Job, plans: Mapping[int, Plan | Exception]
    ) -> tuple[Callable[[Connection], None], Callable[[], None]]:
        """What the writer shall do, and what we do once it has."""
        if isinstance(action, NewAttempt):
            return self._new_attempt(
                job, plans.get(job.pk) or LateError(f"the plan of {job.id} takes long")
            )
        word = self._words.pop((action.pk, action.number or 0), None)
        if isinstance(action, SetState):
            return partial(transactions.apply_state, action, word), partial(
                log.info, "%s is %s", job.id, action.state
            )
        return partial(transactions.apply_again, action, word), partial(self._again, action, job)

    async def _set_state(self, action: SetState, job: Job) -> None:
        await self._end(await self._store_all([action], {job.pk: job}))

    async def _end_waiting(
        self, actions: Sequence[Action], jobs: Mapping[int, Job]
    ) -> list[Action]:
        """Jobs that end before they had an attempt, in one transaction: an aborted array has
        thousands. The rest.
        """
        ends = [
            a
            for a in actions
            if isinstance(a, SetState) and a.number is None and a.ended_ns is not None
        ]
        if len(ends) < 2:
            return list(actions)
        await self._write(partial(transactions.apply_states, ends))
        log.info("%d jobs ended before they had started", len(ends))
        over = [jobs[action.pk] for action in ends]
        for job in over:
            self._retry.forget(job.uuid)
        # arrays share what goes
        await self._end(list({job.spec.array or job.uuid: job for job in over}.values()))
        return [action for action in actions if action not in ends]

    async def _end(self, jobs: Sequence[Job]) -> None:
        """These are over: what belonged to their lives goes. Their agents may still send for a
        while.
        """
        if not jobs:
            return
        try:
            await self._calls.run(
                "files", engine_calls.forget_private, self._store, self._paths.env, jobs
            )
        except UnreachableError as error:
            log.error("environments of jobs that are over stay until the next start: %s", error)
        for job in jobs:
            if job.spec.code is not None:
                # a large one takes its time; gc finds it if we are killed
                with contextlib.suppress(UnreachableError):
                    await self._calls.run(
                        f"code of {job.id}", checkout.remove_unchanged, self._paths.home, job.uuid
                    )
            self._retry.forget(job.uuid)
            for attempt in job.attempts:
                self._let_go(job, attempt)

    def _let_go(self, job: Job, attempt: Attempt) -> None:
        """An attempt is over; its agents may still send for a while."""
        for known in (self._cancelled_s, self._stopping_s, self._launches):
            known.pop(attempt.key, None)
        self._diagnoses.forget(attempt.key)
        self._keyring.forget(attempt.key)
        self._calls.forget(engine_calls.start_of(attempt))
        self._drain.add(job, attempt, self._engine(job.spec))

    def _again(self, action: Again, job: Job) -> None:
        log.info("%s waits for attempt %d: %s", job.id, action.number + 1, action.retry["text"])
        self._let_go(job, job.attempts[-1])

    async def _admit(self, uuid: str, monitor: str | None) -> None:
        """A monitor shall have the job, from its first byte on."""
        if monitor is not None and self.outbox is not None:
            await self.outbox.admit(uuid, monitor)

    async def _plans(self, starts: Sequence[tuple[Job, int]]) -> dict[int, Plan | Exception]:
        """A plan for each job that shall start, by pk, or why there is none; one call for all of a
        cluster.
        """
        found: dict[int, Plan | Exception] = {}
        for place in {job.spec.place for job, _ in starts}:
            mine = [(job, number) for job, number in starts if job.spec.place == place]
            try:
                engine = self._engine(mine[0][0].spec)
                plans = await self._ask(
                    engine, f"plans of {place}", engine_calls.plan_all, engine, mine
                )
                found |= {
                    job.pk: plans[job.pk, number]
                    for job, number in mine
                    if (job.pk, number) in plans
                }
            except HeadwayError as error:
                found |= {job.pk: error for job, _ in mine}
        return found

    def _new_attempt(
        self, job: Job, plan: Plan | Exception
    ) -> tuple[Callable[[Connection], None], Callable[[], None]]:
        """The intent: once it is committed the attempt exists, whether or not the engine will have
        heard of it.
        """
        if isinstance(plan, Exception):
            raise plan
        key = f"{job.uuid}-{plan.attempt}"
        tokens, hashes = self._keyring.mint(plan)

        def done() -> None:
            self._keyring.keep(key, tokens)
            job.attempts.append(Attempt(plan.attempt, State.WAITING, key))

        return partial(
            transactions.insert_attempt, job.pk, plan, key, hashes, self._clock_ns()
        ), done

    async def _launch(self, job: Job, number: int) -> None:
        attempt, place = engine_calls.attempt_of(job, number), job.spec.place
        if attempt is None:
            return  # the intent could not be stored
        if self._calls.hangs(self._late_start.get(place, "")):
            return  # one start after the other; this one's turn comes
        try:
            result: EngineId | HeadwayError = await self._submit_to_engine(job, attempt)
        except LateError:
            self._late_start[place] = engine_calls.start_of(attempt)
            return
        except HeadwayError as error:
            result = error
        await self._launched(job, attempt, result)

    async def _launched(self, job: Job, attempt: Attempt, result: EngineId | HeadwayError) -> None:
        if isinstance(result, HeadwayError) and result.temporary:
            log.warning("%s could not be started now: %s", job.id, result)
            if self._retry.again(job.uuid, self._look_s, result.message):
                words = {(job.pk, attempt.number): f"{NOT_NOW}{result.message}"}
                await self._write(partial(transactions.flush, {}, words))
                await self._note(job, attempt.number, f"could not be started now: {result}")
            return
        if isinstance(result, HeadwayError):
            finding = Finding("launch_failed", "user", str(result))
            await self._set_state(reconcile.refuse(job, attempt, self._clock_ns(), finding), job)
            self._wake.set()  # its place is free
            return
        self._launches[attempt.key] = self._launches.get(attempt.key, 0) + 1
        self._heard_s.setdefault(attempt.key, self._clock_s())
        self._retry.forget(job.uuid)
        attempt.engine_id = result
        # one that is lost is found again (`Engine.find`)
        work = partial(transactions.set_engine_id, job.pk, attempt.number, result)
        self._later.put(f"the engine's id of {job.id}", work)

    def _end_tokens(self, drained: list[TaskKey]) -> None:
        """One that is left open, should this be lost, is found again (`Drain`)."""
        if drained:
            self._later.put(
                "the end of tokens", partial(transactions.end_tokens, drained, self._clock_ns())
            )
            self._forget(drained)

    async def _submit_to_engine(self, job: Job, attempt: Attempt) -> EngineId:
        engine = self._engine(job.spec)
        tls = await self.reach() if has_route(engine) else None
        given = (self._paths.env, self._keyring, self._secret_names(job.spec), tls)
        return await self._ask(
            engine, engine_calls.start_of(attempt), engine_calls.start, engine, job, attempt, *given
        )

    async def _private(self, job: Job) -> env_file.Private | None:
        return await self._calls.run("files", env_file.of_job, self._paths.env, job.uuid, job.spec)

    def _secret_names(self, spec: JobSpec) -> list[str]:
        """What the submitter and this server's own settings call secret, whatever it looks like."""
        return sorted({*spec.secret_names, *(self._settings.get("secret_names") or [])})

    async def _cancel(self, job: Job, away: Collection[str]) -> None:
        """Through the engine; where it has nobody to ask, or its place is `away`, through the
        agent's next question.
        """
        attempt = job.attempts[-1]
        now_s = self._clock_s()
        asked = False
        if attempt.engine_id is not None and job.spec.place not in away:
            engine = self._engine(job.spec)
            try:
                asked = await self._ask(
                    engine, f"stop of {attempt.key}", engine.cancel, EngineId(attempt.engine_id)
                )
            except LateError:
                if now_s - self._stopping_s.setdefault(attempt.key, now_s) < STOP_WAIT_S:
                    return  # a program is not told twice without need; the answer wakes us
            except UnreachableError:
                pass  # a scheduler that is away keeps nobody from stopping
        # asked before in vain: it may say yes to everything
        if not asked or attempt.key in self._cancelled_s:
            for task in attempt.tasks:
                key = TaskKey(job.uuid, attempt.number, task.name)
                self._mailbox.put_once(key, {"do": "stop", "grace_s": job.spec.grace_s})
        if not asked:
            # look for the engine's again soon
            now_s -= job.spec.grace_s + reconcile.CANCEL_AGAIN_S - INTERVAL_S
        self._cancelled_s[attempt.key] = now_s

    def _tell(self, job: Job, action: Tell) -> None:
        """Each command once; again after a while, should an agent have died with it."""
        now_s = self._clock_s()
        for name, command in action.commands.items():
            key = TaskKey(job.uuid, action.number, name)
            told_s = self._told.get((key, command["do"]))
            if told_s is None or now_s - told_s > TELL_AGAIN_S:
                self._told[key, command["do"]] = now_s
                self._mailbox.put_once(key, dict(command))

    async def _salvage(self, job: Job) -> None:
        attempt = job.attempts[-1]
        if attempt.engine_id is not None:
            await self._drain.salvage(self._engine(job.spec), EngineId(attempt.engine_id))

    def _forget(self, tasks: list[TaskKey]) -> None:
        """Nothing will come from these tasks any more."""
        for task in tasks:
            self._mailbox.forget(task)
            for do in ("go", "stop"):
                self._told.pop((task, do), None)
            self._heard_s.pop(f"{task.uuid}-{task.attempt}", None)

    async def _note(self, job: Job, number: int | None, text: str) -> None:
        data = {"level": "warning", "text": text}
        await self._write(
            lambda c: catalog.add_event(c, job.pk, "note", data, self._clock_ns(), attempt=number)
        )

"""Does what was decided: stores states and intents, starts and stops through engines, tells agents.
Called by `loop.py` after each decision.

Whatever is done is written down before (the intent of an attempt) or can be found out again
(`Engine.find`), so a server killed anywhere goes on where it was (P9, P10, F23).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from sqlite3 import Connection

from headway.code import checkout
from headway.engines.protocol import EngineId, Plan, has_route
from headway.model.engine_words import NOT_NOW
from headway.model.errors import HeadwayError, UnreachableError
from headway.model.finding import Finding
from headway.model.job import Attempt, Job, State
from headway.server.control import batch_start, engine_calls, reconcile, transactions
from headway.server.control.blocking_calls import LateError
from headway.server.control.context import Context
from headway.server.control.deferred_writes import Later
from headway.server.control.drain import Drain
from headway.server.control.loop_timing import INTERVAL_S
from headway.server.control.multi_task import Tell
from headway.server.control.reconcile import (
    Action,
    Again,
    Cancel,
    Diagnose,
    Launch,
    NewAttempt,
    Salvage,
    SetState,
)
from headway.server.control.task_tokens import Keyring
from headway.server.health.diagnosis import Diagnoses
from headway.wire.batch import TaskKey

log = logging.getLogger("headway.control")
TELL_AGAIN_S = 5.0
STOP_WAIT_S = 2.0  # for an engine that shall stop a job; then its agents are told as well


class Executor:
    def __init__(
        self,
        context: Context,
        starts: batch_start.Starts,
        keyring: Keyring,
        drain: Drain,
        diagnoses: Diagnoses,
    ) -> None:
        self._context = context
        self._store, self._paths, self._settings = context.store, context.paths, context.settings
        self._calls, self._engines = context.calls, context.engines
        self._clock_ns, self._clock_s = context.clock_ns, context.clock_s
        self._mailbox, self._attempts, self._retry = (
            context.mailbox,
            context.attempts,
            context.retry,
        )
        self._starts, self._keyring, self._drain, self._diagnoses = (
            starts,
            keyring,
            drain,
            diagnoses,
        )
        self.later = Later(context.store)
        self._late_start: dict[str, str] = {}  # place -> the name of a start there that takes long
        self.look_s = context.clock_s()  # when the look began of which this is part

    async def act(self, actions: Sequence[Action], jobs: Mapping[int, Job]) -> None:
        """What is written down goes first, all of it to the writer at once: many jobs' changes are
        one commit.
        """
        kept = [action for action in actions if isinstance(action, SetState | Again | NewAttempt)]
        over = await self._store_all(kept, jobs)
        rest = await self._hand_over(actions, jobs)
        told, away = await batch_start.stop(rest, jobs, self._calls, self._engines.get_or_none)
        for job in told:
            self._attempts.of(job.attempts[-1].key).cancelled_s = self._clock_s()
        asked = {job.pk for job in told}
        for action in rest:
            if not (isinstance(action, Cancel) and action.pk in asked):
                await self._execute(action, jobs[action.pk], away)
        await self._end(over)

    async def end_waiting(self, actions: Sequence[Action], jobs: Mapping[int, Job]) -> list[Action]:
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
        await self._context.write(partial(transactions.apply_states, ends))
        log.info("%d jobs ended before they had started", len(ends))
        over = [jobs[action.pk] for action in ends]
        for job in over:
            self._retry.forget(job.uuid)
        # arrays share what goes
        await self._end(list({job.spec.array or job.uuid: job for job in over}.values()))
        return [action for action in actions if action not in ends]

    async def take_started(self) -> None:
        """What has become of what was handed over, and what the last look left to write, is stored
        before this one reads.
        """
        ended = self._starts.take()
        if ended:
            await asyncio.gather(
                *(self._launched(one.job, one.attempt, outcome) for one, outcome in ended)
            )
        await self.later.settle()

    async def _hand_over(self, actions: Sequence[Action], jobs: Mapping[int, Job]) -> list[Action]:
        """Starts that engines do some at a time, while the loop goes on. What is left for it to do."""
        handed: set[int] = set()
        for engine, launches in batch_start.launches(actions, jobs, self._engines.get_or_none):
            tls = await self._context.reach() if has_route(engine) else None
            starts = []
            for action in launches:
                job = jobs[action.pk]
                attempt = engine_calls.attempt_of(job, action.number)
                if attempt is not None:  # else it could not be stored
                    secret_names = self._context.secret_names(job.spec)
                    starts.append(batch_start.One(job, attempt, secret_names, tls))
                handed.add(action.pk)
            self._starts.add(engine, starts)

        return [
            action for action in actions if not (isinstance(action, Launch) and action.pk in handed)
        ]

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
            return self._retry.soon(job.uuid, self.look_s)
        if isinstance(action, NewAttempt | Launch):
            self._retry.again(job.uuid, self.look_s)
        trace = None if isinstance(error, HeadwayError) else error
        log.warning("%s of %s: %s", type(action).__name__, job.id, error, exc_info=trace)

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
                    await self._context.admit(jobs[action.pk].uuid, jobs[action.pk].spec.monitor)
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
        word = self._attempts.words.pop((action.pk, action.number or 0), None)
        if isinstance(action, SetState):
            return partial(transactions.apply_state, action, word), partial(
                log.info, "%s is %s", job.id, action.state
            )
        return partial(transactions.apply_again, action, word), partial(self._again, action, job)

    async def _set_state(self, action: SetState, job: Job) -> None:
        await self._end(await self._store_all([action], {job.pk: job}))

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
        self._attempts.end(attempt.key)
        self._diagnoses.forget(attempt.key)
        self._keyring.forget(attempt.key)
        self._calls.forget(engine_calls.start_of(attempt))
        self._drain.add(job, attempt, self._engines.get(job.spec))

    def _again(self, action: Again, job: Job) -> None:
        log.info("%s waits for attempt %d: %s", job.id, action.number + 1, action.retry["text"])
        self._let_go(job, job.attempts[-1])

    async def _plans(self, starts: Sequence[tuple[Job, int]]) -> dict[int, Plan | Exception]:
        """A plan for each job that shall start, by pk, or why there is none; one call for all of a
        cluster.
        """
        found: dict[int, Plan | Exception] = {}
        for place in {job.spec.place for job, _ in starts}:
            mine = [(job, number) for job, number in starts if job.spec.place == place]
            try:
                engine = self._engines.get(mine[0][0].spec)
                plans = await self._engines.ask(
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
            if self._retry.again(job.uuid, self.look_s, result.message):
                words = {(job.pk, attempt.number): f"{NOT_NOW}{result.message}"}
                await self._context.write(partial(transactions.flush, {}, words))
                await self._context.note(job, attempt.number, f"could not be started now: {result}")
            return
        if isinstance(result, HeadwayError):
            finding = Finding("launch_failed", "user", str(result))
            await self._set_state(reconcile.refuse(job, attempt, self._clock_ns(), finding), job)
            self._context.wakeup.event.set()  # its place is free
            return
        state = self._attempts.of(attempt.key)
        state.launches += 1
        if state.heard_s is None:
            state.heard_s = self._clock_s()
        self._retry.forget(job.uuid)
        attempt.engine_id = result
        # one that is lost is found again (`Engine.find`)
        work = partial(transactions.set_engine_id, job.pk, attempt.number, result)
        self.later.put(f"the engine's id of {job.id}", work)

    def end_tokens(self, drained: list[TaskKey]) -> None:
        """One that is left open, should this be lost, is found again (`Drain`)."""
        if drained:
            self.later.put(
                "the end of tokens", partial(transactions.end_tokens, drained, self._clock_ns())
            )
            self._forget(drained)

    async def _submit_to_engine(self, job: Job, attempt: Attempt) -> EngineId:
        engine = self._engines.get(job.spec)
        tls = await self._context.reach() if has_route(engine) else None
        given = (self._paths.env, self._keyring, self._context.secret_names(job.spec), tls)
        return await self._engines.ask(
            engine, engine_calls.start_of(attempt), engine_calls.start, engine, job, attempt, *given
        )

    async def _cancel(self, job: Job, away: Collection[str]) -> None:
        """Through the engine; where it has nobody to ask, or its place is `away`, through the
        agent's next question.
        """
        attempt = job.attempts[-1]
        state = self._attempts.of(attempt.key)
        now_s = self._clock_s()
        asked = False
        if attempt.engine_id is not None and job.spec.place not in away:
            engine = self._engines.get(job.spec)
            try:
                asked = await self._engines.ask(
                    engine, f"stop of {attempt.key}", engine.cancel, EngineId(attempt.engine_id)
                )
            except LateError:
                if state.stopping_s is None:
                    state.stopping_s = now_s
                if now_s - state.stopping_s < STOP_WAIT_S:
                    return  # a program is not told twice without need; the answer wakes us
            except UnreachableError:
                pass  # a scheduler that is away keeps nobody from stopping
        # asked before in vain: it may say yes to everything
        if not asked or state.cancelled_s is not None:
            for task in attempt.tasks:
                key = TaskKey(job.uuid, attempt.number, task.name)
                self._mailbox.put_once(key, {"do": "stop", "grace_s": job.spec.grace_s})
        if not asked:
            # look for the engine's again soon
            now_s -= job.spec.grace_s + reconcile.CANCEL_AGAIN_S - INTERVAL_S
        state.cancelled_s = now_s

    def _tell(self, job: Job, action: Tell) -> None:
        """Each command once; again after a while, should an agent have died with it."""
        now_s = self._clock_s()
        state = self._attempts.of(f"{job.uuid}-{action.number}")
        for name, command in action.commands.items():
            key = TaskKey(job.uuid, action.number, name)
            told_s = state.told_s.get((name, command["do"]))
            if told_s is None or now_s - told_s > TELL_AGAIN_S:
                state.told_s[name, command["do"]] = now_s
                self._mailbox.put_once(key, dict(command))

    async def _salvage(self, job: Job) -> None:
        attempt = job.attempts[-1]
        if attempt.engine_id is not None:
            await self._drain.salvage(self._engines.get(job.spec), EngineId(attempt.engine_id))

    def _forget(self, tasks: list[TaskKey]) -> None:
        """Nothing will come from these tasks any more."""
        for task in tasks:
            self._mailbox.forget(task)
            self._attempts.forget(task)

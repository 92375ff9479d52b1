"""Control: the parts put together, and the verbs that the API calls.

References are resolved by the API (`catalog.resolve`), so verbs take the job's pk. Verbs only write
down what is wanted; the loop does it.
"""

import asyncio
import random
import signal as signals
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from sqlite3 import Connection

from headway.engines.protocol import Distant, Engine, EngineId, Plan, Salvager, Waiting
from headway.engines.registry import engine_for
from headway.home.paths import Paths
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.model.job import Job, JobSpec, State
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import TRAY_POLL_WAIT_S
from headway.server.control import (
    engine_calls,
    forecast,
    job_lengths,
    submit_check,
    survey,
    transactions,
    waiting,
)
from headway.server.control.array_verbs import Arrays, Element
from headway.server.control.batch_start import Starts
from headway.server.control.blocking_calls import Calls
from headway.server.control.context import Context, Getter
from headway.server.control.drain import Drain, is_over
from headway.server.control.engine_pool import EnginePool
from headway.server.control.executor import Executor
from headway.server.control.loop import Loop
from headway.server.control.loop_wakeup import Wakeup
from headway.server.control.observer import Observer
from headway.server.control.submitter import NO_UUID, Look, Submitter
from headway.server.control.task_tokens import Keyring
from headway.server.health.diagnosis import Diagnoses
from headway.server.monitor.guests import mailbox_key
from headway.server.monitor.monitor_queue import Outbox
from headway.store import catalog, forecast_rows
from headway.store.database import Store
from headway.wire.batch import TaskKey


class Control:
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
        self.wakeup = Wakeup()
        calls = make_calls(self.wakeup.poke)
        engines = EnginePool(make_engine, paths, settings.get, calls)
        context = Context(store, paths, settings, self.wakeup, calls, engines, clock_ns, clock_s)
        keyring = Keyring(store, clock_ns)
        starts = Starts(calls, paths.env, keyring, self.wakeup.poke)
        drain = Drain(store, calls, clock_s=clock_s)
        self.diagnoses = Diagnoses(store, paths, calls, self.wakeup.poke, clock_s)
        self._observer = Observer(context, starts, self.diagnoses, chance)
        self.executor = Executor(context, starts, keyring, drain, self.diagnoses)
        self._loop = Loop(context, self._observer, self.executor, starts, drain)
        self._submitter = Submitter(context, self._loop.poke_for, self._observer.heard)
        self._arrays = Arrays(context, self._submitter)
        self._context = context
        self._store, self._paths, self._settings = context.store, context.paths, context.settings
        self._calls, self._engines = context.calls, context.engines
        self._clock_ns, self._clock_s = context.clock_ns, context.clock_s

    # -- life

    async def start(self) -> None:
        """Look at every open job once, then go on looking."""
        await self._loop.start()

    async def prepare(self) -> None:
        """What comes before the first look."""
        await self._loop.prepare()

    async def look(self) -> None:
        """One round: read, observe, decide, execute."""
        await self._loop.look()

    async def stop(self) -> None:
        """End the loop; jobs go on."""
        await self._loop.stop()

    def poke(self) -> None:
        """Decide soon. From any thread."""
        self.wakeup.poke()

    def on_change(self, job_pk: int, what: str) -> None:
        """What agents tell; `start` has the store call it."""
        self._loop.on_change(job_pk, what)

    def heard(self, task: TaskKey) -> None:
        """An agent has spoken (ingest; `commands_for` does it by itself). From any thread."""
        self._observer.heard(task)

    def distant(self) -> list[Distant]:
        """Engines in use whose tasks may be on other machines."""
        return self._engines.distant()

    def tell_monitors(self, outbox: Outbox) -> None:
        """From now on monitors are told of jobs that shall be seen there."""
        self._context.outbox = outbox

    def be_reached(self, reach: Callable[[], Awaitable[JsonObject | None]]) -> None:
        """How agents on other machines reach this server."""
        self._context.reach = reach

    # -- new jobs

    async def submit(
        self,
        uuid: str,
        spec: JobSpec | JsonMapping,
        env: Mapping[str, str],
        *,
        find_program: bool = False,
        look: Look | None = None,
    ) -> Job:
        """A new job; the same uuid gives the same job, whatever died in between (P9)."""
        return await self._submitter.submit(uuid, spec, env, find_program=find_program, look=look)

    async def plan(self, spec: JsonMapping, env: Mapping[str, str]) -> Plan:
        """What the engine would get, for `--dry-run`."""
        return await self._submitter.plan(spec, env)

    async def resubmit(
        self, pk: int, uuid: str, changes: JsonMapping, env: Mapping[str, str] | None = None
    ) -> Job:
        """A new job like an old one."""
        return await self._submitter.resubmit(pk, uuid, changes, env)

    async def register(self, body: JsonMapping) -> JsonObject:
        """Body and answer of `POST /agent/register`."""
        return await self._submitter.register(body)

    async def submit_array(
        self, uuid: str, spec: JsonMapping, env: Mapping[str, str], jobs: Sequence[Element], *,
        parent: str | None = None, find_program: bool = False,
    ) -> str:  # fmt: skip
        """The array's uuid; many jobs stored as one."""
        return await self._arrays.submit(
            uuid, spec, env, jobs, parent=parent, find_program=find_program
        )

    async def abort_array(self, uuid: str) -> int:
        """Ask every job of an array to stop; how many were asked."""
        return await self._arrays.abort(uuid)

    async def resubmit_array(
        self,
        old: str,
        uuid: str,
        changes: JsonMapping,
        env: Mapping[str, str],
        states: Sequence[str],
    ) -> str:
        """The jobs of an array again, all or those in some states."""
        return await self._arrays.resubmit(old, uuid, changes, env, states)

    # -- verbs

    async def load(self, pk: int) -> Job:
        return await self._calls.run("the store", self._context.load, pk)

    async def abort(self, pk: int) -> Job:
        """Ask a job to stop. Asking twice is asking once."""
        job = await self._calls.run("the store", self._context.load, pk)
        if is_over(job):
            raise RefusedError(f"{job.id} has already ended: {job.state}")
        await self._context.write(lambda c: catalog.request_stop(c, pk, self._clock_ns()))
        if job.spec.guest_of is not None:
            self._context.mailbox.put_once(mailbox_key(job.uuid), {"do": "stop"})
        self._context.poke()
        return await self._calls.run("the store", self._context.load, pk)

    async def release(self, pk: int) -> Job:
        """Free a task that is held after its command failed, or nodes that are held for a shell. An
        exit code stays what it was.
        """
        job = await self._calls.run("the store", self._context.load, pk)
        if job.state is not State.HELD and not (job.spec.reserved and not is_over(job)):
            raise RefusedError(
                f"{job.id} is {job.state}, not held",
                "" if is_over(job) else f"to stop it: hw abort {job.id}",
            )
        return await self.abort(pk)

    async def attach(
        self, pk: int, rank: int | None = None, task: str | None = None
    ) -> list[str] | None:
        """argv that opens a shell beside a task that runs or is held; None where there is no such
        thing.
        """
        job = await self._calls.run("the store", self._context.load, pk)
        if (
            job.state not in (State.RUNNING, State.STOPPING, State.HELD)
            or not job.attempts
            or job.spec.attached
        ):
            return None
        attempt = job.attempts[-1]
        at = [t for t in attempt.tasks if rank is None or any(p.rank == rank for p in t.processes)]
        at = [t for t in at if task is None or t.name == task]
        engine = self._engines.get_or_none(job.spec)
        if not at or engine is None:
            return None
        key = TaskKey(job.uuid, attempt.number, at[0].name)
        return await self._calls.run("attach", engine.attach, key, at[0].node)

    async def signal(self, pk: int, signum: int) -> Job:
        """Pass a signal to the processes of a running job, through its agents. SIGINT and SIGTERM
        ask it to stop.
        """
        if (
            not isinstance(signum, int)
            or isinstance(signum, bool)
            or signum not in {int(s) for s in signals.Signals}
        ):
            raise UsageError(f"{signum!r:.40} is not the number of a signal")
        job = await self._calls.run("the store", self._context.load, pk)
        if is_over(job):
            raise RefusedError(f"{job.id} has already ended: {job.state}")
        if not job.attempts:
            raise RefusedError(
                f"{job.id} has not started", f"to take it out of the queue: hw abort {job.id}"
            )
        attempt = job.attempts[-1]
        stops = signum in (signals.SIGINT, signals.SIGTERM) and job.spec.guest_of is None
        if stops and (job.state is State.HELD or not any(task.processes for task in attempt.tasks)):
            return await self.abort(pk)  # nothing of it runs that could hear a signal
        keys = [TaskKey(job.uuid, attempt.number, task.name) for task in attempt.tasks]
        for key in keys if job.spec.guest_of is None else [mailbox_key(job.uuid)]:
            self._context.mailbox.put(key, {"do": "signal", "signal": signum})

        def work(c: Connection) -> None:
            catalog.add_event(
                c, pk, "signal", {"signal": signum}, self._clock_ns(), attempt=attempt.number
            )
            if stops:
                catalog.request_stop(c, pk, self._clock_ns(), signum)

        await self._context.write(work)
        self._context.poke()
        return job

    def ask_agents(self, job: Job, command: JsonObject) -> list[str]:
        """Put a command into the mailbox of every task that runs; the tasks' names. In the event
        loop only.
        """
        attempt = job.attempts[-1]
        names = [task.name for task in attempt.tasks if task.state not in ("ended", "lost")]
        for name in names:
            self._context.mailbox.put(TaskKey(job.uuid, attempt.number, name), dict(command))
        return names

    async def end_hung(self, job: Job, finding: JsonObject) -> None:
        """End an attempt that hangs, as `--on-hang` asks; the reason travels with the command, and
        what was found is the attempt's cause.
        """
        number = job.attempts[-1].number
        cause = {key: finding.get(key) for key in ("cause", "class", "text", "rank")}
        await self._context.write(lambda c: catalog.set_cause(c, job.pk, number, cause))
        self.ask_agents(job, {"do": "stop", "grace_s": job.spec.grace_s, "reason": "hung"})
        self._context.poke()

    async def delete(self, pk: int) -> None:
        """Hide a job that is over, and remove its spools; its rows and logs go with the next gc."""
        job = await self._calls.run("the store", self._context.load, pk)
        if not is_over(job):
            raise RefusedError(f"{job.id} is {job.state}", f"to end it first: hw abort {job.id}")
        await self._context.write(partial(transactions.delete, job, self._clock_ns()))
        engine = self._engines.get_or_none(job.spec)
        if isinstance(engine, Salvager):
            for attempt in job.attempts:
                if attempt.engine_id is not None:
                    await self._calls.run(
                        f"spool of {job.id}", engine.discard, EngineId(attempt.engine_id)
                    )

    async def commands_for_guests(
        self, uuids: Sequence[str], wait_s: float, done: Sequence[int]
    ) -> list[JsonObject]:
        """Commands for jobs that another machine runs; at once when there are some for any of them."""
        asked = {
            asyncio.ensure_future(self._context.mailbox.take(mailbox_key(uuid), wait_s, done)): uuid
            for uuid in uuids
        }
        if not asked:
            await asyncio.sleep(wait_s)
            return []
        ready, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return [{"uuid": asked[task], **command} for task in ready for command in task.result()]

    async def survey(
        self, clusters: Mapping[str, JsonMapping], spec: JsonMapping | None = None
    ) -> list[JsonObject]:
        """What each of these clusters has; with `spec`, also whether such a job could run there."""
        fields = {"command": ["true"], "cwd": "/", "name": "trial", **(spec or {})}
        specs = [
            submit_check.job_spec({**fields, "cluster": name, "definition": d})
            for name, d in clusters.items()
        ]
        asked = [
            survey.Asked(one, self._engines.by_place.get(one.place) or self._engines.for_once(one))
            for one in specs
        ]
        now_ns = self._clock_ns()
        sketches = [
            Job(0, "trial", NO_UUID, one, State.WAITING, now_ns, now_ns) if spec else None
            for one in specs
        ]
        await survey.ask_all(self._calls, asked, sketches)
        jobs = await self._calls.run("the store", self._loop.open_jobs)
        others = {
            job.spec.place: job.spec
            for job in jobs
            if job.spec.place not in {one.place for one in specs}
        }
        more = [survey.Asked(one, self._engines.get_or_none(one)) for one in others.values()]
        await survey.ask_all(self._calls, more, [None] * len(more))
        known = {one.spec.place: one.nodes for one in (*asked, *more) if one.error is None}
        return survey.rows([*asked, *(one for one in more if one.spec.definition)], jobs, known)

    async def collect(
        self, clusters: Mapping[str, JsonMapping], *, dry_run: bool
    ) -> list[JsonObject]:
        """`hw gc` in the folders of clusters: of these, and of those that jobs use."""
        fields = {"command": ["true"], "cwd": "/", "name": "gc"}
        specs = [
            submit_check.job_spec({**fields, "cluster": name, "definition": d})
            for name, d in clusters.items()
        ]
        engines = dict(self._engines.by_place)
        for one in specs:
            engine = engines.get(one.place) or self._engines.for_once(one)
            engines |= {one.place: engine} if engine is not None else {}
        open_jobs = await self._calls.run("the store", self._store.open_uuids)
        return await survey.collect(self._calls, engines, open_jobs, dry_run=dry_run)

    async def explain(self, job: Job) -> Waiting:
        """Why a job waits: its engine says it, or, as long as it is in our own queue, we do."""
        engine = self._engines.get_or_none(job.spec)
        if engine is None:
            gone = f"the cluster {job.spec.cluster} is not configured any more"
            return Waiting(gone, cause="never")
        engine_id = job.attempts[-1].engine_id if job.attempts and not job.between_tries else None
        if engine_id is not None:
            found = await self._calls.run(
                f"reason of {job.id}", engine.explain, EngineId(engine_id)
            )
            if found.start_ns is None:
                return found
            history = await self._calls.run("the store", self._forecasts, job.spec.place)
            return replace(found, start=f"{found.start}; {forecast.record_words(history)}")
        if trouble := self._context.retry.why(job.uuid):
            tried = f"it could not be started: {trouble}; it is tried again by itself"
            return Waiting(tried, cause="pause")
        try:
            nodes = await self._calls.run(
                f"capacity of {job.spec.cluster}", survey.capacity_of(engine)
            )
        except UnreachableError as error:
            away = (
                f"{job.spec.cluster} is not reached: {error.message}; it starts when that is over"
            )
            return Waiting(away, cause="unreachable")
        jobs = await self._calls.run("the store", self._loop.open_jobs)
        wanted = {uuid for one in (job, *jobs) for uuid in one.spec.after}
        needed = await self._calls.run("the store", engine_calls.states_of, self._store, wanted)
        queues = [place for place, one in self._engines.by_place.items() if one.queues]
        lengths = await self._calls.run("the store", self._lengths, jobs)
        history = await self._calls.run("the store", self._forecasts, job.spec.place)
        return waiting.explain(
            job,
            jobs,
            nodes,
            self._settings.get("max_running"),
            needed,
            queues,
            self._clock_ns(),
            lengths,
            history,
        )

    def _forecasts(self, place: str) -> forecast.History:
        with self._store.read() as c:
            return forecast.History(*forecast_rows.history(c, place))

    def _lengths(self, jobs: Sequence[Job]) -> dict[int, forecast.Length]:
        with self._store.read() as c:
            return job_lengths.lengths(c, jobs, self._clock_ns())

    def attach_words(self, job: JsonMapping) -> list[str] | None:
        """argv of a shell beside the first task that runs (capability 60); no engine is asked
        anything for it.
        """
        engine = self._engines.by_place.get(
            JobSpec([], "/", "", cluster=job["cluster"], definition=job["definition"]).place
        )
        attempt = job["attempts"][-1] if job["attempts"] else {"tasks": []}
        for task in attempt["tasks"]:
            key = TaskKey(job["uuid"], attempt["number"], task["name"])
            words = engine.attach(key, task.get("node")) if engine else None
            if words is not None:
                return words
        return None

    async def commands_for(
        self, task: TaskKey, wait_s: float, done: Sequence[int]
    ) -> list[JsonObject]:
        """Commands for a task's agent; answers at once when there are some, else after `wait_s`."""
        self._observer.heard(task)
        commands = await self._context.mailbox.take(
            task, min(max(wait_s, 0.0), TRAY_POLL_WAIT_S), done
        )
        self._observer.heard(task)
        return commands

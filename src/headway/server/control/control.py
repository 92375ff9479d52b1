"""The verbs that the API calls: `submit`, `abort`, `release`, `signal`, `resubmit`, `delete`,
`attach`, `register`, `commands_for`.

References are resolved by the API (`catalog.resolve`), so verbs take the job's pk. Verbs only write
down what is wanted; the loop that `Control` inherits does it.
"""

import asyncio
import signal as signals
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from sqlite3 import Connection

from headway.engines.protocol import Engine, EngineId, Plan, Salvager, Scripted, Waiting
from headway.model.errors import HeadwayError, RefusedError, UnreachableError, UsageError
from headway.model.ids import name_from_command
from headway.model.job import ENDED, Job, JobSpec, State
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import PROCESSES_MAX, TRAY_POLL_WAIT_S
from headway.server.control import (
    engine_calls,
    env_file,
    folder_check,
    forecast,
    job_lengths,
    program_check,
    submit_check,
    survey,
    transactions,
    waiting,
)
from headway.server.control.drain import is_over
from headway.server.control.engine_calls import with_private
from headway.server.control.loop import Loop
from headway.server.http import auth
from headway.server.monitor.guests import mailbox_key
from headway.settings import clusters
from headway.settings.quantity import duration_text
from headway.store import catalog, forecast_rows
from headway.wire.batch import TaskKey
from headway.wire.redact import mask_argv, secret_values

Look = Callable[[Connection, int], None]
ATTACHED_TASK = "worker-0"
NO_UUID = "00000000-0000-0000-0000-000000000000"  # of a job that is only planned


class Control(Loop):
    async def submit(
        self,
        uuid: str,
        spec: JobSpec | JsonMapping,
        env: Mapping[str, str],
        *,
        find_program: bool = False,
        look: Look | None = None,
    ) -> Job:
        """A new job; the same uuid gives the same job, whatever died in between (P9).

        `find_program`: a local program that is not there is refused now, and not told by the job's
        end. `look` sees a job that is new, in the transaction that makes it.
        """
        uuid = submit_check.job_uuid(uuid)
        try:
            checked = submit_check.job_spec(spec)
            if checked.attached or checked.guest_of is not None:
                raise UsageError("a submitted job is neither attached nor another machine's")
            return await self._insert(uuid, checked, env, find_program=find_program, look=look)
        except HeadwayError:  # what was submitted before may be wrong by now: its folder is gone
            known = await self._calls.run("the store", self._find_uuid, uuid)
            if known is None:
                raise
            return known

    async def plan(self, spec: JsonMapping, env: Mapping[str, str]) -> Plan:
        """What the engine would get, for `--dry-run`: every check of a submission, and nothing
        stored.
        """
        checked = submit_check.job_spec(spec)
        engine = await self._checked(
            NO_UUID, checked, submit_check.environment(env, checked), find_program=True
        )
        return await self._calls.run(f"plan of {NO_UUID}", self._scripted, engine, checked)

    def _scripted(self, engine: Engine, spec: JobSpec) -> Plan:
        """In a thread: the plan with what the engine's own program would be given."""
        plan = self._sketched(engine, NO_UUID, spec)
        return replace(plan, script=engine.script(plan)) if isinstance(engine, Scripted) else plan

    async def _checked(
        self, uuid: str, spec: JobSpec, variables: Mapping[str, str], *, find_program: bool = False
    ) -> Engine:
        """Its engine, after everything was checked that can be known now without it."""
        submit_check.folder(spec.cwd)
        program_check.check_input(spec)
        if spec.code is not None:
            await self._calls.run(f"code of {uuid}", submit_check.code, spec, self._paths.home)
        engine = self._engine(spec)
        if spec.folders:
            await self._calls.run(
                "files", folder_check.check, spec, variables, engine.name, self._paths.home
            )
        if spec.options:
            spec.options = clusters.job_options(engine.name, spec.options, spec.cluster)
        if engine.name == "local" and find_program and not (spec.after or spec.code):
            await self._calls.run("files", program_check.check, spec, variables)
        return engine

    def _sketched(self, engine: Engine, uuid: str, spec: JobSpec) -> Plan:
        """In a thread: what the engine would make of it."""
        now_ns = self._clock_ns()
        plan = engine.plan(Job(0, spec.name, uuid, spec, State.WAITING, now_ns, now_ns))
        submit_check.carried(spec, plan.code, engine.name)
        return plan

    async def _insert(
        self,
        uuid: str,
        spec: JobSpec,
        env: Mapping[str, str],
        *,
        find_program: bool = False,
        look: Look | None = None,
    ) -> Job:
        variables = submit_check.environment(env, spec)
        spec = await self._settled(spec)
        engine = await self._checked(uuid, spec, variables, find_program=find_program)
        made = await self._calls.run(f"plan of {uuid}", self._kept, engine, uuid, spec, variables)
        if isinstance(made, Job):
            return made
        await self._admit(uuid, made.monitor)
        now_ns = self._clock_ns()

        def work(c: Connection) -> Job:
            job = catalog.insert_job(c, uuid, made, now_ns, engine.name)
            if look is not None:
                look(c, job.pk)
            return job

        job = await self._write(work)
        self.poke_for(engine)
        return job

    def _kept(
        self, engine: Engine, uuid: str, spec: JobSpec, variables: dict[str, str]
    ) -> JobSpec | Job:
        """In a thread: what is stored of a job, once what may not be stored is in its file; a job
        that is known.
        """
        known = self._find_uuid(uuid)
        if known is not None:
            return known
        plan = self._sketched(engine, uuid, spec)
        private = env_file.Private(
            variables, spec.command, {role.name: role.command for role in spec.roles}
        )
        self._keep(uuid, private)
        return as_planned(self._shown(spec, variables), plan)

    def _shown(self, spec: JobSpec, variables: Mapping[str, str]) -> JobSpec:
        """With the commands as they may be stored: secrets in them are masked."""
        names = self._secret_names(spec)
        values = secret_values(variables, names)
        roles = [
            replace(role, command=mask_argv(role.command, values, names)) for role in spec.roles
        ]
        shown = mask_argv(spec.command, values, names)
        masked = shown != spec.command or roles != spec.roles
        kept = env_file.kept(spec, variables, names)
        return replace(spec, command=shown, roles=roles, masked=masked, env_kept=kept)

    def _keep(self, uuid: str, private: env_file.Private) -> None:
        try:
            env_file.save(self._paths.env, uuid, private)
        except OSError as error:
            told = f"nothing was submitted: the server cannot write to {self._paths.home}: {error.strerror}"
            raise UnreachableError(
                told, "make room there, or hw doctor says more; then try again"
            ) from error

    async def _settled(self, spec: JobSpec) -> JobSpec:
        """With what it waits for looked up, and no longer held than this server allows."""
        longest_s = self._settings.get("hold_max_s")
        if longest_s is not None and spec.hold_s > longest_s:
            longest = duration_text(longest_s)
            told = f"a failed task is kept for {longest} at most here, not {duration_text(spec.hold_s)}"
            raise RefusedError(
                told, f"--hold {longest}; the setting hold_max_s says how long" if longest_s else ""
            )
        if not spec.after:
            return spec
        return replace(
            spec, after=await self._calls.run("the store", self._resolve_after, spec.after)
        )

    def _resolve_after(self, refs: Sequence[str]) -> list[str]:
        """uuids of the jobs that must have succeeded before. One that never will is told at once."""
        found: dict[str, None] = {}
        with self._store.read() as c:
            for ref in refs:
                job = catalog.load_job(c, catalog.resolve(c, ref))
                if is_over(job) and job.state is not State.SUCCEEDED:
                    raise RefusedError(
                        f"it should wait for {job.id}, which is {job.state} and will not succeed"
                    )
                found[job.uuid] = None
        return list(found)

    def _find_uuid(self, uuid: str) -> Job | None:
        with self._store.read() as c:
            pk = catalog.find_uuid(c, uuid)
            return None if pk is None else catalog.load_job(c, pk)

    def _load(self, pk: int) -> Job:
        with self._store.read() as c:
            return catalog.load_job(c, pk)

    async def abort(self, pk: int) -> Job:
        """Ask a job to stop. Asking twice is asking once."""
        job = await self._calls.run("the store", self._load, pk)
        if is_over(job):
            raise RefusedError(f"{job.id} has already ended: {job.state}")
        await self._write(lambda c: catalog.request_stop(c, pk, self._clock_ns()))
        if job.spec.guest_of is not None:
            self._mailbox.put_once(mailbox_key(job.uuid), {"do": "stop"})
        self.poke()
        return await self._calls.run("the store", self._load, pk)

    async def release(self, pk: int) -> Job:
        """Free a task that is held after its command failed, or nodes that are held for a shell. An
        exit code stays what it was.
        """
        job = await self._calls.run("the store", self._load, pk)
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
        job = await self._calls.run("the store", self._load, pk)
        if (
            job.state not in (State.RUNNING, State.STOPPING, State.HELD)
            or not job.attempts
            or job.spec.attached
        ):
            return None
        attempt = job.attempts[-1]
        at = [t for t in attempt.tasks if rank is None or any(p.rank == rank for p in t.processes)]
        at = [t for t in at if task is None or t.name == task]
        engine = self._engine_or_none(job.spec)
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
        job = await self._calls.run("the store", self._load, pk)
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
            self._mailbox.put(key, {"do": "signal", "signal": signum})

        def work(c: Connection) -> None:
            catalog.add_event(
                c, pk, "signal", {"signal": signum}, self._clock_ns(), attempt=attempt.number
            )
            if stops:
                catalog.request_stop(c, pk, self._clock_ns(), signum)

        await self._write(work)
        self.poke()
        return job

    def ask_agents(self, job: Job, command: JsonObject) -> list[str]:
        """Put a command into the mailbox of every task that runs; the tasks' names. In the event
        loop only.
        """
        attempt = job.attempts[-1]
        names = [task.name for task in attempt.tasks if task.state not in ("ended", "lost")]
        for name in names:
            self._mailbox.put(TaskKey(job.uuid, attempt.number, name), dict(command))
        return names

    async def end_hung(self, job: Job, finding: JsonObject) -> None:
        """End an attempt that hangs, as `--on-hang` asks; the reason travels with the command, and
        what was found is the attempt's cause.
        """
        number = job.attempts[-1].number
        cause = {key: finding.get(key) for key in ("cause", "class", "text", "rank")}
        await self._write(lambda c: catalog.set_cause(c, job.pk, number, cause))
        self.ask_agents(job, {"do": "stop", "grace_s": job.spec.grace_s, "reason": "hung"})
        self.poke()

    async def resubmit(
        self, pk: int, uuid: str, changes: JsonMapping, env: Mapping[str, str] | None = None
    ) -> Job:
        """A new job like an old one. The new one is stored before the old one, if it still runs, is
        asked to stop.
        """
        old = await self._calls.run("the store", self._load, pk)
        if old.spec.guest_of is not None:
            raise RefusedError(
                f"{old.id} runs on {old.spec.host or old.spec.guest_of}", "resubmit it there"
            )
        uuid = submit_check.job_uuid(uuid)
        fixed = {
            "parent": old.id,
            "attached": False,
            "masked": False,
            "gpus": 0,
            "array": None,
            "env_kept": {},
            "stdin": None,
        }
        job = await self._calls.run("the store", self._find_uuid, uuid)
        if job is None:
            private = await self._private(old)
            given = with_private(old.spec, private)
            if old.spec.masked and not private and "command" not in changes:
                raise RefusedError(
                    f"the command of {old.id} held a secret, which is not kept after its end",
                    "submit it again with the whole command; better keep secrets in the environment",
                )
            after = {"after": await self._calls.run("the store", self._still_open, old.spec.after)}
            again = {
                **submit_check.joined_env(old.spec, changes),
                **submit_check.launcher_again(old.spec, changes),
                **submit_check.options_again(old.spec, changes),
            }
            spec = submit_check.job_spec({**asdict(given), **after, **changes, **fixed, **again})
            if env is None:
                env = private.env if private else None
            if env is None:
                raise UsageError(
                    f"the environment of {old.id} is not kept", "send the one that it shall have"
                )
            env = {**env, **submit_check.env_again(old.spec, changes)}
            job = await self._insert(uuid, spec, env)
            gone = [name for name in spec.env_set if name not in env]
            if gone:
                text = f"{', '.join(gone)} of {old.id} is not kept: a secret, or too long; give it again with --env"
                await self._note(job, None, text)
        if job.spec.parent == old.id and not is_over(old):
            await self._write(lambda c: catalog.request_stop(c, pk, self._clock_ns()))
            self.poke()
        return job

    def _still_open(self, uuids: Sequence[str]) -> list[str]:
        """Of the jobs that the old one waited for, those that may still succeed."""
        with self._store.read() as c:
            states = catalog.states_of(c, uuids)
        return [
            uuid for uuid, (_, state) in states.items() if state is not None and state not in ENDED
        ]

    async def delete(self, pk: int) -> None:
        """Hide a job that is over, and remove its spools; its rows and logs go with the next gc."""
        job = await self._calls.run("the store", self._load, pk)
        if not is_over(job):
            raise RefusedError(f"{job.id} is {job.state}", f"to end it first: hw abort {job.id}")
        await self._write(partial(transactions.delete, job, self._clock_ns()))
        engine = self._engine_or_none(job.spec)
        if isinstance(engine, Salvager):
            for attempt in job.attempts:
                if attempt.engine_id is not None:
                    await self._calls.run(
                        f"spool of {job.id}", engine.discard, EngineId(attempt.engine_id)
                    )

    async def register(self, body: JsonMapping) -> JsonObject:
        """Body and answer of `POST /agent/register`: a script that was started without us becomes a
        job.
        """
        uuid = submit_check.job_uuid(body.get("uuid"))
        spec = submit_check.job_spec(_attached_spec(body))
        known = await self._calls.run("the store", self._find_uuid, uuid)
        if known is not None and not known.spec.attached:
            raise RefusedError(f"{known.id} is not an attached job")
        await self._admit(uuid, spec.monitor)
        self._engine(spec)  # so that it is observed, and its spool found, from now on
        token_id, token, digest = auth.mint()
        key = TaskKey(uuid, 1, ATTACHED_TASK)
        started_ns = body.get("started_ns")
        now_ns = self._clock_ns()
        begun_ns = (
            started_ns if isinstance(started_ns, int) and 0 < started_ns <= now_ns else now_ns
        )

        def work(c: Connection) -> Job:
            return transactions.insert_attached(c, key, spec, token_id, digest, begun_ns, now_ns)

        job = await self._write(work)
        self.heard(key)
        self.poke()
        return {"id": job.id, "token": token, "attempt": key.attempt, "task": key.task}

    async def commands_for_guests(
        self, uuids: Sequence[str], wait_s: float, done: Sequence[int]
    ) -> list[JsonObject]:
        """Commands for jobs that another machine runs; at once when there are some for any of them."""
        asked = {
            asyncio.ensure_future(self._mailbox.take(mailbox_key(uuid), wait_s, done)): uuid
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
            survey.Asked(one, self._engines.get(one.place) or self._engine_for_once(one))
            for one in specs
        ]
        now_ns = self._clock_ns()
        sketches = [
            Job(0, "trial", NO_UUID, one, State.WAITING, now_ns, now_ns) if spec else None
            for one in specs
        ]
        await survey.ask_all(self._calls, asked, sketches)
        jobs = await self._calls.run("the store", self._open_jobs)
        others = {
            job.spec.place: job.spec
            for job in jobs
            if job.spec.place not in {one.place for one in specs}
        }
        more = [survey.Asked(one, self._engine_or_none(one)) for one in others.values()]
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
        engines = dict(self._engines)
        for one in specs:
            engine = engines.get(one.place) or self._engine_for_once(one)
            engines |= {one.place: engine} if engine is not None else {}
        open_jobs = await self._calls.run("the store", self._store.open_uuids)
        return await survey.collect(self._calls, engines, open_jobs, dry_run=dry_run)

    async def load(self, pk: int) -> Job:
        return await self._calls.run("the store", self._load, pk)

    async def explain(self, job: Job) -> Waiting:
        """Why a job waits: its engine says it, or, as long as it is in our own queue, we do."""
        engine = self._engine_or_none(job.spec)
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
        if trouble := self._retry.why(job.uuid):
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
        jobs = await self._calls.run("the store", self._open_jobs)
        wanted = {uuid for one in (job, *jobs) for uuid in one.spec.after}
        needed = await self._calls.run("the store", engine_calls.states_of, self._store, wanted)
        queues = [place for place, one in self._engines.items() if one.queues]
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
        engine = self._engines.get(
            JobSpec([], "/", "", cluster=job["cluster"], definition=job["definition"]).place
        )
        attempt = job["attempts"][-1] if job["attempts"] else {"tasks": []}
        for task in attempt["tasks"]:
            key = TaskKey(job["uuid"], attempt["number"], task["name"])
            words = engine.attach(key, task.get("node")) if engine else None
            if words is not None:
                return words
        return None

    def _engine_for_once(self, spec: JobSpec) -> Engine | None:
        """For a look: an engine of a definition that no job has is not kept."""
        return self._make_engine(spec.cluster, self._paths, self._settings.get, spec.definition)

    async def commands_for(
        self, task: TaskKey, wait_s: float, done: Sequence[int]
    ) -> list[JsonObject]:
        """Commands for a task's agent; answers at once when there are some, else after `wait_s`."""
        self.heard(task)
        commands = await self._mailbox.take(task, min(max(wait_s, 0.0), TRAY_POLL_WAIT_S), done)
        self.heard(task)
        return commands


def as_planned(spec: JobSpec, plan: Plan) -> JobSpec:
    """With the whole of what it takes, for the queue and for views."""
    processes = sum(task.processes for task in plan.tasks) if spec.roles else spec.processes
    return replace(
        spec, gpus=plan.gpus, cpus=plan.cpus, memory_bytes=plan.memory_bytes, processes=processes
    )


def _attached_spec(body: JsonMapping) -> JsonObject:
    """It runs already, so what it calls itself is taken as well as it can be."""
    argv = mask_argv(submit_check.command(body.get("argv")))
    size = body.get("world_size") or 1
    return {
        "command": argv,
        "cwd": body.get("cwd") or "/",
        "name": body.get("name") or name_from_command(argv),
        "experiment": body.get("experiment"),
        "processes": min(size, PROCESSES_MAX) if isinstance(size, int) else size,
        "umask": body.get("umask") or 0,
        "user": body.get("user") or "",
        "host": body.get("host") or "",
        "tags": list(body.get("tags") or []),
        "attached": True,
        "monitor": body.get("monitor"),
        "parent": body.get("parent"),
    }

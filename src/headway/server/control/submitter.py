"""New jobs: checked, stored, and again. Called by `control.py`.

A submission is checked whole before anything of it is stored; what may not be stored (the
environment, commands with secrets) is kept in a file of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from sqlite3 import Connection

from headway.engines.protocol import Engine, Plan, Scripted
from headway.model.errors import HeadwayError, RefusedError, UnreachableError, UsageError
from headway.model.ids import name_from_command
from headway.model.job import ENDED, Job, JobSpec, State
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import PROCESSES_MAX
from headway.server.control import env_file, folder_check, program_check, submit_check, transactions
from headway.server.control.context import Context
from headway.server.control.drain import is_over
from headway.server.control.engine_calls import with_private
from headway.server.http import auth
from headway.settings import clusters
from headway.settings.quantity import duration_text
from headway.store import catalog
from headway.wire.batch import TaskKey
from headway.wire.redact import mask_argv, secret_values

Look = Callable[[Connection, int], None]
ATTACHED_TASK = "worker-0"
NO_UUID = "00000000-0000-0000-0000-000000000000"  # of a job that is only planned


class Submitter:
    def __init__(
        self,
        context: Context,
        poke_for: Callable[[Engine], None],
        heard: Callable[[TaskKey], None],
    ) -> None:
        self._context = context
        self._store, self._paths, self._settings = context.store, context.paths, context.settings
        self._calls, self._engines = context.calls, context.engines
        self._clock_ns, self._clock_s = context.clock_ns, context.clock_s
        self._poke_for, self._heard = poke_for, heard

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
            known = await self._calls.run("the store", self._context.find_uuid, uuid)
            if known is None:
                raise
            return known

    async def plan(self, spec: JsonMapping, env: Mapping[str, str]) -> Plan:
        """What the engine would get, for `--dry-run`: every check of a submission, and nothing
        stored.
        """
        checked = submit_check.job_spec(spec)
        engine = await self.checked(
            NO_UUID, checked, submit_check.environment(env, checked), find_program=True
        )
        return await self._calls.run(f"plan of {NO_UUID}", self._scripted, engine, checked)

    def _scripted(self, engine: Engine, spec: JobSpec) -> Plan:
        """In a thread: the plan with what the engine's own program would be given."""
        plan = self.sketched(engine, NO_UUID, spec)
        return replace(plan, script=engine.script(plan)) if isinstance(engine, Scripted) else plan

    async def checked(
        self, uuid: str, spec: JobSpec, variables: Mapping[str, str], *, find_program: bool = False
    ) -> Engine:
        """Its engine, after everything was checked that can be known now without it."""
        submit_check.folder(spec.cwd)
        program_check.check_input(spec)
        if spec.code is not None:
            await self._calls.run(f"code of {uuid}", submit_check.code, spec, self._paths.home)
        engine = self._engines.get(spec)
        if spec.folders:
            await self._calls.run(
                "files", folder_check.check, spec, variables, engine.name, self._paths.home
            )
        if spec.options:
            spec.options = clusters.job_options(engine.name, spec.options, spec.cluster)
        if engine.name == "local" and find_program and not (spec.after or spec.code):
            await self._calls.run("files", program_check.check, spec, variables)
        return engine

    def sketched(self, engine: Engine, uuid: str, spec: JobSpec) -> Plan:
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
        spec = await self.settled(spec)
        engine = await self.checked(uuid, spec, variables, find_program=find_program)
        made = await self._calls.run(f"plan of {uuid}", self._kept, engine, uuid, spec, variables)
        if isinstance(made, Job):
            return made
        await self._context.admit(uuid, made.monitor)
        now_ns = self._clock_ns()

        def work(c: Connection) -> Job:
            job = catalog.insert_job(c, uuid, made, now_ns, engine.name)
            if look is not None:
                look(c, job.pk)
            return job

        job = await self._context.write(work)
        self._poke_for(engine)
        return job

    def _kept(
        self, engine: Engine, uuid: str, spec: JobSpec, variables: dict[str, str]
    ) -> JobSpec | Job:
        """In a thread: what is stored of a job, once what may not be stored is in its file; a job
        that is known.
        """
        known = self._context.find_uuid(uuid)
        if known is not None:
            return known
        plan = self.sketched(engine, uuid, spec)
        private = env_file.Private(
            variables, spec.command, {role.name: role.command for role in spec.roles}
        )
        self.keep(uuid, private)
        return as_planned(self.shown(spec, variables), plan)

    def shown(self, spec: JobSpec, variables: Mapping[str, str]) -> JobSpec:
        """With the commands as they may be stored: secrets in them are masked."""
        names = self._context.secret_names(spec)
        values = secret_values(variables, names)
        roles = [
            replace(role, command=mask_argv(role.command, values, names)) for role in spec.roles
        ]
        shown = mask_argv(spec.command, values, names)
        masked = shown != spec.command or roles != spec.roles
        kept = env_file.kept(spec, variables, names)
        return replace(spec, command=shown, roles=roles, masked=masked, env_kept=kept)

    def keep(self, uuid: str, private: env_file.Private) -> None:
        try:
            env_file.save(self._paths.env, uuid, private)
        except OSError as error:
            told = f"nothing was submitted: the server cannot write to {self._paths.home}: {error.strerror}"
            raise UnreachableError(
                told, "make room there, or hw doctor says more; then try again"
            ) from error

    async def settled(self, spec: JobSpec) -> JobSpec:
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

    async def resubmit(
        self, pk: int, uuid: str, changes: JsonMapping, env: Mapping[str, str] | None = None
    ) -> Job:
        """A new job like an old one. The new one is stored before the old one, if it still runs, is
        asked to stop.
        """
        old = await self._calls.run("the store", self._context.load, pk)
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
        job = await self._calls.run("the store", self._context.find_uuid, uuid)
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
                await self._context.note(job, None, text)
        if job.spec.parent == old.id and not is_over(old):
            await self._context.write(lambda c: catalog.request_stop(c, pk, self._clock_ns()))
            self._context.poke()
        return job

    def _still_open(self, uuids: Sequence[str]) -> list[str]:
        """Of the jobs that the old one waited for, those that may still succeed."""
        with self._store.read() as c:
            states = catalog.states_of(c, uuids)
        return [
            uuid for uuid, (_, state) in states.items() if state is not None and state not in ENDED
        ]

    async def register(self, body: JsonMapping) -> JsonObject:
        """Body and answer of `POST /agent/register`: a script that was started without us becomes a
        job.
        """
        uuid = submit_check.job_uuid(body.get("uuid"))
        spec = submit_check.job_spec(_attached_spec(body))
        known = await self._calls.run("the store", self._context.find_uuid, uuid)
        if known is not None and not known.spec.attached:
            raise RefusedError(f"{known.id} is not an attached job")
        await self._context.admit(uuid, spec.monitor)
        self._engines.get(spec)  # so that it is observed, and its spool found, from now on
        token_id, token, digest = auth.mint()
        key = TaskKey(uuid, 1, ATTACHED_TASK)
        started_ns = body.get("started_ns")
        now_ns = self._clock_ns()
        begun_ns = (
            started_ns if isinstance(started_ns, int) and 0 < started_ns <= now_ns else now_ns
        )

        def work(c: Connection) -> Job:
            return transactions.insert_attached(c, key, spec, token_id, digest, begun_ns, now_ns)

        job = await self._context.write(work)
        self._heard(key)
        self._context.poke()
        return {"id": job.id, "token": token, "attempt": key.attempt, "task": key.task}

    async def _private(self, job: Job) -> env_file.Private | None:
        return await self._calls.run("files", env_file.of_job, self._paths.env, job.uuid, job.spec)


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

"""The verbs for arrays: many jobs submitted, stopped and repeated as one. Called by `control.py`.

All jobs of an array are checked before any is stored, and stored in one transaction; their
environment is kept once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from headway.model.errors import RefusedError, UsageError
from headway.model.job import JobSpec
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import ARRAY_JOBS_MAX
from headway.server.control import env_file, folder_check, submit_check
from headway.server.control.context import Context
from headway.server.control.submitter import Submitter, as_planned
from headway.store import arrays

# What may differ from job to job without another look at all the rest.
_LIGHT = frozenset(("command", "parameters", "array_index"))


@dataclass(frozen=True, slots=True)
class Element:
    """One job: its number, the fields of its spec and the variables that it has of its own."""

    index: int
    spec: JsonMapping
    env: Mapping[str, str]


class Arrays:
    def __init__(self, context: Context, submitter: Submitter) -> None:
        self._context = context
        self._store, self._paths, self._settings = context.store, context.paths, context.settings
        self._calls, self._engines = context.calls, context.engines
        self._clock_ns, self._clock_s = context.clock_ns, context.clock_s
        self._submitter = submitter

    async def submit(
        self, uuid: str, spec: JsonMapping, env: Mapping[str, str], jobs: Sequence[Element], *,
        parent: str | None = None, find_program: bool = False,
    ) -> str:  # fmt: skip
        """The array's uuid. The same uuid is the same array, whatever died in between (P9)."""
        uuid = submit_check.job_uuid(uuid)
        if await self._calls.run("the store", self._knows, uuid):
            return uuid
        _check_elements(jobs)
        shared = replace(
            submit_check.job_spec({**spec, "attached": False}), array=uuid, parent=parent
        )
        shared = await self._submitter.settled(shared)
        variables = submit_check.environment(env, shared)
        first = self._element(shared, jobs[0])
        engine = await self._submitter.checked(
            uuid, first, {**variables, **jobs[0].env}, find_program=find_program
        )
        plan = await self._calls.run(
            f"plan of {uuid}", self._submitter.sketched, engine, uuid, first
        )
        shared = replace(
            as_planned(shared, plan),
            env_kept=env_file.kept(shared, variables, self._context.secret_names(shared)),
        )
        rows, private = await self._calls.run("jobs", self._rows, shared, variables, jobs)
        await self._calls.run("files", self._check_folders, shared, variables, jobs, engine.name)
        await self._calls.run(f"environment of {uuid}", self._submitter.keep, uuid, private)
        common = {
            "name": shared.name, "experiment": shared.experiment, "cluster": shared.cluster, "tags": shared.tags,
            "priority": shared.priority, "parent": parent,
        }  # fmt: skip
        now_ns = self._clock_ns()
        await self._context.write(
            lambda c: arrays.insert(c, uuid, common, rows, now_ns, engine.name)
        )
        self._context.poke()
        return uuid

    def _knows(self, uuid: str) -> bool:
        with self._store.read() as c:
            return c.execute("SELECT 1 FROM arrays WHERE uuid = ?", (uuid,)).fetchone() is not None

    def _element(self, shared: JobSpec, job: Element) -> JobSpec:
        changes = {**job.spec, "array_index": job.index}
        if changes.keys() <= _LIGHT:
            if "command" in job.spec:
                submit_check.command(job.spec["command"])
            return replace(shared, **changes)
        return submit_check.job_spec({**asdict(shared), **changes})

    def _check_folders(
        self, shared: JobSpec, variables: Mapping[str, str], jobs: Sequence[Element], engine: str
    ) -> None:
        """Those that jobs have of their own. Jobs that run in one folder would send each other's
        output.
        """
        specs = [self._element(shared, job) for job in jobs if "folders" in job.spec]
        sent = []
        for spec in (shared, *specs):
            sent += [folder.name for folder in spec.folders if folder.target and not folder.mount]
        if sent and shared.code is None and len(jobs) > 1:
            raise UsageError(
                "the jobs of this array run in one folder, "
                f"and would all send the same ./{sent[0]}",
                "submit it with --snapshot: each job then has a folder of its own",
            )
        for spec in specs:
            folder_check.check(spec, variables, engine, self._paths.home)

    def _rows(
        self, shared: JobSpec, variables: Mapping[str, str], jobs: Sequence[Element]
    ) -> tuple[list[arrays.Row], env_file.Private]:
        """What is stored of each job, and what may not be: commands with secrets in them, variables
        of its own.
        """
        rows: list[arrays.Row] = []
        own: dict[str, JsonObject] = {}
        base = asdict(shared)
        for job in jobs:
            spec = self._element(shared, job)
            if job.env:
                submit_check.environment({**variables, **job.env}, spec)
            shown = self._submitter.shown(spec, {**variables, **job.env} if job.env else variables)
            kept: JsonObject = {"env": dict(job.env)} if job.env else {}
            if shown.masked and job.spec.keys() & {"command", "roles"}:
                kept |= {"command": list(spec.command), "roles": _commands(spec)}
            if kept:
                own[str(job.index)] = kept
            plain = asdict(shown) if job.spec.keys() - _LIGHT else {**base, **_differing(shown)}
            rows.append(arrays.Row(job.index, shown.name, json.dumps(plain)))
        return rows, env_file.Private(dict(variables), shared.command, _commands(shared), own)

    async def abort(self, uuid: str) -> int:
        """Ask every job of an array to stop; how many were asked. Asking twice is asking once."""
        stopped = await self._context.write(partial(_stop, uuid, self._clock_ns()))
        self._context.poke()
        return stopped

    async def resubmit(
        self,
        old: str,
        uuid: str,
        changes: JsonMapping,
        env: Mapping[str, str],
        states: Sequence[str],
    ) -> str:
        """The jobs of an array again, all or those in some states. Stored before the old ones are
        asked to stop.
        """
        uuid = submit_check.job_uuid(uuid)
        if await self._calls.run("the store", self._knows, uuid):
            return uuid
        parent, found = await self._calls.run("the store", self._repeatable, old, states)
        if any(spec["masked"] for _, _, spec in found) and "command" not in changes:
            raise RefusedError(
                f"commands of {parent} held a secret, which is not kept",
                "submit them again; better keep secrets in the environment",
            )
        first = JobSpec.from_values(found[0][2])
        again = {
            **submit_check.joined_env(first, changes),
            **submit_check.launcher_again(first, changes),
            **submit_check.options_again(first, changes),
        }
        fixed = {"gpus": 0, "masked": False, "array": None, "env_kept": {}, **again}
        base = {**found[0][2], **changes, **fixed}
        env = {**env, **submit_check.env_again(first, changes)}
        own = await self._calls.run("files", env_file.own, self._paths.env, old)
        elements = [
            Element(index, _changed(base, {**spec, **changes, **fixed}), own.get(str(index), {}))
            for index, _, spec in found
        ]
        made = await self.submit(uuid, base, env, elements, parent=parent)
        if not states:
            await self.abort(old)
        return made

    def _repeatable(
        self, old: str, states: Sequence[str]
    ) -> tuple[str, list[tuple[int, str, JsonObject]]]:
        with self._store.read() as c:
            found = arrays.selected(c, old, states)
            name = str(c.execute("SELECT id FROM arrays WHERE uuid = ?", (old,)).fetchone()["id"])
        if not found:
            raise RefusedError(
                f"{name} has no job that is {' or '.join(states) or 'left'}", f"hw q {name}"
            )
        return name, [(index, job, _known_fields(spec)) for index, job, spec in found]


def _commands(spec: JobSpec) -> dict[str, list[str]]:
    return {role.name: list(role.command) for role in spec.roles}


def _known_fields(spec: JsonMapping) -> JsonObject:
    return {name: value for name, value in spec.items() if name in JobSpec.__dataclass_fields__}


def _changed(base: JsonMapping, spec: JsonMapping) -> JsonObject:
    return {
        name: value
        for name, value in spec.items()
        if name != "array_index" and value != base.get(name)
    }


def _differing(spec: JobSpec) -> JsonObject:
    return {
        "command": spec.command, "masked": spec.masked, "parameters": spec.parameters, "array_index": spec.array_index,
        "gpus": spec.gpus, "roles": [asdict(role) for role in spec.roles],
    }  # fmt: skip


def _check_elements(jobs: Sequence[Element]) -> None:
    if not 1 <= len(jobs) <= ARRAY_JOBS_MAX:
        raise UsageError(f"an array of {len(jobs)} jobs cannot be", f"it has 1 to {ARRAY_JOBS_MAX}")
    if len({job.index for job in jobs}) != len(jobs):
        raise UsageError("two jobs of the array have the same number")


def _stop(uuid: str, now_ns: int, c: Any) -> int:
    return arrays.request_stop(c, uuid, now_ns)

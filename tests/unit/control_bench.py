"""A store, an engine that a test moves by hand, and the Control over both. Used by
`test_control.py`.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import EngineId, Given, Node, Observation, Plan, PlannedTask, Waiting
from headway.home.paths import Paths
from headway.model.errors import RefusedError
from headway.model.ids import new_uuid
from headway.model.job import Job
from headway.model.record import FACT, OPEN, RECORDS
from headway.server.control.control import Control
from headway.server.http import auth
from headway.store import catalog
from headway.store.database import Store
from headway.wire import frame
from headway.wire.batch import Part, TaskKey

SETTINGS: dict[str, Any] = {"max_running": 2, "gpus": 0, "secret_names": [], "hold_max_s": 3600.0}


class HandEngine:
    """An engine whose every answer a test sets."""

    name, queues = "local", False

    def __init__(self, cluster: str = "here") -> None:
        self.cluster = cluster
        self.started: dict[str, Given] = {}  # by key
        self.submits: list[str] = []
        self.cancelled: list[str] = []
        self.salvaged: list[str] = []
        self.discarded: list[str] = []
        self.states: dict[str, Observation] = {}
        self.refuse: Exception | None = None
        self.after_submit: Exception | None = None
        self.can_cancel = True
        self.hang: threading.Event | None = None
        self.before_find: Callable[[], object] | None = None

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec = job.spec
        if (spec.cpus or 0) > 8:
            raise RefusedError(f"the job asks for {spec.cpus} CPUs, this machine has 8")
        task = PlannedTask("worker-0", tuple(spec.command), spec.cwd, spec.processes, node="host")
        return Plan(
            "local",
            self.cluster,
            job.id,
            job.uuid,
            attempt,
            (task,),
            spec.processes,
            cpus=spec.cpus,
        )

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        self.submits.append(key)
        if self.refuse is not None:
            raise self.refuse
        self.started.setdefault(key, given)
        self.states.setdefault(f"{key}-worker-0", Observation("running", "up", {"started": True}))
        if self.after_submit is not None:
            raise self.after_submit
        return EngineId(f"{key}-worker-0")

    def find(self, key: str) -> EngineId | None:
        call, self.before_find = self.before_find, None
        if call is not None:
            call()
        return EngineId(f"{key}-worker-0") if key in self.started else None

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        if self.hang is not None:
            self.hang.wait(30)
        return {i: self.states.get(i, Observation("gone", "no spool")) for i in ids}

    def cancel(self, engine_id: EngineId) -> bool:
        self.cancelled.append(engine_id)
        return self.can_cancel

    def explain(self, engine_id: EngineId) -> Waiting:
        return Waiting("because")

    def capacity(self) -> list[Node]:
        return [Node("host", 8, 1 << 34, 0)]

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        return None

    def close(self) -> None: ...

    def salvage(self, engine_id: EngineId) -> bool:
        self.salvaged.append(engine_id)
        return True

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        return [
            (EngineId(f"{k}-worker-0"), TaskKey(k.rsplit("-", 1)[0], 1, "worker-0"))
            for k in self.started
        ]

    def discard(self, engine_id: EngineId) -> None:
        self.discarded.append(engine_id)


class Bench:
    """A store, an engine and the Control over both; `restart` is what a kill -9 of the server
    leaves.
    """

    def __init__(self, home: Path) -> None:
        self.paths = Paths(home)
        self.store = Store(self.paths)
        self.store.open()
        self.engine = HandEngine()
        self.others: dict[str, HandEngine] = {}  # by cluster
        self.now_s = 1000.0
        self.control = self.make()
        self._offsets: dict[str, int] = {}

    def make(self) -> Control:
        engine = self.engine

        def make(cluster: str, *_: object) -> HandEngine:
            return self.others.get(cluster, engine)

        self.control = Control(
            self.store, self.paths, Settings(), make_engine=make, clock_s=lambda: self.now_s
        )
        return self.control

    async def restart(self) -> None:
        await self.control.stop()
        await self.make().prepare()

    async def submit(
        self, *command: str, uuid: str | None = None, env: dict[str, str] | None = None, **spec: Any
    ) -> Job:
        fields = {"command": list(command or ["true"]), "cwd": "/", "name": "job", **spec}
        return await self.control.submit(
            uuid or new_uuid(), fields, env or {"PATH": "/bin", "MY_KEY": "hunter22"}
        )

    def job(self, pk: int) -> Job:
        with self.store.read() as c:
            return catalog.load_job(c, pk)

    def jobs(self) -> list[Job]:
        with self.store.read() as c:
            return catalog.list_jobs(c)

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += 1.1
            await self.control.look()
            if await self.control.diagnoses.settle():
                await self.control.look()  # an end that waited for it
            await self.control.executor.later.settle()

    async def tell(self, job: Job, *facts: dict[str, Any]) -> None:
        """Facts of the job's shim, as its shipper would send them."""
        key = TaskKey(job.uuid, 1, "worker-0")
        data = (
            b""
            if job.uuid in self._offsets
            else frame.encode_json(OPEN, {"version": 1, "stream": "shim"})
        )
        for told in facts:
            data += frame.encode_json(FACT, {"time_ns": 1_800_000_000 * 10**9, **told})
        offset = self._offsets.get(job.uuid, 0)
        self._offsets[job.uuid] = offset + len(data)
        await asyncio.wrap_future(self.store.ingest(key, [Part("shim", RECORDS, offset, data)]))
        self.control.heard(key)

    async def run_to_end(self, job: Job, **end: Any) -> None:
        await self.tell(job, started(), ended(**end))
        await self.look()

    def env_files(self) -> list[str]:
        return os.listdir(self.paths.env) if self.paths.env.exists() else []

    def token_is_open(self, job: Job, engine: HandEngine | None = None) -> bool:
        token = (engine or self.engine).started[f"{job.uuid}-1"].tokens["worker-0"]
        with self.store.read() as c:
            found = catalog.find_token(c, token.split(".")[0])
        assert found is not None and found.hash == auth.digest(token.split(".")[1])
        return found.ended_ns is None


class Settings:
    def get(self, name: str) -> Any:
        return SETTINGS[name]


def started(rank: int = 0) -> dict[str, Any]:
    return {
        "type": "process_started",
        "rank": rank,
        "local_rank": rank,
        "pid": 100 + rank,
        "start": 5,
    }


def ended(exit_code: int | None = 0, signal: int | None = None, **more: Any) -> dict[str, Any]:
    base = {
        "type": "task_ended",
        "first_rank": 0 if exit_code or signal else None,
        "reason": None,
        "oom": False,
    }
    return {**base, "lost": False, "exit_code": exit_code, "signal": signal, **more}


Check = Callable[[Bench], Coroutine[Any, Any, None]]


def in_loop(test: Check) -> Callable[[Path], None]:
    """Run a coroutine test with a bench of its own."""

    @wraps(test)
    def run(home: Path) -> None:
        async def inside() -> None:
            async with a_bench(home) as bench:
                await test(bench)

        asyncio.run(inside())

    del run.__wrapped__  # else pytest would ask for a fixture `bench`
    return run


@asynccontextmanager
async def a_bench(home: Path) -> AsyncIterator[Bench]:
    bench = Bench(home)
    try:
        await bench.control.prepare()
        yield bench
    finally:
        if bench.engine.hang is not None:
            bench.engine.hang.set()
        await bench.control.stop()
        bench.store.close()


async def refused(kind: type[Exception], call: Awaitable[Any]) -> Any:
    with pytest.raises(kind) as error:
        await call
    return error.value

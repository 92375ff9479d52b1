"""What all parts of control work with: store, engines, clocks, mailbox. Made by `control.py`."""

import asyncio
from collections.abc import Awaitable, Callable
from sqlite3 import Connection
from typing import Any, Protocol, TypeVar

from headway.home.paths import Paths
from headway.model.job import Job, JobSpec
from headway.model.json_types import JsonObject
from headway.server.control import engine_calls
from headway.server.control.agent_commands import Mailbox
from headway.server.control.attempt_state import AttemptStates
from headway.server.control.blocking_calls import Calls
from headway.server.control.drain import Backoff
from headway.server.control.engine_pool import EnginePool
from headway.server.control.loop_wakeup import Wakeup
from headway.server.monitor.monitor_queue import Outbox
from headway.store import catalog
from headway.store.database import Store

T = TypeVar("T")
RETRY_FIRST_S = 1.0  # after a start that failed for now; doubles
RETRY_MAX_S = 30.0


class Getter(Protocol):
    def get(self, name: str) -> Any: ...


class Context:
    def __init__(
        self, store: Store, paths: Paths, settings: Getter, wakeup: Wakeup, calls: Calls, engines: EnginePool,
        clock_ns: Callable[[], int], clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self.store, self.paths, self.settings = store, paths, settings
        self.wakeup, self.calls, self.engines = wakeup, calls, engines
        self.clock_ns, self.clock_s = clock_ns, clock_s
        self.mailbox = Mailbox(clock_ns() // 1_000_000)
        self.attempts = AttemptStates()
        self.retry = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        # set by the server; without it no monitor is told of jobs
        self.outbox: Outbox | None = None
        # set by the server: its address
        self.reach: Callable[[], Awaitable[JsonObject | None]] = engine_calls.nowhere

    def poke(self) -> None:
        self.wakeup.poke()

    async def write(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.wrap_future(self.store.write(work))

    def load(self, pk: int) -> Job:
        """Blocks: to be called in a thread, as `find_uuid`."""
        with self.store.read() as c:
            return catalog.load_job(c, pk)

    def find_uuid(self, uuid: str) -> Job | None:
        with self.store.read() as c:
            pk = catalog.find_uuid(c, uuid)
            return None if pk is None else catalog.load_job(c, pk)

    def secret_names(self, spec: JobSpec) -> list[str]:
        """What the submitter and this server's own settings call secret, whatever it looks like."""
        return sorted({*spec.secret_names, *(self.settings.get("secret_names") or [])})

    async def admit(self, uuid: str, monitor: str | None) -> None:
        """A monitor shall have the job, from its first byte on."""
        if monitor is not None and self.outbox is not None:
            await self.outbox.admit(uuid, monitor)

    async def note(self, job: Job, number: int | None, text: str) -> None:
        data = {"level": "warning", "text": text}
        await self.write(
            lambda c: catalog.add_event(c, job.pk, "note", data, self.clock_ns(), attempt=number)
        )

"""Asks the agents of a job for the stacks of all its ranks, and waits for what they send. Called by
`api/stacks.py` and by the look at what runs.

The request goes with the commands, the answers come as facts like any other data: they take the
same ways, and are kept with the attempt.
"""

import asyncio
import time
from typing import Protocol

from headway.model.errors import RefusedError
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.model.limits import STACKS_NATIVE_S, STACKS_WAIT_S
from headway.server.live import Live
from headway.store import stack_rows
from headway.store.database import Store

Facts = dict[str, JsonObject]


class Asks(Protocol):
    """The part of control that puts commands into agents' mailboxes."""

    def ask_agents(self, job: Job, command: JsonObject) -> list[str]: ...


class StackRequests:
    def __init__(self, store: Store, live: Live, control: Asks) -> None:
        self._store, self._live, self._control = store, live, control
        self._under_way: dict[tuple[int, bool], asyncio.Task[tuple[int, Facts]]] = {}

    async def collect(self, job: Job, *, native: bool = False) -> tuple[int, Facts]:
        """(number of the request, facts by task); those who ask at the same time share one answer.
        A task that did not answer in time is not in it.
        """
        key = (job.pk, native)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._collect(job, native))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _collect(self, job: Job, native: bool) -> tuple[int, Facts]:
        if not job.attempts:
            raise RefusedError(f"{job.id} has not started", f"why it waits: hw why {job.id}")
        number = job.attempts[-1].number
        request = time.time_ns() // 1_000_000
        deadline_s = time.monotonic() + STACKS_WAIT_S + (STACKS_NATIVE_S if native else 0.0)
        with self._live.watch(job.pk) as watch:
            watch.start()
            asked = self._control.ask_agents(
                job, {"do": "stacks", "request": request, "native": native}
            )
            facts: Facts = {}
            while len(facts) < len(asked):
                rest_s = deadline_s - time.monotonic()
                if rest_s <= 0 or self._live.closed:
                    break
                news = await watch.wait(rest_s)
                watch.start()
                if "stacks" in news:
                    facts = await asyncio.to_thread(self._load, job.pk, number, request)
            return request, facts

    async def last(self, job: Job) -> tuple[int, Facts] | None:
        """What was collected last, of the newest attempt that has any."""
        for attempt in reversed(job.attempts):
            found = await asyncio.to_thread(self._last, job.pk, attempt.number)
            if found is not None:
                return found
        return None

    def _last(self, job: int, attempt: int) -> tuple[int, Facts] | None:
        with self._store.read() as c:
            request = stack_rows.last_request(c, job, attempt)
            if request is None:
                return None
            return request, stack_rows.load(c, job, attempt, request)

    def _load(self, job: int, attempt: int, request: int) -> Facts:
        with self._store.read() as c:
            return stack_rows.load(c, job, attempt, request)

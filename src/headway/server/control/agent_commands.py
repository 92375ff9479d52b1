"""Commands for agents, kept until they say that they have done them. Called by `loop.py`.

In memory: what must survive the server (a request to stop) is in the store, and is put here again.
"""

import asyncio
from collections.abc import Iterable

from headway.model.errors import RefusedError
from headway.model.json_types import JsonObject
from headway.wire.batch import TaskKey

COMMANDS_MAX = 64  # waiting for one task


class Mailbox:
    """Used in the event loop only. `first_seq` grows from one server to the next, so an agent never
    mixes them up.
    """

    def __init__(self, first_seq: int) -> None:
        self._seq = first_seq
        self._waiting: dict[TaskKey, list[JsonObject]] = {}
        self._news: dict[TaskKey, asyncio.Event] = {}
        self._closed = False

    def put(self, task: TaskKey, command: JsonObject) -> int:
        """Queue a command; RefusedError when the agent takes none for too long."""
        waiting = self._waiting.setdefault(task, [])
        if len(waiting) >= COMMANDS_MAX:
            raise RefusedError(
                f"{COMMANDS_MAX} commands already wait for this job's agent",
                "it may be hung or away",
            )
        self._seq += 1
        waiting.append({"seq": self._seq, **command})
        self._ring(task)
        return self._seq

    def put_once(self, task: TaskKey, command: JsonObject) -> None:
        """Queue a command unless one of its kind waits already."""
        if all(known["do"] != command["do"] for known in self._waiting.get(task, [])):
            self.put(task, command)

    async def take(self, task: TaskKey, wait_s: float, done: Iterable[int]) -> list[JsonObject]:
        """Forget what is done; then the commands that wait, at once or as soon as there is one."""
        finished = set(done)
        kept = [
            command for command in self._waiting.get(task, []) if command["seq"] not in finished
        ]
        self._keep(task, kept)
        if not kept and not self._closed and wait_s > 0:
            event = self._news.setdefault(task, asyncio.Event())
            try:
                await asyncio.wait_for(event.wait(), wait_s)
            except TimeoutError:
                pass
            finally:
                if self._news.get(task) is event:
                    del self._news[task]
        return list(self._waiting.get(task, []))

    def forget(self, task: TaskKey) -> None:
        """Drop the commands of a task that is over."""
        self._keep(task, [])

    def close(self) -> None:
        self._closed = True
        for task in list(self._news):
            self._ring(task)

    def _keep(self, task: TaskKey, commands: list[JsonObject]) -> None:
        if commands:
            self._waiting[task] = commands
        else:
            self._waiting.pop(task, None)

    def _ring(self, task: TaskKey) -> None:
        event = self._news.pop(task, None)
        if event is not None:
            event.set()

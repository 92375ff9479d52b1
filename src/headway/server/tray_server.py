"""Trays: requests that agents left as files in a shared folder, answered as if they had come over a
connection.

Made by `serve.py`. One look at one folder finds the requests of all tasks of a cluster; looks come
less often while nothing changes. A folder that does not answer (a network file system that hangs)
costs its own cluster only. Whose file it is says who is there, as on the unix socket, and its name
says of which task: nothing but that task's own routes can be reached. Every step may be repeated:
after a server's death the next one finds the request, or it is sent again.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from headway.engines.protocol import AnyBox, Distant
from headway.model.errors import DamagedError, HeadwayError
from headway.model.json_types import JsonObject
from headway.model.limits import (
    TRAY_HALF_S,
    TRAY_KNOWN_MAX,
    TRAY_LOOK_FIRST_S,
    TRAY_LOOK_MAX_S,
    TRAY_READ_MAX,
    TRAY_SWEEP_S,
    TRAY_TASK_FILES_MAX,
)
from headway.server.http.guard import AGENT_PATHS
from headway.server.http.request import Reply, reply_error
from headway.wire import tray

log = logging.getLogger("headway.server")
T = TypeVar("T")
INGEST = "/agent/ingest"
NEW_ENGINES_S = 1.0  # between two looks for engines that have come
Reach = Callable[[], Awaitable[JsonObject | None]]
Answer = Callable[[str, str, bytes], Awaitable[Reply]]  # task, route, body


class Trays:
    """Follows the trays of all engines that have one, and has them tell their agents where this
    server is now.
    """

    def __init__(
        self, engines: Callable[[], Iterable[Distant]], answer: Answer, reach: Reach
    ) -> None:
        self._engines, self._answer, self._reach = engines, answer, reach
        self._known: list[Distant] = []
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                for engine in self._engines():
                    if engine not in self._known:
                        self._known.append(engine)
                        await self._meet(engine)
                await asyncio.sleep(NEW_ENGINES_S)
        finally:
            for task in self._running.values():
                task.cancel()

    async def _meet(self, engine: Distant) -> None:
        box = engine.tray
        if box is None:
            return
        name = str(box) if isinstance(box, Path) else box.name
        if name not in self._running:
            self._running[name] = asyncio.create_task(Tray(box, self._answer).run())
        if not isinstance(box, Path):
            return  # nobody there comes over the network (`protocol.has_route`)
        try:
            changed = await asyncio.to_thread(engine.readdress, await self._reach())
        except (OSError, HeadwayError) as error:
            log.warning("agents could not be told where this server is: %s", error)
            return
        if changed:
            log.info("%d task files have the server's present address and pin", changed)


class Tray:
    """One of them. Used in the event loop; files are read and written in threads of its own, so
    that one that hangs costs nobody else.
    """

    def __init__(
        self,
        box: "AnyBox | Path | str",
        answer: Answer,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._box = tray.Box(str(box)) if isinstance(box, Path | str) else box
        self.folder, self._answer, self._clock_s = self._box.name, answer, clock_s
        self._threads = ThreadPoolExecutor(TRAY_READ_MAX + 2, thread_name_prefix="headway-tray")
        self._in_hand: dict[str, asyncio.Task[None]] = {}
        self._of_task: Counter[tray.Task] = Counter()
        # answered or refused; a stale cache may show them again
        self._known: OrderedDict[str, None] = OrderedDict()
        self._half_s: dict[str, float] = {}  # cannot be read since
        self._failed: set[str] = set()  # could not be answered, and are tried again with every look
        self._left: set[str] = set()  # that the last sweep has seen
        self._swept_s = clock_s()
        self._reading = asyncio.Semaphore(TRAY_READ_MAX)
        self._troubles: dict[str, str] = {}  # told and not over

    async def run(self) -> None:
        pause_s = TRAY_LOOK_FIRST_S
        try:
            while True:
                begun_s = self._clock_s()
                fresh = await self.look()
                took_s = self._clock_s() - begun_s  # a large or slow folder is looked at less often
                pause_s = TRAY_LOOK_FIRST_S if fresh else pause_s * 1.3
                pause_s = min(TRAY_LOOK_MAX_S, max(pause_s, 10 * took_s))
                await asyncio.sleep(pause_s)
        finally:
            self.close()

    def close(self) -> None:
        for task in self._in_hand.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def look(self) -> int:
        """Begin to answer what is new; how many."""
        try:
            names = await self._in_thread(self._box.waiting)
            await self._sweep()
        except OSError as error:
            self._tell("look", f"{self.folder} cannot be read: {error.strerror or error}")
            return 0
        except HeadwayError as error:
            self._tell("look", f"{self.folder} is not reached: {error.message}")
            return 0
        self._tell("look", "")
        if self._half_s or self._failed:
            there = set(names)
            self._half_s = {
                name: since_s for name, since_s in self._half_s.items() if name in there
            }
            self._failed &= there
        fresh = 0
        for name in names:
            if name in self._in_hand or name in self._known:
                continue
            task = tray.task_of(name)
            if task is not None and self._of_task[task] < TRAY_TASK_FILES_MAX:
                fresh += name not in self._failed
                self._begin(name, task)
        return fresh

    def _begin(self, name: str, task: tray.Task) -> None:
        self._of_task[task] += 1
        work = self._in_hand[name] = asyncio.create_task(self._handle(name))

        def done(_: "asyncio.Task[None]") -> None:
            self._in_hand.pop(name, None)
            self._of_task[task] -= 1
            if self._of_task[task] <= 0:
                del self._of_task[task]

        work.add_done_callback(done)

    async def _handle(self, name: str) -> None:
        try:
            await self._take(name)
        except (OSError, HeadwayError) as error:
            self._failed.add(name)
            self._tell("answer", f"a request in {self.folder} could not be answered: {error}")

    async def _take(self, name: str) -> None:
        try:
            async with self._reading:
                request = await self._in_thread(self._box.read, name)
                if request is None:
                    return
                if request.path == INGEST:  # its bytes are in memory: only so many at a time
                    await self._reply(request, await self._answered(request))
                    return
            await self._reply(request, await self._answered(request))
        except tray.ForeignError as error:
            self._remember(name)
            log.warning("%s: %s; it was not read", self.folder, error.message)
        except DamagedError as error:
            await self._damaged(name, error)

    async def _answered(self, request: tray.Request) -> Reply:
        if request.path not in AGENT_PATHS:
            return reply_error(403, "forbidden", "this is not reached through a folder")
        return await self._answer(str(request.task), request.path, request.body)

    async def _reply(self, request: tray.Request, reply: Reply) -> None:
        await self._in_thread(self._box.reply, request.name, reply.status, bytes(reply.body))
        self._tell("answer", "")
        self._remember(request.name)

    async def _damaged(self, name: str, error: DamagedError) -> None:
        """It may be seen in part now and whole later. One that stays so is answered, so that its
        agent hears of it.
        """
        since_s = self._half_s.setdefault(name, self._clock_s())
        if self._clock_s() - since_s < TRAY_HALF_S:
            return
        reply = reply_error(400, "damaged", error.message)
        await self._in_thread(self._box.reply, name, reply.status, bytes(reply.body))
        self._remember(name)

    async def _sweep(self) -> None:
        """Remove what lay there at the last sweep already: answers of agents that are gone, drafts
        of killed ones.
        """
        if self._clock_s() - self._swept_s < TRAY_SWEEP_S:
            return
        self._swept_s = self._clock_s()
        found = set(await self._in_thread(self._box.leftovers))
        for path in found & self._left:
            await self._in_thread(self._box.remove, path)
        self._left = found - self._left

    def _remember(self, name: str) -> None:
        self._known[name] = None
        self._half_s.pop(name, None)
        if len(self._known) > TRAY_KNOWN_MAX:
            self._known.popitem(last=False)

    def _tell(self, what: str, trouble: str) -> None:
        if trouble and trouble != self._troubles.get(what):
            log.warning("%s", trouble)
        self._troubles[what] = trouble

"""The server of the simulation: the real Control, the real store on a real file, in one thread,
killed anywhere.

Threads are replaced (the writer commits in the caller, engine calls run in place); everything else
is the code that ships. `ServerDied` is what `kill -9` is to it: no handler runs, memory is gone,
the files stay.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from headway.engines.protocol import Engine
from headway.home.paths import Paths
from headway.model.errors import DamagedError, HeadwayError, NotFoundError, UnreachableError
from headway.model.job import Job
from headway.server.control.blocking_calls import Calls
from headway.server.control.control import Control
from headway.server.http import auth
from headway.store import catalog
from headway.store.connection import Connection, open_writer
from headway.store.database import Store
from headway.store.writer import Writer
from headway.testing.clock import Clock
from headway.wire import batch

T = TypeVar("T")
Chance = Callable[[str], bool]  # whether the named fault strikes now
SETTINGS = {"max_running": 2}


class ServerDied(BaseException):
    """Not an Exception: no code of ours may catch it."""


class InlineWriter(Writer):
    """The store's writer without its thread: one commit per call."""

    def start(self) -> None:
        assert self._connection is not None
        # the simulation kills the process, not the machine
        self._connection.execute("PRAGMA synchronous = OFF")

    def submit(self, work: Callable[[Connection], Any], **options: Any) -> "Future[Any]":
        if "urgent" in options:
            options["urgent"] = True  # nobody else will come
        future = super().submit(work, **options)
        items = self._take()
        if items:
            self._commit(items)
            self._checkpoint(idle=False)
        return future

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SimStore(Store):
    """Dies before or after a commit, or finds its disk full inside one (F8)."""

    def __init__(self, paths: Paths, clock: Clock, strikes: Chance) -> None:
        super().__init__(paths, clock_ns=clock.time_ns, background=False)
        self._strikes = strikes
        self.commits = 0

    def open(self) -> None:
        if not self.paths.db.exists():
            self._prepare()
        self._writer = InlineWriter(lambda: open_writer(self.paths.db), self)
        self._writer.start()

    def submit(self, work: Callable[[Connection], T], **options: Any) -> "Future[T]":
        if self._strikes("server dies before a commit"):
            raise ServerDied
        self.commits += 1
        future = super().submit(work, **options)
        if self._strikes("server dies after a commit"):
            raise ServerDied
        return future

    def before_commit(self) -> None:
        super().before_commit()
        if self._strikes("server disk full"):
            raise OSError(28, "No space left on device")

    def abandon(self) -> None:
        """What is left when the process is gone: nothing of ours is closed in order."""
        if self._writer is not None:
            self._writer.stop()
        self._pool.close()
        with contextlib.suppress(OSError):
            self._files.close()


class InlineCalls(Calls):
    """Engine calls in place; the server may die before or after each (F23), and the world goes on
    meanwhile.
    """

    def __init__(
        self, on_late: Callable[[], None], strikes: Chance, wait: Callable[[], None]
    ) -> None:
        super().__init__(on_late)
        self._strikes, self._wait = strikes, wait

    async def run(
        self,
        name: str,
        call: Callable[..., T],
        *args: Any,
        patience_s: float | None = None,
        of: str = "",
    ) -> T:
        if self._strikes("server dies before a call"):
            raise ServerDied
        if self._strikes("slow call"):
            self._wait()
        result = call(*args)
        if self._strikes("server dies after a call"):
            raise ServerDied
        return result

    def begin(self, call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """In place, too: the loop finds it done."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.set_result(call(*args))
        return future


class Getter:
    def get(self, name: str) -> Any:
        return SETTINGS.get(name)


class SimServer:
    """Up or down. Every request of the simulation goes through `serve`, which is where the server
    may die.
    """

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        engine: Engine,
        strikes: Chance,
        let_pass: Callable[[], None],
    ) -> None:
        self.paths, self.clock, self._engine, self._strikes = paths, clock, engine, strikes
        self._let_pass = let_pass  # time goes on, and with it everybody else
        self.is_busy = False  # inside its loop: only data is taken meanwhile
        self._loop = asyncio.new_event_loop()
        self.store: SimStore | None = None
        self.control: Control | None = None
        self.deaths = 0

    @property
    def is_up(self) -> bool:
        return self.control is not None

    def start(self) -> None:
        """Start anew on the files that are there; may die while it starts."""
        self.store = SimStore(self.paths, self.clock, self._strikes)
        self.store.open()
        self.control = Control(
            self.store,
            self.paths,
            Getter(),
            make_engine=lambda *_: self._engine,
            make_calls=lambda on_late: InlineCalls(on_late, self._strikes, self._pause),
            clock_ns=self.clock.time_ns,
            clock_s=self.clock.monotonic,
            chance=lambda: 0.5,
        )
        control = self.control
        self.serve(lambda: self._wait(control.prepare()))

    def kill(self) -> None:
        store, self.store, self.control = self.store, None, None
        if store is not None:
            store.abandon()
            self.deaths += 1

    def close(self) -> None:
        self.kill()
        self._loop.close()

    def serve(self, call: Callable[[], T], *, during_a_call: bool = False) -> T | None:
        """None: the server was not there, did not answer in time, or died over it."""
        if not self.is_up or (self.is_busy and not during_a_call):
            return None
        try:
            return call()
        except ServerDied:
            self.kill()
            return None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        self.is_busy = True
        try:
            return self._loop.run_until_complete(work)
        finally:
            self.is_busy = False

    def _pause(self) -> None:
        """A call takes its time; the server may be killed over it."""
        store = self.store
        self._let_pass()
        if self.store is not store:
            raise ServerDied

    # -- what the loop and the routes do

    def look(self) -> None:
        def call() -> None:
            assert self.control is not None
            with contextlib.suppress(HeadwayError):  # as its own loop does
                self._wait(self.control.look())

        self.serve(call)

    def tidy(self) -> None:
        def call() -> None:
            assert self.store is not None
            with contextlib.suppress(HeadwayError):  # put off, as the keeper does
                self.store.tidy()

        self.serve(call)

    def submit(self, uuid: str, spec: dict[str, Any]) -> Job | None:
        """None: no answer, or one that says to try again."""

        def call() -> Job | None:
            assert self.control is not None
            try:
                return self._wait(self.control.submit(uuid, spec, {"PATH": "/bin"}))
            except UnreachableError:
                return None

        return self.serve(call)

    def abort(self, uuid: str) -> bool:
        """True: it is known that the job shall stop, or that it is over."""

        def call() -> bool:
            assert self.control is not None
            with self.read() as c:
                pk = catalog.find_uuid(c, uuid)
            assert pk is not None
            try:
                self._wait(self.control.abort(pk))
            except UnreachableError:
                return False
            except HeadwayError:
                return True  # over already
            return True

        return bool(self.serve(call))

    def ingest(self, body: bytes, token: str) -> tuple[int, Any]:
        """(status, answer) of `POST /agent/ingest`; status 0: no answer."""
        return self.serve(lambda: self._ingest(body, token), during_a_call=True) or (0, None)

    def _ingest(self, body: bytes, token: str) -> tuple[int, Any]:
        assert self.store is not None and self.control is not None
        try:
            key, _, parts = batch.decode(body)
        except DamagedError as error:
            return 400, error.message
        if not self._is_valid(token, key):
            return 401, "token"
        try:
            result = self.store.ingest(key, parts).result()
        except NotFoundError:
            return 404, "no such task"
        except UnreachableError as error:
            return 503, error.message
        self.control.heard(key)
        return 200, (result.acks, result.refused)

    def poll(self, key: batch.TaskKey, token: str, done: list[int]) -> tuple[int, Any]:
        def call() -> tuple[int, Any]:
            assert self.control is not None
            if not self._is_valid(token, key):
                return 401, None
            return 200, self._wait(self.control.commands_for(key, 0, done))

        return self.serve(call) or (0, None)

    def _is_valid(self, token: str, key: batch.TaskKey) -> bool:
        token_id, _, secret = token.partition(".")
        with self.read() as c:
            row = catalog.find_token(c, token_id)
        known = row is not None and row.hash == auth.digest(secret) and row.ended_ns is None
        return known and row is not None and row.task == str(key)

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        assert self.store is not None
        with self.store.read() as c:
            yield c

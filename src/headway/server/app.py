"""The application behind the guard: the table of routes, and what happens to each call. Built by
`serve.py`.

A route is declared with the role it needs; without one it cannot be made. The files in `api/` hold
the handlers, one per noun; what they share with each other is `Services`.
"""

import asyncio
import logging
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headway.home.paths import Paths
from headway.model.errors import HeadwayError, NotFoundError, UnreachableError
from headway.model.json_types import JsonObject
from headway.model.limits import (
    INGEST_QUEUE_BYTES_MAX,
    READ_THREADS,
    READS_WAITING_MAX,
    REQUEST_BYTES_ANONYMOUS_MAX,
    REQUEST_BYTES_MAX,
    SLOW_READ_THREADS,
)
from headway.server.control.control import Control
from headway.server.health.hang_watch import HangWatch
from headway.server.health.slow_watch import SlowWatch
from headway.server.health.stack_requests import StackRequests
from headway.server.http.agent_address import FOLDER, Ways
from headway.server.http.auth import Auth, Caller, Role
from headway.server.http.guard import CALLER, METHODS, send_reply
from headway.server.http.request import (
    Call,
    Gone,
    Message,
    Receive,
    Refusal,
    Reply,
    Scope,
    Send,
    reply_error,
    reply_failure,
)
from headway.server.live import Live
from headway.server.loop_lag import LoopLag
from headway.server.monitor.guests import Guests
from headway.server.monitor.monitor_queue import Outbox
from headway.server.notify.notifier import Notifier
from headway.settings.layers import Settings
from headway.store import catalog
from headway.store.database import RowsRepairedError, Store
from headway.store.line_index import LineIndexes

log = logging.getLogger("headway.server")
T = TypeVar("T")
Handler = Callable[[Call], Awaitable[Reply]]
TROUBLE = b"x-headway-trouble"  # a header of every answer while nothing can be stored: why
CHECK_ANSWERS = bool(os.environ.get("HEADWAY_CHECK_ANSWERS"))  # as our tests set it
NOTICE = b"x-headway-notice"  # likewise until a person has seen it: what was damaged
_REF = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `role` has no default on purpose."""

    method: str
    path: str
    role: Role
    handler: Handler
    body_bytes_max: int = REQUEST_BYTES_MAX
    unix_only: bool = False  # for callers that the kernel vouches for; a token is not enough
    answer: Any = None  # the type of its JSON, of `server/contract.py`; None: it answers no JSON

    def __post_init__(self) -> None:
        if (
            not isinstance(self.role, Role)
            or self.method not in METHODS
            or not self.path.startswith("/")
        ):
            raise TypeError(f"the route {self.method} {self.path} does not say who may call it")
        if self.role is Role.NOBODY and self.body_bytes_max > REQUEST_BYTES_ANONYMOUS_MAX:
            raise TypeError(f"the route {self.method} {self.path} reads too much from strangers")


class Readers:
    """A few threads for what would block the event loop: queries and files. Says 503 rather than
    queue without end.
    """

    def __init__(self, threads: int = READ_THREADS, waiting_max: int = READS_WAITING_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, "headway-read")
        self._waiting, self._waiting_max = 0, waiting_max

    async def run(self, work: Callable[..., T], *args: object) -> T:
        if self._waiting >= self._waiting_max:
            raise UnreachableError(
                "the server has too many questions to answer at once", "try again in a moment"
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True)
class Room:
    """Bytes of requests that are in memory now, of all callers together."""

    bytes_max: int = INGEST_QUEUE_BYTES_MAX
    used_bytes: int = 0

    def take(self, size: int) -> None:
        if self.used_bytes + size > self.bytes_max:
            raise UnreachableError(
                "the server holds as much unwritten data as it may", "it is sent again by itself"
            )
        self.used_bytes += size


@dataclass(slots=True)
class Services:
    """What handlers work with."""

    store: Store
    paths: Paths
    settings: Settings
    control: Control
    auth: Auth
    live: Live
    notifier: Notifier
    about: JsonObject  # what `GET /api/server` says of this server
    stopping: asyncio.Event
    readers: Readers = field(default_factory=Readers)
    slow_readers: Readers = field(default_factory=lambda: Readers(SLOW_READ_THREADS))
    room: Room = field(default_factory=Room)
    loop_lag: LoopLag = field(default_factory=LoopLag)
    outbox: Outbox = field(init=False)
    guests: Guests = field(init=False)
    stacks: StackRequests = field(init=False)
    hangs: HangWatch = field(init=False)
    slows: SlowWatch = field(init=False)
    ways: Ways = field(default_factory=Ways)
    line_indexes: LineIndexes = field(default_factory=LineIndexes)

    def __post_init__(self) -> None:
        self.outbox, self.guests = Outbox(self.paths, self.store), Guests(self.store)
        self.stacks = StackRequests(self.store, self.live, self.control)
        self.hangs = HangWatch(self.store, self.stacks, self.control, self.settings, self.notifier)
        self.slows = SlowWatch(
            self.store, self.stacks, self.control, self.hangs, self.settings, self.notifier
        )

    async def query(self, work: Callable[..., T], *args: object) -> T:
        """`work(connection, *args)` on a read-only connection, in a thread. For what takes
        milliseconds.
        """
        return await self.readers.run(self._read, work, args)

    async def slow_query(self, work: Callable[..., T], *args: object) -> T:
        """As `query`, for what may take seconds: output, searches, all points of a job."""
        return await self.slow_readers.run(self._read, work, args)

    def _read(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            with self.store.read() as connection:
                return work(connection, *args)
        except RowsRepairedError:  # what could not be read can be now
            with self.store.read() as connection:
                return work(connection, *args)

    def close(self) -> None:
        self.readers.close()
        self.slow_readers.close()

    async def find(self, call: Call) -> int:
        """The job that the address means. A reference is looked up; it never becomes part of a path
        (B20).
        """
        return await self.find_ref(call.params["ref"])

    async def find_ref(self, ref: str) -> int:
        if not _REF.match(ref):
            raise NotFoundError(f"{ref[:80]!r} is not a job's id", "`hw ls` lists the jobs")
        return await self.query(catalog.resolve, ref)

    async def write(self, work: Callable[[Any], T]) -> T:
        """`work(connection)` in a transaction of the writer."""
        return await asyncio.wrap_future(self.store.write(work))


class Table:
    """Finds the route for a path and method. Paths that callers send often come first in `routes`."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._plain = {(r.method, r.path): r for r in routes if "{" not in r.path}
        self._shaped = [(_pattern(r.path), r) for r in routes if "{" in r.path]
        if len({(r.method, r.path) for r in routes}) != len(self.routes):
            raise TypeError("a route is declared twice")

    def find(self, scope: Scope) -> tuple[Route, Mapping[str, str]]:
        plain = self._plain.get((scope["method"], scope["path"]))
        if plain is not None:
            return plain, {}
        wrong_method = any(path == scope["path"] for _, path in self._plain)
        for pattern, route in self._shaped:
            match = pattern.fullmatch(scope["path"])
            if match is None:
                continue
            if route.method == scope["method"]:
                return route, match.groupdict()
            wrong_method = True
        if wrong_method:
            raise Refusal(405, "usage", "the address does not know this method")
        raise Refusal(
            404,
            "not_found",
            "there is no such address",
            "is this server older than `hw`? hw server stop, then again",
        )


def _pattern(path: str) -> re.Pattern[str]:
    """`/api/jobs/{ref}`: a name in braces stands for one part of the path."""
    parts = re.split(r"\{(\w+)\}", path)  # every second one is a name
    for i, part in enumerate(parts):
        parts[i] = f"(?P<{part}>[^/]+)" if i % 2 else re.escape(part)
    return re.compile("".join(parts))


class App:
    """What the guard calls once it knows who is there."""

    def __init__(self, table: Table, services: Services) -> None:
        self.table, self.services = table, services
        # since the start, and now; `serve.py` sees from them that we are idle
        self.requests, self.active = 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.requests += 1
        self.active += 1
        held = Held(self.services.room)
        try:
            reply = await self._reply(scope, receive, held)
            held.release()
            # what is answered may be old, and the caller shall know it
            if trouble := self.services.store.trouble:
                reply.headers.append((TROUBLE, _header(trouble)))
            if notice := self.services.store.notices.words:
                reply.headers.append((NOTICE, _header(notice)))
            await send_reply(
                reply, send, drain=None if held.complete else receive, unix=scope[CALLER].unix
            )
        except Gone:
            return
        finally:
            held.release()
            self.active -= 1

    async def post(self, task: str, path: str, body: bytes) -> Reply:
        """A request that a task's agent left as a file (`tray_server.py`). Who could put it there
        is the login; it may do no more than a token of that task, and nothing once nothing is
        expected of the task any more.
        """
        try:
            if not await self.services.query(catalog.may_send, task):
                return reply_error(401, "login", "nothing is expected of this task any more")
        except HeadwayError as error:
            return reply_failure(error)
        caller = Caller(Role.INGEST, task, way=FOLDER)
        scope = {
            "method": "POST",
            "path": path,
            "headers": [],
            "query_string": b"",
            CALLER: caller,
            "type": "http",
        }
        pieces = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return pieces.pop()

        self.requests += 1
        held = Held(self.services.room)
        try:
            return await self._reply(scope, receive, held)
        finally:
            held.release()

    async def _reply(self, scope: Scope, receive: Receive, held: "Held") -> Reply:
        try:
            route, params = self.table.find(scope)
            caller: Caller = scope[CALLER]
            if route.unix_only and not caller.unix:
                raise Refusal(
                    403,
                    "forbidden",
                    "this is only for the owner of the home, on its own machine",
                    "type the command there; a token is not enough, whatever its role",
                )
            if not caller.may(route.role):
                role = route.role.name.lower()
                hint = f"a token of that role is made on the server's machine: hw token create --name NAME --role {role}"
                raise Refusal(403, "forbidden", f"this needs the role {role}", hint)
            body = await held.read(receive, route.body_bytes_max)
            call = Call(
                self.services, caller, dict(params), scope["headers"], scope["query_string"], body
            )
            reply = await route.handler(call)
            if CHECK_ANSWERS:
                check_answer(route, reply)
            return reply
        except Refusal as refusal:
            return reply_error(refusal.status, refusal.code, refusal.message, refusal.hint)
        except HeadwayError as error:
            return reply_failure(error)
        except Gone:
            raise
        # a mistake of ours must not show the caller our insides, and must not end the server
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("error %s in %s %s", error_id, scope["method"], _shape(scope["path"]))
            return reply_error(
                500,
                "internal",
                f"the server made a mistake (error {error_id})",
                "see: hw server logs",
            )


def check_answer(route: Route, reply: Reply) -> None:
    """Raise where an answer is not what the contract says. Costs time: for tests."""
    if reply.content_type != b"application/json" or not reply.body:
        return
    if route.answer is None:
        raise TypeError(f"{route.method} {route.path} answers JSON that no type describes")
    try:
        msgspec.json.decode(reply.body, type=route.answer)
    except msgspec.ValidationError as error:
        raise TypeError(f"{route.method} {route.path} breaks the contract: {error}") from None
    except msgspec.DecodeError:
        pass  # half of a surrogate pair, from a name that is not Unicode: `encode` lets it pass


def _header(text: str) -> bytes:
    """Our own words, which may hold those of a damaged file: no control character gets through."""
    data = text.encode("ascii", "replace")[:600]
    data = data.replace(b"\n", b" ")
    return bytes(byte if 32 <= byte < 127 else 63 for byte in data)


def _shape(path: str) -> str:
    """A path for our log: it came from outside, so it is cut and shown as Python would write it."""
    return repr(path[:200])


class Held:
    """The body of one request while the server works on it."""

    def __init__(self, room: Room) -> None:
        self._room, self._bytes = room, 0
        self.complete = False

    async def read(self, receive: Receive, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        while not self.complete:
            message = await receive()
            if message["type"] != "http.request":
                raise Gone
            piece = message.get("body", b"")
            if self._bytes + len(piece) > bytes_max:
                raise Refusal(413, "too_large", f"the request is larger than {bytes_max} bytes")
            self._room.take(len(piece))
            self._bytes += len(piece)
            pieces.append(piece)
            self.complete = not message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        self._room.used_bytes -= self._bytes
        self._bytes = 0

"""Sockets and connections: who is at the other end, and how much time and room they get before
anyone reads them.

Called by `serve.py`. `Protocol` is uvicorn's HTTP protocol plus what it leaves out: the peer's uid
in the scope, time limits for heads and bodies, limits for heads and headers, room for agents while
loopback is flooded (F42), and an end for readers that stand still (F38). It reads no path and knows
no route: the guard comes next.
"""

import asyncio
import os
import resource
import socket
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol as Shape

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from headway.home.paths import AGENT_SOCKET
from headway.model.errors import UsageError
from headway.model.limits import (
    BODY_TIMEOUT_S,
    CONNECTIONS_AGENTS_MAX,
    CONNECTIONS_TCP_MAX,
    CONNECTIONS_UNIX_MAX,
    HEAD_BYTES_MAX,
    HEADER_TIMEOUT_S,
    HEADERS_MAX,
    KEEP_ALIVE_TCP_S,
    KEEP_ALIVE_UNIX_S,
    WRITE_TIMEOUT_S,
)

PEER = "headway.peer"  # where the guard finds a `Peer` in the scope
_FILES_WANTED = 8192
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection."""

    unix: bool
    uid: int | None  # None on TCP: a port is not an identity
    tls: bool = False  # from the network
    # the socket for containers: whoever is there may be our uid and yet not be us
    token_only: bool = False
    agents: bool = False  # the network address for agents alone: only a task's token counts there


class HasOptions(Shape):
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def peer_uid(sock: HasOptions) -> int | None:
    """The uid of the process that connected to our unix socket, as the kernel tells it."""
    if sys.platform == "darwin":
        # SOL_LOCAL, LOCAL_PEERCRED: xucred
        return int(struct.unpack_from("=II", sock.getsockopt(0, 1, 76))[1])
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


@dataclass(slots=True)
class Slots:
    """How many connections there are and may be, for TCP, unix and agents apart, so that none can
    starve another.
    """

    tcp_max: int = CONNECTIONS_TCP_MAX
    unix_max: int = CONNECTIONS_UNIX_MAX
    agents_max: int = CONNECTIONS_AGENTS_MAX
    used: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})  # TCP and unix
    used_by_agents: int = 0
    # connections over TCP that have not sent a whole request yet, oldest first
    silent: "dict[Protocol, None]" = field(default_factory=dict)

    def make_room(self, peer: Peer) -> None:
        """Any local user can open connections and say nothing: the oldest of those goes first."""
        if peer.unix or peer.agents or self.used[False] < self.tcp_max or not self.silent:
            return
        oldest = next(iter(self.silent))
        oldest.give_way()

    def take(self, peer: Peer) -> bool:
        if peer.agents:
            if self.used_by_agents >= self.agents_max:
                return False
            self.used_by_agents += 1
            return True
        if self.used[peer.unix] >= (self.unix_max if peer.unix else self.tcp_max):
            return False
        self.used[peer.unix] += 1
        return True

    def free(self, peer: Peer) -> None:
        if peer.agents:
            self.used_by_agents -= 1
        else:
            self.used[peer.unix] -= 1


def slots_for_descriptors() -> Slots:
    """Ask for descriptors enough for all connections; where the system gives fewer, have fewer
    connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    agents = min(CONNECTIONS_AGENTS_MAX, soft // 4)
    return Slots(min(CONNECTIONS_TCP_MAX, soft // 8), min(CONNECTIONS_UNIX_MAX, soft // 2), agents)


def bind_unix(path: Path) -> socket.socket:
    """A socket that only we can connect to. The caller holds the server's lock, so a file that is
    there is stale.
    """
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
        # before listen(), so that nobody is ever in the backlog of an open one
        os.chmod(path, 0o600)
    except OSError as error:
        sock.close()
        raise UsageError(f"the socket {path} cannot be made: {error.strerror}") from None
    finally:
        os.umask(before)
    sock.listen(_BACKLOG)
    return sock


def bind_loopback(port: int) -> socket.socket:
    """127.0.0.1 at `port`, or at any free one where that is taken: jobs matter more than the
    browser's bookmark.
    """
    for wanted in (port, 0):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", wanted))
        except OSError:
            sock.close()
            if wanted == 0:
                raise
            continue
        sock.listen(_BACKLOG)
        return sock
    raise AssertionError("not reached: the last try returns or raises")


_REFUSAL = (
    b"content-type: text/plain\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
)


class _Refused(Exception):
    """Raised inside a parser callback; the parser stops there and the connection is answered and
    closed.
    """


# Where a connection stands. A stage that waits for the peer has a time limit.
_HEAD, _BODY, _OURS = "head", "body", "ours"
_LIMIT_S = {_HEAD: HEADER_TIMEOUT_S, _BODY: BODY_TIMEOUT_S}


class Protocol(HttpToolsProtocol):
    """One connection. `slots` are set by `protocol_with`, `agents` by the door that it came
    through.
    """

    slots: Slots
    agents = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own choice
        sock = transport.get_extra_info("socket")
        unix = sock.family == socket.AF_UNIX
        tls = transport.get_extra_info("sslcontext") is not None
        token_only = unix and os.path.basename(sock.getsockname()) == AGENT_SOCKET
        self.peer = Peer(unix, peer_uid(sock) if unix else None, tls, token_only, self.agents)
        self.timeout_keep_alive = KEEP_ALIVE_UNIX_S if unix or self.agents else KEEP_ALIVE_TCP_S  # type: ignore[assignment]
        self.stage, self.head_bytes, self.chunk_bytes, self.refusal = _HEAD, 0, 0, 400
        self.timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.timed_stage = ""
        self.slots.make_room(self.peer)
        self.counted = self.slots.take(self.peer)
        if self.counted and not unix and not self.agents:
            self.slots.silent[self] = None
        super().connection_made(transport)
        if not self.counted:
            self._refuse(503, "too many connections")
            return
        self._set_timer()

    def give_way(self) -> None:
        """Another one needs the place of a connection that has asked for nothing."""
        self._leave()
        self._refuse(408, "too slow")

    def _leave(self) -> None:
        self.slots.silent.pop(self, None)
        if self.counted:
            self.slots.free(self.peer)
            self.counted = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        for timer in (self.timer, self.write_timer):
            if timer is not None:
                timer.cancel()
        self.timer = self.write_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self.parser is None:
            return
        self.chunk_bytes = len(data)
        if self.stage != _BODY:
            self.head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.stage != _HEAD:
            self.slots.silent.pop(self, None)
        if self.stage == _HEAD and self.head_bytes > HEAD_BYTES_MAX:
            self._refuse(431, "the head is too long")
            return
        if (
            self.stage == _OURS
            and self.cycle.response_complete
            and self.timeout_keep_alive_task is None
        ):
            # bytes between requests ended the idle time limit: the next head is due now
            self.stage = _HEAD
        self._set_timer()

    def _set_timer(self) -> None:
        """One time limit per stage, counted from its start: single bytes do not prolong it."""
        if self.stage == self.timed_stage:
            return
        if self.timer is not None:
            self.timer.cancel()
        limit_s = _LIMIT_S.get(self.stage)
        self.timer = (
            self.loop.call_later(limit_s, self._refuse, 408, "too slow") if limit_s else None
        )
        self.timed_stage = self.stage

    def _refuse(self, status: int, message: str) -> None:
        """Answer where no answer has begun, and close. What the peer still sends is not read."""
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started:
            body = message.encode()
            self.transport.write(STATUS_LINE[status] + _REFUSAL % (len(body), body))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what its parser refuses, which includes what our callbacks refuse."""
        self._refuse(
            self.refusal,
            "the head is too long" if self.refusal == 431 else "not a valid HTTP request",
        )

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.write_timer is None:
            self.write_timer = self.loop.call_later(WRITE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # not close(): that would wait for a reader who never takes the rest

    # Parser callbacks

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            raise _Refused(
                "a second request before the answer to the first: its memory would have no limit"
            )
        self.stage, self.head_bytes, self.refusal = _HEAD, self.chunk_bytes, 400
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage != _HEAD:
            raise _Refused("headers after the body would be read as if they had been checked")
        if len(self.headers) >= HEADERS_MAX:
            self.refusal = 431
            raise _Refused("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):
            raise _Refused("a target that is not a path names another server")
        if len(self.url) + sum(len(n) + len(v) for n, v in self.headers) > HEAD_BYTES_MAX:
            self.refusal = 431
            raise _Refused("the head is too long")
        self.stage = _BODY
        self.scope[PEER] = self.peer  # type: ignore[literal-required]  # a scope may carry more
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.stage = _OURS
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False  # the guard refuses it with a proper answer

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: a stranger must not be able to fill our log."""


def protocol_with(slots: Slots) -> type[Protocol]:
    return type("BoundProtocol", (Protocol,), {"slots": slots})


def for_agents(protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    """The same protocol behind the door for agents on other machines."""
    return type("AgentProtocol", (protocol,), {"agents": True})

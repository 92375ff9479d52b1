"""The network address of a monitor: its socket and certificate, and the door through which other
machines come in.

Called by `serve.py`. The door looks at the first byte before it speaks TLS, so that somebody who
came with plain HTTP reads why he is not served, and it bounds how many may be at their handshake,
and for how long (F42).
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from headway.home.paths import Paths
from headway.home.remote_server import Address
from headway.model.json_types import JsonObject
from headway.model.limits import CONNECTIONS_ENTERING_MAX, HEADER_TIMEOUT_S
from headway.settings import monitor_settings

log = logging.getLogger("headway.server")
_HANDSHAKE = b"\x16"  # how every TLS connection begins
_ACCEPT_AGAIN_S = 0.1  # when the system has no descriptors left
_TELL_S = 60.0  # a stranger must not be able to fill our log
_WORDS = b"this address is a Headway monitor and speaks TLS only; other machines join it with: hw monitor join HOST:PORT\n"
_PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nx-content-type-options: nosniff\r\n"
    b"cache-control: no-store\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_WORDS), _WORDS)
)


@dataclass(frozen=True, slots=True)
class Network:
    """The address of a monitor: where other machines come in, with TLS and a token."""

    listen: monitor_settings.Listen
    sock: socket.socket
    context: ssl.SSLContext
    pin: str

    @classmethod
    def of(cls, paths: Paths) -> "Network | None":
        """None where this home is no monitor. Without a certificate nobody listens on the network."""
        listen = monitor_settings.load(paths)
        if listen is None:
            return None
        pin = monitor_settings.ensure_certificate(paths, listen)
        return cls(
            listen,
            monitor_settings.bind(listen.address),
            monitor_settings.server_context(paths),
            pin,
        )

    @classmethod
    def at(cls, paths: Paths, address: Address) -> "Network":
        """With this home's certificate at an address of which the port may be any (0)."""
        pin = monitor_settings.ensure_certificate(paths, monitor_settings.Listen(address))
        sock = monitor_settings.bind(address)
        listen = monitor_settings.Listen(Address(address.host, int(sock.getsockname()[1])))
        return cls(listen, sock, monitor_settings.server_context(paths), pin)

    def about(self) -> JsonObject:
        return {
            "listen": str(self.listen.address),
            "addresses": monitor_settings.addresses(self.listen),
            "pin": f"sha256:{self.pin}",
            "container": monitor_settings.in_container(),
            "error": None,
        }


class Door:
    """Accepts connections until it is closed. To uvicorn it is one of its servers."""

    def __init__(self, network: Network, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._sock, self._context, self._protocol = network.sock, network.context, protocol
        self._sock.setblocking(False)
        self._entering: dict[asyncio.Task[None], str] = {}  # and from which address
        self._strangers, self._told_s = 0, -_TELL_S
        self._task = asyncio.create_task(self._accept(), name="headway-door")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(self._sock)
            except OSError:
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if self._is_full(str(peer[0])):
                connection.close()
                continue
            task = asyncio.create_task(self._enter(connection))
            self._entering[task] = str(peer[0])
            task.add_done_callback(self._entering.pop)

    def _is_full(self, host: str) -> bool:
        """One machine cannot take all places, so that one that floods us does not keep the others
        out.
        """
        of_host = sum(other == host for other in self._entering.values())
        return (
            len(self._entering) >= CONNECTIONS_ENTERING_MAX
            or of_host >= CONNECTIONS_ENTERING_MAX // 8
        )

    async def _enter(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        try:
            async with asyncio.timeout(HEADER_TIMEOUT_S):
                first = await _first_byte(loop, connection)
                if first != _HANDSHAKE:
                    await self._refuse(loop, connection, first)
                    return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HEADER_TIMEOUT_S,
            )
        # ssl.SSLError is one: he does not want our certificate, or cannot speak TLS
        except (OSError, TimeoutError):
            connection.close()
            self._count("did not finish a TLS handshake")
        except asyncio.CancelledError:
            connection.close()
            raise

    async def _refuse(
        self, loop: asyncio.AbstractEventLoop, connection: socket.socket, first: bytes
    ) -> None:
        with contextlib.suppress(OSError):
            if first:
                await loop.sock_sendall(connection, _PLAIN)
                connection.shutdown(socket.SHUT_WR)
                # unread bytes would take the answer away from him
                await loop.sock_recv(connection, 65536)
        connection.close()
        if first:
            self._count("did not speak TLS")

    def _count(self, what: str) -> None:
        self._strangers += 1
        if time.monotonic() - self._told_s >= _TELL_S:
            log.warning(
                "%d connections to the network address failed; the last one %s",
                self._strangers,
                what,
            )
            self._strangers, self._told_s = 0, time.monotonic()

    def close(self) -> None:
        self._task.cancel()
        for task in list(self._entering):
            task.cancel()
        self._sock.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._task, *self._entering, return_exceptions=True)


def _set(ready: "asyncio.Future[object]") -> None:
    if not ready.done():
        ready.set_result(None)


async def _first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """Without taking it: TLS begins with it. Empty: he hung up."""
    ready: asyncio.Future[object] = loop.create_future()
    loop.add_reader(connection.fileno(), _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv(1, socket.MSG_PEEK)

"""HTTP to the server over the network, with TLS: the way of a node that is another machine. Called
by `failover.py`.

As `post.Channel`, and as little blocking: connecting and the handshake are steps, too. Nobody's
word is taken for the certificate but the pin's, which came in the task's private file; nothing is
sent before it was checked. `ssl` is loaded here, so that only agents that come this way pay for it.
"""

from __future__ import annotations

import errno
import hmac
import os
import select
import socket
import ssl

from headway.agent.transport.http import HOST, Answer, Channel
from headway.model.limits import CONNECT_S, SILENCE_S
from headway.wire.pin import context, pin_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from headway.model.json_types import JsonObject
    from headway.spool.layout import TaskFile

CONNECTING, HANDSHAKE, READY = "connecting", "handshake", "ready"
ADDRESSES_MAX = 8
_PIECE_BYTES = 256 * 1024
_UNDER_WAY = (0, errno.EINPROGRESS, errno.EAGAIN)


class TlsChannel(Channel):
    """`given`: `{addresses: [HOST:PORT, …], pin, host}` of the task file; each address is one of
    the same server, and `host` is what it wants to be called.
    """

    _socket: "Any"

    def __init__(self, given: "JsonObject", token: str) -> None:
        super().__init__("", token)
        self._pin = str(given.get("pin") or "")
        self.host = str(given.get("host") or HOST)
        found = [_parse(text) for text in given.get("addresses") or ()]
        self._addresses = [address for address in found if address is not None][:ADDRESSES_MAX]
        self._at = self._tried = 0
        self._stage = CONNECTING
        self._connect_s = 0.0
        self._handshake_writes = False
        self._context = context()

    def renew(self, task: "TaskFile") -> None:
        self.token = task.token

    @property
    def wants_write(self) -> bool:
        if self._stage == CONNECTING:
            return True
        return self._handshake_writes if self._stage == HANDSHAKE else bool(self._rest)

    def is_due(self, now_s: float) -> bool:
        return super().is_due(now_s) or (self._stage != READY and now_s >= self._connect_s)

    def start(
        self,
        path: str,
        body: "Sequence[bytes | memoryview]",
        now_s: float,
        timeout_s: float,
        kind: str = "json",
    ) -> Answer | None:
        self._tried = 0
        return super().start(path, body, now_s, timeout_s, kind)

    def step(self, now_s: float) -> Answer | None:
        if self.busy and self._stage != READY and now_s >= self._connect_s:
            return self._unopened(f"{self.path} does not answer", now_s)
        return super().step(now_s)

    # -- opening

    def _open(self, now_s: float) -> None:
        if not self._addresses:
            raise OSError(errno.EDESTADDRREQ, "the task file has no address that can be read")
        host, port = self._addresses[self._at]
        self.path = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._stage, self._connect_s = CONNECTING, now_s + CONNECT_S
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM
        )
        self._socket.setblocking(False)
        self._notice_silence()
        number = self._socket.connect_ex((host, port))
        if number not in _UNDER_WAY:
            raise OSError(number, os.strerror(number))

    def _notice_silence(self) -> None:
        """A cable that is out says nothing. Have the system tell us soon, also while we only wait
        for an answer.
        """
        options = {
            "TCP_USER_TIMEOUT": int(SILENCE_S * 1000),
            "TCP_KEEPIDLE": int(SILENCE_S / 2),
            "TCP_KEEPINTVL": 2,
        }
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def _unopened(self, reason: str, now_s: float) -> Answer | None:
        """Before anything was said, another address of the same server may do."""
        self._tried += 1
        if self._tried >= len(self._addresses):
            return self._fail(reason)
        self._at = (self._at + 1) % len(self._addresses)
        self._drop()
        return self._begin(now_s)

    def _broken(self, number: int | None, text: str, now_s: float) -> Answer | None:
        if self._stage != READY:
            return self._unopened(f"no server can be reached at {self.path}: {text}", now_s)
        return super()._broken(number, text, now_s)

    def _establish(self) -> None:
        """As far as it goes now; BlockingIOError: not done yet. ConnectionError: not the one whom
        we look for.
        """
        if self._stage == CONNECTING:
            poll = select.poll()
            poll.register(self._socket.fileno(), select.POLLOUT)
            if not poll.poll(0):
                raise BlockingIOError
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(self._socket, do_handshake_on_connect=False)
            self._stage = HANDSHAKE
        if self._stage == HANDSHAKE:
            self._shake_hands()
            self._stage = READY

    def _shake_hands(self) -> None:
        try:
            self._socket.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._handshake_writes = isinstance(error, ssl.SSLWantWriteError)
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionAbortedError(
                errno.ECONNABORTED, f"TLS failed: {error.reason or error}"
            ) from None
        if not hmac.compare_digest(pin_of(self._socket), self._pin):
            told = "its certificate is not the one that this task was given; nothing was sent to it"
            raise ConnectionAbortedError(errno.ECONNABORTED, told)

    # -- bytes

    def _send(self) -> None:
        self._establish()
        while self._rest:
            first = self._rest[0]
            try:
                sent = self._socket.send(memoryview(first)[:_PIECE_BYTES]) if len(first) else 0
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None
            except ssl.SSLError as error:
                raise _reset(error) from None
            self._rest[0] = memoryview(first)[sent:]
            if not len(self._rest[0]):
                self._rest.pop(0)

    def _receive(self) -> Answer | None:
        if self._stage != READY:
            raise BlockingIOError
        try:
            return super()._receive()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _reset(error) from None


def _reset(error: ssl.SSLError) -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, f"TLS failed: {error.reason or error}")


def _parse(text: object) -> tuple[str, int] | None:
    """Numbers only: looking up a name could stop the loop for as long as a name server likes."""
    host, _, port = str(text).rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return host, int(port)
        except (OSError, ValueError):
            continue
    return None

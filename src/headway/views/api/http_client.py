"""HTTP/1.1 over a unix socket, as much of it as our own server speaks. Called by `source`;
`monitor_client` adds TLS.

Not `http.client`: importing that costs 40 ms, a third of what a short command takes in all, and its
timeout begins anew with every byte. Here one deadline covers the whole answer. A connection is kept
and used again.
"""

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headway.model.errors import DamagedError, HeadwayError, UnreachableError
from headway.model.limits import HEAD_BYTES_MAX, VIEW_ANSWER_BYTES_MAX, VIEW_SLOW_S, VIEW_TIMEOUT_S

HOST: Final = "headway"  # the only Host that the server's guard lets in on the unix socket
_READ_BYTES: Final = 256 * 1024


class Response:
    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body


class Stale(Exception):
    """A kept connection was closed by the server before anything of this answer came."""


class LostError(UnreachableError):
    """Nobody listens there, or whoever did has left before the answer was whole: a server that was
    ended, mostly. `sent`: it may have heard the request, and done what it asks for.
    """

    def __init__(self, message: str, hint: str, *, sent: bool) -> None:
        super().__init__(message, hint)
        self.sent = sent


class Client:
    """One kept connection, for one thread. Raises UnreachableError when no whole answer comes in
    time.
    """

    hint = "hw server logs may say why"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = f"Host: {HOST}\r\n"  # what every request says of itself
        self._socket: socket.socket | None = None
        self._used = False  # a connection that has carried a request may have been closed since
        self._rest = b""  # read, but not yet part of an answer
        self._sent = False  # something of this request may have been heard
        self.slow: Callable[[], None] | None = None  # called once, when an answer is long in coming
        # what to type where none comes at all; default: `hint`
        self.stuck: Callable[[], str] | None = None

    def request(
        self, method: str, target: str, body: bytes | None = None, timeout_s: float = VIEW_TIMEOUT_S
    ) -> Response:
        deadline, self._sent = time.monotonic() + timeout_s, False
        head = f"{method} {target} HTTP/1.1\r\n{self.head}Connection: keep-alive\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        data = head.encode("ascii") + b"\r\n" + (body or b"")
        try:
            try:
                return self._exchange(data, deadline)
            # closed over this request, which may have been heard: only a question is put twice
            except Stale:
                self.close()
                if method != "GET":
                    raise ConnectionError("it closed the connection") from None
                return self._exchange(data, deadline)
        except TimeoutError:
            self.close()
            said = f"the server at {self.path} did not answer within {timeout_s:g} s"
            raise UnreachableError(said, self.stuck() if self.stuck else self.hint) from None
        except OSError as error:
            self.close()
            reason = str(error) or type(error).__name__
            told = f"the server at {self.path} did not answer: {reason}"
            raise LostError(told, self.hint, sent=self._sent) from None
        except HeadwayError:
            # what else is on its way there belongs to an answer that was not understood
            self.close()
            raise

    def try_connect(self, timeout_s: float = 1.0) -> bool:
        """Whether something listens there. The connection is kept for the first request."""
        try:
            self._connect(time.monotonic() + timeout_s)
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest, self._used = None, b"", False

    def _exchange(self, data: bytes, deadline: float) -> Response:
        if (
            self._used
            and self._socket
            and not self._rest
            and select.select([self._socket], [], [], 0)[0]
        ):
            self.close()  # nothing is owed to us there: it was closed meanwhile
        fresh = not self._used
        wire = self._socket or self._connect(deadline)
        self._used = True
        try:
            wire.settimeout(_left(deadline))
            self._sent = True
            wire.sendall(data)
            self._tell_slow(wire, deadline)
            return self._answer(wire, deadline)
        except (BrokenPipeError, ConnectionResetError, Stale) as error:
            if fresh:
                raise ConnectionError("it closed the connection") from error
            raise Stale from None

    def _tell_slow(self, wire: socket.socket, deadline: float) -> None:
        if (
            self.slow is None
            or self._rest
            or select.select([wire], [], [], min(VIEW_SLOW_S, _left(deadline)))[0]
        ):
            return
        tell, self.slow = self.slow, None
        tell()

    def _connect(self, deadline: float) -> socket.socket:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_left(deadline))
        self._socket.connect(str(self.path))
        return self._socket

    def _answer(self, wire: socket.socket, deadline: float) -> Response:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > HEAD_BYTES_MAX:
                raise DamagedError("the server's answer has a head that does not end")
            self._read(wire, deadline)
        status, headers = parse_head(self._rest[:end])
        length = headers.get("content-length", "")
        if not length.isdigit() or int(length) > VIEW_ANSWER_BYTES_MAX:
            raise DamagedError(
                f"the server's answer does not say how long it is, or is too long ({length[:20]!r})"
            )
        body = self._body(wire, self._rest[end + 4 :], int(length), deadline)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Response(status, headers, body)

    def _read(self, wire: socket.socket, deadline: float) -> None:
        wire.settimeout(_left(deadline))
        data = wire.recv(_READ_BYTES)
        if not data and not self._rest:
            raise Stale
        if not data:
            raise ConnectionError("it closed the connection in the middle of its answer")
        self._rest += data

    def _body(self, wire: socket.socket, begun: bytes, length: int, deadline: float) -> bytes:
        parts, missing = [begun[:length]], length - len(begun)
        self._rest = begun[length:]
        while missing > 0:
            wire.settimeout(_left(deadline))
            data = wire.recv(min(missing, _READ_BYTES))
            if not data:
                raise ConnectionError("it closed the connection in the middle of its answer")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)


def parse_head(data: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers, names in lower case."""
    first, *rest = data.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise DamagedError(f"what listens there does not speak HTTP: {first[:60]!r}")
    pairs = (line.partition(":") for line in rest)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _left(deadline: float) -> float:
    """Seconds that are left; a socket takes 0 for "do not wait"."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left

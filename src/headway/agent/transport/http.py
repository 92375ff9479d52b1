"""HTTP to the server over its unix socket, without blocking: one kept-alive connection, one request
at a time.

Called by the shipper's loop. Small on purpose: `http.client` costs six megabytes of memory and
twenty milliseconds, and its timeout begins anew with every byte, so that a server that sends one
per second would never time out (F19). Here one deadline covers connecting, sending and the whole
answer.
"""

from __future__ import annotations

import errno

try:
    import _socket as socket  # the `socket` around it takes longer to load than a short task to run
except ImportError:  # another Python
    import socket  # type: ignore[no-redef]

from headway.model.limits import HEAD_BYTES_MAX, MIB, POLL_WAIT_S
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.spool.files import Files
    from headway.spool.layout import TaskFile

HOST = "headway"  # the only Host that the server's guard lets in on the unix socket
ANSWER_BYTES_MAX = 8 * MIB
_BUFFERS_MAX = 64  # handed to the system in one call
_STALE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)


class TaskName(Value):
    """`wire.batch.TaskKey` as the agent has it."""

    uuid: str
    attempt: int
    task: str

    def __str__(self) -> str:
        return f"{self.uuid}-{self.attempt}-{self.task}"


class Answer(Value):
    """What came of a request. `status` is None when there was no answer; `reason` then says why."""

    status: int | None
    body: bytes = b""
    reason: str = ""


class Channel:
    """`start` a request, then `step` whenever the socket is ready or the deadline has passed, until
    an Answer comes.
    """

    def __init__(self, path: str, token: str = "") -> None:
        self.path, self.token, self.host = path, token, HOST
        self.busy = False
        self.deadline_s = 0.0
        self.due_s = float("inf")  # when to look, for a channel that has no descriptor
        self.trouble = ""  # why a better way than this does not work
        self._socket: socket.socket | None = None
        self._request: list[bytes | memoryview] = []
        self._rest: list[bytes | memoryview] = []
        self._got = bytearray()
        self._kept = False  # the connection has carried a request before

    def renew(self, task: "TaskFile") -> None:
        """The task file was read again: path and token may be others now."""
        self.path, self.token = task.socket, task.token

    def poll_wait_s(self, now_s: float) -> float:
        """How long the server may hold a question for commands."""
        return POLL_WAIT_S

    def is_due(self, now_s: float) -> bool:
        """Whether to `step` although nothing is ready."""
        return now_s >= min(self.deadline_s, self.due_s)

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._rest)

    def start(
        self,
        path: str,
        body: "Sequence[bytes | memoryview]",
        now_s: float,
        timeout_s: float,
        kind: str = "json",
    ) -> Answer | None:
        """Begin a POST; an Answer at once means that it failed."""
        assert not self.busy
        length = sum(len(piece) for piece in body)
        content = "application/json" if kind == "json" else "application/octet-stream"
        login = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\n{login}"
            f"Content-Type: {content}\r\nContent-Length: {length}\r\n\r\n"
        )
        self._request = [head.encode(), *body]
        self.busy, self.deadline_s = True, now_s + timeout_s
        return self._begin(now_s)

    def _begin(self, now_s: float) -> Answer | None:
        self._rest, self._kept = list(self._request), self._socket is not None
        self._got.clear()
        if self._socket is None:
            try:
                self._open(now_s)
            except OSError as error:
                return self._unopened(
                    f"no server can be reached at {self.path}: {error.strerror or error}", now_s
                )
        return self.step(now_s)

    def _unopened(self, reason: str, now_s: float) -> Answer | None:
        """Nobody is there, or not whom we look for. A channel with several addresses goes on with
        the next one.
        """
        return self._fail(reason)

    def _open(self, now_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.connect(self.path)

    def step(self, now_s: float) -> Answer | None:
        """Go on as far as possible. None: not done yet."""
        if not self.busy:
            return None
        broken: OSError | None = None
        answer: Answer | None = None
        try:
            self._send()
        except BlockingIOError:
            pass
        except OSError as error:
            broken = error  # the server may have answered before it closed
        try:
            answer = self._receive()
        except BlockingIOError:
            pass
        except OSError as error:
            broken = broken or error
        if answer is None and broken is not None:
            return self._broken(broken.errno, broken.strerror or str(broken), now_s)
        if answer is None and now_s >= self.deadline_s:
            return self._fail("the server did not answer in time")
        return answer

    def _send(self) -> None:
        assert self._socket is not None
        while self._rest:
            sent = self._socket.sendmsg(self._rest[:_BUFFERS_MAX])
            while sent:
                first = self._rest[0]
                if sent < len(first):
                    self._rest[0] = memoryview(first)[sent:]
                    break
                sent -= len(first)
                self._rest.pop(0)
            while self._rest and not len(self._rest[0]):
                self._rest.pop(0)

    def _receive(self) -> Answer | None:
        assert self._socket is not None
        while True:
            data = self._socket.recv(64 * 1024)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
            self._got += data
            answer = self._parse()
            if answer is not None:
                return answer

    def _broken(self, number: int | None, text: str, now_s: float) -> Answer | None:
        """A kept connection may have been closed while it lay idle: then the request goes out again
        on a new one.
        """
        idle = self._kept and number in _STALE and not self._got
        self._drop()
        return self._begin(now_s) if idle else self._fail(text)

    def _parse(self) -> Answer | None:
        head_end = self._got.find(b"\r\n\r\n")
        if head_end < 0:
            return (
                self._fail("the server's answer is not HTTP")
                if len(self._got) > HEAD_BYTES_MAX
                else None
            )
        lines = bytes(self._got[:head_end]).split(b"\r\n")
        words = lines[0].split()
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in lines[1:])
        }
        try:
            status, length = int(words[1]), int(headers.get(b"content-length", b"0"))
        except (ValueError, IndexError):
            return self._fail("the server's answer is not HTTP")
        if (
            not words[0].startswith(b"HTTP/1.")
            or not 0 <= length <= ANSWER_BYTES_MAX
            or b"transfer-encoding" in headers
        ):
            return self._fail("the server's answer is not one that we read")
        if len(self._got) < head_end + 4 + length:
            return None
        body = bytes(self._got[head_end + 4 : head_end + 4 + length])
        if headers.get(b"connection", b"").lower() == b"close" or self._rest:
            # an answer before the whole request was sent: the rest of it must not be taken for the
            # next
            self._drop()
        self._done()
        return Answer(status, body)

    def _fail(self, reason: str) -> Answer:
        self._drop()
        self._done()
        return Answer(None, b"", reason)

    def _done(self) -> None:
        self.busy = False
        self._request, self._rest = [], []  # the pieces are large

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        self._drop()
        self._done()


def open_channels(
    task_dir: str, task: "TaskFile", say: "Callable[[str], None]", files: "Files"
) -> tuple[Channel, Channel]:
    """(for data, for commands). A task that has one way only pays for no other."""
    if not task.tls and not task.tray:
        return Channel(task.socket, task.token), Channel(task.socket, task.token)
    from headway.agent.transport.failover import open_ways

    return open_ways(task_dir, task, say, files)

"""HTTP to the server over its unix socket, and starting the server when none is there.

Used by every view and by the shipper. Standard library only.
"""

from __future__ import annotations

import fcntl
import http.client
import json as _json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

from headway.home.launch import server_argv, server_env
from headway.home.paths import Paths, socket_path
from headway.model.errors import UnreachableError
from headway.model.limits import SERVER_START_TIMEOUT_S
from headway.model.undo import UndoOnFailure

HOST = "headway"  # the only Host that the guard lets in on the unix socket


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__(HOST, timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # also when we are interrupted: the socket must not leak
        with UndoOnFailure(self.sock.close):
            self.sock.connect(str(self.path))


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return _json.loads(self.body)


class Client:
    """One kept-alive connection. Not thread-safe: a thread has its own.

    Raises UnreachableError when the server cannot be reached or does not answer in time. A request
    is sent again only when the kept connection turns out to have been closed before anything of the
    answer came.
    """

    def __init__(self, path: Path, token: str | None = None, timeout_s: float = 30.0) -> None:
        self.path, self.token, self.timeout_s = path, token, timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        json: object = None,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        sent = dict(headers or {})
        if json is not None:
            body, sent["Content-Type"] = _json.dumps(json).encode(), "application/json"
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        fresh = self._connection is None
        try:
            return self._once(method, path, body, sent, timeout_s)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if fresh:
                raise UnreachableError(f"the server closed the connection: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnreachableError(
                f"the server at {self.path} did not answer: {error or type(error).__name__}"
            ) from None
        try:  # the kept connection had been closed: once more on a new one
            return self._once(method, path, body, sent, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnreachableError(
                f"the server at {self.path} did not answer: {error or type(error).__name__}"
            ) from None

    def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout_s: float | None,
    ) -> Response:
        limit = self.timeout_s if timeout_s is None else timeout_s
        if self._connection is None:
            self._connection = self._open(limit)
            self._connection.connect()
        assert self._connection.sock is not None
        self._connection.sock.settimeout(limit)
        self._connection.request(method, path, body=body, headers=headers)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.will_close:
            self.close()
        return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, data)

    def _open(self, limit_s: float) -> http.client.HTTPConnection:
        return UnixConnection(self.path, limit_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


def request(
    path: Path,
    method: str,
    route: str,
    *,
    body: bytes | None = None,
    json: object = None,
    token: str | None = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = 30.0,
) -> Response:
    """One request on a connection of its own."""
    with Client(path, token, timeout_s) as client:
        return client.request(method, route, body=body, json=json, headers=headers)


def is_listening(path: Path) -> bool:
    """Whether something accepts connections there. A stopped server still does: that is asked for
    by a request.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (BlockingIOError, TimeoutError):
            return True  # its queue of connections is full: busy, not gone
        except OSError:
            return False
        return True


def server_path(home_folder: Path) -> Path:
    """The socket of this home's server. One that runs may have been started where XDG_RUNTIME_DIR
    or TMPDIR was another: then it is where its `server.json` says.
    """
    path = socket_path(home_folder)
    if is_listening(path) or not _lock_is_held(home_folder):
        return path
    told = _told_path(home_folder)
    return told if told is not None and is_listening(told) else path


def _told_path(home_folder: Path) -> Path | None:
    """From `server.json`; only a socket in a folder that nobody else can write to."""
    try:
        told = Path(_json.loads(Paths(home_folder).server_json.read_bytes())["address"])
        folder = os.lstat(told.parent)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return told if folder.st_uid == os.getuid() and not folder.st_mode & 0o022 else None


def ensure_server(home_folder: Path, timeout_s: float = SERVER_START_TIMEOUT_S) -> Path:
    """The socket of this home's server; starts one when none listens. Any number may call this at
    once: the server itself takes a lock, and whoever comes second leaves.
    """
    path = server_path(home_folder)
    if is_listening(path):
        return path
    deadline = time.monotonic() + timeout_s
    hint = f"its log may say why: {Paths(home_folder).server_log}, or try: hw server start"
    child: subprocess.Popen[bytes] | None = None
    while time.monotonic() < deadline:
        if child is None or (child.poll() is not None and not _lock_is_held(home_folder)):
            child = start_server(home_folder)
        if _wait_listening(path, child, min(deadline, time.monotonic() + 5.0)):
            # it is meant to outlive us, so its handle shall not complain
            child.returncode = child.returncode or 0
            return path
        path = server_path(home_folder)
        # one that somebody has killed is followed by another
        if child.poll() not in (None, 0, -signal.SIGKILL):
            raise UnreachableError(
                f"the server ended with {child.returncode} before it could be reached", hint
            )
    raise UnreachableError(f"the server did not start within {timeout_s:g} s", hint)


def _wait_listening(path: Path, child: subprocess.Popen[bytes], until: float) -> bool:
    pause = 0.01
    while time.monotonic() < until:
        if is_listening(path):
            return True
        if child.poll() not in (None, 0):  # 0: another one holds the lock and will listen soon
            return False
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1)
    return False


def _lock_is_held(home_folder: Path) -> bool:
    try:
        fd = os.open(Paths(home_folder).server_lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def start_server(home_folder: Path) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own; it outlives us."""
    paths = Paths(home_folder)
    log = os.open(paths.server_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            server_argv(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=server_env(home_folder),
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(log)

"""One ssh connection to a login node, with our relay at its other end. Called by
`engines/slurm/place_ssh.py`, from threads.

The system's own `ssh` is run, so that keys, jump hosts and names are those of the person's
~/.ssh/config. A connection is made when something is asked and none is there; a lost one is made
again after a while. Until then every question is `UnreachableError`, in words and at once: nothing
follows from silence, and nobody waits for a host that is known to be away. The relay ends with its
input, so a killed server leaves none behind.
"""

import contextlib
import hashlib
import itertools
import os
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from datetime import UTC, datetime
from functools import cache
from typing import IO, Any, Final

from headway.engines.ssh import boot
from headway.home import zipapp
from headway.model.errors import DamagedError, HeadwayError, RefusedError, UnreachableError
from headway.model.json_types import JsonObject
from headway.model.limits import (
    RELAY_AGAIN_FIRST_S,
    RELAY_AGAIN_MAX_S,
    RELAY_AGAIN_WAIT_S,
    RELAY_ALIVE_S,
    RELAY_CONNECT_S,
    RELAY_IDLE_S,
    RELAY_READY_S,
    RELAY_SILENT_S,
    RELAY_WAIT_S,
)
from headway.model.undo import UndoOnFailure
from headway.wire import relay_messages, tray

Answer = tuple[Any, bytes]
TIMEOUT_S: Final = 30.0
_TOLD_BYTES: Final = 4096  # of what ssh says
_ERRORS: Final = {
    "damaged": DamagedError,
    "foreign": tray.ForeignError,
    "unreachable": UnreachableError,
}
# what a relay says of itself, by which files and processes there are named
_HELLO: Final[dict[str, type]] = {
    "python": str, "folder": str, "spool": str, "tray": str, "zip": str, "home": str, "pid": int, "uid": int,
}  # fmt: skip
_HINTS: Final = {
    "host key verification failed": "log in once by hand, so that its key is known: ssh {host}",
    "permission denied": "a key or an agent must let you in without a question; try: ssh -o BatchMode=yes {host} true",
    "could not resolve hostname": "the name may stand in ~/.ssh/config; try: ssh {host} true",
}


def ssh_argv(host: str) -> list[str]:
    """Without questions, terminal and forwardings; anything else is as the person has configured
    it.
    """
    options = [
        "BatchMode=yes", f"ConnectTimeout={RELAY_CONNECT_S:g}", f"ServerAliveInterval={RELAY_ALIVE_S}",
        "ServerAliveCountMax=3", "ClearAllForwardings=yes", "RemoteCommand=none",
    ]  # fmt: skip
    return [
        "ssh",
        "-T",
        "-x",
        "-a",
        *(word for option in options for word in ("-o", option)),
        "--",
        host,
    ]


class Link:
    """A connection that is there; when it ends, `lost` says why."""

    def __init__(self, host: str, argv: Sequence[str]) -> None:
        self.host, self.lost, self.hello = host, "", {}  # type: tuple[str, str, JsonObject]
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._told = bytearray()
        self._heard_s = time.monotonic()
        self._writing = threading.Lock()
        self._child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            start_new_session=True,
        )  # fmt: skip
        self._talk = threading.Thread(target=self._drain, name="headway-ssh-talk", daemon=True)
        self._talk.start()

    @property
    def _in(self) -> IO[bytes]:
        assert self._child.stdin is not None
        return self._child.stdin

    @property
    def _out(self) -> IO[bytes]:
        assert self._child.stdout is not None
        return self._child.stdout

    def _read(self, length: int) -> bytes:
        return os.read(self._out.fileno(), length)

    def _drain(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as talk:
            while data := os.read(talk.fileno(), 4096):
                self._told = (self._told + data)[-_TOLD_BYTES:]

    def greet(self, mark: str, program: bytes, python: str | None = None) -> None:
        """Pass over what a shell prints, hand over the program if it is wanted, and hear the
        relay's first words.
        """
        watchdog = threading.Timer(RELAY_READY_S, self._child.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            word = relay_messages.find_mark(self._read, mark)
            if word == relay_messages.SEND:
                # it has ended meanwhile, and its last words say why
                with contextlib.suppress(OSError):
                    self._write(program)
                word = relay_messages.find_mark(self._read, mark)
            if word == relay_messages.NO_PYTHON:
                least = ".".join(map(str, zipapp.PYTHON_MIN))
                told = f"{python} on {self.host} is not a Python {least} or newer"
                raise RefusedError(
                    told if python else f"{self.host} has no Python {least} or newer",
                    f"name {'another one' if python else 'one'}: `python:` of the cluster in headway.yaml",
                )
            message = relay_messages.receive(self._read) if word == relay_messages.READY else None
        finally:
            watchdog.cancel()
        if message is None:
            raise UnreachableError(*self._why())
        hello = message[0].get("value")
        if not isinstance(hello, dict) or not all(
            isinstance(hello.get(name), kind) for name, kind in _HELLO.items()
        ):
            raise DamagedError(f"what answers on {self.host} is not our relay")
        self.hello = hello
        threading.Thread(target=self._listen, name="headway-relay", daemon=True).start()

    def _listen(self) -> None:
        reason = ""
        with self._out:
            try:
                while (message := relay_messages.receive(self._read)) is not None:
                    self._heard_s = time.monotonic()
                    head, body = message
                    number = head.get("id")
                    future = self._waiting.pop(number, None) if isinstance(number, int) else None
                    if future is not None:
                        future.set_result(({k: v for k, v in head.items() if k != "id"}, body))
            except (OSError, DamagedError) as error:
                reason = str(error)
            self.end(reason)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._in.fileno(), view) :]

    def ask(self, head: JsonObject, body: bytes, timeout_s: float) -> Answer:
        """(head of the answer, its body)."""
        number = next(self._numbers)
        future: Future[Answer] = Future()
        self._waiting[number] = future
        try:
            self._send(relay_messages.encode({**head, "id": number}, body), timeout_s)
            if self.lost:
                raise UnreachableError(self.lost)
            return future.result(timeout_s)
        except LateError:
            silent_s = time.monotonic() - self._heard_s
            if silent_s > RELAY_SILENT_S:  # ssh should have noticed by itself
                self.end(
                    f"{self.host} is not reached over ssh: it has not answered anything for {silent_s:.0f} s"
                )
            raise UnreachableError(f"{self.host} did not answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)

    def _send(self, data: bytes, timeout_s: float) -> None:
        if not self._writing.acquire(timeout=timeout_s):
            raise UnreachableError(f"{self.host} takes nothing more now")
        try:
            self._write(data)
        except (OSError, ValueError):
            self.end("")
            raise UnreachableError(self.lost) from None
        finally:
            self._writing.release()

    def end(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason or self._why()[0]
        self.close()
        for number in list(self._waiting):
            # whoever takes it out answers it, us or what has just come
            future = self._waiting.pop(number, None)
            if future is not None:
                future.set_exception(UnreachableError(self.lost))

    def _why(self) -> tuple[str, str]:
        """The last words of ssh, and what to type."""
        try:
            code: int | None = self._child.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        self._talk.join(1.0)
        lines = [
            line.strip()
            for line in self._told.decode(errors="replace").splitlines()
            if line.strip()
        ]
        if lines:
            said = lines[-1]
        else:
            said = f"ssh ended with {code}" if code else "the connection was closed"
        if re.match(r"[A-Z]\w*Error: ", said):  # ssh got there: our own program could not work
            hint = (
                "most likely its folder cannot be used: `folder:` of the cluster names another one"
            )
            return (
                f"{self.host} is reached, but the relay could not start there: {said[:300]}",
                hint,
            )
        hint = next((text for word, text in _HINTS.items() if word in said.lower()), "")
        return f"{self.host} is not reached over ssh: {said[:300]}", hint.format(host=self.host)

    def give_up(self) -> None:
        """It was never there, so nobody listens."""
        self.close()
        self._out.close()

    def close(self) -> None:
        """The far side ends with its input; what ssh does not do in time is done for it."""
        try:
            self._in.close()
        except OSError:
            pass
        if self._child.poll() is None:
            self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Relay:
    """The way to one folder on one host: connected when it is needed, and again when the connection
    was lost.
    """

    def __init__(
        self,
        host: str,
        folder: str,
        home: str,
        python: str | None = None,
        *,
        argv: Callable[[str], list[str]] = ssh_argv,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host, self.folder, self._home, self._python = host, folder, home, python
        self._argv, self._clock_s = argv, clock_s
        self._changed = threading.Condition()
        self._link: Link | None = None
        self._connecting = False
        self._error: HeadwayError | None = None  # why there is no connection
        self._since: datetime | None = None  # when it was first missed
        self._next_s, self._pause_s, self._opened_s = 0.0, RELAY_AGAIN_FIRST_S, 0.0
        self._used_s = -RELAY_IDLE_S
        self._closed = False

    # -- asking

    @property
    def is_used(self) -> bool:
        """Somebody has asked for something lately: worth looking for what agents have to say."""
        return self._clock_s() - self._used_s < RELAY_IDLE_S / 2

    def hello(self) -> JsonObject:
        return self._connected().hello

    def call(
        self,
        do: str,
        body: bytes = b"",
        *,
        timeout_s: float = TIMEOUT_S,
        in_passing: bool = False,
        **head: object,
    ) -> Answer:
        """(value, body) of the answer. `in_passing`: it does not count as use. OSError: of the far
        side.
        """
        if not in_passing:
            self._used_s = self._clock_s()
        link = self._connected()
        answer, data = link.ask({"do": do, **head}, body, timeout_s)
        if "error" not in answer:
            return answer.get("value"), data
        told = f"{self.host}: {str(answer['error'])[:_TOLD_BYTES]}"
        if isinstance(answer.get("errno"), int):
            raise OSError(answer["errno"], told)
        raise _ERRORS.get(str(answer.get("code")), RefusedError)(told)

    # -- connecting

    def _connected(self) -> Link:
        """The connection. A first one is waited for; one that is known to be missing only by whom
        it is tried for.
        """
        with self._changed:
            if self._link is not None and self._link.lost:
                self._drop(self._link)
            if self._link is not None:
                return self._link

            is_due = not self._connecting and not self._closed and self._clock_s() >= self._next_s
            if is_due:
                self._connecting = True
                threading.Thread(target=self._connect, name="headway-ssh", daemon=True).start()
            is_first = self._error is None
            if is_first or is_due:
                patience_s = RELAY_WAIT_S if is_first else RELAY_AGAIN_WAIT_S
                self._changed.wait_for(lambda: not self._connecting, patience_s)

            if self._link is not None:
                return self._link
            raise self._missing()

    def _connect(self) -> None:
        link: Link | None = None
        error: HeadwayError | None = None
        try:
            link = self._open()
        except HeadwayError as found:
            error = found
        except OSError as found:
            error = UnreachableError(f"ssh could not be run: {found}")
        with self._changed:
            self._connecting = False
            if link is not None and not self._closed:
                self._link, self._error, self._since = link, None, None
                self._opened_s = self._clock_s()
            elif error is not None:
                self._miss(error)
            self._changed.notify_all()
        if link is not None and self._closed:
            link.close()

    def _open(self) -> Link:
        program, digest = _program()
        nonce = secrets.token_hex(16)
        mark = relay_messages.mark_of(nonce)
        words = boot.command(
            self._python, self.folder, self._home, len(program), digest, nonce, mark
        )
        link = Link(self.host, [*self._argv(self.host), words])
        # whatever it was, ssh must not stay behind
        with UndoOnFailure(link.give_up):
            link.greet(mark, program, self._python)
        return link

    def _drop(self, link: Link) -> None:
        """It was lost: a new one is made at once, unless this one did not last. Called with the
        lock held.
        """
        self._link = None
        if self._clock_s() - self._opened_s < RELAY_AGAIN_MAX_S:
            self._miss(UnreachableError(link.lost))
        else:
            self._next_s, self._pause_s = 0.0, RELAY_AGAIN_FIRST_S

    def _miss(self, error: HeadwayError) -> None:
        """Called with the lock held."""
        self._link, self._error = None, error
        self._since = self._since or datetime.now(UTC)
        self._next_s = self._clock_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, RELAY_AGAIN_MAX_S)

    def _missing(self) -> HeadwayError:
        if self._error is None:
            return UnreachableError(f"{self.host} is not reached over ssh yet", self._hint())
        words = f"{self._error.message} (since {self._since:%H:%M:%S} UTC)"
        return type(self._error)(words, self._error.hint or self._hint())

    def _hint(self) -> str:
        return f"the connection is made again by itself; to look at it: ssh {self.host} true"

    def trouble(self) -> str:
        """Why and since when it is not reached; empty while it is, or was never needed."""
        with self._changed:
            return str(self._missing()) if self._error is not None else ""

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            link, self._link = self._link, None
        if link is not None:
            link.close()


@cache
def _program() -> tuple[bytes, str]:
    """The zip application and its digest."""
    data = zipapp.build()
    return data, hashlib.sha256(data).hexdigest()

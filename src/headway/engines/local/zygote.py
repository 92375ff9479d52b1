"""The engine's side of the warm launcher (`agent/shim/zygote.py`): starts it, asks it for shims,
hears of their ends.

Called by the local engine, from several threads. Whatever goes wrong here costs warmth only: the
engine then starts the shim cold. Should both start one, the shim's own lock lets one of them run.
"""

import json
import select
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from headway.model.json_types import JsonObject
from headway.wire import identity

ANSWER_S = 2.0  # a fork takes a millisecond; a launcher that takes longer is given up


class Child(Protocol):
    """What the engine needs to know of an agent that it started: as `subprocess.Popen` has it."""

    returncode: int | None

    def poll(self) -> int | None: ...


class WarmChild:
    """A shim that the launcher forked. After the launcher's death its end is seen, its exit code is
    not known.
    """

    def __init__(self, launcher: "Launcher", who: identity.Identity) -> None:
        self._launcher, self._who = launcher, who
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._launcher.hear()
            self.returncode = self._launcher.codes.pop(self._who.pid, None)
        if self.returncode is None and self._launcher.ended and not identity.is_alive(self._who):
            self.returncode = -1
        return self.returncode


class Launcher:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Started at once; it is of use as soon as it has said that it is ready."""
        self.codes: dict[int, int] = {}  # pid -> exit code, until somebody asks
        self.ended = self.ready = False
        self._lock = threading.RLock()
        self._rest = b""
        self._answers: list[JsonObject] = []
        self._link, far = socket.socketpair()
        with far:
            self._child = subprocess.Popen(
                list(argv), stdin=far.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                env=dict(env), start_new_session=True, close_fds=True,
            )  # fmt: skip
        self._link.setblocking(False)

    def start(self, folder: Path) -> WarmChild | None:
        """None: start it cold."""
        with self._lock:
            return self._start(folder)

    def _start(self, folder: Path) -> WarmChild | None:
        self.hear()
        if not self.ready or self.ended:
            return None
        try:
            self._link.sendall(json.dumps({"folder": str(folder)}).encode() + b"\n")
        except OSError:
            self.close()
            return None
        deadline_s = time.monotonic() + ANSWER_S
        # not `select`, which takes no descriptor beyond 1023: a server has one for each agent
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        while not self._answers and not self.ended and time.monotonic() < deadline_s:
            poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)
            self.hear()
        answer = self._answers.pop() if self._answers else {}
        who = identity.Identity.load(answer)
        if who is None:
            self.close()
            return None
        return WarmChild(self, who)

    def hear(self) -> None:
        """Take what it has said, without waiting."""
        with self._lock:
            self._hear()

    def _hear(self) -> None:
        while not self.ended:
            try:
                data = self._link.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: JsonObject) -> None:
        if "ready" in message:
            self.ready = True
        elif "ended" in message:
            self.codes[message["ended"]] = message["code"]
        else:
            self._answers.append(message)

    def close(self) -> None:
        """It leaves when it hears no more of us; what it forked goes on."""
        self.ended = True
        self._link.close()
        try:
            self._child.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

"""The warm launcher: a process that has everything of the agent loaded and forks a shim for each
task it is told of.

Started by the local engine (`engines/local/zygote.py`) as `warm HOME`, with a socket as its
standard input. A line of JSON `{"folder"}` is answered by `{"pid", "start"}`; the end of a shim by
`{"ended": pid, "code"}`. A forked shim is as one that was executed: a session of its own, the
environment that the engine gives to every agent, no descriptor of ours, nothing of another task,
for this process never reads one's files. It ends with the engine, or after an idle time; the shims
go on, and the engine starts them cold until there is another one.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal

from headway.agent.process import name_process
from headway.agent.shim.shim import Shim
from headway.model.limits import WARM_IDLE_S
from headway.wire.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

LINE_BYTES_MAX = 64 * 1024


class Warm:
    def __init__(self, link: int) -> None:
        self._link = link
        self._rest = b""
        self._living: set[int] = set()

    def run(self) -> int:
        _load()
        name_process("hw-warm")
        self._wake, self._wake_far = os.pipe()
        for fd in (self._wake, self._wake_far):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_far, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        self._say({"ready": os.getpid()})
        while self._turn():
            self._reap()
        return 0

    def _turn(self) -> bool:
        """False: the engine is gone, or nobody has asked for anything for long."""
        poll = select.poll()
        for fd in (self._link, self._wake):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(WARM_IDLE_S * 1000)}
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._link in ready:
            data = os.read(self._link, 1 << 16)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._start(json.loads(line)["folder"])
            return bool(data) and len(self._rest) <= LINE_BYTES_MAX
        return bool(ready) or bool(self._living)

    def _start(self, folder: str) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._say({"pid": None, "error": error.strerror})
            return
        if pid == 0:
            self._become_shim(folder)
        self._living.add(pid)
        self._say({"pid": pid, "start": process_start(pid)})

    def _become_shim(self, folder: str) -> None:
        """In the forked child; never returns."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._wake)
            os.close(self._wake_far)
            null = os.open(os.devnull, os.O_RDWR)
            log = os.open(
                os.path.join(folder, "agent"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )
            for fd, target in ((null, 0), (null, 1), (log, 2)):
                os.dup2(fd, target)
            for fd in (null, log):
                os.close(fd)
            code = Shim(folder, warm=True).run()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while self._living:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._living.discard(pid)
            self._say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _say(self, message: "JsonObject") -> None:
        try:
            os.write(self._link, json.dumps(message).encode() + b"\n")
        except OSError:
            return  # the engine is gone, which the next read tells


def _load() -> None:
    """All that a shim and its shipper use, once for all of them; and no memory is touched for it
    again.
    """
    import base64
    import bisect
    import ctypes
    import hashlib
    import pwd
    import random
    import resource
    import subprocess

    from headway.agent.probes import task_usage
    from headway.agent.ship import mask, shipper
    from headway.wire import redact

    _ = (
        base64,
        bisect,
        ctypes.CDLL(None),
        hashlib,
        pwd,
        random,
        resource,
        subprocess,
        mask,
        shipper,
        task_usage,
        redact,
    )
    gc.collect()
    gc.freeze()


def _noted(signum: int, frame: object) -> None:
    """The wake-up pipe has the number; a handler must stand for it to be written."""

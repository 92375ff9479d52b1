"""Holds a task to the memory that it asked for, where no scheduler or container does. Driven by
`shim.py`.

Two ways. Where we may make a control group beside ours (version 2, with its memory controller
handed down), the kernel holds the limit, for all that the task starts. Else the processes are looked
at twice a second, and are killed, as the kernel would, when they have more. Shared pages are counted
once (PSS); that is asked only when the sum of resident memory, which is cheap, is over the limit.
"""

from __future__ import annotations

import os
import signal

from headway.agent import process
from headway.model.limits import MEMORY_WATCH_S
from headway.wire.identity import PROC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.agent.process import Status

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GROUPS = "/sys/fs/cgroup"


class MemoryLimit:
    def __init__(
        self, limit_bytes: int, name: str, say: "Callable[[str], None]", proc: str = PROC
    ) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0  # when it was too much
        self._say, self._proc = say, proc
        self._next_s = 0.0
        self._group = _make_group(name, limit_bytes)
        if self._group is None:
            say(f"memory is watched: {limit_bytes} bytes; no control group can be made here")

    def due_s(self) -> float | None:
        """When `look` is wanted; None when the kernel watches, or all is over."""
        return None if self._group is not None or self.used_bytes else self._next_s

    def take_in(self, pid: int) -> None:
        """A process that was just started, before it starts others."""
        if self._group is None:
            return
        try:
            _write(f"{self._group}/cgroup.procs", str(pid))
        except OSError as error:
            self._say(f"the control group takes no process: {error.strerror}; memory is watched")
            self.close()

    def kills(self) -> bool:
        """Whether something was killed because of the limit."""
        if self.used_bytes:
            return True
        return self._group is not None and bool(process.oom_kills(f"{self._group}/memory.events"))

    def look(self, now_s: float, groups: "set[int]", spared_sessions: "set[int]") -> None:
        """Kill everything of the task if it has too much. `groups`: of its ranks;
        `spared_sessions`: of processes below us that are not the task's.
        """
        self._next_s = now_s + MEMORY_WATCH_S
        members = process.leftovers_below(os.getpid(), spared_sessions)
        if members is None:
            members = process.leftovers(os.getpid(), groups, spared_sessions)
        if sum(self._resident(one.pid) for one in members) <= self.limit_bytes:
            return
        used = sum(self._shared_once(one.pid) for one in members)
        if used <= self.limit_bytes:
            return
        self.used_bytes = used
        self._say(f"memory: {used} bytes used of {self.limit_bytes}; the task is killed")
        for one in members:
            _kill(one)

    def _resident(self, pid: int) -> int:
        try:
            with open(f"{self._proc}/{pid}/statm", "rb", buffering=0) as file:
                return int(file.read(128).split()[1]) * _PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0  # it is gone

    def _shared_once(self, pid: int) -> int:
        try:
            with open(f"{self._proc}/{pid}/smaps_rollup", "rb", buffering=0) as file:
                rows = file.read(4096).splitlines()
            return 1024 * next(int(row.split()[1]) for row in rows if row.startswith(b"Pss:"))
        except (OSError, IndexError, ValueError, StopIteration):
            return self._resident(pid)  # an old kernel

    def close(self) -> None:
        """The task is over: the group goes, if nothing is left in it."""
        if self._group is None:
            return
        try:
            os.rmdir(self._group)
        except OSError:
            return
        self._group = None


def _kill(one: "Status") -> None:
    """It is ours, or below us: nobody else reaps it between the look and now but its parent."""
    found = process.status_of(one.pid)
    if found is None or found.start != one.start:
        return
    try:
        os.kill(one.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _own_group() -> str | None:
    """None where there are no groups of version 2."""
    try:
        with open("/proc/self/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
        return next(path for number, _, path in rows if number == "0")
    except (OSError, ValueError, StopIteration):
        return None


def _make_group(name: str, limit_bytes: int) -> str | None:
    """Beside our own group: below the nearest one that hands the memory controller down and may be
    written. None where there is none.
    """
    own = _own_group()
    if own is None:
        return None
    above = os.path.dirname(own.rstrip("/")) if own.strip("/") else own
    parent = os.path.normpath(f"{_GROUPS}/{above.strip('/')}")
    try:
        with open(f"{parent}/cgroup.subtree_control") as file:
            if "memory" not in file.read().split():
                return None
        group = f"{parent}/{name}"
        os.mkdir(group)
    except OSError:
        return None
    try:
        _write(f"{group}/memory.max", str(limit_bytes))
        _write(f"{group}/memory.oom.group", "1")
        if os.path.exists(f"{group}/memory.swap.max"):
            _write(f"{group}/memory.swap.max", "0")
    except OSError:
        os.rmdir(group)
        return None
    return group


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

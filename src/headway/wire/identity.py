"""Who a process is: its pid, and when it started, for a pid alone may be another process tomorrow
(F29).

Called by the client to sign its streams, and by agent, engines and server to know a process again,
also after a restart. Where there is no /proc, a living pid is all that can be said.
"""

from __future__ import annotations

import os

from headway.model.value import Value

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    pass

PROC = "/proc"
HAS_PROC = os.path.exists(f"{PROC}/self/stat")


class Identity(Value):
    """One process of one boot."""

    pid: int
    start: int | None = None  # field 22 of /proc/<pid>/stat
    boot_id: str | None = None

    @classmethod
    def load(cls, value: object) -> "Identity | None":
        """From a file such as `shim.json`; None for anything that is not one."""
        if not isinstance(value, dict) or type(value.get("pid")) is not int or value["pid"] <= 0:
            return None
        start, boot = value.get("start"), value.get("boot_id")
        return cls(
            value["pid"],
            start if isinstance(start, int) else None,
            boot if isinstance(boot, str) else None,
        )


class Status(Value):
    """What /proc/<pid>/stat says."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start: int


def status_of(pid: int | str) -> Status | None:
    text = _read(f"{PROC}/{pid}/stat")
    # the name before it may hold anything, also blanks and brackets
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state = fields[0].decode()
    return Status(
        int(text.split(b" ", 1)[0]),
        state,
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
    )


def start_of(pid: int) -> int | None:
    """Start time of a process that lives; None when there is none, or only its zombie."""
    found = status_of(pid)
    return found.start if found is not None and found.state not in "ZX" else None


def is_alive(who: Identity, this_boot: str | None = None) -> bool:
    """True only for that very process; a zombie is dead. `this_boot` saves reading it again and
    again.
    """
    if who.pid <= 0:
        return False
    if who.boot_id is not None and (this_boot or boot_id()) not in (None, who.boot_id):
        return False
    if HAS_PROC:
        found = status_of(who.pid)
        return found is not None and found.state not in "ZX" and who.start in (None, found.start)
    try:
        os.kill(who.pid, 0)
    except OSError:  # gone, or somebody else's: not our process
        return False
    return True


def send(who: Identity, signum: int) -> bool:
    """Signal that very process. The descriptor is taken first and checked after, so the pid cannot
    change hands.

    Numbers come from files that may be damaged: 0 and -1 would mean many processes.
    """
    from signal import pidfd_send_signal  # here: the client has no use for it

    if who.pid <= 0:
        return False
    try:
        fd = os.pidfd_open(who.pid) if hasattr(os, "pidfd_open") else -1
    except OSError:
        return False
    try:
        if not is_alive(who):
            return False
        if fd < 0:
            os.kill(who.pid, signum)
        else:
            pidfd_send_signal(fd, signum)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if fd >= 0:
            os.close(fd)


def process_start(pid: "int | str" = "self") -> int | None:
    """Start of a process in clock ticks since boot (field 22 of its stat); None without /proc or
    the process.
    """
    found = status_of(pid)
    return None if found is None else found.start


def parent_of(pid: int) -> int | None:
    found = status_of(pid)
    return None if found is None else found.parent


def environment_names(pid: int) -> frozenset[bytes]:
    """Names of the variables that a process of ours was started with; empty when they cannot be
    read.
    """
    return frozenset(
        entry.partition(b"=")[0] for entry in _read(f"/proc/{pid}/environ").split(b"\0") if entry
    )


def boot_id() -> str | None:
    """Tells two boots of a machine apart; None where the system does not say."""
    return _read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip() or None


def umask() -> int:
    """This process's umask, without changing it for a moment, which other threads would notice."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(b"Umask:"):
            return int(line[6:], 8)
    return 0o022


def _read(path: str) -> bytes:
    """Small files of /proc, whole; empty when they cannot be read. os.open: io.open costs three
    times as much.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""  # it ended while we read
    finally:
        os.close(fd)

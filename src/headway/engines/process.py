"""Knowing a process again: by pid *and* start time, never by the pid alone (F29). Called by the local engine."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of one boot of this machine."""

    pid: int
    start: int | None  # field 22 of /proc/<pid>/stat; None where there is no /proc
    boot_id: str | None = None

    @classmethod
    def load(cls, value: Any) -> "Identity | None":
        """From `shim.json`; None for anything that is not one."""
        if not isinstance(value, dict) or type(value.get("pid")) is not int or value["pid"] <= 0:
            return None
        start, boot = value.get("start"), value.get("boot_id")
        return cls(value["pid"], start if isinstance(start, int) else None, boot if isinstance(boot, str) else None)


def boot_id() -> str | None:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def start_of(pid: int) -> int | None:
    """Start time of a process that lives; None when there is none, or only its zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name may hold anything, also blanks and brackets
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def is_alive(who: Identity) -> bool:
    """True only for that very process. Where /proc is missing, a living pid is all that can be said."""
    if who.boot_id is not None and boot_id() not in (None, who.boot_id):
        return False
    if who.start is not None and (_PROC / "self/stat").exists():
        return start_of(who.pid) == who.start
    try:
        os.kill(who.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # somebody else's, so not our process
    return True


def send(who: Identity, signum: int) -> bool:
    """Signal that very process. The descriptor is taken first and checked after, so the pid cannot change hands."""
    if not hasattr(os, "pidfd_open"):
        if not is_alive(who):
            return False
        os.kill(who.pid, signum)
        return True
    try:
        fd = os.pidfd_open(who.pid)
    except OSError:
        return False
    try:
        if not is_alive(who):
            return False
        signal.pidfd_send_signal(fd, signum)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)

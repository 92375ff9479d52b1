"""Who a process is: its pid, and when it started, for a pid alone may be another process tomorrow (F29).

Called by the client to sign its streams and by the agent to know a process again.
"""

import os


def process_start(pid: "int | str" = "self") -> int | None:
    """Start of a process in clock ticks since boot (field 22 of its stat); None without /proc or the process."""
    stat = _read(f"/proc/{pid}/stat")
    fields = stat[stat.rfind(b")") + 2 :].split()  # the name before it may hold anything, also blanks and brackets
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


def parent_of(pid: int) -> int | None:
    stat = _read(f"/proc/{pid}/stat")
    fields = stat[stat.rfind(b")") + 2 :].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


def environment_names(pid: int) -> frozenset[bytes]:
    """Names of the variables that a process of ours was started with; empty when they cannot be read."""
    return frozenset(entry.partition(b"=")[0] for entry in _read(f"/proc/{pid}/environ").split(b"\0") if entry)


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
    """Small files of /proc, whole; empty when they cannot be read. os.open: io.open costs three times as much."""
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

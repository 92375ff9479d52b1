"""Free ports for daemons that tests and trials start: below those that the kernel gives out, no two
of us the same one.

A port that was found free is not in use until its daemon listens, which may take seconds. So each
is also a lock file in the system's temporary folder, held until this process ends.
"""

import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 20_000, 32_700
_TRIES_MAX = 1_000
_held: list[int] = []


def reserve(count: int = 1) -> int:
    """The first of so many ports in a row."""
    for _ in range(_TRIES_MAX):
        first = FIRST + secrets.randbelow(LAST - FIRST - count)
        locks = _lock(range(first, first + count))
        if locks is not None:
            _held.extend(locks)
            return first
    raise OSError(f"no {count} free ports in a row between {FIRST} and {LAST}")


def _lock(ports: range) -> list[int] | None:
    locks: list[int] = []
    for port in ports:
        descriptor = os.open(
            _folder() / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        locks.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            break
        if not _is_free(port):
            break
    else:
        return locks
    for descriptor in locks:
        os.close(descriptor)
    return None


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"headway-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _is_free(port: int) -> bool:
    """For every address: a daemon may want another one than loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

"""The locks by which a task has one shim and one shipper (F28). Called by both when they start."""

from __future__ import annotations

import fcntl
import os
import time

WAIT_S = 1.0  # who only looks whether a lock is held takes it for a moment


def take_lock(path: str, wait_s: float = WAIT_S) -> int | None:
    """A descriptor that holds the lock as long as it is open; None when another process has it.
    Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                os.close(fd)
                return None
            time.sleep(0.02)

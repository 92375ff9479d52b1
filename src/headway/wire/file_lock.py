"""Whether a living process holds a lock file (flock). Asked by engines and agents; taken in
`agent/task_locks.py`.

And the names of what machines put into a task's folder that may not see each other's locks
(`agent/ship/takeover.py`).
"""

from __future__ import annotations

import fcntl
import os

# an agent in a shared folder sets its time from time to time, to show that it lives
SHOWN = "shipper.lock"
CLAIM, TAKEN = "claim.json", "taken.json"


def is_held(path: str | os.PathLike[str]) -> bool:
    """One that cannot be asked for counts as held: never two agents, never two carriers."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)

"""Whether a living process holds a lock file (flock). Asked by engines and agents; taken in `agent/lock.py`."""

import fcntl
import os


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

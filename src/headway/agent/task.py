"""`task.json` and `env.json` as the shim reads them.

The shim starts in front of every command, so it loads as little as possible: `spool.layout.TaskFile` has the same
fields, and takes longer to import than a short command takes to run.
"""

import json
import os
import stat

from headway.model.errors import DamagedError, VersionError
from headway.model.limits import ENV_BYTES_MAX, GRACE_S, MIB, PROCESSES_MAX
from headway.model.record import FORMAT_VERSION
from headway.spool.files import OS_FILES, Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BYTES_MAX = 8 * MIB
_DEFAULTS: "dict[str, Any]" = {
    "id": "", "node": "", "argv": [], "cwd": "/", "umask": 0o022, "rlimits": {}, "processes": 1, "first_rank": 0,
    "world_size": 1, "gpus": None, "output_dir": "", "grace_s": GRACE_S, "max_duration_s": None,
}  # fmt: skip


def read_task(task_dir: str, files: Files = OS_FILES) -> "dict[str, Any]":
    """Raises OSError, DamagedError, or VersionError when a newer Headway wrote it (P12)."""
    task = _read(os.path.join(task_dir, "task.json"), _BYTES_MAX, files)
    version = task.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise VersionError(f"task.json has version {version!r}, this Headway reads up to {FORMAT_VERSION}")
    task = {**_DEFAULTS, **task}
    if not isinstance(task["processes"], int) or not 1 <= task["processes"] <= PROCESSES_MAX:
        raise DamagedError(f"task.json asks for {task['processes']!r} processes")
    return task


def read_environment(task_dir: str, files: Files = OS_FILES) -> dict[str, str]:
    """Raises OSError or DamagedError."""
    env = _read(os.path.join(task_dir, "env.json"), 8 * ENV_BYTES_MAX, files)
    return {str(name): str(value) for name, value in env.items()}


def _read(path: str, bytes_max: int, files: Files) -> "dict[str, Any]":
    fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(files.fstat(fd).st_mode):
            raise DamagedError(f"{path} is not a plain file")
        parts = []
        while part := files.read(fd, 1 * MIB):
            parts.append(part)
            if len(parts) * MIB > bytes_max + MIB:
                raise DamagedError(f"{path} is too large")
        value = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise DamagedError(f"{path} cannot be read as JSON") from None
    finally:
        files.close(fd)
    if not isinstance(value, dict):
        raise DamagedError(f"{path} does not hold an object")
    return value

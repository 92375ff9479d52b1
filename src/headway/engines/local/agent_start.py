"""Starting agents on this machine, cut off from the server that starts them: they are meant to
outlive it.

Called by the engines whose tasks are folders of this machine.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from headway.engines.spool.task_folder import open_log

_KEPT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER", "XDG_RUNTIME_DIR")


def environment(home: Path, more: Sequence[str] = ()) -> dict[str, str]:
    """Nothing of the server's own but what a process needs to live, and `more`."""
    return {name: os.environ[name] for name in (*_KEPT, *more) if name in os.environ} | {
        "HEADWAY_HOME": str(home)
    }


def spawn(argv: Sequence[str], folder: Path, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """In a session of its own, with none of the server's descriptors. What kills it early is told
    in the task's log.
    """
    log = open_log(folder)
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd="/", env=env,
            start_new_session=True, close_fds=True,
        )  # fmt: skip
    finally:
        os.close(log)

"""Who speaks for a task whose agent, and whoever would take over for it, are on two machines (F33).

A network file system need not show one machine the locks of another, so a free lock proves nothing
there. An agent in a shared folder therefore shows from time to time that it lives. Whoever would
adopt a silent one puts a claim down and waits; an agent that lives takes it away. A claim that is
left becomes final by a rename. The file server does one of both, so exactly one of the two goes on:
nothing is told twice. Called by `main.py` and by the shipper's loop.
"""

from __future__ import annotations

import json
import os
import time

from headway.model.limits import CLAIM_LOOK_S, CLAIM_S
from headway.spool.files import OS_FILES, replace_file
from headway.wire.file_lock import CLAIM, SHOWN, TAKEN
from headway.wire.identity import boot_id, process_start

_STEP_S = 0.2


class Claim:
    """The side of a shipper. `shared`: others may see the folder from another machine."""

    def __init__(self, task_dir: str, shared: bool) -> None:
        self._task_dir, self._boot = task_dir, boot_id()
        self._next_s = 0.0 if shared else float("inf")

    def is_lost(self, now_s: float) -> bool:
        """Show that we live, and whether somebody on another machine speaks for the task now."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + CLAIM_LOOK_S
        # the folder, too: its names may be remembered for a minute
        for path in (self._path(SHOWN), self._task_dir):
            try:
                os.utime(path)
            except OSError:
                continue
        try:
            os.unlink(self._path(CLAIM))
        except OSError:
            pass  # there is none, nearly always
        return _boot_in(self._path(TAKEN)) not in (None, self._boot)

    def _path(self, name: str) -> str:
        return os.path.join(self._task_dir, name)


def was_taken(task_dir: str) -> bool:
    """Whether it was ever taken over from another machine: its processes may live there, and still
    write.
    """
    return os.path.lexists(os.path.join(task_dir, TAKEN))


def take(task_dir: str, wait_s: float = CLAIM_S) -> bool:
    """For whoever adopts a task. True at once where its agent was on this machine: here a free lock
    is proof. Raises OSError.
    """
    claim, taken = os.path.join(task_dir, CLAIM), os.path.join(task_dir, TAKEN)
    here = boot_id()
    if (_boot_in(taken) or _boot_in(os.path.join(task_dir, "shim.json"))) in (None, here):
        return True
    mine = {
        "pid": os.getpid(),
        "start": process_start(),
        "boot_id": here,
        "time_ns": time.time_ns(),
    }
    replace_file(OS_FILES, claim, json.dumps(mine).encode())
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        if not os.path.lexists(claim):
            return False
        time.sleep(min(_STEP_S, wait_s))
    try:
        os.rename(claim, taken)
    except FileNotFoundError:
        # an answer of the file server that was lost makes the system try once more
        return _load(taken) == mine
    return True


def _boot_in(path: str) -> str | None:
    found = _load(path)
    boot = None if found is None else found.get("boot_id")
    return boot if isinstance(boot, str) else None


def _load(path: str) -> "dict[str, object] | None":
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None

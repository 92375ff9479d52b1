"""An attached job gets its id and token: starts the server if there is none, registers, keeps the
answer in `job.json`.

Called by the shipper of a plain `python train.py`. It runs in a forked child, so that the loop goes
on syncing and the shipper's memory does not hold what is needed once.
"""

from __future__ import annotations

import json
import os

from headway.model.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S
from headway.spool.files import OS_FILES, Files, replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject
    from headway.spool.layout import TaskFile

JOB_JSON = "job.json"
REGISTER_S = 30.0


def load_job(task_dir: str, files: Files = OS_FILES) -> "JsonObject | None":
    """`{id, token, attempt, task, socket}`; None until the job is registered."""
    try:
        fd = files.open(f"{task_dir}/{JOB_JSON}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = json.loads(files.pread(fd, 1 << 16, 0))
        return found if isinstance(found, dict) and isinstance(found.get("token"), str) else None
    except (OSError, ValueError):
        return None
    finally:
        files.close(fd)


class Registrar:
    """Tries until it has worked; `step` tells whether it has."""

    def __init__(self, task_dir: str, task: "TaskFile") -> None:
        self._task_dir, self._task = task_dir, task
        self._child: int | None = None
        self._next_s = 0.0
        self._failures = 0

    def step(self, now_s: float, chance: float) -> "JsonObject | None":
        if self._child is not None:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid == 0:
                return None
            self._child = None
            if status != 0:
                self._pause(now_s, chance)
        job = load_job(self._task_dir)
        if job is None and now_s >= self._next_s and not self._start():
            self._pause(now_s, chance)
        return job

    def _pause(self, now_s: float, chance: float) -> None:
        pause_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**self._failures)
        self._failures = min(self._failures + 1, 20)
        self._next_s = now_s + pause_s * (0.5 + 0.5 * chance)

    def again(self) -> None:
        """The server does not know the job any more."""
        if self._child is None:
            self._start()

    def _start(self) -> bool:
        """False: there can be no more processes now."""
        try:
            self._child = os.fork()
        except OSError:
            return False
        if self._child == 0:
            status = 1
            try:
                os.closerange(3, 1 << 16)  # the streams and sockets are the shipper's
                register(self._task_dir, self._task)
                status = 0
            except BaseException as error:  # a forked child must end here; the loop tries again
                os.write(2, f"the job could not be registered: {error}\n".encode(errors="replace"))
            finally:
                os._exit(status)
        return True


def register(task_dir: str, task: "TaskFile") -> None:
    """Raises HeadwayError or OSError."""
    from pathlib import Path

    from headway.home.connect import ensure_server, request
    from headway.model.errors import UnreachableError

    attach = task.attach or {}
    body = {
        "uuid": task.uuid, "name": attach.get("name"), "experiment": attach.get("experiment"), "argv": task.argv,
        "cwd": task.cwd, "user": attach.get("user"), "host": task.node, "started_ns": attach.get("started_ns"),
        "world_size": task.world_size, "umask": task.umask, "tags": attach.get("tags") or [],
        "monitor": attach.get("monitor"), "parent": attach.get("parent"),
    }  # fmt: skip
    socket = ensure_server(Path(task.home))
    answer = request(socket, "POST", "/agent/register", json=body, timeout_s=REGISTER_S)
    if answer.status != 200:
        raise UnreachableError(
            f"the server answered {answer.status}: {answer.body[:300].decode(errors='replace')}"
        )
    job = {**answer.json(), "socket": str(socket)}
    replace_file(OS_FILES, f"{task_dir}/{JOB_JSON}", json.dumps(job).encode())

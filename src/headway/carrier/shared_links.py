"""Links to what is mounted, which the tasks and jobs of one working folder share. Called by
`main.py`.

All tasks of a job that have one working folder find a mounted folder under one path, and so do
other jobs that were submitted there. So whoever needs it puts down its name beside the others,
below `mounts/links/<path>`; what is mounted stays until the last of this node is gone, and the link
until the last of all. A name counts as long as its task is there: one whose carrier was killed
keeps the mount for its processes, one whose spool is gone keeps nothing.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from headway.carrier import folder_paths
from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping

_LOCK: Final = ".lock"
_STEP_S: Final = 0.1


class Link:
    """One task's part in the link at `path`."""

    def __init__(self, base: str, path: str, task_dir: str, job: str) -> None:
        self.path, self._task_dir, self._job = path, task_dir, job
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        self._users = os.path.join(base, "mounts", "links", folder_paths.digest(real))
        self._node = os.uname().nodename
        self._own = f"{os.path.basename(task_dir)}@{self._node}"

    @contextmanager
    def held(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """One at a time. What nobody uses is removed with its lock, so a lock counts only if it is
        still there.
        """
        while True:
            path = os.path.join(self._users, _LOCK)
            try:
                os.makedirs(self._users, mode=0o700, exist_ok=True)
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # removed just now
            try:
                if folder_paths.try_lock(fd) and _is_at(fd, path):
                    yield
                    return
            finally:
                os.close(fd)
            waiting()
            time.sleep(_STEP_S)

    def join(self, point: str, target: str) -> None:
        """UsageError where others have something else there."""
        for user in self._others():
            if user.get("target") != target:
                raise UsageError(
                    f"{self.path} leads to what {user.get('job') or 'another job'} has mounted there",
                    "wait for its end (--after), name the folder otherwise, or submit with --snapshot",
                )
        values = {
            "task_dir": self._task_dir,
            "job": self._job,
            "node": self._node,
            "point": point,
            "target": target,
        }
        folder_paths.write_json(os.path.join(self._users, self._own), values)

    def leave(self, point: str) -> bool:
        """Whether nobody on this node needs what is mounted at `point` any more."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._users, self._own))
        return not any(
            user.get("point") == point and user.get("node") == self._node for user in self._others()
        )

    @property
    def is_last(self) -> bool:
        return not self._others()

    def forget(self, point: str, target: str) -> None:
        """After the unmount: folders that are of no use any more, and the link, if this was the
        last one.
        """
        with suppress(OSError):  # where it is a place of others, too, their point is in it
            os.rmdir(os.path.dirname(point))
        if not self.is_last:
            return
        with suppress(OSError):
            if os.readlink(self.path) == target:
                os.unlink(self.path)
        with suppress(OSError):
            os.unlink(os.path.join(self._users, _LOCK))
            os.rmdir(self._users)
            os.rmdir(os.path.dirname(self._users))  # if it was the last one

    def _others(self) -> list[JsonMapping]:
        try:
            names = sorted(os.listdir(self._users))
        except FileNotFoundError:
            return []
        found: list[JsonMapping] = []
        for name in names:
            if name in (_LOCK, self._own) or name.endswith(".tmp"):
                continue
            user = folder_paths.read_json(os.path.join(self._users, name))
            # of any node: whoever sees `base` sees its spool
            if user and not _is_there(str(user.get("task_dir"))):
                with suppress(OSError):
                    os.unlink(os.path.join(self._users, name))
                continue
            found.append(user)
        return found


def _is_there(task_dir: str) -> bool:
    """Also where it cannot be looked at now."""
    try:
        os.stat(os.path.join(task_dir, "task.json"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False

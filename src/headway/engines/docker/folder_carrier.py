"""The folders of tasks in containers, whose agent cannot carry them: a carrier runs beside the
container, on this machine, and the container sees what it brings. Called by the container engine.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headway.carrier import folder_paths, mount
from headway.engines.spool import task_folder as folders
from headway.home.launch import carrier_argv
from headway.model import folder_names as names
from headway.model.errors import RefusedError
from headway.model.job import Folder
from headway.model.json_types import JsonObject
from headway.storage.location import parse
from headway.wire import file_lock

START_S = 5.0  # it has its lock by then, or never will
READ: Final = "ro"
FOLLOW: Final = "follow"  # what is mounted below it later is seen, too
_OF_A_MACHINE: Final = ("HOME", "PATH", "TMPDIR")


class Carriers:
    """Those that this server started. They go on without it, and the next server finds them by
    their locks.
    """

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started_s: dict[str, float] = {}
        self._lock = threading.Lock()  # tasks of one job are started by several threads

    def keep(self, folder: Path) -> None:
        """Start one for a task that needs one and has none. An agent that waits for it sees what it
        says.
        """
        with self._lock:
            self._reap()
            if needs_carrier(folder) and folder.name not in self._started_s:
                self._start(folder)

    def _reap(self) -> None:
        """Forget those that have ended; one that ended as soon as it was started is not started
        again at once.
        """
        now_s = time.monotonic()
        for name, child in list(self._children.items()):
            if child.poll() is not None and now_s - self._started_s[name] >= START_S:
                del self._children[name], self._started_s[name]

    def _start(self, folder: Path) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with os.fdopen(folders.open_log(folder), "ab") as log:
            self._children[folder.name] = subprocess.Popen(
                carrier_argv(folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd="/",
                env=env, start_new_session=True,
            )  # fmt: skip
        self._started_s[folder.name] = time.monotonic()

    def close(self) -> None:
        for child in self._children.values():
            child.returncode = child.returncode or 0  # it is meant to outlive us
        self._children.clear()


def needs_carrier(folder: Path) -> bool:
    task = folders.given(folder)
    if not task.get("folders") or not folders.is_task(folder):
        return False
    state = (folders.load_json(folder / names.STATE) or {}).get("state")
    over = state in (names.DONE, names.FAILED) or (
        state == names.READY and not task.get("folders_sent")
    )
    return not over and not file_lock.is_held(folder / names.LOCK)


def links(carried: JsonObject, name: str, root: str) -> list[tuple[str, str, str]]:
    """What a task's container has to see, since links in its working folder `root` will lead there:
    (path here, path there, way). The paths here are there from now on.
    """
    found = []
    if any(folder["mount"] for folder in carried["folders"]):
        found.append((_mounts(carried["base"], name), _seen_mounts(carried["base"], root), FOLLOW))
        open_way(found[0][0])
    for folder in carried["folders"]:
        source = parse(folder["source"]) if folder["source"] else None
        if source is None or folder["mode"] != "ro" or folder["mount"]:
            continue
        path = str(source)
        if not folder_paths.is_link_only(folder, source):
            account = carried["accounts"].get(folder["account"] or "", {})
            path = folder_paths.cache_folder(carried["base"], source, account)
            os.makedirs(path, mode=0o700, exist_ok=True)
        found.append((path, path, READ))
    return found


def given(carried: JsonObject, root: str, links: Sequence[tuple[str, str, str]]) -> JsonObject:
    """`folders.json` of a carrier outside: where the working folder is, and what its container
    sees. The variables of the job are for the container: there may be other programs, and another
    home.
    """
    env = {name: value for name, value in carried["env"].items() if name not in _OF_A_MACHINE}
    mounts = next((target for _, target, way in links if way == FOLLOW), None)
    return {**carried, "env": env, "root": root, "links": list(links), "mounts": mounts}


# -- mounts
# A mount tool mounts outside, below a folder of the task, while its container runs already: the
# container has that folder as a slave, so the mount appears there, and goes when it goes here. In
# each container this folder has a name by the working folder, so that a link there, which all tasks
# and jobs in it share, leads each to its own.


def _mounts(base: str, name: str) -> str:
    return os.path.join(base, "mounts", name)


def _seen_mounts(base: str, root: str) -> str:
    return os.path.join(base, "mounts", folder_paths.digest(os.path.realpath(root)))


def check_mounts(plan: Sequence[Folder], base: str, user: str) -> None:
    """RefusedError for what could not be seen in a container."""
    mounts = [folder for folder in plan if folder.mount]
    if not mounts:
        return
    name = mounts[0].name
    if os.getuid() != 0 and not mount.is_shared(base):
        raise RefusedError(
            f"the folder {name} cannot be mounted into a container: {base} is not on a shared mount",
            "once, as root: mount --make-rshared /; or leave `mount` out: the folder is then copied",
        )
    closed = [
        folder.name for folder in mounts if not any("allow" in option for option in folder.options)
    ]
    if closed and user != "submitter" and os.getuid() != 0:
        raise RefusedError(
            f"the folder {closed[0]} would be mounted for you alone, and the container has the user {user}",
            "give the mount tool `--allow-other` in `options`, or leave `user` of the cluster out",
        )


def open_way(folder: str) -> None:
    """What is mounted below shall reach containers. As root on a machine whose mounts are private,
    by a mount of its own, which the carrier takes away at the end.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not mount.is_shared(folder):
        mount.share(folder)


def release(base: str, name: str) -> None:
    """Nothing of a task stays mounted, whoever of those that should have seen to it was killed."""
    folder = _mounts(base, name)
    if not os.path.isdir(folder):
        return
    with contextlib.suppress(OSError):  # what a mount tool could not send is still there, and stays
        for point in sorted(os.listdir(folder)):
            if not point.endswith((folder_paths.CACHE, mount.TOOL)):
                mount.unmount(os.path.join(folder, point))
        mount.unmount(folder)

"""The folders of tasks in containers, whose agent cannot carry them: a carrier runs beside the container, on this
machine, and the container sees what it brings. Called by the container engine."""

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from headway.carrier import place
from headway.engines import folder as folders
from headway.model import folder as names
from headway.settings.launch import carrier_argv
from headway.storage.place import parse
from headway.wire import lock

START_S = 5.0  # it has its lock by then, or never will


class Carriers:
    """Those that this server started. They go on without it, and the next server finds them by their locks."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started_s: dict[str, float] = {}
        self._lock = threading.Lock()  # tasks of one job are started by several threads

    def keep(self, folder: Path) -> None:
        """Start one for a task that needs one and has none. An agent that waits for it sees what it says."""
        with self._lock:
            self._reap()
            if needs_carrier(folder) and folder.name not in self._started_s:
                self._start(folder)

    def _reap(self) -> None:
        """Forget those that have ended; one that ended as soon as it was started is not started again at once."""
        now_s = time.monotonic()
        for name, child in list(self._children.items()):
            if child.poll() is not None and now_s - self._started_s[name] >= START_S:
                del self._children[name], self._started_s[name]

    def _start(self, folder: Path) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with (folder / "agent").open("ab") as log:
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
    task = folders.load_json(folder / "task.json") or {}
    if not task.get("folders"):
        return False
    state = (folders.load_json(folder / names.STATE) or {}).get("state")
    over = state in (names.DONE, names.FAILED) or (state == names.READY and not task.get("folders_sent"))
    return not over and not lock.is_held(folder / names.LOCK)


def mounted(carried: dict[str, Any]) -> list[str]:
    """Folders of this machine that links in the working folder will lead to. They are there from now on."""
    found = []
    for folder in carried["folders"]:
        source = parse(folder["source"]) if folder["source"] else None
        if source is None or folder["mode"] != "ro":
            continue
        path = str(source)
        if not place.is_link_only(folder, source):
            account = carried["accounts"].get(folder["account"] or "", {})
            path = place.cache_folder(carried["base"], source, account)
            os.makedirs(path, mode=0o700, exist_ok=True)
        found.append(path)
    return found

"""The agent's side of a task's folders: starts a carrier, starts it again when it died, and hears
what it says.

Called by the shim, and by a shipper that has taken over. The carrier is a process of its own with
the packages that it needs (`headway/carrier`); both speak through files in the spool, so it does
not matter who of them dies.
"""

from __future__ import annotations

import json
import os
import stat

from headway.agent.shim.machine import FoldersSeen
from headway.home.launch import carrier_argv
from headway.model import folder_names as names
from headway.model.limits import FOLDER_STARTS_MAX
from headway.wire import file_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.model.json_types import JsonObject

LOOK_S = 0.1
SERVE_S = 5.0  # while the ranks run: does it still live?
START_S = 5.0  # it has its lock by then, or never will


_STATE_BYTES_MAX = 64 * 1024 * 1024


class Carrier:
    """`outside`: the engine starts it, on the other side of a container's wall."""

    def __init__(
        self, task_dir: str, outside: bool, sends: bool, say: "Callable[[str], None]"
    ) -> None:
        self._task_dir, self._outside, self._sends, self._say = task_dir, outside, sends, say
        self._awaits = ""  # "ready" | "end" | "": nothing
        self._starts, self._start_s, self._next_s = 0, 0.0, 0.0
        self.sessions: set[int] = set()  # of all that were started here

    def tell(self, do: str, now_s: float) -> None:
        if do == "stop":
            self._awaits = ""
            self._mark(names.STOP)
            return
        if do == "end":
            self._mark(names.END)
        self._awaits = "ready" if do == "start" else "end"
        self._starts, self._next_s = 0, now_s
        if not self._lives():
            self._start(now_s)

    def due_s(self) -> float | None:
        return self._next_s if self._awaits or self._serves() else None

    def _serves(self) -> bool:
        return self._sends and self._next_s > 0

    def look(self, now_s: float) -> FoldersSeen | None:
        """What is awaited, once it is there."""
        due_s = self.due_s()
        if due_s is None or now_s < due_s:
            return None
        self._next_s = now_s + (LOOK_S if self._awaits else SERVE_S)
        told = read_state(self._task_dir)
        seen = self._seen(told) if self._awaits else None
        if seen is not None:
            self._awaits = ""
            self._next_s = now_s + SERVE_S
            return seen
        if now_s < self._start_s + START_S or self._lives():
            return None
        if self._starts >= FOLDER_STARTS_MAX:
            return self._give_up()
        self._start(now_s)
        return None

    def _seen(self, told: "JsonObject") -> FoldersSeen | None:
        state, notes = told.get("state"), told.get("notes")
        wanted = (
            (names.READY, names.FAILED) if self._awaits == "ready" else (names.DONE, names.FAILED)
        )
        if state not in wanted:
            return None
        self._sends = self._sends and state == names.READY
        cause = told.get("cause")
        texts = tuple(str(text) for text in notes) if isinstance(notes, list) else ()
        return FoldersSeen(state != names.FAILED, cause if isinstance(cause, dict) else None, texts)

    def _give_up(self) -> FoldersSeen | None:
        awaited, self._awaits = self._awaits, ""
        self._sends = self._sends and not awaited
        self._next_s += 3600.0
        if not awaited:
            return None  # the end tries again
        text = f"what carries its folders ended {self._starts} times; its words: hw logs --stream agent"
        return FoldersSeen(
            False, {"cause": "agent_not_started", "class": "system", "text": text}, (text,)
        )

    def _lives(self) -> bool:
        return file_lock.is_held(os.path.join(self._task_dir, names.LOCK))

    def _start(self, now_s: float) -> None:
        self._start_s = now_s
        self._starts += 1
        if self._outside:
            return
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        log = os.path.join(self._task_dir, "agent")
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, append, 0o600),
        ]
        argv = carrier_argv(self._task_dir)
        try:
            self.sessions.add(os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True))
        except OSError as error:
            self._say(f"what carries the folders cannot be started: {error.strerror}")

    def _mark(self, name: str) -> None:
        try:
            os.close(
                os.open(
                    os.path.join(self._task_dir, name),
                    os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
                    0o600,
                )
            )
        except OSError as error:
            self._say(f"{name} cannot be written: {error.strerror}")


def read_state(task_dir: str) -> "JsonObject":
    """What the carrier says; empty when it has said nothing."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(os.path.join(task_dir, names.STATE), flags)
        with os.fdopen(fd, encoding="utf-8") as file:
            found = json.loads(file.read(_STATE_BYTES_MAX)) if _is_plain(fd) else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_plain(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)


def variables(task_dir: str) -> dict[str, str]:
    """Where the folders are, for the program."""
    paths = read_state(task_dir).get("paths")
    return (
        {names.variable(name): str(path) for name, path in paths.items()}
        if isinstance(paths, dict)
        else {}
    )

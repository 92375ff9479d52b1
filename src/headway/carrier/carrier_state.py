"""What a carrier is doing, in `folders.state`, which shim and shipper read. Written by `main.py`
and its parts.
"""

import contextlib
import errno
import json
import os
import threading
import time
from typing import Final

from headway.carrier.folder_paths import read_json
from headway.model import folder_names as names
from headway.model.errors import HeadwayError
from headway.model.json_types import JsonObject
from headway.storage.open_store import CredentialsError

_STEP_S: Final = 0.2  # between two told positions
_TASK_JSON: Final = "task.json"


class Stopped(Exception):
    """Nothing is to be fetched any more: the job was stopped, or its spool is gone."""


class State:
    """Replaced as a whole with each save, so a reader never sees half of it."""

    def __init__(self, task_dir: str) -> None:
        self._path = os.path.join(task_dir, names.STATE)
        self._task_dir = task_dir
        self._lock = threading.Lock()
        self._saved_s = 0.0
        old = read_json(self._path)
        # a carrier before us had come so far
        self.is_ready = old.get("state") in (names.READY, names.FINISHING)
        self.values: JsonObject = {
            "state": names.FETCHING, "pid": os.getpid(), "paths": old.get("paths") or {}, "folders": {}, "cause": None,
            "notes": old.get("notes") or [],
        }  # fmt: skip

    def tell(self, state: str, cause: dict[str, str] | None = None) -> None:
        self.values["state"], self.values["cause"] = state, cause
        self.save()

    def note(self, text: str) -> None:
        """For a person, with the job."""
        if text not in self.values["notes"]:
            self.values["notes"].append(text)
        self.save()

    def save(self) -> None:
        with self._lock:
            draft = f"{self._path}.tmp"
            # the folder may be one that a container writes into: nothing is written through a link
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump(self.values, file)
            os.replace(draft, self._path)
            self._saved_s = time.monotonic()

    def save_soon(self) -> None:
        if time.monotonic() - self._saved_s >= _STEP_S:
            self.save()

    def check_stop(self) -> None:
        """A spool without its task is one that the agent has left."""
        stop = os.path.exists(os.path.join(self._task_dir, names.STOP))
        if stop or not os.path.exists(os.path.join(self._task_dir, _TASK_JSON)):
            raise Stopped

    @property
    def is_over(self) -> bool:
        """The processes have ended, or nobody is there any more."""
        ended = os.path.exists(os.path.join(self._task_dir, names.END))
        return ended or not os.path.exists(os.path.join(self._task_dir, _TASK_JSON))


class Meter:
    """How far one folder is. `add` is called from several threads."""

    def __init__(
        self, state: State, name: str, verb: str, total: int, *, stops: bool = False
    ) -> None:
        self._state, self._stops, self._lock = state, stops, threading.Lock()
        self._told: JsonObject = {
            "verb": verb,
            "done": 0,
            "total": total,
            "state": "running",
            "started_ns": time.time_ns(),
        }
        state.values["folders"][name] = self._told
        state.save()

    def add(self, files: int, size: int) -> None:
        with self._lock:
            self._told["done"] += size
        if self._stops:
            self._state.check_stop()
        self._state.save_soon()

    def close(self, state: str = "completed") -> None:
        self._told["state"] = state
        self._state.save()


def cause_of(error: HeadwayError | OSError, what: str) -> dict[str, str]:
    """In the words of the retry table: what may pass by itself, and what would fail the same way
    again.
    """
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        text = f"{what}: {error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        return {
            "cause": "disk_full" if full else "storage_io",
            "class": "resource" if full else "transient",
            "text": text,
        }
    known = {"not_found": ("missing_file", "user"), "usage": ("config_error", "user")}
    cause, kind = known.get(error.code, ("storage_io", "transient"))
    if isinstance(error, CredentialsError):
        cause, kind = "permission_or_credentials", "user"
    hint = f" ({error.hint})" if error.hint else ""
    return {"cause": cause, "class": kind, "text": f"{what}: {error.message}{hint}"}

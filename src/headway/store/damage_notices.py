"""What was damaged and what became of it, told with every answer until a person has seen it.

A file of its own and not a table: the database is what was damaged. Written by the store, shown by
every command (`x-headway-notice`), ended by `hw doctor --acknowledge`.
"""

import json
import logging
import os
import threading
import time
from pathlib import Path

from headway.model.json_types import JsonObject
from headway.model.limits import DAMAGE_NOTICES_MAX
from headway.store.jsonform import iso

log = logging.getLogger("headway.store")


class DamageNotices:
    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._found = _load(path)

    def add(self, text: str, **more: object) -> None:
        """Kept in memory where it cannot be written: a full disk must not make it silent."""
        log.critical("%s", text)
        with self._lock:
            if any(notice["text"] == text for notice in self._found):
                return
            self._found.append({"time": iso(time.time_ns()), "text": text, **more})
            del self._found[:-DAMAGE_NOTICES_MAX]
            self._save()

    def all(self) -> list[JsonObject]:
        with self._lock:
            return list(self._found)

    def acknowledge(self) -> int:
        """Tell them no more; how many there were."""
        with self._lock:
            count = len(self._found)
            self._found.clear()
            self._save()
        return count

    @property
    def words(self) -> str:
        """The newest in one line; empty where there is none."""
        with self._lock:
            if not self._found:
                return ""
            more = f" (and {len(self._found) - 1} more)" if len(self._found) > 1 else ""
            return f"{self._found[-1]['text']}{more}"

    def _save(self) -> None:
        try:
            if not self._found:
                self._path.unlink(missing_ok=True)
                return
            draft = self._path.with_name(f".{self._path.name}.new")
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                json.dump(self._found, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._path)
        except OSError as error:
            log.error("%s could not be written: %s", self._path, error)


def _load(path: Path) -> list[JsonObject]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return [{"time": None, "text": f"{path} could not be read: what it told is lost"}]
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("text"), str)]

"""Attempts of several tasks on engines whose tasks are spool folders of this machine. Called by
them.

The id of an attempt with one task is that task's folder, `<uuid>-<attempt>-<task>`; of one with
several it is the attempt's key, `<uuid>-<attempt>`. Which folders belong to a key is known from
their start, or found in the spool.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from headway.engines import folder as folders
from headway.engines.folder import ID, KEY
from headway.engines.protocol import EngineId

__all__ = ["ID", "KEY", "Groups"]


class Groups:
    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._known: dict[str, list[str]] = {}

    def keep(self, key: str, names: Sequence[str]) -> None:
        self._known[key] = list(names)

    def forget(self, key: str) -> None:
        self._known.pop(key, None)

    def members(self, key: str) -> list[str]:
        """The folders of an attempt: as this server made them, or as they are found."""
        if key not in self._known:
            try:
                found = sorted(
                    n for n in os.listdir(self._spool) if n.startswith(f"{key}-") and ID.match(n)
                )
            except FileNotFoundError:
                return []
            if len(found) < 2 and not (found and self.is_group(found[0])):
                return found
            self._known[key] = found
        return self._known[key]

    def names(self, engine_id: str) -> list[str]:
        """The tasks that an id stands for."""
        return self.members(engine_id) if KEY.match(engine_id) else [engine_id]

    def find(self, key: str) -> EngineId | None:
        """The id of an attempt of which a folder is there."""
        names = self.members(key)
        if not any(folders.is_task(self._spool / name) for name in names):
            return None
        return EngineId(key if len(names) > 1 or self.is_group(names[0]) else names[0])

    def is_group(self, name: str) -> bool:
        """Whether a task has others beside it."""
        task = folders.load_json(self._spool / name / "task.json")
        return task is not None and isinstance(task.get("tasks"), int) and task["tasks"] > 1

"""Attempts of several tasks on engines whose tasks are spool folders of this machine. Called by
them.

The id of an attempt with one task is that task's folder, `<uuid>-<attempt>-<task>`; of one with
several it is the attempt's key, `<uuid>-<attempt>`. Which folders belong to a key is known from
their start, or found in the spool.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.engines.protocol import EngineId, Observation, ObservedState
from headway.engines.spool import task_folder as folders
from headway.engines.spool.task_folder import ID, KEY

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


# The first of these that a task has is the attempt's: as long as something of it runs, it runs.
_ORDER: tuple[ObservedState, ...] = ("running", "starting", "unknown", "gone", "ended")


def join(seen: Mapping[str, Observation]) -> Observation:
    """By task name; there is at least one. A task without a spool has ended, and all of it was
    sent.
    """
    if len(seen) == 1:
        return next(iter(seen.values()))
    state = min((_state(one) for one in seen.values()), key=_ORDER.index)
    never = [name for name, one in seen.items() if one.detail.get("started") is False]
    detail: dict[str, object] = {}
    if len(never) == len(seen):
        return Observation("gone", _words(seen), {"started": False})
    if never:
        detail["unstarted"] = never
    if any(one.detail.get("salvage") for one in seen.values()):
        detail["salvage"] = True
        if any("silence_s" in one.detail for one in seen.values()):
            detail["silence_s"] = max(one.detail.get("silence_s", 0.0) for one in seen.values())
    told = [(name, one.detail["end"]) for name, one in seen.items() if one.detail.get("end")]
    if told:
        detail["end"] = {**told[0][1], "text": f"{told[0][0]}: {told[0][1]['text']}"}
    if all(_is_sent(one) for one in seen.values()):
        detail["drained"] = True
    return Observation(state, _words(seen), {"started": True, **detail})


def _state(one: Observation) -> ObservedState:
    return "ended" if _is_sent(one) else one.state


def _is_sent(one: Observation) -> bool:
    no_spool = (
        one.state == "gone" and one.detail.get("started") is None and not one.detail.get("salvage")
    )
    return bool(one.detail.get("drained")) or no_spool


def _words(seen: Mapping[str, Observation]) -> str:
    """`3 shim alive, 1 ended`: the engine's own words, counted."""
    counts = Counter(one.state_word for one in seen.values())
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {word}" for word, count in counts.most_common(3))

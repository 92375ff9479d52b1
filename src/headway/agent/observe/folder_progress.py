"""How far a task's folders are, as `progress` facts of the source `folder`. Asked by
`progress_facts.py` at each look.
"""

from __future__ import annotations

import os

from headway.agent.observe.rate import Pace, eta_s, rate_of
from headway.agent.shim.folders import read_state
from headway.model import folder_names as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

    Fact = JsonObject

INTERVAL_S = 0.5  # between two facts of all folders


class CarriedWatch:
    def __init__(self, task_dir: str) -> None:
        self._task_dir, self._path = task_dir, os.path.join(task_dir, names.STATE)
        self._read_ns, self._next_s = 0, 0.0
        self._paces: dict[tuple[str, str, int], Pace] = {}
        self._told: dict[int, Fact] = {}

    def facts(self, now_s: float, last: bool) -> "list[Fact]":
        """What has changed. `last`: the task is over, and what was left running is closed."""
        try:
            changed_ns = os.stat(self._path).st_mtime_ns
        except OSError:
            return []
        if not last and (changed_ns == self._read_ns or now_s < self._next_s):
            return []
        self._read_ns, self._next_s = changed_ns, now_s + INTERVAL_S
        folders = read_state(self._task_dir).get("folders")
        found = []
        for number, (name, one) in enumerate(folders.items() if isinstance(folders, dict) else ()):
            fact = self._fact(number, str(name), one, last)
            if self._told.get(fact["tracker"]) != fact:
                self._told[fact["tracker"]] = fact
                found.append(fact)
        return found

    def _fact(self, number: int, name: str, one: "Fact", last: bool) -> "Fact":
        verb, done, total, began = (
            str(one["verb"]),
            int(one["done"]),
            int(one["total"]),
            int(one["started_ns"]),
        )
        pace = self._paces.setdefault((name, verb, began), Pace())
        pace.add(self._read_ns / 1e9, done)
        state = "closed" if last and one["state"] == "running" else str(one["state"])
        rate = rate_of(pace.samples, self._read_ns / 1e9) if state == "running" else None
        return {
            "rank": None, "pid": 0, "tracker": 2 * number + (verb == "sending"), "msg": [f"{verb} folder {name}"],
            "completed": done, "total": total, "state": state, "distributed": False, "source": "folder", "rate": rate,
            "eta_s": eta_s(done, total, rate) if state == "running" else None, "started_ns": began,
        }  # fmt: skip

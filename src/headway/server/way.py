"""How agents reach this server: over its socket, over the network, or through a folder. Called by
`api/`, for views.

In memory only: whoever asks after a restart is told as soon as the agents have spoken again.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from headway.model.limits import TRAY_KNOWN_MAX
from headway.wire.batch import TaskKey

SOCKET, NETWORK, FOLDER = "socket", "network", "folder"
_TROUBLE_CHARS_MAX = 400


@dataclass(slots=True)
class Used:
    way: str
    trouble: str
    time_s: float


class Ways:
    """Used in the event loop only."""

    def __init__(self) -> None:
        self._used: OrderedDict[TaskKey, Used] = OrderedDict()

    def note(self, task: TaskKey, way: str, trouble: str | None = None) -> None:
        """An agent came this way. `trouble`: why not a better one, in its words; None: it did not
        say.
        """
        if not way:
            return
        known = self._used.pop(task, None)
        told = (
            trouble[:_TROUBLE_CHARS_MAX] if trouble is not None else known.trouble if known else ""
        )
        self._used[task] = Used(way, told, time.monotonic())
        if len(self._used) > TRAY_KNOWN_MAX:
            self._used.popitem(last=False)

    def of(self, task: TaskKey) -> dict[str, Any]:
        """For the job object: `way` null when its agent has not spoken to this server."""
        used = self._used.get(task)
        return {
            "way": used.way if used else None,
            "way_trouble": (used.trouble or None) if used else None,
        }

    def count(self) -> dict[str, int]:
        """Tasks by the way that they came last."""
        ways = [used.way for used in self._used.values()]
        return {way: ways.count(way) for way in (SOCKET, NETWORK, FOLDER) if way in ways}

    def troubles(self) -> list[str]:
        return sorted({used.trouble for used in self._used.values() if used.trouble})

"""When to try again what has failed: at once, then after growing waits. Called by client/run.py and
metric.py.
"""

from __future__ import annotations

import time

from headway.model.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S


class Backoff:
    __slots__ = ("_until_s", "_wait_s")

    def __init__(self) -> None:
        self._until_s = self._wait_s = 0.0

    def is_over(self) -> bool:
        return time.monotonic() >= self._until_s

    def failed(self) -> None:
        self._until_s = time.monotonic() + self._wait_s
        self._wait_s = min(BACKOFF_MAX_S, max(BACKOFF_FIRST_S, self._wait_s * 2))

    def succeeded(self) -> None:
        self._until_s = self._wait_s = 0.0

"""Wall-clock times that never go back: the wall clock is read once, then a clock that cannot step
is added (F26).
"""

from __future__ import annotations

import time


class Clock:
    def __init__(self, wall_ns: int | None = None, steady_ns: int | None = None) -> None:
        self._wall_ns = time.time_ns() if wall_ns is None else wall_ns
        self._steady_ns = time.monotonic_ns() if steady_ns is None else steady_ns

    def wall_ns(self) -> int:
        return self._wall_ns + time.monotonic_ns() - self._steady_ns

    def steady_s(self) -> float:
        return time.monotonic()

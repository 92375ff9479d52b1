"""How long the event loop stood still: measured all the time, told by `hw server status` and
`hw doctor`, logged where it was long.

Whatever holds the loop or the GIL (a handler that computes, a C function that does not let go)
keeps every view and every agent waiting. So it is seen here, whoever caused it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from headway.model.json_types import JsonObject
from headway.model.limits import (
    CLOCK_STEP_S,
    CLOCK_STEPS_KEPT,
    LOOP_LAG_TOLD_S,
    LOOP_LAG_WINDOW_S,
)
from headway.store import jsonform

log = logging.getLogger("headway.server")
TICK_BUSY_S = 0.1
TICK_IDLE_S = 1.0


class ClockStep:
    """Notices that the machine's clock was set: times of jobs that run then may look odd (F26)."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns, self._steady_ns = wall_ns, steady_ns
        self._ahead_ns = wall_ns() - steady_ns()
        self.steps: deque[JsonObject] = deque(maxlen=CLOCK_STEPS_KEPT)

    def look(self) -> None:
        ahead_ns = self._wall_ns() - self._steady_ns()
        step_s = (ahead_ns - self._ahead_ns) / 1e9
        self._ahead_ns = ahead_ns
        if abs(step_s) < CLOCK_STEP_S:
            return
        self.steps.append({"at": jsonform.iso(self._wall_ns()), "step_s": round(step_s, 3)})
        log.warning("the clock of this machine was set by %+.1f s", step_s)


class LoopLag:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, float]] = deque(maxlen=1024)  # (when, lag), above 10 ms
        self.worst_s = 0.0
        self.worst_ns: int | None = None  # wall clock
        self.clock = ClockStep()

    async def watch(self, requests: Callable[[], int]) -> None:
        """Tick often while there are requests, and once a second when nobody asks anything."""
        seen = -1
        while True:
            count = requests()
            tick_s = TICK_BUSY_S if count != seen else TICK_IDLE_S
            seen, before = count, self._clock()
            await asyncio.sleep(tick_s)
            self.note(self._clock() - before - tick_s)
            self.clock.look()

    def note(self, lag_s: float) -> None:
        now = self._clock()
        if lag_s > 0.01:
            self._recent.append((now, lag_s))
        if lag_s > self.worst_s:
            self.worst_s, self.worst_ns = lag_s, time.time_ns()
        if lag_s >= LOOP_LAG_TOLD_S:
            log.warning("the event loop stood still for %.1f s: every answer was late", lag_s)

    def about(self) -> JsonObject:
        """For `GET /api/server`: the worst of the last minute and since the start, in seconds."""
        since = self._clock() - LOOP_LAG_WINDOW_S
        recent = max((lag for when, lag in self._recent if when >= since), default=0.0)
        return {
            "recent_s": round(recent, 3),
            "worst_s": round(self.worst_s, 3),
            "worst_at": jsonform.iso(self.worst_ns),
        }

"""Time that a test moves by hand: one clock that never steps, one that does, and an agenda of what
happens when.
"""

import heapq
from collections.abc import Callable

START_NS = 1_750_000_000 * 10**9


class Clock:
    """`monotonic()` only goes on; `time_ns()` also jumps, forwards and back, when `step` says so
    (F26).
    """

    def __init__(self, start_ns: int = START_NS) -> None:
        self.now_s = 0.0
        self._base_ns = start_ns

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return self._base_ns + int(self.now_s * 1e9)

    def step(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._base_ns += int(seconds * 1e9)


class Agenda:
    """Calls at their times, in one thread. What is due at the same time comes in the order in which
    it was put.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._entries, (self.clock.now_s + max(delay_s, 0.0), self._count, call))

    def step(self) -> bool:
        """Go to the next entry and do it; False when there is none."""
        if not self._entries:
            return False
        when_s, _, call = heapq.heappop(self._entries)
        self.clock.now_s = max(self.clock.now_s, when_s)
        call()
        return True

    def ticker(self) -> "Ticker":
        return Ticker(self)

    def run_until(self, end_s: float) -> None:
        while self._entries and self._entries[0][0] <= end_s:
            self.step()
        self.clock.now_s = max(self.clock.now_s, end_s)


class Ticker:
    """At most one pending call, at the earliest time that was asked for."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._when_s: float | None = None

    def at(self, when_s: float | None, call: Callable[[], None]) -> None:
        if when_s is None or (self._when_s is not None and self._when_s <= when_s):
            return
        self._when_s = when_s

        def tick() -> None:
            if self._when_s == when_s:
                self._when_s = None
                call()

        self._agenda.after(when_s - self._agenda.clock.now_s, tick)

"""Named timings: `timed("data")` around what is to be measured. Called by training, often.

A use appends one number to a queue; every so often the queue is folded into count, mean, deviation,
least and most (Welford's way, which loses no digits). That is told at the first use, then ever less
often down to once a second, and at the end: whoever looks at a young job sees what it has measured.
"""

from __future__ import annotations

import os
from collections import deque
from functools import wraps
from math import sqrt
from time import perf_counter

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text
from headway.model.limits import METRIC_NAME_BYTES_MAX, TIMING_INTERVAL_S, TIMING_NAMES_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from headway.client.run import Run
    from headway.model.json_types import JsonObject

    F = TypeVar("F", bound=Callable[..., Any])

FOLD_AT = 512  # uses that wait
# after the first use; each pause is twice the last one, up to TIMING_INTERVAL_S
PAUSE_FIRST_S = 0.05
FOLD_MAX = 4096  # folded at once: another thread may be adding as fast as we take
_COROUTINE = 0x80  # inspect.CO_COROUTINE, without inspect
_timings: "list[Timings]" = []
_stats: "dict[str, Stat]" = {}  # of this process's run


class Stat:
    """One name in this process."""

    def __init__(self, name: str, waiting_max: int | None = None) -> None:
        self.name = name
        self.waiting: deque[float] = deque(maxlen=waiting_max)
        self.reset()
        self.next_s = float("inf") if waiting_max == 0 else 0.0

    def reset(self) -> None:
        self.waiting.clear()
        self.count, self.told = 0, 0
        self.next_s, self.pause_s = 0.0, PAUSE_FIRST_S
        self.mean = self.squares = self.most = 0.0
        self.least = float("inf")
        self.folding = False

    def fold(self) -> None:
        """Take in what waits. One thread at a time; a second one leaves it to the first."""
        if self.folding:
            return
        self.folding = True
        try:
            for _ in range(min(len(self.waiting), FOLD_MAX)):
                seconds = self.waiting.popleft()
                self.count += 1
                off = seconds - self.mean
                self.mean += off / self.count
                self.squares += off * (seconds - self.mean)
                self.least, self.most = min(self.least, seconds), max(self.most, seconds)
        finally:
            self.folding = False

    def fields(self) -> "JsonObject":
        deviation = sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0
        return {
            "name": self.name, "count": self.count, "mean_s": self.mean, "std_s": deviation, "min_s": self.least,
            "max_s": self.most,
        }  # fmt: skip


OFF = Stat("", 0)  # takes everything and keeps nothing


class Timings:
    """All names of this process. Nothing here raises."""

    def __init__(self, run: "Run", stats: "dict[str, Stat]") -> None:
        self.run, self.stats, self._pid = run, stats, os.getpid()
        run.parts.append(self)

    def stat(self, name: object) -> Stat:
        if self.run.is_off:
            return OFF
        try:
            word = name if isinstance(name, str) else str(name)
            found = self.stats.get(word)
            if found is None:
                if len(self.stats) >= TIMING_NAMES_MAX:
                    self.run.note(
                        "timings", f"a process has at most {TIMING_NAMES_MAX} names of timings"
                    )
                    return OFF
                found = self.stats.setdefault(word, Stat(clean_text(word)[:METRIC_NAME_BYTES_MAX]))
                self._start()
            return found
        except Exception as error:  # P1: a name of somebody else's making
            raise_if_signal(error)
            return OFF

    def _start(self) -> None:
        """So that the end of the process is told, even if nothing else is."""
        try:
            self.run.start()
        except OSError as error:
            raise_if_signal(error)

    def turn(self, stat: Stat, now_s: float) -> None:
        """A use found the queue long, or that it is time to tell."""
        try:
            stat.fold()
            if now_s > stat.next_s:
                stat.next_s, stat.pause_s = (
                    now_s + stat.pause_s,
                    min(2 * stat.pause_s, TIMING_INTERVAL_S),
                )
                self._say(stat)
        except Exception as error:  # P1: an error of ours must not reach training
            raise_if_signal(error)

    def _say(self, stat: Stat) -> None:
        if stat.count > stat.told:
            stat.told = stat.count
            rank = self.run.place.rank if self.run.place is not None else 0
            self.run.fact("timing", **stat.fields(), rank=rank, pid=os.getpid())

    def tell(self) -> None:
        for stat in list(self.stats.values()):
            while stat.waiting and not stat.folding:
                stat.fold()
            self._say(stat)

    def close(self) -> None:
        """A forked child counts its own. Its first use is told at once: that starts its run, whose
        end is told.
        """
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for stat in self.stats.values():
                stat.reset()


def current_timings() -> Timings:
    if not _timings:
        from headway.client.api import current_run

        _timings.append(Timings(current_run(), _stats))
    return _timings[0]


class timed:
    """Measure how long something takes, by name: `with hw.timed("data"): …`, or `@hw.timed("step")`
    over a function.

    Count, mean, deviation, least and most are kept per name and process, and told at the first use,
    from then on up to once a second, and at the end. A use costs less than a microsecond, never
    raises and never waits.
    """

    _outer: "list[float] | None" = None  # where one object is entered again inside itself
    _start_s = 0.0

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            self._stat = _stats[name]
        except Exception as error:  # a new name, or none that can be looked up (P1)
            raise_if_signal(error)
            self._stat = current_timings().stat(name)

    def __enter__(self) -> "timed":
        if self._start_s:
            self._outer = [*(self._outer or ()), self._start_s]
        self._start_s = perf_counter()
        return self

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        now_s, stat = perf_counter(), self._stat
        stat.waiting.append(now_s - self._start_s)
        self._start_s = 0.0 if not self._outer else self._outer.pop()
        if now_s > stat.next_s or len(stat.waiting) > FOLD_AT:
            _timings[0].turn(stat, now_s)

    def __call__(self, function: "F") -> "F":
        name = self._name
        code = getattr(function, "__code__", None)
        if code is not None and code.co_flags & _COROUTINE:

            @wraps(function)
            async def measured_later(*args: object, **options: object) -> "Any":
                with timed(name):
                    return await function(*args, **options)

            return measured_later  # type: ignore[return-value]

        @wraps(function)
        def measured(*args: object, **options: object) -> "Any":
            with timed(name):
                return function(*args, **options)

        return measured  # type: ignore[return-value]

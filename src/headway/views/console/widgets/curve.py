"""A value over time in a few characters: `▁▂▃▅▇`. Pure; called by the metrics and usage widgets.

A curve keeps the whole time that it has seen in a fixed number of places: when they are full,
neighbours are joined and each place covers twice the time. So an hour and a month take the same
memory and the same width.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

PLACES: Final = 128
_FIRST_PLACE_S: Final = 0.25
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def real(value: object) -> float | None:
    """A number of the contract, where NaN and infinities are strings; None for what is no number."""
    if isinstance(value, str):
        return _SPECIAL.get(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class Curve:
    __slots__ = ("_counts", "_place_s", "_start_s", "_sums", "last_s")

    def __init__(self) -> None:
        self._start_s: float | None = None
        self.last_s = -math.inf  # the newest moment that a value was of
        self._place_s = _FIRST_PLACE_S
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, time_s: float, value: float) -> None:
        """Values that are not finite leave no trace here; the number beside the curve shows them."""
        if not math.isfinite(value):
            return
        self.last_s = max(self.last_s, time_s)
        if self._start_s is None:
            self._start_s = time_s
        place = max(int((time_s - self._start_s) / self._place_s), len(self._sums) - 1, 0)
        while place >= PLACES:
            self._halve()
            place = max(int((time_s - self._start_s) / self._place_s), len(self._sums) - 1, 0)
        while len(self._sums) <= place:
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[place] += value
        self._counts[place] += 1

    def _halve(self) -> None:
        self._place_s *= 2
        self._sums = [sum(self._sums[i : i + 2]) for i in range(0, len(self._sums), 2)]
        self._counts = [sum(self._counts[i : i + 2]) for i in range(0, len(self._counts), 2)]

    def values(self) -> list[float]:
        """Means in order of time; places without a value repeat the one before."""
        found: list[float] = []
        for total, count in zip(self._sums, self._counts, strict=True):
            found.append(total / count if count else found[-1])
        return found


def blocks(
    values: Sequence[float], columns: int, low: float | None = None, high: float | None = None
) -> str:
    """`columns` characters at most; between the smallest and the largest value, or `low` and `high`
    where given.
    """
    if len(values) < 2 or columns < 2:
        return ""
    if len(values) > columns:
        bounds = [round(i * len(values) / columns) for i in range(columns + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    if low is None:
        low = min(values)
    if high is None:
        high = max(values)
    else:
        high = max(high, *values)
    if not high > low:
        return ""  # a value that never changes needs no curve

    top = len(_BLOCKS) - 1
    scale = top / (high - low)
    characters = []
    for value in values:
        level = round((value - low) * scale)
        characters.append(_BLOCKS[min(max(level, 0), top)])
    return "".join(characters)

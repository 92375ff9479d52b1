"""Scales and ticks: from values to places, with round numbers where there is room. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.views.text import format as fmt

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` … `high` to 0 … 1."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            return (math.log10(value) - math.log10(self.low)) / (
                math.log10(self.high) - math.log10(self.low)
            )
        return (value - self.low) / (self.high - self.low)


def scale(values: Sequence[float], *, log: bool, pad: float = 0.0) -> Scale:
    """Around all values; a single one gets some room."""
    low, high = min(values), max(values)
    if log:
        if high <= low:
            low, high = low / 2, high * 2
        room = (math.log10(high) - math.log10(low)) * pad
        return Scale(10 ** (math.log10(low) - room), 10 ** (math.log10(high) + room), True)
    if high <= low:
        room = abs(high) * 0.1 or 1.0
        return Scale(low - room, high + room)
    room = (high - low) * pad
    if not math.isfinite(high - low):  # the ends of what a double can hold
        return Scale(low / 2, high / 2)
    return Scale(low - room, high + room)


def ticks(
    axis: Scale, count: int, step: Callable[[float, int], float] | None = None
) -> list[float]:
    """About `count` round values inside."""
    if axis.log:
        return _log_ticks(axis, count)
    size = (step or _round_step)(axis.high - axis.low, max(1, count))
    first = math.ceil(axis.low / size - 1e-9)
    last = math.floor(axis.high / size + 1e-9)
    return [number * size for number in range(first, min(last, first + 100) + 1)]


def _round_step(span: float, count: int) -> float:
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * 0.999)


def clock_step(span: float, count: int) -> float:
    rough = span / count
    return next((float(step) for step in _CLOCK if step >= rough), _round_step(span, count))


def _log_ticks(axis: Scale, count: int) -> list[float]:
    first, last = math.ceil(math.log10(axis.low) - 1e-9), math.floor(math.log10(axis.high) + 1e-9)
    powers = list(range(first, last + 1))
    if len(powers) >= 2:
        every = max(1, math.ceil(len(powers) / max(1, count)))
        return [10.0**power for power in powers[::every]]
    return [
        digit * 10.0**power
        for power in range(first - 1, last + 2)
        for digit in (1, 2, 5)
        if axis.low <= digit * 10.0**power <= axis.high
    ]


def label(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 1e-4):
        return f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return fmt.number(round(value, 10))


def clock_label(value: float) -> str:
    return fmt.clock(value)

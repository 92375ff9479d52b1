"""How fast a tracker moves, and when it will be done: an estimate that pauses and bursts do not
spoil. For progress_facts.py.

The rate is the median of the slopes between recent positions and those a few before (as Theil and
Sen do it): a checkpoint that takes a minute, or a first batch that compiles, moves a mean a lot and
this hardly at all.
"""

from __future__ import annotations

SAMPLES_MAX = 24
APART_MAX = 3  # positions between the two of a slope; farther ones would nearly all span a pause
SPACING_S = 2.5  # a fast tracker is judged by its last minute, a slow one by its last 24 steps
STALLED_GAPS = 3.0  # without a step for so many times the usual gap, waiting counts too


class Pace:
    """Recent positions of one tracker."""

    __slots__ = ("samples",)

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []  # (time in s, position)

    def add(self, time_s: float, completed: float) -> None:
        samples = self.samples
        if samples and (completed < samples[-1][1] or time_s < samples[-1][0]):
            samples.clear()  # it starts over
        if samples and completed == samples[-1][1]:
            return
        if len(samples) >= 2 and time_s - samples[-2][0] < SPACING_S:
            samples[-1] = (time_s, completed)
            return
        samples.append((time_s, completed))
        del samples[:-SAMPLES_MAX]


def median(values: list[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def gap_s(pace: Pace) -> float | None:
    """The usual time between two positions, by which a stop is told from a slow step."""
    gaps = [later[0] - sooner[0] for sooner, later in zip(pace.samples, pace.samples[1:])]
    return median(gaps) if gaps else None


def rate_of(samples: list[tuple[float, float]], now_s: float) -> float | None:
    """Steps per second; None when there are not two positions."""
    pairs = [
        (a, b)
        for i, a in enumerate(samples)
        for b in samples[i + 1 : i + 1 + APART_MAX]
        if b[0] > a[0]
    ]
    if not pairs:
        return None
    rate = median([(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs])
    gap_s = median([b[0] - a[0] for a, b in zip(samples, samples[1:])])
    first, last = samples[0], samples[-1]
    if now_s - last[0] > max(STALLED_GAPS * gap_s, SPACING_S):
        rate = min(rate, (last[1] - first[1]) / (now_s - first[0]))
    return rate


def eta_s(completed: float, total: float | None, rate: float | None) -> float | None:
    """Seconds to go; None when nobody can know."""
    if total is None:
        return None
    if completed >= total:
        return 0.0
    return (total - completed) / rate if rate is not None and rate > 0 else None

"""How fast a job steps, against its own past and against like jobs before it. Pure; called by `slow`."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

NOW_S, NOW_STEPS = 60.0, 20  # the last minute, or more where steps are rare
PARTS = 8  # into which the past is cut; its usual pace is their median
PAST_FACTOR = 1.3  # so much slower than before is told
SIBLING_FACTOR = 1.3
SIBLING_FACTOR_OTHER = 1.6  # where the command is another one
DIFFERENT = 1.3  # a mean of usage that is so much another one is named


class Pace(msgspec.Struct):
    """Seconds for one step; None: not known."""

    now_s: float | None = None
    past_s: float | None = None
    sibling: str | None = None  # the id of the like job that is compared with
    sibling_s: float | None = None
    sibling_age_s: float = 0.0  # since it began
    same_command: bool = True
    differences: list[str] = []  # what is otherwise with it, in words


def step_paces(
    times_s: Sequence[float], steps: Sequence[float]
) -> tuple[float | None, float | None]:
    """(seconds a step now, and before), of points in the order of time."""
    if len(times_s) < NOW_STEPS:
        return None, None
    place = len(times_s) - 1
    end_s = times_s[-1]
    while place > 0 and (end_s - times_s[place] < NOW_S or len(times_s) - place <= NOW_STEPS):
        place -= 1
    now_s = _pace(times_s, steps, place, len(times_s) - 1)
    # the first steps compile, fill caches and are no measure
    first = max(1, place // 10)
    width = (place - first) / PARTS
    if width < 2:
        return now_s, None
    edges = [first + round(number * width) for number in range(PARTS + 1)]
    parts = [_pace(times_s, steps, a, b) for a, b in itertools.pairwise(edges)]
    usual = sorted(part for part in parts if part is not None)
    # the better quarter: a job that has been slow for half of its time was not always
    return now_s, usual[len(usual) // 4] if usual else None


def whole_pace(times_s: Sequence[float], steps: Sequence[float]) -> float | None:
    """Of a job that is over, or as it is so far: the median over its parts."""
    if len(times_s) < NOW_STEPS:
        return None
    first, last = max(1, len(times_s) // 10), len(times_s) - 1
    width = (last - first) / PARTS
    edges = [first + round(number * width) for number in range(PARTS + 1)]
    parts = [_pace(times_s, steps, a, b) for a, b in itertools.pairwise(edges)]
    usual = sorted(part for part in parts if part is not None)
    return usual[len(usual) // 2] if usual else None


def _pace(times_s: Sequence[float], steps: Sequence[float], begin: int, end: int) -> float | None:
    made = steps[end] - steps[begin]
    return (times_s[end] - times_s[begin]) / made if made > 0 else None


def differences(now: Mapping[str, float], then: Mapping[str, float]) -> list[str]:
    """Means of usage that are far from each other: `CPU 210 %, there 780 %`."""
    words: list[str] = []
    for name, here in now.items():
        there = then.get(name)
        if there is None or max(here, there) < 5.0:
            continue
        if max(here, there) >= DIFFERENT * max(min(here, there), 1.0):
            words.append(f"{name} {here:.0f}, there {there:.0f}")
    return words


def pace_findings(pace: Pace) -> Iterator[tuple[str, str, float]]:
    """(words, cause, confidence)."""
    now_s = pace.now_s
    if now_s is None:
        return
    if pace.past_s is not None and now_s >= PAST_FACTOR * pace.past_s:
        factor = now_s / pace.past_s
        words = f"{factor:.1f} x slower than it was: {_step(now_s)} a step now, {_step(pace.past_s)} before"
        yield words, "slower_than_before", 0.75
    if pace.sibling is None or pace.sibling_s is None:
        return
    least = SIBLING_FACTOR if pace.same_command else SIBLING_FACTOR_OTHER
    if now_s >= least * pace.sibling_s:
        when = _when(pace.sibling_age_s)
        words = f"{now_s / pace.sibling_s:.1f} x slower than {pace.sibling} {when}"
        details = [f"{_step(now_s)} a step, there {_step(pace.sibling_s)}", *pace.differences]
        if not pace.same_command:
            details.append("its command was another one")
        yield (
            f"{words}: {'; '.join(details)}",
            "slower_than_sibling",
            0.75 if pace.same_command else 0.6,
        )


def _step(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s"


def _when(age_s: float) -> str:
    if age_s < 3600:
        return f"{max(1, round(age_s / 60))} min ago"
    if age_s < 86_400:
        return f"{age_s / 3600:.0f} h ago"
    days = round(age_s / 86_400)
    return "yesterday" if days == 1 else f"{days} days ago"

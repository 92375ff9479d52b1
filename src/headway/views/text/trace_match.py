"""Whether two runs logged the same: metric traces compared step by step. Pure; called by
`hw reproduce`.
"""

import math
import re
from typing import Final, NamedTuple

from headway.model.json_types import JsonObject

_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# of the clock: no two runs agree on these, and nobody expects it
_CLOCKED: Final = re.compile(
    r"(?:^|[/_. -])(?:time|seconds|secs?|duration|elapsed|throughput|fps|it_s|per_sec|per_second|tokens_s|eta|memory|mem)"
    r"(?:$|[/_. -])"
)
Series = dict[str, list[JsonObject]]  # of /api/jobs/{ref}/metrics


class Match(NamedTuple):
    """One metric of both. `worst`: the largest relative difference; `first_step`: where they first
    differ by more than the tolerance.
    """

    name: str
    points: int  # steps that both have
    missing: int  # that only one of them has
    equal: int  # to the last bit
    worst: float
    first_step: int | None
    last: tuple[float | None, float | None]
    counts: bool  # False: of the clock, told but not judged

    def is_same(self, tolerance: float) -> bool:
        return self.points > 0 and self.missing == 0 and self.worst <= tolerance


def compare(old: Series, new: Series, tolerance: float) -> list[Match]:
    return [
        _match(name, old.get(name, []), new.get(name, []), tolerance)
        for name in sorted({*old, *new})
    ]


def _trace(entries: list[JsonObject]) -> dict[int, float]:
    """The last value of each step, of the lowest rank; a later attempt stands above an earlier."""
    if not entries:
        return {}
    lowest = min(entry["rank"] for entry in entries)
    found: dict[int, float] = {}
    for entry in sorted(entries, key=lambda one: int(one["attempt"])):
        if entry["rank"] == lowest:
            for step, value in zip(entry["step"], entry["value"], strict=True):
                found[int(step)] = _SPECIAL[value] if isinstance(value, str) else float(value)
    return found


def _match(name: str, old: list[JsonObject], new: list[JsonObject], tolerance: float) -> Match:
    a, b = _trace(old), _trace(new)
    shared = sorted(a.keys() & b.keys())
    worst, equal, first_step = 0.0, 0, None
    for step in shared:
        difference = _relative(a[step], b[step])
        equal += difference == 0.0
        worst = max(worst, difference)
        if difference > tolerance and first_step is None:
            first_step = step
    last = (a[max(a)] if a else None, b[max(b)] if b else None)
    counts = _CLOCKED.search(name.lower()) is None
    return Match(
        name, len(shared), len(a) + len(b) - 2 * len(shared), equal, worst, first_step, last, counts
    )


def _relative(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))

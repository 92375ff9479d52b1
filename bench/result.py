"""What a case hands back: who measured what, and which targets it meets. Pure data; `table.py`
writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

HEADWAY = "headway"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of one contender, repeated."""

    who: str
    samples: Sequence[float]
    note: str = ""

    @property
    def median(self) -> float:
        return median(self.samples) if self.samples else float("nan")


@dataclass(frozen=True, slots=True)
class Check:
    """A target. `at_most` says on which side of `limit` the value must lie."""

    text: str
    value: float
    limit: float
    unit: str = "×"
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(slots=True)
class Result:
    """One row of the issue's table, or a part of one."""

    what: str
    unit: str
    measures: list[Measure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lower_is_better: bool = True
    case: str = ""

    def median_of(self, who: str) -> float | None:
        """The median of `who`, or None where it was not measured (a peer that could not be
        installed).
        """
        return next((m.median for m in self.measures if m.who == who and m.samples), None)

    def at_most(self, text: str, value: float, limit: float, unit: str) -> None:
        self.checks.append(Check(text, value, limit, unit))

    def at_least(self, text: str, value: float, limit: float, unit: str) -> None:
        self.checks.append(Check(text, value, limit, unit, at_most=False))

    def ratio_at_most(self, base: str, limit: float, text: str) -> None:
        """Headway takes at most `limit` times what `base` takes."""
        ours, theirs = self.median_of(HEADWAY), self.median_of(base)
        if ours is not None and theirs:
            self.at_most(text, ours / theirs, limit, "×")

    def faster_than(self, peer: str, limit: float, text: str) -> None:
        """Headway is at least `limit` times faster than `peer`."""
        ours, theirs = self.median_of(HEADWAY), self.median_of(peer)
        if ours and theirs is not None:
            self.at_least(text, theirs / ours, limit, "×")

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case, "what": self.what, "unit": self.unit, "lower_is_better": self.lower_is_better,
            "measures": [
                {"who": m.who, "median": m.median, "samples": list(m.samples), "note": m.note} for m in self.measures
            ],
            "checks": [
                {"text": c.text, "value": c.value, "limit": c.limit, "unit": c.unit,
                 "at_most": c.at_most, "met": c.met} for c in self.checks
            ],
            "notes": self.notes,
        }  # fmt: skip

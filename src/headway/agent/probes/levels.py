"""Samples become samples of longer spans: of every number its smallest, mean and largest. Pure;
called by `sampler`.

Level 0 is each sample, level 1 ten seconds, level 2 a minute, made of level 1. So the last hour can
be kept in full and a month still fits into megabytes. The mean is the mean of the samples, not of
the means.
"""

from __future__ import annotations

from headway.model.limits import USAGE_LINES_FOLDED_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from headway.model.json_types import JsonMapping, JsonObject

SPANS_S = (10.0, 60.0)  # of level 1 and 2
EPSILON_S = 1e-6  # sums of intervals are not exact
_NAMES = frozenset(("rank", "pid", "ppid", "index"))  # numbers that say who, not how much


class Band:
    """The smallest, the sum and the largest of some numbers."""

    __slots__ = ("count", "high", "low", "total")

    def __init__(self, low: float, total: float, count: int, high: float) -> None:
        self.low, self.total, self.count, self.high = low, total, count, high

    def merge(self, other: "Band") -> None:
        self.total += other.total
        self.count += other.count
        if other.low < self.low:
            self.low = other.low
        if other.high > self.high:
            self.high = other.high

    def result(self) -> list[float]:
        if self.low == self.high:
            return [self.low] * 3
        mean = self.total / self.count
        mean = round(mean) if abs(mean) >= 1000 else round(mean, 2)
        return [self.low, min(max(mean, self.low), self.high), self.high]


class Rows:
    """Objects in a list, told apart by who they are."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[object, Fold] = {}

    def add(self, row: "JsonMapping") -> None:
        key = _who(row)
        fold = self.rows.get(key)
        if fold is None:
            fold = self.rows[key] = Fold()
        fold.add(row)

    def merge(self, other: "Rows") -> None:
        for key, fold in other.rows.items():
            self.rows.setdefault(key, Fold()).merge(fold)

    def result(self) -> "list[JsonObject]":
        """Whole trees always; single processes as far as there is room, those that lived longest
        first.
        """
        folds = list(self.rows.values())
        single = [fold for fold in folds if fold.plain.get("pid") is not None]
        if len(single) > USAGE_LINES_FOLDED_MAX:
            kept = set(
                map(id, sorted(single, key=lambda fold: -fold.count)[:USAGE_LINES_FOLDED_MAX])
            )
            folds = [fold for fold in folds if fold.plain.get("pid") is None or id(fold) in kept]
        return [fold.result() for fold in folds]


class Fold:
    """One object: numbers as bands, objects and lists of objects likewise, lists of words as all
    words seen, and of everything else the last. An object that comes again must be as it was: then
    it is only counted, and counts as often once another one comes or the span ends.
    """

    __slots__ = ("_again", "_last", "bands", "count", "folds", "order", "plain", "rows", "words")

    def __init__(self) -> None:
        self.count = self._again = 0
        self._last: JsonMapping | None = None
        self.order: dict[str, None] = {}  # names as they came
        self.bands: dict[str, Band] = {}
        self.folds: dict[str, Fold] = {}
        self.rows: dict[str, Rows] = {}
        self.words: dict[str, set[str]] = {}
        self.plain: JsonObject = {}

    def add(self, values: "JsonMapping") -> None:
        self.count += 1
        if values is self._last:
            self._again += 1
            return
        self._settle()
        self._last = values
        bands = self.bands
        for name, value in values.items():
            kind = type(value)
            if (kind is int or kind is float) and name not in _NAMES:
                band = bands.get(name)
                if band is not None:
                    band.total += value
                    band.count += 1
                    if value < band.low:
                        band.low = value
                    elif value > band.high:
                        band.high = value
                    continue
                bands[name] = Band(value, value, 1, value)
            elif kind is dict:
                self.folds.setdefault(name, Fold()).add(value)
            elif kind is list:
                self._add_list(name, value)
            elif value is not None or name in _NAMES:
                self.plain[name] = value
            self.order[name] = None

    def _settle(self) -> None:
        """Count the last object as often as it came again."""
        again = self._again
        self._again = 0
        if not again or self._last is None:
            return
        for name, value in self._last.items():
            if name in self.bands and value is not None:
                self.bands[name].total += again * value
                self.bands[name].count += again
            if type(value) is dict:
                for _ in range(again):
                    self.folds[name].add(value)
            elif type(value) is list:
                for _ in range(again):
                    self._add_list(name, value)

    def _add_list(self, name: str, values: "list[Any]") -> None:
        if name not in self.words and name not in self.rows and not values:
            self.plain.setdefault(name, [])
        for value in values:
            if isinstance(value, dict):
                self.rows.setdefault(name, Rows()).add(value)
            else:
                self.words.setdefault(name, set()).add(str(value))

    def merge(self, other: "Fold") -> None:
        """As if all that `other` has seen had been added here."""
        self._settle()
        other._settle()
        self._last = None
        self.count += other.count
        self.order.update(other.order)
        self.plain.update(other.plain)
        for name, band in other.bands.items():
            mine = self.bands.get(name)
            if mine is None:
                self.bands[name] = Band(band.low, band.total, band.count, band.high)
            else:
                mine.merge(band)
        for name, fold in other.folds.items():
            self.folds.setdefault(name, Fold()).merge(fold)
        for name, rows in other.rows.items():
            self.rows.setdefault(name, Rows()).merge(rows)
        for name, words in other.words.items():
            self.words.setdefault(name, set()).update(words)

    def result(self) -> "JsonObject":
        self._settle()
        bands = self.bands
        return {
            name: bands[name].result() if name in bands else self._value(name)
            for name in self.order
        }

    def _value(self, name: str) -> object:
        for found in (self.folds.get(name), self.rows.get(name)):
            if found is not None:
                return found.result()
        return sorted(self.words[name]) if name in self.words else self.plain.get(name)


def _who(row: "JsonMapping") -> object:
    return row["index"] if "index" in row else (row.get("rank"), row.get("pid"))


class Levels:
    """Takes samples, hands out those of longer spans as they become whole. Spans lie on a grid from
    the beginning, so that a late sample does not make all later spans late.
    """

    def __init__(self, now_s: float, spans_s: tuple[float, ...] = SPANS_S) -> None:
        self._spans_s = spans_s
        self._folds = [Fold() for _ in spans_s]
        self._begun_s = [now_s for _ in spans_s]
        self._end_s = [now_s + span_s for span_s in spans_s]

    def add(self, sample: "JsonMapping", now_s: float) -> "Iterator[tuple[int, float, JsonObject]]":
        """(level, span in seconds, folded sample) of every span that ends with this one."""
        self._folds[0].add(sample)
        for place, end_s in enumerate(self._end_s):
            if now_s < end_s - EPSILON_S:
                return
            yield self._close(place, now_s)

    def flush(self, now_s: float) -> "Iterator[tuple[int, float, JsonObject]]":
        """What is left at the end."""
        for place, fold in enumerate(self._folds):
            if fold.count:
                yield self._close(place, now_s)

    def _close(self, place: int, now_s: float) -> "tuple[int, float, JsonObject]":
        fold, begun_s, span_s = self._folds[place], self._begun_s[place], self._spans_s[place]
        self._folds[place], self._begun_s[place] = Fold(), now_s
        passed = max(0.0, now_s + EPSILON_S - self._end_s[place]) // span_s
        self._end_s[place] += span_s * (passed + 1)
        if place + 1 < len(self._folds):
            self._folds[place + 1].merge(fold)
        return place + 1, round(now_s - begun_s, 3), fold.result()

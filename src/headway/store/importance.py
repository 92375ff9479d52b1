"""Which config keys mattered for a metric, over many jobs: for `hw compare --importance` and for the
order of `hw diff`.

Method: the jobs are put into groups by the value of a key (numbers with more than `_GROUPS_MAX`
values: by rank, into quarters), and the share of the metric's variance that lies between the groups
is taken (eta squared), less what groups of that size would show by chance (adjusted as R squared
is). The key with the largest share comes first; its group means are subtracted, and the next key is
looked for in what is left, so that a strong key does not hide a weaker one. Uncertainty: the 5th to
95th percentile over jobs drawn again with replacement; `chance`: how often what is left, in random
order, shows as much. Keys that were changed together share the credit: the first one gets it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headway.model.json_types import JsonObject
from headway.model.limits import IMPORTANCE_DRAWS, IMPORTANCE_KEYS_MAX

Floats = npt.NDArray[np.float64]
Groups = npt.NDArray[np.int64]
_GROUPS_MAX = 8
_QUARTERS = 4
JOBS_MIN = 4  # fewer say nothing


class KeyImportance(msgspec.Struct):
    """`share` of all the variance, from `low` to `high`; `rest`: its share of what the keys before
    it leave; `chance`: as much by accident; `trend`: the rank correlation with a number, null for
    words; `best`: the value with the best mean.
    """

    key: str
    share: float
    low: float
    high: float
    rest: float
    chance: float
    values: int
    trend: float | None
    best: Any


def rank(
    configs: Sequence[JsonObject], keys: Sequence[str], metric: Sequence[float], wanted: str
) -> list[KeyImportance]:
    """The most important first; `metric` is finite, one value for each config."""
    y = np.array(metric, np.float64)
    if len(y) < JOBS_MIN or y.var() == 0:
        return []
    waiting: dict[str, tuple[list[Any], Groups, int]] = {}
    for key in keys:
        values = [config.get(key) for config in configs]
        groups, kinds = _groups(values)
        if 2 <= kinds < len(y):  # else all equal, or all different words: nothing to compare
            waiting[key] = (values, groups, kinds)
    random = np.random.default_rng(0)  # the same question has the same answer
    found: list[KeyImportance] = []
    left = y
    while waiting and len(found) < IMPORTANCE_KEYS_MAX:
        shares = {key: _share(groups, kinds, left) for key, (_, groups, kinds) in waiting.items()}
        key = max(shares, key=lambda name: shares[name])
        values, groups, kinds = waiting.pop(key)
        found.append(_key(key, values, groups, kinds, y, left, wanted, random))
        counts = np.maximum(np.bincount(groups, minlength=kinds), 1)
        if shares[key] > 0:
            left = left - (np.bincount(groups, left, minlength=kinds) / counts)[groups]
    return found


def _key(
    key: str, values: list[Any], groups: Groups, kinds: int, y: Floats, left: Floats, wanted: str,
    random: np.random.Generator,
) -> KeyImportance:  # fmt: skip
    share = _share(groups, kinds, left)
    scale = float(left.var() / y.var())
    drawn, shuffled = [], 0
    for _ in range(IMPORTANCE_DRAWS):
        some = random.integers(0, len(y), len(y))
        drawn.append(_share(groups[some], kinds, left[some]))
        shuffled += _share(groups, kinds, random.permutation(left)) >= share
    low, high = np.percentile(drawn, [5, 95]).tolist()
    means = [float(y[groups == kind].mean()) for kind in range(kinds)]
    best = int(np.argmax(means)) if wanted == "max" else int(np.argmin(means))

    def shown(value: float) -> float:
        return round(max(0.0, value), 4)

    return KeyImportance(
        key, shown(share * scale), shown(low * scale), shown(high * scale), shown(share),
        round((shuffled + 1) / (IMPORTANCE_DRAWS + 1), 4), len({repr(value) for value in values}),
        _trend(values, y), _label(values, groups, best),
    )  # fmt: skip


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value - value == 0 else None


def _groups(values: list[Any]) -> tuple[Groups, int]:
    """The number of each one's group, and how many groups there are."""
    kinds: dict[str, int] = {}
    labels = [kinds.setdefault(repr(value), len(kinds)) for value in values]
    numbers = [_number(value) for value in values]
    if len(kinds) <= _GROUPS_MAX or any(number is None for number in numbers):
        return np.array(labels, np.int64), len(kinds)
    order = np.argsort(np.array(numbers, np.float64), kind="stable")
    places = np.empty(len(values), np.int64)
    places[order] = np.arange(len(values)) * _QUARTERS // len(values)
    return places, _QUARTERS


def _share(groups: Groups, kinds: int, y: Floats) -> float:
    """Variance between the groups, adjusted for their number."""
    counts = np.bincount(groups, minlength=kinds)
    used = int((counts > 0).sum())
    total = float(((y - y.mean()) ** 2).sum())
    free = len(y) - used
    if total <= 0 or free <= 0:
        return 0.0
    sums = np.bincount(groups, y, minlength=kinds)
    means = sums / np.maximum(counts, 1)
    inside = float(((y - means[groups]) ** 2).sum())
    return 1 - (inside / free) / (total / (len(y) - 1))


def _trend(values: list[Any], y: Floats) -> float | None:
    """Spearman's rank correlation."""
    numbers = [_number(value) for value in values]
    if any(number is None for number in numbers):
        return None
    a, b = _ranks(np.array(numbers, np.float64)), _ranks(y)
    if a.std() == 0 or b.std() == 0:
        return None
    return round(float(np.corrcoef(a, b)[0, 1]), 4)


def _ranks(values: Floats) -> Floats:
    """Equal values share the mean of their places."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse].astype(np.float64)


def _label(values: list[Any], groups: Groups, best: int) -> object:
    """The value of a group, or of a quarter its range."""
    members = [value for value, group in zip(values, groups.tolist(), strict=True) if group == best]
    if len({repr(value) for value in members}) == 1:
        return members[0]
    return f"{min(members):g} … {max(members):g}"

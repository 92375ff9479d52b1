"""Whether two runs logged the same, step by step."""

import math
from typing import Any

import pytest

from headway.views.text import trace_match


def trace(values: list[Any], rank: int = 0, attempt: int = 1, first: int = 0) -> dict[str, Any]:
    steps = list(range(first, first + len(values)))
    return {
        "rank": rank,
        "attempt": attempt,
        "step": steps,
        "time": [""] * len(values),
        "value": values,
    }


def matched(old: list[Any], new: list[Any], tolerance: float = 0.01) -> trace_match.Match:
    (found,) = trace_match.compare({"loss": [trace(old)]}, {"loss": [trace(new)]}, tolerance)
    return found


def test_equal_traces_are_equal_to_the_last_bit() -> None:
    found = matched([1.0, "NaN", "-Infinity", 0.0], [1.0, "NaN", "-Infinity", 0.0])
    assert (found.points, found.equal, found.worst, found.first_step) == (4, 4, 0.0, None)
    assert found.is_same(0.0)


@pytest.mark.parametrize(
    ("new", "same", "first_step"),
    [
        ([1.0, 2.01], True, None), ([1.0, 2.1], False, 1), ([1.0, "NaN"], False, 1), ([1.0], False, None),
        ([1.0, 2.0, 3.0], False, None), ([], False, None),
    ],
)  # fmt: skip
def test_what_is_further_apart_than_the_tolerance_is_not_the_same(
    new: list[Any], same: bool, first_step: int | None
) -> None:
    found = matched([1.0, 2.0], new)
    assert found.is_same(0.01) is same
    assert found.first_step == first_step


def test_a_metric_that_only_one_has_is_missing() -> None:
    found = trace_match.compare({"loss": [trace([1.0])]}, {"acc": [trace([1.0])]}, 0.01)
    assert [(one.name, one.points, one.missing) for one in found] == [("acc", 0, 1), ("loss", 0, 1)]


def test_the_lowest_rank_counts_and_a_later_attempt_replaces_steps() -> None:
    old = {"loss": [trace([1.0, 9.0]), trace([2.0], attempt=2, first=1), trace([5.0, 5.0], rank=1)]}
    (found,) = trace_match.compare(old, {"loss": [trace([1.0, 2.0])]}, 0.0)
    assert found.is_same(0.0)


def test_metrics_of_the_clock_are_told_but_not_judged() -> None:
    names = {
        "step_time": False,
        "samples_per_sec": False,
        "val/loss": True,
        "runtime_loss": True,
        "gpu/mem": False,
    }
    for name, counts in names.items():
        (found,) = trace_match.compare({name: [trace([1.0])]}, {name: [trace([2.0])]}, 0.0)
        assert found.counts is counts, name
    assert math.isclose(found.worst, 0.5)

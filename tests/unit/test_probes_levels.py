"""Folding samples into longer spans: pure, so tried with drawn samples."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.agent.probes.levels import Fold, Levels
from headway.model.limits import USAGE_LINES_FOLDED_MAX

NUMBER = st.one_of(st.integers(0, 2**50), st.floats(0, 1e12, allow_nan=False), st.none())
LINE = st.fixed_dictionaries(
    {
        "rank": st.integers(0, 2),
        "pid": st.sampled_from([None, 7, 8]),
        "cpu_percent": NUMBER,
        "rss_bytes": NUMBER,
    }
)
CARD = st.fixed_dictionaries(
    {
        "index": st.integers(0, 1),
        "load_percent": NUMBER,
        "throttle": st.lists(st.sampled_from(["thermal", "cap"])),
    }
)
SAMPLE = st.fixed_dictionaries(
    {
        "node": st.one_of(
            st.none(), st.fixed_dictionaries({"cpu_percent": NUMBER, "psi": st.just({"io": 1.5})})
        ),
        "processes": st.lists(LINE, max_size=4, unique_by=lambda line: (line["rank"], line["pid"])),
        "gpus": st.one_of(
            st.none(), st.lists(CARD, max_size=2, unique_by=lambda card: card["index"])
        ),
    }
)


def numbers_of(samples: list[dict[str, Any]], key: tuple[int, int | None]) -> list[float]:
    lines = [
        line
        for sample in samples
        for line in sample["processes"]
        if (line["rank"], line["pid"]) == key
    ]
    return [line["cpu_percent"] for line in lines if line["cpu_percent"] is not None]


@given(st.lists(SAMPLE, min_size=1, max_size=12))
def test_every_number_becomes_its_smallest_mean_and_largest(samples: list[dict[str, Any]]) -> None:
    fold = Fold()
    for sample in samples:
        fold.add(sample)
    for line in fold.result()["processes"]:
        seen = numbers_of(samples, (line["rank"], line["pid"]))
        if not seen:
            assert line["cpu_percent"] is None
            continue
        low, mean, high = line["cpu_percent"]
        assert (low, high) == (min(seen), max(seen))
        assert low <= mean <= high
        assert abs(mean - sum(seen) / len(seen)) <= max(0.51, 1e-9 * high)


@given(st.lists(SAMPLE, min_size=1, max_size=12), st.integers(0, 12))
def test_a_fold_of_folds_is_the_fold_of_all(samples: list[dict[str, Any]], cut: int) -> None:
    whole, first, second = Fold(), Fold(), Fold()
    for place, sample in enumerate(samples):
        whole.add(sample)
        (first if place < cut else second).add(sample)
    merged = Fold()
    merged.merge(first)
    merged.merge(second)
    assert _close(merged.result(), whole.result())


@given(st.lists(st.tuples(SAMPLE, st.integers(1, 4)), min_size=1, max_size=6))
def test_objects_that_come_again_count_as_often_as_they_come(
    samples: list[tuple[dict[str, Any], int]],
) -> None:
    """Processes that have not moved are told as the same object, and are not gone through again."""
    again, anew, lower = Fold(), Fold(), Fold()
    for sample, times in samples:
        for _ in range(times):
            again.add(sample)
            lower.add({**sample, "processes": list(sample["processes"])})
            anew.add(json.loads(json.dumps(sample)))
    assert again.count == anew.count
    assert _close(again.result(), anew.result())
    assert _close(lower.result(), anew.result())


def _close(left: object, right: object) -> bool:
    """Equal, but for the order in which floats were added."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_close(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_close, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float):
        return abs(left - right) <= 1 + 1e-9 * abs(right)
    return left == right


@given(st.lists(SAMPLE, max_size=5))
def test_a_folded_sample_is_plain_json_and_keeps_who_is_who(samples: list[dict[str, Any]]) -> None:
    fold = Fold()
    for sample in samples:
        fold.add(sample)
    result = fold.result()
    json.dumps(result, allow_nan=False)
    for line in result.get("processes", []):
        assert isinstance(line["rank"], int)
        assert line["pid"] is None or isinstance(line["pid"], int)
    for card in result.get("gpus") or []:
        assert card["throttle"] == sorted(set(card["throttle"]))


def test_a_number_that_never_changes_stays_what_it_is() -> None:
    fold = Fold()
    for _ in range(3):
        fold.add({"threads": 4, "share": 0.123456})
    assert fold.result() == {"threads": [4, 4, 4], "share": [0.123456, 0.123456, 0.123456]}


def test_a_late_sample_does_not_make_all_later_spans_late() -> None:
    levels, ends = Levels(100.0), []
    for second in range(1, 121):
        late_s = 0.09 if second % 10 == 0 and second % 20 else 0.0
        ends += [
            (second, level) for level, _, _ in levels.add({"cpu": second}, 100.0 + second + late_s)
        ]
    assert [second for second, level in ends if level == 1] == list(range(10, 121, 10))
    assert [second for second, level in ends if level == 2] == [60, 120]


def test_a_minute_has_the_mean_of_its_samples_and_not_of_its_means() -> None:
    levels, found = Levels(0.0), []
    for second in range(1, 61):
        if second > 10 and second % 10:
            continue  # ten samples in the first ten seconds, then one in each
        found += list(levels.add({"x": 0 if second <= 10 else 15}, float(second)))
    assert [result["x"] for level, _, result in found if level == 2] == [[0, 5.0, 15]]


def test_after_a_long_silence_spans_go_on_in_their_grid() -> None:
    levels = Levels(0.0)
    assert [(level, span_s) for level, span_s, _ in levels.add({"x": 1}, 95.0)] == [
        (1, 95.0),
        (2, 95.0),
    ]
    assert list(levels.add({"x": 1}, 99.0)) == []
    assert [(level, span_s) for level, span_s, _ in levels.add({"x": 1}, 100.0)] == [(1, 5.0)]
    assert [(level, span_s) for level, span_s, _ in levels.flush(101.0)] == [(2, 6.0)]


def test_many_short_processes_do_not_drive_out_the_ranks() -> None:
    fold = Fold()
    for second in range(20):
        short = [{"rank": 0, "pid": 1000 + 100 * second + n, "threads": 1} for n in range(100)]
        fold.add(
            {
                "processes": [
                    {"rank": 0, "pid": None, "threads": 5},
                    {"rank": 0, "pid": 7, "threads": 1},
                    *short,
                ]
            }
        )
    lines = fold.result()["processes"]
    assert [line["pid"] for line in lines[:2]] == [None, 7]
    assert len(lines) == USAGE_LINES_FOLDED_MAX + 1


def test_a_missed_gpu_sample_leaves_the_others_as_they_are() -> None:
    fold = Fold()
    for gpus in ([{"index": 0, "load_percent": 50}], None, [{"index": 0, "load_percent": 100}]):
        fold.add({"gpus": gpus})
    assert fold.result() == {"gpus": [{"index": 0, "load_percent": [50, 75.0, 100]}]}

"""Points are the same before and after compaction, bit by bit and in order; charts show real points
(P4, P6, B1).
"""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.errors import DamagedError
from headway.model.limits import COMPACT_ROWS, ZOOM_FACTOR
from headway.store import compact, housekeeping, query, series
from tests.storing import NOW_NS, Bench, bench, bits, record, records, schema
from tests.waiting import wait_until

STREAM = "metrics-0-100-abcdef."
ODD = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    0.0,
    5e-324,
    0.1,
    float(np.float32(0.1)),
    1e308,
]


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def small_pieces(patch: pytest.MonkeyPatch) -> None:
    limits = {
        "COMPACT_ROWS": 40,
        "VALUES_MAX": 80,
        "ROWS_MIN": 16,
        "LEVEL_POINTS_MIN": 8,
        "BLOCKS_MERGE": 4,
    }
    for name, value in limits.items():
        patch.setattr(compact, name, value)


def count(b: Bench, table: str) -> int:
    return b.read(lambda c: int(c.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))


def points(b: Bench, name: str, n: int | None = None) -> series.Points:
    (found,) = b.read(series.read_series, b.job.pk, name, points=n)
    return found.points


# -- compaction


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_points_are_the_same_before_and_after_any_compaction(
    tmp_path_factory: Any, seed: int
) -> None:
    """Schemas that share names, several segments, late data of an old segment, parts cut anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        small_pieces(patch)
        b = bench(tmp_path_factory.mktemp("s"))
        try:
            _compare(b, random.Random(seed))
        finally:
            b.store.close()


def _compare(b: Bench, rng: random.Random) -> None:
    names = ["a", "b", "c"]
    schemas = {i: tuple(rng.sample(names, rng.randint(1, 3))) for i in range(rng.randint(1, 3))}
    expected: dict[str, dict[int, list[tuple[int, int]]]] = {name: {} for name in names}
    declared: set[tuple[int, int]] = set()
    step = 0
    for _ in range(rng.randint(1, 25)):
        segment, data = rng.choice([0, 0, 1, 2]), b""
        for _ in range(rng.randint(1, 60)):
            number = rng.choice(list(schemas))
            if (segment, number) not in declared:
                declared.add((segment, number))
                data += schema(number, *schemas[number])
            values = [rng.choice([*ODD, rng.random(), float(step)]) for _ in schemas[number]]
            data += record(number, step, values, NOW_NS + step * rng.choice([1000, 12345]))
            for name, bit in zip(schemas[number], bits(values), strict=True):
                expected[name].setdefault(segment, []).append((step, bit))
            step += rng.choice([1, 1, 1, 5, -3])
        b.send(f"{STREAM}{segment}", "records", data)
        if rng.random() < 0.3:
            b.store.tidy()
        if rng.random() < 0.2:
            _check(b, expected)
    _check(b, expected)
    b.end()
    b.store.tidy()
    assert count(b, "blocks") == 0
    _check(b, expected)


def _check(b: Bench, expected: dict[str, dict[int, list[tuple[int, int]]]]) -> None:
    for name, by_segment in expected.items():
        wanted = [pair for segment in sorted(by_segment) for pair in by_segment[segment]]
        found = b.read(series.read_series, b.job.pk, name)
        got = [
            pair
            for one in found
            for pair in zip(one.points.steps.tolist(), bits(one.points.values), strict=True)
        ]
        assert got == wanted, name
        assert b.read(series.count_points, b.job.pk, [name], None) == len(wanted)


def test_a_long_series_is_cut_into_pieces_that_share_their_axis(b: Bench) -> None:
    rows = 3 * COMPACT_ROWS + 1000
    values = np.random.default_rng(1).standard_normal((2, rows))
    b.send(f"{STREAM}0", "records", schema(0, "x", "y") + records(0, range(rows), values))
    b.end()
    b.store.tidy()
    assert (count(b, "blocks"), count(b, "axes")) == (0, 3)
    assert bits(points(b, "y").values) == bits(values[1])
    assert points(b, "x").steps.tolist() == list(range(rows))


def test_a_running_job_is_compacted_once_it_has_enough_rows(b: Bench) -> None:
    b.send(
        f"{STREAM}0",
        "records",
        schema(0, "x") + records(0, range(COMPACT_ROWS - 1), [range(COMPACT_ROWS - 1)]),
    )
    b.store.tidy()
    assert count(b, "columns") == 0
    b.send(f"{STREAM}0", "records", record(0, COMPACT_ROWS, [1.0]))
    b.store.tidy()
    assert count(b, "columns") > 0
    assert len(points(b, "x")) == COMPACT_ROWS


def test_many_small_blocks_become_one(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    b.send(f"{STREAM}0", "records", schema(0, "x"))
    for i in range(10):
        b.send(f"{STREAM}0", "records", record(0, i, [float(i)]))
    b.store.tidy()
    assert count(b, "blocks") == 1
    assert points(b, "x").values.tolist() == [float(i) for i in range(10)]


def test_a_reader_sees_every_point_once_while_housekeeping_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    monkeypatch.setattr(housekeeping, "PERIOD_S", 0.02)
    b = bench(tmp_path / "home", background=True)
    try:
        b.send(f"{STREAM}0", "records", schema(0, "x", "y"))
        for i in range(0, 2000, 5):
            b.send(f"{STREAM}0", "records", records(0, range(i, i + 5), [range(i, i + 5)] * 2))
            if i % 50 == 0:
                assert points(b, "y").steps.tolist() == list(range(i + 5))
        b.end()
        b.clock.now_ns += housekeeping.CALM_NS
        wait_until(lambda: count(b, "blocks") == 0, 30, "everything is compacted")
        assert points(b, "x").values.tolist() == [float(i) for i in range(2000)]
    finally:
        b.store.close()


def test_free_space_is_given_back(b: Bench) -> None:
    rows = 400_000
    b.send(
        f"{STREAM}0",
        "records",
        schema(0, "x") + records(0, range(rows), [np.random.default_rng(1).random(rows)]),
    )
    b.write(lambda c: c.execute("DELETE FROM blocks"))
    before = b.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    b.store.tidy()
    assert b.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0]) < before / 2


def test_a_plan_whose_blocks_are_gone_changes_nothing(b: Bench) -> None:
    b.send(f"{STREAM}0", "records", schema(0, "x") + records(0, range(10), [range(10)]))
    plan = b.read(compact.plan_next, 1, 0)
    assert plan is not None
    b.write(lambda c: compact.install(c, plan))
    with pytest.raises(LookupError):
        b.write(lambda c: compact.install(c, plan))
    assert points(b, "x").values.tolist() == [float(i) for i in range(10)]


def _spoil(c: sqlite3.Connection, table: str, pk: int) -> None:
    data = bytearray(c.execute(f"SELECT data FROM {table} WHERE rowid = ?", (pk,)).fetchone()[0])
    data[-3] ^= 4
    c.execute(f"UPDATE {table} SET data = ? WHERE rowid = ?", (bytes(data), pk))


def test_a_damaged_block_is_never_shown_and_costs_only_itself(b: Bench) -> None:
    """F15, P11"""
    b.send(f"{STREAM}0", "records", schema(0, "x"))
    for i in range(3):
        b.send(f"{STREAM}0", "records", record(0, i, [float(i)]))
    b.write(lambda c: _spoil(c, "blocks", 2))
    with pytest.raises(DamagedError):
        points(b, "x")
    b.end()
    b.store.tidy()
    assert points(b, "x").values.tolist() == [0.0, 2.0]
    (event,) = b.events("damage")
    assert event["data"]["points"] == 1


def test_a_damaged_column_is_never_shown(b: Bench) -> None:
    b.send(
        f"{STREAM}0",
        "records",
        schema(0, "x") + records(0, range(100), [np.random.default_rng(1).random(100)]),
    )
    b.end()
    b.store.tidy()
    b.write(lambda c: _spoil(c, "columns", 1))
    with pytest.raises(DamagedError):
        points(b, "x")


# -- charts


@given(
    st.lists(st.one_of(st.floats(width=16), st.sampled_from(ODD)), min_size=1, max_size=400),
    st.sampled_from([2, 7, ZOOM_FACTOR]),
)
def test_a_zoom_level_keeps_first_last_extremes_and_what_is_not_finite(
    values: list[float], factor: int
) -> None:
    array = np.array(values)
    index = series.zoom_index(array, factor)
    assert index.tolist() == sorted(set(index.tolist()))
    assert {0, len(values) - 1} <= set(index.tolist())
    kept = set(index.tolist())
    for start in range(0, len(values), factor):
        group = array[start : start + factor]
        finite = group[np.isfinite(group)]
        shown = array[[i for i in kept if start <= i < start + factor]]
        if len(finite):
            assert finite.min() in shown and finite.max() in shown
        if len(finite) < len(group):
            first = start + int((~np.isfinite(group)).argmax())
            assert first in kept


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("n", [2, 10, 2000])
def test_a_chart_shows_real_points_and_their_extremes(b: Bench, compacted: bool, n: int) -> None:
    rows = 150_000
    values = np.random.default_rng(3).standard_normal(rows)
    values[70_000], values[70_001], values[9] = 1e9, -1e9, np.nan
    b.send(f"{STREAM}0", "records", schema(0, "x") + records(0, range(rows), [values]))
    if compacted:
        b.end()
        b.store.tidy()
        tail = 1000
        b.send(f"{STREAM}0", "records", records(0, range(rows, rows + tail), [np.full(tail, 0.5)]))
        values = np.append(values, np.full(tail, 0.5))
    found = points(b, "x", n)
    assert len(found) <= n + n // 2 + 4
    assert len(found) >= min(n, 2000) * 0.7
    assert (found.steps[0], found.steps[-1]) == (0, len(values) - 1)
    assert bits(values[found.steps]) == bits(found.values), "every point shown was logged"
    assert np.nanmax(found.values) == 1e9 and np.nanmin(found.values) == -1e9
    assert np.isnan(found.values).any()
    assert (np.diff(found.steps) > 0).all()


def test_a_short_series_is_shown_whole(b: Bench) -> None:
    b.send(f"{STREAM}0", "records", schema(0, "x") + records(0, range(50), [range(50)]))
    assert len(points(b, "x", 2000)) == 50
    assert b.read(series.read_series, b.job.pk, "no such metric", points=5) == []


def test_too_many_points_at_once_are_refused(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7"""
    b.send(f"{STREAM}0", "records", schema(0, "x") + records(0, range(50), [range(50)]))
    monkeypatch.setattr(query, "METRIC_POINTS_MAX", 49)
    with pytest.raises(Exception, match="50 points"):
        b.read(query.metrics_object, b.job.pk)
    assert len(b.read(query.metrics_object, b.job.pk, points=10)["x"][0]["step"]) <= 14


def test_how_far_an_attempt_came_is_its_last_step(b: Bench) -> None:
    assert b.read(series.reached, b.job.pk) == {}
    b.send(
        f"{STREAM}0",
        "records",
        schema(0, "loss") + b"".join(record(0, step, [0.5]) for step in (0, 1, 41)),
    )
    assert b.read(series.reached, b.job.pk) == {1: 41}

"""Attempts as one series: steps that were done again replace the lost ones in views, both are kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.model.job import Job
from headway.store import chart_window, compare_table, query, series, summaries
from headway.store.catalog import JobFilter
from headway.store.chart_window import Window
from headway.wire.batch import TaskKey
from tests.storing import NOW_NS, Bench, bench, new_job, record, schema


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def log(
    b: Bench,
    key: TaskKey,
    name: str,
    values: dict[int, float],
    at_s: int = 0,
    process: str = "1-aa",
) -> None:
    """A metric has a stream and process of its own here: `name` at these steps, a second apart."""
    rows = [
        record(0, step, [value], NOW_NS + (at_s + number) * 10**9)
        for number, (step, value) in enumerate(values.items())
    ]
    b.send(f"metrics-0-{process}.0", "records", schema(0, name) + b"".join(rows), key)


def attempts(b: Bench, count: int = 2) -> tuple[Job, list[TaskKey]]:
    job, key = new_job(b.store, "again", attempts=count)
    return job, [TaskKey(key.uuid, number, "worker-0") for number in range(1, count + 1)]


def joined(b: Bench, job: Job, name: str) -> list[tuple[int, float]]:
    (found,) = b.read(query.metrics_object, job.pk, [name], joined=True)[name]
    return list(zip(found["step"], found["value"], strict=True))


def drawn(b: Bench, job: Job, name: str, **more: Any) -> list[list[tuple[float, float]]]:
    found = b.read(chart_window.lines, job.pk, job.id, [name], Window(**more), None, 10)
    return [list(zip(line.x.tolist(), line.y.tolist(), strict=True)) for line in found]


def test_steps_that_were_done_again_replace_the_lost_ones_and_both_are_kept(b: Bench) -> None:
    job, (first, second) = attempts(b)
    log(b, first, "loss", {0: 9.0, 1: 8.0, 2: 0.1, 3: 99.0})
    log(b, second, "loss", {2: 7.0, 3: 6.0, 4: 5.0}, at_s=60)
    expected = [(0, 9.0), (1, 8.0), (2, 7.0), (3, 6.0), (4, 5.0)]
    assert joined(b, job, "loss") == expected
    assert drawn(b, job, "loss") == [expected]
    found = b.read(summaries.read, [job.pk], ["loss"])[job.pk]["loss"]
    assert (found.low, found.low_step, found.high, found.high_step) == (5.0, 4, 9.0, 0)
    apart = b.read(query.metrics_object, job.pk, ["loss"])["loss"]
    assert [one["value"] for one in apart] == [[9.0, 8.0, 0.1, 99.0], [7.0, 6.0, 5.0]]
    lines = b.read(chart_window.lines, job.pk, job.id, ["loss"], Window(), None, 10, joined=False)
    assert [line.attempt for line in lines] == [1, 2] and len(lines[0].x) == 4


def test_a_late_metric_is_cut_where_its_attempt_went_on(b: Bench) -> None:
    job, (first, second) = attempts(b)
    log(b, first, "loss", dict.fromkeys(range(10), 1.0))
    log(b, first, "val/acc", {4: 0.4, 8: 0.99}, process="2-bb")
    log(b, second, "loss", dict.fromkeys(range(6, 11), 0.5), at_s=60)
    assert joined(b, job, "val/acc") == [(4, 0.4)], "step 8 is done again, and not validated yet"
    found = b.read(summaries.read, [job.pk], ["val/acc"])[job.pk]["val/acc"]
    assert found.high == 0.4
    log(b, second, "val/acc", {8: 0.6}, at_s=70, process="2-bb")
    assert joined(b, job, "val/acc") == [(4, 0.4), (8, 0.6)]


def test_a_metric_that_counts_something_else_is_not_cut_by_steps(b: Bench) -> None:
    job, (first, second) = attempts(b)
    log(b, first, "loss", dict.fromkeys(range(10), 1.0))
    log(b, first, "per_token", {1000: 1.0, 9000: 2.0}, process="2-bb")
    log(b, second, "loss", dict.fromkeys(range(6, 11), 0.5), at_s=60)
    assert joined(b, job, "per_token") == [(1000, 1.0), (9000, 2.0)]


def test_an_attempt_from_the_beginning_replaces_everything_that_it_has_done_again(b: Bench) -> None:
    job, (first, second, third) = attempts(b, 3)
    log(b, first, "loss", {0: 3.0, 1: 2.0, 2: 1.0})
    log(b, second, "loss", {0: 30.0, 1: 20.0}, at_s=60)
    log(b, third, "loss", {1: 200.0}, at_s=120)
    assert joined(b, job, "loss") == [(0, 30.0), (1, 200.0)]


def test_a_process_that_was_restarted_within_an_attempt_replaces_its_forerunner(b: Bench) -> None:
    log(b, b.key, "loss", {0: 3.0, 1: 2.0, 2: 1.0})
    log(b, b.key, "loss", {1: 20.0, 2: 10.0}, at_s=60, process="7-cc")
    assert joined(b, b.job, "loss") == [(0, 3.0), (1, 20.0), (2, 10.0)]


def test_processes_that_share_a_rank_at_the_same_time_are_mixed_by_time(b: Bench) -> None:
    log(b, b.key, "loss", {0: 3.0, 1: 2.0, 2: 1.0})
    log(b, b.key, "loss", {0: 30.0, 1: 20.0}, at_s=1, process="7-cc")
    assert sorted(joined(b, b.job, "loss")) == [(0, 3.0), (0, 30.0), (1, 2.0), (1, 20.0), (2, 1.0)]


def test_thinned_series_keep_the_extremes_of_what_is_not_lost(b: Bench) -> None:
    job, (first, second) = attempts(b)
    steps = range(5_000)
    log(b, first, "loss", {step: 50.0 if step == 1_234 else 1e6 * (step > 4_000) for step in steps})
    log(b, second, "loss", dict.fromkeys(range(4000, 5000), 1.0), at_s=9_000)
    (found,) = b.read(query.metrics_object, job.pk, ["loss"], None, 100, joined=True)["loss"]
    assert max(found["value"]) == 50.0 and len(found["value"]) <= 110
    (line,) = drawn(b, job, "loss", pixels=50)
    assert max(y for _, y in line) == 50.0


def test_both_are_rows_of_the_metrics_table_and_the_lost_ones_are_marked(b: Bench) -> None:
    open_tables = pytest.importorskip("headway.store.open_tables")
    job, (first, second) = attempts(b)
    log(b, first, "loss", {0: 9.0, 1: 8.0, 2: 7.5})
    log(b, second, "loss", {1: 7.0}, at_s=60)
    batches = b.read(lambda c: list(open_tables.batches(c, b.paths, "metrics", [job.pk])))
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = sorted((row["attempt"], row["step"], row["redone"]) for row in rows)
    assert found == [(1, 0, False), (1, 1, True), (1, 2, True), (2, 1, False)]


def test_a_defined_x_axis_is_taken_unless_another_is_asked_for(b: Bench) -> None:
    stream = "metrics-0-1-aaaaaa.0"
    rows = b"".join(record(0, 10 * n, [float(n), n / 10]) for n in range(3))
    b.send(stream, "records", schema(0, "epoch", "val/acc") + rows)
    b.tell({"type": "metric", "name": "val/*", "x": "epoch", "goal": None, "summary": []})
    assert drawn(b, b.job, "val/acc", x="auto") == [[(0.0, 0.0), (1.0, 0.1), (2.0, 0.2)]]
    assert drawn(b, b.job, "val/acc", x="step") == [[(0.0, 0.0), (10.0, 0.1), (20.0, 0.2)]]
    assert drawn(b, b.job, "epoch", x="auto") == [[(0.0, 0.0), (10.0, 1.0), (20.0, 2.0)]]


def test_a_defined_goal_says_which_value_is_the_best(b: Bench) -> None:
    b.send(
        "metrics-0-1-aaaaaa.0", "records",
        schema(0, "score", "regret_acc") + record(0, 0, [1.0, 5.0]) + record(0, 1, [3.0, 2.0]),
    )  # fmt: skip
    b.tell(
        {"type": "metric", "name": "score", "x": None, "goal": "max", "summary": []},
        {"type": "metric", "name": "regret*", "x": None, "goal": None, "summary": ["min"]},
    )
    asked = compare_table.Asked(ids=[b.job.id])
    found = b.read(compare_table.table, asked, JobFilter(), NOW_NS)
    assert found.directions == {"score": "max", "regret_acc": "min"}
    assert sorted(found.defined) == ["regret_acc", "score"]
    assert found.jobs[0].metrics["score"].best == 3.0
    assert found.jobs[0].metrics["regret_acc"].best == 2.0


def test_the_plain_reader_still_tells_attempts_apart(b: Bench) -> None:
    job, (first, second) = attempts(b)
    log(b, first, "loss", {0: 1.0})
    log(b, second, "loss", {0: 2.0}, at_s=60)
    assert len(b.read(series.read_series, job.pk, "loss")) == 2

"""Many jobs side by side: the server's table, its order and groups, and what mattered."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import NotFoundError, UsageError
from headway.server.api.compare import filters_of
from headway.store import compare_table, importance
from headway.store.compare_table import Asked
from headway.views.text import comparison, html_table
from tests.storing import NOW_NS, Bench, bench, new_job, record, schema


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    for lr in (0.1, 0.01):
        for seed in (0, 1):
            parameters = {"lr": lr, "seed": seed, "depth": 18}
            _, key = new_job(made.store, "sweep", experiment="digits", parameters=parameters)
            values = [[1 - lr, 0.5, lr], [0.9 - lr + seed / 100, 0.4, math.nan]]
            data = b"".join(record(0, step, row) for step, row in enumerate(values))
            made.send("metrics-0-1-aa.0", "records", schema(0, "val/acc", "loss", "lr") + data, key)
    yield made
    made.store.close()


def asked(b: Bench, **fields: Any) -> dict[str, Any]:
    """The answer as a client reads it."""
    from headway.server.http.request import encode

    question = Asked(**fields)
    table = b.read(compare_table.table, question, filters_of(question, NOW_NS), NOW_NS)
    found: dict[str, Any] = json.loads(encode(table))
    return found


def test_keys_that_differ_are_apart_from_those_that_are_equal(b: Bench) -> None:
    found = asked(b, experiment="digits")
    assert found["equal"] == {"depth": 18}
    assert found["differs"] == ["lr", "seed"]
    assert found["metrics"] == ["val/acc", "loss"]  # what is in the config is no result
    newest = found["jobs"][0]
    assert newest["config"] == {"lr": 0.01, "seed": 1, "depth": 18}
    assert newest["metrics"]["val/acc"] == {
        "last": 0.9, "min": 0.9, "max": 0.99, "best": 0.99, "step": 0,
    }  # fmt: skip
    assert newest["metrics"]["loss"]["best"] == 0.4


def test_named_metrics_and_a_wanted_direction(b: Bench) -> None:
    found = asked(b, experiment="digits", name=["lr"], want="min")
    assert found["jobs"][0]["metrics"]["lr"] == {
        "last": "NaN", "min": 0.01, "max": 0.01, "best": 0.01, "step": 0,
    }  # fmt: skip


def test_ids_choose_in_their_order_and_a_condition_narrows_them(b: Bench) -> None:
    ids = [job["id"] for job in asked(b, experiment="digits")["jobs"]]
    some = [ids[2][-5:], ids[0]]
    assert [job["id"] for job in asked(b, ids=some)["jobs"]] == [ids[2], ids[0]]
    narrowed = asked(b, ids=some, where="lr<0.05")
    assert [job["id"] for job in narrowed["jobs"]] == [ids[0]]
    assert [job["id"] for job in asked(b, match="^sweep.*$", where="seed=1")["jobs"]] == [
        ids[0],
        ids[2],
    ]
    with pytest.raises(NotFoundError):
        asked(b, ids=["nobody"])


def test_jobs_and_metrics_beyond_the_limit_are_counted(b: Bench) -> None:
    found = asked(b, experiment="digits", limit=3, metrics_max=1)
    assert (len(found["jobs"]), found["jobs_left_out"]) == (3, 1)
    assert (found["metrics"], found["metrics_left_out"]) == (["val/acc"], 1)


def test_the_best_stands_first_and_is_marked(b: Bench) -> None:
    answer = asked(b, experiment="digits")
    jobs = comparison.sort(answer, None, last=False)
    assert [job["config"]["lr"] for job in jobs] == [0.01, 0.01, 0.1, 0.1]
    grid = comparison.jobs_grid(answer, jobs, short=False, last=False)
    assert grid.titles == ["id", "state", "lr", "seed", "val/acc ↑", "loss ↓"]
    assert [row[4].is_best for row in grid.rows] == [True, True, False, False]
    last = comparison.sort(answer, "-val/acc", last=True)
    assert last[0]["config"] == {"lr": 0.1, "seed": 0, "depth": 18}
    by_key = comparison.sort(answer, "-seed", last=False)
    assert [job["config"]["seed"] for job in by_key] == [1, 1, 0, 0]
    with pytest.raises(UsageError, match="did you mean"):
        comparison.sort(answer, "sead", last=False)


def test_groups_have_mean_and_spread(b: Bench) -> None:
    answer = asked(b, experiment="digits")
    assert comparison.group_keys(answer, "!seed") == ["lr"]
    assert comparison.group_keys(answer, "lr,seed") == ["lr", "seed"]
    with pytest.raises(UsageError):
        comparison.group_keys(answer, "momentum")
    groups = comparison.grouped(answer, ["lr"], answer["jobs"], last=True)
    groups = comparison.sort_groups(answer, groups, None)
    assert [group.by for group in groups] == [{"lr": 0.01}, {"lr": 0.1}]
    spread = groups[0].metrics["val/acc"]
    assert (spread.mean, spread.jobs) == (pytest.approx(0.895), 2)
    assert spread.std == pytest.approx(0.01 / math.sqrt(2))
    assert comparison.spread_text(spread) == "0.8950 ± 0.0071"
    rows = comparison.groups_csv(answer, ["lr"], groups)
    assert rows[0] == ["lr", "jobs", "val/acc.mean", "val/acc.std", "loss.mean", "loss.std"]


def test_foreign_words_stay_words_in_every_form(b: Bench) -> None:
    """B19: no formula in CSV, no markup in a page, no column in Markdown."""
    new_job(b.store, "sweep", experiment="bad", parameters={"x": "<script>|a"})
    new_job(b.store, "sweep", experiment="bad", parameters={"x": "=1+1"})
    answer = asked(b, experiment="bad")
    grid = comparison.jobs_grid(answer, answer["jobs"], short=False, last=False)
    page = html_table.render("<b>", ["<i>"], grid)
    assert "<script>|a" not in page and "<b>" not in page and "<i>" not in page
    assert "&lt;script>\\|a" in comparison.markdown(grid)


def test_true_is_not_one_and_a_missing_key_differs() -> None:
    configs = [{"a": True, "b": 1, "n": math.nan}, {"a": 1, "b": 1.0, "n": math.nan}]
    equal, differs = compare_table.split(configs)
    assert (list(equal), differs) == (["b", "n"], ["a"])
    assert compare_table.split([{"a": 1}, {}]) == ({}, ["a"])


def test_importance_finds_the_strong_key_the_weak_one_and_the_noise() -> None:
    noise = random.Random(3)
    configs, metric = [], []
    for lr in (0.1, 0.01, 0.001):
        for wd in (0.0, 0.1):
            for seed in range(4):
                configs.append({"lr": lr, "wd": wd, "seed": seed, "name": f"{lr}-{wd}-{seed}"})
                metric.append(math.log10(lr) + wd + noise.gauss(0, 0.02))
    found = importance.rank(configs, ["seed", "wd", "lr", "name"], metric, "max")
    assert [key.key for key in found] == ["lr", "wd", "seed"]  # of `name` each value is one job
    lr, wd, seed = found
    assert (
        lr.share > 0.95 and lr.low <= lr.share <= lr.high and lr.trend == pytest.approx(1, abs=0.1)
    )
    assert wd.rest > 0.5 and wd.chance < 0.05 < seed.chance
    assert (lr.best, wd.best) == (0.1, 0.1)
    assert found == importance.rank(configs, ["seed", "wd", "lr", "name"], metric, "max")
    assert importance.rank(configs[:3], ["lr"], metric[:3], "max") == []

"""Last values and ranges of series, effective configs, and the jobs that a condition means."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.store import effective_config, job_conditions, listing, query, summaries
from headway.store.catalog import JobFilter
from headway.store.summaries import Summary
from headway.wire.batch import TaskKey
from headway.wire.filter_language import parse
from tests.storing import NOW_NS, Bench, bench, new_job, record, records, schema


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def of(b: Bench, name: str, job: int | None = None) -> Summary:
    pk = job or b.job.pk
    return b.read(summaries.read, [pk], [name])[pk][name]


def test_the_range_of_a_series_grows_with_each_batch(b: Bench) -> None:
    stream = "metrics-0-1-aaaaaa.0"
    b.send(stream, "records", schema(0, "loss", "acc") + record(0, 1, [0.5, 0.1]))
    b.send(stream, "records", record(0, 2, [0.2, math.nan]) + record(0, 3, [0.9, 0.4]))
    b.send(stream, "records", records(0, range(4, 104), [[0.3] * 100, [math.inf] * 100]))
    assert of(b, "loss") == Summary(0.3, 0.2, 2, 0.9, 3, 103, 103)
    assert of(b, "acc") == Summary(math.inf, 0.1, 1, 0.4, 3, 103, 103)
    assert of(b, "loss").best("min") == (0.2, 2)
    assert of(b, "acc").value("best", "acc") == 0.4


def test_a_series_without_a_finite_value_has_no_range(b: Bench) -> None:
    b.send("metrics-0-1-aaaaaa.0", "records", schema(0, "loss") + record(0, 1, [math.nan]))
    found = of(b, "loss")
    assert math.isnan(found.last)
    assert (found.low, found.high, found.best("min")) == (None, None, (None, 1))


def test_the_lowest_rank_counts_over_all_attempts(b: Bench) -> None:
    job, key = new_job(b.store, "again", attempts=2)
    first = TaskKey(key.uuid, 1, "worker-0")
    b.send("metrics-0-1-aa.0", "records", schema(0, "loss") + record(0, 1, [0.1]), first)
    b.send("metrics-0-2-bb.0", "records", schema(0, "loss") + record(0, 1, [0.7]), key)
    b.send("metrics-1-3-cc.0", "records", schema(0, "loss") + record(0, 1, [0.0]), key)
    assert of(b, "loss", job.pk) == Summary(0.7, 0.7, 1, 0.7, 1, 1, 2)  # step 1 was done again


def test_series_of_an_earlier_release_are_measured_and_then_kept(b: Bench) -> None:
    b.send("metrics-0-1-aa.0", "records", schema(0, "loss") + records(0, range(99), [range(99)]))
    b.write(
        lambda c: c.execute(
            "UPDATE latest SET low = NULL, low_step = NULL, high = NULL, high_step = NULL, ranged = 0"
        )
    )
    expected = Summary(98.0, 0.0, 0, 98.0, 98, 98, 99)
    assert of(b, "loss") == expected
    b.store.tidy()
    assert b.read(summaries.unranged) == []
    assert of(b, "loss") == expected


@pytest.mark.parametrize(
    ("command", "config"),
    [
        (["python", "t.py", "--lr", "0.1", "--name=x", "--amp", "--shift", "-5"],
         {"lr": 0.1, "name": "x", "amp": True, "shift": -5}),
        (["python", "t.py", "model.depth=3", "/data=x", "plain"], {"model.depth": 3}),
        (["python", "t.py", "--batch-size", "32", "--fast", "--no-cache"],
         {"batch_size": 32, "fast": True, "no_cache": True}),
        (["--lr=3"], {}), ([], {}),
    ],
)  # fmt: skip
def test_options_of_a_command_are_a_config(command: list[str], config: dict[str, Any]) -> None:
    assert effective_config.effective(None, json.dumps({"command": command})) == config


def test_a_config_is_flat_and_stands_above_parameters() -> None:
    spec = json.dumps({"command": ["x", "--lr", "9"], "parameters": {"lr": 1, "seed": 2}})
    config = json.dumps({"lr": 0.1, "model": {"depth": 3, "sizes": [1, 2]}, "empty": {}})
    assert effective_config.effective(config, spec) == {
        "lr": 0.1, "model.depth": 3, "model.sizes": "[1,2]", "empty": "{}", "seed": 2,
    }  # fmt: skip
    assert math.isnan(effective_config.effective('{"lr": NaN}', spec)["lr"])


def test_conditions_choose_jobs_in_every_list(b: Bench) -> None:
    b.write(lambda c: c.execute("UPDATE jobs SET deleted_ns = 1"))
    keys = []
    for lr in (0.01, 0.1, 1.0):
        job, key = new_job(b.store, "sweep", parameters={"lr": lr}, tags=[f"t{lr}"])
        b.send("metrics-0-1-aa.0", "records", schema(0, "acc") + record(0, 1, [1 - lr / 2]), key)
        keys.append(job.pk)

    def chosen(text: str) -> list[int]:
        condition = parse(text)
        found = b.read(job_conditions.chosen, keys, condition, NOW_NS + 60 * 10**9)
        chosen = JobFilter(where=condition, now_ns=NOW_NS + 60 * 10**9)
        ids = {row["id"] for row in b.read(listing.rows, chosen, NOW_NS)}
        assert ids == {row["id"] for row in b.read(query.job_rows, chosen, NOW_NS)}
        assert len(ids) == len(found)
        return [keys.index(pk) for pk in found]

    assert chosen("lr<0.5") == [0, 1]
    assert chosen("acc>0.9 and lr>0.05") == [1]
    assert chosen("tag=t1.0 or acc>0.99") == [0, 2]
    assert chosen("age>59 and age<=61s and name~'^sw.*p$'") == [0, 1, 2]
    assert chosen("metric.lr>0") == []
    assert chosen("command~'train\\.py' and elapsed=none") == [0, 1, 2]

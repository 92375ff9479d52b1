"""What the page reads from the store: the table of jobs, windows of charts, lines by their number."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.model.errors import RefusedError, UsageError
from headway.store import (
    chart_window,
    compact,
    job_groups,
    job_table,
    line_counts,
    line_index,
    log_lines,
    page_layouts,
    series,
)
from headway.store.chart_window import Window
from headway.store.line_index import LineIndexes, MergedReader, Reader
from tests.storing import NOW_NS, Bench, bench, gap, new_job, records, schema
from tests.unit.test_store_logs import index

STREAM = "metrics-0-100-abcdef.0"


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


# -- charts


def log(b: Bench, values: Any) -> None:
    b.send(STREAM, "records", schema(0, "x") + records(0, range(len(values)), [values]))


def shown(b: Bench, **window: Any) -> chart_window.Line:
    (line,) = b.read(chart_window.lines, b.job.pk, b.job.id, ["x"], Window(**window), None, 10)
    return line


@pytest.mark.parametrize(
    "low, high", [(None, None), (0, 400_000), (250_000, 350_000), (299_990, 300_010)]
)
def test_a_spike_of_one_sample_is_visible_at_every_zoom(b: Bench, low: Any, high: Any) -> None:
    values = np.random.default_rng(1).random(400_000)
    values[300_000] = 1e6
    log(b, values)
    line = shown(b, low=low, high=high, pixels=300)
    assert 1e6 in line.y
    assert len(line.x) <= 300 * 5 + 4
    assert line.count == 400_000


def test_a_window_holds_real_points_and_a_neighbour_on_either_side(b: Bench) -> None:
    log(b, np.arange(1000.0))
    line = shown(b, low=100.5, high=200.5, pixels=2000)
    assert line.x.tolist() == [float(n) for n in range(100, 202)]
    assert (line.x == line.y).all()


def test_a_window_without_points_shows_what_is_beside_it(b: Bench) -> None:
    log(b, np.arange(10.0))
    assert shown(b, low=3.2, high=3.8, pixels=100).x.tolist() == [3.0, 4.0]


def test_what_is_not_finite_stays_visible(b: Bench) -> None:
    values = np.random.default_rng(1).random(50_000)
    values[1234], values[40_000] = np.nan, np.inf
    log(b, values)
    line = shown(b, pixels=200)
    assert np.isnan(line.y).any()
    assert np.isposinf(line.y).any()


def test_a_metric_can_be_the_axis(b: Bench) -> None:
    data = schema(0, "x", "epoch") + records(0, range(6), [range(6), [0, 0, 0, 1, 1, 2]])
    b.send(STREAM, "records", data)
    assert shown(b, x="epoch").x.tolist() == [0, 0, 0, 1, 1, 2]


def test_news_are_exactly_what_came_since(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "COMPACT_ROWS": 40,
        "VALUES_MAX": 80,
        "ROWS_MIN": 16,
        "BLOCKS_MERGE": 4,
    }.items():
        monkeypatch.setattr(compact, name, value)
    b.send(STREAM, "records", schema(0, "x"))
    for start in range(0, 300, 30):
        b.send(STREAM, "records", records(0, range(start, start + 30), [range(start, start + 30)]))
    key = shown(b).key
    for known in (0, 1, 29, 30, 299):
        ((found, before, points),) = b.read(chart_window.news, {key: known}, b.job.pk, 10_000)
        assert (found, before) == (key, known)
        assert points.values.tolist() == [float(n) for n in range(known, 300)]
    assert b.read(chart_window.news, {key: 300}, b.job.pk, 10_000) == []
    assert b.read(series.read_last, key, 1000).values.tolist() == [float(n) for n in range(300)]


# -- lines


def output(b: Bench, name: str) -> log_lines.Output:
    stream, rank = name.split("-")
    return next(
        one
        for one in b.read(log_lines.outputs, b.job.pk)
        if one.stream == stream and one.rank == int(rank)
    )


def reader(b: Bench, c: Any, indexes: LineIndexes, name: str = "stdout-0") -> Reader:
    return Reader(c, b.paths, output(b, name), indexes)


def test_every_line_is_found_by_its_number(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 64)
    chance = random.Random(3)
    texts = ["x" * chance.choice((0, 1, 7, 63, 64, 200)) + str(n) for n in range(400)]
    indexes = LineIndexes()
    sent = 0
    while sent < len(texts):  # it grows while somebody looks
        some = texts[sent : sent + chance.randrange(1, 40)]
        b.send("stdout-0", "raw", "".join(f"{text}\n" for text in some).encode())
        sent += len(some)
        with b.store.read() as c:
            found = reader(b, c, indexes)
            assert found.total == sent
            place = chance.randrange(sent)
            assert [line.text for line in found.lines(place, 3)] == texts[
                place : min(place + 3, sent)
            ]
    with b.store.read() as c:
        for number in range(len(texts)):
            assert reader(b, c, indexes).lines(number, 1)[0].text == texts[number]


def test_counts_of_a_long_log_outlive_the_server(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 64)
    monkeypatch.setattr(line_counts, "FROM_BYTES", 1000)
    b.send("stdout-0", "raw", b"".join(b"line %d\n" % n for n in range(500)))
    with b.store.read() as c:
        assert reader(b, c, LineIndexes()).total == 500
    [kept] = (b.paths.home / "cache" / "lines").iterdir()
    b.send("stdout-0", "raw", b"one more\n")
    with b.store.read() as c:
        counted: list[int] = []
        before = line_index.StreamIndex._count

        def count(self: line_index.StreamIndex, piece: Any) -> None:
            counted.append(piece.offset)
            before(self, piece)

        monkeypatch.setattr(line_index.StreamIndex, "_count", count)
        found = reader(b, c, LineIndexes())
        assert found.total == 501
        assert found.lines(321, 1)[0].text == "line 321"
        assert min(counted) > 0  # only what came since was read
        kept.write_bytes(kept.read_bytes()[:-8])  # torn: it is counted anew
        assert reader(b, c, LineIndexes()).total == 501
        assert min(counted) == 0


def test_a_last_line_without_its_end_is_a_line(b: Bench) -> None:
    b.send("stdout-0", "raw", b"one\ntwo")
    with b.store.read() as c:
        found = reader(b, c, LineIndexes())
        assert [(line.number, line.text) for line in found.lines(0, 10)] == [(0, "one"), (1, "two")]


def test_what_is_missing_is_one_line_that_says_so(b: Bench) -> None:
    b.send("stdout-0", "raw", b"one\n")
    b.ingest(gap("stdout-0", 4, 1000))
    b.sent[f"{b.key} stdout-0"] = 1004
    b.send("stdout-0", "raw", b"two\nthree\n")
    with b.store.read() as c:
        found = reader(b, c, LineIndexes())
        texts = [line.text for line in found.lines(0, 10)]
        assert (
            texts[0] == "one"
            and "1,000 bytes missing" in texts[1]
            and texts[2:] == ["two", "three"]
        )
        assert found.total == 4
        assert [line.text for line in found.lines(3, 1)] == ["three"]


def test_merged_lines_are_in_the_order_of_time_and_each_has_one_number(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_index, "_BUCKET_BYTES", 100)
    chance = random.Random(5)
    expected: list[tuple[int, str]] = []
    for rank in range(3):
        text, entries = b"", []
        for n in range(200):
            at_us = n * 10 + chance.randrange(10)
            entries.append((len(text), at_us))
            line = f"rank {rank} line {n}"
            expected.append((at_us, line))
            text += line.encode() + b"\n"
        times = np.maximum.accumulate([at for _, at in entries]).tolist()
        b.send(f"stdout-{rank}", "raw", text)
        b.send(
            f"stdout-{rank}.index",
            "index",
            index(*((o, t) for (o, _), t in zip(entries, times, strict=True))),
        )
    chosen = b.read(log_lines.outputs, b.job.pk)
    with b.store.read() as c:
        merged = MergedReader(c, b.paths, chosen, LineIndexes())
        assert merged.total == 600
        everything = merged.lines(0, 600)
        assert [line.number for line in everything] == list(range(600))
        assert sorted(line.text for line in everything) == sorted(text for _, text in expected)
        moments = [line.time_us or 0 for line in everything]
        assert moments == sorted(moments)
        for first in range(0, 600, 37):
            assert [line.text for line in merged.lines(first, 5)] == [
                line.text for line in everything[first : first + 5]
            ]
        places = [(stream, 0) for stream in range(3)]
        assert [everything[n].text for n in merged.numbers_of(places)] == [
            line.text for line in everything if line.text.endswith("line 0")
        ]


# -- the table


def table(b: Bench, text: str, sort: str = "-submitted") -> list[str]:
    window = b.read(job_table.window, text, sort, 0, 100)
    rows = b.read(job_table.rows, window.keys, [], [], NOW_NS)
    assert window.total == len(rows)
    return [str(row["name"]) for row in rows]


@pytest.fixture
def jobs(b: Bench) -> Bench:
    for number, name in enumerate(("alpha", "beta", "gamma")):
        job, _ = new_job(
            b.store,
            name,
            experiment="sweep" if number else None,
            tags=["good"] if number == 1 else [],
        )

        def tell(c: Any, pk: int = job.pk, number: int = number) -> None:
            c.execute(
                "UPDATE jobs SET config = :config, submitted_ns = submitted_ns + :n WHERE pk = :pk",
                {
                    "config": f'{{"lr": 0.{number}, "model": {{"name": "net{number}"}}}}',
                    "n": number + 1,
                    "pk": pk,
                },
            )

        b.write(tell)
    return b


@pytest.mark.parametrize(
    "text, names",
    [
        ("", ["gamma", "beta", "alpha", "train"]),
        ("alpha", ["alpha"]),
        ("-alpha -beta", ["gamma", "train"]),
        ("exp:sweep", ["gamma", "beta"]),
        ("tag:good", ["beta"]),
        ("state:waiting beta", ["beta"]),
        ("state:failed", []),
        ("config.lr>0.05", ["gamma", "beta"]),
        ("config.lr=0.2", ["gamma"]),
        ("config.model.name=net1", ["beta"]),
        ("config.model.name~NET", ["gamma", "beta", "alpha"]),
        ('"100%"', []),
        ("train.py", ["gamma", "beta", "alpha", "train"]),
        ("name:alpha,beta", ["beta", "alpha"]),
        ("where lr > 0.05 and tag = good", ["beta"]),
        ("exp:sweep where lr < 0.15", ["beta"]),
    ],
)
def test_the_search_chooses_jobs(jobs: Bench, text: str, names: list[str]) -> None:
    assert table(jobs, text) == names


def test_the_table_is_sorted_with_what_is_unknown_last(jobs: Bench) -> None:
    assert table(jobs, "", "name") == ["alpha", "beta", "gamma", "train"]
    assert table(jobs, "", "-config.lr") == ["gamma", "beta", "alpha", "train"]
    assert table(jobs, "", "config.lr") == ["alpha", "beta", "gamma", "train"]


def test_a_search_that_makes_no_sense_is_refused_and_says_why(jobs: Bench) -> None:
    for text, sort in (
        ("state:asleep", "name"),
        ("since:yesterday", "name"),
        ("", "colour"),
        ("where lr <", "name"),
    ):
        with pytest.raises(UsageError):
            jobs.read(job_table.window, text, sort, 0, 10)


def test_a_search_cannot_become_sql(jobs: Bench) -> None:
    for text in (
        "x' OR 1=1 --",
        'config.a"b>1',
        "metric.'; DROP TABLE jobs;--=1",
        "tag:'",
        "%",
        "_",
    ):
        jobs.read(job_table.window, text, "-submitted", 0, 10)
    assert len(table(jobs, "")) == 4
    jobs.read(job_table.window, "", "config.a' OR '1", 0, 10)


# -- groups


def test_jobs_are_grouped_by_experiment_and_settings(jobs: Bench) -> None:
    found = jobs.read(job_groups.read, "config.lr>=0", ["experiment"], [])
    assert [(group["values"], group["jobs"]) for group in found["groups"]] == [
        (["sweep"], 2),
        ([None], 1),
    ]
    by_lr = jobs.read(job_groups.read, "exp:sweep", ["config.lr"], [])
    assert [group["values"] for group in by_lr["groups"]] == [[0.2], [0.1]]


def test_all_settings_but_one_are_those_that_differ(jobs: Bench) -> None:
    found = jobs.read(job_groups.read, "exp:sweep", ["!lr"], [])
    assert found["by"] == ["config.model.name"]


def test_a_group_has_mean_and_spread_of_the_last_values(b: Bench) -> None:
    log(b, [5.0, 2.0])
    [group] = b.read(job_groups.read, "", ["name"], ["x"])["groups"]
    assert group["metrics"]["x"] == {
        "mean": 2.0, "deviation": 0.0, "min": 2.0, "max": 2.0, "jobs": 1,
    }  # fmt: skip


def test_what_jobs_cannot_be_grouped_by_is_said(jobs: Bench) -> None:
    with pytest.raises(UsageError, match="cannot be grouped"):
        jobs.read(job_groups.read, "", ["pk; drop table jobs"], [])


# -- layouts


def test_a_layout_is_kept_replaced_and_removed(b: Bench) -> None:
    for pins in (["loss"], ["loss", "acc"]):
        b.write(lambda c, pins=pins: page_layouts.write(c, "charts", "voc", {"pins": pins}, 1))
    [found] = b.read(page_layouts.read, "charts", "voc")
    assert found["data"] == {"pins": ["loss", "acc"]}
    assert b.read(page_layouts.read, "view", None) == []
    b.write(lambda c: page_layouts.write(c, "charts", "voc", None, 2))
    assert b.read(page_layouts.read, "charts", None) == []


def test_there_is_an_end_to_layouts(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_layouts, "PAGE_LAYOUTS_MAX", 1)
    b.write(lambda c: page_layouts.write(c, "view", "one", {}, 1))
    with pytest.raises(RefusedError):
        b.write(lambda c: page_layouts.write(c, "view", "two", {}, 1))

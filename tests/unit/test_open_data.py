"""SQL and Parquet over the store: every table is there, and a query can do nothing but read."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from headway.model.errors import HeadwayError, RefusedError, UsageError
from headway.store import open_data, open_data_child, open_tables
from tests.storing import Bench, bench, new_job, record, records, schema


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    made.send(
        "metrics-0-1-aa.0", "records", schema(0, "loss", "acc") + record(0, 1, [0.5, math.nan])
    )
    made.send("metrics-0-1-aa.0", "records", records(0, range(2, 52), [[0.25] * 50, [0.9] * 50]))
    made.send("stdout-0", "raw", b"hello\nworld\n")
    new_job(made.store, "other", parameters={"lr": 0.1, "opt": "adam"}, tags=["a"])
    yield made
    made.store.close()


def asked(b: Bench, query: str, jobs: list[int] | None = None) -> list[list[Any]]:
    request = {
        "query": query, "jobs": [1, 2] if jobs is None else jobs, "home": str(b.paths.home),
        "database": str(b.paths.db),
    }  # fmt: skip
    found: list[list[Any]] = open_data_child._query(request)["rows"]
    return found


def test_every_table_can_be_asked(b: Bench) -> None:
    for name in open_tables.TABLES:
        assert asked(b, f"select count(*) >= 0 from {name}") == [[True]]
        assert len(asked(b, f"describe {name}")) == len(open_tables.SCHEMAS[name])
    assert open_data.TABLES == open_tables.TABLES


def test_metrics_are_a_row_a_point_before_and_after_compaction(b: Bench) -> None:
    query = """select name, count(*), sum(step), count(*) filter (isnan(value)) from metrics
               where job = (select id from jobs where name = 'train') group by name order by name"""
    expected = [["acc", 51, sum(range(1, 52)), 1], ["loss", 51, sum(range(1, 52)), 0]]
    assert asked(b, query) == expected
    b.end()
    b.store.tidy()
    assert asked(b, query) == expected
    assert asked(b, "select value from metrics where step = 1 order by name") == [["NaN"], [0.5]]


def test_config_logs_and_jobs_join(b: Bench) -> None:
    assert asked(
        b,
        "select j.name, c.value, c.number from jobs j join config c on c.job = j.id order by c.key",
    ) == [["other", "0.1", 0.1], ["other", "adam", None]]
    assert asked(b, 'select text from logs order by "offset"') == [["hello"], ["world"]]
    assert asked(b, "select tags from jobs where name = 'other'") == [[["a"]]]
    assert asked(b, "select count(*) from jobs", [2]) == [[1]]


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'", "from read_text('/etc/hosts')",
        "select * from read_blob('/etc/hosts')", "select * from glob('/*')", "copy jobs to '{}/x.csv'",
        "copy (select 1) to '{}/x.parquet'", "attach '{}/x.db'", "install httpfs", "load sqlite",
        "set enable_external_access = true", "reset enable_external_access", "pragma enable_profiling",
        "create table x as select 1", "insert into jobs values (1)", "drop view jobs", "delete from jobs",
        "explain analyze copy jobs to '{}/x.csv'", "select 1; select 2", "select getenv('HOME')",
        "export database '{}'", "call dbgen(sf = 1)", "checkpoint", "vacuum", "use temp", "selec", "",
        "select * from parquet_scan('s3://b/x')", "select * from request",
    ],
)  # fmt: skip
def test_a_query_can_do_nothing_but_read(b: Bench, tmp_path: Path, query: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(HeadwayError):
        asked(b, query.format(tmp_path))
    assert sorted(tmp_path.iterdir()) == before


def test_a_query_that_runs_for_ever_is_ended_and_the_child_answers_others(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_data.query(b.paths, "select count(*) from jobs", [1])["rows"] == [[1]]
    with pytest.raises(UsageError, match="the query failed"):
        open_data.query(b.paths, "select nothing from jobs", [1])
    monkeypatch.setattr(open_data, "SQL_TIMEOUT_S", 2.0)
    with pytest.raises(RefusedError, match="was ended"):
        open_data.query(
            b.paths, "select count(*) from range(100000000000) a, range(1000000) b", [1]
        )


def test_more_points_than_fit_are_refused_with_what_to_do(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with b.store.read() as c, pytest.raises(RefusedError, match="more than 10 points"):
        list(open_tables.batches(c, b.paths, "metrics", [1], points_max=10))


def test_a_table_is_exported_as_parquet(b: Bench) -> None:
    data = open_data.export(b.paths, "metrics", [1, 2])
    table = parquet.read_table(io.BytesIO(data))
    assert table.num_rows == 102
    expected = ["job", "attempt", "rank", "name", "step", "time", "value", "redone"]
    assert table.column_names == expected
    assert not list(b.paths.home.glob("export-*"))
    with pytest.raises(UsageError, match="no table"):
        open_data.export(b.paths, "passwords", [1])


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RefusedError) as error:
        open_data.check_installed()
    assert "headway[sql]" in error.value.hint

"""Brief lists: the table of `hw ls` is the same as from whole objects, whatever the jobs are."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import UsageError
from headway.model.job import State
from headway.store import catalog, listing, query
from headway.store.catalog import JobFilter
from headway.views.cli import ls
from headway.views.terminal import Output
from tests.storing import NOW_NS, Bench, bench, new_job, record, schema

CAUSE = {"cause": "oom", "class": "user", "text": "out of memory on rank 3", "rank": 3}
LATER_NS = NOW_NS + 90_000_000_000


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def in_state(b: Bench, name: str, *states: State, **spec: Any) -> int:
    job, _ = new_job(b.store, name, **spec)

    def move(c: Any) -> None:
        for state in states:
            over: dict[str, Any] = {"ended_ns": LATER_NS} if state is states[-1] and state is not State.RUNNING else {}
            catalog.set_job_state(c, job.pk, state, NOW_NS + 1, started_ns=NOW_NS, **over)

    b.write(move)
    return job.pk


def test_the_table_is_the_same_from_brief_rows_as_from_whole_objects(b: Bench) -> None:
    b.send("metrics-0-1-aaaaaa.0", "records", schema(0, "loss", "lr") + record(0, 1, [0.5, math.nan]))
    first, _ = new_job(b.store, "first", experiment="exp", gpus=4, tags=["a", "b"], parameters={"lr": 0.1})
    odd, _ = new_job(b.store, "odd", parameters={"lr": math.nan}, host="desk", guest_of="laptop")
    new_job(b.store, "after", attempts=0, after=[first.uuid])
    for state in (State.FAILED, State.STOPPED, State.SUCCEEDED, State.UNKNOWN):
        in_state(b, str(state), State.RUNNING, state)
    failed = in_state(b, "why", State.RUNNING, State.FAILED)
    again = in_state(b, "again", State.RUNNING)
    retry = {"do": "again", "counted": True, "text": "t", "wait_s": 5.0, "not_before_ns": LATER_NS}

    def more(c: Any) -> None:
        catalog.set_attempt(c, failed, 1, cause=CAUSE)
        catalog.set_attempt(c, again, 1, state=State.FAILED, retry=retry)
        catalog.set_job_state(c, again, State.WAITING, NOW_NS + 2)

    b.write(more)
    brief, whole = b.read(listing.rows, JobFilter(), LATER_NS), b.read(query.job_rows, JobFilter(), LATER_NS)
    assert len(brief) == len(whole) == 10 and "lr=nan" in "".join(shown(brief))
    assert shown(brief) == shown(whole)
    assert odd.id in "".join(shown(brief))


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return ls.listing(rows, Output(1, color="never", ascii_only=False), datetime(2026, 9, 22, tzinfo=UTC))


def test_brief_lists_take_the_same_filters(b: Bench) -> None:
    for number in range(5):
        new_job(b.store, f"job{number}")
    assert len(b.read(listing.rows, JobFilter(limit=3), NOW_NS)) == 3
    assert [row["name"] for row in b.read(listing.rows, JobFilter(match="job[13]"), NOW_NS)] == ["job3", "job1"]
    assert b.read(listing.rows, JobFilter(states=["failed"]), NOW_NS) == []
    with pytest.raises(UsageError):
        b.read(listing.rows, JobFilter(match="("), NOW_NS)

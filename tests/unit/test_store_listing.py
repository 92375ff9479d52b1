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
from headway.views.text import format as fmt
from headway.views.text.terminal import Output
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
            over: dict[str, Any] = (
                {"ended_ns": LATER_NS} if state is states[-1] and state is not State.RUNNING else {}
            )
            catalog.set_job_state(c, job.pk, state, NOW_NS + 1, started_ns=NOW_NS, **over)

    b.write(move)
    return job.pk


def test_the_table_is_the_same_from_brief_rows_as_from_whole_objects(b: Bench) -> None:
    b.send(
        "metrics-0-1-aaaaaa.0", "records", schema(0, "loss", "lr") + record(0, 1, [0.5, math.nan])
    )
    first, _ = new_job(
        b.store, "first", experiment="exp", gpus=4, tags=["a", "b"], parameters={"lr": 0.1}
    )
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
    brief, whole = (
        b.read(listing.rows, JobFilter(), LATER_NS),
        b.read(query.job_rows, JobFilter(), LATER_NS),
    )
    assert len(brief) == len(whole) == 10 and "nan" in "".join(shown(brief))
    # what differs in commands and configs is read for whole rows alone
    bare = [{k: v for k, v in row.items() if k not in ("command", "config")} for row in whole]
    assert shown(brief) == shown(bare)
    assert odd.id in "".join(shown(brief))


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return ls.listing(
        rows, Output(1, color="never", ascii_only=False), datetime(2026, 9, 22, tzinfo=UTC)
    )


def test_brief_lists_take_the_same_filters(b: Bench) -> None:
    for number in range(5):
        new_job(b.store, f"job{number}")
    assert len(b.read(listing.rows, JobFilter(limit=3), NOW_NS)) == 3
    assert [row["name"] for row in b.read(listing.rows, JobFilter(match="job[13]"), NOW_NS)] == [
        "job3",
        "job1",
    ]
    assert b.read(listing.rows, JobFilter(states=["failed"]), NOW_NS) == []
    with pytest.raises(UsageError):
        b.read(listing.rows, JobFilter(match="("), NOW_NS)


# -- beside the state


def notes(b: Bench, now_ns: int = LATER_NS) -> dict[str, str]:
    """What stands beside each job, by its name; the same from brief rows and from whole ones."""
    now = datetime.fromtimestamp(now_ns / 1e9, UTC)
    brief = {row["name"]: ls.note(row, now) for row in b.read(listing.rows, JobFilter(), now_ns)}
    assert brief == {
        row["name"]: ls.note(row, now) for row in b.read(query.job_rows, JobFilter(), now_ns)
    }
    return brief


def test_a_job_that_waits_says_how_many_are_ahead_of_it_in_its_queue(b: Bench) -> None:
    first, _ = new_job(b.store, "first", attempts=0)
    new_job(b.store, "second", attempts=0)
    new_job(b.store, "later", attempts=0, after=[first.uuid])
    new_job(b.store, "third", attempts=0)
    new_job(b.store, "urgent", attempts=0, priority=5)
    new_job(b.store, "elsewhere", attempts=0, cluster="lab")
    found = notes(b)
    assert {name: found[name] for name in ("urgent", "first", "second", "third", "elsewhere")} == {
        "urgent": "next", "first": "1 ahead", "second": "2 ahead", "third": "3 ahead", "elsewhere": "next",
    }  # fmt: skip
    assert found["later"] == f"after {first.id.rsplit('-', 1)[1]}"


@pytest.mark.parametrize(
    ("word", "note"),
    [("PENDING (Resources)", "Resources"), ("PENDING (JobHeldUser)", "held"), ("PENDING", ""), (None, ""),
     ("PENDING (ReqNodeNotAvail, UnavailableNodes:node7)", "ReqNodeNotAvail"),
     ("PENDING (Nodes required for job are DOWN, DRAINED or reserved for jobs in higher partitions)", "Resources")],
)  # fmt: skip
def test_a_job_in_a_schedulers_queue_has_the_schedulers_word(
    b: Bench, word: str | None, note: str
) -> None:
    job, _ = new_job(b.store, "queued", cluster="lab")
    b.write(lambda c: catalog.set_attempt(c, job.pk, 1, engine_word=word))
    assert notes(b)["queued"] == note


def test_nodes_progress_and_the_last_word_of_an_unknown_job_are_told(b: Bench) -> None:
    pk = in_state(b, "lost", State.RUNNING, State.UNKNOWN)

    def spoken(c: Any) -> None:
        c.execute("UPDATE jobs SET engine = 'slurm', ended_ns = NULL WHERE pk = ?", (pk,))
        c.execute(
            """UPDATE tasks SET node = 'node3', heard_ns = ?
               WHERE attempt = (SELECT pk FROM attempts WHERE job = ?)""",
            (LATER_NS - 180 * 10**9, pk),
        )

    b.write(spoken)
    (row,) = [row for row in b.read(listing.rows, JobFilter(), LATER_NS) if row["name"] == "lost"]
    assert notes(b)["lost"] == "last heard 3 min 00 s ago" and row["nodes"] == ["node3"]
    assert "node3" in "".join(shown([row]))


def test_a_list_shows_an_ended_job_anew_when_it_changed_and_all_else_as_before(b: Bench) -> None:
    pk = in_state(b, "done", State.RUNNING, State.SUCCEEDED)
    other = in_state(b, "bad", State.RUNNING, State.FAILED)
    first = b.read(listing.rows, JobFilter(), LATER_NS)
    assert b.read(listing.rows, JobFilter(), LATER_NS + 10**9) == first
    b.write(lambda c: c.execute("UPDATE jobs SET tags = '[\"kept\"]' WHERE pk = ?", (pk,)) and None)
    b.write(lambda c: catalog.set_attempt(c, other, 1, cause=CAUSE))
    found = {row["name"]: row for row in b.read(listing.rows, JobFilter(), LATER_NS)}
    assert found["done"]["tags"] == ["kept"] and found["bad"]["cause"] == CAUSE


def test_a_list_is_whole_when_what_is_kept_of_ended_jobs_is_emptied_over_it(
    b: Bench, monkeypatch: Any
) -> None:
    monkeypatch.setattr(listing, "JOBS_KEPT_MAX", 2)
    monkeypatch.setattr(listing, "_ended", {})
    names = [row["name"] for row in b.read(listing.rows, JobFilter(), LATER_NS)]
    for name in ("first", "second", "third", "fourth"):
        in_state(b, name, State.RUNNING, State.SUCCEEDED)
        names.insert(0, name)
        assert [row["name"] for row in b.read(listing.rows, JobFilter(), LATER_NS)] == names
        assert len(listing._ended) <= 2


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["node1"], "node1"), (["node1", "node2"], "node[1-2]"), (["n9", "n10", "n7"], "n[7,9,10]"),
        (["n08", "n09", "n11"], "n[08-09,11]"), (["a", "b1"], "a,b1"), ([], ""), (["n" + "9" * 5000] * 2, None),
    ],
)  # fmt: skip
def test_nodes_are_written_as_schedulers_do(names: list[str], words: str | None) -> None:
    assert words is None or fmt.nodes(names) == words
    fmt.nodes(names)  # whatever they are called

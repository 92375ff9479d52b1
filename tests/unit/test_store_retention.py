"""gc removes rows and files of jobs that are deleted or old, and of no others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.model.errors import NotFoundError
from headway.model.job import State
from headway.store import catalog, retention
from headway.wire.batch import Part
from tests.storing import NOW_NS, Bench, bench, new_job, opening, record, records, schema

DAY_NS = 86_400 * 10**9
TABLES = (
    "attempts tasks processes streams gaps chunks schemas series bundles members blocks axes columns latest events "
    "tokens"
).split()


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def fill(b: Bench) -> None:
    stream = "metrics-0-1-aaaaaa.0"
    b.send(
        stream,
        "records",
        opening(stream) + schema(0, "x", "y") + records(0, range(500), [range(500), range(500)]),
    )
    b.tell(
        {"type": "process_started", "rank": 0, "pid": 1},
        {"type": "gap", "stream": "x", "records": 1},
    )
    b.send("stdout-0", "raw", b"text\n" * 1000)
    b.write(lambda c: catalog.insert_token(c, b.key.uuid[:8], b"h", "ingest", b.key, NOW_NS))


def rows(b: Bench, pk: int) -> int:
    return b.read(
        lambda c: sum(
            int(c.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in TABLES
        )
    )


def test_an_old_job_goes_with_all_its_rows_and_files(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SERIES_PER_STEP", 1)
    fill(b)
    b.end()
    b.store.tidy()
    b.send("metrics-0-1-aaaaaa.0", "records", record(0, 500, [1.0, 2.0]))
    folder = b.paths.logs / b.key.uuid
    assert folder.is_dir() and rows(b, b.job.pk) > 20
    b.clock.now_ns += 3 * DAY_NS
    assert b.store.gc(30).jobs == []
    would = b.store.gc(2, dry_run=True)
    assert (would.jobs, would.bytes > 4000, folder.is_dir()) == ([b.job.id], True, True)
    assert b.store.gc(2) == would
    assert (folder.exists(), rows(b, b.job.pk)) == (False, 0)
    with pytest.raises(NotFoundError):
        b.ingest(Part("stdout-0", "raw", 5000, b"late"))
    assert b.store.gc(2).jobs == []


def test_a_job_that_runs_or_is_young_stays(b: Bench) -> None:
    fill(b)
    b.clock.now_ns += 100 * DAY_NS
    young, _ = new_job(b.store)
    b.write(
        lambda c: catalog.set_job_state(c, young.pk, State.FAILED, b.clock(), ended_ns=b.clock())
    )
    assert b.store.gc(1).jobs == []
    assert b.store.gc(None).jobs == []
    assert b.object()["metrics"] == {"x": 499.0, "y": 499.0}


def test_a_deleted_job_goes_whatever_its_age(b: Bench) -> None:
    fill(b)
    other, _ = new_job(b.store)
    b.end()
    notes = [b.paths.coming(one.id) for one in (b.job, other)]  # of outputs that are not here
    for note in notes:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text("stay there")
    b.write(lambda c: catalog.mark_deleted(c, b.job.pk, b.clock()))
    assert b.store.gc(None).jobs == [b.job.id]
    assert [note.exists() for note in notes] == [False, True]
    assert b.read(catalog.load_job, other.pk).id == other.id


def test_folders_that_lost_their_job_are_removed_and_others_are_not(
    b: Bench, tmp_path: Path
) -> None:
    """As after a crash between rows and files."""
    fill(b)
    b.store.tidy()
    orphan = b.paths.logs / "00000000-0000-4000-8000-000000000000"
    (orphan / "1").mkdir(parents=True)
    (b.paths.logs / "notes").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (b.paths.logs / "00000000-0000-4000-8000-000000000001").symlink_to(outside)
    b.store.gc(None)
    assert not orphan.exists()
    assert (
        outside.exists()
        and (b.paths.logs / "notes").exists()
        and (b.paths.logs / b.key.uuid).exists()
    )


def test_a_key_that_was_deleted_is_never_given_again(b: Bench) -> None:
    fill(b)
    b.end()
    b.store.gc(0)
    again, _ = new_job(b.store)
    assert again.pk > b.job.pk

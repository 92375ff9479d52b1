"""A damaged database is set aside, the last good copy takes its place, and everybody is told (F15,
P10).
"""

import sqlite3
from pathlib import Path

import pytest

from headway.model.errors import DamagedError, HeadwayError
from headway.store import backup, catalog
from headway.store.connection import PAGE_BYTES
from tests.storing import Bench, bench, new_job, record, schema
from tests.waiting import wait_until

METRICS = "metrics-0-100-abcdef.0"


def fill(b: Bench) -> None:
    b.send(METRICS, "records", schema(0, "x") + record(0, 1, [1.0]))
    b.tell(*({"type": "note", "text": "x" * 2000} for _ in range(40)), stream="facts-0-1-aaaaaa")


def spoil(db: Path) -> None:
    """Turn every page but the first three into noise that no b-tree can be."""
    data = bytearray(db.read_bytes())
    for page in range(3, len(data) // PAGE_BYTES):
        data[page * PAGE_BYTES : page * PAGE_BYTES + 100] = b"\x55" * 100
    db.write_bytes(data)


def aside(b: Bench) -> list[str]:
    return sorted(
        p.name
        for p in b.paths.home.glob("headway.db.damaged-*")
        if not p.name.endswith(("-wal", "-shm"))
    )


def test_damage_found_at_the_start_is_set_aside_and_the_snapshot_restored(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    fill(b)
    assert backup.take(b.paths.db) is None
    late, _ = new_job(b.store, "late")
    b.store.close()
    spoil(b.paths.db)
    damaged = b.paths.db.read_bytes()
    b.store.open()
    assert b.store.restored is not None and "restored from the snapshot" in str(b.store.restored)
    (name,) = aside(b)
    assert (b.paths.home / name).read_bytes() == damaged
    assert b.object()["metrics"] == {"x": 1.0}
    assert b.read(catalog.resolve, late.id), "the journal knows what came after the snapshot"
    wait_until(lambda: b.events("restored"), 10, "the job's events tell of it")
    b.send(METRICS, "records", record(0, 2, [2.0]))
    b.store.close()


def test_damage_without_a_snapshot_starts_anew_and_says_so(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    fill(b)
    b.store.close()
    spoil(b.paths.db)
    b.store.open()
    assert "starts anew" in str(b.store.restored)
    assert len(aside(b)) == 1
    new_job(b.store)
    b.store.close()


def test_damage_met_while_running_is_never_served_and_repaired_without_a_restart(
    tmp_path: Path,
) -> None:
    b = bench(tmp_path / "home")
    fill(b)
    b.store.close()
    b.store.open()
    assert backup.take(b.paths.db) is None
    b.store.close()
    b.store.open()
    spoil(b.paths.db)
    b.store._pool.close()  # nothing cached
    with pytest.raises((DamagedError, HeadwayError)):
        for _ in range(3):
            b.events("note")
            b.object()
    wait_until(lambda: b.store.restored is not None, what="the snapshot is restored")
    wait_until(lambda: _works(b), 20, "reads work again")
    assert len(b.events("note")) == 40
    b.send(METRICS, "records", record(0, 2, [2.0]))
    assert len(aside(b)) == 1
    b.store.close()


def _works(b: Bench) -> bool:
    try:
        return bool(b.object())
    except HeadwayError:
        return False


def test_a_false_alarm_changes_nothing(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    b.store.damaged(DamagedError("somebody thought so"))
    b.write(lambda c: None)
    assert (b.store.restored, aside(b)) == (None, [])
    assert b.object()["id"] == b.job.id
    b.store.close()


def test_a_damaged_database_never_replaces_a_good_snapshot(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    fill(b)
    assert backup.take(b.paths.db) is None
    good = backup.snapshot_path(b.paths.db).read_bytes()
    b.store.close()
    spoil(b.paths.db)
    assert backup.take(b.paths.db) is not None
    assert backup.snapshot_path(b.paths.db).read_bytes() == good


def test_a_snapshot_is_a_whole_database_with_nothing_beside_it(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    fill(b)
    assert backup.take(b.paths.db) is None
    path = backup.snapshot_path(b.paths.db)
    with sqlite3.connect(path) as c:
        assert c.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert c.execute("SELECT count(*) FROM jobs").fetchone()[0] == 1
    c.close()
    assert path.stat().st_mode & 0o077 == 0
    assert not list(path.parent.glob(path.name + "?*"))
    b.store.close()


def test_snapshots_are_due_by_age_and_size_and_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "headway.db"
    assert not backup.is_due(db, 0, 10**9)
    db.write_bytes(b"x" * 1000)
    assert not backup.is_due(db, 1000.0, 1000.0 + backup.FIRST_S - 1)
    assert backup.is_due(db, 1000.0, 1000.0 + backup.FIRST_S)
    path = backup.snapshot_path(db)
    path.write_bytes(b"x")
    made_s = path.stat().st_mtime
    assert not backup.is_due(db, 0, made_s + backup.SNAPSHOT_SMALL_INTERVAL_S - 1)
    assert backup.is_due(db, 0, made_s + backup.SNAPSHOT_SMALL_INTERVAL_S)
    monkeypatch.setattr(backup, "SNAPSHOT_SMALL_BYTES", 10)
    assert not backup.is_due(db, 0, made_s + backup.SNAPSHOT_SMALL_INTERVAL_S)
    assert backup.is_due(db, 0, made_s + backup.SNAPSHOT_INTERVAL_S)
    monkeypatch.setattr(backup, "GIB", 2**60)
    assert not backup.is_due(db, 0, made_s + backup.SNAPSHOT_INTERVAL_S)


def test_housekeeping_takes_the_first_snapshot_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "FIRST_S", 0.0)
    monkeypatch.setattr("headway.store.housekeeping.PERIOD_S", 0.05)
    b = bench(tmp_path / "home", background=True)
    fill(b)
    wait_until(backup.snapshot_path(b.paths.db).exists, 20, "a snapshot")
    b.store.close()

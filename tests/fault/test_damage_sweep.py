"""Damage is local and told: two hundred seeded ones; `make soak` does thousands (A-7, A-8, A-9, A-11)."""

import json
import logging
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.home.paths import Paths
from headway.model.errors import DamagedError
from headway.store import catalog, listing, migrate, wal_check
from headway.store.database import Store
from headway.wire import sealed_json
from tests.damage import sweep
from tests.damage.sweep import examine, make
from tests.desk import HW
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def closed(tmp_path: Path) -> sweep.Home:
    (tmp_path / "closed").mkdir()
    return make(tmp_path / "closed", killed=False)


@pytest.fixture
def killed(tmp_path: Path) -> sweep.Home:
    (tmp_path / "killed").mkdir()
    return make(tmp_path / "killed", killed=True)


@pytest.mark.parametrize("seed", range(4))
def test_damage_never_makes_a_false_state_and_is_never_silent(tmp_path: Path, seed: int) -> None:
    for name in ("closed", "killed"):
        (tmp_path / name).mkdir()
    seen = sweep.sweep(tmp_path, seed, 50)
    assert seen.total() == 50


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_a_flipped_bit_in_the_schema_is_damage(closed: sweep.Home) -> None:
    """A-7: SQLite's own message cannot be decoded then."""
    db = Paths(closed.folder).db
    change(db, b"CREATE TABLE jobs", b"CREATE TABLE j\xefbs")
    assert examine(closed, closed.folder) == "told"


def test_a_table_under_another_name_is_damage(closed: sweep.Home) -> None:
    db = Paths(closed.folder).db
    c = sqlite3.connect(db)
    c.execute("PRAGMA foreign_keys = OFF")
    c.execute("ALTER TABLE gaps RENAME TO gbps")
    c.commit()
    c.close()
    assert examine(closed, closed.folder) == "told"


@pytest.mark.parametrize(
    "column, value",
    [
        ("spec", b'{"command":["\xf0rue"],"cwd":"/","name":"x"}'),
        ("spec", b'{"command":["true"],"cwd":"/"x"name":"x"}'),
        ("state", b"succfeded"),
        ("tags", b"[}"),
        ("cause", b"{nothing"),
        ("name", b"\xff\xfe"),
    ],
)
def test_a_row_that_cannot_be_read_costs_itself(
    closed: sweep.Home, column: str, value: bytes
) -> None:
    """A-8: one job's row took the list away for all."""
    c = sqlite3.connect(Paths(closed.folder).db)
    first = c.execute("SELECT id FROM jobs WHERE state = 'succeeded' LIMIT 1").fetchone()[0]
    c.execute(f"UPDATE jobs SET {column} = CAST(? AS TEXT) WHERE id = ?", (value, first))
    c.commit()
    c.close()
    store = Store(Paths(closed.folder), background=False)
    store.open()
    try:
        rows = sweep._ask(store, lambda c: listing.rows(c, catalog.JobFilter(), sweep.NOW_NS))
        sweep._ask(store, lambda c: catalog.list_jobs(c))
        assert len(rows) == sweep.JOBS
        shown = {row["id"]: row["state"] for row in rows}
        others = {job: true.state for job, true in closed.jobs.items() if job != first}
        assert {job: shown[job] for job in others} == others
        assert shown[first] == ("unknown" if column == "state" else "succeeded")
        (notice,) = store.notices.all()
        assert f"jobs.{column}" in notice["text"]
    finally:
        store.close()


def test_a_waiting_job_whose_command_is_damaged_is_not_run(closed: sweep.Home) -> None:
    c = sqlite3.connect(Paths(closed.folder).db)
    first = c.execute("SELECT id FROM jobs WHERE state = 'waiting' LIMIT 1").fetchone()[0]
    c.execute("DELETE FROM attempts WHERE job = (SELECT pk FROM jobs WHERE id = ?)", (first,))
    c.execute(
        "UPDATE jobs SET spec = CAST(? AS TEXT) WHERE id = ?",
        (b'{"command":["\xf0m"],"cwd":"/","name":"x"}', first),
    )
    c.commit()
    c.close()
    store = Store(Paths(closed.folder), background=False)
    store.open()
    try:
        rows = sweep._ask(store, lambda c: listing.rows(c, catalog.JobFilter(), sweep.NOW_NS))
        (row,) = [row for row in rows if row["id"] == first]
        assert row["state"] == "failed" and "was not run" in row["cause"]["text"]
    finally:
        store.close()


@pytest.mark.parametrize("how", ["remove", "remove both", "cut", "flip"])
def test_a_write_ahead_log_that_lacks_something_is_told(killed: sweep.Home, how: str) -> None:
    """A-11: acknowledged commits were lost without a word."""
    wal = Path(f"{Paths(killed.folder).db}-wal")
    data = bytearray(wal.read_bytes())
    if how == "cut":
        wal.write_bytes(data[: len(data) // 2])
    elif how == "flip":
        data[len(data) // 2] ^= 1
        wal.write_bytes(data)
    else:
        wal.unlink()
        if how == "remove both":
            Path(f"{Paths(killed.folder).db}-shm").unlink()
    assert examine(killed, killed.folder) == "told"


def test_a_whole_write_ahead_log_is_played_and_nothing_is_told(killed: sweep.Home) -> None:
    assert examine(killed, killed.folder) == "sound"


def test_a_foreign_log_beside_a_killed_servers_database_is_set_aside(
    killed: sweep.Home, tmp_path: Path
) -> None:
    """A-9, B31."""
    (tmp_path / "other").mkdir()
    other = make(tmp_path / "other", killed=True)
    wal = Path(f"{Paths(killed.folder).db}-wal")
    wal.write_bytes(Path(f"{Paths(other.folder).db}-wal").read_bytes())
    assert examine(killed, killed.folder) == "told"
    assert list(killed.folder.glob("headway.db-wal.foreign-*"))


def test_the_index_of_a_log_is_read_as_sqlite_wrote_it(killed: sweep.Home) -> None:
    index = wal_check.read_index(Paths(killed.folder).db)
    assert index is not None and index.unmoved > 0
    page = 8192
    size = Path(f"{Paths(killed.folder).db}-wal").stat().st_size
    assert index.frames <= (size - 32) // (page + 24)


def test_a_database_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "headway.db")
    with pytest.raises(Exception, match="not a plain file"):
        migrate.check_file(tmp_path / "headway.db")


def test_every_command_tells_of_damage_until_it_is_acknowledged(home: Path) -> None:
    """A-9."""

    def hw(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*HW, *words], capture_output=True, text=True, timeout=120,
            env={**os.environ, "HEADWAY_HOME": str(home)},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    assert hw("run", "true")[0] == 0
    # its agent has sent everything and is gone: without its token it would try for long
    spool = Paths(home).spool
    wait_until(lambda: not [path for path in spool.iterdir() if path.is_dir()], what="its end")
    assert hw("server", "stop")[0] == 0
    db = home / "headway.db"
    db.write_bytes(db.read_bytes()[:20_000])
    try:
        for words in (["ls"], ["ls", "--json"], ["server", "status"], ["doctor"]):
            _, out, err = hw(*words)
            assert "the database was damaged" in out + err, words
            if "--json" in words:
                json.loads(out)
        hw("server", "stop")
        assert "the database was damaged" in hw("ls")[2], "the next server tells it, too"
        assert hw("doctor", "--acknowledge")[0] == 0
        assert "damaged" not in hw("ls")[2]
    finally:
        hw("server", "stop")


def _change_spec(home: sweep.Home, state: str) -> str:
    """Another command, as valid as it was."""
    c = sqlite3.connect(Paths(home.folder).db)
    job, pk, spec = c.execute(
        "SELECT id, pk, spec FROM jobs WHERE state = ? LIMIT 1", (state,)
    ).fetchone()
    if state == "waiting":
        c.execute("DELETE FROM attempts WHERE job = ?", (pk,))
    other = json.loads(spec)
    other["command"][-1] += "y"
    c.execute("UPDATE jobs SET spec = ? WHERE pk = ?", (json.dumps(other), pk))
    c.commit()
    c.close()
    return str(job)


@pytest.mark.parametrize("state", ["succeeded", "waiting"])
def test_a_description_that_is_another_and_as_valid_is_told_and_not_run(
    closed: sweep.Home, state: str
) -> None:
    job = _change_spec(closed, state)
    store = Store(Paths(closed.folder), background=False)
    store.open()
    try:
        pk = sweep._ask(store, lambda c: catalog.resolve(c, job))
        found = sweep._ask(store, lambda c: catalog.load_job(c, pk))
        assert str(found.state) == ("succeeded" if state == "succeeded" else "failed")
        (notice,) = store.notices.all()
        assert "its checksum is another" in notice["text"]
        sweep._ask(store, lambda c: catalog.load_job(c, pk))  # told once
        assert len(store.notices.all()) == 1
        with store.read() as c:
            kept = c.execute("SELECT tab, col FROM damaged_values").fetchall()
        assert [tuple(row) for row in kept] == [("jobs", "spec")]
    finally:
        store.close()


@pytest.mark.parametrize("name", ["task.json", "env.json"])
def test_a_task_or_an_environment_that_is_another_and_as_valid_is_not_used(
    closed: sweep.Home, name: str
) -> None:
    (folder,) = (path for path in Paths(closed.folder).spool.iterdir() if path.is_dir())
    old, new = (b"0.1", b"0.7") if name == "task.json" else (b"value", b"valve")
    change(folder / name, old, new)
    assert examine(closed, closed.folder) == "told"
    assert folder.is_dir()


def test_an_environment_of_a_waiting_job_that_is_another_is_not_used(closed: sweep.Home) -> None:
    (path,) = Paths(closed.folder).env.iterdir()
    change(path, b"train.py", b"trail.py")
    assert examine(closed, closed.folder) == "told"


@pytest.mark.parametrize(
    "value", [{}, {"a": 1}, {"a": [1, {"b": "=check"}], "c": "\udc80"}, {"=x": "y", "z": ""}]
)
def test_a_sealed_file_is_read_as_it_was_written_and_every_flipped_bit_is_found(
    value: dict[str, object],
) -> None:
    data = sealed_json.encode(value)
    assert sealed_json.decode(data, "it") == value
    assert sealed_json.decode(json.dumps(value).encode(), "of an earlier release") == value
    wrong = []
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            try:
                found = sealed_json.decode(bytes(flipped), "it")
            except DamagedError:
                continue
            # the seal itself under another name: what it sealed is whole
            wrong += [bytes(flipped)] if {k: found.get(k) for k in value} != value else []
    assert not wrong

"""After a restore nothing that had run is run again, and nothing that runs is forgotten (A-10)."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from headway.home.paths import Paths
from headway.store import backup, catalog, catalog_journal
from headway.store.database import Store
from tests.driver import Hw
from tests.waiting import wait_until

ONCE = "import os, sys; open(os.path.join({folder!r}, sys.argv[1]), 'a').write('x')"


def kill_server(hw: Hw) -> None:
    os.kill(json.loads((hw.home / "server.json").read_text())["pid"], signal.SIGKILL)
    wait_until(lambda: hw("server", "status").returncode != 0, what="the server's end")


def spoil(home: Path) -> None:
    """As a disk does: the database is cut short, its log is gone."""
    db = home / "headway.db"
    db.write_bytes(db.read_bytes()[:3000])
    for name in ("headway.db-wal", "headway.db-shm"):
        (home / name).unlink(missing_ok=True)


def snapshot_now(home: Path) -> None:
    assert backup.take(home / "headway.db") is None


def without_journal(home: Path) -> None:
    for path in catalog_journal.files(home / "headway.db"):
        path.unlink()


def state_in_journal(home: Path, job: str) -> str | None:
    images, _ = catalog_journal.last_images(home / "headway.db")
    states = [image["job"]["state"] for image in images.values() if image["job"]["id"] == job]
    return states[0] if states else None


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
def test_jobs_that_had_run_are_not_run_again(home: Path, tmp_path: Path, journal: bool) -> None:
    hw = Hw(home, tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()
    hw.script(ONCE.format(folder=str(marks)))
    jobs = [
        hw.submit("python", "train.py", str(number), env={"HEADWAY_MAX_RUNNING": "1"})
        for number in range(4)
    ]
    later = hw.submit("--after", jobs[-1], "python", "train.py", "later")
    snapshot_now(home)  # while they wait
    for job in (*jobs, later):
        hw.wait_state(job, "succeeded")
    wait_until(  # the last half second may be missing in it
        lambda: {state_in_journal(home, job) for job in (*jobs, later)} == {"succeeded"},
        what="the ends in the journal",
    )
    kill_server(hw)
    if not journal:
        without_journal(home)
    spoil(home)
    rows = {row["id"]: row for row in hw.json("ls")}
    assert hw("run", "true").returncode == 0, "a job that is lost holds no place"
    rows = {row["id"]: row for row in hw.json("ls")}
    assert [len(path.read_text()) for path in marks.iterdir()] == [1] * 5
    expected = {"succeeded"} if journal else {"succeeded", "unknown"}
    wait_until(
        lambda: {hw.json("q", job)["state"] for job in (*jobs, later)} <= expected,
        what=f"an end of all: {[(job, rows[job]['state']) for job in (*jobs, later)]}",
    )
    rows = {row["id"]: row for row in hw.json("ls")}
    told = hw("ls").stderr.decode()
    assert "the database was damaged" in told
    if journal:
        assert "brought up to date by the journal" in told
    else:
        lost = [job for job in (*jobs, later) if rows[job]["state"] == "unknown"]
        assert lost and "hw resubmit" in rows[lost[0]]["cause"]["text"]
        again = hw.json("resubmit", lost[0])  # a person may say so
        hw.wait_state(again["id"], "succeeded")
    hw("server", "stop")


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
def test_a_job_that_runs_and_came_after_the_snapshot_is_there_again(
    home: Path, tmp_path: Path, journal: bool
) -> None:
    hw = Hw(home, tmp_path)
    hw.submit("true")
    snapshot_now(home)
    end = tmp_path / "end"
    hw.script(
        f"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({str(end)!r}):\n"
        "    time.sleep(0.02)\nprint('over')"
    )
    job = hw.submit("python", "train.py")
    hw.wait_state(job, "running")
    wait_until(lambda: b"begun" in hw("logs", job).stdout, what="its output")
    wait_until(lambda: state_in_journal(home, job) == "running", what="the job in the journal")
    kill_server(hw)
    if not journal:
        without_journal(home)
    spoil(home)
    hw.wait_state(job, "running")
    end.touch()
    hw.wait_state(job, "succeeded")
    assert b"over" in hw("logs", job).stdout
    hw("server", "stop")


# -- the journal


def made(folder: Path) -> tuple[Store, Paths, list[Any]]:
    from tests.storing import new_job, open_store

    store, paths, _ = open_store(folder)
    jobs = [new_job(store, f"job{number}")[0] for number in range(3)]
    store.journal.flush()
    return store, paths, jobs


def test_the_journal_brings_an_empty_database_to_what_was(tmp_path: Path) -> None:
    store, paths, jobs = made(tmp_path / "home")
    before = store_rows(store)
    store.close()
    for path in paths.home.glob("headway.db*"):
        if ".journal-" not in path.name:
            path.unlink()
    again = Store(paths, background=False)
    again.open()
    assert store_rows(again) == before and len(jobs) == 3
    assert "brought up to date" in again.notices.words or again.notices.words == ""
    again.close()


def store_rows(store: Store) -> list[tuple[Any, ...]]:
    with store.read() as c:
        return [
            tuple(row)
            for table in ("jobs", "attempts", "tasks")
            for row in c.execute(f"SELECT * FROM {table} ORDER BY pk")
        ]


def test_a_damaged_line_costs_itself_and_is_counted(tmp_path: Path) -> None:
    store, paths, _ = made(tmp_path / "home")
    store.close()
    (path,) = catalog_journal.files(paths.db)
    lines = path.read_bytes().splitlines(keepends=True)
    broken = bytearray(lines[0])
    broken[40] ^= 1
    path.write_bytes(bytes(broken) + b"".join(lines[1:]))
    shutil.copy(path, tmp_path / "kept")
    for other in paths.home.glob("headway.db*"):
        if ".journal-" not in other.name:
            other.unlink()
    (paths.logs / "x").mkdir(parents=True, exist_ok=True)
    again = Store(paths, background=False)
    again.open()
    with again.read() as c:
        assert len(catalog.list_jobs(c)) == len(lines) - 1
    assert "1 of its lines were damaged" in again.notices.words
    again.close()


def test_a_snapshot_makes_older_lines_unneeded(tmp_path: Path) -> None:
    store, paths, _ = made(tmp_path / "home")
    before = store.journal.begin_next()
    assert backup.take(paths.db) is None
    store.journal.drop(before)
    assert catalog_journal.files(paths.db) == []
    store.close()


def test_a_journal_that_grew_keeps_one_line_of_each_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, paths, jobs = made(tmp_path / "home")
    for _ in range(3):
        store.journal._bytes_max = 1
        store.journal.note(job.pk for job in jobs)
        store.journal.flush()
    (path,) = catalog_journal.files(paths.db)
    images, damaged = catalog_journal.last_images(paths.db)
    assert damaged == 0 and len(images) == 3
    assert all("spec" in image["job"] for image in images.values())
    assert len(path.read_bytes().splitlines()) == 3
    store.close()

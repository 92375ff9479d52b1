"""`hw doctor`: each thing that can be wrong with a machine or a home is found, named, and has
something to type.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import __version__
from headway.home.database_path import NETWORK_FILE_SYSTEMS, file_system_of
from headway.home.paths import socket_path
from headway.views.api.source import last_words
from headway.views.cli import doctor
from headway.views.cli.doctor import OK, PROBLEM, WARNING, Finding, examine
from headway.views.cli.main import main
from tests.fake_api import FakeApi, serving


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        found.on("GET", "/api/server", {"pid": 7, "version": __version__})
        yield found


def level(check: str) -> Finding:
    return next(found for found in examine() if found.check == check)


def test_a_good_home_has_no_problem(
    api: FakeApi, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    out = capfd.readouterr().out
    assert "problem" not in out and str(home) in out


def test_a_home_that_is_open_to_others_is_a_problem_with_its_cure(api: FakeApi, home: Path) -> None:
    home.chmod(0o750)
    assert level("home") == Finding(
        "home", PROBLEM, f"{home} is open to others (mode 0750)", f"chmod 700 {home}"
    )


def test_a_damaged_database_is_found_without_a_server(api: FakeApi, home: Path) -> None:
    """B31."""
    assert level("database").level == OK
    (home / "headway.db").write_bytes(b"not a database at all" * 100)
    found = level("database")
    assert found.level == PROBLEM and f"mv {home / 'headway.db'}" in found.advice


def test_a_sound_database_is_read_and_not_changed(api: FakeApi, home: Path) -> None:
    with sqlite3.connect(home / "headway.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = (home / "headway.db").read_bytes()
    assert level("database").level == OK
    assert (home / "headway.db").read_bytes() == before


def test_an_older_server_is_told_with_how_to_change_it(api: FakeApi) -> None:
    api.on("GET", "/api/server", {"pid": 7, "version": "0.0.1"})
    found = level("server")
    assert found.level == WARNING and "hw server stop" in found.advice


def test_a_database_that_was_restored_is_told(api: FakeApi) -> None:
    api.on(
        "GET",
        "/api/server",
        {
            "pid": 7,
            "version": __version__,
            "notices": [{"time": "T", "text": "the database was damaged (x)"}],
        },
    )
    assert "T: the database was damaged (x)" in [
        found.text for found in examine() if found.level == WARNING
    ]


def test_a_socket_folder_of_somebody_else_is_gone_round(home: Path) -> None:
    """A-15: whoever makes it first could keep us from using hw; then the socket lies in the home."""
    folder = socket_path(home).parent
    folder.rmdir()
    folder.write_text("")
    try:
        assert socket_path(home).parent == home / "run"
        assert stat.S_IMODE((home / "run").stat().st_mode) == 0o700
        assert level("socket").level == OK
    finally:
        folder.unlink()


def test_a_settings_file_with_a_mistake_is_a_problem(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_MAX_RUNNING", "many")
    found = level("settings")
    assert found.level == PROBLEM and "HEADWAY_MAX_RUNNING" in found.text


def test_a_network_file_system_is_known_by_the_mount_that_holds_the_home(tmp_path: Path) -> None:
    """F33."""
    device = tmp_path.stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 2 0:999 / / rw - ext4 /dev/x rw\n"
        f"3 4 {os.major(device)}:{os.minor(device)} / /home rw,relatime shared:1 - nfs4 server:/home rw\n"
    )
    assert file_system_of(tmp_path, table) == "nfs4"
    assert "nfs4" in NETWORK_FILE_SYSTEMS
    assert file_system_of(tmp_path, tmp_path / "none") == ""


def test_a_clock_in_1970_is_a_problem(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """B33."""
    monkeypatch.setattr(doctor.time, "time", lambda: 12_345.0)
    assert level("clock").level == PROBLEM


def test_hw_that_is_not_on_path_is_a_warning(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert level("path").level == WARNING
    assert level("git").level == WARNING


def test_the_last_words_of_a_server_that_did_not_start_are_told(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert last_words(log) == ""
    log.write_text(
        "2026-11-15T22:49:43Z ERROR headway.server the server ends: no room\n2026 INFO headway.server bye\n"
    )
    assert last_words(log) == "the server ends: no room"
    log.write_text("Traceback\nModuleNotFoundError: No module named 'uvicorn'\n")
    assert last_words(log) == "ModuleNotFoundError: No module named 'uvicorn'"


def test_a_disk_without_room_for_more_files_is_a_problem(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-15: bytes are free, inodes are not."""
    real = os.statvfs

    class Few:
        f_files, f_favail, f_bavail, f_frsize, f_blocks, f_bfree = 1000, 3, 9**9, 4096, 9**9, 9**9

    monkeypatch.setattr(doctor.os, "statvfs", lambda path: Few())
    assert level("files").level == PROBLEM and "df -i" in level("files").advice
    monkeypatch.setattr(doctor.os, "statvfs", real)
    assert level("files").level == OK


def test_a_quota_that_is_used_up_is_a_problem(
    api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(doctor.os, "fsync", full)
    assert level("writes").level == PROBLEM and "quota" in level("writes").advice
    assert not list(home.glob(".doctor*"))


def test_data_of_tasks_that_no_server_has_taken_are_told(api: FakeApi, home: Path) -> None:
    """A-15: of a job that is not known here, or that ended long ago; not of one that runs."""
    assert level("spools").level == OK
    with sqlite3.connect(home / "headway.db") as c:
        c.execute("CREATE TABLE jobs (uuid TEXT, ended_ns INTEGER, deleted_ns INTEGER)")
        c.execute("INSERT INTO jobs VALUES (?, NULL, NULL), (?, 1, NULL)", (_uuid(1), _uuid(2)))
    for number in (1, 2, 3):
        folder = home / "spool" / f"{_uuid(number)}-1-worker-0"
        folder.mkdir(parents=True)
        (folder / "stdout-0").write_text("words")
    (home / "spool" / ".new-x").mkdir()
    found = level("spools")
    assert found.level == WARNING and "2 tasks of no open job, with 10 B" in found.text
    assert _uuid(2) in found.text and _uuid(1) not in found.text


def _uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-00000000000{number}"


def test_a_home_with_a_path_that_no_database_can_have_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A-15."""
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path.joinpath(*["x" * 200] * 16)))
    assert main(["ls"]) != 0
    told = capfd.readouterr().err
    assert "SQLite opens at most 500" in told and "shorter path" in told and len(told) < 600

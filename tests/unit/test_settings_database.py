"""Where the database of a home lies (home/database_path.py)."""

import json
import socket
from pathlib import Path

import pytest

from headway.home import database_path
from headway.home.paths import Paths
from headway.model.errors import RefusedError


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "home").mkdir()
    return Paths(tmp_path / "home")


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The home is on NFS, and nothing else is."""
    monkeypatch.setattr(
        database_path, "file_system_of", lambda path: "nfs4" if path.name == "home" else "ext4"
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_on_a_local_disk_it_lies_in_the_home(paths: Paths) -> None:
    assert database_path.settle(paths) is None
    assert paths.db == paths.home / "headway.db"


@pytest.mark.usefixtures("on_nfs")
def test_on_a_network_file_system_it_lies_on_a_local_disk_and_stays_there(
    paths: Paths, tmp_path: Path
) -> None:
    told = database_path.settle(paths)
    assert told is not None and "nfs4" in told and str(paths.db.parent) in told
    assert paths.db.parent.parent == tmp_path / "state" / "headway"
    assert paths.db.parent.stat().st_mode & 0o777 == 0o700
    chosen = paths.db
    assert database_path.settle(paths, "/somewhere/else") is None  # chosen once
    assert paths.db == chosen


@pytest.mark.usefixtures("on_nfs")
def test_a_database_that_is_there_already_is_not_moved_but_told(paths: Paths) -> None:
    paths.db.write_bytes(b"")
    told = database_path.settle(paths)
    assert told is not None and "database_folder" in told
    assert paths.db == paths.home / "headway.db"


def test_the_setting_names_a_folder(paths: Paths, tmp_path: Path) -> None:
    database_path.settle(paths, str(tmp_path / "fast" / "disk"))
    assert paths.db == tmp_path / "fast" / "disk" / "headway.db"
    assert paths.db.parent.is_dir()


def test_another_machine_that_shares_the_home_is_refused(paths: Paths, tmp_path: Path) -> None:
    """It would make a second, empty database, and start waiting jobs a second time."""
    database_path.settle(paths, str(tmp_path / "local"))
    told = json.loads(paths.database_pointer.read_text())
    assert told["host"] == socket.gethostname()
    paths.database_pointer.write_text(json.dumps({**told, "host": "login2"}))
    with pytest.raises(RefusedError, match="on login2"):
        database_path.settle(paths)
    paths.db.write_bytes(b"")  # it is this machine after all: it was given another name
    assert database_path.settle(paths) is None


def test_a_pointer_that_cannot_be_read_is_named(paths: Paths) -> None:
    paths.database_pointer.write_text("{")
    with pytest.raises(RefusedError, match=r"database\.json"):
        database_path.settle(paths)

"""Opening a database: brought up to date, or refused with the reason (B31, F36, P12)."""

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headway.home.paths import Paths
from headway.model.errors import DamagedError, HeadwayError, RefusedError, VersionError
from headway.store import migrate
from headway.store.connection import APPLICATION_ID
from headway.store.database import Store
from tests import needs
from tests.storing import bench, open_store


def refusal(folder: Path) -> HeadwayError:
    with pytest.raises(HeadwayError) as caught:
        Store(Paths(folder), background=False).open()
    return caught.value


def closed_home(tmp_path: Path) -> Path:
    made = bench(tmp_path / "home")
    made.store.close()
    return tmp_path / "home"


def add_migration(monkeypatch: pytest.MonkeyPatch, script: str) -> int:
    steps = migrate.migrations()
    newest = max(steps) + 1
    monkeypatch.setattr(migrate, "migrations", lambda: {**steps, newest: script})
    return newest


def test_a_new_database_is_private_and_ours(tmp_path: Path) -> None:
    store, paths, _ = open_store(tmp_path / "home")
    with store.read() as c:
        assert c.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert c.execute("PRAGMA user_version").fetchone()[0] == max(migrate.migrations())
        assert c.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
        assert c.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert {stat.S_IMODE(p.stat().st_mode) for p in paths.home.iterdir()} == {0o600}
    store.close()


def test_a_newer_schema_is_refused_and_both_versions_are_named(tmp_path: Path) -> None:
    home = closed_home(tmp_path)
    with sqlite3.connect(home / "headway.db") as c:
        c.execute("PRAGMA user_version = 99")
    c.close()
    error = refusal(home)
    assert isinstance(error, VersionError)
    assert "99" in error.message and str(max(migrate.migrations())) in error.message


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "headway.db").write_bytes(b"hello " * 100)
    error = refusal(tmp_path)
    assert isinstance(error, DamagedError) and "not an SQLite database" in error.message
    assert (tmp_path / "headway.db").read_bytes() == b"hello " * 100


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "headway.db") as c:
        c.execute("CREATE TABLE theirs (x)")
    c.close()
    assert "another program" in refusal(tmp_path).message


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    home = closed_home(tmp_path)
    (home / "headway.db").chmod(0o400)
    error = refusal(home)
    assert isinstance(error, RefusedError) and "read-only" in error.message


def test_a_read_only_file_system_is_refused(tmp_path: Path) -> None:
    needs.mount_namespace()
    home = closed_home(tmp_path)
    script = f"""
import sys
from pathlib import Path
from headway.home.paths import Paths
from headway.store.database import Store
from headway.model.errors import HeadwayError
try:
    Store(Paths(Path({str(home)!r})), background=False).open()
except HeadwayError as error:
    print(type(error).__name__, error.message)
"""
    shell = f'mount --bind "{home}" "{home}" && mount -o remount,bind,ro "{home}" && exec "{sys.executable}" -c "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell, "sh", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("RefusedError"), done


def test_a_log_of_another_database_beside_ours_is_refused(tmp_path: Path) -> None:
    """SQLite would play it into our database and spoil it."""
    home = closed_home(tmp_path)
    other = bench(tmp_path / "other")
    foreign = (tmp_path / "other" / "headway.db-wal").read_bytes()
    other.store.close()
    assert len(foreign) > 1000
    (home / "headway.db-wal").write_bytes(foreign)
    before = (home / "headway.db").read_bytes()
    assert "belongs to another database" in refusal(home).message
    assert (home / "headway.db").read_bytes() == before
    (home / "headway.db-wal").unlink()
    store = Store(Paths(home), background=False)
    store.open()
    store.close()


def test_a_log_with_other_pages_is_refused_after_a_crash_too(tmp_path: Path) -> None:
    home = closed_home(tmp_path)
    migrate.mark_opened(home / "headway.db")  # as after a kill
    c = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    c.execute("PRAGMA page_size = 4096")
    c.execute("PRAGMA journal_mode = WAL")
    c.execute("CREATE TABLE theirs (x)")
    (home / "headway.db-wal").write_bytes((tmp_path / "x.db-wal").read_bytes())
    c.close()
    assert "belongs to another database" in refusal(home).message


def test_a_migration_is_applied_once_after_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(tmp_path / "home")
    made.store.close()
    number = add_migration(
        monkeypatch, "ALTER TABLE jobs ADD COLUMN extra TEXT;\nUPDATE jobs SET extra = 'x;y';\n"
    )
    for _ in range(2):
        made.store.open()
        assert made.read(lambda c: c.execute("SELECT extra FROM jobs").fetchone()[0]) == "x;y"
        made.store.close()
    copy = tmp_path / "home" / f"headway.db.before-{number}"
    with sqlite3.connect(copy) as c:
        assert c.execute("PRAGMA user_version").fetchone()[0] == number - 1
        assert c.execute("SELECT count(*) FROM jobs").fetchone()[0] == 1
    c.close()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "script", ["CREATE TABLE one (x);\nCREATE TABLE one (x);\n", "nonsense;\n"]
)
def test_a_migration_that_fails_leaves_the_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    made = bench(tmp_path / "home")
    made.store.close()
    with monkeypatch.context() as patch:
        add_migration(patch, script)
        with pytest.raises(sqlite3.OperationalError):
            made.store.open()
    made.store.open()
    assert (
        made.read(
            lambda c: c.execute("SELECT count(*) FROM sqlite_master WHERE name = 'one'").fetchone()[
                0
            ]
        )
        == 0
    )
    assert made.object()["id"] == made.job.id
    made.store.close()


def test_every_migration_has_a_number_of_its_own_and_none_is_missing() -> None:
    steps = migrate.migrations()
    assert sorted(steps) == list(range(1, len(steps) + 1))
    for script in steps.values():
        assert "".join(migrate.statements(script)).count(";") >= 1
        assert not script.strip().rpartition(";")[2].strip(), "the last statement has its end"


def test_every_migration_has_a_number_of_its_own() -> None:
    folder = Path(migrate.__file__).parent / "migrations"
    names = [file.name for file in folder.glob("*.sql")]
    assert sorted(int(name[:4]) for name in names) == list(range(1, len(names) + 1)), names

"""The store killed inside its system calls: what was acknowledged is there, once (F4, F36; P3,
P10).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.home.paths import Paths
from headway.store import backup, catalog, log_files, log_lines, migrate, series
from headway.store.database import Store
from tests.store_worker import UUID, line_bytes

ROOT = Path(__file__).parents[2]
ROUNDS = 12
KILLED = 137


def traced(strace: str, inject: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run under strace with a fault in the nth of some calls. The worker's output goes through a
    pipe.
    """
    call = inject.partition(":")[0]
    command = [
        strace,
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={inject}",
        sys.executable,
        *argv,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)


def acknowledged(output: str) -> int:
    """Rounds that the worker was told yes for."""
    return sum(line.startswith("ack ") for line in output.splitlines())


def check(home: Path, acks: int, large: bool) -> int:
    """Reopen, and compare with what was told; how many rounds there are."""
    store = Store(Paths(home), background=False)
    store.open()
    try:
        assert store.restored is None, "nothing is damaged"
        with store.read() as c:
            assert backup.check(c) is None
            if catalog.find_uuid(c, UUID) is None:
                assert acks == 0
                return 0
            pk = catalog.resolve(c, UUID)
            values = [
                v for one in series.read_series(c, pk, "x") for v in one.points.values.tolist()
            ]
            text = b"".join(
                log_files.read(c, store.paths, one.pk, 0) for one in log_lines.outputs(c, pk)
            )
        assert values == [float(i) for i in range(len(values))]
        assert text == b"".join(line_bytes(i, large) for i in range(len(values)))
        assert acks <= len(values) <= acks + 1, "at most the round that was under way"
        return len(values)
    finally:
        store.close()


def worker(*words: object) -> list[str]:
    return ["-m", "tests.store_worker", *map(str, words)]


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=60, cwd=ROOT
    )


def kill_and_go_on(strace: str, home: Path, inject: str, large: bool) -> None:
    argv = worker(home, ROUNDS, *(["--large"] if large else []))
    done = traced(strace, inject, argv)
    assert done.returncode in (KILLED, -9), (done.returncode, done.stdout, done.stderr)
    check(home, acknowledged(done.stdout), large)
    again = run(argv)
    assert again.stdout.splitlines()[-1] == "done", again.stderr
    assert check(home, ROUNDS, large) == ROUNDS


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
@pytest.mark.parametrize("when", [1, 2, 4, 7])
def test_a_kill_inside_a_commit_loses_nothing_acknowledged(
    strace: str, tmp_path: Path, call: str, when: int, large: bool
) -> None:
    """F4: then it is started again, by nobody's hand, and the rest is taken."""
    # so that the calls counted are those of commits
    assert run(worker(tmp_path, 0)).returncode == 0
    kill_and_go_on(
        strace,
        tmp_path,
        f"{call}:signal=SIGKILL:when={when * (5 if call == 'pwrite64' else 1)}",
        large,
    )


@pytest.mark.parametrize("when", [1, 20, 60])
def test_a_kill_while_the_database_is_made_leaves_nothing_half_made(
    strace: str, tmp_path: Path, when: int
) -> None:
    kill_and_go_on(strace, tmp_path, f"pwrite64:signal=SIGKILL:when={when}", large=False)


_MIGRATE = """
import sys
from pathlib import Path
from headway.home.paths import Paths
from headway.store import migrate
from headway.store.database import Store
steps = migrate.migrations()
newest = max(steps) + 1
script = "CREATE TABLE extra (x);\\nINSERT INTO extra SELECT id FROM jobs;\\n"
script += "ALTER TABLE jobs ADD COLUMN more TEXT;\\nUPDATE jobs SET more = 'x';\\n"
migrate.migrations = lambda: {**steps, newest: script}
Store(Paths(Path(sys.argv[1])), background=False).open()
print("migrated", flush=True)
import os
os._exit(0)
"""


def test_a_migration_killed_at_any_write_is_finished_or_rolled_back(
    strace: str, tmp_path: Path
) -> None:
    """F36"""
    home = _made(tmp_path / "home")
    assert run(worker(home, 3)).returncode == 0
    script = tmp_path / "migrate.py"
    script.write_text(_MIGRATE)
    number, kills, n = max(migrate.migrations()) + 1, 0, 1
    while True:
        copy = tmp_path / f"copy-{n}"
        subprocess.run(["cp", "-a", str(home), str(copy)], check=True)
        done = traced(strace, f"pwrite64:signal=SIGKILL:when={n}", [str(script), str(copy)])
        state = _schema(copy)
        if state == "new":
            assert (copy / f"headway.db.before-{number}").exists()
        finished = "migrated" in done.stdout
        again = run([str(script), str(copy)])
        assert "migrated" in again.stdout, again.stderr
        assert _schema(copy) == "new"
        if finished:
            break
        kills, n = kills + 1, n + 1 + n // 3
    assert kills > 5


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


def _schema(home: Path) -> str:
    """old or new; anything in between fails. Looked at on a copy, so that the next start finds what
    the kill left.
    """
    look = home.with_name(home.name + "-look")
    subprocess.run(["cp", "-a", str(home), str(look)], check=True)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "print(c.execute('PRAGMA quick_check').fetchone()[0],"
        " c.execute(\"SELECT count(*) FROM sqlite_master WHERE name = 'extra'\").fetchone()[0],"
        " c.execute(\"SELECT count(*) FROM pragma_table_info('jobs') WHERE name = 'more'\").fetchone()[0],"
        " c.execute('PRAGMA user_version').fetchone()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(look / "headway.db")], capture_output=True, text=True
    )
    subprocess.run(["rm", "-rf", str(look)], check=True)
    newest = max(migrate.migrations()) + 1
    found = done.stdout.split()
    assert found in (["ok", "0", "0", str(newest - 1)], ["ok", "1", "1", str(newest)]), done
    return "new" if found[1] == "1" else "old"


def test_a_copy_for_a_migration_is_whole_or_not_there(tmp_path: Path) -> None:
    """A partial copy left by a kill does not stop the next start."""
    home = _made(tmp_path / "home")
    assert run(worker(home, 3)).returncode == 0
    number = max(migrate.migrations()) + 1
    (home / f"headway.db.before-{number}.partial").write_bytes(b"half a copy")
    script = tmp_path / "migrate.py"
    script.write_text(_MIGRATE)
    done = run([str(script), str(home)])
    assert "migrated" in done.stdout, done.stderr
    assert not [name for name in os.listdir(home) if name.endswith(".partial")]

"""The server as a process: started many times at once, killed anywhere, told to end (F4, F8, P3,
P10).
"""

import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headway.home.connect import Client, ensure_server, is_listening, server_path, start_server
from headway.home.launch import server_argv, server_env
from headway.home.paths import Paths, socket_path
from headway.model.errors import UnreachableError
from headway.model.job import JobSpec, State
from headway.model.limits import SERVER_LOG_BYTES_MAX
from headway.store import catalog
from headway.store.database import Store
from headway.views.api.source import Source
from headway.wire import batch
from headway.wire.batch import Part, TaskKey
from tests import needs
from tests.waiting import wait_until

KEY = TaskKey("00000000-0000-4000-8000-000000000001", 1, "worker-0")


def prepare(home: Path) -> None:
    """A job that has ended, so that nothing but our posts happens to it; its agent may still bring
    data.
    """
    store = Store(Paths(home))
    store.open()

    def make(c: sqlite3.Connection) -> None:
        now = time.time_ns()
        job = catalog.insert_job(c, KEY.uuid, JobSpec(["true"], "/", "job"), now)
        catalog.insert_attempt(c, job.pk, 1, f"{KEY.uuid}-1", now)
        catalog.insert_task(c, job.pk, 1, KEY.task, "here")
        catalog.set_job_state(c, job.pk, State.RUNNING, now, started_ns=now)
        catalog.set_attempt(c, job.pk, 1, state=State.SUCCEEDED)
        c.execute("UPDATE tasks SET state = 'ended'")
        catalog.set_job_state(c, job.pk, State.SUCCEEDED, now, ended_ns=now, exit_code=0)

    store.write(make).result(10)
    store.close()


def server_pid(home: Path) -> int:
    return int(json.loads((home / "server.json").read_text())["pid"])


def up(home: Path) -> "tuple[subprocess.Popen[bytes], Path]":
    """A started server that serves, and its socket."""
    process, path = start_server(home), socket_path(home)
    wait_until(
        lambda: (
            process.poll() is not None or (is_listening(path) and (home / "server.json").exists())
        )
    )
    assert process.poll() is None, (home / "server.log").read_text()
    return process, path


def down(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    assert process.wait(60) == 0


def assert_serves(home: Path) -> None:
    process, path = up(home)
    with Client(path) as client:
        assert client.request("GET", "/api/server").status == 200
    down(process)


def test_a_server_is_found_from_where_another_runtime_folder_is_set(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, path = up(home)
    other = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
    try:
        assert socket_path(home) != path
        assert server_path(home) == ensure_server(home) == path
        for start in (False, True):
            source = Source.connect(start=start)
            assert "jobs" in source.get("/api/server")
            source.client.close()
        os.chmod(path.parent, 0o777)  # anybody could have put a socket there
        assert server_path(home) == socket_path(home)
        os.chmod(path.parent, 0o700)
    finally:
        down(process)
    assert server_path(home) == socket_path(home)


# -- starting


def test_many_starts_at_once_leave_one_server_and_the_others_end_quietly(home: Path) -> None:
    started = [start_server(home) for _ in range(8)]
    wait_until(lambda: sum(p.poll() is None for p in started) == 1, 30, "one server left")
    assert [p.returncode for p in started if p.returncode is not None] == [0] * 7
    left = next(p for p in started if p.poll() is None)
    wait_until(lambda: (home / "server.json").exists())
    assert server_pid(home) == left.pid
    assert "Traceback" not in (home / "server.log").read_text()
    down(left)


def test_what_a_killed_server_left_behind_is_replaced(home: Path) -> None:
    process, path = up(home)
    process.kill()
    process.wait()
    assert path.exists() and (home / "server.json").exists()
    (home / "server.json").write_text("{garbage")
    assert_serves(home)


def test_a_second_server_does_not_touch_the_socket_of_the_first(home: Path) -> None:
    process, path = up(home)
    inode = path.stat().st_ino
    assert start_server(home).wait(60) == 0
    assert path.stat().st_ino == inode
    with Client(path) as client:
        assert client.request("GET", "/api/server").status == 200
    down(process)


@pytest.mark.parametrize("seed", range(6))
def test_a_server_killed_at_any_moment_of_its_start_is_followed_by_one_that_works(
    home: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        process = start_server(home)
        deadline = time.monotonic() + chance.uniform(0.02, 0.5)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
    assert_serves(home)


@pytest.mark.parametrize(
    "call", ["bind", "chmod", "listen", "rename", "fdatasync", "openat:when=40", "unlink"]
)
def test_a_server_killed_at_a_call_of_its_start_is_followed_by_one_that_works(
    home: Path, strace: str, call: str
) -> None:
    name, _, when = call.partition(":")
    inject = f"inject={name}:signal=SIGKILL" + (f":{when}" if when else "")
    command = [strace, "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", inject, *server_argv()]
    killed = subprocess.run(
        command, env=server_env(home), cwd=home, capture_output=True, timeout=60
    )
    assert killed.returncode != 0
    assert_serves(home)


def test_a_database_that_cannot_be_used_ends_the_start_with_the_reason_in_the_log(
    home: Path,
) -> None:
    (home / "headway.db").write_text(
        "this is not a database, and it is long enough to be read as one " * 100
    )
    assert start_server(home).wait(60) != 0
    text = (home / "server.log").read_text()
    assert "headway.db" in text and "Traceback" not in text
    assert not socket_path(home).exists()


# -- ending


def test_sigterm_ends_the_server_in_time_though_callers_wait_and_readers_stand_still(
    home: Path,
) -> None:
    prepare(home)
    process, path = up(home)
    poll = json.dumps(
        {"task": {"uuid": KEY.uuid, "attempt": 1, "task": KEY.task}, "wait_s": 30}
    ).encode()
    with (
        raw_connection(path) as polling,
        raw_connection(path) as idle,
        raw_connection(path) as half,
    ):
        polling.sendall(
            b"POST /agent/poll HTTP/1.1\r\nHost: headway\r\nContent-Length: %d\r\n\r\n" % len(poll) + poll
        )  # fmt: skip
        half.sendall(b"POST /agent/poll HTTP/1.1\r\nHost: headway\r\nContent-Length: 1000\r\n\r\n{")
        idle.sendall(b"GET ")
        process.terminate()
        assert process.wait(20) == 0  # the poll alone would take 30 s
    assert not path.exists() and not (home / "server.json").exists()


def raw_connection(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(path))
    return sock


def test_stop_answers_before_it_ends(home: Path) -> None:
    process, path = up(home)
    with Client(path) as client:
        answer = client.request("POST", "/api/server/stop", json={})
    assert answer.status == 200 and answer.json() == {"pid": process.pid}
    assert process.wait(60) == 0


def test_the_server_stays_unless_it_is_asked_to_leave_when_idle(home: Path) -> None:
    env = server_env(home) | {"HEADWAY_IDLE_EXIT_S": "1s"}
    process = subprocess.Popen(server_argv(), env=env, cwd=home)
    wait_until(lambda: is_listening(socket_path(home)))
    assert process.wait(60) == 0
    assert "nobody has needed the server" in (home / "server.log").read_text()


def test_an_idle_server_stays_while_a_viewer_waits(home: Path) -> None:
    prepare(home)
    process = subprocess.Popen(
        server_argv(), env=server_env(home) | {"HEADWAY_IDLE_EXIT_S": "3s"}, cwd=home
    )
    path = socket_path(home)
    wait_until(lambda: is_listening(path))
    with Client(path) as client:
        poll = {"task": {"uuid": KEY.uuid, "attempt": 1, "task": KEY.task}, "wait_s": 5}
        assert client.request("POST", "/agent/poll", json=poll).status == 200
    assert process.wait(60) == 0


# -- data


def post(client: Client, offset: int, data: bytes) -> Any:
    answer = client.request(
        "POST", "/agent/ingest", body=batch.encode(KEY, [Part("stdout-0", "raw", offset, data)], 1)
    )
    return answer.json()["acks"]["stdout-0"] if answer.status == 200 else None


def stored(home: Path) -> tuple[int, str]:
    with sqlite3.connect(home / "headway.db") as c:
        row = c.execute("SELECT position FROM streams WHERE name = 'stdout-0'").fetchone()
        return (row[0] if row else 0), c.execute("PRAGMA quick_check").fetchone()[0]


@pytest.mark.parametrize("when", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_server_killed_in_a_commit_has_every_acknowledged_byte(
    home: Path, strace: str, call: str, when: int
) -> None:
    """F4, P3, P10: killed at the Nth sync or write that our posts cause; what was acknowledged is
    there afterwards.
    """
    prepare(home)
    process, path = up(home)
    tracer = subprocess.Popen(
        [strace, "-f", "-p", str(process.pid), "-o", "/dev/null", "-e", f"trace={call}",
         "-e", f"inject={call}:signal=SIGKILL:when={when}"],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert tracer.stderr is not None
    assert b"attached" in tracer.stderr.readline()
    acked = 0
    with Client(path) as client:
        try:
            for _ in range(200):
                acked = post(client, acked, b"x" * 997) or acked
        except UnreachableError:
            pass
    assert process.wait(60) != 0
    tracer.wait(60)
    tracer.stderr.close()
    process, path = up(home)
    with Client(path) as client:
        position, check = stored(home)
        assert check == "ok" and acked <= position <= acked + 997
        assert post(client, position, b"y" * 10) == position + 10
    down(process)


_ON_SMALL_DISK = """
import os, sqlite3, subprocess, sys
from pathlib import Path
home, runtime = Path(sys.argv[1]), Path(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "none", str(home)], check=True)
os.environ.update(HEADWAY_HOME=str(home), XDG_RUNTIME_DIR=str(runtime))
from tests.fault import test_server_process as t
t.prepare(home)
t.fill_and_recover(home)
print("done")
"""


def fill_and_recover(home: Path) -> None:
    """Runs inside a mount namespace, on a disk of a few megabytes."""
    process, path = up(home)
    with Client(path) as client:
        assert post(client, 0, b"x" * 1000) == 1000
        filler = home / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * 65536)
                    file.flush()
            except OSError:
                pass
        statuses = {client_post(client, 1000, b"y" * 300_000) for _ in range(5)}
        assert statuses == {503}, statuses
        assert client.request("GET", "/api/jobs").status == 200, "reads must work"
        filler.unlink()
        assert wait_until(lambda: post(client, 1000, b"y" * 300_000)) == 301_000
    down(process)


def client_post(client: Client, offset: int, data: bytes) -> int:
    body = batch.encode(KEY, [Part("stdout-0", "raw", offset, data)], 1)
    return client.request("POST", "/agent/ingest", body=body).status


def test_a_full_disk_is_503_reads_work_and_it_recovers_by_itself(home: Path) -> None:
    """F8."""
    needs.mount_namespace()
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", _ON_SMALL_DISK, str(home), os.environ["XDG_RUNTIME_DIR"]],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0 and "done" in done.stdout, done.stdout + done.stderr


def test_the_log_is_bounded(home: Path) -> None:
    script = (
        "import logging, sys; from pathlib import Path; from headway.server.serve import start_log\n"
        "start_log(Path(sys.argv[1]))\n"
        "for n in range(30000): logging.getLogger('x').info('%06d %s', n, 'y' * 500)\n"
        "print('straight to the standard output'); sys.stdout.flush()\n"
    )
    log = home / "server.log"
    subprocess.run([sys.executable, "-c", script, str(log)], check=True, timeout=60)
    sizes = {file.name: file.stat().st_size for file in home.glob("server.log*")}
    assert set(sizes) == {"server.log", "server.log.1"}
    assert all(size <= SERVER_LOG_BYTES_MAX + 1000 for size in sizes.values())
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in home.glob("server.log*"))
    assert log.read_text().endswith("straight to the standard output\n")

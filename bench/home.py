"""A Headway installation for one case: a home of its own, its server, and the ways the cases talk
to it.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.measure import run, wait_until
from bench.peer import environment
from headway.home.connect import Client, is_listening
from headway.home.paths import socket_path
from headway.model.ids import new_uuid
from headway.wire.batch import TaskKey

HW = str(Path(sys.executable).with_name("hw"))
START_TIMEOUT_S, STOP_TIMEOUT_S = 30.0, 20.0


@dataclass(frozen=True, slots=True)
class Registered:
    """A task that the server expects batches of."""

    id: str
    key: TaskKey
    token: str


@dataclass(slots=True)
class Home:
    folder: Path
    env: dict[str, str]
    server: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return socket_path(self.folder)

    def start(self) -> None:
        log = (self.folder / "server.log").open("ab")
        with log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "headway.server"], env=self.env, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: is_listening(self.socket), START_TIMEOUT_S, "the server does not listen")
        with self.client() as client:
            wait_until(
                lambda: client.request("GET", "/api/server").status == 200,
                START_TIMEOUT_S,
                "no answer",
            )

    def stop(self) -> None:
        """End the server, and whatever of this home's agents is still there."""
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            try:
                self.server.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Processes whose environment or command line names this home: all of them were started by
        this run.
        """
        found, wanted = [], str(self.folder).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if (
                    wanted in (entry / "environ").read_bytes()
                    or wanted in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or not ours
        return found

    def client(self, token: str | None = None) -> Client:
        return Client(self.socket, token, timeout_s=120)

    def hw(
        self,
        *words: str,
        cwd: Path | None = None,
        timeout_s: float = 120,
        ok: tuple[int, ...] = (0,),
    ) -> bytes:
        return run([HW, *words], self.env, cwd or self.folder, timeout_s=timeout_s, ok=ok).output

    def hw_json(self, *words: str) -> Any:
        return json.loads(self.hw("--json", *words))

    def post_jobs(self, client: Client, spec: dict[str, Any], count: int) -> None:
        """Submit the same `count` times, a request each."""
        for _ in range(count):
            body = {"uuid": new_uuid(), "spec": spec, "env": {"PATH": self.env["PATH"]}}
            answer = client.request("POST", "/api/jobs", json=body)
            if answer.status >= 300:
                raise RuntimeError(f"submit answered {answer.status}: {answer.body[:300]!r}")

    def register(self, name: str) -> Registered:
        """A job that nothing runs: batches for it come from the bench itself."""
        uuid = new_uuid()
        wanted = {
            "uuid": uuid, "name": name, "argv": ["bench"], "cwd": str(self.folder), "user": "bench", "host": "bench",
            "started_ns": 1, "world_size": 1, "umask": 18, "tags": [],
        }  # fmt: skip
        with self.client() as client:
            answer = client.request("POST", "/agent/register", json=wanted)
        if answer.status != 200:
            raise RuntimeError(f"register answered {answer.status}: {answer.body[:300]!r}")
        job = answer.json()
        return Registered(job["id"], TaskKey(uuid, job["attempt"], job["task"]), job["token"])

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Read the database beside the server, to verify what it has said."""
        with closing(
            sqlite3.connect(f"file:{quote(str(self.folder / 'headway.db'))}?mode=ro", uri=True)
        ) as db:
            return db.execute(statement, values).fetchall()

    def points(self, uuid: str | None = None) -> int:
        """Points accepted so far, of one job or all."""
        where = "" if uuid is None else "WHERE s.job = (SELECT pk FROM jobs WHERE uuid = ?)"
        values = () if uuid is None else (uuid,)
        rows = self.query(
            f"SELECT sum(l.points) FROM latest l JOIN series s ON s.pk = l.series {where}", *values
        )
        return int(rows[0][0] or 0)

    def used_bytes(self) -> int:
        """Bytes of pages in use; pages that compaction has freed wait for the next data."""
        with closing(
            sqlite3.connect(f"file:{quote(str(self.folder / 'headway.db'))}?mode=ro", uri=True)
        ) as db:
            pages, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)


@contextmanager
def headway_home(folder: Path, *, server: bool = True) -> Iterator[Home]:
    folder.mkdir(parents=True, mode=0o700)
    env = environment(
        folder, HEADWAY_HOME=str(folder), XDG_RUNTIME_DIR=os.environ["XDG_RUNTIME_DIR"]
    )
    home = Home(folder, env)
    try:
        if server:
            home.start()
        yield home
    finally:
        home.stop()

"""Drives `hw` as a person or a script does: a real command, a real server, a home of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headway.home.paths import socket_path
from headway.model.errors import HeadwayError
from headway.views.api.http_client import Client
from tests import processes
from tests.waiting import wait_until

HW = [sys.executable, "-m", "headway.views.cli.main"]
PYTHON = sys.executable


class Hw:
    """`hw` in one home. `hw("run", "true")` returns the completed process; `hw.json("q", id)` the
    parsed answer.
    """

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home, self.cwd = home, cwd
        self.env = dict(os.environ) | {"HEADWAY_HOME": str(home), "NO_COLOR": "1"}

    def __call__(
        self, *words: str, timeout_s: float = 60.0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*HW, *words], cwd=self.cwd, env=self.env | (env or {}), capture_output=True, timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*HW, *words], cwd=self.cwd, env=self.env | (env or {}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            bufsize=0,  # `communicate` after `readline` would lose what a buffer holds
        )  # fmt: skip

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, (words, done.returncode, done.stderr.decode())
        return json.loads(done.stdout)

    def submit(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = self("submit", "--json", *words, env=env)
        assert done.returncode == 0, done.stderr.decode()
        return str(json.loads(done.stdout)["id"])

    def script(self, text: str, name: str = "train.py") -> str:
        (self.cwd / name).write_text(text)
        return name

    def wait_state(self, job: str, *states: str, timeout_s: float = 60.0) -> Any:
        """The job, once it is in one of these states. A command that fails meanwhile (a server that is
        being started, or is too busy to answer) is asked again; its words are told at the end.
        """
        last: dict[str, Any] = {}
        told = [""]

        def look() -> Any:
            state = self._state_by_socket(job)  # much cheaper than a command each time
            if state is not None and state not in states:
                return None
            done = self("q", job, "--json", timeout_s=max(60.0, timeout_s))
            if done.returncode != 0:
                told[0] = f"hw q ended with {done.returncode}: {done.stderr.decode()[-500:]}"
                return None
            last.clear()
            last.update(json.loads(done.stdout))
            return last if last["state"] in states else None

        try:
            return wait_until(look, timeout_s, f"{job} in state {states}")
        except AssertionError as error:
            done = self("q", job, "--json")
            seen = done.stdout.decode()[-3000:] or "never seen"
            raise AssertionError(f"{error}; {seen}; {told[0]}") from None

    def _state_by_socket(self, job: str) -> str | None:
        """As the server of this home says it; None where none answers, or not in time."""
        try:
            client = Client(socket_path(self.home))
        except HeadwayError:
            return None
        try:
            answer = client.request("GET", f"/api/jobs/{quote(job, safe='')}", timeout_s=10.0)
            return str(json.loads(answer.body)["state"]) if answer.status == 200 else None
        except (HeadwayError, OSError, ValueError, KeyError):
            return None
        finally:
            client.close()

    def wait_ended(self, job: str, timeout_s: float = 60.0) -> Any:
        return self.wait_state(job, "succeeded", "failed", "stopped", timeout_s=timeout_s)

    def points(self, job: str, name: str, rank: int = 0) -> list[float]:
        """All values of one metric of one rank, in stored order."""
        rows = self.json("metrics", job, "-m", name)[job].get(name, [])
        return [v for row in rows if row["rank"] == rank for v in row["value"]]

    def events(self, job: str) -> list[dict[str, Any]]:
        """What the agents and processes of a job told, oldest first."""
        from headway.home.paths import socket_path
        from headway.views.api.http_client import Client

        client = Client(socket_path(self.home))
        assert client.try_connect()
        found = json.loads(client.request("GET", f"/api/jobs/{job}/events", None, 30.0).body)
        client.close()
        return list(found)

    def server_pid(self) -> int:
        return int(json.loads((self.home / "server.json").read_text())["pid"])

    def kill_server(self) -> None:
        pid = self.server_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), what="the server's death")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def agents(home: Path, verb: str) -> list[int]:
    """Pids of the shims, shippers or the warm launcher of one home, by the names that they give
    themselves.
    """
    found = []
    for pid in processes.of_home(home):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == f"hw-{verb}":
                found.append(pid)
        except OSError:
            continue
    return found


def files_with(folder: Path, needle: str) -> list[str]:
    """Files below a folder that hold these words. Others may write and remove there meanwhile."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (Path(place) / name for name in names):
            try:
                if path.is_file() and needle.encode() in path.read_bytes():
                    found.append(str(path))
            except OSError:
                continue  # it is gone
    return found


def shim_of(home: Path, task: str) -> int:
    """The pid of the shim of one task, by its name such as worker-1."""
    (path,) = (home / "spool").glob(f"*-{task}/shim.json")
    return int(json.loads(path.read_text())["pid"])

"""A real agent with a fake server: makes tasks as an engine does, starts shims and shippers, finds
their processes.
"""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headway.home.launch import agent_argv
from headway.model.record import FACT
from headway.testing.ingest_server import FakeServer
from headway.wire import frame
from tests import processes
from tests.waiting import wait_until

PYTHON = sys.executable


class Task:
    """One task's folder and the processes around it."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        self.shim: subprocess.Popen[bytes] | None = None

    def shim_facts(self) -> list[dict[str, Any]]:
        """What the shim has written down, read from its spool file."""
        try:
            data = (self.dir / "shim").read_bytes()
        except FileNotFoundError:
            return []
        scan = frame.scan(data, final=True)
        return [
            frame.decode_json(p)
            for kind, p in frame.frames(data[: scan.end], scan.damaged)
            if kind == FACT
        ]

    def rank_pids(self) -> list[int]:
        return [fact["pid"] for fact in self.shim_facts() if fact["type"] == "process_started"]

    def shipper(self) -> int:
        """The pid of the living shipper that the shim has forked."""
        assert self.shim is not None
        ranks = set(self.rank_pids())

        def find() -> int | None:
            assert self.shim is not None
            for pid in children(self.shim.pid):
                if pid not in ranks and is_agent(pid):
                    return pid
            return None

        return wait_until(find, what="a shipper")  # type: ignore[return-value]

    def log(self) -> str:
        path = self.dir / "agent"
        return path.read_text() if path.exists() else ""


class Rig:
    """`with Rig(home) as rig:` has a server; everything that was started is gone at the end."""

    def __init__(self, home: Path, *, keep: bool = True) -> None:
        self.home = home
        self.server = FakeServer(home.parent / "s", keep=keep)
        self.tasks: list[Task] = []
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for started in self.started:
            if started.poll() is None:
                started.terminate()
        for _ in range(5):  # a shim starts its shipper again until it is gone itself
            processes.end(list(processes.of_home(self.home)), 3.0)
        for started in self.started:
            started.wait(60)
        self.server.stop()

    def make(self, *argv: str, env: dict[str, str] | None = None, **fields: Any) -> Task:
        """A task's folder, as the local engine makes it."""
        number = str(uuid.uuid4())
        folder = self.home / "spool" / f"{number}-1-worker-0"
        folder.mkdir(parents=True, mode=0o700)
        cwd = self.home.parent / "cwd"
        cwd.mkdir(exist_ok=True)
        task = {
            "version": 1, "uuid": number, "id": "t-00000", "attempt": 1, "task": "worker-0", "node": "n",
            "home": str(self.home), "socket": str(self.server.path), "token": "id.token-secret", "argv": list(argv),
            "cwd": str(cwd), "umask": 0o022, "rlimits": {}, "processes": 1, "first_rank": 0, "world_size": 1,
            "gpus": None,
            "output_dir": str(cwd), "grace_s": 1.0, "max_duration_s": None, "spool_bytes_max": 1 << 34,
            "secret_names": [], "attached": False, **fields,
        }  # fmt: skip
        if task["world_size"] == 1:
            task["world_size"] = task["processes"]
        (folder / "task.json").write_text(json.dumps(task))
        (folder / "env.json").write_text(
            json.dumps({**os.environ, "HEADWAY_HOME": str(self.home), **(env or {})})
        )
        made = Task(folder)
        self.tasks.append(made)
        return made

    def start(self, task: Task, *prefix: str) -> Task:
        """Start the shim; `prefix` may be strace with its options."""
        task.shim = self.spawn(*prefix, *agent_argv("shim", task.dir))
        return task

    def spawn(self, *argv: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            argv,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "HEADWAY_HOME": str(self.home)},
        )
        self.started.append(started)
        return started

    def adopt(self, task: Task) -> subprocess.Popen[bytes]:
        return self.spawn(*agent_argv("shipper", task.dir, "--adopt"))

    def run(self, *argv: str, timeout_s: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Run a task to its end; the `task_ended` fact that the server has."""
        task = self.start(self.make(*argv, **fields))
        return self.finish(task, timeout_s)

    def finish(self, task: Task, timeout_s: float = 60.0) -> dict[str, Any]:
        assert task.shim is not None
        task.shim.wait(timeout_s)
        ended = self.server.ended()
        assert ended is not None, task.log()
        assert not task.dir.exists(), "the server has everything, so the folder is gone"
        return ended

    def wait_facts(
        self, kind: str, count: int = 1, timeout_s: float = 60.0
    ) -> list[dict[str, Any]]:
        return wait_until(
            lambda: found if len(found := self.server.facts(kind)) >= count else [],
            timeout_s,
            f"{count} {kind} facts",
        )


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_agent(pid: int) -> bool:
    try:
        return b"headway.agent.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def script(text: str) -> list[str]:
    return [PYTHON, "-u", "-c", text]

"""What the engine contract needs from each engine: a way to make one, to restart it, and to read
how a task ended.
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from headway.engines.docker.engine import ContainerEngine
from headway.engines.local import slots
from headway.engines.local.engine import LocalEngine
from headway.engines.protocol import Engine, EngineId, Given
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.engine import SlurmEngine
from headway.home import launch
from headway.home.paths import Paths
from headway.model.ids import new_uuid
from headway.model.job import Job, JobSpec, State
from headway.model.record import FACT
from headway.settings import clusters
from headway.wire import frame, identity
from tests import container, container_image
from tests.rigs.slurm_rig import SlurmCluster
from tests.waiting import wait_until

FAKE_SHIM = Path(__file__).with_name("fake_shim.py")
SETTINGS: dict[str, Any] = {"gpus": 0, "spool_bytes_max": 1 << 30, "secret_names": ["MY_KEY"]}


def fake_argv(verb: str, folder: Path, *options: str) -> list[str]:
    return [
        sys.executable,
        "-I",
        "-S",
        str(FAKE_SHIM),
        os.path.dirname(launch.PACKAGE),
        verb,
        str(folder),
        *options,
    ]


def fake_container_argv(verb: str, folder: Path) -> list[str]:
    return fake_argv(verb, folder)[1:]


class LocalHarness:
    """The local engine with the fake shim: real processes, no server."""

    name = "local"

    def __init__(self, home: Path, gpus: int = 0) -> None:
        self.paths = Paths(home)
        self.cwd = home.parent / "work"
        self.cwd.mkdir()
        self._gpus = gpus
        self.engine = self.make()

    def make(self) -> Any:
        return LocalEngine(
            "here",
            self.paths,
            SETTINGS.__getitem__,
            argv=fake_argv,
            gpus=slots.GpuCount(self._gpus),
        )

    def restart(self) -> Engine:
        """Forget everything in memory, as a killed server does."""
        self.engine.close()
        self.engine = self.make()
        return self.engine

    def job(self, *command: str, **changes: Any) -> Job:
        spec = JobSpec(**{"command": list(command), "cwd": str(self.cwd), "name": "job", **changes})
        uuid = new_uuid()
        return Job(1, f"job-{uuid[:5]}", uuid, spec, State.WAITING, 0, 0)

    def start(self, job: Job, env: dict[str, str] | None = None) -> EngineId:
        plan = self.engine.plan(job)
        given = Given(
            {"PATH": os.environ["PATH"], **(env or {})},
            {task.name: "id.secret" for task in plan.tasks},
            ["MY_KEY"],
        )
        return self.engine.submit(plan, f"{job.uuid}-1", given)

    def state(self, engine_id: EngineId) -> str:
        return self.engine.observe([engine_id])[engine_id].state

    def wait_running(self, engine_id: EngineId) -> None:
        wait_until(lambda: self.state(engine_id) == "running", what=f"{engine_id} running")

    def wait_over(self, engine_id: EngineId) -> dict[str, Any]:
        """How the task ended, as its agent wrote it down."""
        wait_until(lambda: self.state(engine_id) in ("ended", "gone"), what=f"{engine_id} over")
        return next(fact for fact in self.facts(engine_id) if fact["type"] == "task_ended")

    def facts(self, engine_id: EngineId) -> list[dict[str, Any]]:
        folder = self.folder(engine_id)
        found = []
        for path in [folder / "shim", *folder.glob("shipper-*")]:
            data = path.read_bytes() if path.exists() else b""
            scan = frame.scan(data)
            found += [
                frame.decode_json(p)
                for kind, p in frame.frames(data[: scan.end], scan.damaged)
                if kind == FACT
            ]
        return found

    def folder(self, engine_id: EngineId) -> Path:
        return self.paths.spool / engine_id

    def output(self, engine_id: EngineId, stream: str = "stdout-0") -> str:
        path = self.folder(engine_id) / stream
        return path.read_text() if path.exists() else ""

    def starts(self, engine_id: EngineId) -> int:
        return len((self.folder(engine_id) / "starts").read_text().split())

    def kill_agent(self, engine_id: EngineId) -> None:
        who = identity.Identity.load(json.loads((self.folder(engine_id) / "shim.json").read_text()))
        assert who is not None and identity.send(who, signal.SIGKILL)
        wait_until(lambda: not identity.is_alive(who), what="the agent's death")

    def close(self) -> None:
        """End every task that still runs."""
        for engine_id, _ in self.engine.tasks():
            wait_until(partial(self._end, engine_id), what=f"the end of {engine_id}")
        self.engine.close()

    def _end(self, engine_id: EngineId) -> bool:
        self.engine.cancel(engine_id)
        return self.state(engine_id) not in ("running", "starting")


class DockerHarness(LocalHarness):
    """Containers of a real daemon, with the fake shim inside."""

    name = "docker"

    def __init__(self, home: Path, program: list[str]) -> None:
        self.definition = clusters.definition(
            {
                "engine": "docker", "command": program, "image": container_image.PYTHON, "network": "none",
                "mounts": container.python_mounts(),
            },
            "test",
        )  # fmt: skip
        super().__init__(home)

    def make(self) -> ContainerEngine:
        get = SETTINGS.__getitem__
        return ContainerEngine("box", self.paths, get, self.definition, argv=fake_container_argv)

    def kill_agent(self, engine_id: EngineId) -> None:
        self.engine.program.run("kill", engine_id)
        wait_until(lambda: self.state(engine_id) != "running", what="the agent's death")

    def close(self) -> None:
        super().close()
        for name in container.of_home(self.engine.program.words, self.paths.home):
            # one that is being removed may be gone by then
            self.engine.program.call(["rm", "--force", name])


class SlurmHarness(LocalHarness):
    """The Slurm engine against real daemons, with the fake shim as agent."""

    name = "slurm"

    def __init__(self, home: Path, cluster: SlurmCluster) -> None:
        self._slurm = cluster
        super().__init__(home)

    def make(self) -> SlurmEngine:
        return SlurmEngine(
            "lab", self.paths, SETTINGS.__getitem__, {"engine": "slurm"}, argv=fake_argv,
            commands=Commands(env=self._slurm.env),
        )  # fmt: skip

    def folder(self, engine_id: EngineId) -> Path:
        found = [path for path in self.engine.spool.glob("*.id") if path.read_text() == engine_id]
        return self.engine.spool / f"{found[0].stem}-worker-0"

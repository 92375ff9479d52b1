"""Jobs on nodes that are other machines: without the server's socket, and with or without a network to it.

A node is a mount namespace in which the folder of sockets is empty, and a network namespace, around the agent's Python.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.testing.slurm import SlurmCluster
from tests import needs
from tests.driver import Hw
from tests.waiting import wait_until

TRAIN = """
import os, time, headway as hw
for i in range(int(os.environ.get("STEPS", "10"))):
    hw.log({"loss": 1 / (i + 1)}, step=i)
    print("rank", os.environ["RANK"], "step", i, flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0.1")))
"""
NODE = """#!/bin/sh
exec {enter} unshare --mount sh -c 'mount -t tmpfs none {runtime} && exec {python} "$@"' node "$@"
"""


class Lab(Hw):
    """`hw` here, with a cluster `lab` whose nodes see nothing of this machine but the shared folder and the home."""

    def __init__(self, home: Path, cwd: Path, slurm: SlurmCluster, enter: str) -> None:
        super().__init__(home, cwd)
        runtime = cwd / "run"
        runtime.mkdir(mode=0o700)
        self.env |= slurm.env | {"XDG_RUNTIME_DIR": str(runtime)}
        self.shared = cwd / "shared"
        node = cwd / "node.sh"
        node.write_text(NODE.format(enter=enter, runtime=runtime, python=sys.executable))
        node.chmod(0o755)
        cluster = f"{{engine: slurm, partition: main, folder: {self.shared}, python: {node}}}"
        (cwd / "headway.yaml").write_text(f"clusters: {{lab: {cluster}}}\n")
        (cwd / "train.py").write_text(TRAIN)

    def state(self, job: str) -> str:
        return str(self.json("q", job)["state"])

    def task(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("q", job)["attempts"][-1]["tasks"][0]
        return found

    def steps(self, job: str) -> int:
        return sum("step" in line for line in self("logs", job).stdout.decode().splitlines())

    def end(self, job: str, state: str = "succeeded") -> None:
        wait_until(lambda: self.state(job) == state, 60, f"{job} {state}")

    def leave(self) -> None:
        self("abort", "--state", "waiting,running", "--yes")
        wait_until(lambda: not self.json("ls", "--state", "waiting,running,stopping"), 60, "the end of all jobs")
        self("server", "stop")

    def files(self) -> list[str]:
        """What lies in the trays."""
        return sorted(path.name for path in self.shared.glob("trays/*/*/*"))


@pytest.fixture
def lab(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Callable[..., Lab]]:
    needs.tool("unshare", "util-linux")
    needs.allowed("mount namespaces are", "unshare", "--mount", "--net", "true")
    made: list[Lab] = []

    def make(enter: str = "unshare --net") -> Lab:
        made.append(Lab(home, tmp_path, slurm, enter))
        return made[-1]

    yield make
    for one in made:
        one.leave()


def test_nodes_without_a_route_send_through_the_folder_and_take_commands_there(lab: Callable[..., Lab]) -> None:
    hw = lab()
    job = hw.submit("-c", "lab", "-n", "8", "--env", "STEPS=1000", sys.executable, "train.py")
    wait_until(lambda: len(hw.points(job, "loss")) >= 10, 60, "its metrics")
    assert {task["way"] for task in hw.json("q", job)["attempts"][0]["tasks"]} == {"folder"}
    assert hw.task(job)["node"] == "node1"
    hw("abort", job)  # that they have started at all was a command: each waited for the other
    hw.end(job, "stopped")
    wait_until(lambda: hw.files() == [], 60, "an empty tray")


def test_a_server_killed_meanwhile_loses_nothing_of_what_comes_through_the_folder(lab: Callable[..., Lab]) -> None:
    hw = lab()
    job = hw.submit("-c", "lab", "-n", "4", "--env", "STEPS=60", sys.executable, "train.py")
    for _ in range(2):
        before = hw.steps(job)
        wait_until(lambda: hw.steps(job) > before, 60, "output")  # noqa: B023  (called before the next round)
        hw.kill_server()
    hw.end(job)
    assert hw.steps(job) == 240
    assert [len(one["step"]) for one in hw.json("metrics", job, "-m", "loss")[job]["loss"]] == [60] * 4

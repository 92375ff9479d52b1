"""Jobs on nodes that are other machines: without the server's socket, and with or without a network
to it.

A node is a mount namespace in which the folder of sockets is empty, and a network namespace, around
the agent's Python.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.server.http.auth import mint
from headway.testing.port import reserve
from tests import needs
from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.waiting import wait_until

TRAIN = """
import os, time, headway as hw
for i in range(int(os.environ.get("STEPS", "10"))):
    hw.log({"loss": 1 / (i + 1)}, step=i)
    print("rank", os.environ.get("RANK", "0"), "step", i, flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0.1")))
"""
NODE = """#!/bin/sh
exec {enter} unshare --mount sh -c 'mount -t tmpfs none {runtime} && exec {python} "$@"' node "$@"
"""


class Lab(Hw):
    """`hw` here, with a cluster `lab` whose nodes see nothing of this machine but the shared folder
    and the home.
    """

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

    def key(self, job: str) -> str:
        return f"{self.json('q', job)['uuid']}-1"

    def change_token(self) -> str:
        """End the token of the one task, and make another that its agent does not know. No server
        runs meanwhile.
        """
        token_id, token, hashed = mint()
        with closing(sqlite3.connect(self.home / "headway.db")) as c, c:
            [(task,)] = c.execute(
                "SELECT task FROM tokens WHERE task IS NOT NULL AND ended_ns IS NULL"
            ).fetchall()
            c.execute("UPDATE tokens SET ended_ns = 1 WHERE task = ?", (task,))
            row = (token_id, hashed, "ingest", task, 1)
            c.execute(
                "INSERT INTO tokens (id, hash, role, task, created_ns) VALUES (?, ?, ?, ?, ?)", row
            )
        return token

    def said(self, job: str) -> str:
        """The agent's own log."""
        return self("logs", job, "--stream", "agent").stdout.decode()

    def way(self, job: str) -> str:
        return str(self.task(job)["way"])

    def check_whole(self, job: str) -> None:
        """End it; each line of it is there once, whichever way it went."""
        self("abort", job)
        self.end(job, "stopped")
        steps = [
            int(line.split()[-1])
            for line in self("logs", job).stdout.decode().splitlines()
            if "step" in line
        ]
        assert steps == list(range(len(steps)))

    def leave(self) -> None:
        self("abort", "--state", "waiting,running", "--yes")
        wait_until(
            lambda: not self.json("ls", "--state", "waiting,running,stopping"),
            60,
            "the end of all jobs",
        )
        self("server", "stop")

    def files(self) -> list[str]:
        """What lies in the trays."""
        return sorted(path.name for path in self.shared.glob("trays/*/*/*"))


@pytest.fixture
def lab(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Callable[..., Lab]]:
    needs.tool("unshare", "util-linux")
    needs.allowed("mount namespaces are", "unshare", "--mount", "--net", "true")
    made: list[Lab] = []

    def make(enter: str = "unshare --net", **env: str) -> Lab:
        made.append(Lab(home, tmp_path, slurm, enter))
        made[-1].env |= env
        return made[-1]

    yield make
    for one in made:
        one.leave()


def test_nodes_without_a_route_send_through_the_folder_and_take_commands_there(
    lab: Callable[..., Lab],
) -> None:
    hw = lab()
    job = hw.submit("-c", "lab", "-n", "8", "--env", "STEPS=1000", sys.executable, "train.py")
    wait_until(lambda: len(hw.points(job, "loss")) >= 10, 60, "its metrics")
    assert {task["way"] for task in hw.json("q", job)["attempts"][0]["tasks"]} == {"folder"}
    assert hw.task(job)["node"].startswith("node")
    assert "sent        through the cluster's folder" in hw("q", job).stdout.decode()
    assert f"then the folder {hw.shared}/trays/" in hw("clusters", "-v").stdout.decode()
    assert "2 through the cluster's folder" in hw("server", "status").stdout.decode()
    [agents] = [found for found in hw.json("doctor") if found["check"] == "agents"]
    assert agents["level"] == "warning"
    assert "no server can be reached at" in agents["text"]
    hw("abort", job)  # that they have started at all was a command: each waited for the other
    hw.end(job, "stopped")
    wait_until(lambda: hw.files() == [], 60, "an empty tray")


def test_a_server_killed_meanwhile_loses_nothing_of_what_comes_through_the_folder(
    lab: Callable[..., Lab],
) -> None:
    hw = lab()
    job = hw.submit("-c", "lab", "-n", "4", "--env", "STEPS=60", sys.executable, "train.py")
    for _ in range(2):
        before = hw.steps(job)
        wait_until(lambda: hw.steps(job) > before, 60, "output")  # noqa: B023  (called before the next round)
        hw.kill_server()
    hw.end(job)
    assert hw.steps(job) == 240
    assert [len(one["step"]) for one in hw.json("metrics", job, "-m", "loss")[job]["loss"]] == [
        60
    ] * 4


class Cable:
    """A network namespace with one cable to here, in a network of its own: other tests may have
    one, too.
    """

    def __init__(self) -> None:
        mark = f"{os.getpid() % 100_000}"
        network = f"10.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}"
        self.here, self.there = f"{network}.1", f"{network}.2"
        self.name, self.end, self.far = f"hwn{mark}", f"hwc{mark}", f"hwf{mark}"

    def ip(self, *words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)

    def up(self) -> None:
        self.ip("netns", "add", self.name)
        self.ip(
            "link", "add", self.end, "type", "veth", "peer", "name", self.far, "netns", self.name
        )
        self.ip("addr", "add", f"{self.here}/24", "dev", self.end)
        self.ip("-n", self.name, "addr", "add", f"{self.there}/24", "dev", self.far)
        self.ip("-n", self.name, "link", "set", self.far, "up")
        self.ip("-n", self.name, "link", "set", "lo", "up")
        self.mend()

    def cut(self) -> None:
        self.ip("link", "set", self.end, "down")

    def mend(self) -> None:
        self.ip("link", "set", self.end, "up")

    def down(self) -> None:
        for words in (["netns", "del", self.name], ["link", "del", self.end]):
            subprocess.run(["ip", *words], capture_output=True, check=False)


@pytest.fixture
def cable() -> Iterator[Cable]:
    needs.tool("ip", "iproute2")
    needs.tool("openssl", "openssl")
    name = f"hwq{os.getpid() % 100_000}"
    needs.allowed(
        "network namespaces are", "sh", "-c", f"ip netns add {name} && ip netns del {name}"
    )
    found = Cable()
    try:
        found.up()
        yield found
    finally:
        found.down()


def test_nodes_with_a_route_use_tls_and_the_folder_while_the_cable_is_out(
    lab: Callable[..., Lab], cable: Cable
) -> None:
    hw = lab(f"ip netns exec {cable.name}", HEADWAY_AGENT_ADDRESS=f"{cable.here}:{reserve()}")
    job = hw.submit("-c", "lab", "--env", "STEPS=1000", sys.executable, "train.py")
    wait_until(
        lambda: hw.way(job) == "network" and hw.steps(job) > 3, 60, "output over the network"
    )
    argv = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    token = json.loads(next(hw.shared.glob("spool/*/task.json")).read_text())["token"]
    assert (
        token.partition(".")[2] not in argv + (hw.shared / f"spool/{hw.key(job)}.slurm").read_text()
    )
    cable.cut()
    wait_until(lambda: hw.way(job) == "folder", 90, "the folder to be used")
    before = hw.steps(job)
    wait_until(lambda: hw.steps(job) > before, 60, "output through the folder")
    wait_until(
        lambda: f"through a folder now: no server can be reached at {cable.here}" in hw.said(job),
        60,
        "why",
    )
    hw.check_whole(job)


def test_a_new_certificate_costs_nothing(lab: Callable[..., Lab], cable: Cable) -> None:
    hw = lab(f"ip netns exec {cable.name}", HEADWAY_AGENT_ADDRESS=f"{cable.here}:{reserve()}")
    job = hw.submit("-c", "lab", "--env", "STEPS=1000", sys.executable, "train.py")
    wait_until(
        lambda: hw.way(job) == "network" and hw.steps(job) > 3, 60, "output over the network"
    )
    pin = hw.json("server", "status")["agents"]["pin"]
    hw("server", "stop")
    for name in ("key.pem", "cert.pem"):
        (hw.home / "tls" / name).unlink()
    before = hw.steps(job)  # starts a server, which makes a new certificate
    wait_until(
        lambda: hw.steps(job) > before and hw.way(job) == "network",
        120,
        "the network with the new one",
    )
    assert hw.json("server", "status")["agents"]["pin"] != pin
    hw.check_whole(job)


def test_a_revoked_token_costs_nothing_and_is_told(lab: Callable[..., Lab], cable: Cable) -> None:
    hw = lab(f"ip netns exec {cable.name}", HEADWAY_AGENT_ADDRESS=f"{cable.here}:{reserve()}")
    job = hw.submit("-c", "lab", "--env", "STEPS=1000", sys.executable, "train.py")
    wait_until(
        lambda: hw.way(job) == "network" and hw.steps(job) > 3, 60, "output over the network"
    )
    hw("server", "stop")
    hw.change_token()
    before = hw.steps(job)
    wait_until(lambda: hw.steps(job) > before and hw.way(job) == "folder", 120, "the folder")
    wait_until(
        lambda: "the server does not accept this task's token (401)" in hw.said(job),
        60,
        "the reason",
    )
    hw.check_whole(job)

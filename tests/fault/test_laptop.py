"""A Slurm cluster from a laptop that sees only ssh: real sshd, real daemons; each part of the way
killed in turn.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import slurmed
from tests.contract.conftest import s3 as s3  # a fixture
from tests.driver import HW
from tests.laptop import Laptop
from tests.rigs.sshd_rig import HOST
from tests.waiting import wait_until

TRAIN = """
import os, pathlib, time, headway as hw
for i in range(int(os.environ.get("STEPS", "3"))):
    hw.log({"loss": 1 / (i + 1)}, step=i)
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "step", i, flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0.5")))
(pathlib.Path(os.environ["HEADWAY_OUTPUT_DIR"]) / f"model-{os.environ['RANK']}").write_text("weights")
"""


@pytest.fixture
def hw(laptop: Laptop) -> Laptop:
    laptop.script(TRAIN)
    return laptop


@pytest.mark.cap(43)
def test_eight_ranks_on_two_nodes_with_logs_metrics_usage_and_outputs_over_ssh_alone(
    hw: Laptop,
) -> None:
    assert "lab" in hw("clusters").stdout.decode() and hw.json("clusters")[1]["total"]["gpus"] == 16
    job = hw.submit("-c", "lab", "-n", "8", "--env", "STEPS=12", "python3", "train.py")
    live = hw.wait_state(job, "running", timeout_s=90)
    wait_until(lambda: hw.points(job, "loss", rank=7), 60, "points of the last rank while it runs")
    live = hw.json("q", job)
    assert live["state"] == "running" and live["attach"][:4] == ["ssh", "-t", "--", "login"]
    assert "--overlap -w node" in live["attach"][4] and live["engine_id"].isdigit()
    other = hw("ssh", job, "--task", "worker-1", "--print").stdout.decode()
    nodes = [task["node"] for task in live["attempts"][0]["tasks"]]
    assert len(set(nodes)) == 2 and "ssh -t -- login" in other and f"-w {nodes[1]} " in other
    ended = hw.wait_ended(job, timeout_s=90)
    assert ended["state"] == "succeeded", ended
    assert [task["node"] for task in ended["attempts"][0]["tasks"]] == nodes
    lines = hw("logs", job).stdout.decode().splitlines()
    for rank in range(8):
        assert [f"rank {rank} of 8 step {i}" in "\n".join(lines) for i in range(12)] == [True] * 12
    series = hw.json("metrics", job, "-m", "loss")[job]["loss"]
    assert sorted(one["rank"] for one in series) == list(range(8))
    assert (
        all(one["step"] == list(range(12)) for one in series)
        and ended["usage"]["cpu_percent"] is not None
    )
    outputs = Path(ended["output_dir"])
    wait_until(lambda: len(list(outputs.glob("model-*"))) == 8, 30, "the outputs")
    assert (outputs / "model-3").read_text() == "weights"


def until_told(hw: Laptop, *words: str) -> tuple[str, Path]:
    """A job that runs until there is this file, so that it does not end first, however slow the
    machine is.
    """
    hw.script(slurmed.TRAIN, "until.py")
    until = hw.folder / "until"  # where the nodes see it
    job = hw.submit("-c", "lab", *words, "--env", f"UNTIL={until}", "python3", "until.py")
    hw.wait_state(job, "running", timeout_s=90)
    return job, until


def steps(hw: Laptop, job: str, rank: int) -> list[str]:
    return hw("logs", job, "--rank", str(rank), "--stream", "stdout").stdout.decode().splitlines()


def test_ssh_relay_and_server_killed_in_turn_leave_a_true_state_and_complete_logs(
    hw: Laptop,
) -> None:
    job, until = until_told(hw, "-n", "2")
    for name in ("ssh", "relay"):
        known = wait_until(lambda: hw.points(job, "loss"), 90, "points")
        before = set(hw.processes(name))
        hw.kill(name)
        wait_until(lambda b=before: set(hw.processes("relay")) - b, 90, "another relay")
        wait_until(lambda k=known: len(hw.points(job, "loss")) > len(k), 90, "more points")
    hw.kill_server()
    wait_until(lambda: not hw.processes("relay"), 60, "the end of the relay with its server")
    hw.start_server()
    until.touch()
    ended = hw.wait_ended(job, timeout_s=120)
    assert (
        ended["state"] == "succeeded"
        and len(ended["attempts"]) == 1
        and ended["attempts"][0]["cause"] is None
    )
    for rank in range(2):
        *lines, last = steps(hw, job, rank)
        assert lines == [f"step {i}" for i in range(len(lines))] and last == f"steps {len(lines)}"


def test_a_host_that_is_away_is_told_in_words_and_the_job_is_found_again(hw: Laptop) -> None:
    job, until = until_told(hw)
    hw.sshd.stop()
    hw.kill("ssh")
    wait_until(lambda: b"is not reached over ssh" in hw("q", job).stdout, 90, "words in hw q")
    [row] = [row for row in hw.json("clusters") if row["name"] == "lab"]
    assert "login is not reached over ssh" in row["error"] and "since" in row["error"]
    assert hw.json("q", job)["state"] in ("running", "unknown")
    until.touch()
    hw.sshd.start()
    assert hw.wait_ended(job, timeout_s=120)["state"] == "succeeded"
    *lines, last = steps(hw, job, 0)
    assert lines == [f"step {i}" for i in range(len(lines))] and last == f"steps {len(lines)}"


@pytest.mark.cap(43)
def test_a_node_is_held_for_a_shell_entered_and_freed(hw: Laptop) -> None:
    job = hw.submit("-c", "lab", "-n", "2", "--max-duration", "10m", "ssh")
    hw.wait_state(job, "running", timeout_s=90)
    words = hw.json("ssh", job)["argv"]
    script = " ".join([*words[:-1], f"'{words[-1]}'"])
    typed = subprocess.run(  # a terminal, as a person has
        ["script", "-qec", script, "/dev/null"], cwd=hw.cwd, env=hw.env | {"PATH": f"{hw.env['PATH']}:/usr/bin:/bin"},
        input=b"echo on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES; exit\n", capture_output=True, timeout=60,
    )  # fmt: skip
    assert re.search(rb"on node[1-4] with [0-3],[0-3]", typed.stdout), typed
    assert hw("release", job).returncode == 0
    assert hw.wait_ended(job, timeout_s=60)["state"] == "stopped"
    refused = subprocess.run(
        [*HW, "ssh", job], cwd=hw.cwd, env=hw.env, capture_output=True, timeout=30
    )
    assert refused.returncode == 1 and b"nothing that can be entered" in refused.stderr


def cluster_with(hw: Laptop, python: str, more: str = "") -> None:
    lab = f"{{engine: slurm, host: {HOST}, folder: {hw.folder}, partition: main, python: {python}}}"
    (hw.cwd / "headway.yaml").write_text(f"clusters: {{lab: {lab}}}\n{more}")


def carrying(
    hw: Laptop, folders: dict[str, Any], command: str
) -> subprocess.CompletedProcess[bytes]:
    job = {
        "name": "carry",
        "command": ["sh", "-c", command],
        "nodes": 2,
        "processes": 2,
        "folders": folders,
    }
    (hw.cwd / "job.yaml").write_text(json.dumps(job))
    return hw("-c", "lab", "submit", "--json", "job.yaml")


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # removed meanwhile
        return b""


@pytest.mark.cap(48)
def test_folders_of_the_cluster_and_in_storage_are_there_on_each_node_and_sent_with_the_keys_of_the_laptop(
    hw: Laptop, s3: int
) -> None:
    bucket, secret = f"b{os.urandom(4).hex()}", f"secret-{os.urandom(8).hex()}"
    address = f"http://127.0.0.1:{s3}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{bucket}", method="PUT")).close()
    hw.env |= {"LAB_ID": "testing", "LAB_SECRET": secret}
    row = f'{{kind: s3, endpoint: "{address}", key_id: LAB_ID, secret: LAB_SECRET}}'
    # this Python has what storage needs
    cluster_with(hw, sys.executable, f"accounts: {{mine: {row}}}\n")
    for folder, name in ((hw.cwd / "source", "a"), (hw.folder / "there", "b")):
        folder.mkdir()
        (folder / name).write_text(name)
    assert hw("storage", "upload", "source", f"s3://{bucket}/in").returncode == 0
    folders = {
        "data": {"from": f"s3://{bucket}/in"}, "words": {"from": str(hw.folder / "there")},
        "output": {"to": f"s3://{bucket}/out"}, "kept": {"to": str(hw.folder / "kept")},
    }  # fmt: skip
    command = "cat data/a words/b; echo $RANK | tee output/$RANK > kept/$RANK; env | grep -c 'LAB_\\|STORAGE_KEYS'; true"
    job = json.loads(carrying(hw, folders, command).stdout)["id"]
    ended = hw.wait_ended(job, timeout_s=90)
    assert ended["state"] == "succeeded", ended["attempts"]
    assert hw("logs", job, "--rank", "1", "--stream", "stdout").stdout == b"ab0\n"
    assert [row["name"] for row in hw.json("storage", "ls", f"s3://{bucket}/out")] == ["0", "1"]
    assert {path.name: path.read_text() for path in (hw.folder / "kept").iterdir()} == {
        "0": "0\n",
        "1": "1\n",
    }

    def held() -> list[Path]:
        files = [
            path for folder in (hw.folder, hw.home) for path in folder.rglob("*") if path.is_file()
        ]
        return [path for path in files if secret.encode() in read(path)]

    wait_until(lambda: not held(), 30, "the end of everything that holds the key")
    bare = hw.cwd.parent / f"{hw.cwd.name}-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without packages
    bare.chmod(0o755)
    cluster_with(hw, str(bare), f"accounts: {{mine: {row}}}\n")
    refused = carrying(hw, folders, "true")
    assert refused.returncode == 1
    assert (
        f"needs the package obstore, which {bare} on login does not have" in refused.stderr.decode()
    )

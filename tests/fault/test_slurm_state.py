"""A controller of Slurm that comes back without its state: jobs that ran are unknown to it, and
numbers begin anew.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Hw
from tests.rigs.slurm_rig import NODES, SlurmCluster
from tests.slurmed import TRAIN, daemons, on_slurm
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """One of its own: the others' jobs would be lost with its state."""
    with daemons() as cluster:
        yield cluster


@pytest.fixture
def hw(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Hw]:
    with on_slurm(home, tmp_path, slurm, TRAIN) as driver:
        yield driver


def submit(hw: Hw, until: str, *options: str) -> str:
    return hw.submit(
        "-c", "lab", "--env", f"UNTIL={hw.cwd / until}", *options, sys.executable, "train.py"
    )


def over(hw: Hw, job: str) -> Any:
    def look() -> Any:
        found = hw.json("q", job)
        return found if found["ended_at"] else None

    return wait_until(look, 120, f"the end of {job}")


def steps(hw: Hw, job: str) -> int:
    """How many its output tells, each once and in order."""
    said = hw("logs", job, "--stream", "stdout").stdout.decode().splitlines()
    count = sum(line.startswith("step ") for line in said)
    assert said[:count] == [f"step {i}" for i in range(count)]
    return count


def lose_state(slurm: SlurmCluster) -> None:
    """As if the disk of the controller were lost: it knows no job, and its numbers begin anew."""
    slurm.kill("slurmctld")
    shutil.rmtree(slurm.folder / "state")
    (slurm.folder / "state").mkdir()
    slurm.start_controller()
    wait_until(lambda: slurm.command("squeue", "-h").returncode == 0, 30, "the controller")


def foreign(slurm: SlurmCluster) -> str:
    """Somebody's own job; its number."""
    return slurm.command(
        "sbatch", "--parsable", "-N1", "-o", "/dev/null", "--wrap", "sleep 300"
    ).stdout.strip()


def set_nodes(slurm: SlurmCluster, state: str) -> None:
    # one that is in that state already refuses, and with it all that are named
    for number in range(1, NODES + 1):
        slurm.command(
            "scontrol", "update", f"nodename=node{number}", f"state={state}", "reason=test"
        )


def words(slurm: SlurmCluster, numbers: set[str]) -> list[str]:
    said = slurm.command("squeue", "-h", "-t", "all", "-o", "%A %T").stdout.splitlines()
    return [line.split()[1] for line in said if line.split()[0] in numbers]


def test_jobs_of_a_controller_that_lost_its_state_end_truly_and_their_numbers_are_no_longer_theirs(
    hw: Hw, slurm: SlurmCluster
) -> None:
    stopped, killed = submit(hw, "never"), submit(hw, "never")
    wait_until(
        lambda: all(len(hw.points(job, "loss")) > 3 for job in (stopped, killed)),
        60,
        "the first points",
    )
    waits = submit(hw, "enough", "-n", "16")
    wait_until(
        lambda: "PENDING" in slurm.command("squeue", "-h", "-o", "%T").stdout, 30, "one that waits"
    )
    taken = {hw.json("q", job)["engine_id"] for job in (stopped, killed)}
    [node] = {
        task["node"]
        for job in (stopped, killed)
        for task in hw.json("q", job)["attempts"][0]["tasks"]
    }
    os.kill(hw.server_pid(), signal.SIGSTOP)  # so that others are first to get numbers
    try:
        slurm.kill(node)  # its agents go on
        lose_state(slurm)
        # a question of sbatch's takes a number, too
        others = {foreign(slurm) for _ in range(max(map(int, taken)))}
        assert taken <= others
    finally:
        os.kill(hw.server_pid(), signal.SIGCONT)
    wait_until(lambda: words(slurm, taken) == ["RUNNING"] * 2, 60, "the others' jobs")
    wait_until(
        lambda: b"no longer known to Slurm" in hw("q", stopped).stdout, 60, "what Slurm says"
    )
    for job in (stopped, killed):
        assert hw.json("q", job)["state"] == "running"
        count = len(hw.points(job, "loss"))
        wait_until(
            lambda j=job, c=count: len(hw.points(j, "loss")) > c,
            30,
            "more of a program that goes on",
        )
    assert hw("abort", stopped).returncode == 0
    assert over(hw, stopped)["state"] == "stopped"
    slurm.start_node(node)  # it ends what the controller does not know
    ended = over(hw, killed)
    assert (ended["state"], len(ended["attempts"])) == ("unknown", 1)
    assert "no longer known to Slurm" in ended["attempts"][0]["cause"]["text"]
    for job in (stopped, killed):
        assert 0 <= len(hw.points(job, "loss")) - steps(hw, job) <= 1
    assert words(slurm, taken) == ["RUNNING"] * 2
    (hw.cwd / "enough").touch()
    again = over(hw, waits)
    assert again["state"] == "succeeded" and again["engine_id"] not in taken
    slurm.command("scancel", *others)
    slurm.wait_idle()


def test_a_job_whose_start_the_controller_lost_is_told_as_that_and_tried_again_and_never_as_cancelled(
    hw: Hw, slurm: SlurmCluster
) -> None:
    """Its state is put back to what it was before the start, as if it had died before it could save
    it.
    """
    set_nodes(slurm, "drain")
    job = submit(hw, "enough", "-n", "8")
    wait_until(
        lambda: "PENDING" in slurm.command("squeue", "-h", "-o", "%T").stdout, 30, "one that waits"
    )
    slurm.kill("slurmctld", signal.SIGTERM)
    state, before = slurm.folder / "state", slurm.folder / "before"
    shutil.copytree(state, before)
    slurm.start_controller()
    wait_until(lambda: slurm.command("squeue", "-h").returncode == 0, 30, "the controller")
    set_nodes(slurm, "resume")
    wait_until(lambda: len(hw.points(job, "loss", rank=7)) > 3, 60, "points of the last rank")
    wait_until(
        lambda: hw.json("q", job)["attempts"][0]["engine_word"] == "RUNNING", 60, "what Slurm says"
    )
    slurm.kill("slurmctld")
    shutil.rmtree(state)
    shutil.move(before, state)
    slurm.start_controller()
    wait_until(lambda: len(hw.json("q", job)["attempts"]) == 2, 120, "the second attempt")
    (hw.cwd / "enough").touch()
    wait_until(lambda: set_nodes(slurm, "resume") or hw.json("q", job)["ended_at"], 120, "its end")
    ended = hw.json("q", job)
    assert ended["state"] == "succeeded" and len(ended["attempts"]) == 2
    cause = ended["attempts"][0]["cause"]
    assert (cause["cause"], cause["class"]) == (
        "start_lost",
        "transient",
    ) and "has lost that" in cause["text"]
    lines = (
        hw("logs", job, "--attempt", "1", "--rank", "7", "--stream", "stdout")
        .stdout.decode()
        .splitlines()
    )
    assert lines == [f"step {i}" for i in range(len(lines))] and len(lines) > 3
    wait_until(
        lambda: words(slurm, {ended["attempts"][0]["engine_id"]}) == ["CANCELLED"],
        60,
        "its withdrawal",
    )
    slurm.wait_idle()

"""Everything that runs for a job on a real Slurm is killed in turn: each job keeps a true state and
all its output.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.slurmed import TRAIN, on_slurm, processes_of
from tests.waiting import wait_until


@pytest.fixture
def hw(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Hw]:
    with on_slurm(home, tmp_path, slurm, TRAIN) as driver:
        yield driver


def submit(hw: Hw, until: str) -> str:
    """A job that ends once there is a file of that name; the pause before it is tried again is
    short.
    """
    path = hw.cwd / f"{until}.yaml"
    env, command = {"UNTIL": str(hw.cwd / until)}, [sys.executable, "train.py"]
    path.write_text(
        json.dumps({"name": until, "command": command, "env": env, "retry": {"backoff": "0.1s"}})
    )
    return hw.submit("-c", "lab", path.name)


def running(hw: Hw, *jobs: str) -> None:
    wait_until(
        lambda: all(len(hw.points(job, "loss")) > 3 for job in jobs),
        90,
        "the first points of all jobs",
    )


def over(hw: Hw, job: str) -> Any:
    """Also where its end is not known, which is an end, too."""

    def look() -> Any:
        found = hw.json("q", job)
        return found if found["ended_at"] else None

    return wait_until(look, 90, f"the end of {job}")


def steps(hw: Hw, job: str, attempt: int = 1) -> int:
    """How many steps its output tells, each once and in order; whole: it says itself how many there
    were.
    """
    said = (
        hw("logs", job, "--stream", "stdout", "--attempt", str(attempt))
        .stdout.decode()
        .splitlines()
    )
    whole = [line for line in said if line.startswith("steps ")]
    count = len(said) - len(whole)
    assert said == [*(f"step {i}" for i in range(count)), *whole] and whole in (
        [],
        [f"steps {count}"],
    )
    return count


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it went with one before it


def hide_locks(hw: Hw, job: str) -> None:
    """As if the job ran on another machine, whose locks are not seen here (F33)."""
    [folder] = (hw.home / "clusters" / "lab" / "spool").glob(f"{hw.json('q', job)['uuid']}-1-*/")
    for name in ("shim.lock", "shipper.lock"):
        (folder / name).unlink()
        (folder / name).touch(0o600)
    shim = json.loads((folder / "shim.json").read_text())
    (folder / "shim.json").write_text(json.dumps({**shim, "boot_id": "another machine"}))


def test_each_process_of_a_job_killed_in_turn_leaves_the_truth_and_all_output(
    hw: Hw, slurm: SlurmCluster
) -> None:
    whom = ("program", "shipper", "shim", "agents", "all")
    jobs = {who: submit(hw, "enough") for who in whom}
    running(hw, *jobs.values())
    for who, job in jobs.items():
        found = processes_of(slurm, hw.json("q", job)["engine_id"])
        found["agents"] = found["shim"] + found["shipper"]
        found["all"] = [*found["agents"], *found["program"]]
        kill(found[who])
    (hw.cwd / "enough").touch()
    ends = {who: over(hw, job) for who, job in jobs.items()}
    told = {
        who: (end["state"], (end["attempts"][0]["cause"] or {}).get("cause"))
        for who, end in ends.items()
    }
    assert told == {
        "program": ("failed", "sigkill_unexplained"),
        "shipper": ("succeeded", None),
        "shim": ("unknown", "agent_lost"),  # the program went on; how it ended nobody saw
        "agents": ("unknown", "agent_lost"),
        "all": ("unknown", "agent_lost"),
    }
    assert "Slurm: FAILED" in ends["shim"]["attempts"][0]["cause"]["text"]
    for job in jobs.values():
        assert 0 <= len(hw.points(job, "loss")) - steps(hw, job) <= 1


def test_a_node_daemon_killed_alone_ends_nothing_and_is_told_apart_from_a_lost_node(
    hw: Hw, slurm: SlurmCluster
) -> None:
    """Slurm calls both NODE_FAIL. A program that goes on runs, also where the locks of its agent
    are not seen; one that died with its node is tried on another.
    """
    here, there, unseen = submit(hw, "here"), submit(hw, "there"), submit(hw, "unseen")
    running(hw, here, there, unseen)
    hide_locks(hw, unseen)
    [node] = {
        task["node"]
        for job in (here, there, unseen)
        for task in hw.json("q", job)["attempts"][0]["tasks"]
    }
    slurm.kill(node)
    found = processes_of(slurm, hw.json("q", there)["engine_id"])
    kill([*found["step"], *found["batch"], *(pid for pids in found.values() for pid in pids)])
    # sooner than its timeout
    slurm.command("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    (hw.cwd / "there").touch()
    wait_until(lambda: len(hw.json("q", there)["attempts"]) == 2, 60, "the second attempt")
    ended = over(hw, there)
    assert ended["state"] == "succeeded" and ended["attempts"][1]["tasks"][0]["node"] != node
    cause = ended["attempts"][0]["cause"]
    assert cause["cause"] == "node_lost" and f"NODE_FAIL (NodeDown) on {node}" in cause["text"]
    assert steps(hw, there) > 3
    for job in (here, unseen):
        still = hw.json("q", job)
        assert still["state"] == "running" and len(still["attempts"]) == 1
        count = len(hw.points(job, "loss"))
        wait_until(
            lambda j=job, c=count: len(hw.points(j, "loss")) > c, 30, "more of those that go on"
        )
    (hw.cwd / "unseen").touch()
    done = over(hw, unseen)
    assert (done["state"], len(done["attempts"])) == ("succeeded", 1)
    assert steps(hw, unseen) == len(hw.points(unseen, "loss"))
    slurm.start_node(node)  # it ends what the controller has given up
    slurm.command("scontrol", "update", f"nodename={node}", "state=resume")
    wait_until(lambda: len(hw.json("q", here)["attempts"]) == 2, 60, "its end by the node's daemon")
    assert hw.json("q", here)["attempts"][0]["cause"]["cause"] == "node_lost"
    (hw.cwd / "here").touch()
    assert over(hw, here)["state"] == "succeeded"
    slurm.wait_idle()

"""The server is killed at random moments, and stopped for a while, during a run of jobs on a real
Slurm (P9, P10, F27).

Seeded: `HEADWAY_KILL_SEED` repeats a run, `HEADWAY_KILL_JOBS` makes it longer (`make
test-cluster`).
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.slurmed import on_slurm
from tests.waiting import wait_until

JOBS = int(os.environ.get("HEADWAY_KILL_JOBS", "4"))
SEED = int(os.environ.get("HEADWAY_KILL_SEED", "0")) or random.randrange(1, 1 << 30)
STOPPED_S = float(os.environ.get("HEADWAY_STOPPED_S", "4"))
TRAIN = """
import os, sys, time, headway as hw
for i in range(20):
    hw.log({"loss": 1 / (i + 1)}, step=i)
    print("step", i, flush=True)
    time.sleep(0.1)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Hw]:
    with on_slurm(home, tmp_path, slurm, TRAIN) as driver:
        yield driver


def check(hw: Hw, slurm: SlurmCluster, jobs: dict[str, int]) -> None:
    """Each ran once, ended as it did, and lost nothing."""
    said = slurm.command("squeue", "-h", "-t", "all", "-o", "%k").stdout
    for job, code in jobs.items():
        found = hw.json("q", job)
        assert (found["state"], found["exit_code"]) == (
            "succeeded" if code == 0 else "failed",
            code,
        ), SEED
        assert said.count(f"headway:{found['uuid']}-") == 1 and len(found["attempts"]) == 1, SEED
        lines = hw("logs", job, "--stream", "stdout").stdout.decode().splitlines()
        assert lines == [f"step {i}" for i in range(20)], SEED
        assert hw.points(job, "loss") == [1 / (i + 1) for i in range(20)], SEED


def test_a_server_killed_at_random_moments_runs_each_job_once_and_loses_nothing(
    hw: Hw, slurm: SlurmCluster
) -> None:
    chance = random.Random(SEED)
    jobs: dict[str, int] = {}
    for _ in range(JOBS):
        code = chance.choice((0, 0, 3))
        jobs[hw.submit("-c", "lab", sys.executable, "train.py", str(code))] = code
        if chance.random() < 0.7:
            wait_until(_after(chance.uniform(0, 1.5)), 10)
            hw.kill_server()

    def are_over() -> bool:
        if chance.random() < 0.3:
            wait_until(_after(chance.uniform(0, 2)), 10)
            hw.kill_server()
        return all(job["ended_at"] for job in hw.json("ls"))

    wait_until(are_over, 120 + 10 * JOBS, f"the end of all jobs (seed {SEED})")
    check(hw, slurm, jobs)


def _after(seconds: float) -> Callable[[], bool]:
    """True once so much time has passed."""
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= until_s


def test_a_server_that_stands_still_for_a_while_goes_on_where_it_was(
    hw: Hw, slurm: SlurmCluster
) -> None:
    jobs = {hw.submit("-c", "lab", sys.executable, "train.py", str(code)): code for code in (0, 3)}
    wait_until(lambda: all(hw.points(job, "loss") for job in jobs), 60, "the first points")
    pid = hw.server_pid()
    os.kill(pid, signal.SIGSTOP)
    wait_until(_after(STOPPED_S), STOPPED_S + 10)
    os.kill(pid, signal.SIGCONT)
    for job in jobs:
        hw.wait_ended(job)
    assert hw.server_pid() == pid
    check(hw, slurm, jobs)

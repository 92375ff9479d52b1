"""The examples run as they stand, and what they are there to show is to be seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw
from tests.waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


@pytest.mark.cap(18, 19, 20, 21, 32)
def test_the_monitor_example_shows_records_progress_checkpoints_and_timings(hw: Hw) -> None:
    script = str(EXAMPLES / "monitor" / "train.py")
    done = hw(
        "run", "-n", "2", PYTHON, script, "--epochs", "2", "--steps", "3", "--seconds", "0.05"
    )
    assert done.returncode == 0, done.stderr.decode()
    job = hw.json("ls")[0]["id"]
    told = {(" ".join(one["msg"]), one["rank"]): one for one in hw.json("q", job)["progress"]}
    for rank in (0, 1):
        for msg, total in (("load parts of the data", 8), ("epochs", 2), ("steps", 3)):
            one = told[msg, rank]
            assert (one["completed"], one["total"], one["state"]) == (total, total, "completed"), (
                one
            )
    shared = told["evaluate", None]
    assert (shared["completed"], shared["total"], shared["state"]) == (16, 16, "completed")
    said = (done.stdout + done.stderr).decode()
    assert said.count("finished {'accuracy': 0.91} after 8 parts") == 2
    assert said.count("│ cat") == 2  # the table, drawn once for each rank
    marks = [tuple(one["tags"]) for one in hw.json("usage", job)["checkpoints"] if one["rank"] == 0]
    assert marks == [("epoch", "0"), ("epoch", "1"), ("evaluate",)]
    timings = {
        one["rank"]: one["count"] for one in hw.json("timings", job) if one["name"] == "step"
    }
    assert timings == {0: 6, 1: 6}


def test_the_monitor_example_runs_without_hw_and_prints_the_same(hw: Hw, tmp_path: Path) -> None:
    script = str(EXAMPLES / "monitor" / "train.py")
    argv = [sys.executable, script, "--epochs", "1", "--steps", "1", "--seconds", "0.01"]
    env = {**os.environ, "HEADWAY_HOME": str(hw.home)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert b"epoch 1 is done" in done.stderr
    job = wait_until(lambda: hw.json("ls"), what="the job that it has become")[0]["id"]
    hw.wait_ended(job)

"""An array on a real Slurm, through the real `hw`: one sbatch, elements that end on their own,
nothing twice.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.waiting import wait_until

COUNTING = """#!/bin/sh
case "$*" in *--test-only*) exec {real} "$@";; esac
echo "$*" >> {calls}
said=$({real} "$@") || exit
if [ -e {kill} ]; then rm {kill}; kill -9 $PPID; fi
echo "$said"
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Hw]:
    """What `sbatch` submits is counted; where the file `kill` lies, the server dies before it hears
    the answer.
    """
    (tmp_path / "headway.yaml").write_text("clusters: {lab: {engine: slurm, partition: main}}\n")
    driver = Hw(home, tmp_path)
    driver.env |= slurm.env
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    real = slurm.command("sh", "-c", "command -v sbatch").stdout.strip()
    fake.write_text(COUNTING.format(calls=tmp_path / "calls", real=real, kill=tmp_path / "kill"))
    fake.chmod(0o755)
    driver.env["PATH"] = f"{fake.parent}:{driver.env['PATH']}"
    yield driver
    driver("abort", "--state", "waiting,running", "--yes")
    wait_until(
        lambda: not driver.json("ls", "--state", "waiting,running,stopping"),
        60,
        "the end of all jobs",
    )
    driver("server", "stop")


def calls(hw: Hw) -> int:
    return len((hw.cwd / "calls").read_text().splitlines())


def test_an_array_is_one_sbatch_and_its_jobs_end_each_on_its_own(hw: Hw) -> None:
    code = "import os, sys; i = int(os.environ['HEADWAY_ARRAY_INDEX']); print('element', i); sys.exit(i == 3)"
    made = hw.submit("-c", "lab", "--array", "6", sys.executable, "-c", code)
    wait_until(
        lambda: not hw.json("ls", "--array", made, "--state", "waiting,running"),
        90,
        "the end of all",
    )
    jobs = {job["array_index"]: hw.json("q", job["id"]) for job in hw.json("ls", "--array", made)}
    assert calls(hw) == 1
    assert [jobs[k]["state"] for k in range(6)] == ["succeeded"] * 3 + ["failed"] + [
        "succeeded"
    ] * 2
    [number] = {job["engine_id"].partition("_")[0] for job in jobs.values()}
    assert [jobs[k]["engine_id"] for k in range(6)] == [f"{number}_{k}" for k in range(6)]
    for index, job in jobs.items():
        assert hw("logs", job["id"]).stdout.decode().strip().endswith(f"element {index}")


def test_a_server_killed_before_it_heard_of_the_batch_job_adopts_every_element(
    hw: Hw, slurm: SlurmCluster
) -> None:
    hw.json("ls")
    (hw.cwd / "kill").touch()
    made = hw.submit(
        "-c", "lab", "--array", "5", "--max-duration", "5m", "sh", "-c", "echo once; sleep 2"
    )
    wait_until(lambda: not (hw.cwd / "kill").exists(), 60, "the end of the server")
    wait_until(
        lambda: len(hw.json("ls", "--array", made, "--state", "succeeded")) == 5,
        90,
        "the end of all",
    )
    assert calls(hw) == 1
    jobs = [hw.json("q", job["id"]) for job in hw.json("ls", "--array", made)]
    assert all(len(job["attempts"]) == 1 and "_" in job["engine_id"] for job in jobs)
    assert [hw("logs", job["id"]).stdout.decode().count("once") for job in jobs] == [1] * 5


def test_one_element_is_stopped_alone_and_then_all_of_them(hw: Hw, slurm: SlurmCluster) -> None:
    made = hw.submit("-c", "lab", "-n", "4", "--array", "7", "--max-duration", "5m", "sleep", "100")
    wait_until(
        lambda: len(hw.json("ls", "--array", made, "--state", "running")) == 4,
        90,
        "four of them to run",
    )
    [runs, *_], [waits, *_] = (
        hw.json("ls", "--array", made, "--state", state) for state in ("running", "waiting")
    )
    for job in (runs, waits):
        assert hw("abort", job["id"]).returncode == 0
        assert hw.wait_ended(job["id"], timeout_s=60)["state"] == "stopped"
    left = {job["id"] for job in hw.json("ls", "--array", made, "--state", "running,waiting")}
    assert len(left) == 5
    assert hw("abort", made).returncode == 0
    wait_until(
        lambda: len(hw.json("ls", "--array", made, "--state", "stopped")) == 7, 90, "the end of all"
    )
    wait_until(lambda: slurm.command("squeue", "-h", "--me").stdout == "", 30, "an empty queue")


def test_an_element_that_fails_is_tried_again_as_a_job_of_its_own(hw: Hw) -> None:
    code = "import os, sys; sys.exit(os.environ['HEADWAY_ARRAY_INDEX'] == '1' and os.environ['HEADWAY_ATTEMPT'] == '1')"
    made = hw.submit("-c", "lab", "--array", "3", "--retry", "1", sys.executable, "-c", code)
    wait_until(
        lambda: len(hw.json("ls", "--array", made, "--state", "succeeded")) == 3,
        90,
        "the end of all",
    )
    jobs = {job["array_index"]: hw.json("q", job["id"]) for job in hw.json("ls", "--array", made)}
    assert [len(jobs[k]["attempts"]) for k in range(3)] == [1, 2, 1]
    assert calls(hw) == 2 and jobs[1]["engine_id"].isdigit()

"""A real Slurm that watches memory itself and kills what takes more than it asked for.

Its state says FAILED then, and only the output of the batch script tells why. Where cgroups watch,
it is OUT_OF_MEMORY.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster, missing
from tests.slurmed import on_slurm

EAT = """
import os, sys, time
taken = []
if os.environ.get("HEADWAY_ARRAY_INDEX") == "1":
    sys.exit(0)
for i in range(100):
    taken.append(bytearray(20 << 20))
    print("has", 20 * (i + 1), flush=True)
    time.sleep(0.2)
"""
WATCH = ("JobAcctGatherParams=OverMemoryKill", "JobAcctGatherFrequency=task=1")


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Iterator[Hw]:
    if lacking := missing():
        needs.missing(f"no {lacking[0]} here; type: sudo apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="hw-slurm-", dir="/tmp"))
    try:
        with (
            SlurmCluster(folder, lines=WATCH) as slurm,
            on_slurm(home, tmp_path, slurm, EAT) as driver,
        ):
            yield driver
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_that_slurm_kills_over_its_memory_says_so_with_what_it_asked_for_and_what_to_type(
    hw: Hw,
) -> None:
    """Alone, and as an element of an array, of which each has its own output of the batch script."""
    alone = hw.submit("-c", "lab", "--memory", "200MiB", sys.executable, "train.py")
    array = hw.submit("-c", "lab", "--memory", "200MiB", "--array", "2", sys.executable, "train.py")
    elements = {job["array_index"]: str(job["id"]) for job in hw.json("ls", "--array", array)}
    for job in (alone, elements[0]):
        check(hw, job)
    assert hw.wait_ended(elements[1])["state"] == "succeeded"


def check(hw: Hw, job: str) -> None:
    ended = hw.wait_ended(job, timeout_s=90)
    cause = ended["attempts"][0]["cause"]
    assert (ended["state"], cause["cause"], cause["class"]) == ("failed", "host_oom", "resource")
    assert re.search("Slurm: FAILED on node[1-4], killed because memory ran out", cause["text"])
    assert (
        f"it had asked for 200 MiB; with more: hw resubmit {job[-5:]} --memory 400MiB"
        in cause["text"]
    )
    said = hw("logs", job, "--stream", "stdout").stdout.decode().splitlines()
    assert said == [f"has {20 * (i + 1)}" for i in range(len(said))] and len(said) >= 8

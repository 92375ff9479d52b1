"""`hw.distributed` with real PyTorch process groups (gloo), real torchrun and real mpirun; every
sum is checked.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from headway.home import launch
from tests import needs
from tests.driver import Hw
from tests.many import submit, tasks

SCRIPT = """\
import headway as hw
hw.distributed.ensure_init_process_group(timeout_s=60)
hw.distributed.ensure_init_process_group()  # again: nothing happens
import torch, torch.distributed as dist
value = torch.tensor([float(hw.distributed.rank() + 1)])
dist.all_reduce(value)
import os
if "HEADWAY_SPOOL" in os.environ:
    hw.log({"sum": value.item()}, step=0)
words = hw.distributed.rank(), hw.distributed.world_size(), int(value.item()), dist.get_backend()
os.write(1, ("RESULT %d %d %d %s\\n" % words).encode())
dist.destroy_process_group()
"""


@pytest.fixture
def python() -> str:
    return needs.torch_python()


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    made = Hw(home, tmp_path)
    made.script(SCRIPT, "reduce.py")
    made.env["PYTHONPATH"] = os.path.dirname(launch.PACKAGE)
    return made


def results(text: str) -> list[tuple[int, int, int]]:
    """(rank, world size, sum) of each RESULT line, in order of rank."""
    rows = [line.partition("RESULT ")[2].split() for line in text.splitlines() if "RESULT " in line]
    assert {row[3] for row in rows} == {"gloo"}, text
    return sorted((int(row[0]), int(row[1]), int(row[2])) for row in rows)


def plain(hw: Hw, *argv: str) -> list[tuple[int, int, int]]:
    env = {**hw.env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(argv, cwd=hw.cwd, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    return results(done.stdout)


ALL_OF_4 = [(rank, 4, 10) for rank in range(4)]
BOTH = [(rank, 2, 3) for rank in range(2)]


def test_alone_it_is_a_group_of_one(hw: Hw, python: str) -> None:
    assert plain(hw, python, "reduce.py") == [(0, 1, 1)]


def test_plain_torchrun_forms_a_group(hw: Hw, python: str) -> None:
    assert plain(
        hw,
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        "reduce.py",
    ) == (ALL_OF_4)


def test_plain_mpirun_needs_no_address(hw: Hw, python: str) -> None:
    mpirun = needs.tool("mpirun", "openmpi-bin")
    assert plain(hw, mpirun, "--oversubscribe", "-n", "2", python, "reduce.py") == BOTH


def ran(hw: Hw, *words: str) -> tuple[str, list[tuple[int, int, int]]]:
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = hw("run", *words, timeout_s=110, env=env)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]
    job = hw.json("ls")[0]["id"]
    return job, results(hw("logs", job, "--stream", "stdout").stdout.decode())


@pytest.mark.cap(2)
def test_our_own_processes_form_a_group(hw: Hw, python: str) -> None:
    job, found = ran(hw, "-n", "2", python, "reduce.py")
    assert found == BOTH
    assert [hw.points(job, "sum", rank) for rank in range(2)] == [[3.0]] * 2


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_ranks_of_a_launcher_inside_one_job_count_with_their_own_numbers(
    hw: Hw, python: str, launcher: str
) -> None:
    words = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        "reduce.py",
    ]
    if launcher == "mpirun":
        words = [
            needs.tool("mpirun", "openmpi-bin"),
            "--oversubscribe",
            "-n",
            "4",
            python,
            "reduce.py",
        ]
    job, found = ran(hw, *words)
    assert found == ALL_OF_4
    rows = hw.json("metrics", job, "-m", "sum")[job]["sum"]
    assert sorted((row["rank"], tuple(row["value"])) for row in rows) == [
        (rank, (10.0,)) for rank in range(4)
    ]


@pytest.mark.cap(3)
def test_tasks_on_several_nodes_form_one_group(hw: Hw, python: str) -> None:
    spec = {"command": [python, "reduce.py"], "nodes": 2}
    job = submit(hw, spec, {"PYTHONPATH": hw.env["PYTHONPATH"]})
    found = hw.wait_ended(job, timeout_s=110)
    assert found["state"] == "succeeded", json.dumps(found["attempts"][-1])
    assert len(tasks(found)) == 2
    assert results(hw("logs", job, "--stream", "stdout").stdout.decode()) == BOTH

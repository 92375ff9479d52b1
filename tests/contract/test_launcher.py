"""Which variables of a launcher a program finds, and ranks under the real mpirun."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.driver import Hw

LAUNCHER = re.compile(rb"^(?:RANK|LOCAL_|WORLD_SIZE|MASTER_|OMPI_|SLURM_|PMI)", re.MULTILINE)
MPI = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("rank %d of %d\\n", rank, size);
  return MPI_Finalize();
}
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def test_a_program_finds_nothing_of_a_launcher_unless_ranks_were_asked_for(hw: Hw) -> None:
    assert LAUNCHER.findall(hw("run", "env").stdout) == []
    asked = hw("run", "-n", "1", "env").stdout.splitlines()
    assert {b"RANK=0", b"LOCAL_RANK=0", b"WORLD_SIZE=1"} <= set(asked)


def test_a_person_may_set_a_rank_where_headway_does_not(hw: Hw) -> None:
    assert hw("run", "--env", "RANK=7", "printenv", "RANK").stdout == b"7\n"
    refused = hw("run", "-n", "2", "--env", "RANK=7", "true")
    assert refused.returncode == 125 and b"leave out -n, nodes and roles" in refused.stderr


def test_a_resubmission_with_a_number_of_processes_asks_for_ranks(hw: Hw) -> None:
    job = hw.submit("sh", "-c", "echo rank ${RANK-none}")
    hw.wait_ended(job)
    same = hw.json("resubmit", job)["id"]
    hw.wait_ended(same)
    assert hw("logs", same, "--stream", "stdout").stdout == b"rank none\n"
    ranked = hw.json("resubmit", "-n", "1", job)["id"]
    hw.wait_ended(ranked)
    assert hw("logs", ranked, "--stream", "stdout").stdout == b"rank 0\n"


def test_mpirun_as_the_launcher_starts_one_world_and_without_it_hw_warns(hw: Hw) -> None:
    needs.tool("mpirun", "openmpi-bin")
    compiler = needs.tool("mpicc", "libopenmpi-dev")
    (hw.cwd / "ranks.c").write_text(MPI)
    built = subprocess.run([compiler, "ranks.c", "-o", "ranks"], cwd=hw.cwd, capture_output=True)
    if built.returncode != 0:
        needs.missing("no mpi.h here; type: sudo apt-get install libopenmpi-dev")
    done = hw("run", "-n", "3", "--launcher", "mpirun", "./ranks", timeout_s=100)
    assert sorted(re.findall(rb"rank \d of \d", done.stdout)) == [
        b"rank 0 of 3", b"rank 1 of 3", b"rank 2 of 3",
    ]  # fmt: skip
    assert b"is an MPI program" not in done.stderr
    worlds = hw("run", "-n", "2", "./ranks", timeout_s=100)
    assert worlds.stdout.count(b"rank 0 of 1") == 2
    assert b"./ranks is an MPI program: -n starts 2 processes" in worlds.stderr


def test_mpirun_and_roles_or_nodes_are_refused_with_what_to_do(hw: Hw) -> None:
    done = hw("run", "--nodes", "2", "--launcher", "mpirun", "true")
    assert done.returncode == 125 and b"launcher mpirun starts its ranks on one node" in done.stderr
    (hw.cwd / "job.yaml").write_text(
        "launcher: mpirun\nroles: {a: {command: echo a}, b: {command: echo b}}\n"
    )
    done = hw("run", "job.yaml")
    assert done.returncode == 125 and b"do not go together" in done.stderr

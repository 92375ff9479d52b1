"""`hw.distributed` without PyTorch: who we are, where rank 0 is, and what a half-set environment is
told.
"""

import subprocess
import sys

import pytest

import headway as hw
from headway.client.distributed import check_place, first_node, master
from headway.model.errors import UsageError

MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "77",
}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, (0, 0, 1)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        (MPI, (2, 2, 4)),
        # hw run mpirun -n 4
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", **MPI}, (2, 2, 4)),
        (SLURM, (3, 1, 4)),
        # a batch script
        ({name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}, (0, 0, 1)),
    ],
)
def test_every_launcher_is_understood(environ: dict[str, str], place: tuple[int, int, int]) -> None:
    assert check_place(environ) == place


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"RANK": "0"}, "RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE is set and RANK is not"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_RANK is not"),
        ({"RANK": "4", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, "helper"),
    ],
)
def test_half_an_environment_is_refused_in_words(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_place(environ)


def test_where_rank_0_listens_is_found_for_each_launcher() -> None:
    assert master({"MASTER_ADDR": "h", "MASTER_PORT": "29500"}) == ("h", 29500)
    assert master({**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}) is None
    assert master({**SLURM, "SLURM_NNODES": "1"}) is None
    found = master({**SLURM, "SLURM_NNODES": "2", "SLURM_STEP_NODELIST": "gpu[07-08]"})
    assert found is not None and found[0] == "gpu07" and 20_000 <= found[1] < 30_000


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"MASTER_ADDR": "h"}, "MASTER_PORT is not"),
        ({"MASTER_PORT": "1"}, "MASTER_ADDR is not"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "x"}, "not a port"),
        ({**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "mpirun -x MASTER_ADDR"),
        ({}, "do not know where to meet"),
    ],
)
def test_a_missing_address_is_told_with_what_to_type(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        master(environ)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("a1", "a1"),
        ("a1,a2", "a1"),
        ("gpu[03-05,9],cpu1", "gpu03"),
        ("x,gpu[1-2]", "x"),
        ("n[4,6]-ib", "n4-ib"),
    ],
)
def test_the_first_node_is_read_from_slurms_short_form(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


def test_a_process_alone_is_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (hw.distributed.rank(), hw.distributed.world_size(), hw.distributed.is_main()) == (
        0,
        1,
        True,
    )
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (hw.distributed.rank(), hw.distributed.local_rank(), hw.distributed.is_main()) == (
        2,
        1,
        False,
    )


def test_nobody_pays_for_it_who_does_not_use_it() -> None:
    script = "import sys, headway; headway.log; print([m for m in sys.modules if 'distributed' in m or m == 'torch'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr

"""Which rank this process is, and which launch it belongs to, by its own environment. Called by
client/spool_path.py.

torchrun's children, Slurm's tasks and MPI's ranks know themselves by variables that their launcher
sets; ours too.
"""

from __future__ import annotations

import os
import sys

from headway.wire.identity import boot_id, environment_names, parent_of, process_start

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

    Environ = Mapping[str, str]

ANCESTORS_MAX = 16
_DIGITS_MAX = 6

# (rank, local rank, world size), in this order; see `ranks` for several at once.
_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
)


def started_with() -> list[str]:
    """The words that the interpreter was started with; Python 3.9 does not keep its own options."""
    return list(getattr(sys, "orig_argv", [sys.executable, *sys.argv]))


def ranks(environ: "Environ") -> tuple[int, int, int]:
    """Rank, local rank and world size; 0, 0, 1 when no launcher says otherwise.

    `hw run mpirun -n 4 …`: the command is rank 0 of 1 for us, and what it starts are ranks of its
    own.
    """
    found = {
        names[0]: _numbers(environ, names)
        for names in _VARIABLES
        if _number(environ, names[0]) is not None
    }
    if len(found) > 1 and "SLURM_STEP_ID" not in environ:
        found.pop("SLURM_PROCID", None)  # of the batch script around us, not of a task of srun
    several = [numbers for numbers in found.values() if numbers[2] > 1]
    return (several or list(found.values()) or [(0, 0, 1)])[0]


def _numbers(environ: "Environ", names: tuple[str, str, str]) -> tuple[int, int, int]:
    rank, local_rank, world_size = (_number(environ, name) for name in names)
    rank = rank or 0
    return rank, rank if local_rank is None else local_rank, max(world_size or 1, 1)


def _number(environ: "Environ", name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None


def node_rank(environ: "Environ") -> int:
    for name in ("GROUP_RANK", "SLURM_NODEID", "NODE_RANK"):
        number = _number(environ, name)
        if number is not None:
            return number
    return 0


def launch_key(environ: "Environ") -> str | None:
    """What the ranks of one launch, and no others, have in common; None for a process that was
    launched alone.
    """
    if ranks(environ)[2] == 1:
        return None
    for kind, variable, ids in (
        ("torchrun", "TORCHELASTIC_RUN_ID", ("MASTER_ADDR", "MASTER_PORT")),
        ("mpi", "PMIX_NAMESPACE", ()),
        ("mpi", "OMPI_COMM_WORLD_SIZE", ()),
        ("mpi", "PMI_SIZE", ()),
    ):
        if variable in environ:
            # Run ids, ports and namespaces come back (torchrun's default id is "none"); the
            # launcher's start does not.
            words = [
                kind,
                variable,
                environ[variable],
                *(environ.get(name, "") for name in ids),
                *_launcher(variable),
            ]
            return "\0".join(words if kind == "torchrun" else [*words, *started_with()])
    if "SLURM_JOB_ID" in environ and "SLURM_STEP_ID" in environ:
        names = "SLURM_CLUSTER_NAME SLURM_JOB_ID SLURM_STEP_ID SLURM_RESTART_COUNT SLURM_JOB_START_TIME".split()
        # One step may run several programs after another; argv tells them apart.
        return "\0".join(
            [
                "slurm",
                *(environ.get(name, "") for name in names),
                *started_with(),
            ]
        )
    return None


def _launcher(variable: str) -> tuple[str, str, str]:
    """Boot, pid and start of the nearest ancestor that was started without the variable: the
    launcher itself.
    """
    pid, name = os.getppid(), variable.encode()
    for _ in range(ANCESTORS_MAX):
        names = environment_names(pid)
        above = parent_of(pid)
        if name not in names or above is None or above <= 1:
            break
        pid = above
    return boot_id() or "", str(pid), str(process_start(pid))

"""`hw.distributed`: one call that joins the process group of PyTorch, however the processes were
started.

Works under torchrun, mpirun (OpenMPI), srun, Headway's own `-n`, nodes and roles, and alone. Who we
are is read from the environment (`client/own_rank.py`); where rank 0 listens is MASTER_ADDR and
MASTER_PORT, or, where nobody set them: a file between the processes of one machine, the first node
of a Slurm step. PyTorch is imported when it is needed first.
"""

from __future__ import annotations

import os
import sys

from headway.client.own_rank import launch_key, ranks
from headway.model.errors import UnreachableError, UsageError

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Environ = Mapping[str, str]

__all__ = ["ensure_init_process_group", "is_main", "local_rank", "rank", "world_size"]

TIMEOUT_S = 600.0
_SLURM_PORT_FIRST, _SLURM_PORTS = 20_000, 10_000  # below the ports that a kernel gives to anybody
_PAIRS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_groups = 0  # made by this process: each has a file of its own


def rank() -> int:
    """This process among all; 0 when it is alone."""
    group = _group()
    return int(group.get_rank()) if group is not None else ranks(os.environ)[0]


def local_rank() -> int:
    """This process among those of its node: the index of its GPU where all are visible."""
    return ranks(os.environ)[1]


def world_size() -> int:
    """How many processes there are; 1 when it is alone."""
    group = _group()
    return int(group.get_world_size()) if group is not None else ranks(os.environ)[2]


def is_main() -> bool:
    """Whether this is rank 0, which writes checkpoints and prints."""
    return rank() == 0


def ensure_init_process_group(backend: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
    """Join the default process group of PyTorch; does nothing where one is joined already.

    `backend`: gloo, and NCCL beside it for tensors on a GPU, where nothing else is said. A GPU is
    chosen by the local rank. Raises UsageError when the environment says only half,
    UnreachableError when the others did not come.
    """
    torch, dist = (_import(name) for name in ("torch", "torch.distributed"))
    if not dist.is_available():
        raise _half(
            "this PyTorch was built without torch.distributed", "install another build of it"
        )
    if dist.is_initialized():
        return
    mine, local, size = check_place(os.environ)
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
    backend = backend or (
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    )
    _join(dist, backend, mine, size, timeout_s)
    # What reads these later, such as a device mesh, must not find those of a launcher further out.
    os.environ.update({"RANK": str(mine), "LOCAL_RANK": str(local), "WORLD_SIZE": str(size)})


def _import(name: str) -> "Any":
    from importlib import import_module

    return import_module(name)


def _half(message: str, hint: str) -> UsageError:
    """The hint is part of what a traceback shows: nobody else prints it in a training script."""
    return UsageError(f"{message}; {hint}", hint)


def check_place(environ: "Environ") -> tuple[int, int, int]:
    """Rank, local rank and world size, once they make sense together."""
    for one, other in _PAIRS:
        if (one in environ) != (other in environ):
            there, missing = (one, other) if one in environ else (other, one)
            raise _half(
                f"{there} is set and {missing} is not", f"set both, or unset {there} to run alone"
            )
    mine, local, size = _ranks(environ)
    if mine >= size:
        raise _half(
            f"this process has rank {mine} in a world of {size}: a helper (completion none) is no part of it",
            "give its role another completion, or do not call this there",
        )
    return mine, local, size


def _ranks(environ: "Environ") -> tuple[int, int, int]:
    """Variables of Slurm count inside a step of srun alone: in a batch script they tell what could
    be started.
    """
    if "SLURM_STEP_ID" in environ:
        return ranks(environ)
    return ranks({name: value for name, value in environ.items() if not name.startswith("SLURM_")})


def _join(dist: "Any", backend: str, mine: int, size: int, timeout_s: float) -> None:
    from datetime import timedelta

    timeout = timedelta(seconds=timeout_s)
    where, store = "this process", None
    try:
        where, store = _store(dist, mine, size, timeout)
        dist.init_process_group(backend, store=store, rank=mine, world_size=size, timeout=timeout)
    # what PyTorch raises; its own words follow ours
    except (RuntimeError, ValueError, OSError) as error:
        raise UnreachableError(
            f"rank {mine} of {size} could not join the others at {where} within {timeout_s:g} s: {error}",
            "do all ranks run? hw q shows them; another address: MASTER_ADDR and MASTER_PORT",
        ) from error


def _store(dist: "Any", mine: int, size: int, timeout: "Any") -> "tuple[str, Any]":
    """Where the processes meet, in words, and PyTorch's store for it."""
    global _groups
    if size == 1:
        return "this process", dist.HashStore()
    _groups += 1
    address = master(os.environ)
    if address is not None:
        name, port = address
        # Under torchrun the launcher itself listens there already.
        listens = mine == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        store = dist.TCPStore(name, port, size, listens, timeout, wait_for_workers=False)
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return f"{name}:{port}", dist.PrefixStore(f"headway-{restart}-{_groups}", store)
    path = _meeting_file(f"{launch_key(os.environ)}-{_groups}")
    store = dist.FileStore(path, size)
    store.set_timeout(timeout)
    return path, store


def master(environ: "Environ") -> tuple[str, int] | None:
    """Where rank 0 listens; None: all processes are on this machine and may meet in a file."""
    name = environ.get("MASTER_ADDR")
    port = environ.get("MASTER_PORT")
    if name and port:
        is_number = port.isascii() and port.isdigit()
        if not is_number or not 0 < int(port) < 65536:
            raise _half(f"MASTER_PORT={port!r:.40} is not a port", "a number from 1 to 65535")
        return name, int(port)
    if name:
        raise _half("MASTER_ADDR is set and MASTER_PORT is not", "set MASTER_PORT too")
    if port:
        raise _half("MASTER_PORT is set and MASTER_ADDR is not", "set MASTER_ADDR too")

    if "SLURM_STEP_ID" in environ:
        return _slurm_master(environ)
    size = environ.get("OMPI_COMM_WORLD_SIZE") or environ.get("PMI_SIZE")
    local_size = environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or environ.get("MPI_LOCALNRANKS")
    if size is not None and size == local_size:
        return None
    raise _half(
        "MASTER_ADDR and MASTER_PORT are not set, so the processes do not know where to meet",
        "under mpirun on several hosts: mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 …; by hand: set both",
    )


def _slurm_master(environ: "Environ") -> tuple[str, int] | None:
    """The first node of the step. All of its processes find the same port by the job's and the
    step's number.
    """
    if (environ.get("SLURM_STEP_NUM_NODES") or environ.get("SLURM_NNODES")) == "1":
        return None
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
    number = int(environ.get("SLURM_JOB_ID") or 0) * 31 + int(environ["SLURM_STEP_ID"])
    return first_node(nodes), _SLURM_PORT_FIRST + number % _SLURM_PORTS


def first_node(nodes: str) -> str:
    """Of Slurm's short form: `gpu[03-05,9],cpu1` begins with gpu03."""
    head, bracket, rest = nodes.partition("[")
    if "," in head or not bracket:
        return head.partition(",")[0]
    inner, _, tail = rest.partition("]")
    return head + inner.replace(",", "-").partition("-")[0] + tail.partition(",")[0]


def _meeting_file(key: str) -> str:
    """A name that only the processes of this launch know, in a folder of this user alone."""
    import hashlib
    import tempfile

    folder = os.path.join(tempfile.gettempdir(), f"headway-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise _half(
            f"{folder} is not a folder of this user alone",
            "remove it, or set MASTER_ADDR and MASTER_PORT",
        )
    return os.path.join(folder, f"meet-{hashlib.sha256(key.encode()).hexdigest()[:32]}")


def _group() -> "Any":
    """torch.distributed, when this process is in a group; PyTorch is not imported for the question."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None

"""The fixture `slurm`: real Slurm daemons, started once for each worker of the tests. And what runs there for a job."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.testing.slurm import SlurmCluster, missing
from headway.wire.identity import parent_of
from tests import needs


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    if lacking := missing():
        needs.missing(f"no {lacking[0]} here; type: sudo apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="hw-slurm-", dir="/tmp"))
    try:
        with SlurmCluster(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def processes_of(slurm: SlurmCluster, job_id: str) -> dict[str, list[int]]:
    """What runs for a batch job, by name: shim, shipper, srun, the program, and Slurm's own step daemons, called
    `batch` (it runs the script) and `step` (it runs the agents)."""
    wanted = {f"SLURM_JOB_ID={job_id}".encode(), f"SLURM_CONF={slurm.conf}".encode()}
    found: dict[str, set[int]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if not wanted <= set(_read(pid, "environ").split(b"\0")):
            continue
        name = _read(pid, "comm").decode(errors="replace").strip().removeprefix("hw-")
        name = "program" if name.startswith("python") else name
        found.setdefault(name, set()).add(pid)
        parent = parent_of(pid)
        if parent and _read(parent, "cmdline").startswith(b"slurmstepd:"):
            found.setdefault("batch" if name == "srun" else "step", set()).add(parent)
    return {name: sorted(pids) for name, pids in found.items()}


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return b""

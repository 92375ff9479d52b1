"""The fixture `slurm`: real Slurm daemons, started once for each worker of the tests. And how tests
use them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.wire.identity import parent_of
from tests import needs
from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster, missing
from tests.waiting import wait_until

# Logs and prints until there is a file.
TRAIN = """
import os, time, headway as hw
i = 0
while not os.path.exists(os.environ["UNTIL"]):
    hw.log({"loss": 1 / (i + 1)}, step=i)
    print("step", i, flush=True)
    time.sleep(0.1)
    i += 1
print("steps", i)
"""


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    with daemons() as cluster:
        yield cluster


@contextmanager
def daemons() -> Iterator[SlurmCluster]:
    """A cluster of their own, for as long as this lasts."""
    if lacking := missing():
        needs.missing(f"no {lacking[0]} here; type: sudo apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="hw-slurm-", dir="/tmp"))
    try:
        with SlurmCluster(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def on_slurm(home: Path, folder: Path, slurm: SlurmCluster, program: str) -> Iterator[Hw]:
    """`hw` in a folder with the cluster `lab` and this `train.py`; at the end no job of it is left
    on the cluster.
    """
    (folder / "headway.yaml").write_text("clusters: {lab: {engine: slurm, partition: main}}\n")
    (folder / "train.py").write_text(program)
    driver = Hw(home, folder)
    driver.env |= slurm.env
    yield driver
    driver("abort", "--state", "waiting,running", "--yes")
    wait_until(
        lambda: not driver.json("ls", "--state", "waiting,running,stopping"),
        60,
        "the end of all jobs",
    )
    driver("server", "stop")


def wait_saved(slurm: SlurmCluster, job_id: str) -> None:
    """Until the controller has written down what it knows of a job; killed before that, it forgets
    that it runs.
    """
    path = slurm.folder / "state" / "job_state"
    before_ns = path.stat().st_mtime_ns if path.exists() else 0
    # a change, which it saves within some seconds
    slurm.command("scontrol", "update", f"jobid={job_id}", "nice=1")
    wait_until(
        lambda: path.exists() and path.stat().st_mtime_ns != before_ns,
        60,
        "the controller's state on its disk",
    )


def processes_of(slurm: SlurmCluster, job_id: str) -> dict[str, list[int]]:
    """What runs for a batch job, by name: shim, shipper, srun, the program, and Slurm's own step
    daemons, called `batch` (it runs the script) and `step` (it runs the agents).
    """
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

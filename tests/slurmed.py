"""The fixture `slurm`: real Slurm daemons, started once for each worker of the tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.testing.slurm import SlurmCluster, missing
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

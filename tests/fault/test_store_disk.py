"""The disk fails or is full: nobody is told yes, reads go on, and it recovers without a restart
(F6, F8; P3).
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.fault.test_store_crash import ROOT, ROUNDS, acknowledged, check, run, traced, worker


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "inject",
    [
        "fdatasync:error=EIO:when=3", "fdatasync:error=EIO:when=4..6", "fdatasync:error=EIO:when=5+7",
        "pwrite64:error=EIO:when=20", "pwrite64:error=ENOSPC:when=31..60", "fdatasync:error=ENOSPC:when=6",
    ],
)  # fmt: skip
def test_a_failed_write_or_sync_is_answered_with_try_later_and_then_all_is_well(
    strace: str, tmp_path: Path, inject: str, large: bool
) -> None:
    """F6: EIO once or for a while, then fine. Every round is acknowledged in the end, once."""
    # so that the calls counted are those of commits
    assert run(worker(tmp_path, 0)).returncode == 0
    done = traced(strace, inject, worker(tmp_path, ROUNDS, *(["--large"] if large else [])))
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    assert "refused" in done.stdout or "could not be moved" in done.stderr, "the fault was met"
    assert acknowledged(done.stdout) == ROUNDS
    assert check(tmp_path, ROUNDS, large) == ROUNDS


@pytest.mark.parametrize("large", [False, True])
def test_a_full_disk_refuses_data_serves_reads_and_recovers(tmp_path: Path, large: bool) -> None:
    """F8: on a small file system of its own, with a ballast that somebody removes."""
    needs.mount_namespace()
    rounds = 60 if large else 4000
    tail = "--large" if large else ""
    shell = f"""
set -e
mount -t tmpfs -o size=24m none "{tmp_path}"
mkdir "{tmp_path}/home"
dd if=/dev/zero of="{tmp_path}/ballast" bs=1M count={20 if large else 22} status=none
"{sys.executable}" -m tests.store_worker "{tmp_path}/home" {rounds} {tail} --wait-for "{tmp_path}/ballast" |
while read -r line; do
  echo "$line"
  if [ "$line" = full ]; then rm -f "{tmp_path}/ballast"; fi
done
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell], capture_output=True, text=True, timeout=110, cwd=ROOT
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "done", (done.stdout[-500:], done.stderr[-2000:])
    assert {"full", "reads work"} <= set(lines)
    assert [line for line in lines if line.startswith("refused")]
    assert acknowledged(done.stdout) == rounds

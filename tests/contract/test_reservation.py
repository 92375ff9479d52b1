"""`hw submit ssh` and `hw ssh` on this machine: hold it, enter it, free it. On Slurm:
tests/fault/test_laptop.py.
"""

import subprocess
from pathlib import Path

import pytest

from tests.driver import HW, Hw


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


@pytest.mark.cap(43)
def test_a_reservation_is_entered_and_freed(hw: Hw) -> None:
    done = hw("submit", "ssh")
    job = done.stdout.decode().strip()
    said = done.stderr.decode()
    assert (
        "held for 4 h" in said and f"hw ssh {job[-5:]}" in said and f"hw release {job[-5:]}" in said
    )
    found = hw.wait_state(job, "running")
    assert found["reserved"] and found["command"] == ["sleep", "14400"]
    printed = hw("ssh", "--print", job).stdout.decode()
    assert "shell" in printed and found["uuid"] in printed
    entered = subprocess.run(
        [*HW, "ssh", job], cwd="/", env=hw.env | {"SHELL": "/bin/sh"}, input=b"echo in $(pwd) of $HEADWAY_JOB\n",
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert f"in {hw.cwd} of {job}" in entered.stdout.decode(), entered.stderr.decode()
    assert "leaving the shell keeps the node" in entered.stderr.decode()
    assert hw("ssh", job, "--task", "worker-9").returncode == 1
    assert hw("release", job).returncode == 0
    assert hw.wait_ended(job)["state"] == "stopped"
    assert hw("release", job).returncode == 1


def test_a_reservation_ends_well_when_its_time_is_over_and_only_the_sole_word_makes_one(
    hw: Hw,
) -> None:
    job = hw.submit("--max-duration", "1s", "ssh")
    assert hw.wait_ended(job)["state"] == "succeeded"
    program = hw.cwd / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    plain = hw(
        "submit", "--dry-run", "ssh", "-V", env={"PATH": f"{program.parent}:{hw.env['PATH']}"}
    )
    assert b"  ssh -V\n" in plain.stdout, plain.stderr
    refused = hw("release", hw.submit("sleep", "60"))
    assert refused.returncode == 1 and b"not held" in refused.stderr
    hw("abort", "--state", "running,waiting", "--yes")

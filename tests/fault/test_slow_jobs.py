"""Slowness of real processes: found without being asked, told everywhere in the same words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Hw
from tests.needs import torch_python
from tests.waiting import wait_until

SAVES = """
import time, headway as hw
for step in range(100_000):
    time.sleep(0.02)
    hw.log({"loss": 1.0}, step=step)
    if step % 10 == 0:
        with hw.timed("save_checkpoint"):
            time.sleep(0.3)
"""
STEPS = """
import time, headway as hw
for step in range({count}):
    time.sleep({pause})
    hw.log({{"loss": 1.0}}, step=step)
"""
RANKS = """
import time, torch, torch.distributed as dist, headway as hw
dist.init_process_group("gloo")
rank, x = dist.get_rank(), torch.ones(4)
for step in range(100_000):
    time.sleep(0.1 if rank != 2 else 0.16)
    dist.all_reduce(x)
    x /= 4
    if rank == 0:
        hw.log({"loss": 1.0}, step=step)
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Iterator[Hw]:
    made = Hw(home, tmp_path)
    made.env |= {"HEADWAY_SLOW_LOOK_S": "2", "HEADWAY_MAX_RUNNING": "16"}
    yield made
    for row in made.json("ls"):
        if row["state"] == "running":
            made("abort", row["id"])


def health(hw: Hw, job: str, cause: str, timeout_s: float) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = hw.json("q", job)["health"]
        return found if found and found["cause"] == cause else None

    return wait_until(look, timeout_s, f"{cause} of {job}")


@pytest.mark.cap(41)
def test_what_slows_a_job_down_is_told_without_being_asked(hw: Hw) -> None:
    ranks = hw.submit("-n", "4", torch_python(), hw.script(RANKS, "ranks.py"))
    saves = hw.submit("python3", hw.script(SAVES))
    before = hw.submit(
        "--name", "t", "python3", hw.script(STEPS.format(count=200, pause=0.02), "t.py")
    )
    hw.wait_ended(before)
    hw.script(STEPS.format(count=100_000, pause=0.2), "t.py")
    slower = hw.submit("--name", "t", "python3", "t.py")
    found = health(hw, saves, "checkpoint_heavy", 120.0)
    assert found["kind"] == "slow" and "it saves checkpoints for" in found["text"]
    assert "slow: it saves checkpoints" in hw("q", saves).stdout.decode()
    assert "slow: it saves" in hw("ls").stdout.decode()
    text = hw("why", saves).stdout.decode()
    assert "is slow: it saves checkpoints" in text and "save" in text
    found = health(hw, slower, "slower_than_sibling", 60.0)
    assert f"x slower than {before}" in found["text"]
    assert f"hw diff {slower[-5:]} {before[-5:]}" in hw("why", slower).stdout.decode()
    found = health(hw, ranks, "straggler", 120.0)
    assert found["rank"] == 2 and "rank 2 is slower than the others" in found["text"]

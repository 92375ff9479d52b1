"""Nodes of a real Slurm that are not as they should be: a clock that is hours off, a shared folder
without room.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import needs
from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.slurmed import on_slurm
from tests.waiting import wait_until

# Only what tells the time of day; sleeping goes by another clock.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static time_t skew(void) { const char *by = getenv("SKEW_S"); return by ? atol(by) : 0; }
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, now);
    if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
    return code;
}
time_t time(time_t *at) {
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now); if (at) *at = now.tv_sec; return now.tv_sec;
}
"""
TRAIN = """
import os, time, headway as hw
n = 0
while not os.path.exists(os.environ["UNTIL"]):
    hw.log({"loss": 1 / (n + 1)}, step=n)
    try:
        print("step", n, "." * 500, flush=True)
    except OSError:  # as with any file on a full disk; what is logged never raises
        pass
    n += 1
    with open(os.environ["UNTIL"] + ".count", "w") as file:
        file.write(str(n))
    time.sleep(0.05)
hw.log({"steps": n}, step=n)
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Hw]:
    with on_slurm(home, tmp_path, slurm, TRAIN) as driver:
        yield driver


def submit(hw: Hw, cluster: str, *options: str) -> str:
    return hw.submit(
        "-c", cluster, "--env", f"UNTIL={hw.cwd / 'enough'}", *options, sys.executable, "train.py"
    )


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A library that moves the time of day of a process by SKEW_S."""
    if shutil.which("gcc") is None:
        needs.missing("no gcc here")
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"], check=True
    )
    return library


def test_a_node_whose_clock_is_hours_off_changes_no_state_no_order_and_no_duration(
    hw: Hw, clock: Path
) -> None:
    """F26: agent and program three hours ahead of, or behind, the server."""
    clusters = []
    for name, off_s in (("ahead", 3 * 3600), ("behind", -3 * 3600)):
        python = hw.cwd / f"python-{name}"
        skewed = f"export LD_PRELOAD={clock} SKEW_S={off_s}"
        python.write_text(f'#!/bin/sh\n{skewed}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        clusters.append(f"{name}: {{engine: slurm, partition: main, python: {python}}}")
    (hw.cwd / "headway.yaml").write_text("clusters: {" + ", ".join(clusters) + "}\n")
    env = {"ahead": str(3 * 3600), "behind": str(-3 * 3600)}
    jobs = [
        submit(hw, name, "--env", f"LD_PRELOAD={clock}", "--env", f"SKEW_S={by}")
        for name, by in env.items()
    ]
    for job in jobs:
        wait_until(lambda job=job: len(hw.points(job, "loss")) > 5, 60, "its first points")  # type: ignore[misc]
        assert hw.json("q", job)["state"] == "running"
    (hw.cwd / "enough").touch()
    for job in jobs:
        ended = hw.wait_ended(job)
        assert ended["state"] == "succeeded" and 0 < ended["elapsed_s"] < 3000
        times = [
            datetime.fromisoformat(ended[name])
            for name in ("submitted_at", "started_at", "ended_at")
        ]
        assert times == sorted(times) and times[-1] <= datetime.now(UTC)
        [steps] = hw.points(job, "steps")
        said = hw("logs", job, "--stream", "stdout").stdout.decode().splitlines()
        assert [line.split()[1] for line in said] == [str(n) for n in range(int(steps))]
        assert len(hw.points(job, "loss")) == steps


def _count(hw: Hw) -> str:
    """How many steps the program has made, by itself."""
    return (hw.cwd / "enough.count").read_text()


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path_factory.mktemp("small")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, text=True
    )
    if made.returncode != 0:
        needs.missing(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_shared_folder_without_room_costs_what_found_none_and_is_told_exactly(
    hw: Hw, small: Path
) -> None:
    """F7, F8 on a cluster: the program goes on, new jobs wait and say why, and all is well when
    there is room again.
    """
    (hw.cwd / "headway.yaml").write_text(
        f"clusters: {{lab: {{engine: slurm, partition: main, folder: {small}/hw}}}}\n"
    )
    job = submit(hw, "lab")
    wait_until(lambda: len(hw.points(job, "loss")) > 5, 60, "its first points")
    ballast = small / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    count = len(hw.points(job, "loss"))
    waits = hw.submit("-c", "lab", "true")
    wait_until(lambda: b"No space left" in hw("q", waits).stdout, 60, "the reason")
    full = 150 + int(_count(hw) or 0)  # more points than the last page of its file can take
    wait_until(lambda: int(_count(hw) or 0) > full, 60, "steps without room")
    assert hw.json("q", job)["state"] == "running"
    os.unlink(ballast)
    wait_until(
        lambda: len(hw.points(job, "loss")) > count + 60, 60, "points after there was room again"
    )
    (hw.cwd / "enough").touch()
    ended = hw.wait_ended(job)
    assert (ended["state"], ended["exit_code"]) == ("succeeded", 0)
    after = hw.wait_ended(waits)
    assert after["state"] == "succeeded", after["attempts"]
    [steps] = hw.points(job, "steps")
    lost = [event["data"] for event in hw.events(job) if event["type"] == "gap"]
    missing = int(steps) - len(hw.points(job, "loss"))
    assert missing == sum(gap.get("records") or 0 for gap in lost) and missing > 0

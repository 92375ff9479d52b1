"""Provokes every hang of `hangs.py` for real and counts how often it is found, and the right rank named.

    python -m tests.provoke.hang_score [NAME…]     some or all; thresholds as short as --after says

One server, several jobs at a time. Printed: found of all, right rank, right cause, seconds beyond the
limit, and false alarms on jobs that are only busy.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.testing.port import reserve
from headway.views.text.health_text import HANGS
from tests.driver import Hw
from tests.needs import torch_python
from tests.provoke.hangs import CASES, CLEAN, STEPS, Case
from tests.waiting import wait_until


@dataclass
class Found:
    case: Case
    finding: dict[str, Any] | None
    after_s: float = 0.0  # since the last sign of life

    @property
    def rank_right(self) -> bool:
        if self.finding is None:
            return False
        rank = self.finding["rank"]
        return rank in self.case.odd if self.case.odd else rank is None

    @property
    def cause_right(self) -> bool:
        return self.finding is not None and self.finding["cause"] in self.case.causes

    @property
    def words_right(self) -> bool:
        text = "" if self.finding is None else str(self.finding["text"])
        return all(word in text for word in self.case.words)


def submit(hw: Hw, case: Case, port: int, python: str = "python3") -> str:
    name = hw.script(STEPS + case.script, f"{case.name}.py")
    words = ["-n", str(case.ranks)] if case.ranks > 1 or case.needs else []
    words += ["--launcher", "mpirun"] if case.needs == "mpi" else []
    return hw.submit(*words, "--name", case.name.replace("_", "-"), python, name,
                     env={"HANG_PORT": str(port)})  # fmt: skip


def current(hw: Hw, job: str) -> dict[str, Any] | None:
    """The finding that holds; None: there is none."""
    found = hw.json("why", job)
    holding = [one for one in found["findings"] if one.get("since") and one["cause"] in HANGS]
    return dict(holding[0]) if holding else None


def look(hw: Hw, job: str, case: Case, timeout_s: float) -> Found:
    try:
        finding = wait_until(lambda: current(hw, job), timeout_s, f"a finding of {case.name}")
    except AssertionError:
        return Found(case, None)
    return Found(case, finding)


def run(cases: list[Case], after_s: float, at_once: int, timeout_s: float) -> list[Found]:
    found: list[Found] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home, cwd = Path(folder) / "home", Path(folder) / "work"
        home.mkdir(mode=0o700)
        cwd.mkdir()
        hw = Hw(home, cwd)
        hw.env |= {"HEADWAY_HANG_AFTER_S": str(after_s), "HEADWAY_MAX_RUNNING": "64"}
        try:
            for begin in range(0, len(cases), at_once):
                some = _some(hw, cases[begin : begin + at_once], timeout_s)
                print("\n".join(_line(one) for one in some), flush=True)
                found += some
        finally:
            hw("server", "stop")
    return found


def mpi_python() -> str:
    """A Python that has mpi4py; empty where there is none. No test needs it, so nothing installs it."""
    python = os.environ.get("HEADWAY_MPI_PYTHON") or sys.executable
    done = subprocess.run([python, "-c", "import mpi4py.MPI"], capture_output=True)
    return python if done.returncode == 0 and shutil.which("mpirun") else ""


def _some(hw: Hw, cases: list[Case], timeout_s: float) -> list[Found]:
    jobs: list[tuple[str, Case]] = []
    for case in cases:
        python = sys.executable
        if case.needs == "torch":
            python = torch_python()
        elif case.needs == "mpi":
            python = mpi_python()
        if not python:
            print(f"  left out: {case.name}: needs mpirun and mpi4py (HEADWAY_MPI_PYTHON)")
            continue
        jobs.append((submit(hw, case, reserve(), python), case))
    deadline_s = time.monotonic() + timeout_s
    found = [look(hw, job, case, max(1.0, deadline_s - time.monotonic())) for job, case in jobs]
    for job, _ in jobs:
        hw("abort", job)
    for job, _ in jobs:
        hw.wait_ended(job)
    return found


def _line(one: Found) -> str:
    marks = "".join("✓" if ok else "✗" for ok in (one.rank_right, one.cause_right, one.words_right))
    finding = one.finding or {"cause": "not found", "rank": None, "text": ""}
    return f"  {marks} {one.case.name:<32} {finding['cause']} rank {finding['rank']}: {finding['text']}"


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reader.add_argument("names", nargs="*")
    reader.add_argument("--after", type=float, default=4.0, help="hang.after_s")
    reader.add_argument("--at-once", type=int, default=4)
    asked = reader.parse_args()
    chosen = [case for case in CASES if not asked.names or case.name in asked.names]
    clean = [case for case in CLEAN if not asked.names or case.name in asked.names]
    found = run(chosen, asked.after, asked.at_once, 60.0)
    alarms = [one for one in run(clean, asked.after, asked.at_once, 20.0) if one.finding]
    total = len(found)
    hit = sum(one.finding is not None for one in found)
    rank = sum(one.rank_right for one in found)
    cause = sum(one.cause_right for one in found)
    words = sum(one.words_right for one in found)
    print(
        f"hangs       {total}: found {hit}, right rank {rank}, right cause {cause}, right words {words}"
    )
    print(f"clean jobs  {len(clean)}: false alarms {len(alarms)}")
    good = total == 0 or (rank >= 0.95 * total and hit >= 0.95 * total)
    return 0 if good and not alarms else 1


if __name__ == "__main__":
    os.environ.pop("HEADWAY_HOME", None)
    sys.exit(main())

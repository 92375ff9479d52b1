"""On what and when a run was made: processor, cores, kernel, Python. No host name, no user."""

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    date: str
    cpu: str
    cores: int
    memory_gib: int
    kernel: str
    python: str
    headway: str
    load: float  # of other work, when the run began: a busy machine spoils wall times

    def line(self) -> str:
        return (
            f"{self.date} · {self.cpu}, {self.cores} cores, {self.memory_gib} GiB · Linux {self.kernel} · "
            f"Python {self.python} · Headway {self.headway} · load {self.load:.1f} before the run"
        )


def machine(headway_version: str) -> Machine:
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        kernel=platform.release().split("-")[0],  # the rest may name the site that built it
        python=platform.python_version(),
        headway=headway_version,
        load=os.getloadavg()[0],
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.split(":", 1)[1].split())
    return platform.machine()

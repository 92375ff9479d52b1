"""How busy this machine is, for the head of the list of jobs: cores, load, memory. Linux tells it
in /proc; elsewhere there is no such line.
"""

import os
import time
from pathlib import Path
from typing import Final

from headway.views.text import format as fmt

_PAUSE_S: Final = 1.0  # a share of CPU time over less is noise
_PROC: Final = Path("/proc")


class MachineLoad:
    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._looked_s = 0.0
        self._times: tuple[int, int] | None = None  # busy and all ticks so far
        self._words: list[str] = []

    def words(self) -> list[str]:
        """`cpu 61 % of 8 cores`, `load 4.2`, `memory 11 of 31 GiB`; empty where it is not known."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _PAUSE_S:
            self._looked_s = now_s
            try:
                self._words = self._look()
            except (OSError, ValueError, IndexError):  # not Linux, or a sandbox without /proc
                self._words = []
        return self._words

    def _look(self) -> list[str]:
        ticks = [
            int(word) for word in (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        ]
        idle = ticks[3] + ticks[4]  # idle and waiting for the disk
        times = (sum(ticks[:8]) - idle, sum(ticks[:8]))
        before, self._times = self._times, times
        cores = fmt.plural(os.cpu_count() or 1, "core")
        words = [cores]
        if before is not None and times[1] > before[1]:
            words = [
                f"cpu {100 * (times[0] - before[0]) / (times[1] - before[1]):.0f} % of {cores}"
            ]
        words.append(f"load {float((self._proc / 'loadavg').read_text().split()[0]):.1f}")
        memory = {}
        for line in (self._proc / "meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                memory[name] = int(rest.split()[0]) * 1024
        if len(memory) == 2:
            used = memory["MemTotal"] - memory["MemAvailable"]
            words.append(f"memory {fmt.size(used)} of {fmt.size(memory['MemTotal'])}")
        return words

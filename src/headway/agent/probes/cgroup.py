"""What this process's cgroup may use, and uses: a container's memory and cores are smaller than the
node's. Versions 1 and 2. Called by `node`, once to find the files, then for their numbers.

A limit may stand on any group above ours; the tightest one counts, and the use is that group's.
"""

from __future__ import annotations

import os

from headway.agent.probes.proc_file import Budget, Kept

DEPTH_MAX = 32
_UNLIMITED_BYTES = 1 << 60  # the first version writes "no limit" as a number near 2**63


class Group:
    """Files of the group whose memory is limited, and of the one whose cores are. None: no such
    limit.
    """

    def __init__(
        self, proc: str = "/proc", sys: str = "/sys", budget: Budget | None = None
    ) -> None:
        budget = budget or Budget()
        self.memory_max_bytes: int | None = None
        self.cores_max: float | None = None
        # folder of the limited group, where it tells its own pressure
        self.pressure: str | None = None
        self._used: Kept | None = None
        self._stat: Kept | None = None
        self._cpu: Kept | None = None
        self._cpu_in_ns = False
        for folder, first in _folders(proc, sys, ("memory", "")):
            self._take_memory(folder, first, budget)
        for folder, first in _folders(proc, sys, ("cpu", "")):
            self._take_cpu(folder, first, budget)
        if self._cpu_in_ns and self._cpu is None:
            usage = next(
                (p for p, _ in _folders(proc, sys, ("cpuacct",)) if _number(f"{p}/cpuacct.usage")),
                None,
            )
            self._cpu = Kept(f"{usage}/cpuacct.usage", budget) if usage else None

    def _take_memory(self, folder: str, first: bool, budget: Budget) -> None:
        limit = _number(f"{folder}/{'memory.limit_in_bytes' if first else 'memory.max'}")
        if (
            limit is None
            or not 0 < limit < _UNLIMITED_BYTES
            or (self.memory_max_bytes or limit + 1) <= limit
        ):
            return
        self.memory_max_bytes = int(limit)
        self._used = Kept(
            f"{folder}/{'memory.usage_in_bytes' if first else 'memory.current'}", budget
        )
        self._stat = Kept(f"{folder}/memory.stat", budget)
        if not first and os.path.exists(f"{folder}/memory.pressure"):
            self.pressure = folder

    def _take_cpu(self, folder: str, first: bool, budget: Budget) -> None:
        if first:
            quota, period = (
                _number(f"{folder}/cpu.cfs_quota_us"),
                _number(f"{folder}/cpu.cfs_period_us"),
            )
        else:
            words = (_text(f"{folder}/cpu.max").split() + ["", ""])[:2]
            quota, period = _float(words[0]), _float(words[1])
        if (
            not quota
            or not period
            or quota <= 0
            or (self.cores_max or quota / period + 1) <= quota / period
        ):
            return
        self.cores_max, self._cpu_in_ns = quota / period, first
        self._cpu = None if first else Kept(f"{folder}/cpu.stat", budget)

    def memory_bytes(self) -> int | None:
        """In use, without pages of files that the kernel would give up at once."""
        used = (
            _float(self._used.read(64).decode("ascii", "replace"))
            if self._used is not None
            else None
        )
        if used is None or self._stat is None:
            return None
        rows = dict(row.split(None, 1) for row in self._stat.read_all().splitlines() if b" " in row)
        idle = rows.get(b"total_inactive_file", rows.get(b"inactive_file", b"0"))
        return max(0, int(used) - (int(idle) if idle.isdigit() else 0))

    def cpu_s(self) -> float | None:
        """CPU time of the group whose cores are limited."""
        if self._cpu is None:
            return None
        words = self._cpu.read(256).split()
        if self._cpu_in_ns:
            return int(words[0]) / 1e9 if words and words[0].isdigit() else None
        return (
            int(words[1]) / 1e6
            if len(words) > 1 and words[0] == b"usage_usec" and words[1].isdigit()
            else None
        )

    def close(self) -> None:
        for kept in (self._used, self._stat, self._cpu):
            if kept is not None:
                kept.close()


def _folders(proc: str, sys: str, controllers: tuple[str, ...]) -> list[tuple[str, bool]]:
    """(folder, whether it is of the first version), ours first, then those above it."""
    places: dict[str, str] = {}
    for line in _text(f"{proc}/self/cgroup").splitlines():
        row = line.split(":", 2)
        if len(row) == 3:
            for name in row[1].split(","):
                places[name] = row[2]

    found: list[tuple[str, bool]] = []
    for mount, root, name in _mounts(proc):
        if name not in controllers or name not in places:
            continue
        top = mount if sys == "/sys" else sys + mount.removeprefix("/sys")
        below = _below(places[name], root)
        for _ in range(DEPTH_MAX):
            found.append((os.path.normpath(f"{top}/{below}"), name != ""))
            if not below:
                break
            below = os.path.dirname(below)
    return found


def _below(path: str, root: str) -> str:
    """Our group as seen from its mount, which in a container may start at our group or somewhere
    above it.
    """
    if root != "/":
        path = path[len(root) :] if path == root or path.startswith(root + "/") else ""
    return "" if ".." in path.split("/") else path.strip("/")


def _mounts(proc: str) -> list[tuple[str, str, str]]:
    """(mount point, root of the mount, controller); the controller of version 2 is the empty name."""
    found = []
    for line in _text(f"{proc}/self/mountinfo").splitlines():
        head, _, tail = line.partition(" - ")
        words, kinds = head.split(), tail.split()
        if len(words) < 5 or len(kinds) < 3 or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        names = [""] if kinds[0] == "cgroup2" else kinds[2].split(",")
        found += [(words[4], words[3], name) for name in names]
    return found


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _number(path: str) -> float | None:
    return _float(_text(path))


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

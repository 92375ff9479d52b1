"""What the machine as a whole uses: CPU, memory, network, disks, pressure. Called by `sampler`.

Inside a limited cgroup, memory, CPU and pressure are those of the group: its limit is what a job
runs into. Every value that cannot be read is None (B33).
"""

from __future__ import annotations

import os
import re

from headway.agent.probes.cgroup import Group
from headway.agent.probes.nfs import Nfs
from headway.agent.probes.proc_file import Budget, Kept, Rate
from headway.agent.probes.process_stat import PAGE_BYTES, TICKS_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk has
NAMES_MAX = 4096
_VIRTUAL_NET = re.compile(r"lo$|veth|docker|br-|virbr|ifb|dummy|cali|flannel|cni|tunl|sit\d|ip6tnl")
_DISK = re.compile(r"(sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|nvme\d+n\d+|mmcblk\d+)$")
_PRESSURES = ("cpu", "io", "memory")


class Node:
    def __init__(
        self, proc: str = "/proc", sys: str = "/sys", budget: Budget | None = None
    ) -> None:
        budget = budget or Budget()
        self._sys, self.group = sys, Group(proc, sys, budget)
        self._stat, self._meminfo = Kept(f"{proc}/stat", budget), Kept(f"{proc}/meminfo", budget)
        self._vmstat, self._nfs = Kept(f"{proc}/vmstat", budget), Nfs(proc, budget)
        self._net, self._disks = Kept(f"{proc}/net/dev", budget), Kept(f"{proc}/diskstats", budget)
        folder = self.group.pressure
        self._pressure = {
            name: Kept(f"{folder}/{name}.pressure" if folder else f"{proc}/pressure/{name}", budget)
            for name in _PRESSURES
        }
        self._rates = {
            name: Rate() for name in ("used", "rx", "tx", "read", "write", "swap", *_PRESSURES)
        }
        self._counted: dict[str, bool] = {}  # network interface or disk -> whether it is counted
        self.cores = min(_cores(), self.group.cores_max or float("inf"))

    def sample(self, now_s: float) -> "JsonObject":
        memory, total = self._memory()
        received, sent = self._network()
        read, written = self._disk()
        cpu = self._rates["used"].take(self._cpu_s(), now_s)
        node = {
            "cpu_percent": None if cpu is None else round(100 * cpu, 1), "cores": round(self.cores, 2),
            "memory_bytes": memory, "memory_total_bytes": total,
            "net_rx_bps": self._rate("rx", received, now_s), "net_tx_bps": self._rate("tx", sent, now_s),
            "disk_read_bps": self._rate("read", read, now_s), "disk_write_bps": self._rate("write", written, now_s),
            "psi": {name: self._stalled(name, now_s) for name in _PRESSURES},
        }  # fmt: skip
        # few machines have these, so most samples go without
        more = {
            "swap_bps": self._rate("swap", self._swapped(), now_s),
            "nfs": self._nfs.sample(now_s),
        }
        return node | {name: value for name, value in more.items() if value is not None}

    def _rate(self, name: str, value: int | None, now_s: float) -> int | None:
        rate = self._rates[name].take(value, now_s)
        return None if rate is None else round(rate)

    def _cpu_s(self) -> float | None:
        if self.group.cores_max is not None and (used_s := self.group.cpu_s()) is not None:
            return used_s
        words = self._stat.read(512).split(b"\n", 1)[0].split()
        if len(words) < 9 or words[0] != b"cpu":
            return None
        user, nice, system, _, _, irq, softirq, steal = (int(word) for word in words[1:9])
        return (user + nice + system + irq + softirq + steal) / TICKS_S

    def _memory(self) -> tuple[int | None, int | None]:
        data = self._meminfo.read(1024)
        total, free = _kib(data, b"MemTotal:"), _kib(data, b"MemAvailable:")
        free = _kib(data, b"MemFree:") if free is None else free
        limit = self.group.memory_max_bytes
        if limit is not None and limit < (total or limit + 1):
            used = self.group.memory_bytes()
            if used is not None:
                return used, limit
        return (None if total is None or free is None else total - free), total

    def _swapped(self) -> int | None:
        """Bytes that went to swap and back so far; of the whole machine."""
        if not _kib(self._meminfo.read(1024), b"SwapTotal:"):
            return None
        data = self._vmstat.read_all()
        counts = [_count(data, name) for name in (b"pswpin ", b"pswpout ")]
        return sum(counts) * PAGE_BYTES

    def _network(self) -> tuple[int | None, int | None]:
        received = sent = None
        for row in self._net.read_all().splitlines()[2:]:
            name, _, rest = row.partition(b":")
            words = rest.split()
            if len(words) > 8 and self._is_counted("net", name.strip().decode("utf-8", "replace")):
                received = (received or 0) + int(words[0])
                sent = (sent or 0) + int(words[8])
        return received, sent

    def _disk(self) -> tuple[int | None, int | None]:
        read = written = None
        for row in self._disks.read_all().splitlines():
            words = row.split(None, 10)
            if len(words) > 10 and self._is_counted("disk", words[2].decode("utf-8", "replace")):
                read = (read or 0) + int(words[5]) * SECTOR_BYTES
                written = (written or 0) + int(words[9]) * SECTOR_BYTES
        return read, written

    def _is_counted(self, kind: str, name: str) -> bool:
        """Real devices only: what goes through a bridge or a mapper also goes through them, and
        would count twice.
        """
        key = f"{kind}:{name}"
        counted = self._counted.get(key)
        if counted is None and len(self._counted) < NAMES_MAX:
            counted = self._counted[key] = self._is_real(kind, name)
        return bool(counted)

    def _is_real(self, kind: str, name: str) -> bool:
        if "/" in name or name.startswith("."):
            return False
        if kind == "disk":
            return bool(_DISK.match(name)) and not os.path.exists(
                f"{self._sys}/class/block/{name}/partition"
            )
        if os.path.exists(f"{self._sys}/class/net/{name}/device"):
            return True
        return not _VIRTUAL_NET.match(name) and not self._has_real_net()

    def _has_real_net(self) -> bool:
        """A container has none; there the interface that it was given counts."""
        try:
            names = os.listdir(f"{self._sys}/class/net")
        except OSError:
            return False
        return any(os.path.exists(f"{self._sys}/class/net/{name}/device") for name in names)

    def _stalled(self, name: str, now_s: float) -> float | None:
        """Percent of the time in which at least one process waited for it."""
        first = self._pressure[name].read(256).split(b"\n", 1)[0]
        total = first.rpartition(b"total=")[2]
        rate = self._rates[name].take(int(total) / 1e6 if total.isdigit() else None, now_s)
        return None if rate is None else round(min(100.0, 100 * rate), 2)

    def close(self) -> None:
        files = (self._stat, self._meminfo, self._vmstat, self._net, self._disks)
        for kept in (*files, *self._pressure.values()):
            kept.close()
        self._nfs.close()
        self.group.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kib(data: bytes, name: bytes) -> int | None:
    words = data.partition(name)[2].split(None, 1)
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def _count(data: bytes, name: bytes) -> int:
    """Of /proc/vmstat, where each line is a name and a number."""
    words = data.partition(b"\n" + name)[2].split(None, 1)
    return int(words[0]) if words and words[0].isdigit() else 0

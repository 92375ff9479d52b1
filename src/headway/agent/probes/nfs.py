"""What goes over network file systems: rates, and how long a request takes. Called by `node`.

NFS counts in `/proc/self/mountstats`. Other network file systems (Lustre, CIFS, FUSE) count nowhere
that is the same on all machines; of those nothing is told.
"""

from __future__ import annotations

from headway.agent.probes.proc_file import Budget, Kept, Rate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOK_AGAIN_S = 60.0  # where nothing is mounted over the network
_OPERATIONS = (b"READ", b"WRITE", b"GETATTR", b"LOOKUP", b"OPEN", b"ACCESS", b"READDIR")


class Nfs:
    """The mount over which most goes."""

    def __init__(self, proc: str, budget: Budget) -> None:
        self._file = Kept(f"{proc}/self/mountstats", budget)
        self._rates: dict[str, tuple[Rate, Rate, Rate, Rate]] = {}
        self._next_s = 0.0

    def sample(self, now_s: float) -> "dict[str, Any] | None":
        """`{mount read_bps write_bps requests_ps wait_ms}`; None: nothing goes over the network."""
        if now_s < self._next_s:
            return None
        mounts = parse(self._file.read_all())
        if not mounts:
            self._next_s = now_s + LOOK_AGAIN_S
            return None
        busiest: dict[str, Any] | None = None
        for name, counts in mounts.items():
            rates = self._rates.setdefault(name, (Rate(), Rate(), Rate(), Rate()))
            read, written, requests, wait_ms = (
                rates[place].take(float(counts[place]), now_s) for place in range(4)
            )
            if read is None or written is None or requests is None or wait_ms is None:
                continue
            if busiest is None or requests > busiest["requests_ps"]:
                busiest = {
                    "mount": name,
                    "read_bps": round(read),
                    "write_bps": round(written),
                    "requests_ps": round(requests, 1),
                    "wait_ms": round(wait_ms / requests, 2) if requests else 0.0,
                }
        return busiest

    def close(self) -> None:
        self._file.close()


def parse(data: bytes) -> dict[str, tuple[int, int, int, int]]:
    """Of each NFS mount: bytes read, bytes written, requests, milliseconds that requests took."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for block in data.split(b"device ")[1:]:
        first, _, rest = block.partition(b"\n")
        if b" with fstype nfs" not in first:
            continue
        device, _, mount = first.partition(b" mounted on ")
        name = f"{device.decode('utf-8', 'replace')} on {mount.split(b' ', 1)[0].decode('utf-8', 'replace')}"
        read = written = requests = wait_ms = 0
        for line in rest.splitlines():
            name_of, _, numbers = line.strip().partition(b":")
            words = numbers.split()
            if name_of == b"bytes" and len(words) >= 6:
                # what the server was asked for; what the cache gave does not count
                read, written = int(words[4]), int(words[5])
            elif name_of in _OPERATIONS and len(words) >= 8:
                # operations, transmissions, timeouts, bytes sent and received, then the
                # milliseconds in the queue, on the way, and in all
                requests += int(words[0])
                wait_ms += int(words[7])
        found[name] = (read, written, requests, wait_ms)
    return found

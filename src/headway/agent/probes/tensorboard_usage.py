"""Usage as TensorBoard scalars: an event file that TensorBoard reads, written without it. Called by
`task_usage.py`.

The format is `wire/tfevents.py`. Each shipper writes a file of its own and each sample is one write,
so a kill leaves at most one torn record, at the end; readers pass over that.
"""

from __future__ import annotations

import os

from headway.model.limits import TENSORBOARD_BYTES_MAX, USAGE_FULL_S, USAGE_MEDIUM_S
from headway.wire.tfevents import event, first_event, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.model.json_types import JsonMapping, JsonObject

    Fact = JsonObject

VARIABLE = "HEADWAY_TENSORBOARD_DIR"
GROUP = "Diagnostics"
_NODE = (
    "cpu_percent",
    "memory_bytes",
    "net_rx_bps",
    "net_tx_bps",
    "disk_read_bps",
    "disk_write_bps",
)
_RANK = ("cpu_percent", "rss_bytes", "threads", "read_bps", "write_bps")
_GPU = ("load_percent", "memory_bytes", "power_w", "temperature_c", "sm_mhz")


def scalars(fact: "Fact", node: str) -> "dict[str, float]":
    """What of a sample becomes scalars, by its tag. Cards that others hold are left out."""
    found = dict(_of(fact.get("node") or {}, _NODE, node))
    for line in fact.get("processes") or []:
        if line.get("pid") is None:
            found.update(_of(line, _RANK, f"rank{line.get('rank')}"))
    for gpu in fact.get("gpus") or []:
        if gpu.get("own") is not False:
            found.update(_of(gpu, _GPU, f"{node}/gpu{gpu.get('index')}"))
    return found


def _of(row: "JsonMapping", names: tuple[str, ...], place: str) -> "Iterator[tuple[str, float]]":
    for name in names:
        value = row.get(name)
        if isinstance(value, list):
            value = value[1]  # of smallest, mean and largest
        if isinstance(value, (int, float)):
            yield f"{GROUP}/{place}/{name}", float(value)


def level_at(elapsed_s: float) -> int:
    """As the server keeps samples: each of the first hour, then those of 10 s for a day, then those
    of a minute.
    """
    if elapsed_s < USAGE_FULL_S:
        return 0
    return 1 if elapsed_s < USAGE_MEDIUM_S else 2


class EventFile:
    """`folder/events.out.tfevents.…`, made with the first sample. The step is the seconds since
    `begun_ns`.
    """

    def __init__(
        self, folder: str, node: str, begun_ns: int, bytes_max: int = TENSORBOARD_BYTES_MAX
    ) -> None:
        self._folder, self._node, self._begun_ns, self._left = folder, node, begun_ns, bytes_max
        self._fd: int | None = None

    def write(self, fact: "Fact") -> None:
        """One sample. Raises OSError: a disk that is full, a folder that may not be made, a file
        that is too large.
        """
        time_s = fact["time_ns"] / 1e9
        elapsed_s = time_s - self._begun_ns / 1e9
        if fact.get("level") != level_at(elapsed_s):
            return
        values = scalars(fact, self._node)
        if values:
            self._put(record(event(time_s, int(elapsed_s), values)), time_s)

    def _put(self, data: bytes, time_s: float) -> None:
        if self._fd is None:
            os.makedirs(self._folder, exist_ok=True)
            name = f"events.out.tfevents.{int(time_s)}.{self._node}.{os.getpid()}.headway"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(os.path.join(self._folder, name), flags, 0o666)
            data = record(first_event(time_s)) + data
        self._left -= len(data)
        if self._left < 0:
            raise OSError(
                f"the event file has reached its limit of {TENSORBOARD_BYTES_MAX >> 20} MiB"
            )
        if os.write(self._fd, data) != len(data):
            raise OSError("the disk is full")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

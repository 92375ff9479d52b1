"""Samples of usage as tracks: a track is one node, rank, process or GPU with its values over time.
Pure.

Called by `hw usage` for its table, its CSV and its page. A value is one number, or `[min, mean,
max]` of a longer span.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headway.model.json_types import JsonObject
from headway.views.console.widgets.curve import real
from headway.views.text import format as fmt

Sample = JsonObject
NODE, RANK, PROCESS, GPU = "node", "rank", "process", "gpu"
# of a track → what it is called in a sample
FIELDS: Final[dict[str, dict[str, str]]] = {
    NODE: {
        "cpu": "cpu_percent", "memory": "memory_bytes", "received": "net_rx_bps", "sent": "net_tx_bps",
        "read": "disk_read_bps", "write": "disk_write_bps", "memory_total": "memory_total_bytes",
    },
    RANK: {
        "cpu": "cpu_percent", "memory": "rss_bytes", "threads": "threads", "files": "fds", "read": "read_bps",
        "write": "write_bps",
    },
    GPU: {
        "load": "load_percent", "gpu_memory": "memory_bytes", "gpu_memory_total": "memory_total_bytes",
        "power": "power_w", "temperature": "temperature_c",
    },
}  # fmt: skip
FIELDS[PROCESS] = FIELDS[RANK]


class Point(NamedTuple):
    time_s: float
    mean: float
    high: float


@dataclass(slots=True)
class Track:
    kind: str
    host: str
    number: int | None  # rank or index of the GPU
    pid: int | None = None
    ppid: int | None = None
    name: str = ""
    attempt: int = 1
    points: dict[str, list[Point]] = field(default_factory=dict)

    def mean(self, what: str) -> float | None:
        found = self.points.get(what)
        return sum(point.mean for point in found) / len(found) if found else None

    def high(self, what: str) -> float | None:
        return max((point.high for point in self.points.get(what, ())), default=None)

    def last(self, what: str) -> float | None:
        found = self.points.get(what)
        return found[-1].mean if found else None

    def label(self, hosts: int = 1) -> str:
        where = f"{self.host}  " if hosts > 1 else ""
        if self.kind == NODE:
            return self.host
        if self.kind == PROCESS:
            return f"{where}{self.name or 'process'} {self.pid}"
        return f"{where}{self.kind} {self.number}"


class Windows:
    """When which processes have said that their usage is of no interest (`Usage.stop`), as told by
    the server.
    """

    def __init__(self, told: Iterable[JsonObject]) -> None:
        self._turns: dict[tuple[int, Any], list[tuple[float, bool]]] = {}
        for one in told:
            moment = fmt.moment(str(one.get("time") or ""))
            if moment is not None:
                key = (int(one.get("attempt") or 1), one.get("rank"))
                self._turns.setdefault(key, []).append((moment.timestamp(), bool(one.get("open"))))

    def is_open(self, attempt: int, rank: object, time_s: float) -> bool:
        turns = self._turns.get((attempt, rank))
        if not turns:
            return True
        return next((is_open for turned_s, is_open in reversed(turns) if turned_s <= time_s), True)

    def closed(self) -> list[tuple[int, Any, float, float | None]]:
        """`(attempt, rank, from, to)` of each stretch that is left out; `to` None: to the end."""
        found: list[tuple[int, Any, float, float | None]] = []
        for (attempt, rank), turns in sorted(self._turns.items(), key=str):
            since_s: float | None = None
            for turned_s, is_open in turns:
                if is_open and since_s is not None:
                    found.append((attempt, rank, since_s, turned_s))
                if is_open:
                    since_s = None
                elif since_s is None:
                    since_s = turned_s
            if since_s is not None:
                found.append((attempt, rank, since_s, None))
        return found


_ALWAYS: Final = Windows(())


def tracks(
    samples: Iterable[Sample], rank: int | None = None, windows: Windows = _ALWAYS
) -> list[Track]:
    """By host: the node, its ranks, their processes, its GPUs; with `rank`, processes of that rank
    only. What a program has left out is left out, and so are cards that others hold.
    """
    found: dict[tuple[Any, ...], Track] = {}
    for sample in samples:
        moment = fmt.moment(str(sample.get("time") or ""))
        if moment is None:
            continue
        host, attempt = (
            str(sample.get("host") or sample.get("task") or "node"),
            int(sample.get("attempt") or 1),
        )
        time_s = moment.timestamp()
        if isinstance(sample.get("node"), dict):
            _add(found, Track(NODE, host, None), time_s, sample["node"])
        for line in _objects(sample.get("processes")):
            wanted = rank is None or line.get("rank") == rank
            if wanted and windows.is_open(attempt, line.get("rank"), time_s):
                _add(found, _process(host, attempt, line), time_s, line)
        for gpu in _objects(sample.get("gpus")):
            if gpu.get("own") is False:
                continue
            _add(
                found,
                Track(GPU, host, _whole(gpu.get("index")), name=str(gpu.get("name") or "")),
                time_s,
                gpu,
            )
    order = (NODE, RANK, PROCESS, GPU)
    return sorted(
        found.values(),
        key=lambda t: (t.host, order.index(t.kind), t.number or 0, t.attempt, t.pid or 0),
    )


def _process(host: str, attempt: int, line: Sample) -> Track:
    """A rank's tree is the same through all attempts; a process belongs to one."""
    pid, number = _whole(line.get("pid")), _whole(line.get("rank"))
    if pid is None:
        return Track(RANK, host, number)
    return Track(
        PROCESS, host, number, pid, _whole(line.get("ppid")), str(line.get("name") or ""), attempt
    )


def _add(found: dict[tuple[Any, ...], Track], new: Track, time_s: float, values: Sample) -> None:
    key = (new.host, new.kind, new.number, new.pid, new.attempt)
    track = found.setdefault(key, new)
    for what, name in FIELDS[track.kind].items():
        value = values.get(name)
        if name == "rss_bytes" and values.get("memory_bytes") is not None:
            value = values["memory_bytes"]  # of several processes, what they share counted once
        three = value if isinstance(value, list) and len(value) == 3 else (value, value, value)
        mean, high = real(three[1]), real(three[2])
        if mean is not None and high is not None:
            track.points.setdefault(what, []).append(Point(time_s, mean, high))


def span_s(found: Iterable[Track]) -> tuple[float, float]:
    """First and last moment of all tracks."""
    times = [
        t
        for track in found
        for points in track.points.values()
        for t in (points[0].time_s, points[-1].time_s)
    ]
    return (min(times), max(times)) if times else (0.0, 0.0)


def begin_s(found: Iterable[Track], job: Sample) -> float:
    """Where the time axis begins: with the job, or with the first sample where that is not known."""
    first_s = span_s(found)[0]
    started = fmt.moment(str(job.get("started_at") or ""))
    return min(first_s, started.timestamp()) if started is not None and first_s else first_s


def folded(checkpoints: Iterable[Sample]) -> list[Sample]:
    """Checkpoints in order of time; the same one of several ranks once, at its first moment, with
    its `ranks`.
    """
    found: list[Sample] = []
    # tags → those that may still be joined by other ranks
    waiting: dict[tuple[str, ...], list[Sample]] = {}
    for one in checkpoints:
        tags, rank = tuple(str(tag) for tag in one.get("tags") or []), _whole(one.get("rank"))
        open_ones = waiting.setdefault(tags, [])
        joined = next(
            (mark for mark in open_ones if rank is not None and rank not in mark["ranks"]), None
        )
        if joined is None:
            joined = {"time": one.get("time"), "tags": list(tags), "ranks": []}
            found.append(joined)
            open_ones.append(joined)
        if rank is not None:
            joined["ranks"].append(rank)
    return found


def ranks_words(ranks: list[int], everyone: int) -> str:
    """Whose a checkpoint is: nothing where it is that of all."""
    if not ranks or len(ranks) >= everyone:
        return ""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} of {everyone} ranks"


def places(points: list[Point], begin_s: float, end_s: float, count: int) -> list[float | None]:
    """Means in `count` equal parts of a time; None where there is no sample."""
    sums, counts = [0.0] * count, [0] * count
    width_s = max(end_s - begin_s, 1e-9) / count
    for point in points:
        place = min(max(int((point.time_s - begin_s) / width_s), 0), count - 1)
        sums[place] += point.mean
        counts[place] += 1
    return [total / number if number else None for total, number in zip(sums, counts, strict=True)]


def filled(values: list[float | None]) -> list[float]:
    """As a curve is drawn: between its first and last sample a place without one repeats the one
    before.
    """
    known = [i for i, value in enumerate(values) if value is not None]
    if not known:
        return []
    found: list[float] = []
    for value in values[known[0] : known[-1] + 1]:
        found.append(found[-1] if value is None else value)
    return found


# -- CSV

_GB: Final = 1e9
# name in the file, of which kinds, from which values, scale
_CELLS: Final = (
    ("Load_Percent", GPU, "load", 1.0), ("MemAllocated_GB", GPU, "gpu_memory", _GB), ("Power_W", GPU, "power", 1.0),
    ("Temperature_C", GPU, "temperature", 1.0), ("Load_Percent", NODE, "cpu", 1.0),
    ("MemUsed_GB", NODE, "memory", _GB), ("Load_Percent", RANK, "cpu", 1.0), ("MemUsed_GB", RANK, "memory", _GB),
)  # fmt: skip


def csv_rows(found: list[Track]) -> list[list[str]]:
    """`gpu,metric,value`: of each GPU, node (`CPU`) and rank its means, and its maxima as `Max…`."""
    hosts = len({track.host for track in found})
    rows = [["gpu", "metric", "value"]]
    for track in found:
        names = {NODE: "CPU", RANK: f"Rank{track.number}", GPU: f"GPU{track.number}", PROCESS: ""}
        who = f"{track.host}/{names[track.kind]}" if hosts > 1 else names[track.kind]
        for metric, kind, what, scale in _CELLS:
            mean, high = track.mean(what), track.high(what)
            if kind == track.kind and mean is not None and high is not None:
                rows += [
                    [who, metric, f"{mean / scale:.2f}"],
                    [who, f"Max{metric}", f"{high / scale:.2f}"],
                ]
        for share, used, total in (
            ("MemUtil_Percent", "gpu_memory", "gpu_memory_total"),
            _NODE_SHARE,
        ):
            whole = track.high(total)
            if whole and track.kind in (GPU, NODE):
                mean, high = track.mean(used) or 0.0, track.high(used) or 0.0
                rows += [
                    [who, share, f"{100 * mean / whole:.2f}"], [who, f"Max{share}", f"{100 * high / whole:.2f}"]
                ]  # fmt: skip
    return rows


_NODE_SHARE: Final = ("MemUtil_Percent", "memory", "memory_total")


def _objects(value: object) -> list[Sample]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

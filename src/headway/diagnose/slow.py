"""Why a job that runs is slow: from samples of usage, one rule a function. Pure; called by the API when
a person asks.

Each rule says what it saw as numbers, and is silent where they are not known. A rule needs
`SLOW_SAMPLES_MIN` samples, so that nothing is said of a moment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from headway.model.job import Job
from headway.model.json_types import JsonMapping
from headway.model.rank_set import ranks_text

SLOW_SAMPLES_MIN = 20
GPU_UNUSED_PERCENT = 2.0
GPU_STARVED_PERCENT = 50.0
CORE_FULL_PERCENT = 95.0
PRESSURE_MEMORY, PRESSURE_IO, PRESSURE_CPU = 10.0, 20.0, 30.0  # percent of the time
MEMORY_FULL = 0.95
FOREIGN_SHARE = 0.4  # of the cores of a node
STRAGGLER_GAP = 0.2  # of the looks: so much less often is a straggler found waiting
_SLOWING = ("thermal", "power", "hw", "slowdown", "brake")


class Slow(msgspec.Struct):
    cause: str
    cls: str
    text: str
    confidence: float
    evidence: list[str]
    advice: str = ""
    rank: int | None = None
    node: str | None = None


Sample = JsonMapping
Rule = Callable[[Job, Sequence[Sample]], Iterator[Slow]]


def judge(job: Job, samples: Sequence[Sample]) -> list[Slow]:
    """`samples`: of the last minutes, level 0, of all tasks. What slows most is likely comes first."""
    if len(samples) < SLOW_SAMPLES_MIN:
        return []
    found = [slow for rule in RULES for slow in rule(job, samples)]
    return sorted(found, key=lambda slow: -slow.confidence)


# -- numbers


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _numbers(rows: Sequence[JsonMapping], name: str) -> list[float]:
    return [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]


def _nodes(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(str(sample.get("host")), []).append(sample)
    return found


def _own_gpus(sample: Sample) -> list[JsonMapping]:
    return [gpu for gpu in sample.get("gpus") or () if gpu.get("own")]


def _trees(sample: Sample) -> list[JsonMapping]:
    """The line of each rank's whole tree."""
    return [line for line in sample.get("processes") or () if line.get("pid") is None]


def _members(sample: Sample) -> list[JsonMapping]:
    return [line for line in sample.get("processes") or () if line.get("pid") is not None]


def _pressure(samples: Sequence[Sample], name: str) -> float | None:
    values = []
    for sample in samples:
        value = ((sample.get("node") or {}).get("psi") or {}).get(name)
        if isinstance(value, int | float):
            values.append(float(value))
    return _mean(values)


# -- rules


def _gpu_unused(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    loads = [v for sample in samples for v in _numbers(_own_gpus(sample), "load_percent")]
    if len(loads) < SLOW_SAMPLES_MIN or max(loads) > GPU_UNUSED_PERCENT:
        return
    held = any(gpu.get("holders") for sample in samples for gpu in _own_gpus(sample))
    cards = len(_own_gpus(samples[-1])) or job.spec.gpus
    where = "holds memory on them and computes on the CPU" if held else "has not touched them"
    yield Slow(
        "gpu_unused", "user", f"{cards} GPUs are given to it and none is used: it {where}", 0.9,
        [f"GPU load {max(loads):.0f} % at most in {len(loads)} samples"],
        "is the model moved to the device? python -c 'import torch; print(torch.cuda.is_available())'",
    )  # fmt: skip


def _input_starved(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    """The GPU waits while helper processes of the ranks are busy all the time."""
    loads = [v for sample in samples for v in _numbers(_own_gpus(sample), "load_percent")]
    load = _mean(loads)
    if load is None or not GPU_UNUSED_PERCENT < load < GPU_STARVED_PERCENT:
        return
    helpers = _helpers(samples)
    busy = [cpu for cpu in helpers if cpu >= 0.85 * CORE_FULL_PERCENT]
    if helpers and len(busy) == len(helpers):
        text = f"the GPU waits for data: {len(helpers)} loader processes are busy all the time"
        advice = f"more workers: num_workers={2 * len(helpers)}"
        yield Slow("input_starved", "user", text, 0.85, [_load_words(load)], advice)
    elif not helpers:
        core = max((v for s in samples for v in _numbers(_members(s), "cpu_percent")), default=0.0)
        if core >= CORE_FULL_PERCENT:
            text = "the GPU waits for the main process, which loads data itself on one full core"
            yield Slow("input_starved", "user", text, 0.7, [_load_words(load)], "num_workers=4")


def _load_words(load: float) -> str:
    return f"GPU load {load:.0f} % on average"


def _helpers(samples: Sequence[Sample]) -> list[float]:
    """Mean CPU of each process below a rank's first one that was there all the time."""
    first = {line["pid"]: line for line in _members(samples[0])}
    by_pid: dict[int, list[float]] = {}
    for sample in samples:
        for line in _members(sample):
            if line["pid"] in first and line.get("ppid") in first:
                by_pid.setdefault(line["pid"], []).extend(_numbers([line], "cpu_percent"))
    return [sum(v) / len(v) for v in by_pid.values() if len(v) >= len(samples) // 2]


def _cpu_saturated(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    """One thread computes while other cores that it may use are idle."""
    cores = [float((s.get("node") or {}).get("cores") or 0) for s in samples]
    may_use = job.spec.cpus or (max(cores) if cores else 0)
    totals = [v for sample in samples for v in _numbers(_trees(sample), "cpu_percent")]
    mean = _mean(totals)
    if mean is None or may_use < 2 or len(_trees(samples[-1])) != 1:
        return
    if CORE_FULL_PERCENT <= mean <= 110.0 and max(totals) < 130.0:
        text = f"it computes on one core of {may_use:.0f}: that core is full, the others idle"
        yield Slow("cpu_saturated", "user", text, 0.6, [f"CPU {mean:.0f} % of one core on average"],
                   "use several processes or threads, or a profiler: where is the time spent?")  # fmt: skip


def _oversubscribed(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    """More processes that want to compute than cores."""
    for node, some in _nodes(samples).items():
        waits = _pressure(some, "cpu")
        cores = max((float((s.get("node") or {}).get("cores") or 0) for s in some), default=0.0)
        running = _mean(
            [float(len([c for c in _numbers(_members(s), "cpu_percent") if c > 20])) for s in some]
        )
        if waits is None or running is None or not cores:
            continue
        if waits >= PRESSURE_CPU and running > 1.5 * cores:
            text = f"{running:.0f} of its processes want to compute on {cores:.0f} cores of {node}"
            yield Slow("cpu_saturated", "user", text, 0.75, [f"something waited for a core {waits:.0f} % of the time"],
                       "fewer loader workers, or OMP_NUM_THREADS=1", node=node)  # fmt: skip


def _memory_pressure(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    for node, some in _nodes(samples).items():
        waits = _pressure(some, "memory")
        full = [
            float(n["memory_bytes"]) / float(n["memory_total_bytes"])
            for n in (s.get("node") or {} for s in some)
            if n.get("memory_bytes") and n.get("memory_total_bytes")
        ]
        share = _mean(full)
        if waits is not None and waits >= PRESSURE_MEMORY:
            evidence = [f"processes waited for memory {waits:.0f} % of the time"]
            if share is not None:
                evidence.append(f"memory of {node} {share:.0%} full")
            text = f"memory is short on {node}: pages are read again, or swapped"
            yield Slow(
                "memory_pressure",
                "resource",
                text,
                0.85,
                evidence,
                "more --memory, or smaller batches",
                node=node,
            )
        elif share is not None and share >= MEMORY_FULL:
            text = f"the memory of {node} is {share:.0%} full"
            yield Slow(
                "memory_pressure",
                "resource",
                text,
                0.6,
                [],
                "more --memory, or smaller batches",
                node=node,
            )


def _io_wait(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    for node, some in _nodes(samples).items():
        waits = _pressure(some, "io")
        rates = [
            sum(_numbers(_trees(s), "read_bps")) + sum(_numbers(_trees(s), "write_bps"))
            for s in some
        ]
        cpu = _mean([v for s in some for v in _numbers(_trees(s), "cpu_percent")])
        if waits is None or waits < PRESSURE_IO or (cpu is not None and cpu > 80.0):
            continue
        rate = (_mean(rates) or 0.0) / 1e6
        text = f"its processes wait for a disk {waits:.0f} % of the time on {node}"
        yield Slow("io_wait", "system", text, 0.75, [f"they read and write {rate:.1f} MB/s"],
                   "read from a local disk, or in larger pieces", node=node)  # fmt: skip


def _throttled(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    seen: dict[int, set[str]] = {}
    counts: dict[int, int] = {}
    for sample in samples:
        for gpu in _own_gpus(sample):
            words = [
                w for w in gpu.get("throttle") or () if any(k in str(w).lower() for k in _SLOWING)
            ]
            if words:
                seen.setdefault(int(gpu["index"]), set()).update(map(str, words))
                counts[int(gpu["index"])] = counts.get(int(gpu["index"]), 0) + 1
    for index, reasons in seen.items():
        if counts[index] >= len(samples) / 2:
            text = f"GPU {index} is slowed down: {', '.join(sorted(reasons))}"
            yield Slow(
                "throttled",
                "system",
                text,
                0.8,
                [f"in {counts[index]} of {len(samples)} samples"],
                "another node",
            )


def _foreign_load(job: Job, samples: Sequence[Sample]) -> Iterator[Slow]:
    for node, some in _nodes(samples).items():
        rest: list[float] = []
        cores = 0.0
        for sample in some:
            whole = (sample.get("node") or {}).get("cpu_percent")
            cores = max(cores, float((sample.get("node") or {}).get("cores") or 0))
            if isinstance(whole, int | float):
                rest.append(float(whole) - sum(_numbers(_trees(sample), "cpu_percent")))
        foreign, waits = _mean(rest), _pressure(some, "cpu")
        if foreign is None or not cores or waits is None:
            continue
        if foreign >= FOREIGN_SHARE * 100 * cores and waits >= PRESSURE_CPU:
            text = f"others compute on {node}, too: {foreign / 100:.1f} of its {cores:.0f} cores"
            yield Slow("foreign_load", "system", text, 0.8, [f"something waited for a core {waits:.0f} % of the time"],
                       "another node, or ask for the whole one", node=node)  # fmt: skip


RULES: tuple[Rule, ...] = (
    _gpu_unused, _input_starved, _cpu_saturated, _oversubscribed, _memory_pressure, _io_wait, _throttled,
    _foreign_load,
)  # fmt: skip


# -- stragglers


def straggler(looks: Sequence[Mapping[int, str | None]]) -> Slow | None:
    """The rank that is least often found waiting for the others: in synchronous training all step
    times are equal. `looks`: in each sample the kind of wait of every rank.
    """
    ranks = sorted({rank for look in looks for rank in look})
    if len(looks) < 5 or len(ranks) < 2:
        return None
    share = {
        rank: sum(look.get(rank) == "collective" for look in looks) / len(looks) for rank in ranks
    }
    last, *others = sorted(ranks, key=lambda rank: share[rank])
    # all others wait much of the time, and this one hardly ever
    least = min(share[rank] for rank in others)
    if least - share[last] < STRAGGLER_GAP or share[last] > least / 2:
        return None
    mean = sum(share[rank] for rank in others) / len(others)
    text = f"rank {last} is slower than the others: {ranks_text(others)} wait for it {mean:.0%} of the time"
    seen = f"found waiting: rank {last} {share[last]:.0%} of {len(looks)} looks"
    return Slow("straggler", "system", text, 0.8, [seen], f"hw stacks ID --rank {last}", rank=last)

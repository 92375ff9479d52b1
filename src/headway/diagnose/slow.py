"""Why a job that runs is slow: from samples of usage, its pace, and what it times. One rule a
function. Pure; called by the look at what runs, and by the API when a person asks.

Each rule says what it saw as numbers, and is silent where they are not known. A rule needs samples
of `SLOW_SPAN_S_MIN`, so that nothing is said of a moment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headway.diagnose.ledger import Used
from headway.diagnose.pace import Pace, pace_findings
from headway.model.job import Job
from headway.model.json_types import JsonMapping
from headway.model.rank_set import ranks_text
from headway.settings.quantity import size_text

SLOW_SPAN_S_MIN = 20.0
GPU_UNUSED_PERCENT = 2.0
GPU_STARVED_PERCENT = 50.0
CORE_FULL_PERCENT = 95.0
PRESSURE_MEMORY, PRESSURE_IO, PRESSURE_CPU = 10.0, 20.0, 30.0  # percent of the time
MEMORY_FULL = 0.95
WANTS_PERCENT = 25.0  # of a core: a rank that uses less waits for other things
FOREIGN_SHARE = 0.4  # of the cores of a node
STRAGGLER_GAP = 0.08  # of the looks: so much less often is a straggler found waiting
STRAGGLER_SPREADS = 2.5  # and by so many times what chance does
STRAGGLER_LOOKS_MIN = 8
TOLD_CONFIDENCE = 0.7  # from here on it is told without being asked for
SWAP_BPS = 1e6
NFS_WAIT_MS, NFS_BUSY = 5.0, 0.2  # of a request; of the time of one process
IDLE_PERCENT = 3.0  # of a core: a worker that has nothing to do
WORKERS_FEW = 4
CHECKPOINT_SHARE = 0.1  # of the time
WRITE_BPS, WRITE_SHARE = 20e6, 0.25
SPIN_LOAD_PERCENT, SPIN_POWER = 95.0, 0.6  # of the power that it usually takes at full load
REQUEST_RAN_S = 600.0  # what a job uses is known by then
REQUEST_MEMORY_BYTES, REQUEST_CORES = 4 << 30, 4
REQUEST_SHARE = 0.5
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


class Seen(msgspec.Struct):
    """What is known of a job that runs. `samples`: of the last minutes, of all tasks; numbers may be
    `[min, mean, max]`. `earlier`: of its past before them. `timed`: seconds by part of the ledger.
    """

    samples: Sequence[Sample]
    earlier: Sequence[Sample] = ()
    pace: Pace | None = None
    used: Used = msgspec.field(default_factory=Used)
    ran_s: float = 0.0
    timed: Mapping[str, float] = msgspec.field(default_factory=dict)
    checkpoints: int = 0


Rule = Callable[[Job, Seen], Iterator[Slow]]


def judge(job: Job, seen: Seen) -> list[Slow]:
    """What is likeliest to slow it down comes first."""
    plain = msgspec.structs.replace(
        seen,
        samples=[_means(sample) for sample in seen.samples],
        earlier=[_means(sample) for sample in seen.earlier],
    )
    found: list[Slow] = []
    if _span_s(plain.samples) >= SLOW_SPAN_S_MIN:
        found = [slow for rule in RULES for slow in rule(job, plain)]
    found.sort(key=lambda slow: -slow.confidence)
    if seen.pace is None:
        return found
    for words, cause, confidence in pace_findings(seen.pace):
        if found and found[0].confidence >= TOLD_CONFIDENCE:
            found[0].evidence.append(words)
        else:
            advice = "hw diff ID OTHER" if seen.pace.sibling else "hw usage ID"
            if seen.pace.sibling:
                advice = advice.replace("OTHER", seen.pace.sibling.rpartition("-")[2])
            found.insert(0, Slow(cause, "system", words, confidence, [], advice))
    return found


# -- numbers


def _means(value: Any) -> Any:
    """Of `[min, mean, max]` the mean, wherever it stands."""
    if isinstance(value, dict):
        return {name: _means(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) == 3 and all(isinstance(one, int | float) for one in value):
        return value[1]
    return [_means(one) for one in value]


def _span_s(samples: Sequence[Sample]) -> float:
    """How long the samples of the task with the most of them last."""
    by_task: dict[str, float] = {}
    for sample in samples:
        task = str(sample.get("task"))
        by_task[task] = by_task.get(task, 0.0) + float(sample.get("span_s") or 1.0)
    return max(by_task.values(), default=0.0)


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


def _gpu_unused(job: Job, seen: Seen) -> Iterator[Slow]:
    samples = seen.samples
    loads = [v for sample in samples for v in _numbers(_own_gpus(sample), "load_percent")]
    if not loads or max(loads) > GPU_UNUSED_PERCENT:
        return
    held = any(gpu.get("holders") for sample in samples for gpu in _own_gpus(sample))
    cards = len(_own_gpus(samples[-1])) or job.spec.gpus
    where = "holds memory on them and computes on the CPU" if held else "has not touched them"
    yield Slow(
        "gpu_unused", "user", f"{cards} GPUs are given to it and none is used: it {where}", 0.9,
        [f"GPU load {max(loads):.0f} % at most in {len(loads)} samples"],
        "is the model moved to the device? python -c 'import torch; print(torch.cuda.is_available())'",
    )  # fmt: skip


def _input_starved(job: Job, seen: Seen) -> Iterator[Slow]:
    """The GPU waits while helper processes of the ranks are busy all the time."""
    samples = seen.samples
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


def _cpu_saturated(job: Job, seen: Seen) -> Iterator[Slow]:
    """One thread computes while other cores that it may use are idle."""
    samples = seen.samples
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


def _oversubscribed(job: Job, seen: Seen) -> Iterator[Slow]:
    """More processes that want to compute than cores."""
    samples = seen.samples
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


def _memory_pressure(job: Job, seen: Seen) -> Iterator[Slow]:
    samples = seen.samples
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


def _io_wait(job: Job, seen: Seen) -> Iterator[Slow]:
    samples = seen.samples
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


def _throttled(job: Job, seen: Seen) -> Iterator[Slow]:
    samples = seen.samples
    reasons_of: dict[int, set[str]] = {}
    counts: dict[int, int] = {}
    for sample in samples:
        for gpu in _own_gpus(sample):
            words = [
                w for w in gpu.get("throttle") or () if any(k in str(w).lower() for k in _SLOWING)
            ]
            if words:
                reasons_of.setdefault(int(gpu["index"]), set()).update(map(str, words))
                counts[int(gpu["index"])] = counts.get(int(gpu["index"]), 0) + 1
    for index, reasons in reasons_of.items():
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


def _foreign_load(job: Job, seen: Seen) -> Iterator[Slow]:
    """Others take the cores; whoever wants none himself does not suffer from it."""
    samples = seen.samples
    for node, some in _nodes(samples).items():
        rest: list[float] = []
        cores = 0.0
        for sample in some:
            whole = (sample.get("node") or {}).get("cpu_percent")
            cores = max(cores, float((sample.get("node") or {}).get("cores") or 0))
            if isinstance(whole, int | float):
                rest.append(float(whole) - sum(_numbers(_trees(sample), "cpu_percent")))
        foreign, waits = _mean(rest), _pressure(some, "cpu")
        own = _mean([max(_numbers(_trees(s), "cpu_percent"), default=0.0) for s in some])
        if foreign is None or not cores or waits is None or (own or 0.0) < WANTS_PERCENT:
            continue
        if foreign >= FOREIGN_SHARE * 100 * cores and waits >= PRESSURE_CPU:
            text = f"others compute on {node}, too: {foreign / 100:.1f} of its {cores:.0f} cores"
            yield Slow("foreign_load", "system", text, 0.8, [f"something waited for a core {waits:.0f} % of the time"],
                       "another node, or ask for the whole one", node=node)  # fmt: skip


def _too_many_workers(job: Job, seen: Seen) -> Iterator[Slow]:
    """Loader processes that have nothing to do hold memory, and take time to start."""
    helpers = _helpers(seen.samples)
    idle = [cpu for cpu in helpers if cpu < IDLE_PERCENT]
    if len(helpers) <= WORKERS_FEW or len(idle) < 0.75 * len(helpers):
        return
    total = sum(helpers)
    enough = max(1, -(-int(total) // 60))
    text = f"{len(idle)} of its {len(helpers)} loader processes have nothing to do"
    yield Slow("too_many_workers", "user", text, 0.65, [f"all of them use {total / 100:.1f} cores together"],
               f"fewer workers: num_workers={enough}")  # fmt: skip


def _swapping(job: Job, seen: Seen) -> Iterator[Slow]:
    for node, some in _nodes(seen.samples).items():
        rate = _mean(_numbers([s.get("node") or {} for s in some], "swap_bps"))
        if rate is not None and rate >= SWAP_BPS:
            text = f"{node} swaps: {rate / 1e6:.0f} MB/s go to its swap space and back"
            yield Slow("swapping", "resource", text, 0.9, [_memory_words(some)],
                       "more --memory, smaller batches, or fewer jobs there", node=node)  # fmt: skip


def _memory_words(samples: Sequence[Sample]) -> str:
    node = samples[-1].get("node") or {}
    used, total = node.get("memory_bytes"), node.get("memory_total_bytes")
    if not used or not total:
        return "how full its memory is, is not known"
    return f"{size_text(int(used))} of {size_text(int(total))} memory are in use"


def _network_storage(job: Job, seen: Seen) -> Iterator[Slow]:
    """Requests to a network file system take so long that whoever makes them mostly waits."""
    for node, some in _nodes(seen.samples).items():
        mounts = [(s.get("node") or {}).get("nfs") or {} for s in some]
        requests = _mean(_numbers(mounts, "requests_ps"))
        wait_ms = _mean(_numbers(mounts, "wait_ms"))
        if requests is None or wait_ms is None or wait_ms < NFS_WAIT_MS:
            continue
        busy = requests * wait_ms / 1000  # requests under way at a time
        cpu = _mean([v for s in some for v in _numbers(_trees(s), "cpu_percent")])
        if busy < NFS_BUSY or (cpu is not None and cpu > 80.0):
            continue
        rate = (_mean(_numbers(mounts, "read_bps")) or 0.0) / 1e6
        name = next(str(one["mount"]) for one in reversed(mounts) if one.get("mount"))
        text = f"it waits for the network file system {name}: {wait_ms:.0f} ms a request"
        evidence = [f"{requests:.0f} requests and {rate:.1f} MB/s read on {node}"]
        yield Slow("network_storage", "system", text, 0.8, evidence,
                   "copy the data to a local disk first, or read it in larger pieces", node=node)  # fmt: skip


def _checkpoint_heavy(job: Job, seen: Seen) -> Iterator[Slow]:
    saving_s = seen.timed.get("checkpoint", 0.0)
    if not saving_s:
        yield from _writes_much(seen)
    if seen.ran_s < SLOW_SPAN_S_MIN or saving_s < CHECKPOINT_SHARE * seen.ran_s:
        return
    share = saving_s / seen.ran_s
    evidence = [f"{saving_s:.0f} s of {seen.ran_s:.0f} s"]
    if seen.checkpoints > 1:
        evidence[0] += (
            f", {seen.checkpoints} checkpoints, one every {seen.ran_s / seen.checkpoints:.0f} s"
        )
    factor = max(2, round(share / (CHECKPOINT_SHARE / 4)))
    yield Slow("checkpoint_heavy", "user", f"it saves checkpoints for {share:.0%} of its time", 0.85, evidence,
               f"save {factor} times less often, or in a thread of its own")  # fmt: skip


def _writes_much(seen: Seen) -> Iterator[Slow]:
    """Nobody says what is saved, but it is written in bursts that stop everything else."""
    rates = [sum(_numbers(_trees(sample), "write_bps")) for sample in seen.samples]
    bursts = [rate for rate in rates if rate >= WRITE_BPS]
    share = len(bursts) / len(rates)
    if len(rates) >= 5 and share >= WRITE_SHARE:
        mean = sum(bursts) / len(bursts) / 1e6
        yield Slow("checkpoint_heavy", "user", f"it writes {mean:.0f} MB/s during {share:.0%} of its time", 0.6,
                   [f"{len(bursts)} of {len(rates)} samples"], "save less often, or in a thread of its own")  # fmt: skip


def _spinning(job: Job, seen: Seen) -> Iterator[Slow]:
    """A GPU that is said to be busy and takes half the power that it usually does waits for
    somebody: the kernel of a collective polls.
    """
    usual = _power_at_load(seen.earlier)
    for (node, index), watts in _power_at_load(seen.samples).items():
        before = usual.get((node, index))
        if before is None or len(watts) < 5 or len(before) < 5:
            continue
        now_w, usual_w = _median(watts), _median(before)
        if now_w < SPIN_POWER * usual_w:
            text = f"GPU {index} on {node} is at full load with {now_w:.0f} W, and usually takes {usual_w:.0f} W: it waits"
            yield Slow("gpu_spinning", "system", text, 0.75, [f"{len(watts)} samples against {len(before)} earlier ones"],
                       "hw stacks ID", node=node)  # fmt: skip


def _power_at_load(samples: Sequence[Sample]) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for sample in samples:
        for gpu in _own_gpus(sample):
            load, watts = gpu.get("load_percent"), gpu.get("power_w")
            if load is not None and watts is not None and load >= SPIN_LOAD_PERCENT:
                found.setdefault((str(sample.get("host")), int(gpu["index"])), []).append(watts)
    return found


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _over_requested(job: Job, seen: Seen) -> Iterator[Slow]:
    """Not slow itself; but others wait for what it holds, and so did it."""
    if seen.ran_s < REQUEST_RAN_S:
        return
    parts: list[str] = []
    advice: list[str] = []
    memory, used_memory = job.spec.memory_bytes, seen.used.memory_bytes
    if (
        memory
        and used_memory
        and memory >= REQUEST_MEMORY_BYTES
        and used_memory < REQUEST_SHARE * memory
    ):
        parts.append(f"asked {size_text(memory)}, used {size_text(used_memory)}")
        advice.append(f"--memory {-(-int(1.25 * used_memory) >> 20)}MiB")
    cores, used_cores = job.spec.cpus, seen.used.cores
    if (
        cores
        and used_cores is not None
        and cores >= REQUEST_CORES
        and used_cores < REQUEST_SHARE * cores
    ):
        asked = "" if parts else "asked "
        parts.append(f"{asked}{cores} cores, used {used_cores:.1f}")
        advice.append(f"--cpus {max(1, -(-int(125 * used_cores) // 100))}")
    if parts:
        text = "it asks for more than it uses: " + "; ".join(parts)
        yield Slow("over_requested", "user", text, 0.6, ["the most of all ranks at once so far"],
                   f"the next time: {' '.join(advice)}")  # fmt: skip


RULES: tuple[Rule, ...] = (
    _gpu_unused, _input_starved, _spinning, _throttled, _swapping, _memory_pressure, _network_storage, _io_wait,
    _checkpoint_heavy, _cpu_saturated, _oversubscribed, _too_many_workers, _foreign_load, _over_requested,
)  # fmt: skip


# -- stragglers


def straggler(looks: Sequence[Mapping[int, str | None]]) -> Slow | None:
    """The rank that is least often found waiting for the others: in synchronous training all step
    times are equal. `looks`: in each sample the kind of wait of every rank.
    """
    ranks = sorted({rank for look in looks for rank in look})
    count = len(looks)
    if count < STRAGGLER_LOOKS_MIN or len(ranks) < 2:
        return None
    share = {rank: sum(look.get(rank) == "collective" for look in looks) / count for rank in ranks}
    last, *others = sorted(ranks, key=lambda rank: share[rank])
    # all others wait, and this one hardly ever
    least = min(share[rank] for rank in others)
    if least - share[last] < STRAGGLER_GAP or share[last] > least / 2:
        return None
    # nor may it be chance: the difference of two shares against its spread, two looks added to each
    # side so that shares of 0 and 1 have one, too
    low, high = ((s * count + 1) / (count + 2) for s in (share[last], least))
    spread = ((low * (1 - low) + high * (1 - high)) / (count + 2)) ** 0.5
    if high - low < STRAGGLER_SPREADS * spread:
        return None
    mean = sum(share[rank] for rank in others) / len(others)
    text = f"rank {last} is slower than the others: {ranks_text(others)} wait for it {mean:.0%} of the time"
    seen = f"found waiting: rank {last} {share[last]:.0%} of {count} looks"
    return Slow("straggler", "system", text, 0.8, [seen], f"hw stacks ID --rank {last}", rank=last)

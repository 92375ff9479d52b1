"""Where the time of a job went, and the request that would have been enough. Pure; called by the API.

The parts add up to the time since the job was submitted. What is not known is told as `running`, never
spread over the others: data, communication, evaluation and checkpoints are known where the program
times them (`hw.timed`), a hang and lost attempts always are.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from headway.model.job import Job
from headway.model.json_types import JsonMapping
from headway.settings.quantity import size_text

# in the order in which they are told
PARTS = (
    "waiting", "start-up", "data", "compute", "communication", "evaluation", "checkpoint", "hung",
    "lost to retries", "running",
)  # fmt: skip
SAVES = re.compile(r"checkpoint|ckpt|save|load_?(model|checkpoint)", re.IGNORECASE)
# names that programs give to what they time
_TIMED = (
    ("data", re.compile(r"data|load(?!_?(model|checkpoint))|batch|fetch|input", re.IGNORECASE)),
    ("communication", re.compile(r"comm|all_?reduce|sync|gather|barrier", re.IGNORECASE)),
    ("evaluation", re.compile(r"eval|valid|test", re.IGNORECASE)),
    ("checkpoint", SAVES),
    ("compute", re.compile(r"step|forward|backward|optim|compute|train", re.IGNORECASE)),
)
ENOUGH_FACTOR = 1.25  # of what was used at most: the request that would have been enough


class Ledger(msgspec.Struct):
    """Seconds by part, and in words what was asked for and used."""

    total_s: float
    parts: dict[str, float]
    requests: list[str] = []


class Used(msgspec.Struct):
    """What the last attempt used at most, of all ranks together; None: not known."""

    memory_bytes: int | None = None
    cores: float | None = None
    gpu_percent: float | None = None


def make(
    job: Job,
    now_ns: int,
    first_steps: Mapping[int, int],
    hangs: Sequence[JsonMapping],
    timings: Sequence[JsonMapping],
    used: Used,
) -> Ledger:
    """`first_steps`: when each attempt first printed, logged or counted. `hangs`: findings with
    `since_ns` and `until_ns`. `timings`: rows of the last attempt, of all ranks.
    """
    end_ns = job.ended_ns or now_ns
    parts = dict.fromkeys(PARTS, 0.0)
    last_end_ns = job.submitted_ns
    for attempt in job.attempts:
        begun_ns = attempt.started_ns or attempt.created_ns or last_end_ns
        over_ns = attempt.ended_ns or end_ns
        parts["waiting"] += _seconds(last_end_ns, begun_ns)
        last_end_ns = over_ns
        ran_s = _seconds(begun_ns, over_ns)
        is_last = attempt is job.attempts[-1]
        if not is_last:
            parts["lost to retries"] += ran_s
            continue
        hung_s = min(ran_s, _hung_s(hangs, attempt.number, begun_ns, over_ns))
        first_ns = first_steps.get(attempt.number)
        # a program that makes no steps is never called one that starts up
        start_s = 0.0 if first_ns is None else _seconds(begun_ns, first_ns)
        start_s = min(start_s, ran_s - hung_s)
        # what it timed and does not fit behind the first step came before it
        timed_s = sum(timed_parts(timings).values())
        start_s -= min(start_s, max(0.0, timed_s - (ran_s - hung_s - start_s)))
        parts["start-up"] += start_s
        parts["hung"] += hung_s
        _split(parts, ran_s - hung_s - start_s, timings)
    if not job.attempts:
        parts["waiting"] = _seconds(job.submitted_ns, end_ns)
    total_s = _seconds(job.submitted_ns, max(end_ns, last_end_ns))
    kept = {name: round(seconds, 3) for name, seconds in parts.items() if seconds >= 0.0005}
    return Ledger(round(total_s, 3), kept, enough(job, used))


def _split(parts: dict[str, float], left_s: float, timings: Sequence[JsonMapping]) -> None:
    """What the program timed; the mean over its ranks. The rest is `running`."""
    timed = timed_parts(timings)
    total_s = sum(timed.values())
    # timers may lie inside each other: they never tell more time than there was
    scale = min(1.0, left_s / total_s) if total_s > 0 else 0.0
    for part, seconds in timed.items():
        parts[part] += seconds * scale
    parts["running"] += max(0.0, left_s - total_s * scale)


def timed_parts(timings: Sequence[JsonMapping]) -> dict[str, float]:
    """Seconds by part, the mean over the ranks."""
    ranks = len({row.get("rank") for row in timings}) or 1
    timed: dict[str, float] = {}
    for row in timings:
        for part, pattern in _TIMED:
            if pattern.search(str(row["name"])):
                timed[part] = timed.get(part, 0.0) + row["count"] * row["mean_s"] / ranks
                break
    return timed


def _hung_s(hangs: Sequence[JsonMapping], attempt: int, begun_ns: int, over_ns: int) -> float:
    total = 0.0
    for one in hangs:
        if one.get("kind") == "hang" and one.get("attempt") == attempt:
            since_ns = max(begun_ns, int(one["since_ns"]))
            until_ns = min(over_ns, int(one["until_ns"] or over_ns))
            total += _seconds(since_ns, until_ns)
    return total


def enough(job: Job, used: Used) -> list[str]:
    """`asked for 64 GiB of memory, used 11 GiB: --memory 14GiB would have been enough`."""
    lines: list[str] = []
    asked = job.spec.memory_bytes
    if asked and used.memory_bytes:
        words = (
            f"asked for {size_text(asked)} of memory, used {size_text(used.memory_bytes)} at most"
        )
        least = int(used.memory_bytes * ENOUGH_FACTOR)
        if least < asked * 0.75:
            mib = max(1, -(-least // (1 << 20)))
            words += f": --memory {mib}MiB would have been enough"
        lines.append(words)
    cores = job.spec.cpus
    if cores and used.cores is not None:
        words = f"asked for {cores} cores, used {used.cores:.1f} at most"
        least_cores = max(1, -(-int(used.cores * ENOUGH_FACTOR * 100) // 100))
        if least_cores < cores:
            words += f": --cpus {least_cores} would have been enough"
        lines.append(words)
    if job.spec.gpus and used.gpu_percent is not None:
        lines.append(
            f"asked for {job.spec.gpus} GPUs, used {used.gpu_percent:.0f} % of them on average"
        )
    return lines


def most(used: Sequence[Used]) -> Used:
    """Of jobs that asked for the same: what any of them used at most."""
    memory = [one.memory_bytes for one in used if one.memory_bytes is not None]
    cores = [one.cores for one in used if one.cores is not None]
    gpus = [one.gpu_percent for one in used if one.gpu_percent is not None]
    return Used(
        memory_bytes=max(memory, default=None),
        cores=max(cores, default=None),
        gpu_percent=max(gpus, default=None),
    )


def add(ledgers: Sequence[Ledger]) -> Ledger:
    """Of an experiment: the sum of its jobs."""
    parts: dict[str, float] = {}
    for ledger in ledgers:
        for name, seconds in ledger.parts.items():
            parts[name] = parts.get(name, 0.0) + seconds
    ordered = {name: round(parts[name], 3) for name in PARTS if name in parts}
    return Ledger(round(sum(ledger.total_s for ledger in ledgers), 3), ordered)


def _seconds(begin_ns: int, end_ns: int) -> float:
    return max(0.0, (end_ns - begin_ns) / 1e9)

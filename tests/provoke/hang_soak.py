"""How often a job that does well would be called hung: many job-hours in simulated time.

    python -m tests.provoke.hang_soak [--hours 1000] [--seed 1]

Jobs step at intervals of 50 ms to two minutes, and now and then do what is silent and no hang:
compile, evaluate, save a checkpoint, read from slow storage, wait for a GPU. Signs of life go through
the real `Pulse`; whenever one is silent for long enough to be looked at, the samples that its agents
would send are put before the real `judge`. Nothing here waits: a thousand hours take a minute.
"""

import argparse
import random
import sys
from dataclasses import dataclass
from typing import Any

from headway.diagnose.hang import judge
from headway.model.limits import HANG_AFTER_S, HANG_AGAIN_MAX_S, HANG_SAMPLE_S, HANG_SAMPLES
from headway.server.health.pulse import Pulse

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MODULE = ("/code/train.py", 160, "<module>")
FORWARD = [("/code/model.py", 12, "forward"), MODULE]
WAITS = [(TORCH, 2501, "all_reduce"), ("/code/train.py", 152, "main"), MODULE]
LEAD_S = (HANG_SAMPLES - 1) * HANG_SAMPLE_S


@dataclass(frozen=True)
class Activity:
    """Something silent that a job does. `cpu`, `io_bps`: of the rank that does it; `moves`: how
    often it is found in another function of its own.
    """

    name: str
    seconds: tuple[float, float]
    every_s: float
    cpu: tuple[float, float]
    io_bps: tuple[float, float] = (0.0, 0.0)
    moves: float = 0.0
    alone: bool = False  # rank 0 does it, and the others wait for it in a collective


ACTIVITIES = (
    Activity("compiles", (20, 600), 7200, (0.6, 3.0), moves=0.3),
    Activity("evaluates", (10, 900), 1800, (0.3, 1.0), (0, 5e6), moves=0.7),
    Activity("saves a checkpoint", (2, 180), 1200, (0.0, 0.4), (2e6, 500e6), alone=True),
    Activity("reads from slow storage", (5, 120), 900, (0.0, 0.1), (20e3, 3e6)),
    Activity("storage does not answer", (1, 20), 3600, (0.0, 0.01)),
    Activity("builds an index", (30, 300), 14_400, (0.9, 1.0), moves=0.2, alone=True),
    Activity("downloads", (5, 240), 14_400, (0.02, 0.2), (100e3, 50e6)),
)
STEPS = Activity("steps", (0, 0), 0, (0.2, 1.0), moves=0.5)


def sample(
    chance: random.Random, at_s: float, ranks: int, activity: Activity, used: list[float]
) -> Any:
    """What the agents of such a job would answer now; `used`: CPU seconds and bytes so far."""
    frames: dict[Any, int] = {}
    processes = []
    busy = [0] if activity.alone else range(ranks)
    for rank in range(ranks):
        stack = list(WAITS)
        if rank in busy:
            line = chance.randrange(50) if chance.random() < activity.moves else 12
            stack = [("/code/work.py", line, f"part_{line}"), *FORWARD]
        numbers = [frames.setdefault(frame, len(frames)) for frame in stack]
        processes.append({
            "rank": rank, "pid": 10 + rank, "lead": True, "launcher": False, "faults": 0,
            "cpu_s": used[0] if rank in busy else 0.0, "io_bytes": used[1] if rank in busy else 0,
            "threads": [{"name": None, "main": True, "frames": numbers}],
        })  # fmt: skip
    fact = {"frames": [list(frame) for frame in frames], "processes": processes, "source": {}}
    return {"worker-0": {**fact, "time_ns": int(at_s * 1e9), "node": "node1"}}


def looks_hung(
    chance: random.Random, pulse: Pulse, now_s: float, ranks: int, activity: Activity
) -> bool:
    """Three samples a second apart, as the watch takes them."""
    cpu, io_bps = chance.uniform(*activity.cpu), chance.uniform(*activity.io_bps)
    samples = []
    used = [0.0, 0.0]
    for number in range(HANG_SAMPLES):
        at_s = now_s + number * HANG_SAMPLE_S
        samples.append(sample(chance, at_s, ranks, activity, used))
        # work comes in bursts: a second may have nothing of it
        share = chance.choice((0.5, 1.0, 1.5))
        used = [used[0] + share * cpu * HANG_SAMPLE_S, used[1] + share * io_bps * HANG_SAMPLE_S]
    return judge(samples, pulse.pause(now_s + LEAD_S, HANG_AFTER_S)).moving is None


def job(chance: random.Random, hours: float) -> tuple[int, int, list[str]]:
    """(steps, closer looks, what was taken for a hang)."""
    interval_s = 10 ** chance.uniform(-1.3, 2.1)
    spread = chance.uniform(0.02, 0.4)
    prints_every = chance.choice((1, 1, 10, 50))
    ranks = chance.choice((1, 1, 4, 8))
    now_s, end_s = 0.0, 3600 * hours
    pulse = Pulse(1, 0.0, 0)
    next_s = {one.name: chance.expovariate(1 / one.every_s) for one in ACTIVITIES}
    steps = looks = 0
    alarms: list[str] = []
    while now_s < end_s:
        quiet_s = sum(
            interval_s * max(0.1, chance.gauss(1.0, spread)) for _ in range(min(prints_every, 4))
        )
        quiet_s *= prints_every / min(prints_every, 4)
        doing = next((one for one in ACTIVITIES if now_s >= next_s[one.name]), None)
        doing_s = 0.0
        if doing is not None:
            doing_s = chance.uniform(*doing.seconds)
            quiet_s += doing_s
            next_s[doing.name] = now_s + chance.expovariate(1 / doing.every_s)
        at_s = now_s
        while True:
            limit_s = pulse.pause(at_s, HANG_AFTER_S).limit_s()
            at_s = max(at_s, now_s + limit_s - LEAD_S)
            if at_s + LEAD_S >= now_s + quiet_s:
                break
            looks += 1
            what = doing if doing is not None and at_s + LEAD_S < now_s + doing_s else STEPS
            if looks_hung(chance, pulse, at_s, ranks, what):
                alarms.append(f"{what.name} for {quiet_s:.0f} s, interval {interval_s:.1f} s")
            at_s += min(HANG_AGAIN_MAX_S, max(5.0, (at_s - now_s) / 4))
        now_s += quiet_s
        steps += prints_every
        pulse.hear(now_s, int(now_s * 1e9), True)
    return steps, looks, alarms


def soak(hours: float, seed: int) -> tuple[int, int, int, list[str]]:
    """(jobs, steps, closer looks, false alarms)."""
    chance = random.Random(seed)
    left, jobs, steps, looks = hours, 0, 0, 0
    alarms: list[str] = []
    while left > 0:
        length = min(left, chance.uniform(0.5, 12.0))
        made = job(chance, length)
        left, jobs, steps, looks = left - length, jobs + 1, steps + made[0], looks + made[1]
        alarms += made[2]
    return jobs, steps, looks, alarms


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reader.add_argument("--hours", type=float, default=1000.0)
    reader.add_argument("--seed", type=int, default=1)
    asked = reader.parse_args()
    jobs, steps, looks, alarms = soak(asked.hours, asked.seed)
    for one in alarms[:20]:
        print(f"  false alarm: {one}")
    print(
        f"{asked.hours:g} job-hours, {jobs} jobs, {steps:,} steps, {looks} closer looks: {len(alarms)} false alarms"
    )
    return 0 if len(alarms) <= asked.hours / 1000 else 1


if __name__ == "__main__":
    sys.exit(main())

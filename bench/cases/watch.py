"""What looking after running jobs costs and takes: the CPU time of the ranks themselves, the stacks of
64 real ranks at once, and the merge of 10,000 stacks.

Overhead: ranks that step in time with each other, with everything on that looks at them (samples of
usage, looks for slowness with their bursts of stacks, the watch for hangs), beside the same ranks with
all of it off. What is compared is the CPU time that the ranks themselves used, as the kernel counts it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.home import Home
from bench.measure import interleave, wait_until
from bench.result import HEADWAY, Measure, Result
from headway.diagnose import stacks

RANKS = 4
MANY = 64
STACKS = 10_000
# Steps of a fixed amount of work; at the end each rank writes the CPU time that it took.
STEPS = """
import json, os, resource, sys, time
import headway as hw
rank, seconds = int(os.environ["RANK"]), float(sys.argv[1])
end = time.monotonic() + seconds
work = steps = 0
before = resource.getrusage(resource.RUSAGE_SELF)
while time.monotonic() < end:
    for _ in range(20_000):
        work += 1
    time.sleep(0.02)
    steps += 1
    if steps % 10 == 0:
        hw.log({"loss": 1.0}, step=steps)
after = resource.getrusage(resource.RUSAGE_SELF)
used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
json.dump({"cpu_s": used, "steps": steps}, open(f"used-{rank}.json", "w"))
"""
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
OFF = {
    "HEADWAY_SLOW_LOOK_S": "0",
    "HEADWAY_HANG_AFTER_S": "0",
    "HEADWAY_MONITORING_INTERVAL_S": "0",
}


def run(context: Context) -> Iterator[Result]:
    yield _merge(context)
    yield _many_ranks(context)
    yield _overhead(context)


def _overhead(context: Context) -> Result:
    seconds = context.size(90, 45)
    contenders: dict[str, Callable[[int], float]] = {
        HEADWAY: lambda _: _cpu_of_a_step(context, seconds, {"HEADWAY_SLOW_LOOK_S": "10"}),
        "headway, off": lambda _: _cpu_of_a_step(context, seconds, OFF),
    }
    measured = interleave(context.rounds, contenders)
    result = Result(f"CPU time of a step of {RANKS} ranks that are looked after", "ms")
    result.measures = [Measure(who, took) for who, took in measured.items()]
    on, off = (median(took) for took in measured.values())
    result.at_most(
        "looking after them costs their CPU at most 0.2 %", 100 * (on / off - 1), 0.2, "%"
    )
    result.notes.append(
        f"{seconds} s each, with one burst of looks at where the ranks stand; in a longer job it comes every ten minutes."
    )
    return result


def _cpu_of_a_step(context: Context, seconds: int, env: dict[str, str]) -> float:
    with context.home(server=False) as home:
        home.env.update(env)
        home.start()
        folder = context.folder("watch")
        (folder / "steps.py").write_text(STEPS)
        words = ["-n", str(RANKS), sys.executable, "steps.py", str(seconds)]
        job = json.loads(home.hw("--json", "submit", *words, cwd=folder))
        _wait_ended(home, job["id"], seconds + 120)
        used = [json.loads((folder / f"used-{rank}.json").read_text()) for rank in range(RANKS)]
    return 1000 * sum(one["cpu_s"] for one in used) / sum(one["steps"] for one in used)


def _wait_ended(home: Home, job: str, timeout_s: float) -> None:
    wait_until(
        lambda: home.hw_json("q", job)["state"] in ("succeeded", "failed"), timeout_s, "it runs on",
        pause_s=1.0,
    )  # fmt: skip


def _many_ranks(context: Context) -> Result:
    ranks = context.size(MANY, 16)
    with context.home() as home:
        folder = context.folder("ranks")
        (folder / "sleeps.py").write_text(SLEEPS)
        words = ["-n", str(ranks), sys.executable, "sleeps.py"]
        job = json.loads(home.hw("--json", "submit", *words, cwd=folder))
        wait_until(
            lambda: _ready(home, job["id"]) == ranks, 300, "not all ranks are ready", pause_s=1.0
        )
        took = []
        for _ in range(context.rounds):
            begun_s = time.monotonic()
            found = home.hw_json("stacks", job["id"])
            took.append(time.monotonic() - begun_s)
            assert len(found["ranks"]) == ranks and not found["missing"], found["missing"]
        home.hw("abort", job["id"])
    result = Result(f"hw stacks of {ranks} real ranks", "s", [Measure(HEADWAY, took)])
    result.at_most(f"stacks of {ranks} ranks", min(took), 1.0, "s")
    result.notes.append("From the command to the merged answer; each rank writes its own stacks.")
    return result


def _ready(home: Home, job: str) -> int:
    return home.hw("logs", job).count(b"ready")


def _merge(context: Context) -> Result:
    facts = {f"worker-{node}": _fact(node, STACKS // 100) for node in range(100)}
    took = []
    for _ in range(max(5, context.rounds)):
        begun_s = time.perf_counter()
        merged = stacks.merge(facts)
        stacks.tree(merged.groups)
        took.append(1000 * (time.perf_counter() - begun_s))
    assert len(merged.ranks) == STACKS and merged.odd
    result = Result(f"merge of {STACKS:,} stacks", "ms", [Measure(HEADWAY, took)])
    result.at_most(f"merge of {STACKS:,} stacks", min(took), 100, "ms")
    return result


def _fact(node: int, ranks: int) -> dict[str, object]:
    """Of one node: all ranks wait in a collective but one that reads."""
    torch = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    depth = [[str(Path("/code") / f"part{n}.py"), n, f"call_{n}"] for n in range(12)]
    frames = [[torch, 2501, "all_reduce"], ["/code/loader.py", 88, "read"], *depth]
    processes = []
    for place in range(ranks):
        rank = node * ranks + place
        top = 1 if rank == 4711 else 0
        thread = {"name": None, "main": True, "frames": [top, *range(2, len(frames))]}
        processes.append(
            {"rank": rank, "pid": 100 + rank, "lead": True, "launcher": False, "threads": [thread]}
        )
    return {
        "frames": frames,
        "processes": processes,
        "source": {},
        "time_ns": 1,
        "node": f"n{node}",
    }

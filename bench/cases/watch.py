"""What looking after running jobs costs and takes: the CPU time of the ranks themselves, the stacks of
64 real ranks at once, and the merge of 10,000 stacks.

Overhead: what the kernel counts as CPU time of ranks that do nothing else than answer to looks, times
how often looks come in a job that does well. Usage is read by the agent, beside the ranks.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.context import Context
from bench.home import Home
from bench.measure import wait_until
from bench.result import HEADWAY, Measure, Result
from headway.diagnose import stacks
from headway.model.limits import SLOW_LOOKS, SLOW_RANKS_AGAIN_S

RANKS = 4
MANY = 64
STACKS = 10_000
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"


def run(context: Context) -> Iterator[Result]:
    yield _merge(context)
    yield _many_ranks(context)
    yield _overhead(context)


def _overhead(context: Context) -> Result:
    """Ranks that sleep use no CPU but for what looks at them, so the kernel's count of their CPU time
    is the cost of the looks; how often they come is written down.
    """
    looks = context.size(100, 30)
    shares: list[float] = []
    with context.home() as home:
        job = _sleeping(context, home, RANKS)
        pids = [
            process["pid"]
            for process in home.hw_json("q", job)["attempts"][-1]["tasks"][0]["processes"]
        ]
        for _ in range(context.rounds):
            before = sum(map(_cpu_ns, pids))
            for _ in range(looks):
                home.hw("stacks", job)
            one_s = (sum(map(_cpu_ns, pids)) - before) / 1e9 / looks / RANKS
            shares.append(100 * one_s * SLOW_LOOKS / SLOW_RANKS_AGAIN_S)
        home.hw("abort", job)
    result = Result(
        "CPU time of a rank that goes into being looked at", "%", [Measure(HEADWAY, shares)]
    )
    result.at_most("of one core, in a job of several ranks that does well", max(shares), 0.2, "%")
    result.notes.append(
        f"One look costs a rank {1000 * max(shares) * SLOW_RANKS_AGAIN_S / SLOW_LOOKS / 100:.2f} ms; there are"
        f" {SLOW_LOOKS} of them every {SLOW_RANKS_AGAIN_S / 60:.0f} minutes. Everything else is read by the agent."
    )
    return result


def _cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _sleeping(context: Context, home: Home, ranks: int) -> str:
    """The id of a job whose ranks are all there."""
    folder = context.folder("ranks")
    (folder / "sleeps.py").write_text(SLEEPS)
    words = ["-n", str(ranks), sys.executable, "sleeps.py"]
    job = str(json.loads(home.hw("--json", "submit", *words, cwd=folder))["id"])
    wait_until(lambda: _ready(home, job) == ranks, 300, "not all ranks are ready", pause_s=1.0)
    return job


def _many_ranks(context: Context) -> Result:
    ranks = context.size(MANY, 16)
    with context.home() as home:
        job = _sleeping(context, home, ranks)
        took = []
        for _ in range(context.rounds):
            begun_s = time.monotonic()
            found = home.hw_json("stacks", job)
            took.append(time.monotonic() - begun_s)
            assert len(found["ranks"]) == ranks and not found["missing"], found["missing"]
        home.hw("abort", job)
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

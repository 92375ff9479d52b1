"""Sampling what 16 processes use, each second: one look beside psutil's, and all in beside wandb's
system monitor.

One look: the sampler of the agent and psutil, each in a process of its own with 16 children that do
nothing. All in: the agent of such a job (shim and shipper, which also send the samples), and
wandb-core with the monitor that it starts. That monitor used psutil once and is a native program
now, so the figure to beat is psutil's own.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.cases.rest import agent_of
from bench.context import Context
from bench.home import Home
from bench.measure import cpu_s_of, interleave, memory_mb_of, wait_until
from bench.peer import BENCH, Peer
from bench.result import HEADWAY, Measure, Result
from bench.training import OURS

PROCESSES = 16
SETTLE_S = 3.0
HAS_PSUTIL = "neptune-scale"  # the peer whose environment has it
Used = tuple[float, float]  # CPU seconds, megabytes


def run(context: Context) -> Iterator[Result]:
    yield _one_look(context)
    watch_s = context.size(20, 6)
    wandb = next((peer for peer in context.peers if peer.name == "wandb"), None)
    with context.home() as home:
        contenders: dict[str, Callable[[int], Used]] = {
            HEADWAY: lambda _: _agent(home, 1, watch_s),
            "headway, off": lambda _: _agent(home, 0, watch_s),
        }
        if wandb is not None:
            contenders["wandb"] = lambda _: _wandb(context, wandb, True, watch_s)
            contenders["wandb, off"] = lambda _: _wandb(context, wandb, False, watch_s)
        measured = interleave(context.rounds, contenders)
    yield from _all_in(context, measured, watch_s)


def _one_look(context: Context) -> Result:
    samples = context.size(200, 50)
    contenders: dict[str, Callable[[int], float]] = {
        HEADWAY: lambda _: _look(context, OURS, samples)
    }
    host = next((peer for peer in context.peers if peer.name == HAS_PSUTIL), None)
    if host is not None:
        psutil = Peer("psutil", host.python)
        contenders["psutil"] = lambda _: _look(context, psutil, samples)
    measured = interleave(context.rounds, contenders)
    result = Result(f"CPU time of one look at {PROCESSES} processes", "ms")
    result.measures = [Measure(who, took) for who, took in measured.items()]
    result.faster_than("psutil", 5, "at least 5 × less than psutil")
    result.notes.append(
        "Both also look at the machine, its disks and its network, and put what they found into JSON."
    )
    return result


def _look(context: Context, peer: Peer, samples: int) -> float:
    return float(peer.run("sample", context.folder(peer.driver), samples, PROCESSES)["cpu_ms"])


def _all_in(context: Context, measured: dict[str, list[Used]], watch_s: int) -> Iterator[Result]:
    share = Result(f"CPU of sampling {PROCESSES} processes each second, all in", "% of a core")
    memory = Result(f"memory of sampling {PROCESSES} processes, all in", "MB")
    for who, used in measured.items():
        share.measures.append(Measure(who, [100 * cpu_s / watch_s for cpu_s, _ in used]))
        memory.measures.append(Measure(who, [size for _, size in used]))
    mean_s = sum(cpu_s for cpu_s, _ in measured[HEADWAY]) / len(measured[HEADWAY])
    share.at_most("agent at most 1 %", 100 * mean_s / watch_s, 1, "%")
    share.notes.append(
        "Judged by the mean: the clock of a process ticks in 10 ms. No GPU was there to be asked."
    )
    memory.at_most(
        "agent (shim and shipper, resident) at most 40 MB", memory.measures[0].median, 40, "MB"
    )
    for result in (share, memory):
        if "wandb" in context.missing:
            result.measures.append(Measure("wandb", [], context.missing["wandb"]))
        yield result


def _agent(home: Home, interval_s: int, watch_s: int) -> Used:
    program = str(BENCH / "jobs" / "idle.py")
    words = [
        "--monitoring-interval-s",
        str(interval_s),
        "-n",
        str(PROCESSES),
        "submit",
        sys.executable,
        program,
        "600",
    ]
    job = home.hw_json(*words)["id"]
    time.sleep(SETTLE_S)
    pids = agent_of(home)
    before_s = sum(map(cpu_s_of, pids))
    time.sleep(watch_s)
    used_s, size = sum(map(cpu_s_of, pids)) - before_s, sum(memory_mb_of(pid)[0] for pid in pids)
    home.hw("abort", job)
    wait_until(
        lambda: home.hw_json("q", job)["state"] == "stopped",
        60,
        "the job has not ended",
        pause_s=0.2,
    )
    wait_until(lambda: not any(map(_is_there, pids)), 60, "its agent has not ended", pause_s=0.1)
    return used_s, size


def _is_there(pid: int) -> bool:
    """Whether it runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _wandb(context: Context, peer: Peer, on: bool, watch_s: int) -> Used:
    found = peer.run("watch", context.folder("wandb"), int(on), watch_s, PROCESSES)
    return found["cpu_s"], found["memory_mb"]

"""Memory and CPU at rest: the agent of a job that sleeps (shim and shipper), and the server."""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.context import Context
from bench.home import Home
from bench.measure import cpu_s_of, memory_mb_of, wait_until
from bench.result import Measure, Result

SETTLE_S, WATCH_S = 5.0, 20.0


def run(context: Context) -> Iterator[Result]:
    with context.home() as home:
        job = home.hw_json("submit", "sleep", "600")
        agent = _agent(home)
        time.sleep(context.size(int(SETTLE_S), 1))
        yield from _watch(context, home, agent)
        home.hw("abort", job["id"])
        wait_until(lambda: not _agent_pids(home), 30, "the agent has not ended")


def _agent(home: Home) -> list[int]:
    """Pids of the shim and of the shipper, which is the shim's child that runs the agent's code."""
    wait_until(lambda: len(_agent_pids(home)) == 2, 20, "shim and shipper are not both there", pause_s=0.1)
    return _agent_pids(home)


def _agent_pids(home: Home) -> list[int]:
    found = []
    for pid in home.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if b"shim" in words or b"shipper" in words:
            found.append(pid)
    return found


def _watch(context: Context, home: Home, agent: list[int]) -> Iterator[Result]:
    assert home.server is not None
    before, start_s = {pid: cpu_s_of(pid) for pid in [*agent, home.server.pid]}, time.monotonic()
    time.sleep(context.size(int(WATCH_S), 3))
    took_s = time.monotonic() - start_s
    share = {pid: 100 * (cpu_s_of(pid) - cpu_s) / took_s for pid, cpu_s in before.items()}
    memory = {pid: memory_mb_of(pid) for pid in before}
    result = Result("memory at rest", "MB")
    for who, pids in (("agent", agent), ("server", [home.server.pid])):
        for part, kind in ((0, "resident"), (1, "proportional")):
            result.measures.append(Measure(f"{who}, {kind}", [sum(memory[pid][part] for pid in pids)]))
    result.at_most("agent (shim and shipper, resident) at most 40 MB", result.measures[0].median, 40, "MB")
    result.at_most("server (resident) at most 120 MB", result.measures[2].median, 120, "MB")
    yield result
    result = Result("CPU at rest", "% of a core")
    result.measures = [
        Measure("agent", [sum(share[pid] for pid in agent)]), Measure("server", [share[home.server.pid]]),
    ]  # fmt: skip
    result.at_most("agent at most 0.5 %", result.measures[0].median, 0.5, "%")
    yield result

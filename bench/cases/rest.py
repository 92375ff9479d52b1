"""Memory and CPU at rest: the agent of a job that sleeps (shim and shipper), and the server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from bench.context import Context
from bench.home import Home
from bench.measure import cpu_s_of, memory_mb_of, wait_until
from bench.result import Measure, Result

SETTLE_S, WATCH_S = 5.0, 20.0


def run(context: Context) -> Iterator[Result]:
    with context.home() as home:
        job = home.hw_json("submit", "sleep", "600")
        time.sleep(context.size(int(SETTLE_S), 1))
        agent = agent_of(home)
        yield from _watch(context, home, agent)
        home.hw("abort", job["id"])
        wait_until(lambda: not _agent_pids(home), 30, "the agent has not ended")


def agent_of(home: Home) -> list[int]:
    """Pids of the shim and of the shipper, which the shim forks; what the shipper starts for a
    moment is not it.
    """
    wait_until(
        lambda: len(_agent_pids(home)) == 2, 20, "shim and shipper are not both there", pause_s=0.1
    )
    return _agent_pids(home)


def _agent_pids(home: Home) -> list[int]:
    found = []
    for file in home.folder.glob("spool/*/shim.json"):
        shim = int(json.loads(file.read_text())["pid"])
        found += [shim] if Path(f"/proc/{shim}").exists() else []
        found += [pid for pid in home.processes() if _parent_of(pid) == shim and _is_agent(pid)]
    return found


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None  # it has just ended


def _is_agent(pid: int) -> bool:
    try:
        return b"headway.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _watch(context: Context, home: Home, agent: list[int]) -> Iterator[Result]:
    """Several windows, one after the other; together as long as the target says."""
    assert home.server is not None
    groups = {"agent": agent, "server": [home.server.pid]}
    window_s = context.size(int(WATCH_S), 4) / context.rounds
    memory: dict[str, list[float]] = {}
    share: dict[str, list[float]] = {}
    for _ in range(context.rounds):
        before, start_s = (
            {who: sum(map(cpu_s_of, pids)) for who, pids in groups.items()},
            time.monotonic(),
        )
        time.sleep(window_s)
        took_s = time.monotonic() - start_s
        for who, pids in groups.items():
            share.setdefault(who, []).append(
                100 * (sum(map(cpu_s_of, pids)) - before[who]) / took_s
            )
            resident, proportional = map(sum, zip(*map(memory_mb_of, pids), strict=True))
            memory.setdefault(f"{who}, resident", []).append(resident)
            memory.setdefault(f"{who}, proportional", []).append(proportional)
    yield _memory(memory)
    result = Result(
        "CPU at rest", "% of a core", [Measure(who, shares) for who, shares in share.items()]
    )
    result.at_most("agent at most 0.5 %", mean(share["agent"]), 0.5, "%")
    result.notes.append(
        f"Judged by the mean of {context.rounds} windows: the clock of a process ticks in 10 ms."
    )
    yield result


def _memory(memory: dict[str, list[float]]) -> Result:
    result = Result("memory at rest", "MB", [Measure(who, sizes) for who, sizes in memory.items()])
    agent, server = result.median_of("agent, resident"), result.median_of("server, resident")
    assert agent is not None and server is not None
    result.at_most("agent (shim and shipper, resident) at most 40 MB", agent, 40, "MB")
    result.at_most("server (resident) at most 120 MB", server, 120, "MB")
    return result

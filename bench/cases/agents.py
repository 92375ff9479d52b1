"""64 agents × 8 ranks × 10 records a second into one server: nothing lost, and the server's share
of a core.

The agents are one process (`bench/agents.py`): 64 shippers and 512 trainers do not fit on the cores
of a small machine beside the server that is measured. What they send is what shippers would: real
frames in real batches, one connection per agent, a look every 40 ms, one batch on its way at a
time.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.context import Context
from bench.home import Home
from bench.measure import cpu_s_of
from bench.peer import BENCH
from bench.result import HEADWAY, Measure, Result

AGENTS, RANKS, PER_S = 64, 8, 10


def run(context: Context) -> Iterator[Result]:
    rounds, seconds = context.size(3, 1), context.size(15, 5)
    shares, waits, notes = [], [], []
    with context.home() as home:
        for _ in range(rounds):
            share, told = _round(home, seconds)
            shares.append(share)
            waits.append(1000 * told["p99_s"])
            notes.append(f"{told['posts'] / told['took_s']:,.0f} posts/s")
    result = Result(
        f"server with {AGENTS} agents × {RANKS} ranks × {PER_S} records/s", "% of a core"
    )
    result.measures.append(Measure(HEADWAY, shares, notes[-1]))
    result.at_most("under one core, no loss", max(shares), 100, "%")
    result.notes.append(
        "Every record was counted in the store. The agents are one process that posts as shippers do."
    )
    yield result
    result = Result(
        "99th percentile of an agent's wait until its batch is durable",
        "ms",
        [Measure(HEADWAY, waits)],
    )
    yield result


def _round(home: Home, seconds: int) -> tuple[float, dict[str, Any]]:
    assert home.server is not None
    before = home.points()
    tasks = [home.register(f"agent{number}") for number in range(AGENTS)]
    words = [str(home.socket), *map(str, (AGENTS, RANKS, PER_S, seconds))]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.agents", *words], env=home.env, cwd=BENCH.parent,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(
            json.dumps([[[t.key.uuid, t.key.attempt, t.key.task], t.token] for t in tasks]) + "\n"
        )
        child.stdin.flush()
        if child.stdout.readline().strip() != "ready":
            raise RuntimeError("the agents did not start")
        cpu_s = cpu_s_of(home.server.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        told: dict[str, Any] = json.loads(child.stdout.readline() or "null")
        share = 100 * (cpu_s_of(home.server.pid) - cpu_s) / told["took_s"]
    stored = home.points() - before
    if stored != told["points"]:
        raise RuntimeError(f"{stored:,} points stored of {told['points']:,} sent")
    return share, told

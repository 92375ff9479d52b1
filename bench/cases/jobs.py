"""Short jobs one after the other: how many `true` a second this machine runs, and what each costs
in CPU.
"""

import json
import time
from collections.abc import Iterator

from bench.context import Context
from bench.home import Home
from bench.measure import cpu_s_of, wait_until
from bench.result import HEADWAY, Measure, Result

JOBS, WARM_UP = 120, 10
TARGET_PER_S = 30.0


def run(context: Context) -> Iterator[Result]:
    count = context.size(JOBS, 20)
    rates: list[float] = []
    costs: list[float] = []
    with context.home() as home:
        _run_jobs(home, WARM_UP)
        for _ in range(context.rounds):
            assert home.server is not None
            before_s, start_s = cpu_s_of(home.server.pid), time.monotonic()
            _run_jobs(home, count)
            rates.append(count / (time.monotonic() - start_s))
            costs.append(1000 * (cpu_s_of(home.server.pid) - before_s) / count)
    result = Result("short local jobs", "jobs/s", [Measure(HEADWAY, rates)], lower_is_better=False)
    result.at_least("at least 30 a second", result.measures[0].median, TARGET_PER_S, "jobs/s")
    result.notes.append("From the first submission over HTTP until the last of them has succeeded.")
    yield result
    yield Result("CPU of the server for a short job", "ms", [Measure(HEADWAY, costs)])


def _run_jobs(home: Home, count: int) -> None:
    spec = {"command": ["true"], "cwd": str(home.folder), "name": "short"}
    with home.client() as client:
        home.post_jobs(client, spec, count)

        def ended() -> bool:
            # it lists none, so it costs little
            states = json.loads(client.request("GET", "/api/server").body)["jobs"]
            return set(states) == {"succeeded"}

        # each question takes a core for a moment
        wait_until(ended, 300, "not every job has succeeded", pause_s=0.1)

"""Many jobs at once: an array of 1,000 submitted, `hw ls` with 10,000 jobs, and the server's CPU while they wait."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.context import Context
from bench.home import HW, Home
from bench.measure import run as run_command
from bench.result import HEADWAY, Measure, Result

ARRAY_JOBS, LISTED_JOBS, REST_S = 1_000, 10_000, 10.0


def run(context: Context) -> Iterator[Result]:
    with context.home(server=False) as home:
        home.env["HEADWAY_MAX_RUNNING"] = "1"
        home.start()
        home.hw("submit", "sleep", "3600")  # everything after it waits
        rounds = context.size(5, 2)
        took = [_timed(home, "submit", "--array", str(ARRAY_JOBS), "true") for _ in range(rounds)]
        result = Result(f"submit of {ARRAY_JOBS:,} local jobs in one array", "s", [Measure(HEADWAY, took)])
        result.at_most("at most 5 s", result.measures[0].median, 5, "s")
        yield result
        for _ in range((LISTED_JOBS - rounds * ARRAY_JOBS) // ARRAY_JOBS):
            home.hw("submit", "--array", str(ARRAY_JOBS), "true")
        _timed(home, "ls")
        took = [_timed(home, "ls") for _ in range(context.rounds * 2)]
        result = Result(f"hw ls with {LISTED_JOBS:,} jobs", "s", [Measure(HEADWAY, took)])
        result.at_most("at most 0.3 s", result.measures[0].median, 0.3, "s")
        yield result
        result = Result(f"CPU of the server while {LISTED_JOBS:,} jobs wait", "%", [Measure(HEADWAY, [_rest(home)])])
        result.notes.append(f"over {REST_S:g} s, in percent of one core; one job runs")
        yield result
        for array in {job["array"] for job in home.hw_json("ls", "--limit", str(LISTED_JOBS)) if job["array"]}:
            home.hw("abort", array)


def _timed(home: Home, *words: str) -> float:
    return run_command([HW, *words], home.env, home.folder).wall_s


def _rest(home: Home) -> float:
    assert home.server is not None
    before_s = _cpu_s(home.server.pid)
    time.sleep(REST_S)
    return 100 * (_cpu_s(home.server.pid) - before_s) / REST_S


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

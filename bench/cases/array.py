"""Many jobs at once: an array of 1,000 submitted, `hw ls` with 10,000 jobs, and the server's CPU
while they wait.

The 10,000 are jobs of arrays, of which a list has one line each, and in a home of their own single
jobs.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.home import HW, Home
from bench.measure import run as run_command
from bench.result import HEADWAY, Measure, Result
from headway.home.paths import Paths
from headway.model.ids import new_uuid
from headway.model.job import JobSpec, State
from headway.store import catalog
from headway.store.database import Store

ARRAY_JOBS, LISTED_JOBS, REST_S = 1_000, 10_000, 10.0


def run(context: Context) -> Iterator[Result]:
    with context.home(server=False) as home:
        home.env["HEADWAY_MAX_RUNNING"] = "1"
        home.start()
        home.hw("submit", "sleep", "3600")  # everything after it waits
        rounds = context.size(5, 2)
        took = [_timed(home, "submit", "--array", str(ARRAY_JOBS), "true") for _ in range(rounds)]
        result = Result(
            f"submit of {ARRAY_JOBS:,} local jobs in one array", "s", [Measure(HEADWAY, took)]
        )
        result.at_most("at most 5 s", result.measures[0].median, 5, "s")
        yield result
        for _ in range((LISTED_JOBS - rounds * ARRAY_JOBS) // ARRAY_JOBS):
            home.hw("submit", "--array", str(ARRAY_JOBS), "true")
        _timed(home, "ls")
        took = [_timed(home, "ls") for _ in range(context.rounds * 2)]
        result = Result(f"hw ls with {LISTED_JOBS:,} jobs", "s", [Measure(HEADWAY, took)])
        result.at_most("at most 0.3 s", result.measures[0].median, 0.3, "s")
        yield result
        result = Result(
            f"CPU of the server while {LISTED_JOBS:,} jobs wait",
            "%",
            [Measure(HEADWAY, [_rest(home)])],
        )
        result.notes.append(f"over {REST_S:g} s, in percent of one core; one job runs")
        yield result
        for array in {
            job["array"] for job in home.hw_json("ls", "--limit", str(LISTED_JOBS)) if job["array"]
        }:
            home.hw("abort", array)

    yield _listed_alone(context)


def _listed_alone(context: Context) -> Result:
    """Single jobs that have ended, written into the database before the server comes: nobody waits
    for 10,000 runs.
    """
    with context.home(server=False) as home:
        jobs = context.size(LISTED_JOBS, 1_000)
        _fill(home, jobs)
        home.start()
        _timed(home, "ls")
        took = [_timed(home, "ls") for _ in range(context.rounds * 2)]
        as_json = [_timed(home, "ls", "--json") for _ in range(context.rounds)]
    measures = [Measure(HEADWAY, took), Measure(f"{HEADWAY} --json", as_json)]
    result = Result(f"hw ls with {jobs:,} single jobs, all of them printed", "s", measures)
    result.at_most("at most 0.3 s", measures[0].median, 0.3, "s")
    return result


def _fill(home: Home, jobs: int) -> None:
    store = Store(Paths(home.folder))
    store.open()

    def insert(c: sqlite3.Connection) -> None:
        for number in range(jobs):
            now_ns = time.time_ns() + number
            spec = JobSpec(["python", "train.py", "--seed", str(number)], str(home.folder), "train")
            job = catalog.insert_job(c, new_uuid(), spec, now_ns)
            catalog.insert_attempt(c, job.pk, 1, f"{job.uuid}-1", now_ns)
            catalog.insert_task(c, job.pk, 1, "worker-0", "here")
            for state in (State.RUNNING, State.SUCCEEDED):
                over: dict[str, Any] = (
                    {"exit_code": 0, "ended_ns": now_ns + 10**9} if state is State.SUCCEEDED else {}
                )
                catalog.set_job_state(c, job.pk, state, now_ns, started_ns=now_ns, **over)
                catalog.set_attempt(c, job.pk, 1, state=state, **over)

    store.write(insert).result()
    store.close()


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

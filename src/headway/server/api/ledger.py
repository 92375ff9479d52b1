"""`/api/jobs/{ref}/ledger` and `/api/ledger`: where the time of a job, or of an experiment, went."""

import sqlite3
import time
from typing import Any

import msgspec

from headway.diagnose import ledger
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store import catalog, health_rows, live_read

JOBS_MAX = 1_000  # of one experiment


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    experiment: str


async def of_job(call: Call) -> Reply:
    """Where its time went, and the request that would have been enough."""
    pk = await call.services.find(call)
    return reply_json(await call.services.slow_query(_of_job, pk))


async def of_experiment(call: Call) -> Reply:
    """The sum over its newest jobs."""
    asked = call.query(Asked)
    return reply_json(await call.services.slow_query(_of_experiment, asked.experiment))


def _of_job(c: sqlite3.Connection, pk: int) -> JsonObject:
    job = catalog.load_job(c, pk)
    return {"id": job.id, "jobs": 1, **msgspec.to_builtins(make(c, job))}


def _of_experiment(c: sqlite3.Connection, name: str) -> JsonObject:
    jobs = catalog.list_jobs(c, catalog.JobFilter(experiment=name, limit=JOBS_MAX))
    total = ledger.add([make(c, job) for job in jobs])
    return {"id": name, "jobs": len(jobs), **msgspec.to_builtins(total)}


def make(c: sqlite3.Connection, job: Job) -> ledger.Ledger:
    last = job.attempts[-1].number if job.attempts else 0
    timings = [row for row in live_read.timings(c, job.pk) if row["attempt"] == last]
    return ledger.make(
        job,
        time.time_ns(),
        health_rows.first_steps(c, job.pk),
        health_rows.of_job(c, job.pk),
        timings,
        _used(c, job),
    )


def _used(c: sqlite3.Connection, job: Job) -> ledger.Used:
    """From samples of a minute, or finer where there are none yet: the most of all ranks at once."""
    last = job.attempts[-1].number if job.attempts else 0
    memory: list[float] = []
    cores: list[float] = []
    gpus: list[float] = []
    for level in (2, 1, 0):
        samples, _ = live_read.usage(c, job.pk, level, 0, 2**62)
        for sample in samples:
            if sample["attempt"] != last:
                continue
            trees = [one for one in sample.get("processes") or () if one.get("pid") is None]
            memory.append(sum(_most(one.get("rss_bytes")) for one in trees))
            cores.append(sum(_most(one.get("cpu_percent"), 1) for one in trees) / 100)
            gpus += [
                _most(g.get("load_percent"), 1) for g in sample.get("gpus") or () if g.get("own")
            ]
        if memory:
            break
    return ledger.Used(
        memory_bytes=int(max(memory)) if memory else None,
        cores=max(cores) if cores else None,
        gpu_percent=sum(gpus) / len(gpus) if gpus else None,
    )


def _most(value: Any, place: int = 2) -> float:
    """A number, or of [min, mean, max] the one at this place."""
    if isinstance(value, list) and len(value) == 3:
        value = value[place]
    return float(value) if isinstance(value, int | float) else 0.0


ROUTES = [
    Route("GET", "/api/jobs/{ref}/ledger", Role.READ, of_job, answer=contract.Ledger),
    Route("GET", "/api/ledger", Role.READ, of_experiment, answer=contract.Ledger),
]

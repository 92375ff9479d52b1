"""`/api/jobs/{ref}/ledger` and `/api/ledger`: where the time of a job, or of an experiment, went."""

import sqlite3
import time

import msgspec

from headway.diagnose import ledger
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route
from headway.server.health.slow_facts import used
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
    listed = catalog.list_jobs(c, catalog.JobFilter(experiment=name, limit=JOBS_MAX))
    jobs = [catalog.load_job(c, job.pk) for job in listed]  # a list has no attempts
    total = ledger.add([make(c, job) for job in jobs])
    asked = {(job.spec.memory_bytes, job.spec.cpus, job.spec.gpus) for job in jobs}
    if len(asked) == 1 and asked != {(None, None, 0)}:
        total.requests = ledger.enough(jobs[0], ledger.most([used(c, job) for job in jobs]))
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
        used(c, job),
    )


ROUTES = [
    Route("GET", "/api/jobs/{ref}/ledger", Role.READ, of_job, answer=contract.Ledger),
    Route("GET", "/api/ledger", Role.READ, of_experiment, answer=contract.Ledger),
]

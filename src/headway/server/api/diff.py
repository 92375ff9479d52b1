"""`/api/diff`: what differs between jobs, and what most likely explains their outcomes."""

import time

import msgspec

from headway.model.metric_direction import Direction
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store import job_difference


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    ids: list[str]
    metric: str | None = None
    want: Direction | None = None


async def diff(call: Call) -> Reply:
    asked = call.query(Asked)
    found = await call.services.slow_query(
        job_difference.difference, asked.ids, asked.metric, asked.want, time.time_ns()
    )
    return reply_json(found)


ROUTES = [Route("GET", "/api/diff", Role.READ, diff, answer=job_difference.Difference)]

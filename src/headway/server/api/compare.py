"""`/api/compare`: many jobs side by side, as `hw compare --json` tells it. Named in the query, or,
where they are many, in a JSON body of the same fields.
"""

import time
from sqlite3 import Connection

from headway.model.limits import COMPARE_JOBS_MAX
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, encode, reply_json
from headway.store import catalog, compare_table
from headway.store.compare_table import Asked
from headway.wire import filter_language


async def compare(call: Call) -> Reply:
    asked = call.read(Asked) if call.body else call.query(Asked)
    compare_table.check(asked)
    now_ns = time.time_ns()
    return Reply(await call.services.query(_table, asked, filters_of(asked, now_ns), now_ns))


async def importance(call: Call) -> Reply:
    asked = call.read(Asked) if call.body else call.query(Asked)
    compare_table.check(asked)
    now_ns = time.time_ns()
    work = compare_table.importances
    return reply_json(
        await call.services.slow_query(work, asked, filters_of(asked, now_ns), now_ns)
    )


def filters_of(asked: Asked, now_ns: int) -> catalog.JobFilter:
    since_ns = None if asked.since is None else now_ns - int(asked.since * 1e9)
    where = filter_language.parse(asked.where) if asked.where else None
    return catalog.JobFilter(
        asked.state, asked.cluster, asked.experiment, since_ns, asked.match, COMPARE_JOBS_MAX + 1,
        where=where, now_ns=now_ns,
    )  # fmt: skip


def _table(c: Connection, asked: Asked, filters: catalog.JobFilter, now_ns: int) -> bytes:
    """Encoded in the reader's thread: a thousand configs are a megabyte."""
    return encode(compare_table.table(c, asked, filters, now_ns))


ROUTES = [
    Route("GET", "/api/compare", Role.READ, compare, answer=compare_table.CompareTable),
    Route("POST", "/api/compare", Role.READ, compare, answer=compare_table.CompareTable),
    Route(
        "POST", "/api/compare/importance", Role.READ, importance, answer=compare_table.Importance
    ),
]

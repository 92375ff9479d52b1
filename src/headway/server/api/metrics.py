"""`/api/jobs/{ref}/metrics`: what a job logged, as the contract's JSON or as binary columns."""

import sqlite3

import msgspec

from headway.model.errors import UsageError
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode
from headway.store import catalog, query

COLUMNS = b"application/x-headway-columns"
POINTS_MIN, POINTS_MAX = 2, 10_000_000


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: list[str] = []
    rank: Count | None = None
    points: Count | None = None
    joined: bool = False  # one entry per rank: steps that were done again replace the lost ones


async def metrics(call: Call) -> Reply:
    asked = call.query(Asked)
    if asked.points is not None and not POINTS_MIN <= asked.points <= POINTS_MAX:
        raise UsageError(
            f"points is {asked.points}",
            f"valid: {POINTS_MIN} to {POINTS_MAX}, or leave it out for all",
        )
    pk = await call.services.find(call)
    if call.accepts(COLUMNS):
        return Reply(await call.services.slow_query(read_columns, pk, asked), content_type=COLUMNS)
    return Reply(await call.services.slow_query(read_json, pk, asked))


def read_json(c: sqlite3.Connection, pk: int, asked: Asked) -> bytes:
    """Encoded in the reader's thread: a million points take a while to write down."""
    found = query.metrics_object(
        c, pk, asked.name or None, asked.rank, asked.points, joined=asked.joined
    )
    return encode({catalog.load_job(c, pk).id: found})


def read_columns(c: sqlite3.Connection, pk: int, asked: Asked) -> bytes:
    found = query.read_metrics(
        c, pk, asked.name or None, asked.rank, asked.points, joined=asked.joined
    )
    return query.metrics_columns([(catalog.load_job(c, pk).id, found)])


ROUTES = [
    Route(
        "GET",
        "/api/jobs/{ref}/metrics",
        Role.READ,
        metrics,
        answer=dict[str, dict[str, list[contract.Series]]],
    )
]

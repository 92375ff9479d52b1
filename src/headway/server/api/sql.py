"""`/api/sql` and `/api/export`: questions in SQL, and tables as Parquet, over the jobs chosen."""

import time
from sqlite3 import Connection

import msgspec

from headway.server import contract
from headway.server.api.compare import filters_of
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store import catalog, compare_table, open_data
from headway.store.compare_table import Asked

PARQUET = b"application/vnd.apache.parquet"


class Query(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    jobs: Asked = msgspec.field(default_factory=Asked)


class Export(msgspec.Struct, forbid_unknown_fields=True):
    table: str
    jobs: Asked = msgspec.field(default_factory=Asked)


class SqlAnswer(msgspec.Struct):
    """`cut`: there are more rows than one answer holds."""

    columns: list[str]
    rows: list[list[contract.Json]]
    cut: bool


async def sql(call: Call) -> Reply:
    asked = call.read(Query)
    open_data.check_installed()
    keys = await call.services.query(_keys, asked.jobs)
    found = await call.services.slow_readers.run(
        open_data.query, call.services.paths, asked.query, keys
    )
    return reply_json(SqlAnswer(found["columns"], found["rows"], found["cut"]))


async def export(call: Call) -> Reply:
    asked = call.read(Export)
    open_data.check_installed()
    keys = await call.services.query(_keys, asked.jobs)
    data = await call.services.slow_readers.run(
        open_data.export, call.services.paths, asked.table, keys
    )
    return Reply(data, content_type=PARQUET)


def _keys(c: Connection, asked: Asked) -> list[int]:
    filters = filters_of(asked, time.time_ns())
    if not asked.ids:
        filters.limit = 2**31
        return catalog.job_keys(c, filters)
    return compare_table.chosen(c, asked, filters)[0]


ROUTES = [
    Route("POST", "/api/sql", Role.READ, sql, answer=SqlAnswer),
    Route("POST", "/api/export", Role.READ, export, answer=contract.Raw),
]

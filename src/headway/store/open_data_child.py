"""The child process of `open_data`: one query, or one table as Parquet, and then it ends.

    python -I -m headway.store.open_data_child     < request as JSON     > answer as JSON

DuckDB gets the tables that the query names, in memory, and nothing else: no files, no extensions,
no other database, no variables of this process, and no change of these settings. A statement that
is not a question is refused before it runs.
"""

import datetime
import decimal
import json
import math
import resource
import sys
from pathlib import Path
from typing import Any

from headway.model.errors import HeadwayError, RefusedError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import SQL_CELL_CHARS_MAX, SQL_MEMORY_BYTES_MAX, SQL_ROWS_MAX

_SETTINGS = (
    "SET temp_directory = ''", "SET enable_external_access = false", "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false", "SET allow_community_extensions = false",
    "SET python_enable_replacements = false", "SET threads = 2",
    f"SET memory_limit = '{SQL_MEMORY_BYTES_MAX // (1 << 20)}MiB'", "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
)  # fmt: skip


def main() -> int:
    request = json.loads(sys.stdin.buffer.read())
    seconds = int(request["timeout_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (2 * seconds, 2 * seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = _export(request) if request.get("table") else _query(request)
    except HeadwayError as error:
        answer = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    sys.stdout.buffer.write(json.dumps(answer, allow_nan=False).encode())
    return 0


def _query(request: JsonObject) -> JsonObject:
    import duckdb

    text = request["query"]
    database = duckdb.connect(":memory:")
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise UsageError(f"the query cannot be read: {_first_line(error)}") from None
    if len(statements) != 1:
        raise UsageError(
            f"hw sql takes one statement, not {len(statements)}", "a `;` inside ends a statement"
        )
    kind = statements[0].type
    allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if kind not in allowed:
        raise RefusedError(
            f"hw sql only reads; {kind.name} would do more",
            "begin with SELECT, WITH, DESCRIBE or SUMMARIZE",
        )
    named = _named_tables(text)
    _load(database, request, {name.lower().rpartition(".")[2] for name in named} or None)
    for setting in _SETTINGS:
        database.execute(setting)
    try:
        # as Arrow: DuckDB's own rows need pytz for times
        reader = _reader(database.sql(text))
        names = list(reader.schema.names)
        rows: list[list[Any]] = []
        for batch in reader:
            columns = [column.to_pylist() for column in batch.columns]
            rows += [list(row) for row in zip(*columns, strict=True)]
            if len(rows) > SQL_ROWS_MAX:
                break
    except duckdb.Error as error:
        hint = "tables: jobs attempts config metrics usage events logs findings"
        raise UsageError(f"the query failed: {_first_line(error)}", hint) from None
    kept = [[_plain(value) for value in row] for row in rows[:SQL_ROWS_MAX]]
    return {"columns": names, "rows": kept, "cut": len(rows) > SQL_ROWS_MAX}


def _named_tables(text: str) -> set[str]:
    """Asked of a database of its own, which is shut in already: to find the names DuckDB begins to
    plan the query, and opens the files that it names.
    """
    import duckdb

    probe = duckdb.connect(":memory:")
    for setting in _SETTINGS:
        probe.execute(setting)
    try:
        found: set[str] = probe.get_table_names(text)
    except duckdb.Error:
        return set()  # DESCRIBE and the like name no table that it tells
    finally:
        probe.close()
    return found


def _reader(found: Any) -> Any:
    """Batches of Arrow; DuckDB 2 has another name for it."""
    make = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
    return make(10_000)


def _load(database: Any, request: JsonObject, named: set[str] | None) -> None:
    import pyarrow as pa

    from headway.home.paths import Paths
    from headway.store import open_tables
    from headway.store.connection import open_reader

    paths = Paths(Path(request["home"]))
    c = open_reader(Path(request["database"]))
    try:
        for name in open_tables.TABLES:
            if named is not None and name not in named:
                continue
            schema = open_tables.SCHEMAS[name]
            if named is None:  # only its shape is asked for
                table = schema.empty_table()
            else:
                table = pa.Table.from_batches(
                    open_tables.batches(c, paths, name, request["jobs"]), schema
                )
            database.register(name, table)
    finally:
        c.close()


def _export(request: JsonObject) -> JsonObject:
    import pyarrow.parquet as parquet

    from headway.home.paths import Paths
    from headway.store import open_tables
    from headway.store.connection import open_reader

    name = request["table"]
    paths = Paths(Path(request["home"]))
    schema = open_tables.SCHEMAS[name]
    # numbers that rise are small as differences; floats are small with their bytes apart
    how: JsonObject = {"compression": "zstd", "compression_level": 1}
    if name == "metrics":
        how |= {
            "use_dictionary": ["job", "name"],
            "column_encoding": {
                "attempt": "DELTA_BINARY_PACKED", "rank": "DELTA_BINARY_PACKED", "step": "DELTA_BINARY_PACKED",
                "time": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT",
            },
        }  # fmt: skip
    rows = 0
    c = open_reader(Path(request["database"]))
    try:
        with parquet.ParquetWriter(request["output"], schema, **how) as writer:
            points_max = request["points_max"]
            for batch in open_tables.batches(
                c, paths, name, request["jobs"], points_max=points_max
            ):
                writer.write_batch(batch)
                rows += batch.num_rows
    finally:
        c.close()
    return {"rows": rows}


def _first_line(error: Exception) -> str:
    return str(error).split("\n\n")[0][:600]


def _plain(value: object) -> Any:
    """A value as the contract's JSON has it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value if len(value) <= SQL_CELL_CHARS_MAX else value[:SQL_CELL_CHARS_MAX] + "…"
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC) if value.tzinfo else value
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value[: SQL_CELL_CHARS_MAX // 2].hex()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return str(value)


if __name__ == "__main__":
    sys.exit(main())

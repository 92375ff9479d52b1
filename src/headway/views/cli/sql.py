"""`hw sql "SELECT …"`: questions over everything that is recorded, answered by the server's DuckDB."""

from typing import Any

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import SQL_TIMEOUT_S
from headway.views.cli import compare
from headway.views.cli.dispatch import Call
from headway.views.text import comparison, csv_text, table
from headway.views.text import format as fmt
from headway.views.text.comparison import Cell, Grid
from headway.views.text.terminal import BOLD


def command(call: Call) -> int:
    if len(call.words) != 1 or call.after:
        raise UsageError(
            "hw sql takes one query, in quotes" if call.words else "hw sql needs a query",
            'for example: hw sql "select id, state from jobs"',
        )
    text = call.words[0]
    source = call.source()
    call.words = []
    chosen = compare.body_of(call, source)
    body = {"query": text, "jobs": chosen}
    answer: JsonObject = source.post("/api/sql", body, wait_s=SQL_TIMEOUT_S, again=True)
    names, rows = answer["columns"], answer["rows"]
    if call.as_json:
        call.terminal.put_json([dict(zip(names, row, strict=True)) for row in rows])
    elif call.get("csv"):
        call.terminal.out.write(
            csv_text.to_csv([names, *([_text(cell) for cell in row] for row in rows)])
        )
    else:
        grid = _grid(names, rows)
        if call.get("md"):
            call.terminal.out.write(comparison.markdown(grid))
        else:
            _put(call, grid)
    if answer["cut"]:
        call.terminal.say(
            f"hw: the first {fmt.plural(len(rows), 'row')}; LIMIT or an aggregate gives all"
        )
    return 0


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _grid(names: list[str], rows: list[list[Any]]) -> Grid:
    numeric = [
        all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(names))
    ]
    cells = [[Cell(_shown(value)) for value in row] for row in rows]
    return Grid(names, cells, numeric, [True] * len(names))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return _text(value)


def _put(call: Call, grid: Grid) -> None:
    out = call.terminal.out
    columns = [
        table.Column(out.safe(title), right=right, keep=1)
        for title, right in zip(grid.titles, grid.numeric, strict=True)
    ]
    rows = [[out.safe(cell.text) or " " for cell in row] for row in grid.rows]
    laid = table.layout(columns, rows, out.columns)[1]
    out.write("\n".join([out.style(laid[0], BOLD), *laid[1:]]) + "\n")
    call.terminal.say(fmt.plural(len(grid.rows), "row"))

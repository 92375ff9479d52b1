"""`hw metrics ID…`: what jobs logged: JSON with every point, or a table with the last value and the range of each."""

import math
from collections.abc import Iterator
from typing import Any

from headway.views import format as fmt
from headway.views import table
from headway.views.cli.dispatch import Call, several_words
from headway.views.source import Source, job_route

Series = dict[str, list[dict[str, Any]]]
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def command(call: Call) -> int:
    refs = several_words(call, "the id of a job")
    source, out = call.source(), call.terminal.out
    if call.as_json and not out.is_tty:
        _pass_on(call, source, refs)
        return 0
    found: dict[str, Series] = {}
    for ref in refs:
        found |= source.get(job_route(ref, "metrics"), _query(call))
    if call.as_json:
        call.terminal.put_json(found)
        return 0
    for number, (job_id, series) in enumerate(found.items()):
        if len(found) > 1:
            call.terminal.put(("\n" if number else "") + out.safe(job_id))
        if not series:
            call.terminal.say(f"{call.terminal.err.safe(job_id)} has logged no metrics" + _narrowed(call))
            continue
        out.write("\n".join(listing(series, call)) + "\n")
    return 0


def _query(call: Call) -> list[tuple[str, Any]]:
    return [("name", call.get("metrics")), ("rank", call.get("rank")), ("points", call.get("points"))]


def _narrowed(call: Call) -> str:
    return " of that name or rank" if call.get("metrics") or call.get("rank") is not None else ""


def _pass_on(call: Call, source: Source, refs: list[str]) -> None:
    """Millions of points are not parsed on their way through: the server's objects are joined as they are."""
    parts = []
    for ref in refs:
        body = source.raw(job_route(ref, "metrics"), _query(call)).body.strip()
        inner = body.removeprefix(b"{").removesuffix(b"}").strip()
        if inner and inner not in parts:
            parts.append(inner)
    call.terminal.out.write_bytes(b"{" + b",".join(parts) + b"}\n")


def listing(series: Series, call: Call) -> list[str]:
    out = call.terminal.out
    columns = [
        table.Column("metric", keep=table.ALWAYS), table.Column("rank", right=True),
        table.Column("attempt", right=True, factor=True), table.Column("points", right=True),
        table.Column("step", right=True), table.Column("last", right=True, keep=1),
        table.Column("min", right=True), table.Column("max", right=True), table.Column("not finite", right=True),
    ]  # fmt: skip
    rows = [[out.safe(cell) for cell in row] for row in _rows(series)]
    above, lines = table.layout(columns, rows, out.columns)
    return [*([above] if above else []), *lines]


def _rows(series: Series) -> Iterator[list[str]]:
    for name, entries in series.items():
        for entry in entries:
            values = [_SPECIAL[v] if isinstance(v, str) and v in _SPECIAL else v for v in entry.get("value") or []]
            numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
            odd = len(values) - len(numbers)
            yield [
                name, str(entry.get("rank")), str(entry.get("attempt")), str(len(values)),
                str(entry["step"][-1]) if entry.get("step") else "", fmt.number(values[-1]) if values else "",
                fmt.number(min(numbers)) if numbers else "", fmt.number(max(numbers)) if numbers else "",
                str(odd) if odd else "",
            ]  # fmt: skip

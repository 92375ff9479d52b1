"""`hw timings ID`: how long the named parts of a program took, by name and process: a table, CSV or
JSON.
"""

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.text import csv_text, table
from headway.views.text import format as fmt
from headway.views.text.terminal import Output

_KEYS = ("name", "attempt", "rank", "pid", "count", "mean_s", "std_s", "min_s", "max_s")
Timing = JsonObject


def command(call: Call) -> int:
    if call.as_json and call.get("csv"):
        raise UsageError("--json and --csv are different answers", "ask for one of them")
    source = call.source()
    ref = references.one(call, source)
    timings: list[Timing] = source.get(job_route(ref, "timings"))
    rank = call.get("rank")
    if rank is not None:
        timings = [timing for timing in timings if timing.get("rank") == rank]

    if call.as_json:
        call.terminal.put_json(timings)
    elif call.get("csv"):
        rows = [list(_KEYS)]
        for timing in timings:
            values = [timing.get(key) for key in _KEYS]
            rows.append(["" if value is None else str(value) for value in values])
        call.terminal.out.write(csv_text.to_csv(rows))
    elif timings:
        call.terminal.out.write("\n".join(listing(timings, call.terminal.out)) + "\n")
    else:
        call.terminal.say(
            f'{call.terminal.err.safe(ref)} has no timings; hw.timed("data") in the program makes them'
        )
    return 0


def listing(found: list[Timing], out: Output) -> list[str]:
    columns = [
        table.Column("name", keep=table.ALWAYS), table.Column("attempt", right=True, factor=True),
        table.Column("rank", right=True, factor=True, keep=1), table.Column("pid", right=True, factor=True),
        table.Column("count", right=True, keep=1), table.Column("mean", right=True, keep=table.ALWAYS),
        table.Column("deviation", right=True, keep=1), table.Column("min", right=True),
        table.Column("max", right=True), table.Column("in all", right=True),
    ]  # fmt: skip
    above, lines = table.layout(
        columns, [[out.safe(cell) for cell in _cells(one)] for one in found], out.columns
    )
    return [*([above] if above else []), *lines]


def _cells(one: Timing) -> list[str]:
    count, mean_s = one.get("count") or 0, one.get("mean_s") or 0.0
    seconds = [_short(one.get(key)) for key in ("mean_s", "std_s", "min_s", "max_s")]
    who = [str(one.get(key, "")) for key in ("attempt", "rank", "pid")]
    return [str(one.get("name")), *who, str(count), *seconds, fmt.duration(count * mean_s)]


def _short(seconds: float | None) -> str:
    """`12.3 µs`, `4.56 ms`, `1.23 s`."""
    if seconds is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= scale or unit == "µs":
            return f"{seconds / scale:.3g} {unit}" if abs(seconds) < 1000 else f"{seconds:.0f} s"
    return ""

"""`hw metrics ID…`: what jobs logged: JSON with every point, or a table with the last value and the
range of each. An array stands for its jobs: all of them in JSON, a line each with the last values
in a table.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import JOBS_LISTED_MAX
from headway.settings.nearest import did_you_mean
from headway.views.api.source import Source, job_route
from headway.views.cli import arrays, references
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import table

Series = dict[str, list[JsonObject]]
Job = JsonObject
_NAMES_TOLD = 20  # of the metrics that a job has
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def command(call: Call) -> int:
    source, out = call.source(), call.terminal.out
    refs = references.several(call, source)
    if call.as_json and not out.is_tty:
        _pass_on(call, source, refs)
        return 0
    found: dict[str, Series | list[Job]] = {}
    for ref in refs:
        try:
            found |= source.get(job_route(ref, "metrics"), _query(call))
        except NotFoundError as error:
            array, jobs = _of_array(source, ref, error)
            found |= _all_of(call, source, jobs) if call.as_json else {array: jobs}
    if call.as_json:
        call.terminal.put_json(found)
        return 0
    _check_names(call, source, found)
    if call.get("csv"):
        _put_csv(call, found)
        return 0
    for number, (name, what) in enumerate(found.items()):
        if len(found) > 1:
            call.terminal.put(("\n" if number else "") + out.safe(name))
        if isinstance(what, list):
            lines = array_listing(what, call)
        else:
            lines = listing(what, call) if what else []
        if not lines:
            call.terminal.say(
                f"{call.terminal.err.safe(name)} has logged no metrics" + _narrowed(call)
            )
            continue
        out.write("\n".join(lines) + "\n")
    return 0


def _check_names(call: Call, source: Source, found: Mapping[str, "Series | list[Job]"]) -> None:
    """A name that no job has is a typo, told with the nearest that exists."""
    asked = call.get("metrics") or []
    single = {job: series for job, series in found.items() if not isinstance(series, list)}
    if not asked or len(single) < len(found):
        return
    missing = [name for name in asked if not any(name in series for series in single.values())]
    if not missing:
        return
    names: dict[str, None] = {}
    for job in single:
        names |= dict.fromkeys(source.get(job_route(job)).get("metrics") or {})
    if missing[0] in names:  # of another rank
        return
    known = ", ".join(sorted(names)[:_NAMES_TOLD])
    raise NotFoundError(
        f"{' and '.join(single)} logged no metric {missing[0][:80]!r}{did_you_mean(missing[0], names)}",
        f"it has: {known}" if known else "it has logged none",
    )


def _put_csv(call: Call, found: Mapping[str, "Series | list[Job]"]) -> None:
    """A row for each point."""
    from headway.views.text import csv_text

    rows: list[list[Any]] = []
    for job, series in found.items():
        if isinstance(series, list):
            raise UsageError(
                f"{job} is an array: --csv is for jobs", f"hw export {fmt.suffix(job)} writes all"
            )
        for name, entries in series.items():
            for entry in entries:
                points = zip(entry["step"], entry["time"], entry["value"], strict=True)
                front = [job, name, entry.get("rank"), entry.get("attempt")]
                rows += [[*front, *point] for point in points]
    header = ["id", "metric", "rank", "attempt", "step", "time", "value"]
    lines = [header, *(["" if cell is None else str(cell) for cell in row] for row in rows)]
    call.terminal.out.write(csv_text.to_csv(lines))


def _of_array(source: Source, ref: str, error: NotFoundError) -> tuple[str, list[Job]]:
    """The array that `ref` means, and its jobs in order; `error` where it means none."""
    array = arrays.found(source, ref)
    if array is None:
        raise error
    jobs: list[Job] = source.get(
        "/api/jobs", [("array", array["uuid"]), ("limit", JOBS_LISTED_MAX)]
    )
    return str(array["id"]), sorted(jobs, key=lambda job: job.get("array_index") or 0)


def _all_of(call: Call, source: Source, jobs: list[Job]) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for job in jobs:
        found |= source.get(job_route(job["id"], "metrics"), _query(call))
    return found


def _query(call: Call) -> list[tuple[str, object]]:
    query = [
        ("name", call.get("metrics")),
        ("rank", call.get("rank")),
        ("points", call.get("points")),
    ]
    if call.get("joined") or not (call.as_json or call.get("apart")):
        query.append(("joined", "true"))
    return query


def _narrowed(call: Call) -> str:
    return " of that name or rank" if call.get("metrics") or call.get("rank") is not None else ""


def _pass_on(call: Call, source: Source, refs: list[str]) -> None:
    """Millions of points are not parsed on their way through: the server's objects are joined as
    they are.
    """
    parts = []
    waiting = list(reversed(refs))
    while waiting:
        ref = waiting.pop()
        try:
            body = source.raw(job_route(ref, "metrics"), _query(call)).body.strip()
        except NotFoundError as error:
            waiting += [job["id"] for job in reversed(_of_array(source, ref, error)[1])]
            continue
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


def array_listing(jobs: list[Job], call: Call) -> list[str]:
    """A line for each job that has logged something: where it stands and its last values."""
    out, asked = call.terminal.out, call.get("metrics")
    logged = [
        job for job in jobs if any(not asked or name in asked for name in job.get("metrics") or {})
    ]
    names = asked or list(dict.fromkeys(name for job in logged for name in job["metrics"]))
    columns = [
        table.Column("index", right=True, keep=table.ALWAYS), table.Column("id", keep=table.ALWAYS),
        table.Column("state", keep=1), table.Column("parameters"),
        *(table.Column(out.safe(name), right=True, limit=16, keep=1) for name in names),
    ]  # fmt: skip
    rows = [
        [
            str(job.get("array_index")), fmt.suffix(job["id"]) if out.is_tty else str(job["id"]), str(job["state"]),
            fmt.parameters(job),
            *(fmt.number(job["metrics"][name]) if name in job["metrics"] else "" for name in names),
        ]
        for job in logged
    ]  # fmt: skip
    lines = table.layout(columns, [[out.safe(cell) for cell in row] for row in rows], out.columns)[
        1
    ]
    return lines if logged else []


def _rows(series: Series) -> Iterator[list[str]]:
    for name, entries in series.items():
        for entry in entries:
            yield _row(name, entry)


def _row(name: str, entry: JsonObject) -> list[str]:
    values = [_number(value) for value in entry.get("value") or []]
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    last_step = last_value = least = most = odd = ""
    if entry.get("step"):
        last_step = str(entry["step"][-1])
    if values:
        last_value = fmt.number(values[-1])
    if numbers:
        least = fmt.number(min(numbers))
        most = fmt.number(max(numbers))
    if len(numbers) < len(values):
        odd = str(len(values) - len(numbers))
    front = [name, str(entry.get("rank")), str(entry.get("attempt")), str(len(values))]
    return [*front, last_step, last_value, least, most, odd]


def _number(value: object) -> Any:
    """JSON has no NaN: it comes as a word."""
    if isinstance(value, str):
        return _SPECIAL.get(value, value)
    return value

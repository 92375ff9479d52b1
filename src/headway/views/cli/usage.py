"""`hw usage ID`: what a job used of CPU, memory, disks and GPUs: a table with curves, CSV, JSON, or
a page.
"""

from datetime import UTC, datetime
from pathlib import Path

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.console.widgets.curve import blocks
from headway.views.text import csv_text, job_text, table
from headway.views.text import format as fmt
from headway.views.text.terminal import DIM, Output
from headway.views.usage import tracks

CURVE_CELLS = 24
_CHECKPOINTS_SHOWN = 20
Answer = JsonObject


def command(call: Call) -> int:
    if sum(bool(call.get(key)) for key in ("json", "csv", "html")) > 1:
        raise UsageError("--json, --csv and --html are different answers", "ask for one of them")
    source = call.source()
    job = source.get(job_route(references.one(call, source)))
    answer = fetch(source, job["id"])
    if call.as_json:
        call.terminal.put_json({"id": job["id"], **answer})
        return 0
    _check_rank(call, job, answer)
    found = tracks.tracks(
        answer["samples"], call.get("rank"), tracks.Windows(answer.get("windows") or [])
    )
    if call.get("csv"):
        call.terminal.out.write(csv_text.to_csv(tracks.csv_rows(found)))
    elif call.get("html"):
        _write_page(call, job, found, answer)
    elif found:
        call.terminal.out.write("\n".join(page(job, found, answer, call.terminal.out)) + "\n")
    else:
        call.terminal.say(
            f"{call.terminal.err.safe(str(job['id']))} has no samples of usage" + _why(job)
        )
    return 0


def _check_rank(call: Call, job: JsonObject, answer: Answer) -> None:
    asked = call.get("rank")
    known = (
        {t.number for t in tracks.tracks(answer["samples"]) if t.kind == tracks.RANK}
        if asked is not None
        else set()
    )
    if known and asked not in known:
        ranks = fmt.ranks(sorted(number for number in known if number is not None))
        raise NotFoundError(
            f"{job['id']} has no samples of rank {asked}", f"it has those of {ranks}"
        )


def _why(job: JsonObject) -> str:
    return " yet" if job["state"] not in fmt.ENDED else ""


def fetch(source: Source, job_id: str) -> Answer:
    """All samples of the level that the server chose, in as many answers as it takes."""
    answer: Answer = source.get(job_route(job_id, "usage"))
    more = answer
    while more.get("next") is not None:
        more = source.get(
            job_route(job_id, "usage"), [("level", answer["level"]), ("after", more["next"])]
        )
        answer["samples"] += more["samples"]
    answer.pop("next", None)
    return answer


def _write_page(call: Call, job: JsonObject, found: list[tracks.Track], answer: Answer) -> None:
    from headway.views.usage.report import render

    path, text = Path(call.get("html")), render(job, found, answer.get("checkpoints") or [])
    if str(path) == "-":
        call.terminal.out.write_bytes(text.encode())
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HeadwayError(
            f"{path} cannot be written: {error.strerror}", "name another file"
        ) from None
    call.terminal.say(
        f"{call.terminal.err.safe(str(path))} holds the report; open it in any browser"
    )


# -- in the terminal


def page(job: JsonObject, found: list[tracks.Track], answer: Answer, out: Output) -> list[str]:
    begin_s, end_s = tracks.span_s(found)
    lines = [
        job_text.state_line(job, out, datetime.now(UTC)),
        out.style(_about(answer, end_s - begin_s), DIM),
    ]
    lines += _processor_lines(
        [t for t in found if t.kind in (tracks.NODE, tracks.RANK)], begin_s, end_s, out
    )
    lines += _gpu_lines([t for t in found if t.kind == tracks.GPU], begin_s, end_s, out)
    began_s = tracks.begin_s(found, job)
    lines += _window_lines(tracks.Windows(answer.get("windows") or []), began_s)
    ranks = len({t.number for t in found if t.kind in (tracks.RANK, tracks.PROCESS)})
    marks = tracks.folded(answer.get("checkpoints") or [])
    return [*lines, *_checkpoint_lines(marks, began_s, ranks, out)]


def _window_lines(windows: tracks.Windows, begin_s: float) -> list[str]:
    closed = windows.closed()
    if not closed:
        return []
    lines = [
        "",
        "left out (Usage.stop)"
        + (f", the last {_CHECKPOINTS_SHOWN}" if len(closed) > _CHECKPOINTS_SHOWN else ""),
    ]
    for _, rank, from_s, to_s in closed[-_CHECKPOINTS_SHOWN:]:
        until = "the end" if to_s is None else fmt.clock(max(0.0, to_s - begin_s))
        lines.append(f"  rank {rank}  {fmt.clock(max(0.0, from_s - begin_s))} to {until}")
    return lines


def _about(answer: Answer, length_s: float) -> str:
    every = ("each sample", "10 s each", "60 s each")[int(answer.get("level") or 0)]
    words = [fmt.plural(len(answer["samples"]), "sample")]
    words += [every, f"over {fmt.duration(length_s)}"] if length_s > 0 else []
    last = answer.get("last") or {}
    if last.get("peak_memory_bytes"):
        words.append(
            f"peak memory of one rank {fmt.size(last['peak_memory_bytes'])} (rank {last.get('peak_rank')})"
        )
    return " · ".join(words) + "   (cpu: 100 % is one core)"


def _processor_lines(
    found: list[tracks.Track], begin_s: float, end_s: float, out: Output
) -> list[str]:
    if not found:
        return []
    columns = [
        table.Column("", keep=table.ALWAYS), table.Column("cpu", right=True, keep=1), table.Column("max", right=True),
        table.Column("cpu over time", keep=1, limit=CURVE_CELLS), table.Column("memory", right=True, keep=1),
        table.Column("peak", right=True, keep=1), table.Column("memory over time", limit=CURVE_CELLS),
        table.Column("read/s", right=True), table.Column("write/s", right=True),
    ]  # fmt: skip
    hosts = len({track.host for track in found})
    rows = [
        [
            out.safe(track.label(hosts)), _percent(track.mean("cpu")), _percent(track.high("cpu")),
            _curve(track, "cpu", begin_s, end_s, out), fmt.size(track.mean("memory")), fmt.size(track.high("memory")),
            _curve(track, "memory", begin_s, end_s, out), fmt.size(track.mean("read")), fmt.size(track.mean("write")),
        ]
        for track in found
    ]  # fmt: skip
    return table.layout(columns, rows, out.columns)[1]


def _gpu_lines(found: list[tracks.Track], begin_s: float, end_s: float, out: Output) -> list[str]:
    if not found:
        return []
    columns = [
        table.Column("", keep=table.ALWAYS), table.Column("load", right=True, keep=1), table.Column("max", right=True),
        table.Column("load over time", keep=1, limit=CURVE_CELLS), table.Column("memory", right=True, keep=1),
        table.Column("peak", right=True, keep=1), table.Column("power", right=True), table.Column("hot", right=True),
        table.Column("model"),
    ]  # fmt: skip
    hosts = len({track.host for track in found})
    rows = [
        [
            out.safe(track.label(hosts)), _percent(track.mean("load")), _percent(track.high("load")),
            _curve(track, "load", begin_s, end_s, out), fmt.size(track.mean("gpu_memory")),
            fmt.size(track.high("gpu_memory")), _unit(track.mean("power"), "W"),
            _unit(track.high("temperature"), "C"), out.safe(track.name),
        ]
        for track in found
    ]  # fmt: skip
    return ["", *table.layout(columns, rows, out.columns)[1]]


def _checkpoint_lines(
    found: list[JsonObject], begin_s: float, ranks: int, out: Output
) -> list[str]:
    if not found:
        return []
    shown = found[-_CHECKPOINTS_SHOWN:]
    left = len(found) - len(shown)
    lines = ["", "checkpoints" + (f" (the last {len(shown)} of {len(found)})" if left else "")]
    for one in shown:
        moment = fmt.moment(one.get("time"))
        at = fmt.clock(max(0.0, moment.timestamp() - begin_s)) if moment else ""
        tags = " · ".join(str(tag) for tag in one.get("tags") or [])
        whose = tracks.ranks_words(one["ranks"], ranks)
        lines.append(f"  {at:>10}  {out.safe(tags)}" + (f"  ({whose})" if whose else ""))
    return lines


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.0f} %"


def _unit(value: float | None, unit: str) -> str:
    return "—" if value is None else f"{value:.0f} {unit}"


def _curve(track: tracks.Track, what: str, begin_s: float, end_s: float, out: Output) -> str:
    if out.ascii_only:
        return ""
    values = tracks.filled(tracks.places(track.points.get(what, []), begin_s, end_s, CURVE_CELLS))
    return blocks(values, CURVE_CELLS, low=0.0)

"""`hw ls`: the jobs, newest first. What is equal for all of them is said once, above the table."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from headway.model.json_types import JsonObject
from headway.model.limits import DISPLAY_LINE_CHARS_MAX
from headway.views.api.source import Source, parse
from headway.views.cli import arrays, list_columns, selection
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import health_text, job_text, table
from headway.views.text.terminal import BOLD, DIM, INDENTED_MAX, Output

_LIMIT: Final = 50  # in a terminal; a pipe gets all
_METRICS_MAX: Final = 4
_DIFFERS_CELLS_MAX: Final = 44
_CHOSEN_CELLS_MAX: Final = 60
_USAGE: Final = frozenset(("cpu", "memory", "gpu", "gpu_memory"))
_NOTED: Final = (
    "is_array",
    "smoke",
    "heard_at",
    "state_since",
    "cause",
    "exit_code",
    "signal",
    "waiting",
    "health",
)  # what a note is made of
Job = JsonObject


def command(call: Call) -> int:
    if call.words or call.after:
        from headway.model.errors import UsageError

        raise UsageError(
            "hw ls takes options only",
            f"to see one job: hw q {call.words[0] if call.words else 'ID'}",
        )
    source, out = call.source(), call.terminal.out
    limit = call.get("limit") or (_LIMIT if out.is_tty else None)
    if call.as_json:
        return _put_json(call, source)
    sort, columns = call.get("sort"), call.get("columns") or []
    wants_usage = bool(_USAGE.intersection(columns)) or str(sort or "").lstrip("-") in _USAGE
    more = [("config", "true"), ("usage", "true" if wants_usage else None)]
    # sorted or by column, the jobs of arrays are shown one by one
    fold = not sort and not columns
    asked = None if sort else limit  # what comes first is known when all are
    jobs = selection.find(call, source, limit=asked, fold=fold, brief=True, more=more)
    if call.get("array"):
        jobs.sort(key=lambda job: job.get("array_index") or 0)
    if sort:
        jobs = list_columns.ordered(jobs, sort)[:limit]
    if not jobs:
        chosen = any(call.get(key) for key in (*selection.KEYS, "array", "tags"))
        call.terminal.say(
            "no job matches" if chosen else "no jobs yet; to run one: hw run python train.py"
        )
        return 0
    lines = listing(jobs, out, datetime.now(UTC), columns, sort)
    out.write("\n".join(lines) + "\n")
    if call.get("limit") is None and limit is not None and len(jobs) == limit:
        order = "first" if sort else "newest"
        call.terminal.say(f"the {order} {limit}; for more: hw ls --limit 500")
    return 0


def _put_json(call: Call, source: Source) -> int:
    """A long list goes out as the server wrote it, a line for each job: to read it and write it
    again takes longer than all the rest.
    """
    query = [*selection.query(call, limit=call.get("limit")), ("config", "true")]
    if call.get("sort"):
        jobs = source.get("/api/jobs", query[:-1] + [("config", "true"), ("limit", None)])
        call.terminal.put_json(list_columns.ordered(jobs, call.get("sort"))[: call.get("limit")])
        return 0
    body = source.raw("/api/jobs", query).body
    if body.count(b"\n") >= INDENTED_MAX and body.isascii():
        call.terminal.out.write_bytes(body + b"\n")
    else:
        call.terminal.put_json(parse(body, "GET /api/jobs"))
    return 0


def listing(
    jobs: list[Job],
    out: Output,
    now: datetime,
    columns: Sequence[str] = (),
    sort: str | None = None,
) -> list[str]:
    metrics = _common_metrics(jobs)
    sorted_by = (sort or "").removeprefix("-")
    if any(sorted_by in (job.get("metrics") or {}) for job in jobs):
        metrics = [sorted_by, *(name for name in metrics if name != sorted_by)][:_METRICS_MAX]
    known = _kinds(metrics, out, now, list_columns.differences(jobs))
    if columns:
        kinds = [_chosen(name, known, jobs, out) for name in columns]
    else:
        # of ten thousand jobs most have few fields, and a column that is empty is not made
        has = set[str]().union(*jobs)
        kinds = [kind for kind in known if has.intersection(kind.fields)]
    cells = [_safe(kind.cells(jobs), out) for kind in kinds]
    rows = list(zip(*cells, strict=True))
    paint = {"state": lambda text: _painted(text, out)} if out.color else None
    above, lines = table.layout([kind.column for kind in kinds], rows, out.columns, paint)
    head = out.style(lines[0], BOLD)
    return [*([out.style(above, DIM)] if above else []), head, *lines[1:]]


def _chosen(name: str, known: list["_Kind"], jobs: list[Job], out: Output) -> "_Kind":
    """The column that a person asked for: one of ours, a metric, or a key of the config."""
    for kind in known:
        if kind.column.title.lower() == name.lower():
            return kind._replace(column=table.Column(kind.column.title, right=kind.column.right))
    value = list_columns.value_of(name)
    right = name in list_columns.NUMBERS or any(isinstance(value(job), int | float) for job in jobs)
    shown = partial(list_columns.shown, name)
    column = table.Column(out.safe(name), right=right, limit=_CHOSEN_CELLS_MAX)
    return _Kind(column, (name,), lambda rows: [shown(job) for job in rows])


class _Kind(NamedTuple):
    """A column, the fields of a job that it shows, and how."""

    column: table.Column
    fields: tuple[str, ...]
    cells: Callable[[list[Job]], list[str]]


def _safe(cells: list[str], out: Output) -> list[str]:
    """A column for the terminal. Most are plain text, or have few words in many rows, and each is
    looked at once.
    """
    joined = "".join(cells)
    if (
        joined.isascii()
        and joined.isprintable()
        and max(map(len, cells), default=0) <= DISPLAY_LINE_CHARS_MAX
    ):
        return cells
    seen = {cell: out.safe(cell) for cell in dict.fromkeys(cells)}
    return [seen[cell] for cell in cells]


def _kinds(metrics: list[str], out: Output, now: datetime, differs: dict[str, str]) -> list[_Kind]:
    """All columns that there may be, in their order."""
    short = out.is_tty  # a terminal shows the part that one types; a file or a pipe gets whole ids

    def each(name: str, cell: Callable[[Job], str], *fields: str, **how: Any) -> _Kind:
        return _Kind(
            table.Column(name, **how), fields or (name,), lambda jobs: [cell(job) for job in jobs]
        )

    def text(name: str) -> Callable[[Job], str]:
        return lambda job: str(job.get(name) or "")

    times = _Kind(
        table.Column("submitted"), ("submitted_at",),
        lambda jobs: fmt.local_times([str(job.get("submitted_at") or "") for job in jobs], now),
    )  # fmt: skip
    return [
        each("id", lambda job: _shown_id(job, short), keep=table.ALWAYS),
        *([each("name", text("name"), factor=True, keep=1)] if short else []),
        each("index", _index, "array_index", right=True, factor=True),
        each("state", lambda job: str(job["state"]), keep=table.ALWAYS),
        each("mark", _mark, "star", "bug"),
        each("progress", _progress, keep=1),
        each("elapsed", partial(_elapsed, now=now), "elapsed_s", "waiting", right=True, keep=1),
        times,
        *(
            each(out.safe(name), partial(_metric, name), "metrics", right=True, limit=16)
            for name in metrics
        ),
        each(
            "differs",
            lambda job: differs.get(str(job["id"]), ""),
            "config",
            "command",
            keep=table.ALWAYS - 1,
            limit=_DIFFERS_CELLS_MAX,
        ),
        each("experiment", text("experiment"), factor=True),
        each("cluster", text("cluster"), factor=True),
        each("node", lambda job: fmt.nodes(job.get("nodes") or []), "nodes", factor=True),
        each("host", _host, "guest_of", factor=True),
        each("GPUs", text("gpus"), "gpus", right=True, factor=True, said="{} GPUs"),
        each("tags", lambda job: ", ".join(str(tag) for tag in job.get("tags") or []), factor=True),
        each("note", lambda job: note(job, now), *_NOTED, keep=1),
    ]


def _mark(job: Job) -> str:
    return " ".join(mark for mark in ("star", "bug") if job.get(mark))


def _progress(job: Job) -> str:
    """Of a job that has done all of it nothing need be said."""
    return "" if job["state"] == "succeeded" else job_text.progress_words(job)


def _elapsed(job: Job, now: datetime) -> str:
    """Since its first start, with holds and waits for retries; of one that waits, how long it waits
    this time.
    """
    if job["state"] == "waiting" and not job.get("is_array"):
        return fmt.clock(job_text.waited_s(job, now))
    if job.get("is_array"):
        return fmt.clock(arrays.elapsed_s(job, now))
    return fmt.clock(job.get("elapsed_s"))


def _index(job: Job) -> str:
    return "" if job.get("array_index") is None else str(job["array_index"])


def _host(job: Job) -> str:
    return str(job.get("host") or job["guest_of"]) if job.get("guest_of") else ""


def _metric(name: str, job: Job) -> str:
    found = job.get("metrics") or {}
    return fmt.number(found[name]) if name in found else ""


def _shown_id(job: Job, short: bool) -> str:
    shown = fmt.suffix(str(job["id"])) if short else str(job["id"])
    return f"{shown} [{job['jobs']}]" if job.get("is_array") else shown


def note(job: Job, now: datetime) -> str:
    """Why it stands as it does; of a trial run, that it is one."""
    if job.get("is_array"):
        return arrays.counts(job)
    return " · ".join(
        words for words in ("smoke" if job.get("smoke") else "", _reason(job, now)) if words
    )


def _reason(job: Job, now: datetime) -> str:
    if job["state"] == "unknown" and not fmt.is_over(job):
        return job_text.heard_words(job, now)
    if job["state"] in ("failed", "stopped", "held", "unknown"):
        cause = job.get("cause") or {}
        return str(cause.get("text") or "") or _end(job)
    if job["state"] == "running":
        return health_text.health_words(job, now)
    return job_text.waiting_words(job.get("waiting") or {}, now)


def _end(job: Job) -> str:
    if job.get("exit_code") is None and job.get("signal") is None:
        return ""
    return fmt.exit_words(job.get("exit_code"), job.get("signal"))


def _common_metrics(jobs: list[Job]) -> list[str]:
    """The metrics that most jobs have, so that a column says something about many rows."""
    counts: dict[str, int] = {}
    for job in jobs:
        for name in job.get("metrics") or {}:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])[:_METRICS_MAX]


def _painted(text: str, out: Output) -> str:
    return out.style(text, fmt.STATE_COLOURS.get(text.strip(), "0"))

"""`hw ls`: the jobs, newest first. What is equal for all of them is said once, above the table."""

from datetime import UTC, datetime
from typing import Any, Final

from headway.views import format as fmt
from headway.views import summary, table
from headway.views.cli import arrays, selection
from headway.views.cli.dispatch import Call
from headway.views.terminal import BOLD, DIM, Output

_LIMIT: Final = 50  # in a terminal; a pipe gets all
_METRICS_MAX: Final = 4
Job = dict[str, Any]


def command(call: Call) -> int:
    if call.words or call.after:
        from headway.model.errors import UsageError

        raise UsageError("hw ls takes options only", f"to see one job: hw q {call.words[0] if call.words else 'ID'}")
    source, out = call.source(), call.terminal.out
    limit = call.get("limit") or (_LIMIT if out.is_tty and not call.as_json else None)
    jobs = selection.find(call, source, limit=limit, fold=not call.as_json, brief=not call.as_json)
    if call.as_json:
        call.terminal.put_json(jobs)
        return 0
    if call.get("array"):
        jobs.sort(key=lambda job: job.get("array_index") or 0)
    if not jobs:
        chosen = any(call.get(key) for key in (*selection.KEYS, "array"))
        call.terminal.say("no job matches" if chosen else "no jobs yet; to run one: hw run python train.py")
        return 0
    out.write("\n".join(listing(jobs, out, datetime.now(UTC))) + "\n")
    if call.get("limit") is None and limit is not None and len(jobs) == limit:
        call.terminal.say(f"the newest {limit}; for more: hw ls --limit 500")
    return 0


def listing(jobs: list[Job], out: Output, now: datetime) -> list[str]:
    metrics = _common_metrics(jobs)
    short = out.is_tty  # a terminal shows the part that one types; a file or a pipe gets whole ids
    columns = [
        table.Column("id", keep=table.ALWAYS), table.Column("name", factor=True, keep=int(short)),
        table.Column("index", right=True, factor=True), table.Column("state", keep=table.ALWAYS),
        table.Column("elapsed", right=True, keep=1), table.Column("submitted"),
        *(table.Column(out.safe(name), right=True, limit=16) for name in metrics),
        table.Column("parameters", factor=True),
        table.Column("experiment", factor=True), table.Column("cluster", factor=True),
        table.Column("host", factor=True),
        table.Column("GPUs", right=True, factor=True, said="{} GPUs"), table.Column("tags", factor=True),
        table.Column("note", keep=1),
    ]  # fmt: skip
    cells = [_safe(column, out) for column in _cells(jobs, metrics, now, short)]
    rows = list(zip(*cells, strict=True))
    above, lines = table.layout(columns, rows, out.columns, {"state": lambda text: _painted(text, out)})
    head = out.style(lines[0], BOLD)
    return [*([out.style(above, DIM)] if above else []), head, *lines[1:]]


def _safe(cells: list[str], out: Output) -> list[str]:
    """A column for the terminal. Most have few words in many rows, and each is looked at once."""
    seen = {cell: out.safe(cell) for cell in dict.fromkeys(cells)}
    return [seen[cell] for cell in cells]


def _cells(jobs: list[Job], metrics: list[str], now: datetime, short: bool) -> list[list[str]]:
    """By column, in their order."""
    return [
        [_shown_id(job, short) for job in jobs],
        [str(job.get("name") or "") if short else "" for job in jobs],
        ["" if job.get("array_index") is None else str(job["array_index"]) for job in jobs],
        [str(job["state"]) for job in jobs],
        [fmt.clock(job.get("elapsed_s")) for job in jobs],
        [fmt.local_time(job.get("submitted_at"), now) for job in jobs],
        *([_metric(job, name) for job in jobs] for name in metrics),
        [" ".join(f"{name}={value}" for name, value in (job.get("parameters") or {}).items()) for job in jobs],
        [str(job.get("experiment") or "") for job in jobs],
        [str(job.get("cluster") or "") for job in jobs],
        [str(job.get("host") or job["guest_of"]) if job.get("guest_of") else "" for job in jobs],
        [str(job.get("gpus") or "") for job in jobs],
        [", ".join(str(tag) for tag in job.get("tags") or []) for job in jobs],
        [note(job, now) for job in jobs],
    ]


def _metric(job: Job, name: str) -> str:
    found = job.get("metrics") or {}
    return fmt.number(found[name]) if name in found else ""


def _shown_id(job: Job, short: bool) -> str:
    shown = fmt.suffix(str(job["id"])) if short else str(job["id"])
    return f"{shown} [{job['jobs']}]" if job.get("is_array") else shown


def note(job: Job, now: datetime) -> str:
    """Why it stands as it does; of a trial run, that it is one."""
    if job.get("is_array"):
        return arrays.counts(job)
    return " · ".join(words for words in ("smoke" if job.get("smoke") else "", _reason(job, now)) if words)


def _reason(job: Job, now: datetime) -> str:
    """An unknown state always has its age (P8)."""
    if job["state"] == "unknown":
        return f"last heard {fmt.duration(fmt.age_s(job.get('state_since'), now))} ago"
    if job["state"] in ("failed", "stopped", "held"):
        cause = job.get("cause") or {}
        return str(cause.get("text") or "") or _end(job)
    return summary.waiting_words(job.get("waiting") or {}, now)


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

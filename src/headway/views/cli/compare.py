"""`hw compare`: many jobs side by side. Config keys that differ are columns, those that are equal
are said once; of each metric the best value is shown, and the best of all is marked.
"""

from pathlib import Path
from typing import Final

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source
from headway.views.cli import references, selection
from headway.views.cli.dispatch import Call
from headway.views.text import comparison, csv_text, html_table, importance_text, table
from headway.views.text import format as fmt
from headway.views.text.comparison import MARK, Cell, Grid
from headway.views.text.terminal import BOLD, DIM, GREEN

_TABLE_METRICS_MAX: Final = 8  # in a table of text; JSON has more
_EQUAL_LINES: Final = 3  # of a terminal, for what is equal
_FORMS: Final = ("json", "csv", "md", "html")
Answer = JsonObject


def command(call: Call) -> int:
    check(call)
    if call.get("importance"):
        return _show_importance(call)
    answer = ask(call, call.source(), metrics_max=None if call.as_json else _TABLE_METRICS_MAX)
    last = bool(call.get("final"))
    if not answer["jobs"]:
        call.terminal.say("hw: no job matches; hw ls shows the jobs")
        if call.as_json:
            call.terminal.put_json(answer)
        return 0
    jobs = comparison.sort(answer, _job_sort(call, answer), last=last)
    if call.get("group"):
        keys = comparison.group_keys(answer, call.get("group"))
        groups = comparison.grouped(answer, keys, jobs, last=last)
        groups = comparison.sort_groups(answer, groups, call.get("sort"))
        answer["groups"] = [comparison.group_object(group) for group in groups]
        groups = groups[: call.get("limit")]
        rows = comparison.groups_csv(answer, keys, groups)
        grid = comparison.groups_grid(answer, keys, groups, last=last)
    else:
        jobs = jobs[: call.get("limit")]
        answer["jobs"] = jobs
        rows = comparison.jobs_csv(answer, jobs)
        short = call.terminal.out.is_tty and not any(call.get(form) for form in _FORMS)
        grid = comparison.jobs_grid(answer, jobs, short=short, last=last)
    if call.get("csv"):
        call.terminal.out.write(csv_text.to_csv(rows))
    else:
        _put(call, answer, grid)
    return 0


def _job_sort(call: Call, answer: Answer) -> str | None:
    """Groups may be sorted by what their jobs cannot."""
    key: str | None = call.get("sort")
    if call.get("group") and key is not None and key.removeprefix("-") in answer["metrics"]:
        return None
    return key


def check(call: Call) -> None:
    selecting = [key for key in selection.KEYS if key != "state"]  # a state alone is no selection
    is_chosen = bool(call.words) or any(call.get(key) for key in selecting)
    if call.after or not is_chosen:
        raise UsageError(
            f"hw {call.command.name} needs ids or a selection",
            f"for example: hw {call.command.name} -e EXPERIMENT; hw ls shows the jobs",
        )

    forms = [form for form in _FORMS if call.get(form)]
    if len(forms) > 1:
        raise UsageError(
            "--json, --csv, --md and --html are different answers", "ask for one of them"
        )

    bounds = [bound for bound in ("min", "max") if call.get(bound)]
    if len(bounds) > 1:
        raise UsageError("--min and --max are different questions", "keep one of them")
    if bounds and not call.get("metrics"):
        raise UsageError("--min and --max are about a metric", "name it: -m val/acc --max")


def wanted(call: Call) -> str | None:
    if call.get("min"):
        return "min"
    return "max" if call.get("max") else None


def body_of(call: Call, source: Source) -> JsonObject:
    """What the call chooses, for the server."""
    body = {
        "ids": references.several(call, source) if call.words else [],
        "state": selection.states_of(call) or call.get("status") or [], "cluster": call.get("cluster"),
        "experiment": call.get("experiment"), "since": call.get("since_s"), "match": call.get("match"),
        "where": call.get("where"), "name": call.get("metrics") or [], "want": wanted(call),
    }  # fmt: skip
    return body


def ask(call: Call, source: Source, metrics_max: int | None = None) -> Answer:
    body = body_of(call, source)
    if metrics_max is not None:
        body["metrics_max"] = metrics_max
    answer: Answer = source.post("/api/compare", body, again=True)
    _check_metrics(call, answer)
    return answer


def _check_metrics(call: Call, answer: Answer) -> None:
    """A metric that no job has is a mistake of typing, not an empty column."""
    if not answer["jobs"]:
        return
    for name in call.get("metrics") or []:
        if not any(name in job["metrics"] for job in answer["jobs"]):
            call.terminal.say(
                f"hw: none of {fmt.plural(len(answer['jobs']), 'job')} has a metric "
                f'"{call.terminal.err.safe(name)}"; hw metrics ID lists those of a job'
            )


def _show_importance(call: Call) -> int:
    names = call.get("metrics") or []
    if len(names) != 1:
        raise UsageError("--importance is asked for one metric", "for example: -m val/acc")
    source = call.source()
    answer: Answer = source.post("/api/compare/importance", body_of(call, source), again=True)
    if call.as_json:
        call.terminal.put_json(answer)
        return 0
    if not answer["keys"]:
        raise HeadwayError(
            f"{fmt.plural(answer['jobs'], 'job')} with a value of {names[0][:60]!r} cannot tell "
            "which config keys mattered",
            "it takes four jobs or more, and keys with the same value in several of them",
        )
    grid = importance_text.grid(answer)
    if call.get("csv"):
        names_of = list(answer["keys"][0])
        rows = [[str(key[name]) for name in names_of] for key in answer["keys"]]
        call.terminal.out.write(csv_text.to_csv([names_of, *rows]))
    elif call.get("md"):
        call.terminal.out.write(comparison.markdown(grid))
    elif call.get("html"):
        title = f"what mattered for {answer['metric']}"
        write_page(call, html_table.render(title, [importance_text.METHOD], grid))
    else:
        out = call.terminal.out
        way = "highest" if answer["direction"] == "max" else "lowest"
        said = f"{answer['metric']}, {way} of each of {fmt.plural(answer['jobs'], 'job')}"
        out.write(out.style(out.safe(said), DIM) + "\n")
        out.write("\n".join(lines(call, grid)) + "\n")
        call.terminal.say(importance_text.METHOD)
    return 0


# -- forms


def _put(call: Call, answer: Answer, grid: Grid) -> None:
    out = call.terminal.out
    if call.as_json:
        call.terminal.put_json(answer)
    elif call.get("md"):
        out.write(comparison.markdown(grid))
    elif call.get("html"):
        write_page(call, html_table.render(_title(call, answer), _words(answer), grid))
    else:
        _put_table(call, answer, grid)


def write_page(call: Call, page: str) -> None:
    if call.get("html") == "-":
        call.terminal.out.write_bytes(page.encode())
        return
    path = Path(call.get("html"))
    path.write_text(page, "utf-8")
    call.terminal.say(f"written to {call.terminal.err.safe(str(path))}")


def _title(call: Call, answer: Answer) -> str:
    what = call.get("experiment") or fmt.plural(len(answer["jobs"]), "job")
    return f"{what}: jobs side by side"


def _words(answer: Answer) -> list[str]:
    equal = " ".join(
        f"{key}={comparison.config_text(value)}" for key, value in answer["equal"].items()
    )
    return [fmt.plural(len(answer["jobs"]), "job"), f"equal: {equal}" if equal else ""]


def _put_table(call: Call, answer: Answer, grid: Grid) -> None:
    out = call.terminal.out
    count, equal = _words(answer)
    above = " · ".join(words for words in (count, equal) if words)
    if out.columns is not None:
        above = table.fit(above, out.columns * _EQUAL_LINES)
    out.write(out.style(out.safe(above), DIM) + "\n")
    out.write("\n".join(lines(call, grid)) + "\n")
    left_out = answer["metrics_left_out"]
    if left_out:
        call.terminal.say(f"and {fmt.plural(left_out, 'further metric')}: -m NAME, or --json")
    if answer["jobs_left_out"]:
        call.terminal.say(
            f"and {fmt.plural(answer['jobs_left_out'], 'further job')}: choose with --where"
        )


def lines(call: Call, grid: Grid) -> list[str]:
    out = call.terminal.out
    columns = []
    for title, right, kept in zip(grid.titles, grid.numeric, grid.kept, strict=True):
        columns.append(
            table.Column(
                out.safe(title), right=right, factor=title != "id",
                keep=table.ALWAYS if title == "id" else int(kept), limit=32,
            )
        )  # fmt: skip
    rows = [[_shown(cell, out.safe(cell.text)) for cell in row] for row in grid.rows]
    best = f"{BOLD};{GREEN}"

    def paint(text: str) -> str:
        return out.style(text, best) if text.lstrip().startswith(MARK) else text

    painters = {column.title: paint for column in columns} if out.color else None
    above, laid = table.layout(columns, rows, out.columns, painters)
    head = out.style(laid[0], BOLD)
    hidden = [
        column.title
        for column in columns
        if column.title not in laid[0] and f"{column.title} " not in above
    ]
    if hidden and out.columns is not None:
        call.terminal.say(
            f"not shown for want of room: {', '.join(hidden[:12])}; --csv or --html has all"
        )
    return [*([out.style(above, DIM)] if above else []), head, *laid[1:]]


def _shown(cell: Cell, text: str) -> str:
    return f"{MARK}{text}" if cell.is_best else text

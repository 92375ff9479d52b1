"""`hw why ID --ledger`, `hw why -e EXPERIMENT --ledger`: where the time went. Called by `why.py`."""

from collections.abc import Iterator

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD, Output

BAR_CELLS = 30


def command(call: Call) -> int:
    source = call.source()
    experiment = call.get("experiment")
    if experiment and call.words:
        raise UsageError("a job or an experiment, not both", "hw why -e EXPERIMENT --ledger")
    if experiment:
        found = source.get("/api/ledger", [("experiment", experiment)])
    else:
        found = source.get(job_route(references.one(call, source), "ledger"))
    if call.as_json:
        call.terminal.put_json(found)
    else:
        out = call.terminal.out
        out.write("\n".join(page(found, out)) + "\n")
    return 0


def page(found: JsonObject, out: Output) -> Iterator[str]:
    jobs = f", {fmt.plural(found['jobs'], 'job')}" if found["jobs"] != 1 else ""
    yield f"{out.style(out.safe(found['id']), BOLD)}{jobs}: {fmt.duration(found['total_s'])} in all"
    total = found["total_s"] or 1.0
    for name, seconds in found["parts"].items():
        share = seconds / total
        bar = "█" * round(share * BAR_CELLS)
        yield f"  {name:<16} {fmt.duration(seconds):>12}  {share:>5.0%}  {bar}".rstrip()
    for line in found["requests"]:
        yield f"  {out.safe(line)}"

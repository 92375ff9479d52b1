"""`hw gc`: free the space of deleted jobs, and of ended ones that are older than asked for."""

import sys

from headway.model.errors import HeadwayError, UsageError
from headway.views import format as fmt
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    if call.words or call.after:
        raise UsageError("hw gc takes options only", f"usage: {call.command.usage}")
    source = call.source()
    older_s = call.get("older_than_s")
    body = {"older_than_days": None if older_s is None else older_s / 86_400}
    dry = bool(call.get("dry_run"))
    if older_s is not None and not dry and not call.get("yes"):
        _ask(call, source.post("/api/gc", {**body, "dry_run": True}))
    found = source.post("/api/gc", {**body, "dry_run": dry})
    if call.as_json:
        call.terminal.put_json(found)
    else:
        verb = "would remove" if dry else "removed"
        snapshots = int(found.get("snapshots") or 0)
        code = f" and {fmt.plural(snapshots, 'code snapshot')}" if snapshots else ""
        call.terminal.put(f"{verb} {fmt.plural(int(found['jobs']), 'job')}{code}, {fmt.size(found['bytes'])}")
    return 0


def _ask(call: Call, would: dict[str, int]) -> None:
    """Old jobs were not deleted by anybody yet, so this is asked."""
    what = f"{fmt.plural(int(would['jobs']), 'job')} with {fmt.size(would['bytes'])}"
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(f"this would remove {what}, and there is nobody to ask", "to do it anyway: --yes")
    call.terminal.err.write(f"remove {what} for good? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise HeadwayError("nothing was done")

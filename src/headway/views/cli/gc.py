"""`hw gc`: free the space of deleted jobs, of ended ones that are older than asked for, and of code
and data that no job and files that no artifact needs, here and in the folders of the clusters that are configured.
"""

import sys
from collections.abc import Iterator

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt


def command(call: Call) -> int:
    if call.words or call.after:
        raise UsageError("hw gc takes options only", f"usage: {call.command.usage}")
    source = call.source()
    older_s = call.get("older_than_s")
    body: JsonObject = {"older_than_days": None if older_s is None else older_s / 86_400}
    clusters = _clusters()
    if clusters:
        body["clusters"] = clusters
    dry = bool(call.get("dry_run"))
    is_sure = dry or bool(call.get("yes"))
    if older_s is not None and not is_sure:
        _ask(call, source.post("/api/gc", {**body, "dry_run": True}))

    found = source.post("/api/gc", {**body, "dry_run": dry})
    if call.as_json:
        call.terminal.put_json(found)
        return 0
    verb = "would remove" if dry else "removed"
    for line in _lines(found, verb):
        call.terminal.put(call.terminal.out.safe(line))
    return 0


def _clusters() -> JsonObject:
    """The server does not read this project's settings."""
    from pathlib import Path

    from headway.settings.layers import load

    return dict(load(Path.cwd()).get("clusters"))


def _lines(found: JsonMapping, verb: str) -> Iterator[str]:
    what = [fmt.plural(int(found["jobs"]), "job"), *_kept(found)]
    yield f"{verb} {_listed(what)}, {fmt.size(found['bytes'])}"
    for row in found.get("clusters") or []:
        if row["error"]:
            yield f"cluster {row['cluster']}: nothing removed: {row['error']}"
        elif parts := _kept(row):
            yield f"cluster {row['cluster']}: {verb} {_listed(parts)}, {fmt.size(row['bytes'])}"


def _kept(row: JsonMapping) -> list[str]:
    """Code and data, as far as there is some."""
    names = {"snapshots": "code snapshot", "folders": "fetched folder"}
    kept = [fmt.plural(int(row[key]), name) for key, name in names.items() if row.get(key)]
    if row.get("artifact_bytes"):
        kept.append("unused files of artifacts")
    return kept


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _ask(call: Call, would: JsonMapping) -> None:
    """Old jobs were not deleted by anybody yet, so this is asked."""
    what = f"{fmt.plural(int(would['jobs']), 'job')} with {fmt.size(would['bytes'])}"
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            f"this would remove {what}, and there is nobody to ask", "to do it anyway: --yes"
        )
    call.terminal.err.write(f"remove {what} for good? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise HeadwayError("nothing was done")

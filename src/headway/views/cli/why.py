"""`hw why ID`: why a job waits, or what its attempts ended of (capability 38)."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from headway.model.json_types import JsonObject
from headway.views.api.source import job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import health_text
from headway.views.text.terminal import BOLD, DIM, Output

AHEAD_MAX, NODES_MAX = 5, 16
_HERE = ("up", "idle", "mixed", "allocated", "idle+planned", "mixed+planned")
_SINCE = re.compile(r" \[\S+@\S+\]\Z")  # who took it away, and when: hw clusters -v has it


def command(call: Call) -> int:
    # a code or a signal alone is looked up
    only_end = call.get("exit_code") is not None or call.get("signal") is not None
    if call.get("logs") or (only_end and not call.words):
        from headway.views.cli import why_logs

        return why_logs.command(call)
    if call.get("ledger"):
        from headway.views.cli import ledger

        return ledger.command(call)
    source = call.source()
    found: JsonObject = source.get(job_route(references.one(call, source), "why"))
    if call.as_json:
        call.terminal.put_json(
            {
                key: found[key]
                for key in (
                    "id",
                    "state",
                    "verdict",
                    "findings",
                    "hypotheses",
                    "seen_before",
                    "signs",
                    "waiting",
                )
            }
        )
    else:
        out = call.terminal.out
        out.write("\n".join(listing(found, out)) + "\n")
    return 0


def listing(found: JsonObject, out: Output) -> Iterator[str]:
    name, state = out.style(out.safe(found["id"]), BOLD), found["state"]
    waiting = found["waiting"]
    if waiting is not None:
        where = (
            f"{found['cluster']} ({found['engine']})"
            if found["engine"] != found["cluster"]
            else found["cluster"]
        )
        since = "" if found["since_s"] is None else f" for {fmt.duration(found['since_s'])}"
        yield f"… {name} waits on {out.safe(where)}{since}: {out.safe(found['verdict'])}"
        yield from _waiting(found["needs"], waiting, out)
        ended = [one for one in found["findings"] if not str(one["cause"]).startswith("waits_")]
        yield from _attempts(ended, out)
        return
    # What an attempt ended of says nothing about one that runs, or that has come through since.
    verdict = found["verdict"] if state not in ("running", "succeeded") else None
    if state == "running":
        yield from _running(found, out)
        return
    mark = fmt.STATE_MARKS.get(state, "?")
    last, *before = found["findings"] or [None]
    kind = f"   {out.style(_kind(last, out), DIM)}" if last and verdict else ""
    yield f"{mark} {name} {state}" + (f": {out.safe(verdict)}" if verdict else "") + kind
    if last and verdict:
        several = (found["needs"] or {}).get("processes", 1) > 1
        yield from _finding(last, several, out)
        yield from _others(found.get("hypotheses") or [], out)
        yield from _seen_before(found.get("seen_before"), out)
    elif last:
        before = [last, *before]
    yield from _attempts(before, out)
    if not found["findings"] and state == "succeeded":
        yield "  nothing is wrong with it, as far as is known"


def _running(found: JsonObject, out: Output) -> Iterator[str]:
    """What was found of a job that runs; else since when it gave no sign, and never that all is well
    beside a silence.
    """
    now, signs = datetime.now(UTC), found.get("signs")
    current = [one for one in found["findings"] if one.get("since")]
    earlier = [one for one in found["findings"] if not one.get("since")]
    for one in current:
        first, *rest = health_text.finding_lines(found["id"], one, signs, now, out)
        yield f"✗ {first}"
        yield from rest
    if not current:
        yield f"{fmt.STATE_MARKS.get('running', '?')} {out.style(out.safe(found['id']), BOLD)} running"
        silent = signs is not None and signs["silent_s"] >= health_text.SILENT_SHOWN_S
        if signs is not None and silent:
            yield f"  silent    {health_text.sign_words(signs, now)}"
            if signs["moving"]:
                yield f"            it moves all the same: {out.safe(signs['moving'])}"
            else:
                limit = fmt.duration(signs["limit_s"])
                yield f"            looked at closer once it has been silent for {limit}"
            yield f"  next      hw stacks {out.safe(fmt.suffix(found['id']))}"
        elif not earlier:
            yield "  nothing is wrong with it, as far as is known"
    yield from _attempts(earlier, out)


def _attempts(findings: Sequence[JsonObject], out: Output) -> Iterator[str]:
    for one in findings:
        who = "" if one["rank"] is None else f", rank {one['rank']}"
        words = f"  attempt {one['attempt']}{who}: {out.safe(one['text'] or '')}"
        yield f"{words}   {out.style(_kind(one, out), DIM)}"
        if one.get("retry"):
            yield f"    then    {out.safe(str(one['retry']))}"


def _kind(finding: JsonObject, out: Output) -> str:
    words = [finding["class"], finding["cause"]]
    if (finding["confidence"] or 1.0) < 1.0:
        words.append(f"{finding['confidence']:.0%} sure")
    return out.safe(" · ".join(str(word) for word in words if word not in (None, "unknown")))


def _finding(finding: JsonObject, several: bool, out: Output) -> Iterator[str]:
    """Who, evidence that can be checked, what to do."""
    if finding["rank"] is not None and several:
        where = f" on {finding['node']}" if finding.get("node") else ""
        yield f"  {'first':<9} rank {finding['rank']}{out.safe(where)}, attempt {finding['attempt']}"
    for number, line in enumerate(finding["evidence"]):
        place = str(line["stream"]) + (f":{line['line']}" if line.get("line") else "")
        label = "" if number else "evidence"
        text = out.safe(str(line["text"]).strip())
        yield f"  {label:<9} {out.style(out.safe(place), DIM)}  {text}"
    if finding.get("advice"):
        yield f"  {'next':<9} {out.safe(str(finding['advice']))}"
    if finding.get("retry"):
        yield f"  {'retry':<9} {out.safe(str(finding['retry']))}"


def _others(hypotheses: Sequence[JsonObject], out: Output) -> Iterator[str]:
    for number, one in enumerate(hypotheses):
        label = "" if number else "perhaps"
        yield f"  {label:<9} {one['cause']} ({one['confidence']:.0%}): {out.safe(str(one['text']))}"


def _seen_before(seen: JsonObject | None, out: Output) -> Iterator[str]:
    """How often the same failure was seen, where, and which job got past it."""
    if not seen:
        return
    count, names = seen["count"], [fmt.suffix(one) for one in seen["jobs"]]
    times = "once" if count == 1 else f"{count} times"
    more = " and others" if count > len(names) else ""
    yield f"  {'seen':<9} {times} before: {out.safe(', '.join(names))}{more}"
    if seen.get("came_through"):
        first, good = names[0], fmt.suffix(seen["came_through"])
        words = f"{good} came through after it: hw diff {first} {good}"
        yield f"  {'':<9} {out.safe(words)}"


def _waiting(needs: JsonObject, waiting: JsonObject, out: Output) -> Iterator[str]:
    yield from _rows("needs", [waiting["needs"] or _asked(needs)], out)
    shown = waiting["free"][:NODES_MAX]
    free = " · ".join(_nodes(shown)) + _and_more(len(waiting["free"]) - len(shown))
    yield from _rows("free", [line for line in (free, waiting["fit"]) if line], out)
    yield from _rows("limit", waiting["limits"], out)
    if waiting["ahead"]:
        ids = [fmt.suffix(job) if "-" in job else job for job in waiting["ahead"]]
        names = list(waiting["ahead_words"] or ids)[:AHEAD_MAX]
        more = _and_more(len(waiting["ahead"]) - len(names))
        yield from _rows("ahead", [", ".join(names) + more], out)
    if waiting["start"]:
        yield from _rows("start", [waiting["start"]], out)
    yield from _rows("sooner", waiting["sooner"], out)


def _and_more(count: int) -> str:
    return f" and {count} more" if count else ""


def _rows(name: str, lines: Sequence[str], out: Output) -> Iterator[str]:
    """The name stands before the first line."""
    for number, line in enumerate(lines):
        yield f"  {'' if number else name:<8} {out.safe(line)}"


def _asked(needs: JsonObject) -> str:
    asked = [
        fmt.plural(needs["gpus"], "GPU")
        if needs["gpus"]
        else fmt.plural(needs["processes"], "process")
    ]
    if needs["nodes"] and needs["nodes"] > 1:
        asked.append(f"{needs['nodes']} nodes")
    if needs["cpus"]:
        asked.append(fmt.plural(needs["cpus"], "CPU"))
    if needs["memory_bytes"]:
        asked.append(fmt.size(needs["memory_bytes"]))
    if needs["max_duration_s"]:
        asked.append(fmt.duration(needs["max_duration_s"]))
    return ", ".join(asked)


def _nodes(nodes: Sequence[JsonObject]) -> list[str]:
    """What each has; those that are away for the same reason together: `node1, node2 none
    (idle+drain fan broken)`.
    """
    found = [_node(node) for node in nodes if not _is_away(node)]
    away: dict[str, list[str]] = {}
    for node in nodes:
        if _is_away(node):
            away.setdefault(_SINCE.sub("", node["state_word"]), []).append(str(node["name"]))
    return found + [f"{', '.join(names)} none ({why})" for why, names in away.items()]


def _is_away(node: JsonObject) -> bool:
    return node["state_word"] not in _HERE and not (
        node["gpus"] or node["cpus"] or node["memory_bytes"]
    )


def _node(node: JsonObject) -> str:
    parts = [f"{node['gpus']} GPU"] if node["gpus"] or node["gpu_source"] == "slurm" else []
    parts += [f"{node['cpus']} CPU"] if node["cpus"] is not None else []
    parts += [fmt.size(node["memory_bytes"])] if node["memory_bytes"] is not None else []
    down = "" if node["state_word"] in _HERE else f" ({node['state_word']})"
    return f"{node['name']} {' '.join(parts)}{down}"

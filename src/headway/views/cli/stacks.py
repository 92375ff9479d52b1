"""`hw stacks ID`: where every rank stands now, merged: equal stacks once, the odd ones first."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.rank_set import rank_set
from headway.views.api.source import Source, job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD, DIM, Output

WATCH_S = 1.0
CHILDREN_SHOWN = 8
Answer = JsonObject


def command(call: Call) -> int:
    if call.get("last") and (call.get("watch") or call.get("native")):
        raise UsageError("--last shows what was kept", "leave --watch and --native out")
    source = call.source()
    ref = references.one(call, source)
    if not call.get("watch"):
        _show(call, fetch(call, source, ref))
        return 0
    while True:
        _show(call, fetch(call, source, ref), watching=True)
        time.sleep(WATCH_S)


def fetch(call: Call, source: Source, ref: str) -> Answer:
    if call.get("last"):
        found = source.get(job_route(ref, "stacks"))
        if found is None:
            raise NotFoundError(f"no stacks of {ref} were kept", f"while it runs: hw stacks {ref}")
    else:
        found = source.post(
            job_route(ref, "stacks"), {"native": bool(call.get("native"))}, wait_s=10.0
        )
    rank = call.get("rank")
    if rank is not None and rank not in found["ranks"]:
        known = rank_set(found["ranks"]) or "none"
        raise NotFoundError(f"{found['id']} has no rank {rank}", f"its ranks: {known}")
    return dict(found)


def _show(call: Call, found: Answer, *, watching: bool = False) -> None:
    rank = call.get("rank")
    if call.as_json:
        call.terminal.put_json(found if rank is None else one_rank(found, rank))
        return
    out = call.terminal.out
    if watching and out.is_tty:
        out.control("\x1b[H\x1b[2J")
    lines = page(found, out) if rank is None else rank_page(found, rank, out)
    out.write("\n".join(lines) + "\n")


def one_rank(found: Answer, rank: int) -> Answer:
    """The same answer, with what concerns this rank."""

    def of_rank(groups: Sequence[Answer]) -> list[Answer]:
        return [group | {"ranks": [rank]} for group in groups if rank in group["ranks"]]

    return found | {
        "groups": of_rank(found["groups"]),
        "others": of_rank(found["others"]),
        "odd": [one for one in found["odd"] if one == rank],
        "missing": [one for one in found["missing"] if one == rank],
        "missing_why": [one for one in found["missing_why"] if one["rank"] == rank],
    }


def head(found: Answer, out: Output) -> Iterator[str]:
    count = fmt.plural(len(found["ranks"]), "rank")
    name = out.style(out.safe(found["id"]), BOLD)
    if found["time"] is None:
        yield f"{name}  no stacks: none of its agents answered"
        return
    when = fmt.local_time(found["time"], datetime.now(UTC))
    way = {"signal": "asked by signal", "py-spy": "read by py-spy"}
    how = " and ".join(way.get(one, one) for one in (found["how"] or "").split(", ") if one)
    took = f" in {found['took_s'] * 1000:.0f} ms" if found["took_s"] else ""
    yield f"{name}  {count} at {when}{', ' + how if how else ''}{took}"
    if found["verdict"]:
        yield f"  {out.safe(found['verdict'])}"
    if found["silent_tasks"]:
        yield f"  no answer from the agent of {out.safe(', '.join(found['silent_tasks']))}"


def page(found: Answer, out: Output) -> Iterator[str]:
    yield from head(found, out)
    for one in found["missing_why"]:
        yield f"  {_missing(one, out)}"
    if found["tree"]:
        yield ""
        yield from _branches(found["tree"], "", rank_set(found["ranks"]), set(found["odd"]), out)
    children = [group for group in found["others"] if group["helper"]]
    if children:
        yield ""
    for group in children[:CHILDREN_SHOWN]:
        yield _line_of(group, out)
    rest = len(found["others"]) - len(children[:CHILDREN_SHOWN])
    if rest > 0:
        yield out.style(
            f"{fmt.plural(rest, 'other thread or process')} not shown: hw stacks "
            f"{fmt.suffix(found['id'])} --rank N",
            DIM,
        )


def rank_page(found: Answer, rank: int, out: Output) -> Iterator[str]:
    """All threads and processes of one rank."""
    shown = one_rank(found, rank)
    yield from head(shown, out)
    for one in shown["missing_why"]:
        yield f"  {_missing(one, out)}"
    for group in (*shown["groups"], *shown["others"]):
        yield ""
        what = f" ({group['helper']})" if group["helper"] else ""
        waits = f"  waits in {out.safe(group['waits'])}" if group["waits"] else ""
        yield out.style(f"rank {rank}, {out.safe(group['thread'])}{what}", BOLD) + waits
        for number, frame in enumerate(group["frames"]):
            text = group["source"] if number == 0 and group["source"] else ""
            yield _frame(frame, out) + (f"   {out.style(out.safe(text), DIM)}" if text else "")


def _missing(one: Answer, out: Output) -> str:
    state = [word for word in (one["state"], one["wchan"]) if word]
    facts = f"{out.safe(one['name'] or '?')}, pid {one['pid']}" + "".join(
        f", {out.safe(word)}" for word in state
    )
    return f"rank {one['rank']} has no stack: {out.safe(one['why'])} ({facts})"


def _line_of(group: Answer, out: Output) -> str:
    where = f"{group['waits']} " if group["waits"] else f"{group['frames'][0]['function']} "
    ranks = "rank" if len(group["ranks"]) == 1 else "ranks"
    return (
        f"{group['helper']} of {ranks} {rank_set(group['ranks'])} "
        f"(pid {', '.join(map(str, group['pids'][:4]))}): {out.safe(where + 'at ' + str(group['at']))}"
    )


def _branches(
    nodes: Sequence[Answer], indent: str, ranks: str, odd: set[int], out: Output
) -> Iterator[str]:
    """Calls that all have in common stand below each other; a fork is indented, with the ranks that
    went each way.
    """
    forks = len(nodes) > 1 or (nodes and nodes[0]["ranks"] != ranks)
    for node in nodes:
        inner = indent
        if forks:
            is_odd = odd and odd.issuperset(_numbers(node["ranks"]))
            mark = out.style("  odd", BOLD) if is_odd else ""
            yield f"{indent}┌ {out.style(node['ranks'], BOLD)}{mark}"
            inner = f"{indent}│ "
        waits = f"   waits: {out.safe(node['waits'])}" if node["waits"] else ""
        yield f"{inner}{_frame(node, out)}{waits}"
        yield from _branches(node["below"], inner, node["ranks"], odd, out)


def _numbers(ranks: str) -> set[int]:
    found: set[int] = set()
    for part in ranks.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _frame(frame: Answer, out: Output) -> str:
    place = out.style(out.safe(f"{frame['file']}:{frame['line']}"), DIM)
    return f"  {out.safe(frame['function'])}  {place}"

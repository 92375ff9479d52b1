"""`hw reproduce ID`: the same code, command and config again, and whether the same came out.

The code is restored from the job's snapshot, or from its commit with its uncommitted changes, into a
folder of its own. What else differs (packages, environment, hardware, data) is told from the records
of both runs, and the metric traces are compared step by step.
"""

import os
import time
from pathlib import Path
from typing import Final

from headway.model.errors import HeadwayError, RefusedError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli import references, submission
from headway.views.cli.dispatch import Call
from headway.views.text import code_diff, table, trace_match
from headway.views.text import format as fmt
from headway.views.text.file_names import file_name
from headway.views.text.terminal import BOLD, DIM, GREEN, RED
from headway.views.text.trace_match import Match

_TOLERANCE: Final = 0.01
_LOOK_S: Final = 0.3
_LOOK_MAX_S: Final = 2.0
_SETTLE_S: Final = 15.0  # for what the agent sends after the end: points, provenance
_SHOWN: Final = 12
_LEFT_OUT: Final = (".git", "__pycache__")
_PARTS: Final = ("packages", "environment", "hardware", "data", "node", "command", "config")
Job = JsonObject


def command(call: Call) -> int:
    source = call.source()
    old: Job = source.get(job_route(references.one(call, source)))
    if old["state"] not in fmt.ENDED:
        raise RefusedError(f"{old['id']} is {old['state']}", "reproduce it when it has ended")
    tolerance = _TOLERANCE if call.get("tolerance") is None else float(call.get("tolerance"))
    folder = _restore(call, source, old)
    new = submission.resubmit(source, call, old, cwd=None if folder is None else str(folder))
    call.terminal.say(call.terminal.err.safe(f"hw: {new['id']} runs it again"))
    new = _await_end(source, str(new["id"]))
    matches = _matches(call, source, old, new, tolerance)
    answer = source.get("/api/diff", [("ids", [old["id"], new["id"]])])
    differs = _differs(answer, restored=folder is not None)
    verdict, is_same = _verdict(old, new, matches, tolerance)
    if call.as_json:
        call.terminal.put_json(
            _object(old, new, verdict, is_same, matches, differs, folder, tolerance)
        )
    else:
        _show(call, old, new, verdict, is_same, matches, differs, tolerance)
    return 0 if is_same else 1


# -- code


def _restore(call: Call, source: Source, old: Job) -> Path | None:
    """The folder with the code as it was; None: the job runs from its own snapshot."""
    if old.get("code"):
        return None
    seen = source.get(job_route(old["id"], "provenance")) or {}
    git = seen.get("git") or {}
    side = {
        "id": old["id"], "cwd": old["cwd"], "snapshot": None, "commit": git.get("commit"),
        "patch": str(git.get("diff") or ""),
    }  # fmt: skip
    target = Path(call.get("output") or file_name(f"{old['id']}-again")).absolute()
    if target.exists():
        raise RefusedError(
            f"{target} is there already", "name another folder with -o, or remove it"
        )
    code_diff.lay_out(side, target)
    inside = _inside(old["cwd"])
    cwd = target / inside
    if not cwd.is_dir():
        raise HeadwayError(f"the commit has no folder {inside}, where the job ran")
    linked = _link_rest(Path(old["cwd"]), cwd)
    err = call.terminal.err
    call.terminal.say(err.safe(f"hw: the code of {str(git.get('commit'))[:12]} is in {target}"))
    if linked:
        names = ", ".join(linked[:8]) + (" …" if len(linked) > 8 else "")
        call.terminal.say(err.safe(f"    not part of the commit, linked as it is now: {names}"))
    return cwd


def _inside(cwd: str) -> str:
    """Where in its repository a folder lies."""
    top = code_diff.top_of(cwd)
    return "." if top is None else os.path.relpath(os.path.realpath(cwd), os.path.realpath(top))


def _link_rest(old: Path, new: Path) -> list[str]:
    """Data, environments and the like lie beside the code, in no commit."""
    linked = []
    for entry in sorted(old.iterdir()):
        if entry.name in _LEFT_OUT or entry.name.endswith("-again") or (new / entry.name).exists():
            continue
        (new / entry.name).symlink_to(entry)
        linked.append(entry.name)
    return linked


# -- run and compare


def _await_end(source: Source, job_id: str) -> Job:
    pause_s = _LOOK_S
    while True:
        job: Job = source.get(job_route(job_id))
        if job["state"] in fmt.ENDED:
            return job
        time.sleep(pause_s)
        pause_s = min(_LOOK_MAX_S, pause_s * 1.3)


def _matches(call: Call, source: Source, old: Job, new: Job, tolerance: float) -> list[Match]:
    """The last points may come a little after the end."""
    query = [("name", call.get("metrics"))]

    def traces(job: Job) -> trace_match.Series:
        return next(iter(source.get(job_route(job["id"], "metrics"), query).values()), {})

    before = traces(old)
    deadline = time.monotonic() + _SETTLE_S
    while True:
        matches = trace_match.compare(before, traces(new), tolerance)
        seen = source.get(job_route(new["id"], "provenance"))
        whole = seen is not None and all(match.missing == 0 for match in matches if match.counts)
        if whole or new["state"] != "succeeded" or time.monotonic() > deadline:
            return matches
        time.sleep(_LOOK_S)


def _differs(answer: JsonObject, *, restored: bool) -> dict[str, list[JsonObject]]:
    """What the records of both say is different, but for the folder that we made ourselves."""
    found = {}
    for part in _PARTS:
        changes = [one for one in answer[part] if not (restored and one["key"] == "cwd")]
        if changes:
            found[part] = changes
    return found


def _verdict(old: Job, new: Job, matches: list[Match], tolerance: float) -> tuple[str, bool]:
    judged = [match for match in matches if match.counts]
    if new["state"] != old["state"]:
        return f"not reproduced: {new['id']} {new['state']}, {old['id']} {old['state']}", False
    if not judged:
        return f"ended alike ({new['state']}), and no metrics were logged to compare", True
    steps = sum(match.points for match in judged)
    words = f"{fmt.plural(len(judged), 'metric')}, {steps:,} points"
    wrong = [match for match in judged if not match.is_same(tolerance)]
    if not wrong:
        if all(match.worst == 0 for match in judged):
            return f"reproduced to the last bit: {words}", True
        worst = max(match.worst for match in judged)
        return f"reproduced within {tolerance:g}: {words}, at most {worst:.2g} apart", True
    first = max(wrong, key=lambda match: (match.points > 0, match.worst))
    if not first.points or first.first_step is None:
        return (
            f"not reproduced: {first.name} has {first.missing} steps that only one of them has",
            False,
        )
    a, b = first.last
    return (
        f"not reproduced: {len(wrong)} of {fmt.plural(len(judged), 'metric')} differ by more than {tolerance:g}; "
        f"{first.name} first at step {first.first_step}, at the end {fmt.number(a)} then and {fmt.number(b)} now"
    ), False


# -- telling


def _object(
    old: Job, new: Job, verdict: str, is_same: bool, matches: list[Match], differs: JsonObject,
    folder: Path | None, tolerance: float,
) -> JsonObject:  # fmt: skip
    def plain(value: float | None) -> float | str | None:
        return value if value is None or value - value == 0 else str(value)

    return {
        "id": old["id"], "again": new["id"], "reproduced": is_same, "verdict": verdict, "tolerance": tolerance,
        "folder": None if folder is None else str(folder), "differs": differs,
        "metrics": [
            {
                "name": match.name, "points": match.points, "missing": match.missing, "equal": match.equal,
                "worst": plain(match.worst), "first_step": match.first_step,
                "last": [plain(value) for value in match.last], "judged": match.counts,
            }
            for match in matches
        ],
    }  # fmt: skip


def _show(
    call: Call, old: Job, new: Job, verdict: str, is_same: bool, matches: list[Match],
    differs: dict[str, list[JsonObject]], tolerance: float,
) -> None:  # fmt: skip
    out = call.terminal.out
    color = GREEN if is_same else RED
    lines = [out.style(out.safe(verdict), f"{BOLD};{color}")]
    rows = []
    for match in matches[: _SHOWN if is_same else None]:
        judged = "" if match.counts else "of the clock, not judged"
        at = "" if match.first_step is None else str(match.first_step)
        rows.append(
            [
                match.name, str(match.points), f"{match.worst:.2g}", at, fmt.number(match.last[0]),
                fmt.number(match.last[1]), judged,
            ]
        )  # fmt: skip
    if rows:
        columns = [
            table.Column("metric", keep=table.ALWAYS), table.Column("points", right=True),
            table.Column("apart", right=True, keep=1), table.Column("from step", right=True),
            table.Column("then", right=True, keep=1), table.Column("now", right=True, keep=1), table.Column("note"),
        ]  # fmt: skip
        safe = [[out.safe(cell) for cell in row] for row in rows]
        lines += [f"  {line}" for line in table.layout(columns, safe, out.columns)[1]]
    for part, changes in differs.items():
        shown = [
            f"{one['key']} {one['values'][0]} → {one['values'][1]}" for one in changes[:_SHOWN]
        ]
        more = len(changes) - len(shown)
        text = f"  {part} differ: " + ", ".join(shown) + (f" and {more} more" if more else "")
        lines.append(out.safe(text))
    if not differs:
        lines.append(
            out.style("  code, command, packages, environment and node are as recorded", DIM)
        )
    lines.append(
        out.style(out.safe(f"  hw diff {fmt.suffix(old['id'])} {fmt.suffix(new['id'])}"), DIM)
    )
    out.write("\n".join(lines) + "\n")

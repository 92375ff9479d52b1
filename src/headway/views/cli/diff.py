"""`hw diff A B…`: what differs between jobs. Outcome first, then what most likely explains it, then
all of it by kind; `--code` shows the code that they ran as one diff.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.cli import compare, references
from headway.views.cli.dispatch import Call
from headway.views.text import code_diff, comparison, table
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD, DIM

_LIKELY_SHOWN: Final = 8
_CHANGES_SHOWN: Final = 20
_SECTIONS: Final = ("config", "command", "packages", "environment", "hardware", "data", "node")
Answer = JsonObject


def command(call: Call) -> int:
    if len(call.words) < 2 or call.after:
        raise UsageError("hw diff needs two jobs or more", f"usage: {call.command.usage}")
    metrics = call.get("metrics") or []
    if len(metrics) > 1:
        raise UsageError("hw diff goes by one metric", "keep one -m")
    source = call.source()
    ids = references.several(call, source)
    query = [
        ("ids", ids),
        ("metric", metrics[0] if metrics else None),
        ("want", compare.wanted(call)),
    ]
    answer: Answer = source.get("/api/diff", query)
    if call.get("tool"):
        return _run_tool(call, answer)
    if call.as_json:
        call.terminal.put_json(_contract(answer))
    elif call.get("code"):
        _page(call, answer)
    else:
        call.terminal.out.write("\n".join(_lines(call, answer)) + "\n")
    return 0


def _contract(answer: Answer) -> Answer:
    """As scripts get it: `code` is a text."""
    text, why = _code_text(answer)
    return {**answer, "code": text, "code_unknown": why}


# -- code


@contextmanager
def _folders(answer: Answer) -> Iterator[list[Path]]:
    """The code of each job, in a temporary folder of its id."""
    with tempfile.TemporaryDirectory(prefix="headway-diff-") as top:
        folders = []
        for side in answer["jobs"]:
            folder = Path(top) / str(side["id"])
            code_diff.lay_out(side, folder)
            folders.append(folder)
        yield folders


def _code_text(answer: Answer, *, color: bool = False) -> tuple[str, str | None]:
    """The diff of each job against the first, and why there is none."""
    if answer["code_differs"] is False:
        return "", None
    try:
        with _folders(answer) as folders:
            first, *others = folders
            return "".join(code_diff.unified(first, other, color=color) for other in others), None
    except code_diff.UnknownCode as error:
        return "", error.message


def _page(call: Call, answer: Answer) -> None:
    out = call.terminal.out
    text, why = _code_text(answer)
    if why is not None:
        raise HeadwayError(why, "hw diff without --code shows what else differs")
    if not text:
        call.terminal.say("hw: they ran the same code")
        return
    if not out.is_tty:
        out.write(text)
        return
    safe = "".join(_painted(call, line) + "\n" for line in text.splitlines())
    pager = os.environ.get("PAGER") or "less"
    env = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
    try:
        # the pager is the person's own command, as for git
        with subprocess.Popen(["/bin/sh", "-c", pager], stdin=subprocess.PIPE, env=env) as child:
            try:
                child.communicate(safe.encode())
            except BrokenPipeError:
                pass
    except OSError:
        out.write(safe)


def _painted(call: Call, line: str) -> str:
    out = call.terminal.out
    safe = out.safe(line)
    if line.startswith(("diff ", "+++", "---", "index ")):
        return out.style(safe, BOLD)
    if line.startswith("@@"):
        return out.style(safe, "36")
    if line.startswith("+"):
        return out.style(safe, "32")
    return out.style(safe, "31") if line.startswith("-") else safe


def _run_tool(call: Call, answer: Answer) -> int:
    """A program of the person's choice over the folders; they are removed when it ends."""
    import shlex

    words = shlex.split(call.get("tool"))
    if not words:
        raise UsageError("--tool needs a program", "for example: --tool meld")
    with _folders(answer) as folders:
        try:
            done = subprocess.run([*words, *map(str, folders)], stdin=sys.stdin, check=False)
        except OSError as error:
            raise HeadwayError(f"{words[0]} cannot be started: {error.strerror}") from None
        return 0 if done.returncode in (0, 1) else 1


# -- text


def _lines(call: Call, answer: Answer) -> list[str]:
    out = call.terminal.out
    heads = [fmt.suffix(str(id_)) if out.is_tty else str(id_) for id_ in answer["ids"]]
    lines = [*_outcome_lines(call, answer, heads)]
    if answer["likely"]:
        lines += ["", out.style("most likely, in this order", BOLD)]
        lines += _table(call, answer["likely"][:_LIKELY_SHOWN], heads, with_why=True)
        more = len(answer["likely"]) - _LIKELY_SHOWN
        if more > 0:
            lines.append(out.style(f"  and {more} more below", DIM))
    else:
        lines += ["", "nothing that is recorded differs"]
    for section in _SECTIONS:
        changes = answer[section]
        if changes:
            lines += ["", out.style(section, BOLD)]
            lines += _table(call, changes[:_CHANGES_SHOWN], heads)
            if len(changes) > _CHANGES_SHOWN:
                lines.append(out.style(f"  and {len(changes) - _CHANGES_SHOWN} more: --json", DIM))
    lines += _code_lines(call, answer)
    equal = [name for name in answer["equal"] if name not in ("data", "hardware")]
    if equal:
        lines += ["", out.style(f"equal: {', '.join(equal)}", DIM)]
    return lines


def _outcome_lines(call: Call, answer: Answer, heads: list[str]) -> list[str]:
    out = call.terminal.out
    outcome = answer["outcome"]
    rows = []
    best = _best_of(outcome)
    for head, side in zip(heads, answer["jobs"], strict=True):
        value = fmt.number(side["value"]) if side["value"] is not None else ""
        mark = comparison.MARK if best is not None and side["value"] == best else ""
        step = "" if side["step"] is None else f"step {side['step']}"
        rows.append(
            [
                head,
                side["state"],
                f"{mark}{value}",
                step,
                fmt.clock(side["elapsed_s"]),
                side["cause"] or "",
            ]
        )
    arrow = comparison.ARROWS.get(outcome["direction"] or "", "")
    columns = [
        table.Column("id", keep=table.ALWAYS), table.Column("state", keep=table.ALWAYS),
        table.Column(out.safe(f"{outcome['metric'] or 'outcome'} {arrow}".rstrip()), right=True, keep=1),
        table.Column("at", keep=1), table.Column("elapsed", right=True), table.Column("cause", keep=1),
    ]  # fmt: skip
    safe = [[out.safe(cell) for cell in row] for row in rows]
    laid = table.layout(columns, safe, out.columns)[1]
    return [out.style(laid[0], BOLD), *laid[1:]]


def _best_of(outcome: Answer) -> float | None:
    values = [value for value in outcome["values"] if value is not None]
    if not values or outcome["direction"] is None or len(set(values)) < 2:
        return None
    return float(max(values) if outcome["direction"] == "max" else min(values))


def _table(
    call: Call, changes: list[Answer], heads: list[str], *, with_why: bool = False
) -> list[str]:
    out = call.terminal.out
    columns = [table.Column("what", keep=table.ALWAYS)]
    for head in heads:
        columns.append(table.Column(head, keep=1, limit=36))
    if with_why:
        columns.append(table.Column("why", keep=1, limit=100))

    rows = []
    for change in changes:
        what = change["key"]
        if with_why and change["what"] not in ("config", what):
            what = f"{change['what']} {what}"
        row = [what]
        for value in change["values"]:
            row.append(comparison.config_text(value) or table.EMPTY)
        if with_why:
            row.append(change["why"])
        rows.append([out.safe(cell) for cell in row])

    width = None
    if out.columns is not None:
        width = out.columns - 2
    laid = table.layout(columns, rows, width)[1]
    if not with_why:
        laid = laid[1:]
    return [f"  {line}" for line in laid]


def _code_lines(call: Call, answer: Answer) -> list[str]:
    """How much of the code differs; the diff itself is `--code`."""
    if answer["code_differs"] is False:
        return []
    out = call.terminal.out
    text, why = _code_text(answer)
    lines = ["", out.style("code", BOLD)]
    if why is not None:
        return [*lines, out.safe(f"  not known: {why}")]
    changed = [
        line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    files = [line for line in text.splitlines() if line.startswith("diff --git ")]
    if not files:
        return [*lines, "  the same files, from different commits"]
    added = sum(line.startswith("+") for line in changed)
    short = " ".join(fmt.suffix(str(id_)) for id_ in answer["ids"])
    for line in files[:_CHANGES_SHOWN]:
        lines.append(out.safe(f"  {_file_of(line)}"))
    said = f"{fmt.plural(len(files), 'file')}, +{added} −{len(changed) - added} lines"
    lines.append(out.style(out.safe(f"  {said}: hw diff {short} --code"), DIM))
    return lines


def _file_of(line: str) -> str:
    """`diff --git a/one-7f3c2/train.py b/two-a0317/train.py` is about train.py."""
    name = line.rpartition(" ")[2]
    return name.split("/", 2)[2] if name.count("/") >= 2 else name

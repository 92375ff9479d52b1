"""`hw init`: a snapshot of the code ahead of time, and what is in it (capability 47). `--snapshot`
calls `pin`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD, DIM, YELLOW, Terminal

if TYPE_CHECKING:
    from headway.code.snapshot import Snapshot
    from headway.settings.layers import Settings

_NAMED_MAX: Final = 20  # files that are named one by one; --json names all
_IGNORED_MAX: Final = 8


def command(call: Call) -> int:
    from pathlib import Path

    from headway.settings.layers import load

    if call.words or call.after:
        raise UsageError(
            "hw init takes no words", "it takes the code around the current folder; cd there first"
        )
    cwd = os.getcwd()
    settings = load(Path(cwd))
    name = call.get("cluster")
    always = bool(name) and _always_pins(settings, name)
    made = _make(settings, cwd, {})
    if call.as_json:
        call.terminal.put_json(_as_json(made))
        return 0
    _show(
        call.terminal,
        made,
        f"hw {f'-c {name} ' if name else ''}submit {'' if always else '--snapshot '}COMMAND…",
    )
    return 0


def _always_pins(settings: "Settings", name: str) -> bool:
    """Whether jobs of that cluster run from a snapshot in any case. UsageError for a name that is
    no cluster.
    """
    from headway.settings.clusters import AUTO, resolve

    return name != AUTO and resolve(name, settings.get("clusters")).get("engine") == "slurm"


def pin(
    terminal: Terminal,
    settings: "Settings",
    cwd: str,
    more: Mapping[str, list[str]],
    skip: Sequence[str] = (),
) -> JsonObject:
    """Fields of a JobSpec that make it run from the code as it is now; what is left out is told.

    `more`: patterns of the job file, beside those of the settings. `skip`: folders that are no
    code.
    """
    from headway.code import tree

    made = _make(settings, cwd, more, skip)
    _tell_left_out(terminal, made)
    inside = os.path.relpath(os.path.realpath(cwd), made.root)
    found = tree.git(made.root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+")
    commit = found.decode(errors="replace").strip() if found else None
    return {"code": made.digest, "code_cwd": "" if inside == "." else inside, "code_commit": commit}


def _make(
    settings: "Settings", cwd: str, more: Mapping[str, list[str]], skip: Sequence[str] = ()
) -> "Snapshot":
    from pathlib import Path

    from headway.code import snapshot, tree
    from headway.code.depot import Depot
    from headway.home import paths
    from headway.settings.project import project_file

    names = ("include", "exclude", "allow")
    rules = tree.CodeRules(
        *([*settings.get(f"code.{name}"), *more.get(name, [])] for name in names)
    )
    project = None if os.environ.get("HEADWAY_CONFIG") else project_file(Path(cwd))
    root = tree.find_root(cwd, str(project.parent) if project else None)
    folder = paths.home()
    depot = Depot(folder / "code")
    try:
        return snapshot.make(root, depot, rules, skip=[str(folder), *skip])
    finally:
        depot.close()


def _as_json(made: "Snapshot") -> JsonObject:
    return {
        "code": made.digest, "root": made.root, "files": made.files, "bytes": made.bytes,
        "read": made.read, "new_bytes": made.new_bytes,
        "largest": [{"path": path, "bytes": size} for path, size in made.largest],
        "left_out": [{"path": path, "reason": reason} for path, reason in made.left_out],
        "changed": made.changed,
    }  # fmt: skip


def _show(terminal: Terminal, made: "Snapshot", next_words: str) -> None:
    from headway.code import tree

    out = terminal.out
    news = f"{fmt.size(made.new_bytes)} new" if made.new_bytes else "nothing new"
    terminal.put(f"{out.style(made.digest[:12], BOLD)}  {out.safe(made.root)}")
    terminal.put(f"  {fmt.plural(made.files, 'file')}, {fmt.size(made.bytes)}, {news}")
    if made.largest:
        terminal.put(
            "  largest: "
            + ", ".join(f"{out.safe(path)} {fmt.size(size)}" for path, size in made.largest)
        )
    ignored = tree.ignored_by_git(made.root)
    if ignored:
        more = f" and {len(ignored) - _IGNORED_MAX} more" if len(ignored) > _IGNORED_MAX else ""
        names = ", ".join(out.safe(name) for name in ignored[:_IGNORED_MAX])
        terminal.put(f"  {out.style('ignored by git:', DIM)} {names}{more}")
    _tell_left_out(terminal, made)
    terminal.say(f"  {terminal.err.style(f'{next_words} runs from it', DIM)}")


def _tell_left_out(terminal: Terminal, made: "Snapshot") -> None:
    """By name, never in silence: a job may miss it."""
    err = terminal.err
    for path, reason in made.left_out[:_NAMED_MAX]:
        terminal.say(f"  {err.style('left out:', YELLOW)} {err.safe(path)}: {err.safe(reason)}")
    if len(made.left_out) > _NAMED_MAX:
        terminal.say(f"  and {len(made.left_out) - _NAMED_MAX} more: hw init --json names them all")
    for path in made.changed[:_NAMED_MAX]:
        terminal.say(
            f"  {err.style('changed while it was read:', YELLOW)} {err.safe(path)}; taken as last read"
        )

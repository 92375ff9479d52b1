"""`hw clusters`: what is configured, reachable, free and queued; which one is the default; and
whether one works.

hw clusters [-v]          every cluster of this folder's settings; -v: each node
hw clusters use NAME      the default from now on (capability 51)
hw clusters check NAME    a tiny job there, end to end
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.model.errors import RefusedError, UsageError
from headway.model.json_types import JsonObject
from headway.settings.layers import Settings, load
from headway.views.api.source import Source
from headway.views.cli import choose_cluster
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import table
from headway.views.text.terminal import DIM, RED

_CHECK = ["sh", "-c", "echo headway-check on $(uname -n)"]
_CHECK_S = 120.0


def command(call: Call) -> int:
    verb, *names = call.words or ["list"]
    if (
        call.after
        or verb not in ("list", "use", "check")
        or len(names) != (0 if verb == "list" else 1)
    ):
        raise UsageError(
            f"hw clusters does not know {' '.join(call.words)[:60]!r}",
            f"usage: {call.command.usage}",
        )
    settings = load(Path.cwd())
    if verb == "use":
        return _use(call, settings, names[0])
    if verb == "check":
        return _check(call, settings, names[0])
    return _list(call, settings)


def _list(call: Call, settings: Settings) -> int:
    source = call.source()
    found = choose_cluster.survey(source, settings.get("clusters"))
    default = settings.get("default_cluster")
    for row in found:
        row["default"] = row["name"] == default
    if call.as_json:
        call.terminal.put_json(found)
        return 0
    out = call.terminal.out
    columns = [
        table.Column("cluster", keep=table.ALWAYS), table.Column("engine"), table.Column("running", right=True),
        table.Column("waiting", right=True), table.Column("free", keep=1, limit=120),
    ]  # fmt: skip
    rows = [[out.safe(cell) for cell in _cells(row)] for row in found]
    call.terminal.put("\n".join(table.layout(columns, rows, out.columns)[1]))
    for row in found:
        if row["error"] is not None:
            call.terminal.put(out.style(out.safe(f"{row['name']}: {row['error']}"), RED))
        elif call.get("verbose"):
            for line in [*_node_lines(row), *_agent_lines(row, source)]:
                call.terminal.put(out.safe(line))
    call.terminal.say(
        call.terminal.err.style("  * is the default; another one: hw clusters use NAME", DIM)
    )
    return 0


def _cells(row: JsonObject) -> list[str]:
    free = (
        "not reached"
        if row["error"] is not None
        else choose_cluster.free_words(row).removesuffix(" free")
    )
    name = f"{row['name']} *" if row["default"] else row["name"]
    return [name, str(row["engine"] or ""), str(row["running"]), str(row["waiting"]), free]


def _node_lines(row: JsonObject) -> list[str]:
    lines = [f"{row['name']}: {_definition_words(row['definition'])}"]
    if row["queue"]:
        lines.append(f"    queue  {row['queue']}")
    for node in row["nodes"]:
        words = [
            _of(node, "cpus", "cores", str),
            f"{_of(node, 'gpus', 'GPUs', str)} ({node['gpu_source']})",
        ]
        words.append(_of(node, "memory_bytes", "memory", fmt.size))
        lines.append(
            f"    {node['name']}  {node['state_word']}  {', '.join(word for word in words if word)}"
        )
    return lines


def _agent_lines(row: JsonObject, source: Source) -> list[str]:
    """How the agents on its nodes reach the server, where these are other machines."""
    if not row.get("tray"):
        return []
    agents = source.get("/api/server").get("agents")
    told = ", ".join((agents or {}).get("addresses") or []) or (
        "nowhere" if agents else "an address opened when needed"
    )
    return [f"    agents  the server's socket, then TLS ({told}), then the folder {row['tray']}"]


def _of(node: JsonObject, kind: str, noun: str, text: Callable[[Any], str]) -> str:
    """`3 of 4 cores` where the engine tells what is free, else `4 cores`."""
    free, whole = node[f"free_{kind}"], node[kind]
    if whole is None:
        return ""
    return f"{text(whole)} {noun}" if free is None else f"{text(free)} of {text(whole)} {noun} free"


def _definition_words(definition: JsonObject) -> str:
    shown = {key: value for key, value in definition.items() if value not in (None, [], "")}
    return ", ".join(f"{key} {value}" for key, value in shown.items()) or "this machine"


def _use(call: Call, settings: Settings, name: str) -> int:
    """Remember the default in the user's file; where something stands above that file, say so."""
    from headway.settings.clusters import AUTO, resolve
    from headway.settings.userfile import set_value

    if name != AUTO:
        resolve(name, settings.get("clusters"))
    path = set_value("default_cluster", name)
    now = load(Path.cwd())
    if now.get("default_cluster") != name:
        raise RefusedError(
            f"{path} now says {name}, but {now.origin('default_cluster')} says {now.get('default_cluster')}, "
            "which goes before it in this folder",
            "change it there, or use -c",
        )
    call.terminal.say(f"hw: jobs go to {name} unless -c says otherwise ({path})")
    return 0


def _check(call: Call, settings: Settings, name: str) -> int:
    """Submit, wait, read the output back: each step that works is said, and the first that does
    not.
    """
    from headway.settings.clusters import resolve
    from headway.views.cli import run

    resolve(name, settings.get("clusters"))
    source = call.source()
    row = next(
        row
        for row in choose_cluster.survey(source, settings.get("clusters"))
        if row["name"] == name
    )
    if row["error"] is not None:
        raise RefusedError(f"{name} is not reached: {row['error']}")
    call.terminal.say(f"hw: {name} is reached: {choose_cluster.free_words(row)}")
    call.values |= {
        "cluster": name,
        "name": "check",
        "max_duration_s": _CHECK_S,
        "tags": ["headway-check"],
    }
    call.words = list(_CHECK)
    code = run.submit_and_attend(call, source)
    if code != 0:
        raise RefusedError(
            f"{name} does not work: the tiny job exited with {code}", "hw q shows what happened"
        )
    call.terminal.say(f"hw: {name} works: a job ran there, and its output came back")
    return 0

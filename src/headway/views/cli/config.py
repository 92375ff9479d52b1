"""`hw config [NAME | set NAME VALUE | unset NAME]`: every setting, its value and origin; secrets by name
(capabilities 50, 52).
"""

import json
from pathlib import Path
from typing import Any, Final

from headway.model.errors import UsageError
from headway.settings.layers import load
from headway.settings.nearest import did_you_mean
from headway.settings.quantity import duration_text
from headway.settings.schema import SETTINGS
from headway.views.cli.dispatch import Call
from headway.views.text import table

IDLE: Final = "the server of a home does not read a project's file; hw config set NAME VALUE writes the user's"


def command(call: Call) -> int:
    if call.get("job_schema"):
        from headway.settings.jobschema import json_schema

        call.terminal.put(json.dumps(json_schema(), indent=2))
        return 0
    if call.words[:1] == ["set"] and len(call.words) == 3 and not call.after:
        return _set(call, *call.words[1:])
    if call.words[:1] == ["unset"] and len(call.words) == 2 and not call.after:
        return _unset(call, call.words[1])
    if len(call.words) > 1 or call.words in (["set"], ["unset"]) or call.after:
        raise UsageError(
            "hw config takes one name, or: set NAME VALUE, or: unset NAME",
            f"usage: {call.command.usage}",
        )
    settings = load(Path.cwd())
    idle = settings.idle(Path.cwd())
    rows = {name: (value, origin) for name, value, origin in settings.rows()}
    if call.words:
        return _one(call, rows, call.words[0], call.words[0] in idle)
    if call.as_json:
        call.terminal.put_json(
            {name: {"value": value, "origin": origin} for name, (value, origin) in rows.items()}
        )
        return 0
    columns = [
        table.Column("setting", keep=table.ALWAYS),
        table.Column("value", keep=1),
        table.Column("from", limit=200),
    ]
    out = call.terminal.out
    cells = [
        [out.safe(cell) for cell in (name, readable(name, v), origin)]
        for name, (v, origin) in rows.items()
    ]
    call.terminal.put("\n".join(table.layout(columns, cells, out.columns)[1]))
    if idle:
        call.terminal.say(f"no effect: {', '.join(idle)}; {IDLE}")
    return 0


def _one(call: Call, rows: dict[str, tuple[Any, str]], name: str, idle: bool) -> int:
    if name not in rows:
        raise UsageError(
            f'there is no setting "{name[:60]}"{did_you_mean(name, rows)}',
            "hw config lists them all",
        )
    value, origin = rows[name]
    if call.as_json:
        call.terminal.put_json({"name": name, "value": value, "origin": origin})
        return 0
    call.terminal.put(call.terminal.out.safe(shown(value)))
    meaning = f"; {SETTINGS[name].doc}" if name in SETTINGS else ""
    call.terminal.say(call.terminal.err.safe(f"from {origin}{meaning}"))
    if idle:
        call.terminal.say(f"no effect: {IDLE}")
    return 0


def _set(call: Call, name: str, value: str) -> int:
    from headway.settings.userfile import set_value

    path = set_value(name, value)
    now = load(Path.cwd())
    call.terminal.say(call.terminal.err.safe(f"{path} now holds {name}"))
    if now.origin(name).partition(", line ")[0] != str(path):
        say = f"but here {now.origin(name)} says {shown(now.get(name))}, which goes before it"
        call.terminal.say(call.terminal.err.safe(say))
    elif SETTINGS[name].scope == "server":
        _tell_restart(call)
    return 0


def _unset(call: Call, name: str) -> int:
    from headway.settings.userfile import unset_value

    path = unset_value(name)
    now = load(Path.cwd())
    say = f"{path} holds {name} no more; now {shown(now.get(name))}, from {now.origin(name)}"
    call.terminal.say(call.terminal.err.safe(say))
    if SETTINGS[name].scope == "server":
        _tell_restart(call)
    return 0


def _tell_restart(call: Call) -> None:
    call.terminal.say(
        "a running server still has the old value: hw server stop; the next command starts it again"
    )


def shown(value: object) -> str:
    """As a script reads it: in the base unit."""
    return value if isinstance(value, str) else json.dumps(value)


def readable(name: str, value: Any) -> str:
    """As a person would write it in the file: `20GiB`, `15s`."""
    kind = SETTINGS[name].type if name in SETTINGS else ""
    if kind == "a duration":
        return duration_text(value)
    if kind == "a size":
        for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
            if value % 1024**power == 0:
                return f"{value // 1024**power}{unit}"
    return shown(value)

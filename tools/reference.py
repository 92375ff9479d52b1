"""Writes docs/reference from the code: commands, Python, settings, job files, limits, routes, exit
codes.

Called by `make docs`. `tests/unit/test_docs.py` fails when a committed page differs from what this
makes.
"""

import importlib
import inspect
import io
import json
import pkgutil
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headway
from headway.model import errors, limits
from headway.server import openapi
from headway.settings import jobschema, quantity
from headway.settings.schema import SCOPES, SETTINGS, Setting
from headway.views.cli import commands, dispatch, options

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
PROTOCOL = FOLDER.parent / "concepts" / "protocol.md"
MADE = "<!-- Made by `make docs` from {source}; do not edit. -->"


def pages() -> dict[str, str]:
    """`{file name: text}` of every page."""
    return {
        "commands.md": commands_page(),
        "python.md": python_page(),
        "settings.md": settings_page(),
        "limits.md": limits_page(),
        "routes.md": routes_page(),
        "exit-codes.md": exit_codes_page(),
        "job-file.md": job_file_page(),
        "openapi.json": json.dumps(openapi.document(routes()), indent=1) + "\n",
        "job.schema.json": json.dumps(jobschema.json_schema(), indent=2) + "\n",
    }


def head(title: str, source: str, *paragraphs: str) -> list[str]:
    return [
        f"# {title}",
        "",
        MADE.format(source=source),
        "",
        *(line for text in paragraphs for line in (text, "")),
    ]


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    return (
        lines
        + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        + [""]
    )


def page(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


# -- commands


def commands_page() -> str:
    lines = head(
        "Commands",
        "`src/headway/views/cli/commands.py` and `options.py`",
        "Options stand before the verb or directly after it. For `run` and `submit`, everything from the first word of "
        "the command on, or after `--`, belongs to the command. Exit codes: [exit-codes.md](exit-codes.md).",
    )
    verbs = [command for name, command in commands.COMMANDS.items() if name == command.name]
    for group in commands.GROUPS:
        chosen = [command for command in verbs if command.group == group]
        lines += [f"## {group}", ""]
        lines += table(("command", "what it does"), [(f"`hw {c.name}`", c.summary) for c in chosen])
        for command in chosen:
            lines += command_lines(command)
    return page(lines)


def command_lines(command: options.Command) -> list[str]:
    title = f"### hw {command.name}" + (f" (short: hw {command.alias})" if command.alias else "")
    lines = [
        title,
        "",
        f"    {command.usage}",
        "",
        f"{command.summary[0].upper()}{command.summary[1:]}.",
        "",
    ]
    if command.details:
        lines += [command.details, ""]
    if command.examples:
        width = max(len(typed) for typed, _ in command.examples)
        lines += [
            "```",
            *(f"{typed:<{width}}  {said}".rstrip() for typed, said in command.examples),
            "```",
            "",
        ]
    keys = [key for key in (*command.options, *options.EVERYWHERE) if key != "version"]
    return lines + table(("option", "meaning"), [option_row(command, key) for key in keys])


def option_row(command: options.Command, key: str) -> tuple[str, str]:
    option = options.BY_KEY[key]
    names = ", ".join(
        f"`{name}{' ' + option.value if option.value else ''}`" for name in option.names
    )
    return names, command.meaning(key)


# -- Python


def python_page() -> str:
    lines = head(
        "Python",
        "`src/headway/client`",
        "`import headway as hw` loads the standard library only. Guides: [track metrics](../guides/track-metrics.md), "
        "[watch from Python](../guides/watch-from-python.md).",
    )
    for name in headway.__all__:
        value = getattr(headway, name)
        lines += [
            f"## hw.{name}",
            "",
            "```python",
            *uses(name, value),
            "```",
            "",
            inspect.getdoc(value) or "",
            "",
        ]
        lines += [f"- `{word}`: {one_line(method)}" for word, method in methods(value)]
        lines += [""] * bool(methods(value))
    return page(lines)


def uses(name: str, value: Any) -> list[str]:
    """How it is called; a class by its methods."""
    if inspect.isroutine(value):
        return [f"hw.{name}{signature(value)}"]
    if not inspect.isclass(value):
        return [f"hw.{name}"]
    called = [f"hw.{name}{signature(value)}"] if not methods(value) else []
    return called + [f"hw.{name}.{word}{signature(method)}" for word, method in methods(value)]


def methods(value: Any) -> list[tuple[str, Any]]:
    """Documented ones of a class, in the order in which they stand there."""
    if not inspect.isclass(value):
        return []
    return [
        (name, getattr(value, name))
        for name, made in vars(value).items()
        if not name.startswith("_")
        and inspect.isroutine(getattr(value, name))
        and inspect.getdoc(made)
        and made
    ]


def one_line(function: Any) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


def signature(function: Any) -> str:
    """As a person reads it: without `self`, what a class returns, and quotes around annotations."""
    found = inspect.signature(function)
    if inspect.isclass(function):
        found = found.replace(return_annotation=inspect.Signature.empty)
    text = re.sub(r"(: |-> )'([^']+)'", r"\1\2", str(found))
    return text.replace("(self, ", "(").replace("(self)", "()")


# -- settings


def settings_page() -> str:
    lines = head(
        "Settings",
        "`src/headway/settings/schema.py`",
        "How the layers work, and where the files lie: [configuration](../guides/configuration.md). "
        "`hw config` shows every value and where it came from.",
    )
    for scope, meaning in SCOPES.items():
        chosen = [setting for setting in SETTINGS.values() if setting.scope == scope]
        lines += [f"## {scope.capitalize()}", "", f"{meaning[0].upper()}{meaning[1:]}.", ""]
        lines += table(
            ("name", "type", "default", "variable", "meaning"), [setting_row(s) for s in chosen]
        )
    return page(lines)


def setting_row(setting: Setting) -> tuple[str, ...]:
    return (
        f"`{setting.name}`",
        setting.type,
        default_text(setting),
        f"`{setting.variable}`",
        setting.doc,
    )


def default_text(setting: Setting) -> str:
    if callable(setting.default):
        return "depends on the machine"
    if setting.type == "a size":
        return f"`{size_text(setting.default)}`"
    if setting.type == "a duration":
        return f"`{quantity.duration_text(setting.default)}`"
    return "`null`" if setting.default is None else f"`{setting.default}`"


def size_text(size_bytes: int) -> str:
    for unit, factor in (("GiB", limits.GIB), ("MiB", limits.MIB), ("KiB", limits.KIB)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes}"


# -- job files


def job_file_page() -> str:
    lines = head(
        "Job file",
        "`src/headway/settings/jobschema.py`",
        "How to write one: [job files](../guides/job-files.md). For editors: [job.schema.json](job.schema.json), which "
        "`hw config --job-schema` prints too.",
    )
    lines += table(("key", "value", "meaning"), key_rows(jobschema.JOB))
    for title, section in {
        "roles": jobschema.ROLE, "folders": jobschema.FOLDER, "retry": jobschema.RETRY, "code": jobschema.CODE,
        "smoke": jobschema.SMOKE,
    }.items():  # fmt: skip
        lines += [f"## Keys of {title}", "", *table(("key", "value", "meaning"), key_rows(section))]
    return page(lines)


def key_rows(section: jobschema.Section) -> list[tuple[str, ...]]:
    return [(f"`{key.name}`", key_words(key), key.doc) for key in section.keys]


def key_words(key: jobschema.Key) -> str:
    """What it is, in words; keys of a section of its own have their own table."""
    kind = key.kind
    if isinstance(kind, jobschema.Section):
        return "a mapping, below"
    if isinstance(kind, jobschema.MapOf) and isinstance(kind.item, jobschema.Section):
        return f"a mapping of {kind.what} to mappings, below"
    return "a mapping of parameters to lists of values" if key.name == "matrix" else kind.words


# -- limits


def limits_page() -> str:
    lines = head(
        "Limits",
        "`src/headway/model/limits.py`",
        "Everything in Headway that could grow has a bound, and all bounds stand in one file. "
        "Where a [setting](settings.md) changes one, the table says so.",
    )
    rows: list[tuple[str, ...]] = []
    for kind, name, comment in limit_lines(inspect.getsource(limits)):
        if kind == "section":
            lines += table(("name", "value", "meaning"), rows) if rows else []
            lines += [f"## {name[0].upper()}{name[1:]}", ""]
            rows = []
        else:
            rows.append((f"`{name}`", limit_text(name), comment))
    return page(lines + table(("name", "value", "meaning"), rows))


def limit_lines(source: str) -> Iterator[tuple[str, str, str]]:
    """`("section", title, "")` and `("limit", name, comment)` in the order of the file."""
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    started = False
    lines = source.splitlines()
    for number, line in enumerate(lines, 1):
        section = re.match(r"# -- (.+?)$", line)
        if section:
            started = True
            yield "section", section[1], ""
        limit = re.match(r"([A-Z][A-Z0-9_]*)(?:: Final)? = ", line)
        if limit and started:
            yield "limit", limit[1], comments.get(number) or comment_above(lines, number - 1)


def comment_above(lines: list[str], index: int) -> str:
    """The comment lines that end right above line `index`; a section's title is none."""
    found: list[str] = []
    while (
        index > 0 and lines[index - 1].startswith("# ") and not lines[index - 1].startswith("# --")
    ):
        index -= 1
        found.insert(0, lines[index].removeprefix("# "))
    return " ".join(found)


def limit_text(name: str) -> str:
    value = getattr(limits, name)
    if "BYTES" in name and isinstance(value, int):
        return size_text(value) if value >= limits.KIB else f"{value} B"
    if name.endswith("_S") or "_S_" in name:
        return f"{value:g} s"
    if isinstance(value, int) and value > 10**12 and value.bit_count() == 1:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"


# -- routes


def routes() -> list[Any]:
    """The routes of every file in `server/api`, in the order of the files."""
    api = importlib.import_module("headway.server.api")
    found: list[Any] = []
    for module in pkgutil.iter_modules(api.__path__):
        found += getattr(importlib.import_module(f"{api.__name__}.{module.name}"), "ROUTES", [])
    return found


def routes_page() -> str:
    lines = head(
        "Routes",
        "the files in `src/headway/server/api`",
        "What goes in and comes out of each: [protocol](../concepts/protocol.md). The role is what the caller's token, "
        "or the unix socket, must allow; a role includes those before it.",
    )
    rows = [
        (f"`{route.method}`", f"`{route.path}`", route.role.name.lower(), route_text(route))
        for route in sorted(routes(), key=lambda route: (route.path, route.method))
    ]
    return page(lines + table(("method", "path", "role", "what it does"), rows))


def route_text(route: Any) -> str:
    """What the protocol's table says about it, else what its handler says about itself."""
    written = re.search(
        rf"^\| `{route.method} {re.escape(route.path)}(?:\?[^`]*)?` \| (.+?) \|$",
        PROTOCOL.read_text(),
        re.MULTILINE,
    )
    text = written[1] if written else (inspect.getdoc(route.handler) or "").split("\n\n")[0]
    return " ".join(text.split())


# -- exit codes


def exit_codes_page() -> str:
    lines = head(
        "Exit codes",
        "`src/headway/model/errors.py` and `src/headway/views/cli/dispatch.py`",
        "`hw run` and `hw submit --wait` exit as the job does; every other command as below.",
    )
    own = {0: "done"}
    for kind in subclasses(errors.HeadwayError):
        own.setdefault(kind.exit_code, "")
    meanings = {
        1: "the thing asked for failed",
        2: "wrong usage or bad input",
        3: "no such job, or several match",
    }
    meanings[4] = "the server or the cluster could not be reached"
    own |= {code: meanings[code] for code in sorted(own) if code}
    own[dispatch.EXIT_INTERRUPTED] = "interrupted by Ctrl-C"
    own[dispatch.EXIT_BROKEN_PIPE] = "whoever read the output has gone"
    lines += [
        "## Of hw",
        "",
        *table(("code", "meaning"), [(str(code), own[code]) for code in sorted(own)]),
    ]
    job = [
        ("0 to 255", "the job's own exit code; the code of the rank that failed first"),
        ("128+N", "signal N ended the job: 137 is SIGKILL, 143 SIGTERM"),
        ("126", "the command is there and cannot be started"),
        ("127", "there is no such command"),
        (str(dispatch.EXIT_OWN_FAILURE), "hw itself failed: bad options, no server, no room"),
    ]
    lines += ["## Of hw run and --wait", "", *table(("code", "meaning"), job)]
    lines += ["## Errors over HTTP", ""]
    lines += [
        'The same errors as a reply: `{"error": {"code", "message", "hint", "candidates"}}`.',
        "",
    ]
    return page(lines + ["```", *(errors.__doc__ or "").strip().splitlines()[2:], "```"])


def subclasses(kind: type) -> list[Any]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in subclasses(child))]


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name, text in made.items():
        (FOLDER / name).write_text(text)
        print(f"docs/reference/{name}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())

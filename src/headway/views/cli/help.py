"""The pages of `hw --help` and `hw VERB --help`. Called by `dispatch`."""

import textwrap
from typing import Final

from headway.views.cli.commands import COMMANDS, GROUPS
from headway.views.cli.options import BY_KEY, EVERYWHERE, Command

_COLUMNS_MAX: Final = 100
_INTRO: Final = """Headway runs machine-learning jobs, watches them and keeps all they say."""
_EXAMPLES: Final = (
    ("hw run python train.py", "run here, see it live; exit code is the job's"),
    ("hw -n 4 submit python train.py", "four processes, in the background"),
    ("hw ls", "what runs, waits and has ended"),
    ("hw q 7f3c2", "one job; any unique ending of its id will do"),
    ("hw logs -f 7f3c2", "its output, live"),
)
_FOOT: Final = """Every command has --help and --json. Options stand before the verb or after it; for run and submit, \
everything from the first word of the command on belongs to the command.
Exit codes: 0 done · 1 failed · 2 wrong usage · 3 no such job, or several match · 4 no server.
run and --wait exit as the job does; 125 if hw itself failed."""


def page(columns: int | None = None) -> str:
    """`hw --help`."""
    wide = min(columns or _COLUMNS_MAX, _COLUMNS_MAX)
    parts = [_fill(_INTRO, wide), "", *_rows([("  " + a, b) for a, b in _EXAMPLES], wide), ""]
    for group in GROUPS:
        rows = [
            (f"  {_title(c)}", c.summary)
            for n, c in COMMANDS.items()
            if c.group == group and n == c.name
        ]
        parts += [f"{group}:", *_rows(rows, wide, first=14), ""]
    parts += [_fill(_FOOT, wide)]
    return "\n".join(parts)


def command_page(command: Command, columns: int | None = None) -> str:
    """`hw VERB --help`."""
    wide = min(columns or _COLUMNS_MAX, _COLUMNS_MAX)
    parts = [_fill(f"hw {command.name}: {command.summary}", wide), "", f"  {command.usage}", ""]
    if command.details:
        parts += [_fill(command.details, wide), ""]
    if command.examples:
        parts += ["Examples:", *_rows([("  " + a, b) for a, b in command.examples], wide), ""]
    rows = [
        _option_row(command, key) for key in (*command.options, *EVERYWHERE) if key != "version"
    ]
    parts += ["Options:", *_rows(rows, wide, first=28)]
    return "\n".join(parts)


def _title(command: Command) -> str:
    return f"{command.alias}, {command.name}" if command.alias else command.name


def _option_row(command: Command, key: str) -> tuple[str, str]:
    option = BY_KEY[key]
    short = "" if option.names[0].startswith("--") else f"{option.names[0]}, "
    long = next((name for name in option.names if name.startswith("--")), "")
    return (
        f"  {short or '    '}{long}{' ' + option.value if option.value else ''}",
        command.meaning(key),
    )


def _rows(rows: list[tuple[str, str]], columns: int, first: int = 0) -> list[str]:
    """Two columns; where the second has no room, it goes to a line of its own."""
    left = max([first, *(len(a) for a, b in rows if b)]) + 2
    lines = []
    for a, b in rows:
        if not b:
            lines.append(a)
        elif left + 24 <= columns:
            wrapped = textwrap.wrap(b, columns - left)
            lines += [f"{a:<{left}}{wrapped[0]}", *(" " * left + more for more in wrapped[1:])]
        else:
            lines += [a, *(f"      {more}" for more in textwrap.wrap(b, max(columns - 6, 12)))]
    return lines


def _fill(text: str, columns: int) -> str:
    """Each line is a paragraph of its own."""
    return "\n".join("\n".join(textwrap.wrap(part, columns)) for part in text.split("\n"))

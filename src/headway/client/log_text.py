"""What a record of `logging` says, as text: %-format, several values in one call, rich's drawings.
For client/logging_capture.py.

Objects of rich are drawn here, without colour and at a fixed width, so that no object ever leaves
the process. rich is never imported for their sake: where such an object is, rich is. Everything is
bounded, in size and, between two steps of a drawing, in time. What cannot be drawn is shown as
plain words: markup that is none as it stands, a table by its cells.
"""

from __future__ import annotations

import sys
import time
from itertools import islice

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import type_name
from headway.model.limits import (
    LOG_CELL_CHARS_MAX,
    LOG_DRAW_S_MAX,
    LOG_ITEMS_MAX,
    LOG_TABLE_COLUMNS_MAX,
    LOG_TABLE_ROWS_MAX,
    LOG_TEXT_CHARS_MAX,
    LOG_WIDTH_CHARS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from logging import LogRecord
    from typing import Any

    from headway.model.json_types import JsonObject

    Mask = Callable[[str], str]

DRAWN_CHARS_MAX = 4 * LOG_TEXT_CHARS_MAX  # of one object; masked whole, then cut
CELL_DRAWN_CHARS_MAX = 4096  # of one cell in a drawing
_MORE = "… more is not drawn"
_kinds: "JsonObject" = {}  # of consoles: made with the first drawing


class _Spent(Exception):
    """The time for drawing is over."""


class Shown:
    """Stands for an argument that is drawn, in a %-format."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def text_of(record: "LogRecord") -> str:
    """The message; of several values without a format, one after the other. Never raises what an
    object raises.
    """
    try:
        return _formatted(record.msg, record.args)
    except Exception as error:  # objects and formats of somebody else's making may raise anything
        raise_if_signal(error)
        return joined(record.msg, record.args)


def _formatted(msg: object, args: "Any") -> str:
    if not args:
        return shown(msg)
    # one dictionary fits any text, and would not be shown
    if not isinstance(msg, str) or "%" not in msg:
        return joined(msg, args)
    if isinstance(args, dict):
        return msg % {key: _argument(value) for key, value in args.items()}
    return msg % tuple(_argument(value) for value in args)


def _argument(value: object) -> "Any":
    if type(value) in (str, int, float, bool):
        return value
    if is_drawing(value):
        return Shown("\n" + shown(value))
    return Shown(shown(value)) if _is_large(value) else value


def joined(msg: object, args: object) -> str:
    """Several values in one call: `logging.info("a", "b", table)`. Drawings start on a line of
    their own.
    """
    values = [msg]
    if isinstance(args, tuple):
        values += args
    elif args:
        values.append(args)
    parts: list[str] = []
    for value in values:
        if parts:
            parts.append("\n" if is_drawing(value) else " ")
        parts.append(shown(value))
    return "".join(parts)


def shown(value: object) -> str:
    """One value as text."""
    try:
        if type(value) is str:
            return value
        if is_drawing(value):
            return draw(value)
        return _cut_items(value) if _is_large(value) else str(value)
    except Exception as error:  # its __str__ is somebody else's code
        raise_if_signal(error)
        return f"<{type_name(value)} that cannot be shown: {type(error).__name__}>"


def _is_large(value: object) -> bool:
    return type(value) in (list, tuple, dict, set, frozenset) and len(value) > LOG_ITEMS_MAX  # type: ignore[arg-type]


def _cut_items(value: "Any") -> str:
    left = len(value) - LOG_ITEMS_MAX
    some: Any = list(islice(value.items() if isinstance(value, dict) else value, LOG_ITEMS_MAX))
    return f"{dict(some) if isinstance(value, dict) else some!r} … and {left} more"


def bounded(text: str, mask: "Mask") -> tuple[str, bool]:
    """Masked, then head and tail with a mark between them that says how much is missing; and
    whether it was cut.
    """
    most = LOG_TEXT_CHARS_MAX
    text, left = narrow(text)
    text = mask(text)
    if len(text) <= most and not left:
        return text, False
    head = min(most, len(text)) // 2
    missing = left + max(0, len(text) - most)
    return f"{text[:head]}\n… {missing} characters cut …\n{text[-(most - head) :]}", True


def narrow(text: str) -> tuple[str, int]:
    """A very long text without its middle, and how much that was. What is kept in the end is far
    from the seam, so a secret that the seam splits is not in it.
    """
    most = 4 * LOG_TEXT_CHARS_MAX
    left = len(text) - 2 * most
    return (text[:most] + text[-most:], left) if left > 0 else (text, 0)


# -- rich


def is_drawing(value: object) -> bool:
    """Whether it is rich's to draw: an object of rich, or one that knows how rich draws it, where
    rich is loaded.
    """
    kind = type(value)
    if kind.__module__.startswith("rich."):
        return hasattr(kind, "__rich_console__") or hasattr(kind, "__rich__")
    return "rich.console" in sys.modules and (
        hasattr(kind, "__rich_console__") or hasattr(kind, "__rich__")
    )


def _console() -> "Any":
    if "pen" not in _kinds:
        rich: Any = __import__("rich.console", fromlist=["Console"])
        _kinds["pen"] = _pen(rich.Console)
    io: Any = __import__("io")
    return _kinds["pen"](
        file=io.StringIO(), width=LOG_WIDTH_CHARS, color_system=None, force_terminal=False, no_color=True,
        force_jupyter=False, legacy_windows=False, highlight=False,
    )  # fmt: skip


def _pen(base: "Any") -> "Any":
    """rich's console, for which every drawing has an end, and markup that is none is text."""

    def start(self: "Any", **options: "Any") -> None:
        base.__init__(self, **options)
        self.end_s = time.monotonic() + LOG_DRAW_S_MAX

    def render(self: "Any", renderable: "Any", options: "Any" = None) -> "Iterator[Any]":
        _check(self)
        for segment in base.render(self, renderable, options):
            _check(self)
            yield segment

    def render_str(self: "Any", text: str, **options: "Any") -> "Any":
        text = text[:DRAWN_CHARS_MAX]
        try:
            return base.render_str(self, text, **options)
        # rich's MarkupError: a closing tag without an opening one, and the like (B17)
        except Exception as error:
            raise_if_signal(error)
            return base.render_str(self, text, **{**options, "markup": False})

    return type("Pen", (base,), {"__init__": start, "render": render, "render_str": render_str})


def _check(console: "Any") -> None:
    if time.monotonic() > console.end_s:
        raise _Spent


def draw(value: object, console: object = None) -> str:
    """As it would look on a terminal without colours."""
    console = console or _console()
    try:
        return _drawn(value, console)
    except Exception as error:  # somebody else's object: by its cells, or by what it stands around
        raise_if_signal(error)
        if _is_table(value):
            return _listed(value, console)
        inner = getattr(value, "renderable", None)
        if inner is None:
            raise
        return shown(inner)


def _drawn(value: "Any", console: "Any") -> str:
    size, parts = 0, []
    try:
        for segment in console.render(_smaller(value) if _is_table(value) else value):
            if not segment.control:
                parts.append(segment.text)
                size += len(segment.text)
            if size > DRAWN_CHARS_MAX:
                parts.append(f"\n{_MORE}")
                break
    except _Spent:
        if _is_table(value):
            raise
        parts.append(f"\n{_MORE}")
    return "\n".join(line.rstrip() for line in "".join(parts).splitlines()) + _rows_left(value)


def _listed(table: "Any", console: "Any") -> str:
    """A table that cannot be drawn, a line for each row."""
    found = _cells(table, console, lambda text: text)
    lines = [" │ ".join(row) for row in (found["columns"], *found["rows"])]
    title = [_cell(console, table.title)] if table.title else []
    return "\n".join([*title, *lines]) + _rows_left(table)


def _is_table(value: object) -> bool:
    table: Any = sys.modules.get("rich.table")
    return table is not None and isinstance(value, table.Table)


def _rows_left(value: "Any") -> str:
    left = value.row_count - LOG_TABLE_ROWS_MAX if _is_table(value) else 0
    return f"\n… and {left} more rows" if left > 0 else ""


def _smaller(value: "Any") -> "Any":
    """The same table with its first rows, and of each cell its beginning: drawing a million would
    take minutes.
    """
    copy: Any = __import__("copy").copy
    table = copy(value)
    table.columns, table.rows = (
        [copy(column) for column in value.columns],
        value.rows[:LOG_TABLE_ROWS_MAX],
    )
    for column in table.columns:
        column._cells = [_shorter(cell) for cell in column._cells[:LOG_TABLE_ROWS_MAX]]
    return table


def _shorter(cell: "Any") -> "Any":
    is_long = (isinstance(cell, str) or hasattr(cell, "plain")) and len(cell) > CELL_DRAWN_CHARS_MAX
    return cell[:CELL_DRAWN_CHARS_MAX] if is_long else cell


def cells_of(record: "LogRecord", mask: "Mask") -> "JsonObject | None":
    """The first table of a record as `{columns, rows}`, for views that lay it out themselves. Never
    raises.
    """
    args: Any = record.args.values() if isinstance(record.args, dict) else record.args or ()
    values = (record.msg, *args)
    table: Any = next((value for value in values if _is_table(value)), None)
    if table is None:
        return None
    try:
        return _cells(table, _console(), mask)
    except Exception as error:  # a table of somebody else's making; its drawing is in the text
        raise_if_signal(error)
        return None


def _cells(table: "Any", console: "Any", mask: "Mask") -> "JsonObject":
    columns = table.columns[:LOG_TABLE_COLUMNS_MAX]
    cells = [
        [_bounded_cell(console, cell, mask) for cell in islice(column.cells, LOG_TABLE_ROWS_MAX)]
        for column in columns
    ]
    return {
        "columns": [_bounded_cell(console, column.header, mask) for column in columns],
        "rows": [list(row) for row in zip(*cells)],
    }


def _cell(console: "Any", cell: "Any") -> str:
    """All cells of a table share their time."""
    try:
        cell = _shorter(cell)
        if isinstance(cell, str):
            cell = console.render_str(cell)
        return str(cell.plain) if hasattr(cell, "plain") else draw(cell, console).strip()
    except Exception as error:  # of somebody else's making; the other cells are shown
        raise_if_signal(error)
        return f"<{type_name(cell)} that cannot be shown: {type(error).__name__}>"


def _bounded_cell(console: object, cell: object, mask: "Mask") -> str:
    masked = mask(_cell(console, cell))
    return masked if len(masked) <= LOG_CELL_CHARS_MAX else masked[: LOG_CELL_CHARS_MAX - 1] + "…"

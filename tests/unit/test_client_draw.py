"""What records of `logging` say where rich, or an object of the program, cannot or will not: plain
words, an end.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headway.client import log_text
from headway.model.limits import LOG_TABLE_ROWS_MAX, LOG_TEXT_CHARS_MAX


def record(msg: object, *args: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "f.py", 1, msg, args, None)  # type: ignore[arg-type]


def table(*rows: tuple[Any, ...], title: str | None = None) -> Table:
    made = Table("a", "[/h]", title=title)
    for row in rows:
        made.add_row(*row)
    return made


def shown(msg: object, *args: object) -> tuple[str, dict[str, Any] | None]:
    one = record(msg, *args)
    text, _ = log_text.bounded(log_text.text_of(one), str)
    return text, log_text.cells_of(one, str)


def test_markup_that_is_none_is_shown_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """B17: in a message, beside other values, in a table, its head and its title, in a panel and in
    a format.
    """
    monkeypatch.setattr(log_text, "LOG_DRAW_S_MAX", 60.0)  # however slow the machine is
    assert shown("50 % [/red] done")[0] == "50 % [/red] done"
    text, cells = shown(
        "so:", "[/b]", table(("[/red]", "2"), ("[bold]3[/bold]", Text("4")), title="[/t]")
    )
    assert text.startswith("so: [/b]\n")
    assert all(word in text for word in ("[/red]", "[/h]", "[/t]", "│ 3 ", "┏"))
    assert cells == {"columns": ["a", "[/h]"], "rows": [["[/red]", "2"], ["3", "4"]]}
    assert "[/red] hi" in shown(Panel("[/red] hi"))[0]
    assert "[/red]" in shown(Panel(table(("[/red]", "2"))))[0]
    for one in (
        record("%s", table(("[/red]", "2"))),
        record("%(t)s", {"t": table(("[/red]", "2"))}),
    ):
        assert "[/red] │ 2" in log_text.text_of(one)
        assert log_text.cells_of(one, str) == {"columns": ["a", "[/h]"], "rows": [["[/red]", "2"]]}


def test_a_frame_that_cannot_be_drawn_is_left_out_and_what_it_stands_around_is_shown() -> None:
    assert shown(Panel("inside", title="[/t]"))[0] == "inside"


class Raises:
    def __rich__(self) -> str:
        raise KeyError("mine")

    def __repr__(self) -> str:
        raise KeyError("mine")


class Within:
    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        yield self


class Words:
    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        while True:
            yield "more"


class Nothing:
    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        while True:
            yield Segment("")


class Huge:
    def __rich_console__(self, console: object, options: object) -> Iterator[object]:
        yield "y" * 20_000_000


@pytest.mark.parametrize("kind", [Raises, Within, Words, Nothing, Huge])
def test_an_object_that_raises_never_ends_or_is_huge_costs_only_itself(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, and in a table, whose other cells are shown."""
    monkeypatch.setattr(log_text, "LOG_DRAW_S_MAX", 0.2)
    text, cells = shown("before %s after", kind())
    assert text.startswith("before ") and len(text) < 2 * LOG_TEXT_CHARS_MAX
    text, cells = shown(table(("one", "two"), (kind(), "four")))
    assert all(word in text for word in ("one", "two", "four"))
    assert cells is not None
    assert cells["rows"][0] == ["one", "two"] and cells["rows"][1][1] == "four"


def test_what_cannot_be_shown_says_so_by_its_type() -> None:
    assert shown(Raises())[0] == "<test_client_draw.Raises that cannot be shown: KeyError>"
    assert (
        "<test_client_draw.Raises that cannot be shown: KeyError> │ 2"
        in shown(table((Raises(), "2")))[0]
    )


def test_large_tables_are_drawn_in_part_and_left_as_they_are() -> None:
    cell = "z" * 1_000_000
    made = table(*((cell, str(i)) for i in range(LOG_TABLE_ROWS_MAX + 7)))
    text, cells = shown(made)
    assert text.endswith("… and 7 more rows")
    assert cells is not None and len(cells["rows"]) == LOG_TABLE_ROWS_MAX
    assert made.row_count == LOG_TABLE_ROWS_MAX + 7 and next(iter(made.columns[0].cells)) is cell


def test_what_stops_the_program_is_not_held_back() -> None:
    class Interrupted:
        def __rich__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shown(Interrupted())

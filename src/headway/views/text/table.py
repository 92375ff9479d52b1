"""A table of text: columns that are equal for all rows are said once above it, empty ones are left
out.

Widths are counted in terminal cells, so that wide characters do not break the layout. Pure; called
by lists.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headway.model.limits import DISPLAY_CELL_CHARS_MAX
from headway.model.value import Value

GAP: Final = "  "
ALWAYS: Final = 2
EMPTY: Final = "—"


class Column(Value):
    """`factor`: may be said once above the table. `keep`: what stays longest when the terminal is
    narrow: 0 goes first, `ALWAYS` stays. `said`: words for the line above, where `{}` is the value;
    default is `<title> <value>`.
    """

    title: str
    right: bool = False
    factor: bool = False
    keep: int = 0
    said: str = ""
    limit: int = DISPLAY_CELL_CHARS_MAX


Cells = Sequence[str]
Paint = Callable[[str], str]
_CELLS_MIN: Final = 4
_EMPTIES: Final = frozenset(("", EMPTY))
_LAST_CELLS_MIN: Final = 28  # of a reason less says nothing


def width(text: str) -> int:
    """Terminal cells that `text` takes."""
    if text.isascii():
        return len(text)
    visible = [c for c in text if not unicodedata.combining(c)]
    return len(visible) + sum(unicodedata.east_asian_width(c) in "WF" for c in visible)


def fit(text: str, cells: int) -> str:
    """`text`, cut to `cells` with an ellipsis."""
    if width(text) <= cells:
        return text
    kept, used = "", 0
    for char in text:
        used += width(char)
        if used > cells - 1:
            break
        kept += char
    return kept + "…"


def layout(
    columns: Sequence[Column],
    rows: Sequence[Cells],
    columns_max: int | None = None,
    paint: Mapping[str, Paint] | None = None,
) -> tuple[str, list[str]]:
    """`(what is equal for all, lines of the table)`; the first line of the table is its header.

    `paint` colours the cells of a column, by title, once the widths are settled.
    """
    every = [list(cells) for cells in zip(*rows, strict=True)] if rows else [[] for _ in columns]
    used = [i for i, cells in enumerate(every) if not _EMPTIES.issuperset(cells)]
    equal = [i for i in used if columns[i].factor and len(rows) > 1 and len(set(every[i])) == 1]
    shown = [i for i in used if i not in equal]
    cells = [
        _fit_all(
            [cell or (EMPTY if columns[i].right else "") for cell in every[i]], columns[i].limit
        )
        for i in shown
    ]
    table = _Table([columns[i] for i in shown], cells)
    if columns_max is not None:
        table.narrow(columns_max)
    above = " · ".join(
        (columns[i].said or f"{columns[i].title} {{}}").format(rows[0][i]) for i in equal
    )
    return above, table.lines(paint or {}) or [""] * (len(rows) + 1)


def _widest(cells: list[str]) -> int:
    """The cells that the widest of them takes. Ten thousand rows are one look at them, where all of
    it is ASCII.
    """
    joined = "".join(cells).isascii()
    return max(map(len if joined else width, cells), default=0)


def _fit_all(cells: list[str], limit: int) -> list[str]:
    return cells if _widest(cells) <= limit else [fit(cell, limit) for cell in cells]


class _Table:
    """`cells` are columns, not rows."""

    def __init__(self, columns: list[Column], cells: list[list[str]]) -> None:
        self.columns, self.cells = columns, cells
        self.widths = [
            max(width(column.title), _widest(cells[i])) for i, column in enumerate(columns)
        ]

    def narrow(self, columns_max: int) -> None:
        """Drop what may go, first what most rows have not, from the right, until the rest fits;
        then cut columns, the last one first.
        """
        for i in reversed(range(len(self.columns))):
            is_optional = not self.columns[i].keep and self._is_sparse(i)
            if is_optional and self._total() > columns_max:
                self._drop(i)

        while self._total() - self._spare() > columns_max:
            keeps = [column.keep for column in self.columns]
            least = min(keeps, default=ALWAYS)
            if least >= ALWAYS:
                break
            last_of_least = max(i for i, keep in enumerate(keeps) if keep == least)
            self._drop(last_of_least)

        over = self._total() - columns_max
        for i in reversed(range(len(self.columns))):
            cut = min(max(over, 0), max(self.widths[i] - _CELLS_MIN, 0))
            self.widths[i] -= cut
            over -= cut

    def _drop(self, i: int) -> None:
        del self.columns[i], self.widths[i], self.cells[i]

    def _is_sparse(self, i: int) -> bool:
        return 2 * sum(cell in _EMPTIES for cell in self.cells[i]) > len(self.cells[i])

    def _total(self) -> int:
        return sum(self.widths) + len(GAP) * (len(self.widths) - 1)

    def _spare(self) -> int:
        """What cutting the last column could give, if it is a kept column of free text."""
        if not self.columns or not self.columns[-1].keep or self.columns[-1].right:
            return 0
        return max(self.widths[-1] - _LAST_CELLS_MIN, 0)

    def lines(self, paint: Mapping[str, Paint]) -> list[str]:
        laid = []
        for column, cells, cells_max in zip(self.columns, self.cells, self.widths, strict=True):
            head = _pad_all([fit(column.title, cells_max)], cells_max, column.right)
            body = _pad_all(_fit_all(cells, cells_max), cells_max, column.right)
            painter = paint.get(column.title)
            laid.append(head + ([painter(cell) for cell in body] if painter else body))
        return [GAP.join(row).rstrip() for row in zip(*laid, strict=True)]


def _pad_all(cells: list[str], cells_max: int, right: bool) -> list[str]:
    if "".join(cells).isascii():
        return [cell.rjust(cells_max) if right else cell.ljust(cells_max) for cell in cells]
    spaces = [" " * (cells_max - width(cell)) for cell in cells]
    return [
        space + cell if right else cell + space for cell, space in zip(cells, spaces, strict=True)
    ]

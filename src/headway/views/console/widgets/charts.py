"""Curves as large as the screen allows: what `c` shows in place of the log. Each metric and each
usage figure gets a chart of braille dots with its highest and lowest value; pure.
"""

from collections.abc import Sequence
from typing import Final

from headway.views.console.cells import BOLD, CYAN, DIM, EMPTY, Line, cells, cut, pad, plain
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme
from headway.views.text import format as fmt
from headway.views.text.table import fit

_USAGE_NAMES: Final = {
    "cpu_percent": "cpu %",
    "memory_bytes": "memory",
    "gpu_percent": "gpu %",
    "gpu_memory_bytes": "gpu memory",
}
_ROWS_MIN: Final = 5  # of one chart with its title
_ROWS_MAX: Final = 14
_COLUMNS_MIN: Final = 36
_AXIS_COLUMNS: Final = 9
_GAP: Final = 2
# Bit of each dot of a braille cell: two columns, four rows from the top.
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE: Final = 0x2800


def charts(model: Model, columns: int, rows: int, theme: Theme) -> list[Line]:
    curves = [(name, metric.curve.values(), False) for name, metric in model.metrics.items()]
    for name, title in _USAGE_NAMES.items():
        if name in model.usage_curves:
            curves.append((title, model.usage_curves[name].values(), "memory" in title))
    curves = [one for one in curves if len(one[1]) > 1]
    if not curves:
        return [plain("  no curve yet: two values make one", DIM)][:rows]
    across = _across(len(curves), columns, rows)
    down = min(-(-len(curves) // across), max(rows // _ROWS_MIN, 1))
    height = min(rows // down, _ROWS_MAX) if rows >= _ROWS_MIN else rows
    width = (columns - _GAP * (across - 1)) // across
    lines: list[Line] = []
    for row in range(down):
        beside = [
            _chart(name, values, size, width, height, theme)
            for name, values, size in curves[row * across : (row + 1) * across]
        ]
        for parts in zip(*beside, strict=True):
            line: Line = ()
            for number, part in enumerate(parts):
                line = (*line, (" " * _GAP, ""), *part) if number else part
            lines.append(line)
    left = len(curves) - down * across
    if left > 0 and lines:
        lines[-1] = plain(f"  and {left} more: a larger window shows them", DIM)
    return lines[:rows]


def _across(count: int, columns: int, rows: int) -> int:
    """Charts beside each other: as few as are needed to show all, so that each is wide."""
    most = max(columns // _COLUMNS_MIN, 1)
    for across in range(1, most + 1):
        if -(-count // across) * (_ROWS_MIN + 2) <= rows:
            return across
    return most


def _chart(
    name: str, values: Sequence[float], is_size: bool, columns: int, rows: int, theme: Theme
) -> list[Line]:
    shown = fmt.size if is_size else fmt.number
    low, high = min(values), max(values)
    title = pad(
        (
            (" " * _AXIS_COLUMNS, ""),
            (fit(theme.safe(name), max(columns - _AXIS_COLUMNS - 14, 8)), BOLD),
            (f"  {shown(values[-1])}", ""),
        ),
        columns,
    )
    plotted = _dots(values, columns - _AXIS_COLUMNS - 1, rows - 2, low, high, theme.ascii_only)
    lines = [title]
    for number, text in enumerate(plotted):
        label = ""
        if number == 0:
            label = shown(high)
        elif number == len(plotted) - 1 and high > low:
            label = shown(low)
        axis = f"{label[: _AXIS_COLUMNS - 1]:>{_AXIS_COLUMNS - 1}}"
        lines.append(pad(((axis, DIM), ("│", DIM), (text, CYAN)), columns))
    lines += [EMPTY] * (rows - len(lines))
    return [pad(line, columns) if cells(line) < columns else cut(line, columns) for line in lines]


def _dots(
    values: Sequence[float], columns: int, rows: int, low: float, high: float, ascii_only: bool
) -> list[str]:
    """The curve in `rows` lines; neighbouring points are joined by a vertical stroke."""
    columns, rows = max(columns, 1), max(rows, 1)
    across, down = (columns, rows) if ascii_only else (columns * 2, rows * 4)
    grid = [[0] * columns for _ in range(rows)]
    span = high - low
    before: int | None = None
    for x in range(across):
        place = x * (len(values) - 1) / max(across - 1, 1)
        left = int(place)
        right = min(left + 1, len(values) - 1)
        value = values[left] + (values[right] - values[left]) * (place - left)
        share = (value - low) / span if span > 0 else 0.5
        y = down - 1 - round(share * (down - 1))
        first, last = (y, y) if before is None else (min(y, before), max(y, before))
        for dot in range(first, last + 1):
            if ascii_only:
                grid[dot][x] = 1
            else:
                grid[dot // 4][x // 2] |= _DOTS[dot % 4][x % 2]
        before = y
    if ascii_only:
        return ["".join("*" if cell else " " for cell in row) for row in grid]
    return ["".join(chr(_BRAILLE + cell) if cell else " " for cell in row) for row in grid]

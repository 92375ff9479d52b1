"""A chart in the characters of a terminal: each cell has two by four dots of braille. Pure; called by
`hw plot`.

Every segment is drawn through all the rows that it crosses, so a spike of one sample is a stroke.
"""

from collections.abc import Callable
from itertools import pairwise

from headway.views.plot import plot_axes
from headway.views.plot.plot_axes import Scale
from headway.views.plot.plot_lines import Floats, Line, Panel
from headway.views.text import table

COLORS = ("34", "33", "32", "31", "35", "36", "94", "93", "92", "91", "95", "96")
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_RAW, _FRONT = 1, 2  # which of two lines colours a cell that both cross
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
Paint = Callable[[str, str], str]  # text, code -> text


class _Canvas:
    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.bits = [[0] * columns for _ in range(rows)]
        self.owner: list[list[tuple[int, int] | None]] = [[None] * columns for _ in range(rows)]

    def dot(self, x: int, y: int, color: int, depth: int) -> None:
        if not (0 <= x < 2 * self.columns and 0 <= y < 4 * self.rows):
            return
        row, column = y // 4, x // 2
        self.bits[row][column] |= _DOTS[y % 4][x % 2]
        before = self.owner[row][column]
        if before is None or before[0] <= depth:
            self.owner[row][column] = (depth, color)

    def segment(self, a: tuple[int, int], b: tuple[int, int], color: int, depth: int) -> None:
        (x0, y0), (x1, y1) = a, b
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            self.dot(
                x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps), color, depth
            )


def render(
    panel: Panel, x_axis: Scale, y_axis: Scale, columns: int, rows: int, paint: Paint,
    x_label: Callable[[float], str], x_ticks: list[float], *, colored: bool,
) -> list[str]:  # fmt: skip
    """The chart with its axes, `columns` wide and about `rows` high."""
    y_marks = {
        round((1 - y_axis.place(v)) * (rows - 1)): v
        for v in plot_axes.ticks(y_axis, max(2, rows // 4))
    }
    labels = {row: plot_axes.label(value) for row, value in y_marks.items() if 0 <= row < rows}
    gutter = max((table.width(text) for text in labels.values()), default=1)
    ends = 0 if colored else 2  # letters at the ends of lines, where colours cannot tell them apart
    canvas = _Canvas(max(10, columns - gutter - 2 - ends), rows)
    for line in panel.lines:
        if line.low is not None and line.high is not None:
            _band(canvas, line, line.low, line.high, x_axis, y_axis)
        _draw(canvas, line, line.y, x_axis, y_axis, _RAW if line.smooth is not None else _FRONT)
        if line.smooth is not None:
            _draw(canvas, line, line.smooth, x_axis, y_axis, _FRONT)
    letters = {} if colored else _ends(panel, y_axis, rows)
    lines = []
    for row in range(rows):
        mark = labels.get(row, "").rjust(gutter)
        edge = "┤" if row in labels else "│"
        lines.append(f"{mark} {edge}{_cells(canvas, row, paint)}{letters.get(row, '')}".rstrip())
    return [*lines, *_below(canvas, x_axis, x_ticks, x_label, gutter)]


def _places(
    canvas: _Canvas, x: Floats, y: Floats, x_axis: Scale, y_axis: Scale
) -> list[tuple[int, int]]:
    wide, high = 2 * canvas.columns - 1, 4 * canvas.rows - 1
    return [
        (round(x_axis.place(a) * wide), round((1 - y_axis.place(b)) * high))
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]


def _draw(canvas: _Canvas, line: Line, y: Floats, x_axis: Scale, y_axis: Scale, depth: int) -> None:
    places = _places(canvas, line.x, y, x_axis, y_axis)
    if len(places) == 1:
        canvas.dot(*places[0], line.color, depth)
    for a, b in pairwise(places):
        canvas.segment(a, b, line.color, depth)


def _band(
    canvas: _Canvas, line: Line, low: Floats, high: Floats, x_axis: Scale, y_axis: Scale
) -> None:
    """Every second dot between the bounds."""
    tops = _places(canvas, line.x, high, x_axis, y_axis)
    bottoms = _places(canvas, line.x, low, x_axis, y_axis)
    for (x, top), (_, bottom) in zip(tops, bottoms, strict=True):
        for y in range(max(0, top), min(bottom, 4 * canvas.rows - 1) + 1):
            if (x + y) % 3 == 0:
                canvas.dot(x, y, line.color, 0)


def _cells(canvas: _Canvas, row: int, paint: Paint) -> str:
    parts = []
    for column in range(canvas.columns):
        bits, owner = canvas.bits[row][column], canvas.owner[row][column]
        char = chr(_BLANK + bits) if bits else " "
        if owner is None:
            parts.append(char)
            continue
        depth, color = owner
        code = COLORS[color % len(COLORS)]
        parts.append(paint(char, f"2;{code}" if depth < _FRONT else code))
    return "".join(parts)


def _ends(panel: Panel, y_axis: Scale, rows: int) -> dict[int, str]:
    """The letter of each line beside the row that it ends in."""
    found: dict[int, str] = {}
    for line in panel.lines:
        row = min(rows - 1, max(0, round((1 - y_axis.place(float(line.y[-1]))) * (rows - 1))))
        found[row] = (found.get(row, " ") + LETTERS[line.color % len(LETTERS)])[:2]
    return found


def _below(
    canvas: _Canvas,
    x_axis: Scale,
    x_ticks: list[float],
    x_label: Callable[[float], str],
    gutter: int,
) -> list[str]:
    edge = ["─"] * canvas.columns
    text = [" "] * canvas.columns
    free = 0
    for value in x_ticks:
        place = round(x_axis.place(value) * (canvas.columns - 1))
        if not 0 <= place < canvas.columns:
            continue
        words = x_label(value)
        # inside the chart: a line that wraps would break the next live drawing
        start = min(max(0, place - len(words) // 2), canvas.columns - len(words))
        edge[place] = "┬"
        if start >= free:
            text[start : start + len(words)] = list(words)
            free = start + len(words) + 1
    indent = " " * (gutter + 1)
    return [f"{indent}└{''.join(edge)}", f"{indent} {''.join(text)}".rstrip()]

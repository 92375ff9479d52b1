"""A chart as simple shapes (lines, areas, words) on a plane of pixels, from which SVG and PNG are
drawn alike. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.views.plot import plot_axes
from headway.views.plot.plot_axes import Scale
from headway.views.plot.plot_lines import Floats, Panel

PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccaa22", "#66ccee", "#aa3377", "#bb5522", "#5544aa", "#339988", "#996633",
    "#dd88bb", "#777777",
)  # fmt: skip
INK, GRID, PAPER = "#333333", "#e3e3e3", "#ffffff"
WIDE, HIGH = 900, 420  # of one panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 36, 46
_LEGEND_ROW = 18
_LEGEND_MAX = 24


@dataclass(frozen=True, slots=True)
class Stroke:
    points: list[tuple[float, float]]
    color: str
    width: float = 1.6
    opacity: float = 1.0
    dashed: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    points: list[tuple[float, float]]
    color: str
    opacity: float = 0.18


@dataclass(frozen=True, slots=True)
class Words:
    x: float
    y: float
    text: str
    color: str = INK
    size: int = 12
    anchor: str = "start"  # start middle end


@dataclass(frozen=True, slots=True)
class Scene:
    width: int
    height: int
    shapes: list[Stroke | Area | Words]


# How the x-axis of a panel is written: its title, the label of a value, and where to put some.
XWords = tuple[str, Callable[[float], str], Callable[[Scale], list[float]]]


def build(
    panels: Sequence[Panel], axes: Sequence[tuple[Scale, Scale]], x_words: Sequence[XWords]
) -> Scene:
    shapes: list[Stroke | Area | Words] = []
    top = 0
    for panel, (x_axis, y_axis), words in zip(panels, axes, x_words, strict=True):
        legend = min(len(panel.lines), _LEGEND_MAX)
        _panel(shapes, panel, x_axis, y_axis, top, *words)
        top += HIGH + _LEGEND_ROW * ((legend + 1) // 2) + 12
    return Scene(WIDE, max(top, HIGH), shapes)


def _panel(
    shapes: list[Stroke | Area | Words], panel: Panel, x_axis: Scale, y_axis: Scale, top: int, x_title: str,
    x_label: Callable[[float], str], x_ticks: Callable[[Scale], list[float]],
) -> None:  # fmt: skip
    left, right = float(_LEFT), float(WIDE - _RIGHT)
    upper, lower = float(top + _TOP), float(top + HIGH - _BOTTOM)

    def px(value: float) -> float:
        return round(left + x_axis.place(value) * (right - left), 2)

    def py(value: float) -> float:
        return round(lower - y_axis.place(value) * (lower - upper), 2)

    def points(x: Floats, y: Floats) -> list[tuple[float, float]]:
        return [(px(a), py(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]

    shapes.append(Words(left, top + 22, panel.name, size=15))
    for value in plot_axes.ticks(y_axis, 6):
        shapes.append(Stroke([(left, py(value)), (right, py(value))], GRID, 1.0))
        shapes.append(Words(left - 8, py(value) + 4, plot_axes.label(value), anchor="end"))
    for value in x_ticks(x_axis):
        if not -0.001 <= x_axis.place(value) <= 1.001:
            continue
        shapes.append(Stroke([(px(value), upper), (px(value), lower)], GRID, 1.0))
        shapes.append(Words(px(value), lower + 18, x_label(value), anchor="middle"))
    shapes.append(Words(right, lower + 36, x_title, anchor="end"))
    for line in panel.lines:
        color = PALETTE[line.color % len(PALETTE)]
        dashed = line.attempt > 1
        if line.low is not None and line.high is not None:
            there, back = points(line.x, line.high), points(line.x, line.low)
            shapes.append(Area([*there, *reversed(back)], color))
        behind = line.smooth is not None
        shapes.append(
            Stroke(
                points(line.x, line.y),
                color,
                1.0 if behind else 1.6,
                0.35 if behind else 1.0,
                dashed,
                line.label,
            )
        )
        if line.smooth is not None:
            shapes.append(Stroke(points(line.x, line.smooth), color, 1.8, 1.0, dashed, line.label))
    for number, line in enumerate(panel.lines[:_LEGEND_MAX]):
        x = left + (number % 2) * (right - left) / 2
        y = top + HIGH + _LEGEND_ROW * (number // 2) + 4
        color = PALETTE[line.color % len(PALETTE)]
        shapes.append(Stroke([(x, y - 4), (x + 22, y - 4)], color, 3.0, 1.0, line.attempt > 1))
        shapes.append(Words(x + 30, y, line.label[:60]))

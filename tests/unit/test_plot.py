"""Charts: a spike of one sample is visible everywhere, axes are round, foreign words stay words."""

import json
import math

import numpy as np
import pytest

from headway.model.errors import HeadwayError
from headway.views.plot import (
    braille,
    chart_scene,
    plot_axes,
    plot_lines,
    png_chart,
    svg_chart,
)
from headway.views.plot.plot_lines import Line, Panel


def line(y: list[float], x: list[float] | None = None, **fields: object) -> Line:
    places = np.array(range(len(y)) if x is None else x, np.float64)
    return Line("job-aaaaa", "loss", 0, 1, places, np.array(y, np.float64), **fields)  # type: ignore[arg-type]


def drawn(panel: Panel, columns: int = 60, rows: int = 10) -> list[str]:
    ys = [value for one in panel.lines for value in one.y.tolist()]
    xs = [value for one in panel.lines for value in one.x.tolist()]
    x_axis, y_axis = plot_axes.scale(xs, log=False), plot_axes.scale(ys, log=False)
    return braille.render(
        panel, x_axis, y_axis, columns, rows, lambda text, _: text, plot_axes.label,
        plot_axes.ticks(x_axis, 5), colored=False,
    )  # fmt: skip


def spiked() -> Line:
    y = [0.0] * 10_000
    y[7_000] = 100.0
    return line(y)


def test_a_spike_of_one_sample_is_a_stroke_over_all_rows() -> None:
    rows = drawn(Panel("loss", [spiked()]))
    place = next(i for i, char in enumerate(rows[0]) if ord(char) > 0x2800)
    assert all(ord(row[place]) > 0x2800 for row in rows[:10])
    assert place / 60 == pytest.approx(0.7, abs=0.05)


def test_a_spike_is_seen_behind_a_smoothed_line_and_in_files() -> None:
    one = spiked()
    plot_lines.smooth(one, 0.99)
    assert one.smooth is not None and one.smooth.max() < 2
    panel = Panel("loss", [one])
    axes = (plot_axes.scale([0, 9_999], log=False), plot_axes.scale([0, 100], log=False))
    scene = chart_scene.build(
        [panel], [axes], [("step", plot_axes.label, lambda a: plot_axes.ticks(a, 5))]
    )
    strokes = [shape for shape in scene.shapes if isinstance(shape, chart_scene.Stroke)]
    assert min(y for stroke in strokes for _, y in stroke.points) == 36.0  # the top of the panel
    assert svg_chart.svg(scene).count("<polyline") == len(strokes)
    pytest.importorskip("PIL")
    assert png_chart.png(scene).startswith(b"\x89PNG\r\n")


def test_smoothing_starts_at_the_first_value_and_not_at_zero() -> None:
    one = line([5.0, 5.0, 5.0])
    plot_lines.smooth(one, 0.9)
    assert one.smooth is not None and one.smooth.tolist() == pytest.approx([5.0, 5.0, 5.0])


def test_what_no_axis_can_show_is_counted() -> None:
    panel = plot_lines.panel(
        "loss", [line([1.0, math.nan, -1.0, math.inf, 0.0, 2.0])], log_x=False, log_y=True
    )
    assert (panel.not_finite, panel.not_positive) == (2, 2)
    assert panel.lines[0].y.tolist() == [1.0, 2.0]
    nothing = plot_lines.panel("loss", [line([math.nan])], log_x=False, log_y=False)
    assert nothing.lines == []


def test_a_band_is_the_mean_and_one_deviation_where_lines_are() -> None:
    found = plot_lines.band([line([1.0, 1.0]), line([3.0, 3.0, 5.0])], "both")
    assert found.x.tolist() == [0.0, 1.0, 2.0]
    assert found.y.tolist() == [2.0, 2.0, 5.0]
    assert found.high is not None
    assert found.high.tolist() == pytest.approx([2 + math.sqrt(2), 2 + math.sqrt(2), 5.0])


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]), (-1, 1, False, [-1, -0.5, 0, 0.5, 1]),
        (0.001, 1000, True, [0.001, 0.1, 10, 1000]), (2, 9, True, [2, 5]), (3, 3, False, [2.8, 3, 3.2]),
    ],
)  # fmt: skip
def test_ticks_are_round_numbers(low: float, high: float, log: bool, expected: list[float]) -> None:
    assert plot_axes.ticks(plot_axes.scale([low, high], log=log), 5) == pytest.approx(expected)


def test_ends_of_what_a_double_holds_have_a_scale() -> None:
    axis = plot_axes.scale([-1.7e308, 1.7e308], log=False)
    assert math.isfinite(axis.high - axis.low)
    assert plot_axes.ticks(axis, 4)


def test_foreign_words_are_escaped() -> None:
    panel = Panel("<script>", [line([1.0, 2.0], label="<b>&")])
    axes = (plot_axes.scale([0, 1], log=False), plot_axes.scale([1, 2], log=False))
    scene = chart_scene.build([panel], [axes], [("<i>", plot_axes.label, lambda a: [0.0])])
    page = svg_chart.page(scene, "</title>")
    assert "<script>" not in page and "<b>" not in page and "<i>" not in page
    assert page.count("</title>") == 2  # its own, and that of the line


def test_a_single_point_is_drawn() -> None:
    rows = drawn(Panel("loss", [line([3.0])]))
    assert any(ord(char) > 0x2800 for row in rows for char in row)


def test_the_binary_answer_is_read_and_another_one_refused() -> None:
    head = json.dumps(
        {"series": [{"job": "a", "name": "loss", "rank": 0, "attempt": 2, "rows": 2}]}
    )
    body = np.array([1.0, 2.0, 3.0, 4.0]).tobytes()
    data = b"HWP1" + len(head).to_bytes(4, "little") + head.encode() + body
    (found,) = plot_lines.decode(data)
    assert (found.x.tolist(), found.y.tolist(), found.attempt) == ([1.0, 2.0], [3.0, 4.0], 2)
    with pytest.raises(HeadwayError):
        plot_lines.decode(b"<html>")

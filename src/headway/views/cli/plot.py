"""`hw plot ID… -m loss`: metrics over steps or time, in the terminal or as a file. The raw line is
always there, behind a smoothed one or a band over seeds; a spike of one sample is always visible.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source
from headway.views.cli import compare
from headway.views.cli.dispatch import Call
from headway.views.text import comparison, table
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD, DIM

if TYPE_CHECKING:
    from headway.views.plot.plot_axes import Scale
    from headway.views.plot.plot_lines import Line, Panel

_LINES_MAX: Final = 24  # of one panel in a terminal
_ROWS: Final = 18
_REFRESH_S: Final = 1.0
_FILE_PIXELS: Final = 1600
_FORMS: Final = (".png", ".svg", ".html")
Answer = JsonObject


def command(call: Call) -> int:
    _check(call)
    source = call.source()
    answer = compare.ask(call, source)
    if not answer["jobs"]:
        raise HeadwayError("no job matches", "hw ls shows the jobs")
    if not call.get("metrics"):
        answer["metrics"] = _default_metrics(answer)
    if call.get("follow"):
        return _follow(call, source, answer)
    panels = _panels(call, source, answer)
    if call.as_json:
        call.terminal.put_json(_data(panels))
    elif call.get("output"):
        _write(call, panels)
    else:
        call.terminal.out.write("\n".join(_text(call, panels)) + "\n")
    return 0


def _check(call: Call) -> None:
    compare.check(call)
    if call.get("follow") and (not call.terminal.out.is_tty or call.get("output") or call.as_json):
        raise UsageError(
            "-f draws on a terminal, again and again", "leave it out for a file or a pipe"
        )
    output = call.get("output")
    if output and not output.endswith(_FORMS):
        raise UsageError(f'"{output[:60]}" names no form', "FILE.png, FILE.svg or FILE.html")
    if call.get("group") and call.get("all_ranks"):
        raise UsageError("--group joins jobs, --all-ranks takes them apart", "keep one of them")


def _default_metrics(answer: Answer) -> list[str]:
    """The first that has a better side, else the first."""
    directed = [name for name in answer["metrics"] if answer["directions"].get(name)]
    if not answer["metrics"]:
        raise HeadwayError("the jobs have logged no metrics")
    return (directed or answer["metrics"])[:1]


# -- lines


def _panels(call: Call, source: Source, answer: Answer) -> "list[Panel]":
    from headway.views.plot import plot_lines

    pixels = _FILE_PIXELS if call.get("output") else 2 * (call.terminal.out.columns or 100)
    x = call.get("x") or "auto"
    rank = -1 if call.get("all_ranks") else call.get("rank")
    body = {
        "jobs": [job["id"] for job in answer["jobs"]], "names": answer["metrics"], "x": x, "pixels": pixels,
        "rank": rank, "joined": not call.get("apart"),
    }  # fmt: skip
    lines = plot_lines.decode(source.post_raw("/api/charts", body))
    if x == "time":
        _from_start(lines)
    axes = call.get("log") or ""
    panels = []
    for name in answer["metrics"]:
        mine = [line for line in lines if line.name == name]
        panel = plot_lines.panel(name, mine, log_x="x" in axes, log_y="y" in axes)
        panel.axis = _common_axis(mine)
        _name_lines(call, answer, panel)
        if call.get("group"):
            _group(call, answer, panel)
        if call.get("smooth"):
            for line in panel.lines:
                plot_lines.smooth(line, call.get("smooth"))
        panels.append(panel)
    if not any(panel.lines for panel in panels):
        raise HeadwayError(
            f"there is nothing to draw of {', '.join(answer['metrics'])[:200]}",
            "hw compare with the same selection shows the metrics that they have",
        )
    return [panel for panel in panels if panel.lines]


def _common_axis(lines: "list[Line]") -> str:
    """What x is; jobs may have defined different axes for one metric."""
    return " or ".join(dict.fromkeys(line.axis for line in lines)) or "step"


def _from_start(lines: "list[Line]") -> None:
    """Seconds since the first point of each job: jobs that ran one after the other lie together."""
    starts: dict[str, float] = {}
    for line in lines:
        if len(line.x):
            starts[line.job] = min(starts.get(line.job, float(line.x[0])), float(line.x[0]))
    for line in lines:
        if len(line.x):
            line.x = line.x - starts[line.job]


def _name_lines(call: Call, answer: Answer, panel: "Panel") -> None:
    """A label and a colour for each line: by job; attempts and ranks of one job are told apart."""
    configs = {job["id"]: job["config"] for job in answer["jobs"]}
    keys = answer["differs"][:4]
    jobs = list(dict.fromkeys(line.job for line in panel.lines))
    for line in panel.lines:
        words = [fmt.suffix(line.job)]
        if len(answer["jobs"]) > 1:
            config = configs.get(line.job, {})
            for key in keys:
                if key in config:
                    words.append(f"{key}={comparison.config_text(config[key])}")

        of_job = [other for other in panel.lines if other.job == line.job]
        attempts = {other.attempt for other in of_job}
        ranks = {other.rank for other in of_job}
        if len(attempts) > 1:
            words.append(f"attempt {line.attempt}")
        if len(ranks) > 1:
            words.append(f"rank {line.rank}")
        line.label = " ".join(words)

        if len(jobs) == 1:
            line.color = of_job.index(line)
        else:
            line.color = jobs.index(line.job)


def _group(call: Call, answer: Answer, panel: "Panel") -> None:
    from headway.views.plot import plot_lines

    keys = comparison.group_keys(answer, call.get("group"))
    configs = {job["id"]: job["config"] for job in answer["jobs"]}
    members: dict[str, list[Line]] = {}
    for line in panel.lines:
        config = configs.get(line.job, {})
        label = (
            " ".join(f"{key}={comparison.config_text(config.get(key))}" for key in keys) or "all"
        )
        members.setdefault(label, []).append(line)
    panel.lines = []
    for number, (label, lines) in enumerate(members.items()):
        band = plot_lines.band(
            lines, f"{label} ({fmt.plural(len({line.job for line in lines}), 'job')})"
        )
        band.color = number
        panel.lines.append(band)


def _data(panels: "list[Panel]") -> Answer:
    found: Answer = {}
    for panel in panels:
        found[panel.name] = [
            {
                "id": line.job, "rank": line.rank, "attempt": line.attempt, "axis": line.axis,
                "label": line.label, "x": line.x.tolist(),
                "y": line.y.tolist(), "smooth": None if line.smooth is None else line.smooth.tolist(),
                "low": None if line.low is None else line.low.tolist(),
                "high": None if line.high is None else line.high.tolist(),
            }
            for line in panel.lines
        ]  # fmt: skip
    return found


# -- drawing


def _scales(call: Call, panel: "Panel") -> "tuple[Scale, Scale]":
    from headway.views.plot import plot_axes

    axes = call.get("log") or ""
    log_x = "x" in axes
    log_y = "y" in axes
    xs: list[float] = []
    ys: list[float] = []
    for line in panel.lines:
        xs += [float(line.x.min()), float(line.x.max())]
        for column in (line.y, line.low, line.high):
            if column is not None:
                ys += [float(column.min()), float(column.max())]
    if log_y:
        ys = [value for value in ys if value > 0]
    return plot_axes.scale(xs, log=log_x), plot_axes.scale(ys, log=log_y, pad=0.03)


def _x_words(panel: "Panel") -> tuple[str, Callable[[float], str], Callable[..., list[float]]]:
    from headway.views.plot import plot_axes

    if panel.axis == "time":
        return (
            "time since the start",
            plot_axes.clock_label,
            lambda axis, count=8: plot_axes.ticks(axis, count, plot_axes.clock_step),
        )
    return panel.axis, plot_axes.label, lambda axis, count=8: plot_axes.ticks(axis, count)


def _text(call: Call, panels: "list[Panel]", rows: int = _ROWS) -> list[str]:
    from headway.views.plot import braille

    out = call.terminal.out
    columns = out.columns or 100
    lines: list[str] = []
    for panel in panels:
        x_title, x_label, x_ticks = _x_words(panel)
        shown = panel.lines[:_LINES_MAX]
        more = len(panel.lines) - len(shown)
        panel.lines = shown
        x_axis, y_axis = _scales(call, panel)
        lines.append(
            out.style(out.safe(panel.name), BOLD) + out.style(f"  over {out.safe(x_title)}", DIM)
        )
        lines += braille.render(
            panel, x_axis, y_axis, columns, rows, out.style, x_label, x_ticks(x_axis, max(2, columns // 12)),
            colored=out.color,
        )  # fmt: skip
        lines += _legend(call, panel)
        if more:
            lines.append(f"and {fmt.plural(more, 'further line')}: choose with --where, or --group")
        lines += _left_out(panel)
    return lines


def _legend(call: Call, panel: "Panel") -> list[str]:
    from headway.views.plot import braille

    out = call.terminal.out
    rows = []
    for line in panel.lines:
        mark = braille.LETTERS[line.color % len(braille.LETTERS)]
        if out.color:
            mark = "●"
        rows.append([mark, out.safe(line.label), fmt.number(float(line.y[-1]))])
    columns = [
        table.Column("", keep=2),
        table.Column("line", keep=2),
        table.Column("last", right=True, keep=2),
    ]
    laid = table.layout(columns, rows, None if out.columns is None else out.columns - 2)[1][1:]
    painted = []
    for line, text in zip(panel.lines, laid, strict=True):
        code = braille.COLORS[line.color % len(braille.COLORS)]
        painted.append(f"  {text.replace('●', out.style('●', code), 1)}")
    return painted


def _left_out(panel: "Panel") -> list[str]:
    found = []
    if panel.not_finite:
        found.append(f"  {fmt.plural(panel.not_finite, 'point')} not finite, not drawn")
    if panel.not_positive:
        found.append(
            f"  {fmt.plural(panel.not_positive, 'point')} at or below 0, which --log cannot show"
        )
    return found


def _write(call: Call, panels: "list[Panel]") -> None:
    from headway.views.plot import chart_scene, svg_chart

    axes = [_scales(call, panel) for panel in panels]
    scene = chart_scene.build(panels, axes, [_x_words(panel) for panel in panels])
    path = Path(call.get("output"))
    if path.suffix == ".png":
        from headway.views.plot import png_chart

        data = png_chart.png(scene)
    elif path.suffix == ".html":
        data = svg_chart.page(scene, ", ".join(panel.name for panel in panels)).encode()
    else:
        data = svg_chart.svg(scene).encode()
    path.write_bytes(data)
    for words in (words for panel in panels for words in _left_out(panel)):
        call.terminal.say(words.strip())
    call.terminal.say(f"written to {call.terminal.err.safe(str(path))}")


def _follow(call: Call, source: Source, answer: Answer) -> int:
    """Again every second, over the last drawing, until the jobs have ended or Ctrl-C."""
    out = call.terminal.out
    drawn = 0
    while True:
        rows = max(6, min(_ROWS, (out.rows or 24) - len(answer["jobs"]) - 6))
        try:
            lines = _text(call, _panels(call, source, answer), rows)
        except HeadwayError as error:
            lines = [error.message]  # a job that has not logged yet
        if drawn:
            out.control(f"\x1b[{drawn}A\x1b[J")
        out.write("\n".join(lines) + "\n")
        drawn = len(lines)
        if all(job["state"] in fmt.ENDED for job in answer["jobs"]):
            return 0
        sys.stdout.flush()
        time.sleep(_REFRESH_S)
        names = answer["metrics"]
        answer = compare.ask(call, source)
        answer["metrics"] = names if names else _default_metrics(answer)

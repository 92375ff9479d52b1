"""Draws a run as one SVG: a group of horizontal bars per figure, on a logarithmic scale. Called by
`__main__.py`.
"""

import math
from html import escape
from pathlib import Path

from bench.result import HEADWAY, Result
from bench.table import Report, number

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 860, 190, 110
BAR_HEIGHT, BAR_GAP, TITLE_HEIGHT, GROUP_GAP = 15, 4, 22, 16
OURS, THEIRS = "#1f77b4", "#b9bfc7"
_STYLE = "text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}.n{fill:#57606a}"


def svg(report: Report) -> str:
    """Only results with something to compare are drawn."""
    y, body = 46, list[str]()
    for result in report.results:
        if sum(bool(m.samples) for m in result.measures) > 1:
            y = _group(body, result, y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
        f'<style>{_STYLE}</style><rect width="{WIDTH}" height="{y}" fill="#fff"/>'
        f'<text class="t" x="12" y="20">Headway beside its peers (logarithmic scales)</text>'
        f'<text class="n" x="12" y="36">{escape(report.machine.line())}</text>{"".join(body)}</svg>\n'
    )


def _group(body: list[str], result: Result, y: int) -> int:
    drawn = [m for m in result.measures if m.samples and m.median > 0]
    if not drawn:
        return y
    better = "shorter is better" if result.lower_is_better else "longer is better"
    title = f"{result.what} ({result.unit}, {better})"
    body.append(f'<text class="t" x="12" y="{y + 15}">{escape(title)}</text>')
    y += TITLE_HEIGHT
    low = min(m.median for m in drawn) / 3
    span = max(math.log(max(m.median for m in drawn) / low), 1e-9)
    for measure in drawn:
        width = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * math.log(measure.median / low) / span
        fill = OURS if measure.who.startswith(HEADWAY) else THEIRS
        body.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 12}" text-anchor="end">{escape(measure.who)}</text>'
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2" fill="{fill}"/>'
            f'<text class="n" x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 12}">{number(measure.median)}</text>'
        )
        y += BAR_HEIGHT + BAR_GAP
    return y + GROUP_GAP


def write(folder: Path, report: Report) -> None:
    (folder / "latest.svg").write_text(svg(report))

"""The lines of a chart: read from the server's `/api/charts`, smoothed, and joined into bands. Called
by `hw plot`; numpy is loaded only here and in the renderers.

The server keeps of each column of pixels its first, lowest, highest and last point, so that a spike
of one sample is in every chart; the raw line is always drawn, also behind a smoothed one.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headway.model.errors import HeadwayError

Floats = npt.NDArray[np.float64]
_MAGIC = b"HWP1"


@dataclass(slots=True)
class Line:
    job: str
    name: str
    rank: int
    attempt: int
    x: Floats
    y: Floats
    label: str = ""
    color: int = 0
    smooth: Floats | None = None  # at the same x
    low: Floats | None = None  # a band around y, of a group
    high: Floats | None = None
    axis: str = "step"  # what x is: step, time or the name of a metric


@dataclass(slots=True)
class Panel:
    """One metric."""

    name: str
    lines: list[Line] = field(default_factory=list)
    not_finite: int = 0
    not_positive: int = 0  # points that a logarithmic axis cannot show
    axis: str = "step"


def decode(data: bytes) -> list[Line]:
    if data[:4] != _MAGIC:
        raise HeadwayError("the server's answer is not a chart", "hw doctor checks the versions")
    size = int.from_bytes(data[4:8], "little")
    head = json.loads(data[8 : 8 + size])
    place = 8 + size
    found = []
    for one in head["series"]:
        rows = int(one["rows"])
        x = np.frombuffer(data, "<f8", rows, place)
        y = np.frombuffer(data, "<f8", rows, place + 8 * rows)
        place += 16 * rows
        line = Line(one["job"], one["name"], one["rank"], one["attempt"], x, y)
        line.axis = str(one.get("axis", "step"))
        found.append(line)
    return found


def panel(name: str, lines: Sequence[Line], *, log_x: bool, log_y: bool) -> Panel:
    """Lines without what no axis can show; how much that was is told."""
    made = Panel(name)
    for line in lines:
        keep = np.isfinite(line.x) & np.isfinite(line.y)
        made.not_finite += int((~keep).sum())
        positive = np.ones(len(keep), bool)
        if log_x:
            positive &= line.x > 0
        if log_y:
            positive &= line.y > 0
        made.not_positive += int((keep & ~positive).sum())
        keep &= positive
        if keep.any():
            line.x, line.y = line.x[keep], line.y[keep]
            made.lines.append(line)
    return made


def smooth(line: Line, weight: float) -> None:
    """An exponential mean, freed of its bias towards 0 at the start: as TensorBoard smooths."""
    total, debt = 0.0, 0.0
    found = np.empty(len(line.y))
    for place, value in enumerate(line.y.tolist()):
        total = total * weight + (1 - weight) * value
        debt = debt * weight + (1 - weight)
        found[place] = total / debt
    line.smooth = found


def band(lines: Sequence[Line], label: str, places: int = 200) -> Line:
    """The mean of several lines, with one standard deviation to each side, where at least one of
    them is. Each line counts between its own first and last x.
    """
    low = min(float(line.x.min()) for line in lines)
    high = max(float(line.x.max()) for line in lines)
    points = np.unique(np.concatenate([line.x for line in lines]))
    x = points if len(points) <= places else np.linspace(low, high, places)
    rows = np.full((len(lines), len(x)), math.nan)
    for row, line in zip(rows, lines, strict=True):
        order = np.argsort(line.x, kind="stable")
        inside = (x >= line.x[order[0]]) & (x <= line.x[order[-1]])
        row[inside] = np.interp(x[inside], line.x[order], line.y[order])
    known = ~np.isnan(rows)
    counts = known.sum(axis=0)
    keep = counts > 0
    rows, x, counts = rows[:, keep], x[keep], counts[keep]
    mean = np.nansum(rows, axis=0) / counts
    spread = np.sqrt(np.nansum((rows - mean) ** 2, axis=0) / np.maximum(counts - 1, 1))
    first = lines[0]
    return Line(
        first.job, first.name, first.rank, first.attempt, x, mean, label, low=mean - spread, high=mean + spread,
        axis=first.axis,
    )  # fmt: skip

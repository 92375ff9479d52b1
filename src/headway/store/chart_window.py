"""Metrics as a chart shows them: a window of the x-axis, as wide as the screen has pixels. Called by the server's API.

Of each pixel's column the first, lowest, highest and last point are kept, and the first that is not finite: a spike of
one sample is visible at every zoom, and every point shown is one that was logged. The line is then drawn through all of
them. Zoom levels of the store are used where they have enough points for the window.
"""

import dataclasses
import sqlite3
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.store import series, tracked
from headway.store.redone_steps import RedoneSteps, Stretch
from headway.store.series import Points
from headway.wire.block import Floats

POINTS_PER_PIXEL = 4
AUTO = "auto"  # the x-axis that the program has defined for a metric, else its steps
_MOST = 2**40
Index = npt.NDArray[np.int64]


@dataclass(slots=True)
class Line:
    """One series in a window. `count`: points that were logged in all, from which live news go on."""

    job: str
    key: int
    name: str
    rank: int
    attempt: int
    count: int
    x: Floats
    y: Floats
    first: float | None  # of the whole series, for the ends of the axis
    last: float | None
    axis: str  # what x is: step, time or a metric
    attempts: list[int]  # that are joined in it; `attempt` is the last of them


@dataclass(frozen=True, slots=True)
class Window:
    x: str = "step"  # step, time, the name of a metric, or AUTO
    low: float | None = None  # None: from the beginning
    high: float | None = None
    pixels: int = 800


def names(c: sqlite3.Connection, job: int) -> list[dict[str, object]]:
    """What a job has logged: `[{name points ranks attempts}]`, by name."""
    rows = c.execute(
        """SELECT s.name, sum(l.points) AS points, count(DISTINCT s.rank) AS ranks, max(s.attempt) AS attempts
           FROM series s JOIN latest l ON l.series = s.pk WHERE s.job = :job GROUP BY s.name ORDER BY s.name""",
        {"job": job},
    )
    return [dict(row) for row in rows]


def lines(
    c: sqlite3.Connection,
    job: int,
    job_id: str,
    wanted: list[str],
    window: Window,
    rank: int | None,
    lines_max: int,
    *,
    joined: bool = True,
) -> list[Line]:
    """Rank None: the lowest that has it; -1: all of them. `joined`: the attempts of a rank are one
    line, in which steps that were done again replace the lost ones; else a line for each.
    """
    found: list[Line] = []
    redone = RedoneSteps(c, job)
    defined = tracked.definitions(c, job) if window.x == AUTO else {}
    axes: dict[str, dict[tuple[int, int], Points]] = {}
    for name in wanted:
        x = window.x
        if x == AUTO:
            x = own_axis(defined, name) or "step"
        if x not in ("step", "time") and x not in axes:
            axes[x] = _own_axes(c, job, x)
        for parts in _parts(redone, name, rank, joined=joined):
            if len(found) == lines_max:
                return found
            if x in axes and not any(_axis(axes[x], part) for part in parts):
                continue
            found.append(_line(c, parts, job_id, name, x, window, axes.get(x, {})))
    return found


def own_axis(defined: dict[str, tracked.Fact], name: str) -> str | None:
    """The metric that the program has put on the x-axis of another (`define_metric`)."""
    told = tracked.definition_of(defined, name)
    axis = None if told is None else told.get("x")
    return str(axis) if axis and axis != name else None


def _parts(
    redone: RedoneSteps, name: str, rank: int | None, *, joined: bool
) -> list[list[Stretch]]:
    """What makes one line each."""
    stretches = redone.stretches(name)
    if stretches and rank != -1:
        if rank is None:
            rank = min(stretch.rank for stretch in stretches)
        stretches = [stretch for stretch in stretches if stretch.rank == rank]

    groups: dict[tuple[int, int], list[Stretch]] = {}
    for stretch in stretches:
        if joined:
            groups.setdefault((0, stretch.rank), []).append(stretch)
        else:  # each as it was logged
            apart = dataclasses.replace(stretch, lost_from=None)
            groups.setdefault((stretch.attempt, stretch.rank), []).append(apart)
    return [groups[key] for key in sorted(groups)]


def _own_axes(c: sqlite3.Connection, job: int, name: str) -> dict[tuple[int, int], Points]:
    """The metric that stands on the x-axis, by attempt and rank; the lowest rank's also for ranks that lack it (-1)."""
    found: dict[tuple[int, int], Points] = {}
    for one in series.read_series(c, job, name):
        found[one.attempt, one.rank] = one.points
        found.setdefault((one.attempt, -1), one.points)
    return found


def _axis(axes: dict[tuple[int, int], Points], part: Stretch) -> Points | None:
    return axes.get((part.attempt, part.rank)) or axes.get((part.attempt, -1))


def _line(
    c: sqlite3.Connection,
    parts: list[Stretch],
    job_id: str,
    name: str,
    x_name: str,
    window: Window,
    axes: dict[tuple[int, int], Points],
) -> Line:
    wanted = max(window.pixels * POINTS_PER_PIXEL, 2)
    x, y = _read(c, parts, wanted, x_name, axes)
    first = float(x[0]) if len(x) else None
    last = float(x[-1]) if len(x) else None
    low, high = window.low, window.high
    if low is None:
        low = float(np.nanmin(x)) if len(x) else 0.0
    if high is None:
        high = float(np.nanmax(x)) if len(x) else 0.0
    inside = int(np.count_nonzero((x >= low) & (x <= high)))
    if len(x) and inside < len(x) * 0.75 and len(x) < sum(part.points for part in parts):
        share = max(inside, 1) / len(x)
        x, y = _read(c, parts, min(int(wanted / share), _MOST), x_name, axes)
    keep = visible(x, y, low, high, window.pixels)
    newest = parts[-1]
    return Line(
        job_id, newest.pk, name, newest.rank, newest.attempt, newest.points, x[keep], y[keep],
        first, last, x_name, sorted({part.attempt for part in parts}),
    )  # fmt: skip


def _read(
    c: sqlite3.Connection,
    parts: list[Stretch],
    count: int,
    x_name: str,
    axes: dict[tuple[int, int], Points],
) -> tuple[Floats, Floats]:
    """x and y of the parts, one after the other; parts that ran at the same time, by time."""
    xs, ys, times = [], [], []
    for part in parts:
        points = part.read(c, count)
        xs.append(_x(points, x_name, _axis(axes, part)))
        ys.append(points.values)
        times.append(points.times_us)
    if len(parts) == 1:
        return xs[0], ys[0]
    x, y = np.concatenate(xs), np.concatenate(ys)
    if len({part.attempt for part in parts}) < len(parts):
        order = np.argsort(np.concatenate(times), kind="stable")
        return x[order], y[order]
    return x, y


def _x(points: Points, kind: str, axis: Points | None) -> Floats:
    if kind == "step":
        return points.steps.astype(np.float64)
    if kind == "time":
        return points.times_us / 1e6
    if axis is None or not len(axis):
        return np.full(len(points), np.nan)
    place = np.searchsorted(axis.steps, points.steps, side="right") - 1
    return np.where(place < 0, np.nan, axis.values[np.maximum(place, 0)])


def visible(x: Floats, y: Floats, low: float, high: float, pixels: int) -> Index:
    """Which points a chart of this width needs: the extremes of each column, and a neighbour outside on either side."""
    if not len(x):
        return np.empty(0, np.int64)
    inside = np.flatnonzero((x >= low) & (x <= high))
    if not len(inside):
        before = np.flatnonzero(x < low)[-1:]
        after = np.flatnonzero(x > high)[:1]
        neighbours: Index = np.concatenate([before, after])
        return neighbours
    start, stop = max(0, int(inside[0]) - 1), min(len(x), int(inside[-1]) + 2)
    index = np.arange(start, stop, dtype=np.int64)
    if len(index) <= pixels * POINTS_PER_PIXEL:
        return index
    width = high - low
    place = np.nan_to_num((x[index] - low) / (width if width > 0 else 1.0), nan=-1.0)
    column = np.clip(place * pixels, -1, pixels).astype(np.int64)
    begins = np.flatnonzero(np.diff(column, prepend=column[0] - 1))
    run = np.zeros(
        len(index), np.int64
    )  # a new group wherever the column changes, also where steps go back
    run[begins] = 1
    run = np.cumsum(run) - 1
    ends = np.append(begins[1:], len(index)) - 1
    extremes = series.extremes_of(run, y[index])
    kept: Index = index[np.unique(np.concatenate([begins, ends, extremes]))]
    return kept


def news(
    c: sqlite3.Connection, known: dict[int, int], job: int, points_max: int
) -> list[tuple[int, int, Points]]:
    """(series, points before, new points) of those series of a job that have grown; at most so many points of each."""
    if not known:
        return []
    found = []
    rows = c.execute(
        "SELECT s.pk, l.points FROM series s JOIN latest l ON l.series = s.pk WHERE s.job = :job",
        {"job": job},
    )
    for key, total in rows:
        before = known.get(key)
        if before is None or total <= before:
            continue
        fresh = min(total - before, points_max)
        found.append((key, total - fresh, series.read_last(c, key, fresh)))
    return found

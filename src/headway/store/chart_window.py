"""Metrics as a chart shows them: a window of the x-axis, as wide as the screen has pixels. Called by the server's API.

Of each pixel's column the first, lowest, highest and last point are kept, and the first that is not finite: a spike of
one sample is visible at every zoom, and every point shown is one that was logged. The line is then drawn through all of
them. Zoom levels of the store are used where they have enough points for the window.
"""

import sqlite3
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.store import series
from headway.store.series import Points
from headway.wire.block import Floats

POINTS_PER_PIXEL = 4
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


@dataclass(frozen=True, slots=True)
class Window:
    x: str = "step"  # step, time, or the name of a metric
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
) -> list[Line]:
    """Rank None: the lowest that has it; -1: all of them."""
    found: list[Line] = []
    axes = _own_axes(c, job, window.x) if window.x not in ("step", "time") else None
    for name in wanted:
        for row in _series(c, job, name, rank):
            if len(found) == lines_max:
                return found
            axis = None
            if axes is not None:
                axis = axes.get((row["attempt"], row["rank"])) or axes.get((row["attempt"], -1))
                if axis is None:
                    continue
            found.append(_line(c, row, job_id, name, window, axis))
    return found


def _series(c: sqlite3.Connection, job: int, name: str, rank: int | None) -> list[sqlite3.Row]:
    rows: list[sqlite3.Row] = c.execute(
        """SELECT s.pk, s.rank, s.attempt, l.points FROM series s JOIN latest l ON l.series = s.pk
           WHERE s.job = :job AND s.name = :name ORDER BY s.attempt, s.rank, s.pk""",
        {"job": job, "name": name},
    ).fetchall()
    if rank == -1 or not rows:
        return rows
    lowest = min(row["rank"] for row in rows)
    return [row for row in rows if row["rank"] == (lowest if rank is None else rank)]


def _own_axes(c: sqlite3.Connection, job: int, name: str) -> dict[tuple[int, int], Points]:
    """The metric that stands on the x-axis, by attempt and rank; the lowest rank's also for ranks that lack it (-1)."""
    found: dict[tuple[int, int], Points] = {}
    for one in series.read_series(c, job, name):
        found[one.attempt, one.rank] = one.points
        found.setdefault((one.attempt, -1), one.points)
    return found


def _line(
    c: sqlite3.Connection,
    row: sqlite3.Row,
    job_id: str,
    name: str,
    window: Window,
    axis: Points | None,
) -> Line:
    wanted = window.pixels * POINTS_PER_PIXEL
    points = series.read_points(c, row["pk"], max(wanted, 2))
    x = _x(points, window.x, axis)
    first = float(x[0]) if len(x) else None
    last = float(x[-1]) if len(x) else None
    low, high = window.low, window.high
    if low is None:
        low = float(np.nanmin(x)) if len(x) else 0.0
    if high is None:
        high = float(np.nanmax(x)) if len(x) else 0.0
    inside = int(np.count_nonzero((x >= low) & (x <= high)))
    if len(points) and inside < len(points) * 0.75 and len(points) < row["points"]:
        share = max(inside, 1) / len(points)
        points = series.read_points(c, row["pk"], min(int(wanted / share), _MOST))
        x = _x(points, window.x, axis)
    keep = visible(x, points.values, low, high, window.pixels)
    return Line(
        job_id,
        row["pk"],
        name,
        row["rank"],
        row["attempt"],
        row["points"],
        x[keep],
        points.values[keep],
        first,
        last,
    )


def _x(points: Points, kind: str, axis: Points | None) -> Floats:
    if kind == "step":
        return points.steps.astype(np.float64)
    if kind == "time":
        return points.times_us / 1e6
    assert axis is not None
    if not len(axis):
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

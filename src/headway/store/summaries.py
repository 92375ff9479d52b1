"""Last value and range of every series, kept while points come in, so that a table of a thousand
jobs reads one row per metric and no points. Written by `ingest`, read by `compare` and by the
filters of lists.

Values that are not finite count for `last` only. Of a job with several attempts, steps that were
done again count once, as they came out the last time. A home of an earlier release has no ranges:
housekeeping computes them once (`fill_some`), and until then a reader does it for what it shows.
"""

import json
import sqlite3
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from headway.model.metric_direction import Direction, direction
from headway.store.redone_steps import RedoneSteps
from headway.store.series import read_points
from headway.wire.block import Floats, Ints

# Lowest finite value and its step, highest and its step; four times None where none is finite.
Range = tuple[float | None, int | None, float | None, int | None]
NO_RANGE: Range = (None, None, None, None)
UPSERT = """INSERT INTO latest (series, step, time_ns, value, points, low, low_step, high, high_step, ranged)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (series) DO UPDATE SET step = excluded.step, time_ns = excluded.time_ns,
    value = excluded.value, points = points + excluded.points, ranged = ranged + excluded.ranged,
    low_step = CASE WHEN low IS NULL OR excluded.low < low THEN excluded.low_step ELSE low_step END,
    low = CASE WHEN low IS NULL OR excluded.low < low THEN excluded.low ELSE low END,
    high_step = CASE WHEN high IS NULL OR excluded.high > high THEN excluded.high_step ELSE high_step END,
    high = CASE WHEN high IS NULL OR excluded.high > high THEN excluded.high ELSE high END"""
Row = tuple[
    int, int, int, bytes, int, float | None, int | None, float | None, int | None, int
]  # as the placeholders of UPSERT
FILL_SERIES = 500  # in one step of housekeeping
_EXTREME_POINTS = 16  # thinned to so few, a series still has its lowest and highest point
_SOME = 1_000
_unpack = struct.Struct("<d").unpack
_Found = tuple[
    int, str, int, int, bytes, int, float | None, int | None, float | None, int | None, int, int
]
# CROSS: in this order, by the index on job and name; the planner thinks that a job has few metrics.
_ROWS = """SELECT s.job, s.name, s.rank, l.step, l.value, l.points, l.low, l.low_step, l.high, l.high_step,
    l.ranged, s.pk
  FROM json_each(:jobs) j {names} CROSS JOIN series s ON s.job = j.value {same}
  CROSS JOIN latest l ON l.series = s.pk
  ORDER BY s.job, s.name, s.rank, s.attempt, l.time_ns"""


class Summary(NamedTuple):
    """One metric of one job: the lowest rank's, its attempts joined. `best` and `step` are of the
    extreme that the metric's name asks for; where it asks for none, `best` is None and `step` the
    last one. `points` are all that were logged.
    """

    last: float
    low: float | None
    low_step: int | None
    high: float | None
    high_step: int | None
    step: int
    points: int

    def best(self, wanted: Direction | None) -> tuple[float | None, int]:
        if wanted == "min" and self.low is not None and self.low_step is not None:
            return self.low, self.low_step
        if wanted == "max" and self.high is not None and self.high_step is not None:
            return self.high, self.high_step
        return None, self.step

    def value(self, kind: str, name: str, goal: Direction | None = None) -> float | None:
        """`last`, `min`, `max`, or `best` by the goal, else by the name's own direction."""
        if kind == "min":
            return self.low
        if kind == "max":
            return self.high
        if kind == "best":
            return self.best(goal or direction(name))[0]
        return self.last


def ranges(steps: Ints, values: Floats) -> list[Range]:
    """Of each row of `values` (names × rows); the first of equals."""
    finite = np.isfinite(values)
    if finite.all():
        low, high = values.argmin(axis=1), values.argmax(axis=1)
    else:
        low = np.where(finite, values, np.inf).argmin(axis=1)
        high = np.where(finite, values, -np.inf).argmax(axis=1)
    each = np.arange(len(values))
    lows: list[float] = values[each, low].tolist()
    highs: list[float] = values[each, high].tolist()
    low_steps: list[int] = steps[low].tolist()
    high_steps: list[int] = steps[high].tolist()
    found: list[Range] = list(zip(lows, low_steps, highs, high_steps, strict=True))
    for place in np.flatnonzero(~finite.any(axis=1)):
        found[place] = NO_RANGE
    return found


def read(
    c: sqlite3.Connection, jobs: Sequence[int], names: Collection[str] | None = None
) -> dict[int, dict[str, Summary]]:
    """By job and metric; `names` None: every metric they have."""
    found: dict[int, dict[str, Summary]] = {}
    for start in range(0, len(jobs), _SOME):
        values = {"jobs": json.dumps(list(jobs[start : start + _SOME]))}
        query = _ROWS.format(names="", same="")
        if names is not None:
            values["names"] = json.dumps(list(names))
            query = _ROWS.format(
                names="CROSS JOIN json_each(:names) n", same="AND s.name = n.value"
            )
        cursor = c.cursor()
        cursor.row_factory = None  # plain tuples
        again = {
            int(row[0])
            for row in cursor.execute(
                """SELECT a.job FROM json_each(:jobs) j JOIN attempts a ON a.job = j.value
                   GROUP BY a.job HAVING count(*) > 1""",
                {"jobs": values["jobs"]},
            )
        }
        _collect(c, cursor.execute(query, values), found, again)
    return found


def _collect(
    c: sqlite3.Connection,
    rows: Iterable[_Found],
    found: dict[int, dict[str, Summary]],
    again: set[int],
) -> None:
    """`again`: jobs with several attempts, of which steps may have been done twice."""
    lowest_rank = -1
    redone: dict[int, RedoneSteps] = {}
    for row in rows:
        job, name, rank, step, value, points, low, low_step, high, high_step, ranged, pk = row
        if ranged < points:
            low, low_step, high, high_step = measured(c, pk)
        if job in again:
            if job not in redone:
                redone[job] = RedoneSteps(c, job)
            low, low_step, high, high_step = _range_kept(
                c, redone[job], row, (low, low_step, high, high_step)
            )
        last: float = _unpack(value)[0]
        one = Summary(last, low, low_step, high, high_step, step, points)
        of_job = found.get(job)
        if of_job is None:
            of_job = found[job] = {}
        before = of_job.get(name)
        if before is None:
            lowest_rank = rank
            of_job[name] = one
        elif rank == lowest_rank:  # a later attempt, or another process of this rank
            of_job[name] = _joined(before, one)


def _range_kept(c: sqlite3.Connection, redone: RedoneSteps, row: _Found, known: Range) -> Range:
    """The range of what no later attempt has replaced."""
    name, rank, pk = row[1], row[2], row[11]
    stretch = next(one for one in redone.stretches(name, rank) if one.pk == pk)
    if stretch.lost_from is None:
        return known
    if all(step is None or step < stretch.lost_from for step in (known[1], known[3])):
        return known
    kept = stretch.read(c)
    if not len(kept):
        return NO_RANGE
    return ranges(kept.steps, kept.values[np.newaxis, :])[0]


def _joined(before: Summary, after: Summary) -> Summary:
    low, low_step, high, high_step = before[1:5]
    if after.low is not None and (low is None or after.low < low):
        low, low_step = after.low, after.low_step
    if after.high is not None and (high is None or after.high > high):
        high, high_step = after.high, after.high_step
    points = before.points + after.points
    return Summary(after.last, low, low_step, high, high_step, after.step, points)


# -- homes of earlier releases


def measured(c: sqlite3.Connection, series: int) -> Range:
    """The range of a series, from its points."""
    points = read_points(c, series, _EXTREME_POINTS)
    if not len(points):
        return NO_RANGE
    return ranges(points.steps, points.values[np.newaxis, :])[0]


def unranged(c: sqlite3.Connection) -> list[int]:
    """Some series whose range does not cover all of their points."""
    rows = c.execute(
        "SELECT series FROM latest WHERE ranged < points LIMIT :most", {"most": FILL_SERIES}
    )
    return [int(row["series"]) for row in rows]


def fill_some(c: sqlite3.Connection, series: list[int]) -> None:
    for pk in series:
        c.execute(
            """UPDATE latest SET low = ?, low_step = ?, high = ?, high_step = ?, ranged = points
               WHERE series = ?""",
            (*measured(c, pk), pk),
        )

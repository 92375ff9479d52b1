"""Forecasts of when waiting jobs start, kept so that it can be said how often they were right.
Written by the look at what waits (`server/health/forecast_watch.py`).
"""

import sqlite3
from statistics import median

from headway.model.limits import FORECASTS_KEPT_MAX, FORECASTS_LEARN_MIN

RIGHT_SHARE, RIGHT_S = 0.25, 30.0  # of the wait that was forecast; and never less than this
FACTOR_MIN, FACTOR_MAX = 0.2, 5.0
JOBS_LIKE_IT = 20  # whose durations are looked at


def put(
    c: sqlite3.Connection, job: int, place: str, made_ns: int, raw_ns: int, told_ns: int
) -> None:
    """The first forecast of a job; later ones are easier, and do not count."""
    row = {"job": job, "place": place, "made": made_ns, "raw": raw_ns, "told": told_ns}
    c.execute(
        """INSERT OR IGNORE INTO forecasts (job, place, made_ns, raw_ns, told_ns)
           VALUES (:job, :place, :made, :raw, :told)""",
        row,
    )
    c.execute(
        """DELETE FROM forecasts WHERE job IN
             (SELECT job FROM forecasts ORDER BY job DESC LIMIT -1 OFFSET :n)""",
        {"n": FORECASTS_KEPT_MAX},
    )


def history(c: sqlite3.Connection, place: str) -> tuple[int, int, float]:
    """(how many were right, of how many whose job has started, how much longer waits were)."""
    rows = c.execute(
        """SELECT f.made_ns, f.raw_ns, f.told_ns, j.started_ns FROM forecasts f JOIN jobs j ON j.pk = f.job
           WHERE f.place = :place AND j.started_ns IS NOT NULL ORDER BY f.job DESC LIMIT 200""",
        {"place": place},
    ).fetchall()
    right = 0
    factors: list[float] = []
    for row in rows:
        told_s = (row["told_ns"] - row["made_ns"]) / 1e9
        off_s = abs(row["started_ns"] - row["told_ns"]) / 1e9
        right += off_s <= max(RIGHT_S, RIGHT_SHARE * told_s)
        raw_s = (row["raw_ns"] - row["made_ns"]) / 1e9
        if raw_s > RIGHT_S:
            factors.append((row["started_ns"] - row["made_ns"]) / 1e9 / raw_s)
    factor = 1.0
    if len(factors) >= FORECASTS_LEARN_MIN:
        factor = min(FACTOR_MAX, max(FACTOR_MIN, median(factors)))
    return right, len(rows), factor


def durations(c: sqlite3.Connection, name: str, experiment: str | None) -> list[float]:
    """How long the last jobs of this name took that came to their own end."""
    rows = c.execute(
        """SELECT started_ns, ended_ns FROM jobs WHERE name = :name AND experiment IS :experiment
             AND state = 'succeeded' AND started_ns IS NOT NULL AND ended_ns IS NOT NULL
             AND pk > (SELECT max(pk) FROM jobs) - 20000 ORDER BY pk DESC LIMIT :n""",
        {"name": name, "experiment": experiment, "n": JOBS_LIKE_IT},
    )
    return [(row["ended_ns"] - row["started_ns"]) / 1e9 for row in rows]

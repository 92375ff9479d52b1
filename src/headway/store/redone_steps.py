"""Attempts as one series: where a later attempt, or a process that was restarted within one, did
steps again, the earlier points of these steps are lost work. Views leave them out; the store keeps
both. Called by charts, summaries, metrics and the tables of `hw sql`.

A later stretch replaces what an earlier one of the same metric and rank logged from its own first
step on. Where the metric comes late in it (validation every thousand steps), the resume step of the
attempt counts: the first step of its most logged metric, if that went on from the middle.
"""

import sqlite3
from dataclasses import dataclass

import numpy as np

from headway.store.series import (
    SEGMENT_SHIFT,
    Points,
    Series,
    block_points,
    join,
    read_points,
    thin_points,
)
from headway.wire.block import Block


@dataclass(frozen=True, slots=True)
class Stretch:
    """A series of one process, as part of the series of a job."""

    pk: int
    rank: int
    attempt: int
    points: int
    last_step: int
    last_us: int
    lost_from: int | None = None  # points from this step on were logged again later

    def read(self, c: sqlite3.Connection, count: int | None = None) -> Points:
        """Points that are not lost; about `count` for a chart. Lost ones are left out before it is
        thinned: the extremes of the rest must stay.
        """
        return self.kept(read_points(c, self.pk, count if self.lost_from is None else None))

    def kept(self, points: Points) -> Points:
        """Without the lost ones."""
        if self.lost_from is None:
            return points
        return points.take(np.flatnonzero(points.steps < self.lost_from))


@dataclass(frozen=True, slots=True)
class _Resume:
    """An attempt whose most logged metric went on at `step`; `reached`: where it was before."""

    step: int
    reached: int


class RedoneSteps:
    """Of one job; what was found of an attempt is kept, so make one per answer."""

    def __init__(self, c: sqlite3.Connection, job: int) -> None:
        self._c = c
        self._job = job
        self._resumes: dict[tuple[int, int], _Resume | None] = {}
        self._attempts: dict[int, list[int]] | None = None
        self._known: tuple[tuple[str, int | None], list[Stretch]] | None = None  # the last answer

    def stretches(self, name: str, rank: int | None = None) -> list[Stretch]:
        """The parts of a metric by rank and in the order of time; `rank` None: of every rank."""
        if self._known is None or self._known[0] != (name, rank):
            self._known = ((name, rank), self._find_stretches(name, rank))
        return self._known[1]

    def _find_stretches(self, name: str, rank: int | None) -> list[Stretch]:
        rows = self._c.execute(
            """SELECT s.pk, s.rank, s.attempt, l.points, l.step, l.time_ns FROM series s
               JOIN latest l ON l.series = s.pk WHERE s.job = :job AND s.name = :name
               AND (:rank IS NULL OR s.rank = :rank) ORDER BY s.rank, s.attempt, l.time_ns""",
            {"job": self._job, "name": name, "rank": rank},
        ).fetchall()
        by_rank: dict[int, list[Stretch]] = {}
        for row in rows:
            one = Stretch(
                row["pk"], row["rank"], row["attempt"], row["points"], row["step"],
                row["time_ns"] // 1000,
            )  # fmt: skip
            by_rank.setdefault(one.rank, []).append(one)
        found: list[Stretch] = []
        for parts in by_rank.values():
            found += self._marked(parts)
        return found

    def read(self, name: str, rank: int | None = None, points: int | None = None) -> list[Series]:
        """A series for each rank, without lost points: attempts in their order, and within an
        attempt by time, which mixes processes that shared a rank. `points` as for `read_series`.
        """
        by_rank: dict[int, list[Stretch]] = {}
        for one in self.stretches(name, rank):
            by_rank.setdefault(one.rank, []).append(one)
        found = []
        for at, parts in by_rank.items():
            joined = join_parts([(part, part.read(self._c, points)) for part in parts])
            if points is not None:
                joined = thin_points(joined, points)
            found.append(Series(name, at, parts[-1].attempt, joined))
        return found

    def _marked(self, parts: list[Stretch]) -> list[Stretch]:
        """With `lost_from` of those that a later part replaces."""
        last_attempt = max(self._attempts_of(parts[0].rank))
        if len(parts) == 1 and parts[0].attempt == last_attempt:
            return parts
        begins = [_first(self._c, part.pk) for part in parts]
        found = []
        for place, part in enumerate(parts):
            lost: list[int] = []
            for later, (step, time_us) in zip(parts[place + 1 :], begins[place + 1 :], strict=True):
                if later.attempt > part.attempt or time_us >= part.last_us:
                    lost.append(step)
            for attempt in self._attempts_of(part.rank):
                if attempt > part.attempt:
                    resume = self._resume(part.rank, attempt)
                    # steps beyond where the attempt had come count something else, such as tokens
                    if resume is not None and part.last_step <= resume.reached:
                        lost.append(resume.step)
            lost_from = min(lost, default=None)
            if lost_from is not None and lost_from > part.last_step:
                lost_from = None
            found.append(
                Stretch(
                    part.pk, part.rank, part.attempt, part.points, part.last_step, part.last_us,
                    lost_from,
                )
            )  # fmt: skip
        return found

    def _attempts_of(self, rank: int) -> list[int]:
        if self._attempts is None:
            self._attempts = {}
            rows = self._c.execute(
                "SELECT DISTINCT rank, attempt FROM bundles WHERE job = ? ORDER BY attempt",
                (self._job,),
            )
            for row in rows:
                self._attempts.setdefault(row["rank"], []).append(row["attempt"])
        return self._attempts.get(rank, [1])

    def _resume(self, rank: int, attempt: int) -> _Resume | None:
        """None: it began where the first attempt had begun, or that cannot be told."""
        key = (rank, attempt)
        if key not in self._resumes:
            self._resumes[key] = self._find_resume(rank, attempt)
        return self._resumes[key]

    def _find_resume(self, rank: int, attempt: int) -> _Resume | None:
        values = {"job": self._job, "rank": rank, "attempt": attempt}
        most = self._c.execute(
            """SELECT s.pk, s.name FROM series s JOIN latest l ON l.series = s.pk
               WHERE s.job = :job AND s.rank = :rank AND s.attempt = :attempt
               ORDER BY l.points DESC, s.pk LIMIT 1""",
            values,
        ).fetchone()
        if most is None:
            return None
        earlier = self._c.execute(
            """SELECT s.pk, l.step FROM series s JOIN latest l ON l.series = s.pk
               WHERE s.job = :job AND s.rank = :rank AND s.attempt < :attempt AND s.name = :name""",
            {**values, "name": most["name"]},
        ).fetchall()
        if not earlier:
            return None
        step = _first(self._c, most["pk"])[0]
        if step <= min(_first(self._c, row["pk"])[0] for row in earlier):
            return None
        return _Resume(step, max(row["step"] for row in earlier))


def _first(c: sqlite3.Connection, series_pk: int) -> tuple[int, int]:
    """The lowest step and the first time of what was written first of a series."""
    parts: list[tuple[int, Points]] = []
    compacted = c.execute(
        """SELECT k.seq, a.data FROM columns k JOIN axes a ON a.pk = k.axis
           WHERE k.series = ? AND k.level = 0 ORDER BY k.seq LIMIT 1""",
        (series_pk,),
    ).fetchone()
    if compacted is not None:
        axis = Block(compacted["data"])
        steps = axis.ints(0)
        parts.append(
            (compacted["seq"] >> SEGMENT_SHIFT, Points(steps, axis.ints(1), np.empty(len(steps))))
        )
    block = c.execute(
        """SELECT b.segment, b.data, m.position FROM members m JOIN blocks b ON b.bundle = m.bundle
           WHERE m.series = ? AND b.tier >= 0 ORDER BY b.segment, b.pk LIMIT 1""",
        (series_pk,),
    ).fetchone()
    if block is not None and (not parts or block["segment"] < parts[0][0]):
        parts = [(block["segment"], block_points(block["data"], block["position"]))]
    if not parts or not len(parts[0][1].steps):
        return (2**62, 2**62)  # nothing that could replace anything
    points = parts[0][1]
    return int(points.steps.min()), int(points.times_us.min())


def join_parts(parts: list[tuple[Stretch, Points]]) -> Points:
    by_attempt: dict[int, list[Points]] = {}
    for stretch, points in parts:
        by_attempt.setdefault(stretch.attempt, []).append(points)
    found = []
    for attempt in sorted(by_attempt):
        of_attempt = by_attempt[attempt]
        points = join(of_attempt)
        if len(of_attempt) > 1:
            points = points.take(np.argsort(points.times_us, kind="stable"))
        found.append(points)
    return join(found)

"""Reading metrics: every point of a series, or few enough for a chart. Called by `query`, on a read
connection.

A series is compacted pieces (`columns`) followed by blocks as they came, in the order of the
stream's segments. A chart takes a zoom level of the pieces, thins the newest points the same way,
and keeps of each stretch its lowest and highest point and the first that is not finite. Every point
shown is a point that was logged; first and last are always there.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.model.limits import ZOOM_FACTOR
from headway.wire.block import Block, Floats, Ints

ENOUGH = 0.75  # a level with this share of the points asked for will do
SEGMENT_SHIFT = 32  # columns.seq = segment << 32 | number
_EMPTY_INTS: Ints = np.empty(0, np.int64)
_EMPTY_FLOATS: Floats = np.empty(0, np.float64)
Index = npt.NDArray[np.int64]


@dataclass(slots=True)
class Points:
    steps: Ints
    times_us: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Index) -> "Points":
        return Points(self.steps[index], self.times_us[index], self.values[index])


@dataclass(slots=True)
class Series:
    """The points of one metric of one rank in one attempt."""

    name: str
    rank: int
    attempt: int
    points: Points


@dataclass(slots=True)
class _Piece:
    """Some points of a series, which stand for `rows` logged ones."""

    order: tuple[int, int, int]
    rows: int
    points: Points


def join(parts: Iterable[Points]) -> Points:
    found = list(parts)
    if len(found) == 1:
        return found[0]
    return Points(
        np.concatenate([_EMPTY_INTS, *(p.steps for p in found)]),
        np.concatenate([_EMPTY_INTS, *(p.times_us for p in found)]),
        np.concatenate([_EMPTY_FLOATS, *(p.values for p in found)]),
    )


# -- thinning


def zoom_index(values: Floats, factor: int = ZOOM_FACTOR) -> Index:
    """Rows that make the next zoom level: of every `factor` rows the lowest, the highest and the
    first not finite.
    """
    rows = len(values)
    whole = rows // factor * factor
    keep = [np.array([0, rows - 1], np.int64)] if rows else []
    if whole:
        keep.append(_extremes(values[:whole].reshape(-1, factor)))
    if whole < rows:
        keep.append(whole + _extremes(values[whole:].reshape(1, -1)))
    return np.unique(np.concatenate(keep)) if keep else np.empty(0, np.int64)


def _extremes(groups: Floats) -> Index:
    finite = np.isfinite(groups)
    start = np.arange(len(groups), dtype=np.int64) * groups.shape[1]
    if finite.all():
        return np.concatenate([start + groups.argmin(axis=1), start + groups.argmax(axis=1)])
    odd = ~finite.all(axis=1)
    low = np.where(finite, groups, np.inf).argmin(axis=1)
    high = np.where(finite, groups, -np.inf).argmax(axis=1)
    return np.concatenate([start + low, start + high, start[odd] + (~finite[odd]).argmax(axis=1)])


def thin(pieces: list[_Piece], count: int) -> Points:
    """About `count` points of all of them: equal stretches of the series, the extremes of each."""
    points = join(piece.points for piece in pieces)
    if len(points) <= max(count, 2):
        return points
    place = _places(pieces)
    stretches = max(1, (count - 2) // 2)
    keep = extremes_of(
        place * stretches // max(1, sum(piece.rows for piece in pieces)), points.values
    )
    return points.take(np.unique(np.concatenate([keep, [0, len(points) - 1]])))


def _places(pieces: list[_Piece]) -> Index:
    """Where each point lies among all logged points; those of a zoom level lie evenly in what they
    stand for.
    """
    places, before = [], 0
    for piece in pieces:
        places.append(
            before
            + np.arange(len(piece.points), dtype=np.int64) * piece.rows // max(1, len(piece.points))
        )
        before += piece.rows
    return np.concatenate(places)


def extremes_of(group: Index, values: Floats) -> Index:
    """Per group (numbers that only rise): the lowest, the highest and the first value that is not
    finite.
    """
    finite = np.isfinite(values)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(starts, append=len(group))
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    lowest = np.flatnonzero(low == np.repeat(np.minimum.reduceat(low, starts), sizes))
    highest = np.flatnonzero(high == np.repeat(np.maximum.reduceat(high, starts), sizes))
    found = [
        some[np.flatnonzero(np.diff(group[some], prepend=-1))]
        for some in (lowest, highest, np.flatnonzero(~finite))
    ]
    return np.concatenate(found)


# -- reading


def read_series(
    c: sqlite3.Connection,
    job_pk: int,
    name: str,
    rank: int | None = None,
    points: int | None = None,
) -> list[Series]:
    """One entry per rank and attempt, in that order; `points` is how many a chart can show, None
    means all.
    """
    rows = c.execute(
        """SELECT s.pk, s.rank, s.attempt FROM series s WHERE s.job = :job AND s.name = :name
             AND (:rank IS NULL OR s.rank = :rank) ORDER BY s.attempt, s.rank, s.pk""",
        {"job": job_pk, "name": name, "rank": rank},
    ).fetchall()
    found: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        found.setdefault((row["attempt"], row["rank"]), []).append(row["pk"])
    return [
        Series(
            name, where[1], where[0], _by_time([read_points(c, pk, points) for pk in keys], points)
        )
        for where, keys in found.items()
    ]


def names(c: sqlite3.Connection, job_pk: int) -> list[str]:
    rows = c.execute(
        "SELECT DISTINCT name FROM series WHERE job = :job ORDER BY name", {"job": job_pk}
    )
    return [row["name"] for row in rows]


def _by_time(parts: list[Points], count: int | None) -> Points:
    """Processes that shared one rank, joined by time; the points of each keep their order."""
    if len(parts) == 1:
        return parts[0]
    joined = join(parts)
    joined = joined.take(np.argsort(joined.times_us, kind="stable"))
    return joined if count is None else thin_points(joined, count)


def thin_points(points: Points, count: int) -> Points:
    return thin([_Piece((0, 0, 0), len(points), points)], count)


def read_points(c: sqlite3.Connection, series_pk: int, count: int | None = None) -> Points:
    """Points of one series in the order written; all of them, or about `count` for a chart."""
    found = c.execute(
        "SELECT level, seq, rows FROM columns WHERE series = :series", {"series": series_pk}
    )
    rows = {(row["level"], row["seq"]): int(row["rows"]) for row in found}
    level = 0 if count is None else _level(c, series_pk, rows, count)
    pieces = _compacted(c, series_pk, rows, level) + _blocks(c, series_pk, level)
    pieces.sort(key=lambda piece: piece.order)
    if count is None:
        return join(piece.points for piece in pieces)
    return thin(pieces, count)


def read_last(c: sqlite3.Connection, series_pk: int, count: int) -> Points:
    """The last `count` points of a series, in the order written, without reading those before them."""
    compacted = c.execute(
        "SELECT seq, rows FROM columns WHERE series = :pk AND level = 0", {"pk": series_pk}
    )
    parts = [((row["seq"] >> SEGMENT_SHIFT, 0, row["seq"]), int(row["rows"])) for row in compacted]
    blocks = c.execute(
        """SELECT b.segment, b.pk, b.rows FROM members m JOIN blocks b ON b.bundle = m.bundle
           WHERE m.series = :pk AND b.tier >= 0""",
        {"pk": series_pk},
    )
    parts += [((row["segment"], 1, row["pk"]), int(row["rows"])) for row in blocks]
    found: list[Points] = []
    missing = count
    for order, rows in sorted(parts, reverse=True):
        if missing <= 0:
            break
        found.append(_part(c, series_pk, order))
        missing -= rows
    points = join(reversed(found))
    return points.take(np.arange(max(0, len(points) - count), len(points), dtype=np.int64))


def _part(c: sqlite3.Connection, series_pk: int, order: tuple[int, int, int]) -> Points:
    """The points of one compacted piece or of one block."""
    if order[1] == 0:
        row = c.execute(
            "SELECT level, seq, axis, data FROM columns WHERE series = :pk AND level = 0 AND seq = :seq",
            {"pk": series_pk, "seq": order[2]},
        ).fetchone()
        return _piece(c, row, 0).points
    row = c.execute(
        """SELECT b.data, m.position FROM blocks b JOIN members m ON m.bundle = b.bundle AND m.series = :pk
           WHERE b.pk = :block""",
        {"pk": series_pk, "block": order[2]},
    ).fetchone()
    return block_points(row["data"], row["position"])


def _level(
    c: sqlite3.Connection, series_pk: int, rows: dict[tuple[int, int], int], count: int
) -> int:
    """The coarsest level that still has about enough points, newest ones included."""
    late = c.execute(
        "SELECT sum(b.rows) AS n FROM members m JOIN blocks b ON b.bundle = m.bundle WHERE m.series = :series",
        {"series": series_pk},
    ).fetchone()["n"]
    level, points = 0, float(late or 0)
    while True:
        points *= 2 / ZOOM_FACTOR
        compacted = sum(n for (found, _), n in rows.items() if found == level + 1)
        if compacted + points < ENOUGH * count:
            return level
        level += 1


def _compacted(
    c: sqlite3.Connection, series_pk: int, rows: dict[tuple[int, int], int], level: int
) -> list[_Piece]:
    """Compacted pieces at `level`; short ones that have no such level, at the coarsest they have."""
    best: dict[int, int] = {}
    for found, seq in rows:
        if found <= level:
            best[seq] = max(best.get(seq, 0), found)
    pieces = []
    for wanted in sorted(set(best.values())):
        data = c.execute(
            "SELECT level, seq, axis, data FROM columns WHERE series = :series AND level = :level ORDER BY seq",
            {"series": series_pk, "level": wanted},
        )
        pieces += [
            _piece(c, row, rows[0, row["seq"]]) for row in data if best[row["seq"]] == wanted
        ]
    return pieces


def _piece(c: sqlite3.Connection, row: sqlite3.Row, rows: int) -> _Piece:
    data = Block(row["data"])
    axis, shift = data, 2
    if row["level"] == 0:
        found = c.execute("SELECT data FROM axes WHERE pk = :pk", {"pk": row["axis"]}).fetchone()
        axis, shift = Block(found["data"]), 0
    order = (row["seq"] >> SEGMENT_SHIFT, 0, row["seq"])
    return _Piece(order, rows, Points(axis.ints(0), axis.ints(1), data.floats(shift)))


def _blocks(c: sqlite3.Connection, series_pk: int, level: int) -> list[_Piece]:
    """Points that are not compacted yet, thinned as often as the level says."""
    rows = c.execute(
        """SELECT b.segment, b.pk, b.rows, b.data, m.position FROM members m JOIN blocks b ON b.bundle = m.bundle
           WHERE m.series = :series AND b.tier >= 0 ORDER BY b.segment, b.pk""",
        {"series": series_pk},
    )
    pieces = [
        _Piece(
            (row["segment"], 1, row["pk"]), row["rows"], block_points(row["data"], row["position"])
        )
        for row in rows
    ]
    return pieces if level == 0 else [_coarser(part, level) for part in _by_segment(pieces)]


def block_points(data: bytes, position: int) -> Points:
    block = Block(data)
    return Points(block.ints(0), block.ints(1), block.floats(2 + position))


def _by_segment(pieces: list[_Piece]) -> list[_Piece]:
    """Blocks of one segment as one piece: many have a row or two, which cannot be thinned one by
    one.
    """
    groups: dict[int, list[_Piece]] = {}
    for piece in pieces:
        groups.setdefault(piece.order[0], []).append(piece)
    return [
        _Piece(
            group[0].order,
            sum(piece.rows for piece in group),
            join(piece.points for piece in group),
        )
        for group in groups.values()
    ]


def _coarser(piece: _Piece, level: int) -> _Piece:
    points = piece.points
    for _ in range(level):
        points = points.take(zoom_index(points.values))
    return _Piece(piece.order, piece.rows, points)


def count_points(
    c: sqlite3.Connection, job_pk: int, wanted: list[str] | None, rank: int | None
) -> int:
    """How many points an answer with every point would hold; checked against METRIC_POINTS_MAX
    before reading.
    """
    rows = c.execute(
        """SELECT s.name, sum(l.points) AS n FROM series s JOIN latest l ON l.series = s.pk WHERE s.job = :job
             AND (:rank IS NULL OR s.rank = :rank) GROUP BY s.name""",
        {"job": job_pk, "rank": rank},
    )
    return sum(row["n"] for row in rows if wanted is None or row["name"] in wanted)


def reached(c: sqlite3.Connection, job_pk: int) -> dict[int, int]:
    """The last step that any rank has logged, by attempt."""
    rows = c.execute(
        "SELECT s.attempt, max(l.step) FROM series s JOIN latest l ON l.series = s.pk WHERE s.job = :job"
        " GROUP BY s.attempt",
        {"job": job_pk},
    )
    return {int(attempt): int(step) for attempt, step in rows}

"""Compaction: blocks as they came → large dense columns per metric, with zoom levels. Called by
`keeper`.

Read and encode on a read connection (`plan_next`), then swap in one small transaction of the writer
(`install`): a crash leaves either the old form or the new one, and no reader ever sees both. The
order of points never changes: a piece is cut within one segment of the stream, in the order of its
blocks.
"""

import sqlite3
from dataclasses import dataclass, field

import numpy as np

from headway.model.errors import DamagedError
from headway.model.limits import BLOCKS_MERGE, COMPACT_ROWS
from headway.store import catalog
from headway.store.series import SEGMENT_SHIFT, Points, zoom_index
from headway.wire import block
from headway.wire.block import Block, Floats, Ints

ROWS_MIN = 1024  # a piece of a wide bundle has at least as many rows
VALUES_MAX = 8 * COMPACT_ROWS  # values in all columns of one piece, for bundles of many metrics
LEVEL_POINTS_MIN = 64  # a level with fewer points has no coarser one


@dataclass(slots=True)
class Column:
    series: int
    levels: list[tuple[int, bytes]]  # rows and data; the first is every point


@dataclass(slots=True)
class Piece:
    """Rows of metrics that share step and time."""

    rows: int
    axis: bytes
    columns: list[Column]


@dataclass(slots=True)
class Plan:
    job: int
    segment: int
    blocks: list[int]  # replaced by this plan
    pieces: list[Piece] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(
            len(piece.axis)
            + sum(len(data) for column in piece.columns for _, data in column.levels)
            for piece in self.pieces
        )


@dataclass(slots=True)
class Merge:
    """Many small blocks of one bundle that become one."""

    blocks: list[int]
    rows: int
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


class DamagedBlock(DamagedError):
    """A block whose checksum is wrong. It is set aside, so that it costs only itself (P11)."""

    def __init__(self, pk: int, cause: DamagedError) -> None:
        super().__init__(f"block {pk}: {cause.message}")
        self.pk = pk


# -- what is due


def due(c: sqlite3.Connection, now_ns: int, calm_ns: int) -> list[tuple[int, int]]:
    """(bundle, segment) to compact: enough rows, too many blocks, a segment that is over, or a job
    that has ended.

    `calm_ns` is how long a job must have ended before its rest is compacted: its last data may
    still be on the way.
    """
    rows = c.execute(
        """SELECT b.bundle, b.segment, sum(b.rows) AS n, count(*) AS blocks,
             (SELECT count(*) FROM members m WHERE m.bundle = b.bundle) AS width,
             j.state IN ('succeeded', 'failed', 'stopped') AND j.state_since_ns <= :since AS over,
             EXISTS (SELECT 1 FROM blocks x WHERE x.bundle = b.bundle AND x.segment > b.segment) AS later
           FROM blocks b JOIN bundles u ON u.pk = b.bundle JOIN jobs j ON j.pk = u.job
           WHERE b.tier >= 0 GROUP BY b.bundle, b.segment ORDER BY n DESC""",
        {"since": now_ns - calm_ns},
    )
    return [
        (row["bundle"], row["segment"])
        for row in rows
        if row["over"]
        or row["later"]
        or row["n"] >= piece_rows(row["width"])
        or row["blocks"] >= 4 * BLOCKS_MERGE
    ]


def ended_with_blocks(c: sqlite3.Connection) -> bool:
    """Whether a job has ended and points of it are still to be compacted."""
    row = c.execute(
        """SELECT 1 FROM (SELECT DISTINCT bundle FROM blocks WHERE tier >= 0) b JOIN bundles u ON u.pk = b.bundle
           JOIN jobs j ON j.pk = u.job WHERE j.state IN ('succeeded', 'failed', 'stopped') LIMIT 1"""
    ).fetchone()
    return row is not None


def piece_rows(width: int) -> int:
    """Rows of one piece: fewer for wide bundles, so that reading one metric's newest points stays
    cheap.
    """
    return max(ROWS_MIN, min(COMPACT_ROWS, VALUES_MAX // max(1, width)))


def mergeable(c: sqlite3.Connection) -> list[tuple[int, int]]:
    """(bundle, segment) with many small blocks."""
    rows = c.execute(
        """SELECT bundle, segment FROM blocks WHERE tier = 0 GROUP BY bundle, segment HAVING count(*) >= :many""",
        {"many": BLOCKS_MERGE},
    )
    return [(row["bundle"], row["segment"]) for row in rows]


# -- planning, on a read connection


def plan_next(c: sqlite3.Connection, bundle: int, segment: int) -> Plan | None:
    """The next piece of this segment: of the bundle and of all that share a metric with it, so that
    order is kept.
    """
    places = _related(c, bundle)
    job = c.execute("SELECT job FROM bundles WHERE pk = :pk", {"pk": bundle}).fetchone()
    limit = piece_rows(max(len(members) for members in places.values()))
    found: list[tuple[int, int, Block]] = []
    rows = 0
    for row in _blocks(c, list(places), segment):
        found.append((row["pk"], row["bundle"], _checked(row)))
        rows += row["rows"]
        if rows >= limit:
            break
    if not found or job is None:
        return None
    plan = Plan(job["job"], segment, [pk for pk, _, _ in found])
    for together, series in _together(places).items():
        part = [(pk, where, data) for pk, where, data in found if where in together]
        if part:
            plan.pieces += _pieces(part, series, places, limit)
    return plan


def _blocks(c: sqlite3.Connection, bundles: list[int], segment: int) -> sqlite3.Cursor:
    marks = ", ".join("?" * len(bundles))
    return c.execute(
        f"""SELECT pk, bundle, rows, data FROM blocks WHERE bundle IN ({marks}) AND segment = ? AND tier >= 0
            ORDER BY pk""",  # noqa: S608  (placeholders)
        (*bundles, segment),
    )


def _checked(row: sqlite3.Row) -> Block:
    try:
        found = Block(row["data"])
        if found.rows != row["rows"]:
            raise DamagedError("the number of rows is wrong")
        found.check()
        return found
    except DamagedError as error:
        raise DamagedBlock(row["pk"], error) from None


def _related(c: sqlite3.Connection, bundle: int) -> dict[int, dict[int, int]]:
    """Bundles that share a metric with this one, directly or over others: bundle → series → column."""
    found: dict[int, dict[int, int]] = {}
    todo = [bundle]
    while todo:
        pk = todo.pop()
        members = c.execute(
            "SELECT series, position FROM members WHERE bundle = :pk", {"pk": pk}
        ).fetchall()
        found[pk] = {row["series"]: row["position"] for row in members}
        others = c.execute(
            "SELECT DISTINCT o.bundle FROM members m JOIN members o ON o.series = m.series WHERE m.bundle = :pk",
            {"pk": pk},
        )
        todo += [
            row["bundle"]
            for row in others
            if row["bundle"] not in found and row["bundle"] not in todo
        ]
    return found


def _together(places: dict[int, dict[int, int]]) -> dict[frozenset[int], list[int]]:
    """Series by the bundles that hold them: these have the same rows, so they share an axis."""
    homes: dict[int, set[int]] = {}
    for bundle, members in places.items():
        for series in members:
            homes.setdefault(series, set()).add(bundle)
    together: dict[frozenset[int], list[int]] = {}
    for series, where in homes.items():
        together.setdefault(frozenset(where), []).append(series)
    return together


def _pieces(
    part: list[tuple[int, int, Block]],
    series: list[int],
    places: dict[int, dict[int, int]],
    limit: int,
) -> list[Piece]:
    steps = np.concatenate([data.ints(0) for _, _, data in part])
    times = np.concatenate([data.ints(1) for _, _, data in part])
    cuts = np.linspace(0, len(steps), max(1, round(len(steps) / limit)) + 1).astype(int)
    bounds = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    pieces = [Piece(b - a, _axis(steps[a:b], times[a:b]), []) for a, b in bounds]
    for one in series:
        values = np.concatenate([data.floats(2 + places[where][one]) for _, where, data in part])
        for piece, (a, b) in zip(pieces, bounds, strict=True):
            levels = _levels(Points(steps[a:b], times[a:b], values[a:b]))
            piece.columns.append(Column(one, levels))
    return pieces


def _axis(steps: Ints, times: Ints) -> bytes:
    return block.encode(
        len(steps), [block.encode_ints(steps, dense=True), block.encode_ints(times, dense=True)]
    )


def _levels(points: Points) -> list[tuple[int, bytes]]:
    levels = [(len(points), block.encode(len(points), [block.encode_floats(points.values)]))]
    while len(points) > LEVEL_POINTS_MIN:
        points = points.take(zoom_index(points.values))
        columns = [
            block.encode_ints(points.steps, dense=True), block.encode_ints(points.times_us, dense=True),
            block.encode_floats(points.values),
        ]  # fmt: skip
        levels.append((len(points), block.encode(len(points), columns)))
    return levels


def plan_merge(c: sqlite3.Connection, bundle: int, segment: int) -> Merge | None:
    """The oldest small blocks of a bundle as one, still in the light form.

    Not where other bundles hold the same metrics: points of theirs may lie in between.
    """
    if len(_related(c, bundle)) > 1:
        return None
    rows = c.execute(
        """SELECT pk, rows, data FROM blocks WHERE bundle = :bundle AND segment = :segment AND tier = 0
           ORDER BY pk LIMIT :many""",
        {"bundle": bundle, "segment": segment, "many": 4 * BLOCKS_MERGE},
    ).fetchall()
    if len(rows) < 2:
        return None
    found = [_checked(row) for row in rows]
    steps = np.concatenate([data.ints(0) for data in found])
    times = np.concatenate([data.ints(1) for data in found])
    values: Floats = np.concatenate([data.matrix(2) for data in found], axis=1)
    columns = [block.encode_ints(steps, dense=False), block.encode_ints(times, dense=False)]
    columns += block.encode_float_rows(values)
    return Merge([row["pk"] for row in rows], len(steps), block.encode(len(steps), columns))


# -- swapping, in the writer's transaction


def install(c: sqlite3.Connection, plan: Plan) -> None:
    """Replace blocks by columns. Raises where the blocks are not all there any more; nothing has
    changed then.
    """
    _delete_blocks(c, plan.blocks)
    for piece in plan.pieces:
        cursor = c.execute(
            "INSERT INTO axes (job, rows, data) VALUES (:job, :rows, :data)",
            {"job": plan.job, "rows": piece.rows, "data": piece.axis},
        )
        axis = cursor.lastrowid
        for column in piece.columns:
            seq = _next_seq(c, column.series, plan.segment)
            c.executemany(
                "INSERT INTO columns (series, level, seq, axis, rows, data) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (column.series, level, seq, None if level else axis, rows, data)
                    for level, (rows, data) in enumerate(column.levels)
                ],
            )


def _next_seq(c: sqlite3.Connection, series: int, segment: int) -> int:
    first = segment << SEGMENT_SHIFT
    row = c.execute(
        "SELECT max(seq) AS seq FROM columns WHERE series = :series AND level = 0 AND seq >= :first AND seq < :end",
        {"series": series, "first": first, "end": (segment + 1) << SEGMENT_SHIFT},
    ).fetchone()
    return first if row["seq"] is None else int(row["seq"]) + 1


def install_merge(c: sqlite3.Connection, merge: Merge) -> None:
    """The first block takes all rows, so the order stays."""
    _delete_blocks(c, merge.blocks[1:])
    cursor = c.execute(
        "UPDATE blocks SET rows = :rows, data = :data, tier = 1 WHERE pk = :pk",
        {"rows": merge.rows, "data": merge.data, "pk": merge.blocks[0]},
    )
    if cursor.rowcount != 1:
        raise LookupError("a block has gone meanwhile")


def _delete_blocks(c: sqlite3.Connection, keys: list[int]) -> None:
    for pk in keys:
        if c.execute("DELETE FROM blocks WHERE pk = :pk", {"pk": pk}).rowcount != 1:
            raise LookupError("a block has gone meanwhile")


def set_aside(c: sqlite3.Connection, pk: int, reason: str, now_ns: int) -> None:
    """A damaged block stays where it is, is read no more, and is told with what it cost."""
    row = c.execute(
        """SELECT u.job, u.attempt, u.rank, b.rows, (SELECT count(*) FROM members m WHERE m.bundle = u.pk) AS width
           FROM blocks b JOIN bundles u ON u.pk = b.bundle WHERE b.pk = :pk AND b.tier >= 0""",
        {"pk": pk},
    ).fetchone()
    if row is None:
        return
    c.execute("UPDATE blocks SET tier = -1 WHERE pk = :pk", {"pk": pk})
    data = {"block": pk, "points": row["rows"] * row["width"], "reason": reason}
    catalog.add_event(
        c, row["job"], "damage", data, now_ns, attempt=row["attempt"], rank=row["rank"]
    )

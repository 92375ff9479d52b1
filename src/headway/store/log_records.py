"""Log records come out, as the contract's JSON: in order, or searched. Called by the server's API."""

import json
import sqlite3
from collections.abc import Iterator

from headway.model.json_types import JsonObject
from headway.model.limits import RECORDS_MAX
from headway.store import grep
from headway.store.jsonform import iso

# a record's text is shorter than 2**20 bytes: its number and a place in it are one number
_TEXT_BITS = 20
Object = JsonObject


def read(
    c: sqlite3.Connection, job: int, *, after: int = 0, levelno: int = 0, rank: int | None = None,
    limit: int = RECORDS_MAX,
) -> list[Object]:  # fmt: skip
    """In the order they came. `seq` of the last one is `after` of the next call."""
    return [
        _record(row) for row in _record_rows(c, job, after, levelno, rank, min(limit, RECORDS_MAX))
    ]


def search(
    c: sqlite3.Connection,
    job: int,
    pattern: str,
    *,
    after: int = 0,
    levelno: int = 0,
    rank: int | None = None,
) -> tuple[list[Object], bool, bool]:
    """Records with a line that matches; whether there may be more; whether time ran out."""
    rows = _record_rows(c, job, after, levelno, rank, -1)
    pieces = ((row["seq"] << _TEXT_BITS, row["text"].encode()) for row in rows)
    places, more, timed_out = grep.places(pattern, pieces, RECORDS_MAX)
    one = "SELECT * FROM records WHERE job = :job AND seq = :seq"
    numbers = dict.fromkeys(place >> _TEXT_BITS for place in places)
    found = (c.execute(one, {"job": job, "seq": seq}).fetchone() for seq in numbers)
    return [_record(row) for row in found if row is not None], more, timed_out


def last(c: sqlite3.Connection, job: int) -> int:
    row = c.execute("SELECT last_seq FROM record_totals WHERE job = :job", {"job": job}).fetchone()
    return int(row["last_seq"]) if row else 0


def _record_rows(
    c: sqlite3.Connection, job: int, after: int, levelno: int, rank: int | None, limit: int
) -> Iterator[sqlite3.Row]:
    yield from c.execute(
        """SELECT * FROM records WHERE job = :job AND seq > :after AND levelno >= :levelno
             AND (:rank IS NULL OR rank = :rank) ORDER BY seq LIMIT :limit""",
        {"job": job, "after": after, "levelno": levelno, "rank": rank, "limit": limit},
    )


def _record(row: sqlite3.Row) -> Object:
    return {
        **json.loads(row["data"]), "seq": row["seq"], "time": iso(row["time_ns"]), "attempt": row["attempt"],
        "rank": row["rank"], "levelno": row["levelno"], "printed": bool(row["printed"]), "text": row["text"],
    }  # fmt: skip

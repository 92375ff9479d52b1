"""What a word means that somebody typed for a job or an array: its id, its uuid, or an ending of
its id.

Called by `catalog.resolve` and `arrays.find`. An ending that several have, jobs or arrays, means
none of them.
"""

import re
import sqlite3
from collections.abc import Sequence

from headway.model.errors import NotFoundError

CANDIDATES_SHOWN = 10
_LAST = re.compile(r"(?:last|-)(?:(?P<up>\^{1,100})|~(?P<steps>\d{1,4}))?\Z")
# jobs that belong to no array, and arrays, as one list
_ALL = """SELECT id, uuid, 'job' AS kind, state, submitted_ns, name FROM jobs
            WHERE array IS NULL AND deleted_ns IS NULL
          UNION ALL SELECT id, uuid, 'array' AS kind, '' AS state, submitted_ns, name FROM arrays
            WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.array = arrays.uuid AND deleted_ns IS NULL)"""
_WHOLE, _ENDING = "(id = :ref OR uuid = :ref OR suffix = :ref)", "substr(id, -length(:ref)) = :ref"
_JOBS = "SELECT pk, id, state FROM jobs WHERE {} AND deleted_ns IS NULL ORDER BY pk DESC"
_ARRAYS = """SELECT uuid, id, suffix FROM arrays WHERE {} AND EXISTS (
             SELECT 1 FROM jobs WHERE jobs.array = arrays.uuid AND deleted_ns IS NULL) ORDER BY submitted_ns DESC"""


def find(c: sqlite3.Connection, ref: str) -> tuple[list[sqlite3.Row], list[sqlite3.Row]]:
    """Jobs and arrays that `ref` may mean. What is its id, its uuid or the five characters is not
    an ending of others. An array whose jobs are all deleted is gone with them.
    """
    if not ref or not ref.isascii():
        return [], []
    for how in (_WHOLE, _ENDING):
        jobs, arrays = (
            c.execute(query.format(how), {"ref": ref}).fetchall() for query in (_JOBS, _ARRAYS)
        )
        if jobs or arrays:
            return jobs, arrays
    return [], []


def find_one(c: sqlite3.Connection, ref: str) -> dict[str, str]:
    """What a reading verb means by `ref` → `{id, uuid, kind, state, said}`. `last` or `-` is the
    newest job or array, `last^` or `last~1` the one before; then ids and their endings; then names,
    of several the newest. `said`: how it was chosen, where that was not by its id.
    """
    back = _LAST.match(ref)
    if back:
        steps = int(back["steps"]) if back["steps"] else len(back["up"] or "")
        return _newest(c, ref, steps)
    jobs, arrays = find(c, ref)
    if len(jobs) + len(arrays) > 1:
        raise ambiguous(ref, jobs, arrays)
    if jobs:
        uuid = c.execute("SELECT uuid FROM jobs WHERE pk = :pk", {"pk": jobs[0]["pk"]}).fetchone()
        return {
            "id": jobs[0]["id"],
            "uuid": uuid["uuid"],
            "kind": "job",
            "state": jobs[0]["state"],
            "said": "",
        }
    if arrays:
        return {
            "id": arrays[0]["id"],
            "uuid": arrays[0]["uuid"],
            "kind": "array",
            "state": "",
            "said": "",
        }
    named = _named(c, ref)
    if not named:
        raise not_found(c, ref)
    found = _meant(named[0])
    many = f", the newest of {len(named)} with that name" if len(named) > 1 else ""
    found["said"] = f'"{ref}" is {_described(found)}{many}'
    return found


def _newest(c: sqlite3.Connection, ref: str, steps: int) -> dict[str, str]:
    rows = c.execute(
        f"{_ALL} ORDER BY submitted_ns DESC, id DESC LIMIT 1 OFFSET :steps", {"steps": steps}
    )
    row = rows.fetchone()
    if row is None:
        before = "that long ago" if steps else "yet"
        raise NotFoundError(f"there is no job {before}", "`hw ls` lists the jobs")
    found = _meant(row)
    found["said"] = f"{'last' if ref == '-' else ref} is {_described(found)}"
    return found


def _meant(row: sqlite3.Row) -> dict[str, str]:
    return {name: str(row[name]) for name in ("id", "uuid", "kind", "state")}


def _described(found: dict[str, str]) -> str:
    return f"{found['id']} ({found['state'] or 'an array'})"


def ambiguous(
    ref: str, jobs: Sequence[sqlite3.Row], arrays: Sequence[sqlite3.Row]
) -> NotFoundError:
    found = [(row["id"], row["state"]) for row in jobs] + [
        (row["id"], "an array") for row in arrays
    ]
    kinds = " and ".join(kind for kind, rows in (("jobs", jobs), ("arrays", arrays)) if rows)
    return NotFoundError(
        f'{len(found)} {kinds} end in "{ref[:80]}": {_listed(found)}',
        "type one more character, or use the whole id",
        [each for each, _ in found[:CANDIDATES_SHOWN]],
    )


def no_job(c: sqlite3.Connection, array: sqlite3.Row) -> NotFoundError:
    return NotFoundError(f"{array['id']} is an array of jobs", _way_into(c, array))


def not_found(c: sqlite3.Connection, ref: str) -> NotFoundError:
    return _by_name(c, ref) or NotFoundError(
        f'no job ends in "{ref[:80]}"', "`hw ls` lists the jobs"
    )


def _listed(found: Sequence[tuple[str, str]]) -> str:
    more = f" and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
    return ", ".join(f"{each} ({what})" for each, what in found[:CANDIDATES_SHOWN]) + more


def _way_into(c: sqlite3.Connection, array: sqlite3.Row) -> str:
    """How to go on from an array where one job is wanted: the first that failed is mostly the one."""
    row = c.execute(
        """SELECT id, state FROM jobs WHERE array = :uuid AND deleted_ns IS NULL
           ORDER BY state <> 'failed', state <> 'running', array_index LIMIT 1""",
        {"uuid": array["uuid"]},
    ).fetchone()
    one = f"; one of them is {row['id']} ({row['state']})" if row is not None else ""
    return f"hw ls --array {array['suffix']} lists them{one}"


def _named(c: sqlite3.Connection, name: str) -> list[sqlite3.Row]:
    """Jobs and arrays of that name, the newest first."""
    if not name.isascii():
        return []
    query = f"SELECT * FROM ({_ALL}) WHERE name = :name ORDER BY submitted_ns DESC"  # noqa: S608  (our own words)
    return c.execute(query, {"name": name}).fetchall()


def _by_name(c: sqlite3.Connection, name: str) -> NotFoundError | None:
    """A name is no id: many jobs may have it, and tomorrow one more. Those that have it now are
    told.
    """
    rows = _named(c, name)
    if not rows:
        return None
    which = "is the name of" if len(rows) == 1 else f"is the name of {len(rows)} jobs, not an id:"
    return NotFoundError(
        f'"{name[:80]}" {which} {_listed([(row["id"], row["state"] or "an array") for row in rows])}',
        "use an id; its last five characters will do",
        [row["id"] for row in rows[:CANDIDATES_SHOWN]],
    )

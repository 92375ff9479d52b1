"""What to say where a word that somebody typed means no job: an array, or a name. Called by `catalog.resolve`."""

import sqlite3

from headway.model.errors import NotFoundError

CANDIDATES_SHOWN = 10


def not_found(c: sqlite3.Connection, ref: str, shown: str) -> NotFoundError:
    array = c.execute(
        """SELECT id, suffix, uuid FROM arrays WHERE :ref IN (id, suffix, uuid)
           AND EXISTS (SELECT 1 FROM jobs WHERE jobs.array = arrays.uuid AND deleted_ns IS NULL)""",
        {"ref": ref},
    ).fetchone()
    if array is not None:
        return NotFoundError(f"{array['id']} is an array of jobs", _way_into(c, array))
    return _by_name(c, ref) or NotFoundError(f'no job ends in "{shown}"', "`hw ls` lists the jobs")


def _way_into(c: sqlite3.Connection, array: sqlite3.Row) -> str:
    """How to go on from an array where one job is wanted: the first that failed is mostly the one."""
    row = c.execute(
        """SELECT id, state FROM jobs WHERE array = :uuid AND deleted_ns IS NULL
           ORDER BY state <> 'failed', state <> 'running', array_index LIMIT 1""",
        {"uuid": array["uuid"]},
    ).fetchone()
    one = f"; one of them is {row['id']} ({row['state']})" if row is not None else ""
    return f"hw ls --array {array['suffix']} lists them{one}"


def _by_name(c: sqlite3.Connection, name: str) -> NotFoundError | None:
    """A name is no id: many jobs may have it, and tomorrow one more. Those that have it now are told."""
    rows = c.execute(
        """SELECT id, state, submitted_ns FROM jobs WHERE name = :name AND array IS NULL AND deleted_ns IS NULL
           UNION ALL SELECT id, 'an array', submitted_ns FROM arrays WHERE name = :name
             AND EXISTS (SELECT 1 FROM jobs WHERE jobs.array = arrays.uuid AND deleted_ns IS NULL)
           ORDER BY submitted_ns DESC""",
        {"name": name},
    ).fetchall()
    if not rows:
        return None
    listed = ", ".join(f"{row['id']} ({row['state']})" for row in rows[:CANDIDATES_SHOWN])
    more = f" and {len(rows) - CANDIDATES_SHOWN} more" if len(rows) > CANDIDATES_SHOWN else ""
    which = "is the name of" if len(rows) == 1 else f"is the name of {len(rows)} jobs, not an id:"
    return NotFoundError(
        f'"{name[:80]}" {which} {listed}{more}',
        "use an id; its last five characters will do",
        [row["id"] for row in rows[:CANDIDATES_SHOWN]],
    )

"""Rows that cannot be read any more cost themselves, not the list that they are in (P11).

SQLite has no checksum for ordinary rows. A flipped bit makes text that is no UTF-8, JSON that does
not parse, or a state that does not exist, and one such row would fail every query that meets it. The
store calls `repair` in the writer when a query has failed like that: each damaged value is kept as it
is in `damaged_values`, a readable one takes its place, and the job's events say so. A job whose
command is damaged and that has not begun is not run.
"""

import json
import sqlite3
from dataclasses import dataclass
from zlib import crc32

from headway.model.finding import Finding
from headway.model.job import State
from headway.store.connection import touch

# What a JSON column holds in place of a damaged value; None: NULL.
_JSON: dict[str, dict[str, str | None]] = {
    "jobs": {"spec": "", "tags": "[]", "config": None, "cause": None, "provenance": None},
    "attempts": {"cause": None, "retry": None},
    "tasks": {"agent": None, "result": None, "held": None},
    "processes": {"exception": None},
    "streams": {"opened": None},
    "events": {"data": "{}"},
    "records": {"data": "{}"},
    "usage_last": {"data": "{}"},
    "checkpoints": {"tags": "[]"},
    "notices": {"facts": "{}"},
}
_STATES = {"jobs", "attempts"}
_JOB_OF = {
    "jobs": "SELECT pk FROM jobs WHERE rowid = ?",
    "attempts": "SELECT job FROM attempts WHERE rowid = ?",
    "tasks": "SELECT a.job FROM tasks t JOIN attempts a ON a.pk = t.attempt WHERE t.rowid = ?",
    "processes": "SELECT a.job FROM processes p JOIN tasks t ON t.pk = p.task "
    "JOIN attempts a ON a.pk = t.attempt WHERE p.rowid = ?",
    "streams": "SELECT a.job FROM streams s JOIN tasks t ON t.pk = s.task "
    "JOIN attempts a ON a.pk = t.attempt WHERE s.rowid = ?",
    "events": "SELECT job FROM events WHERE rowid = ?",
    "records": "SELECT job FROM records WHERE rowid = ?",
}
_KEPT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class DamagedValue:
    table: str
    row: int
    column: str
    job: int | None
    why: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} of row {self.row}: {self.why}"


def looks_like_row_damage(error: BaseException) -> bool:
    """Whether an error of a query may come from a value that cannot be read."""
    if isinstance(error, sqlite3.OperationalError):
        return "Could not decode" in str(error)
    return isinstance(error, ValueError | KeyError | TypeError | AttributeError | RecursionError)


def repair(c: sqlite3.Connection, now_ns: int) -> list[DamagedValue]:
    """Find and replace what cannot be read, in all tables. In a transaction of the writer."""
    c.execute(
        """CREATE TABLE IF NOT EXISTS damaged_values (pk INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL,
             tab TEXT NOT NULL, at INTEGER NOT NULL, col TEXT NOT NULL, value BLOB)"""
    )
    found: list[DamagedValue] = []
    tables = [
        str(row[0])
        for row in c.execute(
            """SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
               AND name <> 'damaged_values'"""
        )
    ]
    for table in tables:
        found += _repair_table(c, table, now_ns)
    for value in found:
        if value.job is not None:
            _tell(c, value, now_ns)
    return found


def _repair_table(c: sqlite3.Connection, table: str, now_ns: int) -> list[DamagedValue]:
    every = {str(row[1]): str(row[2]) for row in c.execute(f"PRAGMA table_info({table})")}
    columns = [name for name, kind in every.items() if kind.upper() == "TEXT"]
    if not columns or _is_without_rowid(c, table):
        return []
    names = ", ".join(f"CAST({name} AS BLOB), typeof({name})" for name in columns)
    cursor = c.cursor()
    cursor.row_factory = None
    damaged: list[tuple[int, str, bytes, str]] = []
    for row in cursor.execute(f"SELECT rowid, {names} FROM {table}"):  # noqa: S608  (names of our own schema)
        for at, name in enumerate(columns):
            value = row[1 + 2 * at]
            if value is None:
                continue
            if why := _fault(table, name, bytes(value)):
                damaged.append((row[0], name, bytes(value), why))
    if damaged:  # an index may hold the value as it was
        c.execute(f"REINDEX {table}")
    found = []
    for rowid, name, value, why in damaged:
        job = _job_of(c, table, rowid)
        c.execute(
            "INSERT INTO damaged_values (time_ns, tab, at, col, value) VALUES (?, ?, ?, ?, ?)",
            (now_ns, table, rowid, name, value[:_KEPT_BYTES]),
        )
        replacement = _replacement(c, table, rowid, name, value)
        try:
            c.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (replacement, rowid))  # noqa: S608  (names of our own schema)
        except sqlite3.IntegrityError:  # a key, equal to another one when it is made readable
            c.execute(
                f"UPDATE {table} SET {name} = ? WHERE rowid = ?",  # noqa: S608  (names of our own schema)
                (f"{replacement}-{rowid}", rowid),
            )
        found.append(DamagedValue(table, rowid, name, job, why))
        if table == "jobs" and name == "spec":
            _settle_spec(c, rowid, now_ns)
    return found + (_changed_specs(c, now_ns) if table == "jobs" and "spec_crc" in every else [])


def _changed_specs(c: sqlite3.Connection, now_ns: int) -> list[DamagedValue]:
    """Those that can be read and are not what was stored. What they say is kept and told: it may be
    wrong in one letter, and more is not known.
    """
    cursor = c.cursor()
    cursor.row_factory = None
    rows = cursor.execute(
        "SELECT pk, CAST(spec AS BLOB), spec_crc FROM jobs WHERE spec_crc IS NOT NULL"
    )
    changed = [(int(pk), bytes(spec)) for pk, spec, crc in rows if crc32(spec) != crc]
    for pk, spec in changed:
        c.execute(
            "INSERT INTO damaged_values (time_ns, tab, at, col, value) VALUES (?, 'jobs', ?, 'spec', ?)",
            (now_ns, pk, spec[:_KEPT_BYTES]),
        )
        _settle_spec(c, pk, now_ns)
    why = "its checksum is another: command, folder or options may be wrong"
    return [DamagedValue("jobs", pk, "spec", pk, why) for pk, _ in changed]


def _settle_spec(c: sqlite3.Connection, pk: int, now_ns: int) -> None:
    """It is told; from now on it counts as it is."""
    _do_not_run(c, pk, now_ns)
    (spec,) = tuple(c.execute("SELECT CAST(spec AS BLOB) FROM jobs WHERE pk = ?", (pk,)).fetchone())
    c.execute("UPDATE jobs SET spec_crc = ? WHERE pk = ?", (crc32(bytes(spec)), pk))


def _is_without_rowid(c: sqlite3.Connection, table: str) -> bool:
    try:
        c.execute(f"SELECT rowid FROM {table} LIMIT 0")  # noqa: S608  (a name of our own schema)
    except sqlite3.OperationalError:
        return True
    return False


def _fault(table: str, name: str, value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "no UTF-8"
    if name in _JSON.get(table, ()):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return "no JSON"
        if table == "jobs" and name == "spec":
            return _spec_fault(parsed)
    if name == "state" and table in _STATES and text not in set(State):
        return f"{text!r} is no state"
    return ""


def _spec_fault(parsed: object) -> str:
    from headway.store.catalog import read_spec

    if not isinstance(parsed, dict):
        return "no job"
    try:
        read_spec(json.dumps(parsed))
    # whatever a changed field does to the reader, the row cannot be read
    except Exception as error:
        return f"no job: {type(error).__name__}"
    return ""


def _replacement(
    c: sqlite3.Connection, table: str, rowid: int, name: str, value: bytes
) -> str | None:
    text = value.decode("utf-8", "replace")
    if name == "state" and table in _STATES:
        return str(State.UNKNOWN)
    if table == "jobs" and name == "spec":
        if not _fault(table, name, text.encode()):
            return text
        row = c.execute("SELECT CAST(name AS BLOB) FROM jobs WHERE rowid = ?", (rowid,)).fetchone()
        called = bytes(row[0] or b"damaged").decode("utf-8", "replace")
        return json.dumps({"command": ["(damaged)"], "cwd": "/", "name": called})
    if name in _JSON.get(table, ()):
        return text if not _fault(table, name, text.encode()) else _JSON[table][name]
    return text


def _do_not_run(c: sqlite3.Connection, pk: int, now_ns: int) -> None:
    """What its command was is not known for sure: a job that has not begun ends here."""
    finding = Finding(
        "damaged_row",
        "system",
        "its stored command was damaged, so it was not run: submit it again",
    )
    c.execute(
        """UPDATE jobs SET state = 'failed', state_since_ns = max(state_since_ns, :now), ended_ns = :now,
             cause = :cause WHERE pk = :pk AND state = 'waiting'
             AND NOT EXISTS (SELECT 1 FROM attempts WHERE job = :pk)""",
        {"pk": pk, "now": now_ns, "cause": json.dumps(finding.as_cause())},
    )


def _job_of(c: sqlite3.Connection, table: str, rowid: int) -> int | None:
    wanted = _JOB_OF.get(table)
    row = c.execute(wanted, (rowid,)).fetchone() if wanted else None
    return int(row[0]) if row is not None and row[0] is not None else None


def _tell(c: sqlite3.Connection, value: DamagedValue, now_ns: int) -> None:
    data = {
        "level": "warning",
        "text": f"a stored value of it was damaged ({value}); it was replaced",
    }
    c.execute(
        "INSERT INTO events (job, time_ns, type, data) VALUES (?, ?, 'note', ?)",
        (value.job, now_ns, json.dumps(data)),
    )
    touch(c, value.job or 0, "job")

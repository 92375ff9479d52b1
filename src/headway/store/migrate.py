"""Bring headway.db to this version's schema, or refuse it with a reason. Called when the store
opens.

Each step is a numbered file in `migrations/`, applied with its `user_version` in one transaction,
after a copy of the database has been made beside it. Killed anywhere, it is finished or rolled back
(F36).
"""

import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from headway.home.paths import sync_folder
from headway.model.errors import DamagedError, RefusedError, VersionError
from headway.store.connection import APPLICATION_ID, Connection, primary_code

_HEADER = b"SQLite format 3\0"
_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.sql\Z")


def migrations() -> dict[int, str]:
    """Number → SQL, of every migration that this version knows."""
    folder = resources.files("headway.store") / "migrations"
    found: dict[int, str] = {}
    for entry in folder.iterdir():
        match = _FILE.match(entry.name)
        if match is None:
            continue
        number = int(match[1])
        if number in found:  # of two with one number, one would be lost in silence
            raise RuntimeError(f"two migrations have the number {number}: renumber {entry.name}")
        found[number] = entry.read_text()
    return found


def statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit in between."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""


def check_file(path: Path) -> None:
    """Refuse what is not ours to open, before SQLite touches it (B31). No connection may be open
    yet.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for ever
            raise RefusedError(
                f"{path} is not a plain file", "move it away; a new one is made at the next start"
            )
        with open(path, "rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be read: {error.strerror}", "look at its owner and mode"
        ) from None
    if head and not head.startswith(_HEADER):
        raise DamagedError(
            f"{path} is not an SQLite database", "move it away; a new one is made at the next start"
        )
    if path.stat().st_mode & 0o200 == 0 or not os.access(path, os.W_OK):
        raise RefusedError(
            f"{path} is read-only", f"chmod u+w {path}, or set HEADWAY_HOME to another folder"
        )
    _check_log(path, head)


def _check_log(path: Path, head: bytes) -> None:
    """A write-ahead log that cannot belong to this database would be played into it and spoil it."""
    wal = path.with_name(path.name + "-wal")
    if not wal.exists() or wal.stat().st_size < 32:
        return
    with open(wal, "rb") as file:
        header = file.read(32 + 24)
        first_page = file.read(100)

    other_size = False
    if head:
        page_bytes = int.from_bytes(head[16:18], "big")
        wal_page_bytes = int.from_bytes(header[8:12], "big")
        other_size = wal_page_bytes % 65536 != page_bytes % 65536
    other_program = False
    is_page_one = int.from_bytes(header[32:36], "big") == 1 and len(first_page) == 100
    if is_page_one:
        application_id = int.from_bytes(first_page[68:72], "big")
        other_program = application_id not in (0, APPLICATION_ID)
    clean = clean_mark(path)
    was_closed = clean.exists() and clean.read_text() == _fingerprint(path)
    if other_size or other_program or was_closed:
        raise RefusedError(
            f"{wal.name} beside {path} belongs to another database", f"move {wal} away"
        )


def clean_mark(path: Path) -> Path:
    """A file that says: closed in order, with nothing left in a write-ahead log."""
    return path.with_name(path.name + ".closed")


def _fingerprint(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns}\n"


def mark_closed(path: Path) -> None:
    """Called when the last connection is closed. Without a write-ahead log beside it, the file is
    complete.
    """
    if path.exists() and not path.with_name(path.name + "-wal").exists():
        fd = os.open(clean_mark(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            file.write(_fingerprint(path))


def mark_opened(path: Path) -> None:
    """Before anything is written. Durable at once: a mark that came back would make our own log
    look foreign.
    """
    try:
        clean_mark(path).unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RefusedError(
            f"{path.parent} cannot be written: {error.strerror}", "set HEADWAY_HOME elsewhere"
        ) from None
    sync_folder(path.parent)


def migrate(c: Connection, path: Path, copy: Callable[[Connection, Path], None]) -> list[int]:
    """Apply what is missing; returns the numbers applied. `copy` makes the copy that is kept beside
    the database.
    """
    version = int(c.execute("PRAGMA user_version").fetchone()[0])
    steps = migrations()
    newest = max(steps)
    if version > newest:
        raise VersionError(
            f"{path} was written by a newer Headway: its schema is {version}, this version knows {newest}",
            "upgrade this installation, or set HEADWAY_HOME to another folder",
        )
    _check_owner(c, path, version)
    missing = [number for number in sorted(steps) if number > version]
    if version and missing:  # of a database that is only being made there is nothing to keep
        copy(c, path.with_name(f"{path.name}.before-{missing[0]}"))
    for number in missing:
        _apply(c, number, steps[number])
    return missing


def missing_part(c: sqlite3.Connection) -> str | None:
    """A table or column that the schema should have and has not: a damaged name hides it, and no
    check of SQLite notices. None where all is there.
    """
    model = sqlite3.connect(":memory:")
    try:
        for _, script in sorted(migrations().items()):
            for statement in statements(script):
                model.execute(statement)
        wanted = _shape(model)
    finally:
        model.close()
    found = _shape(c)
    for table, columns in wanted.items():
        if table not in found:
            return f"the table {table} is missing"
        if lacking := sorted(columns - found[table]):
            return f"the table {table} has no {lacking[0]}"
    return None


def _shape(c: sqlite3.Connection) -> dict[str, set[str]]:
    names = [
        str(row[0])
        for row in c.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
    ]
    return {
        name: {str(row[1]) for row in c.execute("SELECT * FROM pragma_table_info(?)", (name,))}
        for name in names
    }


def _check_owner(c: Connection, path: Path, version: int) -> None:
    owner = int(c.execute("PRAGMA application_id").fetchone()[0])
    tables = c.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or tables):
        raise RefusedError(
            f"{path} is a database of another program",
            "move it away, or set HEADWAY_HOME elsewhere",
        )
    try:
        c.execute("BEGIN IMMEDIATE")
        c.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if primary_code(error) == sqlite3.SQLITE_READONLY:
            raise RefusedError(
                f"{path} is read-only", "set HEADWAY_HOME to a folder that you can write"
            ) from None
        raise


def _apply(c: Connection, number: int, script: str) -> None:
    c.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements(script):
            c.execute(statement)
        c.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        c.execute(f"PRAGMA user_version = {number}")
        c.execute("COMMIT")
    except BaseException:  # also when we are interrupted: a step is whole or not there
        if c.in_transaction:
            c.execute("ROLLBACK")
        raise

"""Connections to headway.db: how they are opened, and what their errors mean. Used inside the store
only.
"""

import sqlite3
from pathlib import Path
from typing import Any

from headway.model.errors import DamagedError, HeadwayError, UnreachableError
from headway.model.undo import UndoOnFailure

PAGE_BYTES = 8192  # fewer, larger pages: blobs go in a third faster than with 4096
BUSY_TIMEOUT_S = 5.0
CACHE_KIB = 16 * 1024
READ_CACHE_KIB = 4 * 1024
APPLICATION_ID = 0x48575931  # "HWY1", so that another program's database is told apart

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_TEMPORARY = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL,
}  # fmt: skip


class Connection(sqlite3.Connection):
    """The writer's connection. It collects what its transaction changed, and how much data that
    was.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.changed: set[tuple[int, str]] = set()
        self.written_bytes = 0


def touch(c: sqlite3.Connection, job_pk: int, what: str) -> None:
    """Tell listeners after the commit that `what` of a job has changed."""
    if isinstance(c, Connection):
        c.changed.add((job_pk, what))


def count_written(c: sqlite3.Connection, size: int) -> None:
    """Tell the writer how much went into the database, so that it knows how far its log has grown."""
    if isinstance(c, Connection):
        c.written_bytes += size


def open_writer(path: Path) -> Connection:
    c: Connection = sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
        cached_statements=256,
        timeout=BUSY_TIMEOUT_S,
    )
    # whatever it was, the connection must not stay open
    with UndoOnFailure(c.close):
        # these two count only while the file is new, and the second writes
        if path.stat().st_size == 0:
            c.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            c.execute("PRAGMA auto_vacuum = INCREMENTAL")
        c.execute("PRAGMA journal_mode = WAL")
        c.execute("PRAGMA synchronous = FULL")  # a commit that we report has reached the disk (P3)
        # the writer does it itself, after it has answered
        c.execute("PRAGMA wal_autocheckpoint = 0")
        c.execute("PRAGMA foreign_keys = ON")
        c.execute("PRAGMA temp_store = MEMORY")
        c.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    c.row_factory = sqlite3.Row
    return c


def open_reader(path: Path) -> sqlite3.Connection:
    c = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_S,
    )
    # whatever it was, the connection must not stay open
    with UndoOnFailure(c.close):
        c.execute("PRAGMA query_only = ON")
        c.execute("PRAGMA temp_store = MEMORY")
        c.execute(f"PRAGMA cache_size = -{READ_CACHE_KIB}")
    c.row_factory = sqlite3.Row
    return c


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code of an error, 0 where it has none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_damage(error: BaseException) -> bool:
    """UnicodeDecodeError: the message itself of SQLite's "malformed database schema" holds a
    damaged name.
    """
    return primary_code(error) in _DAMAGE or isinstance(error, UnicodeDecodeError)


def is_temporary(error: BaseException) -> bool:
    """Disk full, input/output errors and the like: the same call may succeed later."""
    return primary_code(error) in _TEMPORARY


def as_headway_error(error: BaseException, doing: str) -> BaseException:
    """What a caller gets to see for an error of SQLite or of the file system."""
    if isinstance(error, HeadwayError):
        return error
    if is_damage(error):
        return DamagedError(
            f"the database is damaged ({error}); found while {doing}", "see server.log"
        )
    if isinstance(error, OSError) or is_temporary(error):
        return UnreachableError(
            f"the store could not finish {doing}: {error}", "free some space, or look at the disk"
        )
    return error

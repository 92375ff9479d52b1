"""Copies of headway.db, and what happens when it is damaged: set aside, restored from the last good
copy, told (F15).

Called by `database.Store`. The copy is checked before it takes the place of the one before: a
snapshot is always good.
"""

import logging
import os
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from headway.home.paths import sync_folder
from headway.model.limits import (
    GIB,
    SNAPSHOT_INTERVAL_S,
    SNAPSHOT_SMALL_BYTES,
    SNAPSHOT_SMALL_INTERVAL_S,
)
from headway.store.connection import is_damage, open_reader

log = logging.getLogger("headway.store")
FIRST_S = 60.0  # after the first commit of a home that has no snapshot yet


@dataclass(frozen=True, slots=True)
class Restored:
    """That, and from what, the database was restored."""

    damaged_file: str
    snapshot_time_s: float | None  # None: there was no snapshot, and everything starts anew
    reason: str

    def __str__(self) -> str:
        source = "no snapshot was there, so it starts anew"
        if self.snapshot_time_s is not None:
            source = "restored from the snapshot of " + time.strftime(
                "%F %TZ", time.gmtime(self.snapshot_time_s)
            )
        return f"the database was damaged ({self.reason}); {source}; the damaged file is {self.damaged_file}"


def snapshot_path(db: Path) -> Path:
    return db.with_name(db.name + ".snapshot")


def touch_private(path: Path) -> None:
    """Make the file for its owner alone, whatever the umask; SQLite's files beside it take over its
    mode (B33).
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def check(c: sqlite3.Connection) -> str | None:
    """What is wrong with the database, None if nothing is."""
    try:
        found = str(c.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise
    return None if found == "ok" else " ".join(found.split())


def copy(c: sqlite3.Connection, target: Path) -> str | None:
    """A checked copy at one moment, whole under its name or not there; what is wrong with it, None
    if nothing.
    """
    partial = target.with_name(target.name + ".partial")
    for name in (partial, *_beside(partial)):
        name.unlink(missing_ok=True)
    touch_private(partial)
    made = sqlite3.connect(partial, isolation_level=None)
    try:
        c.backup(made)
        made.execute("PRAGMA journal_mode = DELETE")  # a file of its own, with nothing beside it
        fault = check(made)
    finally:
        made.close()
    if fault is None:
        os.replace(partial, target)
        sync_folder(target.parent)
    return fault


def is_due(db: Path, opened_s: float, now_s: float) -> bool:
    """A small database is copied every hour, a large one every day; not where the disk would get
    tight.
    """
    try:
        size = db.stat().st_size
    except OSError:
        return False
    interval_s = SNAPSHOT_SMALL_INTERVAL_S if size <= SNAPSHOT_SMALL_BYTES else SNAPSHOT_INTERVAL_S
    try:
        last_s = snapshot_path(db).stat().st_mtime
    except OSError:
        last_s = opened_s + FIRST_S - interval_s
    return now_s >= last_s + interval_s and shutil.disk_usage(db.parent).free > 2 * size + GIB


def take(db: Path) -> str | None:
    """Make the snapshot anew; what is wrong with the database, None if nothing."""
    c: sqlite3.Connection | None = None
    try:
        c = open_reader(db)
        c.execute("BEGIN")
        c.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on, one moment
        return copy(c, snapshot_path(db))
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise
    finally:
        if c is not None:
            c.close()


def restore(db: Path, reason: str, now_s: float, *, snapshot: bool = True) -> Restored:
    """Set the damaged files aside and put the snapshot in their place. No connection may be open
    for writing. Without `snapshot`: that is damaged, too, and is set aside with them.
    """
    aside = db.with_name(f"{db.name}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now_s))}")
    while aside.exists():
        aside = aside.with_name(aside.name + "x")
    for name, other in zip((db, *_beside(db)), (aside, *_beside(aside)), strict=True):
        if name.exists():
            os.replace(name, other)
    source, taken_s = snapshot_path(db), None
    if not snapshot and source.exists():
        os.replace(source, aside.with_name(f"{aside.name}.snapshot"))
    if source.exists():
        taken_s = source.stat().st_mtime
        partial = db.with_name(db.name + ".partial")
        partial.unlink(missing_ok=True)
        touch_private(partial)
        shutil.copyfile(source, partial)
        _sync_file(partial)
        os.replace(partial, db)
    sync_folder(db.parent)
    found = Restored(str(aside), taken_s, reason)
    log.critical("%s", found)
    return found


def _beside(db: Path) -> tuple[Path, Path]:
    return db.with_name(db.name + "-wal"), db.with_name(db.name + "-shm")


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Garbage collection: jobs that were deleted, and ended ones that are old, leave the database and
the disk.

`Store.gc` calls these from its own thread; rows go in small steps of the writer, files after their
rows. A crash in between leaves folders without a job, which the next run removes.
"""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.code import checkout
from headway.home.paths import Paths
from headway.store.catalog import token_range

SERIES_PER_STEP = 64
ROWS_PER_STEP = 5_000
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(frozen=True, slots=True)
class Removable:
    pk: int
    id: str
    uuid: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Removed:
    """What gc did, or would do."""

    jobs: list[str]
    bytes: int


def removable(c: sqlite3.Connection, paths: Paths, ended_before_ns: int | None) -> list[Removable]:
    """Deleted jobs, and jobs that ended before a time; with the space that they take."""
    rows = c.execute(
        """SELECT pk, id, uuid FROM jobs WHERE state IN ('succeeded', 'failed', 'stopped')
             AND (deleted_ns IS NOT NULL OR ended_ns < :before) ORDER BY pk""",
        {"before": ended_before_ns},
    ).fetchall()
    return [
        Removable(
            row["pk"],
            row["id"],
            row["uuid"],
            _row_bytes(c, row["pk"]) + folder_bytes(paths.logs / row["uuid"]),
        )
        for row in rows
    ]


def _row_bytes(c: sqlite3.Connection, pk: int) -> int:
    row = c.execute(
        """SELECT (SELECT sum(length(data)) FROM axes WHERE job = :pk) AS axes,
             (SELECT sum(length(a.data)) FROM series s JOIN columns a ON a.series = s.pk WHERE s.job = :pk) AS columns,
             (SELECT sum(length(b.data)) FROM bundles u JOIN blocks b ON b.bundle = u.pk WHERE u.job = :pk) AS blocks,
             (SELECT sum(length(data)) FROM events WHERE job = :pk) AS events,
             (SELECT bytes FROM record_totals WHERE job = :pk) AS records,
             (SELECT sum(length(u.data)) FROM attempts a JOIN tasks t ON t.attempt = a.pk JOIN usage u ON u.task = t.pk
                WHERE a.job = :pk) AS usage""",
        {"pk": pk},
    ).fetchone()
    return sum(int(count or 0) for count in row)


def folder_bytes(folder: Path) -> int:
    """Space that the files below take on the disk; holes take none."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def delete_some(c: sqlite3.Connection, pk: int, now_ns: int) -> bool:
    """One step of removing a job's rows; True when nothing is left of it. It is hidden from the
    first step on.
    """
    c.execute(
        "UPDATE jobs SET deleted_ns = coalesce(deleted_ns, :now) WHERE pk = :pk",
        {"pk": pk, "now": now_ns},
    )
    for table, key in (("bundles", "bundle"), ("series", "series")):
        holder = "blocks" if table == "bundles" else "columns"
        rows = c.execute(
            f"SELECT pk FROM {table} WHERE job = :pk LIMIT :n",  # noqa: S608  (our own words)
            {"pk": pk, "n": SERIES_PER_STEP},
        ).fetchall()
        if rows:
            keys = [(row["pk"],) for row in rows]
            c.executemany(f"DELETE FROM {holder} WHERE {key} = ?", keys)  # noqa: S608  (our own words)
            c.executemany(f"DELETE FROM {table} WHERE pk = ?", keys)  # noqa: S608  (our own words)
            return False
    cursor = c.execute(
        "DELETE FROM axes WHERE pk IN (SELECT pk FROM axes WHERE job = :pk LIMIT :n)",
        {"pk": pk, "n": SERIES_PER_STEP},
    )
    if cursor.rowcount:
        return False
    if _delete_watched(c, pk):
        return False
    uuid = c.execute("SELECT uuid FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
    if uuid is not None:
        c.execute(
            "DELETE FROM tokens WHERE task >= :low AND task < :high", token_range(uuid["uuid"])
        )
    c.execute("DELETE FROM jobs WHERE pk = :pk", {"pk": pk})
    return True


def _delete_watched(c: sqlite3.Connection, pk: int) -> bool:
    """A step of what can be many rows: log records and usage; whether there were any."""
    tasks = "SELECT t.pk FROM tasks t JOIN attempts a ON a.pk = t.attempt WHERE a.job = :pk"
    some = {"pk": pk, "n": ROWS_PER_STEP}
    gone = c.execute(
        "DELETE FROM records WHERE pk IN (SELECT pk FROM records WHERE job = :pk LIMIT :n)", some
    ).rowcount
    gone += c.execute(
        f"""DELETE FROM usage WHERE (task, level, time_ns) IN
              (SELECT task, level, time_ns FROM usage WHERE task IN ({tasks}) LIMIT :n)""",  # noqa: S608  (our own words)
        some,
    ).rowcount
    return gone > 0


def orphans(c: sqlite3.Connection, paths: Paths) -> Iterator[Path]:
    """Folders below logs/ whose job is gone."""
    known = {row["uuid"] for row in c.execute("SELECT uuid FROM jobs")}
    if not paths.logs.is_dir():
        return
    for entry in paths.logs.iterdir():
        if (
            _UUID.match(entry.name)
            and entry.name not in known
            and entry.is_dir()
            and not entry.is_symlink()
        ):
            yield entry


def code_in_use(c: sqlite3.Connection) -> tuple[set[str], set[str]]:
    """Digests of the snapshots that jobs ran from, and the uuids of all jobs."""
    rows = c.execute("SELECT uuid, json_extract(spec, '$.code') AS code FROM jobs").fetchall()
    return {row["code"] for row in rows if row["code"]}, {row["uuid"] for row in rows}


def remove_checkouts(paths: Paths, known: set[str]) -> None:
    """Folders below checkouts/ whose job is gone."""
    folder = paths.home / "checkouts"
    for entry in folder.iterdir() if folder.is_dir() else ():
        if _UUID.match(entry.name) and entry.name not in known:
            checkout.remove(paths.home, entry.name)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

"""Counts of lines of long logs, kept on disk so that a new server need not read gigabytes to find line N.

    cache/lines/<checksum of uuid, attempt, task, stream>

A file is only ever a cache: one that is missing, torn, or of a log that has lost its middle since is counted anew.
Called by `line_index`.
"""

import hashlib
import os
import sqlite3
import struct
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path

from headway.home.paths import Paths
from headway.model.limits import LINE_COUNT_FILES_MAX
from headway.store.log_files import stream_key

_MAGIC = b"HWL1"
_HEAD = struct.Struct("<4sqqqqI")  # magic, gaps and their bytes, blocks, gap blocks, checksum
FROM_BYTES = 16 * 1024 * 1024  # shorter logs are counted faster than a file is worth


@dataclass(slots=True)
class Counts:
    offsets: list[int]
    newlines: list[int]
    gaps: set[int]


def load(c: sqlite3.Connection, paths: Paths, pk: int, position: int) -> Counts | None:
    """None: there are none, or they are not of this log as it is now."""
    if position < FROM_BYTES:
        return None
    try:
        data = _file(c, paths, pk).read_bytes()
        magic, gap_rows, gap_bytes, blocks, gaps, checksum = _HEAD.unpack_from(data)
    except (OSError, struct.error):
        return None
    body = data[_HEAD.size :]
    whole = len(body) == 8 * (2 * blocks + gaps) and _checksum(body) == checksum
    if magic != _MAGIC or not whole or (gap_rows, gap_bytes) != _missing(c, pk):
        return None
    numbers = array("q", body).tolist()
    found = Counts(numbers[:blocks], numbers[blocks : 2 * blocks], set(numbers[2 * blocks :]))
    return found if blocks and found.offsets[-1] <= position else None


def save(c: sqlite3.Connection, paths: Paths, pk: int, counts: Counts) -> None:
    """A disk that is full or read-only costs the next server a second, and nobody anything now."""
    body = array("q", [*counts.offsets, *counts.newlines, *sorted(counts.gaps)]).tobytes()
    head = _HEAD.pack(
        _MAGIC, *_missing(c, pk), len(counts.offsets), len(counts.gaps), _checksum(body)
    )
    file = _file(c, paths, pk)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_oldest(file.parent)
        handle, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(head + body)
        Path(name).replace(file)
    except OSError:
        return


def _missing(c: sqlite3.Connection, pk: int) -> tuple[int, int]:
    """What was cut out of the log: its middle may go when it becomes too long."""
    row = c.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM gaps WHERE stream = ?", (pk,)
    ).fetchone()
    return row[0], row[1]


def _file(c: sqlite3.Connection, paths: Paths, pk: int) -> Path:
    place = "\0".join(str(part) for part in stream_key(c, pk).place)
    return paths.home / "cache" / "lines" / hashlib.sha256(place.encode()).hexdigest()[:40]


def _checksum(body: bytes) -> int:
    return int.from_bytes(hashlib.sha256(body).digest()[:4], "little")


def _remove_oldest(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - LINE_COUNT_FILES_MAX)]:
        file.unlink(missing_ok=True)

"""Whether the write-ahead log is the one that a killed server left, and whether all of it is there.

SQLite plays a log up to the first frame that does not check, and takes a log that is missing for an
empty one: acknowledged commits vanish without a word. The shared-memory file beside it outlives a
killed server and says how many frames the log had, and under which salt. `before` reads it before
SQLite opens anything, `after` compares with what SQLite has found. A power cut may spoil that file;
it has a checksum, and then nothing is said. Format: sqlite.org/walformat.html.
"""

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_HEADER_BYTES = 48
_INFO_AT = 96  # how many frames have been moved into the database (nBackfill)
_WAL_HEADER_BYTES = 32


@dataclass(frozen=True, slots=True)
class WalIndex:
    """What the shared-memory file says of the log."""

    frames: int
    moved: int  # of them, into the database
    salts: tuple[int, int]  # the log's own mark, changed each time it starts over

    @property
    def unmoved(self) -> int:
        return max(0, self.frames - self.moved)


def read_index(db: Path) -> WalIndex | None:
    """None where there is none, or it does not check."""
    try:
        with open(f"{db}-shm", "rb") as file:
            data = file.read(_INFO_AT + 4)
    except OSError:
        return None
    if len(data) < _INFO_AT + 4 or data[:_HEADER_BYTES] != data[_HEADER_BYTES : 2 * _HEADER_BYTES]:
        return None
    if not data[12] or _checksum(data[:40]) != struct.unpack_from("=2I", data, 40):
        return None
    (frames,) = struct.unpack_from("=I", data, 16)
    (moved,) = struct.unpack_from("=I", data, _INFO_AT)
    # copied from the log's header as bytes, so big-endian as they are there
    first, second = struct.unpack_from(">2I", data, 32)
    return WalIndex(frames, min(moved, frames), (first, second))


def _checksum(data: bytes) -> tuple[int, int]:
    first = second = 0
    words = struct.unpack(f"={len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFF_FFFF
        second = (second + words[at + 1] + first) & 0xFFFF_FFFF
    return first, second


def set_foreign_aside(db: Path, index: WalIndex | None) -> str | None:
    """A log under a salt that was never ours would be played into the database and spoil it: it is
    renamed. Returns what to tell.
    """
    wal = Path(f"{db}-wal")
    try:
        with open(wal, "rb") as file:
            header = file.read(_WAL_HEADER_BYTES)
    except OSError:
        return None
    if index is None or len(header) < _WAL_HEADER_BYTES:
        return None
    first, second = struct.unpack_from(">2I", header, 16)
    started_over = first == (index.salts[0] + 1) & 0xFFFF_FFFF and index.unmoved == 0
    if (first, second) == index.salts or started_over or index.frames == 0:
        return None
    aside = wal.with_name(f"{wal.name}.foreign-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    os.replace(wal, aside)
    return f"{wal.name} was not the log of this database, and was set aside: {aside}"


def lost_frames(before: WalIndex | None, after: WalIndex | None) -> int:
    """Frames that a killed server had committed and SQLite has not found again."""
    if before is None or after is None or not before.unmoved:
        return 0
    if after.salts == before.salts:
        return max(0, before.frames - max(after.frames, before.moved))
    return before.unmoved


def is_missing(db: Path) -> bool:
    """Whether a database that no server has closed has neither log nor index beside it."""
    beside = (Path(f"{db}-wal"), Path(f"{db}-shm"))
    return db.exists() and db.stat().st_size > 0 and not any(path.exists() for path in beside)

"""Reads streams of a task's folder: checks what a file is, then which of its bytes are whole
frames.

Called by the shipper. Nothing here trusts a length that a file declares: memory is bounded by the
caller's limit (B30).
"""

from __future__ import annotations

import os
import stat
from zlib import crc32

from headway.model.errors import DamagedError, VersionError
from headway.model.limits import FRAME_BYTES_MAX
from headway.model.record import FORMAT_VERSION, METRICS, OPEN
from headway.spool.files import OS_FILES, Files
from headway.wire import frame
from headway.wire.frame import HEADER_BYTES, MAGIC, METRICS_FIXED_BYTES, Scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

# the longest frame fits, so a full window always moves on
WINDOW_BYTES_MIN = FRAME_BYTES_MAX + HEADER_BYTES
_READ_BYTES = 1 << 20


def open_stream(path: str | os.PathLike[str], files: Files = OS_FILES) -> int:
    """A descriptor for reading. DamagedError for what is no plain file of ours: FIFO, link, other
    owner (B30).
    """
    try:
        fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if os.path.islink(path):
            raise DamagedError("it is a symbolic link") from None
        raise error
    try:
        status = files.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError("it is not a regular file")
        if status.st_uid != os.geteuid():
            raise DamagedError(f"it belongs to user {status.st_uid}")
    except BaseException:  # whatever it was, the descriptor must not leak
        files.close(fd)
        raise
    return fd


def read_opening(fd: int, files: Files = OS_FILES) -> "JsonObject | None":
    """The OPEN frame's content. None where it is not there yet, or damaged: the rest of the stream
    still counts.

    Raises VersionError for a stream that a newer Headway wrote (P12).
    """
    head = read_exactly(files, fd, 0, HEADER_BYTES)
    if len(head) < HEADER_BYTES or head[:2] != MAGIC or head[6] != OPEN:
        return None
    size = int.from_bytes(head[8:12], "little")
    if size > FRAME_BYTES_MAX:
        return None
    data = read_exactly(files, fd, 0, HEADER_BYTES + size)
    if frame.frame_at(data, 0) <= 0:
        return None
    try:
        opening = frame.decode_json(data[HEADER_BYTES:])
    except (ValueError, RecursionError):
        return None
    version = opening.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise VersionError(
            f"it has version {version!r:.40}, this Headway reads up to {FORMAT_VERSION}"
        )
    return opening


def read_exactly(files: Files, fd: int, offset: int, length: int) -> bytes:
    """`length` bytes, or fewer at the end of the file."""
    data = files.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    parts, got = [data], len(data)
    while got < length and (data := files.pread(fd, length - got, offset + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def read_frames(
    fd: int, offset: int, limit: int, final: bool, files: Files = OS_FILES
) -> tuple[bytes, Scan]:
    """At most `limit` bytes from `offset`, which is the start of a frame, and what they are;
    `data[:scan.end]` can go.

    Where more bytes follow, `limit` must be at least WINDOW_BYTES_MIN. `final`: nobody writes to
    this stream any more. A frame that its writer did not finish is then no damage but the end: the
    call that wrote it never returned (F2).
    """
    data = read_exactly(files, fd, offset, limit)
    if final and (len(data) < limit or not files.pread(fd, 1, offset + limit)):
        return data, _without_torn_tail(data, frame.scan(data, final=True))
    scan = frame.scan(data)
    if scan.end or len(data) < WINDOW_BYTES_MIN:
        return data, scan
    if scan.waiting:
        return data, _skip_damage(data)
    if _data_follows(fd, offset + len(data), files):
        # zeros in the middle: blocks that were lost
        return data, Scan(len(data), 0, [(0, len(data))], waiting=False)
    return data, scan


def _without_torn_tail(data: bytes, scan: Scan) -> Scan:
    """Take an unfinished last frame out of the damage."""
    if not scan.damaged or scan.damaged[-1][1] != scan.end:
        return scan
    start = scan.damaged[-1][0]
    if frame.frame_at(data, start) != 0 or _has_wrong_length(data, start):
        return scan
    return Scan(start, scan.frames, scan.damaged[:-1], waiting=False)


def _has_wrong_length(data: bytes, start: int) -> bool:
    """Whether the frame is whole but for its length field: a flipped bit there makes it look
    unfinished (F13).
    """
    size = len(data) - start - HEADER_BYTES
    if size < 0:
        return False
    body = data[start + 6 : start + 8] + size.to_bytes(4, "little") + data[start + HEADER_BYTES :]
    return crc32(body) == int.from_bytes(data[start + 2 : start + 6], "little")


def _skip_damage(data: bytes) -> Scan:
    """No whole frame in a full window: go to the first place where one may start that ends beyond
    it.
    """
    pos = data.find(MAGIC, 1)
    while pos != -1 and frame.frame_at(data, pos) != 0:
        pos = data.find(MAGIC, pos + 1)
    if pos == -1:
        pos = len(data) - (data[-1:] == MAGIC[:1])
    return Scan(pos, 0, [(0, pos)], waiting=False)


def _data_follows(fd: int, offset: int, files: Files) -> bool:
    while part := files.pread(fd, _READ_BYTES, offset):
        if part.strip(b"\0"):
            return True
        offset += len(part)
    return False


def count_metrics(data: bytes | memoryview, damaged: list[tuple[int, int]]) -> tuple[int, int]:
    """(records, points) of metrics in checked bytes: what is lost when they are dropped (P5)."""
    records = points = 0
    for kind, payload in frame.frames(data, damaged):
        if kind == METRICS:
            records += 1
            points += (len(payload) - METRICS_FIXED_BYTES) // 8
    return records, points

"""`cursor.json`: how far the server has acknowledged each stream. Written and read by the shipper
alone.

It saves a resend and nothing else: the server knows its own positions, so a cursor that is lost,
old or garbage costs some bytes sent twice and applied once (F16).
"""

from __future__ import annotations

import json
import os

from headway.model.limits import STREAM_NAME_CHARS_MAX, STREAMS_MAX
from headway.spool.files import OS_FILES, Files, replace_file

CURSOR_JSON = "cursor.json"
_BYTES_MAX = (STREAM_NAME_CHARS_MAX + 32) * STREAMS_MAX * 2  # of the file; a larger one is not ours


def load(task_dir: str | os.PathLike[str], files: Files = OS_FILES) -> dict[str, int]:
    """Acknowledged offset per stream; whatever cannot be understood is left out."""
    try:
        found = json.loads(_read(os.path.join(task_dir, CURSOR_JSON), files))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: pos for name, pos in found.items() if isinstance(name, str) and _is_position(pos)}


def save(
    task_dir: str | os.PathLike[str], positions: dict[str, int], files: Files = OS_FILES
) -> None:
    """Raises OSError; the old cursor then stays."""
    data = json.dumps(positions, separators=(",", ":"), sort_keys=True).encode()
    replace_file(files, os.path.join(task_dir, CURSOR_JSON), data)


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _read(path: str, files: Files) -> bytes:
    fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return files.pread(fd, _BYTES_MAX, 0)
    finally:
        files.close(fd)

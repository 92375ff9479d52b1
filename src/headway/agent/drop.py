"""What was dropped from the spool because it was full, written down before it is freed: `.drops` in
the task's folder.

Called by the shipper. A drop becomes a gap at the server (P5); this file is what a shipper killed
in between leaves to the next one, so that no drop is ever silent and none is told twice with other
numbers.
"""

import json
import os

from headway.agent.ledger import Gap
from headway.spool.files import OS_FILES, Files, replace_file
from headway.spool.reader import WINDOW_BYTES_MIN, count_metrics, read_frames

DROPS_FILE = ".drops"
_BYTES_MAX = 16 * 1024 * 1024
_WINDOW_BYTES = 4 * WINDOW_BYTES_MIN


def load(task_dir: str, files: Files = OS_FILES) -> dict[str, list[Gap]]:
    try:
        fd = files.open(
            os.path.join(task_dir, DROPS_FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return {}
    try:
        stored = json.loads(files.pread(fd, _BYTES_MAX, 0))
        return {str(name): [Gap(*row) for row in rows] for name, rows in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    finally:
        files.close(fd)


def save(task_dir: str, drops: dict[str, list[Gap]], files: Files = OS_FILES) -> None:
    """Raises OSError; then nothing may be freed."""
    rows = {
        name: [[g.start, g.end, g.reason, g.records, g.points] for g in gaps]
        for name, gaps in drops.items()
        if gaps
    }
    replace_file(files, os.path.join(task_dir, DROPS_FILE), json.dumps(rows).encode())


def count(fd: int, offset: int, length: int, files: Files = OS_FILES) -> tuple[int, int]:
    """(records, points) in a range of a closed metric segment. Raises OSError."""
    records = points = 0
    end = offset + length
    while offset < end:
        data, scan = read_frames(
            fd, offset, min(_WINDOW_BYTES, max(WINDOW_BYTES_MIN, end - offset)), True, files
        )
        if not scan.end:
            break
        found = count_metrics(memoryview(data)[: scan.end], scan.damaged)
        records, points, offset = records + found[0], points + found[1], offset + scan.end
    return records, points

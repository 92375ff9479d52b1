"""Making room in the spool: freeing what the server has, dropping what does not fit. Called by the
shipper.
"""

from __future__ import annotations

import json
import os

from headway.agent.ship.events import Drop, Dropped
from headway.agent.ship.stream_state import Gap
from headway.agent.ship.takeover import was_taken
from headway.model.record import RECORDS
from headway.spool.files import OS_FILES, Files, replace_file
from headway.spool.reader import WINDOW_BYTES_MIN, count_metrics, read_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.agent.ship.tail import Tail


class Room:
    def __init__(
        self, task_dir: str, tail: "Tail", say: "Callable[[str], None]", files: Files = OS_FILES
    ) -> None:
        self._task_dir, self._tail, self._say, self._files = task_dir, tail, say, files

    def punch(self, stream: str, offset: int, length: int) -> None:
        """Give the blocks of a range back. Where the system cannot, the file stays as it is."""
        if stream.startswith("blob-"):
            return  # it may be a link to a file of the program's: its blocks are not ours to free
        try:
            fd = self._files.open(os.path.join(self._task_dir, stream), os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            self._files.punch(fd, offset, length)
        except OSError as error:
            self._say(f"{stream}: {length} bytes at {offset} could not be freed: {error.strerror}")
        finally:
            self._files.close(fd)

    def remove(self, stream: str) -> None:
        self._tail.forget(stream)
        self._tail.drops.pop(stream, None)
        if was_taken(self._task_dir):
            return  # who writes it may live on another machine; the engine removes the folder
        try:
            self._files.unlink(os.path.join(self._task_dir, stream))
        except OSError:
            return  # it was dropped before, or the folder is gone

    def drop(self, order: Drop) -> Dropped:
        """Count, write down, free: in this order, so that no drop is silent (P5)."""
        records, points = self._count(order)
        gap = Gap(order.offset, order.offset + order.length, order.reason, records, points)
        told = [g for g in self._tail.drops.get(order.stream, []) if g.start != gap.start]
        gaps = self._tail.drops[order.stream] = [*told, gap]
        try:
            save(self._task_dir, self._tail.drops, self._files)
        # the disk may be so full that only freeing helps; it is in memory and told soon
        except OSError as error:
            self._say(f"a drop could not be written down: {error.strerror}")
        self._say(
            f"dropped {order.length} bytes of {order.stream} at {order.offset}: {order.reason}"
        )
        if order.whole:
            self.remove(order.stream)
            self._tail.drops[order.stream] = gaps
        else:
            self.punch(order.stream, order.offset, order.length)
        return Dropped(order.stream, order.offset, records, points)

    def _count(self, order: Drop) -> tuple[int, int] | tuple[None, None]:
        tailed = self._tail.streams.get(order.stream)
        if tailed is None or tailed.stream.kind != RECORDS:
            return None, None
        try:
            return count(tailed.fd, order.offset, order.length, self._files)
        except OSError as error:
            self._say(f"{order.stream} is dropped uncounted: {error.strerror}")
            return None, None


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

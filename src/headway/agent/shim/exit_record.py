"""The shim's record stream, `shim`: allocated before the command starts, so that its exit always
fits (F7, P7).

Facts are written at a position that is kept here; ends are synced before anything else happens.
When the disk fails a sync, the file is abandoned and the same bytes are written to a new one under
the same name (F6).
"""

from __future__ import annotations

import os

from headway.model.limits import EXIT_RESERVE_BYTES, KIB
from headway.model.record import FACT, FORMAT_VERSION, OPEN
from headway.spool.files import OS_FILES, Files, sync_dir
from headway.wire.frame import encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

STREAM = "shim"
_STARTS = ("task_started", "process_started")
_RANK_BYTES = 512  # what starting and ending one rank takes


class ExitRecord:
    def __init__(
        self,
        task_dir: str,
        opening: "JsonObject",
        processes: int,
        time_ns: int,
        files: Files = OS_FILES,
    ) -> None:
        """Raises OSError when not even an empty file can be made."""
        self._path, self._dir, self._files = os.path.join(task_dir, STREAM), task_dir, files
        self._reserve = max(EXIT_RESERVE_BYTES, 64 * KIB + processes * _RANK_BYTES)
        first = {
            "version": FORMAT_VERSION,
            "stream": STREAM,
            "kind": "shim",
            **opening,
            "time_ns": time_ns,
        }
        self._bytes = encode_json(OPEN, first)
        self.trouble: str | None = None  # why something could not be made safe
        self._written = 0
        self._fd = files.open(
            self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
        )
        self._allocate()

    def _allocate(self) -> None:
        try:
            self._files.allocate(self._fd, 0, self._reserve)
        except OSError as error:
            self.trouble = f"no room could be reserved for the exit record: {error.strerror}"

    def append(self, facts: "list[JsonObject]") -> bool:
        """Write down and sync. Facts that could not be written are kept and tried again with the
        next ones.

        What only tells of a start is not synced: it is for whoever finds the task without its shim,
        and a power cut leaves nobody to be found.
        """
        self._bytes += b"".join(encode_json(FACT, fact) for fact in facts)
        try:
            self._write(sync=any(fact.get("type") not in _STARTS for fact in facts))
        except OSError as error:
            self.trouble = f"the exit record could not be synced: {error.strerror}"
            return self._renew()
        return True

    def _write(self, *, sync: bool = True) -> None:
        view, pos = memoryview(self._bytes)[self._written :], self._written
        while view:
            done = self._files.pwrite(self._fd, view, pos)
            view, pos = view[done:], pos + done
        if sync:
            self._files.fsync(self._fd)
        self._written = len(self._bytes)

    def _renew(self) -> bool:
        """After a failed sync nobody knows what is on the disk: start a new file with all of it."""
        draft = f"{self._path}.{os.getpid()}.tmp"
        try:
            fd = self._files.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        old, self._fd, self._written = self._fd, fd, 0
        try:
            self._files.allocate(fd, 0, self._reserve)
            self._write()
            self._files.rename(draft, self._path)
            sync_dir(self._files, self._dir)
        except OSError as error:
            self.trouble = f"the exit record could not be written anew: {error.strerror}"
            self._fd, self._written = old, 0  # the next fact tries the old file from its start
            self._files.close(fd)
            return False
        self._files.close(old)
        return True

    def is_removed(self) -> bool:
        """Whether somebody has removed the file under us, and with it most likely its folder."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False

    def close(self) -> None:
        self._files.close(self._fd)

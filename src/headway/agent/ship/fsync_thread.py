"""What may take long on a busy disk, in a thread of its own: syncing record streams and saving the
cursor.

Called by the shipper's loop, which must not wait for a disk while output flows. Descriptors are
duplicated before they are handed over, so that closing a stream never pulls one from under the
thread.
"""

from __future__ import annotations

import os
import time

from headway.spool import cursor
from headway.spool.files import OS_FILES, Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


SETTLE_S = 5.0


class Keeper:
    """At most one round is under way; the caller comes again when it is over."""

    def __init__(self, task_dir: str, files: Files = OS_FILES) -> None:
        self._task_dir, self._files = task_dir, files
        self._busy = False
        self.errors: list[str] = []  # texts for the agent's log; the loop takes them

    @property
    def busy(self) -> bool:
        return self._busy

    def start(self, fds: "Iterable[int]", positions: dict[str, int] | None) -> None:
        import _thread  # no locks, queues or joins are needed

        copies = []
        for fd in fds:
            try:
                copies.append(os.dup(fd))
            except OSError:  # descriptors are short; the next round comes in a second
                break
        self._busy = True
        _thread.start_new_thread(self._round, (copies, positions))

    def _round(self, fds: list[int], positions: dict[str, int] | None) -> None:
        try:
            for fd in fds:
                self._sync(fd)
            if positions is not None:
                self.save(positions)
        finally:
            self._busy = False

    def _sync(self, fd: int) -> None:
        try:
            self._files.fdatasync(fd)
        except OSError as error:
            # the bytes are still sent from memory; they are only not safe against a power cut (F6)
            self.errors.append(f"a record stream could not be synced: {error.strerror}")
        finally:
            self._files.close(fd)

    def settle(self) -> None:
        """Wait for the round that is under way, but not for ever: the disk may hang."""
        deadline_s = time.monotonic() + SETTLE_S
        while self._busy and time.monotonic() < deadline_s:
            time.sleep(0.005)

    def save(self, positions: dict[str, int]) -> None:
        try:
            cursor.save(self._task_dir, positions, self._files)
        except OSError as error:  # costs a resend after a restart, nothing else (F16)
            self.errors.append(f"the cursor could not be saved: {error.strerror}")

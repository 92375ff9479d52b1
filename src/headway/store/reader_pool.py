"""Read-only connections, lent for one query at a time, each with a time limit. Used by
`database.Store.read`.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.model.errors import UnreachableError
from headway.model.limits import READ_TIMEOUT_S, READERS_MAX
from headway.store.connection import open_reader, primary_code

# steps of SQLite's machine between two looks at the clock; about a millisecond
_CHECK_EVERY_OPS = 20_000


class Pool:
    def __init__(self, path: Path, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._free: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._seats = threading.BoundedSemaphore(READERS_MAX)
        self._generation = 0

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction, so that all its queries see the same moment."""
        if not self._seats.acquire(timeout=self._timeout_s):
            raise UnreachableError("too many reads at once", "try again in a moment")
        try:
            c, generation = self._borrow()
            keep = False
            try:
                with self._limited(c):
                    yield c
                keep = True
            finally:
                self._give_back(c, generation, keep)
        finally:
            self._seats.release()

    @contextmanager
    def _limited(self, c: sqlite3.Connection) -> Iterator[None]:
        deadline = time.monotonic() + self._timeout_s
        c.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_EVERY_OPS)
        c.execute("BEGIN")
        try:
            yield
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise UnreachableError(
                f"the query took longer than {self._timeout_s:g} s", "ask for less at once"
            ) from None
        finally:
            c.set_progress_handler(None, 0)
            c.rollback()

    def _borrow(self) -> tuple[sqlite3.Connection, int]:
        with self._lock:
            generation = self._generation
            if self._free:
                return self._free.pop(), generation
        return open_reader(self._path), generation

    def _give_back(self, c: sqlite3.Connection, generation: int, keep: bool) -> None:
        with self._lock:
            if keep and generation == self._generation:
                self._free.append(c)
                return
        c.close()

    def close(self) -> None:
        """Close idle connections; lent ones close when they come back."""
        with self._lock:
            self._generation += 1
            idle, self._free = self._free, []
        for c in idle:
            c.close()

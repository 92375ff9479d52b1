"""The housekeeping thread: moves output into its files, merges and compacts points, gives space back, makes snapshots.

Started by `database.Store`. It works in small steps, each one short transaction of the writer, and lets waiting data go
first. Everything it does can be left undone at any moment: a crash costs only the step.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from headway.model.errors import HeadwayError
from headway.store import compact
from headway.store.connection import PAGE_BYTES, Connection
from headway.store.logs import LogFiles, stream_key

log = logging.getLogger("headway.store")
PERIOD_S = 2.0
ROUND_S = 600.0  # a round without any news: a snapshot may be due
CALM_NS = 5 * 10**9  # a job must have ended for this long before its rest is compacted
SPILL_STREAMS = 64  # in one step
VACUUM_PAGES = 1024  # in one step
VACUUM_FROM_BYTES = 1024 * 1024  # less free space than this is left for the next data
VACUUM_SHARE = 8  # free space is given back when it is more than this part of the file


class Database(Protocol):
    """What the keeper needs of the store."""

    @property
    def busy(self) -> bool: ...

    def read(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def submit(self, work: Callable[[Connection], Any], *, size: int = 0) -> "Future[Any]": ...


class Keeper(threading.Thread):
    def __init__(
        self, store: Database, files: LogFiles, clock_ns: Callable[[], int], snapshot: Callable[[], None]
    ) -> None:
        super().__init__(name="headway-keeper", daemon=True)
        self._store, self._files, self._clock_ns, self._snapshot = store, files, clock_ns, snapshot
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._turn = threading.Lock()

    def notice(self) -> None:
        """Something was committed."""
        self._wake.set()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(ROUND_S)
            self._wake.clear()
            self._stopped.wait(PERIOD_S)  # what comes in the meantime is done in one go
            if self._stopped.is_set():
                return
            try:
                if not self.tidy(CALM_NS):
                    self._wake.set()
                self._snapshot()
            except HeadwayError as error:
                log.warning("housekeeping is put off: %s", error.message)
                self._wake.set()
            # a mistake in one round must not end housekeeping for good
            except Exception:
                log.exception("housekeeping failed")

    def tidy(self, calm_ns: int = 0) -> bool:
        """Do what is due, step by step; False where it stopped early or something will be due soon."""
        with self._turn:
            for step in self._steps(calm_ns):
                if self._stopped.is_set():
                    return False
                step()
                self._let_data_pass()
            with self._store.read() as c:
                return not compact.ended_with_blocks(c)

    def _let_data_pass(self) -> None:
        for _ in range(50):
            if not self._store.busy or self._stopped.wait(0.02):
                return

    def _steps(self, calm_ns: int) -> Iterator[Callable[[], None]]:
        yield self._spill
        with self._store.read() as c:
            merges = compact.mergeable(c)
        for unit in merges:
            yield partial(self._merge, *unit)
        while True:
            with self._store.read() as c:
                units = compact.due(c, self._clock_ns(), calm_ns)
            if not units:
                break
            for unit in units:
                yield partial(self._compact, *unit)
        while self._wasteful():
            yield self._vacuum

    # -- steps -----------------------------------------------------------------------------------------------------

    def _spill(self) -> None:
        while True:
            with self._store.read() as c:
                rows = c.execute("SELECT DISTINCT stream FROM chunks LIMIT :n", {"n": SPILL_STREAMS}).fetchall()
            if not rows or self._stopped.is_set():
                return
            self._store.submit(partial(self._spill_some, keys=[row["stream"] for row in rows])).result()

    def _spill_some(self, c: sqlite3.Connection, keys: list[int]) -> None:
        for pk in keys:
            if c.execute("SELECT 1 FROM chunks WHERE stream = :pk LIMIT 1", {"pk": pk}).fetchone():
                self._files.spill(c, stream_key(c, pk))

    def _merge(self, bundle: int, segment: int) -> None:
        try:
            with self._store.read() as c:
                merge = compact.plan_merge(c, bundle, segment)
            if merge is not None:
                self._store.submit(lambda c: compact.install_merge(c, merge), size=len(merge.data)).result()
        except compact.DamagedBlock as error:
            self._set_aside(error)
        except LookupError:
            pass  # the job was deleted meanwhile

    def _compact(self, bundle: int, segment: int) -> None:
        try:
            with self._store.read() as c:
                plan = compact.plan_next(c, bundle, segment)
            if plan is not None:
                self._store.submit(lambda c: compact.install(c, plan), size=plan.size).result()
        except compact.DamagedBlock as error:
            self._set_aside(error)
        except (LookupError, sqlite3.IntegrityError):
            pass  # the job was deleted meanwhile

    def _set_aside(self, error: compact.DamagedBlock) -> None:
        log.error("%s; it is set aside", error.message)
        self._store.submit(lambda c: compact.set_aside(c, error.pk, error.message, self._clock_ns())).result()

    def _wasteful(self) -> bool:
        with self._store.read() as c:
            free = c.execute("PRAGMA freelist_count").fetchone()[0]
            pages = c.execute("PRAGMA page_count").fetchone()[0]
        return bool(free * PAGE_BYTES >= VACUUM_FROM_BYTES and free * VACUUM_SHARE >= pages)

    def _vacuum(self) -> None:
        # the pragma gives back one page per row that is fetched
        def give_back(c: sqlite3.Connection) -> None:
            c.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()

        self._store.submit(give_back, size=VACUUM_PAGES * PAGE_BYTES).result()

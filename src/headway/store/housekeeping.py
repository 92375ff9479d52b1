"""The housekeeping thread: moves output into its files, merges and compacts points, gives space
back, makes snapshots.

Started by `database.Store`. It works in small steps, each one short transaction of the writer, and
lets waiting data go first. Everything it does can be left undone at any moment: a crash costs only
the step.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, TypeVar

from headway.home.paths import Paths
from headway.model.errors import HeadwayError
from headway.store import artifacts, compact, live_write, summaries
from headway.store.connection import PAGE_BYTES, Connection
from headway.store.log_files import LogFiles, stream_key

log = logging.getLogger("headway.store")
PERIOD_S = 2.0
PAUSE_S = 10.0  # after a round that failed
ROUND_S = 600.0  # a round without any news: a snapshot may be due
CALM_NS = 5 * 10**9  # a job must have ended for this long before its rest is compacted
SPILL_STREAMS = 64  # in one step
VACUUM_PAGES = 1024  # in one step
VACUUM_FROM_BYTES = 1024 * 1024  # less free space than this is left for the next data
VACUUM_SHARE = 8  # free space is given back when it is more than this part of the file


Swap = TypeVar("Swap", compact.Plan, compact.Merge)


class Database(Protocol):
    """What the keeper needs of the store."""

    @property
    def busy(self) -> bool: ...

    def read(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def submit(self, work: Callable[[Connection], Any], *, size: int = 0) -> "Future[Any]": ...


class Keeper(threading.Thread):
    def __init__(
        self,
        store: Database,
        files: LogFiles,
        clock_ns: Callable[[], int],
        snapshot: Callable[[], None],
        paths: Paths,
    ) -> None:
        super().__init__(name="headway-keeper", daemon=True)
        self._paths = paths
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
                self._stopped.wait(PAUSE_S)
            # a mistake in one round must not end housekeeping for good
            except Exception:
                log.exception("housekeeping failed")

    def tidy(self, calm_ns: int = 0) -> bool:
        """Do what is due, step by step; False where it stopped early or something will be due soon."""
        with self._turn:
            compact_all = partial(self._compact_all, calm_ns)
            for work in (
                self._spill_all,
                self._collect_all,
                self._merge_all,
                compact_all,
                self._thin_all,
                self._fill_ranges,
                self._vacuum_all,
            ):
                work()
                if self._stopped.is_set():
                    return False
            with self._store.read() as c:
                return not compact.ended_with_blocks(c)

    def _go_on(self) -> bool:
        """Between two steps: let waiting data pass, at most for a second; False at the end."""
        for _ in range(50):
            if self._stopped.wait(0.02 if self._store.busy else 0):
                return False
            if not self._store.busy:
                break
        return not self._stopped.is_set()

    # -- steps

    def _spill_all(self) -> None:
        with self._store.read() as c:
            waiting = [row["stream"] for row in c.execute("SELECT DISTINCT stream FROM chunks")]
        for start in range(0, len(waiting), SPILL_STREAMS):
            if not self._go_on():
                return
            self._store.submit(
                partial(self._spill_some, keys=waiting[start : start + SPILL_STREAMS])
            ).result()

    def _spill_some(self, c: sqlite3.Connection, keys: list[int]) -> None:
        for pk in keys:
            if c.execute("SELECT 1 FROM chunks WHERE stream = :pk LIMIT 1", {"pk": pk}).fetchone():
                self._files.spill(c, stream_key(c, pk))

    def _collect_all(self) -> None:
        """Artifacts whose bytes are all here become versions. Reading and hashing is done in this thread."""
        with self._store.read() as c:
            ready = artifacts.waiting(c)
            places = {one.task: artifacts.folder_of(c, one.task) for one in ready}
        for one in ready:
            if not self._go_on():
                return
            files = artifacts.keep_files(
                one, self._paths.logs / places[one.task], self._paths.artifacts
            )
            self._store.submit(
                partial(artifacts.collect, one=one, files=files, now_ns=self._clock_ns())
            ).result()

    def _merge_all(self) -> None:
        with self._store.read() as c:
            units = compact.mergeable(c)
        for unit in units:
            if not self._go_on():
                return
            self._swap(compact.plan_merge, compact.install_merge, *unit)

    def _compact_all(self, calm_ns: int) -> None:
        """One piece of each unit in turn, until none is due; one that cannot be done is left for
        the next round.
        """
        left: set[tuple[int, int]] = set()
        while True:
            with self._store.read() as c:
                units = [
                    unit for unit in compact.due(c, self._clock_ns(), calm_ns) if unit not in left
                ]
            if not units:
                return
            for unit in units:
                if not self._go_on():
                    return
                if not self._swap(compact.plan_next, compact.install, *unit):
                    left.add(unit)

    def _swap(
        self,
        plan_for: Callable[[sqlite3.Connection, int, int], Swap | None],
        install: Callable[[sqlite3.Connection, Swap], None],
        bundle: int,
        segment: int,
    ) -> bool:
        """Plan beside the writer, install in it; whether anything changed."""
        try:
            with self._store.read() as c:
                plan = plan_for(c, bundle, segment)
            if plan is None:
                return False
            self._store.submit(
                partial(_install, install=install, plan=plan), size=plan.size
            ).result()
        except compact.DamagedBlock as error:
            self._set_aside(error)
        except (LookupError, sqlite3.IntegrityError):
            return False  # the job was deleted meanwhile
        return True

    def _set_aside(self, error: compact.DamagedBlock) -> None:
        log.error("%s; it is set aside", error.message)
        self._store.submit(
            lambda c: compact.set_aside(c, error.pk, error.message, self._clock_ns())
        ).result()

    def _thin_all(self) -> None:
        """Old samples of usage go, as those of longer spans are there."""
        while self._go_on():
            with self._store.read() as c:
                if not live_write.is_thick(c, self._clock_ns()):
                    return
            self._store.submit(lambda c: live_write.thin_usage(c, self._clock_ns())).result()

    def _fill_ranges(self) -> None:
        """Of series that an earlier release stored."""
        before: list[int] = []
        while self._go_on():
            with self._store.read() as c:
                series = summaries.unranged(c)
            if not series or series == before:
                return
            self._store.submit(partial(summaries.fill_some, series=series)).result()
            before = series

    def _vacuum_all(self) -> None:
        while self._wasteful() and self._go_on():
            self._store.submit(_give_back, size=VACUUM_PAGES * PAGE_BYTES).result()

    def _wasteful(self) -> bool:
        with self._store.read() as c:
            free = c.execute("PRAGMA freelist_count").fetchone()[0]
            pages = c.execute("PRAGMA page_count").fetchone()[0]
        return bool(free * PAGE_BYTES >= VACUUM_FROM_BYTES and free * VACUUM_SHARE >= pages)


def _install(
    c: sqlite3.Connection, install: Callable[[sqlite3.Connection, Swap], None], plan: Swap
) -> None:
    install(c, plan)


def _give_back(c: sqlite3.Connection) -> None:
    """The pragma frees one page per step, and Python's sqlite3 makes one step only, as its rows
    have no columns.
    """
    free = c.execute("PRAGMA freelist_count").fetchone()[0]
    for _ in range(min(free, VACUUM_PAGES)):
        c.execute("PRAGMA incremental_vacuum(1)")

"""`Store`: the door to headway.db. One writer thread, pooled readers, listeners. Called by the
server alone.
"""

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from headway.carrier.cleanup import Freed, collect
from headway.code.depot import Collected, Depot
from headway.home.paths import Paths
from headway.model.errors import DamagedError, RefusedError, UnreachableError
from headway.model.limits import (
    ARTIFACT_GRACE_S,
    CHECK_BYTES_MAX,
    LINGER_S,
    LOG_BYTES_MAX,
    READ_TIMEOUT_S,
    ROW_REPAIR_PAUSE_S,
)
from headway.model.record import BLOB, INDEX, RAW
from headway.store import (
    after_restore,
    artifacts,
    backup,
    catalog,
    catalog_journal,
    migrate,
    retention,
    row_repair,
    wal_check,
)
from headway.store.connection import (
    Connection,
    as_headway_error,
    is_damage,
    open_writer,
    primary_code,
)
from headway.store.damage_notices import DamageNotices
from headway.store.housekeeping import Keeper
from headway.store.ingest import Ingester, IngestResult
from headway.store.log_files import LogFiles
from headway.store.reader_pool import Pool
from headway.store.writer import Hooks, Writer
from headway.wire.batch import Part, TaskKey

log = logging.getLogger("headway.store")
T = TypeVar("T")
# (job, what): facts job metrics logs; for viewers also progress records usage
Listener = Callable[[int, str], None]


_BULK = ("metrics-", "logs-", "usage-", "media-")  # streams whose data may wait for company


class RowsRepairedError(UnreachableError):
    """A query met values that could not be read; they are readable now, so it may be asked again."""


def read_caches_clear() -> None:
    """Specs and rows are cached by their text: forget those of damaged rows."""
    catalog.read_spec_cached.cache_clear()


class Store(Hooks):
    def __init__(
        self,
        paths: Paths,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        log_bytes_max: int = LOG_BYTES_MAX,
        background: bool = True,
        linger_s: float = LINGER_S,
    ) -> None:
        self.paths = paths
        self._clock_ns = clock_ns
        self._background, self._linger_s = background, linger_s
        self.restored: backup.Restored | None = None  # told to those who ask how the server is
        # why the database may be older than what was acknowledged; empty where it is not
        self.rewound = ""
        self._lost_frames = 0
        self.notices = DamageNotices(paths.home / "damage.json")
        self._rows_looked_s = -math.inf
        self._opened_s = 0.0
        self._listeners: list[Listener] = []
        self._pool = Pool(paths.db)
        self._writer: Writer | None = None
        self._files = LogFiles(paths.logs, log_bytes_max)
        self._ingester = Ingester(self._files, clock_ns)
        self._keeper = Keeper(self, self._files, clock_ns, self._snapshot_if_due, paths)
        self.journal = catalog_journal.Journal(paths.db, self._pool.read)

    # -- opening and closing

    def open(self) -> None:
        """Check, migrate and start. Raises a HeadwayError with the reason where the database cannot
        be used (B31).
        """
        db = self.paths.db
        migrate.check_file(db)
        index = wal_check.read_index(db)
        missing = not migrate.clean_mark(db).exists() and wal_check.is_missing(db)
        foreign = wal_check.set_foreign_aside(db, index)
        migrate.mark_opened(db)
        self._opened_s = self._clock_ns() / 1e9
        fault = self._is_gone() or self._prepare(index)
        if fault is not None:
            self._restore(fault)
        elif foreign or missing or self._lost_frames:
            self._tell_lost_log(foreign, missing)
        try:
            self._writer = Writer(lambda: open_writer(self.paths.db), self, self._linger_s)
        except (sqlite3.Error, OSError) as error:
            raise as_headway_error(error, f"opening {self.paths.db}") from error
        self._writer.start()
        self._tell_restored()
        self._keeper = Keeper(self, self._files, self._clock_ns, self._snapshot_if_due, self.paths)
        self.journal = catalog_journal.Journal(self.paths.db, self._pool.read)
        if self._background:
            self.journal.start()
            self._keeper.start()
            self._keeper.notice()

    def _is_gone(self) -> str | None:
        """A home that has a snapshot, a log or output, but no database, had one."""
        db = self.paths.db
        if db.exists() and db.stat().st_size > 0:
            return None
        left = (
            backup.snapshot_path(db),
            db.with_name(db.name + "-wal"),
            *catalog_journal.files(db),
        )
        if any(path.exists() and path.stat().st_size > 0 for path in left):
            return f"{db.name} was gone"
        try:
            has_output = any(self.paths.logs.iterdir())
        except OSError:
            return None
        return f"{db.name} was gone" if has_output else None

    def _tell_lost_log(self, foreign: str | None, missing: bool) -> None:
        """What was acknowledged last may be gone: jobs may stand as they were before it."""
        found = f"its write-ahead log lacks {self._lost_frames} pages that it had"
        if missing:
            found = "the server was killed, and its write-ahead log is gone"
        if foreign:
            found = foreign
        self.rewound = found
        told = [found, "what was stored last may be missing", *self._catch_up()]
        self.notices.add("; ".join(told))

    def _catch_up(self) -> list[str]:
        """Bring an old database as far as journal and files allow; what to tell. No other
        connection of ours is open.
        """
        c = open_writer(self.paths.db)
        try:
            c.execute("BEGIN IMMEDIATE")
            replayed = catalog_journal.replay(c, self.paths.db)
            settled = after_restore.settle(c, self.paths, self._clock_ns())
            c.execute("COMMIT")
        finally:
            c.close()
        return [text for text in (str(replayed), str(settled)) if text]

    def _prepare(
        self, index: wal_check.WalIndex | None = None, *, suspicious: bool = False
    ) -> str | None:
        """Bring the database up to date; what is wrong with it where it is damaged. `index`: what a
        killed server knew of its write-ahead log.
        """
        db = self.paths.db
        if not db.exists():  # an open and a close of our own would drop SQLite's locks on it
            backup.touch_private(db)
        c: Connection | None = None
        try:
            c = open_writer(db)
            c.execute("SELECT count(*) FROM sqlite_master").fetchone()  # plays the log
            self._lost_frames = wal_check.lost_frames(index, wal_check.read_index(db))
            fault = backup.check(c) if suspicious or db.stat().st_size <= CHECK_BYTES_MAX else None
            if fault is None:
                migrate.migrate(c, db, self._copy_before)
                fault = migrate.missing_part(c)
            return fault
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if is_damage(error) or "no such" in str(error) or "malformed" in str(error):
                return str(error)
            if primary_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise RefusedError(
                    f"{db} is read-only or cannot be opened", "set HEADWAY_HOME elsewhere"
                ) from None
            raise as_headway_error(error, f"opening {db}") from error
        finally:
            if c is not None:
                c.close()

    def _copy_before(self, c: Connection, target: Path) -> None:
        fault = backup.copy(c, target)
        if fault is not None:
            raise DamagedError(
                f"the database is damaged ({fault}), so it was not changed", "see server.log"
            )

    def _restore(self, reason: str) -> None:
        """Put the last snapshot in the place of a damaged database. No connection of ours is open,
        or soon none.
        """
        now_s = self._clock_ns() / 1e9
        self.restored = backup.restore(self.paths.db, reason, now_s)
        fault = self._prepare()
        if fault is not None:  # nothing of it can be read, so it cannot keep us from starting
            self.restored = backup.restore(
                self.paths.db, f"{reason}; its snapshot as well: {fault}", now_s, snapshot=False
            )
            fault = self._prepare()
        if fault is not None:
            raise DamagedError(f"no database can be made: {fault}", "look at the disk")
        self.rewound = str(self.restored)
        self.notices.add("; ".join([str(self.restored), *self._catch_up()]))

    def close(self) -> None:
        """Finish waiting writes and close. What was acknowledged is on disk with or without this."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._keeper.stop()
        self.journal.stop()
        self._pool.close()
        writer.stop()
        self._files.close()
        migrate.mark_closed(self.paths.db)

    # -- writing

    def write(self, work: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Run `work` in the writer thread, in a transaction shared with others; resolves once it is
        durable.
        """
        return self.submit(work)

    def submit(
        self,
        work: Callable[[Connection], T],
        *,
        size: int = 0,
        parts: int = 1,
        data: bool = False,
        urgent: bool = True,
    ) -> "Future[T]":
        """As `write`, with what the writer should know: bytes, parts, and whether it is data that
        may be refused.
        """
        if self._writer is None:
            future: Future[T] = Future()
            future.set_exception(UnreachableError("the store is not open", "try again"))
            return future
        return self._writer.submit(work, size=size, parts=parts, refusable=data, urgent=urgent)

    def ingest(self, task: TaskKey, parts: list[Part]) -> "Future[IngestResult]":
        """Apply a batch's parts; resolves once they are durable. Fails at once when too much waits
        already (503).
        """
        size = sum(len(part.data) for part in parts)
        bulk = all(
            part.kind in (RAW, INDEX, BLOB) or part.stream.startswith(_BULK) for part in parts
        )
        work = partial(self._ingester.apply, key=task, parts=parts)
        return self.submit(work, size=size, parts=len(parts), data=True, urgent=not bulk)

    def listen(self, callback: Listener) -> None:
        """`callback(job_pk, what)` after a commit, in the writer thread; what: see `Listener`."""
        self._listeners.append(callback)

    def tidy(self) -> None:
        """Do now what housekeeping would do soon: spill, merge, compact, give space back."""
        self._keeper.tidy()

    @property
    def trouble(self) -> str:
        """Why nothing can be stored at the moment; empty when all is well."""
        return self._writer.trouble if self._writer is not None else ""

    @property
    def busy(self) -> bool:
        """Whether work waits for the writer."""
        return self._writer is not None and self._writer.busy

    def _snapshot_if_due(self) -> None:
        if self.busy or not backup.is_due(self.paths.db, self._opened_s, self._clock_ns() / 1e9):
            return
        before = self.journal.begin_next()
        fault = backup.take(self.paths.db)
        if fault is not None:
            self.damaged(DamagedError(fault))
        else:
            self.journal.drop(before)

    def gc(self, older_than_days: float | None, *, dry_run: bool = False) -> retention.Removed:
        """Remove deleted jobs, and those that ended more than so many days ago, with their rows and
        files.
        """
        now_ns = self._clock_ns()
        before_ns = None if older_than_days is None else now_ns - int(older_than_days * 86_400e9)
        with self.read() as c:
            chosen = retention.removable(c, self.paths, before_ns)
        found = retention.Removed([job.id for job in chosen], sum(job.bytes for job in chosen))
        if dry_run:
            return found
        for job in chosen:
            while not self.write(partial(self._delete_some, pk=job.pk, now_ns=now_ns)).result():
                pass
            self.paths.coming(job.id).unlink(missing_ok=True)
        with self.read() as c:
            folders = list(retention.orphans(c, self.paths))
        for folder in folders:
            retention.remove_folder(folder)
        return found

    def gc_code(self, *, dry_run: bool = False) -> Collected:
        """Remove code snapshots that no job needs, and the checkouts of jobs that are gone."""
        with self.read() as c:
            digests, uuids = retention.code_in_use(c)
        if not dry_run:
            retention.remove_checkouts(self.paths, uuids)
        return Depot(self.paths.home / "code").collect(digests, dry_run=dry_run)

    def gc_artifacts(self, *, dry_run: bool = False, grace_s: float = ARTIFACT_GRACE_S) -> int:
        """Remove files of artifacts that no version has any more; their bytes."""
        since_s = time.time() - grace_s
        with self.read() as c:
            unused = artifacts.unused_blobs(c, self.paths.artifacts, since_s)
        for path, _ in unused:
            if not dry_run:
                path.unlink(missing_ok=True)
        return sum(size for _, size in unused)

    def gc_folders(self, *, dry_run: bool = False) -> Freed:
        """Remove data of folders that no job needs."""
        with self.read() as c:
            rows = c.execute("SELECT uuid, ended_ns FROM jobs").fetchall()
        known, left = (
            {row["uuid"] for row in rows},
            {row["uuid"] for row in rows if row["ended_ns"] is None},
        )
        return collect(
            self.paths.home / "folders", lambda uuid: uuid not in known, left, dry_run=dry_run
        )

    def open_uuids(self) -> list[str]:
        with self.read() as c:
            return [
                row["uuid"] for row in c.execute("SELECT uuid FROM jobs WHERE ended_ns IS NULL")
            ]

    def _delete_some(self, c: sqlite3.Connection, pk: int, now_ns: int) -> bool:
        done = retention.delete_some(c, pk, now_ns)
        if done:
            self._ingester.forget()
            self._files.forget()
        return done

    # -- reading

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection at one moment of the database, for at most READ_TIMEOUT_S."""
        try:
            with self._pool.read() as c:
                yield c
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                self.damaged(error)
            self._repair_rows(error)
            raise as_headway_error(error, "a query") from error
        # a value that cannot be read shows in many ways; any other error of the caller goes on
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._repair_rows(error)
            raise

    def _repair_rows(self, error: BaseException) -> None:
        """Where rows that cannot be read are found, and made readable, the caller may ask again."""
        now_s = time.monotonic()
        if not row_repair.looks_like_row_damage(error) or (
            now_s < self._rows_looked_s + ROW_REPAIR_PAUSE_S
        ):
            return
        self._rows_looked_s = now_s
        found = self.write(partial(row_repair.repair, now_ns=self._clock_ns())).result(
            READ_TIMEOUT_S
        )
        if found:
            self._rows_looked_s = -math.inf
            self._tell_repaired(found)
            raise RowsRepairedError(
                f"{len(found)} stored values could not be read and were replaced", "try again"
            ) from error

    def _tell_repaired(self, found: list[row_repair.DamagedValue]) -> None:
        read_caches_clear()
        jobs = len({value.job for value in found if value.job is not None})
        self.notices.add(
            f"the database holds {len(found)} damaged values (first: {found[0]}); they were replaced, "
            f"and kept in damaged_values; {jobs} jobs are concerned: hw q ID says what is missing"
        )

    # -- hooks of the writer

    def before_commit(self) -> None:
        self._files.sync()

    def after_rollback(self) -> None:
        self._ingester.forget()
        self._files.after_rollback()

    def after_commit(self, changed: set[tuple[int, str]]) -> None:
        self._files.after_commit()
        if changed:
            self._keeper.notice()
            self.journal.note(job for job, what in changed if what in ("job", "facts"))
        for job_pk, what in sorted(changed):
            for callback in self._listeners:
                try:
                    callback(job_pk, what)
                # a listener's mistake must not stop the writer
                except Exception:
                    log.exception("a listener failed")

    def row_damage(self, error: BaseException) -> None:
        """The writer itself met a value that cannot be read."""
        now_s = time.monotonic()
        if now_s < self._rows_looked_s + ROW_REPAIR_PAUSE_S:
            return
        self._rows_looked_s = now_s
        done = self.write(partial(row_repair.repair, now_ns=self._clock_ns()))

        def tell(future: "Future[list[row_repair.DamagedValue]]") -> None:
            if future.exception() is None and (found := future.result()):
                self._rows_looked_s = -math.inf
                self._tell_repaired(found)

        done.add_done_callback(tell)

    def damaged(self, error: BaseException) -> None:
        """Damage was met. The writer looks itself and, where it finds the same, restores the last
        snapshot.
        """
        log.critical("the database seems damaged: %s", error)
        if self._writer is not None:
            self._writer.repair(partial(self._repair, reason=str(error)))

    def _repair(self, reason: str) -> None:
        """In the writer thread, its connection closed."""
        fault = self._prepare(suspicious=True)
        if fault is None:
            log.critical("a second look found no damage; nothing was changed")
            return
        self._pool.close()
        self._restore(f"{fault}; {reason}")
        self._ingester.forget()
        self._tell_restored()

    def _tell_restored(self) -> None:
        """Jobs under way learn in their events that data may be missing; agents send again what
        they still hold.
        """
        told = self.restored
        if told is not None:
            self.write(lambda c: _note_all(c, {"text": str(told)}, self._clock_ns()))


def _note_all(c: sqlite3.Connection, data: dict[str, str], now_ns: int) -> None:
    for job in catalog.open_jobs(c):
        catalog.add_event(c, job.pk, "restored", data, now_ns)

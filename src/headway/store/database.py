"""`Store`: the door to headway.db. One writer thread, pooled readers, listeners. Called by the server alone."""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from headway.model.errors import UnreachableError
from headway.model.limits import LOG_BYTES_MAX
from headway.settings.home import Paths
from headway.store import migrate
from headway.store.connection import Connection, as_headway_error, is_damage, open_writer
from headway.store.ingest import Ingester, IngestResult
from headway.store.keeper import Keeper
from headway.store.logs import LogFiles
from headway.store.pool import Pool
from headway.store.writer import Hooks, Writer
from headway.wire.batch import Part, TaskKey

log = logging.getLogger("headway.store")
T = TypeVar("T")
Listener = Callable[[int, str], None]


class Store(Hooks):
    def __init__(
        self,
        paths: Paths,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        log_bytes_max: int = LOG_BYTES_MAX,
        background: bool = True,
    ) -> None:
        self.paths = paths
        self._clock_ns = clock_ns
        self._background = background
        self._listeners: list[Listener] = []
        self._pool = Pool(paths.db)
        self._writer: Writer | None = None
        self._files = LogFiles(paths.logs, log_bytes_max)
        self._ingester = Ingester(self._files, clock_ns)
        self._keeper = Keeper(self, self._files, clock_ns, self._snapshot_if_due)

    # -- opening and closing ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Check, migrate and start. Raises a HeadwayError with the reason where the database cannot be used (B31)."""
        migrate.check_file(self.paths.db)
        migrate.mark_opened(self.paths.db)
        self._prepare()
        self._writer = Writer(lambda: open_writer(self.paths.db), self)
        self._writer.start()
        self._keeper = Keeper(self, self._files, self._clock_ns, self._snapshot_if_due)
        if self._background:
            self._keeper.start()
            self._keeper.notice()

    def _prepare(self) -> None:
        _touch_private(self.paths.db)
        try:
            c = open_writer(self.paths.db)
        except sqlite3.Error as error:
            raise as_headway_error(error, f"opening {self.paths.db}") from error
        try:
            migrate.migrate(c, self.paths.db, _copy)
        except sqlite3.Error as error:
            raise as_headway_error(error, f"bringing {self.paths.db} up to date") from error
        finally:
            c.close()

    def close(self) -> None:
        """Finish waiting writes and close. What was acknowledged is on disk with or without this."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._keeper.stop()
        self._pool.close()
        writer.stop()
        self._files.close()
        migrate.mark_closed(self.paths.db)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, work: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Run `work` in the writer thread, in a transaction shared with others; resolves once it is durable."""
        return self.submit(work)

    def submit(
        self, work: Callable[[Connection], T], *, size: int = 0, parts: int = 1, data: bool = False
    ) -> "Future[T]":
        """As `write`, with what the writer should know: bytes, parts, and whether it is data that may be refused."""
        if self._writer is None:
            future: Future[T] = Future()
            future.set_exception(UnreachableError("the store is not open", "try again"))
            return future
        return self._writer.submit(work, size=size, parts=parts, refusable=data)

    def ingest(self, task: TaskKey, parts: list[Part]) -> "Future[IngestResult]":
        """Apply a batch's parts; resolves once they are durable. Fails at once when too much waits already (503)."""
        size = sum(len(part.data) for part in parts)
        return self.submit(lambda c: self._ingester.apply(c, task, parts), size=size, parts=len(parts), data=True)

    def listen(self, callback: Listener) -> None:
        """`callback(job_pk, what)` after a commit, in the writer thread; what: facts, metrics, logs or job."""
        self._listeners.append(callback)

    def tidy(self) -> None:
        """Do now what housekeeping would do soon: spill, merge, compact, give space back."""
        self._keeper.tidy()

    @property
    def busy(self) -> bool:
        """Whether work waits for the writer."""
        return self._writer is not None and self._writer.busy

    def _snapshot_if_due(self) -> None: ...

    # -- reading ---------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection at one moment of the database, for at most READ_TIMEOUT_S."""
        try:
            with self._pool.read() as c:
                yield c
        except sqlite3.Error as error:
            if is_damage(error):
                self.damaged(error)
            raise as_headway_error(error, "a query") from error

    # -- hooks of the writer ---------------------------------------------------------------------------------------

    def before_commit(self) -> None:
        self._files.sync()

    def after_rollback(self) -> None:
        self._ingester.forget()

    def after_commit(self, changed: set[tuple[int, str]]) -> None:
        if changed:
            self._keeper.notice()
        for job_pk, what in sorted(changed):
            for callback in self._listeners:
                try:
                    callback(job_pk, what)
                # a listener's mistake must not stop the writer
                except Exception:
                    log.exception("a listener failed")

    def damaged(self, error: BaseException) -> None:
        log.critical("the database is damaged: %s", error)


def _touch_private(path: "os.PathLike[str] | str") -> None:
    """Make the file for its owner alone, whatever the umask; SQLite's files beside it take over its mode (B33)."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _copy(c: Connection, target: os.PathLike[str]) -> None:
    """A consistent copy through SQLite's backup, complete under its final name or not there at all."""
    partial = f"{os.fspath(target)}.partial"
    if os.path.exists(partial):
        os.unlink(partial)
    _touch_private(partial)
    copy = sqlite3.connect(partial)
    try:
        c.backup(copy)
    finally:
        copy.close()
    os.replace(partial, target)

"""The one thread that writes to headway.db. Everything waiting goes into one transaction and one
sync (group commit).

Called by `database.Store`. A future resolves only after COMMIT with synchronous=FULL; where the
commit fails nobody is told yes, and the thread goes on. Items are kept apart by savepoints, so a
bad one harms only itself.
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headway.model.errors import UnreachableError
from headway.model.limits import (
    CHECKPOINT_BYTES,
    CHECKPOINT_COMMITS,
    COMMIT_BYTES_MAX,
    COMMIT_PARTS_MAX,
    INGEST_QUEUE_BYTES_MAX,
    LINGER_BYTES,
    LINGER_MAX_S,
    LINGER_REST,
    LINGER_S,
    WAL_BYTES_MAX,
    WRITE_QUEUE_MAX,
)
from headway.store.connection import (
    BUSY_TIMEOUT_S,
    PAGE_BYTES,
    Connection,
    as_headway_error,
    is_damage,
    is_temporary,
)

log = logging.getLogger("headway.store")
IDLE_S = 1.0
RESTART_WAIT_MS = 200
COMMIT_OVERHEAD_BYTES = 8 * PAGE_BYTES  # what a small commit adds to the write-ahead log, roughly


@dataclass(slots=True)
class Item:
    work: Callable[[Connection], Any]
    size: int
    parts: int
    refusable: bool  # data that its sender keeps; control is always taken
    urgent: bool  # does not wait for company
    future: "Future[Any]" = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None


class Hooks:
    """What the store does around a commit. The writer calls these in its own thread."""

    def before_commit(self) -> None:
        """Make files durable that the transaction relies on; an error fails the whole commit."""

    def after_commit(self, changed: set[tuple[int, str]]) -> None: ...

    def after_rollback(self) -> None: ...

    def damaged(self, error: BaseException) -> None: ...

    def row_damage(self, error: BaseException) -> None: ...


def rest_s(linger_s: float, used_s: float) -> float:
    """How long little data waits after a commit that took `used_s` of CPU time; `linger_s` is the
    least, 0 is never.
    """
    return max(linger_s, min(LINGER_MAX_S, LINGER_REST * used_s)) if linger_s else 0.0


class Writer(threading.Thread):
    def __init__(
        self, connect: Callable[[], Connection], hooks: Hooks, linger_s: float = LINGER_S
    ) -> None:
        super().__init__(name="headway-writer", daemon=True)
        self._connect, self._hooks = connect, hooks
        self._connection: Connection | None = connect()
        self._ready = threading.Condition()
        self._queue: deque[Item] = deque()
        self._queued_bytes = 0
        self._stopping = False
        self._log_bytes, self._log_commits = 0, 0  # since the last checkpoint, estimated
        # an input/output error: the write-ahead log is emptied before it is trusted again
        self._suspect = False
        self._log_full = False
        self._linger_s, self._last_commit_s, self._urgent = linger_s, 0.0, False
        self._used_s = 0.0  # CPU time of the last commit
        self._repair: Callable[[], None] | None = None
        self.trouble = ""  # why the last commit failed; "" once one has succeeded again

    # -- callers' side

    def submit(
        self,
        work: Callable[[Connection], Any],
        *,
        size: int = 0,
        parts: int = 1,
        refusable: bool = False,
        urgent: bool = True,
    ) -> "Future[Any]":
        item = Item(work, size, parts, refusable, urgent)
        with self._ready:
            crowded = self._queued_bytes + size > INGEST_QUEUE_BYTES_MAX
            if self._stopping or (crowded if refusable else len(self._queue) >= WRITE_QUEUE_MAX):
                reason = (
                    "the server is stopping"
                    if self._stopping
                    else "more data waits to be written than may wait"
                )
                item.future.set_exception(UnreachableError(reason, "it is sent again by itself"))
                return item.future
            self._queue.append(item)
            self._queued_bytes += size
            self._urgent |= urgent
            self._ready.notify()
        return item.future

    def repair(self, work: Callable[[], None]) -> None:
        """Run `work` in the writer thread with no connection open, before anything else is written."""
        with self._ready:
            self._repair = work
            self._ready.notify()

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def stop(self) -> None:
        """Finish what waits, then end the thread."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self.join()

    # -- the thread

    def run(self) -> None:
        while True:
            items = self._take()
            if self._repair is not None:
                self._run_repair()
            if items is None:
                break
            if items:
                self._commit(items)
            self._checkpoint(idle=not items)
        if self._connection is not None:
            self._connection.close()

    def _take(self) -> list[Item] | None:
        """What goes into the next transaction; [] after an idle while, None at the end."""
        with self._ready:
            has_work = bool(self._queue) or self._stopping or self._repair is not None
            if not has_work:
                self._ready.wait(IDLE_S)
            if not self._queue:
                return None if self._stopping else []
            self._linger()

            items = []
            parts = 0
            size = 0
            while self._queue and parts < COMMIT_PARTS_MAX and size < COMMIT_BYTES_MAX:
                item = self._queue.popleft()
                parts += item.parts
                size += item.size
                items.append(item)
            self._queued_bytes -= size
            self._urgent = any(item.urgent for item in self._queue)
        return [item for item in items if item.future.set_running_or_notify_cancel()]

    def _linger(self) -> None:
        """Little data waits a moment for more, so that a hundred chatty agents do not cost a
        hundred syncs. The more the last commit cost, the longer: what then comes together costs
        less than it does apart.
        """
        wait_s = rest_s(self._linger_s, self._used_s)
        while not (self._urgent or self._stopping or self._queued_bytes >= LINGER_BYTES):
            left_s = self._last_commit_s + wait_s - time.monotonic()
            if left_s <= 0:
                return
            self._ready.wait(left_s)

    def _commit(self, items: list[Item]) -> None:
        changed: set[tuple[int, str]] = set()
        begun_s = time.thread_time()
        try:
            c = self._usable_connection()
            if self._log_full:
                items = self._refuse_data(items)
            changed = self._transaction(c, items)
            self._last_commit_s, self.trouble = time.monotonic(), ""
            self._used_s = time.thread_time() - begun_s
            self._log_bytes += c.written_bytes + sum(
                item.size for item in items if not item.refusable
            )
            self._log_bytes += COMMIT_OVERHEAD_BYTES
            self._log_commits += 1
        # nobody in this commit may be told yes, and the thread must live on
        except BaseException as error:
            self._fail(items, error)
            return
        for item in items:
            if item.error is not None:
                item.future.set_exception(item.error)
            else:
                item.future.set_result(item.result)
        self._hooks.after_commit(changed)

    def _transaction(self, c: Connection, items: list[Item]) -> set[tuple[int, str]]:
        c.changed, c.written_bytes = set(), 0
        c.execute("BEGIN IMMEDIATE")
        for item in items:
            self._run_item(c, item)
        self._hooks.before_commit()
        c.execute("COMMIT")
        changed, c.changed = c.changed, set()
        return changed

    def _run_item(self, c: Connection, item: Item) -> None:
        before = set(c.changed)
        c.execute("SAVEPOINT item")
        try:
            item.result = item.work(c)
        # a caller's function may fail in any way; the error is its own, carried to it by the future
        except Exception as error:
            if is_temporary(error) or is_damage(error) or not c.in_transaction:
                raise  # the database itself is in trouble: the whole commit is
            c.execute("ROLLBACK TO item")
            c.changed = before
            if "Could not decode" in str(error):
                self._hooks.row_damage(error)
            item.error = as_headway_error(error, "a write")
            self._hooks.after_rollback()
        c.execute("RELEASE item")

    def _refuse_data(self, items: list[Item]) -> list[Item]:
        error = UnreachableError(
            "a long read holds a write-ahead log that is full", "it is sent again by itself"
        )
        for item in items:
            if item.refusable:
                item.future.set_exception(error)
        return [item for item in items if not item.refusable]

    def _fail(self, items: list[Item], error: BaseException) -> None:
        log.error("a commit of %d items failed: %s", len(items), error)
        self.trouble = str(error) or type(error).__name__
        self._roll_back()
        shown = as_headway_error(error, "a commit")
        if is_damage(error):
            shown = UnreachableError(
                f"the database is damaged ({error}) and is being restored", "try again"
            )
        for item in items:
            if not item.future.done():
                item.future.set_exception(item.error or shown)
        if is_damage(error):
            self._hooks.damaged(error)

    def _roll_back(self) -> None:
        """Undo the transaction; a connection that cannot is thrown away."""
        self._suspect = True
        self._hooks.after_rollback()
        c = self._connection
        if c is None:
            return
        try:
            if c.in_transaction:
                c.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.error("the connection is opened anew, it could not roll back: %s", error)
            self._drop_connection()

    def _run_repair(self) -> None:
        with self._ready:
            work, self._repair = self._repair, None
        self._drop_connection()
        try:
            if work is not None:
                work()
        # what cannot be repaired now is met again, and told again, by the next write
        except Exception:
            log.exception("the database could not be repaired")

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _usable_connection(self) -> Connection:
        """The connection; after an error only once the write-ahead log has been emptied into the
        database.

        A page whose sync failed may be counted clean by the kernel although it never reached the
        disk, so no later commit may rest on it (F6). Emptying the log writes and syncs every page
        anew, elsewhere.
        """
        if self._connection is None:
            self._connection = self._connect()
        if self._suspect:
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise UnreachableError(
                    "the database recovers from a failed write, a reader holds it", "try again"
                )
            self._suspect, self._log_bytes, self._log_commits, self._log_full = False, 0, 0, False
        return self._connection

    def _checkpoint(self, *, idle: bool) -> None:
        """Move the write-ahead log into the database when it has grown, or when there is nothing
        else to do.
        """
        due = (
            self._log_bytes >= CHECKPOINT_BYTES
            or self._log_commits >= CHECKPOINT_COMMITS
            or self._log_full
        )
        if self._connection is None or self._suspect or not (due or (idle and self._log_commits)):
            return
        try:
            _, pages, moved = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._log_full = self._is_held(pages * PAGE_BYTES, moved == pages)
        except sqlite3.Error as error:
            log.error("the write-ahead log could not be moved into the database: %s", error)
            self._suspect = True
            if is_damage(error):
                self._hooks.damaged(error)
            return
        self._log_bytes, self._log_commits = 0, 0

    def _is_held(self, log_bytes: int, all_moved: bool) -> bool:
        """Whether readers keep the log from starting over until it is too large.

        Readers that overlap without end can do that although everything was moved; then we wait for
        them, briefly.
        """
        assert self._connection is not None
        if log_bytes > 4 * CHECKPOINT_BYTES and all_moved:
            self._connection.execute(f"PRAGMA busy_timeout = {RESTART_WAIT_MS}")
            self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            self._connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        return log_bytes > WAL_BYTES_MAX and not all_moved

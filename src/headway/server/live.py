"""News for those who wait: long polls wake here when the store has committed something. Called by
`api/`.

There is no queue per viewer: a waiting request has one flag, and its position in the data is its
own cursor. So a viewer that is slow or dead costs nothing (F38), and a thousand commits while it
reads are one wake-up.
"""

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headway.model.limits import LIVE_CHANGES_MAX


class Watch:
    """One waiting request's flag."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._event = asyncio.Event()
        self._deaf_to: frozenset[str] = frozenset()
        self.news: set[str] = set()

    def ring(self, what: set[str]) -> None:
        self.news |= what
        if self.news - self._deaf_to:
            self._event.set()

    def start(self, deaf_to: frozenset[str] = frozenset()) -> None:
        """Call before reading: what is committed after this, but for `deaf_to`, ends the next
        `wait` at once.
        """
        self.news, self._deaf_to = set(), deaf_to
        self._event.clear()

    async def wait(self, timeout_s: float) -> set[str]:
        """What was committed since `start` (as `Store.listen` tells it), after `timeout_s` at the
        latest.
        """
        if not self._live.closed and timeout_s > 0:
            try:
                await asyncio.wait_for(self._event.wait(), timeout_s)
            except TimeoutError:
                pass
        return self.news


class Changes:
    """Which jobs have changed lately, so that a viewer who was away for a moment need not read all that he shows again.

    A position is `boot:number`; one that is unknown (another server's, or too old) means: look at everything.
    """

    def __init__(self, count_max: int = LIVE_CHANGES_MAX) -> None:
        self._boot = secrets.token_hex(4)
        self._count_max = count_max
        self._number = 0
        self._forgotten = 0  # changes up to this number are not known any more
        self._jobs: OrderedDict[int, tuple[int, set[str]]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, job_pk: int, what: str) -> None:
        with self._lock:
            self._number += 1
            _, kinds = self._jobs.pop(job_pk, (0, set[str]()))
            self._jobs[job_pk] = (self._number, kinds | {what})
            if len(self._jobs) > self._count_max:
                self._forgotten = self._jobs.popitem(last=False)[1][0]

    def position(self) -> str:
        return f"{self._boot}:{self._number}"

    def since(self, position: str | None) -> dict[int, set[str]] | None:
        """Jobs that have changed since then, and what of them may have; None: cannot be told."""
        boot, _, number = (position or "").partition(":")
        if boot != self._boot or not number.isdigit() or int(number) < self._forgotten:
            return None
        found: dict[int, set[str]] = {}
        with self._lock:
            for job_pk, (last, kinds) in reversed(self._jobs.items()):
                if last <= int(number):
                    break
                found[job_pk] = kinds
        return found


class Live:
    """Made in the event loop; `notify` is called from the store's writer thread, after each commit."""

    def __init__(self, on_job: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_job = on_job  # called in the loop when any job has changed
        self._watches: dict[int | None, set[Watch]] = {}  # None: who watches all jobs
        self._lock = threading.Lock()
        self._news: dict[int, set[str]] = {}
        self.changes = Changes()
        self.closed = False

    def notify(self, job_pk: int, what: str) -> None:
        self.changes.add(job_pk, what)
        heard = job_pk in self._watches or None in self._watches
        if not heard and what != "job":  # a watch comes before its first read: nothing is missed
            return
        with self._lock:
            first = not self._news
            self._news.setdefault(job_pk, set()).add(what)
        if first:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has ended while the writer still finishes
                return

    def _deliver(self) -> None:
        with self._lock:
            news, self._news = self._news, {}
        if any("job" in what for what in news.values()):
            self._on_job()
        for job_pk, what in news.items():
            for watch in (*self._watches.get(job_pk, ()), *self._watches.get(None, ())):
                watch.ring(what)

    @contextmanager
    def watch(self, job_pk: int | None) -> Iterator[Watch]:
        """A flag for one job's news, or with None for those of all."""
        watch = Watch(self)
        self._watches.setdefault(job_pk, set()).add(watch)
        try:
            yield watch
        finally:
            self._watches[job_pk].discard(watch)
            if not self._watches[job_pk]:
                del self._watches[job_pk]

    @property
    def waiting(self) -> int:
        return sum(len(watches) for watches in self._watches.values())

    def close(self) -> None:
        """The server stops: whoever waits answers now."""
        self.closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.ring({"job"})

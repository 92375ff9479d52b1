"""Tells people what became of their jobs: decides (`notice.py`), keeps an outbox
(`store/notice_queue.py`), sends (`sinks/`).

Started by `serve.py`, beside the loop that runs jobs and never in its way. Each change of state
waits in the database until it was looked at, each notice until it was sent or given up, so a killed
server tells after its next start. A server that dies between sending and writing that down sends
again: at least once; `notice` names it for receivers.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from sqlite3 import Connection
from typing import Any, Protocol, TypeVar

from headway.model.errors import HeadwayError, NotFoundError
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.model.limits import (
    NOTICE_BACKOFF_FIRST_S,
    NOTICE_BACKOFF_MAX_S,
    NOTICE_THREADS,
    NOTICE_TIMEOUT_S,
    NOTICE_TRIES_MAX,
)
from headway.server.notify import notice
from headway.server.notify.channels import command_channel, desktop, webhook
from headway.server.notify.notice import Wanted
from headway.server.notify.outcome import Outcome
from headway.store import catalog, notice_queue
from headway.store.database import Store
from headway.store.jsonform import iso
from headway.store.notice_queue import Change, Due, Notice

log = logging.getLogger("headway.notify")
T = TypeVar("T")
Send = Callable[[JsonObject], Outcome]

OFF_S = 60.0  # between two looks when nobody wants to be told
IDLE_S = 30.0  # and at most when somebody does
PAUSE_S = 0.05  # many jobs that end together are one look
SILENCE_CHECKS = 10  # looks for silent jobs within `notify.stall_s`
SHOWN = 20


class Getter(Protocol):
    def get(self, name: str) -> Any: ...


class Plan:
    """What the settings ask for."""

    def __init__(self, settings: Getter) -> None:
        get = settings.get
        self.wanted = Wanted(
            frozenset(get("notify.on")), get("notify.stall_s"), get("notify.waited_s")
        )
        self.channels: dict[str, Send] = {}
        self.places: dict[str, str] = {}
        if words := get("notify.command"):
            self._add(
                "command",
                words[0],
                lambda facts: command_channel.send(words, facts, NOTICE_TIMEOUT_S),
            )
        if url := get("notify.webhook_url"):
            hosts = get("notify.webhook_hosts")
            self._add(
                "webhook",
                webhook.shown(url),
                lambda facts: webhook.send(url, hosts, facts, NOTICE_TIMEOUT_S),
            )
        if get("notify.desktop"):
            self._add("desktop", desktop.TOOL, lambda facts: desktop.send(facts, NOTICE_TIMEOUT_S))

    def _add(self, name: str, shown: str, send: Send) -> None:
        self.channels[name], self.places[name] = send, shown


def backoff_s(tries: int) -> float:
    """How long after the try with this number (1, 2, …) the next one comes."""
    return float(min(NOTICE_BACKOFF_FIRST_S * 4.0 ** (tries - 1), NOTICE_BACKOFF_MAX_S))


class Notifier:
    def __init__(
        self,
        store: Store,
        settings: Getter,
        load: Callable[[], Getter],
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load` reads the settings anew, for a test."""
        self._store, self._load, self._clock_ns, self._clock_s = store, load, clock_ns, clock_s
        self.plan = Plan(settings)
        # two for questions to the store
        self._threads = ThreadPoolExecutor(NOTICE_THREADS + 2, "headway-notify")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sending: dict[int, asyncio.Task[None]] = {}
        # job -> its last sign of life, and when it was seen
        self._signs: dict[int, tuple[int, float]] = {}
        self._silences: set[tuple[int, int]] = set()  # told already: (job, sign)

    # -- life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._store.listen(self._on_change)
        self._task = asyncio.create_task(self._run(), name="headway-notify")

    async def stop(self) -> None:
        """What is being sent now is sent again after the next start: nobody will have noted that it
        arrived.
        """
        self._loop = None
        tasks = [task for task in (self._task, *self._sending.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _on_change(self, job_pk: int, what: str) -> None:
        loop = self._loop
        if what == "job" and loop is not None and self.plan.channels:
            # the loop has ended while the writer still finishes
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                wait_s = await self._look()
            # a mistake in one look must not end the telling for good
            except Exception as error:
                log.warning(
                    "looked in vain: %s", error, exc_info=not isinstance(error, HeadwayError)
                )
                wait_s = IDLE_S
            await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait_s)

    async def _look(self) -> float:
        """One round; how long the next one may wait."""
        if await self._read(notice_queue.has_changes):
            await self._take_changes()
        if not self.plan.channels:
            return OFF_S
        await self._check_silence()
        await self._send_due()
        return await self._wait_s()

    async def _wait_s(self) -> float:
        waits = [IDLE_S]
        stall_s = self.plan.wanted.stall_s
        if stall_s:
            waits.append(max(stall_s / SILENCE_CHECKS, PAUSE_S))
        next_ns = (
            await self._read(notice_queue.next_due_ns)
            if len(self._sending) < NOTICE_THREADS
            else None
        )
        if next_ns is not None and not self._sending:
            waits.append(max(0.0, (next_ns - self._clock_ns()) / 1e9))
        return min(waits)

    async def _read(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._query, work, args
        )

    def _query(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        with self._store.read() as c:
            return work(c, *args)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.wrap_future(self._store.write(work))

    # -- deciding

    async def _take_changes(self) -> None:
        plan = self.plan
        if not plan.channels:
            await self._write(notice_queue.forget_changes)
            return

        def work(c: Connection) -> int:
            return notice_queue.take_changes(
                c, partial(_decide, c, plan.wanted), plan.channels, self._clock_ns()
            )

        while await self._write(work) == notice_queue.CHANGES_STEP:
            continue

    async def _check_silence(self) -> None:
        """Silence is measured by our own clock, from when we saw the last sign; a restarted server
        begins anew.
        """
        wanted = self.plan.wanted
        if not wanted.stall_s or "stalled" not in wanted.on:
            return
        now_s = self._clock_s()
        found = await self._read(notice_queue.signs)
        self._signs = {
            job: known if (known := self._signs.get(job)) and known[0] == sign else (sign, now_s)
            for job, sign in found.items()
        }
        self._silences &= set(found.items())
        for job, (sign, since_s) in self._signs.items():
            if now_s - since_s >= wanted.stall_s and (job, sign) not in self._silences:
                await self._tell_silence(job, sign, now_s - since_s, wanted)

    async def _tell_silence(self, pk: int, sign: int, silent_s: float, wanted: Wanted) -> None:
        with contextlib.suppress(NotFoundError):  # deleted meanwhile
            job = await self._read(catalog.load_job, pk)
            now_ns = self._clock_ns()
            found = notice.of_silence(job, silent_s, sign, now_ns, wanted)
            if found is not None:
                await self._write(lambda c: notice_queue.put(c, found, self.plan.channels, now_ns))
        self._silences.add((pk, sign))

    def put_hang(self, c: Connection, job: Job, finding: JsonObject, since_ns: int) -> None:
        """In the transaction that keeps the finding."""
        now_ns = self._clock_ns()
        self._put(c, notice.of_hang(job, finding, since_ns, now_ns, self.plan.wanted.on), now_ns)

    def put_slow(self, c: Connection, job: Job, finding: JsonObject, since_ns: int) -> None:
        """Likewise."""
        self._put(c, notice.of_slow(job, finding, since_ns, self.plan.wanted.on), since_ns)

    def _put(self, c: Connection, found: Notice | None, now_ns: int) -> None:
        if not self.plan.channels:
            return
        if found is not None:
            notice_queue.put(c, found, self.plan.channels, now_ns)
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the server stops
                loop.call_soon_threadsafe(self._wake.set)

    # -- sending

    async def _send_due(self) -> None:
        """Start what is due. One that hangs keeps its own place only, and until its time limit."""
        found = await self._read(notice_queue.due, self._clock_ns(), 2 * NOTICE_THREADS)
        for one in found:
            if one.pk not in self._sending and len(self._sending) < NOTICE_THREADS:
                self._sending[one.pk] = asyncio.create_task(self._send(one))

    async def _send(self, one: Due) -> None:
        try:
            outcome = await self._try(one.channel, one.facts)
            await self._note(one, outcome)
        except HeadwayError as error:
            log.warning(
                "what became of a notification could not be written down; it is sent again: %s",
                error,
            )
            await asyncio.sleep(NOTICE_BACKOFF_FIRST_S)
        finally:
            self._sending.pop(one.pk, None)
            self._wake.set()

    async def _try(self, channel: str, facts: JsonObject) -> Outcome:
        send = self.plan.channels.get(channel)
        if send is None:
            return Outcome(False, "no longer set")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, send, facts)
        # whatever a way out does, the others go on
        except Exception as error:
            log.exception("%s failed", channel)
            return Outcome(False, f"{type(error).__name__}: {error}", again=True)

    async def _note(self, one: Due, outcome: Outcome) -> None:
        tries = one.tries + 1
        now_ns = self._clock_ns()
        text = str(notice.safe(outcome.detail))
        told = f"{one.facts.get('kind')} of {one.facts.get('id')} by {one.channel}"
        if outcome.ok:
            log.info("told %s: %s", told, text)
            await self._write(lambda c: notice_queue.mark(c, one.pk, result=text, sent_ns=now_ns))
        elif outcome.again and tries < NOTICE_TRIES_MAX:
            due_ns = now_ns + int(backoff_s(tries) * 1e9)
            log.warning("could not tell %s now: %s", told, text)
            await self._write(lambda c: notice_queue.mark(c, one.pk, result=text, due_ns=due_ns))
        else:
            log.error("could not tell %s, and gave up: %s", told, text)
            await self._write(lambda c: notice_queue.mark(c, one.pk, result=text))

    # -- the API's side

    async def about(self) -> JsonObject:
        wanted = self.plan.wanted
        return {
            "channels": [
                {"channel": name, "to": place} for name, place in self.plan.places.items()
            ],
            "on": sorted(wanted.on),
            "stall_s": wanted.stall_s,
            "waited_s": wanted.waited_s,
            "notices": await self._read(notice_queue.last, SHOWN),
        }

    async def test(self) -> list[JsonObject]:
        """Read the settings anew, use them from now on, and send a notification by every way at
        once.
        """
        self.plan = Plan(await asyncio.to_thread(self._load))
        self._wake.set()
        now_ns = self._clock_ns()
        facts = {
            "notice": f"test:{now_ns}", "kind": "test", "text": "this is a test of Headway's notifications",
            "id": None, "name": "test", "state": None, "time": iso(now_ns),
        }  # fmt: skip
        outcomes = await asyncio.gather(*(self._try(name, facts) for name in self.plan.channels))
        return [
            {
                "channel": name,
                "to": self.plan.places[name],
                "ok": outcome.ok,
                "detail": str(notice.safe(outcome.detail)),
            }
            for name, outcome in zip(self.plan.channels, outcomes, strict=True)
        ]


def _decide(c: Connection, wanted: Wanted, change: Change) -> Notice | None:
    row = c.execute("SELECT deleted_ns FROM jobs WHERE pk = :pk", {"pk": change.job}).fetchone()
    if row is None or row["deleted_ns"] is not None:
        return None  # a person has done away with it
    if change.old == notice_queue.ALERT:
        return notice.of_alert(change, catalog.load_job(c, change.job))
    return notice.of_change(change, catalog.load_job(c, change.job), wanted)

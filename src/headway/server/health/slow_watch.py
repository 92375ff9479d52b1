"""Looks now and then whether jobs that run are slow, and why. Started by `serve.py`, beside the
watch for hangs.

A look reads what is stored anyway. Only where several ranks work together are they asked, in one
burst of looks and again after minutes, where they stand: the one that is least often found waiting
is the one that the others wait for. What two looks in a row find is kept with the job, shown beside
its state, and told to whoever is notified.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from sqlite3 import Connection
from typing import Any, Protocol

import msgspec

from headway.diagnose import hang, slow
from headway.diagnose.hang import Facts, Pause
from headway.model.errors import HeadwayError
from headway.model.job import Job, State
from headway.model.json_types import JsonObject
from headway.model.limits import SLOW_LOOK_PAUSE_S, SLOW_LOOKS, SLOW_RANKS_AGAIN_S
from headway.server.health import slow_facts
from headway.store import catalog, health_rows
from headway.store.database import Store

log = logging.getLogger("headway.health")
AGREE = 2  # looks in a row that must find the same, or nothing, before it is told, or ended
DUTY = 20  # between two rounds of looks there is so many times the pause that a round took
AT_ONCE = 2  # jobs whose ranks are looked at at the same time
RANKS_RAN_S = 20.0  # a job that has made steps for less is not looked at so closely
BURST_S_MAX = 90.0  # for all looks at the ranks of one job
QUIET_S = 10.0  # a job that is silent for longer has other troubles
LEVEL = 1  # samples of ten seconds


class Loads(Protocol):
    async def load(self, pk: int) -> Job: ...


class Collects(Protocol):
    async def collect(self, job: Job) -> tuple[int, Facts]: ...


class Silences(Protocol):
    def silence(self, job: int) -> Pause | None: ...


class Getter(Protocol):
    def get(self, name: str) -> Any: ...


class Tells(Protocol):
    """Puts a notification into the queue, in the transaction that keeps the finding."""

    def put_slow(self, c: Connection, job: Job, finding: JsonObject, since_ns: int) -> None: ...


class Watched(msgspec.Struct):
    """One attempt of one job that runs."""

    attempt: int
    begun_s: float
    cause: str | None = None  # that the last look found
    count: int = 0  # looks in a row that found it
    told: str | None = None  # the cause of the finding that holds
    ranks_at_s: float | None = None  # when its ranks were looked at last
    straggler: slow.Slow | None = None


class SlowWatch:
    def __init__(
        self,
        store: Store,
        stacks: Collects,
        control: Loads,
        silences: Silences,
        settings: Getter,
        tells: Tells,
        clock_s: Callable[[], float] = time.monotonic,
        clock_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._stacks, self._control = store, stacks, control
        self._silences, self._settings, self._tells = silences, settings, tells
        self._clock_s, self._clock_ns, self._sleep = clock_s, clock_ns, sleep
        self._watched: dict[int, Watched] = {}
        self._bursts: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        look_s = float(self._settings.get("slow.look_s"))
        await self._write(lambda c: health_rows.close_kind(c, "slow", self._clock_ns()))
        if not look_s:
            return
        try:
            while True:
                begun_s = self._clock_s()
                try:
                    await self.look()
                # a mistake in one look must not end the watching for good
                except Exception as error:
                    log.warning("looked in vain for slow jobs: %s", error, exc_info=True)
                await self._sleep(max(look_s, DUTY * (self._clock_s() - begun_s)))
        finally:
            for task in self._bursts.values():
                task.cancel()

    async def look(self) -> None:
        """One round over all jobs that run."""
        running = await asyncio.to_thread(self._read, health_rows.running)
        for pk in [pk for pk in self._watched if pk not in running]:
            await self._close(pk, self._watched.pop(pk))
        for pk, (attempt, _) in running.items():
            watched = self._watched.get(pk)
            if watched is None or watched.attempt != attempt:
                if watched is not None:
                    await self._close(pk, watched)
                self._watched[pk] = Watched(attempt, self._clock_s())
                continue  # there is nothing to be seen yet
            with contextlib.suppress(HeadwayError):  # deleted, or ended meanwhile
                await self._look_at(pk, watched)

    def straggler(self, pk: int) -> slow.Slow | None:
        """What the last burst of looks at the ranks of a job found."""
        watched = self._watched.get(pk)
        return None if watched is None else watched.straggler

    # -- one job

    async def _look_at(self, pk: int, watched: Watched) -> None:
        job = await self._control.load(pk)
        if job.state is not State.RUNNING or not job.attempts:
            return
        found = await self.judge(job, LEVEL)
        told = [one for one in found if one.confidence >= slow.TOLD_CONFIDENCE]
        self._plan_ranks(job, watched, bool(told))
        # that a job hangs says more than that it is slow
        pause = self._silences.silence(pk)
        if pause is not None and pause.silent_s > pause.limit_s():
            told = []
        best = told[0] if told else None
        cause = None if best is None else best.cause
        watched.count = watched.count + 1 if cause == watched.cause else 1
        watched.cause = cause
        if watched.count < AGREE:
            return
        if best is not None:
            await self._keep(job, watched, best)
        else:
            await self._close(pk, watched)

    async def judge(self, job: Job, level: int) -> list[slow.Slow]:
        """All that is found, the likeliest first."""
        seen = await asyncio.to_thread(self._read, slow_facts.read, job, level)
        found = await asyncio.to_thread(slow.judge, job, seen)
        lagging = self.straggler(job.pk)
        return [lagging, *found] if lagging is not None else found

    def _read(self, work: Callable[..., Any], *args: Any) -> Any:
        with self._store.read() as c:
            return work(c, *args)

    async def _keep(self, job: Job, watched: Watched, best: slow.Slow) -> None:
        finding = make_finding(job, best)
        now_ns = self._clock_ns()
        new = best.cause != watched.told

        def work(c: Connection) -> None:
            if new:
                health_rows.close(c, job.pk, "slow", now_ns)
            health_rows.put(c, job.pk, watched.attempt, "slow", finding, now_ns, now_ns)
            if new:
                data = {key: finding[key] for key in ("cause", "text", "rank")}
                catalog.add_event(c, job.pk, "slow", data, now_ns, attempt=watched.attempt)
                self._tells.put_slow(c, job, finding, now_ns)

        await self._write(work)
        if new:
            log.info("%s is slow: %s", job.id, best.text)
        watched.told = best.cause

    async def _close(self, pk: int, watched: Watched) -> None:
        if watched.told is None:
            return
        watched.told = None
        await self._write(lambda c: health_rows.close(c, pk, "slow", self._clock_ns()))

    async def _write(self, work: Callable[[Connection], Any]) -> None:
        await asyncio.wrap_future(self._store.write(work))

    # -- ranks

    def _plan_ranks(self, job: Job, watched: Watched, slow_otherwise: bool) -> None:
        now_s = self._clock_s()
        last_s = watched.ranks_at_s
        if job.pk in self._bursts or len(self._bursts) >= AT_ONCE or not self._may_lag(job):
            return
        if now_s - watched.begun_s < RANKS_RAN_S:
            return
        again_s = (
            SLOW_RANKS_AGAIN_S / 4 if slow_otherwise or watched.straggler else SLOW_RANKS_AGAIN_S
        )
        if last_s is not None and now_s - last_s < again_s:
            return
        watched.ranks_at_s = now_s
        task = asyncio.create_task(self._burst(job, watched))
        self._bursts[job.pk] = task
        task.add_done_callback(lambda _: self._bursts.pop(job.pk, None))

    def _may_lag(self, job: Job) -> bool:
        """Several ranks, that make steps."""
        pause = self._silences.silence(job.pk)
        alone = job.spec.processes < 2 or job.spec.guest_of is not None
        return not alone and pause is not None and pause.stepped and pause.silent_s <= QUIET_S

    async def _burst(self, job: Job, watched: Watched) -> None:
        try:
            watched.straggler = await self.look_at_ranks(
                job, SLOW_LOOKS, SLOW_LOOK_PAUSE_S, BURST_S_MAX
            )
        except HeadwayError as error:
            log.info("the ranks of %s could not be looked at: %s", job.id, error)
        # one job that cannot be looked at must not keep us from the others
        except Exception:
            log.exception("looked at the ranks of %s in vain", job.id)

    async def look_at_ranks(
        self, job: Job, count: int, pause_s: float, most_s: float
    ) -> slow.Slow | None:
        """The rank that the others wait for; None: there is none, no step was made meanwhile, or it
        takes longer than `most_s` to find out.
        """
        if not self._may_lag(job):
            return None
        begun_s = self._clock_s()
        looks: list[dict[int, str | None]] = []
        for _ in range(count):
            if self._clock_s() - begun_s > most_s:
                break  # a rank that does not answer makes every look long
            _, facts = await self._stacks.collect(job)
            looks.append({rank: one.kind for rank, one in hang.ranks_of(facts).items()})
            await self._sleep(pause_s)
        after = self._silences.silence(job.pk)
        moved_s = max(self._clock_s() - begun_s, 3 * ((after and after.interval_s) or 0.0))
        if after is None or after.silent_s > moved_s:
            return None  # whoever does not wait may be stuck, not slow
        return slow.straggler(looks)


def make_finding(job: Job, one: slow.Slow) -> JsonObject:
    """As `hw why --json` tells it."""
    ref = job.id.rpartition("-")[2]
    advice = " ".join(ref if word == "ID" else word for word in one.advice.split(" "))
    return {
        "cause": one.cause,
        "class": one.cls,
        "confidence": one.confidence,
        "task": None,
        "rank": one.rank,
        "node": one.node,
        "text": one.text,
        "evidence": [{"stream": "usage", "offset": None, "text": text} for text in one.evidence],
        "advice": advice or None,
        "retry": None,
    }

"""Looks after jobs that run: who is silent for too long, whether he hangs, and what is done then.
Started by `serve.py`, beside the loop that runs jobs.

Silence costs nothing to see (`pulse.py`). Only a job that is silent for longer than it usually is
gets its stacks sampled; whether it hangs is decided by `diagnose/hang.py`. A hang is kept with the
job, told to whoever is notified, and answered as `--on-hang` says.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from sqlite3 import Connection
from typing import Any, Protocol

import msgspec

from headway.diagnose.hang import Facts, Pause, Verdict, judge
from headway.model.errors import HeadwayError
from headway.model.job import Job, State
from headway.model.json_types import JsonObject
from headway.model.limits import (
    HANG_AGAIN_MAX_S,
    HANG_LOOK_S,
    HANG_SAMPLE_S,
    HANG_SAMPLES,
)
from headway.server.health.pulse import SIGNS, STEPS, Pulse
from headway.server.health.stack_requests import StackRequests
from headway.store import catalog, health_rows
from headway.store.database import Store

log = logging.getLogger("headway.health")
AT_ONCE = 4  # silent jobs that are looked at closer at the same time
AGAIN_MIN_S = 5.0


class Hands(Protocol):
    """What control does for us."""

    async def load(self, pk: int) -> Job: ...
    async def end_hung(self, job: Job, finding: JsonObject) -> None: ...


class Getter(Protocol):
    def get(self, name: str) -> Any: ...


class Tells(Protocol):
    """Puts a notification into the queue, in the transaction that keeps the finding."""

    def put_hang(self, c: Connection, job: Job, finding: JsonObject, since_ns: int) -> None: ...


class HangWatch:
    def __init__(
        self,
        store: Store,
        stacks: StackRequests,
        control: Hands,
        settings: Getter,
        tells: Tells,
        clock_s: Callable[[], float] = time.monotonic,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._stacks, self._control = store, stacks, control
        self._settings, self._tells = settings, tells
        # the shortest silence that counts; 0: nobody is ever called hung
        self._after_s = 0.0
        self._clock_s, self._clock_ns = clock_s, clock_ns
        self._pulses: dict[int, Pulse] = {}
        self._jobs_changed = True
        self._looking: dict[int, asyncio.Task[None]] = {}
        self._hung: set[int] = set()

    def on_change(self, job: int, what: str) -> None:
        """After each commit, in the store's writer thread."""
        if what == "job":
            self._jobs_changed = True
        elif what in SIGNS:
            pulse = self._pulses.get(job)
            if pulse is not None:
                pulse.hear(self._clock_s(), self._clock_ns(), what in STEPS)

    def silence(self, job: int) -> Pause | None:
        """How long a job that runs has been silent."""
        pulse = self._pulses.get(job)
        return None if pulse is None else pulse.pause(self._clock_s(), self._after_s or 30.0)

    def moving(self, job: int) -> str | None:
        """What moved in a silent job when it was looked at last."""
        pulse = self._pulses.get(job)
        return None if pulse is None or pulse.next_s == 0.0 else pulse.moving

    async def run(self) -> None:
        """Until cancelled."""
        self._after_s = float(self._settings.get("hang.after_s"))
        self._store.listen(self.on_change)
        self._hung = set(await asyncio.to_thread(self._read, health_rows.open_jobs, "hang"))
        try:
            while True:
                try:
                    await self._look()
                # a mistake in one look must not end the watching for good
                except Exception as error:
                    log.warning("looked in vain: %s", error, exc_info=True)
                await asyncio.sleep(HANG_LOOK_S)
        finally:
            for task in self._looking.values():
                task.cancel()

    # -- looking

    async def _look(self) -> None:
        if self._jobs_changed:
            self._jobs_changed = False
            await self._meet()
        now_s = self._clock_s()
        for job in [job for job in self._hung if job not in self._looking]:
            pulse = self._pulses.get(job)
            if pulse is None or pulse.next_s == 0.0:  # gone, or it has given a sign
                await self._close(job)
        if not self._after_s:
            return
        lead_s = (HANG_SAMPLES - 1) * HANG_SAMPLE_S
        for job, pulse in list(self._pulses.items()):
            if job in self._looking or now_s < pulse.next_s or len(self._looking) >= AT_ONCE:
                continue
            pause = pulse.pause(now_s, self._after_s)
            # the samples take their time, and then it has been silent for long enough
            if pause.silent_s >= pause.limit_s() - lead_s:
                task = asyncio.create_task(self._look_closer(job, pulse))
                self._looking[job] = task
                task.add_done_callback(partial(self._looked, job))

    def _looked(self, job: int, _: "asyncio.Task[None]") -> None:
        self._looking.pop(job, None)

    async def _meet(self) -> None:
        """Jobs that have begun to run, or run no more."""
        running = await asyncio.to_thread(self._read, health_rows.running)
        now_s = self._clock_s()
        now_ns = self._clock_ns()
        for job, (attempt, average_s) in running.items():
            known = self._pulses.get(job)
            if known is not None and known.attempt == attempt:
                continue
            if known is not None:
                await self._close(job)  # what was found was the attempt before
            pulse = Pulse(attempt, now_s, now_ns)
            pulse.average_s = average_s
            if job in self._hung:  # found by the server before us; it is looked at anew
                pulse.next_s = now_s
            self._pulses[job] = pulse

        for job in [job for job in self._pulses if job not in running]:
            del self._pulses[job]
        for job in [job for job in self._hung if job not in running]:
            await self._close(job)

    def _read(self, work: Callable[..., Any], *args: object) -> Any:
        with self._store.read() as c:
            return work(c, *args)

    async def _look_closer(self, pk: int, pulse: Pulse) -> None:
        try:
            await self._sample(pk, pulse)
        except HeadwayError as error:
            log.info("job %s is silent, and could not be looked at: %s", pk, error)
            pulse.next_s = self._clock_s() + HANG_AGAIN_MAX_S
        # one job that cannot be looked at must not keep us from the others
        except Exception:
            log.exception("looked at job %s in vain", pk)
            pulse.next_s = self._clock_s() + HANG_AGAIN_MAX_S

    async def _sample(self, pk: int, pulse: Pulse) -> None:
        job = await self._control.load(pk)
        if job.state is not State.RUNNING or not job.attempts:
            return
        sign_s = pulse.sign_s
        samples: list[Facts] = []
        request = 0
        verdict = Verdict(moving="not looked at yet")
        for number in range(HANG_SAMPLES):
            if number:
                await asyncio.sleep(HANG_SAMPLE_S)
            if pulse.sign_s != sign_s:
                return  # it has given a sign meanwhile
            request, facts = await self._stacks.collect(job)
            samples.append(facts)
            if number == 0:
                continue
            verdict = judge(samples, pulse.pause(self._clock_s(), self._after_s))
            if verdict.moving is not None:
                break
        now_s = self._clock_s()
        if pulse.sign_s != sign_s or self._pulses.get(pk) is not pulse:
            return
        pause = pulse.pause(now_s, self._after_s)
        if verdict.moving is not None:
            log.info(
                "%s is silent for %.0f s, and moves: %s", job.id, pause.silent_s, verdict.moving
            )
            pulse.moving = verdict.moving
            pulse.next_s = now_s + min(HANG_AGAIN_MAX_S, max(AGAIN_MIN_S, pause.silent_s / 4))
            if pk in self._hung:
                await self._close(pk)
            return
        pulse.next_s, pulse.moving = now_s + HANG_AGAIN_MAX_S, None
        await self._keep(job, pulse, pause, verdict, request)

    # -- telling

    async def _keep(
        self, job: Job, pulse: Pulse, pause: Pause, verdict: Verdict, request: int
    ) -> None:
        finding = make_finding(job, pause, verdict)
        now_ns = self._clock_ns()
        since_ns = now_ns - int(pause.silent_s * 1e9)

        def work(c: Connection) -> bool:
            new = health_rows.put(
                c, job.pk, pulse.attempt, "hang", finding, since_ns, now_ns, request
            )
            if new:
                data = {key: finding[key] for key in ("cause", "text", "rank")}
                catalog.add_event(
                    c, job.pk, "hung", data, now_ns, attempt=pulse.attempt, what="facts"
                )
                self._tells.put_hang(c, job, finding, since_ns)
            return new

        self._hung.add(job.pk)
        if await asyncio.wrap_future(self._store.write(work)):
            log.warning("%s is hung: %s", job.id, finding["text"])
            if job.spec.on_hang in ("stop", "restart"):
                await self._control.end_hung(job, finding)

    async def _close(self, job: int) -> None:
        self._hung.discard(job)
        now_ns = self._clock_ns()
        with contextlib.suppress(HeadwayError):
            await asyncio.wrap_future(
                self._store.write(lambda c: health_rows.close(c, job, "hang", now_ns))
            )


def make_finding(job: Job, pause: Pause, verdict: Verdict) -> JsonObject:
    """As `hw why --json` tells it."""
    ref = job.id.rpartition("-")[2]
    rank = verdict.rank
    look = f"hw stacks {ref}" if rank is None else f"hw stacks {ref} --rank {rank}"
    again = f"hw abort {ref} && hw resubmit {ref}"
    return {
        "cause": verdict.cause,
        "class": verdict.cls,
        "confidence": verdict.confidence,
        "task": _task_of(job, rank),
        "rank": rank,
        "node": _node_of(job, rank),
        "text": verdict.text,
        "evidence": [
            {"stream": "stacks", "offset": None, "text": text} for text in verdict.evidence
        ],
        "advice": f"{look} · {again}",
        "retry": None,
        "interval_s": pause.interval_s,
        "last_sign_ns": pause.last_sign_ns,
        "last_step_ns": pause.last_step_ns,
        "odd": verdict.merged.odd if verdict.merged else [],
        "groups": msgspec.to_builtins(verdict.merged.groups[:8]) if verdict.merged else [],
    }


def _task_of(job: Job, rank: int | None) -> str | None:
    for task in job.attempts[-1].tasks:
        if rank is not None and any(process.rank == rank for process in task.processes):
            return task.name
    return None


def _node_of(job: Job, rank: int | None) -> str | None:
    name = _task_of(job, rank)
    return next((task.node for task in job.attempts[-1].tasks if task.name == name), None)

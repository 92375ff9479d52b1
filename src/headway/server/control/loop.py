"""The one loop that turns stored state and observations into writes and engine calls: read, observe,
decide (`reconcile`, pure), execute. Started by `control.py`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence

from headway.engines.protocol import Engine
from headway.model.errors import HeadwayError
from headway.model.job import Job, JobSpec
from headway.model.limits import JOBS_OPEN_MAX, QUEUE_WINDOW, QUEUE_WINDOW_WIDE
from headway.server.control import engine_calls, loop_timing, reconcile
from headway.server.control.batch_start import Starts
from headway.server.control.context import Context
from headway.server.control.drain import Drain, is_over
from headway.server.control.executor import Executor
from headway.server.control.loop_timing import IDLE_INTERVAL_S, INTERVAL_S, Quiet
from headway.server.control.observer import Observer
from headway.server.control.reconcile import Action, NewAttempt
from headway.settings.clusters import HERE
from headway.store import catalog

log = logging.getLogger("headway.control")

# after a look, or as long as it read and thought: many commits are one look, others get their turn
PAUSE_S = 0.002
DRAINS_LATER_MAX = 16  # tasks that are over and are looked at when there is nothing else to do


class Loop:
    def __init__(
        self,
        context: Context,
        observer: Observer,
        executor: Executor,
        starts: Starts,
        drain: Drain,
    ) -> None:
        self._context = context
        self._store, self._paths, self._settings = context.store, context.paths, context.settings
        self._calls, self._engines = context.calls, context.engines
        self._clock_ns, self._clock_s = context.clock_ns, context.clock_s
        self._wakeup = context.wakeup
        self._observer, self._executor = observer, executor
        self._starts, self._drain = starts, drain
        self._task: asyncio.Task[None] | None = None
        self._idle, self._rest_for_s = False, INTERVAL_S
        self._thought_s = 0.0  # how long the last look read and thought; doing is mostly waiting
        self._window = QUEUE_WINDOW
        self.is_full = False  # as many jobs run here as may, so that a new one changes nothing
        self._quiet = Quiet()

    # -- life of the loop

    async def start(self) -> None:
        """Look at every open job once, then go on looking."""
        self._wakeup.loop = asyncio.get_running_loop()
        self._store.listen(self.on_change)
        await self.prepare()
        self._task = asyncio.create_task(self._run(), name="headway-control")

    async def prepare(self) -> None:
        """What comes before the first look."""
        # also without open jobs: spools of jobs that are over are looked for there
        self._engines.get(JobSpec([], "/", HERE, cluster=HERE))
        await self._calls.run("files", engine_calls.sweep_private, self._store, self._paths.env)

    async def stop(self) -> None:
        """End the loop; jobs go on."""
        self._context.mailbox.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(HeadwayError):
            await self._executor.later.settle()
            await self._observer.flush()
        self._wakeup.loop = None
        self._engines.close()
        self._calls.close()

    def on_change(self, job_pk: int, what: str) -> None:
        """What agents tell. What the loop itself and the verbs write they know, and say so where a
        look follows.
        """
        if what in ("facts", "job"):
            self._quiet.note(job_pk)
        if what == "facts":
            self._context.poke()

    def poke_for(self, engine: Engine) -> None:
        """A job is new. Where it could not start in any case, whoever makes room for it wakes the
        loop.
        """
        if engine.queues or not self.is_full:
            self._context.poke()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except HeadwayError as error:
                log.warning("looked in vain: %s", error)
            # a mistake in one look must not end the loop: jobs would then wait for ever
            except Exception:
                log.exception("a look failed")
            await asyncio.sleep(min(max(self._thought_s, PAUSE_S), INTERVAL_S))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._wakeup.event.wait(), IDLE_INTERVAL_S if self._idle else self._rest_for_s
                )

    async def look(self) -> None:
        """One round: read, observe, decide, execute."""
        self._wakeup.event.clear()
        look_s = self._executor.look_s = self._clock_s()
        self.is_full = False
        await self._executor.take_started()
        skip = self._quiet.left_out(look_s, self._calls.has_late)
        jobs = await self._calls.run("the store", self.open_jobs, skip)
        self._starts.withdraw(
            {a.key for job in jobs if job.stop_requested_ns is not None for a in job.attempts}
        )
        self._idle = not skip and all(is_over(job) for job in jobs) and self._drain.idle
        observations = await self._observer.observe(jobs)
        if any(observation.state == "gone" for observation in observations.values()):
            # A spool goes only after everything in it was committed. So what is read after the
            # engine has looked tells whether a task is gone because it has ended, or because it
            # never was (P9).
            jobs = await self._calls.run("the store", self.open_jobs, skip)
        seen = await self._observer.seen(jobs, observations)
        by_pk = {job.pk: job for job in jobs}
        actions = reconcile.decide(jobs, seen)
        self._widen(jobs, actions)
        self._quiet.settle(jobs, actions, seen.queues)
        self.is_full = loop_timing.is_full(jobs, actions, seen.queues, seen.max_running)
        rest_s = loop_timing.pause_s(jobs, actions, self._engines.get_or_none)
        self._rest_for_s = rest_s if self._drain.idle else min(rest_s, self._drain.pause_s())
        self._thought_s = self._clock_s() - look_s
        await self._executor.act(await self._executor.end_waiting(actions, by_pk), by_pk)
        if not self._wakeup.event.is_set() or self._drain.count > DRAINS_LATER_MAX:
            self._executor.end_tokens(
                await self._drain.step(self._engines.by_place, self._engines.get_or_none)
            )
        if loop_timing.goes_on(jobs, actions, seen.queues, full=self.is_full):
            self._wakeup.event.set()
        await self._observer.flush_if_due()

    def open_jobs(self, skip: Collection[int] = ()) -> list[Job]:
        """Those that are ours to run; what another machine runs is only shown here (`guests.py`)."""
        with self._store.read() as c:
            wide = {engine.name for engine in self._engines.by_place.values() if engine.queues}
            found = catalog.open_jobs(c, self._window, wide, QUEUE_WINDOW_WIDE, skip)
            return [job for job in found if job.spec.guest_of is None]

    def _widen(self, jobs: Sequence[Job], actions: Sequence[Action]) -> None:
        """Where nothing in the part of the queue that was read can start, read more of it the next
        time.
        """
        started = any(isinstance(action, NewAttempt) for action in actions)
        waiting = sum(1 for job in jobs if not job.attempts)
        least = max(QUEUE_WINDOW, 2 * int(self._settings.get("max_running")))
        if started or waiting < self._window:
            self._window = least
        elif sum(1 for job in jobs if job.attempts) < self._settings.get("max_running"):
            self._window = min(4 * self._window, JOBS_OPEN_MAX)

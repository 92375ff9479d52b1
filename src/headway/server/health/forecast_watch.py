"""Writes down when waiting jobs are likely to start, so that it can be said how often that was right.
Started by `serve.py`.

Only the first forecast of a job counts. Few are made in one look: an engine may have to ask its
scheduler for each.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from sqlite3 import Connection
from typing import Protocol

from headway.engines.protocol import Waiting
from headway.model.errors import HeadwayError
from headway.model.job import Job, State
from headway.model.limits import FORECAST_AFTER_S, FORECAST_LOOK_S, FORECASTS_LOOK_MAX
from headway.store import catalog, forecast_rows
from headway.store.database import Store

log = logging.getLogger("headway.health")


class Explains(Protocol):
    async def explain(self, job: Job) -> Waiting: ...


class ForecastWatch:
    def __init__(
        self,
        store: Store,
        control: Explains,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._control, self._clock_ns = store, control, clock_ns

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(FORECAST_LOOK_S)
            try:
                await self.look()
            # a mistake in one look must not end the watching for good
            except Exception as error:
                log.warning("could not forecast: %s", error, exc_info=True)

    async def look(self) -> None:
        for job in await asyncio.to_thread(self._waiting):
            try:
                found = await self._control.explain(job)
            except HeadwayError as error:
                log.info("%s: no forecast: %s", job.id, error)
                continue
            if found.start_ns is not None:
                await self._keep(job, found.start_ns)

    def _waiting(self) -> list[Job]:
        """Jobs that have waited for a while and have no forecast yet, the oldest first."""
        before_ns = self._clock_ns() - int(FORECAST_AFTER_S * 1e9)
        with self._store.read() as c:
            rows = c.execute(
                """SELECT pk FROM jobs WHERE state = :waiting AND ended_ns IS NULL AND deleted_ns IS NULL
                     AND submitted_ns < :before AND started_ns IS NULL
                     AND NOT EXISTS (SELECT 1 FROM forecasts f WHERE f.job = jobs.pk)
                   ORDER BY submitted_ns LIMIT :n""",
                {"waiting": str(State.WAITING), "before": before_ns, "n": FORECASTS_LOOK_MAX},
            ).fetchall()
            return [catalog.load_job(c, row["pk"]) for row in rows]

    async def _keep(self, job: Job, told_ns: int) -> None:
        now_ns = self._clock_ns()

        def work(c: Connection) -> None:
            _, _, factor = forecast_rows.history(c, job.spec.place)
            raw_ns = now_ns + int((told_ns - now_ns) / factor)
            forecast_rows.put(c, job.pk, job.spec.place, now_ns, raw_ns, told_ns)

        await asyncio.wrap_future(self._store.write(work))

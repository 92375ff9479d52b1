"""Starts that are handed over to an engine (server/control/batch_start.py): the loop goes on while
a scheduler takes its time.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import EngineId, Given, Observation, Start
from headway.model import folder_names
from headway.model.errors import HeadwayError, UnreachableError
from headway.model.job import State
from headway.server.control import batch_start, drain, env_file
from tests.unit.control_bench import Bench, HandEngine, in_loop

AWAY = UnreachableError("sbatch did not answer within 30 s")


class Scheduler(HandEngine):
    """Takes many starts with one call, which lasts until `gate` opens."""

    name, queues = "slurm", True

    def __init__(self) -> None:
        super().__init__("lab")
        self.calls: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.away: HeadwayError | None = None
        self.tray: Path | None = Path("/trays")

    def readdress(self, tls: object) -> int:
        return 0

    def submit_many(self, starts: Sequence[Start]) -> dict[str, EngineId | HeadwayError]:
        self.calls.append([one.key for one in starts])
        self.gate.wait(60)
        if self.away is not None:
            return dict.fromkeys([one.key for one in starts], self.away)
        return {one.key: self.submit(one.plan, one.key, one.given) for one in starts}

    def cancel_many(self, ids: Sequence[EngineId]) -> list[EngineId]:
        self.gate.wait(60)
        if self.away is not None:
            raise self.away
        return []

    def given(self, uuid: str) -> Given:
        return self.started[f"{uuid}-1"]


def with_scheduler(bench: Bench) -> Scheduler:
    """The bench has the cluster `lab` beside its own machine, and no call is given up by the clock."""
    bench.others["lab"] = lab = Scheduler()
    bench.control._calls._timeout_s = 3600.0
    return lab


async def until(bench: Bench, is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        await bench.look()
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


def is_known(bench: Bench, *jobs: Any) -> bool:
    return all(
        one.attempts and one.attempts[0].engine_id for one in (bench.job(job.pk) for job in jobs)
    )


@in_loop
async def test_while_a_scheduler_takes_its_time_other_jobs_start_and_end(bench: Bench) -> None:
    lab = with_scheduler(bench)
    lab.gate.clear()
    waiting = [await bench.submit(cluster="lab") for _ in range(3)]
    await bench.look()
    here = await bench.submit()
    await bench.look(2)
    assert f"{here.uuid}-1" in bench.engine.started and not lab.started
    await bench.run_to_end(here)
    assert bench.job(here.pk).state is State.SUCCEEDED
    assert [bench.job(job.pk).state for job in waiting] == [State.WAITING] * 3
    lab.gate.set()
    await until(bench, lambda: is_known(bench, *waiting))
    assert sorted(lab.submits) == sorted(f"{job.uuid}-1" for job in waiting)


@in_loop
async def test_once_a_scheduler_is_away_it_is_not_asked_for_each_and_later_gets_all_of_them_once(
    bench: Bench,
) -> None:
    lab = with_scheduler(bench)
    lab.away = AWAY
    jobs = [await bench.submit(cluster="lab") for _ in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_start, "STARTS_PORTION_MAX", 1)
        await until(bench, lambda: bool(lab.calls))
        await bench.look(2)
    assert len(lab.calls) < 5 and not lab.started
    lab.away = None
    bench.now_s += 120
    await until(bench, lambda: is_known(bench, *jobs))
    assert sorted(lab.submits) == sorted(f"{job.uuid}-1" for job in jobs)
    assert all(bench.token_is_open(job, lab) for job in jobs)


@in_loop
async def test_a_start_of_which_an_engine_says_nothing_is_found_or_tried_again(
    bench: Bench,
) -> None:
    lab = with_scheduler(bench)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            lab, "submit_many", lambda starts: lab.calls.append([one.key for one in starts]) or {}
        )
        job = await bench.submit(cluster="lab")
        await until(bench, lambda: bool(lab.calls))
        await bench.look(2)
    bench.now_s += 120
    await until(bench, lambda: is_known(bench, job))
    assert lab.submits == [f"{job.uuid}-1"]


@in_loop
async def test_a_job_that_shall_stop_before_its_turn_never_starts(bench: Bench) -> None:
    lab = with_scheduler(bench)
    lab.gate.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_start, "STARTS_PORTION_MAX", 1)
        patch.setattr(batch_start, "STARTS_PORTIONS_MAX", 1)
        first, second = [await bench.submit(cluster="lab") for _ in range(2)]
        await bench.look()
        await bench.control.abort(second.pk)
        await until(bench, lambda: bench.job(second.pk).state is State.STOPPED)
        lab.gate.set()
        await until(bench, lambda: is_known(bench, first))
    assert lab.submits == [f"{first.uuid}-1"]


@in_loop
async def test_a_server_killed_while_a_scheduler_takes_a_start_finds_it_or_starts_it_once(
    bench: Bench,
) -> None:
    """F23: what was started is found by its key; the others get tokens that the next server knows."""
    lab = with_scheduler(bench)
    lab.away = AWAY
    jobs = [await bench.submit(cluster="lab") for _ in range(4)]
    await until(bench, lambda: bool(lab.calls))
    lab.away = None
    await bench.restart()
    await until(bench, lambda: is_known(bench, *jobs))
    assert sorted(lab.submits) == sorted(f"{job.uuid}-1" for job in jobs)
    assert all(bench.token_is_open(job, lab) for job in jobs)


@in_loop
async def test_jobs_that_start_together_are_told_where_the_server_is_if_it_can_be_reached_from_there(
    bench: Bench,
) -> None:
    lab = with_scheduler(bench)
    told = {"addresses": ["192.0.2.1:1"], "pin": "00", "host": "headway"}

    async def reach() -> dict[str, Any]:
        return told

    bench.control.be_reached(reach)
    seen = [await bench.submit(cluster="lab") for _ in range(2)]
    await until(bench, lambda: is_known(bench, *seen))
    lab.tray = None
    unseen = [await bench.submit(cluster="lab") for _ in range(2)]
    await until(bench, lambda: is_known(bench, *unseen))
    assert [lab.given(job.uuid).tls for job in (*seen, *unseen)] == [told, told, None, None]


@in_loop
async def test_keys_that_are_none_fail_their_own_job_only(bench: Bench) -> None:
    with_scheduler(bench)
    bad, good = [await bench.submit(cluster="lab", env={"A": "1"}) for _ in range(2)]
    private = env_file.Private({folder_names.KEYS: "no mapping"}, ["true"])
    env_file.save(bench.paths.env, bad.uuid, private)
    await until(bench, lambda: is_known(bench, good) and bench.job(bad.pk).state is State.FAILED)


@in_loop
async def test_many_stops_wait_for_no_scheduler_that_is_away(bench: Bench) -> None:
    lab = with_scheduler(bench)
    jobs = [await bench.submit(cluster="lab") for _ in range(4)]
    await until(bench, lambda: is_known(bench, *jobs))
    lab.away = AWAY
    for job in jobs:
        await bench.control.abort(job.pk)
    await bench.look()
    # one question has shown that nobody is there; agents are told by themselves
    assert lab.cancelled == []
    lab.away = None
    await until(bench, lambda: len(lab.cancelled) >= len(jobs))


@in_loop
async def test_a_thousand_that_end_at_once_are_tidied_up_some_at_each_look(bench: Bench) -> None:
    lab = with_scheduler(bench)
    jobs = [await bench.submit(cluster="lab") for _ in range(4)]
    await until(bench, lambda: is_known(bench, *jobs))
    gone = Observation("gone", "CANCELLED", {"started": False})
    lab.states = {f"{job.uuid}-1-worker-0": gone for job in jobs}
    for job in jobs:
        await bench.control.abort(job.pk)

    def discard(engine_id: EngineId) -> None:
        lab.discarded.append(engine_id)
        bench.now_s += drain.STEP_S

    lab.discard = discard  # type: ignore[method-assign]
    await until(bench, lambda: bool(lab.discarded))
    assert len(lab.discarded) < len(jobs)
    await until(bench, lambda: len(lab.discarded) == len(jobs))

"""The look at slow jobs: bounded in time, told after two looks that agree, ended likewise."""

import asyncio
from pathlib import Path
from typing import Any

from headway.diagnose.hang import Pause
from headway.home.paths import Paths
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.health.slow_watch import SlowWatch
from headway.store.database import Store
from tests.unit.test_hang import IN_REDUCE, MODULE, sample


class Parts:
    """All that the watch asks, by hand. Each look at ranks takes `look_s`."""

    def __init__(self, look_s: float) -> None:
        self.now_s, self.look_s, self.looks = 100.0, look_s, 0
        spec = JobSpec(["python"], "/", "train", processes=2)
        self.job = Job(1, "train-abcde", "u", spec, State.RUNNING, 0, 0)
        self.job.attempts.append(Attempt(1, State.RUNNING, "u-1"))

    async def load(self, pk: int) -> Job:
        return self.job

    async def collect(self, job: Job) -> tuple[int, Any]:
        self.now_s += self.look_s
        self.looks += 1
        return 1, sample(self.looks, {0: IN_REDUCE, 1: [("/code/model.py", 12, "forward"), MODULE]})

    def silence(self, job: int) -> Pause:
        return Pause(silent_s=0.1, least_s=30.0, interval_s=0.5, stepped=True)

    def get(self, name: str) -> Any:
        return 30.0

    def put_slow(self, *_: Any) -> None: ...

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def watch(home: Path, parts: Parts) -> SlowWatch:
    store = Store(Paths(home))
    return SlowWatch(
        store, parts, parts, parts, parts, parts, clock_s=lambda: parts.now_s, sleep=parts.sleep
    )


def test_ranks_that_answer_are_looked_at_often_and_the_slow_one_is_named(home: Path) -> None:
    parts = Parts(0.04)
    found = asyncio.run(watch(home, parts).look_at_ranks(parts.job, 25, 0.05, 3.0))
    assert parts.looks == 25 and found is not None and found.rank == 1


def test_ranks_that_do_not_answer_hold_nobody_up(home: Path) -> None:
    parts = Parts(3.0)
    found = asyncio.run(watch(home, parts).look_at_ranks(parts.job, 25, 0.05, 3.0))
    assert parts.looks == 1 and found is None

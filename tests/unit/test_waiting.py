"""Why a job waits in the queue of this server (server/waiting.py)."""

from typing import Any

from headway.engines.protocol import Node
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.waiting import explain

NODE = Node("box", 8, 64 << 30, 4)


def job(pk: int, running: bool = False, **spec: Any) -> Job:
    made = Job(pk, f"job-{pk:05d}", f"u{pk}", JobSpec(["true"], "/", "job", **spec), State.WAITING, pk, pk)
    if running:
        made.attempts.append(Attempt(1, State.RUNNING, f"u{pk}-1"))
    return made


def test_the_limit_of_running_jobs_is_named() -> None:
    told = explain(job(9), [job(1, True), job(2, True)], [NODE], 2)
    assert told.reason == "2 jobs run, and at most 2 may (max_running)"


def test_what_is_short_is_named_with_what_is_free() -> None:
    told = explain(job(9, gpus=3), [job(1, True, gpus=2)], [NODE], 8)
    assert told.reason == "it asks for 3 GPUs, and 2 are free"
    assert told.free[0].gpus == 2


def test_those_ahead_are_named_in_their_order_and_not_those_behind() -> None:
    jobs = [job(3), job(2, priority=5), job(9), job(12)]
    told = explain(jobs[2], jobs, [NODE], 8)
    assert told.ahead == ("job-00002", "job-00003")


def test_a_job_that_nothing_holds_back_is_about_to_start() -> None:
    assert explain(job(9), [job(9)], [NODE], 8).reason == "it is about to start"

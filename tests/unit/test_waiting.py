"""Why a job waits in the queue of this server (server/control/waiting.py)."""

from typing import Any

from headway.engines.protocol import Node
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.control.waiting import explain

NODE = Node("box", 8, 64 << 30, 4)


def job(pk: int, running: bool = False, **spec: Any) -> Job:
    made = Job(
        pk, f"job-{pk:05d}", f"u{pk}", JobSpec(["true"], "/", "job", **spec), State.WAITING, pk, pk
    )
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


def test_a_job_that_waits_for_another_says_which_and_is_ahead_of_nobody() -> None:
    after = job(3, after=["u1"])
    jobs = [job(1, True), after, job(9)]
    needed = {"u1": ("first-00001", State.RUNNING)}
    told = explain(after, jobs, [NODE], 1, needed)
    assert (told.reason, told.ahead) == ("it starts when first-00001 (running) has succeeded", ())
    assert explain(jobs[2], jobs, [NODE], 1, needed).ahead == ()
    done = explain(after, jobs, [NODE], 1, {"u1": ("first-00001", State.SUCCEEDED)})
    assert done.reason == "1 job runs, and at most 1 may (max_running)"


def test_the_time_of_the_next_try_is_told_and_a_job_between_two_takes_no_place() -> None:
    again = job(2)
    retry = {"do": "retry", "text": "retry 1 of 3", "not_before_ns": 20_000_000_000}
    again.attempts.append(Attempt(1, State.FAILED, "u2-1", retry=retry))
    assert (
        explain(again, [again], [NODE], 8, now_ns=8_000_000_000).reason
        == "attempt 2 is due in 12s: retry 1 of 3"
    )
    assert (
        explain(again, [again], [NODE], 8, now_ns=20_000_000_000).reason == "it is about to start"
    )
    other = explain(job(9), [again], [NODE], 1, now_ns=8_000_000_000)
    assert (other.reason, other.ahead) == ("it is about to start", ())


def test_what_runs_where_an_engine_has_its_own_queue_does_not_count_here() -> None:
    far = job(1, True, cluster="lab", definition={"engine": "slurm"})
    assert (
        explain(job(9), [far], [NODE], 1, queues=[far.spec.place]).reason == "it is about to start"
    )

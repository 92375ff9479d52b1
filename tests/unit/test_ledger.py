"""Where the time of a job went: the parts add up, and nothing is guessed."""

from typing import Any

import pytest

from headway.diagnose.ledger import Ledger, Used, add, enough, make
from headway.model.job import Attempt, Job, JobSpec, State

S = 10**9


def job(attempts: list[Attempt], ended_s: int | None = None, **asked: Any) -> Job:
    spec = JobSpec(["python"], "/", "train", **asked)
    made = Job(1, "train-abcde", "u", spec, State.RUNNING, 0, 0)
    made.submitted_ns, made.attempts = 0, attempts
    made.ended_ns = None if ended_s is None else ended_s * S
    return made


def attempt(number: int, begun_s: int, ended_s: int | None) -> Attempt:
    ended_ns = None if ended_s is None else ended_s * S
    return Attempt(number, State.RUNNING, f"u-{number}", started_ns=begun_s * S, ended_ns=ended_ns)


def test_the_parts_add_up_to_the_whole() -> None:
    hang = {"kind": "hang", "attempt": 2, "since_ns": 70 * S, "until_ns": None}
    ledger = make(
        job([attempt(1, 10, 30), attempt(2, 35, None)]), 100 * S, {2: 45 * S}, [hang], [], Used()
    )
    assert ledger.parts == {
        "waiting": 15.0, "start-up": 10.0, "hung": 30.0, "lost to retries": 20.0, "running": 25.0,
    }  # fmt: skip
    assert sum(ledger.parts.values()) == ledger.total_s == 100.0


def test_what_the_program_times_is_told_and_never_more_than_there_was() -> None:
    rows = [{"name": "load_batch", "rank": r, "count": 10, "mean_s": 3.0} for r in (0, 1)]
    rows += [{"name": "validate", "rank": r, "count": 1, "mean_s": 10.0} for r in (0, 1)]
    one = job([attempt(1, 0, 60)], 60)
    ledger = make(one, 0, {1: 0}, [], rows, Used())
    assert ledger.parts == {"data": 30.0, "evaluation": 10.0, "running": 20.0}
    rows[0]["mean_s"] = rows[1]["mean_s"] = 30.0
    assert sum(make(one, 0, {1: 0}, [], rows, Used()).parts.values()) == pytest.approx(60.0)


def test_a_job_that_never_started_has_only_waited() -> None:
    assert make(job([]), 50 * S, {}, [], [], Used()).parts == {"waiting": 50.0}


def test_the_request_that_would_have_been_enough() -> None:
    one = job([], memory_bytes=64 << 30, cpus=8)
    memory, cores = enough(one, Used(memory_bytes=11 << 30, cores=2.1))
    assert "asked for 64.0 GiB" in memory and "--memory 14080MiB" in memory
    assert cores == "asked for 8 cores, used 2.1 at most: --cpus 3 would have been enough"
    (fits,) = enough(job([], cpus=2), Used(cores=1.9))
    assert "enough" not in fits


def test_an_experiment_is_the_sum_of_its_jobs() -> None:
    both = add([Ledger(10.0, {"waiting": 10.0}), Ledger(5.0, {"waiting": 1.0, "running": 4.0})])
    assert both.total_s == 15.0 and both.parts == {"waiting": 11.0, "running": 4.0}

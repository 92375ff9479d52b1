"""How long the server's loop rests (server/control/loop_timing.py)."""

from typing import Any

import pytest

from headway.engines.protocol import Engine
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.control.drain import Backoff
from headway.server.control.loop_timing import (
    IDLE_INTERVAL_S,
    INTERVAL_S,
    Quiet,
    goes_on,
    is_full,
    pause_s,
)
from headway.server.control.reconcile import Again, Cancel, NewAttempt, SetState


class Scheduler:
    def __init__(self, due_s: float) -> None:
        self._due_s = due_s

    def due_s(self) -> float:
        return self._due_s


def job(state: State = State.WAITING, engine_id: str | None = "17", **values: Any) -> Job:
    made = Job(1, "job-00001", "u1", JobSpec(["true"], "/", "job"), state, 0, 0, **values)
    made.attempts.append(Attempt(1, state, "u1-1", engine_id=engine_id))
    return made


def pause(engine: Any, *jobs: Job, actions: Any = ()) -> float:
    found: Engine | None = engine
    return pause_s(jobs, actions, lambda _: found)


@pytest.mark.parametrize(
    ("due_s", "rests_s"),
    [(0.0, INTERVAL_S), (0.4, INTERVAL_S), (3.0, 3.0), (15.0, IDLE_INTERVAL_S)],
)
def test_jobs_of_a_scheduler_are_looked_at_as_often_as_it_is_asked(
    due_s: float, rests_s: float
) -> None:
    assert pause(Scheduler(due_s), job(), job(State.RUNNING)) == rests_s


def test_something_that_is_about_to_happen_is_looked_for_each_second() -> None:
    slow = Scheduler(15.0)
    assert pause(slow, job(), job(engine_id=None)) == INTERVAL_S
    assert pause(slow, job(), job(stop_requested_ns=5)) == INTERVAL_S
    assert pause(slow, job(), job(State.STOPPING)) == INTERVAL_S
    assert pause(slow, job(), job(State.UNKNOWN)) == INTERVAL_S
    assert pause(slow, job(), actions=[Cancel(1, 1)]) == INTERVAL_S
    assert pause(object(), job()) == INTERVAL_S  # an engine without a queue of its own
    assert (
        pause(slow, Job(1, "job-00001", "u1", JobSpec(["true"], "/", "job"), State.WAITING, 0, 0))
        == INTERVAL_S
    )


def waiting(pk: int, cluster: str = "here", **spec: Any) -> Job:
    made = JobSpec(["true"], "/", "job", cluster=cluster, **spec)
    return Job(pk, f"job-0000{pk}", f"u{pk}", made, State.WAITING, 0, 0)


def over(pk: int) -> SetState:
    return SetState(pk, 1, State.SUCCEEDED, 5, ended_ns=5)


def test_the_machine_is_full_when_as_many_run_after_a_look_as_may() -> None:
    running, new = job(State.RUNNING), waiting(2)
    assert not is_full([running, new], [], (), 2)
    assert is_full([running, new], [NewAttempt(2, 1)], (), 2)
    assert not is_full([running, new], [over(1), NewAttempt(2, 1)], (), 2)
    assert not is_full(
        [running, waiting(2, "lab")], [NewAttempt(2, 1)], {waiting(2, "lab").spec.place}, 2
    )


def test_the_loop_goes_on_at_once_only_where_more_can_be_done() -> None:
    lab = waiting(2, "lab")
    assert not goes_on([job(State.RUNNING)], [over(1)], (), full=False)
    assert goes_on([job(State.RUNNING), waiting(2, after=["u1"])], [over(1)], (), full=True)
    assert not goes_on([waiting(2)], [NewAttempt(2, 1)], (), full=True)
    # there may be more behind what was read
    assert goes_on([waiting(2)], [NewAttempt(2, 1)], (), full=False)
    assert goes_on([lab], [NewAttempt(2, 1)], {lab.spec.place}, full=True)
    assert goes_on([job(State.RUNNING)], [Again(1, 1, over(1), {"text": "t"})], (), full=True)


QUEUED = JobSpec(["true"], "/", "job", cluster="lab")


def queued(pk: int, engine_id: str | None = "17", spec: JobSpec = QUEUED) -> Job:
    made = Job(pk, f"job-0000{pk}", f"u{pk}", spec, State.WAITING, 0, 0)
    made.attempts.append(Attempt(1, State.WAITING, f"u{pk}-1", engine_id=engine_id))
    return made


def test_a_look_leaves_out_what_lies_in_a_schedulers_queue_unless_it_has_changed_or_a_second_has_passed() -> (
    None
):
    quiet = Quiet()
    assert quiet.left_out(100.0, False) == set()
    here = queued(4, spec=JobSpec(["true"], "/", "job"))
    quiet.settle(
        [queued(1), queued(2), queued(3, engine_id=None), here, queued(5)], [Cancel(5, 1)], {"lab"}
    )
    quiet.note(2)
    assert quiet.left_out(100.5, False) == {1}
    quiet.settle([queued(2)], [], {"lab"})
    assert quiet.left_out(100.9, False) == {1, 2}
    assert quiet.left_out(100.0 + INTERVAL_S, False) == set()


def test_a_late_answer_is_for_all_jobs_so_all_are_looked_at() -> None:
    quiet = Quiet()
    quiet.left_out(100.0, False)
    quiet.settle([queued(1)], [], {"lab"})
    assert quiet.left_out(100.1, True) == set()


def test_what_only_waits_for_an_answer_is_looked_at_soon_and_is_no_failure() -> None:
    retry = Backoff(1.0, 30.0)
    for now_s in (0.0, 10.0, 20.0):
        retry.soon("job", now_s)
        assert not retry.is_due("job", now_s) and retry.is_due("job", now_s + 0.25)
    retry.again("job", 30.0, "it is away")
    # the first pause, not the fourth
    assert retry.is_due("job", 31.0) and retry.why("job") == "it is away"

"""Decisions about one job and about the queue (server/control/reconcile.py): pure, so every case is
a table row.
"""

from typing import Any

import pytest

from headway.engines.protocol import Node, Observation
from headway.model.finding import Finding
from headway.model.job import ENDED, Attempt, Job, JobSpec, Process, Role, State, Task
from headway.model.limits import SILENT_AFTER_S
from headway.server.control import reconcile
from headway.server.control.reconcile import (
    Cancel,
    Launch,
    NewAttempt,
    Salvage,
    Seen,
    SetState,
    decide,
)

S = 1_000_000_000
T0 = 1_700_000_000 * S


def spec(**changes: Any) -> JobSpec:
    return JobSpec(**{"command": ["true"], "cwd": "/", "name": "job", **changes})


def waiting(pk: int = 1, **changes: Any) -> Job:
    fields = {"priority", "gpus", "cpus", "memory_bytes", "cluster", "attached", "grace_s"}
    in_spec = {name: changes.pop(name) for name in list(changes) if name in fields}
    return Job(pk, f"job-{pk:05}", f"uuid-{pk}", spec(**in_spec), **{
        "state": State.WAITING, "state_since_ns": T0, "submitted_ns": T0 + pk, **changes,
    })  # fmt: skip


def started(
    pk: int = 1, *, result: dict[str, Any] | None = None, processes: int = 1, **changes: Any
) -> Job:
    """A job whose single task has told that it runs, and how it ended if `result` is given."""
    attempt = {"key": f"uuid-{pk}-1", "engine_id": f"uuid-{pk}-1-worker-0"}
    job = waiting(pk, **{"state": State.RUNNING, "started_ns": T0 + S, **changes})
    ranks = [
        Process(rank, rank, 100 + rank, "running", started_ns=T0 + S) for rank in range(processes)
    ]
    task = Task("worker-0", "host", "ended" if result else "running", T0 + 2 * S, result, ranks)
    job.attempts = [Attempt(1, State.RUNNING, created_ns=T0, tasks=[task], **attempt)]  # type: ignore[arg-type]
    return job


def intended(pk: int = 1, engine_id: str | None = None, **changes: Any) -> Job:
    """An attempt is committed; nothing was heard of it."""
    job = waiting(pk, **changes)
    job.attempts = [
        Attempt(
            1,
            State.WAITING,
            f"uuid-{pk}-1",
            engine_id,
            created_ns=T0,
            tasks=[Task("worker-0", None, "starting")],
        )
    ]
    return job


def seen(
    now_s: float = 100, state: str = "running", detail: dict[str, Any] | None = None, **changes: Any
) -> Seen:
    observation = Observation(state, "its word", detail or {})  # type: ignore[arg-type]
    keys = [f"uuid-{pk}-1" for pk in range(1, 10)]
    return Seen(**{
        "now_ns": T0 + int(now_s * S),
        "max_running": 2,
        "nodes": {"here": [Node("host", 8, 64 << 30, changes.pop("gpus", 0))]},
        "observations": dict.fromkeys(keys, observation),
        **changes,
    })  # fmt: skip


def ended(exit_code: int | None = 0, signal: int | None = None, **more: Any) -> dict[str, Any]:
    fact = {
        "type": "task_ended",
        "time_ns": T0 + 5 * S,
        "first_rank": 0,
        "reason": None,
        "oom": False,
        "lost": False,
    }
    return {**fact, "exit_code": exit_code, "signal": signal, **more}


def only(actions: list[Any]) -> Any:
    assert len(actions) == 1, actions
    return actions[0]


# -- ends


@pytest.mark.parametrize(
    ("result", "state", "cause"),
    [
        (ended(0), State.SUCCEEDED, None),
        (ended(3), State.FAILED, "unknown"),
        (ended(None, 9), State.FAILED, "sigkill_unexplained"),
        (ended(None, 9, oom=True), State.FAILED, "host_oom"),
        (ended(127), State.FAILED, "command_not_found"),
        (ended(None, 15, reason="walltime"), State.FAILED, "walltime"),
        (ended(None, 15, reason="stop"), State.STOPPED, "cancelled"),
        (ended(0, reason="stop"), State.STOPPED, "cancelled"),
        (ended(None, None, lost=True), State.UNKNOWN, "agent_lost"),
    ],
)
def test_a_told_end_becomes_the_state(
    result: dict[str, Any], state: State, cause: str | None
) -> None:
    asked = (
        {"state": State.STOPPING, "stop_requested_ns": T0 + 2 * S} if state is State.STOPPED else {}
    )
    action = only(decide([started(result=result, **asked)], seen(state="ended")))
    assert (action.state, action.exit_code, action.signal) == (
        state,
        result["exit_code"],
        result["signal"],
    )
    assert (action.cause or {}).get("cause") == cause
    assert action.ended_ns == T0 + 5 * S


def test_a_stop_that_loses_the_race_against_completion_changes_nothing() -> None:
    """F25: the agent's truth wins."""
    job = started(result=ended(0), state=State.STOPPING, stop_requested_ns=T0 + 4 * S)
    assert only(decide([job], seen(state="ended"))).state is State.SUCCEEDED
    job = started(result=ended(1), state=State.STOPPING, stop_requested_ns=T0 + 4 * S)
    assert only(decide([job], seen(state="ended"))).state is State.FAILED


@pytest.mark.parametrize("result", [ended(0), ended(1), ended(None, 2)])
def test_what_ends_after_a_person_s_signal_was_stopped_and_what_ended_before_was_not(
    result: dict[str, Any],
) -> None:
    asked: dict[str, Any] = {
        "state": State.STOPPING,
        "stop_signal": 2,
        "stop_requested_ns": T0 + 4 * S,
    }
    job = started(result=result, **asked)
    job.attempts[0].tasks[0].processes[0].ended_ns = T0 + 5 * S
    action = only(decide([job], seen(state="ended")))
    assert (action.state, action.cause["text"]) == (State.STOPPED, "stopped on request")
    job.attempts[0].tasks[0].processes[0].ended_ns = T0 + 3 * S
    assert only(decide([job], seen(state="ended"))).state is not State.STOPPED


def test_a_helper_that_failed_before_a_person_s_signal_changes_nothing_about_that() -> None:
    asked: dict[str, Any] = {
        "state": State.STOPPING,
        "stop_signal": 15,
        "stop_requested_ns": T0 + 4 * S,
    }
    job = started(result=ended(None, 15, first_rank=0), **asked)
    job.spec.roles = [Role("worker", []), Role("board", [], completion="none")]
    job.attempts[0].tasks[0].processes[0].ended_ns = T0 + 5 * S
    board = Process(1, 0, 11, "exited", exit_code=1, ended_ns=T0 + 2 * S)
    job.attempts[0].tasks.append(
        Task("board-0", "n", "ended", result=ended(1, first_rank=1), processes=[board])
    )
    assert only(decide([job], seen(state="ended"))).state is State.STOPPED


def test_a_job_that_a_signal_shall_end_is_given_all_the_time_it_takes() -> None:
    job = started(state=State.STOPPING, stop_requested_ns=T0, stop_signal=2)
    assert decide([job], seen(1000)) == []
    job.stop_signal = None
    assert decide([job], seen(1000)) != []


def test_the_exception_of_the_first_failing_rank_is_the_cause() -> None:
    job = started(processes=3, result=ended(1, first_rank=2))
    job.attempts[0].tasks[0].processes[2].exception = {
        "where": "main",
        "exc_type": "KeyError",
        "message": "'a'",
    }
    action = only(decide([job], seen(state="ended")))
    assert action.cause == {
        "cause": "code_exception",
        "class": "user",
        "text": "KeyError: 'a'",
        "rank": 2,
    }


def test_a_lost_exit_record_is_unknown_with_an_end_and_is_said_once() -> None:
    job = started(result=ended(None, None, lost=True))
    action = only(decide([job], seen(state="ended")))
    assert (
        action.state is State.UNKNOWN and action.ended_ns is not None and action.exit_code is None
    )
    job.state, job.ended_ns = action.state, action.ended_ns
    assert decide([job], seen(200, state="ended")) == []


def test_what_was_given_up_does_not_run_again_by_what_is_stored_of_it() -> None:
    job = started(state=State.UNKNOWN, ended_ns=T0 + 50 * S)
    assert decide([job], seen(state="gone")) == []
    job.attempts[0].tasks[0].heard_ns = T0 + 60 * S
    assert only(decide([job], seen(state="gone"))).state is State.RUNNING, "its agent speaks again"


def test_an_end_is_added_to_a_job_that_is_already_unknown() -> None:
    job = started(result=ended(None, None, lost=True), state=State.UNKNOWN)
    heard, last = decide([job], seen(state="ended"))
    assert (heard.state, last.state) == (State.RUNNING, State.UNKNOWN) and last.ended_ns is not None  # type: ignore[union-attr]


def test_an_exit_that_is_known_counts_although_others_are_lost() -> None:
    failed = ended(3, first_rank=1, lost=True)
    assert only(decide([started(result=failed)], seen(state="ended"))).state is State.FAILED
    stopped = ended(None, None, reason="stop", lost=True)
    job = started(result=stopped, state=State.STOPPING, stop_requested_ns=T0)
    assert only(decide([job], seen(state="ended"))).state is State.STOPPED
    limit = ended(None, None, reason="walltime", lost=True)
    assert only(decide([started(result=limit)], seen(state="ended"))).cause["cause"] == "walltime"


def test_exits_told_before_the_agent_was_killed_still_count() -> None:
    """Every rank's exit was written; only the task's own last word is missing."""
    job = started(processes=2, result=ended(None, None, lost=True))
    ranks = job.attempts[0].tasks[0].processes
    for rank in ranks:
        rank.state, rank.exit_code, rank.ended_ns = "exited", 0, T0 + 4 * S
    assert only(decide([job], seen(state="ended"))).state is State.SUCCEEDED
    ranks[0].exit_code = None
    assert only(decide([job], seen(state="ended"))).state is State.UNKNOWN
    ranks[0].exit_code, job.spec.processes = 0, 3
    # nothing was told of the third
    assert only(decide([job], seen(state="ended"))).state is State.UNKNOWN
    job.spec.processes = 2
    ranks[1].exit_code = 7
    ranks[0].exit_code, ranks[0].signal, ranks[0].reason = None, 15, "rank 1 failed"
    action = only(decide([job], seen(state="ended")))
    assert (action.state, action.exit_code, action.cause["rank"]) == (State.FAILED, 7, 1)


def test_a_command_that_could_not_be_started_says_why() -> None:
    job = started(result=ended(127))
    rank = job.attempts[0].tasks[0].processes[0]
    rank.state, rank.exit_code, rank.reason = (
        "not started",
        127,
        "/no/such: No such file or directory",
    )
    cause = only(decide([job], seen(state="ended"))).cause
    assert cause["cause"] == "command_not_found" and "/no/such: No such file" in cause["text"]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_a_terminal_state_never_changes(state: State) -> None:
    """P8."""
    for result in (ended(0), ended(1), ended(None, None, lost=True)):
        job = started(result=result, state=state, ended_ns=T0 + 5 * S, stop_requested_ns=T0)
        assert decide([job], seen(10_000, state="gone", silent_s={"uuid-1-1": 9_999.0})) == []


def test_a_job_with_several_tasks_ends_when_all_have_told_their_end() -> None:
    job = started(result=ended(0))
    job.attempts[0].tasks.append(
        Task("worker-1", "other", "running", T0, None, [Process(1, 0, 101, "running")])
    )
    assert decide([job], seen()) == []
    job.attempts[0].tasks[1].result = ended(4)
    assert only(decide([job], seen())).exit_code == 4


def test_no_duration_is_negative_when_the_clock_was_set_back() -> None:
    """F26."""
    job = started(result=ended(0, time_ns=T0 - 3600 * S), state_since_ns=T0 + 50 * S)
    action = only(decide([job], seen(-3000, state="ended")))
    assert (
        action.ended_ns >= (job.started_ns or 0) >= job.submitted_ns
        and action.since_ns >= job.state_since_ns
    )
    job = waiting(state_since_ns=T0 + 50 * S, stop_requested_ns=T0)
    action = only(decide([job], seen(-3600)))
    assert action.ended_ns >= job.submitted_ns and action.since_ns >= job.state_since_ns


# -- life


def test_a_running_process_makes_the_job_running() -> None:
    job = started(state=State.WAITING, started_ns=None)
    action = only(decide([job], seen()))
    assert (action.state, action.started_ns) == (State.RUNNING, T0 + S)


def test_a_job_that_its_engine_sees_is_running_however_silent() -> None:
    assert decide([started()], seen(state="running", silent_s={"uuid-1-1": 9_999.0})) == []


@pytest.mark.parametrize("state", ["unknown", "gone", "ended"])
def test_silence_that_nobody_explains_is_unknown_since_it_was_last_heard(state: str) -> None:
    """P8: and never failed."""
    silent = {"uuid-1-1": SILENT_AFTER_S + 1}
    action = only(decide([started()], seen(state=state, silent_s=silent)))
    assert (action.state, action.since_ns, action.ended_ns) == (State.UNKNOWN, T0 + 2 * S, None)
    assert decide([started()], seen(state=state, silent_s={"uuid-1-1": SILENT_AFTER_S - 1})) == []


def test_an_engine_that_cannot_be_asked_changes_nothing() -> None:
    """F22."""
    assert decide([started(), intended(2), intended(3, "x")], seen(state="unknown")) == []


def test_a_job_heard_again_is_running_again() -> None:
    assert (
        only(decide([started(state=State.UNKNOWN)], seen(state="unknown"))).state is State.RUNNING
    )
    stopping = started(state=State.UNKNOWN, stop_requested_ns=T0)
    assert State.STOPPING in [
        a.state for a in decide([stopping], seen()) if isinstance(a, SetState)
    ]


def test_what_a_dead_agent_left_is_salvaged_and_the_job_is_not_called_failed() -> None:
    assert decide([started()], seen(state="gone", detail={"salvage": True})) == [Salvage(1, 1)]


def test_an_agent_of_another_machine_that_was_heard_of_late_is_not_taken_for_dead() -> None:
    """F33: a lock that seems free proves nothing there."""
    left = {"salvage": True, "silence_s": 60.0}
    for silent_s, deeds in ((59.0, []), (60.0, [Salvage(1, 1)])):
        quiet = seen(state="gone", detail=left, silent_s={"uuid-1-1": silent_s})
        assert [deed for deed in decide([started()], quiet) if isinstance(deed, Salvage)] == deeds


def test_a_clock_step_is_no_silence() -> None:
    """F26: silence is measured by a clock that never steps."""
    for now_s in (3700, -3500):
        assert decide([started()], seen(now_s, state="unknown", silent_s={"uuid-1-1": 1.0})) == []


# -- stopping


def test_a_waiting_job_is_stopped_at_once() -> None:
    action = only(decide([waiting(stop_requested_ns=T0)], seen()))
    assert (action.state, action.number) == (State.STOPPED, None)


def test_an_intended_job_that_never_reached_the_engine_is_stopped_without_starting_it() -> None:
    action = only(decide([intended(stop_requested_ns=T0)], seen(state="gone")))
    assert (action.state, action.number) == (State.STOPPED, 1)


def test_a_running_job_is_stopping_and_its_engine_is_asked_and_asked_again() -> None:
    job = started(stop_requested_ns=T0, grace_s=15.0)
    first, second = decide([job], seen())
    assert isinstance(first, SetState) and first.state is State.STOPPING and second == Cancel(1, 1)
    job.state = State.STOPPING
    assert decide([job], seen(cancelled_s={"uuid-1-1": 15.0})) == []
    assert decide([job], seen(cancelled_s={"uuid-1-1": 20.1})) == [Cancel(1, 1)]


def test_a_job_that_left_no_trace_can_be_stopped() -> None:
    job = started(state=State.UNKNOWN, stop_requested_ns=T0)
    silent = {"uuid-1-1": SILENT_AFTER_S + 1}
    assert only(decide([job], seen(state="gone", silent_s=silent))).state is State.STOPPED
    assert all(
        not isinstance(a, SetState) for a in decide([job], seen(state="unknown", silent_s=silent))
    )


# -- starting


def test_the_intent_is_stored_before_the_engine_is_called() -> None:
    assert decide([waiting()], seen()) == [NewAttempt(1, 1), Launch(1, 1)]


def test_an_intent_without_a_start_is_launched_again_and_holds_its_place() -> None:
    """F23: the server was killed between its commit and the engine."""
    jobs = [intended(1), waiting(2), waiting(3)]
    assert decide(jobs, seen(state="gone")) == [Launch(1, 1), NewAttempt(2, 1), Launch(2, 1)]


def test_a_task_whose_folder_vanished_is_not_started_again() -> None:
    """F34: its processes may still run."""
    assert decide([intended(engine_id="x")], seen(state="gone")) == []
    assert decide([started()], seen(state="gone")) == []


def test_an_agent_that_never_comes_up_fails_the_job_after_three_starts() -> None:
    gone: dict[str, Any] = {"state": "gone", "detail": {"started": False}}
    assert decide([intended(engine_id="x")], seen(launches={"uuid-1-1": 2}, **gone)) == [
        Launch(1, 1)
    ]
    action = only(decide([intended(engine_id="x")], seen(launches={"uuid-1-1": 3}, **gone)))
    assert action.state is State.FAILED and action.cause["cause"] == "agent_not_started"
    assert "its word" in action.cause["text"]


def launched(actions: list[Any]) -> list[int]:
    return [action.pk for action in actions if isinstance(action, Launch)]


def test_the_queue_is_priority_then_age() -> None:
    jobs = [waiting(1), waiting(2, priority=5), waiting(3, priority=5), waiting(4)]
    assert launched(decide(jobs, seen(max_running=3))) == [2, 3, 1]


def test_no_more_than_max_running_run() -> None:
    jobs = [started(1), waiting(2), waiting(3), waiting(4)]
    assert launched(decide(jobs, seen(max_running=3))) == [2, 3]
    jobs[0].state = State.UNKNOWN  # it may still run
    assert launched(decide(jobs, seen(max_running=3))) == [2, 3]


def test_jobs_that_are_over_and_attached_ones_take_no_place() -> None:
    lost = started(1, state=State.UNKNOWN, ended_ns=T0, result=ended(None, None, lost=True))
    attached = started(2, attached=True)
    assert launched(decide([lost, attached, waiting(3), waiting(4)], seen())) == [3, 4]


def test_a_place_is_given_on_in_the_same_decision_that_ends_a_job() -> None:
    assert launched(
        decide([started(1, result=ended(0)), waiting(2)], seen(state="ended", max_running=1))
    ) == [2]


def test_a_large_job_at_the_head_is_not_passed_over_for_ever() -> None:
    jobs = [started(1, gpus=3), waiting(2, gpus=4), waiting(3, gpus=1), waiting(4, cpus=1)]
    assert launched(decide(jobs, seen(gpus=4, max_running=9))) == [4]
    assert launched(decide(jobs[1:], seen(gpus=4, max_running=9))) == [2, 4]


@pytest.mark.parametrize("need", [{"cpus": 5}, {"memory_bytes": 40 << 30}])
def test_cores_and_memory_count_when_asked_for(need: dict[str, Any]) -> None:
    assert launched(
        decide([waiting(1, **need), waiting(2, **need), waiting(3)], seen(max_running=9))
    ) == [1, 3]


def test_an_engine_with_its_own_queue_gets_every_job() -> None:
    jobs = [waiting(pk, gpus=8, cluster="lab") for pk in range(1, 6)]
    found = seen(nodes={"lab": []}, queues=frozenset({"lab"}), max_running=1)
    assert launched(decide(jobs, found)) == [1, 2, 3, 4, 5]


def test_a_job_with_a_call_under_way_is_left_alone() -> None:
    jobs = [waiting(1), started(2, result=ended(0)), intended(3)]
    assert decide(jobs, seen(state="gone", busy=frozenset({1, 2, 3}))) == []


def test_a_refused_start_fails_the_job_with_the_reason() -> None:
    finding = Finding("missing_file", "user", "the folder /gone does not exist")
    action = reconcile.refuse(intended(), intended().attempts[0], T0 + S, finding)
    assert (action.state, action.cause["text"]) == (State.FAILED, "the folder /gone does not exist")  # type: ignore[index]


def test_a_job_that_ends_while_the_clock_is_behind_took_as_long_as_its_agent_says() -> None:
    """A-13, F26: the server's clock was set back by an hour while it ran."""
    job = started(result={"exit_code": 0, "time_ns": T0 + 27 * S})
    job.attempts[0].started_ns = T0 + S
    job.attempts[0].tasks[0].processes[0].ended_ns = T0 + 27 * S
    (end,) = [action for action in decide([job], seen(now_s=-3600)) if isinstance(action, SetState)]
    assert end.state is State.SUCCEEDED and end.started_ns is not None and end.ended_ns is not None
    assert end.ended_ns - end.started_ns == 26 * S


def test_a_job_that_is_unknown_for_good_is_never_started() -> None:
    """A-10: after a restore nobody knows whether it has run."""
    job = waiting(state=State.UNKNOWN, ended_ns=T0)
    begun = intended(2, state=State.UNKNOWN, ended_ns=T0)
    actions = decide([job, begun], seen(state="gone", detail={"started": False}))
    assert not [action for action in actions if isinstance(action, Launch | NewAttempt)]

"""What a scheduler's own word decides (server/control/reconcile.py): where agents could not tell
how an attempt ended.
"""

from typing import Any

import pytest

from headway.engines.protocol import Observation
from headway.model.job import State
from headway.model.limits import SILENT_AFTER_S
from headway.server.control.loop_timing import Misses
from headway.server.control.reconcile import Again, SetState, decide
from tests.unit.test_reconcile import T0, S, intended, seen, started

QUEUES = {"queues": frozenset({"here"})}


def end(cause: str, text: str = "Slurm: so it is", kind: str = "user") -> dict[str, Any]:
    return {"started": True, "end": {"cause": cause, "class": kind, "text": text, "nodes": ["n1"]}}


@pytest.mark.parametrize(
    ("cause", "state"),
    [("cancelled", State.STOPPED), ("walltime", State.FAILED), ("host_oom", State.FAILED)],
)
def test_an_end_that_no_agent_told_is_the_schedulers(cause: str, state: State) -> None:
    job = started(result={"type": "task_ended", "lost": True})
    [last] = decide([job], seen(state="ended", detail=end(cause), **QUEUES))
    assert isinstance(last, SetState)
    assert last.state is state and last.cause is not None
    assert (last.cause["cause"], last.cause["text"]) == (cause, "Slurm: so it is")


def test_memory_that_ran_out_is_told_with_what_it_had_asked_for_and_what_to_type() -> None:
    oom = end("host_oom")
    oom["end"]["memory_bytes"] = 200 << 20
    [last] = decide(
        [started(result={"type": "task_ended", "lost": True})],
        seen(state="ended", detail=oom, **QUEUES),
    )
    assert isinstance(last, SetState) and last.cause is not None
    asked = "it had asked for 200 MiB; with more: hw resubmit 00001 --memory 400MiB"
    assert last.cause["text"] == f"Slurm: so it is; {asked}"
    killed = {"type": "task_ended", "exit_code": None, "signal": 9, "first_rank": 0, "oom": True}
    [last] = decide([started(result=killed, memory_bytes=3 << 30)], seen(state="ended"))
    assert isinstance(last, SetState) and last.cause is not None
    assert last.cause["text"].startswith(
        "killed because memory ran out; it had asked for 3.0 GiB; with more: "
    )


def test_a_rank_that_was_terminated_from_outside_waits_for_the_schedulers_word() -> None:
    job = started(result={"type": "task_ended", "exit_code": None, "signal": 15, "first_rank": 0})
    assert decide([job], seen(state="running", **QUEUES)) == []
    [last] = decide([job], seen(state="ended", detail=end("cancelled"), **QUEUES))
    assert isinstance(last, SetState) and last.state is State.STOPPED


def test_a_failure_of_the_program_itself_is_told_by_its_agent() -> None:
    job = started(result={"type": "task_ended", "exit_code": 7, "signal": None, "first_rank": 0})
    [last] = decide([job], seen(state="ended", detail=end("launch_failed"), **QUEUES))
    assert isinstance(last, SetState)
    assert (last.state, last.exit_code) == (State.FAILED, 7)
    assert last.cause is not None and last.cause["cause"] != "launch_failed"


def test_what_the_scheduler_ended_before_it_began_is_not_started_again() -> None:
    job = intended(engine_id="17")
    told = {**end("launch_failed", "Slurm: FAILED (JobLaunchFailure)", "system"), "started": False}
    [last] = decide([job], seen(state="gone", detail=told, **QUEUES))
    assert isinstance(last, SetState)
    assert (
        last.state is State.FAILED
        and last.cause is not None
        and "JobLaunchFailure" in last.cause["text"]
    )


def test_a_node_lost_before_an_agent_had_started_there_is_tried_again_elsewhere() -> None:
    job = intended(engine_id="17")
    told = {**end("node_lost", "Slurm: NODE_FAIL on n1", "transient"), "started": False}
    [again] = decide([job], seen(state="gone", detail=told, **QUEUES))
    assert isinstance(again, Again)
    assert (again.retry["do"], again.retry["nodes"]) == ("other_node", ["n1"])
    assert again.end.cause is not None and again.end.cause["cause"] == "node_lost"
    stopped = intended(engine_id="17", stop_requested_ns=5)
    [last] = decide([stopped], seen(state="gone", detail=told, **QUEUES))
    assert isinstance(last, SetState) and last.state is State.STOPPED


def test_an_end_that_nobody_saw_waits_for_the_schedulers_word_but_not_for_ever() -> None:
    job = started(result={"type": "task_ended", "lost": True})
    assert decide([job], seen(state="running", **QUEUES)) == []
    [last] = decide([job], seen(state="running", silent_s={job.attempts[-1].key: 99.0}, **QUEUES))
    assert isinstance(last, SetState) and (last.state, last.ended_ns is None) == (
        State.UNKNOWN,
        False,
    )


def test_while_the_scheduler_is_away_an_end_that_nobody_saw_is_unknown_and_not_over() -> None:
    job = started(result={"type": "task_ended", "lost": True})
    [last] = decide([job], seen(state="unknown", silent_s={job.attempts[-1].key: 99.0}, **QUEUES))
    assert isinstance(last, SetState) and (last.state, last.ended_ns) == (State.UNKNOWN, None)


@pytest.mark.parametrize("make", [intended, started])
def test_a_job_is_not_unknown_before_its_scheduler_has_said_nothing_of_it_for_a_while(
    make: Any,
) -> None:
    """Whether it waits, so that no agent can tell of it, or its agents are silent."""
    job = make()
    job.attempts[-1].engine_id, key = "17", job.attempts[-1].key
    for missed_s in (0.0, SILENT_AFTER_S):
        silent = seen(state="unknown", silent_s={key: 9_999.0}, missed_s={key: missed_s}, **QUEUES)
        assert decide([job], silent) == []
    [last] = decide(
        [job],
        seen(
            state="unknown", silent_s={key: 9_999.0}, missed_s={key: SILENT_AFTER_S + 1}, **QUEUES
        ),
    )
    assert isinstance(last, SetState) and last.state is State.UNKNOWN


def test_answers_that_stay_away_count_from_the_third_on_and_one_that_comes_begins_anew() -> None:
    misses, there = (
        Misses(),
        {"a": Observation("starting", "PENDING"), "b": Observation("unknown", "late")},
    )
    assert misses.since_s(["a", "b"], {}, 0.0) == {"a": 0.0, "b": 0.0}
    # one look after a long pause says nothing
    assert misses.since_s(["a", "b"], {}, 100.0) == {"a": 0.0, "b": 0.0}
    assert misses.since_s(["a", "b"], there, 101.0) == {"b": 101.0}
    assert misses.since_s(["a"], {}, 102.0) == {"a": 0.0}
    assert misses.since_s(["b"], {}, 103.0) == {"b": 103.0}


def test_a_scheduler_that_saw_only_the_agent_die_does_not_know_how_the_program_ended() -> None:
    job = started(result={"type": "task_ended", "lost": True})
    told = end("launch_failed", "Slurm: FAILED (NonZeroExitCode)", "system")
    [last] = decide([job], seen(state="ended", detail=told, **QUEUES))
    assert isinstance(last, SetState) and last.state is State.UNKNOWN and last.ended_ns is not None
    assert (
        last.cause is not None
        and last.cause["cause"] == "agent_lost"
        and "Slurm: FAILED" in last.cause["text"]
    )


def test_ranks_that_the_scheduler_ended_because_a_person_asked_for_it_are_stopped_and_need_no_other_word() -> (
    None
):
    job = started(
        result={"type": "task_ended", "exit_code": None, "signal": 15, "first_rank": 0},
        stop_requested_ns=5,
    )
    [last] = decide([job], seen(state="unknown", **QUEUES))
    assert isinstance(last, SetState) and last.state is State.STOPPED


@pytest.mark.parametrize("off_s", [-3 * 3600, 0, 3 * 3600])
def test_a_node_whose_clock_is_hours_off_changes_no_duration(off_s: int) -> None:
    """F26: it was told to start at 0, ran from 10 to 40, and this is decided at 41."""
    job = started(started_ns=None)
    task = job.attempts[-1].tasks[0]
    [process] = task.processes
    process.started_ns, process.ended_ns = (T0 + (at + off_s) * S for at in (10, 40))
    task.result = {
        "type": "task_ended",
        "exit_code": 0,
        "signal": None,
        "time_ns": process.ended_ns,
    }
    [last] = decide([job], seen(now_s=41, state="ended"))
    assert isinstance(last, SetState) and last.started_ns is not None and last.ended_ns is not None
    # it was submitted a nanosecond late
    assert last.ended_ns - last.started_ns in (30 * S, 30 * S - 1)
    assert job.submitted_ns <= last.started_ns and last.ended_ns <= T0 + 41 * S

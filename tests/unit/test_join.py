"""Several tasks, one attempt: the barrier, the completion policy, the first failure (capabilities
3, 7, 40).
"""

from typing import Any

import pytest

from headway.engines.protocol import Observation
from headway.engines.spool.task_group import join as join_observations
from headway.model.job import Attempt, Job, JobSpec, Process, Role, State, Task
from headway.server.control import multi_task
from headway.server.control.reconcile import LAUNCHES_MAX, Launch, Seen, SetState, decide


def task(
    name: str, result: dict[str, Any] | None = None, *processes: Process, state: str = "running"
) -> Task:
    made = Task(name, "node", "ended" if result else state, None, result, list(processes))
    made.agent = {"address": "10.0.0.1", "port": 5, "master_port": 6}
    return made


def process(
    rank: int, code: int | None = None, signal: int | None = None, reason: str | None = None
) -> Process:
    ended = code is not None or signal is not None
    return Process(
        rank,
        0,
        1,
        "exited" if ended else "running",
        code,
        signal,
        1,
        10 + rank if ended else None,
        reason,
    )


def ended(code: int | None = 0, **fields: Any) -> dict[str, Any]:
    base = {
        "exit_code": code,
        "signal": None,
        "first_rank": None,
        "reason": None,
        "oom": False,
        "lost": False,
    }
    return {**base, "time_ns": 99, **fields}


def job(*tasks: Task, roles: tuple[Role, ...] = (), **fields: Any) -> tuple[Job, Attempt]:
    attempt = Attempt(1, State.RUNNING, "u-1", "u-1", tasks=list(tasks))
    spec = JobSpec(["x"], "/", "job", processes=len(tasks), nodes=len(tasks), roles=list(roles))
    return Job(1, "job-1", "u", spec, State.RUNNING, 0, 0, attempts=[attempt], **fields), attempt


def test_every_agent_up_means_go_with_the_addresses_of_all() -> None:
    made, attempt = job(task("worker-0"), task("worker-1"))
    (tell,) = multi_task.orders(made, attempt)
    assert set(tell.commands) == {"worker-0", "worker-1"}
    assert tell.commands["worker-0"]["do"] == "go"
    first = {
        "task": "worker-0",
        "role": "worker",
        "address": "10.0.0.1",
        "port": 5,
        "master_port": 6,
    }
    assert tell.commands["worker-1"]["peers"][0] == first


def test_one_agent_missing_means_wait() -> None:
    assert multi_task.orders(*job(task("worker-0"), task("worker-1", state="starting"))) == []


def test_a_task_whose_processes_run_is_not_told_again() -> None:
    (tell,) = multi_task.orders(*job(task("worker-0", None, process(0)), task("worker-1")))
    assert set(tell.commands) == {"worker-1"}


def test_a_task_that_is_already_over_does_not_keep_the_others_from_starting() -> None:
    """A server that was killed after it had told one of them forgets what it had to tell the rest."""
    over = task("worker-0", ended(), process(0, 0), state="ended")
    (tell,) = multi_task.orders(*job(over, task("worker-1")))
    assert {name: command["do"] for name, command in tell.commands.items()} == {"worker-1": "go"}


def test_a_failed_rank_ends_the_other_tasks_before_its_own_has_ended() -> None:
    made, attempt = job(
        task("worker-0", None, process(0)), task("worker-1", None, process(1, 9), process(2))
    )
    (tell,) = multi_task.orders(made, attempt)
    assert {c["reason"] for c in tell.commands.values()} == {"rank 1 on worker-1 failed"}
    assert "worker-0" in tell.commands


def test_the_first_failure_is_the_jobs_and_victims_do_not_count() -> None:
    hit = ended(None, signal=15, reason="rank 1 on worker-1 failed")
    made, _ = job(
        task("worker-0", hit, process(0, signal=15, reason="rank 1 on worker-1 failed")),
        task("worker-1", ended(9, first_rank=1), process(1, 9)),
        task("worker-2", ended(3, first_rank=2), process(2, 3)),
    )
    (action,) = [a for a in decide([made], Seen(100, 1, {})) if isinstance(a, SetState)]
    assert (action.state, action.exit_code, action.cause and action.cause["rank"]) == (
        State.FAILED,
        9,
        1,
    )


@pytest.mark.parametrize(
    ("role", "results", "why"),
    [
        ({}, [ended(), None, None], None),
        ({}, [ended(1, first_rank=0), None, None], "rank 0 on worker-0 failed"),
        ({"min_failed": 2}, [ended(1, first_rank=0), None, None], None),
        (
            {"min_failed": 2},
            [ended(1, first_rank=0), ended(1, first_rank=1), None],
            "rank 0 on worker-0 failed",
        ),
        ({"min_failed": 2}, [ended(1, first_rank=0), ended(), ended()], multi_task.DONE),
        ({"min_succeeded": 2}, [ended(), ended(), None], multi_task.DONE),
        ({"completion": "any"}, [ended(1, first_rank=0), ended(), None], multi_task.DONE),
        ({"completion": "any"}, [ended(1, first_rank=0), None, None], None),
        ({"completion": "any"}, [ended(1, first_rank=0)] * 3, "rank 0 on worker-0 failed"),
        ({}, [ended(None, lost=True), None, None], "worker-0 is gone"),
        ({}, [ended(None, reason="walltime"), None, None], "worker-0 ran out of time"),
    ],
)
def test_the_completion_policy_says_when_the_others_end(
    role: dict[str, Any], results: list[dict[str, Any] | None], why: str | None
) -> None:
    tasks = [task(f"worker-{i}", result) for i, result in enumerate(results)]
    made, attempt = job(*tasks, roles=(Role("worker", ["x"], 3, **role),))
    assert multi_task.ending(made, attempt) == why


def test_a_helper_neither_fails_the_job_nor_keeps_it() -> None:
    roles = (Role("worker", ["x"]), Role("board", ["b"], completion="none"))
    made, attempt = job(task("worker-0"), task("board-0", ended(1, first_rank=1)), roles=roles)
    assert multi_task.ending(made, attempt) is None
    made, attempt = job(
        task("worker-0", ended()), task("board-0", ended(None, reason=multi_task.DONE)), roles=roles
    )
    (action,) = [a for a in decide([made], Seen(100, 1, {})) if isinstance(a, SetState)]
    assert action.state is State.SUCCEEDED


def observed(**states: Observation) -> Observation:
    return join_observations({name.replace("_", "-"): seen for name, seen in states.items()})


UP = Observation("running", "shim alive", {"started": True})
NEVER = Observation("gone", "the agent did not start", {"started": False})
SENT = Observation("gone", "no spool", {"started": None})
SALVAGE = Observation("gone", "agent gone", {"started": True, "salvage": True})


def test_observations_of_tasks_are_joined() -> None:
    assert observed(a=UP, b=SENT).state == "running"
    assert (
        observed(a=UP, b=SALVAGE).detail["salvage"] and observed(a=SALVAGE, b=SENT).state == "gone"
    )
    far = Observation("gone", "agent gone", {"started": True, "salvage": True, "silence_s": 60.0})
    assert observed(a=far, b=SALVAGE).detail["silence_s"] == 60.0
    assert "silence_s" not in observed(a=SALVAGE, b=UP).detail
    assert observed(a=NEVER, b=NEVER).detail == {"started": False}
    assert observed(a_0=UP, b_1=NEVER).detail["unstarted"] == ["b-1"]
    drained = Observation("ended", "ended", {"started": True, "drained": True})
    assert (
        observed(a=drained, b=SENT).detail["drained"]
        and observed(a=drained, b=SENT).state == "ended"
    )
    assert (
        observed(a=UP, b=UP).state_word == "shim alive"
        and "1 shim alive" in observed(a=UP, b=SENT).state_word
    )


def test_tasks_that_never_began_are_started_beside_those_that_did() -> None:
    """F23: the server was killed between the starts of two tasks."""
    made, attempt = job(task("worker-0"), task("worker-1", state="starting"))
    seen = {"observations": {attempt.key: observed(worker_0=UP, worker_1=NEVER)}}
    assert Launch(1, 1) in decide([made], Seen(100, 1, {}, **seen))
    told = decide([made], Seen(100, 1, {}, **seen, launches={attempt.key: LAUNCHES_MAX}))
    assert [a.commands["worker-0"]["reason"] for a in told if isinstance(a, multi_task.Tell)] == [
        "worker-1 could not be started"
    ]


def test_a_task_that_has_told_its_end_is_never_started_again() -> None:
    made, attempt = job(
        task("worker-0", ended(1, first_rank=0)), task("worker-1", state="starting")
    )
    seen = Seen(100, 1, {}, observations={attempt.key: observed(worker_0=SENT, worker_1=NEVER)})
    (action,) = decide([made], seen)
    assert isinstance(action, SetState) and action.state is State.FAILED

"""Whether a failed attempt is followed by another one (server/control/retry.py,
server/control/reconcile.py). Pure, so every case is a row.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.diagnose.causes import CAUSES
from headway.engines.protocol import Node, Observation
from headway.model.finding import Finding
from headway.model.job import Attempt, Job, JobSpec, Retry, State, Task, count_retries
from headway.server.control import retry
from headway.server.control.reconcile import (
    Again,
    Cancel,
    Launch,
    NewAttempt,
    Seen,
    SetState,
    decide,
)
from headway.server.control.retry import (
    AGAIN,
    NO,
    OTHER_NODE,
    POLICIES,
    WHEN_ROOM,
    Decision,
    decide_retry,
)

S = 1_000_000_000
T0 = 1_700_000_000 * S
DOCS = Path(__file__).parents[2] / "docs"


def failed(number: int, cause: str, **decision: Any) -> Attempt:
    told = {"cause": cause, "class": "unknown", "text": "", "rank": 0}
    return Attempt(number, State.FAILED, f"key-{number}", cause=told, retry=decision or None)


def after(cause: str, attempts: int = 1, asked: Retry | None = None, **more: Any) -> Decision:
    """The decision after so many failures of one cause, each of which was followed by another try."""
    policy = POLICIES.get(cause, POLICIES["unknown"])
    told = [failed(n, cause, do=policy.do, counted=policy.counted) for n in range(1, attempts)]
    finding = Finding(cause, "unknown", "")
    return decide_retry(finding, [*told, failed(attempts, cause)], asked or Retry(), **more)


@pytest.mark.parametrize(
    ("cause", "asked", "tries"),
    [
        ("unknown", 0, 0), ("unknown", 1, 1), ("unknown", 5, 5),
        ("sigkill_unexplained", 0, 0), ("sigkill_unexplained", 5, 1), ("segfault_or_abort", 5, 1),
        ("storage_io", 0, 0), ("storage_io", 2, 2), ("storage_io", 9, 3),
        ("code_exception", 9, 0), ("host_oom", 9, 0), ("command_not_found", 9, 0), ("walltime", 9, 0),
        ("preempted", 0, 100), ("declared_transient", 0, 100), ("declared_conflict", 0, 3),
        ("declared_permanent", 9, 0), ("agent_lost", 9, 0), ("a cause of a later version", 2, 2),
    ],
)  # fmt: skip
def test_each_cause_is_tried_again_as_often_as_its_row_says(
    cause: str, asked: int, tries: int
) -> None:
    wanted = Retry(max=asked)
    allowed = [n for n in range(1, 120) if after(cause, n, wanted).do != NO]
    assert allowed == list(range(1, tries + 1))


def test_what_needs_another_node_is_not_tried_again_where_there_is_none() -> None:
    assert after("gpu_ecc", other_nodes={"node2"}).do == OTHER_NODE
    assert (
        after("gpu_ecc", other_nodes=()).do == NO
        and after("gpu_ecc", other_nodes=None).do == OTHER_NODE
    )
    assert after("declared_conflict", other_nodes=()).do == AGAIN  # another port may do
    assert after("unschedulable").do == WHEN_ROOM


def test_uncounted_tries_end_at_the_total_and_never_use_up_the_counted_ones() -> None:
    assert after("preempted", 3, Retry(total_max=3)).do == AGAIN
    assert after("preempted", 4, Retry(total_max=3)).do == NO
    told = [failed(n, "preempted", do=AGAIN, counted=False) for n in range(1, 9)]
    decision = decide_retry(
        Finding("unknown", "unknown", ""), [*told, failed(9, "unknown")], Retry(max=1)
    )
    assert (decision.do, decision.counted, decision.text) == (AGAIN, True, "retry 1 of 1")
    assert count_retries(told) == (8, 0)


@pytest.mark.parametrize(
    ("steps", "do", "text"),
    [
        ([5, 5, 5, 5], NO, "tried again 3 of 3 times"),
        ([5, 4, 3, 2], NO, "tried again 3 of 3 times"),
        # nothing was logged: no progress is known
        ([None, None, None, None], NO, "tried again 3 of 3 times"),
        # the first that logs anything has nothing to pass
        ([None, 0, 0, 0], NO, "tried again 3 of 3 times"),
        ([5, 5, 5, 6], AGAIN, "retry 1 of 3, counted anew since it came further"),
        ([5, 6, 6, 6], AGAIN, "retry 3 of 3, counted anew since it came further"),
        ([5, 6, 6, 6, 6], NO, "tried again 3 of 3 times"),
        ([1, 2, 3, 4, 5, 6, 7, 8], AGAIN, "retry 1 of 3, counted anew since it came further"),
    ],
)
def test_three_tries_are_counted_anew_after_an_attempt_that_came_further(
    steps: list[int | None], do: str, text: str
) -> None:
    reached = {number: step for number, step in enumerate(steps, 1) if step is not None}
    decision = after("storage_io", len(steps), Retry(max=3), reached=reached)
    assert (decision.do, decision.text) == (do, text)
    # not for ever
    assert after("storage_io", 101, Retry(max=3), reached={n: n for n in range(1, 102)}).do == NO
    # once is once
    assert after("segfault_or_abort", 2, Retry(max=3), reached={1: 1, 2: 9}).do == NO


@given(
    st.integers(0, 200), st.floats(0, 1, exclude_max=True), st.floats(0, 100), st.floats(0, 1000)
)
def test_the_pause_doubles_has_jitter_and_never_passes_its_limit(
    n: int, chance: float, first: float, most: float
) -> None:
    asked = Retry(backoff_s=first, backoff_max_s=most)
    full = min(most, first * 2.0 ** min(n, 30))
    assert full / 2 <= retry.backoff_s(asked, n, chance) <= full


def test_the_table_of_the_docs_is_the_table_of_the_code() -> None:
    text = (DOCS / "concepts" / "retries.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", text, re.M))
    assert rows == {cause: words(policy) for cause, policy in POLICIES.items()}


def test_what_is_said_of_a_retry_is_what_is_done():
    """`hw why` and the server read one table: a cause that is said not to be worth it is never tried."""
    for cause, known in CAUSES.items():
        said = Finding(cause, known.cls, "")
        done = decide_retry(said, [failed(1, cause)], Retry(max=9))
        assert (done.do == NO) == known.retry.words().startswith("no:"), cause


def words(policy: retry.Policy) -> str:
    count = (
        "as `retry.max` says"
        if policy.tries is None
        else {0: "never", 1: "once", 3: "3 times"}.get(policy.tries, "always")
    )
    where = {OTHER_NODE: ", on another node", WHEN_ROOM: ", when there is room"}.get(policy.do, "")
    anew = ", counted anew after progress" if policy.resets else ""
    return count + where + ("" if policy.counted else ", not counted") + anew


# -- in the life of a job


def running(
    result: dict[str, Any] | None = None, held: dict[str, Any] | None = None, **changes: Any
) -> Job:
    spec = JobSpec(
        ["x"], "/", "job", retry=changes.pop("retry", Retry()), hold_s=changes.pop("hold_s", 0.0)
    )
    job = Job(1, "job-00001", "uuid-1", spec, **{
        "state": State.RUNNING, "state_since_ns": T0, "submitted_ns": T0, "started_ns": T0, **changes,
    })  # fmt: skip
    task = Task("worker-0", "host", "ended" if result else "running", T0, result, held=held)
    job.attempts = [Attempt(1, State.RUNNING, "uuid-1-1", "engine-1", created_ns=T0, tasks=[task])]
    return job


def fact(exit_code: int | None = 1, **more: Any) -> dict[str, Any]:
    known = {
        "time_ns": T0 + S,
        "signal": None,
        "first_rank": 0,
        "reason": None,
        "oom": False,
        "lost": False,
    }
    return {**known, "exit_code": exit_code, **more}


def seen(**more: Any) -> Seen:
    known = {
        "observations": {"uuid-1-1": Observation("running", "word")},
        "nodes": {"here": [Node("host", 8, None, 0)]},
    }
    return Seen(**{"now_ns": T0 + 9 * S, "max_running": 2, **known, **more})


def between(**changes: Any) -> Job:
    job = running(fact(), **{"state": State.WAITING, **changes})
    job.attempts[0].state = State.FAILED
    job.attempts[0].retry = {"do": AGAIN, "counted": True, "text": "retry 1 of 1", "wait_s": 5.0}
    return job


def test_a_failure_that_may_be_tried_again_ends_the_attempt_and_not_the_job() -> None:
    (action,) = decide([running(fact(7), retry=Retry(max=1, backoff_s=4))], seen(chance=0.0))
    assert isinstance(action, Again)
    assert (action.end.state, action.end.exit_code, action.end.cause["cause"]) == (
        State.FAILED,
        7,
        "unknown",
    )
    assert action.retry["do"] == AGAIN and action.retry["not_before_ns"] > T0 + 9 * S


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (0, None),
        (1, "the retry asked for was not made: config_error would come again"),
        (2, "none of the 2 retries asked for was made: config_error would come again"),
    ],
)
def test_why_no_retry_follows_is_kept_where_some_were_asked_for(
    asked: int, words: str | None
) -> None:
    told = {"cause": "config_error", "class": "user", "text": "its folder is not there"}
    (action,) = decide([running(fact(cause=told), retry=Retry(max=asked))], seen())
    assert (
        isinstance(action, SetState) and action.state is State.FAILED and action.cause is not None
    )
    assert action.cause["cause"] == "config_error" and action.cause.get("no_retry") == words


def test_after_the_last_retry_it_is_told_that_none_is_left() -> None:
    attempts = [failed(1, "unknown", do=AGAIN, counted=True), failed(2, "unknown")]
    decision = after("unknown", 2, Retry(max=1))
    assert (
        retry.refusal_words(decision, attempts, Retry(max=1))
        == "no further retry: tried again 1 of 1 times"
    )


def test_the_next_attempt_starts_when_its_time_has_come_and_takes_a_place() -> None:
    job = between()
    assert decide([job], seen(rest_s={"uuid-1-1": 3.0})) == []
    assert decide([job], seen(rest_s={"uuid-1-1": -0.1})) == [NewAttempt(1, 2), Launch(1, 2)]
    assert decide([job], seen(max_running=0)) == []


def test_a_job_that_waits_for_its_next_try_can_be_stopped() -> None:
    (action,) = decide([between(stop_requested_ns=T0 + S)], seen())
    assert isinstance(action, SetState) and (action.state, action.number) == (State.STOPPED, None)
    assert "waited for attempt 2" in action.cause["text"]


def test_a_stop_that_nobody_here_asked_for_is_a_preemption_and_is_not_counted() -> None:
    """F32."""
    (action,) = decide([running(fact(None, signal=15, reason="stop"))], seen())
    assert (
        isinstance(action, Again)
        and action.end.cause["cause"] == "preempted"
        and action.retry["counted"] is False
    )
    asked = running(
        fact(None, signal=15, reason="stop"), stop_requested_ns=T0, state=State.STOPPING
    )
    (action,) = decide([asked], seen())
    assert action.state is State.STOPPED


def test_a_held_task_holds_the_job_with_its_exit_code() -> None:
    (action,) = decide([running(held=fact(4), hold_s=60.0)], seen())
    assert (action.state, action.exit_code, action.ended_ns) == (State.HELD, 4, None)
    assert decide([running(held=fact(4), state=State.HELD)], seen()) == []
    (action,) = decide(
        [running(fact(4), held=fact(4), state=State.HELD, retry=Retry(max=3))], seen()
    )
    # what was held is not tried again behind one's back
    assert (action.state, action.exit_code) == (State.FAILED, 4)


def test_a_held_task_is_let_go_when_another_attempt_follows() -> None:
    assert decide([running(held=fact(4), hold_s=60.0, retry=Retry(max=1))], seen()) == [
        Cancel(1, 1)
    ]


def test_a_job_waits_for_those_it_was_told_to_and_ends_with_them() -> None:
    job = running(state=State.WAITING)
    job.attempts, job.started_ns, job.spec.after = [], None, ["uuid-9"]
    for state in (State.WAITING, State.RUNNING, State.HELD, State.UNKNOWN):
        assert decide([job], seen(needed={"uuid-9": ("dep-00009", state)})) == []
    assert decide([job], seen(needed={"uuid-9": ("dep-00009", State.SUCCEEDED)})) == [
        NewAttempt(1, 1),
        Launch(1, 1),
    ]
    for end in (State.FAILED, State.STOPPED, None):
        (action,) = decide([job], seen(needed={"uuid-9": ("dep-00009", end)}))
        assert action.state is State.STOPPED and action.cause["cause"] == "dependency"
        assert "dep-00009" in action.cause["text"]


def test_an_uncounted_retry_says_how_many_its_cause_allows() -> None:
    limited = [name for name, p in retry.POLICIES.items() if p.tries and not p.counted]
    assert limited
    for cause in limited:
        found = after(cause, other_nodes=None)
        assert found.text.endswith(f"of {retry.POLICIES[cause].tries}"), found

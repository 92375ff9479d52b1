"""The shim's hold after a failure, and notices of a preemption. Pure, in made-up time."""

import pytest

from headway.agent.shim.machine import RankExited, SignalAsked, StopAsked, Tick
from tests.unit.test_agent_life import Story

USR1 = 10


def kinds(story: Story) -> list[str]:
    return [str(fact["type"]) for fact in story.facts]


def fail(story: Story, code: int = 3) -> None:
    story(RankExited(0, code, None))
    story(Tick(), after_s=1.0)


def test_a_failed_task_is_kept_until_its_time_is_over_and_keeps_its_result() -> None:
    story = Story(hold_s=60.0)
    fail(story)
    assert kinds(story)[-1] == "task_held" and story.machine.phase == "holding"
    assert (story.facts[-1]["exit_code"], story.facts[-1]["hold_s"]) == (3, 60.0)
    story(Tick(), after_s=58.0)
    assert kinds(story)[-1] == "task_held"
    story(Tick(), after_s=5.0)
    assert kinds(story)[-1] == "task_ended" and story.facts[-1]["exit_code"] == 3


@pytest.mark.parametrize("by", ["signal 15", "command"])
def test_a_request_to_stop_frees_a_held_task_and_changes_no_result(by: str) -> None:
    story = Story(hold_s=60.0)
    fail(story)
    story(StopAsked(by))
    assert story.facts[-1]["type"] == "task_ended"
    assert (story.facts[-1]["exit_code"], story.facts[-1]["reason"]) == (3, None)


def test_success_and_a_stop_hold_nothing() -> None:
    for code, asked in ((0, False), (1, True)):
        story = Story(hold_s=60.0)
        if asked:
            story(StopAsked("command"))
        fail(story, code)
        assert "task_held" not in kinds(story) and kinds(story)[-1] == "task_ended"


def test_a_failure_soon_after_a_notice_is_a_preemption() -> None:
    """F32."""
    story = Story(grace_s=10.0)
    story(SignalAsked(USR1, notice=True))
    assert kinds(story)[-1] == "preempt_notice"
    fail(story)
    assert story.facts[-1]["reason"] == "preempted"


def test_a_notice_that_the_processes_have_heard_is_not_passed_on_to_them() -> None:
    story = Story(grace_s=10.0)
    assert [type(one).__name__ for one in story(SignalAsked(USR1, notice=True, heard=True))] == [
        "Write"
    ]
    assert "SignalRank" in [type(one).__name__ for one in story(SignalAsked(USR1, notice=True))]


@pytest.mark.parametrize(
    ("later_s", "code", "notice"), [(60.0, 3, True), (1.0, 0, True), (1.0, 3, False)]
)
def test_what_a_notice_has_nothing_to_do_with_is_no_preemption(
    later_s: float, code: int, notice: bool
) -> None:
    story = Story(grace_s=10.0)
    story(SignalAsked(USR1, notice=notice))
    story(Tick(), after_s=later_s)
    fail(story, code)
    assert story.facts[-1]["type"] == "task_ended" and story.facts[-1]["reason"] is None

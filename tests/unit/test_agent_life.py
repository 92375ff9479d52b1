"""The shim's decisions: first failure, stopping, the time limit, leftovers, the shipper. Pure, in
made-up time.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.agent.shim.machine import (
    Adopted,
    Begun,
    Leave,
    LeftoversSeen,
    LookForLeftovers,
    RankExited,
    RankRefused,
    RankStarted,
    RemoveEnvironment,
    ShimEvent,
    ShimInstruction,
    ShimMachine,
    ShimPlan,
    ShipHere,
    ShipperExited,
    SignalAsked,
    SignalLeftovers,
    SignalRank,
    StartRank,
    StartShipper,
    StopAsked,
    Tick,
    Write,
)
from headway.model.limits import FLUSH_AT_END_S, SHIPPER_RESTART_FIRST_S, SHIPPER_RESTART_MAX_S

TERM, KILL, CONT = 15, 9, 18


class Story:
    """A machine and what it has said."""

    def __init__(self, processes: int = 1, **plan: Any) -> None:
        self.machine = ShimMachine(ShimPlan(processes, grace_s=plan.pop("grace_s", 10.0), **plan))
        self.now_s = 100.0
        self.facts: list[dict[str, Any]] = []
        self.pids = {i: 1000 + i for i in range(processes)}
        self.leftovers: tuple[int, ...] = ()
        self.left = False
        self.said: list[ShimInstruction] = []
        self(Begun())

    def __call__(self, *events: ShimEvent, after_s: float = 0.0) -> list[ShimInstruction]:
        """Feed events; starting ranks and looking for leftovers is answered at once."""
        self.now_s += after_s
        said: list[ShimInstruction] = []
        queue = list(events)
        while queue:
            for instruction in self.machine.handle(queue.pop(0), self.now_s):
                said.append(instruction)
                match instruction:
                    case Write():
                        self.facts.append(instruction.fact)
                    case StartRank():
                        queue.append(
                            RankStarted(instruction.index, self.pids[instruction.index], 7)
                        )
                    case LookForLeftovers():
                        queue.append(LeftoversSeen(self.leftovers))
                    case Leave():
                        self.left = True
        self.said += said
        return said

    def tick_until(self, seconds: float) -> list[ShimInstruction]:
        end, said = self.now_s + seconds, []
        while (wake := self.machine.wake_s(self.now_s)) is not None and wake <= end:
            said += self(Tick(), after_s=max(0.0, wake - self.now_s))
        self.now_s = end
        return said

    def fact(self, kind: str) -> dict[str, Any]:
        (found,) = [fact for fact in self.facts if fact["type"] == kind]
        return found

    def signals(self, said: Sequence[ShimInstruction]) -> list[tuple[int, int]]:
        return [(i.index, i.signum) for i in said if isinstance(i, SignalRank)]


def ended(**fields: Any) -> dict[str, Any]:
    base = {
        "type": "task_ended",
        "exit_code": 0,
        "signal": None,
        "first_rank": None,
        "reason": None,
    }
    return {**base, "oom": False, "lost": False, **fields}


def test_a_run_that_goes_well_ends_with_zero() -> None:
    story = Story(2)
    assert isinstance(story.said[0], StartShipper)
    assert RemoveEnvironment() in story.said
    story(RankExited(1, 0, None))
    assert story.machine.phase != "flushing"
    story(RankExited(0, 0, None))
    assert story.fact("task_ended") == ended()
    story(ShipperExited(final=True))
    assert story.left


def test_a_task_that_ends_soon_is_sent_by_its_own_process() -> None:
    story = Story(ships_after_s=0.05)
    assert StartShipper() not in story.said
    said = story(RankExited(0, 0, None), after_s=0.01)
    assert said[-2:] == [Write(story.fact("task_ended")), ShipHere()]
    assert story(ShipperExited(final=True)) == [Leave()]
    assert StartShipper() not in story.said


def test_a_task_that_lasts_gets_a_shipper_of_its_own_and_keeps_it() -> None:
    story = Story(ships_after_s=0.05)
    assert story.tick_until(0.06) == [StartShipper()]
    story(RankExited(0, 0, None))
    assert ShipHere() not in story.said and story.said.count(StartShipper()) == 1


def test_where_the_task_s_own_process_sends_in_vain_a_shipper_follows() -> None:
    story = Story(ships_after_s=0.05)
    story(RankExited(0, 0, None))
    story(ShipperExited(final=False))
    assert story.tick_until(SHIPPER_RESTART_FIRST_S) == [StartShipper()] and not story.left


def test_a_task_that_leaves_children_gets_its_shipper_while_they_are_waited_for() -> None:
    story = Story(ships_after_s=0.05)
    story.leftovers = (77,)
    story(RankExited(0, 0, None))
    assert StartShipper() in story.tick_until(0.06)
    story.leftovers = ()
    assert ShipHere() not in story.tick_until(1.0) and story.fact("task_ended") == ended()


@pytest.mark.parametrize(("code", "signum"), [(1, None), (127, None), (None, 9), (None, 11)])
def test_the_exit_of_one_process_is_the_exit_of_the_task(
    code: int | None, signum: int | None
) -> None:
    story = Story()
    story(RankExited(0, code, signum))
    assert story.fact("task_ended") == ended(exit_code=code, signal=signum, first_rank=0)
    assert story.fact("process_exited")["reason"] is None


def test_the_first_rank_that_fails_ends_the_others_and_is_named() -> None:
    story = Story(4, first_rank=8)
    said = story(RankExited(2, 3, None))
    assert story.signals(said) == [(0, TERM), (0, CONT), (1, TERM), (1, CONT), (3, TERM), (3, CONT)]
    assert story.fact("stop_requested")["by"] == "rank 10"
    story(RankExited(0, None, TERM), RankExited(1, 1, None), RankExited(3, 0, None))
    exits = [fact for fact in story.facts if fact["type"] == "process_exited"]
    assert [(f["rank"], f["reason"]) for f in exits] == [
        (10, None), (8, "rank 10 failed"), (9, "rank 10 failed"), (11, "rank 10 failed"),
    ]  # fmt: skip
    assert story.fact("task_ended") == ended(exit_code=3, first_rank=10)


def test_a_rank_that_cannot_be_started_ends_the_others() -> None:
    story = Story(2)
    story.machine = ShimMachine(ShimPlan(2))
    story.facts.clear()
    story.machine.handle(Begun(), 0)
    story(RankStarted(0, 1000, 7))
    said = story(RankRefused(1, 127, "not found"))
    assert RemoveEnvironment() in said and story.signals(said) == [(0, TERM), (0, CONT)]
    story(RankExited(0, None, TERM))
    assert story.fact("start_failed") == {
        "type": "start_failed",
        "rank": 1,
        "exit_code": 127,
        "message": "not found",
    }
    assert story.fact("task_ended") == ended(exit_code=127, first_rank=1)


def test_a_stop_is_passed_on_and_enforced_after_the_grace_time() -> None:
    story = Story(2, grace_s=5.0)
    assert story.signals(story(StopAsked("signal 15"))) == [
        (0, TERM),
        (0, CONT),
        (1, TERM),
        (1, CONT),
    ]
    story(RankExited(0, None, TERM))
    assert story.signals(story.tick_until(4.9)) == []
    assert story.signals(story.tick_until(0.2)) == [(1, KILL)]
    story(RankExited(1, None, KILL))
    assert story.fact("task_ended") == ended(exit_code=None, signal=TERM, reason="stop")
    assert [f["reason"] for f in story.facts if f["type"] == "process_exited"] == ["stop", "stop"]


def test_an_interrupt_is_passed_on_as_such_and_a_second_signal_too() -> None:
    story = Story()
    assert story.signals(story(StopAsked("signal 2", 2)))[0] == (0, 2)
    assert story.signals(story(StopAsked("signal 15", 15)))[0] == (0, TERM)
    assert len([f for f in story.facts if f["type"] == "stop_requested"]) == 1


def test_a_second_stop_may_only_shorten_the_grace_time() -> None:
    story = Story(grace_s=10.0)
    story(StopAsked("command"))
    story(StopAsked("command", grace_s=60.0), after_s=1)
    story(StopAsked("command", grace_s=1.0), after_s=1)
    assert story.signals(story.tick_until(1.1)) == [(0, KILL)]


def test_a_program_that_ends_well_after_a_stop_ends_with_zero() -> None:
    story = Story()
    story(StopAsked("signal 15"))
    story(RankExited(0, 0, None))
    assert story.fact("task_ended") == ended(reason="stop")


def test_the_time_limit_stops_and_is_named() -> None:
    story = Story(grace_s=2.0, max_duration_s=60.0)
    assert story.signals(story.tick_until(59.9)) == []
    assert story.signals(story.tick_until(0.2)) == [(0, TERM), (0, CONT)]
    assert story.signals(story.tick_until(2.0)) == [(0, KILL)]
    story(RankExited(0, None, KILL))
    assert story.fact("stop_requested")["by"] == "walltime"
    assert story.fact("task_ended") == ended(exit_code=None, signal=KILL, reason="walltime")


def test_a_plain_signal_is_passed_on_without_meaning() -> None:
    story = Story(2)
    assert story.signals(story(SignalAsked(10))) == [(0, 10), (1, 10)]
    assert story.machine.reason is None and story.machine.wake_s(story.now_s) is None


def test_running_out_of_memory_is_told() -> None:
    story = Story()
    story(RankExited(0, None, KILL, oom=True))
    assert story.fact("task_ended")["oom"] is True


# -- leftovers (F30)


def test_children_that_go_by_themselves_are_not_called_leftovers() -> None:
    story = Story()
    story.leftovers = (5,)
    story(RankExited(0, 0, None))
    story.tick_until(0.1)
    story.leftovers = ()
    story.tick_until(0.1)
    assert story.machine.phase == "flushing" and not [
        f for f in story.facts if f["type"] == "leftovers"
    ]


def test_leftovers_are_told_terminated_and_killed() -> None:
    story = Story()
    story.leftovers = (5, 6)
    story(RankExited(0, 0, None))
    said = story.tick_until(0.5)
    assert SignalLeftovers(TERM) in said and story.fact("leftovers")["pids"] == [5, 6]
    story.leftovers = (6,)
    assert SignalLeftovers(KILL) in story.tick_until(3.0)
    story.leftovers = ()
    story.tick_until(0.1)
    assert story.fact("task_ended") == ended()


def test_a_leftover_that_cannot_be_killed_does_not_hold_the_task() -> None:
    story = Story()
    story.leftovers = (5,)
    story(RankExited(0, 0, None))
    story.tick_until(30.0)
    assert story.machine.phase == "flushing"


# -- the shipper


def test_a_shipper_that_dies_is_started_again_later_and_later() -> None:
    story, pauses = Story(), []
    for _ in range(12):
        story(ShipperExited(final=False))
        wake = story.machine.wake_s(story.now_s)
        assert wake is not None
        pauses.append(round(wake - story.now_s, 3))
        assert StartShipper() in story.tick_until(wake - story.now_s)
    assert (
        pauses[0] == SHIPPER_RESTART_FIRST_S
        and pauses == sorted(pauses)
        and pauses[-1] == SHIPPER_RESTART_MAX_S
    )


def test_a_shipper_that_has_lived_long_starts_the_pauses_anew() -> None:
    story = Story()
    for _ in range(5):
        story(ShipperExited(final=False))
        story.tick_until(30.0)
    story(ShipperExited(final=False), after_s=100)
    assert story.machine.wake_s(story.now_s) == pytest.approx(story.now_s + SHIPPER_RESTART_FIRST_S)


def test_at_the_end_a_missing_shipper_is_started_at_once() -> None:
    story = Story()
    story(ShipperExited(final=False))
    assert StartShipper() in story(RankExited(0, 0, None))


def test_the_shim_leaves_when_the_shipper_takes_too_long() -> None:
    story = Story()
    story(RankExited(0, 0, None))
    story.tick_until(FLUSH_AT_END_S - 1)
    assert not story.left
    story.tick_until(2)
    assert story.left


# -- adopting


def adopted(story: Story, *args: Any, **fields: Any) -> list[ShimInstruction]:
    story.machine = ShimMachine(story.machine.plan, ships=False)
    story.facts.clear()
    return story(Adopted(*args, **fields))


def test_exit_codes_that_nobody_saw_are_told_as_lost() -> None:
    story = Story(2)
    adopted(story, {0: 1000, 1: 1001})
    story(RankExited(0, None, None), RankExited(1, None, None))
    assert story.fact("task_ended") == ended(exit_code=None, lost=True)
    assert story.left


def test_what_the_old_shim_wrote_down_counts() -> None:
    story = Story(2)
    adopted(story, {}, (RankExited(0, 0, None), RankExited(1, 0, None)))
    assert story.fact("task_ended") == ended()
    story = Story(2)
    said = adopted(story, {0: 1000}, (RankExited(1, 4, None),))
    assert story.signals(said) == [(0, TERM), (0, CONT)]
    story(RankExited(0, None, None))
    assert story.fact("task_ended") == ended(exit_code=4, first_rank=1)


def test_a_stop_and_a_time_limit_go_on_where_the_old_shim_was() -> None:
    story = Story(1, grace_s=5.0, max_duration_s=100.0)
    adopted(story, {0: 1000}, reason="stop")
    assert story.signals(story.tick_until(5.1)) == [(0, KILL)]
    story = Story(1, grace_s=5.0, max_duration_s=100.0)
    adopted(story, {0: 1000}, elapsed_s=90.0)
    assert story.signals(story.tick_until(10.1)) == [(0, TERM), (0, CONT)]
    story(RankExited(0, None, None))
    assert story.fact("task_ended")["reason"] == "walltime"


# -- any order

EVENTS = st.one_of(
    st.builds(
        RankExited, st.integers(0, 2), st.sampled_from([0, 1, None]), st.sampled_from([None, 9, 15])
    ),
    st.builds(
        StopAsked, st.just("command"), st.sampled_from([2, 15]), st.sampled_from([None, 0.0, 3.0])
    ),
    st.builds(SignalAsked, st.integers(1, 31)),
    st.builds(ShipperExited, st.booleans()),
    st.just(Tick()),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0, 20)), max_size=30), st.booleans())
def test_whatever_happens_a_task_ends_once_and_only_when_its_ranks_are_gone(
    events: list[tuple[ShimEvent, float]], limited: bool
) -> None:
    story = Story(3, max_duration_s=50.0 if limited else None)
    gone: set[int] = set()
    for event, after_s in events:
        if isinstance(event, RankExited):
            gone.add(event.index)
        for index, _ in story.signals(story(event, after_s=after_s)):
            assert index not in gone, "a rank that was reaped is never signalled (F29)"
        assert bool([f for f in story.facts if f["type"] == "task_ended"]) == (gone == {0, 1, 2})
    for index in range(3):
        story(RankExited(index, 0, None))
    story.tick_until(1000.0)
    assert story.left and story.fact("task_ended")
    exits = [f["rank"] for f in story.facts if f["type"] == "process_exited"]
    assert sorted(exits) == [0, 1, 2]

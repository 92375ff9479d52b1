"""A task with folders: the ranks wait for them, and the end waits until they are sent. Pure, in
made-up time.
"""

from pathlib import Path
from typing import Any

import pytest

from headway.agent.shim.folders import START_S, Carrier
from headway.agent.shim.machine import (
    Adopted,
    Begun,
    FoldersSeen,
    GoAhead,
    LeftoversSeen,
    RankExited,
    RankStarted,
    ShimInstruction,
    ShimMachine,
    ShimPlan,
    StartRank,
    StopAsked,
    TellCarrier,
    Tick,
    Write,
)
from headway.agent.ship.cleanup import keep_refused
from headway.diagnose.exit import Exit, explain_exit
from headway.model.limits import FOLDER_STARTS_MAX

pytestmark = pytest.mark.cap(48)
CAUSE = {"cause": "missing_file", "class": "user", "text": "nothing there"}


def told(said: list[ShimInstruction]) -> list[str]:
    return [one.do for one in said if isinstance(one, TellCarrier)]


def starts(said: list[ShimInstruction]) -> int:
    return sum(isinstance(one, StartRank) for one in said)


def result(said: list[ShimInstruction]) -> dict[str, Any]:
    (fact,) = [
        one.fact for one in said if isinstance(one, Write) and one.fact["type"] == "task_ended"
    ]
    return fact


def begun(**plan: Any) -> ShimMachine:
    machine = ShimMachine(ShimPlan(1, fetches=True, **plan))
    said = machine.handle(Begun(), 0.0)
    assert told(said) == ["start"] and starts(said) == 0
    return machine


def running(**plan: Any) -> ShimMachine:
    machine = begun(**plan)
    assert starts(machine.handle(FoldersSeen(True), 1.0)) == 1
    machine.handle(RankStarted(0, 7, 1), 1.0)
    return machine


def test_the_ranks_start_when_the_folders_are_there() -> None:
    machine = running()
    machine.handle(RankExited(0, 0, None), 2.0)
    assert result(machine.handle(LeftoversSeen(()), 2.0))["exit_code"] == 0


def test_the_ranks_of_several_tasks_wait_for_the_folders_and_for_each_other() -> None:
    machine = begun(barrier=True)
    assert starts(machine.handle(FoldersSeen(True), 1.0)) == 0
    assert starts(machine.handle(GoAhead(), 2.0)) == 1
    other = begun(barrier=True)
    assert starts(other.handle(GoAhead(), 1.0)) == 0
    assert starts(other.handle(FoldersSeen(True), 2.0)) == 1


def test_folders_that_cannot_be_had_end_the_task_with_their_cause() -> None:
    machine = begun(sends=True)
    machine.handle(FoldersSeen(False, CAUSE), 1.0)
    fact = result(machine.handle(LeftoversSeen(()), 1.0))
    assert fact["cause"] == CAUSE and fact["exit_code"] is None and not fact["lost"]
    found = explain_exit(Exit(None, None, told=fact["cause"]))
    assert found is not None and (found.cause, found.cls, found.text) == tuple(CAUSE.values())


def test_a_stop_while_folders_come_starts_nothing_and_sends_nothing() -> None:
    machine = begun(sends=True)
    assert told(machine.handle(StopAsked("command"), 1.0)) == ["stop"]
    said = machine.handle(LeftoversSeen(()), 1.0)
    assert result(said)["reason"] == "stop" and told(said) == []
    assert starts(machine.handle(FoldersSeen(True), 2.0)) == 0


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("code", [0, 3])
def test_the_task_ends_when_its_folders_are_sent(code: int, sent: bool) -> None:
    machine = running(sends=True)
    machine.handle(RankExited(0, code, None), 2.0)
    said = machine.handle(LeftoversSeen(()), 2.0)
    assert told(said) == ["end"] and not any(isinstance(one, Write) for one in said)
    assert machine.handle(StopAsked("command"), 3.0) == []  # what is left is sent all the same
    assert machine.handle(Tick(), 1e6) == []
    fact = result(machine.handle(FoldersSeen(sent, None if sent else CAUSE, ("a note",)), 1e6))
    assert fact.get("cause") == (CAUSE if code == 0 and not sent else None)
    assert fact["exit_code"] == (None if code == 0 and not sent else code)


def test_a_held_task_sends_when_it_is_let_go() -> None:
    machine = running(sends=True, hold_s=100.0)
    machine.handle(RankExited(0, 3, None), 2.0)
    assert told(machine.handle(LeftoversSeen(()), 2.0)) == []
    assert told(machine.handle(Tick(), 103.0)) == ["end"]


def test_whoever_takes_over_sends_what_is_left() -> None:
    machine = ShimMachine(ShimPlan(1, fetches=True, sends=True), ships=False)
    machine.handle(Adopted({0: 7}), 0.0)
    machine.handle(RankExited(0, None, None), 1.0)
    assert told(machine.handle(LeftoversSeen(()), 1.0)) == ["end"]
    assert result(machine.handle(FoldersSeen(True), 2.0))["lost"]


def test_a_carrier_that_dies_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("headway.agent.shim.folders.carrier_argv", lambda task_dir: ["/bin/false"])
    carrier = Carrier(str(tmp_path), outside=False, sends=True, say=said.append)
    now_s, seen = 10.0, None
    carrier.tell("start", now_s)
    while seen is None:
        now_s += START_S
        seen = carrier.look(now_s)
        assert now_s < 100 * START_S
    assert len(carrier.sessions) == FOLDER_STARTS_MAX
    assert not seen.ok and seen.cause is not None and seen.cause["cause"] == "agent_not_started"


def test_keys_do_not_stay_where_a_stream_was_refused(tmp_path: Path) -> None:
    for name in ("folders.json", "env.json", "stdout-0", "shim"):
        (tmp_path / name).write_text("secret")
    keep_refused(str(tmp_path), ("stdout-0",), [])
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "shim",
        "stdout-0",
    ]

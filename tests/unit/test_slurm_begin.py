"""Whether Slurm has taken a start back is told by its times and those of the task's folder, never
by its word alone.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from headway.engines.protocol import EngineId, Given
from headway.engines.slurm import requeue
from headway.engines.slurm.parse import JobLine
from headway.engines.spool.cluster_folder import TaskView
from headway.model.errors import UnreachableError
from tests.unit.test_slurm_engine import KEY, NODES, UUID, Rig, job, line
from tests.unit.test_slurm_engine import rig as rig  # a fixture

SUBMIT = "2026-03-28T12:00:00"
MADE_S = 1_700_000_000.0  # of another clock: only spans count
HOUR_S, NIGHT_S = 3600.0, 54_000.0


def at(after_s: float) -> str:
    return (datetime.fromisoformat(SUBMIT) + timedelta(seconds=after_s)).isoformat(
        timespec="seconds"
    )


@pytest.mark.parametrize(
    ("started_s", "sign_s", "lost"),
    [
        (1.0, 1.4, False),  # the start that its agent belongs to
        (1.0, 200.0, False),  # an agent that took its time
        # whole seconds: the folder was made late in one, Slurm's began early in the next
        (2.0, 0.2, False),
        (6.0, 2.0, True),  # started anew four seconds later
        (90.0, 2.0, True),  # after an outage
        (NIGHT_S + 8.0, NIGHT_S + 1.0, True),  # one that had waited
        (NIGHT_S, NIGHT_S + 30.0, False),
        (NIGHT_S + HOUR_S, NIGHT_S + 1.0, False),  # the clocks were set an hour forward meanwhile
        (NIGHT_S + HOUR_S, NIGHT_S + 200.0, False),
        (NIGHT_S - HOUR_S, NIGHT_S + 1.0, False),  # and back
        (30.0, -5.0, False),  # the sign of an earlier submission
    ],
)
def test_an_agent_that_began_before_the_start_that_slurm_tells_of_belongs_to_one_that_was_lost(
    started_s: float, sign_s: float, lost: bool
) -> None:
    assert requeue.is_lost(SUBMIT, at(started_s), MADE_S, MADE_S + sign_s) is lost


@pytest.mark.parametrize(
    ("submit", "start", "made_s", "sign_s"),
    [
        (None, at(60), MADE_S, MADE_S + 1),  # the accounting, which was not asked for it
        (SUBMIT, None, MADE_S, MADE_S + 1),  # it waits
        ("Unknown", at(60), MADE_S, MADE_S + 1),
        (f"{SUBMIT}+00:00", at(60), MADE_S, MADE_S + 1),
        (SUBMIT, at(60), 0.0, 0.0),  # its folder is gone
        (SUBMIT, at(60), MADE_S, 0.0),  # nothing has begun
    ],
)
def test_without_all_four_times_nothing_is_concluded(
    submit: str | None, start: str | None, made_s: float, sign_s: float
) -> None:
    assert requeue.is_lost(submit, start, made_s, sign_s) is False


def view(begun: bool, sign_s: float = 0.0) -> TaskView:
    return TaskView(
        begun,
        False,
        False,
        False,
        None,
        0.0,
        made_s=MADE_S,
        sign_s=MADE_S + sign_s if sign_s else 0.0,
    )


@pytest.mark.parametrize(
    ("word", "fields", "begun", "views", "cause"),
    [
        ("CANCELLED", {}, False, [view(True, 2.0)], None),  # by somebody, a second after its start
        ("CANCELLED", {"StartTime": at(9)}, False, [view(True, 2.0)], "start_lost"),
        # its batch script had begun
        ("CANCELLED", {"StartTime": at(9)}, False, [view(False, 2.0)], "start_lost"),
        ("FAILED", {"StartTime": at(9)}, False, [view(True, 2.0), view(True, 2.1)], "start_lost"),
        ("FAILED", {}, False, [view(True, 2.0)], None),
        # it began the second time
        ("FAILED", {"StartTime": at(9)}, False, [view(True, 9.5), view(False, 2.0)], None),
        ("PENDING", {"StartTime": "N/A"}, False, [view(True, 2.0)], "start_lost"),
        # its folder is gone: all of it was sent
        ("PENDING", {"StartTime": "N/A"}, True, [], "start_lost"),
        ("PENDING", {"StartTime": "N/A"}, False, [view(False)], None),
        ("PENDING", {"Restarts": "1", "StartTime": "N/A"}, True, [], "preempted"),
        ("FAILED", {"Restarts": "2", "StartTime": at(200)}, False, [view(True, 2.0)], "preempted"),
        # before it had begun
        ("FAILED", {"Restarts": "1", "StartTime": at(200)}, False, [view(False)], None),
    ],
)
def test_a_start_that_was_taken_back_is_told_whatever_slurm_calls_it(
    word: str, fields: dict[str, str], begun: bool, views: list[TaskView], cause: str | None
) -> None:
    told = {"SubmitTime": SUBMIT, "StartTime": at(1), "Restarts": "0", **fields}
    start = None if told["StartTime"] == "N/A" else told["StartTime"]
    end = requeue.end_of(JobLine("17", word, start=start, fields=told), begun, views).get("end", {})
    assert end.get("cause") == cause and (cause is None or f"(now {word})" in end["text"])


def answer(rig: Rig, word: str, **fields: Any) -> None:
    rig.commands.answers["squeue"] = line("17", word, f"headway:{KEY}")
    told = " ".join(f"{name}={value}" for name, value in fields.items())
    text = f"JobId=17 JobState={word} Reason=None NodeList=n1 ExitCode=0:0 Comment=headway:{KEY} {told}\n"
    rig.commands.answers["scontrol"] = text


def test_a_job_that_waits_again_after_it_had_begun_is_over_and_withdrawn(rig: Rig) -> None:
    rig.submit(job())
    (rig.engine.spool / f"{KEY}-worker-0" / "shim.json").write_text("{}")
    answer(rig, "RUNNING")
    assert rig.engine.observe([EngineId("17")])[EngineId("17")].state == "running"
    rig.now_s += 60.0
    answer(rig, "PENDING", SubmitTime=SUBMIT, StartTime="N/A", Restarts=0)
    rig.commands.answers["scancel"] = ""
    seen = rig.engine.observe([EngineId("17")])[EngineId("17")]
    assert (seen.state, seen.detail["end"]["cause"]) == ("gone", "start_lost")
    assert ["scancel", "17"] in rig.commands.asked
    rig.engine._shelf.remove([f"{KEY}-worker-0"])  # all of it was sent
    answer(rig, "CANCELLED", SubmitTime=SUBMIT, StartTime=at(9), Restarts=0)
    seen = rig.engine.observe([EngineId("17")])[EngineId("17")]
    assert seen.detail["end"]["cause"] == "start_lost"  # it stays what it was


def begins(rig: Rig) -> None:
    rig.submit(job())
    (rig.engine.spool / f"{KEY}-worker-0" / "shim.json").write_text("{}")
    answer(rig, "RUNNING")
    rig.now_s += 60.0
    assert rig.engine.observe([EngineId("17")])[EngineId("17")].state == "running"


@pytest.mark.parametrize("heard", [True, False])
def test_the_number_of_a_job_that_had_begun_may_be_given_to_the_next_one_which_has_not(
    rig: Rig, heard: bool
) -> None:
    """A controller that came back without the first one. `heard`: whether sbatch's answer has come."""
    begins(rig)
    later = f"{UUID}-2"
    rig.commands.answers |= {"scontrol": NODES, "squeue": "", "scancel": ""}
    rig.now_s += 0.2
    plan = rig.engine.plan(job(), 2)
    given = Given({}, {"worker-0": "id.secret"})
    if not heard:
        rig.commands.answers["sbatch"] = UnreachableError("sbatch did not answer within 30 s")
        with pytest.raises(UnreachableError):
            rig.engine.submit(plan, later, given)
    rig.commands.answers |= {
        "sbatch": "17",
        "squeue": "" if heard else line("17", "PENDING", f"headway:{later}"),
    }
    assert rig.engine.submit(plan, later, given) == "17"
    for _ in range(2):
        assert rig.engine.observe([EngineId("17")])[EngineId("17")].state == "starting"
        rig.now_s += 60.0
        rig.commands.answers["squeue"] = line("17", "PENDING", f"headway:{later}")
    assert rig.commands.count("scancel") == 0


def test_nothing_is_kept_of_a_job_that_is_discarded(rig: Rig) -> None:
    begins(rig)
    rig.now_s += 60.0
    answer(rig, "PENDING", SubmitTime=SUBMIT, StartTime="N/A", Restarts=0)
    rig.engine.observe([EngineId("17")])
    assert rig.engine._begun and rig.engine._taken
    answer(rig, "CANCELLED", SubmitTime=SUBMIT, StartTime=at(9), Restarts=0)
    rig.engine.ask_again()
    rig.engine.discard(EngineId("17"))
    assert not (rig.engine._begun or rig.engine._taken or rig.engine._ended)

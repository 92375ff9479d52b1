"""Agents on other machines, whose locks may not be seen here: when the Slurm engine takes them for
dead (F33).
"""

import fcntl
import json
import os
from pathlib import Path

import pytest

from headway.engines.protocol import EngineId, Observation
from headway.engines.slurm.engine import NODES_FRESH_S
from headway.model.limits import SALVAGE_ENDED_S, SALVAGE_SILENT_S, TAKEN_KEEP_S
from headway.model.record import FACT, OPEN
from headway.wire import frame
from headway.wire.file_lock import CLAIM, SHOWN, TAKEN
from tests.unit.test_slurm_engine import KEY, NODES, Rig, job, line

ID = EngineId("17")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, sbatch="17\n")
    rig.submit(job())
    begin(folder_of(rig), "another machine")
    return rig


def folder_of(rig: Rig) -> Path:
    return rig.engine.spool / f"{KEY}-worker-0"


def begin(folder: Path, boot: str) -> None:
    (folder / "shim.json").write_text(json.dumps({"pid": 7, "start": 1, "boot_id": boot}))
    (folder / "stdout-0").write_text("begun")
    show(folder, 1)


def show(folder: Path, at_ns: int) -> None:
    """As an agent does from time to time."""
    (folder / SHOWN).touch()
    os.utime(folder / SHOWN, ns=(at_ns, at_ns))


def over(rig: Rig, word: str, nodes: str = NODES) -> None:
    """Slurm is done with the job."""
    rig.commands.answers["squeue"] = line("17", word, f"headway:{KEY}")
    told = f"JobId=17 JobState={word} Reason=None NodeList=n1 ExitCode=0:0 Comment=headway:{KEY}\n"
    rig.commands.answers["scontrol"] = lambda argv, _: told if argv[2] == "job" else nodes


def look(rig: Rig, after_s: float = 0.0) -> Observation:
    rig.now_s += after_s
    return rig.engine.observe([ID])[ID]


def end(folder: Path) -> None:
    """The agent has written down its end, and all of it has been sent."""
    data = frame.encode_json(OPEN, {"version": 1, "stream": "shim"})
    data += frame.encode_json(FACT, {"type": "task_ended", "exit_code": 0})
    (folder / "shim").write_bytes(data)
    (folder / "cursor.json").write_text(json.dumps({"shim": len(data), "stdout-0": 100}))


def test_a_lost_node_is_given_up_when_its_agent_has_shown_no_life_for_a_while(rig: Rig) -> None:
    over(rig, "NODE_FAIL")
    first = look(rig)
    assert (first.state, "salvage" in first.detail) == (
        "unknown",
        False,
    ) and "may still live" in first.state_word
    assert not rig.engine.salvage(ID)
    assert look(rig, SALVAGE_SILENT_S - 1).state == "unknown"
    show(folder_of(rig), 2)  # it lives
    assert look(rig).state == "unknown" and look(rig, SALVAGE_SILENT_S - 1).state == "unknown"
    with (folder_of(rig) / "stdout-0").open("a") as file:
        file.write("more")  # its program does
    assert look(rig).state == "unknown" and look(rig, SALVAGE_SILENT_S - 1).state == "unknown"
    left = look(rig, 1)
    assert (left.state, left.detail["salvage"], left.detail["silence_s"]) == (
        "gone",
        True,
        SALVAGE_SILENT_S,
    )


def test_an_end_that_the_nodes_themselves_have_told_needs_less_silence(rig: Rig) -> None:
    over(rig, "FAILED")
    assert look(rig).state == "unknown"
    assert look(rig, SALVAGE_ENDED_S).detail["silence_s"] == SALVAGE_ENDED_S


@pytest.mark.parametrize("state", ["DOWN", "DOWN*", "IDLE*", "MIXED+NOT_RESPONDING"])
def test_a_node_that_does_not_answer_has_told_nothing(rig: Rig, state: str) -> None:
    over(rig, "CANCELLED", NODES.replace("State=IDLE", f"State={state}", 1))
    look(rig, NODES_FRESH_S + 1)
    assert look(rig, SALVAGE_ENDED_S).state == "unknown"
    assert look(rig, SALVAGE_SILENT_S - SALVAGE_ENDED_S).detail["salvage"]


def test_an_agent_of_this_machine_is_known_by_its_lock_alone(rig: Rig) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    begin(folder_of(rig), boot)
    over(rig, "NODE_FAIL")
    seen = look(rig)
    assert seen.detail["salvage"] and "silence_s" not in seen.detail


def test_while_an_agent_is_asked_whether_it_lives_nothing_is_said_of_it(rig: Rig) -> None:
    """Whoever asks holds the lock; where he died over it, the next one asks again."""
    over(rig, "NODE_FAIL")
    (folder_of(rig) / CLAIM).touch()
    look(rig)
    assert look(rig, SALVAGE_SILENT_S).detail.get("salvage")
    with (folder_of(rig) / SHOWN).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert (
            look(rig).state == "unknown"
            and "asking whether its agent still lives" in look(rig).state_word
        )


def test_the_folder_of_a_task_that_was_taken_over_stays_for_what_may_come(rig: Rig) -> None:
    over(rig, "NODE_FAIL")
    (folder_of(rig) / TAKEN).touch()
    end(folder_of(rig))
    seen = look(rig)
    assert (
        seen.state == "ended" and not seen.detail.get("drained") and not seen.detail.get("salvage")
    )
    assert not look(rig, TAKEN_KEEP_S - 1).detail.get("drained") and folder_of(rig).exists()
    assert look(rig, 1).detail["drained"] and not folder_of(rig).exists()

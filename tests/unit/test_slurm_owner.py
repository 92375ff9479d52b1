"""A controller that lost its state gives numbers out again: what has our number now is neither
believed nor ended.
"""

import json
from pathlib import Path

import pytest

from headway.engines.protocol import EngineId
from headway.model.errors import RefusedError, UnreachableError
from headway.wire.batch import TaskKey
from tests.unit.test_slurm_engine import KEY, NODES, UUID, Rig, job, line

ID = EngineId("17")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, sbatch="17\n", scancel="", srun="")
    rig.submit(job())
    return rig


def told(rig: Rig, state: str, comment: str, output: str | None, name: str = "job-7f3c2") -> None:
    """What Slurm says of number 17 now."""
    rig.commands.answers["squeue"] = line("17", state, comment)
    words = f"JobId=17 JobName={name} JobState={state} Reason=None NodeList=n1 ExitCode=0:0 Comment={comment}"
    words += f" StdOut={output}" if output else ""
    rig.commands.answers["scontrol"] = lambda argv, _: f"{words}\n" if argv[2] == "job" else NODES


def begin(rig: Rig) -> None:
    folder = rig.engine.spool / f"{KEY}-worker-0"
    (folder / "shim.json").write_text(json.dumps({"pid": 7, "start": 1}))


@pytest.mark.parametrize(
    ("comment", "output"),
    [
        ("(null)", "/x/slurm-17.out"),
        ("(null)", None),
        ("my own", "/x/17.out"),
        (f"headway:{UUID}-2", "/x"),
    ],
)
def test_a_number_that_another_job_has_now_is_neither_believed_nor_ended(
    rig: Rig, comment: str, output: str | None
) -> None:
    begin(rig)
    for state in ("PENDING", "RUNNING", "FAILED"):
        told(rig, state, comment, output, "other")
        rig.now_s += 60.0
        seen = rig.engine.observe([ID])[ID]
        assert (seen.state, seen.state_word) == ("gone", "no longer known to Slurm")
        assert not rig.engine.cancel(ID) and rig.engine.cancel_many([ID]) == []
        assert rig.engine.attach(TaskKey(UUID, 1, "worker-0"), "n1") is None
        assert rig.engine.explain(ID).reason == "Slurm does not know it"
    assert rig.commands.count("scancel") == rig.commands.count("srun") == 0


def test_our_job_whose_comment_somebody_has_changed_is_known_by_its_output_and_asked_about_once(
    rig: Rig,
) -> None:
    begin(rig)
    told(rig, "RUNNING", "for the budget", f"{rig.engine.spool}/{KEY}.slurm")
    before = rig.commands.count("scontrol")
    for _ in range(5):
        rig.now_s += 60.0
        assert rig.engine.observe([ID])[ID].state == "running"
    assert rig.commands.count("scontrol") == before + 1
    assert rig.engine.cancel(ID) and rig.commands.count("srun") == 1


def test_whose_it_is_is_not_guessed_while_the_controller_does_not_say(rig: Rig) -> None:
    begin(rig)
    told(rig, "RUNNING", "(null)", None)
    rig.commands.answers["scontrol"] = UnreachableError("scontrol did not answer within 30 s")
    rig.now_s += 60.0
    assert rig.engine.observe([ID])[ID].state == "unknown"
    with pytest.raises(UnreachableError):
        rig.engine.cancel(ID)
    assert rig.commands.count("scancel") == 0


@pytest.mark.parametrize(
    ("name", "word"), [("other", "no longer known to Slurm"), ("job-7f3c2", "FAILED")]
)
def test_an_accounting_without_comments_is_believed_by_the_name(
    rig: Rig, name: str, word: str
) -> None:
    begin(rig)
    rig.commands.answers["squeue"] = ""
    rig.commands.answers["scontrol"] = RefusedError("Slurm refuses it: Invalid job id specified")
    rig.commands.answers["sacct"] = f"17|FAILED|1:0|n1|2026-11-16T01:00:00|None|{name}|\n"
    rig.now_s += 60.0
    assert rig.engine.observe([ID])[ID].state_word == word


def test_a_job_that_slurm_has_given_up_offers_no_shell_although_its_agent_goes_on(rig: Rig) -> None:
    begin(rig)
    task = TaskKey(UUID, 1, "worker-0")
    told(rig, "RUNNING", f"headway:{KEY}", None)
    rig.now_s += 60.0
    rig.engine.observe([ID])
    assert rig.engine.attach(task, "n1") == [
        "srun",
        "--jobid=17",
        "--overlap",
        "-w",
        "n1",
        "--pty",
        "bash",
        "-i",
    ]
    told(rig, "NODE_FAIL", f"headway:{KEY}", None)
    rig.now_s += 60.0
    rig.engine.observe([ID])
    assert rig.engine.attach(task, "n1") is None

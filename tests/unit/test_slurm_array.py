"""An array's jobs as one batch job on Slurm: one sbatch, each with its own key, found again
whatever was lost.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest

from headway.engines.protocol import EngineId, Given, Start
from headway.engines.slurm import array
from headway.model.errors import HeadwayError, RefusedError, UnreachableError
from headway.model.job import Job, JobSpec, State
from tests.unit.test_slurm_engine import Rig

ARRAY = "11111111-89ab-cdef-0123-456789abcdef"


def uuid_of(index: int) -> str:
    return str(uuid5(UUID(ARRAY), str(index)))


def key_of(index: int, attempt: int = 1) -> str:
    return f"{uuid_of(index)}-{attempt}"


def element(index: int, **spec: Any) -> Job:
    values: dict[str, Any] = {
        "command": ["t"],
        "cwd": "/",
        "name": "sweep",
        "array": ARRAY,
        "array_index": index,
    }
    made = JobSpec(**{**values, **spec})
    return Job(index + 1, f"sweep-0000{index}", uuid_of(index), made, State.WAITING, 0, 0)


def starts(rig: Rig, *jobs: Job, attempt: int = 1) -> list[Start]:
    found = []
    for job in jobs:
        plan = rig.engine.plan(job, attempt)
        given = Given(
            {"PATH": "/bin", "ME": job.id}, {task.name: f"id.{job.id}" for task in plan.tasks}
        )
        found.append(
            Start(plan, f"{job.uuid}-{attempt}", given, job.spec.array, job.spec.array_index)
        )
    return found


def line(index: int, word: str, comment: str, number: int = 17, reason: str = "None") -> str:
    return f"{number}|{word}|n1|n1|N/A|{index}|17|{comment}|{reason}\n"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, sbatch="17\n")


def comment_of(rig: Rig) -> str:
    [path] = rig.engine.spool.glob("*.array")
    return f"headway:{path.stem}"


def test_jobs_of_an_array_are_one_sbatch_and_each_has_its_own_folder_and_id(rig: Rig) -> None:
    scripts: list[str] = []
    rig.commands.answers["sbatch"] = lambda argv, text: scripts.append(text) or "17"
    found = rig.engine.submit_many(starts(rig, *(element(k) for k in (0, 1, 2, 5))))
    assert found == {key_of(k): EngineId(f"17_{k}") for k in (0, 1, 2, 5)}
    [script] = scripts
    assert "#SBATCH --array=0-2,5\n" in script and "#SBATCH --job-name=sweep\n" in script
    assert "id.sweep" not in script
    assert {path.name for path in rig.engine.spool.glob("*-worker-0")} == {
        f"{key_of(k)}-worker-0" for k in (0, 1, 2, 5)
    }


def test_every_element_of_the_script_starts_the_agent_of_its_own_folder(
    rig: Rig, tmp_path: Path
) -> None:
    scripts: list[str] = []
    rig.commands.answers["sbatch"] = lambda argv, text: scripts.append(text) or "17"
    rig.engine.submit_many(starts(rig, *(element(k, processes=8) for k in range(3))))
    fake = tmp_path / "bin"
    fake.mkdir()
    srun = '#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nshift 3\nexec sh -c "$(echo "$BODY")" "$@"\n'
    (fake / "srun").write_text(srun)
    (fake / "srun").chmod(0o755)
    body = 'key="$1"; shift; shift "$SLURM_PROCID"; echo "$key-$1"'
    for index in range(3):
        for rank in range(2):
            env = {
                "PATH": f"{fake}:{os.defpath}",
                "SLURM_ARRAY_TASK_ID": str(index),
                "SLURM_PROCID": str(rank),
            }
            done = subprocess.run(
                ["sh"],
                input=scripts[0].encode(),
                env={**env, "BODY": body},
                capture_output=True,
                check=True,
            )
            assert done.stdout.decode().strip() == f"{key_of(index)}-worker-{rank}"
    other = subprocess.run(
        ["sh"], input=scripts[0].encode(), env={"SLURM_ARRAY_TASK_ID": "9"}, check=False
    )
    assert other.returncode == 64


def test_an_answer_that_was_lost_is_found_by_the_arrays_comment(rig: Rig) -> None:
    rig.commands.answers["sbatch"] = UnreachableError("sbatch did not answer within 30 s")
    found = rig.engine.submit_many(starts(rig, element(0), element(1)))
    assert all(isinstance(one, UnreachableError) for one in found.values())
    rig.commands.answers["squeue"] = line(0, "RUNNING", comment_of(rig), 18) + line(
        1, "PENDING", comment_of(rig)
    )
    rig.engine = rig.make()  # and the server was killed meanwhile
    assert [rig.engine.find(key_of(k)) for k in range(2)] == ["17_0", "17_1"]
    assert (
        rig.engine.submit(starts(rig, element(1))[0].plan, key_of(1), Given({}, {"worker-0": "x"}))
        == "17_1"
    )
    assert rig.commands.count("sbatch") == 1


def test_a_server_killed_right_after_sbatch_finds_every_element_by_what_it_noted(rig: Rig) -> None:
    rig.engine.submit_many(starts(rig, element(0), element(1)))
    rig.engine = rig.make()
    rig.commands.answers["squeue"] = UnreachableError("squeue did not answer")
    assert [rig.engine.find(key_of(k)) for k in range(2)] == ["17_0", "17_1"]
    rig.commands.answers["squeue"] = line(0, "RUNNING", comment_of(rig), 18) + line(
        1, "PENDING", comment_of(rig)
    )
    seen = rig.engine.observe([EngineId("17_0"), EngineId("17_1")])
    # the agent of the first has not begun
    assert [one.state for one in seen.values()] == ["starting", "starting"]
    (rig.engine.spool / f"{key_of(0)}-worker-0" / "shim.json").write_text('{"pid": 1}')
    rig.now_s += 20
    assert rig.engine.observe([EngineId("17_0")])[EngineId("17_0")].state == "running"


def test_one_that_never_reached_slurm_is_not_found_and_is_submitted_alone(rig: Rig) -> None:
    rig.commands.answers["sbatch"] = UnreachableError("sbatch did not answer within 30 s")
    rig.engine.submit_many(starts(rig, element(0), element(1)))
    assert rig.engine.find(key_of(0)) is None
    rig.commands.answers["sbatch"] = "21"
    [again] = starts(rig, element(0))
    assert rig.engine.submit(again.plan, again.key, again.given) == "21"
    assert rig.engine.find(key_of(0)) == "21"


def test_jobs_that_ask_for_other_things_are_other_batch_jobs(rig: Rig) -> None:
    numbers = iter(range(17, 30))
    rig.commands.answers["sbatch"] = lambda argv, text: str(next(numbers))
    jobs = [
        element(0),
        element(1),
        element(2, processes=2),
        element(3, processes=2),
        element(4, cpus=3),
    ]
    found = rig.engine.submit_many(starts(rig, *jobs))
    assert rig.commands.count("sbatch") == 3
    assert found == {
        key_of(0): "17_0", key_of(1): "17_1", key_of(2): "18_2", key_of(3): "18_3", key_of(4): "19"
    }  # fmt: skip


def test_a_second_attempt_is_a_batch_job_of_its_own(rig: Rig) -> None:
    groups, alone = array.groups_of(starts(rig, element(0), element(1), attempt=2))
    assert groups == [] and [one.key for one in alone] == [key_of(0, 2), key_of(1, 2)]


def test_where_slurm_takes_no_such_array_each_is_submitted_alone(rig: Rig) -> None:
    def sbatch(argv: list[str], text: str) -> str:
        if "--array" in text:
            raise RefusedError(
                "Slurm refuses it: Batch job submission failed: Invalid job array specification"
            )
        return str(20 + text.count("sweep-00001"))

    rig.commands.answers["sbatch"] = sbatch
    assert rig.engine.submit_many(starts(rig, element(0), element(1))) == {
        key_of(0): "20",
        key_of(1): "21",
    }


def test_what_slurm_refuses_is_refused_to_every_element(rig: Rig) -> None:
    rig.commands.answers["sbatch"] = RefusedError(
        "Slurm refuses it: Requested time limit is invalid"
    )
    found: Mapping[str, EngineId | HeadwayError] = rig.engine.submit_many(
        starts(rig, element(0), element(1))
    )
    assert (
        all(isinstance(one, RefusedError) for one in found.values())
        and rig.commands.count("sbatch") == 1
    )


def test_those_that_wait_are_stopped_with_one_command_and_the_others_are_left_to_be_asked(
    rig: Rig,
) -> None:
    rig.engine.submit_many(starts(rig, *(element(k) for k in range(4))))
    rig.commands.answers["squeue"] = "".join(
        line(k, "RUNNING" if k == 2 else "PENDING", comment_of(rig), 17 + k) for k in range(4)
    )
    rig.commands.answers["scancel"] = ""
    asked = rig.engine.cancel_many([EngineId(f"17_{k}") for k in range(4)])
    assert asked == ["17_0", "17_1", "17_3"]
    assert [argv for argv in rig.commands.asked if argv[0] == "scancel"] == [
        ["scancel", "--state=PENDING", "17_0", "17_1", "17_3"]
    ]


def test_many_that_squeue_does_not_tell_are_asked_for_with_one_question(rig: Rig) -> None:
    rig.engine.submit_many(starts(rig, *(element(k) for k in range(8))))
    told = "".join(
        f"JobId={30 + k} ArrayJobId=17 ArrayTaskId={k} JobState=CANCELLED Reason=None ExitCode=0:15 NodeList= "
        f"StdOut={rig.engine.spool}/{key_of(k)}.slurm\n"
        for k in range(6)
    )
    rig.commands.answers["scontrol"] = lambda argv, _: (
        told if argv[2] == "job" else "MinJobAge = 300 sec\n"
    )
    seen = rig.engine.observe([EngineId(f"17_{k}") for k in range(8)])
    assert sum(argv[:3] == ["scontrol", "show", "job"] for argv in rig.commands.asked) == 1
    assert rig.commands.count("sacct") == 1  # which this cluster does not have
    assert [seen[EngineId(f"17_{k}")].state_word for k in (0, 7)] == [
        "CANCELLED",
        "lost by Slurm's controller",
    ]


def test_an_element_that_is_no_longer_in_its_array_was_cancelled_there(rig: Rig) -> None:
    rig.engine.submit_many(starts(rig, *(element(k) for k in range(3))))
    rig.commands.answers["squeue"] = line(0, "PENDING", comment_of(rig)) + line(
        2, "PENDING", comment_of(rig)
    )
    rig.commands.answers["scontrol"] = RefusedError("Slurm refuses it: Job 17_1 not found")
    seen = rig.engine.observe([EngineId(f"17_{k}") for k in range(3)])
    assert [one.state for one in seen.values()] == ["starting", "gone", "starting"]
    end = seen[EngineId("17_1")].detail["end"]
    assert (end["cause"], end["text"]) == (
        "cancelled",
        "Slurm: CANCELLED (while it waited in its array)",
    )


def test_the_note_of_an_array_goes_with_the_last_of_its_jobs(rig: Rig) -> None:
    rig.engine.submit_many(starts(rig, element(0), element(1)))
    rig.commands.answers["scontrol"] = RefusedError("Slurm refuses it: Invalid job id specified")
    rig.engine.discard(EngineId("17_0"))
    assert list(rig.engine.spool.glob("*.array")) and rig.engine.find(key_of(1)) == "17_1"
    rig.engine.discard(EngineId("17_1"))
    assert list(rig.engine.spool.iterdir()) == []


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2], "0-2"), ([5, 1, 2, 7], "1-2,5,7")]
)
def test_indices_are_written_as_sbatch_wants_them(numbers: list[int], text: str) -> None:
    assert array.indices(numbers) == text


def test_numbers_beyond_what_slurm_counts_are_counted_anew(rig: Rig) -> None:
    [group], alone = array.groups_of(starts(rig, element(5000), element(5001)))
    assert alone == [] and group.keys == {"0": key_of(5000), "1": key_of(5001)}

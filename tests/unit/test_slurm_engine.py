"""The Slurm engine with commands that a test answers: garbage, silence, answers that get lost (F22,
F23, F24).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import EngineId, Given
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.engine import POLL_MAX_S, SlurmEngine
from headway.home.paths import Paths
from headway.model.errors import RefusedError, UnreachableError
from headway.model.job import Attempt, Job, JobSpec, State, Task

UUID = "01234567-89ab-cdef-0123-456789abcdef"
KEY = f"{UUID}-1"
NODES = "".join(
    f"NodeName=n{k} CPUAlloc=0 CPUTot=8 Gres=gpu:4 GresUsed=gpu:0 RealMemory=64000 State=IDLE Partitions=gpu\n"
    for k in range(1, 5)
)


class Scripted(Commands):
    """Answers by program; an answer may be a text, an error, or a function of the words and the
    standard input.
    """

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers: dict[str, Any] = {"scontrol": NODES, "squeue": "", **answers}
        self.asked: list[list[str]] = []

    def run(self, argv: Sequence[str], text: str | None = None, timeout_s: float = 30.0) -> str:
        self.asked.append(list(argv))
        answer = self.answers.get(
            argv[0], RefusedError("Slurm refuses it: Invalid job id specified")
        )
        if isinstance(answer, Exception):
            raise answer
        return str(answer(list(argv), text)) if callable(answer) else str(answer)

    def count(self, program: str) -> int:
        return sum(argv[0] == program for argv in self.asked)


class Rig:
    def __init__(self, home: Path, **answers: Any) -> None:
        self.home, self.now_s = home, 1000.0
        self.commands = Scripted(**answers)
        self.engine = self.make()

    def make(self) -> SlurmEngine:
        get: Callable[[str], Any] = {"spool_bytes_max": 1 << 30}.__getitem__
        return SlurmEngine(
            "lab",
            Paths(self.home),
            get,
            {"partition": "gpu"},
            commands=self.commands,
            clock_s=lambda: self.now_s,
        )

    def submit(self, job: Job) -> EngineId:
        plan = self.engine.plan(job)
        given = Given(
            {"PATH": "/bin", "MY_TOKEN": "hunter22hunter22"},
            {task.name: "id.secret" for task in plan.tasks},
        )
        return self.engine.submit(plan, KEY, given)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, sbatch="17\n")


def job(**spec: Any) -> Job:
    values: dict[str, Any] = {"command": ["python", "t.py"], "cwd": "/", "name": "job", **spec}
    return Job(1, "job-7f3c2", UUID, JobSpec(**values), State.WAITING, 0, 0)


def line(job_id: str, word: str, comment: str = "(null)", reason: str = "None") -> str:
    return f"{job_id}|{word}|n1|n1|N/A|N/A|{job_id}|{comment}|{reason}\n"


def test_eight_gpus_are_two_nodes_of_four_and_nothing_secret_is_in_the_script(rig: Rig) -> None:
    seen: list[str] = []
    rig.commands.answers["sbatch"] = lambda argv, text: seen.append(text) or "17"
    assert rig.submit(job(processes=8)) == "17"
    [script] = seen
    assert "#SBATCH --nodes=2\n" in script and "#SBATCH --gres=gpu:4\n" in script
    assert "hunter22" not in script and "id.secret" not in script
    folders = sorted(path for path in rig.engine.spool.iterdir() if path.is_dir())
    assert [path.name for path in folders] == [f"{KEY}-worker-0", f"{KEY}-worker-1"]
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in folders)
    assert json.loads((folders[0] / "env.json").read_text())["MY_TOKEN"] == "hunter22hunter22"


def test_an_answer_of_sbatch_that_is_lost_is_found_by_the_comment_and_not_submitted_twice(
    rig: Rig,
) -> None:
    rig.commands.answers["sbatch"] = UnreachableError("sbatch did not answer within 30 s")
    with pytest.raises(UnreachableError):
        rig.submit(job())
    rig.commands.answers["squeue"] = line("17", "PENDING", f"headway:{KEY}")
    rig.engine = rig.make()  # and the server was killed meanwhile
    assert rig.submit(job()) == "17"
    assert rig.commands.count("sbatch") == 1


@pytest.mark.parametrize("said", ["", "\n", "Submitted batch job", "banner\nnot a number"])
def test_an_answer_that_is_no_number_is_not_taken_for_one(rig: Rig, said: str) -> None:
    rig.commands.answers["sbatch"] = said
    with pytest.raises(UnreachableError):
        rig.submit(job())


def test_what_slurm_refuses_is_refused_in_its_own_words(rig: Rig) -> None:
    rig.commands.answers["sbatch"] = RefusedError(
        "Slurm refuses it: Requested time limit is invalid"
    )
    with pytest.raises(RefusedError, match="time limit"):
        rig.submit(job())


def test_one_question_for_all_jobs_and_seldom_while_nothing_changes(rig: Rig) -> None:
    rig.commands.answers["squeue"] = "".join(line(str(k), "RUNNING") for k in range(1, 1001))
    ids = [EngineId(str(k)) for k in range(1, 1001)]
    for _ in range(120):  # two minutes
        seen = rig.engine.observe(ids)
        rig.now_s += 1.0
    assert len(seen) == 1000 and {one.state for one in seen.values()} == {"running"}
    assert 120 / POLL_MAX_S <= rig.commands.count("squeue") < 30
    assert rig.commands.count("scontrol") == 0


@pytest.mark.parametrize(
    "said", ["garbage", "17|", "17|RUN", "\0\0\0", "17|HAPPY|n1|n1|N/A|N/A|17|x|None"]
)
def test_garbage_is_never_taken_for_an_end(rig: Rig, said: str) -> None:
    rig.submit(job())
    rig.commands.answers["squeue"] = said
    rig.commands.answers["scontrol"] = "garbage as well"
    seen = rig.engine.observe([EngineId("17")])[EngineId("17")]
    assert seen.state == "unknown"


def test_a_controller_that_does_not_answer_says_nothing_about_any_job(rig: Rig) -> None:
    rig.commands.answers["squeue"] = UnreachableError("squeue did not answer within 30 s")
    with pytest.raises(UnreachableError):
        rig.engine.observe([EngineId("17")])


def test_a_waiting_job_is_seen_with_slurms_own_reason(rig: Rig) -> None:
    rig.commands.answers["squeue"] = line("17", "PENDING", reason="QOSMaxGRESPerUser")
    seen = rig.engine.observe([EngineId("17")])[EngineId("17")]
    assert (seen.state, seen.state_word) == ("starting", "PENDING (QOSMaxGRESPerUser)")


def test_nodes_that_failed_an_attempt_are_left_out_of_the_next(rig: Rig) -> None:
    tried = job(options={"exclude": "n9"})
    bad = Attempt(
        1, State.FAILED, KEY, tasks=[Task("worker-0", "n2", "ended")], retry={"do": "other_node"}
    )
    tried.attempts.append(bad)
    assert "#SBATCH --exclude=n9,n2\n" in (rig.engine.plan(tried, 2).script or "")


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"processes": 20}, "needs 5 nodes with 4 GPUs, and there are 4"),
        ({"memory_bytes": 1 << 50}, "of memory"),
        ({"cpus": 500}, "CPUs"),
        ({"processes": 8, "memory_bytes": 140_000 << 20}, "of memory"),
    ],
)
def test_what_could_never_fit_is_refused_and_named(
    rig: Rig, spec: dict[str, Any], what: str
) -> None:
    with pytest.raises(RefusedError, match=what):
        rig.engine.plan(job(**spec))


CONFIG = "SlurmctldPort = 6817\nMinJobAge               = 300 sec\n"


def forgets(*nodes: str) -> Callable[[list[str], str | None], str]:
    """A scontrol that knows nodes and settings, and no job."""

    def scontrol(argv: list[str], _: str | None) -> str:
        if argv[2] == "job":
            raise RefusedError("Slurm refuses it: Invalid job id specified")
        return CONFIG if argv[2] == "config" else "".join(nodes) or NODES

    return scontrol


def test_a_job_that_a_dying_controller_lost_is_submitted_again_and_one_that_may_be_cancelled_is_not(
    rig: Rig,
) -> None:
    rig.commands.answers["scontrol"] = forgets()
    rig.submit(job())
    assert "lost" in rig.engine.observe([EngineId("17")])[EngineId("17")].state_word
    rig.commands.answers["sbatch"] = "18"
    assert rig.submit(job()) == "18" and rig.commands.count("sbatch") == 2
    rig.now_s += 301.0  # by now a job that was cancelled is forgotten as well
    seen = rig.engine.observe([EngineId("18")])[EngineId("18")]
    assert seen.state == "gone" and "cancelled there, or lost" in seen.state_word
    assert rig.submit(job()) == "18" and rig.commands.count("sbatch") == 2


def test_a_number_that_slurm_gave_to_another_job_is_not_taken_for_ours(rig: Rig) -> None:
    rig.submit(job())
    rig.commands.answers["scontrol"] = forgets()
    rig.commands.answers["squeue"] = line("17", "RUNNING", f"headway:{UUID}-2")
    seen = rig.engine.observe([EngineId("17")])[EngineId("17")]
    assert (seen.state, seen.detail["started"]) == ("gone", False)


def test_nothing_is_submitted_a_second_time_while_the_list_of_jobs_cannot_be_read(rig: Rig) -> None:
    rig.commands.answers["sbatch"] = UnreachableError("sbatch did not answer within 30 s")
    with pytest.raises(UnreachableError):
        rig.submit(job())
    rig.commands.answers |= {"squeue": "slurm_load_jobs: <html>\n", "sbatch": "18"}
    with pytest.raises(UnreachableError, match="cannot be read"):
        rig.submit(job())
    assert rig.commands.count("sbatch") == 1


def test_of_two_nodes_only_the_one_that_is_down_failed_the_job(rig: Rig) -> None:
    rig.submit(job(processes=8))
    told = "JobId=17 JobState=NODE_FAIL Reason=NodeDown NodeList=n[1-2] ExitCode=0:0\n"
    down = NODES.replace("NodeName=n2 ", "NodeName=n2 Reason=Not responding ").replace(
        "RealMemory=64000 State=IDLE", "RealMemory=64000 State=DOWN*", 2
    )
    down = down.replace("State=DOWN*", "State=IDLE", 1)
    rig.commands.answers["scontrol"] = lambda argv, _: told if argv[2] == "job" else down
    rig.commands.answers["squeue"] = line("17", "NODE_FAIL", f"headway:{KEY}", "NodeDown")
    end = rig.engine.observe([EngineId("17")])[EngineId("17")].detail["end"]
    assert (end["cause"], end["nodes"]) == ("node_lost", ["n2"]) and "on n2" in end["text"]


def test_a_job_that_made_room_by_itself_was_preempted_whatever_slurm_calls_its_end(
    rig: Rig,
) -> None:
    rig.submit(job())
    rig.commands.answers["squeue"] = line("17", "COMPLETED", f"headway:{KEY}")
    told = "JobId=17 JobState=COMPLETED Reason=None NodeList=n1 ExitCode=0:0 PreemptTime=2026-11-16T04:32:41\n"
    rig.commands.answers["scontrol"] = told
    end = rig.engine.observe([EngineId("17")])[EngineId("17")].detail["end"]
    assert (end["cause"], end["class"], end["text"]) == (
        "preempted",
        "transient",
        "Slurm: PREEMPTED on n1",
    )
    rig.engine.observe([EngineId("17")])
    # once is enough
    assert sum(argv[:3] == ["scontrol", "show", "job"] for argv in rig.commands.asked) == 1


def test_who_cancelled_a_job_is_told_where_the_accounting_knows(rig: Rig) -> None:
    rig.submit(job())
    rig.commands.answers["squeue"] = line("17", "CANCELLED", f"headway:{KEY}")
    rig.commands.answers["scontrol"] = (
        "JobId=17 JobState=CANCELLED Reason=None NodeList=n1 ExitCode=0:15\n"
    )
    rig.commands.answers["sacct"] = (
        "17|CANCELLED by 4242|0:15|n1|2026-11-16T01:00:00|None|job-7f3c2|\n"
    )
    end = rig.engine.observe([EngineId("17")])[EngineId("17")].detail["end"]
    assert (end["cause"], end["text"]) == ("cancelled", "Slurm: CANCELLED by uid 4242 on n1")


def test_an_agent_that_never_started_leaves_the_last_words_of_the_batch_script(rig: Rig) -> None:
    rig.submit(job())
    said = "sh: /opt/python3: not found\nsrun: error: n1: task 0: Exited with exit code 127\n"
    (rig.engine.spool / f"{KEY}.slurm").write_text(said)
    rig.commands.answers["squeue"] = line("17", "FAILED", f"headway:{KEY}", "NonZeroExitCode")
    rig.commands.answers["scontrol"] = (
        "JobId=17 JobState=FAILED Reason=NonZeroExitCode NodeList=n1 ExitCode=127:0\n"
    )
    seen = rig.engine.observe([EngineId("17")])[EngineId("17")]
    assert (
        seen.detail["end"]["text"]
        == "Slurm: FAILED (NonZeroExitCode) on n1: sh: /opt/python3: not found"
    )


WATCHED = "slurmstepd: error: StepId=17.0 exceeded memory limit (244260864 > 209715200), being killed\nsrun: error\n"


def test_memory_that_ran_out_is_told_where_no_folder_of_a_task_is_left(rig: Rig) -> None:
    rig.submit(job())
    (rig.engine.spool / f"{KEY}.slurm").write_text(WATCHED)
    rig.commands.answers["squeue"] = line("17", "FAILED", f"headway:{KEY}", "NonZeroExitCode")
    rig.commands.answers["scontrol"] = (
        "JobId=17 JobState=FAILED Reason=NonZeroExitCode NodeList=n1 ExitCode=1:0 TRES=mem=200M\n"
    )
    end = rig.engine.observe([EngineId("17")])[EngineId("17")].detail["end"]
    assert (end["cause"], end["memory_bytes"]) == ("host_oom", 200 << 20)


CGROUP = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.batch. Some step tasks have been OOM Killed.\n"


@pytest.mark.parametrize(
    ("state", "exit_code", "said", "text"),
    [
        (
            "FAILED",
            "137:0",
            WATCHED,
            "Slurm: FAILED on n1, killed because memory ran out (233 MiB of 200 MiB)",
        ),
        ("FAILED", "0:9", CGROUP, "Slurm: FAILED on n1, killed because memory ran out"),
        ("OUT_OF_MEMORY", "0:125", CGROUP, "Slurm: OUT_OF_MEMORY on n1"),
        ("FAILED", "137:0", "srun: error: n1: task 0: Killed\n", None),
        ("FAILED", "7:0", WATCHED, None),
    ],
)
def test_memory_that_ran_out_is_told_whatever_slurm_calls_the_end(
    rig: Rig, state: str, exit_code: str, said: str, text: str | None
) -> None:
    rig.submit(job())
    (rig.engine.spool / f"{KEY}-worker-0" / "shim.json").write_text("{}")
    (rig.engine.spool / f"{KEY}.slurm").write_text(said)
    rig.commands.answers["squeue"] = line("17", state, f"headway:{KEY}")
    told = f"JobId=17 JobState={state} Reason=None NodeList=n1 ExitCode={exit_code} TRES=cpu=1,mem=200M,node=1\n"
    rig.commands.answers["scontrol"] = told
    end = rig.engine.observe([EngineId("17")])[EngineId("17")].detail["end"]
    found = (end["text"], end["memory_bytes"]) if end["cause"] == "host_oom" else None
    assert found == (None if text is None else (text, 200 << 20))


def test_what_is_there_but_never_together_on_enough_nodes_is_refused(rig: Rig) -> None:
    """GPUs on one node and memory on another do not help."""
    nodes = NODES.replace("RealMemory=64000", "RealMemory=8000").replace(
        "RealMemory=8000", "RealMemory=64000", 1
    )
    rig.commands.answers["scontrol"] = nodes
    with pytest.raises(
        RefusedError, match=r"needs 2 nodes with 4 GPUs and 31\.2 GiB each, and there are 1"
    ):
        rig.engine.plan(job(processes=8, memory_bytes=64_000 << 20))


def test_a_job_that_slurm_has_just_taken_needs_no_question(rig: Rig) -> None:
    rig.engine.observe([])
    rig.now_s += 0.2
    rig.submit(job())
    asked = len(rig.commands.asked)
    assert rig.engine.observe([EngineId("17")])[EngineId("17")].state == "starting"
    assert len(rig.commands.asked) == asked
    rig.now_s += 1.0
    rig.commands.answers["squeue"] = line("17", "PENDING", f"headway:{KEY}", "Resources")
    assert rig.engine.observe([EngineId("17")])[EngineId("17")].state_word == "PENDING (Resources)"


PARTITIONS = (
    "PartitionName=gpu Default=NO MaxNodes=UNLIMITED MaxTime=01:00:00 State=UP\n"
    "PartitionName=cpu Default=YES MaxNodes=2 MaxTime=UNLIMITED State=DOWN\n"
)


def told(argv: list[str], _: str | None) -> str:
    cpu = "NodeName=c1 CPUAlloc=0 CPUTot=8 RealMemory=64000 State=IDLE Partitions=cpu\n"
    return PARTITIONS if "partition" in argv else NODES + cpu


def test_several_partitions_are_all_their_nodes_and_none_is_the_default_one(rig: Rig) -> None:
    rig.commands.answers["scontrol"] = told
    both = rig.engine.plan(job(processes=8, options={"partition": "cpu,gpu"}))
    assert [task.gpus for task in both.tasks] == [4, 4]
    default = rig.engine.plan(job(processes=8, options={"partition": None}))
    assert [task.gpus for task in default.tasks] == [0]


def test_a_partition_that_is_not_there_is_refused_with_those_that_are(rig: Rig) -> None:
    rig.commands.answers["scontrol"] = told
    with pytest.raises(RefusedError, match="no partition 'gup'; did you mean \"gpu\"") as refused:
        rig.engine.plan(job(options={"partition": "gup"}))
    assert refused.value.hint == "partitions: gpu, cpu"


@pytest.mark.parametrize(
    "spec",
    [{"max_duration_s": 7200}, {"nodes": 3, "processes": 3, "options": {"partition": "cpu"}}],
)
def test_what_a_partition_never_allows_is_refused_unless_slurm_says_otherwise(
    rig: Rig, spec: dict[str, Any]
) -> None:
    many = "".join(
        f"NodeName=c{k} CPUTot=8 RealMemory=64000 State=IDLE Partitions=cpu\n" for k in range(4)
    )
    rig.commands.answers["scontrol"] = lambda argv, text: (
        told(argv, text) + ("" if "partition" in argv else many)
    )
    rig.commands.answers["sbatch"] = RefusedError(
        "Slurm refuses it: Requested time limit is invalid"
    )
    with pytest.raises(
        RefusedError, match=r"it asks for .*, and partition .* allows (1 h|2 nodes)"
    ):
        rig.engine.plan(job(**spec))
    rig.commands.answers["sbatch"] = ""  # a QoS sets the limit aside
    assert rig.engine.plan(job(**spec)).tasks
    assert all("--test-only" in argv for argv in rig.commands.asked if argv[0] == "sbatch")


def test_a_job_may_have_all_the_time_of_its_partition(rig: Rig) -> None:
    rig.commands.answers["scontrol"] = told
    assert "--time=0-01:00:00\n" in str(rig.engine.plan(job(max_duration_s=3600)).script)
    assert "--time=0-00:12:15\n" in str(rig.engine.plan(job(max_duration_s=600, grace_s=15)).script)
    assert rig.commands.count("sbatch") == 0


def test_a_partition_that_is_closed_is_told_with_the_queue(rig: Rig) -> None:
    rig.commands.answers |= {"scontrol": told, "squeue": "RUNNING\nPENDING\nPENDING\n"}
    assert rig.engine.queue_words() == "of all users 1 run and 2 wait"
    engine = SlurmEngine("lab", Paths(rig.home), str, {"partition": "cpu"}, commands=rig.commands)
    assert engine.queue_words().endswith("; partition cpu is DOWN")


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "worker-0: rank 0 of 1, 1 GPU, on any"), (4, "worker-0: ranks 0-3 of 4, 4 GPUs, on any")],
)
def test_a_dry_run_counts_gpus_in_words(rig: Rig, count: int, said: str) -> None:
    assert said in rig.engine.plan(job(processes=count)).describe()


def test_what_is_free_is_asked_for_anew_for_a_person_and_kept_for_a_while_for_plans(
    rig: Rig,
) -> None:
    assert [node.free_gpus for node in rig.engine.capacity()] == [4] * 4
    rig.commands.answers["scontrol"] = NODES.replace("GresUsed=gpu:0", "GresUsed=gpu:3")
    assert [node.free_gpus for node in rig.engine.capacity()] == [4] * 4
    assert [node.free_gpus for node in rig.engine.capacity_now()] == [1] * 4


def test_new_jobs_are_planned_with_what_slurm_said_last_while_it_does_not_answer(rig: Rig) -> None:
    rig.commands.answers["scontrol"] = told
    rig.engine.plan(job(processes=8))
    rig.now_s += 1000
    rig.commands.answers["scontrol"] = UnreachableError(
        "scontrol: Unable to contact slurm controller"
    )
    assert [task.gpus for task in rig.engine.plan(job(processes=8)).tasks] == [4, 4]
    asked = len(rig.commands.asked)  # and somebody who submits waits for no second question
    assert rig.engine.plan(replace(job(processes=8, max_duration_s=60), pk=0)).tasks
    assert len(rig.commands.asked) == asked
    with pytest.raises(UnreachableError):  # a person is told how it is
        rig.engine.capacity_now()
    rig.now_s += 1000
    with pytest.raises(UnreachableError):
        rig.engine.capacity()
    with pytest.raises(UnreachableError):  # nothing was ever known
        Rig(rig.home, scontrol=UnreachableError("away")).engine.plan(job(processes=8))

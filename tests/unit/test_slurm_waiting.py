"""Why a job waits on Slurm: what does not fit together, limits with their values, forecasts and
smaller requests.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import Node
from headway.engines.slurm import parse
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.parse import JobLine
from headway.engines.slurm.why import explain, fit, limit, suggest
from headway.engines.slurm.why.fit import Need
from headway.model.errors import RefusedError, UnreachableError
from headway.views.cli import why
from headway.views.cli.commands import COMMANDS
from headway.views.cli.options import Parser

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "slurm"
GIB = 1 << 30


def node(name: str, gpus: int, memory_gib: int = 64, cpus: int = 8) -> Node:
    return Node(name, cpus, memory_gib * GIB, gpus, "slurm", "mixed")


def job(reason: str = "Resources", **fields: str) -> JobLine:
    told = {
        "NumNodes": "2-2", "NumCPUs": "2", "TresPerNode": "gres:gpu:4", "MinMemoryNode": "4G", "TimeLimit": "04:00:00",
        "Partition": "main", "UserId": "root(0)", "Account": "ml", "QOS": "normal", "TRES": "cpu=2,mem=8G,node=2",
    }  # fmt: skip
    return JobLine("17", "PENDING", reason, start=None, fields={**told, **fields})


# -- what does not fit together


def test_gpus_that_are_spread_too_thin_are_told_with_how_they_lie() -> None:
    free = [node(f"node{k}", 2) for k in range(1, 5)]
    assert fit.explain(Need(2, 4, 1, GIB), free) == (
        "8 GPUs are free, but on four nodes two each; you ask for two nodes of four"
    )


def test_uneven_gpus_are_told_node_by_node() -> None:
    free = [node("node1", 3), node("node2", 4), node("node3", 0), node("node4", 1)]
    assert fit.explain(Need(2, 4, 1, GIB), free) == (
        "8 GPUs are free, but 3 on node1, 4 on node2 and 1 on node4; you ask for two nodes of four"
    )


def test_the_node_with_the_gpus_that_lacks_memory_is_named() -> None:
    free = [node("node1", 3, 120), node("node2", 4, 12), node("node4", 4, 200)]
    assert fit.explain(Need(2, 4, 1, 64 * GIB), free) == (
        "11 GPUs are free, but not on two nodes with 4 GPUs and 1 CPU and 64.0 GiB together: "
        "node1 lacks one GPU, node2 lacks 52.0 GiB of memory"
    )


def test_too_few_in_all_is_told_as_that() -> None:
    assert (
        fit.explain(Need(2, 4, 1, GIB), [node("node1", 3)])
        == "three of the 8 GPUs that it needs are free"
    )


def test_cpus_are_told_where_no_gpu_is_asked_for() -> None:
    free = [node(f"n{k}", 0, cpus=3) for k in range(1, 5)]
    assert fit.explain(Need(1, 0, 4, GIB), free) == (
        "12 CPUs are free, but on four nodes three each; you ask for one node of four"
    )


def test_a_job_that_would_fit_waits_for_something_else() -> None:
    assert "it is not room that it waits for" in fit.explain(Need(1, 2, 1, GIB), [node("n1", 4)])


def test_what_is_needed_is_read_from_slurms_own_record() -> None:
    text = (GOLDEN / "22.05-completed.txt").read_text()
    line = parse.read_job(text)
    assert line is not None
    assert Need.of(line).words() == "8 GPUs = 2 nodes × 4, 1 CPU and 100 MiB each, 1 h"
    assert Need.of(job()).words() == "8 GPUs = 2 nodes × 4, 1 CPU and 4.0 GiB each, 4 h"
    per_job = job(TresPerNode="", ReqTRES="cpu=2,mem=8G,node=2,gres/gpu=6,gres/gpu:a100=6")
    assert Need.of(per_job).gpus == 3  # --gpus of Slurm 23 and later


# -- limits


class Recorded:
    """Answers of a real cluster with accounting; `silent`: programs that do not answer."""

    def __init__(self, *silent: str) -> None:
        self.silent = silent

    def __call__(self, argv: Sequence[str]) -> str:
        asked = shlex.join(argv)
        if any(word in asked for word in self.silent):
            return ""
        for part, name in (
            ("assoc_mgr qos=", "qos"), ("flags=assoc", "associations"), ("show qos", "sacctmgr-qos"),
            ("show assoc", "sacctmgr-associations"), ("show partition", "partition"), ("show reserv", "reservation"),
        ):  # fmt: skip
            if part in asked:
                return (GOLDEN / f"22.05-{name}.txt").read_text()
        raise AssertionError(asked)


@pytest.mark.parametrize(
    ("word", "fields", "said"),
    [
        (
            "QOSMaxGRESPerUser",
            {"NumNodes": "1", "TresPerNode": "gres:gpu:2"},
            "QoS normal allows 4 GPUs for each user (MaxTRESPU gres/gpu); 3 GPUs in use, and it asks for 2 GPUs "
            "(scontrol show assoc_mgr)",
        ),
        (
            "QOSMaxWallDurationPerJobLimit",
            {},
            "QoS normal allows 30 min for one job (MaxWallPJ), and it asks for 4 h (scontrol show assoc_mgr)",
        ),
        (
            "QOSGrpCpuLimit",
            {"NumCPUs": "16"},
            "QoS normal allows 10 CPUs together (GrpTRES cpu); 5 CPUs in use, and it asks for 16 CPUs: alone it is "
            "over that, so it never starts as it is (scontrol show assoc_mgr)",
        ),
        (
            "QOSMaxJobsPerUserLimit",
            {},
            "QoS normal allows 3 jobs for each user (MaxJobsPU); 2 jobs in use, and it asks for 1 job "
            "(scontrol show assoc_mgr)",
        ),
        (
            "AssocGrpGRES",
            {},
            "account ml allows 6 GPUs together (GrpTRES gres/gpu); 3 GPUs in use, and it asks for 8 GPUs: alone it is "
            "over that, so it never starts as it is (scontrol show assoc_mgr)",
        ),
        (
            "PartitionTimeLimit",
            {},
            "partition short allows 5 min (MaxTime), and it asks for 4 h (scontrol show partition)",
        ),
        (
            "PartitionNodeLimit",
            {},
            "partition short has 1 node (TotalNodes), and it asks for 2 (scontrol show partition)",
        ),
    ],
)
def test_a_limit_is_told_with_the_value_allowed_and_the_value_asked(
    word: str, fields: Any, said: str
) -> None:
    assert limit.explain(word, job(**fields), Recorded())[0] == said


def test_where_the_controller_does_not_tell_limits_the_accounting_does() -> None:
    [said] = limit.explain("QOSMaxGRESPerUser", job(), Recorded("assoc_mgr"))
    assert said == (
        "QoS normal allows 4 GPUs for each user (MaxTRESPU gres/gpu), and it asks for 8 GPUs (sacctmgr show qos)"
    )
    assert (
        "account ml allows 6 GPUs" in limit.explain("AssocGrpGRES", job(), Recorded("assoc_mgr"))[0]
    )
    assert limit.explain("QOSMaxGRESPerUser", job(), Recorded("assoc_mgr", "sacctmgr")) == ()


def test_a_maintenance_that_begins_before_the_job_would_end_is_told() -> None:
    now = datetime(2026, 11, 16, 4, 3, 56)
    [said] = limit.explain("ReqNodeNotAvail", job(), Recorded(), now)
    assert said == (
        "the maintenance service takes node[1-4] from 2026-11-16T05:03:56 to 2026-11-16T07:03:56: in 1 h, and it asks "
        "for 4 h; with --max-duration 57m it would end before (scontrol show reservation)"
    )
    [soon] = limit.explain("ReqNodeNotAvail", job(), Recorded(), datetime(2026, 11, 16, 5, 1, 0))
    assert "--max-duration" not in soon
    assert limit.explain("Resources", job(TimeLimit="00:30:00"), Recorded(), now) == ()
    [own] = limit.explain("Reservation", job(Reservation="service"), Recorded(), now)
    assert own.startswith("its reservation service has node[1-4] from 2026-11-16T05:03:56")


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("AssocGrpCPUMinutesLimit", "GrpTRESMins"), ("AssocGrpMemRunMinutes", "GrpTRESRunMins"),
        ("AssocGrpSubmitJobsLimit", "GrpSubmitJobs"), ("AssocMaxJobsLimit", "MaxJobs"),
        ("AssocMaxCpuMinutesPerJobLimit", "MaxTRESMinsPJ"), ("AssocMaxGRESPerNode", "MaxTRESPN"),
        ("QOSMaxSubmitJobPerUserLimit", "MaxSubmitJobsPU"), ("MaxMemoryPerAccount", "MaxTRESPA"),
        ("MaxCpuRunMinsPerUser", "MaxTRESRunMinsPU"), ("QOSMinCpuNotSatisfied", "MinTRESPJ"),
        ("QOSGrpWallLimit", "GrpWall"), ("AssocMaxWallDurationPerJobLimit", "MaxWallPJ"),
    ],
)  # fmt: skip
def test_the_word_names_the_limit(word: str, field: str) -> None:
    found = limit.LIMIT.match(word)
    assert found is not None and limit.field_of(found) == field


def test_a_licence_is_told_with_how_many_there_are() -> None:
    def ask(argv: Sequence[str]) -> str:
        assert "licenses" in argv
        return "LicenseName=matlab Total=2 Used=1 Free=1 Reserved=0 Remote=no\nLicenseName=other Total=9 Used=0\n"

    assert limit.explain("Licenses", job(Licenses="matlab:2"), ask) == (
        "licence matlab: there are 2, 1 in use, and it asks for 2 (scontrol show licenses)",
    )


# -- smaller requests and the forecast


class Scripted(Commands):
    def __init__(self, **answers: str) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], text: str | None = None, timeout_s: float = 30.0) -> str:
        line = shlex.join(argv)
        self.asked.append(line)
        for part, said in self.answers.items():
            if part in line:
                return said
        raise RefusedError("Slurm refuses it")


def test_smaller_requests_are_those_that_what_is_free_could_do() -> None:
    thin = [node(f"n{k}", 2) for k in range(1, 5)]
    words = [words for words, _ in suggest.smaller(Need(2, 4, 1, GIB, 1380.0), thin)]
    assert words == ["-n 8 --nodes 4", "-n 2", "--max-duration 10m"]
    short = [node("n1", 4, 12), node("n2", 4, 64)]
    found = dict(suggest.smaller(Need(2, 4, 1, 64 * GIB, 300.0), short))
    assert list(found) == ["--memory 24576MiB", "-n 4"]
    assert found["--memory 24576MiB"].memory_bytes == 12 * GIB


@pytest.mark.parametrize(
    "need", [Need(2, 4, 1, GIB, 1380.0), Need(2, 0, 1, GIB, 1380.0), Need(2, 4, 9, 64 * GIB, None)]
)
def test_what_is_suggested_can_be_typed(need: Need) -> None:
    for free in (
        [node(f"n{k}", 2) for k in range(1, 5)],
        [node("n1", 4, 12), node("n2", 4, 64)],
        [node("n1", 4)],
    ):
        for words, asked in suggest.smaller(need, free):
            values = Parser(COMMANDS).parse(["submit", *words.split(), "true"]).values
            assert values.get("nodes", asked.nodes) == asked.nodes


def test_only_what_slurm_would_start_sooner_is_suggested_and_this_job_itself_is_not_counted() -> (
    None
):
    need, free = Need(2, 4, 1, GIB, 1380.0), [node(f"n{k}", 2) for k in range(1, 5)]
    said = "sbatch: Job 8 to start at 2026-11-16T04:21:09 using 4 processors on nodes node[1-4] in partition main"
    commands = Scripted(gres=said)
    now, own_s = (
        datetime(2026, 11, 16, 4, 10, 9),
        suggest.own_delay_s(need, {"TotalCPUs": "16", "TotalNodes": "4"}),
    )
    assert own_s == 660.0
    found = suggest.suggest(job(), need, free, commands, now, own_s)
    assert found[0] == "-n 8 --nodes 4      would start now on node[1-4] (sbatch --test-only)"
    assert "--account=ml" in commands.asked[0] and "--gres=gpu:2" in commands.asked[0]
    late = replace(job(), start="2026-11-16T04:10:00")
    assert suggest.suggest(late, need, free, commands, datetime(2026, 11, 16, 4, 0, 0), own_s) == ()


def test_the_whole_answer_names_its_sources_and_survives_questions_without_an_answer() -> None:
    text = "".join(
        f"NodeName=node{k} CPUAlloc=1 CPUTot=4 Gres=gpu:4 GresUsed=gpu:2 RealMemory=4000 AllocMem=100 State=MIXED\n"
        for k in range(1, 5)
    )
    widths = dict(zip(("12", "2026-11-16T04:25:03", "4", "cpu=4,mem=400M,node=4", "gres:gpu:2", "wrap", "node[1-4]"),
                      parse.HOLDER_WIDTHS, strict=True))  # fmt: skip
    holders = "".join(value.ljust(width) for value, width in widths.items())
    queue = "9|100|2|gres:gpu:4|2|other-7f3c2\n17|90|2|gres:gpu:4|2|me\n"
    commands = Scripted(date="2026-11-16T04:10:03\n", JobID=holders, PD=queue)
    told = explain.explain(
        replace(job(MinMemoryNode="100M"), start="2026-11-16T04:25:03"),
        parse.read_nodes(text),
        commands,
    )
    assert told.reason.startswith("Resources: ")
    assert told.fit == "8 GPUs are free, but on four nodes two each; you ask for two nodes of four"
    assert told.start == (
        "2026-11-16T04:25:03, in 15 min, by Slurm's own clock and its backfill scheduler; then wrap (Slurm 12) reaches "
        "its time limit at the latest, and there is room if nobody goes first"
    )
    assert told.ahead == ("9",) and told.ahead_words == (
        "other-7f3c2 (Slurm 9, 8 GPUs, priority 100)",
    )
    assert told.sooner == () and told.limits == ()
    silent = explain.explain(job(), [], Scripted())
    assert silent.reason.startswith("Resources: ") and silent.ahead == () and silent.fit == ""
    assert silent.start == "neither Slurm nor the time limits of running jobs tell when"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ReqNodeList": "node2"}, "the GPU that it needs is not free; it asks for node2"),
        (
            {"ReqNodeList": "node1"},
            "what it needs is free on node1: it is not room that it waits for; it asks for node1",
        ),
        ({"ExcNodeList": "node[1,3-4]"}, "the GPU that it needs is not free"),
        (
            {"ExcNodeList": "node1"},
            "what it needs is free on node3: it is not room that it waits for",
        ),
    ],
)
def test_room_on_a_node_that_it_does_not_let_itself_be_given_is_none(
    fields: Any, said: str
) -> None:
    text = "".join(
        f"NodeName=node{k} CPUAlloc=0 CPUTot=4 Gres=gpu:4 GresUsed=gpu:0 RealMemory=4000 State={word}\n"
        for k, word in enumerate(("IDLE", "IDLE+DRAIN", "IDLE", "DOWN"), 1)
    )
    one = job(NumNodes="1", NumCPUs="1", TresPerNode="gres:gpu:1", MinMemoryNode="100M", **fields)
    told = explain.explain(one, parse.read_nodes(text), Scripted(date="2026-11-16T04:10:03\n"))
    assert told.fit == said and len(told.free) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("30", 1800.0), ("05:00", 300.0), ("01:00:00", 3600.0), ("1-02:00:00", 93600.0), ("2-12", 216000.0),
     ("UNLIMITED", None), ("NONE", None), ("", None), ("Partition_Limit", None)],
)  # fmt: skip
def test_durations_of_slurm(text: str, value: float | None) -> None:
    assert parse.seconds(text) == value


def test_a_job_that_slurm_has_just_started_waits_for_its_agents() -> None:
    told = explain.explain(replace(job("None"), word="RUNNING", nodes="node1"), [], Scripted())
    assert (
        told.reason == "RUNNING: Slurm has started it on node1, and its agents have not spoken yet"
    )


@pytest.mark.parametrize(
    ("word", "fields", "said"),
    [
        ("JobHeldUser", {}, "it is held by its owner; scontrol release 7 lets it go"),
        (
            "Dependency", {"Dependency": "afterok:11(unfulfilled)"},
            "it waits for another job (afterok:11(unfulfilled)); it starts by itself once that one has ended",
        ),
        (
            "BeginTime", {},
            "it may not start before a time: it was asked for, or it was just requeued; "
            "scontrol update jobid=7 starttime=now starts it at once",
        ),
    ],
)  # fmt: skip
def test_a_job_that_stands_aside_is_told_what_it_waits_for_and_not_who_is_ahead(
    word: str, fields: Any, said: str
) -> None:
    told = JobLine("7", "PENDING", word, start="2026-11-16T09:00:00", fields=fields, number="7")
    found = explain.explain(told, [], Unasked())
    assert found.reason == f"{word}: {said}" and not found.ahead
    assert ("not before 2026-11-16T09:00:00" in found.start) == (word == "BeginTime")


def test_of_a_maintenance_no_node_can_be_taken_out() -> None:
    found = explain.explain(
        JobLine("7", "PENDING", "ReqNodeNotAvail,_Reserved_for_maintenance"), [], Unasked()
    )
    assert (
        found.reason
        == "ReqNodeNotAvail: a node that it needs is not available (Reserved for maintenance)"
    )
    assert found.ahead == ("3",)


class Unasked(Commands):
    """A Slurm that has one job ahead of 7, and answers nothing else."""

    def run(self, argv: Sequence[str], text: str | None = None, timeout_s: float = 30.0) -> str:
        if argv[0] == "squeue" and "PD" in argv:
            return "3|100|1|N/A|1|other\n7|90|1|N/A|1|own\n"
        raise UnreachableError("it does not answer")


def test_nodes_that_are_away_for_one_reason_are_told_together() -> None:
    def node(name: str, gpus: int, word: str) -> dict[str, Any]:
        return {
            "name": name,
            "gpus": gpus,
            "cpus": gpus,
            "memory_bytes": gpus,
            "gpu_source": "slurm",
            "state_word": word,
        }

    away = "idle+drain fan broken [root@2026-11-16T08:05:51]"
    nodes = [
        node("n1", 0, away),
        node("n2", 4, "idle"),
        node("n3", 0, away),
        node("n4", 0, "allocated"),
    ]
    assert why._nodes(nodes) == [
        "n2 4 GPU 4 CPU 4 B", "n4 0 GPU 0 CPU 0 B", "n1, n3 none (idle+drain fan broken)",
    ]  # fmt: skip


# -- which limit it is, where several could be meant


def of_user(argv: Sequence[str]) -> str:
    """Recorded: the account root allows 8 GPUs to all below it, and ml 2 jobs to root."""
    return (GOLDEN / "22.05-associations-of-user.txt").read_text() if "users=root" in argv else ""


def test_a_limit_of_an_account_above_ones_own_is_found() -> None:
    [said] = limit.explain("AssocGrpGRES", job(Account="ml"), of_user)
    assert said.startswith("account root allows 8 GPUs together (GrpTRES gres/gpu)")


def test_without_an_account_it_is_the_users_own_default() -> None:
    for account in ("ml", ""):
        [said] = limit.explain("AssocMaxJobsLimit", job(Account=account), of_user)
        assert said.startswith("account ml of root allows 2 jobs (MaxJobs)")


@pytest.mark.parametrize(
    ("flags", "name", "most"), [("", "ofpart", 1), ("OverPartQOS", "small", 2)]
)
def test_of_two_qos_the_partitions_own_goes_first_unless_the_jobs_is_over_it(
    flags: str, name: str, most: int
) -> None:
    def ask(argv: Sequence[str]) -> str:
        asked = shlex.join(argv)
        if "partition" in asked:
            return "PartitionName=short QoS=ofpart MaxTime=00:05:00"
        if "sacctmgr" in asked:
            return f"{flags}\n"
        return (
            "QOS=small(3) MaxWallPJ=2 Priority=0\n"
            if "small" in asked
            else "QOS=ofpart(2) MaxWallPJ=1 Priority=0\n"
        )

    [said] = limit.explain(
        "QOSMaxWallDurationPerJobLimit", job(QOS="small", Partition="short"), ask
    )
    assert said.startswith(f"QoS {name} allows {most} min for one job")

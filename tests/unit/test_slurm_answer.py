"""What Slurm prints (engines/slurm/parse.py): recorded answers of 22.05, and lines as other
versions write them.
"""

from pathlib import Path

import pytest

from headway.engines.slurm import parse

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "slurm"


def test_a_job_that_ended_is_read_whole() -> None:
    job = parse.read_job((GOLDEN / "22.05-exit-7.txt").read_text())
    assert job is not None
    assert (job.id, job.word, job.state, job.exit_code, job.signal) == (
        "8",
        "FAILED",
        "ended",
        7,
        None,
    )
    assert job.reason == "NonZeroExitCode"


def test_values_with_blanks_bars_and_equal_signs_stay_whole() -> None:
    job = parse.read_job((GOLDEN / "22.05-completed.txt").read_text())
    assert job is not None
    assert job.comment == "hw key|x"
    assert job.fields["TRES"] == "cpu=2,mem=200M,node=2,billing=2"
    assert parse.count_gpus(job.fields["TresPerNode"]) == 4


def test_nodes_are_read_with_what_is_used() -> None:
    nodes = parse.read_nodes((GOLDEN / "22.05-nodes.txt").read_text())
    assert [node.name for node in nodes] == ["node1", "node2", "node3", "node4"]
    assert (nodes[0].cpus, nodes[0].memory_mib, nodes[0].gpus) == (4, 4000, 4)
    assert nodes[0].partitions == ("main", "short") and nodes[0].is_usable


@pytest.mark.parametrize(
    "state",
    [
        "DOWN*",
        "IDLE+DRAIN",
        "MIXED+DRAINING",
        "DOWN+NOT_RESPONDING",
        "IDLE+MAINT+RESERVED",
        "FAILING",
    ],
)
def test_a_node_that_takes_no_jobs_is_known_as_that(state: str) -> None:
    line = f"NodeName=n1 CPUAlloc=0 CPUTot=8 Gres=gpu:a100:8(S:0-1) RealMemory=1000 AllocMem=0 State={state} Weight=1"
    assert not parse.read_nodes(line)[0].is_usable


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:4", 4),
        ("gres:gpu:4", 4),  # TresPerNode up to 22.05
        ("gres/gpu:a6000:1", 1),  # since 23.02
        ("cpu=8,mem=200G,node=1,gres/gpu=2", 2),
        ("gpu:a100:8(S:0-1),gpu:v100:2", 10),
        ("gpu:tesla:2(IDX:0-1)", 2),
        ("gpu:3090:4", 4),  # kinds that begin with a number
        ("gpu:1g.10gb:2(IDX:0,1),gpu:2g.20gb:1(IDX:N/A)", 3),
        ("cpu=8,gres/gpu:3090=4", 4),
        ("gpu:nvidia_a100-sxm4-80gb:8(S:0,1),shard:16,mps:100", 8),
        ("gres:gpu", 1),
        ("gpu:4 NtasksPerTRES:0", 4),  # 20.11 prints this one without a sign of equality
        ("(null)", 0),
        ("craynetwork:3", 0),
    ],
)
def test_gpus_are_counted_in_every_form(gres: str, count: int) -> None:
    assert parse.count_gpus(gres) == count


def test_a_queue_is_read_by_job_and_what_was_not_asked_for_is_left_out() -> None:
    text = (
        "slurm_load_jobs warning: something\n"
        "12|PENDING|n/a||2026-11-16T02:50:07|N/A|12|headway:k-1|Resources\n"
        "13|RUNNING|n1|n[1-2]|2026-11-16T01:50:07|N/A|13|hw key|x|None\n"
        "14|FANCY_NEW_STATE|n/a||N/A|N/A|14|(null)|None\n"
        "half a line|RUNN"
    )
    jobs = parse.read_squeue(text)
    assert [(j.id, j.state, j.reason) for j in jobs.values()] == [
        ("12", "starting", "Resources"),
        ("13", "running", ""),
        ("14", "unknown", ""),
    ]
    assert (
        jobs["12"].comment == "headway:k-1"
        and jobs["14"].word == "FANCY_NEW_STATE"
        and jobs["14"].start is None
    )


def test_accounting_tells_who_cancelled_and_that_memory_ran_out() -> None:
    text = (
        "7|CANCELLED by 1000|0:15|n1|2026-11-16T01:00:00|None|train|\n"
        "8|OUT_OF_MEMORY|0:125|n2|Unknown|None|train|headway:k-1\n"
        "9.batch|FAILED|1:0|||||\n"
    )
    jobs = parse.read_sacct(text)
    assert (jobs["7"].word, jobs["7"].by_uid, jobs["7"].signal) == ("CANCELLED", 1000, 15)
    assert (jobs["8"].word, jobs["8"].state, jobs["8"].start) == ("OUT_OF_MEMORY", "ended", None)
    assert set(jobs) == {"7", "8"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7:0", (7, None)),
        ("0:15", (None, 15)),
        ("0:0", (0, None)),
        ("", (None, None)),
        ("x:y", (None, None)),
    ],
)
def test_exit_codes_and_signals(text: str, found: tuple[int | None, int | None]) -> None:
    assert parse.read_exit(text) == found


@pytest.mark.parametrize(
    ("compact", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("node[1-2,09-10],login", ["node1", "node2", "node09", "node10", "login"]),
        ("a[1-2]-ib", ["a1-ib", "a2-ib"]),
        ("odd[x-y]", ["odd[x-y]"]),
    ],
)
def test_lists_of_nodes_are_expanded(compact: str, names: list[str]) -> None:
    assert parse.expand_hosts(compact) == names

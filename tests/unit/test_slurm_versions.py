"""Answers of Slurm 20.11 to 26.05, as they were recorded, read by the same code.

Source: real daemons of each version (Debian's and Ubuntu's packages 20.11.4, 21.08.5, 23.11.4,
24.11.5, 25.11.2 and 26.05.5; 22.05.8 is what the tests with a live cluster use), four nodes with
four GPUs each, the same thirteen jobs submitted to each: one that succeeded, one that exited with
7, one cancelled, one held, one on two nodes with a bar in its comment, an array of six of which two
may run, one that waits for room, one that asks for more time than its partition allows; node4
drained, and a maintenance ahead. In 23.11 no slurmd came up, so nothing runs there. Trailing blanks
and the kernel's name were taken out; `said.txt` has output and error output of other commands, with
exit codes.
"""

import re
from pathlib import Path

import pytest

from headway.engines.slurm import commands, parse
from headway.engines.slurm.why import limit, reason, suggest
from headway.engines.slurm.why.fit import Need
from headway.model.errors import RefusedError, UnreachableError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "slurm"
VERSIONS = ["20.11", "21.08", "23.11", "24.11", "25.11", "26.05"]
ALIVE = [version for version in VERSIONS if version != "23.11"]
KEY = "headway:8d7e0c1a-0000-4000-8000-00000000000"


def recorded(version: str, name: str) -> str:
    return (GOLDEN / version / f"{name}.txt").read_text()


def said(version: str) -> dict[str, tuple[int, str]]:
    """Name of the question -> (exit code, what was said)."""
    parts = re.split(r"^== (\S+) (\d*)\n", recorded(version, "said"), flags=re.M)[1:]
    return {
        name: (int(code), text.strip()) for name, code, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        if code
    }  # fmt: skip


@pytest.mark.parametrize("version", ALIVE)
def test_the_queue_is_read_with_its_states_reasons_and_elements(version: str) -> None:
    jobs = parse.read_squeue(recorded(version, "squeue"))
    words = {job.word for job in jobs.values()}
    assert words == {"CANCELLED", "COMPLETED", "FAILED", "PENDING", "RUNNING"}
    assert all(job.state != "unknown" for job in jobs.values())
    [failed] = [job for job in jobs.values() if job.word == "FAILED"]
    assert (failed.reason, failed.comment) == ("NonZeroExitCode", f"{KEY}2-1")
    elements = {i: job for i, job in jobs.items() if job.comment == f"{KEY}6-1"}
    assert [i.partition("_")[2] for i in sorted(elements)] == ["0", "1", "2", "3", "4", "5"]
    assert {job.reason for job in elements.values() if job.word == "PENDING"} <= {
        "JobArrayTaskLimit",
        "Resources",
    }
    reasons = {job.reason for job in jobs.values()}
    assert {"JobHeldUser", "PartitionTimeLimit"} <= reasons
    assert not any(reason.explain(word).text.startswith("Slurm says") for word in reasons)
    bar = [job for job in jobs.values() if job.nodes == "node[1-2]"]
    assert version == "20.11" or [job.comment for job in bar] == ["hw key"]


def test_a_queue_whose_nodes_are_all_away_says_so_in_words() -> None:
    jobs = parse.read_squeue(recorded("23.11", "squeue"))
    told = {reason.explain(job.reason).text for job in jobs.values() if job.word == "PENDING"}
    assert any(
        "a node that it needs is not available (UnavailableNodes:node[1-4])" in text
        for text in told
    )
    assert any(text.startswith("the nodes that it could have are down") for text in told)
    assert not any(text.startswith("Slurm says") for text in told)
    records = parse.read_jobs(recorded("23.11", "jobs"))
    told = {reason.explain(job.reason).text for job in records.values() if job.word == "PENDING"}
    assert not any(text.startswith("Slurm says") or "_" in text for text in told)


@pytest.mark.parametrize("version", ALIVE)
def test_jobs_are_read_with_what_they_need_and_how_they_ended(version: str) -> None:
    jobs = parse.read_jobs(recorded(version, "jobs"))
    [failed] = [job for job in jobs.values() if job.word == "FAILED"]
    assert (failed.exit_code, failed.comment) == (7, f"{KEY}2-1")
    [train] = [job for job in jobs.values() if job.fields["JobName"] == "train-7f3c2"]
    assert Need.of(train) == Need(2, 4, 2, 200 * suggest.MIB, 1800.0)
    [wide] = [job for job in jobs.values() if job.fields.get("Comment") == "hw key|x"]
    assert Need.of(wide).gpus == 3 and Need.of(wide).memory_bytes == 500 * suggest.MIB
    assert any(
        job.number and job.id.endswith("_0") and job.id != job.number for job in jobs.values()
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_are_read_with_what_is_used_and_why_one_is_out(version: str) -> None:
    nodes = parse.read_nodes(recorded(version, "nodes"))
    assert [(node.name, node.cpus, node.memory_mib, node.gpus) for node in nodes] == [
        (f"node{k}", 4, 4000, 4) for k in range(1, 5)
    ]
    assert not nodes[3].is_usable and nodes[3].reason.startswith("bad fan [ada]")
    assert nodes[0].partitions == ("main", "short")
    assert nodes[0].is_usable == (version != "23.11")
    if version in ALIVE and version != "20.11":
        assert (nodes[0].gpus_used, nodes[1].gpus_used, nodes[0].cpus_used) == (4, 4, 3)


@pytest.mark.parametrize("version", ALIVE)
def test_those_that_hold_resources_are_read_with_what_they_have_on_each_node(version: str) -> None:
    holders = parse.read_holders(recorded(version, "holders"))
    assert all(holder.nodes and holder.cpus == 1 for holder in holders if holder.name == "wrap")
    if version != "20.11":  # there the wide one still waited
        [wide] = [holder for holder in holders if holder.nodes == ("node1", "node2")]
        assert (wide.gpus, wide.memory_bytes) == (3, 500 * suggest.MIB)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partitions_limit_and_a_maintenance_are_told_with_their_values(version: str) -> None:
    jobs = parse.read_jobs(recorded(version, "jobs"))
    [long] = [job for job in jobs.values() if job.reason == "PartitionTimeLimit"]
    [told] = limit.explain("PartitionTimeLimit", long, lambda _: recorded(version, "partition"))
    assert (
        told
        == "partition short allows 5 min (MaxTime), and it asks for 50 min (scontrol show partition)"
    )
    fields = parse.read_fields(recorded(version, "reservation"))
    assert (fields["ReservationName"], fields["Nodes"]) == (
        "service",
        "node[1-4]",
    ) and "MAINT" in fields["Flags"]


@pytest.mark.parametrize("version", ALIVE)
def test_a_trial_start_tells_when_and_where(version: str) -> None:
    told = suggest.NOW.search(said(version)["testonly"][1])
    assert told is not None and told[1].startswith("2026-11-16T0") and told[2].startswith("node")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_and_a_controller_that_is_away_are_told_apart(version: str) -> None:
    for name, (code, text) in said(version).items():
        if code == 0:
            continue
        error = commands.failure("sbatch", code, text)
        assert isinstance(error, UnreachableError if name.startswith("away") else RefusedError), (
            name,
            text,
        )

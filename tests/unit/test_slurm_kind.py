"""Kinds of GPUs, several on one node too, and nodes that a job has to itself: what fits, what never
will.
"""

from pathlib import Path
from typing import Any

import pytest

from headway.engines.slurm import parse
from headway.engines.slurm.parse import HOLDER_WIDTHS, JobLine
from headway.engines.slurm.why import fit, suggest
from headway.engines.slurm.why.fit import Need
from headway.model.errors import RefusedError
from tests.unit.test_slurm_engine import Rig, job

MIXED = (
    "NodeName=n1 CPUAlloc=2 CPUTot=8 Gres=gpu:3090:4(S:0),gpu:a100:2 GresUsed=gpu:3090:1(IDX:0),gpu:a100:0(IDX:N/A) "
    "RealMemory=64000 AllocMem=0 State=MIXED Partitions=gpu\n"
    "NodeName=n2 CPUAlloc=0 CPUTot=8 Gres=gpu:1g.10gb:7 GresUsed=gpu:1g.10gb:3(IDX:0-2) RealMemory=64000 AllocMem=0 "
    "State=MIXED Partitions=gpu\n"
)


def waiting(**fields: str) -> JobLine:
    told = {"NumNodes": "1", "NumCPUs": "1", "MinMemoryNode": "1G", "TimeLimit": "01:00:00"}
    return JobLine("17", "PENDING", "Resources", fields={**told, **fields})


def test_nodes_tell_how_many_of_each_kind_they_have_and_use() -> None:
    first, second = parse.read_nodes(MIXED)
    assert first.kinds == {"3090": (4, 1), "a100": (2, 0)} and (first.gpus, first.gpus_used) == (
        6,
        1,
    )
    assert second.kinds == {"1g.10gb": (7, 3)}
    assert suggest.free_of(first, "a100").gpus == 2 and suggest.free_of(first).gpus == 5
    assert suggest.free_of(second, "a100").gpus == 0


@pytest.mark.parametrize(
    "fields",
    [{"TresPerNode": "gres:gpu:a100:4"}, {"TresPerNode": "gres/gpu:a100:4"}, {"TresPerJob": "gres:gpu:a100:4"},
     {"TresPerJob": "gres/gpu:a100:4", "ReqTRES": "cpu=1,node=1,gres/gpu=4,gres/gpu:a100=4"}],
)  # fmt: skip
def test_a_waiting_job_needs_the_kind_it_asked_for_and_slurm_is_asked_for_no_other(
    fields: dict[str, str],
) -> None:
    need = Need.of(waiting(**fields))
    assert (need.gpus, need.kind) == (4, "a100")
    assert need.words().startswith("4 GPUs of kind a100 = 1 node")
    assert "--gres=gpu:a100:4" in suggest._options(waiting(**fields), need)


def test_a_job_gives_back_the_kind_that_it_has() -> None:
    values = (
        "12",
        "2026-11-16T04:25:03",
        "1",
        "cpu=4,mem=4G,node=1,gres/gpu=4",
        "gres:gpu:3090:4",
        "x",
        "n1",
    )
    text = "".join(value.ljust(width) for value, width in zip(values, HOLDER_WIDTHS, strict=True))
    assert [parse.read_holders(text, kind)[0].gpus for kind in ("", "3090", "a100")] == [4, 4, 0]


@pytest.mark.parametrize(
    ("options", "spec", "said"),
    [
        ({"gpu_type": "h100"}, {"processes": 2}, "no node has GPUs of kind 'h100'"),
        ({"gpu_type": "3090"}, {"processes": 5}, "5 3090 GPUs, and no node has more than 4"),
        (
            {"gpu_type": "a100"},
            {"processes": 4, "nodes": 2},
            "needs 2 nodes with 2 a100 GPUs, and there is 1",
        ),
    ],
)
def test_a_kind_that_could_never_be_had_is_refused(
    tmp_path: Path, options: Any, spec: Any, said: str
) -> None:
    rig = Rig(tmp_path, scontrol=MIXED)
    with pytest.raises(RefusedError, match=said):
        rig.engine.plan(job(options=options, **spec))


def test_a_kind_that_begins_with_a_number_is_planned(tmp_path: Path) -> None:
    plan = Rig(tmp_path, scontrol=MIXED).engine.plan(
        job(options={"gpu_type": "1g.10gb"}, processes=7)
    )
    assert plan.script is not None and "#SBATCH --gres=gpu:1g.10gb:7\n" in plan.script


@pytest.mark.parametrize(
    ("fields", "alone"),
    [({"OverSubscribe": "NO"}, True), ({"OverSubscribe": "OK"}, False), ({}, False),
     ({"OverSubscribe": "NO", "Exclusive": "NO"}, False), ({"OverSubscribe": "NO", "Exclusive": "NODE"}, True)],
)  # fmt: skip
def test_a_job_that_shares_its_nodes_with_nobody_is_known_in_every_version(
    fields: Any, alone: bool
) -> None:
    assert Need.of(waiting(**fields)).exclusive is alone


def test_a_job_that_shares_its_nodes_with_nobody_waits_for_empty_ones() -> None:
    need = Need.of(waiting(NumNodes="2", NumCPUs="2", OverSubscribe="NO"))
    free = [suggest.free_of(node, whole=True) for node in parse.read_nodes(MIXED)]
    assert [node.state_word for node in free] == ["others run there"] * 2
    assert fit.explain(need, free) == ("it shares its nodes with nobody, and no node is empty")
    assert "each to itself" in need.words()
    assert "--exclusive" in suggest._options(waiting(OverSubscribe="NO"), need)

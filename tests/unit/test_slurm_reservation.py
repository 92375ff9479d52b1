"""A maintenance in front of a job: no forecast and no suggestion lies inside it."""

from dataclasses import replace
from datetime import datetime

from headway.engines.slurm.parse import HOLDER_WIDTHS, read_holders, read_nodes
from headway.engines.slurm.why import explain, reservation, suggest
from headway.engines.slurm.why.fit import MIB, Need
from tests.unit.test_slurm_waiting import Scripted, job

SERVICE = (
    "ReservationName=service StartTime=2026-11-16T05:00:00 EndTime=2026-11-16T07:00:00 Duration=02:00:00 "
    "Nodes=node[1-2] NodeCnt=2 Flags=MAINT,SPEC_NODES Users=root\n"
)
NODES = "".join(
    f"NodeName=node{k} CPUAlloc=1 CPUTot=4 Gres=gpu:4 GresUsed=gpu:{used} RealMemory=4000 AllocMem=100 State=MIXED\n"
    for k, used in ((1, 4), (2, 0))
)
NOW = datetime(2026, 11, 16, 4, 10)
NEED = Need(2, 4, 1, 100 * MIB, 3600.0)


def holder(end: str) -> str:
    values = ("12", end, "1", "cpu=1,mem=100M,node=1", "gres:gpu:4", "wrap", "node1")
    return "".join(value.ljust(width) for value, width in zip(values, HOLDER_WIDTHS, strict=True))


def test_room_that_a_maintenance_takes_is_room_after_it() -> None:
    held = reservation.read(SERVICE)
    free = [suggest.free_of(node) for node in read_nodes(NODES)]
    early, late = (
        read_holders(holder("2026-11-16T04:30:00")),
        read_holders(holder("2026-11-16T08:00:00")),
    )
    assert explain._room_at(NEED, free, early, held, NOW) == (
        "2026-11-16T07:00:00",
        "the maintenance service is over",
    )
    found = explain._room_at(NEED, free, late, held, NOW)
    assert found is not None and found[0] == "2026-11-16T08:00:00"
    short = replace(NEED, time_s=1200.0)
    found = explain._room_at(short, free, early, held, NOW)
    assert found is not None and found[0] == "2026-11-16T04:30:00"


def test_no_end_of_a_job_brings_back_a_node_that_is_drained() -> None:
    drained = NODES.replace("State=MIXED", "State=MIXED+DRAIN")
    commands = Scripted(date=f"{NOW.isoformat()}\n", JobID=holder("2026-11-16T04:30:00"))
    one = job("ReqNodeNotAvail, UnavailableNodes:node[1-2]", NumNodes="1", MinMemoryNode="100M")
    told = explain.explain(one, read_nodes(drained), commands)
    assert told.start == "neither Slurm nor the time limits of running jobs tell when"
    assert told.reason.endswith("hw clusters -v shows which nodes are away, and why")
    up = explain.explain(
        one, read_nodes(NODES.replace("GresUsed=gpu:0", "GresUsed=gpu:4")), commands
    )
    assert up.start.startswith("at 2026-11-16T04:30:00 wrap")


def test_what_slurm_says_is_not_moved_into_a_maintenance() -> None:
    """Slurm puts every other job off by the time of the one that waits; to take that away must not
    lead there.
    """
    held = reservation.read(SERVICE)
    after = "sbatch: Job 8 to start at 2026-11-16T07:00:00 using 4 processors on nodes node[1-2] in partition main"
    found = suggest._likely("2026-11-16T07:00:00", "node[1-2]", 600.0, NEED, held)
    assert found == datetime(2026, 11, 16, 7, 0)
    assert suggest._likely("2026-11-16T05:30:00", "node[1-2]", 600.0, NEED, held) is None
    assert suggest._likely("2026-11-16T05:30:00", "node[3-4]", 600.0, NEED, held) == datetime(
        2026, 11, 16, 5, 20
    )
    commands = Scripted(gres=after)
    free = [suggest.free_of(node) for node in read_nodes(NODES)]
    told = suggest.suggest(job(), NEED, free, commands, NOW, 600.0, held)
    assert told and all("would start at 2026-11-16T07:00:00" in line for line in told)


def test_a_shorter_job_in_front_of_a_maintenance_is_asked_for_first() -> None:
    held = reservation.read(SERVICE)
    [(words, asked)] = suggest._before(NEED, held, NOW)
    assert words == "--max-duration 47m" and asked.time_s == 47 * 60 + suggest.MARGIN_S
    assert not list(suggest._before(replace(NEED, time_s=60.0), held, NOW))


def test_a_forecast_of_slurms_that_is_older_than_a_maintenance_is_told_as_that() -> None:
    held = reservation.read(SERVICE)
    line = replace(job(SchedNodeList="node1"), start="2026-11-16T05:10:00")
    said = explain._forecast(line, NEED, None, held, NOW, is_room=True)
    assert said.endswith("which is too early: the maintenance service has them then")
    assert "too early" not in explain._forecast(line, NEED, None, [], NOW, is_room=True)

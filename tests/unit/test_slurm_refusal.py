"""What Slurm does not take: for now, so that it waits here, or never, so that it is refused when it
is submitted.

Source of the answers: sbatch 22.05.8 on a cluster with accounting (`tests.rigs.slurm_rig`), each
asked for real.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import EngineId, Node
from headway.engines.slurm import commands, parse, test_only
from headway.engines.slurm.sbatch import FULL_S
from headway.model.errors import HeadwayError, LaterError, RefusedError, UnreachableError
from headway.model.job import Job, State
from tests.unit.control_bench import Bench, HandEngine, in_loop
from tests.unit.test_slurm_array import element, key_of, starts
from tests.unit.test_slurm_engine import NODES, Rig, job

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "slurm"
LATER = ["submit-limit", "submit-limit-trial", "closed", "draining"]
NEVER = [
    "account", "qos", "partition", "feature", "gres", "licence", "reservation", "node", "account-of-partition", "nodes",
    "time", "elsewhere", "option", "deny-time", "deny-gpus", "gpu-kind",
]  # fmt: skip


def recorded() -> dict[str, HeadwayError]:
    parts = re.split(r"^== (\S+) (\d+)\n", (GOLDEN / "22.05-refusals.txt").read_text(), flags=re.M)[
        1:
    ]
    return {
        name: commands.failure("sbatch", int(code), text)
        for name, code, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        if int(code)
    }


def nodes(*states: str) -> list[parse.NodeLine]:
    return parse.read_nodes(
        "".join(f"NodeName=n{k} State={word}\n" for k, word in enumerate(states))
    )


@pytest.mark.parametrize("name", LATER)
def test_a_full_queue_and_a_closed_partition_are_waited_for(name: str) -> None:
    error = recorded()[name]
    assert isinstance(error, LaterError) and error.temporary


@pytest.mark.parametrize("name", NEVER)
def test_what_time_cannot_mend_is_final(name: str) -> None:
    error = recorded()[name]
    assert isinstance(error, RefusedError) and not error.temporary
    assert test_only.is_final(error, nodes("IDLE", "MIXED"))


@pytest.mark.parametrize("name", ["nodes-away", "future-reservation"])
def test_what_is_only_not_now_is_not_final(name: str) -> None:
    """sbatch itself has taken both."""
    error = recorded()[name]
    assert isinstance(error, RefusedError) and not test_only.is_final(
        error, nodes("IDLE", "IDLE+DRAIN")
    )


def test_the_words_of_a_refusal_are_slurms_and_those_of_its_plugins() -> None:
    told = recorded()
    assert str(told["memory"]) == (
        "Slurm refuses it: Memory specification can not be satisfied; Requested node configuration is not available"
    )
    assert str(told["option"]) == "Slurm refuses it: unrecognized option '--frob=1'"
    assert "more than its QoS allows for one job: GPUs" in str(told["deny-gpus"])
    assert "AssocMaxSubmitJobLimit" in str(told["submit-limit"])


def test_a_queue_that_is_full_is_told_although_sbatch_goes_on_trying() -> None:
    said = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
    assert "MaxJobCount" in str(commands.too_late("sbatch", 30.0, said.encode()))
    assert str(commands.too_late("sbatch", 30.0, b"")) == "sbatch did not answer within 30 s"
    gave_up = (
        f"{said}\nsbatch: error: Batch job submission failed: Resource temporarily unavailable"
    )
    done = commands.failure("sbatch", 1, gave_up)
    assert isinstance(done, LaterError)


# -- asked before a job is stored


class Site:
    """A Slurm of which a test says what `--test-only` answers."""

    def __init__(self, home: Path, trial_says: Any = "", **options: str) -> None:
        self.asked = 0
        self.trial_says = trial_says
        self.rig = Rig(home, sbatch=self.sbatch, sacctmgr="ml\nvision\n", id="me\n")
        self.rig.engine._options |= options

    def sbatch(self, argv: Sequence[str], text: str) -> str:
        if "--test-only" not in argv:
            return "17"
        self.asked += 1
        if isinstance(self.trial_says, Exception):
            raise self.trial_says
        return str(self.trial_says)

    def plan(self, **spec: Any) -> None:
        made = job(**spec)
        self.rig.engine.plan(Job(0, made.id, made.uuid, made.spec, State.WAITING, 0, 0))


def test_a_bad_account_is_refused_at_submit_with_the_names_that_would_do(tmp_path: Path) -> None:
    site = Site(tmp_path, recorded()["account"], account="visio")
    with pytest.raises(
        RefusedError, match="account 'visio' is not one of yours; did you mean \"vision\""
    ) as refused:
        site.plan()
    assert refused.value.hint == "yours: ml, vision"


def test_a_bad_constraint_is_refused_with_the_features_there_are(tmp_path: Path) -> None:
    site = Site(tmp_path, recorded()["feature"], constraint="a10")
    site.rig.commands.answers["scontrol"] = NODES.replace(
        "State=", "AvailableFeatures=a100,ib State="
    )
    with pytest.raises(
        RefusedError, match="constraint 'a10' asks for; did you mean \"a100\""
    ) as refused:
        site.plan()
    assert refused.value.hint == "features: a100, ib"


def test_slurm_is_asked_once_for_each_request_that_is_different(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for processes in (4, 4, 8, 4, 8):
        site.plan(processes=processes)
    assert site.asked == 2
    site.rig.engine.plan(job(processes=2))  # it is stored: whom would one tell
    assert site.asked == 2


def test_a_refusal_is_asked_about_again_soon(tmp_path: Path) -> None:
    site = Site(tmp_path, recorded()["qos"], qos="big")
    for _ in range(3):
        with pytest.raises(RefusedError, match="QoS 'big'"):
            site.plan()
    assert site.asked == 1
    site.rig.now_s += test_only.NO_KEPT_S
    site.trial_says = ""
    site.plan()


@pytest.mark.parametrize("name", [*LATER, "nodes-away", "future-reservation"])
def test_what_can_be_waited_for_is_taken(tmp_path: Path, name: str) -> None:
    site = Site(tmp_path, recorded()[name])
    site.rig.commands.answers["scontrol"] = NODES.replace("State=IDLE", "State=DOWN", 1)
    site.plan()
    assert site.asked == 1


def test_nodes_that_were_drained_a_moment_ago_make_nothing_final(tmp_path: Path) -> None:
    """What is known of the nodes may be half a minute old."""
    site = Site(tmp_path)
    site.plan(processes=1)
    site.trial_says = recorded()["nodes-away"]
    site.rig.commands.answers["scontrol"] = NODES.replace("State=IDLE", "State=IDLE+DRAIN")
    site.plan(processes=4)
    site.rig.commands.answers["scontrol"] = NODES
    with pytest.raises(RefusedError, match="no nodes could ever give this together"):
        site.plan(processes=8)


def test_while_the_controller_is_away_nobody_waits_for_its_answer(tmp_path: Path) -> None:
    site = Site(tmp_path, UnreachableError("sbatch did not answer within 10 s"))
    for processes in (1, 2, 4):
        site.plan(processes=processes)
    assert site.asked == 1
    site.rig.now_s += test_only.AWAY_S
    site.trial_says = recorded()["qos"]
    with pytest.raises(RefusedError):
        site.plan()


# -- not taken for now


class Queue:
    """A Slurm that takes so many jobs; one array counts as many as it has elements."""

    def __init__(self, rig: Rig, room: int) -> None:
        self.room, self.tried, self.rig = room, 0, rig
        rig.commands.answers["sbatch"] = self.sbatch

    def sbatch(self, argv: Sequence[str], text: str) -> str:
        self.tried += 1
        told = re.search(r"--array=(\d+)-(\d+)", text)
        size = int(told[2]) - int(told[1]) + 1 if told else 1
        if "--qos=other" not in text:
            if size > self.room:
                raise recorded()["submit-limit"]
            self.room -= size
        return str(100 + self.tried)


def kinds(found: Mapping[str, EngineId | HeadwayError]) -> list[bool]:
    return [isinstance(one, LaterError) for one in found.values()]


def test_of_an_array_that_is_too_long_for_now_as_many_are_taken_as_may_be(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = Queue(rig, room=2)
    jobs = [element(k) for k in range(5)]
    found = rig.engine.submit_many(starts(rig, *jobs))
    assert sorted(kinds(found)) == [False, False, True, True, True]
    assert not list(rig.engine.spool.glob("*.array"))
    left = [one for one in jobs if isinstance(found[key_of(one.spec.array_index or 0)], LaterError)]
    queue.room = 5
    again = Rig(tmp_path)
    queue = Queue(again, room=5)
    assert kinds(again.engine.submit_many(starts(again, *left))) == [False] * 3
    assert queue.tried == 1  # what is left is one array


def test_one_that_is_not_taken_speaks_for_those_that_ask_for_the_same_and_for_no_other(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    queue = Queue(rig, room=0)
    same = [element(k, array=None) for k in range(8)]
    other = element(8, array=None, options={"qos": "other"})
    found = rig.engine.submit_many(starts(rig, *same, other))
    assert isinstance(found[key_of(0)], LaterError) and not isinstance(
        found[key_of(8)], HeadwayError
    )
    assert queue.tried <= 4  # each of three callers once at most, and the other one
    before = queue.tried
    rig.engine.submit_many(starts(rig, *same))
    assert queue.tried == before
    rig.now_s += FULL_S
    rig.engine.submit_many(starts(rig, *same))
    assert before < queue.tried <= before + 3


def test_one_that_is_not_taken_while_another_thread_looks_for_such_ends_nothing(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    queue, asked, looks = Queue(rig, room=0), threading.Event(), threading.Event()
    first, second = starts(rig, element(0, array=None)), starts(rig, element(1, array=None, cpus=2))

    def sbatch(argv: Sequence[str], text: str) -> str:
        asked.set()
        looks.wait()
        return queue.sbatch(argv, text)

    class Until(float):
        """In the middle of a look, the other thread is told that its job is not taken."""

        def __gt__(self, other: float) -> bool:
            if not looks.is_set():
                looks.set()
                beside.join(0.5)  # it may have to wait for the end of the look
            return super().__gt__(other)

    rig.commands.answers["sbatch"] = sbatch
    beside = threading.Thread(target=rig.engine.submit_many, args=[second])
    beside.start()
    asked.wait()
    rig.engine._submission._full = {
        (name,): (Until(rig.now_s + FULL_S), LaterError("full")) for name in "ab"
    }
    assert kinds(rig.engine.submit_many(first)) == [True]
    beside.join()


def test_the_limit_is_named_with_its_value(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sbatch=recorded()["submit-limit"], id="root\n")
    mine = "ClusterName=t Account=ml UserName=root(0) DefAssoc=Yes MaxSubmitJobs=3(3)\n"
    rig.commands.answers["scontrol"] = lambda argv, _: mine if "assoc_mgr" in argv else NODES
    with pytest.raises(
        LaterError, match=r"account ml of root allows 3 queued jobs \(MaxSubmitJobs\)"
    ):
        rig.submit(job())


@in_loop
async def test_a_start_that_a_full_queue_does_not_take_waits_and_says_why(bench: Bench) -> None:
    job = await bench.submit()
    bench.engine.refuse = LaterError("as many are queued as may be")
    await bench.look(3)
    assert bench.job(job.pk).state is State.WAITING
    assert (
        "as many are queued as may be; it is tried again"
        in (await bench.control.explain(job)).reason
    )
    bench.engine.refuse, bench.now_s = None, bench.now_s + 60
    await bench.look()
    assert f"{job.uuid}-1" in bench.engine.started


class AwayQueue(HandEngine):
    """A scheduler that does not answer; what it said last is still known."""

    queues = True

    def capacity_now(self) -> list[Node]:
        raise UnreachableError("Unable to contact slurm controller")

    def queue_words(self) -> str:
        return ""


@in_loop
async def test_a_job_for_a_scheduler_that_is_away_is_not_told_as_about_to_start(
    bench: Bench,
) -> None:
    bench.others["lab"] = AwayQueue()
    job = await bench.submit(cluster="lab", definition={"engine": "slurm"})
    assert (await bench.control.explain(job)).reason == (
        "lab is not reached: Unable to contact slurm controller; it starts when that is over"
    )

"""Whether a silent job hangs: decided from samples of stacks, CPU and disk, without a clock."""

from typing import Any

import pytest

from headway.diagnose.hang import Pause, judge, usual_interval
from headway.server.health.pulse import Pulse
from headway.views.cli import why
from headway.views.text.terminal import Output

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MODULE = ("/code/train.py", 160, "<module>")
IN_REDUCE = [(TORCH, 2501, "all_reduce"), ("/code/train.py", 152, "main"), MODULE]
IN_GATHER = [(TORCH, 2901, "all_gather"), ("/code/train.py", 170, "main"), MODULE]
IN_QUEUE = [("/usr/lib/python3.11/queue.py", 171, "get"), ("/code/loader.py", 88, "load"), MODULE]
COMPUTES = [("/code/model.py", 12, "forward"), MODULE]
LOADS = [
    ("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9, "_try_get_data"),
    MODULE,
]
SLEEPS = [("/usr/lib/python3.11/threading.py", 3, "wait"), ("/code/train.py", 12, "poll"), MODULE]
SILENT: dict[str, Any] = {"missing": "it was asked and did not answer", "silent": True, "state": "stopped"}  # fmt: skip
HUNG = Pause(silent_s=40.0, least_s=30.0, interval_s=0.5, stepped=True)


def sample(second: int, ranks: dict[int, Any], **used: dict[int, float]) -> dict[str, Any]:
    """One task with these stacks; `cpu_s`, `io_bytes`, `faults`: of a rank, if not 0."""
    frames: dict[Any, int] = {}
    processes = []
    for rank, stack in ranks.items():
        one: dict[str, Any] = {"rank": rank, "pid": 10 + rank, "lead": True, "launcher": False}
        for name in ("cpu_s", "io_bytes", "faults"):
            one[name] = used.get(name, {}).get(rank, 0)
        if isinstance(stack, dict):
            one |= {"threads": [], **stack}
        else:
            numbers = [frames.setdefault(frame, len(frames)) for frame in stack]
            one["threads"] = [{"name": None, "main": True, "frames": numbers}]
        processes.append(one)
    fact = {"frames": [list(f) for f in frames], "processes": processes, "source": {}}
    return {"worker-0": {**fact, "time_ns": second * 10**9, "node": "node1"}}


def three(ranks: dict[int, Any]) -> list[dict[str, Any]]:
    return [sample(second, ranks) for second in (1, 2, 3)]


def test_a_rank_in_a_queue_while_others_wait_for_it_is_named() -> None:
    verdict = judge(three({0: IN_REDUCE, 1: IN_REDUCE, 2: IN_QUEUE, 3: IN_REDUCE}), HUNG)
    assert (verdict.cause, verdict.rank, verdict.moving) == ("collective_stall", 2, None)
    assert "3 of 4 ranks wait in all_reduce at train.py:152" in verdict.text
    assert any("node1" in line and "loader.py:88" in line for line in verdict.evidence)


def test_a_stopped_rank_is_the_one_to_look_at() -> None:
    verdict = judge(three({0: IN_REDUCE, 1: SILENT}), HUNG)
    assert (verdict.cause, verdict.rank) == ("collective_stall", 1)


def test_ranks_in_different_collectives_have_diverged() -> None:
    verdict = judge(three({0: IN_REDUCE, 1: IN_REDUCE, 2: IN_GATHER}), HUNG)
    assert (verdict.cause, verdict.rank, verdict.cls) == ("collective_divergence", 2, "user")
    halves = judge(three({0: IN_REDUCE, 1: IN_GATHER}), HUNG)
    assert (halves.cause, halves.rank) == ("collective_divergence", None)


def test_a_loader_that_gives_nothing_is_named_as_that() -> None:
    assert judge(three({0: LOADS}), HUNG).cause == "dataloader_hang"
    assert judge(three({0: IN_REDUCE, 1: LOADS}), HUNG).rank == 1


def test_all_in_the_same_collective_accuses_nobody() -> None:
    verdict = judge(three({0: IN_REDUCE, 1: IN_REDUCE}), HUNG)
    assert (verdict.cause, verdict.rank) == ("collective_stall", None)


@pytest.mark.parametrize(
    "used", [{"cpu_s": {0: 0.9}}, {"io_bytes": {0: 10**6}}, {"faults": {0: 500}}]
)
def test_a_rank_that_computes_reads_or_pages_does_not_hang(
    used: dict[str, dict[int, float]],
) -> None:
    ranks = {0: COMPUTES, 1: IN_REDUCE}
    verdict = judge([sample(1, ranks), sample(2, ranks, **used)], HUNG)
    assert verdict.moving is not None


def test_a_rank_that_comes_to_other_functions_does_not_hang() -> None:
    assert judge([sample(1, {0: COMPUTES}), sample(2, {0: SLEEPS})], HUNG).moving


def test_a_collective_that_spins_and_a_loop_that_polls_are_waiting() -> None:
    ranks = {0: IN_REDUCE, 1: SLEEPS}
    samples = [sample(1, ranks), sample(2, ranks, cpu_s={0: 1.0, 1: 0.02})]
    verdict = judge(samples, HUNG)
    assert (verdict.moving, verdict.rank) == (None, 1)


def test_a_loop_without_end_is_named_only_after_very_long() -> None:
    ranks = {0: IN_REDUCE, 1: COMPUTES, 2: IN_REDUCE}
    samples = [sample(1, ranks), sample(2, ranks, cpu_s={1: 1.0})]
    assert judge(samples, HUNG).moving
    later = Pause(silent_s=400.0, least_s=30.0, interval_s=0.5, stepped=True)
    assert judge(samples, later).rank == 1


def test_a_program_that_sleeps_before_its_first_steps_is_left_alone() -> None:
    sleeps = [("/code/train.py", 3, "<module>")]
    samples = three({0: sleeps})
    for one in samples:
        one["worker-0"]["source"] = {"0": "time.sleep(100)"}
    begun = Pause(silent_s=70.0, least_s=30.0)
    assert judge(samples, begun).moving
    assert judge(samples, HUNG).cause == "hang"


def test_the_limit_grows_with_the_usual_interval_and_the_longest_pause() -> None:
    assert Pause(0, 30.0, 0.5).limit_s() == 30.0
    assert Pause(0, 30.0, 20.0).limit_s() == 200.0
    assert Pause(0, 30.0, 0.5, longest_s=100.0).limit_s() == 120.0
    assert Pause(0, 30.0, None).limit_s() == 60.0


def test_bursts_of_lines_do_not_make_the_interval_short() -> None:
    assert usual_interval([0.1] * 8 + [20.0] * 2) == 20.0
    assert usual_interval([1.0]) is None


def test_a_pulse_counts_steps_before_lines() -> None:
    pulse = Pulse(1, 0.0, 0)
    for second in range(1, 11):
        pulse.hear(float(second), second, is_step=second % 5 == 0)
    pause = pulse.pause(12.0, 30.0)
    assert pause.silent_s == 2.0 and pause.stepped
    assert pause.interval_s == 1.0, "one gap between steps is too few"
    for second in (15, 20, 25):
        pulse.hear(float(second), second, is_step=True)
    assert pulse.pause(26.0, 30.0).interval_s == 5.0


def why_lines(silent_s: float, moving: str | None = None) -> str:
    signs = {"silent_s": silent_s, "output_at": "2026-01-01T10:00:00Z", "step_at": None, "interval_s": 0.5,
             "limit_s": 30.0, "cpu_percent": 3.0, "moving": moving}  # fmt: skip
    found = {"id": "job-abcde", "state": "running", "waiting": None, "verdict": None, "findings": [],
             "signs": signs}  # fmt: skip
    return "\n".join(why.listing(found, Output(1)))


def test_a_silent_job_is_never_called_well() -> None:
    assert "nothing is wrong" in why_lines(3.0)
    silent = why_lines(45.0)
    assert "nothing is wrong" not in silent and "no step so far" in silent and "CPU 3 %" in silent
    assert "it moves all the same: rank 0 computes" in why_lines(45.0, "rank 0 computes")

"""Why a job is slow, from samples of usage; and which rank the others wait for."""

from typing import Any

from headway.diagnose import slow
from headway.diagnose.ledger import Used
from headway.diagnose.pace import Pace, step_paces, whole_pace
from headway.diagnose.slow import Seen, Slow, straggler
from headway.model.job import Job, JobSpec, State


def job(**asked: Any) -> Job:
    spec = JobSpec(["python"], "/", "train", **asked)
    return Job(1, "train-abcde", "u", spec, State.RUNNING, 0, 0)


def samples(count: int = 30, **more: Any) -> list[dict[str, Any]]:
    node = {"cpu_percent": 100.0, "cores": 8, "memory_bytes": 10, "memory_total_bytes": 100,
            "psi": {"cpu": 0.0, "io": 0.0, "memory": 0.0}} | more.pop("node", {})  # fmt: skip
    tree = {"rank": 0, "pid": None, "cpu_percent": 50.0, "read_bps": 0, "write_bps": 0}
    processes = more.pop("processes", [{"rank": 0, "pid": 5, "ppid": 1, "cpu_percent": 50.0}])
    tree |= more.pop("tree", {})
    one = {"host": "node1", "node": node, "processes": [tree, *processes], "gpus": [], **more}
    return [one] * count


def judge(which: Job, given: list[dict[str, Any]], **more: Any) -> list[Slow]:
    return slow.judge(which, Seen(given, **more))


def causes(found: list[Any]) -> list[str]:
    return [one.cause for one in found]


def gpu(load: float, **more: Any) -> dict[str, Any]:
    return {"index": 0, "load_percent": load, "own": True, "throttle": [], "holders": [], **more}


def test_a_job_that_does_well_is_left_alone() -> None:
    assert judge(job(), samples()) == []
    assert judge(job(gpus=1), samples(gpus=[gpu(95.0)])) == []
    assert judge(job(gpus=1), samples(5, gpus=[gpu(0.0)])) == [], "a moment says nothing"


def test_gpus_that_nobody_uses_are_told() -> None:
    (found,) = judge(job(gpus=1), samples(gpus=[gpu(0.0)]))
    assert found.cause == "gpu_unused" and "none is used" in found.text


def test_busy_loaders_beside_an_idle_gpu_are_too_few() -> None:
    workers = [{"rank": 0, "pid": 5, "ppid": 1, "cpu_percent": 30.0},
               {"rank": 0, "pid": 6, "ppid": 5, "cpu_percent": 99.0}]  # fmt: skip
    (found,) = judge(job(gpus=1), samples(gpus=[gpu(20.0)], processes=workers))
    assert found.cause == "input_starved" and "num_workers=2" in found.advice


def test_pressure_is_told_by_its_kind() -> None:
    assert causes(judge(job(), samples(node={"psi": {"memory": 30.0}}))) == ["memory_pressure"]
    assert causes(judge(job(), samples(node={"psi": {"io": 60.0}}))) == ["io_wait"]
    busy = {"cpu_percent": 780.0, "psi": {"cpu": 60.0}}
    assert causes(judge(job(), samples(node=busy))) == ["foreign_load"]
    assert judge(job(), samples(node=busy, tree={"cpu_percent": 2.0})) == [], "it wants no core"


def test_one_full_core_of_many_is_told_and_a_throttled_card() -> None:
    (found,) = judge(job(), samples(tree={"cpu_percent": 100.0}))
    assert found.cause == "cpu_saturated"
    hot = gpu(95.0, throttle=["sw_thermal_slowdown"])
    assert causes(judge(job(gpus=1), samples(gpus=[hot]))) == ["throttled"]


def test_the_rank_that_never_waits_is_the_one_that_others_wait_for() -> None:
    looks = [{0: "collective", 1: None, 2: "collective"}] * 6 + [{0: None, 1: None, 2: None}] * 4
    found = straggler(looks)
    assert found is not None and found.rank == 1 and "60%" in found.text
    assert straggler([{0: None, 1: None}] * 10) is None
    assert straggler([{0: "collective", 1: "collective"}] * 10) is None


def test_a_straggler_by_fifteen_percent_is_named_and_chance_is_not() -> None:
    looks = [{0: "collective", 1: None, 2: "collective"}] * 13 + [{0: None, 1: None, 2: None}] * 87
    found = straggler(looks)
    assert found is not None and found.rank == 1
    assert straggler(looks[10:23]) is None, "three of thirteen may be chance"
    uneven = [{0: "collective", 1: None}] * 20 + [{0: None, 1: "collective"}] * 14
    assert straggler(uneven + [{0: None, 1: None}] * 66) is None, "they wait for each other in turn"


def test_means_of_longer_spans_are_read_like_single_samples() -> None:
    card = gpu(0.0) | {"load_percent": [0, 0.0, 1]}
    spans = [one | {"span_s": 10.0} for one in samples(3, gpus=[card])]
    assert causes(judge(job(gpus=1), spans)) == ["gpu_unused"]


def test_a_card_at_full_load_and_half_its_power_waits() -> None:
    before, now = (
        samples(gpus=[gpu(99.0, power_w=310.0)]),
        samples(gpus=[gpu(100.0, power_w=140.0)]),
    )
    (found,) = judge(job(gpus=1), now, earlier=before)
    assert found.cause == "gpu_spinning" and "140 W, and usually takes 310 W" in found.text
    assert judge(job(gpus=1), before, earlier=before) == []
    assert judge(job(gpus=1), now) == [], "its usual power is not known"


def test_swap_and_a_slow_network_file_system_are_told() -> None:
    assert causes(judge(job(), samples(node={"swap_bps": 30e6}))) == ["swapping"]
    mount = {"mount": "nas:/data on /data", "requests_ps": 40.0, "wait_ms": 22.0, "read_bps": 5e6}
    (found,) = judge(job(), samples(node={"nfs": mount}))
    assert found.cause == "network_storage" and "nas:/data on /data: 22 ms a request" in found.text
    quick = mount | {"wait_ms": 0.4}
    assert judge(job(), samples(node={"nfs": quick})) == []


def test_workers_that_are_idle_are_too_many() -> None:
    main = {"rank": 0, "pid": 5, "ppid": 1, "cpu_percent": 90.0}
    idle = [{"rank": 0, "pid": n, "ppid": 5, "cpu_percent": 1.0} for n in range(10, 26)]
    (found,) = judge(job(), samples(processes=[main, *idle]))
    assert found.cause == "too_many_workers" and "16 of its 16" in found.text


def test_checkpoints_that_take_much_of_the_time_are_told() -> None:
    (found,) = judge(job(), samples(), timed={"checkpoint": 40.0}, ran_s=120.0, checkpoints=10)
    assert found.cause == "checkpoint_heavy" and "33%" in found.text
    assert "one every 12 s" in found.evidence[0]
    assert judge(job(), samples(), timed={"checkpoint": 4.0}, ran_s=120.0) == []
    (found,) = judge(job(), samples(tree={"write_bps": 80e6}))
    assert found.cause == "checkpoint_heavy" and "80 MB/s" in found.text


def test_a_request_far_beyond_what_is_used_is_told_with_the_one_that_is_enough() -> None:
    used = Used(memory_bytes=11 << 30, cores=2.1)
    asks = job(memory_bytes=64 << 30, cpus=8)
    (found,) = judge(asks, samples(), used=used, ran_s=900.0)
    assert "asked 64.0 GiB, used 11.0 GiB; 8 cores, used 2.1" in found.text
    assert found.advice == "the next time: --memory 14080MiB --cpus 3"
    assert judge(asks, samples(), used=used, ran_s=60.0) == [], "it may still need them"
    assert judge(job(memory_bytes=12 << 30, cpus=2), samples(), used=used, ran_s=900.0) == []


def test_a_job_is_measured_against_its_own_past_and_like_jobs() -> None:
    past = Pace(now_s=0.5, past_s=0.25)
    (found,) = judge(job(), samples(), pace=past)
    assert found.text == "2.0 x slower than it was: 0.5 s a step now, 0.25 s before"
    other = Pace(
        now_s=0.42, sibling="train-abcde", sibling_s=0.233, sibling_age_s=90_000,
        differences=["CPU % 100, there 780"],
    )  # fmt: skip
    (found,) = judge(job(), samples(), pace=other)
    assert found.text == (
        "1.8 x slower than train-abcde yesterday: 0.42 s a step, there 0.233 s; CPU % 100, there 780"
    )
    assert found.advice == "hw diff ID abcde"
    assert judge(job(), samples(), pace=Pace(now_s=0.25, past_s=0.25, sibling_s=0.24)) == []
    (found,) = judge(job(), samples(node={"swap_bps": 30e6}), pace=past)
    assert found.cause == "swapping" and "2.0 x slower" in found.evidence[-1]


def test_the_pace_now_is_told_from_the_one_before() -> None:
    times = [0.1 * n for n in range(3000)]
    times += [times[-1] + 0.3 * n for n in range(1, 400)]
    now_s, past_s = step_paces(times, list(range(len(times))))
    assert now_s is not None and past_s is not None
    assert abs(now_s - 0.3) < 0.01 and abs(past_s - 0.1) < 0.01
    assert step_paces(times[:10], list(range(10))) == (None, None)
    whole = whole_pace(times[:3000], list(range(3000)))
    assert whole is not None and abs(whole - 0.1) < 0.01

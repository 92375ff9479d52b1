"""Why a job is slow, from samples of usage; and which rank the others wait for."""

from typing import Any

from headway.diagnose import slow
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

"""Usage through the whole agent: sampled by the shipper, sent as facts, whatever happens to driver
and shipper.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.testing import nvml_driver
from tests.fault.agent_rig import Rig, children, script
from tests.needs import missing
from tests.waiting import wait_until

Fact = dict[str, Any]


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with Rig(home) as rig:
        yield rig


def samples(rig: Rig, level: int = 0) -> list[Fact]:
    return [fact for fact in rig.server.facts("usage") if fact["level"] == level]


def pids(fact: Fact, rank: int) -> set[int | None]:
    return {line["pid"] for line in fact["processes"] if line["rank"] == rank}


def test_a_task_tells_what_its_ranks_use_while_it_runs(rig: Rig) -> None:
    code = "import os, time\nif os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
    task = rig.start(rig.make(*script(code), processes=2, monitoring_interval_s=0.2))
    wait_until(lambda: len(task.rank_pids()) == 2, what="two ranks")
    ranks = {
        fact["rank"]: fact["pid"] for fact in task.shim_facts() if fact["type"] == "process_started"
    }

    def whole() -> Fact | None:
        for fact in samples(rig):
            if len(pids(fact, 0)) == 3 and len(pids(fact, 1)) == 3:
                return fact
        return None

    fact = wait_until(whole, 30.0, "a sample of both ranks and their children")
    assert fact is not None
    assert {None, ranks[0]} < pids(fact, 0)
    assert {None, ranks[1]} < pids(fact, 1)
    assert fact["node"]["memory_bytes"] > 0
    assert fact["gpus"] == []
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)
    times = [fact["time_ns"] for fact in samples(rig)]
    assert times == sorted(times)


def test_a_short_task_has_its_spans_when_it_ends(rig: Rig) -> None:
    enough = rig.home.parent / "enough"
    code = f"import os, time\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.02)"
    task = rig.start(rig.make(*script(code), monitoring_interval_s=0.1))
    wait_until(lambda: len(samples(rig)) >= 2, what="two samples")
    enough.touch()
    rig.finish(task)
    minute = samples(rig, 2)
    assert len(minute) == 1
    low, mean, high = minute[0]["node"]["memory_bytes"]
    assert 0 < low <= mean <= high
    assert len(samples(rig, 1)) == 1


def test_without_an_interval_nothing_is_sampled(rig: Rig) -> None:
    ended = rig.run(*script("import time; time.sleep(0.5)"), monitoring_interval_s=0)
    assert ended["exit_code"] == 0
    assert rig.server.facts("usage") == []


def test_a_killed_shipper_costs_a_moment_of_usage(rig: Rig) -> None:
    task = rig.start(rig.make(*script("import time; time.sleep(600)"), monitoring_interval_s=0.1))
    wait_until(lambda: samples(rig), what="a sample")
    first = task.shipper()
    os.kill(first, signal.SIGKILL)
    seen = len(samples(rig))
    wait_until(lambda: len(samples(rig)) > seen + 3, 30.0, "samples of the next shipper")
    assert task.shipper() != first
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)


def test_a_driver_that_hangs_holds_up_neither_samples_nor_the_end(rig: Rig, tmp_path: Path) -> None:
    """F44: `gpus` becomes null, the rest goes on, the task ends, and the child that asked is gone."""
    if nvml_driver.compiler() is None:
        missing("no C compiler here; type: sudo apt-get install gcc")
    hang, library = tmp_path / "hang", nvml_driver.build(tmp_path)
    env = {"HEADWAY_NVML": str(library), "STUB_NVML_HANG": str(hang), "CUDA_VISIBLE_DEVICES": "1"}
    os.environ.update(env)  # the agent's own environment is what the driver's library sees
    try:
        task = rig.start(
            rig.make(*script("import time; time.sleep(600)"), env=env, monitoring_interval_s=0.4)
        )
    finally:
        for name in env:
            del os.environ[name]
    card = wait_until(
        lambda: next((f["gpus"] for f in samples(rig) if f["gpus"]), None), 30.0, "two cards"
    )
    assert [(c["index"], c["load_percent"], c["own"]) for c in card] == [
        (0, 97, False),
        (1, 7, True),
    ]
    asking = wait_until(lambda: children(task.shipper()), what="the process that asks")
    hang.touch()
    wait_until(
        lambda: [f["gpus"] for f in samples(rig)][-3:] == [None] * 3, 30.0, "samples without cards"
    )
    assert samples(rig)[-1]["node"]["memory_bytes"] > 0
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in asking),
        what="the end of who asked",
    )

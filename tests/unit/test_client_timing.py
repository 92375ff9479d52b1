"""Named timings: count, mean, deviation, least and most, from any thread, told now and then and at
the end (32).
"""

import asyncio
import os
import statistics
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headway.client import timing as module
from headway.client.timing import FOLD_AT, Stat, Timings, timed
from headway.model.limits import TIMING_NAMES_MAX
from tests import streams
from tests.client_bench import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "spool")
    monkeypatch.setattr(module, "_stats", {})
    monkeypatch.setattr(module, "_timings", [Timings(made.run, module._stats)])
    return made


def told(bench: Bench) -> dict[str, dict[str, Any]]:
    bench.run.finish()
    return {fact["name"]: fact for fact in streams.facts(bench.folder, "timing")}


def test_what_is_folded_is_what_statistics_says() -> None:
    values = [0.1 + 1e-9 * i * i for i in range(1, 1000)]
    stat = Stat("x")
    stat.waiting.extend(values)
    stat.fold()
    fields = stat.fields()
    assert fields["count"] == 999 and fields["mean_s"] == pytest.approx(
        statistics.mean(values), rel=1e-12
    )
    assert fields["std_s"] == pytest.approx(statistics.stdev(values), rel=1e-6)
    assert (fields["min_s"], fields["max_s"]) == (min(values), max(values))


def test_a_use_is_counted_by_name_and_told_at_the_end(bench: Bench) -> None:
    for _ in range(3):
        with timed("data"):
            pass
    with timed("step"), timed("data"):
        pass
    found = told(bench)
    assert (
        found["data"]["count"] == 4
        and found["step"]["count"] == 1
        and found["step"]["std_s"] == 0.0
    )
    assert found["data"]["pid"] == os.getpid() and found["data"]["rank"] == 0
    assert 0 <= found["data"]["min_s"] <= found["data"]["mean_s"] <= found["data"]["max_s"]


def test_many_uses_in_a_second_are_told_once(bench: Bench) -> None:
    for _ in range(10 * FOLD_AT):
        with timed("fast"):
            pass
    stat = module._stats["fast"]
    assert len(stat.waiting) <= FOLD_AT + 1, "what waits is bounded"
    assert told(bench)["fast"]["count"] == 10 * FOLD_AT
    assert len(streams.facts(bench.folder, "timing")) < FOLD_AT


def test_the_first_use_is_told_at_once_and_the_others_ever_less_often(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A young job has something to show, and one that runs for days does not tell each use."""
    now_s, told_s = 100.0, []
    monkeypatch.setattr(module, "perf_counter", lambda: now_s)
    for _ in range(1000):
        count = len(streams.facts(bench.folder, "timing"))
        with timed("x"):
            now_s += 1 / 64
        if len(streams.facts(bench.folder, "timing")) > count:
            told_s.append(now_s)
    assert told_s[0] == 100.0 + 1 / 64
    pauses_s = [after - before for before, after in pairwise(told_s)]
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[0] < 0.1 and 1.0 <= pauses_s[-1] < 1.1
    assert told(bench)["x"]["count"] == 1000


def test_it_stands_over_functions_of_both_kinds(bench: Bench) -> None:
    @timed("plain")
    def plain(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    @timed("later")
    async def later() -> str:
        await asyncio.sleep(0)
        return "done"

    assert plain(1) + plain(1, b=3) == 7 and plain.__name__ == "plain" and plain.__doc__ == "Adds."
    assert asyncio.run(later()) == "done"
    assert {name: fact["count"] for name, fact in told(bench).items()} == {"plain": 2, "later": 1}


def test_an_exception_passes_and_is_counted(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError), timed("x"):
        1 / 0  # noqa: B018
    assert told(bench)["x"]["count"] == 1


def test_one_object_may_be_entered_inside_itself(bench: Bench) -> None:
    again = timed("x")
    with again, again:
        pass
    with again:
        pass
    assert told(bench)["x"]["count"] == 3


def test_threads_lose_no_use(bench: Bench) -> None:
    def work() -> None:
        for _ in range(3000):
            with timed("x"):
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told(bench)["x"]["count"] == 18_000


def test_names_are_bounded_and_any_object_may_be_one(bench: Bench) -> None:
    class Bad:
        def __str__(self) -> str:
            raise KeyError

    for name in [*map(str, range(TIMING_NAMES_MAX + 10)), Bad(), [1]]:
        with timed(name):  # type: ignore[arg-type]
            pass
    assert len(told(bench)) == TIMING_NAMES_MAX and len(bench.warned) == 1


FORK = """
import os, headway as hw
for _ in range(3):
    with hw.timed("x"): pass
if os.fork() == 0:
    with hw.timed("x"): pass
    hw.finish()
    os._exit(0)
os.wait()
"""


def test_a_forked_child_counts_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "task.json").write_text('{"version": 1}')
    env = dict(os.environ) | {"HEADWAY_SPOOL": str(folder)}
    subprocess.run([sys.executable, "-c", FORK], env=env, check=True, timeout=60)
    last = {fact["pid"]: fact["count"] for fact in streams.facts(folder, "timing")}
    assert sorted(last.values()) == [1, 3]

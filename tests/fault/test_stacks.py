"""`hw stacks` of real processes: whatever they are stuck in, and without disturbing what they do
themselves.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Hw
from tests.waiting import wait_until

STUCK = """
import ctypes, multiprocessing, os, queue, signal, subprocess, sys, threading, time
rank = int(os.environ["RANK"])

def in_queue(): queue.Queue().get()
def in_c_with_the_gil(): ctypes.PyDLL(None).pause()
def child(): time.sleep(1000)
def in_a_child():
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
def own_handler():
    signal.signal(signal.SIGURG, lambda *_: print("mine", flush=True))
    print("up", flush=True)
    time.sleep(1000)
def closed_all():
    os.closerange(3, 2000)
    own = [open(os.path.join(os.environ["OWN"], str(n)), "w") for n in range(800)]
    print("up", flush=True)
    time.sleep(1000)
def stopped(): os.kill(os.getpid(), signal.SIGSTOP)
def no_python(): os.execvp("sleep", ["sleep", "1000"])

what = [in_queue, in_c_with_the_gil, in_a_child, own_handler, closed_all, stopped, no_python][rank]
if what not in (own_handler, closed_all):
    print("up", flush=True)
what()
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Iterator[Hw]:
    yield Hw(home, tmp_path)


def started(hw: Hw, job: str, ranks: int) -> None:
    def all_up() -> bool:
        return hw("logs", job).stdout.count(b"up") >= ranks

    wait_until(all_up, what="all ranks to say that they are up")


def by_rank(found: dict[str, Any]) -> dict[int, Any]:
    return {rank: group for group in found["groups"] for rank in group["ranks"]}


@pytest.mark.cap(41)
def test_every_rank_is_seen_whatever_it_is_stuck_in(hw: Hw, tmp_path: Path) -> None:
    script = hw.script(STUCK)
    job = hw.submit("-n", "7", "python3", script, env={"OWN": str(tmp_path)})
    started(hw, job, 7)

    def settled() -> Any:
        # the last line of each is printed just before it gets stuck
        found = hw.json("stacks", job)
        places = by_rank(found)
        stuck = {0, 1, 2} <= set(places) and all(places[r]["waits"] for r in (0, 2))
        return found if stuck and len(found["missing"]) == 4 else None

    found = wait_until(settled, what="all ranks to be stuck")
    places = by_rank(found)
    assert places[0]["waits"] == "queue.get"
    assert places[1]["frames"][0]["function"] == "in_c_with_the_gil"
    assert places[2]["waits"] == "process join"
    assert [g["frames"][0]["function"] for g in found["others"] if g["ranks"] == [2]] == ["child"]
    assert found["missing"] == [3, 4, 5, 6]
    why = {one["rank"]: one for one in found["missing_why"]}
    assert why[5]["state"] == "stopped" and why[5]["silent"]
    assert why[6]["why"] == "not a Python program"
    assert found["how"] == "signal" and 5 in found["odd"]
    assert b"mine" not in hw("logs", job).stdout, "a handler of the program's own was called"
    assert all((tmp_path / str(n)).stat().st_size == 0 for n in range(800)), "its files are its own"
    text = hw("stacks", job).stdout.decode()
    assert "queue.get" in text and "rank 5" in text
    kept = hw.json("stacks", job, "--last")
    assert by_rank(kept)[0]["waits"] == "queue.get"
    hw("abort", job)
    hw.wait_ended(job)
    assert hw("stacks", job).returncode != 0
    assert hw.json("stacks", job, "--last")["groups"]


def test_a_program_that_was_asked_many_times_ends_as_if_it_had_not_been(hw: Hw) -> None:
    text = (
        "import os, time\nprint('up', flush=True)\nbegun = time.time()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print(sum(range(10**6)))\n"
    )
    job = hw.submit("python3", hw.script(text))
    started(hw, job, 1)
    for _ in range(4):
        assert len(hw.json("stacks", job)["groups"]) == 1
    (hw.cwd / "go").touch()
    ended = hw.wait_ended(job)
    assert ended["exit_code"] == 0 and b"499999500000" in hw("logs", job).stdout

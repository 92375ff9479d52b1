"""Progress: absolute positions that survive everything, from any thread and process, without
raising (20, P1, P2).
"""

import copy
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headway.client import backoff
from headway.client import progress as module
from headway.client.progress import REVIVED_MAX, Progress, Slots, track
from headway.model.limits import PROGRESS_SLOT_BYTES, PROGRESS_SLOTS_MAX
from headway.spool.progress_slots import Slot, decode, encode_words
from headway.testing.filesystems import FailingFiles
from tests.client_bench import Bench


class Trackers:
    def __init__(self, folder: Path, *files: Any) -> None:
        self.bench = Bench(folder, *files, environ={"API_TOKEN": "hunter2-hunter2"})
        self.slots = Slots(self.bench.run)

    def new(self, total: Any = None, msg: object = "") -> Progress:
        tracker = Progress(self.slots, total, msg)
        tracker._put(module.RUNNING)
        return tracker

    def read(self) -> list[Slot]:
        return [slot for slots in read(self.bench.folder).values() for slot in slots]


def read(folder: Path) -> dict[str, list[Slot]]:
    """Every slot of every file."""
    found: dict[str, list[Slot]] = {}
    for file in sorted(folder.glob("progress-*")):
        data = file.read_bytes()
        assert len(data) % PROGRESS_SLOT_BYTES == 0
        parts = [
            data[i : i + PROGRESS_SLOT_BYTES] for i in range(0, len(data), PROGRESS_SLOT_BYTES)
        ]
        slots = [decode(part) for part in parts]
        found[file.name] = [slot for slot in slots if slot is not None]
    return found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trackers:
    trackers = Trackers(tmp_path / "spool")
    monkeypatch.setattr(module, "_slots", [trackers.slots])
    return trackers


def test_a_new_tracker_stands_at_nothing_and_moves_by_steps(made: Trackers) -> None:
    tracker = made.new(10, ("step", "Message"))
    assert (made.read()[0].completed, made.read()[0].total, made.read()[0].words) == (
        0,
        10,
        ("step", "Message"),
    )
    tracker.advance()
    tracker.advance(2.5, msg="other")
    slot = made.read()[0]
    assert (slot.completed, slot.words, slot.state, slot.distributed) == (
        3.5,
        ("other",),
        "running",
        False,
    )
    assert 0 < slot.started_ns <= slot.updated_ns


def test_update_only_goes_up(made: Trackers) -> None:
    tracker = made.new(10)
    for n in (3, 1, 3, 7, -5):
        tracker.update(n)
    assert made.read()[0].completed == 7
    tracker.advance(-3)
    assert made.read()[0].completed == 7


def test_an_unknown_total_is_none(made: Trackers) -> None:
    made.new(None, "x").advance()
    assert made.read()[0].total is None


def test_leaving_the_with_completes_it(made: Trackers) -> None:
    with made.new(2) as tracker:
        tracker.advance()
    assert (made.read()[0].state, made.read()[0].completed) == ("completed", 1)


def test_an_exception_inside_with_leaves_it_where_it_was_and_marks_it_failed(
    made: Trackers,
) -> None:
    with pytest.raises(ZeroDivisionError), made.new(10) as tracker:
        tracker.advance(4)
        raise ZeroDivisionError
    assert (made.read()[0].state, made.read()[0].completed) == ("failed", 4)


def test_trackers_stand_in_each_other_and_side_by_side(made: Trackers) -> None:
    with made.new(2, "outer") as outer, made.new(None, "other") as other:
        for _ in range(2):
            with made.new(3, "inner") as inner:
                for _ in range(3):
                    inner.advance()
                    other.advance()
            outer.advance()
    found = {slot.words: (slot.completed, slot.state) for slot in made.read()}
    assert found == {
        ("outer",): (2, "completed"),
        ("other",): (6, "completed"),
        ("inner",): (3, "completed"),
    }


def test_a_loop_in_a_loop_is_one_slot_and_the_file_does_not_grow(made: Trackers) -> None:
    for _ in range(5000):
        with made.new(1, "inner") as tracker:
            tracker.advance()
    assert len(made.read()) == 1
    file = next(made.bench.folder.glob("progress-*"))
    assert file.stat().st_size == PROGRESS_SLOT_BYTES


def test_too_many_at_the_same_time_are_said_once_and_the_rest_works(made: Trackers) -> None:
    trackers = [made.new(1, f"n{i}") for i in range(PROGRESS_SLOTS_MAX + 5)]
    for tracker in trackers:
        tracker.advance()
    assert len(made.read()) == PROGRESS_SLOTS_MAX and {slot.completed for slot in made.read()} == {
        1
    }
    assert len(made.bench.warned) == 1
    trackers[0].complete()
    trackers[-1].advance()
    assert ("n" + str(PROGRESS_SLOTS_MAX + 4),) in {slot.words for slot in made.read()}


def test_threads_lose_no_step(made: Trackers) -> None:
    tracker, switch = made.new(None, "threads"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [tracker.advance() for _ in range(5000)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert made.read()[0].completed == 40_000


def test_a_tracker_that_is_dropped_is_closed(made: Trackers) -> None:
    tracker = made.new(10)
    tracker.advance(2)
    del tracker
    assert (made.read()[0].completed, made.read()[0].state) == (2, "closed")


def test_the_end_of_the_run_closes_what_runs(made: Trackers) -> None:
    tracker = made.new(10)
    made.bench.run.end(0)
    assert made.read()[0].state == "closed" and tracker.completed == 0


def test_words_are_masked_and_fit(made: Trackers) -> None:
    made.new(1, ("key hunter2-hunter2", 3, "é" * 1000, "\ud800"))
    words = made.read()[0].words
    assert (
        words[0] == "key ********"
        and words[1] == "3"
        and words[2].endswith("…")
        and words[3] == "\ufffd"
    )
    assert len(encode_words(["x" * 500] * 16)) <= 210


def test_what_cannot_be_a_step_changes_nothing(made: Trackers) -> None:
    """P1."""
    tracker = made.new(10)
    for step in ("x", None, object(), float("nan"), float("inf"), [1], 1j):
        tracker.advance(step)  # type: ignore[arg-type]
        tracker.update(step)  # type: ignore[arg-type]
    tracker.advance()
    assert made.read()[0].completed == 1
    Progress(made.slots, "many", object()).complete()


# -- track


def test_track_counts_what_is_done(made: Trackers) -> None:
    seen = []
    for item in track([1, 2, 3], "items"):
        seen.append(made.read()[0].completed)
        assert item
    assert seen == [0, 1, 2]
    assert (made.read()[0].completed, made.read()[0].total, made.read()[0].state) == (
        3,
        3,
        "completed",
    )


def test_track_takes_a_generator_and_a_total(made: Trackers) -> None:
    assert list(track((i for i in range(3)), "a")) == [0, 1, 2]
    assert made.read()[0].total is None
    assert list(track(iter("ab"), "a", total=2)) == ["a", "b"]
    assert made.read()[0].total == 2


def test_a_loop_that_is_left_early_is_closed_where_it_was(made: Trackers) -> None:
    for item in track(range(10), "left"):
        if item == 4:
            break
    assert (made.read()[0].completed, made.read()[0].state) == (4, "closed")


def test_an_iterable_that_raises_fails(made: Trackers) -> None:
    def broken() -> Any:
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(track(broken(), "broken"))
    assert (made.read()[0].completed, made.read()[0].state) == (1, "failed")


# -- processes

FORK = """
import os, headway as hw
progress = hw.Progress.new(100, "shared")
progress.advance(10, distributed=True)
for _ in range(3):
    if os.fork() == 0:
        for _ in range(5):
            progress.advance(distributed=True)
        os._exit(0)
for _ in range(3):
    os.wait()
if os.fork() == 0:
    raise SystemExit  # does nothing to it, so it has no share
os.wait()
"""
KILL = """
import os, signal, headway as hw
progress = hw.Progress.new(100, "killed")
for i in range(42):
    progress.advance()
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "task.json").write_text('{"version": 1}')
    env = dict(os.environ) | {"HEADWAY_SPOOL": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )


def test_a_forked_child_counts_its_own_share_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Shares are added up, so none may hold what the parent had counted."""
    done = run(FORK, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = [slot for slots in read(tmp_path / "spool").values() for slot in slots]
    assert sorted(slot.completed for slot in found) == [5, 5, 5, 10]
    assert {(slot.words, slot.total, slot.distributed) for slot in found} == {
        (("shared",), 100, True)
    }


def test_the_position_survives_sigkill(tmp_path: Path) -> None:
    """P2."""
    assert run(KILL, tmp_path).returncode == -signal.SIGKILL
    assert [
        (s.completed, s.state) for slots in read(tmp_path / "spool").values() for s in slots
    ] == [(42, "running")]


def test_a_pickled_tracker_counts_the_share_of_the_process_that_gets_it(made: Trackers) -> None:
    tracker = made.new(10, "shared")
    tracker.advance(3, distributed=True)
    other = copy.copy(tracker)  # by the same way as through a pickle
    assert len(made.read()) == 1, "it has no share before it is used"
    other.advance(2)
    assert [(s.completed, s.words, s.distributed) for s in made.read()] == [
        (3, ("shared",), True), (2, ("shared",), True),
    ]  # fmt: skip


def test_a_tracker_that_comes_by_pickle_again_goes_on_with_its_share(made: Trackers) -> None:
    """A worker of a pool gets it with every call."""
    tracker = made.new(10, "shared")
    for _ in range(3):
        came = copy.copy(tracker)  # by the same way as through a pickle
        came.advance(2, distributed=True)
        del came
        gc.collect()
    assert [(s.completed, s.distributed) for s in made.read()] == [(0, False), (6, True)]


def test_of_the_trackers_that_came_by_pickle_a_few_are_kept(made: Trackers) -> None:
    for number in range(3 * REVIVED_MAX):
        copy.copy(made.new(10, f"shared {number}"))
    assert len(made.slots.revived) == REVIVED_MAX


# -- disks


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EBADF, errno.EMFILE, errno.EROFS]
)
def test_any_operation_may_fail_and_it_recovers(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F7, F9: nothing is raised, it is said once, and the last position is right once the disk is."""
    monkeypatch.setattr(backoff, "BACKOFF_FIRST_S", 0.0)
    monkeypatch.setattr(module, "LOOK_INTERVAL_NS", 0)
    for nth in range(200):
        files = FailingFiles(nth, number, times=2)
        trackers = Trackers(tmp_path / f"{nth}", files)
        tracker = trackers.new(100, "x")
        for _ in range(20):
            tracker.advance()
        for _ in range(3):
            tracker.update(20)
        assert 20 in [slot.completed for slot in trackers.read()], nth
        assert len(trackers.bench.warned) <= 2
        if not files.failed:
            break
    else:
        raise AssertionError("not every operation was reached")


def test_a_file_that_is_removed_is_written_anew(
    made: Trackers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F34."""
    monkeypatch.setattr(module, "LOOK_INTERVAL_NS", 0)
    first, second = made.new(10, "first"), made.new(10, "second")
    first.advance()
    next(made.bench.folder.glob("progress-*")).unlink()
    for _ in range(3):
        first.advance()
        second.advance()
    assert sorted((slot.words, slot.completed) for slot in made.read()) == [
        (("first",), 4),
        (("second",), 3),
    ]


def test_off_is_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spool", environ={"HEADWAY_DISABLED": "1"})
    with Progress(Slots(bench.run), 3, "x") as tracker:
        tracker.advance()
    assert [path.name for path in bench.folder.iterdir()] == ["task.json"]

"""A disk that is full, broken or gone: training goes on, everything is counted, and it recovers by
itself (P1, P5).
"""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.client import backoff, metric
from headway.testing.filesystems import FailingFiles
from tests import streams
from tests.client_bench import Bench
from tests.waiting import wait_until

CALLS = 60


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between two tries, and a look at the file at every call."""
    monkeypatch.setattr(backoff, "BACKOFF_FIRST_S", 0.0)
    monkeypatch.setattr(metric, "LOOK_INTERVAL_NS", 0)


def train(bench: Bench) -> None:
    """Known and new names, config, tags, a refused value and a note."""
    bench.run.init({"lr": 0.1}, ["tag"], None, None)
    for i in range(CALLS):
        bench.log({"x": float(i), "y": 1.0}, step=i)
        if i % 20 == 10:
            bench.log({f"new{i}": 1.0, "bad": "text"})
    bench.run.config["lr"] = 0.2


PRODUCED = 2 * CALLS + 2 * 3


def check(bench: Bench, files: FailingFiles, *, whole: bool) -> None:
    found = bench.counters(whole=whole)
    assert found["produced"] == PRODUCED and found["rejected"] == 3
    values = [p.value for p in streams.points(bench.folder, whole=whole) if p.name == "x"]
    assert values == sorted(set(values)), "in order, and none twice"
    bench.run.end(0)
    told = sum(gap["points"] for gap in streams.facts(bench.folder, "gap", whole=whole))
    assert told == found["dropped"], f"every dropped point is told in a gap (operation {files.nth})"
    assert len(bench.warned) == len(set(bench.warned)) <= 4
    if files.times == 1:  # a fact that could not be written waits for the next one
        kinds = [fact["type"] for fact in streams.facts(bench.folder, whole=whole)]
        assert (
            kinds[0] == "hello"
            and {"tags", "config", "note", "counters"} <= set(kinds)
            and kinds[-1] == "bye"
        )
        assert streams.facts(bench.folder, "config", whole=whole)[-1]["config"] == {"lr": 0.2}


@pytest.mark.parametrize("times", [1, 7], ids=["once", "seven times"])
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EBADF, errno.EMFILE]
)
def test_any_operation_may_fail_and_only_what_could_not_be_written_is_missing(
    tmp_path: Path, number: int, times: int
) -> None:
    """Ring 1 over everything that the client does with files; F7, F9, F11."""
    # such an fstat would mean that the file is lost
    only = frozenset({"write"}) if number == errno.EBADF else None
    for nth in range(0, 2000, 1 if times == 1 else 5):
        files = FailingFiles(nth, number, times=times, only=only)
        bench = Bench(tmp_path / f"{nth}", files)
        train(bench)
        check(bench, files, whole=True)
        shutil.rmtree(bench.folder)
        if not files.failed:
            return
    pytest.fail("there is no end of operations")


def test_a_write_that_is_cut_short_by_a_full_disk_costs_that_record_only(tmp_path: Path) -> None:
    """Ring 1, F7: a part of the frame is written, then nothing more fits for a while."""

    class Filling(FailingFiles):
        """The first write that is due is cut, the next ones fail."""

        def write(self, fd: int, data: Any) -> int:  # type: ignore[override]
            self.short = self.count == self.nth
            return super().write(fd, data)

    for nth in range(0, 300, 3):
        files = Filling(nth, errno.ENOSPC, times=6, only=frozenset({"write"}))
        bench = Bench(tmp_path / f"{nth}", files)
        train(bench)
        check(bench, files, whole=False)
        if not files.failed:
            return
    pytest.fail("there is no end of operations")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_stays_full_is_told_once_and_counted(tmp_path: Path, number: int) -> None:
    """F7, F9."""
    bench = Bench(
        tmp_path / "spool", FailingFiles(40, number, times=10**9, only=frozenset({"write", "open"}))
    )
    for i in range(5000):
        bench.log({"x": float(i)}, step=i)
    found = bench.counters()
    assert found["produced"] == 5000 and found["dropped"] > 4900
    assert len(bench.warned) == 1 and os.strerror(number) in bench.warned[0]
    bench.run.end(0)


def test_after_recovery_the_gap_is_told_with_its_counts_and_reason(tmp_path: Path) -> None:
    files = FailingFiles(10, errno.ENOSPC, times=25, only=frozenset({"write"}))
    bench = Bench(tmp_path / "spool", files)
    for i in range(50):
        bench.log({"x": float(i), "y": 0.0}, step=i)
    dropped = bench.counters()["dropped"]
    assert dropped > 0 and bench.values("x")[-1] == 49.0
    (gap,) = streams.facts(bench.folder, "gap")
    assert (gap["points"], gap["records"], gap["reason"]) == (
        dropped,
        dropped // 2,
        os.strerror(errno.ENOSPC),
    )
    assert gap["stream"] == streams.streams(bench.folder, "metrics")[0].name and gap["bytes"] > 0
    (note,) = streams.facts(bench.folder, "note")  # the warning too, once there was room
    assert os.strerror(errno.ENOSPC) in note["text"]


# the last one fails in the slow path, or in the fast one
@pytest.mark.parametrize("times", [20, 21])
def test_the_gap_is_told_with_the_first_record_that_fits_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Not only at the next look: the process may be killed before that."""
    monkeypatch.setattr(metric, "LOOK_INTERVAL_NS", 10**12)
    files = FailingFiles(5, errno.ENOSPC, times=times, only=frozenset({"write"}))
    bench = Bench(tmp_path / "spool", files)
    while files.failed < times:
        bench.log({"x": 1.0})
    bench.log({"x": 2.0})
    bench.log({"x": 3.0})
    assert bench.values("x")[-2:] == [2.0, 3.0]
    assert (
        sum(gap["points"] for gap in streams.facts(bench.folder, "gap"))
        == bench.counters()["dropped"]
        > 0
    )
    bench.run.end(0)


def test_a_disk_that_is_full_from_the_start_costs_nothing_that_comes_after(tmp_path: Path) -> None:
    files = FailingFiles(0, errno.ENOSPC, times=30)
    bench = Bench(tmp_path / "spool", files)
    bench.run.init({"lr": 0.1}, ["tag"], None, None)
    for i in range(100):
        bench.log({"x": float(i)}, step=i)
    assert bench.values("x")[-1] == 99.0
    kinds = [fact["type"] for fact in streams.facts(bench.folder)]
    assert kinds[0] == "hello" and {"tags", "config", "gap", "note"} <= set(kinds)
    assert bench.counters()["dropped"] == 100 - len(bench.values("x"))


# -- the folder


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "spool")
    yield bench
    bench.run.end(None)


def test_a_removed_folder_is_made_again_and_what_went_missing_is_told(bench: Bench) -> None:
    """F34."""
    bench.run.init({"lr": 0.1}, ["tag"], None, None)
    for i in range(10):
        bench.log({"x": float(i)}, step=i)
    shutil.rmtree(bench.folder)
    for i in range(10, 30):
        bench.log({"x": float(i)}, step=i)
    # the tenth went into the removed file
    assert bench.values("x") == [float(i) for i in range(11, 30)]
    assert bench.folder.stat().st_mode & 0o777 == 0o700
    found = bench.run.metrics.counters()
    assert found == {"produced": 30, "written": 29, "rejected": 0, "dropped": 1}
    bench.run.end(0)
    (gap,) = streams.facts(bench.folder, "gap")
    assert (gap["points"], gap["records"]) == (1, 1) and "removed" in gap["reason"]
    kinds = [fact["type"] for fact in streams.facts(bench.folder)]
    assert kinds[0] == "hello" and {"config", "tags", "counters", "bye"} <= set(kinds)
    assert len(bench.warned) == 1


def test_a_removed_metric_file_is_followed_by_the_next_segment(bench: Bench) -> None:
    """F34."""
    bench.log({"x": 0.0}, step=0)
    (stream,) = streams.streams(bench.folder, "metrics")
    (bench.folder / stream.name).unlink()
    for i in range(1, 5):
        bench.log({"x": float(i)}, step=i)
    assert bench.values("x") == [2.0, 3.0, 4.0]
    assert [s.segment for s in streams.streams(bench.folder, "metrics")] == [1]
    assert bench.run.metrics.counters()["dropped"] == 1


def test_a_folder_that_cannot_be_made_again_is_waited_for(bench: Bench) -> None:
    """F34."""
    bench.log({"x": 0.0}, step=0)
    shutil.rmtree(bench.folder)
    bench.folder.write_text("in the way")
    for i in range(1, 300):
        bench.log({"x": float(i)}, step=i)
    found = bench.run.metrics.counters()
    assert found == {"produced": 300, "written": 1, "rejected": 0, "dropped": 299}
    bench.folder.unlink()
    for i in range(300, 310):
        bench.log({"x": float(i)}, step=i)
    assert bench.values("x") == [float(i) for i in range(300, 310)]
    assert sum(gap["points"] for gap in streams.facts(bench.folder, "gap")) == 299
    assert len(bench.warned) <= 2


def test_a_program_that_closes_every_descriptor_goes_on_logging_and_its_own_files_stay_clean(
    bench: Bench,
) -> None:
    """As daemons do; the next file that the program opens gets our old number."""
    bench.log({"x": 0.0}, step=0)
    for segment in (bench.run.metrics.segment.fd, bench.run._facts.fd if bench.run._facts else -1):
        os.close(segment)
    for i in range(1, 10):
        bench.log({"x": float(i)}, step=i)
    bench.run.config["a"] = 1
    assert bench.values("x") == [float(i) for i in range(10)]
    assert bench.counters()["dropped"] == 0
    assert streams.facts(bench.folder, "config")[-1]["config"] == {"a": 1}


def test_a_descriptor_that_became_another_file_is_noticed_and_left_alone(
    bench: Bench, tmp_path: Path
) -> None:
    bench.log({"x": 0.0}, step=0)
    number = bench.run.metrics.segment.fd
    os.close(number)
    own = os.open(tmp_path / "checkpoint", os.O_CREAT | os.O_RDWR)
    assert own == number
    for i in range(1, 10):
        bench.log({"x": float(i)}, step=i)
    assert bench.values("x") == [0.0, *(float(i) for i in range(2, 10))]
    assert bench.counters()["dropped"] == 1 and os.fstat(own).st_size < 100
    bench.run.end(0)
    os.write(own, b"still the program's")
    os.close(own)


def test_a_fast_program_pays_little_while_the_disk_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tries to open are few: they wait longer and longer."""
    monkeypatch.setattr(backoff, "BACKOFF_FIRST_S", 0.1)
    files = FailingFiles(0, errno.ENOSPC, times=10**9, only=frozenset({"open"}))
    bench = Bench(tmp_path / "spool", files)
    for i in range(2000):
        bench.log({"x": float(i)})
    assert files.count < 20
    assert bench.run.metrics.counters()["dropped"] == 2000
    files.times = 0
    deadline = time.monotonic() + 30

    def recovered() -> bool:
        bench.log({"x": 1.0})
        return bool(streams.streams(bench.folder, "metrics"))

    wait_until(recovered, deadline - time.monotonic(), "a stream")
    bench.run.end(0)

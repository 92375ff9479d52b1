"""Appending frames: each operation failing in turn (ring 1), and power cuts at any time (ring 2)."""

import errno
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.record import FACT, METRICS, OPEN
from headway.spool.files import OS_FILES, replace_file, write_all
from headway.spool.writer import MetricSegment, NoSegment, Schema, StreamWriter
from headway.testing.filesystems import CrashFiles, FailingFiles
from headway.wire import frame
from tests import streams

FACTS = "facts-0-1-abcdef"
SEGMENT = "metrics-0-1-abcdef.0"
OPENING = {"kind": "metrics", "rank": 0, "pid": 1, "start": 2, "segment": 0}


def test_a_stream_starts_with_an_open_frame_that_says_whose_it_is(tmp_path: Path) -> None:
    StreamWriter(tmp_path, FACTS, {"kind": "facts", "rank": 3, "pid": 1, "start": 2}).close()
    ((kind, payload),) = streams.frames_of(tmp_path, FACTS)
    told = frame.decode_json(payload)
    assert kind == OPEN and told.pop("time_ns") > 10**18
    assert told == {"version": 1, "stream": FACTS, "kind": "facts", "rank": 3, "pid": 1, "start": 2}


def test_a_stream_is_created_and_never_taken_over(tmp_path: Path) -> None:
    StreamWriter(tmp_path, FACTS, {}).close()
    with pytest.raises(FileExistsError):
        StreamWriter(tmp_path, FACTS, {})
    (tmp_path / "elsewhere").touch()
    (tmp_path / SEGMENT).symlink_to("elsewhere")
    with pytest.raises(OSError, match="exists"):
        StreamWriter(tmp_path, SEGMENT, {})


def test_a_fact_is_appended_whole(tmp_path: Path) -> None:
    writer = StreamWriter(tmp_path, FACTS, {})
    writer.append_fact({"type": "note", "text": "é\n\ud83d"})
    writer.close()
    assert [k for k, _ in streams.frames_of(tmp_path, FACTS)] == [OPEN, FACT]
    assert streams.facts(tmp_path, "note")[0]["text"].startswith("é\n")


@given(
    st.integers(0, 2**32 - 1),
    st.integers(-(2**62), 2**62),
    st.integers(0, 2**63 - 1),
    st.lists(st.floats(), max_size=40),
)
def test_a_packed_record_is_the_frame_that_the_protocol_has(
    number: int, step: int, time_ns: int, values: list[float]
) -> None:
    schema = Schema(number, len(values))
    whole = frame.metrics_struct(len(values)).pack(
        *frame.metrics_head(len(values), number), step, time_ns, *values
    )
    data = schema.frame(step, time_ns, values)
    assert data == frame.encode(METRICS, whole[6:])
    assert len(data) == schema.size and frame.frame_at(data, 0) == schema.size


def test_a_schema_and_its_first_record_are_one_write(tmp_path: Path) -> None:
    files = FailingFiles(-1, only=frozenset({"write"}))
    segment = MetricSegment(tmp_path, SEGMENT, OPENING, files)
    segment.append_first(("a", "b"), 0, 1, [1.0, 2.0])
    assert files.count == 2  # the OPEN frame, and both together
    assert [p.value for p in streams.points(tmp_path)] == [1.0, 2.0]
    assert segment.written() == (1, 2) and segment.lost() == (0, 0)


def test_a_short_write_is_completed(tmp_path: Path) -> None:
    """F12."""
    files = FailingFiles(1, times=3, short=True, only=frozenset({"write"}))
    segment = MetricSegment(tmp_path, SEGMENT, OPENING, files)
    segment.append_first(("a",), 0, 1, [1.0])
    assert files.failed == 3 and [p.value for p in streams.points(tmp_path)] == [1.0]


def test_an_interrupted_write_is_tried_again(tmp_path: Path) -> None:
    """F12."""
    files = FailingFiles(1, errno.EINTR, times=2, only=frozenset({"write"}))
    writer = StreamWriter(tmp_path, FACTS, {}, files)
    writer.append_fact({"type": "note"})
    assert files.failed == 2 and len(streams.facts(tmp_path, "note")) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_stream_that_cannot_be_created_leaves_no_file_and_no_descriptor(
    tmp_path: Path, number: int
) -> None:
    """Ring 1."""
    before = len(os.listdir("/proc/self/fd"))
    for nth in range(20):
        files = FailingFiles(nth, number)
        try:
            StreamWriter(tmp_path, f"facts-0-{nth}-abcdef", {}, files).close()
        except OSError as error:
            assert error.errno == number
            assert os.listdir(tmp_path) == []
        else:
            for name in os.listdir(tmp_path):
                (tmp_path / name).unlink()
        assert len(os.listdir("/proc/self/fd")) == before
        if not files.failed:
            break
    else:
        pytest.fail("there is no end of operations")


def test_a_removed_file_and_a_foreign_descriptor_are_noticed(tmp_path: Path) -> None:
    """F34."""
    writer = StreamWriter(tmp_path, FACTS, {})
    assert writer.size() == (tmp_path / FACTS).stat().st_size
    (tmp_path / FACTS).rename(tmp_path / "elsewhere")
    assert writer.size() is not None  # moved, not lost
    other = StreamWriter(tmp_path, SEGMENT, {})
    (tmp_path / SEGMENT).unlink()
    assert other.size() is None and other.is_ours()
    other.close()
    os.close(writer.fd)
    assert writer.size() is None and not writer.is_ours()
    fd = os.open(tmp_path / "program's own", os.O_CREAT | os.O_RDWR)
    assert fd == writer.fd and writer.size() is None and not writer.is_ours()
    writer.close()
    os.write(fd, b"still open")  # it was not ours to close
    os.close(fd)


def test_a_place_without_a_segment_has_no_schema_and_no_points() -> None:
    nothing = NoSegment(4)
    assert (
        nothing.schemas == {}
        and nothing.written() == (0, 0)
        and nothing.number == 4
        and nothing.size() is None
    )
    nothing.close()


# -- power cuts


def test_what_was_synced_before_a_power_cut_is_there_after_it() -> None:
    """F5, P2: ring 2, seeded. Of the rest, whatever is left is either right or found to be damaged."""
    for seed in range(400):
        random, files = Random(seed), CrashFiles()
        files.mkdir("/spool")
        segment = MetricSegment("/spool", SEGMENT, OPENING, files)
        safe = _log_until_the_cut(segment, random)
        files.crash(random)
        names = files.listdir("/spool")
        if safe is None:
            continue  # nothing was promised, not even the name
        assert names == [SEGMENT], f"seed {seed}"
        values = [p.value for p in streams.points("/spool", whole=False, files=files)]
        assert values[: len(safe)] == safe, f"seed {seed}"
        assert sorted(set(values)) == values and set(values) <= set(map(float, range(100))), (
            f"seed {seed}"
        )


def _log_until_the_cut(segment: MetricSegment, random: Random) -> list[float] | None:
    """Values that were synced, with the folder; None when nothing was."""
    files, safe = segment.files, None
    length = random.randrange(1, 60)
    for i in range(length):
        if not segment.declared:
            segment.append_first(("x",), i, i, [float(i)])
        else:
            segment.append(segment.declared[("x",)].frame(i, i, [float(i)]))
        if random.random() < 0.1:
            segment.sync()
            folder = files.open("/spool", os.O_RDONLY)
            files.fsync(folder)
            safe = [float(n) for n in range(i + 1)]
    return safe


def test_a_replaced_file_is_the_old_or_the_new_one_after_a_power_cut() -> None:
    """F16: ring 2."""
    for seed in range(200):
        random, files = Random(seed), CrashFiles()
        files.mkdir("/spool")
        replace_file(files, "/spool/cursor.json", b"old")
        if seed % 2:
            fd = files.open("/spool/cursor.json.tmp", os.O_WRONLY | os.O_CREAT)
            write_all(files, fd, b"new")
            files.fsync(fd)
            files.rename("/spool/cursor.json.tmp", "/spool/cursor.json")
        else:
            replace_file(files, "/spool/cursor.json", b"new")
        files.crash(random)
        found = streams.data_of("/spool", "cursor.json", files)
        assert found in ((b"old", b"new") if seed % 2 else (b"new",)), f"seed {seed}"


def test_a_replacement_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    """Ring 1."""
    target = tmp_path / "cursor.json"
    for nth in range(20):
        target.write_bytes(b"old")
        files = FailingFiles(nth, errno.ENOSPC)
        try:
            replace_file(files, str(target), b"new")
        except OSError:
            assert target.read_bytes() in (b"old", b"new")
        if not files.failed:
            assert target.read_bytes() == b"new"
            return
    pytest.fail("there is no end of operations")


# -- the seam itself


def test_allocated_blocks_are_there_and_punched_ones_read_as_zeros(tmp_path: Path) -> None:
    fd = OS_FILES.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        OS_FILES.allocate(fd, 0, 1 << 20)
        assert (
            OS_FILES.fstat(fd).st_size == 1 << 20 and OS_FILES.fstat(fd).st_blocks * 512 >= 1 << 20
        )
        OS_FILES.pwrite(fd, b"x" * 65536, 0)
        if OS_FILES.punch(fd, 0, 65536):
            assert OS_FILES.pread(fd, 65536, 0) == bytes(65536)
            assert OS_FILES.fstat(fd).st_size == 1 << 20
            assert OS_FILES.fstat(fd).st_blocks * 512 < 1 << 20
    finally:
        OS_FILES.close(fd)


def test_punching_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(OSError, match=r"Bad file descriptor|Illegal seek"):
            OS_FILES.punch(read_end, 0, 10)
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_lost_power_fake_forgets_what_was_not_synced() -> None:
    files = CrashFiles()
    files.mkdir("/d")
    outcomes = set()
    for seed in range(60):
        fd = files.open("/d/f", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        files.write(fd, b"safe")
        files.fsync(fd)
        files.fsync(files.open("/d", os.O_RDONLY))
        files.write(fd, b" and more")
        files.crash(Random(seed))
        outcomes.add(streams.data_of("/d", "f", files)[:5])
        with pytest.raises(OSError, match="Bad file"):
            files.write(fd, b"x")
    assert b"safe" in outcomes and b"safe " in outcomes

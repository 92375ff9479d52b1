"""Reading streams: damage costs one frame, an end is an end, what is no stream of ours is refused
(F2, F13, F14).
"""

import os
from pathlib import Path

import pytest

from headway.model.errors import DamagedError, VersionError
from headway.model.limits import FRAME_BYTES_MAX
from headway.model.record import FACT, METRICS, OPEN
from headway.spool.reader import (
    WINDOW_BYTES_MIN,
    count_metrics,
    open_stream,
    read_frames,
    read_opening,
)
from headway.wire import frame

OPENING = frame.encode_json(OPEN, {"version": 1, "stream": "s", "pid": 7, "start": 9})
FRAMES = [
    OPENING,
    *(frame.encode_json(FACT, {"type": "a", "n": n}) for n in range(3)),
    frame.encode(METRICS, bytes(range(1, 37))),
]
DATA = b"".join(FRAMES)


def put(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return open_stream(path)


def facts(data: bytes, scan: frame.Scan) -> int:
    return len(frame.frames(data[: scan.end], scan.damaged))


def test_one_flipped_bit_at_any_place_costs_one_frame_and_is_told(tmp_path: Path) -> None:
    """F13, P11: also in the last frame, and also in its length, which then looks like an unfinished
    one.
    """
    for position in range(len(DATA)):
        for bit in range(8):
            broken = bytearray(DATA)
            broken[position] ^= 1 << bit
            fd = put(tmp_path / "s", bytes(broken))
            data, scan = read_frames(fd, 0, WINDOW_BYTES_MIN, final=True)
            os.close(fd)
            assert facts(data, scan) == len(FRAMES) - 1, (position, bit)
            assert len(scan.damaged) == 1 and scan.end == len(DATA), (position, bit)


@pytest.mark.parametrize("zeros", [1, 11, 12, 4096, WINDOW_BYTES_MIN])
@pytest.mark.parametrize("final", [False, True])
def test_a_zero_filled_tail_is_an_end_and_not_damage(
    tmp_path: Path, zeros: int, final: bool
) -> None:
    """F14."""
    fd = put(tmp_path / "s", DATA + bytes(zeros))
    _, scan = read_frames(fd, 0, WINDOW_BYTES_MIN, final)
    assert (scan.end, scan.damaged) == (len(DATA), [])
    _, rest = read_frames(fd, scan.end, WINDOW_BYTES_MIN, final)
    assert (rest.end, rest.damaged) == (0, [])
    os.close(fd)


@pytest.mark.parametrize("cut", range(1, len(FRAMES[-1])))
def test_an_unfinished_last_frame_waits_and_is_dropped_when_its_writer_is_dead(
    tmp_path: Path, cut: int
) -> None:
    """F2: the call that wrote it never returned, so nothing is lost and nothing is told."""
    fd = put(tmp_path / "s", DATA[:-cut])
    whole = len(DATA) - len(FRAMES[-1])
    for final in (False, True):
        _, scan = read_frames(fd, 0, WINDOW_BYTES_MIN, final)
        assert (scan.end, scan.damaged) == (whole, [])
    os.close(fd)


def test_bytes_that_appear_later_finish_the_frame(tmp_path: Path) -> None:
    fd = put(tmp_path / "s", DATA[:-3])
    assert read_frames(fd, 0, WINDOW_BYTES_MIN, False)[1].waiting
    with (tmp_path / "s").open("ab") as file:
        file.write(DATA[-3:])
    assert read_frames(fd, 0, WINDOW_BYTES_MIN, False)[1].end == len(DATA)
    os.close(fd)


def test_damage_longer_than_a_window_is_passed_over(tmp_path: Path) -> None:
    noise = (b"HW" + bytes(range(3, 250))) * (3 * WINDOW_BYTES_MIN // 249)
    fd = put(tmp_path / "s", noise + DATA)
    offset, found, lost = 0, 0, 0
    for _ in range(100):
        _, scan = read_frames(fd, offset, WINDOW_BYTES_MIN, True)
        found += scan.frames
        lost += sum(stop - start for start, stop in scan.damaged)
        offset += scan.end
        if not scan.end:
            break
    assert (found, lost, offset) == (len(FRAMES), len(noise), len(noise) + len(DATA))
    os.close(fd)


def test_zeros_in_the_middle_that_fill_a_window_are_damage(tmp_path: Path) -> None:
    """Blocks that a power cut took: what follows them is still read."""
    fd = put(tmp_path / "s", DATA + bytes(2 * WINDOW_BYTES_MIN) + DATA)
    offset, found = 0, 0
    for _ in range(10):
        _, scan = read_frames(fd, offset, WINDOW_BYTES_MIN, True)
        found, offset = found + scan.frames, offset + scan.end
        if not scan.end:
            break
    assert found == 2 * len(FRAMES)
    os.close(fd)


def test_the_longest_frame_fits_into_the_smallest_window(tmp_path: Path) -> None:
    fd = put(tmp_path / "s", frame.encode(FACT, bytes(FRAME_BYTES_MAX)) + DATA)
    _, scan = read_frames(fd, 0, WINDOW_BYTES_MIN, False)
    assert scan.frames == 1 and not scan.damaged
    os.close(fd)


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_declared_length_beyond_the_limit_is_damage(tmp_path: Path, length: int) -> None:
    """B30: nothing is allocated by it."""
    bad = frame.MAGIC + bytes(4) + b"\1\0" + length.to_bytes(4, "little")
    fd = put(tmp_path / "s", bad + DATA)
    data, scan = read_frames(fd, 0, WINDOW_BYTES_MIN, True)
    assert scan.damaged == [(0, len(bad))] and scan.frames == len(FRAMES)
    assert len(data) == len(bad) + len(DATA)
    os.close(fd)


def test_the_opening_tells_who_writes(tmp_path: Path) -> None:
    fd = put(tmp_path / "s", DATA)
    opening = read_opening(fd)
    os.close(fd)
    assert opening is not None and (opening["pid"], opening["start"]) == (7, 9)


@pytest.mark.parametrize("data", [b"", OPENING[:5], OPENING[:-1], bytes(64), FRAMES[1], b"x" * 100])
def test_a_stream_that_is_empty_or_without_opening_has_none(tmp_path: Path, data: bytes) -> None:
    """B30."""
    fd = put(tmp_path / "s", data)
    assert read_opening(fd) is None
    os.close(fd)


@pytest.mark.parametrize("version", [2, 10**6, "1", None])
def test_a_future_version_is_refused_by_its_name(tmp_path: Path, version: object) -> None:
    """B30, P12."""
    fd = put(tmp_path / "s", frame.encode_json(OPEN, {"version": version, "stream": "s"}))
    with pytest.raises(VersionError, match=f"version {version!r}"):
        read_opening(fd)
    os.close(fd)


def test_a_pipe_or_a_link_or_a_folder_is_refused_with_its_reason(tmp_path: Path) -> None:
    """B30."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedError, match="regular"):
        open_stream(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(DamagedError, match="symbolic link"):
        open_stream(tmp_path / "link")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DamagedError, match="regular"):
        open_stream(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        open_stream(tmp_path / "none")


def test_a_file_of_another_owner_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B30: a file that somebody else put there is not ours to send."""
    (tmp_path / "s").write_bytes(DATA)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path / "s").st_uid + 1)
    with pytest.raises(DamagedError, match="belongs to user"):
        open_stream(tmp_path / "s")


def test_records_and_points_of_checked_bytes_are_counted() -> None:
    two = frame.encode(METRICS, bytes(20 + 16))
    assert count_metrics(OPENING + two + two + FRAMES[1], []) == (2, 4)

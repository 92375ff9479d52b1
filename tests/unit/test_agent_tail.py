"""What lies in a task's folder: new streams, growth, the index, who writes no more, what an earlier
shipper freed.
"""

import os
import struct
from pathlib import Path

import pytest

from headway.agent.clock import Clock
from headway.agent.ship.batcher import Packer
from headway.agent.ship.events import Closed, Grown, Refused
from headway.agent.ship.mask import Mask
from headway.agent.ship.stream_state import Gap, Span
from headway.agent.ship.tail import SUCCESSOR_S, Tail
from headway.model.limits import FRAME_BYTES_MAX, SHAPE_WAIT_S
from headway.model.record import FACT, GAP, INDEX, METRICS, OPEN, RAW, RECORDS
from headway.spool.files import OS_FILES
from headway.wire import frame
from headway.wire.identity import process_start


def opening(name: str, pid: int | None = None, start: int | None = None) -> bytes:
    pid = os.getpid() if pid is None else pid
    return frame.encode_json(
        OPEN, {"version": 1, "stream": name, "pid": pid, "start": start or process_start(pid)}
    )


def grown(events: list[object]) -> dict[str, int]:
    return {e.stream: e.size for e in events if isinstance(e, Grown) and e.size}


def closed(events: list[object]) -> list[str]:
    return [e.stream for e in events if isinstance(e, Closed)]


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(str(tmp_path), Clock(), {})


def test_new_streams_and_their_growth_are_seen_and_nothing_else(tail: Tail, tmp_path: Path) -> None:
    (tmp_path / "stdout-0").write_bytes(b"abc")
    (tmp_path / "task.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("x")
    assert grown(tail.look(0.0)) == {"stdout-0": 3}
    assert grown(tail.look(1.5)) == {"stdout-0.index": 16}
    with (tmp_path / "stdout-0").open("ab") as file:
        file.write(b"de")
    events = tail.look(2.0)
    assert grown(events)["stdout-0"] == 5
    assert tail.look(2.1) == [] or grown(tail.look(2.1)) == {}
    tail.close()


def test_kinds_and_what_may_be_dropped_follow_from_the_name(tail: Tail, tmp_path: Path) -> None:
    for name in (
        "stdout-0",
        "stderr-0.index",
        "agent",
        "shim",
        "facts-0-1-abcdef",
        "metrics-0-1-abcdef.0",
    ):
        (tmp_path / name).touch()
    found = {e.stream: (e.kind, e.bulk, e.whole) for e in tail.look(0.0) if isinstance(e, Grown)}
    assert found == {
        "stdout-0": (RAW, True, False), "stderr-0.index": (INDEX, False, False), "agent": (RAW, False, False),
        "shim": (RECORDS, False, False), "facts-0-1-abcdef": (RECORDS, False, False),
        "metrics-0-1-abcdef.0": (RECORDS, True, True),
    }  # fmt: skip
    tail.close()


def test_the_index_has_an_entry_per_growth_at_least_50_ms_apart(tail: Tail, tmp_path: Path) -> None:
    path = tmp_path / "stdout-0"
    for now_s, text in [(0.0, b"aa"), (0.02, b"bb"), (0.06, b"cc"), (0.2, b"dd")]:
        with path.open("ab") as file:
            file.write(text)
        tail.look(now_s, names=True)
    entries = list(struct.iter_unpack("<QQ", (tmp_path / "stdout-0.index").read_bytes()))
    assert [offset for offset, _ in entries] == [0, 4, 6]
    assert [t for _, t in entries] == sorted(t for _, t in entries)
    tail.close()


def test_the_time_of_a_line_is_told_in_the_same_look_as_its_bytes(
    tail: Tail, tmp_path: Path
) -> None:
    path = tmp_path / "stdout-0"
    path.write_bytes(b"first\n")
    tail.look(0.0, names=True)
    tail.look(0.5, names=True)  # the folder is read before the first entry makes the index
    with path.open("ab") as file:
        file.write(b"second\n")
    assert set(grown(tail.look(1.0))) == {"stdout-0", "stdout-0.index"}
    tail.close()


def test_what_was_written_at_once_has_one_time(tail: Tail, tmp_path: Path) -> None:
    """So that what a program printed stands before the traceback that ended it (stdout goes first)."""
    names = ("stderr-0", "stdout-0", "stdout-1")
    for name in names:
        (tmp_path / name).write_bytes(b"a")
        os.utime(tmp_path / name, ns=(1_000, 1_000))
    tail.look(0.0)
    times = {struct.unpack("<QQ", (tmp_path / f"{name}.index").read_bytes())[1] for name in names}
    assert len(times) == 1
    tail.close()


def _append(path: Path, text: bytes, written_ns: int) -> None:
    with path.open("ab") as file:
        file.write(text)
    os.utime(path, ns=(written_ns, written_ns))


def _times(tmp_path: Path, name: str) -> dict[int, int]:
    return dict(struct.iter_unpack("<QQ", (tmp_path / f"{name}.index").read_bytes()))


def test_of_what_is_seen_at_once_the_stream_that_was_written_last_comes_last(
    tail: Tail, tmp_path: Path
) -> None:
    out, err = tmp_path / "stdout-0", tmp_path / "stderr-0"
    _append(out, b"printed\n", 2_000)
    _append(err, b"warned\n", 1_000)
    tail.look(1.0, names=True)
    assert _times(tmp_path, "stderr-0")[0] < _times(tmp_path, "stdout-0")[0]


def test_a_bar_that_goes_on_after_a_line_of_the_other_stream_stands_after_it(
    tail: Tail, tmp_path: Path
) -> None:
    """The entries of one stream are rare; those that the order needs are made all the same."""
    out, err = tmp_path / "stdout-0", tmp_path / "stderr-0"
    _append(err, b"epoch 0: 50%", 1_000)
    tail.look(1.0, names=True)
    _append(err, b"\repoch 0: 100%\n", 2_000)
    _append(out, b"epoch 0: loss 0.5\n", 3_000)
    _append(err, b"epoch 1: 0%", 4_000)
    tail.look(1.01, names=True)
    line_us = _times(tmp_path, "stdout-0")[0]
    assert _times(tmp_path, "stderr-0")[len(b"epoch 0: 50%")] > line_us


def test_an_index_that_was_torn_goes_on_at_a_whole_entry(tmp_path: Path) -> None:
    future_us = 2**52
    (tmp_path / "stdout-0.index").write_bytes(struct.pack("<QQ", 0, future_us) + b"torn")
    (tmp_path / "stdout-0").write_bytes(b"seen and new")
    tail = Tail(str(tmp_path), Clock(), {"stdout-0": 5})
    tail.look(0.0)
    entries = list(struct.iter_unpack("<QQ", (tmp_path / "stdout-0.index").read_bytes()))
    assert entries == [(0, future_us), (5, future_us)], "times never go back (F26)"
    tail.close()
    # its cursor was lost: what the index says already stays
    again = Tail(str(tmp_path), Clock(), {})
    again.look(0.0)
    assert len((tmp_path / "stdout-0.index").read_bytes()) == 32
    again.close()


def test_a_segment_is_closed_when_its_successor_is_two_seconds_old(
    tail: Tail, tmp_path: Path
) -> None:
    name = f"metrics-0-{os.getpid()}-abcdef"
    (tmp_path / f"{name}.0").write_bytes(opening(f"{name}.0"))
    assert closed(tail.look(0.0)) == []
    (tmp_path / f"{name}.1").write_bytes(opening(f"{name}.1"))
    assert closed(tail.look(1.0, names=True)) == []
    assert closed(tail.look(1.0 + SUCCESSOR_S + 1.1)) == [f"{name}.0"]
    assert closed(tail.look(20.0)) == []
    tail.close()


def test_streams_of_a_dead_process_are_closed_with_their_last_size(
    tail: Tail, tmp_path: Path
) -> None:
    """F29: dead is also who has the same pid and another start."""
    gone, other = "facts-0-99999999-abcdef", f"facts-0-{os.getpid()}-abcdef"
    (tmp_path / gone).write_bytes(opening(gone, 99_999_999, 1))
    (tmp_path / other).write_bytes(opening(other, start=(process_start(os.getpid()) or 0) + 1))
    alive = f"facts-1-{os.getpid()}-abcdef"
    (tmp_path / alive).write_bytes(opening(alive))
    events = tail.look(0.0)
    assert sorted(closed(events)) == sorted([gone, other])
    assert grown(events)[gone] == len(opening(gone, 99_999_999, 1))
    assert closed(tail.look(2.0)) == []
    tail.close()


def test_bytes_that_an_earlier_shipper_freed_are_known_as_gone(tmp_path: Path) -> None:
    path = tmp_path / "stdout-0"
    path.write_bytes(b"x" * 65536)
    fd = os.open(path, os.O_RDWR)
    punched = OS_FILES.punch(fd, 0, 16384)
    os.close(fd)
    if not punched:
        pytest.skip("this file system has no holes")
    tail = Tail(str(tmp_path), Clock(), {"stdout-0": 20000})
    tail.drops = {"stdout-0": [Gap(30000, 40000, "full")]}
    first = next(e for e in tail.look(0.0) if isinstance(e, Grown))
    assert (first.first, first.acked, first.gaps) == (16384, 20000, (Gap(30000, 40000, "full"),))
    tail.close()


def test_a_shim_stream_that_was_written_anew_is_read_on(tail: Tail, tmp_path: Path) -> None:
    """F6."""
    (tmp_path / "shim").write_bytes(b"old")
    tail.look(0.0)
    fd = tail.streams["shim"].fd
    (tmp_path / "new").write_bytes(b"new!")
    os.rename(tmp_path / "new", tmp_path / "shim")
    tail.look(1.5)
    assert tail.streams["shim"].fd != fd or os.pread(fd, 4, 0) == b"new!"
    assert os.pread(tail.streams["shim"].fd, 4, 0) == b"new!"
    tail.close()


def test_a_newer_version_that_shows_only_later_is_refused_then(tail: Tail, tmp_path: Path) -> None:
    path = tmp_path / "facts-0-1-abcdef"
    path.touch()
    tail.look(0.0)
    path.write_bytes(frame.encode_json(OPEN, {"version": 5, "stream": path.name}))
    assert [e.stream for e in tail.look(0.1) if isinstance(e, Refused)] == [path.name]
    tail.close()


# -- packing


def packer(tail: Tail, said: list[str] | None = None, values: tuple[bytes, ...] = ()) -> Packer:
    mask = Mask(values)
    return Packer(tail, lambda: mask, (said if said is not None else []).append)


def test_damage_becomes_a_gap_between_good_parts(tail: Tail, tmp_path: Path) -> None:
    """F13."""
    name, said = f"facts-0-{os.getpid()}-abcdef", []
    good = [frame.encode_json(FACT, {"type": "a", "n": n}) for n in range(2)]
    data = opening(name) + good[0] + b"garbage" + good[1]
    (tmp_path / name).write_bytes(data)
    tail.look(0.0)
    batch = packer(tail, said).pack(1, (Span(name, RECORDS, 0, len(data)),), 0.0)
    assert [(p.kind, p.offset, len(p.data)) for p in batch.parts if p.kind == RECORDS] == [
        (RECORDS, 0, len(data) - 7 - len(good[1])), (RECORDS, len(data) - len(good[1]), len(good[1])),
    ]  # fmt: skip
    assert [p.length for p in batch.pieces] == [len(data) - 7 - len(good[1]), 7, len(good[1])]
    assert len(said) == 1 and "damaged" in said[0]
    tail.close()


def test_a_frame_that_a_window_cuts_is_left_for_the_next_one_and_nothing_is_held(
    tail: Tail, tmp_path: Path
) -> None:
    """A backlog larger than one part must go on although its stream will never grow again."""
    name = f"metrics-0-{os.getpid()}-abcdef.0"
    whole = opening(name) + frame.encode(METRICS, b"x" * 36) * 3
    (tmp_path / name).write_bytes(whole)
    tail.look(0.0)
    batch = packer(tail).pack(1, (Span(name, RECORDS, 0, len(whole) - 50, final=True),), 0.0)
    assert (
        [p.length for p in batch.pieces] == [len(whole) - 96] and not batch.held and not batch.ends
    )
    tail.close()


def test_a_long_stretch_without_any_frame_is_told_as_damage(tail: Tail, tmp_path: Path) -> None:
    """F13, P11."""
    name = f"metrics-0-{os.getpid()}-abcdef.0"
    (tmp_path / name).write_bytes(
        opening(name) + bytes(3 * FRAME_BYTES_MAX) + frame.encode(METRICS, b"x" * 36)
    )
    tail.look(0.0)
    window = Span(name, RECORDS, len(opening(name)), 2 * FRAME_BYTES_MAX, final=True)
    batch = packer(tail).pack(1, (window,), 0.0)
    assert [p.kind for p in batch.parts] == [GAP] and not batch.held
    assert batch.pieces[0].length >= FRAME_BYTES_MAX - frame.HEADER_BYTES
    tail.close()


def test_the_end_of_the_task_is_left_out_when_something_before_it_came_out_short(
    tail: Tail, tmp_path: Path
) -> None:
    name = f"metrics-0-{os.getpid()}-abcdef.0"
    whole = opening(name) + frame.encode(METRICS, b"x" * 36)
    (tmp_path / name).write_bytes(whole[:-3])
    (tmp_path / "shim").write_bytes(opening("shim"))
    tail.look(0.0)
    spans = (
        Span(name, RECORDS, 0, len(whole) - 3),
        Span("shim", RECORDS, 0, len(opening("shim")), last=True),
    )
    batch = packer(tail).pack(1, spans, 0.0)
    assert [p.stream for p in batch.parts] == [name] and batch.held[0].stream == name
    tail.close()


def test_a_tail_that_may_be_a_shape_leaves_after_its_time_and_a_value_never_does(
    tail: Tail, tmp_path: Path
) -> None:
    path = tmp_path / "stdout-0"
    path.write_bytes(b"see ghp_abc")
    tail.look(0.0)
    pack = packer(tail, values=(b"secret-value-1",))
    batch = pack.pack(1, (Span("stdout-0", RAW, 0, 11),), 0.0)
    assert bytes(batch.parts[0].data) == b"see " and batch.held[0].until_s == SHAPE_WAIT_S
    batch = pack.pack(2, (Span("stdout-0", RAW, 4, 7),), SHAPE_WAIT_S)
    assert bytes(batch.parts[0].data) == b"ghp_abc"
    with path.open("ab") as file:
        file.write(b" secret-va")
    tail.look(3.0)
    batch = pack.pack(3, (Span("stdout-0", RAW, 11, 10),), 3.0)
    assert bytes(batch.parts[0].data) == b" "
    batch = pack.pack(4, (Span("stdout-0", RAW, 12, 9),), 99.0)
    assert batch.parts == [] and batch.held[0].until_s is None
    batch = pack.pack(5, (Span("stdout-0", RAW, 12, 9, final=True),), 99.0)
    assert bytes(batch.parts[0].data) == b"secret-va"
    tail.close()


def test_buffers_are_used_again_and_given_back_at_rest(tail: Tail, tmp_path: Path) -> None:
    (tmp_path / "stdout-0").write_bytes(b"x\n" * 500_000)
    tail.look(0.0)
    pack = packer(tail)
    first = pack.pack(1, (Span("stdout-0", RAW, 0, 1_000_000),), 0.0)
    pack.release(first)
    second = pack.pack(2, (Span("stdout-0", RAW, 0, 1_000_000),), 0.0)
    assert second.buffer is first.buffer
    pack.release(second)
    assert pack.shrink() and not pack.shrink()
    tail.close()

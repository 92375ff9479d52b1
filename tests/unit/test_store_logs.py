"""Output: every byte at its offset, plain files, gaps that are shown, lines by time (P5, P7; B8,
B15; F37).
"""

import os
import sqlite3
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import DamagedError, UsageError
from headway.model.limits import LINE_BYTES_MAX, LOG_DIRECT_BYTES
from headway.store import grep, log_files, log_lines
from headway.store.log_files import LogFiles, LogKey
from headway.wire.batch import Part
from tests.storing import NOW_NS, Bench, bench, gap

NOW_US = NOW_NS // 1000


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def path(b: Bench, stream: str = "stdout-0") -> Path:
    return b.paths.logs / b.key.uuid / "1" / "worker-0" / stream


def output(b: Bench, stream: str = "stdout", rank: int | None = 0) -> log_lines.Output:
    (found,) = b.read(log_lines.outputs, b.job.pk, stream=stream, rank=rank)
    return found


def stored(b: Bench, offset: int = 0, length: int = 1 << 26) -> bytes:
    return b.read(log_files.read, b.paths, output(b).pk, offset, length)


def chunks(b: Bench) -> int:
    return b.read(lambda c: int(c.execute("SELECT count(*) FROM chunks").fetchone()[0]))


def index(*entries: tuple[int, int]) -> bytes:
    """Entries (offset, milliseconds after the start)."""
    return b"".join(struct.pack("<QQ", offset, NOW_US + 1000 * ms) for offset, ms in entries)


# -- bytes


def test_small_pieces_wait_in_the_database_and_end_in_a_private_file(b: Bench) -> None:
    for word in (b"one\n", b"two \xff\0\n", b"three"):
        b.send("stdout-0", "raw", word)
    assert (chunks(b), path(b).exists()) == (3, False)
    assert stored(b) == b"one\ntwo \xff\0\nthree"
    assert stored(b, 2, 7) == b"e\ntwo \xff"
    b.store.tidy()
    assert (chunks(b), path(b).read_bytes()) == (0, b"one\ntwo \xff\0\nthree")
    assert stat.S_IMODE(path(b).stat().st_mode) == 0o600
    assert {stat.S_IMODE(p.stat().st_mode) for p in (path(b).parent, b.paths.logs)} == {0o700}
    b.send("stdout-0", "raw", b" and more")
    assert stored(b, 9) == b"\0\nthree and more"


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """B33"""
    before = os.umask(0)
    try:
        b = bench(tmp_path / "home")
        b.send("stdout-0", "raw", b"x")
        b.store.tidy()
        b.store.close()
    finally:
        os.umask(before)
    for found in (tmp_path / "home").rglob("*"):
        assert found.stat().st_mode & 0o077 == 0, found


def test_a_large_piece_goes_straight_to_its_file(b: Bench) -> None:
    b.send("stdout-0", "raw", b"small")
    large = os.urandom(LOG_DIRECT_BYTES)
    b.send("stdout-0", "raw", large)
    assert (chunks(b), path(b).read_bytes()) == (0, b"small" + large)


def test_once_the_task_has_ended_its_files_are_complete(b: Bench) -> None:
    b.send("stdout-0", "raw", b"before\n")
    b.tell({"type": "task_ended", "exit_code": 0})
    assert path(b).read_bytes() == b"before\n"
    b.send("stdout-0", "raw", b"after\n")
    assert path(b).read_bytes() == b"before\nafter\n"


def test_a_replay_after_a_lost_commit_writes_the_same_bytes(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: the file was written, the commit failed, everything is sent again."""
    data = os.urandom(LOG_DIRECT_BYTES)
    b.send("stdout-0", "raw", b"head")
    monkeypatch.setattr(os, "fdatasync", _fail)
    with pytest.raises(Exception, match="could not finish"):
        b.ingest(Part("stdout-0", "raw", 4, data))
    monkeypatch.undo()
    assert stored(b) == b"head", "nothing that was not acknowledged is shown"
    b.send("stdout-0", "raw", data)
    assert path(b).read_bytes() == b"head" + data


def _fail(fd: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_gap_is_a_hole_in_the_file_and_a_line_in_a_view(b: Bench) -> None:
    """P5"""
    b.send("stdout-0", "raw", b"first\nsec")
    b.ingest(gap("stdout-0", 9, 1234, "spool full"))
    b.sent[f"{b.key} stdout-0"] = 9 + 1234
    b.send("stdout-0", "raw", b"d\nlast\n")
    b.store.tidy()
    assert path(b).read_bytes() == b"first\nsec" + bytes(1234) + b"d\nlast\n"
    assert stored(b) == b"first\nsec\n[headway: 1,234 bytes missing: spool full]\nd\nlast\n"
    found = b.read(log_lines.read_lines, b.paths, output(b), 0, 1 << 20, final=True)
    assert [(line.text, line.offset) for line in found.lines] == [
        ("first", 0), ("sec", 6), ("[headway: 1,234 bytes missing: spool full]", 9), ("d", 1243), ("last", 1245),
    ]  # fmt: skip


def test_a_stream_may_begin_with_a_gap(b: Bench) -> None:
    b.ingest(gap("stdout-0", 0, 10), Part("stdout-0", "raw", 10, b"x\n"))
    assert stored(b) == b"\n[headway: 10 bytes missing: spool full]\nx\n"


def test_head_and_tail_of_an_overlong_stream_are_kept(tmp_path: Path) -> None:
    """P7, capability 17"""
    limit = 1 << 20
    b = bench(tmp_path / "home", log_bytes_max=limit)
    try:
        text = b"".join(b"%07d\n" % i for i in range(5 * limit // 8))
        for start in range(0, len(text), 100_000):
            b.send("stdout-0", "raw", text[start : start + 100_000])
        b.store.tidy()
        assert path(b).stat().st_blocks * 512 <= limit * 1.2
        pieces = b.read(lambda c: list(log_files.pieces(c, b.paths, output(b).pk, 0, len(text))))
        head, hole, tail = pieces
        assert hole.missing == "log_bytes_max"
        assert (head.data, tail.data) == (text[: limit // 2], text[tail.offset :])
        assert len(tail.data) >= limit // 2
        assert head.length + hole.length + tail.length == len(text)
    finally:
        b.store.close()


def test_a_stored_file_that_went_missing_is_told(b: Bench) -> None:
    b.send("stdout-0", "raw", b"text")
    b.store.tidy()
    path(b).unlink()
    with pytest.raises(DamagedError):
        stored(b)


def test_a_symlink_in_the_place_of_a_file_is_not_followed(b: Bench, tmp_path: Path) -> None:
    b.send("stdout-0", "raw", b"text")
    path(b).parent.mkdir(parents=True)
    path(b).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="could not finish"):
        b.send("stdout-0", "raw", bytes(LOG_DIRECT_BYTES))
    assert not (tmp_path / "elsewhere").exists()


# -- lines


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = bench(tmp_path_factory.mktemp("lines") / "home")
    yield made
    made.store.close()


@given(st.lists(st.text("ab\r", max_size=5), max_size=30), st.booleans(), st.integers(0, 35))
def test_the_last_lines_start_where_they_should(
    shared: Bench, words: list[str], ends: bool, n: int
) -> None:
    text = "\n".join(words).encode() + (b"\n" if ends else b"")
    if not text:
        return
    rank = len(shared.sent)
    shared.send(f"stdout-{rank}", "raw", text)
    found = output(shared, rank=rank)
    whole = [line + b"\n" for line in text.removesuffix(b"\n").split(b"\n")]
    last = sum(map(len, whole[-n:])) - (0 if text.endswith(b"\n") else 1) if n else 0
    assert shared.read(log_lines.tail_offset, shared.paths, found, n) == len(text) - last


def test_a_line_that_is_not_finished_waits_unless_nobody_will_finish_it(b: Bench) -> None:
    b.send("stdout-0", "raw", b"one\ntwo")
    early = b.read(log_lines.read_lines, b.paths, output(b), 0, 1 << 20, final=False)
    assert ([line.text for line in early.lines], early.cursor) == (["one"], {output(b).pk: 4})
    late = b.read(log_lines.read_lines, b.paths, output(b), 4, 1 << 20, final=True)
    assert [line.text for line in late.lines] == ["two"]


@pytest.mark.parametrize("limit", [1, LINE_BYTES_MAX, 1 << 30])
@pytest.mark.parametrize("final", [True, False])
def test_of_an_overlong_line_the_beginning_is_shown_once_with_a_mark(
    b: Bench, limit: int, final: bool
) -> None:
    """F37: however little is read at a time, and while it is still being written."""
    parts = [b"one\n" + b"x" * (3 * LINE_BYTES_MAX + 5), b"y" * LINE_BYTES_MAX, b"end\ntwo\n"]
    texts: list[str] = []
    at, sent = 0, 0
    for part in parts:
        b.send("stdout-0", "raw", part)
        sent += len(part)
        for _ in range(100):
            found = b.read(log_lines.read_lines, b.paths, output(b), at, limit, final=final)
            texts += [line.text for line in found.lines]
            if found.cursor[output(b).pk] == at:
                break
            at = found.cursor[output(b).pk]
    assert texts == ["one", "x" * LINE_BYTES_MAX + log_lines.CUT, "two"]
    assert at == sent


@pytest.mark.parametrize("more", [0, 1])
def test_a_line_of_just_the_limit_is_whole(b: Bench, more: int) -> None:
    b.send("stdout-0", "raw", b"x" * (LINE_BYTES_MAX + more) + b"\nnext\n")
    found = b.read(log_lines.read_lines, b.paths, output(b), 0, 1 << 30, final=True)
    assert [line.text for line in found.lines] == [
        "x" * LINE_BYTES_MAX + (log_lines.CUT if more else ""),
        "next",
    ]


def test_a_search_shows_an_overlong_line_once(b: Bench) -> None:
    b.send("stdout-0", "raw", b"needle" + b" needle" * LINE_BYTES_MAX + b"\nneedle two\n")
    first = _search(b, "needle", 1)
    rest = _search(b, "needle", begun=first.cursor)
    assert first.lines[0].text.endswith(log_lines.CUT) and [line.text for line in rest.lines] == [
        "needle two"
    ]


def test_a_bar_that_was_redrawn_very_often_is_cut_between_two_drawings(b: Bench) -> None:
    count = 3 * LINE_BYTES_MAX // 12
    drawn = b"".join(b"\r%06d/done" % n for n in range(count))
    b.send("stdout-0", "raw", drawn[:-4])
    part = b.read(log_lines.read_lines, b.paths, output(b), 0, 2**30, final=False)
    assert len(part.lines) > 1 and all(line.text.endswith("/done") for line in part.lines)
    b.send("stdout-0", "raw", drawn[-4:] + b"\n")
    rest = b.read(
        log_lines.read_lines, b.paths, output(b), part.cursor[output(b).pk], 2**30, final=False
    )
    assert [line.text.rpartition("\r")[2] for line in rest.lines] == [f"{count - 1:06d}/done"]
    whole = b.read(log_lines.read_lines, b.paths, output(b), 0, 2**30, final=True).lines
    assert all(line.text.endswith("/done") and len(line.text) <= LINE_BYTES_MAX for line in whole)
    assert whole[-1].end == len(drawn) + 1


def test_a_progress_bar_is_one_line_and_bad_bytes_are_replaced(b: Bench) -> None:
    """B8, B15"""
    b.send("stdout-0", "raw", b"1%\r2%\r3%\r\nbad \xff\xfe\x85 byte\n")
    found = b.read(log_lines.read_lines, b.paths, output(b), 0, 1 << 20, final=True)
    assert [line.text for line in found.lines] == ["1%\r2%\r3%", "bad \ufffd\ufffd\ufffd byte"]


def _three_ranks(b: Bench) -> None:
    b.send("stdout-0", "raw", b"a0\na1\na2\n")
    b.send("stdout-0.index", "index", index((0, 0), (3, 20), (6, 40)))
    b.send("stdout-1", "raw", b"b0\nb1\n")
    b.send("stdout-1.index", "index", index((0, 10), (3, 30)))
    b.send("stderr-1", "raw", b"e0\n")
    b.send("stderr-1.index", "index", index((0, 25)))
    b.send("agent", "raw", b"not shown unless asked for\n")


@pytest.mark.cap(16)
@pytest.mark.parametrize("spilled", [False, True])
def test_ranks_are_merged_by_time(b: Bench, spilled: bool) -> None:
    _three_ranks(b)
    if spilled:
        b.store.tidy()
    chosen = b.read(log_lines.outputs, b.job.pk)
    merged = b.read(log_lines.read_merged, b.paths, chosen, {}, 1 << 20, final=True)
    assert [line.text for line in merged.lines] == ["a0", "b0", "a1", "e0", "b1", "a2"]
    assert merged.lines[3].time_us == NOW_US + 25_000
    assert (merged.lines[3].output.stream, merged.lines[3].output.rank) == ("stderr", 1)
    again = b.read(log_lines.read_merged, b.paths, chosen, merged.cursor, 1 << 20, final=True)
    assert (again.lines, again.more) == ([], False)
    tail = b.read(log_lines.tail_merged, b.paths, chosen, 3, final=True)
    assert [line.text for line in tail.lines] == ["e0", "b1", "a2"]
    assert tail.cursor == merged.cursor


def test_merging_in_small_bites_gives_the_same_order(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "LINE_BYTES_MAX", 64)
    entries: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    text = {0: b"", 1: b""}
    for i in range(200):
        rank = (i * i) % 3 % 2
        entries[rank].append((len(text[rank]), i))
        text[rank] += b"line %d\n" % i
    for rank in (0, 1):
        b.send(f"stdout-{rank}", "raw", text[rank])
        b.send(f"stdout-{rank}.index", "index", index(*entries[rank]))
    assert _all_merged(b, 128) == [f"line {i}" for i in range(200)]


def _all_merged(b: Bench, limit: int) -> list[str]:
    chosen, cursor, got, more = (
        b.read(log_lines.outputs, b.job.pk),
        dict[int, int](),
        list[str](),
        True,
    )
    while more:
        found = b.read(log_lines.read_merged, b.paths, chosen, cursor, limit, final=True)
        assert found.lines
        got += [line.text for line in found.lines]
        cursor, more = found.cursor, found.more
    return got


def test_lines_that_are_told_later_are_not_made_now(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that write much, one after the other: what is read of the later ones would be thrown
    away each time.
    """
    monkeypatch.setattr(log_lines, "LINE_BYTES_MAX", 64)
    for rank in range(8):
        text = [b"rank %d line %04d\n" % (rank, i) for i in range(1000)]
        b.send(f"stdout-{rank}", "raw", b"".join(text))
        b.send(
            f"stdout-{rank}.index",
            "index",
            index(*((i * len(text[0]), 1000 * rank + i) for i in range(1000))),
        )
    made, split = [], log_lines._split
    monkeypatch.setattr(
        log_lines, "_split", lambda *given: made.append(found := split(*given)) or found
    )
    assert _all_merged(b, 4096) == [
        f"rank {rank} line {i:04}" for rank in range(8) for i in range(1000)
    ]
    assert sum(map(len, made)) < 3 * 8000


def test_no_line_is_left_out_where_a_clock_was_set_back(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "LINE_BYTES_MAX", 64)
    for rank in (0, 1):
        text = [b"rank %d line %03d\n" % (rank, i) for i in range(300)]
        b.send(f"stdout-{rank}", "raw", b"".join(text))
        times = ((i * len(text[0]), 500 + i if i % 100 < 50 or rank else i) for i in range(300))
        b.send(f"stdout-{rank}.index", "index", index(*times))
    got = _all_merged(b, 256)
    for rank in (0, 1):
        own = [line for line in got if line.startswith(f"rank {rank}")]
        assert own == [f"rank {rank} line {i:03}" for i in range(300)]


def test_streams_are_chosen_by_attempt_task_rank_and_name(b: Bench) -> None:
    _three_ranks(b)

    def names(**options: object) -> list[str]:
        return [f"{o.stream}-{o.rank}" for o in b.read(log_lines.outputs, b.job.pk, **options)]

    assert names() == ["stdout-0", "stdout-1", "stderr-1"]
    assert names(rank=1) == ["stdout-1", "stderr-1"]
    assert names(stream="stdout") == ["stdout-0", "stdout-1"]
    assert names(stream="agent") == ["agent-None"]
    assert names(attempt=2) == names(task="worker-9") == names(rank=9) == []


# -- searching


def _search(b: Bench, pattern: str, n: int = 100, **options: Any) -> grep.Found:
    return b.read(
        lambda c: grep.search(c, b.paths, log_lines.outputs(c, b.job.pk), pattern, n, **options)
    )


def test_a_search_finds_whole_lines_by_time(b: Bench) -> None:
    _three_ranks(b)
    found = _search(b, "[ab]1|e")
    assert ([line.text for line in found.lines], found.more) == (["a1", "e0", "b1"], False)
    assert _search(b, "nothing").lines == []
    assert [line.text for line in _search(b, r"^.2$").lines] == ["a2"]
    assert [line.text for line in _search(b, r"\Ab0\Z").lines] == ["b0"]
    assert [line.text for line in _search(b, "a", 2).lines] == ["a0", "a1"]
    assert _search(b, "a", 2).more


def test_a_search_crosses_pieces_and_gaps(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "PIECE_BYTES", 1000)
    b.send("stdout-0", "raw", b"".join(b"some line %d \xc3\xa9\n" % i for i in range(500)))
    b.ingest(gap("stdout-0", b.sent[f"{b.key} stdout-0"], 5000))
    b.sent[f"{b.key} stdout-0"] += 5000
    b.send("stdout-0", "raw", b"needle 500\n" + b"x" * 5000 + b" needle\nneedle \xe9")
    assert [line.text for line in _search(b, r"line \d*77 \u00e9").lines] == [
        f"some line {i} é" for i in (77, 177, 277, 377, 477)
    ]
    assert [line.text[:10] for line in _search(b, "^needle").lines] == [
        "needle 500",
        "needle \ufffd",
    ]


def _last(b: Bench, pattern: str, n: int) -> list[str]:
    found = b.read(
        lambda c: grep.search_last(c, b.paths, log_lines.outputs(c, b.job.pk), pattern, n)
    )
    assert not found.timed_out
    return [line.text for line in found.lines]


def test_the_last_lines_that_match_are_found_from_the_end(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if all were searched and the last of them kept: across pieces, gaps and streams."""
    monkeypatch.setattr(grep, "PIECE_BYTES", 1000)
    b.send("stdout-0", "raw", b"".join(b"some line %d\n" % i for i in range(500)))
    b.ingest(gap("stdout-0", b.sent[f"{b.key} stdout-0"], 5000))
    b.sent[f"{b.key} stdout-0"] += 5000
    b.send("stdout-0", "raw", b"".join(b"other line %d\n" % i for i in range(100)) + b"last line")
    assert _last(b, "line", 3) == ["other line 98", "other line 99", "last line"]
    assert _last(b, "^some", 2) == ["some line 498", "some line 499"]
    assert _last(b, r"some line \d*77$", 100) == [
        f"some line {i}" for i in (77, 177, 277, 377, 477)
    ]
    assert len(_last(b, "line", 1000)) == 601
    assert _last(b, "line", 0) == _last(b, "nothing", 5) == []


def test_the_last_lines_that_match_are_the_last_of_all_streams_by_time(b: Bench) -> None:
    _three_ranks(b)
    every = [line.text for line in _search(b, "[abe]").lines]
    for count in range(1, len(every) + 2):
        assert _last(b, "[abe]", count) == every[-count:]


def test_a_search_goes_on_where_it_was_cut_short(b: Bench) -> None:
    _three_ranks(b)
    found, begun = [], {}
    for _ in range(10):
        page = _search(b, "[abe]", 2, begun=begun)
        found += [line.text for line in page.lines]
        begun = page.cursor
    assert sorted(found) == sorted(line.text for line in _search(b, "[abe]").lines)


def test_a_search_looks_again_at_a_line_that_has_grown(b: Bench) -> None:
    b.send("stdout-0", "raw", b"needle 1\nneed")
    first = _search(b, "needle")
    b.send("stdout-0", "raw", b"le 2\nneedle 3")
    second = _search(b, "needle", begun=first.cursor)
    b.send("stdout-0", "raw", b" and more\n")
    third = _search(b, "needle", begun=second.cursor)
    assert [[line.text for line in page.lines] for page in (first, second, third)] == [
        ["needle 1"],
        ["needle 2", "needle 3"],
        [],
    ]


def test_a_pattern_that_takes_forever_is_stopped(b: Bench) -> None:
    b.send("stdout-0", "raw", b"a" * 64 + b"!\n")
    found = _search(b, "(a+)+$", timeout_s=0.3)
    assert (found.lines, found.timed_out, found.more) == ([], True, True)


@pytest.mark.parametrize("pattern", ["(", "x" * 2000, "*"])
def test_a_pattern_that_is_none_is_refused(b: Bench, pattern: str) -> None:
    with pytest.raises(UsageError):
        _search(b, pattern)


def test_after_a_rollback_output_goes_to_its_own_file(tmp_path: Path) -> None:
    """A row's number is given again after a rollback; the file that is open for it must not be
    (F8).
    """
    files = LogFiles(tmp_path / "logs")
    c = open_writer_with_streams(tmp_path)
    try:
        files.append(
            c, LogKey(7, "u", 1, "worker-0", "stdout-0"), 0, memoryview(b"lost"), direct=True
        )
        files.after_rollback()
        files.append(
            c, LogKey(7, "u", 1, "worker-0", "stderr-0"), 0, memoryview(b"kept"), direct=True
        )
        files.sync()
        assert (tmp_path / "logs/u/1/worker-0/stderr-0").read_bytes() == b"kept"
    finally:
        files.close()
        c.close()


def test_one_transaction_may_write_more_files_than_are_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_OPEN_FILES_MAX", 4)
    files = LogFiles(tmp_path / "logs")
    c = open_writer_with_streams(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    try:
        for turn in range(2):
            for rank in range(20):
                key = LogKey(rank, "u", 1, "worker-0", f"stdout-{rank}")
                files.append(c, key, turn * 2, memoryview(b"%02d" % rank), direct=True)
            assert len(os.listdir("/proc/self/fd")) <= before + 4
            files.sync()
        for rank in range(20):
            assert (
                tmp_path / f"logs/u/1/worker-0/stdout-{rank}"
            ).read_bytes() == b"%02d" % rank * 2
    finally:
        files.close()
        c.close()


def open_writer_with_streams(folder: Path) -> sqlite3.Connection:
    c = sqlite3.connect(folder / "only.db", isolation_level=None)
    c.row_factory = sqlite3.Row
    c.execute("CREATE TABLE streams (pk INTEGER PRIMARY KEY, spilled INTEGER)")
    c.execute("CREATE TABLE chunks (stream INTEGER, offset INTEGER, data BLOB)")
    return c

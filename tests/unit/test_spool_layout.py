"""Stream names and task.json: what is written is what is read back, and nothing foreign is taken
for ours.
"""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import DamagedError, VersionError
from headway.model.record import INDEX, RAW, RECORDS
from headway.spool import layout
from headway.spool import stream_names as names
from headway.spool.layout import Stream, TaskFile, list_streams, parse_stream

RAND = st.text("0123456789abcdef", min_size=6, max_size=6)
NUMBER = st.integers(0, 10**9)


@given(NUMBER, NUMBER, RAND, NUMBER)
def test_every_name_that_we_make_is_parsed_back(
    rank: int, pid: int, rand: str, segment: int
) -> None:
    facts, metrics = (
        layout.facts_name(rank, pid, rand),
        layout.metrics_name(rank, pid, rand, segment),
    )
    assert parse_stream(facts) == Stream(facts, "facts", RECORDS, rank, pid, rand)
    assert parse_stream(metrics) == Stream(metrics, "metrics", RECORDS, rank, pid, rand, segment)
    shipper = layout.shipper_name(pid, rand)
    assert parse_stream(shipper) == Stream(shipper, "shipper", RECORDS, pid=pid, rand=rand)
    logs, tracks = names.logs_name(rank, pid, rand, segment), names.tracks_name(pid, rand, segment)
    assert parse_stream(logs) == Stream(logs, "logs", RECORDS, rank, pid, rand, segment)
    assert parse_stream(tracks) == Stream(
        tracks, "tracks", RECORDS, pid=pid, rand=rand, segment=segment
    )
    slots = names.progress_name(rank, pid, rand)
    assert parse_stream(slots) is None and layout.parse_slots(slots) == (rank, pid)
    output = layout.output_name("stderr", rank)
    assert parse_stream(output) == Stream(output, "stderr", RAW, rank=rank)
    index = layout.index_name(output)
    assert parse_stream(index) == Stream(index, "stderr", INDEX, rank=rank)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "task.json", "env.json", "shim.json", "shim.lock", "shipper.lock", "cursor.json", "task.json.12.tmp",
        "stdout", "stdout-", "stdout-x", "stdout-01", "stdout--1", "stdout-0.", "stdout-0.indexes", "stdout-0.index.1",
        "stdout-0-1", "facts-0-1", "facts-0-1-abcdef.0", "facts-0-1-abcde", "facts-0-1-ABCDEF", "facts-0-1-abcdeg",
        "metrics-0-1-abcdef", "metrics-0-1-abcdef.", "metrics-0-1-abcdef.x", "metrics-0-1-abcdef.0.1", "shipper-1",
        "shipper-1-abcdef.0", "logs-0-1-abcdef", "tracks-1-abcdef", "usage-1-abcdef.0", "progress-0-1-abcdef", "shim-1",
         "agent.1", "metrics-0-²-abcdef.0", "stdout-" + "1" * 13, "metrics-" + "1" * 99,
    ],
)  # fmt: skip
def test_a_name_that_is_no_stream_is_none(text: str) -> None:
    assert parse_stream(text) is None
    assert layout.parse_slots(text) is None or text == "progress-0-1-abcdef"


@given(st.text())
def test_any_text_is_either_none_or_a_stream_of_exactly_that_name(name: str) -> None:
    stream = parse_stream(name)
    assert stream is None or stream.name == name


def test_the_two_fixed_names_are_streams() -> None:
    assert parse_stream("agent") == Stream("agent", "agent", RAW)
    assert parse_stream("shim") == Stream("shim", "shim", RECORDS)


def test_a_folder_lists_its_streams_with_segments_in_order(tmp_path: Path) -> None:
    names = [
        "metrics-0-7-abcdef.10",
        "metrics-0-7-abcdef.9",
        "stdout-0",
        "stdout-0.index",
        "task.json",
        "facts-0-7-abcdef",
    ]
    for name in names:
        (tmp_path / name).touch()
    listed = [s.name for s in list_streams(tmp_path)]
    assert listed == [
        "facts-0-7-abcdef", "metrics-0-7-abcdef.9", "metrics-0-7-abcdef.10", "stdout-0", "stdout-0.index",
    ]  # fmt: skip


def example() -> TaskFile:
    return TaskFile(
        "u-1", 2, "worker-0", "/home/x", token="id.secret", argv=["python", "träin.py"], gpus=[0, 1]
    )


def test_a_task_file_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    example().save(tmp_path)
    assert TaskFile.load(tmp_path) == example()
    assert os.listdir(tmp_path) == ["task.json"]  # no draft is left
    assert str(example().key) == "u-1-2-worker-0"


def test_a_task_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """B33."""
    before = os.umask(0)
    try:
        example().save(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "task.json").stat().st_mode) == 0o600


def test_the_token_is_not_in_a_task_files_repr() -> None:
    assert "secret" not in repr(example()).replace("secret_names", "")


def test_a_newer_task_file_is_refused_with_its_version(tmp_path: Path) -> None:
    """P12."""
    (tmp_path / "task.json").write_text(json.dumps({"version": 7, "uuid": "u"}))
    with pytest.raises(VersionError, match="7"):
        TaskFile.load(tmp_path)


def test_fields_of_a_later_release_of_the_same_version_are_ignored() -> None:
    text = json.dumps(
        {"version": 1, "uuid": "u", "attempt": 1, "task": "t", "home": "/h", "colour": "red"}
    )
    assert TaskFile.parse(text.encode()).uuid == "u"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b"null", b'{"version": 1}', b"[" * 100_000, b"\xff\xfe"]
)
def test_a_damaged_task_file_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "task.json").write_bytes(text)
    with pytest.raises(DamagedError, match=r"task\.json"):
        TaskFile.load(tmp_path)


def test_a_link_or_a_pipe_in_place_of_the_task_file_is_not_opened(tmp_path: Path) -> None:
    """B30."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "task.json").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        TaskFile.load(tmp_path / "a")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "task.json")
    with pytest.raises(DamagedError):
        TaskFile.load(tmp_path / "b")

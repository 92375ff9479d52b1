"""The cursor saves a resend and nothing else: whatever it holds, reading it never fails (F16)."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.spool import cursor


def test_positions_come_back_as_they_were_saved(tmp_path: Path) -> None:
    cursor.save(tmp_path, {"stdout-0": 7, "shim": 2**40})
    assert cursor.load(tmp_path) == {"stdout-0": 7, "shim": 2**40}
    assert os.listdir(tmp_path) == ["cursor.json"]
    assert stat.S_IMODE((tmp_path / "cursor.json").stat().st_mode) == 0o600


def test_a_cursor_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert cursor.load(tmp_path) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        '{"a": -1}',
        '{"a": 1.5}',
        '{"a": true}',
        '{"a": null}',
        '{"a": 1e99}',
    ],
)
def test_garbage_is_read_as_nothing_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "cursor.json").write_text(text)
    assert cursor.load(tmp_path) == {}


def test_what_can_be_understood_of_a_half_garbled_cursor_is_kept(tmp_path: Path) -> None:
    (tmp_path / "cursor.json").write_text(json.dumps({"a": 5, "b": "x", "c": 2**70}))
    assert cursor.load(tmp_path) == {"a": 5}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "cursor.json").write_bytes(data)
    assert all(isinstance(n, str) and p >= 0 for n, p in cursor.load(tmp_path).items())


def test_a_link_or_a_pipe_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"a": 1}')
    (tmp_path / "cursor.json").symlink_to(tmp_path / "secret")
    assert cursor.load(tmp_path) == {}
    (tmp_path / "cursor.json").unlink()
    os.mkfifo(tmp_path / "cursor.json")
    assert cursor.load(tmp_path) == {}

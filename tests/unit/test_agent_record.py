"""The exit record: from a reserve, synced, and written anew when the disk fails a sync (F6, F7,
ring 1).
"""

import errno
from pathlib import Path
from typing import Any

import pytest

from headway.agent.shim.exit_record import ExitRecord
from headway.model.limits import EXIT_RESERVE_BYTES
from headway.model.record import FACT
from headway.testing.filesystems import FailingFiles
from headway.wire import frame

FACTS = [{"type": "a", "n": n} for n in range(4)]


def read(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    scan = frame.scan(data, final=True)
    assert not scan.damaged
    return [frame.decode_json(p) for kind, p in frame.frames(data[: scan.end]) if kind == FACT]


def test_room_is_reserved_before_anything_is_written(tmp_path: Path) -> None:
    record = ExitRecord(str(tmp_path), {"pid": 1}, 1, 5)
    assert (tmp_path / "shim").stat().st_size >= EXIT_RESERVE_BYTES
    assert (tmp_path / "shim").stat().st_blocks * 512 >= EXIT_RESERVE_BYTES
    for fact in FACTS:
        assert record.append([fact])
    record.close()
    assert read(tmp_path / "shim") == FACTS
    assert (
        frame.decode_json(frame.frames((tmp_path / "shim").read_bytes())[0][1])["stream"] == "shim"
    )


def test_many_ranks_have_a_larger_reserve(tmp_path: Path) -> None:
    ExitRecord(str(tmp_path), {}, 1024, 5).close()
    assert (tmp_path / "shim").stat().st_size >= 1024 * 500


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("operation", ["pwrite", "fsync", "allocate", "rename", "open"])
def test_whichever_operation_fails_once_every_fact_is_in_the_file_at_the_end(
    tmp_path: Path, number: int, operation: str
) -> None:
    """F6: fail the Nth operation, for each N until a run has no failure."""
    for nth in range(40):
        folder = tmp_path / str(nth)
        folder.mkdir()
        files = FailingFiles(nth, number, only=frozenset({operation}))
        try:
            record = ExitRecord(str(folder), {}, 1, 5, files)
        except OSError:
            assert operation == "open"
            continue
        for fact in FACTS:
            record.append([fact])
        record.close()
        assert read(folder / "shim") == FACTS, nth
        if not files.failed:
            return
    pytest.fail("it never ran without a failure")


def test_a_disk_that_stays_broken_is_told_and_does_not_raise(tmp_path: Path) -> None:
    record = ExitRecord(
        str(tmp_path), {}, 1, 5, FailingFiles(0, errno.EIO, times=10**9, only=frozenset({"fsync"}))
    )
    assert record.append(FACTS[:1]) is False
    assert record.trouble is not None
    record.close()

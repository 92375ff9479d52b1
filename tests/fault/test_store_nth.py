"""Fail the nth call that writes output files, until a run has no failure: nothing acknowledged is
lost (ring 1).
"""

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import UnreachableError
from headway.model.limits import LOG_DIRECT_BYTES
from headway.store import log_files, log_lines, series
from headway.wire.batch import Part
from tests.storing import Bench, bench, fact, gap, record, schema

METRICS = "metrics-0-100-abcdef.0"
LARGE = os.urandom(LOG_DIRECT_BYTES)
TEXT = b"one\ntwo\n" + bytes(500) + LARGE + b"three\n"
RUNS_MAX = 60


class Nth:
    """Makes call number `n` of one function fail, or write less than it was asked to."""

    def __init__(self, name: str, n: int, code: int) -> None:
        self.name, self.n, self.code, self.calls = name, n, code, 0
        self.real: Callable[..., Any] = getattr(os, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.name == "open" and not args[1] & os.O_CREAT and not args[1] & os.O_RDWR:
            return self.real(*args, **options)  # reading
        self.calls += 1
        if self.calls != self.n:
            return self.real(*args, **options)
        if self.code == 0:
            return self.real(args[0], args[1][: len(args[1]) // 2 or 1], *args[2:])
        raise OSError(self.code, os.strerror(self.code))


def steps(b: Bench) -> list[list[Part]]:
    started = fact({"type": "process_started", "rank": 0, "pid": 1})
    ended = fact({"type": "task_ended", "exit_code": 0})
    x = schema(0, "x") + record(0, 1, [1.0])
    return [
        [
            Part("shim", "records", 0, started),
            Part("stdout-0", "raw", 0, b"one\n"),
            Part(METRICS, "records", 0, x),
        ],
        [Part("stdout-0", "raw", 4, b"two\n")],
        [gap("stdout-0", 8, 500)],
        [
            Part("stdout-0", "raw", 508, LARGE),
            Part(METRICS, "records", len(x), record(0, 2, [2.0])),
        ],
        [Part("shim", "records", len(started), ended)],
        [Part("stdout-0", "raw", 508 + len(LARGE), b"three\n")],
    ]


def run(b: Bench) -> int:
    """Send everything, again where it was not taken; how often it was not."""
    failures = 0
    for parts in steps(b):
        while True:
            try:
                result = b.ingest(*parts)
                assert not result.refused
                break
            except UnreachableError:
                failures += 1
                assert failures < 10
    return failures


def _pieces(c: sqlite3.Connection, b: Bench, pk: int) -> list[log_files.Piece]:
    return list(log_files.pieces(c, b.paths, pk, 0, 1 << 30))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("pwrite", errno.ENOSPC), ("pwrite", errno.EIO), ("pwrite", 0), ("fdatasync", errno.EIO), ("fsync", errno.EIO),
        ("open", errno.EMFILE), ("open", errno.EACCES), ("mkdir", errno.ENOSPC), ("ftruncate", errno.ENOSPC),
    ],
)  # fmt: skip
def test_the_nth_failure_of_a_call_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    """P3, P4, F8, F12"""
    for n in range(1, RUNS_MAX):
        b = bench(tmp_path / f"home-{n}")
        fault = Nth(name, n, code)
        with monkeypatch.context() as patch:
            patch.setattr(log_files.os, name, fault)
            failures = run(b)
        assert failures == (1 if code and fault.calls >= n else 0)
        (output,) = b.read(log_lines.outputs, b.job.pk, stream="stdout")
        found = b.read(_pieces, b, output.pk)
        assert [piece.data for piece in found] == [b"one\ntwo\n", b"", LARGE + b"three\n"]
        path = b.paths.logs / b.key.uuid / "1" / "worker-0" / "stdout-0"
        assert path.read_bytes() == TEXT, "the task has ended, so its file is complete"
        (points,) = b.read(series.read_series, b.job.pk, "x")
        assert points.points.values.tolist() == [1.0, 2.0]
        b.store.close()
        if fault.calls < n:
            return
    pytest.fail(f"{name} is called more than {RUNS_MAX} times")

"""Reads back what a client wrote, by the same frames that the shipper reads. Used by tests of
client and spool.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.model.record import FACT, METRICS, OPEN, SCHEMA
from headway.spool.files import OS_FILES, Files
from headway.spool.layout import Stream, list_streams
from headway.wire import frame


@dataclass(frozen=True)
class Point:
    name: str
    step: int
    value: float
    stream: str


def data_of(task_dir: Path | str, stream: str, files: Files = OS_FILES) -> bytes:
    fd = files.open(f"{task_dir}/{stream}", os.O_RDONLY)
    try:
        return files.pread(fd, 1 << 30, 0)
    finally:
        files.close(fd)


def frames_of(
    task_dir: Path | str, stream: str, *, whole: bool = True, files: Files = OS_FILES
) -> list[tuple[int, memoryview]]:
    """Every frame; with `whole`, anything that is not a frame fails the test."""
    data = data_of(task_dir, stream, files)
    scan = frame.scan(data, final=True)
    if whole:
        assert not scan.damaged, f"{stream} has damage at {scan.damaged} of {len(data)} bytes"
    found = frame.frames(data[: scan.end], scan.damaged)
    if found:
        assert found[0][0] == OPEN and frame.decode_json(found[0][1])["stream"] == stream
    return found


def streams(task_dir: Path | str, role: str, files: Files = OS_FILES) -> list[Stream]:
    return [s for s in list_streams(str(task_dir), files) if s.role == role]


def facts(
    task_dir: Path | str, kind: str | None = None, *, pid: int | None = None, whole: bool = True
) -> list[dict[str, Any]]:
    """Facts of every process (or one), oldest stream first."""
    found = []
    for stream in streams(task_dir, "facts"):
        if pid is None or stream.pid == pid:
            frames = frames_of(task_dir, stream.name, whole=whole)
            found += [frame.decode_json(payload) for kind_, payload in frames if kind_ == FACT]
    return [fact for fact in found if kind is None or fact["type"] == kind]


def points_in(frames: list[tuple[int, memoryview]], stream: str) -> list[Point]:
    schemas: dict[int, tuple[str, ...]] = {}
    found = []
    for kind, payload in frames:
        if kind == SCHEMA:
            number, names = frame.decode_schema(payload)
            assert number not in schemas, "a schema id is declared twice"
            schemas[number] = names
        elif kind == METRICS:
            number, step, _ = struct.unpack_from("<Iqq", payload)
            names = schemas[number]
            values = struct.unpack_from(f"<{len(names)}d", payload, 20)
            assert len(payload) == 20 + 8 * len(names)
            found += [
                Point(name, step, value, stream) for name, value in zip(names, values, strict=True)
            ]
    return found


def points(task_dir: Path | str, *, whole: bool = True, files: Files = OS_FILES) -> list[Point]:
    """Every point, in the order written within each process."""
    return [
        point
        for stream in streams(task_dir, "metrics", files)
        for point in points_in(
            frames_of(task_dir, stream.name, whole=whole, files=files), stream.name
        )
    ]

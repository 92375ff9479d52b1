"""Usage as TensorBoard scalars: the event file, read back by a reader that shares nothing with the
writer.
"""

import binascii
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.agent.probes.tensorboard_usage import EventFile, level_at, scalars
from headway.wire.tfevents import masked_crc
from tests.driver import PYTHON, Hw, agents
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(22)
SECOND = 10**9
SAMPLE: dict[str, Any] = {
    "type": "usage", "level": 0, "time_ns": 105 * SECOND,
    "node": {"cpu_percent": 150.0, "memory_bytes": 2**30, "net_rx_bps": None},
    "processes": [
        {"rank": 0, "pid": None, "cpu_percent": 99.5, "rss_bytes": 1000},
        {"rank": 0, "pid": 7, "cpu_percent": 99.5, "rss_bytes": 1000},
    ],
    "gpus": [{"index": 0, "load_percent": 80, "own": True}, {"index": 1, "load_percent": 70, "own": False}],
}  # fmt: skip


# -- a reader of its own


def crc32c(data: bytes) -> int:
    """Bit by bit, from the definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unmasked(masked: int) -> int:
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17) | (rotated << 15) & 0xFFFFFFFF


def records(data: bytes) -> Iterator[bytes]:
    """Whole records; a torn one ends the file."""
    while len(data) >= 12:
        size = struct.unpack("<Q", data[:8])[0]
        assert unmasked(struct.unpack("<I", data[8:12])[0]) == crc32c(data[:8])
        if len(data) < 16 + size:
            return
        body = data[12 : 12 + size]
        assert unmasked(struct.unpack("<I", data[12 + size : 16 + size])[0]) == crc32c(body)
        yield body
        data = data[16 + size :]


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a protobuf message, whatever it means."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or varint()
        chunk, at = data[at : at + size], at + size
        form = {1: "<d", 5: "<f"}.get(tag & 7)
        yield tag >> 3, struct.unpack(form, chunk)[0] if form else chunk


def events(path: Path) -> list[tuple[float, int, dict[str, float]]]:
    """(time, step, {tag: value}) of each event behind the first, which names the format."""
    first, *rest = (dict(fields(body)) for body in records(path.read_bytes()))
    assert first[3] == b"brain.Event:2"
    found = []
    for event in rest:
        values = [dict(fields(value)) for _, value in fields(event[5])]
        found.append((event[1], event[2], {value[1].decode(): value[2] for value in values}))
    return found


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the standard
    assert unmasked(masked_crc(b"123456789")) == 0xE3069283 != binascii.crc32(b"123456789")


# -- the file


def test_a_sample_becomes_scalars_under_diagnostics(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path / "runs"), "node1", 100 * SECOND)
    file.write(SAMPLE)
    file.write({**SAMPLE, "time_ns": 107 * SECOND})
    file.close()
    (path,) = (tmp_path / "runs").iterdir()
    assert ".tfevents." in path.name
    (time_s, step, values), (_, later, _) = events(path)
    assert (time_s, step, later) == (105.0, 5, 7)
    assert values == {
        "Diagnostics/node1/cpu_percent": 150.0,
        "Diagnostics/node1/memory_bytes": float(2**30),
        "Diagnostics/rank0/cpu_percent": 99.5,
        "Diagnostics/rank0/rss_bytes": 1000.0,
        "Diagnostics/node1/gpu0/load_percent": 80.0,
    }


def test_a_torn_end_costs_one_sample(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), "node1", 100 * SECOND)
    for second in range(5):
        file.write({**SAMPLE, "time_ns": (105 + second) * SECOND})
    file.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in range(1, 60, 7):
        path.write_bytes(whole[:-cut])
        assert len(events(path)) == 4


def test_long_jobs_are_written_at_lower_rates() -> None:
    assert [level_at(s) for s in (0.0, 3599.0, 3600.0, 86_399.0, 86_400.0)] == [0, 0, 1, 1, 2]
    banded = scalars({"node": {"cpu_percent": [1.0, 2.0, 9.0]}}, "n")
    assert banded == {"Diagnostics/n/cpu_percent": 2.0}


def test_a_file_that_would_grow_too_large_is_ended(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), "node1", 100 * SECOND, bytes_max=1000)
    with pytest.raises(OSError, match="limit"):
        for _ in range(100):
            file.write(SAMPLE)
    file.close()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size <= 1000 and events(path)


# -- a real job


def test_a_job_writes_its_usage_there_also_after_its_shipper_was_killed(
    home: Path, tmp_path: Path
) -> None:
    hw = Hw(home, tmp_path)
    script = hw.script(
        "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    )
    job = hw.submit("--tensorboard-dir", "runs", "--monitoring-interval-s", "0.1", PYTHON, script)
    folder = tmp_path / "runs" / job

    def written(count: int) -> bool:
        files = list(folder.glob("*.tfevents.*")) if folder.exists() else []
        return len(files) >= count and all(len(events(path)) >= 3 for path in files)

    wait_until(lambda: written(1), what="scalars")
    for pid in agents(home, "shipper"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: written(2), what="scalars of the next shipper")
    (tmp_path / "go").touch()
    hw.wait_ended(job)
    tags = {tag for path in folder.iterdir() for _, _, values in events(path) for tag in values}
    assert {"Diagnostics/rank0/cpu_percent", "Diagnostics/rank0/rss_bytes"} <= tags
    assert all(tag.startswith("Diagnostics/") for tag in tags)

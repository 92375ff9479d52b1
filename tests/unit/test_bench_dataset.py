"""The data sets of `python -m bench`: fixed, and framed exactly as the client frames them."""

import struct
from pathlib import Path

import numpy as np

from bench import dataset
from headway.model.record import METRICS, OPEN, SCHEMA
from headway.wire import frame


def test_a_data_set_is_the_same_every_time() -> None:
    one, two = dataset.curves(1000), dataset.curves(1000)
    assert np.array_equal(one.values, two.values) and np.array_equal(one.time_ns, two.time_ns)


def test_curves_came_from_float32_and_noise_did_not() -> None:
    curves, noise = dataset.curves(1000).values, dataset.noise(1000).values
    assert np.array_equal(curves, curves.astype(np.float32))
    assert not np.array_equal(noise, noise.astype(np.float32))


def test_times_only_grow() -> None:
    assert (np.diff(dataset.curves(20_000).time_ns) > 0).all()


def test_a_stream_is_what_the_wire_reads() -> None:
    records = dataset.wide(50, 3)
    stream = dataset.opening("metrics-0-12-abcdef.0", records.names) + dataset.frames(records)
    scan = frame.scan(stream, final=True)
    assert (scan.end, scan.damaged, scan.frames) == (len(stream), [], 52)
    found = frame.frames(stream)
    assert [kind for kind, _ in found[:3]] == [OPEN, SCHEMA, METRICS]
    assert frame.decode_schema(found[1][1]) == (0, records.names)
    schema, step, time_ns, *values = struct.unpack("<Iqq3d", found[9][1])
    assert (schema, step, time_ns) == (0, 7, records.time_ns[7])
    assert values == list(records.values[:, 7])


def test_parts_are_whole_frames_at_their_offsets() -> None:
    records = dataset.curves(100)
    head, framed = dataset.opening("metrics-0-12-abcdef.0", records.names), dataset.frames(records)
    parts = list(dataset.parts(head + framed, len(head), len(framed) // 100, 500))
    assert b"".join(data for _, data in parts) == head + framed
    assert all(frame.scan(data, final=True).damaged == [] for _, data in parts)
    assert [offset for offset, _ in parts] == [
        sum(len(d) for _, d in parts[:k]) for k in range(len(parts))
    ]


def test_a_saved_set_has_its_rows_and_both_columns(tmp_path: Path) -> None:
    records = dataset.curves(10)
    dataset.save(records, tmp_path / "set")
    data = (tmp_path / "set").read_bytes()
    assert int.from_bytes(data[:8], "little") == 10
    assert np.array_equal(np.frombuffer(data[8:], "<f8").reshape(2, 10), records.values)

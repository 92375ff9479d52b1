"""What other trackers kept, read from their files: whole, again without doubling, and whatever is in them."""

import json
import os
import random
import sqlite3
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from headway.views.importers import tensorboard_files, wandb_files
from headway.views.importers.csv_files import read_csv
from headway.views.importers.imported_run import ImportedRun, MixedStream, NotThisKind, PointStream
from headway.views.importers.mlflow_files import read_mlflow
from headway.views.importers.tensorboard_files import read_tensorboard
from headway.views.importers.wandb_files import read_wandb
from headway.wire.tfevents import event, first_event, record

Points = list[tuple[str, int, float]]


def points(run: ImportedRun) -> Points:
    found: Points = []
    for stream in run.streams:
        if isinstance(stream, PointStream):
            found += [(stream.names[0], step, values[0]) for step, _, values in stream.points]
        else:
            assert isinstance(stream, MixedStream)
            for names, step, _, values in stream.records:
                found += [(name, step, value) for name, value in zip(names, values, strict=True)]
    return found


# -- TensorBoard


def event_file(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "events.out.tfevents.1700000000.host.1.0"
    path.write_bytes(data)
    return path


def test_columns_and_single_records_give_the_same_points_in_the_same_order(tmp_path: Path) -> None:
    rows = [(tag, step, random.random()) for step in range(300) for tag in ("loss", "acc/val")]
    data = [record(event(1.7e9 + step, step * 37, {tag: value})) for tag, step, value in rows]
    event_file(tmp_path / "run", record(first_event(1.7e9)) + b"".join(data))
    (run,) = read_tensorboard(tmp_path)
    expected = [
        (tag, step * 37, struct.unpack("<f", struct.pack("<f", value))[0])
        for tag, step, value in rows
    ]
    assert points(run) == expected
    assert run.started_ns == 1_700_000_000 * 10**9 and run.name == "run" and not run.skipped


def test_a_damaged_record_in_the_middle_is_told_and_costs_itself(tmp_path: Path) -> None:
    data = [bytearray(record(event(1.0, step, {"x": 1.0}))) for step in range(100)]
    data[40][30] ^= 1
    event_file(tmp_path, b"".join(data) + data[0][:9])
    (run,) = read_tensorboard(tmp_path)
    assert [step for _, step, _ in points(run)] == [step for step in range(100) if step != 40]
    assert any("1 damaged" in text for text in run.skipped) and any(
        "9 bytes" in text for text in run.skipped
    )


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_reason_to_fail(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(b"".join(record(event(1.0, step, {"x": 1.0, "y": 2.0})) for step in range(50)))
    for _ in range(chance.randrange(1, 30)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    event_file(tmp_path, bytes(data))
    for run in read_tensorboard(tmp_path):
        points(run)


# -- W&B


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def item(key: str, value: Any) -> bytes:
    return field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))


def wandb_file(path: Path, *payloads: bytes) -> Path:
    """As wandb's own writer: records in blocks of 32 KiB, cut where a block ends."""
    data = bytearray(wandb_files.HEADER)
    for payload in payloads:
        rest, is_first = payload, True
        while True:
            left = wandb_files.BLOCK_BYTES - len(data) % wandb_files.BLOCK_BYTES
            if left < 7:
                data += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[
                is_first, not rest
            ]
            data += struct.pack("<IHB", crc32(part, crc32(bytes([kind]))), len(part), kind) + part
            is_first = False
            if not rest:
                break
    path.write_bytes(data)
    return path


def history(**values: Any) -> bytes:
    return field(2, b"".join(item(key, value) for key, value in values.items()))


def test_an_offline_run_has_its_config_steps_axes_and_end(tmp_path: Path) -> None:
    run = (
        field(1, b"abc")
        + field(3, b"proj")
        + field(8, b"first")
        + field(10, b"t1")
        + field(17, b"\x08\x80\xe2\xcf\xaa\x06")
    )
    wandb_file(
        tmp_path / "run-abc.wandb",
        field(17, run + field(4, item("lr", 0.1) + item("_wandb", {"v": 1}))),
        field(12, field(2, b"val/*") + field(4, b"epoch") + b"\x40\x02"),
        *(
            history(loss=1 / (i + 1), deep={"er": i}, _step=i * 2, _timestamp=1.7e9 + i)
            for i in range(2000)
        ),
        history(bad="NaN", text="hello", image={"_type": "image-file"}, _step=5000),
        field(3, item("best", 0.9)),
        field(18, b"\x08\x00"),
    )
    (found,) = read_wandb(tmp_path)
    assert (found.name, found.experiment, found.tags, found.state) == (
        "first",
        "proj",
        ["t1"],
        "succeeded",
    )
    assert found.config == {"lr": 0.1} and found.summary == {"best": 0.9}
    assert found.definitions == [{"name": "val/*", "x": "epoch", "goal": "max", "summary": []}]
    got = points(found)
    assert (
        got[:2] == [("loss", 0, 1.0), ("deep/er", 0, 0.0)]
        and len(got) == 4001
        and got[-1][0] == "bad"
    )
    assert any("1 values of kind image-file" in text for text in found.skipped)


def test_a_damaged_block_and_a_torn_end_cost_only_themselves(tmp_path: Path) -> None:
    path = wandb_file(
        tmp_path / "run-x.wandb", *(history(loss=i, pad="x" * 200, _step=i) for i in range(1000))
    )
    data = bytearray(path.read_bytes())
    data[wandb_files.BLOCK_BYTES + 5000] ^= 1
    path.write_bytes(data[:-3])
    (run,) = read_wandb(path)
    steps = [step for _, step, _ in points(run)]
    assert 700 < len(steps) < 999 and steps == sorted(set(steps)) and steps[-1] == 998
    assert any("damaged" in text for text in run.skipped) and run.state == "stopped"


@pytest.mark.parametrize(
    "data", [b"", b"x", os.urandom(100_000), wandb_files.HEADER + os.urandom(70_000)]
)
def test_a_file_that_only_claims_to_be_wandbs_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run-y.wandb").write_bytes(data)
    (run,) = read_wandb(tmp_path)
    assert points(run) == [] and run.skipped


# -- MLflow


def test_a_store_of_files_is_read(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "1" / "0123abcd"
    for folder in ("metrics/train", "params", "tags", "artifacts"):
        (run / folder).mkdir(parents=True)
    (tmp_path / "mlruns" / "1" / "meta.yaml").write_text("name: digits\nexperiment_id: '1'\n")
    (run / "meta.yaml").write_text(
        "run_id: 0123abcd\nrun_name: calm-fox\nstatus: 3\nstart_time: 1700000000000\nend_time: 1700000009000\n"
    )
    (run / "metrics" / "train" / "loss").write_text(
        "1700000001000 0.5 0\n1700000002000 nan 1\nrubbish\n1700000003000 0.25 2\n"
    )
    (run / "params" / "lr").write_text("0.1")
    (run / "tags" / "team").write_text("a")
    (found,) = read_mlflow(tmp_path)
    got = points(found)
    assert [(name, step) for name, step, _ in got] == [
        ("train/loss", 0),
        ("train/loss", 1),
        ("train/loss", 2),
    ]
    assert (found.name, found.experiment, found.config, found.tags) == (
        "calm-fox",
        "digits",
        {"lr": 0.1},
        ["team=a"],
    )
    assert found.state == "succeeded" and any("1 lines" in text for text in found.skipped)


def test_a_database_is_read_and_another_ones_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as c:
        c.executescript("""
            CREATE TABLE experiments (experiment_id INTEGER, name TEXT);
            CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, start_time INTEGER, end_time INTEGER, user_id TEXT,
              experiment_id INTEGER);
            CREATE TABLE params (run_uuid TEXT, key TEXT, value TEXT);
            CREATE TABLE tags (run_uuid TEXT, key TEXT, value TEXT);
            CREATE TABLE metrics (run_uuid TEXT, key TEXT, value REAL, timestamp INTEGER, step INTEGER, is_nan INTEGER);
            INSERT INTO experiments VALUES (1, 'digits');
            INSERT INTO runs VALUES ('u1', 'r1', 'FAILED', 1700000000000, 1700000001000, 'ann', 1);
            INSERT INTO params VALUES ('u1', 'depth', '3');
            INSERT INTO metrics VALUES ('u1', 'loss', 0.5, 1700000000500, 1, 0), ('u1', 'loss', 0, 1700000000600, 2, 1);
        """)
    c.close()
    reading = read_mlflow(path)  # the points are read while it lasts
    run = next(reading)
    assert (run.name, run.state, run.config) == ("r1", "failed", {"depth": 3})
    assert [step for _, step, _ in points(run)] == [1, 2]
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as c:
        c.execute("CREATE TABLE x (y)")
    c.close()
    with pytest.raises(NotThisKind):
        list(read_mlflow(other))


# -- CSV


def test_columns_become_metrics_and_what_is_no_number_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,loss,acc,note\n10,0.5,,good\n20,nan,0.75,\n")
    (run,) = read_csv(path)
    got = points(run)
    assert [(name, step) for name, step, _ in got] == [("loss", 10), ("loss", 20), ("acc", 20)]
    assert run.skipped == [f"{path}: column 'note': 1 cells that are no numbers"]


def test_checksums_by_columns_are_those_one_by_one() -> None:
    import numpy as np

    from headway.wire.tfevents import masked_crc

    block = np.frombuffer(os.urandom(64 * 33), np.uint8).reshape(64, 33)
    assert tensorboard_files._crc(block).tolist() == [masked_crc(row.tobytes()) for row in block]

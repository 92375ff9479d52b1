"""Files that somebody sent, brought in by `hw import`: nothing outside of them is read, nothing is
waited for, and what is damaged costs itself.
"""

import os
import random
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from headway.views.importers.csv_files import read_csv
from headway.views.importers.imported_run import ImportedRun, MixedStream, NotThisKind
from headway.views.importers.mlflow_files import read_mlflow
from headway.views.importers.tensorboard_files import read_tensorboard
from headway.views.importers.upload import _Counter
from headway.views.importers.wandb_files import BLOCK_BYTES, HEADER, read_wandb
from headway.wire.tfevents import event, first_event, record
from tests.driver import Hw

SECRET = "the person's own secret"


def mlruns(top: Path) -> Path:
    run = top / "mlruns" / "0" / "run1"
    for name in ("params", "metrics", "tags", "artifacts"):
        (run / name).mkdir(parents=True)
    (run.parent / "meta.yaml").write_text("name: exp\n")
    (run / "meta.yaml").write_text("run_id: run1\nstatus: 3\nstart_time: 1700000000000\n")
    (run / "metrics" / "good").write_text("1700000000000 0.5 1\n")
    return run


def drain(run: ImportedRun) -> list[str]:
    """All that it would send; what was left out."""
    skipped: list[str] = []
    for stream in run.streams:
        for _ in _Counter(stream, skipped).frames():
            pass
    return run.skipped + skipped


def test_a_link_brings_in_no_file_from_outside_and_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SECRET)
    run = mlruns(tmp_path / "sent")
    (run / "params" / "stolen").symlink_to(outside)
    (run / "tags" / "stolen").symlink_to(outside)
    (run / "metrics" / "endless").symlink_to("/dev/zero")
    os.mkfifo(run / "metrics" / "waits")
    os.mkfifo(run / "params" / "waits")
    [found] = read_mlflow(tmp_path / "sent")
    left_out = drain(found)
    assert SECRET not in repr(found) and "stolen" not in found.config
    assert len([text for text in left_out if "not read" in text]) == 5


@pytest.mark.parametrize("reader", [read_wandb, read_tensorboard])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_is_left_out(
    tmp_path: Path, reader: Callable[[Path], object], make: Callable[[Path], object]
) -> None:
    name = "run-x.wandb" if reader is read_wandb else "events.out.tfevents.1"
    make(tmp_path / name)
    [found] = reader(tmp_path)  # type: ignore[misc, attr-defined]
    assert any("not read" in text for text in found.skipped)


def test_artifacts_of_an_imported_run_hold_no_file_from_outside(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SECRET)
    run = mlruns(tmp_path / "sent")
    (run / "artifacts" / "model").write_text("weights")
    (run / "artifacts" / "stolen").symlink_to(outside)
    hw = Hw(home, tmp_path)
    [told] = hw.json("import", "sent")
    assert any("stolen" in text for text in told["skipped"])
    [artifact] = hw.json("artifacts", "ls")
    assert artifact["files"] == 1
    stored = b"".join(
        path.read_bytes() for path in (home / "artifacts").rglob("*") if path.is_file()
    )
    assert SECRET.encode() not in stored


def test_a_view_in_the_place_of_a_table_is_not_computed(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as c:
        c.execute("CREATE TABLE experiments (experiment_id INT, name TEXT)")
        c.execute(
            "CREATE VIEW runs AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT * FROM n"
        )
    with pytest.raises(NotThisKind, match="runs is no table"):
        list(read_mlflow(path))


def test_times_and_steps_that_cannot_be_cost_themselves(tmp_path: Path) -> None:
    events = [record(first_event(1.0))]
    for time_s, step in (
        (float("inf"), 1),
        (float("nan"), 2),
        (1e300, 3),
        (5.0, 2**63 - 1),
        (5.0, 4),
    ):
        events += [record(event(time_s, step, {"loss": 1.0}))] * 20
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(events))
    [found] = read_tensorboard(tmp_path)
    drain(found)
    assert 0 < found.started_ns <= found.ended_ns < 2**62
    rows = [(("a",), 2**70, 1, [1.0]), (("a",), 1, 2**70, [1.0]), (("a",), 1, 1, [2.0])]
    run = ImportedRun("k", "n", "csv", 1, 1, streams=[MixedStream("s", iter(rows))])
    assert len(drain(run)) == 2


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_of_wandb_cost_what_is_damaged(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "run-x.wandb"
    data = bytearray(wandb_log([_item(number, "key", b"1.5") for number in (2, 3, 5, 2) * 20]))
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data)[: rng.randrange(1, len(data) + 1)])
    for run in read_wandb(tmp_path):
        drain(run)


def test_a_csv_with_a_cell_without_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('step,"' + "a" * 300_000 + "\n1,2\n")
    [run] = read_csv(path)
    assert any("field larger" in text for text in drain(run))


def test_a_record_of_wandb_that_nests_without_end_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(wandb_log([_item(5, "deep", b"[" * 20_000), _item(5, "good", b"7")]))
    [run] = read_wandb(path)
    assert run.config == {"good": 7}
    assert any("damaged records" in text for text in run.skipped)


def _item(number: int, key: str, value: bytes) -> bytes:
    """A record of history (2), summary (3) or config (5) with one item, its value as JSON."""
    item = _field(1, key.encode()) + b"\x82\x01" + _varint(len(value)) + value
    return _field(number, _field(1, item))


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def wandb_log(payloads: list[bytes]) -> bytes:
    """All in the first block."""
    log = bytearray(HEADER)
    for data in payloads:
        log += struct.pack("<IHB", crc32(data, crc32(b"\x01")), len(data), 1) + data
    assert len(log) < BLOCK_BYTES
    return bytes(log)

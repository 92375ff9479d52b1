"""`hw import` from the command line: runs become jobs, once, and grow when their source has grown."""

from pathlib import Path

import pytest

from headway.wire.tfevents import event, record
from tests.driver import Hw


@pytest.mark.cap(26)
def test_a_folder_that_has_grown_is_imported_again_without_doubling(
    home: Path, tmp_path: Path
) -> None:
    hw = Hw(home, tmp_path)
    path = tmp_path / "runs" / "one" / "events.out.tfevents.1700000000.host.1.0"
    path.parent.mkdir(parents=True)
    rows = [
        record(event(1.7e9 + step, step, {"loss": float(step), "acc": 1.0})) for step in range(100)
    ]
    path.write_bytes(b"".join(rows[:60]) + rows[60][:7])
    (first,) = hw.json("import", "runs")
    assert (
        first["is_new"]
        and first["points"] == 120
        and any("7 bytes" in text for text in first["skipped"])
    )
    path.write_bytes(b"".join(rows))
    (second,) = hw.json("import", "runs")
    assert second["id"] == first["id"] and not second["is_new"]
    found = hw.json("metrics", first["id"])[first["id"]]
    assert found["loss"][0]["step"] == list(range(100)) and found["loss"][0]["value"][99] == 99.0
    job = hw.json("q", first["id"])
    assert job["state"] == "succeeded" and job["experiment"] == "runs" and job["elapsed_s"] == 99


@pytest.mark.cap(26)
def test_a_path_with_nothing_to_read_says_what_can_be_read(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    (tmp_path / "empty").mkdir()
    done = hw("import", "empty")
    assert done.returncode == 2 and b"wandb/, mlruns/" in done.stderr

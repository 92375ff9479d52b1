"""`hw sync`: a job that was recorded without a server comes in later, from another machine, in pieces, exactly once."""

import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw
from tests.waiting import wait_until

SCRIPT = """
import headway.client.attach as attach
attach.Attachment._start_shipper = lambda self, *_: None  # no agent can be started there
import headway as hw
hw.init(name="boat", experiment="sea", config={"lr": 0.3})
for i in range(1000):
    hw.log({"loss": float(i)}, step=i)
"""


@pytest.mark.cap(26)
def test_a_spool_is_brought_in_in_pieces_and_twice(home: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    subprocess.run(
        [PYTHON, str(script)], env=env | {"HEADWAY_HOME": str(away)}, check=True, timeout=60
    )
    (spool,) = (away / "spool").iterdir()
    part = tmp_path / "stick" / spool.name
    shutil.copytree(spool, part)
    metrics = next(part.glob("metrics-*"))
    data = metrics.read_bytes()
    metrics.write_bytes(data[: len(data) // 2])  # the copy was cut short, in the middle of a record

    hw = Hw(home, tmp_path)
    (first,) = hw.json("sync", "stick")
    steps = hw.json("metrics", first["id"])[first["id"]]["loss"][0]["step"]
    assert steps == list(range(len(steps))) and 400 < len(steps) < 600
    for _ in range(2):
        (again,) = hw.json("sync", str(away))
        assert again["id"] == first["id"]
    found = wait_until(
        lambda: (
            len(values := hw.json("metrics", first["id"])[first["id"]]["loss"][0]["value"]) >= 1000
            and values
        ),
        what="all points",
    )
    assert found == [float(i) for i in range(1000)]
    job = hw.json("q", first["id"])
    assert job["experiment"] == "sea" and job["config"] == {"lr": 0.3}

"""A sweep of real jobs, looked at with the commands that compare."""

import json
from pathlib import Path

import pytest

from tests.contract.conftest import Hw

TRAIN = """
import argparse, headway as hw
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float); p.add_argument("--seed", type=int)
a = p.parse_args()
hw.init(config={**vars(a), "model": {"depth": 18}})
for step in range(20):
    hw.log({"loss": 1 / (1 + step * a.lr), "val/acc": a.lr * step / 20 + a.seed / 1000}, step=step)
"""
SWEEP = """
name: sweep
experiment: digits
command: python train.py --lr {{ lr }} --seed {{ seed }}
matrix: {lr: [0.1, 0.5], seed: [0, 1]}
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    found = Hw(home, tmp_path)
    found.script(TRAIN)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return found


@pytest.mark.cap(28)
def test_a_sweep_is_compared(hw: Hw) -> None:
    assert hw("submit", "--wait", "sweep.yaml").returncode == 0
    found = hw.json("compare", "-e", "digits", "-m", "val/acc")
    assert found["differs"] == ["lr", "seed"]
    assert found["equal"] == {"model.depth": 18}
    best = found["jobs"][0]
    assert best["config"]["lr"] == 0.5 and best["config"]["seed"] == 1
    assert best["metrics"]["val/acc"]["best"] == best["metrics"]["val/acc"]["last"] == 0.476
    assert set(best) >= {"id", "name", "state", "config", "metrics"}

    text = hw("compare", "-e", "digits").stdout.decode()
    assert "equal: model.depth=18" in text and "*0.476" in text
    groups = hw.json("compare", "-e", "digits", "--group", "!seed", "-m", "loss")["groups"]
    assert [(group["by"], len(group["ids"])) for group in groups] == [
        ({"lr": 0.5}, 2),
        ({"lr": 0.1}, 2),
    ]
    chosen = hw.json("ls", "--where", "lr < 0.2 and seed = 1")
    assert len(chosen) == 1
    assert (
        hw("compare", "-e", "digits", "--csv").stdout.decode().startswith("id,name,state,lr,seed,")
    )

    found = hw.json("best", "-e", "digits", "-m", "val/acc")
    assert found["id"] == best["id"] and found["attempts"]
    assert found["metric"] == {
        "name": "val/acc", "value": 0.476, "direction": "max", "of": 4, "step": 19, "guessed": True,
    }  # fmt: skip
    assert hw.json("best", "-e", "digits", "-m", "val/acc", "--min")["id"] != best["id"]
    keys = hw.json("compare", "-e", "digits", "--importance", "-m", "val/acc")["keys"]
    assert [key["key"] for key in keys] == ["lr", "seed"]
    assert json.loads(hw("compare", "--json", "-e", "nobody").stdout)["jobs"] == []
    assert hw("compare").returncode == 2
    assert hw("compare", "-e", "digits", "--where", "lr <").returncode == 2

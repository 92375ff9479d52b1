"""A sweep of real jobs, looked at with the commands that compare."""

import json
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.contract.conftest import Hw
from tests.driver import PYTHON
from tests.waiting import wait_until

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
def test_a_sweep_is_compared(hw: Hw, tmp_path: Path) -> None:
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
        "left_out": [],
    }  # fmt: skip
    hw.script(TRAIN + "raise SystemExit(3)\n", "bad.py")
    assert hw("run", "-e", "digits", "python", "bad.py", "--lr", "1", "--seed", "0").returncode == 3
    answer = hw("best", "-e", "digits", "-m", "val/acc")
    assert best["id"] in answer.stdout.decode()
    assert "1 failed job not counted" in answer.stderr.decode()
    failed = hw.json("best", "-e", "digits", "-m", "val/acc", "--state", "succeeded,failed")
    assert failed["state"] == "failed"
    assert hw("delete", "--yes", failed["id"]).returncode == 0
    hw.script(
        "import headway\np = headway.jobs(experiment='digits').metrics('loss')\n"
        "print(len(p.value), sorted(set(p.name)), len(set(p.job)), p.step.max(), p.time.dtype)\n",
        "frames.py",
    )
    read = subprocess.run(
        [PYTHON, "frames.py"], cwd=tmp_path, env=hw.env, capture_output=True, text=True, check=True
    )
    assert read.stdout == "80 ['loss'] 4 19 datetime64[us]\n"
    assert hw.json("best", "-e", "digits", "-m", "val/acc", "--min")["id"] != best["id"]
    keys = hw.json("compare", "-e", "digits", "--importance", "-m", "val/acc")["keys"]
    assert [key["key"] for key in keys] == ["lr", "seed"]
    drawn = hw("plot", "-e", "digits", "-m", "loss", "--where", "seed=0").stdout.decode()
    assert "loss  over step" in drawn and "lr=0.5" in drawn and "⠉" in drawn
    curves = hw.json("plot", "-e", "digits", "-m", "loss", "--group", "lr")["loss"]
    assert [curve["label"] for curve in curves] == ["lr=0.5 (2 jobs)", "lr=0.1 (2 jobs)"]
    assert hw("plot", "-e", "digits", "-m", "loss", "-o", "loss.svg").returncode == 0
    assert (tmp_path / "loss.svg").read_text().startswith("<svg")
    assert hw("plot", "-e", "digits", "-m", "nothing").returncode == 1
    assert json.loads(hw("compare", "--json", "-e", "nobody").stdout)["jobs"] == []
    assert hw("compare").returncode == 2
    assert hw("compare", "-e", "digits", "--where", "lr <").returncode == 2


@pytest.mark.cap(29)
def test_a_difference_names_config_and_code_with_uncommitted_changes(
    hw: Hw, tmp_path: Path
) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    objects = sorted((tmp_path / ".git" / "objects").rglob("*"))
    runs = ("run", "-e", "digits", "--json", "python", "train.py", "--seed", "0", "--lr")
    first = json.loads(hw(*runs, "0.1").stdout)["id"]
    (tmp_path / "train.py").write_text(TRAIN.replace("range(20)", "range(10)"))
    second = json.loads(hw(*runs, "0.5").stdout)["id"]
    wait_until(lambda: _has_code(hw, first, second))  # may come after the end of so short a job
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    found = hw.json("diff", first, second, "-m", "val/acc")
    assert found["ids"] == [first, second]
    assert found["outcome"]["values"] == [0.095, 0.225]
    assert [change["key"] for change in found["config"]] == ["lr"]
    assert {one["what"] for one in found["likely"]} == {"config", "code"}
    assert "-for step in range(20):" in found["code"]
    assert "+for step in range(10):" in found["code"]
    assert sorted((tmp_path / ".git" / "objects").rglob("*")) == objects  # it is only read

    again = hw.json("reproduce", second)  # its uncommitted change is in it, the later one is not
    assert again["reproduced"] and again["verdict"].startswith("reproduced to the last bit")
    assert {one["name"]: one["points"] for one in again["metrics"]} == {"loss": 10, "val/acc": 10}
    assert (Path(again["folder"]) / "train.py").read_text() == TRAIN.replace(
        "range(20)", "range(10)"
    )
    text = hw("diff", first, second).stdout.decode()
    assert text.index("*0.225") < text.index("most likely") < text.index("config")
    assert hw("diff", first, first).returncode == 2
    assert hw("diff", first).returncode == 2


def _has_code(hw: Hw, first: str, second: str) -> bool:
    return hw.json("diff", first, second)["code_differs"] is not None


@pytest.mark.cap(54)
def test_tensorboard_shows_a_job_that_wrote_no_event_file(hw: Hw) -> None:
    job = json.loads(hw("run", "--json", "python", "train.py", "--lr", "1", "--seed", "0").stdout)[
        "id"
    ]
    with hw.start("tensorboard", job, "--json") as child:
        try:
            assert child.stdout is not None
            text = b"".join(iter(child.stdout.readline, b"}\n")) + b"}"
            url = json.loads(text)["url"]
            wait_until(lambda: json.loads(_read(f"{url}data/runs")) == [job])
            shown = f"{url}data/plugin/scalars/scalars?run={job}&tag=val/acc"
            wait_until(lambda: len(json.loads(_read(shown))) == 20)
        finally:
            child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        data: bytes = answer.read()
    return data

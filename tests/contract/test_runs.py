"""Several runs in one process: each `init … finish` is a job of its own, in a script, under `hw run`
and in the kernel of a notebook.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

from tests import needs
from tests.driver import PYTHON, Hw
from tests.waiting import wait_until

SOURCE = Path(__file__).resolve().parents[2] / "src"
LOOP = """
import headway as hw
for lr in (0.1, 0.2, 0.3):
    hw.init(config={"lr": lr}, name=f"loop-{lr}")
    for i in range(3):
        hw.log({"loss": lr * i})
    hw.finish()
try:
    with hw.init(config={"lr": 9}, name="with") as run:
        run.log({"loss": 1.0})
        run.config["more"] = 3
        raise RuntimeError("boom")
except RuntimeError:
    pass
"""
KERNEL = """
import jupyter_client
manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
for cell in (
    "import headway as hw",
    "run = hw.init(config={'lr': 0.1}, name='cell'); hw.log({'loss': 1.0}); assert run.id",
    "hw.finish()",
    "hw.init(config={'lr': 0.2}, name='cell'); hw.log({'loss': 2.0})",
    "hw.init(config={'lr': 0.3}, name='cell'); hw.log({'loss': 3.0})",
):
    reply = client.execute_interactive(cell, timeout=60)
    assert reply["content"]["status"] == "ok", reply
manager.shutdown_kernel()
"""


def ended(hw: Hw, count: int) -> dict[str, dict[str, Any]]:
    def look() -> dict[str, dict[str, Any]]:
        jobs = hw.json("ls")
        done = [job for job in jobs if job["state"] in ("succeeded", "failed")]
        return {job["id"]: job for job in jobs} if len(done) == count else {}

    return wait_until(look, what=f"{count} jobs that have ended")


def by_name(hw: Hw, jobs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {job["name"]: hw.json("q", job_id) for job_id, job in jobs.items()}


def check_loop(found: dict[str, dict[str, Any]], hw: Hw) -> None:
    for lr in (0.2, 0.3):
        job = found[f"loop-{lr}"]
        assert (job["state"], job["config"]) == ("succeeded", {"lr": lr})
        (series,) = hw.json("metrics", job["id"])[job["id"]]["loss"]
        assert series["step"] == [0, 1, 2]
    failed = found["with"]
    assert failed["state"] == "failed" and failed["config"] == {"lr": 9, "more": 3}
    assert "boom" in failed["cause"]["text"]


def test_each_run_of_a_plain_script_is_a_job(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    hw.script(LOOP)
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
    env["HEADWAY_HOME"] = str(home)
    subprocess.run([PYTHON, "train.py"], cwd=tmp_path, env=env, check=True, timeout=60)
    found = by_name(hw, ended(hw, 4))
    check_loop(found, hw)
    assert found["loop-0.1"]["config"] == {"lr": 0.1}


def test_under_hw_run_the_first_run_is_the_job_and_later_ones_are_its_children(
    home: Path, tmp_path: Path
) -> None:
    hw = Hw(home, tmp_path)
    hw.script(LOOP)
    outer = hw.submit("--name", "outer", PYTHON, "train.py")
    found = by_name(hw, ended(hw, 4))
    check_loop(found, hw)
    assert found["outer"]["config"] == {"lr": 0.1} and found["outer"]["state"] == "succeeded"
    assert found["loop-0.2"]["parent"] == found["with"]["parent"] == outer


def test_each_run_of_a_notebook_is_a_job(home: Path, tmp_path: Path) -> None:
    python = Path(needs.program("jupyter-kernel", "pip install ipykernel")).parent / "python"
    hw = Hw(home, tmp_path)
    hw("ls")  # the server runs; the kernel's Python need not be able to start it
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
    env |= {"HEADWAY_HOME": str(home), "PYTHONPATH": str(SOURCE)}
    subprocess.run([python, "-c", KERNEL], env=env, check=True, timeout=120)
    jobs = [hw.json("q", job_id) for job_id in ended(hw, 3)]
    assert sorted((job["config"]["lr"], job["metrics"]["loss"]) for job in jobs) == [
        (0.1, 1.0),
        (0.2, 2.0),
        (0.3, 3.0),
    ]

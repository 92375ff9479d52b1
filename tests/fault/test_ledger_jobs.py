"""Where the time of real jobs went, and when one that waits is to start."""

from pathlib import Path

from tests.driver import Hw
from tests.waiting import wait_until

TIMED = """
import time, headway as hw
with hw.timed("load_data"):
    time.sleep(0.4)
for step in range(5):
    with hw.timed("train_step"):
        time.sleep(0.1)
    hw.log({"loss": 1.0}, step=step)
with hw.timed("validate"):
    time.sleep(0.3)
"""


def test_the_time_of_a_job_and_of_an_experiment_is_told_by_part(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    name = hw.script(TIMED)
    jobs = [hw.submit("-e", "x", "--cpus", "1", "python3", name) for _ in range(2)]
    for job in jobs:
        assert hw.wait_ended(job)["state"] == "succeeded"
    one = hw.json("why", jobs[0], "--ledger")
    assert one["parts"]["evaluation"] >= 0.3 and one["parts"]["compute"] >= 0.5
    assert abs(sum(one["parts"].values()) - one["total_s"]) < 0.01
    both = hw.json("why", "-e", "x", "--ledger")
    other = hw.json("why", jobs[1], "--ledger")
    assert both["jobs"] == 2 and abs(both["total_s"] - one["total_s"] - other["total_s"]) < 0.1
    assert both["parts"]["evaluation"] >= 0.6
    text = hw("why", "-e", "x", "--ledger").stdout.decode()
    assert text.startswith("x, 2 jobs:") and "evaluation" in text


def test_a_waiting_job_says_when_it_starts_from_what_like_jobs_took(
    home: Path, tmp_path: Path
) -> None:
    hw = Hw(home, tmp_path)
    hw.env["HEADWAY_MAX_RUNNING"] = "1"
    name = hw.script("import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n")
    first = hw.submit("--name", "t", "python3", name)
    hw.wait_state(first, "running")
    waits = hw.submit("--name", "t", "python3", name)
    told = hw.json("why", waits)
    finding, found = told["findings"][0], told["waiting"]
    assert finding["cause"] == "waits_limit" and finding["text"] == told["verdict"]
    assert finding["advice"].startswith("hw config set max_running 2")
    assert "not known" in found["start"] and found["start_ns"] is None
    assert "max_running 2" in found["sooner"][0]
    (tmp_path / "go").touch()
    hw.wait_ended(waits)
    (tmp_path / "go").unlink()
    hw.submit("--name", "t", "python3", name)
    last = hw.submit("--name", "t", "python3", name)

    def foretold() -> bool:
        found = hw.json("why", last)["waiting"] or {}
        return "jobs of this name took" in (found.get("start") or "")

    wait_until(foretold, what="a forecast")
    (tmp_path / "go").touch()
    hw.wait_ended(last)

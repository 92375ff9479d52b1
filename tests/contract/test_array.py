"""Arrays and sweeps as a person uses them: a real command, a real server."""

import json
from pathlib import Path

import pytest

from tests.driver import Hw
from tests.waiting import wait_until

TRAIN = "import os, sys; print(sys.argv[1:], os.environ['HEADWAY_ARRAY_INDEX']); sys.exit('2' in sys.argv)\n"
SWEEP = """\
name: sweep
command: python3 train.py --lr {{ lr }} --seed {{ seed }}
matrix: {lr: [0.1, 0.01], seed: [1, 2]}
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    found = Hw(home, tmp_path)
    found.script(TRAIN)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return found


def test_a_sweep_is_one_line_and_its_failed_jobs_run_again(hw: Hw) -> None:
    done = hw("submit", "--wait", "sweep.yaml")
    assert done.returncode == 1
    sweep = done.stdout.decode().strip()
    lines = hw("ls").stdout.decode().splitlines()
    assert [line for line in lines if f"{sweep} [4]" in line and "2 failed · 2 succeeded" in line]
    assert "2 failed · 2 succeeded" in hw("q", sweep[-5:]).stdout.decode()
    assert hw.json("q", sweep)["states"] == {"failed": 2, "succeeded": 2}
    jobs = hw.json("ls", "--array", sweep)
    assert sorted((job["array_index"], job["parameters"]["lr"], job["parameters"]["seed"]) for job in jobs) == [
        (0, 0.1, 1), (1, 0.1, 2), (2, 0.01, 1), (3, 0.01, 2),
    ]  # fmt: skip
    (third,) = (job for job in jobs if job["array_index"] == 2)
    out = hw("logs", third["id"], "--rank", "0", "--stream", "stdout").stdout
    assert out == b"['--lr', '0.01', '--seed', '1'] 2\n"
    again = hw("resubmit", sweep, "--failed")
    assert again.returncode == 0, again.stderr
    new = again.stdout.decode().strip()
    assert hw.json("q", new)["jobs"] == 2
    wait_until(lambda: hw.json("q", new)["states"] == {"failed": 2}, 60, "both failed again")
    gone = hw("delete", sweep)
    assert gone.stdout.decode() == f"{sweep}  4 jobs deleted\n", gone.stderr
    assert sweep not in hw("ls").stdout.decode() and hw("q", sweep).returncode == 3


def test_an_array_of_a_plain_command_survives_the_server_and_is_aborted_as_one(hw: Hw) -> None:
    done = hw("submit", "--json", "--array", "0-199", "sleep", "{{index}}00")
    array = json.loads(done.stdout)
    assert (array["jobs"], array["states"]) == (200, {"waiting": 200})
    hw.kill_server()
    assert sum(hw.json("q", array["id"])["states"].values()) == 200
    commands = {tuple(job["command"]) for job in hw.json("ls", "--array", array["id"])}
    assert commands == {("sleep", f"{n}00") for n in range(200)}
    early = hw("delete", array["id"])
    assert early.returncode == 1 and b"still has jobs" in early.stderr
    assert hw("abort", array["id"]).returncode == 0
    wait_until(lambda: hw.json("q", array["id"])["ended_at"], 60, "all are over")
    states = hw.json("q", array["id"])["states"]
    assert set(states) <= {"stopped", "succeeded"} and states["stopped"] >= 198


def test_the_metrics_of_an_array_are_those_of_its_jobs_and_its_name_leads_to_them(hw: Hw) -> None:
    hw.script(
        "import headway, os, sys\nindex = int(os.environ['HEADWAY_ARRAY_INDEX'])\n"
        "headway.log({'loss': index + 0.5}, step=7)\nprint('said', index)\n"
    )
    sweep = hw("submit", "--wait", "sweep.yaml").stdout.decode().strip()
    told = hw("metrics", sweep).stdout.decode().splitlines()
    assert told[0].split() == ["index", "id", "state", "parameters", "loss"]
    assert [(line.split()[0], line.split()[-1]) for line in told[1:]] == [
        (str(i), f"{i}.5") for i in range(4)
    ]
    ids = [
        job["id"]
        for job in sorted(hw.json("ls", "--array", sweep), key=lambda job: job["array_index"])
    ]
    points = hw.json("metrics", sweep[-5:], "-m", "loss")
    assert [points[job]["loss"][0]["value"] for job in ids] == [[i + 0.5] for i in range(4)]
    assert hw("metrics", sweep, "-m", "nothing").stdout == b""
    said = [line.split("  ", 1)[1] for line in hw("logs", sweep).stdout.decode().splitlines()]
    assert said == [f"{job[-5:]} [{i}]  0 │ said {i}" for i, job in enumerate(ids)]
    named = hw("metrics", "sweep")
    assert named.returncode == 0 and sweep.encode() in named.stderr, "a name selects, and says whom"


def test_hw_run_of_a_sweep_waits_for_all_its_jobs(hw: Hw) -> None:
    done = hw("run", "sweep.yaml", timeout_s=120)
    assert b"succeeded" in done.stderr
    found = hw.json("q", done.stdout.decode().strip())
    assert found["ended_at"] is not None


def test_what_is_no_array_is_told(hw: Hw) -> None:
    assert b"is not a range" in hw("submit", "--array", "a-b", "true").stderr
    job = hw.submit("true")
    assert b"--failed is for an array" in hw("resubmit", "--failed", job).stderr
    assert hw("ls", "--array", "nothing").returncode == 3


def test_an_array_waits_for_another_job_and_keeps_to_the_longest_hold_as_one_job_does(
    hw: Hw,
) -> None:
    failed = hw.submit("false")
    hw.wait_state(failed, "failed")
    refused = hw("submit", "--array", "2", "--after", failed, "true")
    assert refused.returncode != 0 and b"will not succeed" in refused.stderr
    slow = hw.submit("sleep", "60")
    array = json.loads(hw("submit", "--json", "--array", "2", "--after", slow, "true").stdout)["id"]
    hw.wait_state(slow, "running")
    assert hw.json("q", array)["states"] == {"waiting": 2}
    assert hw("abort", slow, array).returncode == 0
    wait_until(lambda: hw.json("q", array)["ended_at"], 60, "all are over")

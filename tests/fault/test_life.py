"""The life of a job with real processes: retries, holds, preemption, dependencies, whatever is
killed meanwhile.
"""

import json
import os
import signal
import stat
import subprocess
import tarfile  # noqa: TID251  (a bundle is looked into, never extracted)
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headway.views.api.source import Source
from tests.driver import HW, PYTHON, Hw, agents, alive
from tests.waiting import wait_until

FLAKY = """
import os, sys, time
import headway as hw
number = int(os.environ["HEADWAY_ATTEMPT"])
hw.log({"loss": 1.0 / number}, step=number)
print("attempt", number, flush=True)
sys.exit(int(sys.argv[number]))
"""
PATIENT = """
import os, signal, sys, time
import headway as hw
@hw.on_preempt
def save():
    print("saved by", os.environ["HEADWAY_ATTEMPT"], flush=True)
hw.init()
print("ready", flush=True)
while os.environ["HEADWAY_ATTEMPT"] == "1": time.sleep(0.02)
"""
DEAF = """
import os, signal, time
if os.environ["HEADWAY_ATTEMPT"] == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True: time.sleep(0.02)
"""
CANARY = "c4n4ry-Kd7wQ2-do-not-bundle"


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def test_a_run_tells_a_retry_behind_what_the_attempt_wrote_and_when_the_next_one_is_due(
    hw: Hw,
) -> None:
    hw.script(FLAKY)
    (hw.cwd / "job.yaml").write_text(
        "command: python3 train.py 7 0\nretry: {max: 1, backoff: 4s}\n"
    )
    done = subprocess.run(
        [*HW, "run", "job.yaml"],
        cwd=hw.cwd,
        env=hw.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    told = done.stdout.decode()
    where = [
        told.index(words)
        for words in ("attempt 1\n", "hw: attempt 1 failed", ", attempt 2 at ", "attempt 2\n")
    ]
    assert where == sorted(where), told
    assert "in the queue" not in told
    assert done.returncode == 0


def submit(hw: Hw, *command: str, **spec: Any) -> str:
    """Over HTTP, where the pause between two attempts can be made short."""
    source = Source.connect()
    asked = {"command": list(command), "cwd": str(hw.cwd), "name": "job", "grace_s": 20.0, **spec}
    job = source.post("/api/jobs", {"uuid": str(uuid4()), "spec": asked, "env": dict(os.environ)})
    source.close()
    return str(job["id"])


def quick(most: int = 0, **more: Any) -> dict[str, Any]:
    return {"max": most, "backoff_s": 0.1, **more}


def output(hw: Hw, job: str, *more: str) -> str:
    return hw("logs", job, "--stream", "stdout", *more).stdout.decode()


def test_a_retried_job_tells_the_story_of_each_attempt(hw: Hw) -> None:
    job = submit(hw, PYTHON, hw.script(FLAKY), "7", "200", "0", retry=quick(1))
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("succeeded", 0)
    causes = [
        (a["state"], a["exit_code"], (a["cause"] or {}).get("cause")) for a in found["attempts"]
    ]
    assert causes == [
        ("failed", 7, "unknown"),
        ("failed", 200, "declared_transient"),
        ("succeeded", 0, None),
    ]
    assert (found["retries"]["total"], found["retries"]["counted"]) == (2, 1)
    assert [a["tasks"][0]["node"] for a in found["attempts"]] == [os.uname().nodename] * 3
    assert output(hw, job) == "attempt 3\n" and output(hw, job, "--attempt", "1") == "attempt 1\n"
    series = hw.json("metrics", job)[job]["loss"]
    assert [(one["attempt"], one["step"]) for one in series] == [(1, [1]), (2, [2]), (3, [3])]
    page = hw("q", job).stdout.decode()
    assert "2 retries, 1 counted of 1" in page and "exited with code 7 → retry 1 of 1" in page


def test_a_command_that_fails_by_itself_is_run_once(hw: Hw) -> None:
    done = hw("run", "--json", PYTHON, hw.script(FLAKY), "3", "0")
    found = json.loads(done.stdout)
    assert done.returncode == 3 and len(found["attempts"]) == 1 and found["retries"]["total"] == 0


def test_a_job_between_two_attempts_survives_the_server_and_can_be_aborted(hw: Hw) -> None:
    job = submit(hw, PYTHON, hw.script(FLAKY), "1", "0", retry={"max": 1, "backoff_s": 600.0})
    found = wait_until(
        lambda: (j := hw.json("q", job))["retries"]["next_at"] and j, what="the pause"
    )
    assert found["state"] == "waiting" and found["exit_code"] is None
    hw.kill_server()
    again = hw.json("q", job)
    assert again["retries"] == found["retries"] and len(again["attempts"]) == 1
    assert "attempt 2 at" in hw("ls").stdout.decode()
    hw("abort", job)
    ended = hw.wait_ended(job)
    assert ended["state"] == "stopped" and "waited for attempt 2" in ended["cause"]["text"]
    assert ended["attempts"][0]["cause"]["cause"] == "unknown"


def test_a_server_killed_again_and_again_starts_each_attempt_once(hw: Hw) -> None:
    """F23, P9."""
    count = 'import os, sys; open("starts.txt", "a").write(os.environ["HEADWAY_ATTEMPT"] + "\\n"); sys.exit(200)'
    job = submit(hw, PYTHON, hw.script(count), retry=quick(total_max=4))
    starts = hw.cwd / "starts.txt"
    for number in range(1, 5):
        wait_until(
            lambda n=number: starts.exists() and len(starts.read_text().split()) >= n,
            what=f"attempt {number}",
        )
        hw.kill_server()
        hw("server", "start")
    hw.wait_ended(job)
    assert starts.read_text().split() == ["1", "2", "3", "4", "5"]
    assert len(hw.json("q", job)["attempts"]) == 5 and len(hw.json("ls")) == 1


def test_a_held_job_can_be_entered_and_keeps_its_exit_code(hw: Hw) -> None:
    job = hw.submit("--hold", "1h", "--env", "FLAVOUR=mint", PYTHON, hw.script(FLAKY), "5")
    found = hw.wait_state(job, "held")
    assert found["exit_code"] == 5 and found["hold"]["until"] and found["attach"]
    typed = b"echo in $(pwd) as $HEADWAY_LOCAL_RANK of $HEADWAY_JOB with $FLAVOUR\n"
    shell = subprocess.run(
        [*HW, "shell", job],
        cwd="/",
        env=hw.env | {"SHELL": "/bin/sh"},
        input=typed,
        capture_output=True,
        timeout=30,
    )
    assert f"in {hw.cwd} as 0 of {job} with mint" in shell.stdout.decode(), shell.stderr.decode()
    assert hw("release", job).returncode == 0
    ended = hw.wait_ended(job)
    assert (ended["state"], ended["exit_code"]) == ("failed", 5)
    assert hw("shell", job).returncode == 1 and hw("release", job).returncode == 1


def test_a_hold_ends_by_itself_and_comes_after_the_last_attempt(hw: Hw) -> None:
    job = submit(hw, PYTHON, hw.script(FLAKY), "1", "6", retry=quick(1), hold_s=1.0)
    found = hw.wait_state(job, "held", "failed")
    assert len(found["attempts"]) == 2
    assert hw.wait_ended(job)["exit_code"] == 6


def test_a_hold_is_freed_when_its_agent_is_killed(hw: Hw) -> None:
    job = hw.submit("--hold", "1h", PYTHON, hw.script(FLAKY), "5")
    hw.wait_state(job, "held")
    for pid in agents(hw.home, "shim"):
        os.kill(pid, signal.SIGKILL)
    ended = hw.wait_ended(job)
    assert (ended["state"], ended["exit_code"]) == ("failed", 5)


def test_a_longer_hold_than_the_administrator_allows_is_refused(hw: Hw) -> None:
    done = hw("submit", "--hold", "2h", "true", env={"HEADWAY_HOLD_MAX_S": "3600"})
    assert done.returncode == 1 and b"1h at most" in done.stderr
    assert hw("submit", "--hold", "8d", "true").returncode == 2


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_preempted_job_hears_of_it_saves_and_goes_on(hw: Hw, signum: int) -> None:
    """F32."""
    script = PATIENT.replace("flush=True)\nhw.init", "flush=True); sys.exit(3)\nhw.init")
    job = submit(hw, PYTHON, hw.script(script), retry=quick())
    wait_until(lambda: output(hw, job) == "ready\n", what="the start")
    os.kill(agents(hw.home, "shim")[0], signum)
    found = hw.wait_ended(job)
    first = found["attempts"][0]
    assert found["state"] == "succeeded" and (
        first["cause"]["cause"],
        first["retry"]["counted"],
    ) == (
        "preempted",
        False,
    )
    assert output(hw, job, "--attempt", "1") == "ready\nsaved by 1\n"
    assert {"preempt_notice", "retry"} <= set(events(job))


@pytest.mark.parametrize("grace_s", [0.0, 0.5])
def test_a_preemption_that_kills_everything_is_still_told_as_one(hw: Hw, grace_s: float) -> None:
    """F32: SIGTERM, and soon SIGKILL for the agents and for all that they started."""
    job = submit(hw, PYTHON, hw.script(DEAF), retry=quick())
    wait_until(lambda: output(hw, job) == "ready\n", what="the start")
    (shim,) = agents(hw.home, "shim")
    (rank,) = [p["pid"] for t in hw.json("q", job)["attempts"][0]["tasks"] for p in t["processes"]]
    os.kill(shim, signal.SIGTERM)
    if grace_s:
        wait_until(lambda: "stop_requested" in events(job), what="the notice")
    else:
        wait_until(lambda: b"stop_requested" in spool(hw, job, "shim"), what="the record")
    for pid in (shim, *agents(hw.home, "shipper"), rank):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    found = hw.wait_ended(job)
    assert found["state"] == "succeeded" and found["attempts"][0]["cause"]["cause"] == "preempted"


def events(job: str) -> list[str]:
    source = Source.connect()
    found = [str(event["type"]) for event in source.get(f"/api/jobs/{job}/events")]
    source.close()
    return found


def spool(hw: Hw, job: str, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in (hw.home / "spool").glob(f"*/{name}"))


def test_a_stop_that_races_the_end_leaves_one_final_state(hw: Hw) -> None:
    """F25."""
    jobs = [submit(hw, PYTHON, "-c", "import time; time.sleep(0.2)") for _ in range(4)]
    for job in jobs:
        hw("abort", job)
    first = {job: hw.wait_ended(job)["state"] for job in jobs}
    assert set(first.values()) <= {"succeeded", "stopped"}
    hw.kill_server()
    assert {job: hw.json("q", job)["state"] for job in jobs} == first


def test_a_job_waits_for_another_and_is_stopped_with_its_name_when_that_fails(hw: Hw) -> None:
    first = hw.submit(
        "--name",
        "first",
        PYTHON,
        "-c",
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)",
    )
    second = hw.submit("--name", "second", "--after", first, "true")
    third = hw.submit("--name", "third", "--after", second, "--after", first, "false")
    fourth = hw.submit("--name", "fourth", "--after", third, "true")
    assert hw.json("q", second)["state"] == "waiting"
    (hw.cwd / "go").touch()
    assert [hw.wait_ended(job)["state"] for job in (first, second, third)] == [
        "succeeded",
        "succeeded",
        "failed",
    ]
    found = hw.wait_ended(fourth)
    assert (found["state"], found["cause"]["cause"]) == (
        "stopped",
        "dependency",
    ) and third in found["cause"]["text"]
    late = hw("submit", "--after", third, "true")
    assert late.returncode == 1 and third.encode() in late.stderr


def test_a_bundle_holds_the_story_and_no_secret(hw: Hw) -> None:
    script = "import os, sys; print('key', os.environ['MY_API_TOKEN'], flush=True); sys.exit(9)"
    job = hw.submit(PYTHON, hw.script(script), "--api-key", CANARY, env={"MY_API_TOKEN": CANARY})
    hw.wait_ended(job)
    done = hw("bundle", job, "-o", "help.tar.gz", env={"MY_API_TOKEN": CANARY})
    assert done.returncode == 0, done.stderr.decode()
    path = hw.cwd / "help.tar.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as bundle:
        files = {
            m.name.partition("/")[2]: bundle.extractfile(m).read() for m in bundle.getmembers()
        }  # type: ignore[union-attr]
    assert json.loads(files["job.json"])["attempts"][0]["cause"]["cause"] == "unknown"
    assert b"key ***" in files["logs/1/worker-0/stdout-0"] and {
        "events.json",
        "server.log",
        "machine.json",
    } <= set(files)
    assert not [name for name, data in files.items() if CANARY.encode() in data]
    assert hw("bundle", job, "-o", "help.tar.gz").returncode == 2  # it never replaces a file
    assert (
        b"cannot be written: No such file or directory"
        in hw("bundle", job, "-o", "nowhere/help.tar.gz").stderr
    )

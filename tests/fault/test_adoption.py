"""Adoption with real parts: what a killed server left is found by its key and goes on (F21, F23,
F28, P10).
"""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw, agents, alive
from tests.waiting import wait_until

COUNTER = """
import os, sys, time
with open("starts.txt", "a") as file: file.write("%d\\n" % os.getpid())
until = sys.argv[1]
while not os.path.exists(until): time.sleep(0.02)
print("seen", until)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def starts(hw: Hw) -> int:
    path = hw.cwd / "starts.txt"
    return len(path.read_text().split()) if path.exists() else 0


def test_a_job_that_ends_while_no_server_runs_is_told_by_the_next_one(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(COUNTER), "go", "3")
    wait_until(lambda: starts(hw) == 1, what="the start")
    hw.kill_server()
    (hw.cwd / "go").touch()
    wait_until(lambda: not agents_with_ranks(hw), what="the command's end")
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("failed", 3)
    assert hw("logs", job, "--stream", "stdout").stdout == b"seen go\n"
    assert starts(hw) == 1


def agents_with_ranks(hw: Hw) -> list[int]:
    pids = [int(line) for line in (hw.cwd / "starts.txt").read_text().split()]
    return [pid for pid in pids if alive(pid)]


def test_a_job_that_waits_is_started_by_the_next_server_in_its_turn(hw: Hw) -> None:
    hw.env["HEADWAY_MAX_RUNNING"] = "1"
    script = hw.script(COUNTER)
    first, second = hw.submit(PYTHON, script, "go", "0"), hw.submit(PYTHON, script, "go", "0")
    wait_until(lambda: starts(hw) == 1, what="the first start")
    assert hw.json("q", second)["state"] == "waiting"
    hw.kill_server()
    assert hw.json("q", second)["state"] == "waiting"
    (hw.cwd / "go").touch()
    assert hw.wait_ended(first)["state"] == hw.wait_ended(second)["state"] == "succeeded"
    assert starts(hw) == 2


def test_a_stop_that_the_server_did_not_live_to_pass_on_is_passed_on(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(COUNTER), "never", "0")
    wait_until(lambda: starts(hw) == 1, what="the start")
    assert hw("abort", job).returncode == 0
    hw.kill_server()
    found = hw.wait_ended(job)
    assert found["state"] == "stopped" and starts(hw) == 1


def test_submissions_while_the_server_is_killed_again_and_again_are_each_started_once(
    hw: Hw,
) -> None:
    """P9, F23: whoever got an id has exactly that job."""
    hw.env["HEADWAY_MAX_RUNNING"] = "50"
    script = hw.script(COUNTER)
    started = [hw.start("submit", "--json", PYTHON, script, "go", "0") for _ in range(12)]
    for _ in range(4):
        seen = starts(hw)
        wait_until(
            lambda seen=seen: starts(hw) > seen or all(p.poll() is not None for p in started),
            what="a start",
        )  # type: ignore[misc]
        try:
            hw.kill_server()
        except (OSError, ValueError):
            continue  # the next one is not up yet
    outputs = [process.communicate(timeout=60)[0] for process in started]
    ids = {
        json.loads(out)["id"]
        for process, out in zip(started, outputs, strict=True)
        if process.returncode == 0
    }
    known = {row["id"] for row in hw.json("ls")}
    assert ids <= known
    wait_until(lambda: starts(hw) == len(known), what="every job started once")
    (hw.cwd / "go").touch()
    assert all(hw.wait_ended(job)["state"] == "succeeded" for job in known)
    assert starts(hw) == len(known)


def test_data_that_its_agents_could_not_send_is_sent_by_the_next_server(hw: Hw) -> None:
    """F21: shim and shipper are killed while no server runs, after the command has ended."""
    job = hw.submit(PYTHON, hw.script(COUNTER), "go", "7")
    wait_until(lambda: starts(hw) == 1, what="the start")
    hw.kill_server()
    (hw.cwd / "go").touch()
    wait_until(lambda: not agents_with_ranks(hw), what="the command's end")
    spool = next((hw.home / "spool").glob("*-worker-0"))
    wait_until(lambda: b"task_ended" in (spool / "shim").read_bytes(), what="the exit record")
    for pid in agents(hw.home, "shim") + agents(hw.home, "shipper"):
        os.kill(pid, signal.SIGKILL)
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("failed", 7)
    assert hw("logs", job, "--stream", "stdout").stdout == b"seen go\n"
    wait_until(lambda: not list((hw.home / "spool").glob("*-worker-0")), what="the spool's end")


def test_a_second_shim_for_the_same_task_starts_nothing(hw: Hw) -> None:
    """F28."""
    from headway.home.launch import agent_argv

    job = hw.submit(PYTHON, hw.script(COUNTER), "go", "0")
    wait_until(lambda: starts(hw) == 1, what="the start")
    spool = next((hw.home / "spool").glob("*-worker-0"))
    import subprocess

    second = subprocess.run(agent_argv("shim", spool), capture_output=True, timeout=30, env=hw.env)
    assert second.returncode != 0
    (hw.cwd / "go").touch()
    assert hw.wait_ended(job)["state"] == "succeeded" and starts(hw) == 1


def test_environments_and_tokens_do_not_outlive_their_jobs(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(COUNTER), "go", "0", env={"MY_API_KEY": "hunter22hunter22"})
    wait_until(lambda: starts(hw) == 1, what="the start")
    (token,) = [json.loads(p.read_text())["token"] for p in (hw.home / "spool").glob("*/task.json")]
    (hw.cwd / "go").touch()
    hw.wait_ended(job)
    wait_until(lambda: not list((hw.home / "env").glob("*.json")), what="the environment's end")
    wait_until(lambda: not list((hw.home / "spool").glob("*-worker-0")), what="the spool's end")
    wait_until(lambda: rejects(hw, token), what="the token's end")


def rejects(hw: Hw, token: str) -> bool:
    from headway.home import connect, paths

    path = paths.socket_path(hw.home)
    return (
        connect.request(path, "POST", "/agent/ingest", body=b"", token=token, timeout_s=10).status
        == 401
    )

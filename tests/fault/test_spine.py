"""The whole path with real parts, and kill -9 on each of them (P2, P3, P4, P9, P10; F1, F3, F4)."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw, agents, alive
from tests.waiting import wait_until

LOGGER = """
import os, sys, time
import headway as hw
n = int(sys.argv[1]); pause = float(sys.argv[2])
said = open("returned.txt", "a", buffering=1)
for i in range(n):
    hw.log({"x": i, "y": -i}, step=i)
    os.write(said.fileno(), b"%d\\n" % i)
    if pause: time.sleep(pause)
print("logged", n)
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def returned(hw: Hw) -> list[int]:
    path = hw.cwd / "returned.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def complete(hw: Hw, job: str, n: int) -> bool:
    return hw.points(job, "x") == [float(i) for i in range(n)]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0), (["false"], 1), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143), (["/no/such/program"], 127), (["/etc/passwd"], 126),
    ],
)  # fmt: skip
def test_hw_run_exits_as_the_job_does(hw: Hw, command: list[str], code: int) -> None:
    assert hw("run", *command).returncode == code


def test_a_server_killed_again_and_again_loses_no_point(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(LOGGER), "2000", "0.002")
    for _ in range(4):
        seen = len(returned(hw))
        wait_until(
            lambda seen=seen: len(returned(hw)) > seen + 200 or len(returned(hw)) >= 2000,
            what="more points",
        )
        hw.kill_server()
        assert hw("ls").returncode == 0
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("succeeded", 0)
    wait_until(lambda: complete(hw, job, 2000), what="every point, once, in order")
    assert [j["id"] for j in hw.json("ls")] == [job]


def test_a_shipper_killed_again_and_again_loses_no_point_and_no_line(hw: Hw) -> None:
    patient = LOGGER.replace("print(", "while not os.path.exists('go'): time.sleep(0.02)\nprint(")
    job = hw.submit(PYTHON, hw.script(patient), "500", "0.002")
    for _ in range(4):
        (pid,) = wait_until(lambda: agents(hw.home, "shipper"), what="a shipper")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid), what="its death")
    (hw.cwd / "go").touch()
    assert hw.wait_ended(job)["state"] == "succeeded"
    wait_until(lambda: complete(hw, job, 500), what="every point, once, in order")
    assert hw("logs", job, "--stream", "stdout").stdout == b"logged 500\n"


def test_a_trainer_killed_by_signal_9_keeps_every_returned_point(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(LOGGER), "1000000", "0")
    wait_until(lambda: len(returned(hw)) > 5000, what="points")
    (process,) = wait_until(
        lambda: hw.json("q", job)["attempts"][0]["tasks"][0]["processes"], what="its pid"
    )
    os.kill(process["pid"], signal.SIGKILL)
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"], found["signal"]) == ("failed", None, 9)
    n = len(returned(hw))
    wait_until(lambda: len(hw.points(job, "x")) >= n, what="all returned points")
    values = hw.points(job, "x")
    assert values == [float(i) for i in range(len(values))] and n <= len(values) <= n + 1


def test_a_killed_shim_costs_the_exit_code_and_nothing_else(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(LOGGER), "600", "0.005")
    wait_until(lambda: len(returned(hw)) > 50, what="points")
    (shim,) = agents(hw.home, "shim")
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: len(returned(hw)) == 600, what="the training to go on to its end")
    wait_until(lambda: complete(hw, job, 600), what="every point")
    found = wait_until(lambda: (q := hw.json("q", job))["ended_at"] and q, what="the end")
    assert found["state"] == "unknown" and found["exit_code"] is None
    assert found["attempts"][0]["cause"]["cause"] == "agent_lost"


def test_shim_and_shipper_killed_together_are_salvaged(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(LOGGER), "400", "0.005")
    wait_until(lambda: len(returned(hw)) > 50, what="points")
    for pid in agents(hw.home, "shim") + agents(hw.home, "shipper"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(returned(hw)) == 400, what="the training to go on to its end")
    wait_until(lambda: complete(hw, job, 400), what="every point")


def test_a_plain_script_becomes_a_job_of_its_own(hw: Hw) -> None:
    done = subprocess.run(
        [PYTHON, hw.script(LOGGER, "plain.py"), "300", "0"],
        cwd=hw.cwd,
        env=hw.env,
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (0, b"logged 300\n")
    (row,) = wait_until(lambda: hw.json("ls"), what="the job")
    found = hw.wait_ended(row["id"])
    assert (found["name"], found["state"], found["exit_code"]) == ("plain", "succeeded", 0)
    assert complete(hw, row["id"], 300)


def test_four_ranks_have_their_own_series_and_the_first_failing_one_is_named(hw: Hw) -> None:
    script = hw.script(
        "import os, time\nimport headway as hw\nrank = int(os.environ['RANK'])\n"
        "assert os.environ['WORLD_SIZE'] == '4' and os.environ['LOCAL_RANK'] == str(rank)\n"
        "for i in range(20): hw.log({'loss': rank + i}, step=i)\n"
        "if rank == 2: time.sleep(0.3); raise ValueError('bad batch')\ntime.sleep(60)\n"
    )
    done = hw("run", "--name", "four", "-n", "4", PYTHON, script)
    assert done.returncode == 1, done.stderr.decode()
    assert b"ValueError: bad batch" in done.stderr and b"rank 2" in done.stderr
    (row,) = hw.json("ls")
    found = hw.json("q", row["id"])
    cause = found["attempts"][0]["cause"]
    assert (cause["cause"], cause["class"], cause["rank"]) == ("code_exception", "user", 2)
    for rank in range(4):
        assert hw.points(row["id"], "loss", rank) == [float(rank + i) for i in range(20)]


def test_twenty_commands_at_once_start_exactly_one_server(hw: Hw) -> None:
    started = [hw.start("server", "status", "--json") for _ in range(20)]
    started += [hw.start("ls", "--json") for _ in range(20)]
    told = [p.communicate(timeout=60)[1] for p in started]
    assert {p.returncode for p in started[:20]} <= {0, 4}
    assert all(p.returncode == 0 for p in started[20:]), told
    wait_until(
        lambda: servers(hw.home) == [hw.server_pid()], what="the losers of the race to leave"
    )


def test_the_server_never_kills_what_it_does_not_know(hw: Hw) -> None:
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        job = hw.submit("sleep", "300")
        hw.wait_state(job, "running")
        hw.kill_server()
        assert hw("abort", job).returncode == 0
        assert hw.wait_ended(job)["state"] == "stopped"
        assert alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def servers(home: Path) -> list[int]:
    return [
        int(p.name)
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and _reads(p / "environ", f"HEADWAY_HOME={home}".encode())
        and _reads(p / "cmdline", b"headway.server")
    ]  # fmt: skip


def _reads(path: Path, needle: bytes) -> bool:
    try:
        return needle in path.read_bytes()
    except OSError:
        return False

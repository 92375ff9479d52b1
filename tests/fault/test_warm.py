"""The warm launcher: shims that are forked are as those that are executed, and its death costs
warmth only.
"""

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Hw, agents, alive
from tests.many import lines, submit
from tests.waiting import wait_until

SHOW = "echo $SECRET_WORD; umask; ulimit -n; ls -l /proc/self/fd | grep -c socket; cut -d' ' -f6 /proc/$$/stat; pwd; "
# of the shell itself it may be asked while it forks
SHOW += "grep -E 'Sig(Ign|Blk)' /proc/self/status"


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def warm_up(hw: Hw) -> int:
    """The pid of a launcher that has forked a shim."""
    for _ in range(2):
        hw.wait_ended(submit(hw, {"command": ["true"]}))
    (pid,) = wait_until(lambda: agents(hw.home, "warm"), what="the launcher")
    job = submit(hw, {"command": ["sleep", "60"]})
    hw.wait_state(job, "running")
    wait_until(
        lambda: any(parent(shim) == pid for shim in agents(hw.home, "shim")), what="a forked shim"
    )
    assert hw("abort", job).returncode == 0
    hw.wait_ended(job)
    return pid


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ended(
    hw: Hw, spec: dict[str, Any], env: dict[str, str] | None = None
) -> tuple[str, dict[str, Any]]:
    job = submit(hw, spec, env)
    return job, hw.wait_ended(job)


def test_a_forked_task_is_as_an_executed_one_and_nothing_leaks_from_task_to_task(hw: Hw) -> None:
    spec: dict[str, Any] = {
        "command": ["sh", "-c", SHOW],
        "umask": 0o027,
        "rlimits": {"NOFILE": [77, 99]},
    }
    cold, first = ended(hw, spec, {"SECRET_WORD": "first-secret-word"})
    warm_up(hw)
    warm, second = ended(hw, spec)
    assert (first["state"], second["state"]) == ("succeeded", "succeeded")
    then, now = lines(hw, cold, 0), lines(hw, warm, 0)
    assert then[1:4] == now[1:4] == ["0027", "77", "0"] and then[5] == now[5] == str(hw.cwd)
    assert now[0] == "" and then[4] != now[4] and then[6:] == now[6:]
    # needs nothing but an exec
    spec["rlimits"] = {"NOFILE": [77, resource.getrlimit(resource.RLIMIT_NOFILE)[1]]}
    spawned, third = ended(hw, spec)
    assert third["state"] == "succeeded"
    last = lines(hw, spawned, 0)
    assert last[:4] == ["", "0027", "77", "0"] and last[5:] == now[5:] and last[4] != now[4]


def test_exit_codes_and_signals_come_back_from_forked_tasks(hw: Hw) -> None:
    warm_up(hw)
    assert ended(hw, {"command": ["sh", "-c", "exit 7"]})[1]["exit_code"] == 7
    assert ended(hw, {"command": ["sh", "-c", "kill -9 $$"]})[1]["signal"] == 9
    assert ended(hw, {"command": ["no-such-program"]})[1]["exit_code"] == 127


def test_the_death_of_the_launcher_ends_nothing_and_the_next_task_starts_without_it(hw: Hw) -> None:
    pid = warm_up(hw)
    job = submit(hw, {"command": ["sleep", "60"]})
    hw.wait_state(job, "running")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), what="the launcher's death")
    assert ended(hw, {"command": ["true"]})[1]["state"] == "succeeded"
    assert hw.json("q", job)["state"] == "running"
    assert hw("abort", job).returncode == 0
    assert hw.wait_ended(job)["state"] == "stopped"


def test_forked_tasks_outlive_server_and_launcher(hw: Hw) -> None:
    """P10: the next server finds the task by its folder, pid and start time, as ever."""
    pid = warm_up(hw)
    go = hw.cwd / "go"
    job = submit(hw, {"command": ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 3"]})
    hw.wait_state(job, "running")
    hw.kill_server()
    wait_until(lambda: not alive(pid), what="the launcher's end")
    assert hw.json("q", job)["state"] == "running"
    go.touch()
    assert hw.wait_ended(job)["exit_code"] == 3

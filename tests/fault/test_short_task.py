"""A task that is over before it had a shipper: its own process sends it, and whatever is killed,
nothing is lost.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.agent.observe import git
from tests.driver import alive
from tests.fault.agent_rig import PYTHON, Rig, Task, children
from tests.waiting import wait_until

# As the warm launcher starts it, but with all the time in the world for a task to count as short.
SHIM = """
import sys
from headway.agent.shim import shim
shim.SHIPS_AFTER_S, shim.SHIP_HERE_S = 600.0, float(sys.argv[2])
sys.exit(shim.Shim(sys.argv[1], warm=True).run())
"""
SECRET = "swordfish-0123456789"


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with Rig(home) as made:
        yield made


def start(rig: Rig, *argv: str, ship_here_s: float = 600.0) -> Task:
    task = rig.make(*argv, env={"MY_TOKEN": SECRET})
    task.shim = rig.spawn(PYTHON, "-c", SHIM, str(task.dir), str(ship_here_s))
    return task


def start_without_server(rig: Rig, ship_here_s: float = 600.0) -> Task:
    """Over, and not sent: it has told its end to nobody."""
    rig.server.stop()
    task = start(rig, "sh", "-c", "echo said $MY_TOKEN; exit 5", ship_here_s=ship_here_s)
    wait_until(
        lambda: [fact for fact in task.shim_facts() if fact["type"] == "task_ended"], what="its end"
    )
    return task


def check_all_is_there(rig: Rig) -> None:
    ended = rig.server.ended()
    assert ended is not None and ended["exit_code"] == 5
    assert rig.server.text("stdout-0") == b"said " + b"*" * len(SECRET) + b"\n"


def test_the_process_that_ran_it_sends_it_with_its_provenance(rig: Rig) -> None:
    task = start(rig, "sh", "-c", "exit 3")
    assert rig.finish(task)["exit_code"] == 3
    assert task.shim is not None and task.shim.returncode == 0
    (told,) = rig.server.facts("provenance")
    assert told["command"][0] == "sh" and told["git"] is None
    assert [name for name in rig.server.streams if name.startswith(f"shipper-{task.shim.pid}-")]


def test_what_git_said_of_the_same_files_goes_with_the_rest(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    # the person's own settings of git may change meanwhile
    monkeypatch.setenv("HOME", str(rig.home.parent))
    cwd = rig.home.parent / "cwd"
    cwd.mkdir()
    (cwd / "train.py").write_text("one\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."]):
        subprocess.run(["git", *words], cwd=cwd, check=True)
    answer = git.ask(str(cwd))
    assert answer.state is not None and answer.state["branch"] == "main"
    mark = git._mark(answer.files)[0]
    git.keep(
        git.Answer({**answer.state, "branch": "as-kept"}, answer.top, answer.files, mark),
        str(rig.home),
    )
    rig.finish(start(rig, "sh", "-c", "exit 3"))
    (told,) = rig.server.facts("provenance")
    assert told["git"]["branch"] == "as-kept"


def test_without_a_server_it_waits_for_one_and_masks_what_it_sends(rig: Rig) -> None:
    task = start_without_server(rig)
    rig.server.start()
    rig.finish(task)
    check_all_is_there(rig)


def test_killed_over_sending_it_is_salvaged_and_still_masked(rig: Rig) -> None:
    task = start_without_server(rig)
    wait_until(lambda: (task.dir / ".secrets").exists(), what="what the next shipper must mask")
    assert task.shim is not None
    task.shim.kill()
    task.shim.wait()
    rig.server.start()
    rig.adopt(task).wait(60)
    check_all_is_there(rig)


def test_where_it_cannot_be_sent_in_time_a_shipper_of_its_own_does_it(rig: Rig) -> None:
    task = start_without_server(rig, ship_here_s=0.1)
    assert task.shim is not None
    (shipper,) = wait_until(
        lambda: children(task.shim.pid) if task.shim else [], what="a shipper of its own"
    )
    os.kill(shipper, signal.SIGKILL)
    wait_until(lambda: not alive(shipper), what="its death")
    rig.server.start()
    rig.finish(task)
    check_all_is_there(rig)

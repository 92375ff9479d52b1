"""An agent on another machine, whose locks are not seen here, and somebody who would take over for
it (F33).

The other machine is played by another boot id, and locks that are not seen by lock files that are
others by then.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.wire.file_lock import TAKEN
from tests.driver import alive
from tests.fault.agent_rig import PYTHON, Rig, Task, script
from tests.waiting import wait_until

# An agent as on any machine, with a shorter time between two looks; and one of another machine.
AGENT = """
import sys
from headway.model import limits
from headway.wire import identity
limits.CLAIM_LOOK_S, limits.CLAIM_S = 0.2, 2.0
if machine := sys.argv.pop(1):
    identity.boot_id = lambda: machine
    from headway.agent import process
    process.everybody = lambda: []
from headway.agent.main import main
main()
"""
COUNT = (
    "import time\ni = 0\nwhile True:\n    print('line', i, flush=True); i += 1; time.sleep(0.02)"
)


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with Rig(home) as made:
        yield made


def start(rig: Rig, *argv: str) -> Task:
    """A task in a folder that other machines see, but not its locks."""
    task = rig.make(*argv, tray=str(rig.home / "tray"))
    task.shim = rig.spawn(PYTHON, "-c", AGENT, "", "shim", str(task.dir))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    for name in ("shim.lock", "shipper.lock"):
        os.unlink(task.dir / name)
    return task


def adopt(rig: Rig, task: Task) -> subprocess.Popen[bytes]:
    return rig.spawn(PYTHON, "-c", AGENT, "login", "shipper", str(task.dir), "--adopt")


def test_an_agent_that_lives_keeps_its_task_whoever_claims_it(rig: Rig) -> None:
    task = start(
        rig,
        *script(
            "import time\nfor i in range(400):\n    print('line', i, flush=True); time.sleep(0.01)"
        ),
    )
    assert adopt(rig, task).wait(30) == 3
    assert rig.server.ended() is None, "nothing was told of an end"
    assert rig.finish(task)["exit_code"] == 0
    assert rig.server.text("stdout-0") == b"".join(b"line %d\n" % i for i in range(400))
    assert [fact["type"] for fact in rig.server.facts()].count("task_ended") == 1


def test_one_that_stood_still_so_long_that_it_was_taken_over_stops_and_loses_and_doubles_nothing(
    rig: Rig,
) -> None:
    task = start(rig, *script(COUNT))
    assert task.shim is not None
    (rank,) = task.rank_pids()
    shipper = task.shipper()
    for pid in (task.shim.pid, shipper, rank):
        os.kill(pid, signal.SIGSTOP)
    assert adopt(rig, task).wait(60) == 0
    ended = rig.server.ended()
    assert ended is not None and ended["lost"] is True
    assert json.loads((task.dir / TAKEN).read_text())["boot_id"] == "login"
    sent = rig.server.text("stdout-0")
    os.kill(rank, signal.SIGCONT)
    wait_until(
        lambda: (task.dir / "stdout-0").stat().st_size > len(sent), what="more of its output"
    )
    for pid in (task.shim.pid, shipper):
        os.kill(pid, signal.SIGCONT)
    task.shim.wait(30)
    wait_until(lambda: not alive(rank) and not alive(shipper), what="the end of its processes")
    assert "somebody on another machine speaks for this task now" in task.log()
    whole = (task.dir / "stdout-0").read_bytes()
    assert rig.server.text("stdout-0") == sent and len(whole) > len(sent), (
        "it wrote more, which nobody has sent yet"
    )
    assert adopt(rig, task).wait(60) == 0
    assert rig.server.text("stdout-0") == whole
    lines = whole.decode().splitlines()
    assert lines == [f"line {i}" for i in range(len(lines))]
    types = [fact["type"] for fact in rig.server.facts()]
    assert types.count("task_ended") == 1 and types.count("process_exited") <= 1

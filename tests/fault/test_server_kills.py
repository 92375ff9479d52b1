"""Commands that meet a server at its death: each submission is one job that runs once, and no
command fails for it.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests import processes
from tests.driver import Hw
from tests.waiting import wait_until

# fewer than the times that a request is repeated, so however they fall, each command gets through
KILLS = 5


def servers(home: Path) -> list[int]:
    """Pids of this home's servers, also of one that has only begun to start."""
    found = []
    for pid in processes.of_home(home):
        with contextlib.suppress(OSError):
            if b"headway.server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


@contextlib.contextmanager
def killing(home: Path) -> Iterator[list[int]]:
    """Ends servers without warning, at moments that nobody has chosen; the list grows with each."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < KILLS and not over.is_set():
            for pid in servers(home):
                over.wait(random.uniform(0.0, 1.0))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_whatever_server_is_killed_each_submission_runs_once_and_no_command_fails(
    home: Path, tmp_path: Path
) -> None:
    hw, ran = Hw(home, tmp_path), tmp_path / "ran"
    jobs: list[str] = []
    with killing(home) as killed:
        while len(killed) < KILLS:
            jobs.append(hw.submit("sh", "-c", f"echo $HEADWAY_JOB >> {ran}"))
            waiting = hw.submit("sleep", "600")
            assert {job["id"] for job in hw.json("ls")} >= {*jobs, waiting}
            assert hw.json("abort", waiting)[0]["id"] == waiting
            assert hw.json("q", waiting)["id"] == waiting
            assert hw.wait_ended(waiting)["state"] == "stopped"
            jobs.append(waiting)
    wait_until(
        lambda: {job["state"] for job in hw.json("ls")} == {"succeeded", "stopped"},
        what="the end of all jobs",
    )
    assert sorted(ran.read_text().split()) == sorted(jobs[::2]), "each once"
    assert sorted(job["id"] for job in hw.json("ls")) == sorted(jobs)

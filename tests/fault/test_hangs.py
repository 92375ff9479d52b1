"""Hangs of real processes: found by themselves, told everywhere in the same words, answered as asked."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.testing.port import reserve
from tests.driver import Hw
from tests.provoke.hang_score import Found, current, submit
from tests.provoke.hangs import CASES, STEPS, Case
from tests.waiting import wait_until

FAST = [case for case in CASES if case.fast]


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Iterator[Hw]:
    made = Hw(home, tmp_path)
    made.env |= {"HEADWAY_HANG_AFTER_S": "2", "HEADWAY_MAX_RUNNING": "16"}
    yield made
    for row in made.json("ls"):
        for attempt in made.json("q", row["id"])["attempts"]:
            for task in attempt["tasks"]:
                for process in task["processes"]:
                    if process["state"] == "running":
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(process["pid"], signal.SIGKILL)


def finding(hw: Hw, job: str) -> dict[str, Any]:
    return wait_until(lambda: current(hw, job), what=f"a finding of {job}")


@pytest.mark.cap(40)
def test_hangs_are_found_with_the_rank_to_look_at(hw: Hw) -> None:
    jobs = [(submit(hw, case, reserve()), case) for case in FAST]
    for job, case in jobs:
        found = Found(case, finding(hw, job))
        assert found.rank_right and found.cause_right and found.words_right, found
    job = jobs[1][0]
    found_text = str(finding(hw, job)["text"])
    assert found_text in hw("why", job).stdout.decode()
    assert "is hung for" in hw("why", job).stdout.decode()
    assert found_text[:40] in hw("ls").stdout.decode(), "a long note is cut"
    assert found_text in hw("q", job).stdout.decode()
    assert hw.json("q", job)["health"]["cause"] == "collective_stall"


def test_a_job_that_goes_on_is_no_longer_called_hung(hw: Hw) -> None:
    body = (
        "step()\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
        "while True:\n    step()\n    time.sleep(0.2)"
    )
    job = submit(hw, Case("goes_on", body), reserve())
    finding(hw, job)
    (hw.cwd / "go").touch()
    wait_until(lambda: current(hw, job) is None, what="the finding to end")


def test_a_hung_job_is_restarted_or_stopped_where_that_was_asked_for(hw: Hw) -> None:
    body = "step()\nif os.environ['HEADWAY_ATTEMPT'] == '1': threading.Event().wait()\nstep()"
    name = hw.script(STEPS + body)
    again = hw.submit("--on-hang", "restart", "python3", name)
    ended = hw.script(STEPS + "step()\nthreading.Event().wait()", "stuck.py")
    stop = hw.submit("--on-hang", "stop", "python3", ended)
    job = hw.wait_ended(again)
    assert job["state"] == "succeeded" and len(job["attempts"]) == 2
    assert job["attempts"][0]["cause"]["cause"] == "hang"
    assert "restarted because it hung" in hw("q", again).stdout.decode()
    stopped = hw.wait_ended(stop)
    assert stopped["state"] == "failed" and stopped["cause"]["cause"] == "hang"
    assert "event at stuck.py" in stopped["cause"]["text"]

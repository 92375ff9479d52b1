"""Notifications of real jobs: to a real command and a real web address, also when the server is
killed in between.
"""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.driver import PYTHON, Hw
from tests.hooks import Hook
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(63)
TELL = """import json, os, sys
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(json.load(sys.stdin) | {"env": os.environ["HW_KIND"]}) + "\\n")
"""


class Told:
    """A command that keeps what it is told, and the settings that name it."""

    def __init__(self, hw: Hw, **settings: Any) -> None:
        self.file = hw.cwd / "told.jsonl"
        script = hw.cwd / "tell.py"
        script.write_text(TELL)
        words = [PYTHON, str(script), str(self.file)]
        config = Path(hw.env["XDG_CONFIG_HOME"]) / "headway"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.yaml").write_text(
            json.dumps({"notify.command": words, "notify.stall_s": 0} | settings)
        )

    def lines(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.file.read_text().splitlines()]
            if self.file.exists()
            else []
        )

    def wait(self, count: int) -> list[dict[str, Any]]:
        return wait_until(
            lambda: found if len(found := self.lines()) >= count else None, what=f"{count} told"
        )


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def test_ends_and_failures_reach_a_command_and_a_webhook_once(hw: Hw) -> None:
    with Hook(503) as hook:  # busy at first
        told = Told(hw, **{"notify.webhook_url": hook.url})
        good, bad = hw.submit("true"), hw.submit("sh", "-c", "exit 3")
        found = {one["id"]: one for one in told.wait(2)}
        assert (found[good]["kind"], found[good]["env"], found[bad]["kind"]) == (
            "ended",
            "ended",
            "failed",
        )
        assert found[bad]["exit_code"] == 3 and bad in found[bad]["text"]
        wait_until(lambda: len(hook.got) >= 3, what="a second try")
        about = wait_until(lambda: _when_done(hw), what="all sent")
    assert sorted(body["id"] for _, _, body in hook.got[-2:]) == sorted([good, bad])
    assert len(told.lines()) == 2
    assert sorted(one["tries"] for one in about["notices"]) == [1, 1, 1, 2]


def _when_done(hw: Hw) -> Any:
    about = hw.json("notify")
    return about if all(one["state"] == "sent" for one in about["notices"]) else None


def test_a_server_killed_between_the_end_and_the_telling_tells_after_its_start(hw: Hw) -> None:
    """The first server cannot tell: the command is not a program yet. It is killed, and its
    successor does.
    """
    told = Told(hw)
    config = Path(hw.env["XDG_CONFIG_HOME"]) / "headway" / "config.yaml"
    whole = config.read_text()
    config.write_text(json.dumps({"notify.command": ["sh", "-c", "exit 1"]}))
    job = hw.submit("sh", "-c", "exit 4")
    wait_until(
        lambda: [one for one in hw.json("notify")["notices"] if one["tries"]],
        what="a try that failed",
    )
    hw.kill_server()
    config.write_text(whole)
    hw.json("ls")
    assert [(one["id"], one["exit_code"]) for one in told.wait(1)] == [(job, 4)]
    wait_until(lambda: _when_done(hw), what="noted as sent")
    hw.kill_server()
    hw.json("ls")
    assert hw.json("notify")["notices"][0]["state"] == "sent" and len(told.lines()) == 1


def test_a_change_that_no_server_has_looked_at_is_told_by_the_next_one(hw: Hw) -> None:
    """The state and its note are one transaction, so a kill right behind it loses nothing."""
    told = Told(hw, **{"notify.on": ["failed"]})
    job = hw.submit("sh", "-c", "exit 5")
    told.wait(1)
    hw.kill_server()
    # as a server leaves it that dies right after the commit
    with sqlite3.connect(hw.home / "headway.db") as c:
        c.execute("DELETE FROM notices")
        c.execute("INSERT INTO changes SELECT 99, pk, 1, 'running', 'failed', 1, 2 FROM jobs")
    c.close()
    hw.json("ls")
    assert [one["id"] for one in told.wait(2)] == [job, job]


def test_a_silent_job_is_told_once_and_again_after_its_next_sign(hw: Hw) -> None:
    told = Told(hw, **{"notify.stall_s": 1.0, "notify.on": ["stalled"]})
    script = hw.script(
        "import pathlib, time\nprint('begin', flush=True)\n"
        "for name in 'ab':\n"
        "    while not pathlib.Path(name).exists(): time.sleep(0.05)\n"
        "    print(name, flush=True)\n"
    )
    job = hw.submit(PYTHON, script)
    wait_until(lambda: b"begin" in hw("logs", job).stdout, what="its first sign")
    known = len(told.lines())  # where Python took its time, the silence before that was told, too
    assert told.wait(known + 1)[-1]["silent_s"] >= 1.0
    wait_until(lambda: _when_done(hw), what="noted as sent")
    hw.kill_server()  # the silence goes on under the next server, which tells it no second time
    hw.json("ls")
    wait_until(lambda: hw.json("q", job)["state"] == "running", what="seen again")
    (hw.cwd / "a").touch()
    told.wait(known + 2)
    (hw.cwd / "b").touch()
    hw.wait_ended(job)
    found = told.lines()
    assert {one["kind"] for one in found} == {"stalled"} and len(
        {one["notice"] for one in found}
    ) == len(found)


def test_a_start_after_waiting_is_told(hw: Hw) -> None:
    told = Told(hw, **{"notify.waited_s": 0.2, "notify.on": ["started"], "max_running": 1})
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    first = hw.submit(PYTHON, hw.script(wait))
    second = hw.submit(PYTHON, hw.script(wait.replace("'go'", "'end'"), "second.py"))
    wait_until(lambda: hw.json("q", first)["state"] == "running", what="the first runs")
    submitted_s = time.monotonic()
    wait_until(lambda: time.monotonic() - submitted_s > 0.3, what="a while of waiting")
    (hw.cwd / "go").touch()
    wait_until(lambda: second in {one["id"] for one in told.lines()}, what="its start told")
    (hw.cwd / "end").touch()
    hw.wait_ended(second)


def test_a_test_tells_what_happened_by_each_way(hw: Hw) -> None:
    nobody = hw("notify", "test")
    assert nobody.returncode == 1
    assert (
        f"{hw.env['XDG_CONFIG_HOME']}/headway/config.yaml   (does not exist yet)"
        in nobody.stderr.decode()
    )
    with Hook() as hook:
        told = Told(hw, **{"notify.webhook_url": hook.url})  # read anew: no restart is needed
        done = hw("notify", "test")
        assert (
            done.returncode == 0
            and done.stdout.count(b"sent") == 2
            and b"s3cret" not in done.stdout
        )
    assert told.lines()[0]["kind"] == hook.got[0][2]["kind"] == "test"
    Told(hw, **{"notify.webhook_url": "http://10.0.0.1/"})
    refused = hw("notify", "test")
    assert refused.returncode == 1 and b"notify.webhook_hosts" in refused.stdout

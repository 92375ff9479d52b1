"""The console on a real terminal, against a scripted server: it opens, is left, and the terminal is
as it was.
"""

import os
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console_model import at, line
from tests.desk import HW, Desk
from tests.fake_api import CUT, FakeApi, Reply, Request, job, process, serving
from tests.waiting import wait_until


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        yield found


@pytest.fixture
def desks() -> Iterator[list[Desk]]:
    found: list[Desk] = []
    yield found
    for desk in found:
        desk.close()


class Scripted:
    """A job of four processes that says what it is given, and ends when it is told to."""

    def __init__(self, api: FakeApi) -> None:
        self.ended = job("digits-7f3c2", *(process(rank) for rank in range(4)))
        self.running = self.ended | {
            "state": "running", "ended_at": None, "exit_code": None, "signal": None, "started_at": at(0),
        }  # fmt: skip
        self.lines: list[dict[str, Any]] = [line(f"hello {n}", n) for n in range(4)]
        self.over, self.cut = threading.Event(), False
        api.on("POST", "/api/jobs", Reply(self.running, 201))
        api.on("GET", "/api/jobs", [self.running])
        api.on(
            "GET", "/api/jobs/[^/]*", lambda _: self.ended if self.over.is_set() else self.running
        )
        api.on("GET", "/api/jobs/.*/metrics", {"digits-7f3c2": {}})
        api.on("POST", "/api/jobs/.*/follow", self.follow)
        api.on("POST", "/api/jobs/.*/(signal|abort)", {})

    def follow(self, request: Request) -> Any:
        if self.cut:
            return CUT
        seen = (request.body["cursor"] or {"n": 0})["n"]
        done = self.over.is_set() or (seen >= len(self.lines) and self.over.wait(0.2))
        return {
            "cursor": {"n": len(self.lines)}, "state": "succeeded" if done else "running", "lines": self.lines[seen:],
            "events": [], "metrics": {"loss": 0.5}, "done": self.ended if done else None,
        }  # fmt: skip


def test_run_opens_a_live_view_and_leaves_the_last_lines_and_the_summary(
    api: FakeApi, desks: list[Desk]
) -> None:
    scripted = Scripted(api)
    desks.append(desk := Desk("run", "-n", "4", "python", "train.py"))
    desk.sees("hello 3")
    assert "─ log · all ranks" in desk.shown() and "q leave running" in desk.shown()
    scripted.over.set()
    assert desk.ends() == 0
    desk.sees("✓ digits-7f3c2 succeeded")
    shown = desk.shown()
    assert "3 │ hello 3" in shown and "ctrl-c" not in shown  # the view itself has gone
    assert desk.raw.rstrip().endswith(b"m") or b"hw resubmit" in desk.raw


def test_the_end_does_not_interrupt_a_person_who_reads(api: FakeApi, desks: list[Desk]) -> None:
    scripted = Scripted(api)
    desks.append(desk := Desk("run", "-n", "4", "true"))
    desk.sees("hello 3")
    desk.press(b" ")
    desk.sees("paused")
    scripted.over.set()
    desk.sees("it has succeeded; q leaves")
    desk.press(b"q")
    assert desk.ends() == 0
    desk.sees("✓ digits-7f3c2 succeeded")


def test_a_job_that_ends_within_a_blink_has_no_view(api: FakeApi, desks: list[Desk]) -> None:
    Scripted(api).over.set()
    desks.append(desk := Desk("run", "-n", "4", "true"))
    assert desk.ends() == 0
    desk.sees("succeeded")
    assert b"?1049h" not in desk.raw and "hello 0" in desk.shown()


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"columns": 39}, {"rows": 5}])
def test_a_terminal_that_cannot_show_it_gets_plain_lines(
    api: FakeApi, desks: list[Desk], env: dict[str, Any]
) -> None:
    """B32."""
    scripted = Scripted(api)
    desks.append(desk := Desk("run", "-n", "4", "true", **env))
    wait_until(lambda: b"hello 3" in desk.raw)
    scripted.over.set()
    assert desk.ends() == 0
    assert b"\x1b[?" not in desk.raw and b"\x1b[H" not in desk.raw


def test_q_leaves_the_job_running(api: FakeApi, desks: list[Desk]) -> None:
    Scripted(api)
    desks.append(desk := Desk("run", "-n", "4", "true"))
    desk.sees("hello 3")
    desk.press(b"q")
    assert desk.ends() == 130
    desk.sees("left digits-7f3c2 as it is; to see it again: hw watch digits-7f3c2")
    assert api.sent("POST", ".*/(signal|abort)") == []


def test_ctrl_c_asks_before_it_interrupts(api: FakeApi, desks: list[Desk]) -> None:
    Scripted(api)
    desks.append(desk := Desk("run", "-n", "4", "true"))
    desk.sees("hello 3")
    desk.press(b"\x03")
    desk.sees("Stop 7f3c2?")
    assert api.sent("POST", ".*/signal") == []
    desk.press(b"i")
    wait_until(lambda: api.sent("POST", ".*/signal"))
    desk.sees("hw │ interrupting digits-7f3c2; Ctrl-C again terminates it")
    assert api.sent("POST", ".*/abort") == []
    desk.press(b"\x03")
    wait_until(lambda: api.sent("POST", ".*/abort"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_view_gives_the_terminal_back(
    api: FakeApi, desks: list[Desk], number: int
) -> None:
    Scripted(api)
    desks.append(desk := Desk("watch", "7f3c2"))
    desk.sees("hello 3")
    desk.child.send_signal(number)
    assert desk.ends() == 128 + number
    wait_until(lambda: desk.raw.endswith(b"\x1b[?1049l"))


def test_sigterm_to_run_is_for_the_job(api: FakeApi, desks: list[Desk]) -> None:
    scripted = Scripted(api)
    desks.append(desk := Desk("run", "-n", "4", "true"))
    desk.sees("hello 3")
    desk.child.terminate()
    wait_until(lambda: api.sent("POST", ".*/signal"))
    desk.sees("passing SIGTERM on")
    scripted.over.set()
    assert desk.ends() == 0


def test_suspending_gives_the_terminal_back_until_it_goes_on(
    api: FakeApi, desks: list[Desk]
) -> None:
    Scripted(api)
    desks.append(desk := Desk("watch", "7f3c2"))
    desk.sees("hello 3")
    desk.child.send_signal(signal.SIGTSTP)
    # an orphaned process group is not stopped by SIGTSTP: either way the view was left, and comes
    # back
    wait_until(lambda: b"\x1b[?1049l" in desk.raw)
    desk.child.send_signal(signal.SIGCONT)
    wait_until(lambda: desk.raw.rfind(b"?1049h") > desk.raw.rfind(b"?1049l"))
    desk.sees("hello 3")
    desk.press(b"q")
    assert desk.ends() == 0


def test_another_size_is_drawn_anew(api: FakeApi, desks: list[Desk]) -> None:
    Scripted(api)
    desks.append(desk := Desk("watch", "7f3c2", columns=80))
    desk.sees("hello 3")
    desk.screen.columns = 120
    desk.resize(120, 30)
    wait_until(lambda: "─" * 100 in desk.shown())
    desk.press(b"q")
    assert desk.ends() == 0


def test_a_lost_server_is_said_and_found_again(api: FakeApi, desks: list[Desk]) -> None:
    scripted = Scripted(api)
    desks.append(desk := Desk("watch", "7f3c2"))
    desk.sees("hello 3")
    scripted.cut = True
    desk.sees("no server for")
    scripted.lines.append(line("written meanwhile", 1))
    scripted.cut = False
    desk.sees("written meanwhile")
    wait_until(lambda: "no server" not in desk.shown())
    desk.press(b"q")
    assert desk.ends() == 0


def test_a_terminal_that_does_not_read_holds_up_nothing_but_itself(
    api: FakeApi, desks: list[Desk]
) -> None:
    """The output is not read for a while; the view goes on from the newest state, and keys still
    count.
    """
    scripted = Scripted(api)
    desks.append(desk := Desk("watch", "7f3c2"))
    desk.sees("hello 3")
    os.kill(desk.child.pid, signal.SIGCONT)
    termios.tcflow(desk.terminal, termios.TCOOFF)  # as Ctrl-S does
    scripted.lines += [line(f"flood {n}", n % 4) for n in range(3000)]
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 5)
    termios.tcflow(desk.terminal, termios.TCOON)
    desk.sees("flood 2999")
    desk.press(b"q")
    assert desk.ends() == 0


def test_watch_lists_the_open_jobs_and_opens_one(api: FakeApi, desks: list[Desk]) -> None:
    scripted = Scripted(api)
    desks.append(desk := Desk("watch"))
    desk.sees("● running")
    assert "7f3c2" in desk.shown() and "enter open" in desk.shown()
    desk.press(b"\r")
    desk.sees("hello 3")
    scripted.over.set()
    desk.sees("q goes back")
    desk.press(b"\x1b")
    desk.sees("enter open")
    desk.press(b"q")
    assert desk.ends() == 0


def test_a_job_that_was_deleted_leads_back_to_the_list(api: FakeApi, desks: list[Desk]) -> None:
    Scripted(api)
    desks += [Desk("watch"), Desk("watch", "7f3c2", "7f3c2")]
    for desk in desks:
        desk.sees("● running")
    gone = {"error": {"code": "not_found", "message": 'no job ends in "7f3c2"', "hint": ""}}
    api.on("GET", "/api/jobs/[^/]*", Reply(gone, 404))
    desks[1].sees("no open jobs")
    desks[0].press(b"\r")
    desks[0].sees("digits-7f3c2 was deleted")
    for desk in desks:
        desk.press(b"q")
        assert desk.ends() == 0


def test_watch_lists_the_jobs_of_an_array(api: FakeApi, desks: list[Desk]) -> None:
    scripted = Scripted(api)
    api.on(
        "GET",
        "/api/jobs/[^/]*",
        Reply({"error": {"code": "not_found", "message": "no such job", "hint": ""}}, 404),
    )
    api.on("GET", "/api/arrays/a17", {"id": "sweep-a17", "uuid": "u1"})
    rows = [scripted.running | {"id": f"sweep-{n}", "array_index": n} for n in (1, 0)]
    api.on("GET", "/api/jobs", lambda request: rows if request.query.get("array") == ["u1"] else [])
    desks.append(desk := Desk("watch", "a17"))
    desk.sees("2 running")
    rows[1] |= {"state": "failed", "cause": {"text": "exited with code 3"}}
    desk.sees("exited with code 3")
    desk.press(b"q")
    assert desk.ends() == 0
    listed = subprocess.run([*HW, "watch", "a17"], capture_output=True, text=True, timeout=30)
    assert listed.stdout.index("sweep-0") < listed.stdout.index("sweep-1")


def test_a_prompt_does_not_follow_the_echo_of_ctrl_c(api: FakeApi, desks: list[Desk]) -> None:
    Scripted(api)
    api.on(
        "GET", "/api/jobs/.*/logs", {"lines": [line("hello 3", 3)], "cursor": "1", "more": False}
    )
    desks.append(desk := Desk("logs", "-f", "7f3c2"))
    desk.sees("hello 3")
    desk.press(b"\x03")
    assert desk.ends() == 130
    wait_until(lambda: desk.raw.endswith(b"^C\r\n"), what=f"a line end behind ^C: {desk.raw!r}")


def test_watch_without_a_terminal_is_plain(api: FakeApi, home: Path) -> None:
    scripted = Scripted(api)
    listed = subprocess.run([*HW, "watch"], capture_output=True, text=True, timeout=30)
    assert "digits-7f3c2" in listed.stdout and "\x1b" not in listed.stdout
    scripted.over.set()
    followed = subprocess.run([*HW, "watch", "7f3c2"], capture_output=True, text=True, timeout=30)
    assert "hello 3" in followed.stdout and "succeeded" in followed.stderr
    told = subprocess.run([*HW, "watch", "--json"], capture_output=True, text=True, timeout=30)
    assert '"digits-7f3c2"' in told.stdout

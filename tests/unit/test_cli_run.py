"""`hw run` against a scripted server: bytes exact, signals for the job, a lost server, the exit
code.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.limits import DISPLAY_LINE_CHARS_MAX
from headway.views.cli.output import Sink
from headway.views.cli.run import exit_code
from headway.views.text.terminal import Output
from tests.fake_api import CUT, FakeApi, Reply, Request, error, job, process, serving
from tests.waiting import wait_until

HW = [sys.executable, "-m", "headway.views.cli.main"]
STDOUT = b"one\n\xff\xfe raw \x1b[31m\r\x00\nno newline at the end"
STDERR = b"warning\n"


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        yield found


class Scripted:
    """A job of one process that writes, is told about by `follow`, and ends when `finish` is
    called.
    """

    def __init__(
        self, api: FakeApi, ended: dict[str, Any], stdout: bytes = STDOUT, stderr: bytes = STDERR
    ) -> None:
        self.api, self.ended = api, ended
        self.streams = {"stdout": stdout, "stderr": stderr}
        self.over = threading.Event()
        self.cuts = 0  # connections to drop before the next answer
        running = ended | {"state": "running", "ended_at": None, "exit_code": None, "signal": None}
        api.on("POST", "/api/jobs", Reply(running | {"state": "waiting"}, 201))
        api.on("GET", "/api/jobs/[^/]*", lambda _: self.ended if self.over.is_set() else running)
        api.on("GET", "/api/jobs/.*/events", [])
        api.on("GET", "/api/jobs/.*/logs", self.logs)
        api.on("POST", "/api/jobs/.*/follow", self.follow)

    def logs(self, request: Request) -> bytes:
        offset = int(request.query["offset"][0])
        # an answer may be short
        return self.streams[request.query["stream"][0]][offset : offset + 7]

    def follow(self, request: Request) -> Any:
        if self.cuts:
            self.cuts -= 1
            return CUT
        seen = (request.body["cursor"] or {"n": 0})["n"]
        done = self.over.wait(0.2) if seen else False
        state = self.ended["state"] if done else "running"
        return {
            "cursor": {"n": seen + 1},
            "state": state,
            "lines": [],
            "events": [],
            "metrics": {},
            "done": self.ended if done else None,
        }

    def finish(self) -> None:
        self.over.set()


def start(home: Path, *words: str, **options: Any) -> "subprocess.Popen[bytes]":
    env = dict(os.environ) | {"HEADWAY_HOME": str(home)}
    streams = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "stdin": subprocess.DEVNULL,
    } | options
    return subprocess.Popen([*HW, *words], env=env, **streams)


def test_one_process_comes_out_byte_by_byte(api: FakeApi, home: Path) -> None:
    scripted = Scripted(api, job())
    child = start(home, "run", "python", "train.py")
    wait_until(lambda: api.sent("POST", ".*/follow"))
    scripted.finish()
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, STDOUT)
    assert STDERR in err
    talk = err.replace(STDERR, b"").decode()
    assert "● digits-7f3c2  running" in talk and "here · 1 process" in talk
    assert "✓ digits-7f3c2 succeeded in 12 s" in talk and "hw resubmit 7f3c2" in talk


def test_with_json_stdout_holds_the_job_and_nothing_else(api: FakeApi, home: Path) -> None:
    scripted = Scripted(api, job(state="failed", exit_code=3))
    scripted.finish()
    child = start(home, "run", "--json", "false")
    out, err = child.communicate(timeout=30)
    assert (child.returncode, json.loads(out)["id"]) == (3, "digits-7f3c2")
    assert STDOUT in err


def test_several_processes_have_their_rank_in_front_and_keep_their_streams_apart(
    api: FakeApi, home: Path
) -> None:
    ended = job("digits-7f3c2", *(process(rank) for rank in range(12)))
    Scripted(api, ended).finish()
    lines = [
        {"time": "2026-11-15T12:04:31Z", "rank": 0, "stream": "stdout", "text": "step 1\x1b[2J"},
        {"time": "2026-11-15T12:04:32Z", "rank": 11, "stream": "stderr", "text": "slow\r"},
    ]
    final = {
        "cursor": {},
        "state": "succeeded",
        "lines": lines,
        "events": [],
        "metrics": {},
        "done": ended,
    }
    api.on("POST", "/api/jobs/.*/follow", final)
    child = start(home, "run", "-n", "12", "x")
    out, err = child.communicate(timeout=30)
    assert out.decode().endswith("   0 │ step 1␛[2J\n") and out[2:3] == b":"
    assert "  11 │ slow\n" in err.decode()
    assert api.sent("GET", ".*/logs") == []


def test_the_end_of_a_bad_run_names_exception_rank_line_and_the_others(
    api: FakeApi, home: Path
) -> None:
    exception = {
        "exc_type": "ValueError", "message": "bad\nbatch", "file": "train.py", "line": 14, "source": "  check(b)",
        "where": "main",
    }  # fmt: skip
    ranks = [
        process(0, exit_code=None, signal=15, reason="rank 1 failed"),
        process(1, exit_code=1, exception=exception),
    ]
    cause = {"cause": "code_exception", "class": "user", "text": "ValueError: bad", "rank": 1}
    Scripted(api, job("digits-7f3c2", *ranks, state="failed", exit_code=1, cause=cause)).finish()
    child = start(home, "run", "-n", "2", "x")
    _, err = child.communicate(timeout=30)
    assert child.returncode == 1
    for said in (
        "✗ digits-7f3c2 failed after 12 s: ValueError: bad batch", "exit code 1 · raised by the program · code_exception",
        "first   rank 1, worker-0, ", "train.py:14", "14 │ check(b)", "others  rank 0 was stopped because of it",
        "hw logs 7f3c2 --rank 1",
    ):  # fmt: skip
        assert said in err.decode(), said


def test_a_server_that_goes_away_is_told_once_and_nothing_is_missed(
    api: FakeApi, home: Path
) -> None:
    scripted = Scripted(api, job())
    scripted.cuts = 3
    child = start(home, "run", "x")
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 4)
    scripted.finish()
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, STDOUT)
    assert err.count(b"the server is gone") == err.count(b"the server is back") == 1


def test_ctrl_c_interrupts_the_job_and_waits_and_a_second_one_terminates_it(
    api: FakeApi, home: Path
) -> None:
    scripted = Scripted(api, job(state="stopped", exit_code=None, signal=2))
    api.on("POST", "/api/jobs/.*/(signal|abort)", scripted.ended)
    child = start(home, "run", "x")
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 1)
    child.send_signal(signal.SIGINT)
    wait_until(lambda: api.sent("POST", ".*/signal"))
    assert api.sent("POST", ".*/signal")[0].body == {"signal": 2}
    assert child.poll() is None and api.sent("POST", ".*/abort") == []
    child.send_signal(signal.SIGINT)
    wait_until(lambda: api.sent("POST", ".*/abort"))
    scripted.finish()
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"interrupting digits-7f3c2; Ctrl-C again terminates it" in err


def test_a_third_ctrl_c_leaves(api: FakeApi, home: Path) -> None:
    Scripted(api, job())
    api.on("POST", "/api/jobs/.*/(signal|abort)", job())
    child = start(home, "run", "x")
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 1)
    for count, path in enumerate((".*/signal", ".*/abort"), 1):
        child.send_signal(signal.SIGINT)
        wait_until(lambda path=path: api.sent("POST", path), what=f"reaction {count}")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"hw logs -f digits-7f3c2" in err


def test_sigterm_passes_on(api: FakeApi, home: Path) -> None:
    scripted = Scripted(api, job(state="stopped", exit_code=None, signal=15))
    api.on("POST", "/api/jobs/.*/signal", scripted.ended)
    child = start(home, "run", "x")
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 1)
    child.terminate()
    wait_until(lambda: api.sent("POST", ".*/signal"))
    scripted.finish()
    child.communicate(timeout=30)
    assert (child.returncode, api.sent("POST", ".*/signal")[0].body) == (143, {"signal": 15})


def test_sighup_leaves_the_job_running(api: FakeApi, home: Path) -> None:
    Scripted(api, job())
    child = start(home, "run", "x")
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 1)
    child.send_signal(signal.SIGHUP)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 129
    assert b"hw logs -f digits-7f3c2" in err
    assert api.sent("POST", ".*/(signal|abort)") == []


def test_a_job_that_still_waits_is_taken_out_of_the_queue_by_ctrl_c(
    api: FakeApi, home: Path
) -> None:
    scripted = Scripted(api, job(state="stopped", started_at=None, exit_code=None, elapsed_s=None))
    api.on("POST", "/api/jobs/.*/signal", error(409, "refused", "it has not started"))
    api.on("POST", "/api/jobs/.*/abort", scripted.ended)
    child = start(home, "run", "x")
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 1)
    child.send_signal(signal.SIGINT)
    wait_until(lambda: api.sent("POST", ".*/abort"))
    scripted.finish()
    _, err = child.communicate(timeout=30)
    assert child.returncode == 125
    assert b"before it started" in err


def test_a_reader_that_leaves_does_not_end_the_watching(api: FakeApi, home: Path) -> None:
    """P13: the exit code is still the job's."""
    read, write = os.pipe()
    os.close(read)
    scripted = Scripted(api, job(state="failed", exit_code=7))
    child = start(home, "run", "x", stdout=write)
    os.close(write)
    wait_until(lambda: len(api.sent("POST", ".*/follow")) > 1)
    scripted.finish()
    _, err = child.communicate(timeout=30)
    assert child.returncode == 7
    assert err.count(b"nobody reads the output any more") == 1
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"exit_code": 0}, 0), ({"state": "failed", "exit_code": 3}, 3), ({"state": "failed", "exit_code": 127}, 127),
        ({"state": "failed", "exit_code": None, "signal": 9}, 137), ({"state": "stopped", "exit_code": 0}, 0),
        ({"state": "failed", "exit_code": 0}, 1), ({"state": "stopped", "exit_code": None}, 125),
        ({"state": "unknown", "exit_code": None}, 125),
    ],
)  # fmt: skip
def test_run_exits_as_the_job_does(end: dict[str, Any], code: int) -> None:
    assert exit_code(job(**end)) == code


# -- a stream on its way to a terminal


class Screen(Output):
    """A terminal that remembers."""

    def __init__(self) -> None:
        super().__init__(-1, ascii_only=False)
        self.is_tty, self.shown = True, ""

    def write(self, text: str) -> None:
        self.shown += text


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_how_a_stream_is_cut_into_answers_does_not_change_what_is_shown(
    data: bytes, cuts: list[int]
) -> None:
    whole, pieces = Screen(), Screen()
    sink = Sink(whole)
    sink.feed(data)
    sink.finish()
    sink = Sink(pieces)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start_at, end_at in pairwise(places):
        sink.feed(data[start_at:end_at])
    sink.finish()
    assert pieces.shown == whole.shown
    assert "\x1b" not in whole.shown


def test_a_line_without_end_takes_bounded_memory_and_is_marked() -> None:
    """F37."""
    screen = Screen()
    sink = Sink(screen)
    for _ in range(100):
        sink.feed(b"x" * 100_000)
        assert len(sink._pending) <= 8 * DISPLAY_LINE_CHARS_MAX
    sink.feed(b"\nnext\n")
    first, second, _ = screen.shown.split("\n")
    assert first.startswith("xxx") and "more" in first and len(first) < DISPLAY_LINE_CHARS_MAX + 100
    assert second == "next"

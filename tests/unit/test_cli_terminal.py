"""Terminals of all kinds: none, dumb, 20 columns, without UTF-8, without colour, closed (B32)."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.views.text.table import width
from tests.fake_api import FakeApi, job, process, serving

HW = [sys.executable, "-m", "headway.views.cli.main"]
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    rows = [
        job(
            "voc-e2fc7",
            state="running",
            experiment="a-rather-long-name",
            metrics={"loss": 0.312, "accuracy": 0.5},
        ),
        job("voc-ab12f", state="failed", metrics={"loss": "NaN"}, exit_code=1),
    ]
    rows[1]["cause"] = {
        "cause": "x",
        "class": "user",
        "text": "ValueError: a text that is longer than the line",
        "rank": 0,
    }
    with serving(home) as found:
        found.on("GET", "/api/jobs", rows)
        found.on(
            "GET",
            "/api/jobs/[^/]*",
            job("voc-ab12f", process(0), process(1), state="failed", exit_code=1),
        )
        found.on("GET", "/api/jobs/.*/events", [])
        line = {
            "time": "2026-11-15T12:00:02Z",
            "rank": 0,
            "stream": "stdout",
            "text": "\x1b[31mred\x1b[0m é\x1b]0;t\x07",
        }
        found.on("GET", "/api/jobs/.*/logs", {"lines": [line], "more": False})
        yield found


def on_terminal(columns: int, *words: str, **env: str) -> str:
    """What `hw` writes to a terminal of that width."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    full = {
        k: v
        for k, v in os.environ.items()
        if k not in ("COLUMNS", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")
    }
    full |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | env
    child = subprocess.Popen(
        [*HW, *words], stdin=terminal, stdout=terminal, stderr=terminal, env=full
    )
    os.close(terminal)
    parts = []
    while True:
        try:
            part = os.read(control, 65536)
        except OSError:  # Linux: the last writer has closed the terminal
            break
        if not part:
            break
        parts.append(part)
    os.close(control)
    assert child.wait(30) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(api: FakeApi, columns: int) -> None:
    shown = SGR.sub("", on_terminal(columns, "ls"))
    lines = [line for line in shown.splitlines() if line and "·" not in line]
    assert all(width(line) <= columns for line in lines), lines
    assert "e2fc7" in shown and "runn" in shown and "ab12f" in shown


@pytest.mark.parametrize("columns", [20, 80])
def test_help_fits_the_terminal(api: FakeApi, columns: int) -> None:
    shown = on_terminal(columns, "--help")
    examples = [line for line in shown.splitlines() if line.startswith("  hw ")]
    assert all(width(line) <= columns for line in shown.splitlines() if line not in examples)


def test_colour_is_for_terminals_that_want_it(api: FakeApi) -> None:
    assert "\x1b[" in on_terminal(80, "ls")
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"HEADWAY_COLOR": "never"}):
        assert "\x1b" not in on_terminal(80, "ls", **unwanted)
        assert "\x1b" not in on_terminal(80, "q", "ab12f", **unwanted)


def test_a_terminal_gets_a_jobs_colours_and_no_other_sequence(api: FakeApi) -> None:
    shown = on_terminal(80, "q", "ab12f")
    assert "\x1b[31mred\x1b[0m é␛]0;t␇" in shown
    assert "\x1b" not in SGR.sub("", shown)


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"LANG": "C"}, {"LANG": "de_DE.ISO-8859-1"}, {"LC_ALL": "POSIX"}]
)
def test_without_utf_8_everything_is_ascii(api: FakeApi, locale: dict[str, str]) -> None:
    for words in (["ls"], ["q", "ab12f"], ["--help"]):
        shown = on_terminal(80, *words, **{"LANG": "", **locale})
        assert shown.isascii(), [c for c in shown if not c.isascii()]
        assert "\\xb7" not in shown
    assert "| red" in SGR.sub("", on_terminal(80, "q", "ab12f", **{"LANG": "", **locale}))


def test_a_reader_that_leaves_is_no_traceback(api: FakeApi) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*HW, "ls"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_behind_stdout_is_told(api: FakeApi) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*HW, "ls"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"No space left" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("argv", [["ls"], ["--help"], ["--version"]])
def test_closed_streams_are_no_traceback(api: FakeApi, argv: list[str]) -> None:
    script = 'exec "$@" >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, "sh", *HW, *argv], check=False)
    assert done.returncode in (0, 1)

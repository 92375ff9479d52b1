"""What `hw run` shows of a real program: `--plain`, bars that are drawn over, hints."""

from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw

BARS = r"""
import sys
out = sys.stdout
out.write("train 0%\nval 0%")
for share in (50, 100):
    out.write(f"\r\x1b[2K\x1b[1A\x1b[2Ktrain {share}%\nval {share}%")
out.write("\n")
for share in range(0, 101, 10):
    sys.stderr.write(f"\repoch 0: {share}%")
sys.stderr.write("\n")
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Hw(home, cwd)


def test_plain_shows_the_lines_of_the_program_and_nothing_else(hw: Hw) -> None:
    done = hw("run", "--plain", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 3)
    several = hw("run", "--plain", "-n", "2", "sh", "-c", "echo out; echo err >&2")
    assert (several.stdout, several.stderr) == (b"out\nout\n", b"err\nerr\n")


def test_plain_says_why_a_program_could_not_be_run(hw: Hw) -> None:
    done = hw("run", "--plain", "no-such-program-here")
    assert done.returncode == 127
    assert b"was not found" in done.stderr


def test_a_line_end_comes_before_the_verdict(hw: Hw) -> None:
    done = hw("run", "sh", "-c", "printf half >&2; exit 3")
    assert b"half\n" in done.stderr


def test_bars_are_their_last_state_in_the_logs(hw: Hw) -> None:
    hw.script(BARS, "bars.py")
    hw("run", PYTHON, "bars.py")
    lines = hw("logs").stdout.decode().splitlines()
    texts = sorted(line.partition("│ ")[2].lstrip("\r") for line in lines)
    assert texts == ["epoch 0: 100%", "train 100%", "val 100%"]


def test_followed_logs_in_a_pipe_have_finished_bars_only(hw: Hw) -> None:
    hw.script(BARS)
    job = hw.submit(PYTHON, "train.py")
    text = hw("logs", "-f", job).stdout.decode()
    assert "epoch 0: 100%" in text
    assert "50%" not in text


def test_a_program_that_draws_only_on_a_terminal_gets_a_hint_beside_its_output(hw: Hw) -> None:
    hw.script("from rich.progress import track\nfor _ in track(range(3)): pass\n")
    done = hw("run", PYTHON, "train.py")
    assert b"--pty gives it one" in done.stderr
    plain = hw("run", "--plain", PYTHON, "train.py")
    assert plain.stderr == b""


def test_the_page_of_a_job_is_named_without_a_terminal(hw: Hw) -> None:
    done = hw("submit", "true")
    assert b"/j/true-" in done.stderr
    assert done.stdout.startswith(b"true-") and b"http" not in done.stdout
    hw.wait_ended(done.stdout.decode().strip())

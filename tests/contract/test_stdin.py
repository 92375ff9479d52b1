"""What is on the stdin of `hw run` is the program's; a job that was submitted has none."""

import subprocess
from pathlib import Path

import pytest

from tests.driver import HW, Hw


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def run(hw: Hw, *words: str, **given: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*HW, *words], cwd=hw.cwd, env=hw.env, capture_output=True, timeout=60, **given
    )  # type: ignore[call-overload,no-any-return]


def test_a_pipe_reaches_the_program_and_rank_0_alone(hw: Hw) -> None:
    assert run(hw, "run", "sort", input=b"b\na\n").stdout == b"a\nb\n"
    assert run(hw, "run", "python3", "-", input=b"print(6 * 7)").stdout == b"42\n"
    lines = run(hw, "run", "-n", "2", "cat", input=b"once\n").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == [b"once"]


def test_a_file_goes_on_where_the_shell_stands_in_it(hw: Hw) -> None:
    (hw.cwd / "words").write_text("first\nsecond\n")
    with open(hw.cwd / "words", "rb", buffering=0) as file:
        file.read(6)
        assert run(hw, "run", "cat", stdin=file).stdout == b"second\n"
        assert file.tell() == 6, "what others read after it is left to them"


def test_a_submitted_job_and_one_submitted_again_have_an_empty_stdin(hw: Hw) -> None:
    done = run(hw, "submit", "--wait", "cat", input=b"not for it\n")
    assert done.returncode == 0 and b"not for it" not in done.stdout
    assert run(hw, "run", "cat", input=b"once\n").stdout == b"once\n"
    job = hw.json("ls")[0]["id"]
    again = hw.json("resubmit", job)["id"]
    hw.wait_ended(again)
    assert hw("logs", again, "--stream", "stdout").stdout == b""


def test_a_breakpoint_says_what_to_do(hw: Hw) -> None:
    done = hw("run", "python3", hw.script("breakpoint()\nprint('after')\n"))
    assert b"stdin of a job is no terminal, so pdb cannot ask you" in done.stderr

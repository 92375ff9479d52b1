"""`--pty`: a program gets a terminal, its streams stay apart and whole, and neither a shim nor a
disk takes it away.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.agent.shim import pty
from tests.driver import Hw, agents
from tests.fault.agent_rig import Rig, script
from tests.waiting import wait_until

SEES = """
import os, sys
print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1).columns, repr(sys.stdin.read()))
sys.stderr.buffer.write(bytes(range(256)))
"""


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with Rig(home) as made:
        yield made


def test_a_program_sees_terminals_and_what_it_writes_is_kept_byte_for_byte(rig: Rig) -> None:
    ended = rig.run(*script(SEES), pty=True)
    assert ended["exit_code"] == 0
    assert rig.server.text("stdout-0") == b"True True 80 ''\n"
    assert rig.server.text("stderr-0") == bytes(range(256))


def test_all_that_was_written_arrives_before_the_end(rig: Rig) -> None:
    ended = rig.run("sh", "-c", "yes 0123456789 | head -c 3000000; exit 3", pty=True)
    assert ended["exit_code"] == 3
    assert rig.server.text("stdout-0") == (b"0123456789\n" * 300_000)[:3_000_000]


def test_a_child_that_outlives_its_rank_does_not_keep_the_task(rig: Rig) -> None:
    ended = rig.run("sh", "-c", "sleep 600 & echo done", pty=True)
    assert ended["exit_code"] == 0 and rig.server.text("stdout-0") == b"done\n"
    assert len(rig.server.facts("leftovers")) == 1


def test_a_command_that_cannot_be_started_says_so_on_its_terminal(rig: Rig) -> None:
    ended = rig.run("no-such-program-here", pty=True)
    assert ended["exit_code"] == 127
    assert b"not found in PATH" in rig.server.text("stderr-0")


def test_a_killed_shim_does_not_take_the_terminal_away(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    go = tmp_path / "go"
    program = f"import os, time\nprint('one')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\nprint('two')"
    job = hw.submit("--pty", "python3", "-c", program)
    wait_until(lambda: b"one" in hw("logs", job).stdout, what="the first line")
    (shim,) = agents(home, "shim")
    os.kill(shim, signal.SIGKILL)
    go.touch()
    out = ("logs", job, "--rank", "0", "--stream", "stdout")
    wait_until(lambda: hw(*out).stdout == b"one\ntwo\n", what="what it wrote afterwards")


def test_output_that_cannot_be_written_is_counted_and_nobody_waits(tmp_path: Path) -> None:
    """What is printed with `--pty` does not reach a program as an error when the disk takes no
    more.
    """
    (tmp_path / "stdout-0").mkdir()
    terminals = pty.open_terminals()
    copier, told = pty.start_copier(terminals, str(tmp_path), 0)
    out, err = terminals.far
    for fd in terminals.near:
        os.close(fd)
    for _ in range(100):
        assert os.write(out, b"x" * 1000) == 1000
    os.write(err, b"kept")
    os.close(out)
    os.close(err)
    assert os.waitpid(copier, 0)[1] == 0
    assert os.read(told, 100) == b"100000", "so that the shim tells it as a gap"
    os.close(told)
    assert (
        "rank 0: 100000 bytes of its output could not be written"
        in (tmp_path / "agent").read_text()
    )
    assert (tmp_path / "stderr-0").read_bytes() == b"kept"


def test_a_job_file_asks_for_a_terminal_and_a_resubmission_keeps_it(
    home: Path, tmp_path: Path
) -> None:
    hw = Hw(home, tmp_path)
    (tmp_path / "job.yaml").write_text("command: test -t 1\npty: true\n")
    assert hw("run", "--name", "with", "job.yaml").returncode == 0
    assert hw("run", "test", "-t", "1").returncode == 1
    (with_it,) = hw.json("ls", "--match", "^with")
    again = hw.json("resubmit", with_it["id"])
    assert (
        hw.wait_ended((again[0] if isinstance(again, list) else again)["id"])["state"]
        == "succeeded"
    )

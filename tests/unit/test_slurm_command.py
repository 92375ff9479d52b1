"""Slurm's commands run one after the other by a shell (engines/slurm/commands.py): each gets its
text and its answer.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.engines.slurm import commands
from headway.engines.slurm.commands import ShellCommands
from headway.model.errors import HeadwayError, RefusedError, UnreachableError
from headway.wire.identity import parent_of
from tests.waiting import wait_until

# What its standard input says decides what it does; each call leaves that in a file of its own.
SBATCH = """#!/bin/sh
cat > {folder}/text-$$
echo $$ >> {folder}/calls
case "$(cat {folder}/text-$$)" in
*refuse*) echo 'sbatch: error: Invalid partition name specified' >&2; exit 1 ;;
*away*) echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1 ;;
*hang*) echo $$ > {folder}/hangs; while [ ! -e {folder}/go ]; do sleep 0.05; done ;;
esac
echo 'sbatch: a word of the site' >&2
echo "$$;cluster"
"""


SUBMITTER = """
import sys
from headway.engines.slurm.commands import ShellCommands
ShellCommands({"PATH": sys.argv[1]}).run_each(["sbatch", "--parsable"], ["hang\\n", "two\\n", "three\\n"])
"""


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sbatch").write_text(SBATCH.format(folder=folder))
        (folder / "sbatch").chmod(0o755)
        self.path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        self.commands = ShellCommands({"PATH": self.path})

    def run(self, *texts: str) -> list[str | HeadwayError]:
        return self.commands.run_each(["sbatch", "--parsable"], texts)

    def text_of(self, answer: str | HeadwayError) -> str:
        """What the call got that gave this answer."""
        return (self.folder / f"text-{str(answer).partition(';')[0]}").read_text()

    def calls(self) -> int:
        return len((self.folder / "calls").read_text().split())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_each_text_arrives_as_it_is_and_each_answer_belongs_to_its_text(desk: Desk) -> None:
    texts = [
        "#!/bin/sh\nexec sh -c 'a \"$b\" `c` \\\\ $(d)'\n",
        "EOF\n\n'two'\n",
        "ünï — no newline at its end",
    ]
    answers = desk.run(*texts)
    assert [desk.text_of(answer) for answer in answers] == [*texts[:2], f"{texts[2]}\n"]


def test_one_that_is_refused_keeps_no_other_from_being_submitted(desk: Desk) -> None:
    first, second, third, fourth = desk.run("one\n", "refuse\n", "three\n", "refuse\n")
    assert isinstance(second, RefusedError) and "Invalid partition name specified" in str(second)
    assert isinstance(fourth, RefusedError)
    assert [desk.text_of(first), desk.text_of(third)] == ["one\n", "three\n"]
    assert desk.calls() == 4


def test_once_slurm_is_away_the_rest_is_not_tried(desk: Desk) -> None:
    first, second, third = desk.run("one\n", "away\n", "three\n")
    assert desk.text_of(first) == "one\n"
    assert isinstance(second, UnreachableError) and "Unable to contact slurm controller" in str(
        second
    )
    assert isinstance(third, UnreachableError) and desk.calls() == 2


def test_one_that_hangs_is_ended_and_what_was_answered_before_counts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "TIMEOUT_S", 4.0)
    first, second, third = desk.run("one\n", "hang\n", "three\n")
    assert desk.text_of(first) == "one\n"
    assert isinstance(second, UnreachableError) and "did not answer within 4 s" in str(second)
    assert isinstance(third, UnreachableError)
    pid = int((desk.folder / "hangs").read_text())
    assert desk.calls() == 2
    wait_until(lambda: not is_alive(pid), 30, "its end")


def test_whoever_is_killed_over_it_leaves_no_shell_that_goes_on_submitting(desk: Desk) -> None:
    """F23: what was under way may still reach Slurm, and nothing behind it."""
    submitter = subprocess.Popen([sys.executable, "-c", SUBMITTER, desk.path])
    hangs = desk.folder / "hangs"
    wait_until(lambda: hangs.exists() and hangs.read_text().endswith("\n"), 30, "the first one")
    shell = parent_of(int(hangs.read_text()))
    submitter.kill()
    submitter.wait()
    assert shell is not None and is_alive(shell)
    (desk.folder / "go").touch()
    wait_until(lambda: not is_alive(shell), 30, "the end of the shell")
    assert desk.calls() == 1


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_where_there_is_no_such_program_that_is_said() -> None:
    commands = ShellCommands({"PATH": "/bin:/usr/bin"})
    for texts in (["a"], ["a", "b"]):
        found = commands.run_each(["sbatch-of-nobody"], texts)
        assert [str(one) for one in found] == ["sbatch-of-nobody is not on this machine"] * len(
            texts
        )

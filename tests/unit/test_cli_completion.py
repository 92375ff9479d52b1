"""`hw completion`: what a real bash offers where, without a server; and that no verb is forgotten."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headway.views.cli import completion
from headway.views.cli.commands import COMMANDS
from tests import needs

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def offered(line: str, cwd: Path) -> set[str]:
    """What bash offers at the end of `line`; `hw completion ids` answers with two ids."""
    words = line.split(" ")
    script = f"""{completion.bash()}
hw() {{ echo x-a1; echo x-b2; }}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
_hw; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    found = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


def test_verbs_options_and_ids_are_offered_where_they_belong(tmp_path: Path) -> None:
    assert {"run", "resubmit", "timings"} <= offered("hw ", tmp_path)
    assert offered("hw -c lab resu", tmp_path) == {"resubmit"}
    assert {"x-a1", "x-b2", "--rank"} <= offered("hw usage ", tmp_path)
    assert offered("hw logs --stream l", tmp_path) == {"log"}
    assert offered("hw submit --after x-a", tmp_path) == {"x-a1"}
    assert offered("hw ls --state runn", tmp_path) == {"running"}


def test_a_command_is_completed_by_programs_and_files_and_its_own_words_by_files_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "tr-job.yaml").touch()
    first = offered("hw -n 4 submit tr", tmp_path)
    assert {"tr-job.yaml", "true"} <= first
    assert offered("hw run -n 4 python tr", tmp_path) == set(), (
        "nothing: bash goes on with files by itself"
    )
    assert "--retry" in offered("hw run --", tmp_path)


def test_every_verb_that_takes_an_id_is_offered_some() -> None:
    taking = {name for name, command in COMMANDS.items() if completion.takes_ids(command)}
    assert {
        "q",
        "logs",
        "watch",
        "metrics",
        "usage",
        "timings",
        "why",
        "shell",
        "ssh",
        "bundle",
        "code",
    } <= taking
    assert {"abort", "resubmit", "release", "delete"} <= taking
    assert not taking & {"run", "submit", "ls", "token", "storage", "config"}
    assert "__fish_seen_subcommand_from usage' -a '(hw completion ids" in completion.fish()


def test_zsh_runs_the_same_function(tmp_path: Path) -> None:
    """Its own `compgen` needs a line that is being typed; what it is asked for is looked at here."""
    zsh = needs.tool("zsh", "zsh")
    script = f"""{completion.bash().rpartition("complete -o")[0]}
compgen() {{ print -r -- "$@"; }}
emulate ksh
COMP_WORDS=(hw ls --state runn) COMP_CWORD=3
_hw && print -r -- "${{COMPREPLY[*]}}"
"""
    found = subprocess.run([zsh, "-f", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (
        found.stderr == ""
        and found.stdout.startswith("-W waiting running ")
        and "-- runn" in found.stdout
    )

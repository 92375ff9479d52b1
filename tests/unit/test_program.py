"""The program and the script of a local job are looked for when it is submitted."""

from pathlib import Path

import pytest

from headway.model.errors import UsageError
from headway.model.job import JobSpec, Role
from headway.server.control import program_check

ENV = {"PATH": "/usr/bin:/bin"}


def look(folder: Path, *words: str, roles: list[Role] | None = None) -> None:
    program_check.check(JobSpec(list(words), str(folder), "n", roles=roles or []), ENV)


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["python", "train.py", "--lr", "1"], "train.py"), (["python3.11", "-u", "-W", "ignore", "a/b.py"], "a/b.py"),
        (["/opt/bin/python", "x.py"], "x.py"), (["python", "-m", "pytest"], None), (["python", "-c", "1"], None),
        (["python", "-"], None), (["python"], None), (["bash", "-e", "run.sh"], "run.sh"), (["bash", "-c", "x"], None),
        (["torchrun", "train.py"], None), (["sh", "-ec", "x"], None),
        (["python", "-uc", "1"], None), (["python", "-Im", "pip"], None), (["python", "-Wdefault::c", "x.py"], "x.py"),
    ],
)  # fmt: skip
def test_the_script_of_an_interpreter_is_known(words: list[str], script: str | None) -> None:
    assert program_check.script_of(words) == script


@pytest.mark.parametrize(
    ("words", "empty"),
    [
        (["python"], True), (["python3.11", "-u", "-"], True), (["/bin/bash"], True), (["sh", "-e", "-s"], True),
        (["python", "train.py"], False), (["python", "-c", "1"], False), (["python", "-uc", "1"], False),
        (["python", "--version"], False), (["bash", "-x", "run.sh"], False), (["cat"], False), (["cat", "-"], False),
    ],
)  # fmt: skip
def test_an_interpreter_without_a_program_is_refused_since_stdin_is_empty(
    words: list[str], empty: bool
) -> None:
    spec = JobSpec(words, "/", "n")
    if not empty:
        return program_check.check_input(spec)
    with pytest.raises(
        UsageError, match="would read its program from stdin, which is empty in a job"
    ):
        program_check.check_input(spec)


def test_what_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "go").write_text("#!/bin/sh\n")
    (tmp_path / "go").chmod(0o755)
    look(tmp_path, "sh", "train.py")
    look(tmp_path, "./go")
    look(tmp_path, "sh", "-c", "nothing here")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["no-such-program"], "the program 'no-such-program' was not found in PATH", "whole path"),
        (["train.py"], "was not found in PATH", "./train.py"),
        (["nope.yaml"], "the job file nope.yaml does not exist in ", "correct the path"),
        (["./trian.py"], "the program ./trian.py does not exist", "did you mean train.py?"),
        (["./train.py"], "cannot be executed", "chmod +x"),
        (["."], "was not found in PATH", ""),
        (["./"], "./ is a folder, not a program", "give the program"),
        (["sh", "trian.py"], "the file trian.py does not exist", "did you mean train.py?"),
        (["sh", "gone/x.sh"], "the file gone/x.sh does not exist", "is not there either"),
    ],
)
def test_what_is_missing_is_told_in_words(
    tmp_path: Path, words: list[str], message: str, hint: str
) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError) as error:
        look(tmp_path, *words)
    assert message in error.value.message
    assert hint in error.value.hint


def test_each_role_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such"):
        look(tmp_path, "true", roles=[Role("a", ["true"]), Role("b", ["no-such"])])

"""Whether the program and the script of a local job are there, before it is queued, and that an
interpreter of any job has a program at all. Called by `control.py`.

What is missing now may be there when the job starts; but a job that waits for others (`after`) is
the only one that may count on it. A job that somebody follows is not checked: its exit code (126,
127) tells it, as a shell's would.
"""

import os
import re
from collections.abc import Mapping, Sequence

from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.settings.nearest import nearest

_PYTHON = re.compile(r"(python|pypy)[0-9.]*\Z")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
# options of interpreters whose value is the next word
_WITH_VALUE = frozenset(("-W", "-X", "-o", "-O"))
# options that bring no program
_PLAIN = frozenset(("-u", "-i", "-q", "-I", "-E", "-B", "-e", "-x", "-l"))
_NO_SCRIPT = frozenset(("-c", "-m", "-s", "-", "--version", "-V", "--help", "-h"))


def check(spec: JobSpec, env: Mapping[str, str]) -> None:
    for words in [role.command for role in spec.roles] or [spec.command]:
        _check_program(words[0], spec.cwd, env)
        script = script_of(words)
        if script is not None:
            _check_script(script, spec.cwd)


def _check_program(program: str, cwd: str, env: Mapping[str, str]) -> None:
    if "/" in program:
        path = os.path.join(cwd, program)
        if not os.path.exists(path):
            raise UsageError(f"the program {program[:200]} does not exist in {cwd}", _similar(path))
        if os.path.isdir(path):
            raise UsageError(
                f"{program[:200]} is a folder, not a program",
                "give the program, and then its words",
            )
        if not os.path.isfile(path) or not os.access(path, os.X_OK):
            raise UsageError(
                f"the program {program[:200]} cannot be executed", f"chmod +x {program[:200]}"
            )
        return
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    found = (os.path.join(cwd, folder, program) for folder in folders)
    if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in found):
        here = os.path.isfile(os.path.join(cwd, program))
        if not here and program.endswith((".yaml", ".yml")):
            raise UsageError(
                f"the job file {program[:200]} does not exist in {cwd}",
                _similar(os.path.join(cwd, program)),
            )
        hint = "correct it, or give its whole path"
        if here:
            python = f"python {program}, or " if program.endswith(".py") else ""
            hint = f"to run the one in this folder: {python}./{program}"
        elif " " in program:
            hint = f"leave out the quotes, or: bash -c {program[:120]!r}"
        raise UsageError(f"the program {program[:200]!r} was not found in PATH", hint)


def script_of(words: Sequence[str]) -> str | None:
    """The file that an interpreter is asked to run; None where there is none, or nobody can know."""
    name = os.path.basename(words[0])
    is_shell = name in _SHELLS
    if not is_shell and not _PYTHON.match(name):
        return None
    command_letters = "cs" if is_shell else "cm"
    rest = iter(words[1:])
    for word in rest:
        if word in _NO_SCRIPT or word.startswith(("-c", "-m")):
            return None
        if _is_bundle(word, command_letters):
            return None
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None


def check_input(spec: JobSpec) -> None:
    """An interpreter that would read its program from stdin does nothing, and calls that a success:
    stdin is empty.
    """
    if spec.stdin is not None:
        return
    for words in [role.command for role in spec.roles] or [spec.command]:
        if reads_stdin(words):
            name = os.path.basename(words[0])
            example = f"{name} -c '…'" if name in _SHELLS else f"{name} train.py, or {name} -c '…'"
            raise UsageError(
                f"{name} would read its program from stdin, which is empty in a job: nothing would run",
                f"give it a file or the program itself: {example}; or pipe it into hw run",
            )


def reads_stdin(words: Sequence[str]) -> bool:
    """Whether an interpreter is given no program. Options that nobody knows here are taken for one."""
    name = os.path.basename(words[0])
    rest = list(words[1:])
    if not (_PYTHON.match(name) or name in _SHELLS):
        return False
    while rest and rest[0] in _PLAIN:
        del rest[0]
    return not rest or rest[0] == "-" or (rest[0] == "-s" and name in _SHELLS)


def _is_bundle(word: str, letters: str) -> bool:
    """`-ec`, `-uc`: short options in one word, among them one that brings the program, or says that
    none is a file.
    """
    return (
        word.startswith("-")
        and word[1:].isalpha()
        and word[1] not in "WX"
        and not set(letters).isdisjoint(word)
    )


def _check_script(script: str, cwd: str) -> None:
    path = os.path.join(cwd, script)
    if not os.path.exists(path):
        raise UsageError(f"the file {script[:200]} does not exist in {cwd}", _similar(path))


def _similar(path: str) -> str:
    """A file of nearly that name, where there is one."""
    try:
        names = os.listdir(os.path.dirname(path))
    except OSError:
        return f"the folder {os.path.dirname(path)} is not there either"
    found = nearest(os.path.basename(path), names[:10_000])
    return (
        f"did you mean {found}?"
        if found
        else "correct the path, or submit from the folder that it is in"
    )

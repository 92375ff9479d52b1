"""`shell TASK_DIR [--rank N]`: a shell with the environment and in the folder of a task, for a person who looks around.

Started by `hw shell` as the argv that an engine's `attach` gives. It is no part of the task: what runs in it is not
watched, and leaving it ends nothing.
"""

import json
import os
import sys

from headway.agent.rank import environment
from headway.model.errors import HeadwayError
from headway.spool.layout import TaskFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_CANNOT = 1
_SHELL = "/bin/sh"


def run_shell(task_dir: str, rank: int | None) -> int:
    """Becomes the shell; returns only when it cannot."""
    try:
        task = TaskFile.load(task_dir)
        index = 0 if rank is None else rank - task.first_rank
        if not 0 <= index < max(1, task.processes):
            return _complain(f"rank {rank} is not one of this task's")
        given = _given(task)
        env = environment(task, given, index, task_dir)
        env |= {name: os.environ[name] for name in ("TERM", "COLORTERM", "COLUMNS", "LINES") if name in os.environ}
        os.chdir(task.cwd)
    except HeadwayError as error:
        return _complain(error.message)
    except OSError as error:
        return _complain(f"{error.filename or task_dir}: {error.strerror}")
    shell = given.get("SHELL") or _SHELL
    for path in (shell, _SHELL):
        try:
            os.execve(path, [path], env)  # noqa: S606  (the person's own shell)
        except OSError as error:
            _complain(f"{path}: {error.strerror}")
    return EXIT_CANNOT


def _given(task: TaskFile) -> "Mapping[str, str]":
    """As the job was submitted with; the server keeps it until the job's end."""
    with open(os.path.join(task.home, "env", f"{task.uuid}.json"), "rb") as file:
        try:
            env = json.load(file)["env"]
        except (ValueError, KeyError, TypeError, RecursionError):
            env = None
    if not isinstance(env, dict):
        raise HeadwayError("the job's environment cannot be read")
    return {str(name): str(value) for name, value in env.items()}


def _complain(text: str) -> int:
    sys.stderr.write(f"hw: no shell beside this task: {text}\n")
    return EXIT_CANNOT

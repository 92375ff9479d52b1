"""`shell TASK_DIR [--rank N]`: a shell with the environment and in the folder of a task, for a
person who looks around.

Started by `hw shell` as the argv that an engine's `attach` gives. It is no part of the task: what
runs in it is not watched, and leaving it ends nothing.
"""

from __future__ import annotations

import os
import sys

from headway.agent.shim.rank import environment, working_folder
from headway.model.errors import DamagedError, HeadwayError
from headway.spool.layout import TaskFile
from headway.wire import sealed_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.model.json_types import JsonObject

EXIT_CANNOT = 1
_SHELL = "/bin/sh"


def run_shell(task_dir: str, rank: int | None) -> int:
    """Becomes the shell; returns only when it cannot."""
    try:
        task = TaskFile.load(task_dir)
        index = 0 if rank is None else rank - task.first_rank
        if not 0 <= index < max(1, task.processes):
            return _complain(f"rank {rank} is not one of this task's")
        env = _of_rank(task_dir, index) or environment(
            task, _given(task, task_dir), index, task_dir
        )
        env |= {
            name: os.environ[name]
            for name in ("TERM", "COLORTERM", "COLUMNS", "LINES")
            if name in os.environ
        }
        os.chdir(working_folder(task))
    except HeadwayError as error:
        return _complain(error.message)
    except OSError as error:
        return _complain(f"{error.filename or task_dir}: {error.strerror}")
    shell = env.get("SHELL") or _SHELL
    for path in (shell, _SHELL):
        try:
            os.execve(path, [path], env)  # noqa: S606  (the person's own shell)
        except OSError as error:
            _complain(f"{path}: {error.strerror}")
    return EXIT_CANNOT


def _of_rank(task_dir: str, index: int) -> dict[str, str]:
    """The environment that a living rank of this task was started with; empty where there is none,
    or none to read.
    """
    marks = {f"HEADWAY_SPOOL={task_dir}".encode(), b"HEADWAY_LOCAL_RANK=%d" % index}
    try:
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return {}  # no Linux
    for pid in pids:
        if pid == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:
            continue
        if marks.issubset(entries):
            pairs = [os.fsdecode(entry) for entry in entries if b"=" in entry]
            return dict(pair.split("=", 1) for pair in pairs)
    return {}


def _given(task: TaskFile, task_dir: str) -> "Mapping[str, str]":
    """As the job was submitted with: a task that may be held keeps it in its spool, the server
    until the job's end.
    """
    env = _load(os.path.join(task_dir, "env.json"))
    if env is None:
        env = (_load(os.path.join(task.home, "env", f"{task.uuid}.json")) or {}).get("env")
    if not isinstance(env, dict):
        raise HeadwayError("the job's environment cannot be read")
    around = dict(os.environ) if task.inherit_env else {}
    return {**around, **{str(name): str(value) for name, value in env.items()}}


def _load(path: str) -> "JsonObject | None":
    try:
        with open(path, "rb") as file:
            return sealed_json.decode(file.read(), path)
    except (OSError, DamagedError):
        return None


def _complain(text: str) -> int:
    sys.stderr.write(f"hw: no shell beside this task: {text}\n")
    return EXIT_CANNOT

"""How Headway starts its own processes: the agent and the server.

The agent runs isolated (`-I -S`): nothing in the user's environment, such as PYTHONPATH or a broken
site-packages, can keep it from starting. The server needs its dependencies and so runs with them.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` and `pathlib` cost the client's cold start some milliseconds
if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # …/headway
_CARRIER = (
    "import os, sys; os.chdir('/'); sys.path.insert(0, sys.argv.pop(1)); "
    "from headway.carrier.main import main; main()"
)
# the agent as one file, for containers and other machines
IS_ZIP = os.path.isfile(os.path.dirname(PACKAGE))
_AGENT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from headway.agent.main import main; main()"
)


def agent_argv(verb: str, task_dir: "Path | str", *options: str) -> list[str]:
    """argv of `shim TASK_DIR` or `shipper TASK_DIR [--adopt]`."""
    return [
        python(),
        "-I",
        "-S",
        "-c",
        _AGENT,
        os.path.dirname(PACKAGE),
        verb,
        str(task_dir),
        *options,
    ]


def carrier_argv(task_dir: "Path | str") -> list[str]:
    """argv of the carrier of a task's folders, with the packages of this Python."""
    return [python(), "-P", "-c", _CARRIER, os.path.dirname(PACKAGE), str(task_dir)]


def server_argv() -> list[str]:
    """`-P`: the folder that it is started in, or the home, is no place to import modules from."""
    return [python(), "-P", "-m", "headway.server"]


# What the environment of a job's process says about that job; `docs/concepts/protocol.md`.
_JOB_VARIABLES = frozenset(
    f"HEADWAY_{name}"
    for name in ("JOB", "UUID", "ATTEMPT", "TASK", "SPOOL", "OUTPUT_DIR", "PACKAGE", "ARRAY_INDEX")
)


def server_env(home_folder: "Path") -> dict[str, str]:
    """The server's environment: this one, less what belongs to the job or shell that happens to
    start it.
    """
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in _JOB_VARIABLES and not k.startswith("PYTHON")
    }
    env["HEADWAY_HOME"] = str(home_folder)
    env["PYTHONPATH"] = os.path.dirname(PACKAGE)
    return env


def python() -> str:
    return sys.executable or "python3"

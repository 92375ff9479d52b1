"""Runs Slurm's commands with a time limit, here; `far.py` has the same for a login node. Called by the engine alone.

What a command prints is data; why it failed is told with Slurm's own last line. A controller that does not answer is
`UnreachableError`, so nothing follows from it; a request that Slurm refuses is `RefusedError`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from headway.model.errors import RefusedError, UnreachableError

TIMEOUT_S: Final = 30.0
_AWAY: Final = (
    "unable to contact slurm controller", "connection refused", "connection timed out", "socket timed out",
    "zero bytes were transmitted", "slurm backup controller", "unexpected message received", "transport endpoint",
    "could not resolve hostname", "no route to host", "munge", "resource temporarily unavailable", "broken pipe",
    "connection closed", "connection reset", "kex_exchange", "permission denied (publickey",
    "establish a configuration source",
)  # fmt: skip


class Commands:
    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {**os.environ, **(env or {})}

    def run(self, argv: Sequence[str], text: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
        """What the command prints. `text` is its standard input."""
        try:
            done = subprocess.run(
                list(argv), input=text or "", capture_output=True, text=True, errors="replace", timeout=timeout_s,
                env=self._env, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise UnreachableError(
                f"{argv[0]} is not on this machine", "Slurm's commands must be on the PATH, or `host` name a login node"
            ) from None
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{argv[0]} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise UnreachableError(f"{argv[0]} could not be run: {error}") from None
        if done.returncode == 0:
            return done.stdout
        raise failure(argv[0], done.returncode, done.stderr.strip() or done.stdout.strip())


def failure(program: str, code: int, said: str) -> UnreachableError | RefusedError:
    """The last line is the reason; the ones before are about environment and plugins."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {code}"
    words = last.removeprefix(f"{program}: ").removeprefix("error: ")
    if any(word in said.lower() for word in _AWAY):
        return UnreachableError(f"{program}: {words}", "it is tried again")
    return RefusedError(f"Slurm refuses it: {words}")

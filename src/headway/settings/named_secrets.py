"""Secrets by name: from the environment, the private file, or a keyring where there is one
(capability 52).

Called by `submission.py`. A value goes to the job in its environment; it is never part of a command
or a job script.
"""

import importlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from headway.home import paths
from headway.model.errors import UsageError

SERVICE: Final = "headway"  # of the keyring's entries
_TIMEOUT_S: Final = 20.0  # a keyring may ask a person to unlock it


def find(
    names: Sequence[str], environ: Mapping[str, str], private: Mapping[str, str]
) -> dict[str, str]:
    """The value of each; an error that says where one was looked for."""
    found: dict[str, str] = {}
    for name in names:
        if name in environ:
            value: str | None = environ[name]
        elif name in private:
            value = private[name]
        else:
            value = _from_keyring(name)
        if value is None:
            raise UsageError(f"the secret {name} was found nowhere", _where(name))
        found[name] = value
    return found


def _from_keyring(name: str) -> str | None:
    """By the `keyring` package of this Python, else by its command; None where neither has it."""
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        return _by_command(name)
    try:
        value = keyring.get_password(SERVICE, name)
    # back ends raise errors of their own; whichever it is, this keyring cannot answer
    except Exception as error:
        raise UsageError(
            f"the keyring did not give the secret {name}: {error}", _where(name)
        ) from None
    return None if value is None else str(value)


def _by_command(name: str) -> str | None:
    program = shutil.which("keyring")
    if program is None:
        return None
    argv = [program, "get", SERVICE, name]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"the keyring did not give the secret {name}: {error}", _where(name)
        ) from None
    return done.stdout.removesuffix("\n") if done.returncode == 0 and done.stdout.strip() else None


def _where(name: str) -> str:
    private = paths.config_folder() / "private.yaml"
    return (
        f"looked in: the environment, `secrets:` in {private}, the keyring (keyring set {SERVICE} {name}; "
        "needs the keyring package)"
    )

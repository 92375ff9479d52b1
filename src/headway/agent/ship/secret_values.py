"""The exact values that are masked in a task's output, kept so that a shipper started later masks
them too.

The environment's file is removed once the processes run, and a shipper may be killed at any time.
The values therefore lie in a 0600 file beside the raw output, which holds them anyway if they are
printed; they are stored under a random pad, so that a search for a value does not find it here. The
file goes with the folder.
"""

from __future__ import annotations

import json
import os

from headway.model.limits import ENV_BYTES_MAX, SECRET_BYTES_MIN
from headway.spool.files import OS_FILES, Files, replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECRETS_FILE = ".secrets"


def values_of(env: "Mapping[str, str]", names: "Iterable[str]", token: str) -> list[bytes]:
    """Secret values of an environment, and the task's own token."""
    from headway.wire.redact import secret_values

    found = [os.fsencode(value) for value in secret_values(env, names)]
    for part in (token, token.partition(".")[2]):
        if len(part) >= SECRET_BYTES_MIN:
            found.append(part.encode())
    return sorted(set(found), key=len, reverse=True)


def find(
    task_dir: str,
    env: "Mapping[str, str] | None",
    pids: list[int],
    names: "Iterable[str]",
    token: str,
    files: Files = OS_FILES,
    *,
    keep: bool = True,
) -> list[bytes]:
    """The values for this task: of the environment if it is at hand, else as kept, else of a
    process that lives.
    """
    kept = load(task_dir, files) if env is None else None
    if kept is not None:
        return kept
    found = env or next((e for pid in pids if (e := environment_of(pid))), None) or os.environ
    values = values_of(found, names, token)
    if keep:
        try_save(task_dir, values, files)
    return values


def try_save(task_dir: str, values: list[bytes], files: Files = OS_FILES) -> None:
    try:
        save(task_dir, values, files)
    except OSError:
        return  # a full or vanished disk; a shipper after this one knows the shapes and no more


def save(task_dir: str, values: list[bytes], files: Files = OS_FILES) -> None:
    """Raises OSError."""
    pad = os.urandom(64)
    rows = [_pad(value, pad).hex() for value in values]
    replace_file(
        files, f"{task_dir}/{SECRETS_FILE}", json.dumps({"pad": pad.hex(), "values": rows}).encode()
    )


def load(task_dir: str, files: Files = OS_FILES) -> list[bytes] | None:
    """None where nothing was kept."""
    try:
        fd = files.open(f"{task_dir}/{SECRETS_FILE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        stored = json.loads(files.pread(fd, 4 * ENV_BYTES_MAX, 0))
        pad = bytes.fromhex(stored["pad"])
        return [_pad(bytes.fromhex(row), pad) for row in stored["values"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    finally:
        files.close(fd)


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process of ours was started with; empty where it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            rows = file.read(ENV_BYTES_MAX).split(b"\0")
    except OSError:
        return {}
    return {
        os.fsdecode(name): os.fsdecode(value)
        for name, _, value in (row.partition(b"=") for row in rows)
        if name
    }


def _pad(value: bytes, pad: bytes) -> bytes:
    return bytes(byte ^ pad[i % len(pad)] for i, byte in enumerate(value))

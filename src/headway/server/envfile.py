"""What of a job may not rest in the database: its environment, and its command if that holds secrets.

One file a job, 0600, from its submission to its end. Called by `control.py`.
"""

import json
import os
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Private:
    env: dict[str, str] = field(repr=False)
    command: list[str] = field(repr=False)  # as it was given
    roles: dict[str, list[str]] = field(default_factory=dict, repr=False)  # commands of roles, likewise


def save(folder: Path, uuid: str, private: Private) -> None:
    """Durable under its name, or not there: it is written before the job that needs it is acknowledged (P9)."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f".{uuid}-{secrets.token_hex(4)}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(asdict(private), ensure_ascii=True).encode("ascii"))
            file.flush()
            os.fsync(fd)
        os.rename(fresh, _path(folder, uuid))
        _sync_folder(folder)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def load(folder: Path, uuid: str) -> Private | None:
    try:
        return Private(**json.loads(_path(folder, uuid).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def remove(folder: Path, uuid: str) -> None:
    _path(folder, uuid).unlink(missing_ok=True)


def sweep(folder: Path, keep: Collection[str]) -> None:
    """Remove the files of jobs that are over, and what a killed server left half written."""
    wanted = {f"{uuid}.json" for uuid in keep}
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name not in wanted:
            (folder / name).unlink(missing_ok=True)


def _path(folder: Path, uuid: str) -> Path:
    return folder / f"{uuid}.json"


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

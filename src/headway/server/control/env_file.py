"""What of a job may not rest in the database: its environment, and its command if that holds
secrets.

One file a job, or one for all jobs of an array, 0600, from the submission to the end. Called by
`control.py`.
"""

import os
import secrets
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from headway.home.ownership import is_mine
from headway.home.paths import sync_folder
from headway.model.errors import DamagedError
from headway.model.job import JobSpec
from headway.model.json_types import JsonObject
from headway.model.limits import ENV_KEPT_BYTES_MAX
from headway.model.undo import UndoOnFailure
from headway.wire import redact, sealed_json

ARRAY_INDEX = "HEADWAY_ARRAY_INDEX"
_DOUBTFUL = frozenset(("key", "keys", "pass", "cred", "creds", "dsn"))


@dataclass(frozen=True, slots=True)
class Private:
    env: dict[str, str] = field(repr=False)
    command: list[str] = field(repr=False)  # as it was given
    # commands of roles, likewise
    roles: dict[str, list[str]] = field(default_factory=dict, repr=False)
    # of an array: by number, its own
    jobs: dict[str, JsonObject] = field(default_factory=dict, repr=False)


def kept(spec: JobSpec, env: Mapping[str, str], secret: Collection[str]) -> dict[str, str]:
    """What a person has set for this job and is no secret, by name or by its look: it may rest in
    the database. A name in doubt, such as MY_KEY, counts as one.
    """
    secret_values = redact.secret_values(env, secret)
    found = {}
    for name in spec.env_set:
        if name not in env or redact.is_secret_name(name, secret):
            continue
        if _DOUBTFUL.intersection(name.lower().split("_")):
            continue
        value = env[name]
        if len(value.encode(errors="replace")) > ENV_KEPT_BYTES_MAX:
            continue
        if redact.mask_text(value, secret_values) == value:
            found[name] = value
    return found


def save(folder: Path, uuid: str, private: Private) -> None:
    """Durable under its name, or not there: it is written before the job that needs it is
    acknowledged (P9).
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f".{uuid}-{secrets.token_hex(4)}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    # also when we are interrupted: a half file with secrets must not stay
    with UndoOnFailure(fresh.unlink, missing_ok=True):
        with os.fdopen(fd, "wb") as file:
            file.write(sealed_json.encode(asdict(private)))
            file.flush()
            os.fsync(fd)
        os.rename(fresh, _path(folder, uuid))
        sync_folder(folder)


def load(folder: Path, uuid: str) -> Private | None:
    """None where it is not there, or is no such file, or is not the owner's alone: what it holds
    becomes the command and environment of a process.
    """
    try:
        with open(_path(folder, uuid), "rb", opener=_no_link) as file:
            if not is_mine(os.fstat(file.fileno())):
                return None
            return Private(**sealed_json.decode(file.read(), "the environment"))
    except (OSError, DamagedError, TypeError):
        return None


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def of_job(folder: Path, uuid: str, spec: JobSpec) -> Private | None:
    """What one job gets: from its own file, else from the one of its array, which all of its jobs
    share.
    """
    found = load(folder, uuid) if spec.array is None else _of_array(folder, spec.array, spec)
    if found is None or spec.array_index is None:
        return found
    return replace(found, env={**found.env, ARRAY_INDEX: str(spec.array_index)})


def _of_array(folder: Path, array: str, spec: JobSpec) -> Private | None:
    try:
        stamp = os.stat(_path(folder, array)).st_mtime_ns
    except OSError:
        return None
    shared = _kept(folder, array, stamp)
    if shared is None:
        return None
    kept = shared.jobs.get(str(spec.array_index), {})
    command = kept.get("command") or (shared.command if spec.masked else spec.command)
    roles = shared.roles if spec.masked else {role.name: role.command for role in spec.roles}
    return Private({**shared.env, **kept.get("env", {})}, command, kept.get("roles") or roles)


def own(folder: Path, array: str) -> dict[str, dict[str, str]]:
    """Variables that jobs of an array have of their own, by number; none where the array's file is
    gone.
    """
    shared = load(folder, array)
    return (
        {index: kept["env"] for index, kept in shared.jobs.items() if kept.get("env")}
        if shared
        else {}
    )


@lru_cache(maxsize=4)  # the jobs of an array start one after the other, and its file may be large
def _kept(folder: Path, array: str, stamp: int) -> Private | None:
    return load(folder, array)


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

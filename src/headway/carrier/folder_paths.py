"""Where the folders of a job lie on a node. Called by `main.py`, and by engines that mount them
into containers.

Below `base` (HOME/folders, or `folders` in a cluster's own folder):

    cache/<place>/<version>/   what was fetched of one place, read only, shared by all tasks and jobs of the node
    jobs/<uuid>/               what is known of one job: what was fetched once, what was there before, what was sent
    mounts/<folder>/<name>/    where mount tools mount, for all that want the same in one working folder; for containers
                               mounts/<task>/<name>/, which each of them sees as mounts/<working folder>/<name>/
    mounts/links/<path>/       the tasks that use what is mounted under one path (`shared_links.py`)
    placed/<path>.json         folders that were fetched into a person's own working folder
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headway.model.data_folder import Folder
from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.storage.location import LOCAL, Place, parse

JSON_BYTES_MAX: Final = 64 * 1024 * 1024
CACHE: Final = ".cache"  # what a mount tool keeps, beside the point where it mounts


def digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]


def cache_folder(base: str, source: Place, account: Mapping[str, str]) -> str:
    """One for each place, whoever fetches it: another account may not read what this one could."""
    return os.path.join(
        base, "cache", digest(str(source), account.get("endpoint", ""), account.get("account", ""))
    )


def job_file(base: str, uuid: str, name: str, kind: str) -> str:
    return os.path.join(base, "jobs", uuid, f"{digest(name)}.{kind}")


def is_link_only(folder: JsonMapping, source: Place | None) -> bool:
    """A folder of this machine that the job may only read is not copied."""
    return source is not None and source.kind == LOCAL and folder["mode"] == "ro"


def needs_library(folder: Folder) -> bool:
    """Whether obstore has to be there: not for what is mounted, nor for a folder of the machine
    that is only read.
    """
    if folder.mount:
        return False
    where = parse(folder.source) if folder.source else None
    return folder.target is not None or not is_link_only({"mode": folder.mode}, where)


def placed_file(base: str, path: str) -> str:
    return os.path.join(base, "placed", f"{digest(os.path.realpath(path))}.json")


def check_free(base: str, folder: JsonMapping, path: str) -> None:
    """Nothing of a person's own is written over: neither by a link, nor by files that are fetched."""
    if folder.get("source") is None and not folder.get("mount"):
        if os.path.lexists(path) and not os.path.isdir(path):
            raise UsageError(
                f"{path} is not a folder", "move it away, or name the folder otherwise"
            )
        return
    source = str(folder.get("source") or "")
    if (
        not os.path.lexists(path)
        or os.path.islink(path)
        or os.path.realpath(path) == os.path.realpath(source)
    ):
        return
    if os.path.isdir(path) and (not os.listdir(path) or read_json(placed_file(base, path))):
        return
    raise UsageError(
        f"{path} is there already, and the folder {folder['name']} would take its place",
        "move it away, or name the folder otherwise",
    )


def link(path: str, target: str) -> None:
    """`path` leads to `target` from now on. Only a link, or an empty folder, makes room for it."""
    if os.path.islink(path) and os.readlink(path) == target:  # a mount that hangs is not looked at
        return
    if not os.path.islink(path) and os.path.realpath(path) == os.path.realpath(target):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    draft = f"{path}.{os.getpid()}.tmp"
    os.symlink(target, draft)
    os.replace(draft, path)


@contextmanager
def locked(path: str, waiting: Callable[[], None]) -> Iterator[None]:
    """One at a time, among all tasks that see this file; `waiting` is called now and then, and may
    raise.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not try_lock(fd):
            waiting()
            time.sleep(0.2)
        yield
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_json(path: str) -> JsonObject:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return {}
            found = json.loads(file.read(JSON_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: str, values: JsonMapping) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(values, file)
    os.replace(draft, path)

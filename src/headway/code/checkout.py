"""Laying a snapshot out as files again: for `hw code`, and for a job that runs from its snapshot.

A job has one folder of its own, HOME/checkouts/<uuid>, made when it first starts and shared by its
tasks and attempts on this machine: what it writes beside its code is there for the next attempt.
The files are copies, so a job may change them. A folder that the job left as it was goes with the
job's end; another one goes with the job (`hw gc`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from pathlib import Path

from headway.code.depot import Depot
from headway.code.manifest import EXECUTABLE, LINK, Entry
from headway.model.errors import RefusedError
from headway.model.undo import UndoOnFailure

_NOTE = ".json"
_WASTE = ("__pycache__",)  # of Python itself; not a change that anybody wants to keep


def restore(depot: Depot, digest: str, target: str, *, force: bool = False) -> int:
    """The snapshot's files in `target`; how many. An existing folder that is not empty is refused,
    unless forced.
    """
    entries = depot.manifest(digest)
    with depot.locked():
        if os.path.lexists(target) and not _is_empty(target):
            if not force:
                raise RefusedError(
                    f"{target} is there already",
                    "name another folder, or write over it with --force",
                )
            _check_over(entries, target)
            _lay(depot, entries, target, over=True)
            return len(entries)
        parent = os.path.dirname(os.path.abspath(target))
        os.makedirs(parent, exist_ok=True)
        draft = os.path.join(parent, f".{os.path.basename(target)}-{secrets.token_hex(4)}.tmp")
        # also when we are interrupted: half a checkout must not look like one
        with UndoOnFailure(shutil.rmtree, draft, ignore_errors=True):
            os.mkdir(draft)
            _lay(depot, entries, draft)
            os.rename(draft, target)
    return len(entries)


def _is_empty(target: str) -> bool:
    if os.path.islink(target) or not os.path.isdir(target):
        return False
    with os.scandir(target) as found:
        return next(found, None) is None


def _check_over(entries: list[Entry], target: str) -> None:
    """Nothing is written through a link, and no folder is put in the place of a file."""
    for folder in sorted({entry.path.rpartition("/")[0] for entry in entries}):
        path = target
        for part in ["", *folder.split("/")]:
            path = os.path.join(path, part) if part else path
            if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
                raise RefusedError(
                    f"{path} is not a folder, so nothing can be written below it",
                    "move it away first",
                )


def _lay(depot: Depot, entries: list[Entry], target: str, *, over: bool = False) -> None:
    made: set[str] = set()
    for entry in entries:
        folder = entry.path.rpartition("/")[0]
        if folder not in made:
            os.makedirs(os.path.join(target, folder), exist_ok=True)
            made.add(folder)
        path = os.path.join(target, entry.path)
        if over and os.path.lexists(path):
            os.unlink(path)
        if entry.kind != LINK:
            _write(path, depot.read(entry.digest), 0o777 if entry.kind == EXECUTABLE else 0o666)
    for entry in entries:  # last, so that nothing was ever written through one
        if entry.kind == LINK:
            os.symlink(os.fsdecode(depot.read(entry.digest)), os.path.join(target, entry.path))


def _write(path: str, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


# -- of a job


def prepare(home: str, digest: str, uuid: str) -> str:
    """A job's folder with its code; made once, also when several tasks come at the same time."""
    folder = os.path.join(home, "checkouts")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    target = os.path.join(folder, uuid)
    fd = os.open(f"{target}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if not os.path.isdir(target):
            depot = Depot(Path(home) / "code")
            try:
                restore(depot, digest, target)
            finally:
                depot.close()
            note = json.dumps({"digest": digest, "made_ns": time.time_ns()})
            with open(f"{target}{_NOTE}", "w", encoding="ascii") as file:
                file.write(note)
    finally:
        os.close(fd)
    return target


def remove_unchanged(home: Path, uuid: str) -> bool:
    """At the job's end: its folder goes when nothing in it is new or changed. False: it stays."""
    target = home / "checkouts" / uuid
    if not target.is_dir():
        return True
    try:
        note = json.loads(Path(f"{target}{_NOTE}").read_text())
        depot = Depot(home / "code")
        try:
            paths = {entry.path for entry in depot.manifest(note["digest"])}
        finally:
            depot.close()
    except (OSError, ValueError, KeyError, RefusedError):
        return False
    if not _is_unchanged(str(target), paths, int(note["made_ns"])):
        return False
    remove(home, uuid)
    return True


def _is_unchanged(target: str, paths: set[str], made_ns: int) -> bool:
    found = 0
    for folder, folders, names in os.walk(target):
        folders[:] = [name for name in folders if name not in _WASTE]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*names, *links]:
            path = os.path.join(folder, name)
            if os.path.relpath(path, target) not in paths or os.lstat(path).st_ctime_ns > made_ns:
                return False
            found += 1
    return found == len(paths)


def remove(home: Path, uuid: str) -> None:
    target = home / "checkouts" / uuid
    shutil.rmtree(target, ignore_errors=True)
    for name in (f"{target}{_NOTE}", f"{target}.lock"):
        Path(name).unlink(missing_ok=True)

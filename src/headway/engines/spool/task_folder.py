"""A task's spool folder as an engine sees it: made once, looked at, removed. Called by all engines.

The layout is `docs/concepts/protocol.md`. Files there are written by other processes, of which some
were killed: whatever cannot be read counts as absent.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headway.model.errors import DamagedError
from headway.model.folder_names import KEPT, PRIVATE, kept
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.record import FACT
from headway.wire import frame, sealed_json

_KEY: Final = (
    r"(?P<key>(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<attempt>[0-9]{1,9}))"
)
KEY: Final = re.compile(rf"{_KEY}\Z")  # of an attempt
# of a task: the name of its folder
ID: Final = re.compile(rf"{_KEY}-(?P<task>[a-z][a-z0-9-]{{0,40}})\Z")
_RECORDS = ("shim", "shipper-", "facts-", "metrics-")
_STREAMS = (*_RECORDS, "stdout-", "stderr-")
_NOT_STREAMS = (".json", ".lock", ".tmp")
_FILES_OF_TASK = 16  # what agent and client make besides
_FILES_OF_RANK = 8
_SCAN_BYTES_MAX = 16 * 1024 * 1024  # of one stream of facts; they are far smaller


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor. A job can put anything into its folder, also from inside a container: a link is
    not followed, and a FIFO is not waited for. Raises OSError.
    """
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return fd


def open_log(folder: Path) -> int:
    """The log of the task's agent, to append to. Raises OSError."""
    return open_plain(folder / "agent", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def load_json(path: Path) -> JsonObject | None:
    data = _read(path)
    try:
        value = sealed_json.decode(data, path.name) if 0 < len(data) < _SCAN_BYTES_MAX else None
    except DamagedError:
        return None
    return value if isinstance(value, dict) else None


def make(folder: Path, task: JsonMapping, env: Mapping[str, str]) -> bool:
    """Make the folder with its files in one step; False when it is already there. What `task` has
    as `carried` goes into a file of its own, for the carrier alone.

    It is filled under another name and renamed, so nobody ever sees half of it (F23).
    """
    fresh = folder.parent / f".new-{folder.name}-{secrets.token_hex(4)}"
    _check_inodes(folder.parent, int(task.get("processes") or 1))
    try:
        try:
            fresh.mkdir(mode=0o700)
        except FileNotFoundError:  # the first one
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.mkdir(mode=0o700)
    except OSError as error:  # told under the task's own name: the same trouble has the same words
        raise OSError(error.errno, error.strerror, str(folder)) from None
    try:
        carried = task.get("carried")
        _write_private(
            fresh / "task.json", {name: value for name, value in task.items() if name != "carried"}
        )
        _write_private(fresh / "env.json", env)
        if carried is not None:
            _write_private(fresh / PRIVATE, carried)
        os.rename(fresh, folder)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if folder.is_dir():
            return False
        raise
    return True


def _check_inodes(folder: Path, processes: int) -> None:
    """A task whose output had no file would run for nothing: it waits until there is room."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return
    needed = _FILES_OF_TASK + _FILES_OF_RANK * processes
    if found.f_files and found.f_favail < needed:
        raise OSError(
            errno.ENOSPC,
            f"no room for more files (inodes): {found.f_favail} free, {needed} needed",
            str(folder),
        )


def last_words(folder: Path) -> str:
    """Why its agent could not start, in its own words; empty where it said nothing."""
    try:
        with os.fdopen(open_plain(folder / "agent"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read(4096).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    said = [line.removeprefix("headway: ") for line in lines if line.startswith("headway: ")]
    return said[-1][:300] if said else ""


def _write_private(path: Path, value: JsonMapping) -> None:
    data = sealed_json.encode(value)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    # not synced: a power cut ends the task too, and an empty file is made again
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def is_task(folder: Path) -> bool:
    """Whether it holds a task. The folder itself stays where an agent in a container has removed
    what was in it: it is mounted there.
    """
    return (folder / "shim.json").exists() or load_json(folder / "task.json") is not None


def has_end(folder: Path) -> bool:
    """Whether an agent has written down that the task ended: the shim, or a shipper in its place."""
    return any(_tells_end(path) for path in [folder / "shim", *folder.glob("shipper-*")])


def _tells_end(path: Path) -> bool:
    data = _read(path)
    scan = frame.scan(data, final=True)
    for kind, payload in frame.frames(data[: scan.end], scan.damaged):
        if kind != FACT:
            continue
        try:
            fact = frame.decode_json(payload)
        except (ValueError, RecursionError):
            continue  # damage inside a frame costs that frame only (P11)
        if fact.get("type") == "task_ended":
            return True
    return False


def _read(path: Path) -> bytes:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return file.read(_SCAN_BYTES_MAX)
    except OSError:
        return b""


def unsent(folder: Path) -> list[str]:
    """Streams with bytes that no server has acknowledged. The agent's own log does not count: it
    grows by sending.
    """
    cursor = load_json(folder / "cursor.json") or {}
    names = []
    for name, size in stream_sizes(folder).items():
        sent = cursor.get(name, 0) if isinstance(cursor.get(name), int) else 0
        if size > sent and not (name.startswith(_RECORDS) and _is_zero(folder / name, sent)):
            names.append(name)
    return sorted(names)


def stream_sizes(folder: Path) -> dict[str, int]:
    try:
        entries = [
            e
            for e in os.scandir(folder)
            if e.name.startswith(_STREAMS) and not e.name.endswith(_NOT_STREAMS)
        ]
        return {
            e.name: e.stat(follow_symlinks=False).st_size
            for e in entries
            if e.is_file(follow_symlinks=False)
        }
    except OSError:
        return {}


def _is_zero(path: Path, offset: int) -> bool:
    """Zeros to the end are a preallocated tail, not data (F14)."""
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            file.seek(offset)
            return not file.read(_SCAN_BYTES_MAX).strip(b"\0")
    except OSError:
        return False


def gpus_held(spool: Path, *, in_containers: bool = False) -> list[int]:
    """GPUs of this machine that tasks have and have not given back; `in_containers`: of those tasks
    alone.
    """
    held: list[int] = []
    for path in spool.glob("*-*/task.json"):
        task = given(path.parent)
        gpus = task.get("devices", None if in_containers else task.get("gpus"))
        if isinstance(gpus, list) and gpus and not has_end(path.parent):
            held += gpus
    return held


def given(folder: Path) -> JsonObject:
    """What the engine wrote down for the task, and not what its container may have made of it;
    empty: nothing.
    """
    return load_json(Path(kept(str(folder))) / "task.json") or {}


def keep(folder: Path, task: JsonMapping, carried: JsonMapping | None) -> None:
    """Write that down where the task's container does not see it. Raises OSError."""
    target = folder.parent.parent / KEPT / folder.name
    if target.exists():
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = target.with_name(f".new-{folder.name}-{secrets.token_hex(4)}")
    fresh.mkdir(mode=0o700)
    _write_private(fresh / "task.json", task)
    if carried is not None:
        _write_private(fresh / PRIVATE, carried)
    os.rename(fresh, target)


def forget_kept(folder: Path) -> None:
    shutil.rmtree(folder.parent.parent / KEPT / folder.name, ignore_errors=True)


def remove(folder: Path) -> None:
    """Out of sight in one step, then gone: a killed server leaves no half folder under the task's
    name.
    """
    aside = folder.parent / f".old-{folder.name}-{secrets.token_hex(4)}"
    try:
        os.rename(folder, aside)
    except FileNotFoundError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def sweep(spool: Path) -> None:
    """Remove what a killed server left half made or half removed."""
    for pattern in (".new-*", ".old-*"):
        for path in spool.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)

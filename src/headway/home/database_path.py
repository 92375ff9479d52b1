"""Where the database of a home lies: in the home, or on a local disk when the home is on a network
file system.

SQLite's locks and its shared memory do not work across machines, so a database on NFS gets damaged.
The server calls `settle` once it holds the lock of the home; everybody else reads `Paths.db`, which
follows the pointer that it wrote.
"""

import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Final

from headway.home.paths import Paths, private_folder, state_folders
from headway.model.errors import RefusedError, UnreachableError

NETWORK_FILE_SYSTEMS: Final = frozenset(
    "nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph glusterfs 9p afs fuse.sshfs fuse.glusterfs fuse.ceph fuse.s3fs "
    "fuse.rclone fuse.blobfuse fuse.blobfuse2 fuse.gcsfuse wekafs panfs orangefs pvfs2".split()
)


def file_system_of(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds `path`; empty where the system does not say."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mountinfo.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) > 2 and fields[2] == wanted and after:
            return after.split()[0]
    return ""


def settle(paths: Paths, given: str | None = None) -> str | None:
    """Choose the folder of the database the first time, and check the choice later. Returns what to
    tell, if anything.

    `given`: the setting `database_folder`. A database that is in the home already stays there.
    """
    if paths.database_pointer.exists():
        _check_host(paths)
        return None
    if paths.db.exists():
        kind = file_system_of(paths.home)
        return _warning(paths, kind) if kind in NETWORK_FILE_SYSTEMS and not given else None
    kind = file_system_of(paths.home)
    if given is None and kind not in NETWORK_FILE_SYSTEMS:
        return None
    folder = Path(given) if given else _local_folder(paths, kind)
    _point_to(paths, folder)
    return f"the database is in {folder}: " + (
        "database_folder says so" if given else f"the home is on {kind}"
    )


def _warning(paths: Paths, kind: str) -> str:
    return (
        f"{paths.db} lies on a network file system ({kind}), where it can be damaged; to move it: "
        f"hw server stop, move it and its -wal file to a local disk, and set database_folder to that folder"
    )


def _local_folder(paths: Paths, kind: str) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(paths.home))).hexdigest()[:16]
    for base in state_folders():
        try:
            folder = private_folder(private_folder(base) / name)
        except (OSError, RefusedError, UnreachableError):
            continue
        if file_system_of(folder) not in NETWORK_FILE_SYSTEMS:
            return folder
    raise RefusedError(
        f"{paths.home} is on a network file system ({kind}), and no local disk was found for the database",
        "set database_folder to a folder on a local disk, or HEADWAY_HOME",
    )


def _point_to(paths: Paths, folder: Path) -> None:
    if not folder.is_absolute():
        raise RefusedError(f"database_folder is {folder}, which is not an absolute path")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = paths.database_pointer.with_suffix(".new")
        with draft.open("w") as file:
            json.dump({"folder": str(folder), "host": socket.gethostname()}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(paths.database_pointer)
    except OSError as error:
        raise UnreachableError(
            f"the database cannot be kept in {folder}: {error.strerror}"
        ) from None


def _check_host(paths: Paths) -> None:
    """Another machine that shares the home would make an empty database of its own, and start jobs
    twice.
    """
    try:
        told = json.loads(paths.database_pointer.read_text())
        host, folder = str(told["host"]), Path(told["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RefusedError(
            f"{paths.database_pointer} cannot be read: {error}", "restore it, or remove it"
        ) from None
    if host != socket.gethostname() and not (folder / "headway.db").exists():
        raise RefusedError(
            f"the database of {paths.home} is in {folder} on {host}, and this is {socket.gethostname()}",
            f"run hw on {host}, or set HEADWAY_HOME to another folder here",
        )

"""Removing what the carriers of jobs that are gone have left in a folder. Called by the store for
`hw gc`, and for the folder of a cluster by `engines/spool/cluster_folder.py`, perhaps on a login
node: standard library only.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.carrier import folder_paths
from headway.model.limits import FOLDER_CACHE_S


@dataclass(frozen=True)
class Freed:
    """Fetched folders that were removed, or would be."""

    folders: int
    bytes: int


class _Busy(Exception):
    """A carrier is at work there."""


def collect(
    base: Path, is_over: Callable[[str], bool], open_jobs: set[str], *, dry_run: bool = False
) -> Freed:
    """Remove cached data that no open job has and nobody asked for in a long time, fetches that
    nobody has finished, and notes of jobs that are over, as far as `is_over` knows.
    """
    used: set[str] = set()
    for uuid in open_jobs:
        used.update(str(note.get("version")) for note in _notes(base / "jobs" / uuid))

    freed = []
    for version in _versions(base / "cache"):
        if str(version) in used or not is_old(_note_of(version)):
            continue
        size = _size(version) if dry_run else _remove(version)
        if size is not None:
            freed.append(size)

    if not dry_run:
        for entry in (base / "jobs").glob("*"):
            if entry.name not in open_jobs and is_over(entry.name):
                shutil.rmtree(entry, ignore_errors=True)
    return Freed(len(freed), sum(freed))


def is_old(path: Path) -> bool:
    """Nobody has touched it in a long time."""
    try:
        return time.time() - path.stat().st_mtime > FOLDER_CACHE_S
    except FileNotFoundError:
        return False


def _notes(folder: Path) -> Iterator[dict[str, object]]:
    for path in folder.glob("*.cached"):
        yield folder_paths.read_json(str(path))


def _versions(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("*/*") if path.is_dir() and not path.is_symlink())


def _note_of(version: Path) -> Path:
    """What was touched when somebody last asked for it; the folder itself as long as it is not
    whole.
    """
    note = version.with_name(f"{version.name}.json")
    return note if note.exists() else version


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _remove(version: Path) -> int | None:
    """Its bytes; None where a carrier has it, or has just asked for it: both happen under this
    lock. Folders are read only, and are opened first.
    """

    def give_way() -> None:
        raise _Busy

    try:
        with folder_paths.locked(str(version.parent / ".lock"), give_way):
            note = _note_of(version)
            if not is_old(note):
                return None
            size = _size(version)
            if note != version:
                note.unlink()
            for path, _, _ in os.walk(version):
                os.chmod(path, 0o700)
            shutil.rmtree(version, ignore_errors=True)
            return size
    except (_Busy, OSError):
        return None

"""Removing what the carriers of jobs that are gone have left on this machine. Called by the store for `hw gc`."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headway.carrier import place
from headway.model.limits import FOLDER_CACHE_S


def collect(base: Path, known: set[str], open_jobs: set[str], *, dry_run: bool = False) -> int:
    """Bytes that are freed: of cached data that no open job has and nobody asked for in a long time, and of notes of
    jobs that are gone."""
    used = {note.get("version") for uuid in open_jobs for note in _notes(base / "jobs" / uuid)}
    freed = 0
    for version in sorted((base / "cache").glob("*/*.json")):
        folder = version.with_suffix("")
        if str(folder) not in used and time.time() - version.stat().st_mtime > FOLDER_CACHE_S:
            freed += _size(folder)
            if not dry_run:
                _remove(folder, version)
    for entry in (base / "jobs").glob("*"):
        if entry.name not in known and not dry_run:
            shutil.rmtree(entry, ignore_errors=True)
    return freed


def _notes(folder: Path) -> Iterator[dict[str, object]]:
    for path in folder.glob("*.cached"):
        yield place.read_json(str(path))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _remove(folder: Path, note: Path) -> None:
    """Not under a carrier that looks at it just now. Its folders are read only, and are opened first."""

    class Busy(Exception):
        pass

    def give_way() -> None:
        raise Busy

    with suppress(Busy, OSError), place.locked(str(folder.parent / ".lock"), give_way):
        note.unlink()
        for path, _, _ in os.walk(folder):
            os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)

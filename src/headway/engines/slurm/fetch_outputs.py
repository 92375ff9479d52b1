"""Outputs of jobs on a cluster behind ssh come back here when a job is over, in pieces, however
large. For `place_ssh.py`.

What has come stays: a connection that is lost, a server that is killed or a disk without room costs
what was on its way at that moment, and the rest follows. Until all of a job's outputs are here, a
note in the home says where they are, how far this is and why it does not go on (`store/query.py`
shows it).
"""

import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headway.engines.ssh.relay_client import Relay
from headway.home.paths import Paths
from headway.model.errors import DamagedError, HeadwayError, UnreachableError
from headway.model.limits import OUTPUT_FILES_MAX, OUTPUT_ROOM_BYTES, RELAY_PIECE_BYTES
from headway.settings.quantity import size_text

log = logging.getLogger("headway.control")
AGAIN_S: Final = 60.0
_NOTE_S: Final = 1.0  # between two words about how far it is
_DONE_MAX: Final = 10_000
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_DRAFT: Final = re.compile(r"\.[0-9a-f]{24}\.part")
# another try is no use
_NEVER: Final = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


class _NoRoomError(Exception):
    pass


class File(NamedTuple):
    path: str  # below the job's output folder
    size: int
    mtime_ns: int


class AnyShelf(Protocol):
    @property
    def home(self) -> str: ...
    def unfinished(self) -> dict[str, str]: ...
    def outputs(self, job: str) -> list[tuple[str, int, int]]: ...
    def finish(self, uuid: str) -> None: ...


class Fetch:
    def __init__(self, paths: Paths, relay: Relay, shelf: AnyShelf) -> None:
        self._paths, self._relay, self._shelf = paths, relay, shelf
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._again_s = 0.0
        self._asked: set[str] = set()  # keys of attempts that are over
        self._done: dict[str, None] = {}
        self._noted_s = 0.0

    def expect(self, uuid: str, job: str) -> None:
        """The outputs of this job will come from there. Whose folder a job's outputs go into is said
        here, and not by the login node.
        """
        note = self._expected(uuid)
        if not note.exists():
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = note.with_name(f".{note.name}.tmp")
            draft.write_text(job)
            os.replace(draft, note)

    def _expected(self, uuid: str) -> Path:
        return self._paths.home / "clusters" / "jobs" / uuid

    def _is_ours(self, uuid: str, job: str) -> bool:
        """Whether outputs of this job are to come from there. One that an older Headway submitted has
        no note: then nothing that is here already is touched.
        """
        if not _UUID.fullmatch(uuid) or not _NAME.fullmatch(job) or ".." in job:
            return False
        try:
            return self._expected(uuid).read_text() == job
        except OSError:
            return self._paths.coming(job).exists() or not (self._paths.output / job).exists()

    def is_done(self, key: str) -> bool:
        """Whether nothing more comes of an attempt that is over; it begins, or goes on, with being
        asked.
        """
        with self._lock:
            if key in self._done:
                return True
            self._asked.add(key)
            busy = self._thread is not None and self._thread.is_alive()
            if not busy and time.monotonic() >= self._again_s:
                self._thread = threading.Thread(
                    target=self._run, name="headway-outputs", daemon=True
                )
                self._thread.start()
            return False

    def _run(self) -> None:
        with self._lock:
            asked = set(self._asked)
        try:
            left = self._fetch_all(self._shelf.unfinished())
        # what a login node says may be anything; the next look, a minute later, may be better
        except Exception as error:
            self._later(error)
            return
        with self._lock:
            done = {key for key in asked if key.rpartition("-")[0] not in left}
            self._asked -= done
            self._done.update(dict.fromkeys(done))
            while len(self._done) > _DONE_MAX:
                del self._done[next(iter(self._done))]

    def _fetch_all(self, jobs: Mapping[str, str]) -> set[str]:
        """Those of which not all has come. One job's trouble keeps no other's outputs."""
        left = set(jobs)
        for uuid, job in jobs.items():
            if not self._is_ours(uuid, job):
                log.error("%s tells of outputs of %r, which is not its job", self._relay.host, job)
                left.remove(uuid)
                continue
            try:
                self._fetch(job)
                self._shelf.finish(uuid)
                self._expected(uuid).unlink(missing_ok=True)
                left.remove(uuid)
            except UnreachableError as error:  # so are the others
                self._later(error)
                break
            except (OSError, HeadwayError) as error:
                self._later(error)
        return left

    def _later(self, error: Exception) -> None:
        self._again_s = time.monotonic() + AGAIN_S
        log.warning("outputs could not be fetched from %s now: %s", self._relay.host, error)

    def _fetch(self, job: str) -> None:
        found = [File(*one) for one in self._shelf.outputs(job)]
        there = f"{self._relay.host}:{self._shelf.home}/output/{job}"
        try:
            left = self._copy(job, found[:OUTPUT_FILES_MAX], there) | dict.fromkeys(
                found[OUTPUT_FILES_MAX:], ""
            )
        except (OSError, HeadwayError) as error:
            self._note(job, f"come from {there}: {str(error)[:200]}; it goes on by itself")
            raise
        _remove_drafts(self._paths.output / job, found)
        if left:
            self._note(job, _stays(left, there, self._paths.output / job))
        else:
            self._paths.coming(job).unlink(missing_ok=True)

    def _copy(self, job: str, files: Sequence[File], there: str) -> dict[File, str]:
        """Those that stay there, and why; nothing: there is no room here."""
        total, come, left = sum(file.size for file in files), 0, dict[File, str]()
        for file in files:
            try:
                for size in self._one(job, file):
                    self._note_now_and_then(
                        job,
                        f"{size_text(come + size)} of {size_text(total)} have come from {there}",
                    )
                come += file.size
            except _NoRoomError:
                left[file] = ""
            except _NEVER as error:
                left[file] = error.strerror or str(error)
        return left

    def _one(self, job: str, file: File) -> Iterator[int]:
        """Copies it, unless it is here."""
        target = _target(self._paths.output / job, file.path)
        if _is_here(target, file):
            return
        if (
            shutil.disk_usage(target.parent).free
            < file.size - _size(_draft(target, file)) + OUTPUT_ROOM_BYTES
        ):
            raise _NoRoomError
        yield from self._pieces(job, file, target)

    def _pieces(self, job: str, file: File, target: Path) -> Iterator[int]:
        """Copies it, from where it was left; how much of it there is."""
        draft = _draft(target, file)
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "ab") as out:
            while (offset := out.tell()) < file.size:
                yield offset
                _, data = self._relay.call(
                    "get", job=job, path=file.path, offset=offset, length=RELAY_PIECE_BYTES
                )
                if not data:
                    break  # it has become shorter: what there is
                out.write(data)
                out.flush()
            os.fsync(out.fileno())  # before it has its name, and the note there goes
        os.utime(draft, ns=(file.mtime_ns, file.mtime_ns))
        os.replace(draft, target)

    def _note_now_and_then(self, job: str, words: str) -> None:
        if time.monotonic() - self._noted_s >= _NOTE_S:
            self._noted_s = time.monotonic()
            self._note(job, words)

    def _note(self, job: str, words: str) -> None:
        path = self._paths.coming(job)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.tmp")
        draft.write_text(words)
        os.replace(draft, path)


def _stays(left: Mapping[File, str], there: str, here: Path) -> str:
    size, more = (
        size_text(sum(file.size for file in left)),
        f" and {len(left) - 1} more" if len(left) > 1 else "",
    )
    first, why = next(iter(left.items()))
    why = why or f"{size_text(shutil.disk_usage(here.parent).free)} are free here"
    return f"{first.path}{more} ({size}) stay in {there}: {why}; to fetch all: scp -r {there} ."


def _target(root: Path, path: str) -> Path:
    """A name from the cluster is not believed: it stays below the job's folder here, and no link is
    followed.
    """
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise DamagedError(f"{path[:200]!r} is not the name of an output")
    folder = root
    for part in parts[:-1]:
        folder /= part
        if folder.is_symlink():
            raise DamagedError(f"{folder} is a link; nothing is written through it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / parts[-1]


def _draft(target: Path, file: File) -> Path:
    """Under this name it grows. Another content of the same name has another one."""
    digest = hashlib.sha256(os.fsencode(f"{file.path}\n{file.size}\n{file.mtime_ns}")).hexdigest()
    return target.with_name(f".{digest[:24]}.part")


def _remove_drafts(root: Path, files: Sequence[File]) -> None:
    """Nothing more comes: what is left is of files that have changed between two tries, or that
    stay there.
    """
    own = {root / file.path for file in files}
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names if _DRAFT.fullmatch(name)):
            if path not in own:
                path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _is_here(target: Path, file: File) -> bool:
    """It has come before."""
    if target.is_symlink() or not target.is_file():
        return False
    status = target.stat()
    return (status.st_size, status.st_mtime_ns) == (file.size, file.mtime_ns)

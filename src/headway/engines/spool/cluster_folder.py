"""The folder of a cluster: spools of tasks, numbers of batch jobs, code and outputs. Standard
library only.

The Slurm engine uses it where that folder is seen from here; where it lies behind ssh, the relay on
the login node does (`agent/relay.py`), and the engine has the same words for both
(`engines/slurm/place.py`). Arguments and answers are therefore plain values. Files there are
written by other processes, of which some were killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headway.carrier.cleanup import collect, is_old
from headway.code import checkout
from headway.code.depot import Depot
from headway.engines.spool import task_folder as folders
from headway.model.folder_names import END
from headway.model.json_types import JsonMapping
from headway.model.limits import OUTPUT_FILES_MAX
from headway.wire import file_lock
from headway.wire.identity import boot_id

_SAID_BYTES: Final = 2000
_UUID_CHARS: Final = 36
# Slurm's own watch over memory, and that of the kernel as Slurm tells it, in the output of the
# batch script.
MEMORY: Final = re.compile(
    r"exceeded (?:job |step )?memory limit|oom[-_ ]?kill|out of memory", re.IGNORECASE
)


class TaskView(NamedTuple):
    """What a task's folder tells."""

    begun: bool  # its agent has started
    ended: bool  # an agent has written down its end
    sending: bool  # an agent is at work
    unsent: bool  # something of it is at no server yet
    pid: int | None  # of the shim
    grace_s: float
    # when the shim started: its number alone may be another process by now (F29)
    start: int | None = None
    finishing: bool = False  # its processes are over, and its folders are being sent
    # its agent ran on another machine than the one that looks: a free lock proves nothing
    elsewhere: bool = False
    mark: str = ""  # changes with every sign of life
    claimed: bool = False  # somebody waits whether that agent answers
    taken: bool = False  # it did not: another machine has taken over for it
    job: str = ""  # its id for people
    # when it was made, just before it was submitted; by the clock of the file system, as the next
    made_s: float = 0.0
    # when its agent began, or else the batch script last printed something; 0: neither
    sign_s: float = 0.0


class Shelf:
    """`home` holds code, checkouts and outputs; `spool` the folders of tasks."""

    def __init__(self, home: Path, spool: Path) -> None:
        self._home, self._spool = home, spool
        self._shippers: list[subprocess.Popen[bytes]] = []
        folders.sweep(spool)

    @property
    def home(self) -> str:
        return str(self._home)

    @property
    def spool(self) -> str:
        return str(self._spool)

    # -- tasks

    def make(self, name: str, task: JsonMapping, env: Mapping[str, str]) -> None:
        """A task's folder, made once; when it was last wanted is the time of its task file. Raises
        OSError.
        """
        folder = self._folder(name)
        if folders.load_json(folder / "task.json") is None:
            folders.make(folder, task, env)
        else:
            os.utime(folder / "task.json")

    def make_all(
        self,
        tasks: Iterable[tuple[str, JsonMapping, Mapping[str, str]]],
        outputs: bool = False,
    ) -> None:
        """Many, each with its name, task file and environment; with `outputs` also their output
        folders, which have to come back. Raises OSError.
        """
        for name, task, env in tasks:
            if outputs:
                self.make_output(str(task["id"]), str(task["uuid"]))
            self.make(name, task, env)

    def tasks(self, uuids: Collection[str] | None = None) -> list[str]:
        """Names of all task folders, or of those of some jobs: to look for a few among thousands
        costs little.
        """
        try:
            names = os.listdir(self._spool)
            own = (
                names if uuids is None else [name for name in names if name[:_UUID_CHARS] in uuids]
            )
            return sorted(name for name in own if folders.ID.match(name))
        except OSError:
            return []

    def look(
        self, keys: Sequence[str], whole: bool, outputs: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, TaskView]]:
        """By key and name of the folder; not `whole`: only whether it has begun is looked at.
        `outputs`: what the outputs of their batch scripts are called, by key.
        """
        found: dict[str, dict[str, TaskView]] = {key: {} for key in keys}
        printed = {key: self._output((outputs or {}).get(key) or key) for key in keys}
        uuids = {key[:_UUID_CHARS] for key in keys}
        for name in self.tasks(uuids):
            match = folders.ID.match(name)
            if match and match["key"] in found:
                found[match["key"]][name] = _view(self._folder(name), printed[match["key"]], whole)
        return found

    def adopt(self, names: Sequence[str], argv: Sequence[str]) -> int:
        """Start shippers for what dead agents have left; how many. They outlive us. Raises OSError."""
        self._shippers = [child for child in self._shippers if child.poll() is None]
        for name in names:
            folder = self._folder(name)
            with os.fdopen(folders.open_log(folder), "ab") as log:
                child = subprocess.Popen(
                    [*argv, "shipper", str(folder), "--adopt"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=log, cwd="/", start_new_session=True,
                )  # fmt: skip
            self._shippers.append(child)
        return len(names)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            folders.remove(self._folder(name))

    def close(self) -> None:
        for child in self._shippers:
            # it is meant to outlive us, so its handle shall not complain
            child.returncode = child.returncode or 0
        self._shippers.clear()

    def _folder(self, name: str) -> Path:
        if not folders.ID.match(name):
            raise ValueError(f"{name[:80]!r} is not the name of a task's folder")
        return self._spool / name

    # -- numbers of batch jobs

    def remember(self, key: str, job_id: str) -> None:
        self._write(self._note(key, ".id"), job_id)

    def _write(self, path: Path, text: str) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            draft.write_text(text)
        except FileNotFoundError:  # the first one
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(text)
        os.replace(draft, path)

    def ids(self) -> dict[str, str]:
        """Slurm's id by key."""
        found = {}
        for path in self._spool.glob("*.id"):
            try:
                found[path.stem] = path.read_text().strip()
            except OSError:
                continue
        return {
            key: job_id
            for key, job_id in found.items()
            if folders.KEY.match(key) and job_id.isdigit()
        }

    def id_of(self, key: str) -> str:
        """Empty where none is written down."""
        try:
            job_id = self._note(key, ".id").read_text().strip()
        except OSError:
            return ""
        return job_id if job_id.isdigit() else ""

    def forget(self, key: str) -> None:
        """With the key of an array, all that its elements have printed."""
        for suffix in (".id", ".slurm", ".array"):
            self._note(key, suffix).unlink(missing_ok=True)
        for path in self._spool.glob(f"{key}_*.slurm"):
            path.unlink(missing_ok=True)

    def _output(self, name: str) -> Path:
        key, _, index = name.partition("_")
        return self._note(key, f"_{int(index)}.slurm" if index else ".slurm")

    def said(self, name: str) -> str:
        """The last line that the batch script itself has printed, but for srun's "Exited with exit
        code 1"; where Slurm says there that memory ran out, that line. What a task prints goes
        elsewhere.
        """
        try:
            with self._output(name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _SAID_BYTES))
                text = file.read(_SAID_BYTES).decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and "Exited with exit code" not in line]
        with_figures = [line for line in lines if "exceeded memory limit (" in line]
        of_memory = [line for line in lines if MEMORY.search(line)]
        for candidates in (with_figures, of_memory, lines):
            if candidates:
                return candidates[-1]
        return ""

    def note_array(self, key: str, members: Mapping[str, str]) -> None:
        """Which attempt is which element of a batch job, before there is one. Raises OSError."""
        self._write(self._note(key, ".array"), json.dumps(dict(members)))

    def arrays(self) -> dict[str, dict[str, str]]:
        """All that was noted: index -> key of the attempt, by the array's key."""
        found = {path.stem: folders.load_json(path) for path in self._spool.glob("*.array")}
        return {
            key: members for key, members in found.items() if members and folders.KEY.match(key)
        }

    def _note(self, key: str, suffix: str) -> Path:
        if not folders.KEY.match(key):
            raise ValueError(f"{key[:80]!r} is not the key of an attempt")
        return self._spool / f"{key}{suffix}"

    # -- code and outputs

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Contents that have to come."""
        depot = self._depot()
        try:
            return depot.missing(digests)
        finally:
            depot.close()

    def has_code(self, digest: str) -> bool:
        """Where it is, it stays until the task that is about to be made names it."""
        return self._depot().pin(digest)

    def take_code(self, pack: Path | None, manifest: bytes, digest: str) -> None:
        """A snapshot whose missing contents are in `pack`; each is checked."""
        depot = self._depot()
        try:
            if pack is not None:
                depot.take_pack(pack)
            depot.take_manifest(manifest, digest)
            depot.collect(self._wanted() | {digest})
        finally:
            depot.close()

    def _wanted(self) -> set[str]:
        """Snapshots that tasks of any home may still be laid out from."""
        told = [folders.load_json(path) for path in self._task_files()]
        return {str(task["code"]) for task in told if task and task.get("code")}

    def collect(self, open_jobs: Sequence[str], dry_run: bool) -> tuple[int, int, int]:
        """What no task of any home needs: snapshots, fetched folders, and their bytes. `open_jobs`:
        of our home, also those that have no task just now. What another home had long ago is told
        from its age.
        """
        depot = self._depot()
        try:
            code = depot.collect(self._wanted(), dry_run=dry_run)
        finally:
            depot.close()
        in_use = {*open_jobs, *(path.parent.name[:36] for path in self._task_files())}
        base = self._home / "folders"
        data = collect(base, lambda uuid: is_old(base / "jobs" / uuid), in_use, dry_run=dry_run)
        return code.snapshots, data.folders, code.bytes + data.bytes

    def _task_files(self) -> list[Path]:
        """Of every home that uses this folder."""
        return [*self._home.glob("spool/*/task.json"), *self._home.glob("spool/*/*/task.json")]

    def _depot(self) -> Depot:
        return Depot(self._home / "code")

    # -- the end of a job

    def make_output(self, job: str, uuid: str | None = None) -> str:
        """Its output folder; with `uuid` also a note that it has to come back."""
        path = self._outputs_of(job)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if uuid is not None:
            self._write(self._note(f"{uuid}-0", ".job"), job)
        return str(path)

    def unfinished(self) -> dict[str, str]:
        """Jobs whose outputs have not come back and of which no task is left here: their names by
        uuid.
        """
        alive, found = {name[:_UUID_CHARS] for name in self.tasks()}, {}
        for path in self._spool.glob("*-0.job"):
            uuid = path.stem.removesuffix("-0")
            if uuid not in alive and folders.KEY.match(path.stem):
                with contextlib.suppress(FileNotFoundError):  # finished meanwhile
                    found[uuid] = path.read_text().strip()
        return found

    def finish(self, uuid: str) -> bool:
        """The job is over, and all of it is sent: its code goes, where the job has not changed it.
        False: another attempt of it is here.
        """
        if self.tasks({uuid}):
            return False
        note = self._note(f"{uuid}-0", ".job")
        with contextlib.suppress(OSError, ValueError):
            # only where it has put nothing there
            self._outputs_of(note.read_text().strip()).rmdir()
        note.unlink(missing_ok=True)
        checkout.remove_unchanged(self._home, uuid)
        return True

    def _outputs_of(self, job: str) -> Path:
        if not job or job.startswith(".") or "/" in job or "\0" in job:
            raise ValueError(f"{job[:80]!r} is not the name of a job")
        return self._home / "output" / job

    def outputs(self, job: str) -> list[tuple[str, int, int]]:
        """Plain files that the job has put into its output folder, with their sizes and times; the
        first so many.
        """
        root, found = self._outputs_of(job), []
        for folder, folders_, names in os.walk(root):
            folders_.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                # the job may still run, and remove files
                with contextlib.suppress(FileNotFoundError):
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode):
                        found.append(
                            (os.path.relpath(path, root), status.st_size, status.st_mtime_ns)
                        )
            if len(found) > OUTPUT_FILES_MAX:
                break
        return found

    def read_output(self, job: str, path: str, offset: int, length: int) -> bytes:
        if os.path.isabs(path) or ".." in path.split("/"):
            raise ValueError(f"{path[:200]!r} is not a file of the output folder")
        fd = os.open(self._outputs_of(job) / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.pread(fd, length, offset)
        finally:
            os.close(fd)


def _view(folder: Path, output: Path, whole: bool) -> TaskView:
    """`output`: what the batch script prints."""
    begun = (folder / "shim.json").exists()
    if not whole:
        return TaskView(begun, False, False, False, None, 0.0)
    shim = folders.load_json(folder / "shim.json") or {}
    pid, start = shim.get("pid"), shim.get("start")
    task = folders.load_json(folder / "task.json") or {}
    grace_s = task.get("grace_s")
    return TaskView(
        begun, folders.has_end(folder), file_lock.is_held(folder / file_lock.SHOWN), bool(folders.unsent(folder)),
        pid if isinstance(pid, int) else None, float(grace_s) if isinstance(grace_s, (int, float)) else 0.0,
        start if isinstance(start, int) else None, (folder / END).exists(),
        shim.get("boot_id") not in (None, boot_id()), _mark(folder), (folder / file_lock.CLAIM).exists(),
        (folder / file_lock.TAKEN).exists(), str(task.get("id") or ""), _time_s(folder / "task.json"),
        _time_s(folder / "shim.json") or _time_s(output),
    )  # fmt: skip


def _time_s(path: Path) -> float:
    """When it was last written; 0: it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _mark(folder: Path) -> str:
    """The time that an agent sets from time to time, and how much there is. The file is opened: a
    network file system then asks for its time anew, and does not tell what it remembers.
    """
    try:
        with (folder / file_lock.SHOWN).open("rb") as file:
            shown_ns = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        shown_ns = 0
    sizes = sorted(folders.stream_sizes(folder).items())
    return f"{shown_ns} {zlib.crc32(repr(sizes).encode())}"

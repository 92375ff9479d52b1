"""What lies in a task's folder: the names of its streams, and `task.json`.

Called by client, shim, shipper and the local engine. `docs/concepts/protocol.md` is the table this
follows.
"""

from __future__ import annotations

import os
import stat

from headway.model.errors import DamagedError, VersionError
from headway.model.folder_names import kept
from headway.model.limits import GRACE_S, MIB, SPOOL_BYTES_MAX, STREAM_NAME_CHARS_MAX
from headway.model.record import BLOB, FORMAT_VERSION, INDEX, RAW, RECORDS
from headway.model.value import Value
from headway.spool.files import OS_FILES, Files, replace_file
from headway.spool.stream_names import (
    RAND_CHARS,
    facts_name,
    index_name,
    metrics_name,
    new_rand,
    output_name,
    shipper_name,
)
from headway.wire import sealed_json

# neither `dataclasses` nor `typing` is worth its time in front of every command
TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject
    from headway.wire.batch import TaskKey

__all__ = [
    "TASK_JSON", "Stream", "TaskFile", "facts_name", "index_name", "list_streams", "metrics_name", "new_rand",
    "open_output", "output_name", "parse_stream", "shipper_name",
]  # fmt: skip

TASK_JSON = "task.json"
TASK_JSON_BYTES_MAX = 8 * MIB
_HEX = frozenset("0123456789abcdef")


class Stream(Value):
    """One stream of a task, as its name tells it. Parts that a role does not have are None."""

    name: str
    role: str  # stdout stderr agent shim shipper usage tracks facts metrics logs media blob
    kind: str  # RAW | RECORDS | INDEX | BLOB
    rank: int | None = None
    pid: int | None = None
    rand: str | None = None
    segment: int | None = None


def parse_stream(name: str) -> Stream | None:
    """What a file name says; None for a file that is no stream (`task.json`, a lock, a draft,
    something foreign).
    """
    if len(name) > STREAM_NAME_CHARS_MAX:
        return None
    head, _, tail = name.partition(".")
    role, *rest = head.split("-")
    if name in ("agent", "shim"):
        return Stream(name, name, RAW if name == "agent" else RECORDS)
    if (
        role in ("stdout", "stderr")
        and len(rest) == 1
        and tail in ("", "index")
        and _number(rest[0]) is not None
    ):
        if tail == "" and name != head:
            return None
        return Stream(name, role, INDEX if tail else RAW, rank=_number(rest[0]))
    if role in ("shipper", "usage", "tracks"):
        return _parse_shipper_stream(name, role, rest, tail)
    return _parse_client_stream(name, role, rest, tail)


def _parse_shipper_stream(name: str, role: str, rest: list[str], tail: str) -> Stream | None:
    if len(rest) != 2 or _number(rest[0]) is None or not _is_rand(rest[1]):
        return None
    segment = _number(tail)
    if (segment is None) if role == "tracks" else ("." in name):
        return None
    return Stream(name, role, RECORDS, pid=_number(rest[0]), rand=rest[1], segment=segment)


def _parse_client_stream(name: str, role: str, rest: list[str], tail: str) -> Stream | None:
    if role not in ("facts", "metrics", "logs", "media", "blob") or len(rest) != 3:
        return None
    rank = _number(rest[0])
    pid = _number(rest[1])
    rand = rest[2]
    segment = _number(tail)
    if rank is None or pid is None or not _is_rand(rand):
        return None
    if role == "facts":  # of one segment, which has no number
        if "." in name:
            return None
    elif "." not in name or segment is None:
        return None
    kind = BLOB if role == "blob" else RECORDS
    return Stream(name, role, kind, rank, pid, rand, segment)


def parse_slots(name: str) -> tuple[int, int] | None:
    """(rank, pid) of a file of progress slots; None for any other name."""
    role, *rest = name.split("-")
    rank, pid = (_number(rest[0]), _number(rest[1])) if len(rest) == 3 else (None, None)
    if role != "progress" or rank is None or pid is None or not _is_rand(rest[2]):
        return None
    return rank, pid


def _number(text: str) -> int | None:
    """A plain decimal number, written as we write it: no sign, no leading zero."""
    if not (text.isascii() and text.isdigit() and len(text) <= 12) or (
        len(text) > 1 and text[0] == "0"
    ):
        return None
    return int(text)


def _is_rand(text: str) -> bool:
    return len(text) == RAND_CHARS and _HEX.issuperset(text)


def list_streams(task_dir: str | os.PathLike[str], files: Files = OS_FILES) -> list[Stream]:
    """Every stream in a task's folder: roles in alphabetical order, segments of one process in
    order of writing.
    """
    found = [s for s in map(parse_stream, files.listdir(task_dir)) if s is not None]
    return sorted(
        found, key=lambda s: (s.role, s.rank or 0, s.pid or 0, s.rand or "", s.segment or 0, s.name)
    )


def open_output(task_dir: str, role: str, rank: int) -> int:
    """The file that an output stream is appended to, made when it is not there. Raises OSError."""
    path = os.path.join(task_dir, output_name(role, rank))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


_NOTHING: "list[str]" = []  # defaults are shared, and nobody changes them
_NO_LIMITS: "dict[str, list[int]]" = {}


class TaskFile(Value):
    """`task.json`: what a task is, and what to run. Written once by the engine, or by the client of
    an attached job.
    """

    uuid: str
    attempt: int
    task: str
    home: str
    socket: str = ""
    id: str = ""  # of the job, for people; an attached job gets it when it is registered
    node: str = ""
    token: str = ""  # a secret: never in a log line or a traceback
    # {addresses: [HOST:PORT], pin, host}: the server on the network
    tls: "JsonObject | None" = None
    # folder for requests as files (`wire/tray.py`), where no network leads to the server
    tray: str = ""
    argv: "list[str]" = _NOTHING
    cwd: str = "/"
    umask: int = 0o022
    rlimits: "dict[str, list[int]]" = _NO_LIMITS
    processes: int = 1
    first_rank: int = 0
    world_size: int = 1
    gpus: "list[int] | None" = None
    output_dir: str = ""
    grace_s: float = GRACE_S
    max_duration_s: float | None = None
    hold_s: float = 0.0  # how long the task is kept after its command has failed
    # what all its processes together may have; None: somebody else sees to that, or nobody
    memory_limit_bytes: int | None = None
    pty: bool = False  # stdout and stderr of its processes are terminals
    # {pid, start} of the `hw run` on this machine whose stdin rank 0 gets
    stdin: "dict[str, int] | None" = None
    # its processes get the variables of a launcher; task files of older servers do not say
    ranked: bool = True
    spool_bytes_max: int = SPOOL_BYTES_MAX
    secret_names: "list[str]" = _NOTHING
    monitoring_interval_s: float = 0.0  # between two samples of usage; 0: none are taken
    role: str = ""
    role_first_rank: int = 0  # of this task's first process, counted within its role
    role_processes: int = 1  # of all tasks of the role
    node_rank: int = 0  # which task of the job
    tasks: int = 1  # of the job
    barrier: bool = False  # the processes start when every task of the job is there
    # where other tasks reach this one; empty: the name of the machine that it runs on
    address: str = ""
    # with an empty address: tell the number, for other containers may not know the name
    by_number: bool = False
    env_set: "list[str]" = _NOTHING  # variables that the person set for this job
    # names, or beginnings with _ at their end, that the scheduler sets
    keep_env: "list[str]" = _NOTHING
    signals_all: bool = False  # whoever signals the agent has signalled its processes as well
    # digest of the snapshot that it runs from, in a folder of its own below the home
    code: str | None = None
    code_cwd: str = ""  # the working folder inside the snapshot
    code_commit: str | None = None  # that the snapshot was made from; "+" at its end: with changes
    # names of those that a carrier brings before the processes start
    folders: "list[str]" = _NOTHING
    folders_sent: bool = False  # one of them is sent, or unmounted, when they are over
    # the engine starts the carrier: this agent cannot, it is in a container
    folders_outside: bool = False
    # what the agent finds in its environment comes below the task's: an image has its own
    inherit_env: bool = False
    attached: bool = False
    # Only for attached jobs: {name, experiment, tags, user, started_ns, pid, start, boot_id}. pid
    # and start are those of the process that came first; the others are named by their `facts-…`
    # streams and the OPEN frames in them.
    attach: "JsonObject | None" = None
    version: int = FORMAT_VERSION

    def __repr__(self) -> str:
        return f"TaskFile({self.uuid}-{self.attempt}-{self.task})"

    @property
    def key(self) -> "TaskKey":
        from headway.wire.batch import TaskKey

        return TaskKey(self.uuid, self.attempt, self.task)

    def save(self, task_dir: str | os.PathLike[str], files: Files = OS_FILES) -> None:
        data = sealed_json.encode(self.__dict__)
        replace_file(files, os.path.join(task_dir, TASK_JSON), data)

    @classmethod
    def load(cls, task_dir: str | os.PathLike[str], files: Files = OS_FILES) -> "TaskFile":
        """Raises OSError, DamagedError, or VersionError when a newer Headway wrote it (P12)."""
        path = os.path.join(kept(os.fspath(task_dir)), TASK_JSON)
        return cls.parse(_read_plain(files, path), path)

    @classmethod
    def parse(cls, data: bytes, path: str = TASK_JSON) -> "TaskFile":
        values = sealed_json.decode(data, path)
        if "version" not in values:
            raise DamagedError(f"{path} is not a task file")
        version = values["version"]
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise VersionError(
                f"{path} has version {version!r}, this Headway reads up to {FORMAT_VERSION}"
            )
        try:
            return cls(**{k: v for k, v in values.items() if k in cls._fields})
        except TypeError as error:
            raise DamagedError(f"{path} is not a task file: {error}") from None


def _read_plain(files: Files, path: str) -> bytes:
    """A small regular file, read whole. A FIFO or a link put in its place is refused, not followed
    (B30).
    """
    fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = files.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > TASK_JSON_BYTES_MAX:
            raise DamagedError(f"{path} is not a plain file of at most {TASK_JSON_BYTES_MAX} bytes")
        parts = []
        while part := files.read(fd, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        files.close(fd)

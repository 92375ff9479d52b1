"""A tray: how a task's requests reach the server where no network does, as files in a folder that
both sides see.

Written by agents, read by the server or by a relay on a login node, who put the answers there.
Standard library only.

    <tray>/out/<name>    a request of an agent: what it would have posted
    <tray>/in/<name>     the answer to it; <name> is <uuid>-<attempt>-<task>.<16 hex digits>, used once

    b"HWT1" | u32 length of the head | head, JSON | body
    head of a request {"path", "length", "crc"}; of an answer {"status", "length", "crc"}

Made for network file systems (F33): a file is written under another name and renamed, and its
content never changes; nobody locks; what a stale cache shows (a file that is gone, or shorter than
it is) is told from what is wrong by the checksum and by time. A lost file is no loss: the agent
keeps its bytes until the answer comes, and sends them again. Folders are 0700 and files 0600;
whatever does not belong to us or is open to others is refused unread.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from zlib import crc32

from headway.model.errors import DamagedError
from headway.model.limits import INGEST_BYTES_MAX, KIB
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from headway.model.json_types import JsonObject

    class Files(Protocol):
        """As `spool.files.Files`."""

        def open(self, path: str, flags: int, mode: int = 0o600) -> int: ...
        def write(self, fd: int, data: bytes | memoryview) -> int: ...
        def read(self, fd: int, length: int) -> bytes: ...
        def fstat(self, fd: int) -> os.stat_result: ...
        def close(self, fd: int) -> None: ...
        def rename(self, old: str, new: str) -> None: ...
        def unlink(self, path: str) -> None: ...
        def listdir(self, path: str) -> list[str]: ...


MAGIC = b"HWT1"
OUT, IN = "out", "in"
HEAD_BYTES_MAX = 4 * KIB
PATH_CHARS_MAX = 200
FILE_BYTES_MAX = INGEST_BYTES_MAX + HEAD_BYTES_MAX + 8
_HEX = frozenset("0123456789abcdef")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_DASHES = (8, 13, 18, 23)
_NONCE_CHARS = 16
_ESTALE, _ELOOP = errno.ESTALE, errno.ELOOP
_TASK_CHARS_MAX = 64
_TASKS_MAX = 8_192  # names whose task is remembered
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class _Os:
    """The real file system."""

    write, read, fstat = staticmethod(os.write), staticmethod(os.read), staticmethod(os.fstat)
    close, rename, unlink = staticmethod(os.close), staticmethod(os.rename), staticmethod(os.unlink)
    listdir = staticmethod(os.listdir)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)


OS: "Files" = _Os()


class ForeignError(DamagedError):
    """It is not ours: another owner, open to others, a link, not a file. Nothing of it was read."""


class Task(Value):
    """Whose request it is, from the name of its file."""

    uuid: str
    attempt: int
    task: str

    def __str__(self) -> str:
        return f"{self.uuid}-{self.attempt}-{self.task}"


class Request(Value):
    name: str
    task: Task
    path: str  # the route, such as /agent/ingest
    body: bytes


class Answer(Value):
    status: int
    body: bytes


# -- names


def name_of(task: object, run: int, number: int) -> str:
    """The name of a request: `run` is a random number of 32 bits of this sender, `number` counts
    its requests. `task`: what `str` makes `<uuid>-<attempt>-<task>` of.
    """
    return f"{task}.{run & 0xFFFFFFFF:08x}{number & 0xFFFFFFFF:08x}"


def task_of(name: str) -> Task | None:
    """None for a name that is none of ours: a draft, or somebody else's file. Each name is asked
    for at every look.
    """
    if name not in _tasks:
        if len(_tasks) >= _TASKS_MAX:
            _tasks.clear()
        _tasks[name] = _parse_name(name)
    return _tasks[name]


def _parse_name(name: str) -> Task | None:
    """`UUID-ATTEMPT-TASK.NONCE`; None for a name that is not ours."""
    key, _, nonce = name.rpartition(".")
    if len(nonce) != _NONCE_CHARS or not _HEX.issuperset(nonce):
        return None
    uuid = key[:36]
    if len(uuid) != 36 or not all(uuid[i] == "-" for i in _DASHES):
        return None
    if not _HEX.issuperset(uuid.replace("-", "")) or key[36:37] != "-":
        return None
    attempt, _, task = key[37:].partition("-")
    if not attempt.isascii() or not attempt.isdigit() or len(attempt) > 9:
        return None
    if not 0 < len(task) <= _TASK_CHARS_MAX or not _NAME.issuperset(task):
        return None
    return Task(uuid, int(attempt), task)


_tasks: dict[str, Task | None] = {}


# -- the folders


def make(tray: str) -> None:
    """Make the two folders; there already is fine. Raises OSError, or ForeignError when one is open
    to others.
    """
    for folder in (tray, os.path.join(tray, OUT), os.path.join(tray, IN)):
        os.makedirs(folder, 0o700, exist_ok=True)
        check(folder)


def check(folder: str) -> None:
    """Raises ForeignError unless it is a folder of ours that nobody else may enter, and OSError
    when it is not there. A folder is asked for, never a link to one.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ForeignError(f"{folder} is not a folder of ours alone")


# -- an agent


def send(
    tray: str, name: str, path: str, body: "Sequence[bytes | memoryview]", files: "Files" = OS
) -> None:
    """Put a request into the tray. Raises OSError; then it is not there."""
    _put(os.path.join(tray, OUT), name, {"path": path}, body, files)


def answer_to(tray: str, name: str, files: "Files" = OS) -> Answer | None:
    """None: there is none yet. Raises DamagedError for what cannot be read (now: a stale cache may
    show a part of it), and OSError.
    """
    found = _get(os.path.join(tray, IN), name, files)
    if found is None:
        return None
    head, body = found
    status = head.get("status")
    if not isinstance(status, int) or not 100 <= status <= 599:
        raise DamagedError(f"{name} is not an answer")
    return Answer(status, body)


def forget(tray: str, name: str, files: "Files" = OS) -> None:
    """The agent is done with a request: take it back if nobody has, and the answer away."""
    for folder in (OUT, IN):
        _remove(os.path.join(tray, folder, name), files)


def refresh(tray: str) -> None:
    """Have a network file system look at the folder of answers anew: what it remembers may be a
    minute old. Setting its time makes every client ask the file server again.
    """
    try:
        os.utime(os.path.join(tray, IN))
    except OSError:
        return


# -- the server, or a relay


def waiting(tray: str, files: "Files" = OS) -> list[str]:
    """Names of all requests that lie there, of all tasks, in one look at one folder. Raises
    OSError.
    """
    return sorted(
        name for name in files.listdir(os.path.join(tray, OUT)) if task_of(name) is not None
    )


def read(tray: str, name: str, files: "Files" = OS) -> Request | None:
    """None: it is not there any more. Raises ForeignError, DamagedError (not all of it may be seen
    yet) and OSError.
    """
    task, found = task_of(name), _get(os.path.join(tray, OUT), name, files)
    if found is None or task is None:
        return None
    head, body = found
    path = head.get("path")
    if not isinstance(path, str) or len(path) > PATH_CHARS_MAX:
        raise DamagedError(f"{name} is not a request")
    return Request(name, task, path, body)


def reply(tray: str, name: str, status: int, body: bytes | memoryview, files: "Files" = OS) -> None:
    """Put the answer there, then take the request away; nothing where the agent has taken it back.
    Raises OSError; then it can be answered again.
    """
    if not os.path.lexists(os.path.join(tray, OUT, name)):
        return
    _put(os.path.join(tray, IN), name, {"status": status}, [body], files)
    _remove(os.path.join(tray, OUT, name), files)


def leftovers(tray: str, files: "Files" = OS) -> list[str]:
    """Paths of what nobody may want any more: answers, and drafts of those who were killed. Who
    calls this twice, some minutes apart, removes what was there both times: no clock of another
    machine is asked.
    """
    found = [os.path.join(tray, IN, name) for name in files.listdir(os.path.join(tray, IN))]
    drafts = [name for name in files.listdir(os.path.join(tray, OUT)) if name.startswith(".")]
    return found + [os.path.join(tray, OUT, name) for name in drafts]


def remove(path: str, files: "Files" = OS) -> None:
    """One of `leftovers`."""
    _remove(path, files)


# -- files


def _put(
    folder: str,
    name: str,
    head: "JsonObject",
    body: "Sequence[bytes | memoryview]",
    files: "Files",
) -> None:
    crc = length = 0
    for piece in body:
        crc, length = crc32(piece, crc), length + len(piece)
    text = json.dumps({**head, "length": length, "crc": crc}, separators=(",", ":")).encode()
    draft, final = os.path.join(folder, f".{name}"), os.path.join(folder, name)
    _remove(draft, files)  # of one who was killed
    fd = files.open(draft, _WRITE, 0o600)
    try:
        try:
            for piece in (MAGIC, len(text).to_bytes(4, "little"), text, *body):
                _write(fd, piece, files)
        finally:
            files.close(fd)  # a network file system tells here that its disk is full
        files.rename(draft, final)
    except BaseException:  # whatever it was, half a file must not stay
        _remove(draft, files)
        raise


def _write(fd: int, data: bytes | memoryview, files: "Files") -> None:
    view = memoryview(data)
    while view:
        view = view[files.write(fd, view) :]


def _remove(path: str, files: "Files") -> None:
    try:
        files.unlink(path)
    except OSError:
        return  # gone already, or it is seen again by the next sweep


def _get(folder: str, name: str, files: "Files") -> "tuple[JsonObject, bytes] | None":
    """(head, body); None when there is no such file, or when the file server has forgotten it since
    (ESTALE).
    """
    try:
        fd = files.open(os.path.join(folder, name), _READ)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno == _ESTALE:
            return None
        if error.errno == _ELOOP:
            raise ForeignError(f"{name} is a link") from None
        raise
    try:
        _check_file(name, files.fstat(fd))
        data = _read_all(fd, files)
    except OSError as error:
        if error.errno == _ESTALE:
            return None
        raise
    finally:
        files.close(fd)
    return _parse(name, data)


def _check_file(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ForeignError(f"{name} is not a file of ours alone")
    if found.st_size > FILE_BYTES_MAX:
        raise ForeignError(f"{name} has {found.st_size} bytes, more than any of ours")


def _read_all(fd: int, files: "Files") -> bytes:
    pieces, left = [], FILE_BYTES_MAX + 1
    while left > 0 and (piece := files.read(fd, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _parse(name: str, data: bytes) -> "tuple[JsonObject, bytes]":
    """Exactly what was written, or DamagedError; nothing is allocated by a declared length."""
    length = int.from_bytes(data[4:8], "little")
    if data[:4] != MAGIC or not 0 < length <= min(HEAD_BYTES_MAX, len(data) - 8):
        raise DamagedError(f"{name} is cut off, or not one of ours")
    try:
        head = json.loads(data[8 : 8 + length])
        declared, crc = head["length"], head["crc"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError(f"{name} has a head that cannot be read") from None
    body = data[8 + length :]
    if declared != len(body) or crc != crc32(body):
        raise DamagedError(f"{name} is cut off or was changed")
    return head, body


class Box:
    """A tray that is seen from here, for the server. One that lies behind ssh has the same words
    (`slurm/far.py`).
    """

    def __init__(self, folder: str) -> None:
        self.name = folder

    def waiting(self) -> list[str]:
        return waiting(self.name)

    def read(self, name: str) -> Request | None:
        return read(self.name, name)

    def reply(self, name: str, status: int, body: bytes) -> None:
        reply(self.name, name, status, body)

    def leftovers(self) -> list[str]:
        return leftovers(self.name)

    def remove(self, path: str) -> None:
        remove(path)

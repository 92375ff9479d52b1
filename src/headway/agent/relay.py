"""`relay FOLDER --home=ID`: the server's hands on a login node. Started over ssh by
`engines/ssh/relay_client.py`, from one file.

It answers questions on its standard input: run a command, look at the cluster's folder, take code,
hand over what agents have put into trays. It keeps nothing in memory that matters and ends when its
input ends, or when nobody has asked for a while: spools and trays stay where they are, and the next
relay finds them.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from headway import __version__
from headway.agent.process import name_process
from headway.engines.spool.cluster_folder import Shelf
from headway.home.ownership import make_private
from headway.model.errors import DamagedError, HeadwayError
from headway.model.limits import (
    RELAY_CALLS_MAX,
    RELAY_ERROR_BYTES_MAX,
    RELAY_IDLE_S,
    RELAY_OUTPUT_BYTES_MAX,
)
from headway.wire import relay_messages, tray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headway.model.json_types import JsonObject

    Answer = tuple[Any, bytes]

FORMAT = 1
FOREIGN = "foreign"
_DRAFT_KEPT_S = 86_400.0
# What may be asked of the shelf, by name; nothing else is reached.
SHELF = frozenset(
    (
        "make_all", "tasks", "look", "adopt", "remove", "remember", "ids", "id_of", "forget", "said", "note_array",
        "arrays", "missing", "has_code", "finish", "outputs", "unfinished", "collect",
    )
)  # fmt: skip


class Relay:
    def __init__(self, folder: str, home: str, source: int = 0, sink: int = 1) -> None:
        """`home` names the one that we work for: several may use one folder, and share code there."""
        self._folder = folder
        self._shelf = Shelf(Path(folder), Path(folder) / "spool" / _checked(home))
        self._tray = os.path.join(folder, "trays", home)
        self._source, self._sink = source, sink
        self._writing = threading.Lock()
        self._room = threading.BoundedSemaphore(RELAY_CALLS_MAX)
        self._does: dict[str, Callable[[JsonObject, bytes], Answer]] = {
            "run": self._run, "shelf": self._ask_shelf, "put": self._put, "take_code": self._take_code,
            "get": self._get, "tray": self._ask_tray,
        }  # fmt: skip

    def run(self) -> int:
        name_process("hw-relay")
        self._say({"id": 0, "value": self._hello()})
        while True:
            try:
                message = relay_messages.receive(self._read)
            except DamagedError:
                return 1
            if message is None:
                return 0
            head, body = message
            self._room.acquire()
            threading.Thread(target=self._work, args=(head, body), daemon=True).start()

    def _hello(self) -> "JsonObject":
        return {
            "format": FORMAT, "version": __version__, "python": sys.executable, "folder": self._folder,
            "spool": self._shelf.spool, "tray": self._tray, "zip": os.path.abspath(sys.argv[0]),
            "home": os.path.expanduser("~"), "host": os.uname().nodename, "pid": os.getpid(), "uid": os.getuid(),
        }  # fmt: skip

    def _read(self, length: int) -> bytes:
        """Blocks until something comes; a server that has not asked for so long is gone, or needs
        us no more.
        """
        ready, _, _ = select.select([self._source], [], [], RELAY_IDLE_S)
        return os.read(self._source, length) if ready else b""

    def _work(self, head: "JsonObject", body: bytes) -> None:
        number = head.get("id")
        try:
            value, data = self._does[str(head.get("do"))](head, body)
            self._say({"id": number, "value": value}, data)
        except OSError as error:
            self._say(
                {
                    "id": number,
                    "error": error.strerror or str(error),
                    "errno": error.errno or errno.EIO,
                }
            )
        except tray.ForeignError as error:
            self._say({"id": number, "error": error.message, "code": FOREIGN})
        except HeadwayError as error:
            self._say({"id": number, "error": error.message, "code": error.code})
        except Exception as error:  # one bad question must not end the others
            self._say(
                {"id": number, "error": f"{type(error).__name__}: {error}", "code": "damaged"}
            )
        finally:
            self._room.release()

    def _say(self, head: "JsonObject", body: bytes = b"") -> None:
        data = memoryview(relay_messages.encode(head, body))
        with self._writing:
            while data:
                try:
                    data = data[os.write(self._sink, data) :]
                except OSError:
                    os._exit(1)  # nobody is there any more

    # -- commands

    def _run(self, head: "JsonObject", body: bytes) -> "Answer":
        """A command without a shell. What it prints goes to files, so that a flood fills no memory."""
        argv, timeout_s = [str(word) for word in head["argv"]], float(head["limit_s"])
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                done = subprocess.run(
                    argv,
                    input=body,
                    stdout=out,
                    stderr=err,
                    timeout=timeout_s,
                    check=False,
                    start_new_session=True,
                )
            except subprocess.TimeoutExpired:
                return {"code": None, "why": f"did not answer within {timeout_s:g} s"}, b""
            except FileNotFoundError:
                return {"code": None, "why": f"is not on {os.uname().nodename}"}, b""
            out.seek(0)
            err.seek(0)
            said, told = (
                out.read(RELAY_OUTPUT_BYTES_MAX + 1),
                err.read(RELAY_ERROR_BYTES_MAX).decode(errors="replace"),
            )
        if len(said) > RELAY_OUTPUT_BYTES_MAX:
            return {"code": None, "why": f"printed more than {RELAY_OUTPUT_BYTES_MAX} bytes"}, b""
        return {"code": done.returncode, "err": told}, said

    # -- files

    def _ask_shelf(self, head: "JsonObject", _: bytes) -> "Answer":
        method = head["method"]
        if method not in SHELF:
            raise DamagedError(f"a relay has no {str(method)[:80]!r}")
        return getattr(self._shelf, method)(**head["args"]), b""

    def _draft(self, name: object) -> Path:
        """Where a file that comes in pieces grows."""
        folder = Path(self._folder) / "drafts"
        make_private(folder)
        return folder / _checked(name)

    def _put(self, head: "JsonObject", body: bytes) -> "Answer":
        """The next piece of a draft. Old drafts of servers that were killed go."""
        path, offset = self._draft(head["draft"]), int(head["offset"])
        if offset == 0:
            _sweep(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(body)
            while view:
                written = os.pwrite(fd, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(fd)
        return offset, b""

    def _take_code(self, head: "JsonObject", body: bytes) -> "Answer":
        draft = self._draft(head["draft"]) if head.get("draft") else None
        try:
            self._shelf.take_code(draft, body, str(head["digest"]))
        finally:
            if draft is not None:
                draft.unlink(missing_ok=True)
        return None, b""

    def _get(self, head: "JsonObject", _: bytes) -> "Answer":
        data = self._shelf.read_output(
            head["job"], head["path"], int(head["offset"]), int(head["length"])
        )
        return len(data), data

    # -- trays

    def _ask_tray(self, head: "JsonObject", body: bytes) -> "Answer":
        """`wire/tray.py` for the one tray of this home."""
        folder = self._tray
        method = head["method"]
        if method == "make":
            tray.make(folder)
            return folder, b""
        elif method == "waiting":
            return tray.waiting(folder), b""
        elif method == "read":
            found = tray.read(folder, str(head["file"]))
            return (None, b"") if found is None else ({"path": found.path}, found.body)
        elif method == "reply":
            tray.reply(folder, str(head["file"]), int(head["status"]), body)
            return None, b""
        elif method == "leftovers":
            return tray.leftovers(folder), b""
        elif method == "remove":
            if head["path"] in tray.leftovers(folder):
                tray.remove(head["path"])
            return None, b""
        raise DamagedError(f"a tray has no {str(head['method'])[:80]!r}")


def _sweep(drafts: Path) -> None:
    for old in drafts.iterdir():
        try:
            if time.time() - old.stat().st_mtime > _DRAFT_KEPT_S:
                old.unlink()
        except FileNotFoundError:
            continue  # it has been taken, or another relay was faster


def _checked(name: object) -> str:
    """A name that comes from the other side and becomes one of a file."""
    if not isinstance(name, str) or not (name.isascii() and name.isalnum()) or len(name) > 64:
        raise DamagedError(f"{str(name)[:80]!r} cannot be the name of a file")
    return name

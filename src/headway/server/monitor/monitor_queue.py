"""What this home's server still has to send to monitors: batches as they came from agents, in
order, as files.

    outbox/<uuid>/monitor          the address; the folder is there until the monitor has everything of the job
    outbox/<uuid>/<number>.batch   a batch, exactly as an agent posted it: masked, checked by its own checksums
    outbox/<uuid>/refused/         what the monitor refused, kept (P11)

A batch is durable here before it is applied here, and so before its agent hears yes: a server
killed in between sends some batches twice, and the monitor cuts what it has (P4). Called by
`api/agent.py`, `loop.py` and `sender.py`.
"""

import asyncio
import logging
import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headway.home import remote_server
from headway.home.paths import Paths, private_folder
from headway.model.errors import UnreachableError
from headway.model.json_types import JsonObject
from headway.model.limits import OUTBOX_BYTES_MAX
from headway.spool.files import OS_FILES, replace_file
from headway.store.database import Store
from headway.wire.batch import Part, TaskKey

if TYPE_CHECKING:
    from headway.server.control.control import Control
    from headway.server.monitor.sender import Forwarder

log = logging.getLogger("headway.monitor")
_ADDRESS_FILE = "monitor"
_REFUSED = "refused"


@dataclass(slots=True)
class Entry:
    """One job that a monitor shows too."""

    uuid: str
    address: str
    folder: Path
    sizes: dict[int, int] = field(default_factory=dict)  # number of a batch -> its bytes
    next_number: int = 0


class Outbox:
    """Used by the event loop and by the forwarders' threads."""

    def __init__(self, paths: Paths, store: Store, bytes_max: int = OUTBOX_BYTES_MAX) -> None:
        self._paths, self.store, self._bytes_max = paths, store, bytes_max
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._bytes = 0
        self._forwarders: dict[str, Forwarder] = {}
        self._control: Control | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life

    async def start(self, control: "Control") -> None:
        """Go on with what an earlier server left."""
        self._control, self._loop = control, asyncio.get_running_loop()
        control.tell_monitors(self)
        for entry in await asyncio.to_thread(self._load):
            self._add(entry)

    def stop(self) -> None:
        for forwarder in self._forwarders.values():
            forwarder.stop()

    def _load(self) -> list[Entry]:
        try:
            folders = [folder for folder in self._paths.outbox.iterdir() if folder.is_dir()]
        except OSError:
            return []
        found = []
        for folder in sorted(folders):
            try:
                entry = Entry(folder.name, (folder / _ADDRESS_FILE).read_text().strip(), folder)
                entry.sizes = {int(f.stem): f.stat().st_size for f in folder.glob("*.batch")}
            except (OSError, ValueError) as error:
                log.error("%s cannot be read and is left as it is: %s", folder, error)
                continue
            entry.next_number = max(entry.sizes, default=0) + 1
            found.append(entry)
        return found

    def _add(self, entry: Entry) -> None:
        with self._lock:
            if entry.uuid in self._entries:
                return
            self._entries[entry.uuid] = entry
            self._bytes += sum(entry.sizes.values())
        self._forwarder(entry.address)

    def _forwarder(self, address: str) -> None:
        from headway.server.monitor.sender import Forwarder

        if address not in self._forwarders and self._control is not None and self._loop is not None:
            forwarder = self._forwarders[address] = Forwarder(
                self, remote_server.parse(address), self._paths, self._control, self._loop
            )
            forwarder.start()

    # -- in

    async def admit(self, uuid: str, address: str) -> None:
        """From now on the monitor shall have everything of this job. Comes before the job is
        stored.
        """
        address = str(remote_server.parse(address))
        if uuid in self._entries:
            return
        try:
            self._add(await asyncio.to_thread(self._make, uuid, address))
        except OSError as error:
            raise UnreachableError(
                f"the outbox cannot be written: {error}", "free some space, or look at it"
            ) from None

    def _make(self, uuid: str, address: str) -> Entry:
        folder = private_folder(self._paths.outbox) / uuid
        folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(OS_FILES, str(folder / _ADDRESS_FILE), address.encode())
        return Entry(uuid, address, folder)

    async def keep(self, task: TaskKey, body: bytes, parts: list[Part]) -> None:
        """Make a batch durable here, if a monitor shall have it. A question for positions is not
        one.
        """
        entry = self._entries.get(task.uuid)
        if entry is None or not any(len(part.data) for part in parts):
            return
        with self._lock:
            if self._bytes + len(body) > self._bytes_max:
                raise UnreachableError(
                    f"the outbox for the monitor {entry.address} is full", "agents keep theirs"
                )
            self._bytes += len(body)
            number, entry.next_number = entry.next_number, entry.next_number + 1
        try:
            await asyncio.to_thread(
                replace_file, OS_FILES, str(entry.folder / f"{number:012d}.batch"), body
            )
        except OSError as error:
            with self._lock:
                self._bytes -= len(body)
            raise UnreachableError(
                f"the outbox cannot be written: {error}", "agents keep theirs meanwhile"
            ) from None
        with self._lock:
            entry.sizes[number] = len(body)
        self.wake(entry.address)

    # -- out: called in the forwarders' threads

    def entries(self, address: str) -> list[Entry]:
        with self._lock:
            return [entry for entry in self._entries.values() if entry.address == address]

    def waiting(self, entry: Entry) -> list[int]:
        """Numbers of the batches to send, in order."""
        with self._lock:
            return sorted(entry.sizes)

    def read(self, entry: Entry, number: int) -> bytes:
        return (entry.folder / f"{number:012d}.batch").read_bytes()

    def sent(self, entry: Entry, number: int) -> None:
        (entry.folder / f"{number:012d}.batch").unlink(missing_ok=True)
        self._gone(entry, number)

    def set_aside(self, entry: Entry, number: int) -> None:
        """The monitor refused it: kept, but not sent again."""
        refused = entry.folder / _REFUSED
        refused.mkdir(mode=0o700, exist_ok=True)
        os.replace(entry.folder / f"{number:012d}.batch", refused / f"{number:012d}.batch")
        self._gone(entry, number)

    def _gone(self, entry: Entry, number: int) -> None:
        with self._lock:
            self._bytes -= entry.sizes.pop(number, 0)

    def finish(self, entry: Entry) -> None:
        """The monitor has all of this job."""
        with self._lock:
            self._entries.pop(entry.uuid, None)
        if (entry.folder / _REFUSED).exists():
            (entry.folder / _ADDRESS_FILE).unlink(missing_ok=True)
        else:
            shutil.rmtree(entry.folder, ignore_errors=True)

    # -- news

    def on_change(self, job_pk: int, what: str) -> None:
        """After a commit, in the writer's thread: a job's state may be another one."""
        if what in ("facts", "job"):
            for forwarder in list(self._forwarders.values()):
                forwarder.dirty = True
                forwarder.wake.set()

    def wake(self, address: str) -> None:
        forwarder = self._forwarders.get(address)
        if forwarder is not None:
            forwarder.wake.set()

    @property
    def idle(self) -> bool:
        return not self._entries

    def status(self) -> list[JsonObject]:
        """Of each monitor that jobs are sent to: whether it takes them, and if not why and since
        when.
        """
        rows = []
        for address, forwarder in self._forwarders.items():
            entries = self.entries(address)
            waiting = sum(sum(entry.sizes.values()) for entry in entries)
            rows.append(
                {
                    "address": address,
                    "jobs": len(entries),
                    "waiting_bytes": waiting,
                    **forwarder.condition(),
                }
            )
        return rows

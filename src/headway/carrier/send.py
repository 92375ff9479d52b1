"""Sending the folders of a job while it runs, and the rest at its end. Called by `main.py`.

What was there before the job started is not sent, unless it changed. What was sent is remembered
with the job, so a carrier that was killed, or the next attempt, goes on from there. A file that is
still written is left for later, and one that changed while it was sent is sent again: only its last
state counts as sent.
"""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from headway.carrier import folder_paths
from headway.carrier.carrier_state import Meter, State
from headway.model.errors import HeadwayError
from headway.model.json_types import JsonMapping
from headway.model.limits import FOLDER_PAUSE_MAX_S, FOLDER_QUIET_S, FOLDER_TRIES, STORAGE_THREADS
from headway.storage.transfer import Storage, local_files

Stamp = list[int]  # size and time of change: a file with the same two is the same file
_WRITES: Final = os.O_WRONLY | os.O_RDWR
_SENT_AT_ONCE: Final = 16 * STORAGE_THREADS
_NOTE_S: Final = 5.0  # between two notes, which are as long as the list of all files that were sent


@dataclass(slots=True)
class Left:
    """What could not be sent, and why the first of it could not."""

    names: list[str]
    error: HeadwayError | None = None


class Sender:
    """One folder of a job."""

    def __init__(
        self,
        folder: JsonMapping,
        storage: Storage,
        base: str,
        uuid: str,
        path: str,
        state: State,
    ) -> None:
        self.name, self.path, self.storage = str(folder["name"]), path, storage
        self._state = state
        self._lock = folder_paths.job_file(base, uuid, self.name, "lock")
        self._before = folder_paths.job_file(base, uuid, self.name, "before")
        self._sent = folder_paths.job_file(base, uuid, self.name, "sent")

    def begin(self) -> None:
        """Remember what is there before the command of the first attempt starts."""
        os.makedirs(self.path, exist_ok=True)
        with folder_paths.locked(self._lock, self._state.check_stop):
            if not os.path.exists(self._before):
                folder_paths.write_json(self._before, {"files": self._stamps()})

    def _stamps(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        for name, path in (local_files([self.path]) if os.path.isdir(self.path) else {}).items():
            if (stamp := _stamp(path)) is not None:
                found[name] = stamp
        return found

    def _unsent(self) -> dict[str, Stamp]:
        known = {
            **folder_paths.read_json(self._before).get("files", {}),
            **folder_paths.read_json(self._sent).get("files", {}),
        }
        return {name: stamp for name, stamp in self._stamps().items() if known.get(name) != stamp}

    def step(self) -> None:
        """While the job runs: what has changed and is not written any more. Failures wait for the
        next time.
        """
        now_ns = time.time_ns()
        with folder_paths.locked(self._lock, _give_way):
            files = {
                n: s for n, s in self._unsent().items() if now_ns - s[1] >= FOLDER_QUIET_S * 1e9
            }
            if files:
                real = os.path.realpath(self.path)
                written = open_for_writing(real)
                self._send({n: s for n, s in files.items() if os.path.join(real, n) not in written})

    def finish(self, pause: Callable[[float], None] = time.sleep) -> Left:
        """Everything that is left, with a limited number of tries that got nothing through."""
        tries = 0
        left_before = -1
        while True:
            with folder_paths.locked(self._lock, lambda: None):
                files = self._unsent()
                errors = self._send(files)
            if not files:
                return Left([])
            if len(files) < left_before:
                tries = 0
            else:
                tries += 1
            left_before = len(files)

            first = errors[min(errors)] if errors else None
            is_hopeless = first is not None and not first.temporary
            if is_hopeless or tries >= FOLDER_TRIES:
                return Left(sorted(errors or files), first)
            if errors:
                pause(min(FOLDER_PAUSE_MAX_S, 2.0 ** (tries - 1)))

    def _send(self, files: Mapping[str, Stamp]) -> dict[str, HeadwayError]:
        """Those that did not get through."""
        if not files:
            return {}
        meter = Meter(self._state, self.name, "sending", sum(stamp[0] for stamp in files.values()))
        sent: dict[str, Stamp] = {}
        errors: dict[str, HeadwayError] = {}

        def work(name: str) -> None:
            try:
                if (stamp := self._send_one(name, files[name], meter)) is not None:
                    sent[name] = stamp
            except HeadwayError as error:
                errors[name] = error

        order = list(files)
        noted_s = time.monotonic()
        with ThreadPoolExecutor(STORAGE_THREADS) as pool:
            for first in range(0, len(order), _SENT_AT_ONCE):
                list(pool.map(work, order[first : first + _SENT_AT_ONCE]))
                if time.monotonic() - noted_s >= _NOTE_S:
                    self._note(sent)
                    noted_s = time.monotonic()
        self._note(sent)
        meter.close("failed" if errors else "completed")
        return errors

    def _note(self, sent: Mapping[str, Stamp]) -> None:
        """Now and then: who is killed in the middle of many files has not sent them for nothing."""
        known = folder_paths.read_json(self._sent).get("files", {})
        folder_paths.write_json(self._sent, {"files": {**known, **sent}})

    def _send_one(self, name: str, stamp: Stamp, meter: Meter) -> Stamp | None:
        """None: it is gone, or has changed meanwhile, and is looked at again."""
        path = os.path.join(self.path, name)
        try:
            self.storage.send(name, path, meter.add)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HeadwayError(f"{path} cannot be read: {error.strerror}") from None
        return stamp if _stamp(path) == stamp else None


class Busy(Exception):
    """Another task sends this folder just now."""


def _give_way() -> None:
    raise Busy


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def open_for_writing(folder: str) -> set[str]:
    """Files below that a process of this machine, as far as we may look, has open for writing."""
    found: set[str] = set()
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return found  # not Linux: the time since the last change has to do
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for number in numbers:
            path = _written(pid, number)
            if path is not None and path.startswith(f"{folder}/"):
                found.add(path)
    return found


def _written(pid: str, number: str) -> str | None:
    try:
        path = os.readlink(f"/proc/{pid}/fd/{number}")
        if not path.startswith("/"):
            return None
        with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:
            flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
    except (OSError, ValueError):
        return None
    return path if int(flags, 8) & _WRITES else None

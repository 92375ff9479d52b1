"""Turns the slots that processes write, and the bars that they print (`output_watch.py`), into `progress` facts.
Stepped by the shipper.

A slot holds the absolute position of a tracker. It is read at each look and told when it has
changed, at most five times a second, and in the end always as it was left. The facts go into a
stream of their own that rolls and is removed once the server has it: of a bar that moves for a
month only the last state is of interest.
"""

from __future__ import annotations

import os
from math import inf

from headway.agent.observe.folder_progress import CarriedWatch
from headway.agent.observe.output_watch import OutputWatch
from headway.agent.observe.printed_metrics import PrintedValues
from headway.agent.observe.rate import Pace, eta_s, gap_s, rate_of
from headway.agent.ship.tail import Names
from headway.model.limits import (
    MIB,
    PROGRESS_INTERVAL_S,
    PROGRESS_SLOT_BYTES,
    PROGRESS_SLOTS_MAX,
)
from headway.spool.files import OS_FILES, Files
from headway.spool.layout import parse_slots
from headway.spool.progress_slots import Slot, decode
from headway.spool.stream_names import new_rand, tracks_name
from headway.spool.writer import StreamWriter
from headway.wire.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.agent.clock import Clock
    from headway.agent.ship.tail import Tail
    from headway.model.json_types import JsonObject

    Fact = JsonObject

FILES_MAX = 1024  # processes of one task that have trackers at the same time
FACTS_PER_S = 200  # of a task with many trackers, all together
SEGMENT_BYTES = 1 * MIB
DEAD_INTERVAL_S = 5.0


class Tracker:
    """One tracker, and what was told of it."""

    __slots__ = ("data", "next_s", "number", "pace", "slot", "started_ns", "told")

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = self.told = b""  # the slot's bytes as read, and as told
        self.next_s, self.started_ns = -inf, 0
        self.slot: Slot | None = None
        self.pace = Pace()

    def is_to_be_told(self, now_s: float, last: bool) -> bool:
        """News, at most so often; at the end also what was left running."""
        if last and self.slot is not None and self.slot.state == "running":
            return True
        return self.data != self.told and (last or now_s >= self.next_s)


class SlotFile:
    def __init__(self, path: str, fd: int, rank: int, pid: int) -> None:
        self.path, self.fd, self.rank, self.pid = path, fd, rank, pid
        self.trackers: list[Tracker] = []


class ProgressWatch:
    """Nothing here raises: a tracker that cannot be told now is told later."""

    def __init__(
        self,
        task_dir: str,
        tail: "Tail",
        clock: "Clock",
        secrets: "Callable[[], list[bytes]]",
        say: "Callable[[str], None]",
        files: Files = OS_FILES,
    ) -> None:
        self._say = say
        self._task_dir, self._tail, self._clock, self._secrets, self._files = (
            task_dir,
            tail,
            clock,
            secrets,
            files,
        )
        self._slots: dict[str, SlotFile] = {}
        self._carried = CarriedWatch(task_dir)
        # words and totals of trackers that several processes have
        self._shared: set[tuple[object, ...]] = set()
        self._names, self._dead_s = Names(task_dir), -inf
        self._stream: StreamWriter | None = None
        self._rand, self._segment, self._size = new_rand(), -1, 0
        self._stopped = False
        self._printed = PrintedValues(task_dir, tail, clock, files)
        self._output = OutputWatch(
            task_dir, tail, clock, self._write, self._masked, self._printed, files
        )

    def look(self, now_s: float, *, last: bool = False) -> None:
        """Tell what has changed. `last`: the processes are gone, and everything is told as it was
        left.
        """
        if self._stopped:
            return
        try:
            self._look(now_s, last)
        # text of somebody else's making; without bars the job's data still flows
        except Exception as error:
            self._say(f"progress is not watched any more: {type(error).__name__}: {error}")
            last = True
        if last:
            self.close()

    def _look(self, now_s: float, last: bool) -> None:
        if last or self._names.may_have_changed(now_s):
            self._find()
        for file in list(self._slots.values()):
            self._read(file, now_s, last)
        self._output.look(now_s, last)
        for fact in self._carried.facts(now_s, last):
            self._write(fact)
        if now_s >= self._dead_s + DEAD_INTERVAL_S:
            self._dead_s = now_s
            self._forget_dead(now_s)

    def close(self) -> None:
        self._stopped = True
        for file in self._slots.values():
            self._files.close(file.fd)
        self._slots.clear()
        self._output.close()
        self._printed.close()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # -- slots

    def _find(self) -> None:
        try:
            names = self._files.listdir(self._task_dir)
        except OSError:
            return
        for name in names:
            who = (
                parse_slots(name)
                if name.startswith("progress-") and name not in self._slots
                else None
            )
            if who is None or len(self._slots) >= FILES_MAX:
                continue
            path = os.path.join(self._task_dir, name)
            try:
                fd = self._files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            self._slots[name] = SlotFile(path, fd, *who)

    def _read(self, file: SlotFile, now_s: float, last: bool) -> None:
        try:
            data = self._files.pread(file.fd, PROGRESS_SLOT_BYTES * PROGRESS_SLOTS_MAX, 0)
        except OSError:
            return
        for i in range(len(data) // PROGRESS_SLOT_BYTES):
            if i == len(file.trackers):
                file.trackers.append(Tracker(i))
            tracker = file.trackers[i]
            tracker.data = data[i * PROGRESS_SLOT_BYTES : (i + 1) * PROGRESS_SLOT_BYTES]
            if tracker.is_to_be_told(now_s, last):
                self._tell_slot(file, tracker, now_s, last)

    def _tell_slot(self, file: SlotFile, tracker: Tracker, now_s: float, last: bool) -> None:
        slot = decode(tracker.data)
        if slot is None:  # half a write; the next look sees the whole, where there is one
            tracker.told = tracker.data if last else tracker.told
            return
        if slot.started_ns != tracker.started_ns:
            tracker.pace, tracker.started_ns = Pace(), slot.started_ns
            tracker.pace.add(slot.started_ns / 1e9, 0.0)
        tracker.slot = slot
        tracker.pace.add(slot.updated_ns / 1e9, slot.completed)
        self._share(slot)
        rate = self._rate(slot, tracker)
        is_share = slot.distributed or (not slot.completed and _key(slot) in self._shared)
        fact: Fact = {
            "rank": file.rank, "pid": file.pid, "tracker": tracker.number, "msg": list(slot.words),
            "completed": slot.completed, "total": slot.total,
            "state": "closed" if last and slot.state == "running" else slot.state, "distributed": is_share,
            "source": "api", "rate": rate, "eta_s": None if is_share else _left_s(slot, rate),
            "started_ns": slot.started_ns, "gap_s": gap_s(tracker.pace),
        }  # fmt: skip
        if self._write(fact):
            tracker.told, tracker.next_s = tracker.data, now_s + self._interval_s()

    def _rate(self, slot: Slot, tracker: Tracker) -> float | None:
        """Of late, while it runs; once it has ended, over its whole life."""
        if slot.state == "running":
            return rate_of(tracker.pace.samples, self._clock.wall_ns() / 1e9)
        life_s = (slot.updated_ns - slot.started_ns) / 1e9
        return slot.completed / life_s if life_s > 0 else None

    def _share(self, slot: Slot) -> None:
        """One process's share. Whoever made the tracker, and left it to the others, has a share of
        nothing.
        """
        key = _key(slot)
        if not slot.distributed or key in self._shared:
            return
        self._shared.add(key)
        for file in self._slots.values():
            for other in file.trackers:
                if other.slot is not None and not other.slot.completed and _key(other.slot) == key:
                    other.told = b""

    def _interval_s(self) -> float:
        count = sum(len(file.trackers) for file in self._slots.values())
        return max(PROGRESS_INTERVAL_S, count / FACTS_PER_S)

    def _forget_dead(self, now_s: float) -> None:
        """A process that is gone has no more to say: what was left running is closed, and its file
        is removed.
        """
        for name, file in list(self._slots.items()):
            if _is_alive(file.pid):
                continue
            self._read(file, now_s, last=True)
            if all(tracker.told == tracker.data for tracker in file.trackers):
                self._files.close(file.fd)
                del self._slots[name]
                try:
                    self._files.unlink(file.path)
                except OSError:
                    continue

    def _masked(self, label: str) -> str:
        from headway.wire.redact import mask_text

        return mask_text(label, [value.decode("utf-8", "replace") for value in self._secrets()])

    # -- writing

    def _write(self, fact: "Fact") -> bool:
        try:
            stream = self._open()
            before = stream.size()
            stream.append_fact({"type": "progress", "time_ns": self._clock.wall_ns(), **fact})
            self._size = (before or 0) + PROGRESS_SLOT_BYTES
        except OSError:
            self._leave()
            return False
        if before is None or self._size >= SEGMENT_BYTES:
            self._leave()
        return True

    def _open(self) -> StreamWriter:
        if self._stream is None:
            pid, self._segment = os.getpid(), self._segment + 1
            opening = {
                "kind": "tracks",
                "rank": None,
                "pid": pid,
                "start": process_start(),
                "segment": self._segment,
            }
            name = tracks_name(pid, self._rand, self._segment)
            self._stream = StreamWriter(self._task_dir, name, opening, self._files)
        return self._stream

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _left_s(slot: Slot, rate: float | None) -> float | None:
    """What has ended without having come to its total never will."""
    short = slot.total is not None and slot.completed < slot.total
    return None if short and slot.state != "running" else eta_s(slot.completed, slot.total, rate)


def _key(slot: Slot) -> tuple[object, ...]:
    return slot.words, slot.total


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

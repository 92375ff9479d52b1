"""How far training is: `Progress` and `track`. Called by training, often in its innermost loop.

Every position is absolute and overwrites the last one in a slot of a file, by one pwrite
(spool/progress_slots.py has the bytes): it survives SIGKILL, nothing grows, and the shipper reads
it when it likes. There is no lock. Whoever has written looks once more whether what it wrote is
still the position, so that of several threads the last one writes the last word.
"""

from __future__ import annotations

import os
from _weakref import ref
from time import monotonic, time_ns
from zlib import crc32

from headway.client.backoff import Backoff
from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text
from headway.model.limits import PROGRESS_SLOT_BYTES, PROGRESS_SLOTS_MAX
from headway.spool.files import OS_FILES
from headway.spool.progress_slots import (
    CLOSED,
    COMPLETED,
    DISTRIBUTED,
    FAILED,
    MAGIC,
    RUNNING,
    TEXT_BYTES_MAX,
    UNKNOWN,
    encode_words,
    pack_body,
    pack_head,
)
from headway.spool.stream_names import new_rand, progress_name

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Any, TypeVar

    from headway.client.run import Run

    T = TypeVar("T")

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
LOOK_INTERVAL_NS = 1_000_000_000
REUSE_AFTER_NS = 2_000_000_000  # the shipper has seen the last state of a slot by then
CLOSE_AFTER_S = 10.0
REVIVED_MAX = 64  # trackers that came by pickle and are kept for the next time that they come
# generations of trackers without a slot; a foreign one is another process's until it is used
NONE, FOREIGN = -1, -2
INFINITY = float("inf")
_slots: "list[Slots]" = []


def current_slots() -> "Slots":
    if not _slots:
        from headway.client.api import current_run

        _slots.append(Slots(current_run()))
    return _slots[0]


class Slots:
    """The file of one process's trackers, opened with the first of them. Nothing that a tracker
    calls raises.
    """

    def __init__(self, run: "Run") -> None:
        # a new generation: slots of trackers are no longer theirs
        self.run, self.fd, self.generation = run, -1, 0
        self.lost = 0  # positions that could not be written
        self.look_ns = 0
        self.pwrite = os.pwrite if run.files is OS_FILES else run.files.pwrite
        self._file, self._pid = (0, 0), 0
        self._owners: list[ref[Progress] | None] = []
        self.revived: dict[object, Progress] = {}  # by where and when they were made
        # slots of finished trackers: their words, and since when
        self._done: dict[int, tuple[bytes, int]] = {}
        # files that a thread may still be writing to
        self._retired: list[tuple[float, int, tuple[int, int]]] = []
        self._backoff = Backoff()
        run.parts.append(self)

    def take(self, tracker: "Progress") -> bool:
        """Give a tracker its slot. False when there is none now."""
        if self.run.is_off or not self._backoff.is_over():
            return False
        try:
            with self.run.lock:
                if self.fd < 0:
                    self._open()
                index = self._choose(tracker.text)
                if index is None:
                    self.run.note(
                        "trackers",
                        f"only {PROGRESS_SLOTS_MAX} progress trackers are shown at the same time",
                    )
                    return False
                self._owners[index] = ref(tracker)
                tracker.offset, tracker.generation = index * PROGRESS_SLOT_BYTES, self.generation
                self._backoff.succeeded()
                return True
        except Exception as error:  # P1: whatever it is, training goes on without a bar
            raise_if_signal(error)
            self._backoff.failed()
            self.fail(error)
            return False

    def _open(self) -> None:
        run = self.run
        run.start()
        assert run.place is not None
        name = progress_name(run.place.rank, os.getpid(), new_rand())
        self.fd = run.files.open(os.path.join(run.place.task_dir, name), _FLAGS, 0o600)
        status = run.files.fstat(self.fd)
        self._file, self._pid = (status.st_dev, status.st_ino), os.getpid()
        self.generation += 1
        self.look_ns = time_ns() + LOOK_INTERVAL_NS
        self._owners, self._done = [], {}

    def _choose(self, text: bytes) -> int | None:
        """A finished tracker of the same words hands on its slot at once: a loop in a loop is one
        bar, not many.
        """
        same = next((index for index, (words, _) in self._done.items() if words == text), None)
        oldest = next(iter(self._done), None)
        if same is None and oldest is not None:
            waited = time_ns() - self._done[oldest][1] > REUSE_AFTER_NS
            same = oldest if waited or len(self._owners) >= PROGRESS_SLOTS_MAX else None
        if same is not None:
            del self._done[same]
            return same
        if len(self._owners) >= PROGRESS_SLOTS_MAX:
            return None
        # takes its room now
        self.pwrite(self.fd, bytes(PROGRESS_SLOT_BYTES), len(self._owners) * PROGRESS_SLOT_BYTES)
        self._owners.append(None)
        return len(self._owners) - 1

    def release(self, tracker: "Progress") -> None:
        """It has ended; its slot keeps the last state until another tracker needs it."""
        index = tracker.offset // PROGRESS_SLOT_BYTES
        if tracker.generation == self.generation and index < len(self._owners):
            self._owners[index] = None
            self._done[index] = (tracker.text, time_ns())

    def keep(self, tracker: "Progress") -> None:
        """A tracker that had ended goes on, in its slot if nobody else has it."""
        index = tracker.offset // PROGRESS_SLOT_BYTES
        if self._done.pop(index, None) is not None:
            self._owners[index] = ref(tracker)
        else:
            tracker.generation = NONE

    def fail(self, error: Exception) -> None:
        self.lost += 1
        said = getattr(error, "strerror", None) or type(error).__name__
        self.run.note("progress", f"progress cannot be written ({said}); training goes on")

    def look(self, now_ns: int) -> None:
        """Once a second: is the file still there? If not, every tracker writes itself into another
        one.
        """
        self.look_ns = now_ns + LOOK_INTERVAL_NS
        self._close_retired()
        try:
            self.run.look()
            status = self.run.files.fstat(self.fd)
            if status.st_nlink and (status.st_dev, status.st_ino) == self._file:
                return
        except OSError as error:
            raise_if_signal(error)
        self._leave()

    def _leave(self) -> None:
        """Use the file no more; it is closed when no thread can be in its last write to it."""
        self._retired.append((monotonic(), self.fd, self._file))
        self.fd = -1
        self.generation += 1

    def _close_retired(self, everything: bool = False) -> None:
        while self._retired and (everything or monotonic() - self._retired[0][0] > CLOSE_AFTER_S):
            _, fd, file = self._retired.pop(0)
            try:
                status = self.run.files.fstat(fd)
                # else the program has closed it, and uses the number
                if (status.st_dev, status.st_ino) == file:
                    self.run.files.close(fd)
            except OSError as error:
                raise_if_signal(error)

    def _trackers(self) -> "list[Progress]":
        owners = [owner() for owner in self._owners if owner is not None]
        return [tracker for tracker in owners if tracker is not None]

    def tell(self) -> None:
        """The process ends: whatever still runs is closed where it is."""
        for tracker in self._trackers():
            if tracker.generation == self.generation:
                tracker._put(CLOSED)

    def close(self) -> None:
        """At the end, and in a forked child, where each tracker counts its own share from nothing."""
        if self._pid and self._pid != os.getpid():
            for tracker in self._trackers():
                tracker.completed, tracker.generation = 0, FOREIGN
            self.revived.clear()
        if self.fd >= 0:
            self._leave()
        self._close_retired(everything=True)
        self._owners, self._done = [], {}


class Progress:
    """How far something is: `Progress.new(total, msg)` makes one. Any number, in each other or side
    by side.

        with hw.Progress.new(total=len(data), msg=("epoch", epoch)) as progress:
            for batch in data:
                train(batch)
                progress.advance()

    An exception inside `with` leaves it where it was and marks it failed. No method raises or
    waits; a call costs about a microsecond and survives `kill -9`. A process that is forked, or
    that gets it by pickle, counts its own share.
    """

    __slots__ = (
        "__weakref__", "_flags", "_msg", "_origin", "_sequence", "_slots", "_started_ns", "_total", "completed",
        "generation", "offset", "state", "text",
    )  # fmt: skip

    def __init__(
        self, slots: Slots, total: "float | None", msg: object, text: bytes | None = None
    ) -> None:
        self._slots, self._msg, self._flags, self._sequence = slots, msg, 0, 0
        self.completed: float = 0
        self.state, self.offset, self.generation = RUNNING, 0, NONE
        self._total = _number(total) if total is not None else UNKNOWN
        self._started_ns = time_ns()
        self._origin: object = (os.getpid(), self._started_ns)
        self.text = text if text is not None else self._encode(msg)

    @classmethod
    def new(cls, total: "float | None" = None, msg: object = "") -> "Progress":
        """A tracker of `total` steps, or of an unknown number. `msg`: a word, or several in a
        tuple.
        """
        tracker = cls(current_slots(), total, msg)
        tracker._put(RUNNING)
        return tracker

    def advance(self, step: float = 1, msg: object = None, distributed: bool = False) -> None:
        """`step` more are done. `distributed=True`: this process's share of a tracker that several
        processes have under the same `msg`; the shares are added up, and none counts twice.
        """
        try:
            if 0 < step < INFINITY:
                self.completed += step
        except Exception as error:  # P1: a step of somebody else's making
            raise_if_signal(error)
            self._refuse(step)
        if msg is not None and msg != self._msg:
            self._say(msg)
        if distributed:
            self._flags = DISTRIBUTED
        self._put(RUNNING)

    def update(self, n: float, msg: object = None) -> None:
        """`n` are done by now. It only goes up: a smaller number changes nothing."""
        try:
            if self.completed < n < INFINITY:
                self.completed = n
        except Exception as error:  # P1: as in advance
            raise_if_signal(error)
            self._refuse(n)
        if msg is not None and msg != self._msg:
            self._say(msg)
        self._put(RUNNING)

    def complete(self) -> None:
        """It is done."""
        self._end(COMPLETED)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        tb: "TracebackType | None",
    ) -> None:
        if self.state == RUNNING:
            if kind is None:
                self._end(COMPLETED)
            else:
                self._end(CLOSED if kind is GeneratorExit else FAILED)

    def __del__(self) -> None:
        try:
            if self.state == RUNNING and self.generation == self._slots.generation:
                self._end(CLOSED)
        except Exception:  # the interpreter may be half gone, and so may this object
            return

    def __reduce__(self) -> "tuple[Any, ...]":
        return _revive, (self._total, self.text, self._flags, self._origin)

    # -- writing

    def _put(self, state: int) -> None:
        """Write the slot. Never raises."""
        slots = self._slots
        if self.state != state:
            if self.state != RUNNING and state == RUNNING and self.generation == slots.generation:
                slots.keep(self)
            self.state = state
        if self.generation != slots.generation and not slots.take(self):
            return
        try:
            while True:
                completed, text, now_ns = self.completed, self.text, time_ns()
                self._sequence = sequence = (self._sequence + 1) & 0xFFFFFFFF
                body = pack_body(
                    sequence, state, self._flags, completed, self._total, self._started_ns, now_ns, len(text)
                )  # fmt: skip
                slots.pwrite(
                    slots.fd, pack_head(MAGIC, crc32(text, crc32(body)), body) + text, self.offset
                )
                if self.completed == completed and self.text is text and self.state == state:
                    break
                state = self.state
        except Exception as error:  # P1: a full disk, or a position that is no number after all
            raise_if_signal(error)
            slots.fail(error)
            self._heal()
            now_ns = time_ns()
        if now_ns > slots.look_ns:
            slots.look(now_ns)

    def _end(self, state: int) -> None:
        if self.generation == FOREIGN:
            self.state = state  # a child that did nothing to it has nothing to say
            return
        self._put(state)
        self._slots.release(self)

    def _heal(self) -> None:
        try:
            self.completed = float(self.completed)
        except Exception:  # P1: an object that cannot be a number; the count starts over
            self.completed = 0

    def _say(self, msg: object) -> None:
        self._msg, self.text = msg, self._encode(msg)

    def _encode(self, msg: object) -> bytes:
        try:
            words = list(msg) if isinstance(msg, (tuple, list)) else [msg]
            mask = self._slots.run.masker()
            return encode_words([clean_text(mask(str(word))) for word in words[:16]])
        except Exception as error:  # P1: a word whose __str__ raises
            raise_if_signal(error)
            return b'["?"]'

    def _refuse(self, value: object) -> None:
        self._slots.run.note(
            "progress step", f"progress cannot go by {type(value).__name__}; it stays where it is"
        )


def track(iterable: "Iterable[T]", msg: object = "", total: "float | None" = None) -> "Iterator[T]":
    """The items of `iterable`, with a tracker that counts those that are done: `for x in
    hw.track(data, "train"):`.

    `total` is `len(iterable)` where that is known. A loop that is left early is closed where it
    was.
    """
    if total is None:
        try:
            total = len(iterable)  # type: ignore[arg-type]
        except Exception as error:  # a generator has no length, and some len() raise what they like
            raise_if_signal(error)
    with Progress.new(total, msg) as progress:
        for item in iterable:
            yield item
            progress.advance()


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception as error:  # P1: a total of somebody else's making counts as unknown
        raise_if_signal(error)
        return UNKNOWN


def _revive(total: float, text: bytes, flags: int, origin: object) -> Progress:
    """A worker of a pool gets the same tracker with each of its calls: all of them count in one
    share.
    """
    slots = current_slots()
    known = slots.revived.get(origin)
    if known is not None:
        return known
    tracker = Progress(slots, total, None, text[:TEXT_BYTES_MAX])
    tracker._flags, tracker.generation, tracker._origin = flags, FOREIGN, origin
    while len(slots.revived) >= REVIVED_MAX:
        slots.revived.pop(next(iter(slots.revived)), None)
    return slots.revived.setdefault(origin, tracker)

"""The way of a task's bytes to the server, decided without any I/O: what to send, what answers
mean, what to drop.

Events in, instructions out (`events.py`); time and chance are arguments. Driven by `shipper.py`
and by the simulation:

    for instruction in machine.handle(event, now_s, chance): ...    # do it; what comes of it is the next event
    machine.wake_s(now_s)                                           # when to send a Tick at the latest, or None

The rules:

- Sent at least once: a stream goes on from where the server says it is, backwards too (P4, F16,
  F17).
- At most two batches are out: one on its way, one packed behind it. A failure voids both.
- Facts go first, bulk streams take turns. `task_ended` goes last, with or after everything else.
- A stream that the server refuses is set aside; the others go on (P11).
- Over the spool's limit, bulk is dropped, oldest first, and each drop is a gap with exact counts
  (P5, P7, F10).
"""

from __future__ import annotations

from headway.agent.ship.events import (
    Acked,
    Busy,
    Closed,
    Drop,
    Dropped,
    Failed,
    Finish,
    Forget,
    Free,
    Grown,
    Log,
    Pack,
    Packed,
    Refused,
    Reload,
    Remove,
    Retry,
    Seen,
    ShipperEvent,
    ShipperInstruction,
    TaskEnded,
)
from headway.agent.ship.stream_state import BLOCK_BYTES, Entry, Gap, Span
from headway.model.limits import (
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    BATCH_BYTES_MAX,
    DROP_STEP_BYTES_MAX,
    FLUSH_AT_END_S,
    FRAME_BYTES_MAX,
    FREE_STEP_BYTES,
    KIB,
    MIB,
    PART_BYTES_MAX,
    PARTS_MAX,
    SPOOL_BYTES_MAX,
)
from headway.model.record import RECORDS
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

SPANS_MAX = PARTS_MAX // 2  # damage found while packing makes more parts than spans
AHEAD_BYTES = BATCH_BYTES_MAX // 2  # a second batch is packed behind the first when this much waits
# a window of records smaller than one frame would never move on
RECORDS_ROOM_MIN = FRAME_BYTES_MAX + 64
BATCH_BYTES_MIN = 2 * MIB  # not made smaller than this when the server finds a batch too large
DROP_STEP_BYTES_MIN = 64 * KIB
HOLD_S = 0.1
STRIKES_MAX = 2  # a stream whose bytes alone are called damaged so often is set aside


class ShipperPlan(Value):
    spool_bytes_max: int = SPOOL_BYTES_MAX


class _Batch:
    def __init__(self, number: int, proposed: frozenset[str]) -> None:
        self.number, self.proposed = number, proposed
        # stream -> (start, end); None until packed
        self.ends: dict[str, tuple[int, int]] | None = None


class ShipperMachine:
    def __init__(self, plan: ShipperPlan) -> None:
        self.plan = plan
        self.entries: dict[str, Entry] = {}
        self.used = 0  # bytes that the streams take in the spool
        self.finished = False
        self.ending: TaskEnded | None = None
        self._born = self._number = self._turn = 0
        self._out: list[_Batch] = []
        self._counting: set[str] = set()  # streams with a Drop that is not answered
        self._busy = False
        self._batch_bytes = BATCH_BYTES_MAX
        # streams to be sent one by one, to find the one that the server cannot read
        self._alone: list[str] = []
        self._strikes: dict[str, int] = {}
        self._failures = 0
        self._retry_s = 0.0
        self._trouble: str | None = None
        self._progress_s = 0.0
        self._told_full = False

    def handle(
        self, event: ShipperEvent, now_s: float, chance: float = 0.5
    ) -> list[ShipperInstruction]:
        if self.finished:
            return []
        events = event.events if isinstance(event, Seen) else (event,)
        out: list[ShipperInstruction] = []
        for one in events:
            out += self._take_in(one, now_s, chance)
        return out + self._relieve() + self._next(now_s)

    def _take_in(
        self, event: ShipperEvent, now_s: float, chance: float
    ) -> list[ShipperInstruction]:
        if isinstance(event, Grown):
            self._grown(event)
        elif isinstance(event, Closed):
            return self._closed(event.stream)
        elif isinstance(event, Packed):
            self._packed(event, now_s)
        elif isinstance(event, Acked):
            return self._acked(event, now_s, chance)
        elif isinstance(event, Failed):
            return self._failed(event, now_s, chance)
        elif isinstance(event, Refused):
            return self._set_aside(event.stream, event.reason)
        elif isinstance(event, Dropped):
            self._dropped(event)
        elif isinstance(event, TaskEnded):
            self.ending, self._progress_s = event, now_s
        elif isinstance(event, Busy):
            self._busy = event.busy
        elif isinstance(event, Retry):
            self._retry_s = now_s
        else:
            pass  # time has passed
        return []

    def wake_s(self, now_s: float) -> float | None:
        times = []
        for entry in self.entries.values():
            is_held = entry.held_size >= entry.size
            if entry.unsent and entry.refused is None and is_held:
                times.append(entry.held_until_s)
        if self._retry_s > now_s:
            times.append(self._retry_s)
        if self.ending is not None:
            times.append(self._progress_s + FLUSH_AT_END_S)

        # what is due already needs no alarm
        first = min((time_s for time_s in times if time_s > now_s), default=None)
        if first == float("inf"):
            return None
        return first

    def positions(self) -> dict[str, int]:
        """For the cursor."""
        return {name: e.acked for name, e in self.entries.items() if e.refused is None}

    @property
    def lag_bytes(self) -> int:
        return sum(e.lag for e in self.entries.values())

    # -- what lies in the spool

    def _grown(self, event: Grown) -> None:
        entry = self.entries.get(event.stream)
        if entry is None:
            entry = Entry(event.stream, event.kind, self._born, event.bulk, event.whole)
            self._born += 1
            entry.acked = entry.sent = event.acked
            entry.confirmed = event.acked == 0  # the cursor may be garbage (F16)
            entry.first, entry.gaps = event.first, list(event.gaps)
            entry.holes = [(gap.start, gap.end) for gap in event.gaps if gap.end > event.first]
            self.entries[event.stream] = entry
        if event.size > entry.size:
            self.used -= entry.kept
            entry.size = event.size
            self.used += entry.kept

    def _closed(self, stream: str) -> list[ShipperInstruction]:
        entry = self.entries.get(stream)
        if entry is None or entry.closed:
            return []
        entry.closed = True
        entry.release()
        return self._release(entry)

    def _release(self, entry: Entry, step: int = FREE_STEP_BYTES) -> list[ShipperInstruction]:
        """Give room back that the server's acknowledgement has made free."""
        if not entry.bulk or entry.refused is not None or not entry.confirmed:
            return []  # what only a cursor calls acknowledged may still be needed (F16)
        if entry.whole:
            return self._remove(entry) if entry.is_done() else []
        upto = entry.acked - entry.acked % BLOCK_BYTES
        step = min(step, max(BLOCK_BYTES, self.plan.spool_bytes_max // 8))
        if upto - entry.first < step:
            return []
        freed = Free(entry.name, entry.first, upto - entry.first)
        self._advance_first(entry, upto)
        return [freed]

    def _remove(self, entry: Entry) -> list[ShipperInstruction]:
        del self.entries[entry.name]
        self.used -= entry.kept
        return [Remove(entry.name)]

    def _advance_first(self, entry: Entry, first: int) -> None:
        self.used -= entry.kept
        entry.free_to(first)
        self.used += entry.kept

    # -- the limit of the spool

    def _relieve(self) -> list[ShipperInstruction]:
        if self._counting:
            return []
        begun = self._begun_drop()
        if begun is not None:
            self._note_drop(begun)
            return [begun]
        if self.used <= self.plan.spool_bytes_max:
            return []
        out: list[ShipperInstruction] = []
        for entry in list(self.entries.values()):
            if not entry.whole:
                out += self._release(entry, BLOCK_BYTES)
        if self.used <= self.plan.spool_bytes_max:
            return out
        drop = self._choose_drop()
        if drop is None:
            if not self._told_full:
                self._told_full = True
                out.append(
                    Log(
                        f"the spool holds {self.used} bytes, over its limit, and nothing of it may be dropped"
                    )
                )
            return out
        self._note_drop(drop)
        return [*out, drop]

    def _begun_drop(self) -> Drop | None:
        """A segment without its head has lost the names of its values: once begun, it is dropped to
        its end.
        """
        for entry in self.entries.values():
            if (
                entry.whole
                and entry.holes
                and entry.closed
                and entry.droppable
                and entry.refused is None
            ):
                return self._drop(entry, entry.oldest_range(entry.size)[0], entry.next_doubt())
        return None

    def _choose_drop(self) -> Drop | None:
        """The class that takes more room goes first, so that neither output nor metrics drive the
        other out.
        """
        segments = []  # go whole, once they are closed
        outputs = []  # go piece by piece
        under_way = self._under_way()
        for entry in self.entries.values():
            if not entry.bulk or entry.refused is not None or not entry.droppable:
                continue
            if not entry.whole:
                outputs.append(entry)
            elif entry.closed and entry.name not in under_way:
                segments.append(entry)

        segment_bytes = sum(entry.droppable for entry in segments)
        output_bytes = sum(entry.droppable for entry in outputs)
        if segments and segment_bytes >= output_bytes:
            oldest = min(segments, key=lambda entry: entry.born)
            return self._drop(oldest, oldest.oldest_range(oldest.size)[0], oldest.next_doubt())
        if not outputs:
            return None
        step = max(DROP_STEP_BYTES_MIN, self.plan.spool_bytes_max // 16)
        largest = max(outputs, key=lambda entry: entry.droppable)
        return self._drop(largest, *largest.oldest_range(min(step, DROP_STEP_BYTES_MAX)))

    def _under_way(self) -> set[str]:
        """Streams of batches that are being sent."""
        names: set[str] = set()
        for batch in self._out:
            names.update(batch.ends or batch.proposed)
        return names

    def _drop(self, entry: Entry, start: int, stop: int) -> Drop:
        reason = f"the spool was full ({self.plan.spool_bytes_max} bytes)"
        return Drop(entry.name, start, stop - start, reason, entry.whole and stop >= entry.limit)

    def _note_drop(self, drop: Drop) -> None:
        entry = self.entries[drop.stream]
        self._counting.add(drop.stream)
        self.used -= entry.kept
        entry.drop(Gap(drop.offset, drop.offset + drop.length, drop.reason))
        if drop.whole:
            entry.first = entry.size
        self.used += entry.kept
        entry.release()

    def _dropped(self, event: Dropped) -> None:
        self._counting.discard(event.stream)
        entry = self.entries.get(event.stream)
        if entry is not None:
            for gap in [g for g in entry.gaps if g.start == event.offset]:
                entry.add_gap(Gap(gap.start, gap.end, gap.reason, event.records, event.points))

    # -- sending

    def _next(self, now_s: float) -> list[ShipperInstruction]:
        if self._is_over():
            return self._finish(True)
        if self.ending is not None and now_s >= self._progress_s + FLUSH_AT_END_S:
            return self._finish(False)
        if not self._may_pack(now_s):
            return []
        spans = self._choose(now_s)
        if not spans:
            return []
        self._number += 1
        self._out.append(_Batch(self._number, frozenset(s.stream for s in spans)))
        return [Pack(self._number, tuple(spans))]

    def _may_pack(self, now_s: float) -> bool:
        if now_s < self._retry_s or self._counting:
            return False
        if not self._out:
            return True
        # one batch ahead of the answer, if there is enough for one
        is_packing = any(batch.ends is None for batch in self._out)
        if is_packing or len(self._out) >= 2 or self._alone:
            return False
        return self._waiting_bytes(now_s) >= AHEAD_BYTES

    def _waiting_bytes(self, now_s: float) -> int:
        return sum(e.unsent for e in self.entries.values() if e.is_ready(now_s))

    def _choose(self, now_s: float) -> list[Span]:
        ready = [e for e in self.entries.values() if e.is_ready(now_s)]
        if self._alone:
            ready = [e for e in ready if e.name == self._alone[0]]
            if not ready:
                self._alone.pop(0)
                return self._choose(now_s)

        small = [e for e in ready if not e.bulk]
        bulk = [e for e in ready if e.bulk]
        if bulk:  # each of them is first in its turn
            self._turn = (self._turn + 1) % len(bulk)
            bulk = bulk[self._turn :] + bulk[: self._turn]

        spans: list[Span] = []
        room = self._batch_bytes
        for entry in small + bulk:
            if len(spans) >= SPANS_MAX or room <= 0:
                break
            room -= self._take(entry, min(room, PART_BYTES_MAX), spans)
        return spans + self._last_span(spans, room)

    def _take(self, entry: Entry, room: int, spans: list[Span]) -> int:
        if entry.kind == RECORDS and room < min(RECORDS_ROOM_MIN, entry.unsent):
            return 0
        upto, cut = entry.limit, False
        if self.ending is not None and entry.name == self.ending.stream:
            upto, cut = min(upto, self.ending.offset), True
        found = entry.spans(room, upto)
        if cut and found and found[-1].gap is None and found[-1].offset + found[-1].length == upto:
            span = found.pop()
            found.append(
                Span(
                    span.stream,
                    span.kind,
                    span.offset,
                    span.length,
                    None,
                    span.final,
                    boundary=True,
                )
            )
        spans += found
        return sum(s.length for s in found if s.gap is None)

    def _last_span(self, spans: list[Span], room: int) -> list[Span]:
        """The rest of the stream that says how the task ended, once all else is sent or in this
        very batch.
        """
        if self.ending is None or self._alone or room < RECORDS_ROOM_MIN:
            return []
        covered = {s.stream: s.offset + s.length for s in spans}
        for entry in self.entries.values():
            if entry.refused is not None:
                continue
            upto = entry.limit
            if entry.name == self.ending.stream:
                upto = self.ending.offset
            if not entry.confirmed or covered.get(entry.name, entry.sent) < upto:
                return []

        entry = self.entries[self.ending.stream]
        start = max(entry.sent, self.ending.offset)
        if entry.refused is not None or entry.limit <= start:
            return []
        length = entry.limit - start
        return [Span(entry.name, entry.kind, start, length, None, entry.closed, last=True)]

    def _packed(self, event: Packed, now_s: float) -> None:
        batch = next((b for b in self._out if b.number == event.number), None)
        if batch is None:
            return
        batch.ends = {}
        for piece in event.pieces:
            start = batch.ends.get(piece.stream, (piece.offset, 0))[0]
            batch.ends[piece.stream] = (start, piece.offset + piece.length)
            self.entries[piece.stream].sent = piece.offset + piece.length
            self.entries[piece.stream].asked = True
        settled = set(batch.ends)
        for held in event.held:
            self.entries[held.stream].hold(held.until_s)
            settled.add(held.stream)
        for stream, end in event.ends:
            self.entries[stream].end = end
            settled.add(stream)
        for stream in batch.proposed - settled:
            self.entries[stream].hold(now_s + HOLD_S)
        if not event.pieces:
            self._out.remove(batch)

    def _acked(self, event: Acked, now_s: float, chance: float) -> list[ShipperInstruction]:
        if not self._out or self._out[0].number != event.number or self._out[0].ends is None:
            return []
        batch = self._out.pop(0)
        assert batch.ends is not None
        out: list[ShipperInstruction] = []
        moved = straight = True
        for stream, (start, end) in batch.ends.items():
            if stream in event.refused:
                out += self._set_aside(stream, event.refused[stream])
                continue
            position = event.acks.get(stream)
            straight = straight and position == end
            moved = (position is not None and (position > start or end == start)) and moved
            out += self._settle(stream, position, end)
        if not straight:
            out += self._void()
        if self._alone:
            self._alone.pop(0)
        if not moved and not event.refused and not self._went_back(batch):
            return out + self._back_off("the server does not move on", now_s, chance)
        return self._recovered(batch.ends, now_s) + out

    def _went_back(self, batch: _Batch) -> bool:
        """Whether some stream of it is to be sent from an earlier place: that is progress of a
        kind.
        """
        assert batch.ends is not None
        return any(
            name in self.entries and self.entries[name].sent < start
            for name, (start, _) in batch.ends.items()
        )

    def _settle(self, stream: str, position: int | None, end: int) -> list[ShipperInstruction]:
        entry = self.entries.get(stream)
        if entry is None:
            return []
        if position is None:
            entry.go_back(entry.acked)
            return []
        entry.settle(position)
        if position != end:
            entry.go_back(position)
        self._strikes.pop(stream, None)
        return self._release(entry)

    def _recovered(self, told: "Container[str]", now_s: float) -> list[ShipperInstruction]:
        self._progress_s, self._failures, self._retry_s = now_s, 0, 0.0
        if self._trouble is None:
            return []
        self._trouble = None
        # a server that was away may have come back with less (F15)
        for name, entry in self.entries.items():
            entry.confirmed = entry.confirmed and (name in told or entry.acked == 0)
        return [Log("the server takes data again")]

    def _failed(self, event: Failed, now_s: float, chance: float) -> list[ShipperInstruction]:
        if not self._out or self._out[0].number != event.number:
            return []
        batch = self._out[0]
        out = self._void()
        streams = sorted(batch.ends or ())
        if event.status == 413 and self._batch_bytes > BATCH_BYTES_MIN:
            self._batch_bytes = max(BATCH_BYTES_MIN, self._batch_bytes // 2)
        elif event.status in (400, 413):
            out += self._suspect(streams, event.reason)
        if event.status in (401, 403, 404):
            out.append(Reload())
        return out + self._back_off(event.reason, now_s, chance)

    def _suspect(self, streams: list[str], reason: str) -> list[ShipperInstruction]:
        """The server cannot read a batch: send its streams one by one, and set aside the one that
        it is about.
        """
        if len(streams) > 1:
            self._alone = streams
            return []
        out: list[ShipperInstruction] = []
        for stream in streams:
            self._strikes[stream] = self._strikes.get(stream, 0) + 1
            if self._strikes[stream] >= STRIKES_MAX:
                out += self._set_aside(stream, reason)
        return out

    def _back_off(self, reason: str, now_s: float, chance: float) -> list[ShipperInstruction]:
        pause_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 20)) * (
            0.5 + 0.5 * chance
        )
        self._failures += 1
        self._retry_s = now_s + pause_s
        if reason == self._trouble:
            return []
        self._trouble = reason
        return [Log(f"data stays in the spool: {reason}")]

    def _void(self) -> list[ShipperInstruction]:
        """Nothing that is out counts any more: go on from what the server has."""
        for batch in self._out:
            for stream, (_, end) in (batch.ends or {}).items():
                if stream in self.entries:
                    self.entries[stream].doubts.add(end)
                    self.entries[stream].go_back(self.entries[stream].acked)
        self._out.clear()
        return [Forget()]

    def _set_aside(self, stream: str, reason: str) -> list[ShipperInstruction]:
        entry = self.entries.get(stream)
        if entry is None or entry.refused is not None:
            return []
        entry.refused = reason
        return [Log(f"stream {stream} is set aside: {reason}")]

    # -- the end

    def _is_over(self) -> bool:
        if self.ending is None or self._busy or self._out or self._counting:
            return False
        return all(e.refused is not None or e.has_all() for e in self.entries.values())

    def _finish(self, complete: bool) -> list[ShipperInstruction]:
        self.finished = True
        refused = tuple(sorted(name for name, e in self.entries.items() if e.refused is not None))
        out: list[ShipperInstruction] = [Forget()] if self._out else []
        if not complete:
            out.append(
                Log(f"gave up for now with {self.lag_bytes} bytes unsent; they stay in the spool")
            )
        return [*out, Finish(complete, refused)]

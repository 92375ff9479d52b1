"""What the shipper knows about one stream: how much is there, how much was sent, how much the
server has. Pure.

Kept by `ShipperMachine`. Offsets are those of the spool file; the server counts in the same ones.

    0 ......... first ........ acked ........ sent ........ size
    not in the spool  | could be freed | under way | to be sent
"""

from __future__ import annotations

from math import inf

from headway.model.value import Value

BLOCK_BYTES = 4096  # only whole blocks can be given back to the file system


class Gap(Value):
    """A range that will never be sent, told to the server in place of its bytes (P5)."""

    start: int
    end: int
    reason: str
    records: int | None = None
    points: int | None = None


class Span(Value):
    """A range to read and send, or a gap to tell."""

    stream: str
    kind: str
    offset: int
    length: int
    gap: Gap | None = None
    final: bool = False  # nobody writes to this stream any more
    # a whole frame is known to start right behind it: what is unfinished in it stays so
    boundary: bool = False
    # only if every other span of the batch came out whole: it tells that the task has ended
    last: bool = False


class Entry:
    """One stream."""

    def __init__(
        self, name: str, kind: str, born: int, bulk: bool = False, whole: bool = False
    ) -> None:
        self.name, self.kind = name, kind
        self.born = born  # order of first sight
        self.bulk = bulk  # may be dropped when the spool is full; facts never are (P7)
        # freed and dropped as a whole once closed (a metric segment), not by ranges
        self.whole = whole
        self.size = self.first = self.acked = self.sent = 0
        # where it really ends, once that is known: before zeros or an unfinished frame
        self.end: int | None = None
        self.closed = False
        self.confirmed = (
            # False: `acked` is hearsay (a cursor, or a server that was away) until the server says
            # it
            True
        )
        self.asked = False  # a batch that is out will tell
        self.refused: str | None = None
        self.held_size = -1  # at this size there was nothing that could be sent
        self.held_until_s = inf
        # ends of batches that failed: the server may be at any of them
        self.doubts: set[int] = set()
        self.gaps: list[Gap] = []  # not yet told
        # ranges behind `first` that are not in the spool either
        self.holes: list[tuple[int, int]] = []

    @property
    def limit(self) -> int:
        return self.size if self.end is None else self.end

    @property
    def unsent(self) -> int:
        return max(0, self.limit - self.sent)

    @property
    def lag(self) -> int:
        return 0 if self.refused is not None else max(0, self.limit - self.acked)

    @property
    def kept(self) -> int:
        """Bytes of it that take room in the spool."""
        return max(0, self.size - self.first) - self._missing(self.first)

    @property
    def droppable(self) -> int:
        """Bytes that are neither sent nor dropped."""
        return 0 if self.first >= self.size else self.unsent - self._missing(self.sent)

    def _missing(self, start: int) -> int:
        """Bytes of holes between `start` and the end of the file."""
        return sum(max(0, min(end, self.size) - max(begin, start)) for begin, end in self.holes)

    def is_ready(self, now_s: float) -> bool:
        """Whether something of it could be sent now."""
        if self.refused is not None:
            return False
        if not self.confirmed:
            return not self.asked
        return self.unsent > 0 and (self.size > self.held_size or now_s >= self.held_until_s)

    def is_done(self) -> bool:
        return self.refused is not None or (self.closed and self.has_all())

    def has_all(self) -> bool:
        """Whether the server has everything that is there, by its own word."""
        return self.confirmed and self.acked >= self.limit

    def hold(self, until_s: float | None) -> None:
        """What is there cannot be sent yet; look again when it grows, or at that time."""
        self.held_size, self.held_until_s = self.size, inf if until_s is None else until_s

    def release(self) -> None:
        self.held_size, self.held_until_s = -1, inf

    def go_back(self, position: int) -> None:
        """Send again from there."""
        self.sent, self.asked = position, False
        self.release()

    def add_gap(self, gap: Gap) -> None:
        self.gaps = sorted(
            [g for g in self.gaps if g.start != gap.start] + [gap], key=lambda g: g.start
        )

    def drop(self, gap: Gap) -> None:
        self.add_gap(gap)
        self.holes.append((gap.start, gap.end))

    def free_to(self, first: int) -> None:
        self.first = max(self.first, first)
        self.holes = [(start, end) for start, end in self.holes if end > self.first]

    def oldest_range(self, step: int) -> tuple[int, int]:
        """The first `step` bytes that are neither sent nor dropped; they end at a block, where that
        is possible.
        """
        start = self.sent
        for begin, end in sorted(self.holes):
            start = end if begin <= start < end else start
        stop = min([self.limit, *(begin for begin, _ in self.holes if begin > start)])
        if stop - start > step:
            aligned = (start + step) // BLOCK_BYTES * BLOCK_BYTES
            stop = aligned if aligned > start else start + step
        return start, stop

    def next_doubt(self) -> int:
        """Where a drop of records must end, so that its counts are right wherever the server is
        (P5).
        """
        start = self.oldest_range(self.size)[0]
        return min([self.limit, *(place for place in self.doubts if place > start)])

    def settle(self, position: int) -> None:
        """The server is at `position`."""
        self.acked, self.confirmed, self.asked = position, True, False
        self.gaps = [gap for gap in self.gaps if gap.end > position]
        self.doubts = {place for place in self.doubts if place > position}

    def spans(self, room: int, upto: int) -> list[Span]:
        """What to send next: at most `room` bytes, gaps between them, nothing beyond `upto`."""
        # no bytes, only the question: a wrong cursor may point into the middle of a frame
        if not self.confirmed:
            return (
                [] if self.asked else [Span(self.name, self.kind, self.sent, 0, None, self.closed)]
            )
        found: list[Span] = []
        pos = self.sent
        while pos < upto and len(found) < 16:
            gap = self._gap_at(pos)
            if gap is not None:
                found.append(Span(self.name, self.kind, pos, gap.end - pos, gap, self.closed))
                pos = gap.end
                continue
            stop = min([upto, *(g.start for g in self.gaps if g.start > pos)])
            length = min(room, stop - pos)
            if length <= 0:
                break
            found.append(Span(self.name, self.kind, pos, length, None, self.closed))
            pos, room = pos + length, room - length
            if pos < stop:
                break
        return found

    def _gap_at(self, pos: int) -> Gap | None:
        for gap in self.gaps:
            if gap.start <= pos < gap.end:
                return gap
        if pos < self.first:  # freed after an older server had acknowledged it, and asked for again
            stop = min([self.first, *(g.start for g in self.gaps if g.start > pos)])
            return Gap(pos, stop, "it is no longer in the spool")
        return None

"""Makes batches of the spans that the machine asks for: reads, checks records, masks output. Called
by the shipper.

Output is read into one large buffer per batch and masked there in place; it is sent from there, so
a byte that a program prints is copied once on its way to the socket.
"""

from __future__ import annotations

import json
import os

from headway.agent.ship.events import Held, Packed, Piece
from headway.model.limits import BATCH_BYTES_MAX, KIB, PARTS_MAX, SHAPE_WAIT_S
from headway.model.record import BLOB, GAP, INDEX, RAW, RECORDS
from headway.spool.files import OS_FILES, Files
from headway.spool.reader import read_exactly, read_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.agent.ship.mask import Mask
    from headway.agent.ship.stream_state import Span
    from headway.agent.ship.tail import Tail

KEEP_BYTES = 256 * KIB  # a smaller buffer is cheaper to make than to keep
_INDEX_ENTRY_BYTES = 16


class Part:
    """Bytes of one stream at their offset; `wire.batch.Part` as the shipper has it."""

    __slots__ = ("data", "kind", "offset", "stream")

    def __init__(self, stream: str, kind: str, offset: int, data: bytes | memoryview) -> None:
        self.stream, self.kind, self.offset, self.data = stream, kind, offset, data


class Batch:
    """One packed batch: its parts, and the buffer that some of them lie in."""

    def __init__(self, number: int, buffer: bytearray) -> None:
        self.number, self.buffer = number, buffer
        self.parts: list[Part] = []
        self.pieces: list[Piece] = []
        self.held: list[Held] = []
        self.ends: list[tuple[str, int]] = []
        self.used = 0
        self.whole = True  # every span came out complete

    def add(self, part: Part, length: int) -> None:
        self.parts.append(part)
        self.pieces.append(Piece(part.stream, part.offset, length))

    def event(self) -> Packed:
        return Packed(self.number, tuple(self.pieces), tuple(self.held), tuple(self.ends))


class Packer:
    def __init__(
        self,
        tail: "Tail",
        mask: "Callable[[], Mask]",
        say: "Callable[[str], None]",
        files: Files = OS_FILES,
    ) -> None:
        self._tail, self._mask, self._say, self._files = tail, mask, say, files
        self._buffers: list[bytearray] = []
        # output stream -> (offset, since) of a tail that waits
        self._waiting: dict[str, tuple[int, float]] = {}
        self._told: set[tuple[str, int]] = set()  # damage that was logged

    def pack(self, number: int, spans: "tuple[Span, ...]", now_s: float) -> Batch:
        raw_bytes = sum(span.length for span in spans if span.kind == RAW and span.gap is None)
        batch = Batch(number, self._buffer(raw_bytes))
        for i, span in enumerate(spans):
            is_full = len(batch.parts) >= PARTS_MAX
            if is_full or (span.last and not batch.whole):
                batch.whole = False
                continue
            follows = i + 1 < len(spans) and spans[i + 1].stream == span.stream
            ends = span.final and not follows
            if not self._span(batch, span, now_s, ends=ends, cut=follows):
                batch.whole = False
        return batch

    def _buffer(self, length: int) -> bytearray:
        """Small ones are made to measure; a large one is used again."""
        if length <= KEEP_BYTES:
            return bytearray(length)
        return self._buffers.pop() if self._buffers else bytearray(BATCH_BYTES_MAX)

    def release(self, batch: Batch) -> None:
        """The batch is done with; its buffer serves the next one."""
        batch.parts.clear()
        if len(batch.buffer) > KEEP_BYTES:
            self._buffers.append(batch.buffer)

    def shrink(self) -> bool:
        """Nothing flows: give the memory back. Whether there was any."""
        had = bool(self._buffers)
        self._buffers.clear()
        return had

    def _span(self, batch: Batch, span: "Span", now_s: float, *, ends: bool, cut: bool) -> bool:
        if span.gap is not None:
            return self._gap(batch, span)
        if not span.length:  # only to hear where the server is
            batch.add(Part(span.stream, span.kind, span.offset, b""), 0)
            return True
        tailed = self._tail.streams.get(span.stream)
        if tailed is None:
            return True
        at_end = span.offset + span.length >= tailed.size
        try:
            if span.kind == RECORDS:
                return self._records(batch, span, tailed.fd, at_end, final=ends and at_end)
            if span.kind == BLOB:
                return self._blob(batch, span, tailed.fd)
            if span.kind == INDEX:
                return self._index(batch, span, tailed.fd)
            return self._output(
                batch, span, tailed.fd, now_s, at_end, final=cut or (ends and at_end)
            )
        except OSError as error:
            self._log_once(span, f"{span.stream} cannot be read at {span.offset}: {error.strerror}")
            batch.held.append(Held(span.stream, now_s + 1.0))
            return False

    # -- records

    def _records(self, batch: Batch, span: "Span", fd: int, at_end: bool, *, final: bool) -> bool:
        data, scan = read_frames(fd, span.offset, span.length, final, self._files)
        view, begin, end, damaged = memoryview(data), 0, scan.end, list(scan.damaged)
        if span.boundary and end < len(data) == span.length:  # a write that failed halfway
            damaged.append((end, span.length))
            end = span.length
        for start, stop in [*damaged, (end, end)]:
            if len(batch.parts) + 2 > PARTS_MAX:
                return False
            if start > begin:
                batch.add(
                    Part(span.stream, RECORDS, span.offset + begin, view[begin:start]),
                    start - begin,
                )
            if stop > start:
                self._log_once(
                    span,
                    f"{span.stream}: {stop - start} bytes at {span.offset + start} are damaged",
                    start,
                )
                self._add_gap(
                    batch, span.stream, span.offset + start, stop - start, "damaged in the spool"
                )
            begin = stop
        if end == span.length:
            return True
        if final:  # zeros, or a frame that was never finished
            batch.ends.append((span.stream, span.offset + end))
            return True
        if len(data) < span.length or end == 0 or at_end:
            batch.held.append(Held(span.stream))
        return False

    # -- output

    def _output(
        self, batch: Batch, span: "Span", fd: int, now_s: float, at_end: bool, *, final: bool
    ) -> bool:
        start = batch.used
        room = memoryview(batch.buffer)[start : start + span.length]
        got = self._read_into(fd, room, span.offset)
        room.release()
        since = self._waiting.get(span.stream, (-1, now_s))
        waited = since[0] == span.offset and now_s >= since[1] + SHAPE_WAIT_S
        mask = self._mask()
        before = mask.count
        ready = (
            mask.apply(batch.buffer, start, start + got, final=final, patient=not waited) - start
        )
        if mask.count and not before:
            self._say("the output holds secrets; they are masked before it leaves this machine")
        if ready:
            batch.used = start + ready
            view = memoryview(batch.buffer)[start : start + ready]
            batch.add(Part(span.stream, span.kind, span.offset, view), ready)
        if ready == span.length or (final and ready == got):
            self._waiting.pop(span.stream, None)
            if ready < span.length:  # the program has cut its own output short
                batch.ends.append((span.stream, span.offset + ready))
            return True
        # else what may be the start of a secret goes with what follows it, which is there
        if at_end or not ready:
            self._wait(batch, span, span.offset + ready, waited, now_s)
        return False

    def _wait(self, batch: Batch, span: "Span", offset: int, waited: bool, now_s: float) -> None:
        known = self._waiting.get(span.stream)
        if known is None or known[0] != offset:
            self._waiting[span.stream] = (offset, now_s)
            known = self._waiting[span.stream]
        batch.held.append(Held(span.stream, None if waited else known[1] + SHAPE_WAIT_S))

    def _read_into(self, fd: int, room: memoryview, offset: int) -> int:
        got = 0
        while got < len(room):
            n = os.preadv(fd, [room[got:]], offset + got)
            if not n:
                break
            got += n
        return got

    def _blob(self, batch: Batch, span: "Span", fd: int) -> bool:
        """A file's own bytes. One that was cut short under us ends where it ends; the record of it says its size."""
        data = read_exactly(self._files, fd, span.offset, span.length)
        if data:
            batch.add(Part(span.stream, span.kind, span.offset, data), len(data))
        if len(data) < span.length:
            batch.ends.append((span.stream, span.offset + len(data)))
        return True

    def _index(self, batch: Batch, span: "Span", fd: int) -> bool:
        """Whole entries only."""
        length = span.length - (span.offset + span.length) % _INDEX_ENTRY_BYTES
        data = read_exactly(self._files, fd, span.offset, max(0, length))
        if data:
            batch.add(Part(span.stream, span.kind, span.offset, data), len(data))
        if len(data) == span.length:
            return True
        batch.held.append(Held(span.stream))
        return False

    # -- gaps

    def _gap(self, batch: Batch, span: "Span") -> bool:
        assert span.gap is not None
        gap = span.gap
        self._add_gap(
            batch, span.stream, span.offset, span.length, gap.reason, gap.records, gap.points
        )
        return True

    def _add_gap(
        self,
        batch: Batch,
        stream: str,
        offset: int,
        length: int,
        reason: str,
        records: int | None = None,
        points: int | None = None,
    ) -> None:
        told = {"bytes": length, "reason": reason, "records": records, "points": points}
        data = json.dumps(
            {name: value for name, value in told.items() if value is not None}
        ).encode()
        batch.add(Part(stream, GAP, offset, data), length)

    def _log_once(self, span: "Span", text: str, at: int = 0) -> None:
        if (span.stream, span.offset + at) not in self._told and len(self._told) < 1000:
            self._told.add((span.stream, span.offset + at))
            self._say(text)

"""Masks secrets in raw output, at equal length, before it leaves the node. Called by the shipper
(Sec9).

Exact values of secret variables are promised, also when one is cut across two reads: a tail that
may be the start of one waits for the rest. Known shapes (`wire/redact.py`) are best effort and wait
only as long as the caller allows.

This runs over every byte that a program prints, so it is built from the few things that CPython
does fast: the search for one rare byte of a literal (about 3 GB/s), and only where that byte
stands, a look at what is around it.
"""

from __future__ import annotations

import re

from headway.model.limits import KIB, SECRET_BYTES_MIN
from headway.wire.redact import SHAPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHAPE_BYTES_MAX = 9 * KIB  # a longer one is not waited for
# in order of choice: seldom in a program's output, often in the literals of shapes
_RARE = b"JIx_=-"
# a literal that is common, and a byte without which its shape cannot be there
_NEEDS = {b"://": b"@"}
_BREAKS = re.compile(rb"[\s\"'<>]")
_SHAPE_HEAD_BYTES_MIN = 2  # a tail of one byte is no sign of anything
_PRIVATE_KEY = b"-----BEGIN "
_STARS = bytes(b if b in b"\r\n" else 0x2A for b in range(256))  # lines stay lines


class _Shape:
    """One known shape; its pattern is compiled when its literal is first met."""

    __slots__ = ("_compiled", "_pattern", "literals")

    def __init__(self, literals: tuple[bytes, ...], pattern: bytes) -> None:
        self.literals, self._pattern = literals, pattern
        self._compiled: re.Pattern[bytes] | None = None

    def match(self, data: bytearray, start: int, stop: int, end: int) -> tuple[int, int] | None:
        """The secret that belongs to the literal at [start, stop): it starts there or right behind."""
        if self._compiled is None:
            self._compiled = re.compile(self._pattern)
        found = self._compiled.match(data, start, end) or self._compiled.match(data, stop, end)
        return found.span() if found else None


class _Trigger:
    """Finds several literals that share a rare byte in one pass."""

    __slots__ = ("_byte", "_literals", "_pattern")

    def __init__(self, byte: bytes, literals: list[bytes]) -> None:
        self._byte, self._literals = byte, literals
        around = []
        for literal in literals:
            at = literal.rindex(byte)
            around.append(
                b"((?<=%s)(?=%s))" % (re.escape(literal[: at + 1]), re.escape(literal[at + 1 :]))
            )
        before = {
            literal[literal.rindex(byte) - 1 :][:1] for literal in literals if literal.rindex(byte)
        }
        # ends most tries at once
        hurdle = b"(?<=[%s]%s)" % (re.escape(b"".join(sorted(before))), re.escape(byte))
        self._pattern = re.compile(re.escape(byte) + hurdle + b"(?:" + b"|".join(around) + b")")

    def hits(self, data: bytearray, start: int, end: int) -> "Iterator[tuple[bytes, int]]":
        for found in self._pattern.finditer(data, start, end):
            literal = self._literals[(found.lastindex or 1) - 1]
            at = found.start() - literal.rindex(self._byte)
            if at >= start:
                yield literal, at


class Mask:
    """One for all output of a task. `apply` works in place."""

    def __init__(self, values: "Iterable[bytes]" = ()) -> None:
        long_enough = {value for value in values if len(value) >= SECRET_BYTES_MIN}
        self.values = sorted(long_enough, key=len, reverse=True)
        self.count = 0  # places masked
        self._shapes: dict[bytes, _Shape] = {}
        for _, literals, pattern in SHAPES:
            for literal in literals:
                self._shapes[literal] = _Shape(literals, pattern)

        groups: dict[bytes, list[bytes]] = {}
        self._plain: list[bytes] = []
        for literal in self._shapes:
            rare = next((bytes([b]) for b in _RARE if b in literal), None)
            if rare is None:
                self._plain.append(literal)
            else:
                groups.setdefault(rare, []).append(literal)
        self._triggers = [_Trigger(byte, literals) for byte, literals in groups.items()]

    def apply(
        self, data: bytearray, start: int, end: int, *, final: bool = False, patient: bool = True
    ) -> int:
        """Mask secrets in data[start:end]. Returns where the part ends that may leave; the rest
        waits for more.

        `final`: nothing will follow. `patient`: also wait for what may become a known shape.
        """
        spans = list(self._exact(data, start, end))
        hold = end
        for literal, at in self._literals(data, start, end):
            found = self._shapes[literal].match(data, at, at + len(literal), end)
            if found is not None and found[1] < end:
                spans.append(found)
            elif not final and patient and self._may_go_on(data, literal, at, end):
                hold = min(hold, at)
            elif found is not None:
                spans.append(found)
        if not final:
            hold = min(hold, self._exact_tail(data, start, end))
            hold = min(hold, self._shape_tail(data, start, end)) if patient else hold
        return self._cover(data, spans, hold)

    def _cover(self, data: bytearray, spans: list[tuple[int, int]], hold: int) -> int:
        """Overwrite the spans before `hold`. A secret is never cut: one that `hold` is inside of
        leaves whole.
        """
        for begin, stop in sorted(spans):
            if begin >= hold:
                break
            data[begin:stop] = data[begin:stop].translate(_STARS)
            self.count += 1
            hold = max(hold, stop)
        return hold

    def _exact(self, data: bytearray, start: int, end: int) -> "Iterator[tuple[int, int]]":
        for value in self.values:
            at = data.find(value, start, end)
            while at != -1:
                yield at, at + len(value)
                at = data.find(value, at + 1, end)

    def _exact_tail(self, data: bytearray, start: int, end: int) -> int:
        """Where a suffix starts that is the beginning of a secret value."""
        hold = end
        for value in self.values:
            first, low = value[:1], max(start, end - len(value) + 1)
            at = data.find(first, low, end)
            while at != -1 and at < hold:
                if value.startswith(data[at:end]):
                    hold = at
                at = data.find(first, at + 1, end)
        return hold

    def _literals(self, data: bytearray, start: int, end: int) -> "Iterator[tuple[bytes, int]]":
        for trigger in self._triggers:
            yield from trigger.hits(data, start, end)
        for literal in self._plain:
            needed = _NEEDS.get(literal)
            # it may still come, near the end
            if needed is not None and data.find(needed, start, end) == -1:
                at = data.rfind(literal, max(start, end - SHAPE_BYTES_MAX), end)
            else:
                at = data.find(literal, start, end)
            while at != -1:
                yield literal, at
                at = data.find(literal, at + 1, end)

    def _may_go_on(self, data: bytearray, literal: bytes, at: int, end: int) -> bool:
        """Whether more bytes could make a secret, or a longer one, of the literal at `at`."""
        if end - at > SHAPE_BYTES_MAX:
            return False
        return literal == _PRIVATE_KEY or _BREAKS.search(data, at + len(literal), end) is None

    def _shape_tail(self, data: bytearray, start: int, end: int) -> int:
        """Where a suffix starts that is the beginning of a shape's literal."""
        for length in range(min(end - start, 11), _SHAPE_HEAD_BYTES_MIN - 1, -1):
            tail = bytes(data[end - length : end])
            if any(len(literal) > length and literal.startswith(tail) for literal in self._shapes):
                return end - length
        return end

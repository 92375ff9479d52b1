"""Lines as a terminal would leave them: a bar that was drawn again and again is its last state.

A program draws over what it wrote by a carriage return (tqdm) or by going up some rows (rich,
several bars of tqdm). Called by `hw logs` and `hw run` without a live view, and by `hw q`. Pure.
"""

import re
from typing import Any, Final

from headway.model.json_types import JsonObject

Line = JsonObject  # of the routes `logs` and `follow`

_UP: Final = re.compile(r"\x1b\[([0-9]{0,3})(?:A|F)|\x1bM")
_HIDE: Final = "\x1b[?25l"
_SHOW: Final = "\x1b[?25h"
_ROWS_MAX: Final = 64  # rows of one drawing: more than any program draws
_HIDDEN_ROWS: Final = 16  # kept back while a program hides the cursor and has not gone up yet
_OPEN_CHARS_MAX: Final = 64 * 1024


class _Row:
    __slots__ = ("gone", "line", "settled")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.gone = False
        self.settled = False


class _Screen:
    """What one stream of one process draws: rows that it may still draw over, and the row that has
    no end yet.
    """

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.open: _Row | None = None
        self.reach = 0  # so many rows up has it gone

    def take(self, line: Line) -> list[_Row]:
        """The rows that are new with this line."""
        text = str(line.get("text", ""))
        if self.open is not None:
            text = joined(str(self.open.line.get("text", "")), text)
            self.open.gone = True
            self.open = None
        text = self._go_up(text)
        row = _Row({**line, "text": text})
        if line.get("open"):
            self.open = row
        else:
            self.rows.append(row)
        return [row]

    def _go_up(self, text: str) -> str:
        """Forget the rows that are drawn over; what then stands in the row where it ended."""
        if _HIDE in text:
            self.reach = max(self.reach, _HIDDEN_ROWS)
        rows, text = rows_up(text)
        if rows:
            self.reach = min(max(self.reach, rows), _ROWS_MAX)
            for row in self.rows[max(0, len(self.rows) - rows) :]:
                row.gone = True
            del self.rows[max(0, len(self.rows) - rows) :]
        if _SHOW in text:
            self.reach = 0
        return text

    def settle(self, *, final: bool) -> None:
        """Rows out of reach stay as they are."""
        kept = 0 if final else min(self.reach, len(self.rows))
        for row in self.rows[: len(self.rows) - kept]:
            row.settled = True
        del self.rows[: len(self.rows) - kept]
        if final and self.open is not None:
            self.open.settled = True
            self.open = None


def joined(before: str, after: str) -> str:
    """A line without end and what came next of it. What a carriage return draws over is left out."""
    if not _UP.search(after) and ("\r" in after or before.endswith("\r")):
        before = before[before.rfind("\r", 0, len(before) - 1) + 1 :]
    return (before + after)[-_OPEN_CHARS_MAX:]


def rows_up(text: str) -> tuple[int, str]:
    """How many rows it goes up, and what it writes where it gets to."""
    if "\x1b" not in text:
        return 0, text
    moves = list(_UP.finditer(text))
    if not moves:
        return 0, text
    rows = sum(min(int(move[1] or 1), _ROWS_MAX) for move in moves)
    return min(rows, _ROWS_MAX), text[moves[-1].end() :]


class Redraws:
    """Lines in, lines that will not change any more out, in their order."""

    def __init__(self) -> None:
        self._screens: dict[tuple[Any, ...], _Screen] = {}
        self._rows: list[_Row] = []

    def settled(self, lines: list[Line], *, final: bool = False) -> list[Line]:
        """`final`: nothing comes after these, so all of them are told."""
        touched = set()
        for line in lines:
            key = tuple(line.get(name) for name in ("job", "attempt", "task", "rank", "stream"))
            screen = self._screens.get(key)
            if screen is None:
                screen = self._screens[key] = _Screen()
            touched.add(key)
            self._rows += screen.take(line)
        for key in self._screens if final else touched:
            self._screens[key].settle(final=final)
        ready = [row.line for row in self._rows if row.settled and not row.gone]
        self._rows = [row for row in self._rows if not row.settled and not row.gone]
        return ready

    @property
    def drawn(self) -> list[Line]:
        """What is being drawn now, and may change."""
        return [row.line for row in self._rows]


def folded(lines: list[Line]) -> list[Line]:
    """Of lines that are all there is."""
    return Redraws().settled(lines, final=True)


def counted(lines: list[Line]) -> list[Line]:
    """The same line of the same rank again and again as one, with how often it came."""
    found: list[Line] = []
    counts: list[int] = []
    for line in lines:
        before = found[-1] if found else {}
        is_same = all(line.get(name) == before.get(name) for name in ("rank", "stream", "text"))
        if is_same and line.get("text"):
            counts[-1] += 1
        else:
            found.append(line)
            counts.append(1)
    return [
        {**line, "text": f"{line.get('text')}  ×{count}"} if count > 1 else line
        for line, count in zip(found, counts, strict=True)
    ]

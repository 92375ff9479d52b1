"""A terminal small enough to read: bytes that a program wrote to it become rows of styled
characters. For `picture.py`.

Knows what our own output uses: text, line ends, tabs, cursor movement, erasing, colours, the
alternate screen. What scrolls away is kept.
"""

import re
import unicodedata
from dataclasses import dataclass, replace

_SEQUENCE = re.compile(
    r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][0-9A-B]?|\x1b[78cDEHM]"
)


@dataclass(frozen=True, slots=True)
class Style:
    color: int | None = None  # 0–15
    bold: bool = False
    dim: bool = False


PLAIN = Style()
Cell = tuple[str, Style]


class Screen:
    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self.style = PLAIN
        self.last_view: list[list[Cell]] = []  # the alternate screen as it was last left
        self._main: tuple[list[list[Cell]], int, int] | None = None

    def feed(self, text: str) -> None:
        position = 0
        for found in _SEQUENCE.finditer(text):
            self._text(text[position : found.start()])
            if found[2]:
                self._control(found[1], found[2])
            position = found.end()
        self._text(text[position:])

    def _text(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self.row += 1
                self._reach()
            elif character == "\r":
                self.column = 0
            elif character == "\t":
                self.column = (self.column // 8 + 1) * 8
            elif character == "\b":
                self.column = max(self.column - 1, 0)
            elif unicodedata.category(character)[0] != "C":
                self._put(character)
                if unicodedata.east_asian_width(character) in "WF":
                    self._put("")  # the second half of a wide character

    def _put(self, character: str) -> None:
        if self.column >= self.columns:
            self.row, self.column = self.row + 1, 0
            self._reach()
        row = self.rows[self.row]
        row += [(" ", PLAIN)] * (self.column + 1 - len(row))
        row[self.column] = (character, self.style)
        self.column += 1

    def _reach(self) -> None:
        while len(self.rows) <= self.row:
            self.rows.append([])

    def _alternate(self, on: bool) -> None:
        if on and self._main is None:
            self._main = (self.rows, self.row, self.column)
            self.rows, self.row, self.column = [[]], 0, 0
        elif not on and self._main is not None:
            self.last_view = self.lines()
            self.rows, self.row, self.column = self._main
            self._main = None

    def _control(self, parameters: str, final: str) -> None:
        if parameters == "?1049":
            self._alternate(final == "h")
        if parameters.startswith("?"):
            return
        numbers = [int(part) if part.isdigit() else 0 for part in parameters.split(";")]
        count = max(numbers[0], 1)
        if final == "m":
            self._restyle(numbers)
        elif final in "AF":
            self.row = max(self.row - count, 0)
        elif final in "BE":
            self.row += count
            self._reach()
        elif final == "C":
            self.column += count
        elif final == "D":
            self.column = max(self.column - count, 0)
        elif final == "H":
            self.row, self.column = count - 1, max(numbers[1] if len(numbers) > 1 else 1, 1) - 1
            self._reach()
        elif final == "G":
            self.column = count - 1
        elif final in "JK":
            self._erase(numbers[0], below=final == "J")
        if final in "EF":
            self.column = 0

    def _erase(self, which: int, *, below: bool) -> None:
        row = self.rows[self.row]
        if below and which == 2:
            self.rows[:] = [[] for _ in self.rows]
        elif which == 0:
            del row[self.column :]
        elif which == 2:
            row.clear()
        if below and which == 0:
            del self.rows[self.row + 1 :]

    def _restyle(self, numbers: list[int]) -> None:
        position = 0
        while position < len(numbers):
            number = numbers[position]
            if number == 0:
                self.style = PLAIN
            elif number in (1, 2, 22):
                self.style = replace(self.style, bold=number == 1, dim=number == 2)
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self.style = replace(self.style, color=number - 30 if number < 90 else number - 82)
            elif number == 39:
                self.style = replace(self.style, color=None)
            elif number in (38, 48):  # 256 or true colours: their numbers are no styles of ours
                position += 2 if numbers[position + 1 : position + 2] == [5] else 4
            position += 1

    def lines(self) -> list[list[Cell]]:
        """Rows without the empty ones at the end."""
        rows = [list(row) for row in self.rows]
        while rows and not any(character.strip() for character, _ in rows[-1]):
            rows.pop()
        return rows

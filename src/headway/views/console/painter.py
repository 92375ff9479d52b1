"""From lines to the bytes that change a terminal into them: only rows that differ from the last
frame. Pure.

Positions are absolute and wrapping is off, so that a character whose width the terminal judges
otherwise than we do spoils one row and not the picture; the frame arrives as one update where the
terminal knows how.
"""

from typing import Final

from headway.views.console.cells import Line, Size, cells, cut
from headway.views.console.theme import Theme

# alternate screen, no cursor, no wrapping; and all of it back. CAN ends a sequence that was cut in
# two.
ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
LEAVE: Final = b"\x18\x1b[0m\x1b[?2026l\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


class Painter:
    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self._lines: list[Line] = []
        self._size: Size = (0, 0)

    def forget(self) -> None:
        """The terminal may show anything now: draw all of the next frame."""
        self._size = (0, 0)

    def paint(self, lines: list[Line], size: Size) -> bytes:
        """Empty when nothing changed."""
        columns, rows = size
        whole = size != self._size
        parts = ["\x1b[2J"] if whole else []
        for row, line in enumerate(lines[:rows]):
            if not whole and row < len(self._lines) and self._lines[row] == line:
                continue
            line = cut(line, columns)
            erase = "\x1b[K" if cells(line) < columns else ""
            parts.append(f"\x1b[{row + 1};1H{self.theme.shown(line)}{erase}")
        self._lines, self._size = lines, size
        return (_BEGIN + "".join(parts) + _END).encode("utf-8", "replace") if parts else b""

"""What the terminal can show: colour, Unicode. Called by the widgets, which ask for safe text, and
by the painter.

NO_COLOR takes the colours away and leaves bold, dim and reverse; nothing that is said rests on
either. Where the locale has no UTF-8, marks and bars become ASCII.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headway.views.console.cells import Line, Span
from headway.wire import display

# One character each, so that no line grows wider than it was laid out.
_ASCII: Final = str.maketrans(
    "●✓✗…·—–│─→×µ○━╸▁▂▃▄▅▆▇█›↵↑↓←▏",
    "*+x.---|->xuo=>_.-=+*##>/^v<|",
)
_WEIGHTS: Final = frozenset({"1", "2", "7"})


@dataclass(frozen=True, slots=True)
class Theme:
    color: bool = True
    ascii_only: bool = False

    def safe(self, text: str) -> str:
        """One line of foreign text, without any styles of its own."""
        return display.line(text, ascii_only=self.ascii_only)

    def shown(self, line: Line) -> str:
        """The line as it goes to the terminal."""
        return "".join([self._span(span) for span in line])

    def _span(self, span: Span) -> str:
        text, code = span
        if self.ascii_only and not text.isascii():
            text = text.translate(_ASCII).encode("ascii", "replace").decode()
        code = code if self.color or not code else _weight(code)
        return f"\x1b[{code}m{text}\x1b[0m" if code else text


@lru_cache(256)
def _weight(code: str) -> str:
    return ";".join(part for part in code.split(";") if part in _WEIGHTS)

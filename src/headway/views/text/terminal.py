"""The two streams a command writes to and what they can show: colour, Unicode, width (B32).

Data goes to stdout (`put`), talk goes to stderr (`say`). Every text that a job or a server made
goes through `safe`/`safe_block` first; the marks and words of Headway itself are written as they
are, in ASCII where need be.
"""

import os
import re
import select
import sys
from typing import Final

from headway.wire import display

# What stands for our own marks where the locale has no UTF-8.
_ASCII: Final = str.maketrans(
    {
        "●": "*", "✓": "+", "✗": "x", "…": "...", "·": "-", "—": "-", "–": "-", "│": "|", "─": "-", "→": "->",
        "×": "x", "µ": "u", "○": "o", "±": "+-", "↑": "^", "↓": "v", "┤": "+", "┬": "+", "└": "+",
    }
)  # fmt: skip

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
_COLUMNS_DEFAULT: Final = 80
_COLUMNS_MIN: Final = 20
_ROWS_DEFAULT: Final = 24
# return, cursor up, home, erase line, erase screen
_CONTROL: Final = re.compile(r"(?:\r|\x1b\[[0-9]{0,4}(?:A|H|K|J))*")
INDENTED_MAX: Final = 200  # rows of JSON that a person may want to read


class Output:
    """One stream: bytes out, and what its reader can show."""

    def __init__(self, fd: int, *, color: str = "auto", ascii_only: bool | None = None) -> None:
        self.fd = fd
        self.is_tty = os.isatty(fd)
        self.color = may_color(self.is_tty, color)
        self.ascii_only = _is_ascii() if ascii_only is None else ascii_only
        # None: no limit, a file or a pipe takes whole lines
        self.columns = _columns(fd) if self.is_tty else None
        self.rows = _rows(fd) if self.is_tty else None

    def write(self, text: str) -> None:
        """The one way out for text. On a terminal everything passes `display.guard`, whatever the
        view and the format, so that no text of a job can steer it (Sec7).
        """
        text = self._marks(text)
        if self.is_tty:
            text = display.guard(text, ascii_only=self.ascii_only)
        self._send(text.encode("ascii" if self.ascii_only else "utf-8", "backslashreplace"))

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Bytes as they are for a file or a pipe; a terminal gets them as safe text."""
        if self.is_tty:
            self.write(display.decode(bytes(data)))
        else:
            self._send(data)

    def control(self, sequence: str) -> None:
        """Cursor movements of our own; nothing else passes."""
        if self.is_tty and _CONTROL.fullmatch(sequence):
            self._send(sequence.encode("ascii"))

    def _send(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:  # somebody made the shared terminal or pipe non-blocking
                select.select([], [self.fd], [])

    def style(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}{display.RESET}" if self.color and text else text

    def safe(self, text: str) -> str:
        """One line of foreign text."""
        return display.line(self._marks(text), color=self.color, ascii_only=self.ascii_only)

    def safe_block(self, text: str) -> str:
        return display.block(self._marks(text), color=self.color, ascii_only=self.ascii_only)

    def _marks(self, text: str) -> str:
        """Also before text is made safe: words of ours that stand in it are not foreign."""
        return text.translate(_ASCII) if self.ascii_only else text


class Terminal:
    """stdout and stderr of a command."""

    def __init__(self, color: str | None = None, out_fd: int = 1, err_fd: int = 2) -> None:
        asked = color or os.environ.get("HEADWAY_COLOR", "auto")
        self.out = Output(out_fd, color=asked)
        self.err = Output(err_fd, color=asked)

    def set_color(self, asked: str) -> None:
        """The setting `color`: auto, always or never."""
        for output in (self.out, self.err):
            output.color = may_color(output.is_tty, asked)

    def put(self, text: str = "") -> None:
        """A line of data."""
        self.out.write(text + "\n")

    def say(self, text: str = "") -> None:
        """A line of talk. Nobody may be there to read it, and that is no reason to stop."""
        try:
            self.err.write(text + "\n")
        except OSError:
            pass

    def put_json(self, value: object) -> None:
        """ASCII only, so that it is the same in every locale and harmless on a terminal."""
        import json

        # a line each: indenting takes several times as long
        if isinstance(value, list) and len(value) > INDENTED_MAX:
            lines = ",\n".join([json.dumps(one, allow_nan=False) for one in value])
            self.out.write_bytes(b"[\n" + lines.encode() + b"\n]\n")
            return
        self.out.write_bytes(json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")


def may_color(is_tty: bool, asked: str) -> bool:
    if asked in ("always", "never"):
        return asked == "always"
    return is_tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _is_ascii() -> bool:
    """Whether the locale was explicitly set to one without UTF-8. Unset means that nobody cared:
    UTF-8.
    """
    coerced = "C.UTF-8"  # Python itself may have put this into LC_CTYPE (PEP 538)
    ctype = os.environ.get("LC_CTYPE", "")
    locale = (
        os.environ.get("LC_ALL")
        or (ctype if ctype != coerced else "")
        or os.environ.get("LANG", "")
    )
    if locale:
        return "utf" not in locale.lower().replace("-", "")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return "utf" not in encoding.lower()


def _columns(fd: int) -> int:
    try:
        given = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        given = 0
    if given <= 0:
        try:
            given = os.get_terminal_size(fd).columns
        except OSError:
            given = 0
    return max(given or _COLUMNS_DEFAULT, _COLUMNS_MIN)


def _rows(fd: int) -> int:
    try:
        return os.get_terminal_size(fd).lines or _ROWS_DEFAULT
    except OSError:
        return _ROWS_DEFAULT

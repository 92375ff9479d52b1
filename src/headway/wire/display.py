"""Safe text for terminals (Sec7, B7, B8, B15–B17). Every view passes what a job, a name or a server
said through here.

Let through: printable text, tab, and SGR sequences that set colour or weight. Left out: what a bar
begins its line with to be drawn in place. Every other control, C1, bidi or invisible character is
shown as a visible mark, so a log line can neither steer the terminal nor hide what it says. Applied
when showing, never when storing: stored bytes stay as they came.
"""

import re
from functools import lru_cache
from typing import Final

from headway.model.limits import DISPLAY_LINE_CHARS_MAX

RESET: Final = "\x1b[0m"
_SGR: Final = re.compile(r"\x1b\[([0-9;:]{0,48})m")
# most of what is written: then nothing else is looked at
_ORDINARY: Final = re.compile(r"[\x20-\x7e\n\t]*")
# At the start of a line, where they have nothing to hide: erase the line, go up, hide or show the
# cursor.
_IN_PLACE: Final = re.compile(r"(?:\x1b\[(?:[0-2]?K|[0-9]{0,3}A|\?25[hl]))+")
# Letters and marks that show nothing and are not in a control category: fillers, joiners, vowel and
# variation signs.
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
_SPACES: Final = frozenset("\u00a0\u1680\u202f\u205f\u3000").union(map(chr, range(0x2000, 0x200B)))
_WEIGHTS: Final = frozenset({0, 1, 2, 3, 4, 7, 9, 21, 22, 23, 24, 27, 29, 39, 49, 53, 55, 59})
_COLOURS: Final = frozenset({*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)})


def line(
    text: str, *, color: bool = False, ascii_only: bool = False, limit: int = DISPLAY_LINE_CHARS_MAX
) -> str:
    """One line for the terminal. Without `color`, SGR sequences are left out; a newline inside
    becomes a mark.
    """
    text = collapse(text)
    if (
        text.isprintable()
        and len(text) <= limit
        and (not ascii_only or text.isascii())
        and _INVISIBLE.isdisjoint(text)
    ):
        return text
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    shown = _marked(text, color, ascii_only)
    return f"{shown}{'...' if ascii_only else '…'} ({cut} more characters)" if cut > 0 else shown


def block(
    text: str, *, color: bool = False, ascii_only: bool = False, limit: int = DISPLAY_LINE_CHARS_MAX
) -> str:
    """Several lines, such as a traceback: newlines stay, each line is made safe by itself."""
    return "\n".join(
        line(part, color=color, ascii_only=ascii_only, limit=limit) for part in text.split("\n")
    )


def guard(text: str, *, ascii_only: bool = False) -> str:
    """The last look before a terminal, at whole lines that may hold our own colours: what no view
    has made safe is made so here, as marks. Nothing is left out.
    """
    if _ORDINARY.fullmatch(text):
        return text
    parts: list[str] = []
    position = 0
    for found in _SGR.finditer(text):
        parts.append(_lines(text[position : found.start()], ascii_only))
        position = found.end()
        parts.append(found[0] if _is_colour(found[1]) else _lines(found[0], ascii_only))
    parts.append(_lines(text[position:], ascii_only))
    return "".join(parts)


def _lines(text: str, ascii_only: bool) -> str:
    return "\n".join(_plain(part, ascii_only) for part in text.split("\n"))


def decode(data: bytes) -> str:
    """Output of a job as text; bytes that are no UTF-8 become U+FFFD (B8)."""
    return data.decode("utf-8", "replace")


def collapse(text: str) -> str:
    """What a carriage return leaves on the screen: a progress bar's last state, not its 10^5
    earlier ones (B15).
    """
    if "\r" in text:
        text = text.rstrip("\r")
        text = text[text.rfind("\r") + 1 :]
    if not text.startswith("\x1b["):
        return text
    drawn = _IN_PLACE.match(text)
    return text[drawn.end() :] if drawn else text


def mark(char: str, ascii_only: bool = False) -> str:
    """A visible stand-in for a character that must not reach the terminal."""
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        if ascii_only:
            return "^" + chr(code ^ 0x40)
        return "\u2421" if code == 0x7F else chr(0x2400 + code)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"<U+{code:04X}>"


def _marked(text: str, color: bool, ascii_only: bool) -> str:
    parts: list[str] = []
    position, styled = 0, False
    for found in _SGR.finditer(text):
        parts.append(_plain(text[position : found.start()], ascii_only))
        position = found.end()
        if not _is_colour(found[1]):
            parts.append(_plain(found[0], ascii_only))
        elif color:
            parts.append(found[0])
            styled = True
    parts.append(_plain(text[position:], ascii_only))
    return "".join(parts) + (RESET if styled else "")


def _plain(text: str, ascii_only: bool) -> str:
    if text.isprintable() and (not ascii_only or text.isascii()) and _INVISIBLE.isdisjoint(text):
        return text
    return "".join(
        [char if _may_pass(char, ascii_only) else mark(char, ascii_only) for char in text]
    )


def _may_pass(char: str, ascii_only: bool) -> bool:
    if ascii_only and not char.isascii():
        return False
    return char == "\t" or char in _SPACES or (char.isprintable() and char not in _INVISIBLE)


@lru_cache(maxsize=256)
def _is_colour(parameters: str) -> bool:
    """Whether an SGR sequence only sets colour or weight. Concealed and blinking text is none of
    that.
    """
    numbers = [
        int(word or "0") for word in parameters.replace(":", ";").split(";") if len(word) < 4
    ]
    if len(numbers) != parameters.replace(":", ";").count(";") + 1:
        return False
    position = 0
    while position < len(numbers):
        number = numbers[position]
        if number in (38, 48, 58):
            step = {5: 3, 2: 5}.get(numbers[position + 1] if position + 1 < len(numbers) else 0, 0)
            if (
                not step
                or position + step > len(numbers)
                or max(numbers[position : position + step]) > 255
            ):
                return False
            position += step
        elif number in _WEIGHTS or number in _COLOURS:
            position += 1
        else:
            return False
    return True

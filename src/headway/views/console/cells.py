"""Styled text in terminal cells: spans, lines, cutting and padding. Pure; called by every widget
and by the painter.

A line is a tuple of spans; a span is safe text and the SGR numbers that it is shown with (`""` for
plain).
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from headway.views.text.table import width

Span = tuple[str, str]
Line = tuple[Span, ...]
Size = tuple[int, int]  # columns, rows

BOLD, DIM, REVERSE, RED, GREEN, YELLOW, CYAN = "1", "2", "7", "31", "32", "33", "36"
EMPTY: Final[Line] = ()
_SGR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_CODE_CHARS_MAX: Final = 64  # of one job's pile of colours; a longer one starts anew


def plain(text: str, code: str = "") -> Line:
    return ((text, code),)


def cells(line: Line) -> int:
    """Terminal cells that the line takes."""
    return sum(width(text) for text, _ in line)


@lru_cache(4096)
def coloured(text: str) -> Line:
    """Safe text of a job, whose colours stand in it as SGR sequences, as spans."""
    if "\t" in text:
        text = text.replace("\t", "    ")
    if "\x1b" not in text:
        return ((text, ""),)
    spans: list[Span] = []
    position, code = 0, ""
    for found in _SGR.finditer(text):
        if found.start() > position:
            spans.append((text[position : found.start()], code))
        position = found.end()
        fresh = found[1] in ("", "0") or found[1].startswith("0;") or len(code) > _CODE_CHARS_MAX
        code = (
            found[1].removeprefix("0").removeprefix(";")
            if fresh
            else f"{code};{found[1]}".lstrip(";")
        )
    if position < len(text):
        spans.append((text[position:], code))
    return tuple(spans)


def cut(line: Line, columns: int, skip: int = 0) -> Line:
    """The line from cell `skip` on, at most `columns` wide; an ellipsis stands where something was
    cut off.
    """
    if skip:
        line = _behind(line, skip)
    used, kept = 0, []
    # no text is wider than two cells a character
    if sum(len(text) for text, _ in line) * 2 <= columns:
        return line
    for number, (text, code) in enumerate(line):
        wide = width(text)
        more = any(text for text, _ in line[number + 1 :])
        if used + wide <= columns - more:
            kept.append((text, code))
            used += wide
            continue
        if used + wide == columns and not more:
            kept.append((text, code))
        else:
            kept.append((_head(text, columns - used - 1) + "…", code))
        return tuple(kept)
    return tuple(kept)


def _head(text: str, columns: int) -> str:
    if text.isascii():
        return text[: max(columns, 0)]
    used = 0
    for place, char in enumerate(text):
        used += width(char)
        if used > columns:
            return text[:place]
    return text


def _behind(line: Line, skip: int) -> Line:
    kept: list[Span] = []
    for text, code in line:
        if skip <= 0:
            kept.append((text, code))
            continue
        gone = _head(text, skip)
        skip -= max(width(gone), 1) if gone else 0
        if len(gone) < len(text):
            kept.append((text[len(gone) :], code))
            skip = 0
    return tuple(kept)


def pad(line: Line, columns: int) -> Line:
    """The line, cut or filled with spaces to exactly `columns`."""
    line = cut(line, columns)
    missing = columns - cells(line)
    return (*line, (" " * missing, "")) if missing > 0 else line


def join(lines: Iterable[Line], gap: str) -> Line:
    """Lines side by side, with `gap` between them."""
    spans: list[Span] = []
    for number, line in enumerate(lines):
        if number:
            spans.append((gap, ""))
        spans += line
    return tuple(spans)


def flow(
    items: list[Line], columns: int, rows: int, gap: str = "    ", indent: str = "  "
) -> list[Line]:
    """Items side by side on as many lines as they need, at most `rows`; the last says how many had
    no room.
    """
    lines: list[list[Line]] = [[]]
    used, placed = len(indent), 0
    for item in items:
        wide = cells(item)
        if lines[-1] and used + len(gap) + wide > columns:
            if len(lines) == rows:
                break
            lines.append([])
            used = len(indent)
        used += wide + (len(gap) if lines[-1] else 0)
        lines[-1].append(item)
        placed += 1
    left = len(items) - placed
    if left:
        note = plain(f"and {left} more", DIM)
        while len(lines[-1]) > 1 and used + len(gap) + cells(note) > columns:
            used -= cells(lines[-1].pop()) + len(gap)
            left += 1
            note = plain(f"and {left} more", DIM)
        lines[-1].append(note)
    return [((indent, ""), *join(line, gap)) for line in lines if line]


def text_of(line: Line) -> str:
    """The line without its styles."""
    return "".join(text for text, _ in line)

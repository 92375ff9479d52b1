"""The text that `/` looks for: which lines have it, and where. Called by `log_buffer`, `jobs_view`
and the log's widget.

A small language instead of regular expressions: the lines are a job's, and one pattern that
backtracks would freeze the view at each of 20,000 lines. Words stand for themselves, upper or lower
case; `|` is "or", `.*` is anything, `^` and `$` are the ends of a line.
"""

import re
from functools import lru_cache
from typing import Final

from headway.views.console.cells import REVERSE, Line, Span

_GAPS_MAX: Final = 3  # of `.*` in one alternative: each multiplies the work of a line
_MARKS_MAX: Final = 200  # in one line


@lru_cache(32)
def compiled(text: str) -> re.Pattern[str]:
    return re.compile("|".join(_alternative(one) for one in text.split("|") if one), re.IGNORECASE)


def _alternative(text: str) -> str:
    starts = text.startswith("^")
    ends = text.endswith("$") and len(text) > 1
    words = text[1 if starts else 0 : len(text) - 1 if ends else None].split(".*", _GAPS_MAX)
    middle = ".*?".join(re.escape(word) for word in words)
    return f"{'^' if starts else ''}{middle}{'$' if ends else ''}"


def found_in(text: str, line: str) -> bool:
    return not text.strip("|") or compiled(text).search(line) is not None


def marked(line: Line, text: str) -> Line:
    """The line with what `text` finds in it in reverse."""
    if not text.strip("|"):
        return line
    whole = "".join(part for part, _ in line)
    places: list[tuple[int, int]] = []
    for match in compiled(text).finditer(whole):
        if match.end() > match.start():
            places.append(match.span())
        if len(places) >= _MARKS_MAX:
            break
    if not places:
        return line
    spans: list[Span] = []
    position = 0
    for part, code in line:
        spans += _split(part, code, position, places)
        position += len(part)
    return tuple(spans)


def _split(part: str, code: str, position: int, places: list[tuple[int, int]]) -> list[Span]:
    """One span, cut at the marks; it starts at character `position` of the line."""
    spans: list[Span] = []
    done = 0
    for start, end in places:
        start, end = max(start - position, 0), min(end - position, len(part))
        if end <= start:
            continue
        if start > done:
            spans.append((part[done:start], code))
        spans.append((part[start:end], f"{code};{REVERSE}" if code else REVERSE))
        done = end
    if done < len(part):
        spans.append((part[done:], code))
    return spans

"""An uncaught exception as a fact: what it was, where, and the traceback as Python prints it.
Called by client/run.py.

Imported only when an exception has happened: `traceback` is slow to import. Text goes through
`mask` before it is cut, so that a cut cannot split a secret and so hide it.
"""

from __future__ import annotations

import linecache
import os
import sys
import traceback

from headway.client.metric_values import clean_text, type_name
from headway.model.limits import MESSAGE_CHARS_MAX, SOURCE_CHARS_MAX, TRACEBACK_CHARS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from headway.model.json_types import JsonObject

    Mask = Callable[[str], str]

FRAMES_MAX = 5000  # of a walk along a traceback


def describe(
    where: str, error: BaseException, tb: "TracebackType | None", thread: str | None, mask: "Mask"
) -> "JsonObject":
    """The fields of an `exception` fact. Never raises: an exception of somebody else's making may
    not even print.
    """
    path, line = _place(error, tb)
    source = linecache.getline(path, line).strip() if path and line else ""
    return {
        "where": where,
        "exc_type": clean_text(type_name(error))[:SOURCE_CHARS_MAX],
        "message": _cut(clean_text(mask(_message(error))), MESSAGE_CHARS_MAX),
        "traceback": _cut(clean_text(mask(_format(error, tb))), TRACEBACK_CHARS_MAX),
        "file": clean_text(mask(path)) if path else None,
        "line": line,
        "source": clean_text(mask(source))[:SOURCE_CHARS_MAX] if source else None,
        "thread": clean_text(thread)[:SOURCE_CHARS_MAX] if thread else None,
    }


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its __str__ is somebody else's code
        return "<the exception has no text>"


def _format(error: BaseException, tb: "TracebackType | None") -> str:
    """With causes, contexts and groups, as Python prints them."""
    try:
        return "".join(traceback.format_exception(type(error), error, tb))
    # out of memory or of stack, or a broken exception: the bare frames are better than nothing
    except Exception:
        try:
            return "".join(traceback.format_tb(tb, limit=-20)) + type_name(error)
        except Exception:  # as above
            return type_name(error)


def _place(error: BaseException, tb: "TracebackType | None") -> tuple[str | None, int | None]:
    """File and line in the program's own code where it happened: the innermost frame that no
    library owns.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return error.filename, error.lineno
    innermost: tuple[str | None, int | None] = (None, None)
    own: tuple[str | None, int | None] = (None, None)
    for _ in range(FRAMES_MAX):
        if tb is None:
            break
        innermost = tb.tb_frame.f_code.co_filename, tb.tb_lineno
        if _is_own(innermost[0] or ""):
            own = innermost
        tb = tb.tb_next

    path, line = own if own[0] else innermost
    if path and not path.startswith("<"):
        path = os.path.abspath(path)
    return path, line


def _is_own(path: str) -> bool:
    if path.startswith("<"):
        return path in ("<string>", "<stdin>")
    libraries = tuple(
        os.path.join(prefix, "lib") + os.sep for prefix in (sys.prefix, sys.base_prefix)
    )
    return (
        not path.startswith(libraries)
        and "site-packages" not in path
        and "dist-packages" not in path
    )


def _cut(text: str, most: int) -> str:
    """Head and tail: the tail says what happened, the head where it began."""
    if len(text) <= most:
        return text
    head, mark = most // 4, "\n…\n"
    return text[:head] + mark + text[-(most - head - len(mark)) :]

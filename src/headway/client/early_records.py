"""Records that a plain script makes with `logging` between `import headway` and its first call: kept
as text until it becomes a job. Called by the package itself; `logging_capture.py` takes them over.

As text, not as records: those may hold on to large objects. So few that a program which imports
Headway and never calls it pays next to nothing.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RECORDS_MAX = 200  # the first ones; then logging is as it was
CHARS_MAX = 4000
_kept: "deque[tuple[Any, Any, bool]]" = deque()
_undo: "list[tuple[Any, str, Any, Any]]" = []  # (class, name, ours, what stood there)


def watch(logging: "Any") -> None:
    """From now on the first records are kept. `logging`: the module, which has just been loaded or
    was there before us.
    """
    if _undo:
        return
    logger = logging.Logger
    enabled, make, call = logger.isEnabledFor, logger.makeRecord, logger.callHandlers

    def is_enabled_for(self: "Any", level: int) -> bool:
        return enabled(self, level) or (level >= logging.INFO and _is_wanted(logging, self, level))

    def make_record(self: "Any", name: str, level: int, *rest: "Any", **more: "Any") -> "Any":
        record = make(self, name, level, *rest, **more)
        if not enabled(self, level):
            record._headway_only = True
        return record

    def call_handlers(self: "Any", record: "Any") -> None:
        is_theirs = "_headway_only" not in record.__dict__
        if record.levelno >= logging.INFO:
            _keep(logging, self, record, is_theirs)
        if is_theirs:
            call(self, record)

    for name, ours, before in (
        ("isEnabledFor", is_enabled_for, enabled),
        ("makeRecord", make_record, make),
        ("callHandlers", call_handlers, call),
    ):
        ours.__name__ = ours.__qualname__ = name
        setattr(logger, name, ours)
        _undo.append((logger, name, ours, before))


def _is_wanted(logging: "Any", logger: "Any", level: int) -> bool:
    """As `logging_capture.wanted`: nobody has set a level, and nobody has disabled it."""
    if logger.disabled or logger.manager.disable >= level:
        return False
    while logger is not None:
        if logger.level:
            return logger is logging.root and bool(logger.level == logging.WARNING)
        logger = logger.parent
    return False


def _keep(logging: "Any", logger: "Any", record: "Any", is_theirs: bool) -> None:
    if len(_kept) >= RECORDS_MAX:
        stop()
        return
    try:
        text = record.getMessage()[:CHARS_MAX]
        copy = logging.makeLogRecord({**record.__dict__, "msg": text, "args": None})
        if copy.exc_info:
            copy.exc_text = logging.Formatter().formatException(copy.exc_info)[:CHARS_MAX]
            copy.exc_info = None
    except Exception:  # a format or an object of somebody else's making; its own handlers say so
        return
    _kept.append((logger, copy, is_theirs))


def stop() -> None:
    """Logging is as it was, where nobody has wrapped it since."""
    while _undo:
        kind, name, ours, before = _undo.pop()
        if kind.__dict__.get(name) is ours:
            setattr(kind, name, before)


def take() -> "list[tuple[Any, Any, bool]]":
    """Those that were kept, once."""
    stop()
    kept = list(_kept)
    _kept.clear()
    return kept

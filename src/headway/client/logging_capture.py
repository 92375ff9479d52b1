"""`logging` inside a job: its records go into the spool as they are made. Installed by hooks.py or
the bootstrap.

No handler is added, for that would change what the program prints (`basicConfig` does nothing where
a handler is). The records are taken where `Logger` hands them to its handlers, which then do what
they would have done. Levels: what the program lets through, and where it has set none, INFO and
above (HEADWAY_LOG_LEVEL says otherwise).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from _thread import get_ident
from contextvars import ContextVar

from headway.client import environ_changes, log_text
from headway.client.backoff import Backoff
from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text
from headway.client.spool_path import from_environment
from headway.model.limits import (
    FRAME_BYTES_MAX,
    LOG_TEXT_CHARS_MAX,
    SEGMENT_BYTES_MAX,
    TAG_CHARS_MAX,
)
from headway.model.record import FACT
from headway.spool.writer import StreamWriter
from headway.wire import plain_json
from headway.wire.frame import encode, encode_json
from headway.wire.plain_json import quoted
from headway.wire.redact import mask_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.client.run import Run


LOOK_INTERVAL_S = 1.0
PATHS_MAX = 1000
PLACES_MAX = 4000  # calls of logging in the source, by thread, whose constant fields are kept
EARLY_MAX = 16  # records that a signal handler makes while one is being written
CORRELATION = "HEADWAY_CORRELATION"
_logs: "list[Logs]" = []
_ever: "list[bool]" = []  # whether an id was ever set in this process
_id: "ContextVar[str | None]" = ContextVar("headway_correlation", default=None)
_inherited = os.environ.get(CORRELATION) or None  # from the process that started this one
_PLAIN = frozenset({str, int, float, bool, type(None)})  # formatted by `%` without our help


# -- what is put around logging


def install(run: "Run") -> None:
    """Once per process; a second call does nothing."""
    if _logs or run.is_off:
        return
    early = sys.modules.get("headway.client.early_records")
    kept = early.take() if early is not None else []
    logs = Logs(run)
    _logs.append(logs)
    enabled, call, make = (
        logging.Logger.isEnabledFor,
        logging.Logger.callHandlers,
        logging.Logger.makeRecord,
    )
    message = logging.LogRecord.getMessage

    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        if enabled(self, level):
            return True
        if level < logs.level or not wanted(self, level):
            return False
        if logging.Logger.makeRecord is make:  # only now: most programs never come here
            logging.Logger.makeRecord = make_record  # type: ignore[method-assign]
        return True

    def make_record(
        self: logging.Logger, name: str, level: int, *rest: "Any", **more: "Any"
    ) -> logging.LogRecord:
        record = make(self, name, level, *rest, **more)
        if not enabled(self, level):
            record._headway_only = True
        return record

    def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
        is_theirs = "_headway_only" not in record.__dict__
        if record.levelno >= logs.level:
            logs.take(self, record, is_theirs)
        if is_theirs:
            call(self, record)

    def get_message(self: logging.LogRecord) -> str:
        try:
            return message(self)
        except (TypeError, ValueError):
            if isinstance(self.msg, str) and "%" in self.msg:
                raise  # a format that does not fit is the program's mistake, and Python says so
            return log_text.joined(self.msg, self.args)

    for kind, name, function in (
        (logging.Logger, "isEnabledFor", is_enabled_for),
        (logging.Logger, "callHandlers", call_handlers),
        (logging.LogRecord, "getMessage", get_message),
    ):
        function.__name__ = function.__qualname__ = name
        setattr(kind, name, function)
    make_record.__name__ = make_record.__qualname__ = "makeRecord"
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]
    for logger, record, is_theirs in kept:
        if record.levelno >= logs.level:
            logs.take(logger, record, is_theirs)


def level_of(text: str) -> int:
    """HEADWAY_LOG_LEVEL: a name or a number; INFO when it is neither."""
    word = text.strip().upper()
    known = logging.getLevelName(word) if word else logging.INFO
    if word.isdigit():
        return int(word)
    return known if isinstance(known, int) else logging.INFO


def wanted(logger: "logging.Logger | None", level: int) -> bool:
    """Whether a record that the program does not see is for us: nobody has set a level, and nobody
    has disabled it.
    """
    if logger is None or logger.disabled or logger.manager.disable >= level:
        return False
    while logger is not None:
        if logger.level:
            return logger is logging.root and logger.level == logging.WARNING
        logger = logger.parent
    return False


def is_printed(logger: "logging.Logger | None", levelno: int) -> bool:
    """Whether a handler of the program shows it on stdout or stderr."""
    found = False
    while logger is not None:
        for handler in logger.handlers:
            found = True
            if levelno >= handler.level and _is_terminal(handler):
                return True
        logger = logger.parent if logger.propagate else None
    last = logging.lastResort
    return not found and last is not None and levelno >= last.level


def _is_terminal(handler: "Any") -> bool:
    stream = getattr(handler, "stream", None)
    if stream is not None and (stream is sys.stderr or stream is sys.stdout):
        return True
    stream = stream or getattr(getattr(handler, "console", None), "file", None)
    if stream is None:
        return False
    if stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        return True
    try:
        return stream.fileno() in (1, 2)
    except Exception:  # a stream of the program's own making
        return False


# -- correlation


class correlation:
    """Mark the log records that belong together: `hw.correlation("request-7")`, or `with
    hw.correlation("request-7"):`.

    It holds at once, in this thread or task, until it is set again or the `with` is left. Threads
    that are started meanwhile have it too, and so do processes that the main thread starts. `None`
    takes it away.
    """

    __slots__ = ("_before",)

    def __init__(self, id: "str | None") -> None:
        self._before = _id.get()
        _follow_threads()
        _set(None if id is None else clean_text(str(id))[:TAG_CHARS_MAX])

    def __enter__(self) -> "correlation":
        return self

    def __exit__(self, *error: object) -> None:
        _set(self._before)


def _set(id: "str | None") -> None:
    _ever[:] = [True]
    _id.set(id)
    # else two threads would fight over the environment
    if threading.current_thread() is threading.main_thread():
        if id:
            os.environ[CORRELATION] = id
        else:
            os.environ.pop(CORRELATION, None)


def current_correlation() -> "str | None":
    return (
        _id.get() or getattr(threading.current_thread(), "_headway_correlation", None) or _inherited
    )


def _follow_threads() -> None:
    """A thread takes over the id of whoever starts it."""
    start: Any = threading.Thread.start
    if getattr(start, "_headway", False):
        return

    def start_with_id(self: threading.Thread) -> None:
        self._headway_correlation = current_correlation()  # type: ignore[attr-defined]
        start(self)

    start_with_id.__name__, start_with_id.__qualname__ = "start", "Thread.start"
    start_with_id._headway = True  # type: ignore[attr-defined]
    threading.Thread.start = start_with_id  # type: ignore[method-assign]


# -- writing


class Logs:
    """The log records of this process and their stream. Nothing here raises."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.level = level_of(run.environ.get("HEADWAY_LOG_LEVEL", ""))
        self.lost = 0
        self._lost_untold = [0, 0]  # records, bytes
        self._reason = ""
        self._stream: StreamWriter | None = None
        self._segment, self._size, self._look_s = -1, 0, 0.0
        self._backoff = Backoff()
        self._has_failed = False  # the last write
        self._values: list[str] = []  # secrets, and paths masked with them
        self._paths: dict[str, str] = {}
        # what is the same in every record of one call of logging, as JSON
        self._constant: dict[tuple[object, ...], str] = {}
        self._place: object = None  # of the run that it was made for
        self._changes = -1  # of the environment, when secrets were looked for
        if run.environ is os.environ:
            environ_changes.watch()
        self._busy: set[int] = set()  # threads that are in here
        self._early: list[tuple[logging.Logger, logging.LogRecord, bool]] = []
        run.parts.append(self)

    def take(self, logger: logging.Logger, record: logging.LogRecord, is_theirs: bool) -> None:
        """Write one record. What a record's own objects log while they are shown is not written: it
        has no end.
        """
        thread = get_ident()
        if thread in self._busy:
            if len(self._early) < EARLY_MAX:
                self._early.append((logger, record, is_theirs))
            return
        self._busy.add(thread)
        try:
            self._write(logger, record, is_theirs)
            if self._early:
                waiting, self._early = self._early, []
                for early in waiting:  # of a signal handler; those that these make are dropped
                    self._write(*early)
                self._early = []
        except Exception as error:  # P1: the program's own handlers must still get the record
            raise_if_signal(error)
            self._lose(0, type(error).__name__)
        finally:
            self._busy.discard(thread)

    def _write(self, logger: logging.Logger, record: logging.LogRecord, is_theirs: bool) -> None:
        """An ordinary record, a short string with numbers and strings in it, is written right here:
        a training loop pays for this. So it is one function, and all that one call of logging says
        each time is made once. `_write_any` does it for all others.
        """
        run = self.run
        place = run.place or from_environment(run.environ)
        if run.is_off or place is None:
            return  # not a job: logging makes none
        printed = is_theirs and is_printed(logger, record.levelno)
        changes = environ_changes.changes[0]
        if changes != self._changes or place is not self._place:
            self._look_for_secrets(changes, place)
        text, args = record.msg, record.args
        if type(text) is not str or record.exc_info or record.exc_text or record.stack_info:
            return self._write_any(record, place.rank, printed)
        if args:
            if type(args) is not tuple or "%" not in text:
                return self._write_any(record, place.rank, printed)
            for value in args:
                if type(value) not in _PLAIN:
                    return self._write_any(record, place.rank, printed)
            try:
                text %= args
            except (TypeError, ValueError):
                return self._write_any(record, place.rank, printed)
        if len(text) > LOG_TEXT_CHARS_MAX:
            return self._write_any(record, place.rank, printed)
        text = mask_text(text, self._values)
        if not text.isascii():
            text = clean_text(text)
        key = (
            record.pathname, record.lineno, record.levelname, record.name, record.threadName,
            record.processName, printed,
        )  # fmt: skip
        constant = self._constant.get(key)
        if constant is None:
            fields = self._fields(record, place.rank, printed)
            constant = ",".join(f"{quoted(k)}:{plain_json.dumps(v)}" for k, v in fields.items())
            if len(self._constant) < PLACES_MAX:
                self._constant[key] = constant
        id = current_correlation() if _ever else _inherited
        last = "" if id is None else f',"correlation":{quoted(id)}'
        payload = (
            f'{{"type":"log","time_ns":{int(record.created * 1e9)},{constant},"cut":false,'
            f'"text":{quoted(text)}{last}}}'
        )
        self._append(encode(FACT, payload.encode()))

    def _write_any(self, record: logging.LogRecord, rank: int, printed: bool) -> None:
        fact = self._fact(record, rank, printed)
        frame = encode_json(FACT, fact)
        if len(frame) > FRAME_BYTES_MAX:
            fact.pop("table", None)
            frame = encode_json(FACT, fact | {"cut": True})
        self._append(frame)

    def _look_for_secrets(self, changes: int, place: object) -> None:
        self._place = place
        if self.run.environ is os.environ:  # else nobody counts its changes
            self._changes = changes
        values = self.run.secrets()
        if values is not self._values or self._constant:
            self._values, self._paths, self._constant = values, {}, {}

    def _fields(self, record: logging.LogRecord, rank: int, printed: bool) -> "dict[str, Any]":
        return {
            "rank": rank, "pid": os.getpid(), "process": _word(record.processName),
            "thread": _word(record.threadName), "level": _word(record.levelname),
            "levelno": int(record.levelno), "logger": _word(record.name),
            "file": self._path(record.pathname), "line": int(record.lineno or 0),
            "func": _word(record.funcName), "printed": printed,
        }  # fmt: skip

    def _fact(self, record: logging.LogRecord, rank: int, printed: bool) -> "dict[str, Any]":
        values = self._values

        def mask(text: str) -> str:
            return mask_text(text, values)

        text = log_text.text_of(record) + _trouble_of(record)
        text, was_cut = log_text.bounded(text, mask)
        fact: dict[str, Any] = {
            "type": "log", "time_ns": int(record.created * 1e9), **self._fields(record, rank, printed),
            "cut": was_cut, "text": clean_text(text),
        }  # fmt: skip
        table, id = log_text.cells_of(record, mask), current_correlation()
        if table is not None:
            fact["table"] = table
        if id is not None:
            fact["correlation"] = id
        return fact

    def _path(self, path: str) -> str:
        """Masked once: records come from few files."""
        known = self._paths.get(path)
        if known is None:
            known = clean_text(mask_text(str(path), self._values))[:1000]
            if len(self._paths) < PATHS_MAX:
                self._paths[path] = known
        return known

    def _append(self, frame: bytes) -> None:
        with self.run.lock:
            try:
                stream = self._stream or self._open()
                stream.append(frame)
            except OSError as error:
                raise_if_signal(error)
                self._fail(error, len(frame))
                return
            self._size += len(frame)
            if self._has_failed:
                self._has_failed = False
                self._backoff.succeeded()
            now_s = time.monotonic()
            if self._size >= SEGMENT_BYTES_MAX:
                self._drop_stream()
            elif now_s >= self._look_s:
                self._look(stream, now_s)

    def _open(self) -> StreamWriter:
        """The open segment, or the next one. Raises OSError."""
        if self._stream is None:
            if not self._backoff.is_over():
                raise OSError(0, self._reason or "no stream")
            self.run.start()
            stream: StreamWriter = self.run.open_stream("logs", self._segment + 1)
            self._stream, self._segment, self._size = stream, self._segment + 1, 0
            self._look_s = time.monotonic() + LOOK_INTERVAL_S
        return self._stream

    def _look(self, stream: StreamWriter, now_s: float) -> None:
        """Is the file still there? Tell what was lost, now that one could be written."""
        self._changes = -1  # variables that were changed in ways that are not counted
        self._look_s = now_s + LOOK_INTERVAL_S
        if stream.size() is None:
            self._drop_stream()
        self.run.look()
        self.tell()

    def _fail(self, error: OSError, size: int) -> None:
        self._has_failed = True
        self._lose(size, error.strerror or type(error).__name__)
        if self._backoff.is_over():
            self._backoff.failed()
            # a torn frame stays behind; what follows starts in a file of its own
            self._drop_stream()

    def _lose(self, size: int, reason: str) -> None:
        self.lost += 1
        self._lost_untold[0] += 1
        self._lost_untold[1] += size
        self._reason = reason
        self.run.note(
            "logs",
            f"log records cannot be written ({reason}); training goes on, and they are counted",
        )

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def tell(self) -> None:
        (records, size), self._lost_untold = self._lost_untold, [0, 0]
        if records:
            self.run.fact(
                "gap", stream="logs", records=records, points=0, bytes=size, reason=self._reason
            )

    def close(self) -> None:
        """At the end, and in a forked child, whose records go into a stream of its own."""
        self._busy, self._early = set(), []
        self._constant = {}  # the process has another number
        self._drop_stream()
        self._segment = -1


def _word(value: object) -> str:
    return clean_text(str(value))[:1000] if value is not None else ""


def _trouble_of(record: logging.LogRecord) -> str:
    """The traceback of `logging.exception`, and the stack where one was asked for."""
    parts = []
    if record.exc_info and isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
        try:
            parts.append("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        except Exception as error:  # an exception that cannot even be printed
            raise_if_signal(error)
            parts.append(f"{type(record.exc_info[1]).__name__}")
    elif record.exc_text:
        parts.append(str(record.exc_text))
    if record.stack_info:
        parts.append(str(record.stack_info))
    return "".join(f"\n{part}" for part in parts)

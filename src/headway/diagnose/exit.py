"""What the end of a task says by itself: exit code, signal, the uncaught exception, who ended it.

One pure function, `explain_exit`: the first verdict on an attempt, at once. `runner.py` reads the
logs, too.
"""

import errno
import os
import signal as signals
from dataclasses import dataclass

from headway.diagnose.causes import cause_of
from headway.diagnose.matching import classify
from headway.model.finding import Finding
from headway.model.json_types import JsonMapping

TEXT_CHARS_MAX = 500

_BY_SIGNAL = {
    signals.SIGKILL: (
        "sigkill_unexplained",
        "system",
        "killed by SIGKILL; who sent it is not known",
    ),
    signals.SIGSEGV: ("segfault_or_abort", "user", "crashed: segmentation fault (SIGSEGV)"),
    signals.SIGABRT: ("segfault_or_abort", "user", "aborted (SIGABRT)"),
    signals.SIGBUS: ("segfault_or_abort", "user", "crashed: bus error (SIGBUS)"),
    signals.SIGILL: (
        "illegal_instruction",
        "user",
        "crashed: illegal instruction (SIGILL); built for another CPU?",
    ),
    signals.SIGINT: ("cancelled", "user", "interrupted (SIGINT)"),
    signals.SIGTERM: ("cancelled", "user", "terminated from outside (SIGTERM)"),
}
# A program may say by its exit code how its failure is to be taken.
_DECLARED = {
    200: (
        "declared_transient",
        "transient",
        "the program calls this failure transient (exit code 200)",
    ),
    201: (
        "declared_conflict",
        "transient",
        "the program met a conflict, such as a port in use (exit code 201)",
    ),
    210: ("declared_permanent", "user", "the program calls this failure permanent (exit code 210)"),
}
# A shell that waited for the program reports its signal as 128 + N.
_BY_SHELL_CODE = {128 + int(number): number for number in _BY_SIGNAL}


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of the rank that failed first, and of its task."""

    exit_code: int | None
    signal: int | None
    rank: int | None = None
    reason: str | None = None  # "stop", "walltime", "preempted", or None: it ended by itself
    oom: bool = False
    lost: bool = False  # the exit record was never written
    attached: bool = False  # started by somebody else; we only watched
    exception: JsonMapping | None = None
    message: str | None = None  # why it could not be started
    # {cause, class, text}: its folders could not be brought or sent
    told: JsonMapping | None = None


def explain_exit(end: Exit) -> Finding | None:
    """The cause of an end; None for success."""
    if end.lost and end.attached:
        return Finding(
            "unknown", "unknown", "it ended without an exit record; how is not known", end.rank
        )
    if end.lost:
        return Finding(
            "agent_lost", "system", "its agent was killed; the exit code is not known", end.rank
        )
    if end.reason == "walltime":
        return Finding(
            "walltime", "resource", "ran longer than its time limit and was stopped", end.rank
        )
    if end.reason == "preempted":
        return Finding(
            "preempted", "transient", "its machine was wanted for something else", end.rank
        )
    if end.reason == "stop":
        return Finding("cancelled", "user", "stopped on request", end.rank)
    if end.told is not None:
        cause, kind, text = (
            str(end.told.get(key) or "unknown") for key in ("cause", "class", "text")
        )
        return Finding(cause, kind, text[:TEXT_CHARS_MAX], end.rank)
    if end.exit_code == 0 and end.signal is None:
        return None
    if ran_out_of_memory(end):
        text = "killed because memory ran out"
        if end.signal is None:
            text = f"a process of it was killed because memory ran out (exit code {end.exit_code})"
        return Finding("host_oom", "resource", text, end.rank)
    if end.signal is not None:
        return _by_signal(end.signal, end.rank)
    if end.exit_code in _DECLARED:
        return Finding(*_DECLARED[end.exit_code], end.rank)
    if end.exception is not None and end.exception.get("where", "main") == "main":
        return _by_exception(end.exception, end.rank)
    return _by_code(end.exit_code, end.message, end.rank)


# what programs say when a process that they had started was killed
_KILLED_BELOW = (
    "killed",
    "exited unexpectedly",
    "terminated abruptly",
    "exit code -9",
    "exit code: -9",
    "SIGKILL",
    "ChildFailedError",
    "CalledProcessError",
    "BrokenProcessPool",
    "ProcessExitedException",
    "TerminatedWorkerError",
)


def ran_out_of_memory(end: Exit) -> bool:
    """Whether the kernel's kill explains this end: of the rank itself, or of a process below it.

    The counter is that of a control group, which may hold other jobs, too: an exception that
    speaks of something else has another cause.
    """
    if not end.oom or end.signal not in (None, signals.SIGKILL):
        return False
    if end.signal is not None or end.exception is None:
        return True
    said = f"{end.exception.get('exc_type')}: {end.exception.get('message')}"
    return any(word in said for word in _KILLED_BELOW)


def _by_signal(number: int, rank: int | None) -> Finding:
    name = _as_signal(number)
    known = None if name is None else _BY_SIGNAL.get(name)
    if known is None:
        return Finding("unknown", "unknown", f"killed by {signal_name(number)}", rank)
    return Finding(*known, rank)


def _by_exception(exception: JsonMapping, rank: int | None) -> Finding:
    name = str(exception.get("exc_type") or "Exception")
    message = str(exception.get("message") or "")
    text = f"{name}: {message}" if message else name
    cause, confidence = classify(name, message)
    cls = cause_of(cause).cls
    return Finding(cause, cls, text[:TEXT_CHARS_MAX], rank, confidence=confidence)


def _by_code(code: int | None, message: str | None, rank: int | None) -> Finding:
    if code in (126, 127):
        if message and os.strerror(errno.ENOSPC) in message:
            return Finding(
                "disk_full", "resource", f"{message[:TEXT_CHARS_MAX]} (exit code {code})", rank
            )
        what = message or (
            "the command was not found" if code == 127 else "the command could not be run"
        )
        return Finding(
            "command_not_found", "user", f"{what[:TEXT_CHARS_MAX]} (exit code {code})", rank
        )
    if code in _BY_SHELL_CODE:
        found = _by_signal(int(_BY_SHELL_CODE[code]), rank)
        return Finding(found.cause, found.cls, f"exit code {code}: {found.text}", rank)
    return Finding("unknown", "unknown", f"exited with code {code}", rank)


def _as_signal(number: int) -> signals.Signals | None:
    try:
        return signals.Signals(number)
    except ValueError:
        return None


def signal_name(number: int) -> str:
    known = _as_signal(number)
    return f"signal {number}" if known is None else known.name

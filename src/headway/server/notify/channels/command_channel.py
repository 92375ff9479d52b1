"""Tells a program: facts in its environment (`HW_…`) and as JSON on its stdin. No shell, no text of
a job in its words.

The command is a setting, so its words are the person's own. Called by `notifier.py`, and by
`desktop.py` for its tool.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.model.json_types import JsonMapping
from headway.model.limits import NOTICE_RESULT_CHARS_MAX
from headway.server.notify.outcome import Outcome

PREFIX = "HW_"
_READ_BYTES = 64 * 1024
_POLL_S = 0.05
_KEPT_BYTES = 4 * NOTICE_RESULT_CHARS_MAX


def send(words: Sequence[str], facts: JsonMapping, timeout_s: float) -> Outcome:
    return run(words, json.dumps(facts).encode(), os.environ | environment(facts), timeout_s)


def environment(facts: JsonMapping) -> dict[str, str]:
    """`HW_KIND`, `HW_ID`, …; what is not known is empty."""
    return {
        PREFIX + name.upper(): "" if value is None else str(value) for name, value in facts.items()
    }


def run(words: Sequence[str], data: bytes, env: Mapping[str, str], timeout_s: float) -> Outcome:
    """Start it, wait for its end; what takes too long is ended together with all that it started."""
    readable, writable = os.pipe()
    try:
        # not a pipe: a program that reads nothing must not stop us
        with tempfile.TemporaryFile() as given:
            given.write(data)
            given.seek(0)
            process = subprocess.Popen(
                words,
                stdin=given,
                stdout=writable,
                stderr=writable,
                env=env,
                cwd=_folder(),
                start_new_session=True,
            )
    except OSError as error:
        os.close(readable)
        return Outcome(False, f"{words[0]} cannot be started: {error.strerror or error}")
    finally:
        os.close(writable)
    try:
        said, late = _wait(process, readable, time.monotonic() + timeout_s)
    finally:
        os.close(readable)
    if late:
        return Outcome(False, f"did not end within {timeout_s:g} s, and was ended", again=True)
    if process.returncode:
        return Outcome(
            False, f"{_exit_words(process.returncode)}{': ' if said else ''}{said}", again=True
        )
    return Outcome(True, said or "exit code 0")


def _folder() -> str:
    """The person's own, where it is there: the folder that the server was started in means nothing."""
    home = Path(os.path.expanduser("~"))
    return str(home) if home.is_dir() else "/"


def _wait(process: "subprocess.Popen[bytes]", readable: int, deadline_s: float) -> tuple[str, bool]:
    """(the end of what it said, whether it took too long). Something that it left in the background
    may hold its output open, so its end is what counts.
    """
    os.set_blocking(readable, False)
    said = b""
    while process.poll() is None and time.monotonic() < deadline_s:
        more = _read(readable)
        said = (said + more)[-_KEPT_BYTES:]
        if not more:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(_POLL_S, max(0.0, deadline_s - time.monotonic())))
    late = process.poll() is None
    if late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = (said + _read(readable))[-_KEPT_BYTES:]
    text = "".join(
        char if char.isprintable() else " " for char in said.decode(errors="replace")
    ).strip()
    return text[-NOTICE_RESULT_CHARS_MAX:], late


def _read(readable: int) -> bytes:
    try:
        return os.read(readable, _READ_BYTES)
    except BlockingIOError:
        return b""


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"ended by signal {-code}"

"""Runs a program of a scheduler or a container engine: limited in time, and in what it may print.

What it prints is not ours: a program that prints without end would fill the server's memory. Called
by `engines/slurm/commands.py` and `engines/docker/program.py`, from threads.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from headway.model.limits import ENGINE_OUTPUT_BYTES_MAX
from headway.model.undo import UndoOnFailure

_READ_BYTES = 256 * 1024


class TooMuchError(Exception):
    """It printed more than anybody could want, and was ended."""


def run(
    argv: Sequence[str],
    text: str = "",
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    bytes_max: int = ENGINE_OUTPUT_BYTES_MAX,
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` with `text` as standard input, in a session of its own. Raises OSError,
    subprocess.TimeoutExpired and TooMuchError; then it is ended, with its children.
    """
    with tempfile.TemporaryFile() as given:
        given.write(text.encode(errors="surrogateescape"))
        given.seek(0)
        child = subprocess.Popen(
            list(argv), stdin=given if text else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=env, start_new_session=True,
        )  # fmt: skip
    # whatever it was, nothing of it stays: `sudo docker` has children
    with UndoOnFailure(_end, child):
        out, err = _read(child, time.monotonic() + timeout_s, timeout_s, bytes_max)
        code = child.wait()
    return subprocess.CompletedProcess(
        child.args, code, out.decode(errors="replace"), err.decode(errors="replace")
    )


def _read(
    child: "subprocess.Popen[bytes]", deadline_s: float, timeout_s: float, bytes_max: int
) -> tuple[bytearray, bytearray]:
    """Until both ends are closed and it has ended."""
    assert child.stdout is not None and child.stderr is not None
    found = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    out, err = found.values()

    def late() -> subprocess.TimeoutExpired:
        return subprocess.TimeoutExpired(child.args, timeout_s, bytes(out), bytes(err))

    with selectors.DefaultSelector() as waiting, child.stdout, child.stderr:
        for pipe in found:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline_s - time.monotonic()))
            if not ready and time.monotonic() >= deadline_s:
                raise late()
            for key, _ in ready:
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    waiting.unregister(key.fd)
                    continue
                found[key.fd] += data
                if len(out) + len(err) > bytes_max:
                    raise TooMuchError(f"it printed more than {bytes_max:,} bytes")
    try:
        child.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise late() from None
    return out, err


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The whole of it, as far as it is ours. It is not waited for: the kernel may hold it."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)

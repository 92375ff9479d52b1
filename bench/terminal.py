"""A terminal of the bench's own: runs a command on a pseudo-terminal and notes when bytes came. For
live views.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SIZE = (120, 40)  # columns, rows


@dataclass(slots=True)
class Reader:
    """Reads a descriptor in a thread, so that nothing that is measured waits for us."""

    fd: int
    pid: int
    pieces: list[tuple[float, bytes]] = field(default_factory=list)  # when each came, and what
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                select.select([self.fd], [], [])
                data = os.read(self.fd, 1 << 16)
            # Linux says so when the last writer of a terminal has gone
            except (OSError, ValueError):
                return
            if not data:
                return
            self.pieces.append((time.time(), data))

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(5)


@contextmanager
def on_terminal(argv: list[str], env: dict[str, str], cwd: Path) -> Iterator[Reader]:
    """A live view. It is left with `q`, as a person would."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    child = subprocess.Popen(
        argv, env={**env, "TERM": "xterm-256color"}, cwd=cwd, stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    reader = Reader(controller, child.pid)
    reader.start()
    try:
        yield reader
        os.write(controller, b"q")
        child.wait(20)
    finally:
        child.kill()
        child.wait()
        reader.join()
        os.close(controller)


@contextmanager
def on_pipe(argv: list[str], env: dict[str, str], cwd: Path) -> Iterator[Reader]:
    child = subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    reader = Reader(child.stdout.fileno(), child.pid)
    reader.start()
    try:
        yield reader
    finally:
        child.kill()
        child.wait()
        reader.join()
        child.stdout.close()

"""`hw` on a terminal of a test's own: a pseudo-terminal of some size, its keys, and what a person
sees on it.
"""

import errno
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading

from tests.waiting import wait_until
from tools.screen import Screen

HW = [sys.executable, "-m", "headway.views.cli.main"]


class Desk:
    """A terminal with `hw` on it; `shown()` is what a person sees now."""

    def __init__(self, *words: str, columns: int = 80, rows: int = 24, **env: str) -> None:
        self.control, self.terminal = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.terminal)
        self.screen, self.raw = Screen(columns), b""
        full = {
            k: v
            for k, v in os.environ.items()
            if k not in ("COLUMNS", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")
        }
        full |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC"} | env
        self.child = subprocess.Popen(
            [*HW, *words], stdin=self.terminal, stdout=self.terminal, stderr=self.terminal, env=full,
            start_new_session=True, preexec_fn=self._own,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @staticmethod
    def _own() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.control, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self.control, 65536)
            except OSError as error:
                assert error.errno in (errno.EIO, errno.EBADF)
                return
            self.raw += part

    def shown(self) -> str:
        self.screen = Screen(self.screen.columns)
        self.screen.feed(self.raw.decode(errors="replace"))
        return "\n".join("".join(character for character, _ in row) for row in self.screen.lines())

    def sees(self, text: str) -> None:
        wait_until(
            lambda: text in self.shown(),
            what=f"{text!r} on the terminal, which shows:\n{self.shown()}",
        )

    def press(self, keys: bytes) -> None:
        os.write(self.control, keys)

    def ends(self) -> int:
        code = self.child.wait(60)
        assert termios.tcgetattr(self.terminal) == self.before
        return code

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self.terminal)
        self.reader.join(5)
        os.close(self.control)

"""The terminal while the console has it: modes, keys, signals, and the way back. Called by `loop`.

Whatever ends the view (the job, a key, a signal, an exception), leaving the `with` block gives the
terminal back. Ctrl-C comes as a key; a SIGINT that somebody sends stays a signal for whoever
handles it. Writing never waits: what a slow terminal has not taken yet is offered again, and no
further frame is made until it has.
"""

import os
import select
import signal
import sys
import termios
import threading
from types import FrameType
from typing import Any, Final, Self

from headway.model.undo import UndoOnFailure
from headway.views.console.cells import Line, Size
from headway.views.console.keys import Keys
from headway.views.console.painter import ENTER, LEAVE, Painter
from headway.views.console.theme import Theme
from headway.views.text.terminal import Terminal

# The "key" of a terminal that has gone. No key of `keys` may have this name: one test compares.
GONE: Final = "terminal gone"
COLUMNS_MIN: Final = 40
ROWS_MIN: Final = 8
# of one write: a terminal that says it is ready takes this without waiting
_CHUNK_BYTES: Final = 2048
_ESCAPE_S: Final = 0.05  # an escape that is alone for this long is the key
_BACKGROUND_S: Final = 0.5  # how often to look whether the shell has given the terminal back
_SIZE_DEFAULT: Final = (80, 24)


def keyboard() -> int | None:
    """Where keys come from: stdin, or the terminal itself if stdin is something else. None: there
    is none.
    """
    if sys.stdin is not None and os.isatty(0):
        return 0
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def is_possible(terminal: Terminal) -> bool:
    """Whether a live view can be shown: a terminal with room, that can move its cursor, and that is
    ours now.
    """
    if not (terminal.out.is_tty and terminal.err.is_tty) or os.environ.get("TERM", "dumb") in (
        "dumb",
        "",
    ):
        return False
    columns, rows = _size(terminal.out.fd)
    return columns >= COLUMNS_MIN and rows >= ROWS_MIN and _is_ours(terminal.out.fd)


class Stage:
    def __init__(self, out_fd: int, theme: Theme, in_fd: int | None = None) -> None:
        self.out_fd, self.theme = out_fd, theme
        self.in_fd = keyboard() if in_fd is None else in_fd
        self.painter = Painter(theme)
        self.keys = Keys()
        self.size: Size = _SIZE_DEFAULT
        self._pending = memoryview(b"")
        self._modes: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._resized = self._suspend = self._away = False
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    # -- in and out

    def __enter__(self) -> Self:
        for number, handler in (
            (signal.SIGWINCH, self._on_resize),
            (signal.SIGTSTP, self._on_suspend),
        ):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, handler)
        self._wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # whatever it was, the terminal is given back as it was found
        with UndoOnFailure(self.__exit__):
            self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._shut()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        if self.in_fd:
            os.close(self.in_fd)
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1  # the number may soon belong to another file

    def _open(self) -> None:
        if self.in_fd is not None:
            self._modes = termios.tcgetattr(self.in_fd)
            mine = termios.tcgetattr(self.in_fd)
            mine[3] &= ~(termios.ICANON | termios.ECHO)
            mine[6] = list(mine[6])
            mine[6][termios.VMIN], mine[6][termios.VTIME] = 1, 0
            off = os.fpathconf(self.in_fd, "PC_VDISABLE").to_bytes(1, "little")
            mine[6][termios.VINTR] = mine[6][termios.VQUIT] = off
            termios.tcsetattr(self.in_fd, termios.TCSANOW, mine)
        self.size = _size(self.out_fd)
        self.painter.forget()
        os.write(self.out_fd, ENTER)

    def _shut(self) -> None:
        """Give the terminal back. It may have gone itself: then there is nothing to give."""
        self._pending = memoryview(b"")
        if self._away:
            return
        try:
            os.write(self.out_fd, LEAVE)
        except OSError:
            pass
        if self.in_fd is not None and self._modes is not None:
            try:
                termios.tcsetattr(self.in_fd, termios.TCSANOW, self._modes)
            except (OSError, termios.error):
                pass

    # -- signals

    def _on_resize(self, _: int, __: FrameType | None) -> None:
        self._resized = True

    def _on_suspend(self, _: int, __: FrameType | None) -> None:
        self._suspend = True

    def _stop_here(self) -> None:
        """Ctrl-Z: give the terminal back, stop as anybody would, and come back when the shell says
        so.
        """
        self._suspend = False
        self._shut()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_suspend)
        self._away = True

    def wake(self) -> None:
        """End the wait: there is news. May be called by any thread, also when the view has ended."""
        with self._lock:
            try:
                os.write(self._wake_write, b"\0")
            except OSError:  # full, which wakes as well; or closed
                pass

    # -- one turn

    @property
    def is_ready(self) -> bool:
        """Whether another frame may be drawn."""
        return not self._pending and not self._away

    def draw(self, lines: list[Line]) -> None:
        self._pending = memoryview(self.painter.paint(lines, self.size))
        self._write()

    def wait(self, timeout_s: float) -> list[str]:
        """Keys, as soon as there are some; none when there is news, another size, or time has
        passed.
        """
        if self._away and _is_ours(self.out_fd):
            self._away = False
            self._open()
        if self.keys.waits:
            timeout_s = min(timeout_s, _ESCAPE_S)
        if self._away:
            timeout_s = min(timeout_s, _BACKGROUND_S)
        listened = [self._wake_read] + (
            [self.in_fd] if self.in_fd is not None and not self._away else []
        )
        readable, writable, _ = select.select(
            listened, [self.out_fd] if self._pending else [], [], max(timeout_s, 0.0)
        )
        if self._wake_read in readable:
            _drain(self._wake_read)
        if writable:
            self._write()
        if self._suspend:
            self._stop_here()
            return []
        if self._resized:
            self._resized = False
            self.size = _size(self.out_fd)
        if self.in_fd in readable:
            return self._read()
        return self.keys.flush() if self.keys.waits and not readable else []

    def _read(self) -> list[str]:
        assert self.in_fd is not None
        try:
            data = os.read(self.in_fd, 4096)
        except OSError:
            data = b""
        if not data:  # the terminal has gone: so has the person
            return [GONE]
        found = self.keys.feed(data)
        if "ctrl-l" in found:
            self.painter.forget()
        return found

    def _write(self) -> None:
        while self._pending and select.select([], [self.out_fd], [], 0)[1]:
            try:
                self._pending = self._pending[os.write(self.out_fd, self._pending[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                return


def _is_ours(fd: int) -> bool:
    """Whether we are in the foreground; a terminal that is not our controlling one cannot say, and
    is ours.
    """
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True


def _size(fd: int) -> Size:
    try:
        found = os.get_terminal_size(fd)
    except OSError:
        return _SIZE_DEFAULT
    return (found.columns or _SIZE_DEFAULT[0], found.lines or _SIZE_DEFAULT[1])


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        return

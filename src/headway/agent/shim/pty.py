"""`--pty`: terminals for stdout and stderr of a rank, and the process that copies what they show
into its streams.

Called by `rank.py`. The copier is no part of the shim: a shim that is killed does not take the
terminal away, and a full disk costs output, not the program. There are two terminals, so that
stdout and stderr stay apart; neither is the controlling one, so nothing is hung up when the rank
ends. Nothing is translated: the streams hold what was written.
"""

from __future__ import annotations

import os
import select
import signal

from headway.agent.agent_log import AgentLog
from headway.agent.process import name_process
from headway.model.limits import PTY_COLUMNS, PTY_ROWS
from headway.model.value import Value
from headway.spool.layout import open_output

ROLES = ("stdout", "stderr")
_READ_BYTES = 1 << 16


class Terminals(Value):
    """Near ends, which are read, and far ends, which the program has; in the order of ROLES."""

    near: tuple[int, ...]
    far: tuple[int, ...]

    def close(self) -> None:
        for fd in (*self.near, *self.far):
            os.close(fd)


def open_terminals() -> Terminals:
    """Raises OSError when the system has no more of them."""
    near: list[int] = []
    far: list[int] = []
    try:
        for _ in ROLES:
            one, other = os.openpty()
            near.append(one)
            far.append(other)
            _make_plain(other)
    except OSError:
        Terminals(tuple(near), tuple(far)).close()
        raise
    return Terminals(tuple(near), tuple(far))


def _make_plain(fd: int) -> None:
    """Newlines stay newlines, and nothing that is typed is shown: nobody types."""
    import termios

    mode = termios.tcgetattr(fd)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, mode)
    termios.tcsetwinsize(fd, (PTY_ROWS, PTY_COLUMNS))


def start_copier(terminals: Terminals, task_dir: str, rank: int) -> tuple[int, int]:
    """Fork; the pid, and a pipe that holds at its end how many bytes could not be written. It ends
    when nobody has a far end any more. Raises OSError.
    """
    near, far = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(near)
        os.close(far)
        raise
    if pid:
        os.close(far)
        return pid, near
    code = 1
    try:
        _settle(terminals, far)
        lost = _copy(dict(zip(terminals.near, ROLES)), task_dir, rank)
        os.write(far, str(lost).encode())
        code = 0
    except BaseException as error:  # a forked child must end here, whatever happens
        AgentLog(task_dir, "pty").say(
            f"rank {rank}: its output ends here: {type(error).__name__}: {error}"
        )
    finally:
        os._exit(code)


def _settle(terminals: Terminals, pipe: int) -> None:
    """A session of its own, deaf to what is meant for others; nothing of the shim stays open, its
    lock least of all.
    """
    os.setsid()
    name_process("hw-pty")
    signal.set_wakeup_fd(-1)
    for signum in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = 2
    for fd in sorted((*terminals.near, pipe)):
        os.closerange(before + 1, fd)
        before = fd
    os.closerange(before + 1, os.sysconf("SC_OPEN_MAX"))


def _copy(roles: dict[int, str], task_dir: str, rank: int) -> int:
    """Until every terminal has ended. What cannot be written is read all the same, and counted:
    nobody may wait. Returns the bytes that are lost.
    """
    poll = select.poll()
    outputs: dict[int, int] = {}
    lost = 0
    for fd in roles:
        poll.register(fd, select.POLLIN)
    while roles:
        for fd, _ in poll.poll():
            data = _read(fd)
            if not data:
                poll.unregister(fd)
                del roles[fd]
                continue
            try:
                if fd not in outputs:
                    outputs[fd] = open_output(task_dir, roles[fd], rank)
                lost += len(data) - _write(outputs[fd], data)
            except OSError:
                lost += len(data)
    if lost:
        AgentLog(task_dir, "pty").say(
            f"rank {rank}: {lost} bytes of its output could not be written"
        )
    return lost


def _read(fd: int) -> bytes:
    """Empty at the end, which Linux tells as an error."""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""


def _write(fd: int, data: bytes) -> int:
    """As many bytes as the disk takes."""
    done = 0
    try:
        while done < len(data):
            done += os.write(fd, data[done:])
    except OSError:
        return done
    return done

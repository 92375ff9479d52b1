"""The processes of one home: found by the HEADWAY_HOME in their environment, ended one by one. Used
by fixtures.
"""

import os
import signal
from pathlib import Path

from tests.waiting import wait_until


def of_home(home: Path) -> dict[int, str]:
    """`{pid: command line}` of live processes whose HEADWAY_HOME is `home` or below it, ourselves
    left out.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _belongs(entry, home):
            words = _read(entry / "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
            found[int(entry.name)] = words[:300]
    return found


def _belongs(entry: Path, home: Path) -> bool:
    state = _read(entry / "stat").rpartition(b")")[2].split()
    if not state or state[0] in (b"Z", b"X"):
        return False
    for variable in _read(entry / "environ").split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == b"HEADWAY_HOME":
            return Path(os.fsdecode(value)).is_relative_to(home)
    return False


def is_launcher(pid: int) -> bool:
    """The warm launcher belongs to the server, not to a task."""
    return _read(Path(f"/proc/{pid}/comm")).strip() == b"hw-warm"


def end(pids: list[int], timeout_s: float = 10.0) -> None:
    """SIGTERM, then SIGKILL, for processes of a test's own home."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # it has ended meanwhile
        try:
            wait_until(
                lambda: not any(_alive(pid) for pid in pids), timeout_s, f"the end of {pids}"
            )
        except AssertionError:
            continue
        return


def _alive(pid: int) -> bool:
    state = _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return b""

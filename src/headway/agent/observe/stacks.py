"""Stacks of all Python processes of a task, at one time. Stepped by the shipper when the server
asks.

Every process that has our bootstrap holds a memory file, into which Python's own handler writes the
stacks of all threads when SIGURG comes (`client/bootstrap/headway_bootstrap.py`). All are asked at
once and read as they answer; no process is stopped or traced for it. A process is only asked when
it handles the signal and still holds that file, so that nobody else's file is written to. Those
that do not answer in time are told with what /proc says of them. With `native`, and for Python
processes that cannot be asked, py-spy is run where it is installed and the kernel allows it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time

from headway.agent.observe.stack_parser import is_whole, parse_dump, parse_py_spy
from headway.model.limits import (
    KIB,
    MIB,
    STACK_SOURCES_MAX,
    STACKS_NATIVE_S,
    STACKS_PROCESSES_MAX,
    STACKS_TIMEOUT_S,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headway.model.json_types import JsonObject

    Fact = JsonObject

SILENT = "it was asked and did not answer"
FILE_NAME = "hw-stacks"  # as the bootstrap calls it
FD = 700  # where the bootstrap puts it, if it can
STEP_S = 0.005  # between two looks for answers
SETTLED_S = 0.03  # a dump that has not grown for so long is complete
FILE_BYTES_MAX = 1 * MIB  # then the memory file is emptied
DUMP_BYTES_MAX = 512 * KIB
SOURCE_BYTES_MAX = 2 * MIB
SOURCE_WAIT_S = 0.3
THREADS_LISTED = 32
_RANK_NAMES = (b"RANK=", b"SLURM_PROCID=", b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")
_ENVIRON_BYTES = 256 * KIB
_STATES = {
    "R": "running", "S": "sleeping", "D": "in uninterruptible I/O", "T": "stopped",
    "t": "stopped by a tracer", "Z": "dead, not yet collected", "I": "idle",
}  # fmt: skip
_TICKS_S = os.sysconf("SC_CLK_TCK")


class Asked:
    """One process that was asked, and what came of it."""

    def __init__(self, pid: int, rank: int, explicit: bool, depth: int) -> None:
        self.pid, self.rank, self.explicit, self.depth = pid, rank, explicit, depth
        self.fd = -1  # its memory file
        self.begin = self.size = 0
        self.grown_s = 0.0
        self.threads: list[Fact] | None = None
        self.how = ""
        self.missing = ""  # why there is no stack
        self.spy: subprocess.Popen[str] | None = None


class Stacks:
    """One collection: made, stepped until `fact` is there."""

    def __init__(
        self,
        request: int,
        roots: "Mapping[int, int]",
        ranks: "Mapping[int, int]",
        now_s: float,
        *,
        native: bool = False,
        proc: str = "/proc",
    ) -> None:
        """`roots`: pid → rank of the processes that were started; `ranks`: of those that have told
        their rank themselves.
        """
        self.fact: Fact | None = None
        self._request, self._native, self._proc = request, native, proc
        self._begun_s, self._made_s = now_s, time.monotonic()
        self._spy = shutil.which("py-spy")
        self._asked = self._find(roots, ranks)
        self._spied = False
        for one in self._asked:
            self._ask(one, now_s)

    def due_s(self, now_s: float) -> float:
        return now_s + STEP_S

    def step(self, now_s: float) -> "Fact | None":
        """Take what has come; the fact to tell once nothing more is awaited."""
        late = now_s >= self._begun_s + STACKS_TIMEOUT_S
        waiting = [one for one in self._asked if one.fd >= 0]
        for one in waiting:
            self._read(one, now_s, late)
        if any(one.fd >= 0 for one in self._asked):
            return None
        if not self._spied:
            self._spied = True
            self._start_spies()
        if self._step_spies(late=now_s >= self._begun_s + STACKS_TIMEOUT_S + STACKS_NATIVE_S):
            self.fact = self._tell()
        return self.fact

    # -- who is asked

    def _find(self, roots: "Mapping[int, int]", ranks: "Mapping[int, int]") -> list[Asked]:
        """The processes below the roots, breadth first. One that does not say its rank has its
        parent's.
        """
        children: dict[int, list[int]] = {}
        for pid in _pids(self._proc):
            parent = _parent(self._proc, pid)
            if parent is not None:
                children.setdefault(parent, []).append(pid)

        found: list[Asked] = []
        todo = [(pid, rank, 0) for pid, rank in roots.items()]
        seen: set[int] = set()
        while todo and len(found) < STACKS_PROCESSES_MAX:
            pid, rank, depth = todo.pop(0)
            if pid in seen:
                continue
            seen.add(pid)
            own = ranks.get(pid)
            if own is None:
                own = _rank_of(self._proc, pid)
            if own is not None:
                rank = own
            found.append(Asked(pid, rank, own is not None, depth))
            for child in sorted(children.get(pid, [])):
                todo.append((child, rank, depth + 1))
        return found

    # -- asking by signal

    def _ask(self, one: Asked, now_s: float) -> None:
        status = _status(self._proc, one.pid)
        if status is None:
            one.missing = "it has ended"
            return
        fd = self._open_memory(one.pid)
        if fd is None:
            one.missing = self._why_not(one.pid)
            return
        bit = 1 << (signal.SIGURG - 1)
        if not status.get("SigCgt", 0) & bit:
            os.close(fd)
            one.missing = self._why_not(one.pid)
            return
        one.fd = fd
        one.begin = one.size = os.fstat(fd).st_size
        one.grown_s = now_s
        try:
            os.kill(one.pid, signal.SIGURG)
        except OSError as error:
            self._leave(one, f"it could not be asked: {error.strerror}")

    def _why_not(self, pid: int) -> str:
        if not _is_python(self._proc, pid):
            return "not a Python program"
        more = "" if self._spy else ", and py-spy is not installed"
        return f"its Python does not answer to our signal{more}"

    def _open_memory(self, pid: int) -> int | None:
        """The process's own memory file; None where it has none, or has closed it."""
        folder = f"{self._proc}/{pid}/fd"
        names = [str(FD)]
        if not _is_memory(f"{folder}/{FD}"):
            try:
                listed = os.listdir(folder)[:4096]
            except OSError:
                return None
            names = [name for name in listed if _is_memory(f"{folder}/{name}")]
        for name in names:
            try:
                return os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue
        return None

    def _read(self, one: Asked, now_s: float, late: bool) -> None:
        size = os.fstat(one.fd).st_size
        if size > one.size:
            one.size, one.grown_s = size, now_s
        if size > one.begin:
            text = os.pread(one.fd, min(size - one.begin, DUMP_BYTES_MAX), one.begin).decode(
                "utf-8", "replace"
            )
            settled = now_s >= one.grown_s + SETTLED_S and text.endswith("\n")
            if is_whole(text) or settled or late:
                one.threads, one.how = parse_dump(text), "signal"
                self._leave(one)
                return
        if late or not os.path.exists(f"{self._proc}/{one.pid}"):
            self._leave(one, SILENT)

    def _leave(self, one: Asked, missing: str = "") -> None:
        try:
            if one.size > FILE_BYTES_MAX and one.threads is not None:
                os.truncate(one.fd, 0)
        except OSError:
            pass  # it is emptied the next time
        os.close(one.fd)
        one.fd, one.missing = -1, missing

    # -- py-spy

    def _start_spies(self) -> None:
        """For native frames of all, else for Python processes that could not be asked."""
        if self._spy is None:
            return
        for one in self._asked:
            wanted = self._native if one.threads is not None else _is_python(self._proc, one.pid)
            if not wanted:
                continue
            words = [self._spy, "dump", "--json", "--pid", str(one.pid)]
            words += ["--native"] if self._native else []
            try:
                one.spy = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            except OSError:
                return

    def _step_spies(self, *, late: bool) -> bool:
        """Whether all of them are done."""
        for one in self._asked:
            spy = one.spy
            if spy is None:
                continue
            if spy.poll() is None:
                if not late:
                    return False
                spy.kill()
            text = spy.communicate()[0] or ""
            one.spy = None
            try:
                threads = parse_py_spy(text, one.pid)
            except ValueError:
                continue  # not allowed, or a Python that it does not know: as it was before
            if threads:
                one.threads, one.how, one.missing = threads, "py-spy", ""
        return True

    # -- telling

    def _tell(self) -> "Fact":
        frames: dict[tuple[str, int, str], int] = {}
        processes: list[Fact] = []
        launchers = _launchers(self._asked, self._proc)
        for one in self._asked:
            threads = [
                {
                    "name": thread["name"],
                    "main": thread["main"],
                    "frames": [frames.setdefault(f, len(frames)) for f in thread["frames"]],
                }
                for thread in one.threads or []
            ]
            processes.append(
                {
                    "rank": one.rank,
                    "pid": one.pid,
                    "lead": False,
                    "launcher": one.pid in launchers,
                    "depth": one.depth,
                    "threads": threads,
                    "missing": one.missing or None,
                    "silent": one.missing == SILENT,
                    "how": one.how or None,
                    **about_process(self._proc, one.pid),
                }
            )
        _choose_leads(processes, {one.pid: one.explicit for one in self._asked})
        return {
            "type": "stacks",
            "request": self._request,
            "took_s": round(time.monotonic() - self._made_s, 4),
            "native": self._native and any(one.how == "py-spy" for one in self._asked),
            "py_spy": self._spy is not None,
            "frames": [list(frame) for frame in frames],
            "source": _sources(processes, list(frames)),
            "processes": processes,
        }

    def close(self) -> None:
        """Give up."""
        for one in self._asked:
            if one.fd >= 0:
                self._leave(one, "given up")
            if one.spy is not None:
                one.spy.kill()
                one.spy.communicate()
                one.spy = None


# -- /proc


def about_process(proc: str, pid: int) -> "Fact":
    """What the kernel says: state in words, what its main thread waits for, CPU time, its name; and
    the same in short of threads that are in uninterruptible I/O.
    """
    stat = _stat(proc, pid)
    if stat is None:
        return {
            "name": None,
            "state": None,
            "wchan": None,
            "cpu_s": None,
            "blocked": [],
            "faults": None,
        }
    name, fields = stat
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_S
    return {
        "name": name,
        "state": _STATES.get(fields[0], fields[0]),
        "wchan": _wchan(proc, f"{pid}"),
        "cpu_s": round(cpu_s, 2),
        "faults": int(fields[9]),
        "io_bytes": _io_bytes(proc, pid),
        "blocked": _blocked_threads(proc, pid),
    }


def _blocked_threads(proc: str, pid: int) -> "list[Fact]":
    try:
        threads = os.listdir(f"{proc}/{pid}/task")[:THREADS_LISTED]
    except OSError:
        return []
    found: list[Fact] = []
    for thread in threads:
        stat = _stat(proc, pid, thread)
        if stat is not None and stat[1][0] == "D":
            wchan = _wchan(proc, f"{pid}/task/{thread}")
            found.append({"thread": stat[0], "state": _STATES["D"], "wchan": wchan})
    return found


def _stat(proc: str, pid: int, thread: str | None = None) -> tuple[str, list[str]] | None:
    path = f"{proc}/{pid}/stat" if thread is None else f"{proc}/{pid}/task/{thread}/stat"
    text = _text(path)
    begin, end = text.find("("), text.rfind(")")
    if end < 0:
        return None
    return text[begin + 1 : end], text[end + 2 :].split()


def _wchan(proc: str, where: str) -> str | None:
    name = _text(f"{proc}/{where}/wchan").strip()
    return name if name not in ("", "0") else None


def _io_bytes(proc: str, pid: int) -> int | None:
    """Read and written so far, by system calls and by the kernel for them: a single long read counts
    only when it returns, but what the disk gave meanwhile is seen.
    """
    total = 0
    lines = _text(f"{proc}/{pid}/io").splitlines()
    for line in lines:
        if line.startswith(("rchar:", "wchar:", "read_bytes:", "write_bytes:")):
            total += int(line.split()[1])
    return total if lines else None


def _status(proc: str, pid: int) -> dict[str, int] | None:
    """The signal masks."""
    text = _text(f"{proc}/{pid}/status")
    if not text:
        return None
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("SigBlk", "SigIgn", "SigCgt"):
            found[name] = int(value.strip(), 16)
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 * KIB)
    except OSError:
        return ""


def _pids(proc: str) -> "Iterable[int]":
    try:
        return [int(name) for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []


def _parent(proc: str, pid: int) -> int | None:
    stat = _stat(proc, pid)
    return None if stat is None else int(stat[1][1])


def _rank_of(proc: str, pid: int) -> int | None:
    """From the environment that it was started with. Not of one that is in uninterruptible I/O: the
    kernel may make us wait with it.
    """
    stat = _stat(proc, pid)
    if stat is None or stat[1][0] == "D":
        return None
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            variables = file.read(_ENVIRON_BYTES).split(b"\0")
    except OSError:
        return None
    for name in _RANK_NAMES:
        for variable in variables:
            if variable.startswith(name) and variable[len(name) :].isdigit():
                return int(variable[len(name) :])
    return None


def _is_memory(path: str) -> bool:
    try:
        return os.readlink(path).startswith(f"/memfd:{FILE_NAME}")
    except OSError:
        return False


def _is_python(proc: str, pid: int) -> bool:
    try:
        name = os.path.basename(os.readlink(f"{proc}/{pid}/exe"))
    except OSError:
        return False
    return name.startswith(("python", "pypy"))


# -- ranks


def _launchers(asked: "list[Asked]", proc: str) -> set[int]:
    """Processes above several ranks, such as torchrun and mpirun: they are no rank themselves."""
    parents = {one.pid: _parent(proc, one.pid) for one in asked}
    below: dict[int, set[int]] = {}
    for one in asked:
        pid = parents.get(one.pid)
        while pid in parents:
            assert pid is not None
            if one.explicit:
                below.setdefault(pid, set()).add(one.rank)
            pid = parents[pid]
    return {pid for pid, ranks in below.items() if len(ranks) > 1}


def _choose_leads(processes: "list[Fact]", explicit: "dict[int, bool]") -> None:
    """One process stands for its rank: one that was given this rank, has a stack, and is nearest to
    the one that was started.
    """
    by_rank: dict[int, list[Fact]] = {}
    for one in processes:
        if not one["launcher"]:
            by_rank.setdefault(one["rank"], []).append(one)
    for found in by_rank.values():
        lead = min(
            found, key=lambda one: (not one["threads"], not explicit[one["pid"]], one["depth"])
        )
        lead["lead"] = True


# -- source


def _sources(processes: "list[Fact]", frames: "list[tuple[str, int, str]]") -> "dict[str, str]":
    """The text of the newest lines: a call into C has no frame of its own, and only its line says
    what is being waited for.
    """
    wanted: dict[int, None] = {}
    for one in processes:
        for thread in one["threads"]:
            for number in thread["frames"][:2]:
                wanted[number] = None
    numbers = list(wanted)[:STACK_SOURCES_MAX]
    lines = _read_files({frames[number][0] for number in numbers})
    found: dict[str, str] = {}
    for number in numbers:
        file, line, _ = frames[number]
        if 0 < line <= len(lines.get(file, ())):
            found[str(number)] = lines[file][line - 1].strip()[:200]
    return found


_reading: "list[threading.Thread]" = []  # one that may never end


def _read_files(files: "Iterable[str]") -> dict[str, list[str]]:
    """In a thread: the code may lie on the very disk that hangs."""
    if _reading and _reading[-1].is_alive():
        return {}
    lines: dict[str, list[str]] = {}

    def read() -> None:
        for file in files:
            lines[file] = _lines(file)

    thread = threading.Thread(target=read, name="hw-source", daemon=True)
    _reading[:] = [thread]
    thread.start()
    thread.join(SOURCE_WAIT_S)
    return dict(lines)


def _lines(file: str) -> list[str]:
    try:
        # a file that can be sought in: never a pipe, which could wait for ever
        if not os.path.isfile(file) or os.path.getsize(file) > SOURCE_BYTES_MAX:
            return []
        with open(file, encoding="utf-8", errors="replace") as source:
            return source.read().splitlines()
    except (OSError, ValueError):
        return []


# -- the shipper's side


class StackRequests:
    """Requests of the server, one collection at a time; the shipper steps it."""

    def __init__(
        self,
        roots: "Callable[[], dict[int, int]]",
        ranks: "Callable[[], dict[int, int]]",
        write: "Callable[[Fact], None]",
        say: "Callable[[str], None]",
    ) -> None:
        self._roots, self._ranks, self._write, self._say = roots, ranks, write, say
        self._current: Stacks | None = None
        self._waiting: list[tuple[int, bool]] = []

    def ask(self, request: int, native: bool, now_s: float) -> None:
        self._waiting.append((request, native))
        del self._waiting[:-8]
        self.step(now_s)

    def due_s(self, now_s: float) -> float | None:
        return None if self._current is None else self._current.due_s(now_s)

    def step(self, now_s: float) -> None:
        try:
            self._step(now_s)
        # whatever a strange system does to it, the data of the task must go on
        except Exception as error:
            self._say(f"stacks could not be collected: {type(error).__name__}: {error}")
            self.close()

    def _step(self, now_s: float) -> None:
        if self._current is None and self._waiting:
            request, native = self._waiting.pop(0)
            self._current = Stacks(request, self._roots(), self._ranks(), now_s, native=native)
        if self._current is not None:
            fact = self._current.step(now_s)
            if fact is not None:
                self._current = None
                self._write(fact)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

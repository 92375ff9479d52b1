"""What a job was: commit, branch, uncommitted diff, Python, packages, user, host (capability 30).

Called by the shipper after its first successful send. It runs in a forked child of low priority
that hands its result back through a pipe, so neither the start of the job nor the memory of the
shipper pays for it; but where there is no Python to be looked at, and no git or one whose answer is
known (`git.py`), in the shipper itself: a child would cost more than it finds out.
"""

from __future__ import annotations

import json
import os

from headway.agent.observe import git
from headway.agent.observe.hardware import hardware
from headway.model.limits import FRAME_BYTES_MAX, PACKAGES_MAX, PROVENANCE_S
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.model.json_types import JsonObject
    from headway.spool.layout import TaskFile

HELLO_WAIT_S = 2.0  # a Python command has so long to say which Python it is
WORD_CHARS_MAX, WORDS_MAX = 1000, 100  # of the command line
_FACT_BYTES_MAX = FRAME_BYTES_MAX - 4096


class Inquiry:
    """Collects once, after the first batch that got through, when the program has had time to say
    which Python it is. `over`: the task has ended, and nobody will say anything any more.
    """

    def __init__(
        self,
        task: "TaskFile",
        env: "Mapping[str, str] | None",
        secrets: "Callable[[], list[bytes]]",
        write: "Callable[[JsonObject], None]",
        say: "Callable[[str], None]",
        *,
        over: bool = False,
    ) -> None:
        self._task, self._env, self._at_end = task, env, over
        self._secrets, self._write, self._say = secrets, write, say
        self.is_over = False  # collected, by us or by a shipper before us, or given up
        self._collector: Collector | None = None

    def fileno(self) -> int:
        return -1 if self._collector is None else self._collector.fileno()

    def step(
        self, now_s: float, acked_s: float | None, hello: "JsonObject | None", *, ended: bool
    ) -> bool:
        """Go on. True: it is over with this step. `acked_s`: when the server took something for the
        first time.
        """
        if self._collector is not None:
            return self._hear(self._collector, now_s)
        if self.is_over or (acked_s is None and not self._at_end):
            return False
        task, path = self._task, (self._env or os.environ).get("PATH", "")
        about = About(
            task.argv,
            task.cwd,
            hello,
            path,
            tuple(self._secrets()),
            task.code,
            task.code_commit,
            task.home,
        )
        fact = at_once(about)
        if fact is not None:
            self._write(fact)
            self.is_over = True
        elif acked_s is not None and not self._awaits_hello(now_s - acked_s, hello, ended):
            self._start(about, now_s)
        return self.is_over

    def _awaits_hello(self, waited_s: float, hello: "JsonObject | None", ended: bool) -> bool:
        python = os.path.basename((self._task.argv or [""])[0]).startswith("python")
        return python and hello is None and not ended and waited_s < HELLO_WAIT_S

    def _start(self, about: "About", now_s: float) -> None:
        try:
            self._collector = Collector(about, now_s)
        except OSError as error:  # no more processes, or descriptors: the job's data matters more
            self._do_without(about, str(error.strerror))
            self.is_over = True

    def _hear(self, collector: "Collector", now_s: float) -> bool:
        done, fact = collector.read(now_s)
        if done:
            self._collector, self.is_over = None, True
            if "type" in fact:
                self._write(fact)
            else:
                self._do_without(
                    collector.about, str(fact.get("error") or "its process ended, or took too long")
                )
        return done

    def _do_without(self, about: "About", why: str) -> None:
        """What is known without a process of its own."""
        self._say(f"the state of the code is not known: {why}")
        self._write(_fact(about, None))

    def close(self) -> None:
        if self._collector is not None:
            self._collector.close()
            self._collector = None


class About(Value):
    """What is asked about."""

    argv: "Sequence[str]"
    cwd: str
    hello: "JsonObject | None" = None  # the first process's own words
    path: str = ""  # PATH of the job
    secrets: tuple[bytes, ...] = ()
    code: str | None = None  # digest of the snapshot that it runs from
    commit: str | None = None  # that the snapshot was made from
    home: str = ""  # where answers of git are kept; without it none is


class Collector:
    """A child that collects. `fileno` becomes readable as it speaks; `read` gives the fact when it
    has.
    """

    def __init__(self, about: "About", now_s: float) -> None:
        self.about, self.deadline_s = about, now_s + PROVENANCE_S
        self._parts: list[bytes] = []
        self._fd, far = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self._fd)
            os.close(far)
            raise
        if self.pid == 0:
            _child(far, about)
        os.close(far)
        os.set_blocking(self._fd, False)

    def fileno(self) -> int:
        return self._fd

    def read(self, now_s: float) -> "tuple[bool, JsonObject]":
        """(done, fact); in place of a fact, its `error`. A child that takes too long is ended; what
        it had found is then lost.
        """
        try:
            while part := os.read(self._fd, 1 << 16):
                self._parts.append(part)
        except BlockingIOError:
            if now_s < self.deadline_s:
                return False, {}
        self.close()
        try:
            return True, dict(json.loads(b"".join(self._parts)))
        except ValueError:
            return True, {}

    def close(self) -> None:
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        try:
            os.kill(self.pid, 9)  # our own child, not yet reaped: the number is still its own
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            return


def at_once(about: "About") -> "JsonObject | None":
    """The fact, where nothing has to be run or listed for it: no Python, and no repository or one
    that is known.
    """
    if about.hello is not None or find_python(about.argv, about.cwd, about.path) is not None:
        return None
    if about.code is not None:
        return None if git.find_top(about.cwd) else collect(about)
    known = git.recall(about.cwd, about.home)
    return None if known is None else _fact(about, known.state)


def _child(fd: int, about: "About") -> None:  # never returns
    import signal

    try:
        signal.set_wakeup_fd(-1)  # of the process that forked us
        os.closerange(3, fd)  # locks and sockets are the shipper's alone
        os.closerange(fd + 1, 1 << 16)
        os.nice(10)
        _hand_over(fd, collect(about))
    except BaseException as error:  # a forked child must end here, whatever happens
        _hand_over(fd, {"error": f"{type(error).__name__}: {error}"[:WORD_CHARS_MAX]})
    finally:
        os._exit(0)


def _hand_over(fd: int, found: "JsonObject") -> None:
    data = json.dumps(found).encode()
    while data:
        data = data[os.write(fd, data) :]


def collect(about: About) -> "JsonObject":
    """The `provenance` fact, masked."""
    if about.code is not None:
        return _fact(about, _pinned(about))
    known = git.recall(about.cwd, about.home)
    answer = known or git.ask(about.cwd)
    fact = _fact(about, answer.state)
    if about.home and fact["git"] == answer.state:  # else it holds what is not for others to read
        git.keep(answer, about.home)
    return fact


def _fact(about: About, state: "JsonObject | None") -> "JsonObject":
    from headway.wire.redact import mask_argv, mask_data

    values = [value.decode(errors="surrogateescape") for value in about.secrets]
    found = {
        "git": state,
        "snapshot": about.code,
        **python_state(about),
        "user": _user(),
        "host": os.uname().nodename,
        "platform": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "hardware": hardware(),
    }
    fact = {
        "type": "provenance",
        **mask_data(found, values),
        "command": _shorten(mask_argv(list(about.argv), values)),
    }
    if len(json.dumps(fact)) > _FACT_BYTES_MAX and fact["git"]:
        fact["git"]["diff"] = "(too large)"
    return (
        fact if len(json.dumps(fact)) <= _FACT_BYTES_MAX else {**fact, "git": None, "packages": {}}
    )


def _shorten(words: list[str]) -> list[str]:
    """A command line of any length must fit; what is cut off is marked."""
    kept = [
        word if len(word) <= WORD_CHARS_MAX else word[:WORD_CHARS_MAX] + "…"
        for word in words[:WORDS_MAX]
    ]
    return kept if len(words) <= WORDS_MAX else [*kept, "…"]


def _pinned(about: About) -> "JsonObject":
    """The working tree may have changed since the snapshot, so it is not asked: the snapshot has
    what ran.
    """
    commit = about.commit or ""
    return {
        "commit": commit.rstrip("+") or None,
        "branch": None,
        "dirty": commit.endswith("+"),
        "diff": "",
        "remote": git.remote(about.cwd),
    }


# -- python


def python_state(about: About) -> "JsonObject":
    """Version, executable and packages of the job's Python: as it said itself, else of the
    command's interpreter.
    """
    hello = about.hello or {}
    executable = hello.get("executable") or find_python(about.argv, about.cwd, about.path)
    prefix = hello.get("prefix") or (executable and os.path.dirname(os.path.dirname(executable)))
    if not executable:
        return {"python": None, "executable": None, "packages": {}}
    version = hello.get("python") or _version_of(str(prefix))
    return {"python": version, "executable": executable, "packages": packages_of(str(prefix))}


def find_python(argv: "Sequence[str]", cwd: str, path: str) -> str | None:
    """The command's own interpreter, if it is a Python; links are not followed, for a venv is found
    by its link.
    """
    if not argv or not os.path.basename(argv[0]).startswith("python"):
        return None
    folders = (
        [cwd]
        if "/" in argv[0]
        else [os.path.join(cwd, folder) for folder in path.split(os.pathsep)]
    )
    places = [os.path.join(folder, argv[0]) for folder in folders]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _version_of(prefix: str) -> str | None:
    names = [name for name in _list(os.path.join(prefix, "lib")) if name.startswith("python3.")]
    return names[0].removeprefix("python") if len(names) == 1 else None


def packages_of(prefix: str) -> dict[str, str]:
    """Name and version of what is installed there, by the names of its folders: nothing is imported
    or opened.
    """
    found: dict[str, str] = {}
    for library in ("lib", "lib64"):
        for python in _list(os.path.join(prefix, library)):
            if not python.startswith("python3"):
                continue
            for site in ("site-packages", "dist-packages"):
                for name in _list(os.path.join(prefix, library, python, site)):
                    if name.endswith(".dist-info") and len(found) < PACKAGES_MAX:
                        package, _, version = name.removesuffix(".dist-info").partition("-")
                        found.setdefault(package, version)
    return dict(sorted(found.items()))


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())  # a uid without an account (B33)

"""A script started by plain `python train.py` becomes a job: its spool is made here and a shipper
started beside it.

Called by client/run.py when the environment names no task. The ranks of one launch find the same
folder by the ids of their launcher. Nothing here waits for the shipper, and every call may raise
OSError.
"""

from __future__ import annotations

import os
import sys
import time

from headway.client.own_rank import launch_key, node_rank, started_with
from headway.client.spool_path import Place
from headway.spool.files import OS_FILES, Files, write_all
from headway.wire import plain_json
from headway.wire.identity import boot_id, process_start, umask

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from headway.model.json_types import JsonObject

# of the name-based ids; changing it would part the ranks of mixed versions
_NAMESPACE = b"headway attached"
# The shell leaves at once, so the shipper is nobody's child: a program that waits for all its
# children never meets it.
_DETACH = ["sh", "-c", 'cd /; "$@" &', "sh"]
_OF_A_TASK = ("HEADWAY_SPOOL", "HEADWAY_UUID", "HEADWAY_ATTEMPT", "HEADWAY_TASK", "HEADWAY_JOB")
# HUP INT QUIT PIPE TERM: the program may ignore them, the shipper must not
_DEFAULT_SIGNALS = (1, 2, 3, 13, 15)


class Attachment:
    """The job that this process becomes. Keeps its uuid, so that a second try after an error is the
    same job.
    """

    def __init__(self, environ: "MutableMapping[str, str]", files: Files = OS_FILES) -> None:
        self.environ, self.files = environ, files
        self.name: str | None = None
        self.experiment: str | None = None
        self.tags: list[str] = []
        # of a run after the first in one process: which one it is, and the job around it
        self.number = 0
        self.outer_uuid = ""
        self.parent: str | None = None
        self._before: dict[str, str | None] = {}  # variables as they were before `make`
        self.child: int | None = None  # the shell that starts the shipper, until it is reaped
        self._uuid = ""

    def make(self) -> Place:
        """Make or join the task's folder, start the shipper, and tell children by the environment."""
        key = self.outer_uuid or launch_key(self.environ)
        if key and self.number:
            key = f"{key}#{self.number}"  # the ranks of a launch count their runs alike
        self._uuid = self._uuid or (_uuid_of(key) if key else _uuid_random())
        task = f"worker-{node_rank(self.environ) if key else 0}"
        home = home_folder(self.environ)
        task_dir = os.path.join(home, "spool", f"{self._uuid}-1-{task}")
        _make_private(self.files, os.path.dirname(task_dir))
        _make_private(self.files, task_dir)
        place = Place(task_dir, self.environ, attached=True)
        created = self._write_task(place, task, home)
        # the second one costs a moment, and covers a creator that was killed here
        if created or place.local_rank == 0:
            self._start_shipper(task_dir, home)
        told = {
            "HEADWAY_HOME": home,
            "HEADWAY_SPOOL": task_dir,
            "HEADWAY_UUID": self._uuid,
            "HEADWAY_ATTEMPT": "1",
            "HEADWAY_TASK": task,
        }
        self._before = {name: self.environ.get(name) for name in told}
        self.environ.update(told)
        return place

    def leave(self) -> None:
        """The run is over and the process goes on: what it starts from now on is not of this job."""
        for name, value in self._before.items():
            if value is None:
                self.environ.pop(name, None)
            else:
                self.environ[name] = value
        self._before = {}

    def _write_task(self, place: Place, task: str, home: str) -> bool:
        """Write task.json unless another rank did. No sync: the shipper does that, training does
        not wait for it.
        """
        final = os.path.join(place.task_dir, "task.json")
        draft = f"{final}.{os.getpid()}.tmp"
        text = plain_json.dumps(self._task(place, task, home))
        fd = self.files.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            write_all(self.files, fd, text.encode())
            self.files.link(draft, final)
            return True
        except FileExistsError:
            return False
        finally:
            self.files.close(fd)
            self.files.unlink(draft)

    def _task(self, place: Place, task: str, home: str) -> "JsonObject":
        """spool/layout.py's TaskFile, without the fields that only a shim reads; its import is too
        slow for here.
        """
        from headway.wire.redact import mask_argv, secret_values

        local = self.environ.get("LOCAL_WORLD_SIZE", "")
        return {
            "version": 1, "uuid": self._uuid, "attempt": 1, "task": task, "node": os.uname().nodename, "home": home,
            "argv": mask_argv(started_with(), secret_values(self.environ)), "cwd": _cwd(), "umask": umask(),
            "processes": int(local) if local.isdigit() else place.world_size, "world_size": place.world_size,
            "attached": True, "monitoring_interval_s": _monitoring_interval_s(self.environ),
            "attach": {
                "name": self.name or _notebook_name(self.environ), "experiment": self.experiment, "tags": self.tags,
                "parent": self.parent,
                "monitor": self.environ.get("HEADWAY_MONITOR") or None,
                "user": self.environ.get("USER") or self.environ.get("LOGNAME") or str(os.getuid()),
                "started_ns": self._started_ns(), "pid": os.getpid(), "start": process_start(), "boot_id": boot_id(),
            },
        }  # fmt: skip

    def _started_ns(self) -> int:
        """A script is its run from its start on; a notebook's kernel, or a process that had another
        run before, only from now on.
        """
        if self.number or is_notebook():
            return time.time_ns()
        return _started_ns()

    def _start_shipper(self, task_dir: str, home: str) -> None:
        from headway.home.launch import agent_argv

        log = (
            os.POSIX_SPAWN_OPEN,
            2,
            os.path.join(task_dir, "agent"),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o600,
        )
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
        # it belongs to no job around this one, whose end would take it along
        env = {
            k: v
            for k, v in self.environ.items()
            if not k.startswith("PYTHON") and k not in _OF_A_TASK
        }
        env["HEADWAY_HOME"] = home
        if self.outer_uuid:
            env["HEADWAY_OTHER_RUN"] = "1"  # agent/process.py lets it live when the outer job ends
        argv = [*_DETACH, *agent_argv("shipper", task_dir, "--adopt")]
        options: JsonObject = {
            "file_actions": [*null, log],
            "setsigmask": [],
            "setsigdef": _DEFAULT_SIGNALS,
        }
        try:
            self.child = os.posix_spawn("/bin/sh", argv, env, setsid=True, **options)
        except NotImplementedError:  # macOS before 10.15
            self.child = os.posix_spawn("/bin/sh", argv, env, setpgroup=0, **options)

    def reap(self) -> None:
        """Take the shell's exit, without waiting. The program may have taken it already."""
        if self.child is None:
            return
        try:
            if os.waitpid(self.child, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            pass
        self.child = None


def job_id(task_dir: str) -> str | None:
    """The id that the server gave to an attached job; None until the shipper has asked for it."""
    try:
        fd = os.open(f"{task_dir}/job.json", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            data = file.read(1 << 16)
        import json

        found = json.loads(data).get("id")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def is_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def _notebook_name(environ: "MutableMapping[str, str]") -> str | None:
    """Of a notebook the name of its file, where Jupyter tells it; its command is only the kernel's."""
    if not is_notebook():
        return None
    from headway.model.ids import name_from_command

    return name_from_command([environ.get("JPY_SESSION_NAME") or "notebook"])


def home_folder(environ: "MutableMapping[str, str]") -> str:
    """What `settings.home.home()` answers, in the plain cases without its imports (40 ms of a cold
    start).
    """
    value, data = environ.get("HEADWAY_HOME", ""), environ.get("XDG_DATA_HOME", "")
    user = environ.get("HOME", "")
    if value and not value.startswith("~") and ".." not in value:
        home = os.path.abspath(value)
    elif not value and os.path.isabs(data):
        home = os.path.join(data, "headway")
    elif not value and os.path.isabs(user) and os.path.normpath(user) != "/":
        home = os.path.join(user, ".local/share/headway")
    else:
        return _home_by_settings()
    try:
        found = os.stat(home)
    except FileNotFoundError:
        return _checked_home(home)
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        return _checked_home(home)
    return home


def _checked_home(home: str) -> str:
    """Made where it is missing, with those above it, for their owner alone; OSError where it is
    somebody else's.
    """
    from pathlib import Path

    from headway.home.ownership import check_home, make_private
    from headway.model.errors import HeadwayError

    make_private(Path(home))
    try:
        check_home(Path(home))
    except HeadwayError as error:
        raise OSError(error.message) from error
    return home


def _home_by_settings() -> str:
    from headway.home.paths import home
    from headway.model.errors import HeadwayError

    try:
        return str(home())
    except HeadwayError as error:
        raise OSError(str(error)) from error


def _make_private(files: Files, path: str) -> None:
    try:
        files.mkdir(path, 0o700)
    except FileExistsError:
        pass


def _uuid_of(key: str) -> str:
    import hashlib

    return _uuid(
        hashlib.sha1(
            _NAMESPACE + key.encode(errors="surrogateescape"), usedforsecurity=False
        ).digest(),
        5,
    )


def _uuid_random() -> str:
    return _uuid(os.urandom(16), 4)


def _uuid(data: bytes, version: int) -> str:
    """RFC 4122 by hand: the uuid module costs 8 ms of a cold start."""
    digits = bytearray(data[:16])
    digits[6] = digits[6] & 0x0F | version << 4
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"  # it was removed under us


def _started_ns() -> int:
    """When this process started, by the wall clock; now, where the system does not say."""
    ticks, now_ns = process_start(), time.time_ns()
    if ticks is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return now_ns
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf(
        "SC_CLK_TCK"
    )
    return now_ns - max(0, age_ns)


def _monitoring_interval_s(environ: "MutableMapping[str, str]") -> float:
    """Only the variable is looked at: reading settings files is too slow for the first call of a
    script.
    """
    from headway.model.limits import DURATION_S_MAX, MONITORING_INTERVAL_S

    try:
        given = float(environ.get("HEADWAY_MONITORING_INTERVAL_S", "").removesuffix("s"))
    except ValueError:
        return MONITORING_INTERVAL_S
    return given if 0 <= given <= DURATION_S_MAX else MONITORING_INTERVAL_S

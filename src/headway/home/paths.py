"""Where one installation keeps its data, and where its socket lies. Read by every part but the
client's hot path.

Works without HOME and for a uid that has no account (B33). Everything made here is for its owner
alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from headway.home.ownership import check_home, make_private
from headway.model.errors import RefusedError, UsageError
from headway.model.undo import UndoOnFailure
from headway.model.value import Value

TYPE_CHECKING = False  # `typing` costs a short command some milliseconds
if TYPE_CHECKING:
    from headway.wire.batch import TaskKey

SOCKET_PATH_BYTES_MAX = 107  # sockaddr_un
AGENT_SOCKET = "agent.sock"
# of the database itself: its journals have longer names, and SQLite ends at 512
_DATABASE_PATH_BYTES_MAX = 500


class Paths(Value):
    """The files of one home; `docs/concepts/protocol.md` says who writes which."""

    home: Path

    @property
    def db(self) -> Path:
        """In the home, or where `home/database_path.py` has put it."""
        try:
            text = self.database_pointer.read_text()
        except OSError:
            return self.home / "headway.db"
        import json

        try:
            return Path(json.loads(text)["folder"]) / "headway.db"
        except (ValueError, KeyError, TypeError):
            raise RefusedError(
                f"{self.database_pointer} does not say where the database is",
                'write {"folder": "FOLDER", "host": "HOST"} into it: the folder of headway.db, this '
                "machine's name",
            ) from None

    @property
    def database_pointer(self) -> Path:
        return self.home / "database.json"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def spool(self) -> Path:
        return self.home / "spool"

    @property
    def artifacts(self) -> Path:
        """Files of artifacts, each under its SHA-256."""
        return self.home / "artifacts"

    @property
    def env(self) -> Path:
        return self.home / "env"

    @property
    def output(self) -> Path:
        return self.home / "output"

    def coming(self, job: str) -> Path:
        """A note where a job's outputs are that are not here."""
        return self.home / "clusters" / "outputs" / job

    @property
    def server_json(self) -> Path:
        return self.home / "server.json"

    @property
    def server_lock(self) -> Path:
        return self.home / "server.lock"

    @property
    def server_log(self) -> Path:
        return self.home / "server.log"

    @property
    def page_port(self) -> Path:
        """The port that browsers found the last server at."""
        return self.home / "page-port"

    @property
    def sessions(self) -> Path:
        """Hashes of the cookies that browsers have."""
        return self.home / "sessions.json"

    @property
    def monitor_json(self) -> Path:
        return self.home / "monitor.json"

    @property
    def agents_json(self) -> Path:
        return self.home / "agents.json"

    @property
    def tls(self) -> Path:
        return self.home / "tls"

    @property
    def outbox(self) -> Path:
        return self.home / "outbox"

    @property
    def browser_token(self) -> Path:
        return self.home / "browser-token"

    def task_dir(self, key: "TaskKey") -> Path:
        return self.spool / str(key)


def _user_folder(variable: str, below_home: str) -> Path:
    """An XDG folder; without a usable HOME, a private one below the system's temporary folder."""
    value = os.environ.get(variable, "")
    if value and os.path.isabs(value):
        return Path(value)
    base = os.path.expanduser("~")
    if not os.path.isabs(base) or base == "/":
        return private_folder(_temporary() / f"headway-home-{os.getuid()}") / below_home
    return Path(base) / below_home


def state_folders() -> list[Path]:
    """Folders of ours that outlive a restart of the machine, the best first; not all need to be on
    a local disk.
    """
    shared = Path("/var/tmp") / f"headway-{os.getuid()}"  # noqa: S108  (private_folder checks: ours and 0700)
    return [_user_folder("XDG_STATE_HOME", ".local/state") / "headway", shared]


def _temporary() -> Path:
    from tempfile import gettempdir  # takes longer to import than most commands take to run

    return Path(gettempdir())


def home(*, make: bool = True) -> Path:
    """HEADWAY_HOME, else the XDG data folder, checked: it must be its owner's alone. Made with mode
    0700 when it is not there, unless one only looks.
    """
    path = unchecked_home(make=make)
    check_home(path)
    return path


def unchecked_home(*, make: bool = True) -> Path:
    """As `home`, for those who tell what is wrong with it."""
    value = os.environ.get("HEADWAY_HOME", "")
    path = (
        Path(value).expanduser().absolute()
        if value
        else _user_folder("XDG_DATA_HOME", ".local/share") / "headway"
    )
    try:
        if make:
            make_private(path)
    except OSError as error:
        raise UsageError(
            f"the folder for Headway's data, {_short(path)}, cannot be made: {error.strerror}",
            "set HEADWAY_HOME to a folder that you can write",
        ) from None
    if len(os.fsencode(path)) > _DATABASE_PATH_BYTES_MAX - len("/headway.db"):
        _check_length(path)
    return path


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}"


def _check_length(path: Path) -> None:
    """SQLite opens no file with a longer path. The database may lie elsewhere (`database_folder`)."""
    size = len(os.fsencode(Paths(path).db))
    if size > _DATABASE_PATH_BYTES_MAX:
        raise UsageError(
            f"the database of {_short(path)} would have a path of {size} bytes, and SQLite opens at most"
            f" {_DATABASE_PATH_BYTES_MAX}",
            "set HEADWAY_HOME to a folder with a shorter path",
        )


def config_folder() -> Path:
    return _user_folder("XDG_CONFIG_HOME", ".config") / "headway"


def write_private(path: Path, text: str) -> None:
    """Whole under its name or not there; for its owner alone from the first moment."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    fd = os.open(
        partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    # also when we are interrupted: no half file stays
    with UndoOnFailure(partial.unlink, missing_ok=True):
        with os.fdopen(fd, "w") as file:
            file.write(text)
        os.replace(partial, path)


def sync_folder(folder: Path) -> None:
    """Make the names in it durable: a file that was synced is lost if its name is not. Raises
    OSError.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def private_folder(path: Path) -> Path:
    """Make `path` if need be and check that it is a real folder, ours, and closed to everybody
    else.
    """
    try:
        make_private(path.parent)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made: {error.strerror}", "set XDG_RUNTIME_DIR to a folder of yours"
        ) from None
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(
            f"{path} is not a folder of yours",
            "remove it, or set XDG_RUNTIME_DIR to a folder of yours",
        )
    if found.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


def agent_socket_path(home_folder: Path) -> Path:
    """The socket for agents in containers, alone in its folder: that folder is mounted there, and a
    server that is started again makes the socket anew. On it nobody is known by his uid: every
    request needs its task's token.
    """
    path = private_folder(socket_path(home_folder).with_suffix("")) / AGENT_SOCKET
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise UsageError(
            f"the socket path {path} is too long", "set XDG_RUNTIME_DIR to a shorter folder"
        )
    return path


def socket_path(home_folder: Path) -> Path:
    """The server's socket for this home, in a checked private folder, named by a hash of the home."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = (
        runtime
        and os.path.isabs(runtime)
        and os.path.isdir(runtime)
        and os.access(runtime, os.W_OK)
    )
    folder = Path(runtime) / "headway" if usable else _temporary() / f"headway-{os.getuid()}"
    name = hashlib.sha256(os.fsencode(os.path.realpath(home_folder))).hexdigest()[:16] + ".sock"
    if usable and len(os.fsencode(folder / name)) > SOCKET_PATH_BYTES_MAX:
        folder = Path("/tmp") / f"headway-{os.getuid()}"  # noqa: S108  (checked below: ours and 0700)
    try:
        path = private_folder(folder) / name
    except UsageError:
        # somebody else has made that folder, so that we could not: then in the home, if that fits
        path = home_folder / "run" / name
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX - len(".agent.sock"):
            raise
        private_folder(path.parent)
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise UsageError(
            f"the socket path {path} is too long", "set XDG_RUNTIME_DIR to a shorter folder"
        )
    return path

"""A cluster behind ssh: Slurm's commands, the folder and the trays of agents, all through a relay
on the login node.

Made by `place.py` where a cluster has a `host`. Nothing of the cluster needs to be seen from here
but ssh.
"""

import contextlib
import os
import secrets
import shlex
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headway.code.depot import Depot
from headway.engines.protocol import Plan
from headway.engines.slurm.commands import TIMEOUT_S, Commands, failure
from headway.engines.slurm.fetch_outputs import Fetch
from headway.engines.slurm.parse import is_number
from headway.engines.spool import task_folder as folders
from headway.engines.spool.cluster_folder import TaskView
from headway.engines.ssh.relay_client import Relay
from headway.home.paths import Paths
from headway.model.errors import DamagedError, UnreachableError
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import RELAY_PIECE_BYTES
from headway.wire import tray

FOLDER: Final = "~/.headway"
_TRAY_S: Final = 15.0
_CARRIED_S: Final = 60.0  # a snapshot that is there stays so long, whoever tidies up
_TASKS_AT_ONCE: Final = 50
_MARGIN_S: Final = 10.0  # for the way there and back, beyond the time that a command has


class FarCommands(Commands):
    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay

    def run(
        self, argv: Sequence[str], text: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> str:
        told, out = self._relay.call(
            "run",
            (text or "").encode(),
            timeout_s=timeout_s + _MARGIN_S,
            argv=list(argv),
            limit_s=timeout_s,
        )
        code = told.get("code") if isinstance(told, dict) else ""
        if code is not None and not isinstance(code, int):
            raise DamagedError(f"{self._relay.host} answered {argv[0]} with what is no answer")
        if code is None:
            raise UnreachableError(f"{argv[0]} {told.get('why')}", f"on {self._relay.host}")
        said = out.decode(errors="replace")
        if code == 0:
            return said
        raise failure(argv[0], code, str(told.get("err") or "").strip() or said.strip())


@contextlib.contextmanager
def _understood(host: str, what: str) -> Iterator[None]:
    """What comes from there is read as it should be; what cannot be so is damage, and nothing
    follows from it.
    """
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError):
        raise DamagedError(f"{host} answered {what} with what is no answer") from None


class FarShelf:
    """`engines/spool/cluster_folder.py` at the other end. Its answers are data: a login node may be
    somebody else's by now.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._has_looked = False

    def _ask(self, method: str, /, *, in_passing: bool = False, **args: object) -> Any:
        return self._relay.call("shelf", method=method, args=args, in_passing=in_passing)[0]

    def _dict(self, method: str, /, **args: Any) -> JsonObject:
        found = self._ask(method, **args)
        if not isinstance(found, dict):
            raise DamagedError(f"{self._relay.host} answered {method} with what is no answer")
        return found

    def _list(self, method: str, /, *, in_passing: bool = False, **args: object) -> list[Any]:
        found = self._ask(method, in_passing=in_passing, **args)
        if not isinstance(found, list):
            raise DamagedError(f"{self._relay.host} answered {method} with what is no answer")
        return found

    @property
    def home(self) -> str:
        return str(self._relay.hello()["folder"])

    @property
    def spool(self) -> str:
        return str(self._relay.hello()["spool"])

    def make_all(self, tasks: Iterable[tuple[str, JsonMapping, Mapping[str, str]]]) -> None:
        """Some of them at a time: each way there takes its time, and a message has its limit."""
        some: list[tuple[str, JsonObject, dict[str, str]]] = []
        size = 0
        for name, task, env in tasks:
            some.append((name, dict(task), dict(env)))
            size += sum(len(word) + len(value) for word, value in env.items())
            if len(some) >= _TASKS_AT_ONCE or size >= RELAY_PIECE_BYTES:
                self._ask("make_all", tasks=some, outputs=True)
                some, size = [], 0
        if some:
            self._ask("make_all", tasks=some, outputs=True)

    def tasks(self) -> list[str]:
        """Asked now and then by the server, for what was left: no reason to keep a connection, or
        to make one.
        """
        if self._has_looked and not self._relay.is_used:
            return []
        found = [str(name) for name in self._list("tasks", in_passing=True)]
        self._has_looked = True
        return found

    def look(
        self, keys: Sequence[str], whole: bool, outputs: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, TaskView]]:
        found = self._dict("look", keys=list(keys), whole=whole, outputs=dict(outputs or {}))
        with _understood(self._relay.host, "look"):
            return {
                key: {str(name): _view(view) for name, view in found.get(key, {}).items()}
                for key in keys
            }

    def adopt(self, names: Sequence[str], argv: Sequence[str]) -> int:
        told = self._ask("adopt", names=list(names), argv=list(argv))
        with _understood(self._relay.host, "adopt"):
            return int(told)

    def remove(self, names: Sequence[str]) -> None:
        self._ask("remove", names=list(names))

    def remember(self, key: str, job_id: str) -> None:
        self._ask("remember", key=key, job_id=job_id)

    def ids(self) -> dict[str, str]:
        return {
            key: str(number)
            for key, number in self._dict("ids").items()
            if folders.KEY.match(key) and is_number(str(number))
        }

    def id_of(self, key: str) -> str:
        number = str(self._ask("id_of", key=key))
        return number if is_number(number) else ""

    def forget(self, key: str) -> None:
        self._ask("forget", key=key)

    def missing(self, digests: Sequence[str]) -> list[str]:
        wanted = set(_texts(self._list("missing", digests=list(digests))))
        return [digest for digest in digests if digest in wanted]

    def has_code(self, digest: str) -> bool:
        return bool(self._ask("has_code", digest=digest))

    def said(self, name: str) -> str:
        return str(self._ask("said", name=name))

    def note_array(self, key: str, members: Mapping[str, str]) -> None:
        self._ask("note_array", key=key, members=dict(members))

    def arrays(self) -> dict[str, dict[str, str]]:
        found = self._dict("arrays")
        with _understood(self._relay.host, "arrays"):
            return {
                key: {str(index): str(member) for index, member in members.items()}
                for key, members in found.items()
                if folders.KEY.match(key)
            }

    def unfinished(self) -> dict[str, str]:
        return {uuid: str(job) for uuid, job in self._dict("unfinished").items()}

    def collect(self, open_jobs: Sequence[str], dry_run: bool) -> tuple[int, int, int]:
        told = self._list("collect", open_jobs=list(open_jobs), dry_run=dry_run)
        with _understood(self._relay.host, "collect"):
            snapshots, emptied, size = map(int, told)
        return snapshots, emptied, size

    def outputs(self, job: str) -> list[tuple[str, int, int]]:
        found = self._list("outputs", job=job)
        with _understood(self._relay.host, "outputs"):
            files = [(str(path), int(size), int(mtime_ns)) for path, size, mtime_ns in found]
        if any(not 0 <= number < 2**63 for _, *numbers in files for number in numbers):
            raise DamagedError(f"{self._relay.host} tells of files that cannot be")
        return files

    def finish(self, uuid: str) -> None:
        self._ask("finish", uuid=uuid)


class FarTray:
    """`wire/tray.py` at the other end. Asked all the time, so it neither makes a connection nor
    keeps one alive.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.name = f"the tray in {relay.folder} on {relay.host}"

    def _ask(self, method: str, body: bytes = b"", /, **args: object) -> tuple[Any, bytes]:
        return self._relay.call(
            "tray", body, timeout_s=_TRAY_S, in_passing=True, method=method, **args
        )

    def make(self) -> str:
        return str(self._ask("make")[0])

    def waiting(self) -> list[str]:
        try:
            found = self._ask("waiting")[0] if self._relay.is_used else []
        except FileNotFoundError:
            return []  # no job has needed it yet
        return [name for name in _texts(found) if tray.task_of(name) is not None]

    def read(self, name: str) -> tray.Request | None:
        told, body = self._ask("read", file=name)
        task = tray.task_of(name)
        if told is None or task is None:
            return None
        path = told.get("path") if isinstance(told, dict) else None
        if not isinstance(path, str) or len(path) > tray.PATH_CHARS_MAX:
            raise DamagedError(f"{name} is not a request")
        return tray.Request(name, task, path, body)

    def reply(self, name: str, status: int, body: bytes) -> None:
        self._ask("reply", body, file=name, status=status)

    def leftovers(self) -> list[str]:
        return _texts(self._ask("leftovers")[0]) if self._relay.is_used else []

    def remove(self, path: str) -> None:
        self._ask("remove", path=path)


def _texts(found: object) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _view(told: Any) -> TaskView:
    """Raises TypeError or ValueError for what is none."""
    view = TaskView(*told)
    numbers = (view.grace_s, view.made_s, view.sign_s)
    if not all(isinstance(number, int | float) for number in numbers) or not all(
        number is None or isinstance(number, int) for number in (view.pid, view.start)
    ):
        raise ValueError("a number is none")
    return view._replace(mark=str(view.mark), job=str(view.job))


class Far:
    """The place itself."""

    def __init__(self, paths: Paths, options: JsonMapping, relay: Relay | None = None) -> None:
        self._paths, self._python = paths, options.get("python")
        self._relay = relay or _relay_for(
            options["host"], options.get("folder") or FOLDER, _own(paths), self._python
        )
        self.commands, self.shelf, self.tray = (
            FarCommands(self._relay),
            FarShelf(self._relay),
            FarTray(self._relay),
        )
        self._tray_of: int | None = None  # pid of the relay that has made it
        self._carried: tuple[str, float] = ("", 0.0)
        self._fetch = Fetch(paths, self._relay, self.shelf)

    def agent(self) -> list[str]:
        hello = self._relay.hello()
        return [self._python or hello["python"], "-I", "-S", hello["zip"]]

    def check(self) -> None:
        self._relay.hello()

    def trouble(self) -> str:
        return self._relay.trouble()

    def attach(self, argv: Sequence[str]) -> list[str]:
        return ["ssh", "-t", "--", self._relay.host, shlex.join(argv)]

    def task_fields(self, plan: Plan) -> JsonObject:
        """Below the job's own environment lies that of its node; without a snapshot it runs in the
        person's home there, since the folder here is not there.
        """
        self._fetch.expect(plan.uuid, plan.job)
        cwd = {} if plan.code is not None else {"cwd": self._relay.hello()["home"]}
        return {
            "home": self.shelf.home, "socket": "", "tls": None, "tray": self._tray_folder(), "inherit_env": True, **cwd,
            "output_dir": f"{self.shelf.home}/output/{plan.job}",
        }  # fmt: skip

    def _tray_folder(self) -> str:
        """Made once per connection: a new one may lead to a folder that somebody has emptied."""
        hello = self._relay.hello()
        if self._tray_of != hello["pid"]:
            self.tray.make()
            self._tray_of = hello["pid"]
        return str(hello["tray"])

    def user(self, uid: int) -> str:
        """Names of users there are not known here."""
        return "you" if uid == self.uid else f"uid {uid}"

    @property
    def uid(self) -> int:
        return int(self._relay.hello()["uid"])

    def readdress(self, tls: JsonMapping | None) -> int:
        """Agents there have one way, which stays where it is."""
        return 0

    @property
    def is_apart(self) -> bool:
        return True

    def close(self) -> None:
        self._relay.close()

    # -- code goes there

    def carry(self, plan: Plan) -> None:
        digest, until_s = self._carried
        if plan.code is None or (digest == plan.code and time.monotonic() < until_s):
            return  # the jobs of an array share one
        if not self.shelf.has_code(plan.code):
            self._carry(plan.code)
        self._carried = (plan.code, time.monotonic() + _CARRIED_S)

    def _carry(self, digest: str) -> None:
        depot = Depot(self._paths.home / "code")
        try:
            lacking = self.shelf.missing([entry.digest for entry in depot.manifest(digest)])
            draft = None
            if lacking:
                with tempfile.TemporaryDirectory(prefix="headway-") as folder:
                    pack = Path(folder) / "pack"
                    depot.write_pack(lacking, pack)
                    draft = self._send(pack)
            self._relay.call("take_code", depot.manifest_bytes(digest), draft=draft, digest=digest)
        finally:
            depot.close()

    def _send(self, path: Path) -> str:
        """A file, in pieces; the name of the draft that it has become there."""
        draft, offset = secrets.token_hex(16), 0
        with path.open("rb") as file:
            while piece := file.read(RELAY_PIECE_BYTES):
                offset = self._relay.call("put", piece, draft=draft, offset=offset)[0]
        return draft

    # -- outputs come back

    def finish(self, key: str) -> bool:
        return self._fetch.is_done(key)


_relays: dict[tuple[str, str, str, str | None], Relay] = {}
_making: Final = threading.Lock()


def _relay_for(host: str, folder: str, home: str, python: str | None) -> Relay:
    """One connection to a folder of a host, however many engines ask: `hw clusters` makes one for a
    look.
    """
    with _making:
        found = _relays.get((host, folder, home, python))
        if found is None or found.is_closed:
            found = _relays[host, folder, home, python] = Relay(host, folder, home, python)
        return found


def _own(paths: Paths) -> str:
    """What this home is called on clusters. Drawn once: two machines may have their homes under one
    path.
    """
    path = paths.home / "clusters" / "name"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".name-{secrets.token_hex(4)}")
        draft.write_text(secrets.token_hex(8))
        # another thread was first; nobody ever sees it without its words
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text().strip()

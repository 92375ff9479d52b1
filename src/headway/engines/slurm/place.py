"""Where Slurm's commands run and files lie: here, or on a login node over ssh. Called by the engine
alone.

A place has `commands` (run one, with a time limit) and a `shelf` (the cluster's folder,
`engines/spool/cluster_folder.py`), and knows how a task there reaches its home, its code and the
server.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from headway.code.depot import Depot
from headway.engines.protocol import AnyBox, Plan
from headway.engines.slurm import job_details
from headway.engines.slurm.commands import Commands, ShellCommands
from headway.engines.slurm.place_ssh import Far
from headway.engines.spool import task_folder as folders
from headway.engines.spool.cluster_folder import Shelf, TaskView
from headway.home.paths import Paths, socket_path
from headway.model.errors import RefusedError
from headway.model.json_types import JsonMapping, JsonObject
from headway.wire import sealed_json, tray

_LOOK_S: Final = 1.0


class AnyShelf(Protocol):
    """`engines/spool/cluster_folder.py`, here or far away. Raises OSError; UnreachableError where
    nothing is known.
    """

    @property
    def home(self) -> str: ...
    @property
    def spool(self) -> str: ...
    def make_all(self, tasks: Iterable[tuple[str, JsonMapping, Mapping[str, str]]]) -> None: ...
    def tasks(self) -> list[str]: ...
    def look(
        self, keys: Sequence[str], whole: bool, outputs: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, TaskView]]: ...
    def adopt(self, names: Sequence[str], argv: Sequence[str]) -> int: ...
    def remove(self, names: Sequence[str]) -> None: ...
    def remember(self, key: str, job_id: str) -> None: ...
    def ids(self) -> dict[str, str]: ...
    def id_of(self, key: str) -> str: ...
    def forget(self, key: str) -> None: ...
    def said(self, name: str) -> str: ...
    def note_array(self, key: str, members: Mapping[str, str]) -> None: ...
    def arrays(self) -> dict[str, dict[str, str]]: ...
    def collect(self, open_jobs: Sequence[str], dry_run: bool) -> tuple[int, int, int]: ...


class Place(Protocol):
    @property
    def commands(self) -> Commands: ...
    @property
    def shelf(self) -> AnyShelf: ...

    def agent(self) -> list[str]:
        """argv of the agent on a node, up to its verb."""

    def carry(self, plan: Plan) -> None:
        """Bring the snapshot that the job runs from; only content that is new travels. Raises
        OSError.
        """

    def task_fields(self, plan: Plan) -> JsonObject:
        """`home`, `socket`, `output_dir` and what else a task file has otherwise there."""

    @property
    def tray(self) -> Path | AnyBox | None:
        """Where requests lie as files."""

    def readdress(self, tls: JsonMapping | None) -> int:
        """Write the server's present address and pin into the task files; how many were changed."""

    def attach(self, argv: Sequence[str]) -> list[str]:
        """What a person types here to run this there, in his terminal."""

    @property
    def uid(self) -> int:
        """Ours there."""

    def user(self, uid: int) -> str:
        """Who that is."""

    def check(self) -> None:
        """UnreachableError when it is known that nothing is reached now."""

    def trouble(self) -> str:
        """Why and since when it is not reached, in words; empty while it is."""

    def finish(self, key: str) -> bool:
        """The attempt is over and all of it is sent: outputs come back, its code goes. Does not
        wait for that; False: it is not done, and has to be asked for again.
        """

    @property
    def is_apart(self) -> bool:
        """Whether code and data lie elsewhere than in the home, whose own the server looks after."""

    def close(self) -> None: ...


class Here:
    """Slurm's commands are on this machine, and the folder is seen from it under the same path as
    from the nodes.
    """

    def __init__(
        self,
        cluster: str,
        paths: Paths,
        options: JsonMapping,
        argv: Callable[..., list[str]],
        commands: Commands | None,
    ) -> None:
        folder = os.path.expanduser(options["folder"]) if options.get("folder") else None
        self.commands = commands or ShellCommands()
        home = Path(folder) if folder else paths.home
        self.shelf = Shelf(
            home, Path(folder) / "spool" if folder else paths.home / "clusters" / cluster / "spool"
        )
        self._paths, self._python, self._argv = paths, options.get("python"), argv
        # a folder may be shared by several homes
        own = hashlib.sha256(os.fsencode(paths.home)).hexdigest()[:16]
        self._socket, self._look_again_s = "", -_LOOK_S
        self.tray: Path | None = Path(self.shelf.spool).parent / "trays" / own

    def agent(self) -> list[str]:
        argv = self._argv("shim", "")[:-2]
        return [self._python, *argv[1:]] if self._python else argv

    def carry(self, plan: Plan) -> None:
        if plan.code is None or not self.is_apart or self.shelf.has_code(plan.code):
            return
        depot = Depot(self._paths.home / "code")
        try:
            lacking = self.shelf.missing(entry.digest for entry in depot.manifest(plan.code))
            with tempfile.TemporaryDirectory(prefix="headway-") as folder:
                pack = Path(folder) / "pack"
                if lacking:
                    depot.write_pack(lacking, pack)
                self.shelf.take_code(
                    pack if lacking else None, depot.manifest_bytes(plan.code), plan.code
                )
        finally:
            depot.close()

    def task_fields(self, plan: Plan) -> JsonObject:
        now_s = time.monotonic()
        # at both as often as somebody may have changed them, not for each of many jobs
        if now_s >= self._look_again_s:
            self._socket = str(socket_path(self._paths.home))
            try:
                tray.make(str(self.tray))
            except tray.ForeignError as error:
                raise RefusedError(
                    error.message, f"make it yours alone: chmod 700 {self.tray}"
                ) from None
            self._look_again_s = now_s + _LOOK_S
        return {
            "home": self.shelf.home, "socket": self._socket, "output_dir": self._output(plan), "tray": str(self.tray)
        }  # fmt: skip

    def readdress(self, tls: JsonMapping | None) -> int:
        """Agents read their task file again when a way to the server fails."""
        changed = 0
        for path in Path(self.shelf.spool).glob("*-*/task.json"):
            told = folders.load_json(path)
            if told is None or told.get("tray") != str(self.tray) or told.get("tls") == tls:
                continue
            draft = path.with_name(f".task-{os.getpid()}.tmp")
            try:
                draft.touch(0o600)
                draft.write_bytes(sealed_json.encode({**told, "tls": dict(tls) if tls else None}))
                made = path.stat()  # its time is when the task was submitted
                os.utime(draft, ns=(made.st_atime_ns, made.st_mtime_ns))
                os.replace(draft, path)
                changed += 1
            except OSError:
                # its agent has other ways, and the next server tries again
                draft.unlink(missing_ok=True)
        return changed

    def _output(self, plan: Plan) -> str:
        """In the cluster's folder; a link in the home leads to it."""
        path = self.shelf.make_output(plan.job)
        link = self._paths.output / plan.job
        if not os.path.lexists(link):
            self._paths.output.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.symlink(path, link)
        return path

    def attach(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    @property
    def uid(self) -> int:
        return os.getuid()

    def user(self, uid: int) -> str:
        return job_details.user(uid)

    def check(self) -> None:
        return

    def trouble(self) -> str:
        return ""

    def finish(self, key: str) -> bool:
        """Outputs are here already. Code in the home goes by the server's own hand."""
        if self.is_apart:
            self.shelf.finish(key.rpartition("-")[0])
        return True

    @property
    def is_apart(self) -> bool:
        return self.shelf.home != str(self._paths.home)

    def close(self) -> None:
        self.shelf.close()


def place_for(
    cluster: str,
    paths: Paths,
    options: JsonMapping,
    argv: Callable[..., list[str]],
    commands: Commands | None,
) -> Place:
    if options.get("host"):
        return Far(paths, options)
    return Here(cluster, paths, options, argv, commands)

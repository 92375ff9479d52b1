"""The narrow protocol between the server and whatever runs tasks. Called by
`server/control/loop.py` alone.

Every call may block and may hang: the server calls it from a thread and gives up after a time.
Every call may be repeated. An engine never guesses: what it cannot see is `unknown`, and its own
words are kept beside ours.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NewType, Protocol, runtime_checkable

from headway.model.errors import HeadwayError
from headway.model.folder_names import variable
from headway.model.job import Folder, Job
from headway.model.json_types import JsonMapping
from headway.storage.location import LOCAL, parse
from headway.wire import tray
from headway.wire.batch import TaskKey

EngineId = NewType("EngineId", str)

# starting  accepted; nothing of it runs yet (a scheduler's queue counts as that)
# running   at least its agent runs
# ended     over, and what it had to say is on its way or has been said
# gone      the engine is sure that nothing of it runs, and its end may not have been told
# unknown   the engine could not be asked, or its answer could not be understood
ObservedState = Literal["starting", "running", "ended", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One instance of a role: it runs on one node and has one agent."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    processes: int
    first_rank: int = 0
    gpus: int = 0
    node: str | None = None  # None: the engine chooses
    role: str = "worker"
    role_index: int = 0  # which instance of its role
    role_first_rank: int = 0  # of its first process, counted within the role
    role_processes: int = 1  # of all instances of the role
    node_rank: int = 0  # which task of the job
    cpus: int | None = None
    memory_bytes: int | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What would run, completely, but for what may not be printed (`Given`)."""

    engine: str
    cluster: str
    job: str  # id for people
    uuid: str
    attempt: int
    tasks: tuple[PlannedTask, ...]
    world_size: int
    cpus: int | None = None
    memory_bytes: int | None = None
    max_duration_s: float | None = None
    monitoring_interval_s: float = 0.0
    grace_s: float = 15.0
    hold_s: float = 0.0  # how long a task is kept after its command has failed
    pty: bool = False  # stdout and stderr of its processes are terminals
    stdin: Mapping[str, int] | None = None  # {pid, start} of the `hw run` whose stdin it gets
    ranked: bool = True  # its processes get RANK, LOCAL_RANK, WORLD_SIZE, MASTER_*, …
    umask: int = 0o022
    rlimits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # variables that the person set for this job: they win over ours where they may
    env_set: Sequence[str] = ()
    code: str | None = None  # digest of the snapshot that its tasks run from; None: in `cwd` itself
    code_cwd: str = ""  # the working folder inside it
    code_commit: str | None = None
    image: str | None = None  # for engines with containers
    folders: Sequence[Folder] = ()  # that each task finds below its working folder
    options: JsonMapping = field(default_factory=dict)  # of the engine: partition, account, …
    script: str | None = None  # what the scheduler gets, where it gets a script

    @property
    def gpus(self) -> int:
        return sum(task.gpus for task in self.tasks)

    def task_key(self, name: str) -> TaskKey:
        return TaskKey(self.uuid, self.attempt, name)

    def describe(self) -> str:
        """Exactly what would run, for `--dry-run`."""
        lines = [
            f"engine {self.engine}, cluster {self.cluster}, job {self.job}, attempt {self.attempt}"
        ]
        for task in self.tasks:
            ranks = f"rank {task.first_rank}" if task.processes == 1 else f"ranks {_ranks(task)}"
            world = (
                f" of {self.world_size}"
                if task.first_rank < self.world_size
                else ", outside the world"
            )
            own = "" if len(self.tasks) == 1 else _own(task, self.image)
            gpus = f"{task.gpus} GPU{'' if task.gpus == 1 else 's'}"
            lines.append(f"{task.name}: {ranks}{world}, {gpus}{own}, on {task.node or 'any node'}")
            where = (
                shlex.quote(task.cwd)
                if self.code is None
                else f"SNAPSHOT/{shlex.quote(self.code_cwd or '.')}"
            )
            lines += [f"  cd {where}", f"  {shlex.join(task.argv)}"]
        lines += [_folder_words(folder, self.engine) for folder in self.folders]
        asked: dict[str, object] = {
            "image": self.image,
            "cpus": self.cpus,
            "memory_bytes": self.memory_bytes,
        }
        asked["max_duration_s"] = self.max_duration_s
        asked["monitoring_interval_s"] = self.monitoring_interval_s or None
        asked["hold_s"] = self.hold_s or None
        asked["pty"] = self.pty or None
        named = {**asked, "code": self.code, "grace_s": self.grace_s, "umask": f"{self.umask:04o}"}
        lines.append(
            " ".join(f"{name}={value}" for name, value in named.items() if value is not None)
        )
        return "\n".join(lines if self.script is None else [*lines, "", self.script.rstrip()])


def _own(task: PlannedTask, common: str | None) -> str:
    """What this task has for itself."""
    image = task.image if common is None else None
    named = {"cpus": task.cpus, "memory_bytes": task.memory_bytes, "image": image}
    return "".join(f", {name}={value}" for name, value in named.items() if value is not None)


_READ_ONLY = "read only"
_LINKED = "to be read only: a link, and the job may there what its account may"


def _folder_words(folder: Folder, engine: str) -> str:
    """`folder ./data from az://datasets/voc20 (account eastblob), read only, as
    HEADWAY_FOLDER_DATA`.
    """
    words = f"folder ./{folder.name}"
    if folder.source:
        words += f" from {folder.source}"
    if folder.target:
        words += f" to {folder.target}"
    if folder.account:
        words += f" (account {folder.account})"
    if folder.mode == "ro":
        is_link = False
        if folder.source is not None and not folder.mount:
            is_link = parse(folder.source).kind == LOCAL
        is_enforced = not is_link or engine in ("docker", "podman")
        words += f", {_READ_ONLY if is_enforced else _LINKED}"
    if folder.mount:
        words += f", mounted with {shlex.join([folder.mount, *folder.options])}"
    return f"{words}, as {variable(folder.name)}"


def _ranks(task: PlannedTask) -> str:
    return f"{task.first_rank}-{task.first_rank + task.processes - 1}"


@dataclass(frozen=True, slots=True)
class Given:
    """What a task gets that is never printed, logged or stored with the job."""

    env: Mapping[str, str] = field(repr=False)
    tokens: Mapping[str, str] = field(repr=False)  # task name -> its ingest token
    # variables whose values are masked, whatever their names look like
    secret_names: Sequence[str] = ()
    # {addresses, pin, host}: where other machines reach the server; None: nowhere
    tls: JsonMapping | None = None
    # of its folders, with keys
    accounts: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Start:
    """One attempt of many that are started together."""

    plan: Plan
    key: str
    given: Given
    array: str | None = None  # of its job
    index: int | None = None  # which job of the array


@dataclass(frozen=True, slots=True)
class Observation:
    """What an engine says of one attempt, all tasks of it joined.

    `detail` may hold: `started` (False: the engine is sure that nothing of it ever ran),
    `unstarted` (names of tasks that never began while others did: `submit` with the same key would
    start them), `salvage` (True: nobody sends what is left of it, `Salvager.salvage` would),
    `silence_s` (only after so long without a word of its agents), `drained` (True: it has ended and
    all of it has been sent), `attached` (True: it was not started by us, so it may even be unknown
    to the store), `nodes` (where it runs, as the engine writes it), `end` ({cause, class, text,
    nodes, rank}: how the scheduler says it ended, for an agent that could not).
    """

    state: ObservedState
    state_word: str  # the engine's own word, kept and shown
    detail: JsonMapping = field(default_factory=dict)


UNSEEN = Observation("unknown", "not asked")


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a cluster: what it has in all. None: not known, so not counted."""

    name: str
    cpus: int | None
    memory_bytes: int | None
    gpus: int
    gpu_source: str = ""  # where the number of GPUs comes from: "nvml", "setting", "none found", …
    state_word: str = "up"
    # None: the engine does not count; then the server counts what its jobs hold
    free_cpus: int | None = None
    free_memory_bytes: int | None = None
    free_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job has not started."""

    reason: str
    ahead: tuple[str, ...] = ()  # ids of jobs that go first
    free: tuple[Node, ...] = ()
    sooner: tuple[str, ...] = ()  # changes of the request that would start now
    needs: str = ""  # what it asks for, as the engine understands it
    fit: str = ""  # why what is free does not fit together
    # with the value that is allowed, the one asked for, and where that is written
    limits: tuple[str, ...] = ()
    start: str = ""  # the forecast, and where it comes from
    start_ns: int | None = None  # the same as a moment; None: there is none
    ahead_words: tuple[str, ...] = ()  # the same jobs as `ahead`, with what they ask for
    # one of `resources queue limit dependency pause held never unreachable starting`
    cause: str = "queue"


class Engine(Protocol):
    """One configured cluster."""

    name: str  # of the engine: "local", "slurm"
    cluster: str
    queues: bool  # True: it has a queue of its own, so the server hands over every job at once

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        """Pure. Raises RefusedError, naming the resource, for what can never fit; UsageError for
        nonsense.
        """

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        """Start it, or adopt what the same key has started before: never a second start (F23, F24).

        RefusedError: it will never start. UnreachableError: it may start later, or may even have
        started.
        """

    def find(self, key: str) -> EngineId | None:
        """What an earlier `submit` with this key made, even if its answer was lost.
        UnreachableError: cannot tell.
        """

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        """One call for all. An id that is missing from the answer was not seen."""

    def cancel(self, engine_id: EngineId) -> bool:
        """Ask it to stop, gracefully; may be repeated. False: the engine has nothing that it could
        ask.
        """

    def explain(self, engine_id: EngineId) -> Waiting: ...

    def capacity(self) -> list[Node]: ...

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        """argv that opens a shell beside the task, or None where there is no need for one. `node`:
        where it runs.
        """

    def close(self) -> None:
        """The server ends; what runs goes on."""


@runtime_checkable
class Together(Protocol):
    """An engine that starts or stops many attempts with fewer calls than one for each."""

    def plan(self, job: Job, attempt: int = 1) -> Plan: ...

    def submit_many(self, starts: Sequence[Start]) -> dict[str, EngineId | HeadwayError]:
        """By key, what `submit` would have given or raised. May be called again while an earlier
        call goes on.
        """

    def find(self, key: str) -> EngineId | None: ...

    def cancel_many(self, ids: Sequence[EngineId]) -> list[EngineId]:
        """Those of them that could be told to stop in one go: nothing of them runs yet. `cancel`
        does the others.
        """


@runtime_checkable
class Unhurried(Protocol):
    """An engine that is not worth a look more often than it asks its scheduler."""

    def due_s(self) -> float:
        """How long until it asks again."""


@runtime_checkable
class Queue(Protocol):
    """An engine whose queue and nodes have other people's jobs, too."""

    def capacity_now(self) -> list[Node]:
        """What is free at this moment, for `hw clusters`; `capacity`, for planning, may be some
        time old.
        """

    def queue_words(self) -> str:
        """How many run and wait there, for `hw clusters`."""


@runtime_checkable
class Scripted(Protocol):
    """An engine whose program gets words that the plan does not have, which `--dry-run` shows
    beside it.
    """

    def script(self, plan: Plan) -> str:
        """What would be typed, a line for each. What only the start decides (cards, links) is not
        in it.
        """


@runtime_checkable
class Salvager(Protocol):
    """An engine whose spools lie on this machine, so that what a dead agent left can be sent for
    it.
    """

    def salvage(self, engine_id: EngineId) -> bool:
        """Start a shipper for a task whose agent is gone while something of it is unsent. False:
        nothing to do.
        """

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        """Every task that has a spool here, whatever became of its job."""

    def discard(self, engine_id: EngineId) -> None:
        """Remove the spool of a task that has ended; does nothing while something still runs there."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What was removed for want of anybody who needs it, or would be."""

    snapshots: int  # of code
    folders: int  # data that was fetched
    bytes: int


@runtime_checkable
class Storer(Protocol):
    """An engine that keeps code and data of jobs in a folder of its own, which other homes may use,
    too.
    """

    def collect(self, open_jobs: Sequence[str], *, dry_run: bool) -> Freed | None:
        """Remove there what no job needs. `open_jobs`: uuids of ours. None: it has no such folder."""


class AnyBox(Protocol):
    """A tray as the server uses it: `wire.tray.Box`, or the same behind ssh. UnreachableError:
    nothing is known now.
    """

    name: str  # for people

    def waiting(self) -> list[str]: ...
    def read(self, name: str) -> tray.Request | None: ...
    def reply(self, name: str, status: int, body: bytes) -> None: ...
    def leftovers(self) -> list[str]: ...
    def remove(self, path: str) -> None: ...


@runtime_checkable
class Distant(Protocol):
    """An engine whose tasks may run on other machines, so that their agents get more than one way
    to the server.
    """

    @property
    def tray(self) -> Path | AnyBox | None:
        """Where requests lie as files (`wire/tray.py`); None: nowhere that can be seen from here."""

    def readdress(self, tls: JsonMapping | None) -> int:
        """The server's address or certificate is another one now: write it into the task files; how
        many changed.
        """


def has_route(engine: Engine | Together) -> bool:
    """Whether its tasks may reach this server over the network. Those of a cluster behind ssh are
    not asked to: whoever comes from a laptop opens no port.
    """
    return isinstance(engine, Distant) and isinstance(engine.tray, Path)

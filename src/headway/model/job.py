"""A job, its attempts, tasks and processes; their states and which state may follow which.

Times are nanoseconds since the epoch, UTC, named `*_ns`; None means unknown or not yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from headway.model.data_folder import Folder as Folder
from headway.model.json_types import JsonMapping, JsonObject

T = TypeVar("T")


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    HELD = "held"
    UNKNOWN = "unknown"


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED})

# A terminal state never changes. `unknown` may turn into anything that is then heard of.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.WAITING: frozenset(
        {
            State.RUNNING,
            State.STOPPING,
            State.STOPPED,
            State.FAILED,
            State.SUCCEEDED,
            State.HELD,
            State.UNKNOWN,
        }
    ),
    State.RUNNING: frozenset(
        {
            State.STOPPING,
            State.SUCCEEDED,
            State.FAILED,
            State.STOPPED,
            State.HELD,
            State.UNKNOWN,
            State.WAITING,
        }
    ),
    State.STOPPING: frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED, State.UNKNOWN}),
    State.HELD: frozenset({State.FAILED, State.STOPPING, State.STOPPED, State.UNKNOWN}),
    State.UNKNOWN: frozenset(
        {
            State.WAITING,
            State.RUNNING,
            State.STOPPING,
            State.SUCCEEDED,
            State.FAILED,
            State.STOPPED,
            State.HELD,
        }
    ),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.STOPPED: frozenset(),
}


def may_follow(old: State, new: State) -> bool:
    return new in TRANSITIONS[old]


@dataclass(slots=True)
class Role:
    """One kind of task in a job: `instances` tasks named `<name>-0`, `<name>-1`, …"""

    name: str
    command: list[str]
    instances: int = 1
    processes: int = 1  # in each instance
    gpus: int = 0  # for each instance
    cpus: int | None = None  # for each instance
    memory_bytes: int | None = None  # for each instance
    image: str | None = None  # None: the job's
    # all: the job waits for every instance; any: for one; none: a helper, stopped when the others
    # are done
    completion: str = "all"
    # so many failed instances fail the job; None: all: 1, any: every one, none: never
    min_failed: int | None = None
    # so many succeeded ones are enough; None: all: every one, any: 1
    min_succeeded: int | None = None


_PLACES_MAX = 256
_places: dict[str, str] = {}


def _place(cluster: str, definition: JsonMapping) -> str:
    import hashlib
    import json

    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return f"{cluster}@{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


@dataclass(slots=True)
class Retry:
    """How often a failed job is tried again. The table of which failure counts is in
    `server/control/retry.py`.
    """

    max: int = 0  # counted tries beyond the first; transient failures do not count
    total_max: int = 100  # tries beyond the first in all, counted or not
    backoff_s: float = 10.0  # before the second try; doubles, with jitter
    backoff_max_s: float = 600.0
    on: str = "cause"  # which failures: those whose cause is worth it, or `any`


class _Placed:
    """Room beside the fields of a JobSpec: where it runs is asked for every job in every look."""

    __slots__ = ("_known",)

    def _remembered(self, cluster: str, definition: JsonObject, find: Callable[[], str]) -> str:
        """The place, found once as long as these two are the same."""
        known: tuple[str, JsonObject, str] | None = getattr(self, "_known", None)
        if known is None or known[0] is not cluster or known[1] is not definition:
            known = self._known = (cluster, definition, find())
        return known[2]


@dataclass(slots=True)
class JobSpec(_Placed):
    """What a person asked for. Stored as JSON with the job; never holds the environment but for
    `env_kept`.
    """

    command: list[str]  # as it may be shown: secrets in it are masked
    cwd: str
    name: str
    experiment: str | None = None
    cluster: str = "here"
    # of the cluster, when it was submitted; empty: built in
    definition: JsonObject = field(default_factory=dict)
    processes: int = 1  # -n: GPUs with one process each, or processes where there are no GPUs
    gpus: int = 0  # filled in by the engine's plan
    cpus: int | None = None
    memory_bytes: int | None = None
    max_duration_s: float | None = None
    grace_s: float = 15.0
    monitoring_interval_s: float = 0.0  # between two samples of usage; 0: none
    priority: int = 0
    tags: list[str] = field(default_factory=list)
    env_set: list[str] = field(default_factory=list)  # names given by --env or the job file
    # their values, but for secrets: a resubmission has them too
    env_kept: dict[str, str] = field(default_factory=dict)
    # variables whose values are secret, whatever their names
    secret_names: list[str] = field(default_factory=list)
    umask: int = 0o022
    rlimits: dict[str, list[int]] = field(default_factory=dict)
    parent: str | None = None  # id of the job this one was resubmitted from
    user: str = ""
    host: str = ""
    # the command held secrets; the words as given rest with the environment until the end
    masked: bool = False
    attached: bool = False  # started by plain `python train.py`: we watch it, we did not start it
    nodes: int = 1  # machines that the processes are spread over, evenly
    gpu_per_node: int | None = None  # None: the cluster's own
    # one process per GPU; False: one process per node that sees all its GPUs
    multi_process: bool = True
    # who starts the processes: None: nobody, the command runs as it would without Headway;
    # "ranks": the agent, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_*; "mpirun": the real mpirun
    launcher: str | None = None
    # empty: one role `worker` made of the fields above
    roles: list[Role] = field(default_factory=list)
    image: str | None = None  # for engines with containers
    # of the engine: partition, account, network, …
    options: JsonObject = field(default_factory=dict)
    # what `{{ name }}` in the command was filled with
    parameters: JsonObject = field(default_factory=dict)
    folders: list[Folder] = field(default_factory=list)
    code: str | None = None  # digest of the snapshot that it runs from; None: it runs in place
    code_cwd: str = ""  # its working folder inside the snapshot
    # git's commit that the snapshot was made from; "+" at its end: with changes
    code_commit: str | None = None
    retry: Retry = field(default_factory=Retry)
    hold_s: float = 0.0  # how long a failed task is kept for a person to enter it
    # what a hang is answered with: notify, stacks, restart (a new attempt) or stop
    on_hang: str = "notify"
    pty: bool = False  # stdout and stderr of its processes are terminals
    # {pid, start} of the `hw run` whose piped stdin the first process gets; None: it is empty
    stdin: dict[str, int] | None = None
    one_node: bool = False  # `nodes: 1` was asked for by name: it is not spread over several
    reserved: bool = False  # it only holds its nodes, for a person's shell (`hw submit ssh`)
    after: list[str] = field(default_factory=list)  # uuids of jobs that must have succeeded before
    smoke: bool = False
    array: str | None = None  # uuid shared by the jobs of one array or sweep
    array_index: int | None = None
    monitor: str | None = None  # address of the server on another machine that shows this job too
    # on that server: the name of the token of the machine that the job belongs to
    guest_of: str | None = None

    @property
    def ranked(self) -> bool:
        """Whether its processes get the variables of a launcher. Specs stored before `launcher`
        existed have None and several processes.
        """
        if self.launcher is not None:
            return self.launcher == "ranks"
        return self.processes > 1 or self.nodes > 1 or bool(self.roles)

    @property
    def place(self) -> str:
        """Where it runs, apart from another cluster of the same name: two projects may define one
        name differently.
        """
        if not self.definition:
            return self.cluster
        return self._remembered(self.cluster, self.definition, self._find_place)

    def _find_place(self) -> str:
        key = f"{self.cluster} {self.definition!r}"
        found = _places.get(key)
        if found is None:
            if len(_places) >= _PLACES_MAX:
                _places.clear()
            found = _places[key] = _place(self.cluster, self.definition)
        return found

    @classmethod
    def from_values(cls, values: JsonMapping) -> "JobSpec":
        """From plain values, as JSON has them. TypeError for a name that no field has."""
        plain = dict(values)
        plain["roles"] = [_made(Role, role) for role in plain.get("roles") or []]
        plain["folders"] = [_made(Folder, folder) for folder in plain.get("folders") or []]
        plain["retry"] = _made(Retry, plain.get("retry") or {})
        return cls(**plain)


def _made(kind: type[T], given: Any) -> T:
    return given if isinstance(given, kind) else kind(**given)


@dataclass(slots=True)
class Process:
    rank: int
    local_rank: int
    pid: int | None
    state: str  # "running" | "exited" | "lost" | "not started"
    exit_code: int | None = None
    signal: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    reason: str | None = None  # why we ended it: "rank 2 failed", "stop", "walltime"
    exception: JsonObject | None = None  # the first uncaught exception it told of


@dataclass(slots=True)
class Task:
    name: str
    node: str | None
    state: str  # "starting" | "running" | "ended" | "lost"
    heard_ns: int | None = None
    result: JsonObject | None = None  # the `task_ended` fact, once it has come
    processes: list[Process] = field(default_factory=list)
    agent: JsonObject | None = None  # of its `task_started` fact: pid, version, address, ports
    # the `task_held` fact: its command failed, and the task is kept
    held: JsonObject | None = None


@dataclass(slots=True)
class Attempt:
    number: int
    state: State
    key: str  # the engine's idempotency key
    engine_id: str | None = None
    engine_word: str | None = None  # the engine's own word for the state
    cause: JsonObject | None = None
    exit_code: int | None = None
    signal: int | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    # what follows its failure: {do, counted, text, wait_s, not_before_ns}
    retry: JsonObject | None = None
    tasks: list[Task] = field(default_factory=list)
    # of its diagnosis: {verdict findings hypotheses fingerprint}
    findings: JsonObject | None = None


def count_retries(attempts: Sequence[Attempt]) -> tuple[int, int]:
    """(tries beyond the first that were decided on, those of them that were counted)."""
    taken = [a.retry for a in attempts if a.retry is not None and a.retry.get("do") != "no"]
    return len(taken), sum(1 for retry in taken if retry.get("counted"))


@dataclass(slots=True)
class Job:
    pk: int
    id: str
    uuid: str
    spec: JobSpec
    state: State
    state_since_ns: int
    submitted_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    stop_requested_ns: int | None = None
    # it is to end by this signal, however long that takes; None: by its engine
    stop_signal: int | None = None
    tags: list[str] = field(default_factory=list)
    # what people said of it afterwards: `hw rename`, `hw star`, `hw bug`, `hw describe`
    name: str = ""
    star: bool = False
    bug: bool = False
    description: str = ""
    config: JsonObject | None = None
    cause: JsonObject | None = None  # of an end that no attempt had
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def between_tries(self) -> bool:
        """Its last attempt is over, and another one is to come."""
        return self.ended_ns is None and bool(self.attempts) and self.attempts[-1].state in ENDED

    def avoided(self) -> list[str]:
        """Nodes that its next attempt shall not run on, by what became of the earlier ones."""
        found: set[str] = set()
        for attempt in self.attempts:
            if attempt.retry is not None and attempt.retry.get("do") == "other_node":
                found.update(
                    attempt.retry.get("nodes") or (task.node for task in attempt.tasks if task.node)
                )
        return sorted(found)

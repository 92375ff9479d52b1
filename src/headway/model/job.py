"""A job, its attempts, tasks and processes; their states and which state may follow which.

Times are nanoseconds since the epoch, UTC, named `*_ns`; None means unknown or not yet.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
        {State.RUNNING, State.STOPPING, State.STOPPED, State.FAILED, State.SUCCEEDED, State.UNKNOWN}
    ),
    State.RUNNING: frozenset(
        {State.STOPPING, State.SUCCEEDED, State.FAILED, State.STOPPED, State.HELD, State.UNKNOWN, State.WAITING}
    ),
    State.STOPPING: frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED, State.UNKNOWN}),
    State.HELD: frozenset({State.FAILED, State.STOPPING, State.STOPPED, State.UNKNOWN}),
    State.UNKNOWN: frozenset(
        {State.WAITING, State.RUNNING, State.STOPPING, State.SUCCEEDED, State.FAILED, State.STOPPED, State.HELD}
    ),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.STOPPED: frozenset(),
}


def may_follow(old: State, new: State) -> bool:
    return new in TRANSITIONS[old]


@dataclass(slots=True)
class JobSpec:
    """What a person asked for. Stored as JSON with the job; never holds the environment."""

    command: list[str]  # as it may be shown: secrets in it are masked
    cwd: str
    name: str
    experiment: str | None = None
    cluster: str = "here"
    processes: int = 1  # -n: GPUs with one process each, or processes where there are no GPUs
    gpus: int = 0  # filled in by the engine's plan
    cpus: int | None = None
    memory_bytes: int | None = None
    max_duration_s: float | None = None
    grace_s: float = 15.0
    monitoring_interval_s: float = 0.0  # between two samples of usage; 0: none
    priority: int = 0
    tags: list[str] = field(default_factory=list)
    env_set: list[str] = field(default_factory=list)  # names given by --env, for `hw q`; values stay out
    secret_names: list[str] = field(default_factory=list)  # variables whose values are secret, whatever their names
    umask: int = 0o022
    rlimits: dict[str, list[int]] = field(default_factory=dict)
    parent: str | None = None  # id of the job this one was resubmitted from
    user: str = ""
    host: str = ""
    masked: bool = False  # the command held secrets; the words as given rest with the environment until the end
    attached: bool = False  # started by plain `python train.py`: we watch it, we did not start it


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
    exception: dict[str, Any] | None = None  # the first uncaught exception it told of


@dataclass(slots=True)
class Task:
    name: str
    node: str | None
    state: str  # "starting" | "running" | "ended" | "lost"
    heard_ns: int | None = None
    result: dict[str, Any] | None = None  # the `task_ended` fact, once it has come
    processes: list[Process] = field(default_factory=list)


@dataclass(slots=True)
class Attempt:
    number: int
    state: State
    key: str  # the engine's idempotency key
    engine_id: str | None = None
    engine_word: str | None = None  # the engine's own word for the state
    cause: dict[str, Any] | None = None
    exit_code: int | None = None
    signal: int | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    tasks: list[Task] = field(default_factory=list)


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
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] | None = None
    attempts: list[Attempt] = field(default_factory=list)

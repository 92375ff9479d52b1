"""Decides what to do next, from stored state and observations. Pure: no clock, no I/O, no randomness.

`decide(jobs, seen)` gives actions; `server/loop.py` executes them and asks again. Every action may be lost with a
killed server: the next `decide` finds the same state and says the same again. Absent knowledge never becomes an
action: what cannot be seen is `unknown`, with the time since when (P8).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.diagnose.exit import Exit, explain_exit
from headway.engines.protocol import UNSEEN, Node, Observation
from headway.model.finding import Finding
from headway.model.job import ENDED, Attempt, Job, Process, State, Task
from headway.model.limits import SILENT_AFTER_S
from headway.server import join
from headway.server.join import Tell

CANCEL_AGAIN_S = 5.0  # after the grace time: ask the engine once more
LAUNCHES_MAX = 3  # starts of one attempt whose agent never came up


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known beside the store. Durations are measured by a clock that never steps (F26)."""

    now_ns: int  # wall clock, for stamps only
    max_running: int
    nodes: Mapping[str, Sequence[Node]]  # place (`JobSpec.place`) -> its machines
    queues: frozenset[str] = frozenset()  # places whose engine has a queue of its own
    observations: Mapping[str, Observation] = field(default_factory=dict)  # attempt key -> what its engine says
    silent_s: Mapping[str, float] = field(default_factory=dict)  # attempt key -> since an agent of it was heard
    cancelled_s: Mapping[str, float] = field(default_factory=dict)  # attempt key -> since its engine was asked to stop
    launches: Mapping[str, int] = field(default_factory=dict)  # attempt key -> starts tried
    busy: frozenset[int] = frozenset()  # jobs with a call under way, or that wait for a second try


@dataclass(frozen=True, slots=True)
class SetState:
    """Job and attempt take this state, in one transaction."""

    pk: int
    number: int | None  # None: the job has no attempt
    state: State
    since_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """The intent to start, committed before the engine is called."""

    pk: int
    number: int


@dataclass(frozen=True, slots=True)
class Launch:
    pk: int
    number: int


@dataclass(frozen=True, slots=True)
class Cancel:
    pk: int
    number: int


@dataclass(frozen=True, slots=True)
class Salvage:
    """Send what a dead agent left."""

    pk: int
    number: int


Action = SetState | NewAttempt | Launch | Cancel | Salvage | Tell


def decide(jobs: Sequence[Job], seen: Seen) -> list[Action]:
    actions: list[Action] = []
    over: set[int] = set()
    for job in jobs:
        if job.state in ENDED or job.pk in seen.busy:
            continue
        steps = _advance(job, seen)
        actions += steps
        if any(isinstance(step, SetState) and step.ended_ns is not None for step in steps):
            over.add(job.pk)
    return actions + _start([job for job in jobs if job.state not in ENDED and job.pk not in over], seen)


# -- one job ------------------------------------------------------------------------------------------


def _advance(job: Job, seen: Seen) -> list[Action]:
    """What to do about one open job, but for starting it from the queue."""
    if not job.attempts:
        return [_stopped(job, None, seen, "stopped before it had started")] if job.stop_requested_ns is not None else []
    attempt = job.attempts[-1]
    observation = seen.observations.get(attempt.key, UNSEEN)
    if attempt.tasks and all(task.result is not None for task in attempt.tasks):
        return _finish(job, attempt, seen)
    if _never_started(job, attempt, observation):
        return _begin(job, attempt, observation, seen)
    unstarted = observation.detail.get("unstarted") or ()
    if unstarted and not any(task.result is not None for task in attempt.tasks):
        return _complete(job, attempt, observation, seen, unstarted)
    if unstarted and all(task.result is not None or task.name in unstarted for task in attempt.tasks):
        return _give_up(job, attempt, observation, seen)
    return [*_watch(job, attempt, observation, seen), *join.orders(job, attempt)]


def _never_started(job: Job, attempt: Attempt, observation: Observation) -> bool:
    """Only where the engine is sure. A folder that vanished after the start says nothing about the processes (F34)."""
    if job.spec.attached or _has_facts(attempt) or observation.state != "gone":
        return False
    return observation.detail.get("started") is False or attempt.engine_id is None


def _begin(job: Job, attempt: Attempt, observation: Observation, seen: Seen) -> list[Action]:
    """The intent is stored, and the engine has nothing of it: start it, or start it again (F23)."""
    if job.stop_requested_ns is not None:
        return [_stopped(job, attempt, seen, "stopped before it had started")]
    if seen.launches.get(attempt.key, 0) >= LAUNCHES_MAX:
        finding = Finding("agent_not_started", "system", f"its agent could not be started: {observation.state_word}")
        return [refuse(job, attempt, seen.now_ns, finding)]
    return [Launch(job.pk, attempt.number)]


def _complete(
    job: Job, attempt: Attempt, observation: Observation, seen: Seen, unstarted: Sequence[str]
) -> list[Action]:
    """Some tasks of it run, others never began: start those too (F23). A task that has told its end is never started
    again, so this is over once there is one."""
    actions = _watch(job, attempt, observation, seen)
    if job.stop_requested_ns is not None:
        return actions
    if seen.launches.get(attempt.key, 0) >= LAUNCHES_MAX:
        return [*actions, *join.orders(job, attempt, unstarted)]
    return [*actions, Launch(job.pk, attempt.number)]


def _give_up(job: Job, attempt: Attempt, observation: Observation, seen: Seen) -> list[Action]:
    """What had begun is over, and the rest never will begin."""
    if job.stop_requested_ns is not None:
        return [_stopped(job, attempt, seen, "stopped before all of its tasks had started")]
    text = f"the agents of some tasks could not be started: {observation.state_word}"
    return [refuse(job, attempt, seen.now_ns, Finding("agent_not_started", "system", text))]


def _watch(job: Job, attempt: Attempt, observation: Observation, seen: Seen) -> list[Action]:
    """It has started and its end is not known."""
    actions: list[Action] = []
    silent = seen.silent_s.get(attempt.key, 0.0) > SILENT_AFTER_S
    stop = job.stop_requested_ns is not None
    if observation.detail.get("salvage"):
        actions.append(Salvage(job.pk, attempt.number))
    elif stop and silent and observation.state == "gone":
        text = "stopped on request; nothing of it could be seen any more"
        return [_stopped(job, attempt, seen, text)]
    state = _live_state(job, attempt, observation, silent)
    if state != job.state:
        actions.append(_live(job, attempt, state, seen))
    if stop and _cancel_is_due(job, attempt, seen):
        actions.append(Cancel(job.pk, attempt.number))
    return actions


def _live_state(job: Job, attempt: Attempt, observation: Observation, silent: bool) -> State:
    visible = observation.state in ("starting", "running")
    if silent and not visible:
        return State.UNKNOWN
    if job.stop_requested_ns is not None:
        return State.STOPPING
    if _has_facts(attempt) or observation.state == "running":
        return State.RUNNING
    return job.state


def _live(job: Job, attempt: Attempt, state: State, seen: Seen) -> SetState:
    heard = [task.heard_ns for task in attempt.tasks if task.heard_ns is not None]
    since = max(heard) if heard and state is State.UNKNOWN else seen.now_ns
    started = job.started_ns
    if started is None and state is State.RUNNING:
        started = _started_ns(job, attempt) or max(seen.now_ns, job.submitted_ns)
    return SetState(job.pk, attempt.number, state, max(since, job.state_since_ns), started_ns=started)


def _cancel_is_due(job: Job, attempt: Attempt, seen: Seen) -> bool:
    asked = seen.cancelled_s.get(attempt.key)
    return asked is None or asked > job.spec.grace_s + CANCEL_AGAIN_S


# -- ends ---------------------------------------------------------------------------------------------


def _finish(job: Job, attempt: Attempt, seen: Seen) -> list[Action]:
    """Every task has told its end: that is the truth, whatever was asked for meanwhile (F25)."""
    end = _exit_of(job, attempt)
    finding = explain_exit(end)
    if end.lost:
        state = State.UNKNOWN
    elif end.reason == "stop":
        state = State.STOPPED
    else:
        state = State.SUCCEEDED if finding is None else State.FAILED
    last = _ended(job, attempt, state, seen.now_ns, end.exit_code, end.signal, finding)
    if job.state is not state:
        return [last]
    if job.ended_ns is not None:
        return []  # unknown for good, and told so already
    heard = SetState(job.pk, attempt.number, State.RUNNING, last.since_ns, started_ns=last.started_ns)
    return [heard, last]  # it was not heard of, and now it is, to say that its end is not known


def _exit_of(job: Job, attempt: Attempt) -> Exit:
    """The end of the task that failed first; where an end is not known and none failed, that; else success."""
    ranks = _processes_each(job, attempt)
    ends = {task.name: _task_exit(task, ranks.get(task.name, 1), job.spec.attached) for task in attempt.tasks}
    return next(iter(ends.values())) if len(ends) == 1 else join.exit_of(job, attempt, ends)


def _processes_each(job: Job, attempt: Attempt) -> dict[str, int]:
    """How many processes each task should have."""
    if job.spec.roles:
        each = {role.name: role.processes for role in job.spec.roles}
        return {task.name: each.get(join.role_name(task), 1) for task in attempt.tasks}
    spread = job.spec.processes // max(1, len(attempt.tasks))
    return {task.name: max(1, spread) if job.spec.multi_process else 1 for task in attempt.tasks}


def _task_exit(task: Task, ranks: int, attached: bool) -> Exit:
    result = task.result or {}
    code, signal, rank = result.get("exit_code"), result.get("signal"), result.get("first_rank")
    reason = result.get("reason") if result.get("reason") in ("stop", "walltime") else None
    if result.get("lost") and reason is None and code is None and signal is None:
        return _exit_from_processes(task, ranks) or Exit(None, None, lost=True, attached=attached)
    failing = next((p for p in task.processes if p.rank == rank), None)
    return Exit(
        code,
        signal,
        rank=rank,
        reason=reason,
        oom=bool(result.get("oom")),
        exception=failing.exception if failing else None,
        message=_start_message(failing),
    )


def _start_message(process: Process | None) -> str | None:
    return process.reason if process is not None and process.state == "not started" else None


def _exit_from_processes(task: Task, ranks: int) -> Exit | None:
    """The shim was killed after the last of its processes had ended: each exit is known, so the task's is."""
    if len(task.processes) < ranks or any(p.exit_code is None and p.signal is None for p in task.processes):
        return None
    failed = [p for p in task.processes if p.exit_code != 0 or p.signal is not None]
    if not failed:
        return Exit(0, None)
    by_itself = [p for p in failed if p.reason is None or p.state == "not started"]
    first = min(by_itself or failed, key=lambda p: (p.ended_ns or 0, p.rank))
    reason = first.reason if first.reason in ("stop", "walltime") else None
    message = _start_message(first)
    return Exit(first.exit_code, first.signal, first.rank, reason, exception=first.exception, message=message)


def _ended(
    job: Job,
    attempt: Attempt | None,
    state: State,
    now_ns: int,
    exit_code: int | None,
    signal: int | None,
    finding: Finding | None,
) -> SetState:
    """Durations are never negative, also when the clock was set back meanwhile (F26)."""
    started = job.started_ns if attempt is None or job.started_ns is not None else _started_ns(job, attempt)
    ended = (_ended_ns(attempt) if attempt is not None else None) or now_ns
    return SetState(
        job.pk,
        attempt.number if attempt is not None else None,
        state,
        max(now_ns, job.state_since_ns),
        started_ns=started,
        ended_ns=max(ended, started or 0, job.submitted_ns),
        exit_code=exit_code,
        signal=signal,
        cause=finding.as_cause() if finding else None,
    )


def _stopped(job: Job, attempt: Attempt | None, seen: Seen, text: str) -> SetState:
    return _ended(job, attempt, State.STOPPED, seen.now_ns, None, None, Finding("cancelled", "user", text))


def refuse(job: Job, attempt: Attempt, now_ns: int, finding: Finding) -> SetState:
    """The end of an attempt that its engine will never start."""
    return _ended(job, attempt, State.FAILED, now_ns, None, None, finding)


def _has_facts(attempt: Attempt) -> bool:
    return any(task.processes or task.state != "starting" for task in attempt.tasks)


def _processes(attempt: Attempt) -> Iterable[Process]:
    return (process for task in attempt.tasks for process in task.processes)


def _started_ns(job: Job, attempt: Attempt) -> int | None:
    starts = [p.started_ns for p in _processes(attempt) if p.started_ns is not None]
    return max(min(starts), job.submitted_ns) if starts else None


def _ended_ns(attempt: Attempt) -> int | None:
    ends = [p.ended_ns for p in _processes(attempt) if p.ended_ns is not None]
    ends += [t.result["time_ns"] for t in attempt.tasks if t.result and isinstance(t.result.get("time_ns"), int)]
    return max(ends) if ends else None


# -- the queue ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Room:
    """What one cluster has left. None: not known, so not counted."""

    gpus: int
    cpus: int | None
    memory_bytes: int | None

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "_Room":
        return cls(sum(n.gpus for n in nodes), _total(n.cpus for n in nodes), _total(n.memory_bytes for n in nodes))

    def fits(self, job: Job) -> bool:
        pairs = [
            (job.spec.gpus, self.gpus),
            (job.spec.cpus, self.cpus),
            (job.spec.memory_bytes, self.memory_bytes),
        ]
        return all(not asked or left is None or asked <= left for asked, left in pairs)

    def take(self, job: Job) -> None:
        """What is taken may exceed what there is: GPUs can vanish under a running job."""
        self.gpus -= job.spec.gpus
        self.cpus = None if self.cpus is None else self.cpus - (job.spec.cpus or 0)
        self.memory_bytes = None if self.memory_bytes is None else self.memory_bytes - (job.spec.memory_bytes or 0)


def _rooms(by_place: Mapping[str, Sequence[Node]]) -> dict[str, _Room]:
    """By place. Clusters on the same machines, such as processes and containers of this one, share one room."""
    shared: dict[tuple[str, ...], _Room] = {}
    for nodes in by_place.values():
        room, known = _Room.of(nodes), shared.get(tuple(node.name for node in nodes))
        if known is None or room.gpus > known.gpus:  # one of them may not see the GPUs
            shared[tuple(node.name for node in nodes)] = room
    return {place: shared[tuple(node.name for node in nodes)] for place, nodes in by_place.items()}


def left(jobs: Iterable[Job], nodes: Mapping[str, Sequence[Node]]) -> dict[str, dict[str, int | None]]:
    """What each place has left beside the jobs that hold something there, for `hw clusters`."""
    rooms = _rooms(nodes)
    for job in jobs:
        if _holds(job) and job.spec.place in rooms:
            rooms[job.spec.place].take(job)
    return {
        place: {"gpus": room.gpus, "cpus": room.cpus, "memory_bytes": room.memory_bytes}
        for place, room in rooms.items()
    }


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _holds(job: Job) -> bool:
    """Whether it takes a place: started or about to, by us, and not over. A job not heard of may still run."""
    return bool(job.attempts) and not job.spec.attached and job.ended_ns is None


def order(jobs: Iterable[Job]) -> list[Job]:
    """The queue: priority, then age."""
    waiting = [job for job in jobs if not job.attempts and job.stop_requested_ns is None and not job.spec.attached]
    return sorted(waiting, key=lambda job: (-job.spec.priority, job.submitted_ns, job.pk))


def _start(jobs: Sequence[Job], seen: Seen) -> list[Action]:
    """Start from the queue what fits. A job that does not fit keeps what it needs from those behind it, so that a
    large one is not passed over for ever, while one that needs nothing of the scarce kind may go first."""
    rooms = _rooms(seen.nodes)
    running = 0
    for job in jobs:
        if _holds(job) and job.spec.place not in seen.queues:
            running += 1
            if job.spec.place in rooms:
                rooms[job.spec.place].take(job)
    actions: list[Action] = []
    for job in order(jobs):
        if job.pk in seen.busy or job.spec.place not in rooms:
            continue
        if job.spec.place not in seen.queues:
            room = rooms[job.spec.place]
            fits = room.fits(job)
            room.take(job)
            if not fits or running >= seen.max_running:
                continue
            running += 1
        actions += [NewAttempt(job.pk, 1), Launch(job.pk, 1)]
    return actions

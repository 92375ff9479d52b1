"""Decides what to do next, from stored state and observations. Pure: no clock, no I/O, no
randomness.

`decide(jobs, seen)` gives actions; `server/control/loop.py` executes them and asks again. Every
action may be lost with a killed server: the next `decide` finds the same state and says the same
again. Absent knowledge never becomes an action: what cannot be seen is `unknown`, with the time
since when (P8).
"""

import math
import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.diagnose.exit import Exit, explain_exit
from headway.diagnose.runner import Diagnosis
from headway.engines.protocol import UNSEEN, Node, Observation
from headway.model.finding import Finding
from headway.model.job import ENDED, Attempt, Job, Process, State, Task
from headway.model.json_types import JsonObject
from headway.model.limits import HANG_RESTARTS_MAX, MIB, SILENT_AFTER_S
from headway.server.control import multi_task, queue
from headway.server.control.multi_task import Tell
from headway.server.control.retry import (
    AGAIN,
    NO,
    OTHER_NODE,
    Decision,
    decide_retry,
    refusal_words,
)
from headway.settings.quantity import size_text

# reasons in a task's end that say that an agent was told to end it
ENDED_BY_US = ("stop", "walltime", "preempted", "hung")
CANCEL_AGAIN_S = 5.0  # after the grace time: ask the engine once more
LAUNCHES_MAX = 3  # starts of one attempt whose agent never came up


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known beside the store. Durations are measured by a clock that never steps (F26)."""

    now_ns: int  # wall clock, for stamps only
    max_running: int
    nodes: Mapping[str, Sequence[Node]]  # place (`JobSpec.place`) -> its machines
    queues: frozenset[str] = frozenset()  # places whose engine has a queue of its own
    # attempt key -> what its engine says
    observations: Mapping[str, Observation] = field(default_factory=dict)
    # attempt key -> since an agent of it was heard
    silent_s: Mapping[str, float] = field(default_factory=dict)
    # attempt key -> since its engine says nothing of it
    missed_s: Mapping[str, float] = field(default_factory=dict)
    # attempt key -> since its engine was asked to stop
    cancelled_s: Mapping[str, float] = field(default_factory=dict)
    launches: Mapping[str, int] = field(default_factory=dict)  # attempt key -> starts tried
    busy: frozenset[int] = frozenset()  # jobs with a call under way, or that wait for a second try
    # key of a failed attempt -> until the next may start
    rest_s: Mapping[str, float] = field(default_factory=dict)
    # uuid -> (id, state) of jobs that others wait for
    needed: queue.Needed = field(default_factory=dict)
    # pk -> attempt -> the last step logged
    reached: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    # key of a failed attempt -> what its logs say, None: nothing in time; None for all: not asked
    diagnoses: Mapping[str, Diagnosis | None] | None = None
    chance: float = 0.5  # a random number in [0, 1), for the jitter of retries


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
    cause: JsonObject | None = None
    begun_ns: int | None = None  # the attempt's own start
    findings: JsonObject | None = None  # all of the diagnosis


@dataclass(frozen=True, slots=True)
class Again:
    """The attempt takes its end, and the job waits for the next one, in one transaction."""

    pk: int
    number: int
    end: SetState
    retry: JsonObject


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


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Read what the logs say of this end; the end waits for it."""

    pk: int
    number: int
    end: Exit


Action = SetState | Again | NewAttempt | Launch | Cancel | Salvage | Tell | Diagnose


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
    return actions + _start(
        [job for job in jobs if job.state not in ENDED and job.pk not in over], seen
    )


def _start(jobs: Sequence[Job], seen: Seen) -> list[Action]:
    """Start from the queue what fits."""
    places = queue.Places(seen.nodes, seen.queues, seen.max_running, seen.busy)
    actions: list[Action] = []
    for job in queue.choose(jobs, places, seen.needed, seen.rest_s):
        number = job.attempts[-1].number + 1 if job.attempts else 1
        actions += [NewAttempt(job.pk, number), Launch(job.pk, number)]
    return actions


# -- one job


def _advance(job: Job, seen: Seen) -> list[Action]:
    """What to do about one open job, but for starting it from the queue."""
    if not job.attempts:
        return [] if job.ended_ns is not None else _before_start(job, seen)
    attempt = job.attempts[-1]
    if job.between_tries:
        text = f"stopped while it waited for attempt {attempt.number + 1}"
        return [_stopped(job, None, seen, text)] if job.stop_requested_ns is not None else []
    observation = seen.observations.get(attempt.key, UNSEEN)
    if attempt.tasks and all(task.result is not None for task in attempt.tasks):
        return _finish(job, attempt, seen)
    if _never_started(job, attempt, observation):
        return _begin(job, attempt, observation, seen)
    unstarted = observation.detail.get("unstarted") or ()
    if unstarted and not any(task.result is not None for task in attempt.tasks):
        return _complete(job, attempt, observation, seen, unstarted)
    if unstarted and all(
        task.result is not None or task.name in unstarted for task in attempt.tasks
    ):
        return _give_up(job, attempt, observation, seen)
    return [*_watch(job, attempt, observation, seen), *multi_task.orders(job, attempt)]


def _before_start(job: Job, seen: Seen) -> list[Action]:
    """In the queue. What waits for a job that will not succeed would wait for ever, so it ends and
    says why.
    """
    if job.stop_requested_ns is not None:
        return [_stopped(job, None, seen, "stopped before it had started")]
    found = queue.broken(job, seen.needed)
    if found is None:
        return []
    name, state = found
    how = {State.FAILED: "failed", State.STOPPED: "was stopped"}.get(
        state or State.UNKNOWN, "will not succeed"
    )
    finding = Finding("dependency", "user", f"it had to wait for {name}, which {how}")
    return [_ended(job, None, State.STOPPED, seen.now_ns, None, None, finding)]


def _never_started(job: Job, attempt: Attempt, observation: Observation) -> bool:
    """Only where the engine is sure. A folder that vanished after the start says nothing about the
    processes (F34).
    """
    if job.spec.attached or _has_facts(attempt) or observation.state != "gone":
        return False
    return observation.detail.get("started") is False or attempt.engine_id is None


def _begin(job: Job, attempt: Attempt, observation: Observation, seen: Seen) -> list[Action]:
    """The intent is stored, and the engine has nothing of it: start it, or start it again (F23)."""
    if job.ended_ns is not None:
        return []  # unknown for good, as after a restore: it may have run, so it is not started
    if job.stop_requested_ns is not None:
        return [_stopped(job, attempt, seen, "stopped before it had started")]
    told = told_by_scheduler(observation)
    if told is not None:  # it is over for the scheduler, and would be as often as it is asked
        return _end_unstarted(job, attempt, told, seen)
    if seen.launches.get(attempt.key, 0) >= LAUNCHES_MAX:
        finding = Finding(
            "agent_not_started",
            "system",
            f"its agent could not be started: {observation.state_word}",
        )
        return [refuse(job, attempt, seen.now_ns, finding)]
    return [Launch(job.pk, attempt.number)]


def _end_unstarted(job: Job, attempt: Attempt, told: Finding, seen: Seen) -> list[Action]:
    """A node that was lost, or wanted for something else, before an agent had started there: worth
    a try, too.
    """
    state = State.STOPPED if told.cause == "cancelled" else State.FAILED
    last = _ended(job, attempt, state, seen.now_ns, None, None, told)
    decision = _decide_on(job, attempt, told, seen)
    if decision.do == NO:
        return [_without_retry(job, last, decision)]
    return [_again(job, attempt, last, decision, seen)]


def _without_retry(job: Job, last: SetState, decision: Decision) -> SetState:
    """Why no retry follows is kept with the cause, where retries were asked for."""
    words = refusal_words(decision, job.attempts, job.spec.retry)
    return (
        replace(last, cause={**last.cause, "no_retry": words})
        if words and last.cause is not None
        else last
    )


def _again(job: Job, attempt: Attempt, last: SetState, decision: Decision, seen: Seen) -> Again:
    """Where the scheduler says which nodes failed, those are left alone the next time, and not all
    that it ran on.
    """
    end = seen.observations.get(attempt.key, UNSEEN).detail.get("end") or {}
    nodes = {"nodes": list(end["nodes"])} if decision.do == OTHER_NODE and end.get("nodes") else {}
    return Again(job.pk, attempt.number, last, {**decision.as_json(seen.now_ns), **nodes})


def _complete(
    job: Job, attempt: Attempt, observation: Observation, seen: Seen, unstarted: Sequence[str]
) -> list[Action]:
    """Some tasks of it run, others never began: start those too (F23). A task that has told its end
    is never started again, so this is over once there is one.
    """
    actions = _watch(job, attempt, observation, seen)
    if job.stop_requested_ns is not None:
        return actions
    if seen.launches.get(attempt.key, 0) >= LAUNCHES_MAX:
        return [*actions, *multi_task.orders(job, attempt, unstarted)]
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
    silent = _is_silent(job, attempt, seen)
    stop = job.stop_requested_ns is not None
    if observation.detail.get("salvage"):
        if seen.silent_s.get(attempt.key, 0.0) >= observation.detail.get("silence_s", 0.0):
            actions.append(Salvage(job.pk, attempt.number))
    elif stop and silent and observation.state == "gone":
        text = "stopped on request; nothing of it could be seen any more"
        return [_stopped(job, attempt, seen, text)]
    state = _live_state(job, attempt, observation, silent)
    again = False
    if state is State.RUNNING and _is_held(attempt):
        # it is let go for the next attempt; only the last one is held
        if _awaits_diagnosis(job, attempt, seen):
            return [*actions, Diagnose(job.pk, attempt.number, _exit_at(job, attempt, seen))]
        again = _decide(job, attempt, seen).do != NO
        state = State.RUNNING if again else State.HELD
    if state != job.state:
        actions.append(
            _hold(job, attempt, seen) if state is State.HELD else _live(job, attempt, state, seen)
        )
    if ((stop and job.stop_signal is None) or again) and _cancel_is_due(job, attempt, seen):
        actions.append(Cancel(job.pk, attempt.number))
    return actions


def _is_held(attempt: Attempt) -> bool:
    """Every task is over or kept, and one is kept: how it ended is known."""
    known = all(task.result is not None or task.held is not None for task in attempt.tasks)
    return known and any(task.result is None for task in attempt.tasks)


def _hold(job: Job, attempt: Attempt, seen: Seen) -> SetState:
    end, finding = _verdict(job, attempt, seen)
    held = SetState(
        job.pk,
        attempt.number,
        State.HELD,
        max(seen.now_ns, job.state_since_ns),
        job.started_ns or _started_ns(job, attempt, seen.now_ns),
        None,
        end.exit_code,
        end.signal,
        finding.as_cause() if finding else None,
        _started_ns(job, attempt, seen.now_ns),
    )
    return _with_findings(held, attempt, finding, seen)


def _is_silent(job: Job, attempt: Attempt, seen: Seen) -> bool:
    """Nobody has told anything of it for a while: neither its agents nor, where there is one, its
    scheduler, whose answers may be late now and then.
    """
    told = (
        job.spec.place in seen.queues and seen.missed_s.get(attempt.key, math.inf) <= SILENT_AFTER_S
    )
    return seen.silent_s.get(attempt.key, 0.0) > SILENT_AFTER_S and not told


def _live_state(job: Job, attempt: Attempt, observation: Observation, silent: bool) -> State:
    visible = observation.state in ("starting", "running")
    if silent and not visible:
        return State.UNKNOWN
    if job.ended_ns is not None and not visible and not _was_heard_since(attempt, job.ended_ns):
        return job.state  # unknown for good: what is stored of its tasks is older than that verdict
    if job.stop_requested_ns is not None:
        return State.STOPPING
    if _has_facts(attempt) or observation.state == "running":
        return State.RUNNING
    return job.state


def _was_heard_since(attempt: Attempt, since_ns: int) -> bool:
    return any(task.heard_ns is not None and task.heard_ns > since_ns for task in attempt.tasks)


def _live(job: Job, attempt: Attempt, state: State, seen: Seen) -> SetState:
    since = seen.now_ns
    heard = [task.heard_ns for task in attempt.tasks if task.heard_ns is not None]
    if heard and state is State.UNKNOWN:
        since = max(heard)

    attempt_started = _started_ns(job, attempt, seen.now_ns)
    job_started = job.started_ns
    if job_started is None and state is State.RUNNING:
        job_started = attempt_started or max(seen.now_ns, job.submitted_ns)
    if not attempt_started:
        attempt_started = job_started if attempt.number == 1 else None
    return SetState(
        job.pk,
        attempt.number,
        state,
        max(since, job.state_since_ns),
        started_ns=job_started,
        begun_ns=attempt_started,
    )


def _cancel_is_due(job: Job, attempt: Attempt, seen: Seen) -> bool:
    asked = seen.cancelled_s.get(attempt.key)
    return asked is None or asked > job.spec.grace_s + CANCEL_AGAIN_S


# -- ends


def _finish(job: Job, attempt: Attempt, seen: Seen) -> list[Action]:
    """Every task has told its end: that is the truth, whatever was asked for meanwhile (F25)."""
    if job.ended_ns is not None:
        return []  # unknown for good, and told so already
    if _awaits_word(job, attempt, seen):
        return _wait_for_word(job, attempt, seen)
    if _awaits_diagnosis(job, attempt, seen):
        return [Diagnose(job.pk, attempt.number, _exit_at(job, attempt, seen))]
    end, finding = _verdict(job, attempt, seen)
    decision = _decide(job, attempt, seen)
    if decision.do != NO:
        last = _ended(job, attempt, State.FAILED, seen.now_ns, end.exit_code, end.signal, finding)
        last = _with_findings(last, attempt, finding, seen)
        return [_again(job, attempt, last, decision, seen)]
    if end.lost:
        state = State.UNKNOWN
    elif end.reason == "stop":
        state = State.STOPPED
    else:
        state = State.SUCCEEDED if finding is None else State.FAILED
    last = _ended(job, attempt, state, seen.now_ns, end.exit_code, end.signal, finding)
    last = _with_findings(last, attempt, finding, seen)
    last = _without_retry(job, last, decision)
    if job.state is not state:
        return [last]
    heard = SetState(
        job.pk, attempt.number, State.RUNNING, last.since_ns, started_ns=last.started_ns
    )
    return [heard, last]  # it was not heard of, and now it is, to say that its end is not known


def _with_findings(
    last: SetState, attempt: Attempt, finding: Finding | None, seen: Seen
) -> SetState:
    """The evidence is kept beside the cause, where the logs were read."""
    diagnosis = (seen.diagnoses or {}).get(attempt.key)
    if diagnosis is None or finding is None:
        return last
    kept = diagnosis.as_json()
    if kept["findings"]:
        kept["findings"][0] |= {"text": finding.text, "cause": finding.cause, "class": finding.cls}
    return replace(last, findings=kept)


def _awaits_diagnosis(job: Job, attempt: Attempt, seen: Seen) -> bool:
    """It failed by itself, and its logs have not been looked at."""
    if seen.diagnoses is None or attempt.key in seen.diagnoses:
        return False
    end = _exit_at(job, attempt, seen)
    if end.lost or end.told is not None or end.message is not None:
        return False
    if end.reason is not None or job.stop_requested_ns is not None:
        return False
    return end.exit_code != 0 or end.signal is not None


def told_by_scheduler(observation: Observation) -> Finding | None:
    """How the scheduler says that it ended."""
    told = observation.detail.get("end")
    return Finding(told["cause"], told["class"], told["text"], told.get("rank")) if told else None


def _verdict(job: Job, attempt: Attempt, seen: Seen) -> tuple[Exit, Finding | None]:
    """How it ended and why; where memory ran out, with how much it had asked for and what to type."""
    end, finding = _judge(job, attempt, seen)
    told = seen.observations.get(attempt.key, UNSEEN).detail.get("end") or {}
    asked = told.get("memory_bytes") or job.spec.memory_bytes
    if finding is None or finding.cause != "host_oom" or not asked:
        return end, finding
    more = "give its role more `memory`"
    if not job.spec.roles:
        more = f"with more: hw resubmit {job.id.rpartition('-')[2]} --memory {math.ceil(2 * asked / MIB)}MiB"
    return end, replace(
        finding, text=f"{finding.text}; it had asked for {size_text(asked)}; {more}"
    )


def _judge(job: Job, attempt: Attempt, seen: Seen) -> tuple[Exit, Finding | None]:
    """What its agents told; where they could not, or were ended from outside, what the scheduler
    says (39).

    A scheduler that only says "failed" saw the agent end, not the program, which may have gone on
    and done its work.
    """
    end = _exit_at(job, attempt, seen)
    if end.reason == "hung":
        return end, _told_hung(attempt)
    finding = explain_exit(end)
    diagnosis = (seen.diagnoses or {}).get(attempt.key)
    if finding is not None and diagnosis is not None:
        finding = _better(finding, diagnosis)

    told = told_by_scheduler(seen.observations.get(attempt.key, UNSEEN))
    if told is None:
        return end, finding
    if not end.lost and not _from_outside(end):
        return end, finding
    if told.cause == "launch_failed":
        if finding is not None:
            finding = replace(finding, text=f"{finding.text}; {told.text}")
        return end, finding
    reason = "stop" if told.cause == "cancelled" else None
    return replace(end, lost=False, reason=reason), told


def _better(told: Finding, diagnosis: Diagnosis) -> Finding:
    """What the logs say, unless the end speaks for itself: a cause that the program declared."""
    if told.cause.startswith("declared_"):
        return told
    if not diagnosis.findings:
        if told.cause != "unknown" or not diagnosis.last_words:
            return told
        return replace(told, text=f"{told.text}; its last line: {diagnosis.last_words}")
    read = diagnosis.findings[0]
    only_exit = all(line["stream"] == "exit" for line in read.evidence)
    if read.cause == told.cause and only_exit:
        return replace(read, text=told.text)
    return read


def _exit_at(job: Job, attempt: Attempt, seen: Seen) -> Exit:
    """A scheduler that is asked to end a job signals the ranks too, which then seem to die by
    themselves.
    """
    end = _exit_of(job, attempt)
    asked = job.stop_requested_ns is not None and job.spec.place in seen.queues and not end.oom
    return (
        replace(end, reason="stop") if asked and end.reason is None and _from_outside(end) else end
    )


def _told_hung(attempt: Attempt) -> Finding:
    """Why it was called hung, as was found while it ran."""
    told = attempt.cause or {}
    text = f"hung, and ended because of that: {told.get('text') or 'no rank moved'}"
    cause, kind = str(told.get("cause") or "hang"), str(told.get("class") or "system")
    return Finding(cause, kind, text, told.get("rank"))


def _from_outside(end: Exit) -> bool:
    return end.reason == "preempted" or (
        end.reason is None and end.signal in (signals.SIGTERM, signals.SIGKILL)
    )


def _awaits_word(job: Job, attempt: Attempt, seen: Seen) -> bool:
    """Ended from outside, or nobody saw how, on a scheduler that is not done with it: only the
    scheduler knows more.
    """
    end = _exit_at(job, attempt, seen)
    if job.spec.place not in seen.queues or not (end.lost or _from_outside(end)):
        return False
    state = seen.observations.get(attempt.key, UNSEEN).state
    # its own daemons may have died with the agents: it is not waited for for ever
    if state in ("starting", "running"):
        return seen.silent_s.get(attempt.key, 0.0) <= SILENT_AFTER_S
    return state == "unknown"


def _wait_for_word(job: Job, attempt: Attempt, seen: Seen) -> list[Action]:
    """Meanwhile it does not count as running where neither its agents nor the scheduler have said
    so of late (P8).
    """
    observation = seen.observations.get(attempt.key, UNSEEN)
    state = _live_state(job, attempt, observation, _is_silent(job, attempt, seen))
    return [] if state == job.state else [_live(job, attempt, state, seen)]


def _decide(job: Job, attempt: Attempt, seen: Seen) -> Decision:
    """Whether another attempt follows this one, whose end is known. Never where a person wants the
    job to stop.
    """
    end, finding = _verdict(job, attempt, seen)
    if finding is None or end.lost or end.reason == "stop":
        return Decision(NO)
    if end.reason == "hung":
        return _decide_hung(job)
    return _decide_on(job, attempt, finding, seen)


def _decide_hung(job: Job) -> Decision:
    """It was ended by `--on-hang`: another attempt only where that was asked for, and not for ever."""
    if job.spec.on_hang != "restart" or job.stop_requested_ns is not None:
        return Decision(NO, text="on_hang asks to stop it")
    tried = sum(1 for attempt in job.attempts if (attempt.retry or {}).get("rule") == "on_hang")
    if tried >= HANG_RESTARTS_MAX:
        return Decision(NO, text=f"restarted {tried} times because it hung")
    text = f"restarted because it hung, {tried + 1} of {HANG_RESTARTS_MAX} (on_hang)"
    return Decision(AGAIN, text=text, wait_s=job.spec.retry.backoff_s, rule="on_hang")


def _decide_on(job: Job, attempt: Attempt, finding: Finding, seen: Seen) -> Decision:
    if job.stop_requested_ns is not None or job.state is State.HELD or job.spec.attached:
        return Decision(NO)
    here = {task.node for task in attempt.tasks if task.node} | set(job.avoided())
    nodes = seen.nodes.get(job.spec.place)
    others = (
        None if nodes is None or job.spec.place in seen.queues else {n.name for n in nodes} - here
    )
    # jobs that fail together do not come back together
    chance = (seen.chance + 0.618 * job.pk) % 1.0
    reached = seen.reached.get(job.pk)
    return decide_retry(
        finding, job.attempts, job.spec.retry, chance=chance, other_nodes=others, reached=reached
    )


def _exit_of(job: Job, attempt: Attempt) -> Exit:
    """The end of the task that failed first; where an end is not known and none failed, that; else
    success.
    """
    ranks = _processes_each(job, attempt)
    ends = {
        task.name: _task_exit(task, ranks.get(task.name, 1), job.spec.attached)
        for task in attempt.tasks
    }
    end = next(iter(ends.values())) if len(ends) == 1 else multi_task.exit_of(job, attempt, ends)
    if _was_interrupted(job, attempt, end):
        return replace(end, reason="stop", rank=None)
    # Whoever asked the agent to stop, it was not us: the machine is wanted for something else
    # (F32).
    outside = end.reason == "stop" and job.stop_requested_ns is None
    return replace(end, reason="preempted") if outside and not job.spec.attached else end


def _was_interrupted(job: Job, attempt: Attempt, end: Exit) -> bool:
    """A signal that a person sent was passed on, and it ended after that: its agents know nothing
    of a request.
    """
    if job.stop_signal is None or job.stop_requested_ns is None:
        return False
    if end.reason is not None or end.lost:
        return False
    ends = []
    for task in attempt.tasks:
        for process in task.processes:
            # of the rank that it ended with, if of one
            counts = end.rank is None or process.rank == end.rank
            if counts and process.ended_ns is not None:
                ends.append(process.ended_ns)
    return min(ends, default=job.stop_requested_ns) >= job.stop_requested_ns


def _processes_each(job: Job, attempt: Attempt) -> dict[str, int]:
    """How many processes each task should have."""
    if job.spec.roles:
        each = {role.name: role.processes for role in job.spec.roles}
        return {task.name: each.get(multi_task.role_name(task), 1) for task in attempt.tasks}
    if not job.spec.multi_process or job.spec.launcher == "mpirun":
        return {task.name: 1 for task in attempt.tasks}
    spread = job.spec.processes // max(1, len(attempt.tasks))
    return {task.name: max(1, spread) for task in attempt.tasks}


def _task_exit(task: Task, ranks: int, attached: bool) -> Exit:
    result = task.result or task.held or {}
    code = result.get("exit_code")
    signal = result.get("signal")
    reason = result.get("reason")
    if reason not in ENDED_BY_US:
        reason = None
    if result.get("lost") and reason is None and code is None and signal is None:
        return _exit_from_processes(task, ranks) or Exit(None, None, lost=True, attached=attached)

    rank = result.get("first_rank")
    failing = next((p for p in task.processes if p.rank == rank), None)
    cause = result.get("cause")
    return Exit(
        code,
        signal,
        rank=rank,
        reason=reason,
        oom=bool(result.get("oom")),
        exception=failing.exception if failing else None,
        message=_start_message(failing),
        told=cause if isinstance(cause, dict) else None,
    )


def _start_message(process: Process | None) -> str | None:
    return process.reason if process is not None and process.state == "not started" else None


def _exit_from_processes(task: Task, ranks: int) -> Exit | None:
    """The shim was killed after the last of its processes had ended: each exit is known, so the
    task's is.
    """
    if len(task.processes) < ranks or any(
        p.exit_code is None and p.signal is None for p in task.processes
    ):
        return None
    failed = [p for p in task.processes if p.exit_code != 0 or p.signal is not None]
    if not failed:
        return Exit(0, None)
    by_itself = [p for p in failed if p.reason is None or p.state == "not started"]
    first = min(by_itself or failed, key=lambda p: (p.ended_ns or 0, p.rank))
    reason = first.reason if first.reason in ("stop", "walltime") else None
    message = _start_message(first)
    return Exit(
        first.exit_code,
        first.signal,
        first.rank,
        reason,
        exception=first.exception,
        message=message,
    )


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
    started = (
        job.started_ns
        if attempt is None or job.started_ns is not None
        else _started_ns(job, attempt, now_ns)
    )
    ended = (_ended_ns(job, attempt, now_ns) if attempt is not None else None) or now_ns
    if attempt is not None and (began := attempt.started_ns or started) is not None:
        # its agents measured with a clock that does not step, so it ran for so long at least
        ended = max(ended, began + _length_ns(attempt))
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
        begun_ns=_started_ns(job, attempt, now_ns) if attempt is not None else None,
    )


def _stopped(job: Job, attempt: Attempt | None, seen: Seen, text: str) -> SetState:
    return _ended(
        job, attempt, State.STOPPED, seen.now_ns, None, None, Finding("cancelled", "user", text)
    )


def refuse(job: Job, attempt: Attempt, now_ns: int, finding: Finding) -> SetState:
    """The end of an attempt that its engine will never start."""
    return _ended(job, attempt, State.FAILED, now_ns, None, None, finding)


def _has_facts(attempt: Attempt) -> bool:
    return any(task.processes or task.state != "starting" for task in attempt.tasks)


def _started_ns(job: Job, attempt: Attempt, now_ns: int) -> int | None:
    starts = [start for start, _ in _times(job, attempt, now_ns) if start is not None]
    return max(min(starts), job.submitted_ns) if starts else None


def _ended_ns(job: Job, attempt: Attempt, now_ns: int) -> int | None:
    return max((end for _, end in _times(job, attempt, now_ns) if end is not None), default=None)


def _length_ns(attempt: Attempt) -> int:
    """How long its longest task ran by the clock of its own agent; 0 where that is not known."""
    lengths = [0]
    for task in attempt.tasks:
        starts = [p.started_ns for p in task.processes if p.started_ns is not None]
        ends = [p.ended_ns for p in task.processes if p.ended_ns is not None]
        if starts and ends:
            lengths.append(max(ends) - min(starts))
    return max(lengths)


def _times(job: Job, attempt: Attempt, now_ns: int) -> list[tuple[int | None, int | None]]:
    """When each task began and ended, by this server's clock. That of a node may be hours off, so
    what it says is moved as a whole between the start of the attempt and now: durations stay as
    they were (F26).
    """
    found: list[tuple[int | None, int | None]] = []
    for task in attempt.tasks:
        starts = [p.started_ns for p in task.processes if p.started_ns is not None]
        ends = [p.ended_ns for p in task.processes if p.ended_ns is not None]
        if task.result and isinstance(task.result.get("time_ns"), int):
            ends.append(task.result["time_ns"])
        both = starts + ends
        if not both:
            continue

        off_ns = 0
        if not job.spec.attached:
            off_ns = _off_ns(attempt, min(both), max(both), now_ns)
        began_ns = min(starts) + off_ns if starts else None
        ended_ns = max(ends) + off_ns if ends else None
        found.append((began_ns, ended_ns))
    return found


def _off_ns(attempt: Attempt, first_ns: int, last_ns: int, now_ns: int) -> int:
    """By how much a node's clock is off, as far as that is sure: it was not before the attempt, and
    is not to come.
    """
    created_ns = attempt.created_ns or 0
    if last_ns > now_ns:
        return now_ns - last_ns
    if first_ns < created_ns:
        return min(max(attempt.started_ns or 0, created_ns) - first_ns, now_ns - last_ns)
    return 0

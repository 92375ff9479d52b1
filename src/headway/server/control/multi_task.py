"""Several tasks, one attempt: when they may start, when the others shall end, and how the whole
ended. Pure.

Called by `reconcile.py`. A task fails as soon as one of its ranks has failed by itself; a role
fails, or is done, by its completion policy; the first role that failed ends the job, and so does
the last one that was waited for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.diagnose.exit import Exit
from headway.model.job import Attempt, Job, Process, Role, Task
from headway.model.json_types import JsonMapping, JsonObject

DONE = "the other tasks are done"


@dataclass(frozen=True, slots=True)
class Tell:
    """Commands for agents, by task name. May be said again."""

    pk: int
    number: int
    commands: Mapping[str, JsonMapping] = field(default_factory=dict)


def orders(job: Job, attempt: Attempt, unstarted: Sequence[str] = ()) -> list[Tell]:
    """What the tasks of an open attempt shall be told. `unstarted`: tasks that could not be
    started, for good.
    """
    if len(attempt.tasks) < 2:
        return []
    if unstarted:
        why: str | None = f"{unstarted[0]} could not be started"
    else:
        why = ending(job, attempt)
    if why is not None:
        stop: JsonObject = {"do": "stop", "grace_s": job.spec.grace_s, "reason": why}
        commands = {
            task.name: stop
            for task in attempt.tasks
            if task.result is None and task.state == "running"
        }
    elif job.stop_requested_ns is None and all(
        task.state == "running" or task.processes for task in attempt.tasks
    ):
        # one that has had its processes and is over was there, too: a server that was killed may
        # not have told the rest
        go: JsonObject = {"do": "go", "peers": [_peer(task) for task in attempt.tasks]}
        commands = {
            task.name: go for task in attempt.tasks if not task.processes and task.result is None
        }
    else:
        commands = {}
    return [Tell(job.pk, attempt.number, commands)] if commands else []


def _peer(task: Task) -> JsonObject:
    known = task.agent or {}
    places = {
        name: known[name]
        for name in ("address", "port", "master_port")
        if known.get(name) is not None
    }
    return {"task": task.name, "role": role_name(task), **places}


def role_name(task: Task) -> str:
    return task.name.rpartition("-")[0]


# -- the policy


def ending(job: Job, attempt: Attempt) -> str | None:
    """Why the tasks that still run shall end; None: they shall go on."""
    failed = failures(job, attempt)
    if failed:
        return why_failed(failed[0])
    if attempt.tasks and all(
        _is_done(role, tasks) for role, tasks in _roles(job, attempt) if role.completion != "none"
    ):
        return DONE
    return None


def failures(job: Job, attempt: Attempt) -> list[Task]:
    """Failed tasks of roles that failed with them, the first one first; those whose end is not
    known come last.
    """
    found: list[Task] = []
    for role, tasks in _roles(job, attempt):
        bad = [task for task in tasks if is_failing(task)]
        limit = _min_failed(role)
        if bad and limit is not None and len(bad) >= limit:
            found += bad
    return sorted(found, key=lambda task: (_is_lost(task), first_end_ns(task)))


def _roles(job: Job, attempt: Attempt) -> list[tuple[Role, list[Task]]]:
    roles = job.spec.roles or [Role(role_name(attempt.tasks[0]), [], len(attempt.tasks))]
    return [
        (role, [task for task in attempt.tasks if role_name(task) == role.name]) for role in roles
    ]


def _min_failed(role: Role) -> int | None:
    if role.min_failed is not None:
        return role.min_failed
    return {"all": 1, "any": role.instances}.get(role.completion)


def _is_done(role: Role, tasks: Sequence[Task]) -> bool:
    """Enough have succeeded; or all have ended, and too few failed to fail the role."""
    enough = role.min_succeeded or (1 if role.completion == "any" else role.instances)
    if sum(_has_succeeded(task) for task in tasks) >= enough:
        return True
    return bool(tasks) and all(task.result is not None for task in tasks)


# -- one task


def is_failing(task: Task) -> bool:
    """It has failed by itself, or is about to: one of its ranks has."""
    if task.result is None:
        return _first_failed(task) is not None
    return not _has_succeeded(task) and not _was_ended(task)


def _has_succeeded(task: Task) -> bool:
    result = task.result
    if result is None or result.get("lost") or _was_ended(task) or result.get("reason"):
        return False
    return result.get("exit_code") == 0 and result.get("signal") is None


def _was_ended(task: Task) -> bool:
    """Because of another task."""
    reason = (task.result or {}).get("reason")
    return reason is not None and reason not in ("stop", "walltime", "preempted")


def _is_lost(task: Task) -> bool:
    return bool((task.result or {}).get("lost"))


def _first_failed(task: Task) -> Process | None:
    bad = [
        p for p in task.processes if p.state == "not started" or (p.reason is None and _is_bad(p))
    ]
    return min(bad, key=lambda p: (p.ended_ns or 0, p.rank), default=None)


def _is_bad(process: Process) -> bool:
    return process.exit_code not in (None, 0) or process.signal is not None


def first_end_ns(task: Task) -> int:
    """When its first failure was; where none is known, its first end."""
    failed = _first_failed(task)
    if failed is not None and failed.ended_ns is not None:
        return failed.ended_ns
    return min((p.ended_ns for p in task.processes if p.ended_ns is not None), default=0)


def why_failed(task: Task) -> str:
    """As the ranks of other tasks are told, and as a person reads it: `rank 5 on worker-1 failed`."""
    result = task.result or {}
    if result.get("lost"):
        return f"{task.name} is gone"
    if result.get("reason") in ("stop", "walltime"):
        return (
            f"{task.name} was stopped"
            if result["reason"] == "stop"
            else f"{task.name} ran out of time"
        )
    first = _first_failed(task)
    rank = result.get("first_rank") if first is None else first.rank
    return f"{task.name} failed" if rank is None else f"rank {rank} on {task.name} failed"


def exit_of(job: Job, attempt: Attempt, ends: Mapping[str, Exit]) -> Exit:
    """How the whole ended: as the task that failed first; a request to stop that hit a task; else
    success.
    """
    failed = failures(job, attempt)
    if failed:
        return ends[failed[0].name]
    stopped = [end for end in ends.values() if end.reason == "stop"]
    return stopped[0] if stopped and job.stop_requested_ns is not None else Exit(0, None)

"""How long the loop may rest, whether it may at all, how long a failed job does, and which jobs
need no look now.

Called by `loop.py`.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from headway.engines.protocol import UNSEEN, Engine, Observation, Unhurried
from headway.model.job import Job, JobSpec, State
from headway.server.control import queue
from headway.server.control.reconcile import Action, Again, NewAttempt, SetState

INTERVAL_S = 1.0  # between two looks when nothing wakes the loop
# answers of an engine that stay away, or say nothing, before a job is not seen any more
MISSES_MIN = 3
MISSES_KEPT_S = 600.0
IDLE_INTERVAL_S = 5.0  # and when there is no open job, or nothing that a look could see


def pause_s(
    jobs: Sequence[Job], actions: Sequence[Action], engine_of: Callable[[JobSpec], Engine | None]
) -> float:
    """Jobs that lie in a scheduler's queue, or run there, are looked at as often as the scheduler
    is asked: what their agents say wakes the loop.
    """
    if actions or not all(is_settled(job) for job in jobs):
        return INTERVAL_S
    places = {job.spec.place: job.spec for job in jobs}
    dues_s: list[float] = []
    for spec in places.values():
        engine: object = engine_of(spec)
        if not isinstance(engine, Unhurried):
            return INTERVAL_S
        dues_s.append(engine.due_s())
    return min(max(min(dues_s, default=0.0), INTERVAL_S), IDLE_INTERVAL_S)


def is_settled(job: Job) -> bool:
    """The engine has it, and nobody waits for anything but for what becomes of it."""
    if not job.attempts or job.between_tries or job.stop_requested_ns is not None:
        return False
    return job.attempts[-1].engine_id is not None and job.state in (State.WAITING, State.RUNNING)


def is_full(
    jobs: Sequence[Job], actions: Sequence[Action], queues: Collection[str], max_running: int
) -> bool:
    """Whether as many jobs run on this machine, after these actions, as may. `queues`: places with
    a queue of their own.
    """
    over, begun = (
        _ended(actions),
        {action.pk for action in actions if isinstance(action, NewAttempt)},
    )
    here = [job for job in jobs if job.spec.place not in queues and job.pk not in over]
    return sum(1 for job in here if queue.holds(job) or job.pk in begun) >= max_running


def goes_on(
    jobs: Sequence[Job], actions: Sequence[Action], queues: Collection[str], *, full: bool
) -> bool:
    """Whether what was just done lets more be done at once: a try after a try, jobs that waited for
    one that is over, and those behind the part of the queue that was read.
    """
    if any(isinstance(action, Again) for action in actions):
        return True

    waits_for_another = any(job.spec.after for job in jobs if not job.attempts)
    if waits_for_another and _ended(actions):
        return True

    place_of = {job.pk: job.spec.place for job in jobs}
    begun = [place_of[action.pk] for action in actions if isinstance(action, NewAttempt)]
    return any(place in queues or not full for place in begun)


def _ended(actions: Sequence[Action]) -> set[int]:
    return {
        action.pk
        for action in actions
        if isinstance(action, SetState) and action.ended_ns is not None
    }


class Rests:
    """How long failed attempts still wait for the next one. The wall clock is asked once, by a
    server that has just come; from then on one that never steps is (F26).
    """

    def __init__(self) -> None:
        self._due_s: dict[str, float] = {}  # key of a failed attempt -> when the next one may start

    def left_s(self, jobs: Sequence[Job], now_s: float, now_ns: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for job in jobs:
            if job.between_tries:
                last = job.attempts[-1]
                retry = last.retry or {}
                left_s = (retry.get("not_before_ns", 0) - now_ns) / 1e9
                left_s = min(max(left_s, 0.0), retry.get("wait_s", 0.0))
                found[last.key] = self._due_s.setdefault(last.key, now_s + left_s) - now_s
        self._due_s = {key: due_s for key, due_s in self._due_s.items() if key in found}
        return found


class Misses:
    """Since when an engine has not told anything of an attempt. One answer that is late or fails
    says nothing.
    """

    def __init__(self) -> None:
        # key -> first and last miss, and how many there were
        self._known: dict[str, tuple[float, float, int]] = {}

    def since_s(
        self, keys: Sequence[str], observations: Mapping[str, Observation], now_s: float
    ) -> dict[str, float]:
        """By key, of those that this look has missed; 0 where there were too few."""
        found: dict[str, float] = {}
        for key in keys:
            if observations.get(key, UNSEEN).state != "unknown":
                self._known.pop(key, None)
                continue
            first_s, _, count = self._known.get(key, (now_s, now_s, 0))
            self._known[key] = (first_s, now_s, count + 1)
            found[key] = now_s - first_s if count + 1 >= MISSES_MIN else 0.0
        if len(self._known) > len(found):
            self._known = {
                k: known for k, known in self._known.items() if now_s - known[1] < MISSES_KEPT_S
            }
        return found


class Quiet:
    """Jobs in schedulers' queues of which nothing is expected before the scheduler is asked again,
    which is at most once in `INTERVAL_S`. A look that something else has called for leaves them
    out: a thousand of them cost nothing.
    """

    def __init__(self) -> None:
        self._whole_s = -INTERVAL_S  # when every job was looked at
        self._pks: set[int] = set()
        self._changed: deque[int] = deque()  # of which the store has told since a look began

    def note(self, pk: int) -> None:
        """Something of it has changed. From any thread."""
        self._changed.append(pk)

    def left_out(self, now_s: float, answered: bool) -> set[int]:
        """For a look that begins now. `answered`: an engine has told late of jobs that any look may
        have asked for.
        """
        while self._changed:
            self._pks.discard(self._changed.popleft())
        if answered or now_s - self._whole_s >= INTERVAL_S:
            self._whole_s, self._pks = now_s, set()
        return self._pks

    def settle(
        self, jobs: Sequence[Job], actions: Sequence[Action], queues: Collection[str]
    ) -> None:
        """What a look has seen and has nothing to do about."""
        busy = {action.pk for action in actions}
        self._pks |= {
            job.pk
            for job in jobs
            if job.spec.place in queues and job.pk not in busy and is_settled(job)
        }

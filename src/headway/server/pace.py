"""How long the loop may rest when nothing wakes it. Called by `loop.py` after each look."""

from collections.abc import Callable, Sequence

from headway.engines.protocol import Engine, Unhurried
from headway.model.job import Job, JobSpec, State
from headway.server.reconcile import Action

INTERVAL_S = 1.0  # between two looks when nothing wakes the loop
IDLE_INTERVAL_S = 5.0  # and when there is no open job, or nothing that a look could see


def pause_s(jobs: Sequence[Job], actions: Sequence[Action], engine_of: Callable[[JobSpec], Engine | None]) -> float:
    """Jobs that lie in a scheduler's queue, or run there, are looked at as often as the scheduler is asked: what their
    agents say wakes the loop."""
    if actions or not all(_is_settled(job) for job in jobs):
        return INTERVAL_S
    places = {job.spec.place: job.spec for job in jobs}
    dues_s: list[float] = []
    for spec in places.values():
        engine: object = engine_of(spec)
        if not isinstance(engine, Unhurried):
            return INTERVAL_S
        dues_s.append(engine.due_s())
    return min(max(min(dues_s, default=0.0), INTERVAL_S), IDLE_INTERVAL_S)


def _is_settled(job: Job) -> bool:
    """The engine has it, and nobody waits for anything but for what becomes of it."""
    if not job.attempts or job.between_tries or job.stop_requested_ns is not None:
        return False
    return job.attempts[-1].engine_id is not None and job.state in (State.WAITING, State.RUNNING)

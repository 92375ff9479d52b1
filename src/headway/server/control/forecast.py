"""When a job that waits in the queue of this server is likely to start. Pure; called by `waiting`.

Places come free when running jobs end. How long those take is known from what they say themselves
(a progress bar), from how long jobs of the same name took here before, or from their time limit; in
this order. The queue is then played forward as `queue.choose` would go through it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headway.engines.protocol import Node
from headway.model.job import Job
from headway.server.control import queue
from headway.settings.quantity import duration_text

STARTS_MAX = 2_000  # jobs that are played through


@dataclass(frozen=True, slots=True)
class Length:
    """How long a job takes from its start, or `None`; and where that is known from."""

    seconds: float | None
    source: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """How good the forecasts of this home were so far, at one place."""

    right: int = 0
    total: int = 0
    factor: float = 1.0  # by which waits were longer than forecast


@dataclass(frozen=True, slots=True)
class Forecast:
    start_ns: int
    because: str  # `train-abc ends (jobs of this name took 12m here)`


UNKNOWN = Length(None)


def remaining_s(job: Job, length: Length, now_ns: int) -> float | None:
    """From now on; None: it has run for longer than was thought, or nothing is known."""
    begun_ns = job.started_ns or now_ns
    if length.seconds is None:
        return None
    left_s = length.seconds - (now_ns - begun_ns) / 1e9
    return left_s if left_s > 0 else None


def foresee(
    job: Job, waiting: Sequence[Job], running: Sequence[Job], nodes: Sequence[Node],
    max_running: int | None, lengths: Mapping[int, Length], now_ns: int,
) -> Forecast | None:  # fmt: skip
    """`waiting`: the queue in its order, with this job. `running`: those that hold a place there.
    `lengths`: by pk. None: it depends on a job of which nothing is known.
    """
    room = queue.Room.of(nodes)
    for one in running:
        room.take(one)
    ends: list[tuple[float, int, Job]] = []
    for one in running:
        left_s = remaining_s(one, lengths.get(one.pk, UNKNOWN), now_ns)
        if left_s is not None:
            heapq.heappush(ends, (left_s, one.pk, one))
    places = len(running)
    left = list(waiting)[:STARTS_MAX]
    at_s = 0.0
    last: Job | None = None
    while left:
        held = queue.Room(room.gpus, room.cpus, room.memory_bytes)
        for one in list(left):
            fits = held.fits(one) and (max_running is None or places < max_running)
            held.take(one)  # one that does not fit keeps what it needs from those behind it
            if not fits:
                continue
            if one.pk == job.pk:
                return Forecast(now_ns + int(at_s * 1e9), _because(last, lengths))
            left.remove(one)
            room.take(one)
            places += 1
            takes_s = lengths.get(one.pk, UNKNOWN).seconds
            if takes_s is not None:
                heapq.heappush(ends, (at_s + takes_s, one.pk, one))
        if not ends:
            return None
        at_s, _, last = heapq.heappop(ends)
        _give_back(room, last)
        places -= 1
    return None


def _give_back(room: queue.Room, job: Job) -> None:
    room.gpus += job.spec.gpus
    if room.cpus is not None:
        room.cpus += job.spec.cpus or 0
    if room.memory_bytes is not None:
        room.memory_bytes += job.spec.memory_bytes or 0


def _because(last: Job | None, lengths: Mapping[int, Length]) -> str:
    if last is None:
        return "nothing is in its way"
    source = lengths.get(last.pk, UNKNOWN).source
    return f"when {last.id} ends ({source})"


def words(forecast: Forecast, history: History, now_ns: int) -> tuple[str, int]:
    """As `hw why` says it, and the moment that is told: corrected by how far earlier forecasts were
    off.
    """
    wait_s = max(0.0, (forecast.start_ns - now_ns) / 1e9) * history.factor
    start_ns = now_ns + int(wait_s * 1e9)
    clock = datetime.fromtimestamp(start_ns / 1e9).strftime("%H:%M" if wait_s > 600 else "%H:%M:%S")  # noqa: DTZ006  (the clock of whoever reads it, on this machine)
    text = f"about {clock}, in {duration_text(_rounded(wait_s))}, {forecast.because}"
    if told := record_words(history):
        text += f"; {told}"
    return text, start_ns


def record_words(history: History) -> str:
    """How often such forecasts were right."""
    if not history.total:
        return "no forecast was put to the test here so far"
    return f"{history.right} of {history.total} forecasts here were right to a quarter of the wait"


def _rounded(seconds: float) -> float:
    """So that it reads as a guess: `40s`, `12m`, `3h`."""
    if seconds < 90:
        return max(1, round(seconds / 5) * 5 or round(seconds))
    if seconds < 5400:
        return round(seconds / 60) * 60
    return round(seconds / 3600) * 3600

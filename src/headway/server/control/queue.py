"""Which waiting jobs start now: dependencies, priority, age, and what fits. Pure; called by
`server/control/reconcile.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.engines.protocol import Node
from headway.model.job import Job, State

# uuid -> (id, state); None: nothing more will come of it
Needed = Mapping[str, tuple[str, State | None]]


@dataclass(slots=True)
class Room:
    """What one cluster has left. None: not known, so not counted."""

    gpus: int
    cpus: int | None
    memory_bytes: int | None

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "Room":
        return cls(
            sum(n.gpus for n in nodes),
            _total(n.cpus for n in nodes),
            _total(n.memory_bytes for n in nodes),
        )

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
        self.memory_bytes = (
            None if self.memory_bytes is None else self.memory_bytes - (job.spec.memory_bytes or 0)
        )


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def holds(job: Job) -> bool:
    """Whether it takes a place: started or about to, by us, and not over. A job not heard of may
    still run.
    """
    return (
        bool(job.attempts)
        and not job.spec.attached
        and job.ended_ns is None
        and not job.between_tries
    )


def _rooms(by_place: Mapping[str, Sequence[Node]]) -> dict[str, Room]:
    """By place. Clusters on the same machines, such as processes and containers of this one, share
    one room.
    """
    shared: dict[tuple[str, ...], Room] = {}
    for nodes in by_place.values():
        room, known = Room.of(nodes), shared.get(tuple(node.name for node in nodes))
        if known is None or room.gpus > known.gpus:  # one of them may not see the GPUs
            shared[tuple(node.name for node in nodes)] = room
    return {place: shared[tuple(node.name for node in nodes)] for place, nodes in by_place.items()}


def left(
    jobs: Iterable[Job], nodes: Mapping[str, Sequence[Node]]
) -> dict[str, dict[str, int | None]]:
    """What each place has left beside the jobs that hold something there, for `hw clusters`."""
    rooms = _rooms(nodes)
    for job in jobs:
        if holds(job) and job.spec.place in rooms:
            rooms[job.spec.place].take(job)
    return {
        place: {"gpus": room.gpus, "cpus": room.cpus, "memory_bytes": room.memory_bytes}
        for place, room in rooms.items()
    }


def broken(job: Job, needed: Needed) -> tuple[str, State | None] | None:
    """The job that this one waits for in vain: (id, how it ended)."""
    for uuid in job.spec.after:
        name, state = needed.get(uuid, ("", State.WAITING))  # not looked up yet: that says nothing
        if state in (State.FAILED, State.STOPPED, None):
            return name, state
    return None


def _is_ready(job: Job, needed: Needed, rest_s: Mapping[str, float]) -> bool:
    if job.between_tries:
        return rest_s.get(job.attempts[-1].key, 0.0) <= 0
    return all(uuid in needed and needed[uuid][1] is State.SUCCEEDED for uuid in job.spec.after)


def order(
    jobs: Iterable[Job], needed: Needed | None = None, rest_s: Mapping[str, float] | None = None
) -> list[Job]:
    """The queue: priority, then age. Not in it: what waits for another job, or for the time of its
    next try.
    """
    waiting = []
    for job in jobs:
        is_over = job.ended_ns is not None or job.stop_requested_ns is not None
        is_out = bool(job.attempts) and not job.between_tries
        if is_over or is_out or job.spec.attached:
            continue
        if _is_ready(job, needed or {}, rest_s or {}):
            waiting.append(job)
    return sorted(waiting, key=lambda job: (-job.spec.priority, job.submitted_ns, job.pk))


@dataclass(frozen=True, slots=True)
class Places:
    """What there is to start jobs on."""

    nodes: Mapping[str, Sequence[Node]]  # cluster -> its machines
    queues: frozenset[str]  # clusters whose engine has a queue of its own
    max_running: int
    busy: frozenset[int]


def choose(
    jobs: Sequence[Job], places: Places, needed: Needed, rest_s: Mapping[str, float]
) -> list[Job]:
    """Jobs that start now. One that does not fit keeps what it needs from those behind it, so that
    a large one is not passed over for ever, while one that needs nothing of the scarce kind may go
    first.
    """
    rooms = _rooms(places.nodes)
    running = 0
    for job in jobs:
        if holds(job) and job.spec.place not in places.queues:
            running += 1
            if job.spec.place in rooms:
                rooms[job.spec.place].take(job)
    chosen: list[Job] = []
    for job in order(jobs, needed, rest_s):
        if job.pk in places.busy or job.spec.place not in rooms:
            continue
        if job.spec.place not in places.queues:
            room = rooms[job.spec.place]
            fits = room.fits(job)
            room.take(job)
            if not fits or running >= places.max_running:
                continue
            running += 1
        chosen.append(job)
    return chosen

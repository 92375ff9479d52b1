"""Jobs of other machines on this monitor: told here, run there. Nothing here starts, observes or
ends them.

`tell` writes down what a job's own server says of it; `Guests` knows which machine each belongs to
and when it was last heard, and says `unknown` of those that are not heard (P8). Called by
`api/guest.py`, `api/agent.py` and `serve.py`.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from sqlite3 import Connection

import msgspec

from headway.model.errors import RefusedError, UsageError
from headway.model.ids import ALPHABET, SUFFIX_CHARS
from headway.model.job import ENDED, Job, JobSpec, State, may_follow
from headway.model.json_types import JsonObject
from headway.model.limits import SILENT_AFTER_S
from headway.server.control import submit_check
from headway.store import catalog
from headway.store.database import Store
from headway.wire.batch import TaskKey

_LOOK_S = 5.0
ENGINE = "guest"  # in place of what runs it there
_FIELDS = {f.name for f in fields(JobSpec)}
_LATEST_NS = 2**62  # a time beyond it is none
_NS = ("state_since_ns", "submitted_ns", "started_ns", "ended_ns", "created_ns")
_NUMBERS = ("exit_code", "signal")


class ToldTask(msgspec.Struct):
    name: str
    node: str | None = None


class ToldAttempt(msgspec.Struct):
    number: int
    state: State
    engine_word: str | None = None
    cause: JsonObject | None = None
    exit_code: int | None = None
    signal: int | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    tasks: list[ToldTask] = []


class Told(msgspec.Struct):
    """What the machine that runs a job says of it. Further fields are let pass: it may be newer
    than we are.
    """

    uuid: str
    id: str
    spec: JsonObject
    state: State
    state_since_ns: int
    submitted_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    attempts: list[ToldAttempt] = []


def mailbox_key(uuid: str) -> TaskKey:
    """Where commands for another machine's job wait; no task has the number 0."""
    return TaskKey(uuid, 0, "guest")


def check(told: Told) -> None:
    """Numbers that no database holds, and times that no calendar has, would cost more than this job."""
    for one in (told, *told.attempts):
        for name in (*_NS, *_NUMBERS):
            value = getattr(one, name, None)
            most = _LATEST_NS if name in _NS else 2**31
            if value is not None and not -most < value < most:
                raise UsageError(f"{name} cannot be {value!r:.40}")


def spec_of(told: Told, owner: str) -> JobSpec:
    given = {name: value for name, value in told.spec.items() if name in _FIELDS}
    return replace(submit_check.job_spec(given), guest_of=owner, monitor=None)


def tell(c: Connection, owner: str, told: Told, spec: JobSpec) -> Job:
    """One transaction. Said again, or late, it changes nothing: an end stays an end."""
    suffix = told.id.rpartition("-")[2]
    plain = len(suffix) == SUFFIX_CHARS and set(suffix) <= set(ALPHABET)
    job = catalog.insert_job(
        c, told.uuid, spec, told.submitted_ns, ENGINE, suffix=suffix if plain else None
    )
    if job.spec.guest_of != owner:
        whose = f"the machine {job.spec.guest_of}" if job.spec.guest_of else "this machine"
        raise RefusedError(
            f"{job.id} belongs to {whose}", "tokens of one machine have one name: hw token create"
        )
    for attempt in told.attempts:
        _tell_attempt(c, job, attempt)
    _tell_state(c, job, told)
    return catalog.load_job(c, job.pk)


def _tell_attempt(c: Connection, job: Job, told: ToldAttempt) -> None:
    if not 1 <= told.number < 1_000_000:
        raise UsageError(f"there is no attempt {told.number}")
    catalog.insert_attempt(
        c, job.pk, told.number, f"{job.uuid}-{told.number}", told.created_ns or job.submitted_ns
    )
    for task in told.tasks:
        catalog.insert_task(c, job.pk, told.number, task.name, task.node)
    names = ("engine_word", "cause", "exit_code", "signal", "started_ns", "ended_ns")
    known = {name: getattr(told, name) for name in names if getattr(told, name) is not None}
    catalog.set_attempt(c, job.pk, told.number, state=told.state, **known)


def _tell_state(c: Connection, job: Job, told: Told) -> None:
    if job.state in ENDED:
        return
    since_ns = max(told.state_since_ns, job.state_since_ns)
    if told.state != job.state and not may_follow(job.state, told.state):
        catalog.set_job_state(c, job.pk, State.UNKNOWN, since_ns)  # steps in between were not told
    catalog.set_job_state(
        c, job.pk, told.state, since_ns, exit_code=told.exit_code, signal=told.signal,
        started_ns=told.started_ns, ended_ns=told.ended_ns,
    )  # fmt: skip


@dataclass(slots=True)
class Guest:
    owner: str
    heard_s: float
    heard_ns: int
    silent: bool = False  # and its state was set to unknown because of that


@dataclass(slots=True)
class Guests:
    """In memory: after a restart every machine is asked to tell its jobs again."""

    store: Store
    clock_s: Callable[[], float] = time.monotonic
    _known: dict[str, Guest] = field(default_factory=dict)

    def owner(self, uuid: str) -> str | None:
        found = self._known.get(uuid)
        return found.owner if found else None

    def is_known(self, owner: str) -> bool:
        """Whether a machine of this name has told of jobs."""
        return any(guest.owner == owner for guest in self._known.values())

    def told(self, uuid: str, owner: str) -> None:
        self._known[uuid] = Guest(owner, self.clock_s(), time.time_ns())

    def heard(self, uuids: list[str], owner: str) -> list[str]:
        """Note a sign of life of these jobs; those of which we want to be told again."""
        again = []
        for uuid in uuids:
            found = self._known.get(uuid)
            if found is None or found.owner != owner or found.silent:
                again.append(uuid)
            else:
                found.heard_s, found.heard_ns = self.clock_s(), time.time_ns()
        return again

    async def watch(self) -> None:
        """Until cancelled: what is not heard of becomes unknown, with the time since when."""
        started_s = self.clock_s()
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.clock_s() - started_s > SILENT_AFTER_S and await asyncio.to_thread(
                self._has_any
            ):
                await asyncio.wrap_future(self.store.write(self._silence))

    def _has_any(self) -> bool:
        with self.store.read() as c:
            return catalog.has_guests(c)

    def _silence(self, c: Connection) -> None:
        for job in catalog.open_jobs(c):
            if job.spec.guest_of is None or job.state is State.UNKNOWN or job.ended_ns is not None:
                continue
            found = self._known.get(job.uuid)
            if found is not None and self.clock_s() - found.heard_s <= SILENT_AFTER_S:
                continue
            since_ns = max(found.heard_ns if found else job.state_since_ns, job.state_since_ns)
            catalog.set_job_state(c, job.pk, State.UNKNOWN, since_ns)
            if found is not None:
                found.silent = True

"""A store with a job in it, and the bytes that agents would send to it. Used by tests of the store."""

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headway.home.paths import Paths
from headway.model.ids import new_uuid
from headway.model.job import Job, JobSpec, State
from headway.model.record import FACT, OPEN
from headway.store import catalog, query
from headway.store.database import Store
from headway.store.ingest import IngestResult
from headway.wire import frame
from headway.wire.batch import Part, TaskKey

T = TypeVar("T")
NOW_NS = 1_790_000_000_000_000_000
PUT_ASIDE = b"\0\0\0\0"  # the store does not look at a frame's own checksum: the batch has one


@dataclass
class Clock:
    """Time that only moves when a test says so."""

    now_ns: int = NOW_NS

    def __call__(self) -> int:
        return self.now_ns


@dataclass
class Bench:
    """An open store without housekeeping of its own, and the task that data is sent for."""

    store: Store
    paths: Paths
    clock: Clock
    job: Job
    key: TaskKey
    sent: dict[str, int] = field(default_factory=dict)

    def write(self, work: Callable[[Any], T]) -> T:
        return self.store.write(work).result(30)

    def read(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        with self.store.read() as c:
            return work(c, *args, **options)

    def ingest(self, *parts: Part, key: TaskKey | None = None) -> IngestResult:
        return self.store.ingest(key or self.key, list(parts)).result(30)

    def send(self, stream: str, kind: str, data: bytes, key: TaskKey | None = None) -> IngestResult:
        """The next bytes of a stream; fails where they are not accepted."""
        where = f"{key or self.key} {stream}"
        offset = self.sent.get(where, 0)
        result = self.ingest(Part(stream, kind, offset, data), key=key)
        assert not result.refused, result.refused
        assert result.acks[stream] == offset + len(data)
        self.sent[where] = offset + len(data)
        return result

    def tell(
        self, *facts: dict[str, Any], stream: str = "shim", key: TaskKey | None = None
    ) -> IngestResult:
        return self.send(stream, "records", b"".join(fact(f) for f in facts), key)

    def end(self, state: State = State.SUCCEEDED) -> None:
        def finish(c: Any) -> None:
            catalog.set_job_state(c, self.job.pk, State.RUNNING, NOW_NS, started_ns=NOW_NS)
            catalog.set_job_state(c, self.job.pk, state, NOW_NS + 10**9, ended_ns=NOW_NS + 10**9)

        self.write(finish)
        self.clock.now_ns += 2 * 10**9

    def object(self) -> dict[str, Any]:
        found = self.read(query.job_object, self.job.pk, self.paths, self.clock())
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        return found

    def events(self, type_: str) -> list[dict[str, Any]]:
        return [event for event in self.read(query.events, self.job.pk) if event["type"] == type_]


def open_store(folder: Path, **options: Any) -> tuple[Store, Paths, Clock]:
    folder.mkdir(mode=0o700, exist_ok=True)
    paths, clock = Paths(folder), Clock()
    store = Store(paths, clock_ns=clock, **{"background": False, "linger_s": 0.0, **options})
    store.open()
    return store, paths, clock


def new_job(
    store: Store, name: str = "train", attempts: int = 1, **spec: Any
) -> tuple[Job, TaskKey]:
    uuid = new_uuid()

    def insert(c: Any) -> Job:
        job = catalog.insert_job(
            c, uuid, JobSpec(command=["python", "train.py"], cwd="/work", name=name, **spec), NOW_NS
        )
        for number in range(1, attempts + 1):
            catalog.insert_attempt(c, job.pk, number, f"{uuid}-{number}", NOW_NS)
            catalog.insert_task(c, job.pk, number, "worker-0", "node1")
        return job

    return store.write(insert).result(30), TaskKey(uuid, attempts, "worker-0")


def bench(folder: Path, **options: Any) -> Bench:
    store, paths, clock = open_store(folder, **options)
    job, key = new_job(store)
    return Bench(store, paths, clock, job, key)


# -- bytes


def fact(value: dict[str, Any]) -> bytes:
    return frame.encode_json(FACT, {"time_ns": NOW_NS, **value})


def opening(stream: str, **fields: Any) -> bytes:
    return frame.encode_json(OPEN, {"version": 1, "stream": stream, "time_ns": NOW_NS, **fields})


def record(schema: int, step: int, values: Sequence[float], time_ns: int = NOW_NS) -> bytes:
    body = frame.metrics_struct(len(values)).pack(
        *frame.metrics_head(len(values), schema), step, time_ns, *values
    )
    return frame.MAGIC + PUT_ASIDE + body


def records(
    schema: int, steps: Iterable[int], columns: Sequence[Sequence[float]], time_ns: int = NOW_NS
) -> bytes:
    """Many records of one schema, made by numpy; one microsecond apart."""
    step = np.array(list(steps), "<i8")
    width = len(columns)
    rows = np.zeros(
        len(step),
        np.dtype(
            [
                ("head", f"V{12}"),
                ("schema", "<u4"),
                ("step", "<i8"),
                ("time", "<i8"),
                ("v", "<f8", (width,)),
            ]
        ),
    )
    rows["head"] = np.void(frame.MAGIC + PUT_ASIDE + struct.pack("<BBI", 3, 0, 20 + 8 * width))
    rows["schema"], rows["step"] = schema, step
    rows["time"] = time_ns + 1000 * np.arange(len(step))
    rows["v"] = np.array(columns, np.float64).T
    return rows.tobytes()


def schema(number: int, *names: str) -> bytes:
    return frame.encode_schema(number, names)


def gap(stream: str, offset: int, length: int, reason: str = "spool full", **counts: int) -> Part:
    return Part(
        stream, "gap", offset, json.dumps({"bytes": length, "reason": reason, **counts}).encode()
    )


def bits(values: Any) -> list[int]:
    """Floats as their 64 bits: NaN equals itself, and -0.0 is not 0.0."""
    found: list[int] = np.ascontiguousarray(values, np.float64).view(np.int64).tolist()
    return found

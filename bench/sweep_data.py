"""Homes with many finished jobs, written through the store itself: for cases about tables and files
of many runs. Nothing is served while they are made.
"""

from pathlib import Path
from sqlite3 import Connection

import numpy as np

from bench import dataset
from headway.home.paths import Paths
from headway.model.ids import new_uuid
from headway.model.job import JobSpec, State
from headway.store import catalog
from headway.store.database import Store
from headway.wire.batch import Part, TaskKey

EXPERIMENT = "sweep"
_VALUES_AT_ONCE = 500_000
FIRST_NS = dataset.FIRST_TIME_NS


def fill(folder: Path, jobs: int, keys: int, metrics: int, steps: int) -> None:
    """`jobs` finished jobs of one experiment, with so many config keys (a tenth of them differ) and
    metrics of `steps` points each; values are single precision, as programs log them.
    """
    store = Store(Paths(folder), background=False)
    store.open()
    random = np.random.default_rng(0)
    names = tuple(name_of(number) for number in range(metrics))
    try:
        for number in range(jobs):
            values = random.random((metrics, steps), np.float32).astype(np.float64)
            times = FIRST_NS + np.arange(steps, dtype=np.int64) * 10**9
            records = dataset.Records(names, np.arange(steps, dtype=np.int64), times, values)
            _add(store, number, keys, records)
    finally:
        store.close()


def name_of(number: int) -> str:
    return f"val/acc/{number}" if number % 2 else f"train/loss/{number}"


def _config(number: int, keys: int) -> dict[str, object]:
    differing = max(1, keys // 10)
    return {
        f"key{key}": (number * (key + 1)) % 7 if key < differing else f"value {key}"
        for key in range(keys)
    }


def _add(store: Store, number: int, keys: int, records: dataset.Records) -> None:
    uuid = new_uuid()
    spec = JobSpec(
        command=["python", "train.py"], cwd="/", name="train", experiment=EXPERIMENT,
        parameters=_config(number, keys),
    )  # fmt: skip

    def insert(c: Connection) -> int:
        job = catalog.insert_job(c, uuid, spec, FIRST_NS + number)
        catalog.insert_attempt(c, job.pk, 1, f"{uuid}-1", FIRST_NS)
        catalog.insert_task(c, job.pk, 1, "worker-0", "node1")
        return job.pk

    pk = store.write(insert).result(60)
    stream = "metrics-0-1-aaaaaa.0"
    data = dataset.opening(stream, records.names)
    offset = 0
    rows = max(1, _VALUES_AT_ONCE // len(records.names))
    for start in range(0, records.rows, rows):
        some = slice(start, start + rows)
        part = dataset.Records(
            records.names, records.step[some], records.time_ns[some], records.values[:, some]
        )
        data += dataset.frames(part)
        key = TaskKey(uuid, 1, "worker-0")
        store.ingest(key, [Part(stream, "records", offset, data)]).result(60)
        offset += len(data)
        data = b""

    def end(c: Connection) -> None:
        catalog.set_job_state(c, pk, State.RUNNING, FIRST_NS, started_ns=FIRST_NS)
        catalog.set_job_state(c, pk, State.SUCCEEDED, FIRST_NS, ended_ns=FIRST_NS + 10**9)

    store.write(end).result(60)

"""A process that feeds a store and says what was acknowledged, for tests that kill it or fail its
system calls.

    python -m tests.store_worker HOME COUNT [--large] [--wait-for FILE]

Each round sends a record and some output, and prints `ack N` once they are durable, or `refused N`
and tries again. `--large` sends output that goes straight to its file. With `--wait-for` it prints
`full` when data is refused and goes on when the file is gone.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from headway.home.paths import Paths
from headway.model.errors import UnreachableError
from headway.model.job import JobSpec
from headway.model.limits import LOG_DIRECT_BYTES
from headway.store import catalog
from headway.store.database import Store
from headway.wire.batch import Part, TaskKey
from tests.storing import record, schema

UUID = "11111111-2222-4333-8444-555555555555"
KEY = TaskKey(UUID, 1, "worker-0")
METRICS = "metrics-0-100-abcdef.0"
HEAD = schema(0, "x")
REFUSED_MAX = 200


def metrics_bytes(i: int) -> bytes:
    return (HEAD if i == 0 else b"") + record(0, i, [float(i)])


def line_bytes(i: int, large: bool) -> bytes:
    text = b"line %06d\n" % i
    return text * (LOG_DIRECT_BYTES // len(text) + 1) if large else text


def offsets(i: int, large: bool) -> tuple[int, int]:
    """Where round `i` starts in both streams."""
    one = len(record(0, 0, [0.0]))
    return (len(HEAD) + one * i if i else 0), len(line_bytes(0, large)) * i


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def insert(store: Store) -> None:
    def work(c: object) -> None:
        job = catalog.insert_job(c, UUID, JobSpec(["x"], "/", "train"), time.time_ns())  # type: ignore[arg-type]
        catalog.insert_attempt(c, job.pk, 1, f"{UUID}-1", time.time_ns())  # type: ignore[arg-type]
        catalog.insert_task(c, job.pk, 1, "worker-0")  # type: ignore[arg-type]

    for _ in range(REFUSED_MAX):
        try:
            store.write(work).result(60)
            return
        except UnreachableError as error:
            say(f"refused at first: {error.message}")


def send(store: Store, i: int, large: bool) -> bool:
    metrics_at, line_at = offsets(i, large)
    parts = [
        Part(METRICS, "records", metrics_at, metrics_bytes(i)), Part("stdout-0", "raw", line_at, line_bytes(i, large)),
    ]  # fmt: skip
    try:
        result = store.ingest(KEY, parts).result(60)
    except UnreachableError as error:
        say(f"refused {i} {error.message}")
        return False
    assert not result.refused, result.refused
    say(f"ack {i}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--large", action="store_true")
    parser.add_argument(
        "--wait-for", type=Path, help="when data is refused, wait until this file is gone"
    )
    asked = parser.parse_args()
    store = Store(Paths(asked.home), background=False, linger_s=0.0)
    store.open()
    insert(store)
    say("open")
    refused = 0
    for i in range(asked.count):
        while not send(store, i, asked.large):
            refused += 1
            if refused > REFUSED_MAX:
                sys.exit("refused for ever")
            if asked.wait_for is not None:
                check_reads(store)
                say("full")
                while asked.wait_for.exists():
                    time.sleep(0.01)
            time.sleep(0.01)
    store.close()
    say("done")


def check_reads(store: Store) -> None:
    with store.read() as c:
        assert catalog.resolve(c, UUID)
    say("reads work")


if __name__ == "__main__":
    main()

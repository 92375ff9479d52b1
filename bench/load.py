"""Puts a data set into a home through the server, as an agent would, and waits until it is
compacted.
"""

import time

from bench import dataset
from bench.home import Home, Registered
from bench.measure import wait_until
from bench.sender import STREAM, batches, post
from headway.home.connect import UnixConnection
from headway.model.record import FACT, OPEN
from headway.wire import frame
from headway.wire.batch import Part, encode

PART_BYTES = 1 << 20
COMPACT_TIMEOUT_S = 120
END_STREAM = "shipper-1-abcdef"


def load(home: Home, records: dataset.Records, name: str = "data") -> Registered:
    """Send, verify the count, wait until no block of it waits for compaction."""
    task = home.register(name)
    head, framed = dataset.opening(STREAM, records.names), dataset.frames(records)
    bodies = batches(head + framed, len(head), len(framed) // records.rows, PART_BYTES, task.key)
    connection = UnixConnection(home.socket, 120)
    connection.connect()
    try:
        post(connection, bodies, task.token, len(head) + len(framed))
        end(connection, task)
    finally:
        connection.close()
    if home.points(task.key.uuid) != records.points:
        raise RuntimeError(f"{home.points(task.key.uuid):,} points stored of {records.points:,}")
    wait_until(
        lambda: waiting_rows(home, task) == 0,
        COMPACT_TIMEOUT_S,
        "blocks are not compacted",
        pause_s=0.1,
    )
    return task


def end(connection: UnixConnection, task: Registered) -> None:
    """Say that the task has ended, as its agent would: what is left of an ended job is compacted as
    well.
    """
    now_ns = time.time_ns()
    opened = {
        "version": 1,
        "stream": END_STREAM,
        "kind": "shipper",
        "rank": None,
        "pid": 1,
        "start": 1,
        "segment": 0,
    }
    ended = {
        "type": "task_ended",
        "exit_code": 0,
        "signal": None,
        "first_rank": None,
        "reason": None,
        "oom": False,
    }
    data = frame.encode_json(OPEN, {**opened, "time_ns": now_ns})
    data += frame.encode_json(FACT, {**ended, "lost": False, "time_ns": now_ns})
    body = encode(task.key, [Part(END_STREAM, "records", 0, data)], now_ns)
    connection.request(
        "POST", "/agent/ingest", body=body, headers={"Authorization": f"Bearer {task.token}"}
    )
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the end of a task was answered with {answer.status}")


def waiting_rows(home: Home, task: Registered) -> int:
    rows = home.query(
        "SELECT sum(b.rows) FROM blocks b JOIN bundles u ON u.pk = b.bundle "
        "JOIN jobs j ON j.pk = u.job WHERE j.uuid = ?",
        task.key.uuid,
    )
    return int(rows[0][0] or 0)

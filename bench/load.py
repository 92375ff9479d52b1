"""Puts a data set into a home through the server, as an agent would, and waits until it is compacted."""

from bench import dataset
from bench.home import Home, Registered
from bench.measure import wait_until
from bench.sender import STREAM, batches, post
from headway.settings.connect import UnixConnection

PART_BYTES = 1 << 20
COMPACT_TIMEOUT_S = 120


def load(home: Home, records: dataset.Records, name: str = "data") -> Registered:
    """Send, verify the count, wait until no block of it waits for compaction."""
    task = home.register(name)
    head, framed = dataset.opening(STREAM, records.names), dataset.frames(records)
    bodies = batches(head + framed, len(head), len(framed) // records.rows, PART_BYTES, task.key)
    connection = UnixConnection(home.socket, 120)
    connection.connect()
    try:
        post(connection, bodies, task.token, len(head) + len(framed))
    finally:
        connection.close()
    if home.points(task.key.uuid) != records.points:
        raise RuntimeError(f"{home.points(task.key.uuid):,} points stored of {records.points:,}")
    wait_until(lambda: waiting_rows(home, task) == 0, COMPACT_TIMEOUT_S, "blocks are not compacted", pause_s=0.1)
    return task


def waiting_rows(home: Home, task: Registered) -> int:
    rows = home.query(
        "SELECT sum(b.rows) FROM blocks b JOIN streams s ON s.pk = b.stream JOIN tasks t ON t.pk = s.task "
        "JOIN attempts a ON a.pk = t.attempt JOIN jobs j ON j.pk = a.job WHERE j.uuid = ?",
        task.key.uuid,
    )
    return int(rows[0][0] or 0)

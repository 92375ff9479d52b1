"""A sender of ready batches, one process each: `sender.py SOCKET RECORDS VALUES PART_BYTES` (case
`ingest`).

Speaks over its own stdin and stdout: makes the stream and says `ready`; for every line `TASK TOKEN`
(a JSON pair) it makes that task's batches, says `ready`, waits for `go`, posts them one after the
other, and says how long that took.
"""

import http.client
import json
import sys
import time
from pathlib import Path

from bench import dataset
from headway.home.connect import UnixConnection
from headway.wire.batch import Part, TaskKey, encode

STREAM = "metrics-0-1-abcdef.0"


def batches(
    stream: bytes, head_bytes: int, record_bytes: int, part_bytes: int, key: TaskKey
) -> list[bytes]:
    cut = dataset.parts(stream, head_bytes, record_bytes, part_bytes)
    return [
        encode(key, [Part(STREAM, "records", offset, data)], time.time_ns()) for offset, data in cut
    ]


def post(
    connection: http.client.HTTPConnection, bodies: list[bytes], token: str, expected: int
) -> None:
    """Post every batch and check that the server's position has come to the end."""
    position = 0
    for body in bodies:
        connection.request(
            "POST", "/agent/ingest", body=body, headers={"Authorization": f"Bearer {token}"}
        )
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"ingest answered {answer.status}: {data[:300]!r}")
        position = json.loads(data)["acks"][STREAM]
    if position != expected:
        raise RuntimeError(f"the server is at {position} of {expected} bytes")


def main() -> None:
    socket, rows, values, part_bytes = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    records = dataset.wide(rows, values)
    head, framed = dataset.opening(STREAM, records.names), dataset.frames(records)
    stream, record_bytes = head + framed, len(framed) // rows
    print("ready", flush=True)
    for line in sys.stdin:
        (uuid, attempt, task), token = json.loads(line)
        bodies = batches(stream, len(head), record_bytes, part_bytes, TaskKey(uuid, attempt, task))
        connection = UnixConnection(socket, 120)
        connection.connect()
        print("ready", flush=True)
        if sys.stdin.readline().strip() != "go":
            return
        start_s = time.perf_counter()
        post(connection, bodies, token, len(stream))
        print(time.perf_counter() - start_s, flush=True)
        connection.close()


if __name__ == "__main__":
    main()

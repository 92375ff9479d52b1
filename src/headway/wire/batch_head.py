"""The head of a batch: what a shipper sends before the bytes of the parts, which go out from where
they lie.

Apart from `batch`, so that an agent loads no more than this.
"""

from __future__ import annotations

import json
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Task(Protocol):
        @property
        def uuid(self) -> str: ...
        @property
        def attempt(self) -> int: ...
        @property
        def task(self) -> str: ...

    class Part(Protocol):
        @property
        def stream(self) -> str: ...
        @property
        def kind(self) -> str: ...
        @property
        def offset(self) -> int: ...
        @property
        def data(self) -> bytes | memoryview: ...


MAGIC = b"HWB1"


def encode_head(task: "Task", parts: "Sequence[Part]", sent_ns: int) -> bytes:
    header = {
        "task": {"uuid": task.uuid, "attempt": task.attempt, "task": task.task},
        "sent_ns": sent_ns,
        "parts": [
            {
                "stream": p.stream,
                "kind": p.kind,
                "offset": p.offset,
                "length": len(p.data),
                "crc": crc32(p.data),
            }
            for p in parts
        ],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join([MAGIC, len(text).to_bytes(4, "little"), text])

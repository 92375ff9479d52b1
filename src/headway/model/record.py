"""What a stream holds: the kinds of frames, the kinds of streams, and the facts that frames carry.

The byte layout of a frame is `wire/frame.py`; who writes which stream is `docs/concepts/protocol.md`.
"""

from typing import Final

# Kinds of frames. A reader carries a kind that it does not know, unread.
OPEN: Final = 0  # first frame of every record stream: JSON {version, stream, …}
FACT: Final = 1  # JSON {type, time_ns, …}
SCHEMA: Final = 2  # u32 id, JSON list of metric names
METRICS: Final = 3  # u32 schema, i64 step, i64 time_ns, one f64 per name of the schema

FORMAT_VERSION: Final = 1

# Kinds of streams, as named in a batch.
RAW: Final = "raw"  # bytes of stdout, stderr or the agent's log
RECORDS: Final = "records"  # whole frames
INDEX: Final = "index"  # 16-byte entries: u64 offset, u64 wall clock in microseconds
GAP: Final = "gap"  # bytes that will never come; the payload says why

STREAM_KINDS: Final = frozenset({RAW, RECORDS, INDEX, GAP})

"""What a stream holds: the kinds of frames, the kinds of streams, and the facts that frames carry.

The byte layout of a frame is `wire/frame.py`; who writes which stream is
`docs/concepts/protocol.md`.
"""

# Kinds of frames. A reader carries a kind that it does not know, unread.
OPEN = 0  # first frame of every record stream: JSON {version, stream, …}
FACT = 1  # JSON {type, time_ns, …}
SCHEMA = 2  # u32 id, JSON list of metric names
METRICS = 3  # u32 schema, i64 step, i64 time_ns, one f64 per name of the schema

FORMAT_VERSION = 1

# Kinds of streams, as named in a batch.
RAW = "raw"  # bytes of stdout, stderr or the agent's log
RECORDS = "records"  # whole frames
INDEX = "index"  # 16-byte entries: u64 offset, u64 wall clock in microseconds
BLOB = "blob"  # bytes of a file of an artifact, as they are: nothing in them is masked
GAP = "gap"  # bytes that will never come; the payload says why

STREAM_KINDS = frozenset({RAW, RECORDS, INDEX, BLOB, GAP})

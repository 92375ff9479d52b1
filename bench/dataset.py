"""The fixed data: what the figures on storage and reading are measured with. Seeded; the same on
every machine.

A record has two values, a step that counts up and a time as a training loop would give it: steps of
about 25 ms with jitter, now and then a pause for a checkpoint. `curves`: float32-born values, a
loss that falls and a norm that grows, both with noise in every step. `noise`: float64 white noise
twice, which nothing can compress.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from headway.model.record import OPEN
from headway.wire import frame

SEED = 20261115
FIRST_TIME_NS = 1_790_000_000_000_000_000
STEP_NS = 25_000_000
NAMES = ("loss", "grad_norm")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of metric records; `values[k]` belongs to `names[k]`."""

    names: tuple[str, ...]
    step: Ints
    time_ns: Ints
    values: Floats

    @property
    def rows(self) -> int:
        return len(self.step)

    @property
    def points(self) -> int:
        return self.values.size


def times_ns(rows: int, random: np.random.Generator) -> Ints:
    gaps = STEP_NS * (1 + 0.04 * random.standard_normal(rows)) + random.exponential(4e5, rows)
    gaps[::5000] += 2e9  # a checkpoint
    return FIRST_TIME_NS + np.cumsum(np.maximum(gaps, 1e5)).astype(np.int64)


def curves(rows: int) -> Records:
    random = np.random.default_rng(SEED)
    x = np.arange(rows) / max(rows, 1)
    loss = 2.3 * np.exp(-4 * x) + 0.15 + 0.05 * random.standard_normal(rows) * (1.2 - x)
    norm = (0.5 + 3 * x) * np.exp(0.3 * random.standard_normal(rows))
    values = np.stack([loss, norm]).astype(np.float32).astype(np.float64)
    return Records(NAMES, np.arange(rows, dtype=np.int64), times_ns(rows, random), values)


def noise(rows: int) -> Records:
    random = np.random.default_rng(SEED + 1)
    return Records(
        NAMES,
        np.arange(rows, dtype=np.int64),
        times_ns(rows, random),
        random.standard_normal((2, rows)),
    )


def wide(rows: int, values: int) -> Records:
    """Records of any width for ingest; loss-like, float32-born."""
    random = np.random.default_rng(SEED + values)
    data = np.exp(-np.linspace(0, 3, rows)) + 0.02 * random.standard_normal((values, rows))
    names = tuple(f"metric/{k}" for k in range(values))
    step = np.arange(rows, dtype=np.int64)
    return Records(names, step, times_ns(rows, random), data.astype(np.float32).astype(np.float64))


def save(records: Records, path: Path) -> None:
    """The form that `peers/driver.py write` reads: u64 rows, then both columns of values."""
    path.write_bytes(records.rows.to_bytes(8, "little") + records.values.astype("<f8").tobytes())


def opening(stream: str, names: tuple[str, ...], rank: int = 0) -> bytes:
    """What stands before the records of a stream: the OPEN frame and the schema, numbered 0."""
    _, _, pid, _ = (stream.rsplit(".", 1)[0] + "---").split("-", 3)
    fact = {
        "version": 1, "stream": stream, "kind": "metrics", "rank": rank, "pid": int(pid or 1), "start": 1,
        "segment": int(stream.rsplit(".", 1)[1]), "time_ns": FIRST_TIME_NS,
    }  # fmt: skip
    return frame.encode_json(OPEN, fact) + frame.encode_schema(0, names)


def frames(records: Records) -> bytes:
    """All records as METRICS frames of schema 0, checksums included; by columns, since there are
    millions.
    """
    width = len(records.names)
    head = frame.metrics_head(width, 0)
    layout = np.dtype(
        {
            "names": [
                "magic",
                "crc",
                "kind",
                "flags",
                "length",
                "schema",
                "step",
                "time",
                "values",
            ],
            "formats": ["S2", "<u4", "u1", "u1", "<u4", "<u4", "<i8", "<i8", ("<f8", (width,))],
            "offsets": [0, 2, 6, 7, 8, 12, 16, 24, 32],
            "itemsize": 32 + 8 * width,
        }
    )
    table = np.zeros(records.rows, layout)
    table["magic"] = frame.MAGIC
    table["kind"], table["flags"], table["length"], table["schema"] = head
    table["step"], table["time"], table["values"] = records.step, records.time_ns, records.values.T
    view, size = memoryview(table.tobytes()), layout.itemsize
    table["crc"] = [crc32(view[start + 6 : start + size]) for start in range(0, len(view), size)]
    framed: bytes = table.tobytes()
    return framed


def parts(
    stream: bytes, head_bytes: int, record_bytes: int, part_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """Cut a stream into (offset, whole frames) of about `part_bytes`."""
    step = max(part_bytes // record_bytes, 1) * record_bytes
    start = 0
    while start < len(stream):
        end = min(head_bytes + step if start == 0 else start + step, len(stream))
        yield start, stream[start:end]
        start = end

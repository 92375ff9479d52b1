"""Appending whole frames to record streams: the writing half of the spool. Called by the client and
the shipper.

A stream is created here, never taken over, and starts with an OPEN frame. Frames are appended by
single O_APPEND writes, so threads never mix bytes and none needs a lock. Nothing is buffered: what
`append` has returned from survives SIGKILL (P2).
"""

from __future__ import annotations

import errno
import os
import struct
import time
from itertools import count
from zlib import crc32

from headway.model.limits import KIB
from headway.model.record import FACT, FORMAT_VERSION, OPEN
from headway.spool.files import OS_FILES, Files, write_all
from headway.wire.frame import (
    HEADER_BYTES,
    MAGIC,
    METRICS_FIXED_BYTES,
    encode_json,
    encode_schema,
    metrics_head,
    metrics_struct,
)

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.model.json_types import JsonObject

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# of a METRICS frame: kind, flags, length, schema; the same in every record of a schema
_PREFIX_BYTES = 10
_LOOK_EVERY_BYTES = 256 * KIB  # records of one schema between two looks at the size of the segment


class StreamWriter:
    """One record stream. Every method but `size`, `is_ours` and `close` may raise OSError."""

    __slots__ = ("_file", "fd", "files", "name")

    def __init__(
        self,
        task_dir: "str | os.PathLike[str]",
        name: str,
        opening: "JsonObject",
        files: Files = OS_FILES,
        more: bytes = b"",
    ) -> None:
        """Creates the file with its OPEN frame, and `more` frames in the same write; nothing is
        left when that fails.

        `opening` has what the OPEN frame says beside version, stream and time.
        """
        path = os.path.join(task_dir, name)
        first = {"version": FORMAT_VERSION, "stream": name, **opening, "time_ns": time.time_ns()}
        self.name, self.files = name, files
        self.fd = files.open(path, _FLAGS, 0o600)
        try:
            write_all(files, self.fd, encode_json(OPEN, first) + more)
            status = files.fstat(self.fd)
        # also what a signal handler raises: a stream without its OPEN frame must not stay
        except BaseException:
            self._close(self.fd)
            files.unlink(path)
            raise
        self._file = (status.st_dev, status.st_ino)

    def append(self, frames: bytes) -> None:
        """Add whole frames. After an OSError a part may stand in the file; a reader finds the next
        frame behind it.
        """
        write_all(self.files, self.fd, frames)

    def append_fact(self, fact: "JsonObject") -> None:
        """A FACT frame: `fact` has its `type`; the time is added."""
        self.append(encode_json(FACT, {"time_ns": time.time_ns(), **fact}))

    def size(self) -> int | None:
        """Bytes in the stream; None when it is lost: unlinked, or its descriptor closed or reused
        by somebody else.
        """
        try:
            status = self.files.fstat(self.fd)
        except OSError as error:
            _pass_on(error)
            # a look that fails is no reason to give the file up
            return None if error.errno == errno.EBADF else 0
        return (
            status.st_size
            if (status.st_dev, status.st_ino) == self._file and status.st_nlink
            else None
        )

    def is_ours(self) -> bool:
        """Whether the descriptor still is this stream's, so that it may be closed."""
        try:
            status = self.files.fstat(self.fd)
        except OSError as error:
            _pass_on(error)
            return self.fd >= 0 and error.errno != errno.EBADF
        return (status.st_dev, status.st_ino) == self._file

    def sync(self) -> None:
        self.files.fsync(self.fd)

    def close(self) -> None:
        """Safe to call twice, and when the program has closed all descriptors behind our back."""
        fd, ours = self.fd, self.is_ours()
        self.fd = -1
        if ours:
            self._close(fd)

    def _close(self, fd: int) -> None:
        try:
            self.files.close(fd)
        except OSError as error:
            # else the descriptor is gone all the same, and what was written was written
            _pass_on(error)


def _pass_on(error: OSError) -> None:
    """The system's errors have a number. One without is the program's own, raised by its signal
    handler in here.
    """
    if error.errno is None:
        raise error


class Schema:
    """One tuple of metric names in one segment, and how its records are packed.

    The constant part of a frame and its checksum are computed once; a record is then two packs and
    one crc32.
    """

    __slots__ = (
        "look_mask",
        "pack_body",
        "pack_frame",
        "prefix",
        "prefix_crc",
        "records",
        "size",
        "values",
    )

    def __init__(self, schema_id: int, values: int) -> None:
        head = metrics_struct(values).pack(*metrics_head(values, schema_id), 0, 0, *[0.0] * values)
        self.prefix = head[:_PREFIX_BYTES]
        self.prefix_crc = crc32(self.prefix)
        self.pack_body = struct.Struct(f"<qq{values}d").pack  # step, time, values
        self.pack_frame = struct.Struct(f"<{len(MAGIC)}sI{_PREFIX_BYTES}s{16 + 8 * values}s").pack
        self.size = HEADER_BYTES + METRICS_FIXED_BYTES + 8 * values
        self.values = values
        self.records = 0  # written; `+= 1` is one uninterrupted step under the interpreter's lock
        self.look_mask = (1 << max(0, (_LOOK_EVERY_BYTES // self.size).bit_length() - 1)) - 1

    def frame(self, step: int, time_ns: int, values: "Sequence[float]") -> bytes:
        """The same bytes as `wire.frame.encode(METRICS, …)`; client/metric.py has it unfolded."""
        body = self.pack_body(step, time_ns, *values)
        return self.pack_frame(MAGIC, crc32(body, self.prefix_crc), self.prefix, body)


class MetricSegment(StreamWriter):
    """One segment of a process's metrics. Complete in itself: its schemas are declared in it."""

    __slots__ = (
        "_ids",
        "declared",
        "every",
        "gone",
        "look_ns",
        "number",
        "safe",
        "schemas",
        "write",
    )

    def __init__(
        self,
        task_dir: "str | os.PathLike[str]",
        name: str,
        opening: "JsonObject",
        files: Files = OS_FILES,
        more: bytes = b"",
    ) -> None:
        super().__init__(task_dir, name, opening, files, more)
        self._prepare(files)
        self.number = int(opening["segment"])

    def _prepare(self, files: Files) -> None:
        self.write = files.write
        # what the fast path may use; emptied when a write fails
        self.schemas: dict[tuple[object, ...], Schema] = {}
        self.declared: dict[tuple[str, ...], Schema] = {}  # what stands in the file
        # also the second one of names that two threads declared at once
        self.every: list[Schema] = []
        self.look_ns = 0  # when the segment is looked at next
        self.safe = (0, 0)  # records and points at the last look that found the file in place
        self.gone = False  # the file is lost, and with it what was written after that look
        self._ids = count()

    def next_id(self) -> int:
        """Of a schema that the caller declares by itself."""
        return next(self._ids)

    def written(self) -> tuple[int, int]:
        """Records and points that were written."""
        records = [(schema.records, schema.values) for schema in self.every]
        return sum(n for n, _ in records), sum(n * values for n, values in records)

    def lost(self) -> tuple[int, int]:
        """Records and points that were written into a file that was gone."""
        if not self.gone:
            return 0, 0
        records, points = self.written()
        return records - self.safe[0], points - self.safe[1]

    def append_first(
        self, names: tuple[str, ...], step: int, time_ns: int, values: "Sequence[float]"
    ) -> None:
        """Declare a schema with its first record, in one write: no other thread's record can come
        between.
        """
        schema_id = next(self._ids)
        schema = Schema(schema_id, len(names))
        self.append(encode_schema(schema_id, names) + schema.frame(step, time_ns, values))
        schema.records = 1
        self.every.append(schema)
        self.declared[names] = self.schemas[names] = schema


class NoSegment(MetricSegment):
    """Stands where a segment is not open yet, or no longer: it knows no schema, so every call takes
    the slow path.
    """

    __slots__ = ()

    def __init__(self, number: int = -1) -> None:
        self.name, self.fd, self.files, self.number, self._file = "", -1, OS_FILES, number, (0, 0)
        self._prepare(OS_FILES)

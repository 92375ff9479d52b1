"""TensorBoard log folders: each folder with event files is a run. Fast, because records of one tag look alike: of
those that are as long as each other, time, step and value are taken as columns, and checksums are computed for all
of them at once. Records that look otherwise are read one by one.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headway.model.limits import METRIC_NAME_BYTES_MAX
from headway.views.importers.imported_run import ImportedRun, MixedStream, NotThisKind
from headway.views.importers.source_files import read_plain
from headway.wire.tfevents import CRC_TABLE, RECORD_BYTES_MAX, Scalars, read_varint

Bytes = npt.NDArray[np.uint8]
_TABLE = np.array(CRC_TABLE, np.uint32)
_MASK_DELTA = np.uint32(0xA282EAD8)
_HEAD = struct.Struct("<QI")
GROUP_MIN = 16  # records of one length from which columns pay
MISSES_MAX = 64  # of one length that are read one by one; then all the rest of that length
Record = tuple[tuple[str, ...], int, int, list[float]]


def read_tensorboard(top: Path) -> Iterator[ImportedRun]:
    """Every folder below `top` that has event files."""
    folders = dict(_event_folders(top))
    if not folders:
        raise NotThisKind
    for folder, files in folders.items():
        yield read_run(top, folder, files)


def _event_folders(top: Path) -> Iterator[tuple[Path, list[Path]]]:
    if top.is_file():
        if "tfevents" in top.name:
            yield top.parent, [top]
        return
    for place, inner, names in os.walk(top):
        inner.sort()
        files = [Path(place, name) for name in sorted(names) if "tfevents" in name]
        if files:
            yield Path(place), files


def read_run(top: Path, folder: Path, files: list[Path]) -> ImportedRun:
    name = str(folder.relative_to(top)) if folder != top else folder.resolve().name
    run = ImportedRun(str(folder.resolve()), name.replace("/", "-"), "tensorboard", 0, 0)
    if folder != top:
        run.experiment = top.resolve().name
    begun_s, ended_s = float("inf"), 0.0
    for path in files:
        try:
            records = EventFileColumns(path, top)
        except OSError as error:
            run.skipped.append(f"{path}: {error.strerror}")
            continue
        if records.damaged:
            run.skipped.append(f"{path}: {records.damaged} damaged records")
        if records.others:
            run.skipped.append(
                f"{path}: {records.others} values that are no scalars (images, histograms, text)"
            )
        if records.torn:
            run.skipped.append(
                f"{path}: {records.torn} bytes at its end that are no whole record yet"
            )
        begun_s, ended_s = min(begun_s, records.first_s), max(ended_s, records.last_s)
        run.streams.append(MixedStream(path.name, records.rows()))
    if not ended_s:
        begun_s = ended_s = min((path.lstat().st_mtime for path in files), default=0.0)
    run.started_ns, run.ended_ns = max(1, int(begun_s * 1e9)), max(1, int(ended_s * 1e9))
    return run


class EventFileColumns:
    """One file, read whole. Raises OSError."""

    def __init__(self, path: Path, top: Path) -> None:
        data = read_plain(path, top)
        self.damaged = self.others = self.torn = 0
        self.first_s, self.last_s = float("inf"), 0.0
        spans = self._spans(data)
        self._steps = np.zeros(len(spans), np.int64)
        self._times = np.zeros(len(spans), np.float64)
        self._values = np.zeros(len(spans), np.float64)
        self._tags: list[str | None] = [None] * len(spans)
        self._several: dict[int, dict[str, float]] = {}  # events with more than one value
        self._read(data, spans)

    def _spans(self, data: bytes) -> npt.NDArray[np.int64]:
        """Begin and end of each whole record's bytes."""
        found: list[tuple[int, int]] = []
        pos, size, unpack = 0, len(data), _HEAD.unpack_from
        while pos + 12 <= size:
            length, _ = unpack(data, pos)
            end = pos + 12 + length
            if length > RECORD_BYTES_MAX:
                self.damaged += 1
                return np.array(found, np.int64).reshape(-1, 2)
            if end + 4 > size:
                break
            found.append((pos + 12, end))
            pos = end + 4
        self.torn = size - pos
        return np.array(found, np.int64).reshape(-1, 2)

    def _read(self, data: bytes, spans: npt.NDArray[np.int64]) -> None:
        if not len(spans):
            return
        raw: Bytes = np.frombuffer(data, np.uint8)
        lengths = spans[:, 1] - spans[:, 0]
        reader, view = Scalars(), memoryview(data)
        alone: list[int] = []
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            at = spans[rows, 0]
            heads = raw[(at - 12)[:, None] + np.arange(12)]
            block = raw[at[:, None] + np.arange(length + 4)]
            good = _crc(heads[:, :8]) == _u32(heads[:, 8:])
            good &= _crc(block[:, :length]) == _u32(block[:, length:])
            self.damaged += int((~good).sum())
            rows, block = rows[good], block[good, :length]
            misses = 0
            while len(rows) >= GROUP_MIN and misses < MISSES_MAX:
                taken = self._take_alike(rows, block)
                if taken is None:
                    misses += 1
                    alone.append(int(rows[0]))
                    rows, block = rows[1:], block[1:]
                else:
                    rows, block = rows[~taken], block[~taken]
            alone += rows.tolist()
        for row in sorted(alone):
            self._take_one(reader, view, row, spans[row])
        self.others = reader.others
        known = self._times[(self._times > 0) & (self._times < 4e9)]
        if len(known):
            self.first_s, self.last_s = float(known.min()), float(known.max())

    def _take_alike(
        self, rows: npt.NDArray[np.int64], block: Bytes
    ) -> npt.NDArray[np.bool_] | None:
        """Those that look like the first one, but for time, step and value; None where that is no plain scalar."""
        shape = _shape(bytes(block[0]))
        if shape is None:
            return None
        tag, step_at, step_size, value_at = shape
        free = np.zeros(block.shape[1], np.bool_)
        free[1:9] = free[step_at : step_at + step_size] = free[value_at : value_at + 4] = True
        alike: npt.NDArray[np.bool_] = (block[:, ~free] == block[0, ~free]).all(axis=1)
        more = block[:, step_at : step_at + step_size] >= 0x80
        alike &= more[:, :-1].all(axis=1) & ~more[:, -1]
        found = block[alike]
        steps = np.zeros(len(found), np.uint64)
        for index in range(step_size):
            bits = (found[:, step_at + index] & 0x7F).astype(np.uint64)
            steps |= bits << np.uint64(7 * index)
        chosen = rows[alike]
        self._steps[chosen] = steps.astype(np.int64)
        self._times[chosen] = np.ascontiguousarray(found[:, 1:9]).view("<f8")[:, 0]
        self._values[chosen] = np.ascontiguousarray(found[:, value_at : value_at + 4]).view("<f4")[
            :, 0
        ]
        for row in chosen.tolist():
            self._tags[row] = tag
        return alike

    def _take_one(
        self, reader: Scalars, view: memoryview, row: int, span: npt.NDArray[np.int64]
    ) -> None:
        try:
            time_s, step, values = reader.read(view[int(span[0]) : int(span[1])])
        except (ValueError, ArithmeticError, LookupError, struct.error):
            self.damaged += 1
            return
        self._times[row] = time_s if 0 < time_s < 4e9 else 0.0
        if not -(2**62) <= step <= 2**62:
            self.damaged += 1
        elif values:
            self._steps[row] = step
            self._several[row] = values

    def rows(self) -> Iterator[Record]:
        times = (np.clip(np.nan_to_num(self._times), 0, 4e9) * 1e9).astype(np.int64).tolist()
        steps, values = self._steps.tolist(), self._values.tolist()
        names: dict[str, tuple[str, ...]] = {}
        for row, tag in enumerate(self._tags):
            if tag is not None:
                key = names.get(tag)
                if key is None:
                    key = names[tag] = (tag,)
                yield key, steps[row], times[row], [values[row]]
            elif row in self._several:
                several = self._several[row]
                kept = {
                    name: value
                    for name, value in several.items()
                    if 0 < len(name.encode()) <= METRIC_NAME_BYTES_MAX
                }
                if kept:
                    yield tuple(kept), steps[row], times[row], list(kept.values())


def _shape(record: bytes) -> tuple[str, int, int, int] | None:
    """(tag, where the step is, how long, where the value is) of an event with one plain scalar; else None.

    As TensorBoard, PyTorch and we write it: 09 time 10 step 2a summary {0a value {0a tag 15 value}}.
    """
    view = memoryview(record)
    try:
        if view[0] != 0x09 or view[9] != 0x10:
            return None
        _, after = read_varint(view, 10)
        step_size = after - 10
        for mark in (0x2A, 0x0A, 0x0A):
            if view[after] != mark:
                return None
            length, after = read_varint(view, after + 1)
        tag = bytes(view[after : after + length]).decode("utf-8")
        after += length
        plain = view[after] == 0x15 and after + 5 == len(record)
    except (ValueError, IndexError):
        return None
    if not plain or not 0 < len(tag.encode()) <= METRIC_NAME_BYTES_MAX or step_size > 8:
        return None
    return tag, 10, step_size, after + 1


def _crc(block: Bytes) -> npt.NDArray[np.uint32]:
    """Masked CRC-32C of each row."""
    crc = np.full(len(block), 0xFFFFFFFF, np.uint32)
    columns = np.ascontiguousarray(block.T)
    for column in columns:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    crc ^= np.uint32(0xFFFFFFFF)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA


def _u32(block: Bytes) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(block).view("<u4")[:, 0]

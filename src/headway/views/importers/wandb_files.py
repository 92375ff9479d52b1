"""W&B offline folders: `wandb/offline-run-…/run-ID.wandb`, a log in blocks of 32 KiB, of protocol buffers.

    ":W&B" 0xBEE1 0 | blocks of records: u32 checksum, u16 length, u8 type (1 whole, 2 first, 3 middle, 4 last)

The checksum is zlib's CRC-32, seeded with the type byte. A damaged record costs the rest of its block.
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from headway.model.json_types import JsonObject
from headway.views.importers.imported_run import ImportedRun, MixedStream, NotThisKind
from headway.views.importers.source_files import read_plain
from headway.wire.tfevents import Fields, signed

HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
BLOCK_BYTES = 32 * 1024
_RECORD = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = [crc32(bytes([kind])) for kind in range(256)]
_RECORD_BYTES_MAX = 256 * 1024 * 1024
_GOALS = {1: "min", 2: "max"}
_SUMMARIES = {1: "min", 2: "max", 3: "mean", 4: "best", 5: "last"}
_SKIPPED = {  # fields of Record that are no part of a job here
    4: "lines of output", 6: "lists of files", 7: "samples of system usage", 8: "artifacts", 9: "TensorBoard records",
    10: "alerts", 13: "lines of output", 25: "uses of artifacts",
}  # fmt: skip
Row = tuple[tuple[str, ...], int, int, Sequence[float]]


def read_wandb(top: Path) -> Iterator[ImportedRun]:
    """A `.wandb` file, a run's folder, or a folder with many of them."""
    paths: list[Path] = []
    if top.is_file() and top.suffix == ".wandb":
        paths = [top]
    elif top.is_dir():
        for place, _, names in os.walk(top):
            if Path(place).is_symlink():  # `latest-run`
                continue
            paths += [Path(place, name) for name in names if name.endswith(".wandb")]
    if not paths:
        raise NotThisKind
    for path in sorted(paths):
        yield read_run(path, top)


def read_run(path: Path, top: Path) -> ImportedRun:
    name = path.stem.removeprefix("run-")
    run = ImportedRun(str(path.resolve()), name, "wandb", 0, 0)
    try:
        log = _Log(read_plain(path, top))
    except OSError as error:
        run.skipped.append(f"{path}: {error.strerror}")
        log = _Log(b"")
    reader = _Reader(run)
    if not log.is_wandb:
        run.skipped.append(f"{path}: it does not begin as a file of wandb does")
    for record in log.records():
        try:
            reader.take(record)
        except (ValueError, LookupError, ArithmeticError, TypeError, RecursionError, struct.error):
            reader.damaged += 1
    reader.finish(path, log)
    return run


class _Log:
    def __init__(self, data: bytes) -> None:
        self._data, self.damaged = data, 0
        self.is_wandb = data[: len(HEADER)] == HEADER

    def records(self) -> Iterator[memoryview]:
        if not self.is_wandb:
            return
        view, pos, size = memoryview(self._data), len(HEADER), len(self._data)
        parts: list[bytes] = []
        while pos + _RECORD.size <= size:
            left = BLOCK_BYTES - pos % BLOCK_BYTES
            if left < _RECORD.size:
                pos += left
                continue
            crc, length, kind = _RECORD.unpack_from(view, pos)
            if kind == 0 and length == 0:
                pos += left  # the rest of a block that was filled with zeros
                continue
            data = view[pos + _RECORD.size : pos + _RECORD.size + length]
            if len(data) < length:
                return  # it is being written, or was cut off
            if length > left - _RECORD.size or crc32(data, _SEEDS[kind]) != crc:
                self.damaged += 1
                parts.clear()
                pos += left
                continue
            pos += _RECORD.size + length
            if kind == _WHOLE:
                parts.clear()
                yield data
            elif kind == _FIRST:
                parts = [bytes(data)]
            elif parts:
                parts.append(bytes(data))
                if kind == _LAST:
                    yield memoryview(b"".join(parts))
                    parts.clear()
                elif sum(map(len, parts)) > _RECORD_BYTES_MAX:
                    self.damaged += 1
                    parts.clear()


class _Reader:
    """Records, one after the other, into a run."""

    def __init__(self, run: ImportedRun) -> None:
        self.run, self.damaged = run, 0
        self.counts: dict[str, int] = {}
        self.rows: list[Row] = []
        self.step = -1
        self.last_ns = 0
        self.ended = False

    def take(self, record: memoryview) -> None:
        for number, value in Fields(record):
            if isinstance(value, int):
                continue
            if number == 2:
                self._history(value)
            elif number == 3:
                self._items(value, self.run.summary)
            elif number == 5:
                self._items(value, self.run.config)
            elif number == 12:
                self._metric(value)
            elif number == 17:
                self._run(value)
            elif number == 18:
                self._exit(value)
            elif number in _SKIPPED:
                self.counts[_SKIPPED[number]] = self.counts.get(_SKIPPED[number], 0) + 1

    def _run(self, data: memoryview) -> None:
        run, tags = self.run, []
        for number, value in Fields(data):
            if isinstance(value, int):
                continue
            if number == 1:
                run.key = f"{_text(value)} {run.started_ns or ''}".strip()
            elif number == 3:
                run.experiment = _text(value) or None
            elif number == 4:
                self._items(value, run.config)
            elif number == 5:
                self._items(value, run.summary)
            elif number == 8:
                run.name = _text(value) or run.name
            elif number == 10:
                tags.append(_text(value))
            elif number == 13:
                run.host = _text(value)
            elif number == 17:
                run.started_ns = _timestamp(value)
        if tags:
            run.tags = tags

    def _history(self, data: memoryview) -> None:
        step = None
        found: JsonObject = {}
        for number, value in Fields(data):
            if isinstance(value, int):
                continue
            if number == 1:
                key, item = _item(value)
                if key and item is not None:
                    _put(found, key, item)
            elif number == 2:
                step = _first_number(value)

        logged_step = found.pop("_step", None)
        if isinstance(logged_step, int | float):
            self.step = int(logged_step)
        elif step is not None:
            self.step = step
        else:
            self.step += 1

        time_ns = self.last_ns
        seconds = found.pop("_timestamp", None)
        if isinstance(seconds, int | float) and 0 < seconds < 4e9:
            time_ns = int(seconds * 1e9)
        self.last_ns = max(self.last_ns, time_ns)

        found.pop("_runtime", None)
        flat: dict[str, float] = {}
        for name, value in found.items():
            self._flatten(name, value, flat)
        if flat and -(2**62) <= self.step <= 2**62:
            self.rows.append((tuple(flat), self.step, time_ns, list(flat.values())))

    def _flatten(self, name: str, value: object, flat: dict[str, float]) -> None:
        if isinstance(value, bool | int | float):
            flat[name] = float(value)
        elif isinstance(value, dict) and "_type" not in value:
            for key, inner in value.items():
                self._flatten(f"{name}/{key}", inner, flat)
        elif value in ("NaN", "Infinity", "-Infinity"):
            flat[name] = float(value)
        else:
            kind = str(value.get("_type")) if isinstance(value, dict) else type(value).__name__
            what = f"values of kind {kind}"
            self.counts[what] = self.counts.get(what, 0) + 1

    def _items(self, data: memoryview, into: JsonObject) -> None:
        for number, value in Fields(data):
            if isinstance(value, int):
                continue
            key, item = _item(value)
            if not key:
                continue
            if number == 1 and key != ["_wandb"]:
                _put(into, key, item)
            elif number == 2:
                into.pop(key[0], None)

    def _metric(self, data: memoryview) -> None:
        found: JsonObject = {"name": "", "x": None, "goal": None, "summary": []}
        for number, value in Fields(data):
            if isinstance(value, int):
                if number == 8:
                    found["goal"] = _GOALS.get(value)
            elif number in (1, 2):
                found["name"] = _text(value)
            elif number == 4:
                found["x"] = _text(value)
            elif number == 7:
                found["summary"] = _summaries(value)
        name = found["name"]
        if name and not name.startswith("_"):
            self.run.definitions.append(found)

    def _exit(self, data: memoryview) -> None:
        code = _first_number(data)
        self.ended = True
        self.run.exit_code = code
        self.run.state = "succeeded" if code == 0 else "failed"

    def finish(self, path: Path, log: _Log) -> None:
        run = self.run
        if log.damaged or self.damaged:
            run.skipped.append(f"{path}: {log.damaged + self.damaged} damaged records")
        run.skipped += [f"{path}: {count} {what}" for what, count in self.counts.items()]
        if not self.ended and log.is_wandb:
            run.skipped.append(
                f"{path}: it does not say how the run ended; it is taken for stopped"
            )
            run.state = "stopped"
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:
            changed_ns = 1
        run.started_ns = run.started_ns or changed_ns
        run.ended_ns = (
            max(run.started_ns, self.last_ns) if self.last_ns else max(run.started_ns, changed_ns)
        )
        for name in list(run.summary):
            if name.startswith("_"):
                del run.summary[name]
        run.streams.append(MixedStream("history", iter(self.rows)))


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")


def _timestamp(value: memoryview) -> int:
    seconds = nanos = 0
    for number, inner in Fields(value):
        if isinstance(inner, int):
            seconds, nanos = (
                (inner, nanos) if number == 1 else (seconds, inner if number == 2 else nanos)
            )
    return seconds * 10**9 + nanos if 0 < seconds < 4 * 10**9 else 0


def _put(into: JsonObject, key: list[str], item: object) -> None:
    """At its place in nested objects; what is no object in the way is replaced."""
    for word in key[:-1]:
        inner = into.get(word)
        if not isinstance(inner, dict):
            inner = {}
            into[word] = inner
        into = inner
    into[key[-1]] = item


def _summaries(data: memoryview) -> list[str]:
    """How a metric is summed up: the names of the flags that are set."""
    asked = [number for number, flag in Fields(data) if flag]
    return [_SUMMARIES[number] for number in asked if number in _SUMMARIES]


def _first_number(data: memoryview) -> int:
    """The number in field 1 of a message; 0 is not written."""
    for number, value in Fields(data):
        if number == 1 and isinstance(value, int):
            return signed(value)
    return 0


def _item(data: memoryview) -> tuple[list[str], Any]:
    """(key, value) of a HistoryItem, SummaryItem or ConfigItem: its value as JSON, or in a field of its own."""
    key, nested = "", list[str]()
    found: Any = None
    for number, value in Fields(data):
        if isinstance(value, int):
            if number == 4:
                found = bool(value)
            elif number == 5:
                found = signed(value)
        elif number == 1:
            key = _text(value)
        elif number == 2:
            nested.append(_text(value))
        elif number == 6:
            found = struct.unpack("<d", value)[0]
        elif number == 7:
            found = _text(value)
        elif number in (8, 16) and len(value):
            found = json.loads(bytes(value))
    return nested or [key], found

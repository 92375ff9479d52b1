"""The hot path: `log`, and all that it falls back on. Called by client/run.py; `log` itself by
training, very often.

The fast path is one dictionary look-up, two packs, one checksum and one write, without a lock.
Whatever it cannot do (a name never seen, a value that is no plain number, a write that fails, a
segment that is full) arrives in the slow path, mostly by exception. Counters change by single
statements, which the interpreter does not interrupt.

Every value passed in ends as exactly one of written, rejected (it cannot be kept) or dropped (it
could not be written): that is P5.
"""

from __future__ import annotations

import errno
import os
import time
from _thread import get_ident
from zlib import crc32

from headway.client import metric_values as values_of
from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import Refused
from headway.model.limits import (
    FRAME_BYTES_MAX,
    METRIC_NAMES_MAX,
    RECORD_VALUES_MAX,
    SCHEMAS_MAX,
    SEGMENT_BYTES_MAX,
    SEGMENTS_RETIRED_MAX,
    STEP_ABS_MAX,
)
from headway.spool.files import write_all
from headway.spool.writer import MetricSegment, NoSegment

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.client.media_log import MediaLog
    from headway.client.run import Run
    from headway.model.json_types import JsonMapping

    Log = Callable[..., None]

STEP_MIN = -STEP_ABS_MAX
LOOK_INTERVAL_NS = 1_000_000_000
CLOSE_AFTER_S = 10.0  # a thread may still be in its last write to a segment that was rolled
SMALL_NAMES = 1000  # so many names always fit into one schema frame
# The file is fine and the disk is not: the next call tries again. Any other error gives the file
# up.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def make_log(metrics: "Metrics") -> "Log":
    """The public `log`, bound to the metrics of this process."""
    slow, time_ns = metrics.log_slow, time.time_ns

    def log(
        values: "JsonMapping",
        step: "int | None" = None,
        tags: "JsonMapping | None" = None,
    ) -> None:
        """Log numbers by name, at a step: `hw.log({"loss": 0.4, "lr": 1e-3}, step=i)`.

        Values: int, float, bool, Decimal, Fraction, NumPy and torch scalars; NaN and infinities are
        kept. Nested dictionaries become `outer/inner`. What is not a number is refused, once per
        name with a warning, and the rest is kept. Without `step`, one more than the largest step so
        far in this process, starting at 0. Steps may repeat and go back; they are kept as written.
        `tags={"split": "val"}` makes series of their own beside those without tags, or with others.
        Images, tables and the like (`hw.Image(array)`) are kept, too.

        When it returns, the values survive `kill -9` of this process. It never raises and never
        waits for a network; what cannot be written (a full disk) is counted and told.
        """
        if tags is not None:
            return log(metrics.tagged(values, tags), step)
        segment = metrics.segment
        try:
            schema = segment.schemas[tuple(values)]
            if step is None:
                metrics.top = step = int(metrics.top) + 1
            now_ns = time_ns()
            # refuses a step that is no integer
            body = schema.pack_body(step, now_ns, *values.values())
            if step > metrics.top:
                if step > STEP_ABS_MAX:
                    return slow(values, step)
                metrics.top = step
            elif step < STEP_MIN:
                return slow(values, step)
            data = schema.pack_frame(b"HW", crc32(body, schema.prefix_crc), schema.prefix, body)
        # anything but plain numbers under names already seen; nothing is written yet (P1)
        except Exception as error:
            raise_if_signal(error)
            return slow(values, step)
        try:
            done = segment.write(segment.fd, data)
        except OSError as error:
            raise_if_signal(error)
            metrics.failed(segment, error)
            return slow(values, step)
        if done != schema.size and not metrics.write_rest(segment, data, done):
            return slow(values, step)
        schema.records += 1
        if now_ns > segment.look_ns or not schema.records & schema.look_mask:
            metrics.look(segment, now_ns, values)
        return None

    log.__qualname__ = "log"  # what a TypeError calls it
    return log


class Metrics:
    """The metric stream of one process: its open segment, what was counted, and what to do when a
    write fails.
    """

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.top: int = -1  # the largest step so far
        self._names: set[str] = set()
        self.media: MediaLog | None = None  # made with the first image, table and the like
        self._begin()

    def _begin(self) -> None:
        """What a new stream starts from."""
        self.segment: MetricSegment = NoSegment()
        self.rejected = 0
        self._tell_after_s = 1.0  # twice as long each time: a training of days tells a few of them
        self._tell_next_s: float | None = None
        self._dropped = 0
        self._written_before = 0  # in segments that are closed
        self._retired: list[tuple[float, MetricSegment]] = []
        # calls that came while a stream was being opened
        self._early: list[tuple[object, object]] = []
        self._gap = [0, 0, 0]  # records, points, bytes that were dropped and not yet told
        self._gap_reason = ""
        self._gap_next_ns = 0

    def restart(self) -> None:
        """Another run begins: steps and names start anew. The stream is closed already."""
        self.top = -1
        self._names = set()
        self.media = None

    # -- counting

    def counters(self) -> dict[str, int]:
        """Points, each of them once: produced = written + rejected + dropped (P5)."""
        segments = [self.segment, *(segment for _, segment in list(self._retired))]
        lost = sum(segment.lost()[1] for segment in segments)
        written = self._written_before + sum(segment.written()[1] for segment in segments) - lost
        dropped = self._dropped + lost
        produced = written + self.rejected + dropped
        return {
            "produced": produced,
            "written": written,
            "rejected": self.rejected,
            "dropped": dropped,
        }

    def _reject(self, points: int) -> None:
        """Count what cannot be kept. The number is told now and then, not only at the end, which
        may be a SIGKILL.
        """
        if not points:
            return
        self.rejected += points
        now_s = time.monotonic()
        if self._tell_next_s is None:  # the first one has a note of its own
            self._tell_next_s = now_s + self._tell_after_s
        elif now_s >= self._tell_next_s:
            self._tell_after_s *= 2
            self._tell_next_s = now_s + self._tell_after_s
            self.tell_counters()

    def tell_counters(self) -> None:
        self.run.fact("counters", pid=os.getpid(), **self.counters())

    def _count_gap(self, records: int, points: int, size: int, reason: str) -> None:
        self._gap[0] += records
        self._gap[1] += points
        self._gap[2] += size
        self._gap_reason = reason
        self.run.note(
            "drop", f"points cannot be written ({reason}); training goes on, and they are counted"
        )

    def _drop(self, points: int, reason: str) -> None:
        self._dropped += points
        self._count_gap(1, points, 32 + 8 * points, reason)

    def tell_gap(self) -> None:
        """Write down what was dropped since the last time; client/run.py keeps the fact until it
        can be written.
        """
        (records, points, size), self._gap = self._gap, [0, 0, 0]
        if records or points:
            self._gap_next_ns = time.time_ns() + LOOK_INTERVAL_NS
            self.run.fact(
                "gap", stream=self.segment.name or "metrics", records=records, points=points, bytes=size,
                reason=self._gap_reason,
            )  # fmt: skip

    # -- the slow path

    def log_slow(self, values: object, step: object) -> None:
        """A call of `log` that is not a repetition. Never raises."""
        if self.run.is_off:
            return
        if self.run.opener == get_ident():  # a signal handler has interrupted this very thread
            self._early.append((dict(values) if isinstance(values, dict) else values, step))
            return
        self.run.resting = False
        left = 1
        try:
            call = values_of.take_apart(values)
            left = len(call.points)
            self._reject(call.refused)
            for key, text in call.notes:
                self.run.note(key, text)
            left -= self._refuse_new_names(call.points)
            if not call.points and not call.media:
                return
            number = self._step(step)
            for name, media in call.media:
                self._write_media(name, media, number)
            while call.points:
                names = next(_parts(call.points))
                self._write(names, [call.points.pop(name) for name in names], number)
                left -= len(names)
        except Refused as reason:
            self._reject(left)
            self.run.note("step", f"a call of log() is not kept, because of its step: {reason}")
        except Exception as error:  # P1: an error of ours must not reach training
            raise_if_signal(error)
            self._drop(left, f"{type(error).__name__} in headway")

    def tagged(self, values: object, tags: object) -> "Any":
        """The same values under names that have the tags in them: `loss{split=val}`. Never raises."""
        try:
            if not tags:
                return values
            suffix = values_of.tag_suffix(tags)
            return {f"{name}{suffix}": value for name, value in values_of.flat(values).items()}
        except Refused as reason:
            self.run.note("tags", f"tags are not kept: {reason}")
            return values
        # P1: tags of somebody else's making may raise anything when they are read
        except Exception as error:
            raise_if_signal(error)
            self.run.note("tags", f"tags could not be read: {type(error).__name__}")
            return values

    def _write_media(self, name: str, media: "Any", step: int) -> None:
        if self.media is None:
            from headway.client.media_log import MediaLog

            self.media = MediaLog(self.run)
        self.media.write(name, media, step)

    def _step(self, step: object) -> int:
        if step is None:
            self.top = number = int(self.top) + 1
            return number
        number = values_of.to_step(step)
        if number > self.top:
            self.top = number
        return number

    def _refuse_new_names(self, points: dict[str, float]) -> int:
        """Take out the points whose names are too many (B11); how many."""
        new = [name for name in points if name not in self._names]
        over = new[max(0, METRIC_NAMES_MAX - len(self._names)) :]
        self._names.update(new[: len(new) - len(over)])
        for name in over:
            del points[name]
        if over:
            self._reject(len(over))
            limit = f"a process has at most {METRIC_NAMES_MAX} metric names"
            self.run.note("names", f"{limit}; {over[0]!r} and further ones are not kept")
        return len(over)

    def _write(self, names: tuple[str, ...], numbers: list[float], step: int) -> None:
        """One record. Tries a second time when the file was the trouble and another one could be
        opened.
        """
        reason = self._try_write(names, numbers, step)
        if reason is not None and self.segment.fd < 0 and self.ready():
            reason = self._try_write(names, numbers, step)
        if reason is not None:
            self._drop(len(numbers), reason)

    def _try_write(self, names: tuple[str, ...], numbers: list[float], step: int) -> str | None:
        """None when it is written, else why not."""
        if not self.ready():
            return self._gap_reason or "no stream"
        segment, now_ns = self.segment, time.time_ns()
        if len(segment.declared) >= SCHEMAS_MAX and names not in segment.declared:
            segment = self._roll(segment)
        try:
            schema = segment.declared.get(names)
            if schema is None:
                segment.append_first(names, step, now_ns, numbers)
            else:
                segment.append(schema.frame(step, now_ns, numbers))
                schema.records += 1
                segment.schemas[names] = schema
        except OSError as error:
            raise_if_signal(error)
            self.failed(segment, error)
            return error.strerror or type(error).__name__
        self.run.backoff.succeeded()
        if self._gap[0] and now_ns > self._gap_next_ns:
            self.tell_gap()
        if now_ns > segment.look_ns:
            self.look(segment, now_ns)
        return None

    def write_rest(self, segment: MetricSegment, data: bytes, done: int) -> bool:
        """After a short write. False when the rest could not be written either: the frame is torn."""
        try:
            write_all(segment.files, segment.fd, memoryview(data)[done:])
        except OSError as error:
            raise_if_signal(error)
            self.failed(segment, error)
            return False
        return True

    # -- segments

    def failed(self, segment: MetricSegment, error: OSError) -> None:
        """A write to a segment failed: no fast path until one succeeds, and another file if this
        one is broken.
        """
        segment.schemas.clear()
        self._gap_reason = error.strerror or type(error).__name__
        if error.errno not in FULL and self.segment is segment:
            self._retire(segment)
            self.run.backoff.failed()

    def ready(self) -> bool:
        """Whether a segment is open; opens one if need be and if it is time to try. Never raises
        OSError.
        """
        if self.segment.fd >= 0:
            return True
        if not self.run.backoff.is_over():
            return False
        with self.run.lock:
            if self.segment.fd >= 0:
                return True
            try:
                with self.run.opening():
                    self.segment = self._open(self.segment.number + 1)
                return True
            except OSError as error:
                raise_if_signal(error)
                self._gap_reason = error.strerror or type(error).__name__
                return False

    def _open(self, number: int) -> MetricSegment:
        self.run.start()  # which backs off by itself
        try:
            segment: MetricSegment = self.run.open_stream("metrics", number)
        except OSError:
            self.run.backoff.failed()
            raise
        segment.look_ns = time.time_ns() + LOOK_INTERVAL_NS
        return segment

    def _roll(self, segment: MetricSegment) -> MetricSegment:
        """Go on in a new segment. Where none can be opened, the old one grows: better too large
        than lost.
        """
        with self.run.lock:
            if self.segment is not segment:
                return self.segment
            try:
                with self.run.opening():
                    self.segment = self._open(segment.number + 1)
            except OSError as error:
                raise_if_signal(error)
                return segment
            self._retired.append((time.monotonic(), segment))
            self.close_retired()
            return self.segment

    def _retire(self, segment: MetricSegment) -> None:
        """Use it no more; its descriptor is closed when no thread can be in its last write."""
        self.segment = NoSegment(segment.number)
        self._retired.append((time.monotonic(), segment))

    def log_early(self) -> None:
        """Calls that had to wait for the stream that this thread was opening."""
        while self._early:
            self.log_slow(*self._early.pop(0))

    def close_retired(self, everything: bool = False) -> None:
        """Close segments that no thread can be writing to any more, and keep their counts."""
        now_s = time.monotonic()
        while self._retired and (
            everything
            or len(self._retired) > SEGMENTS_RETIRED_MAX
            or now_s - self._retired[0][0] > CLOSE_AFTER_S
        ):
            _, segment = self._retired.pop(0)
            lost = segment.lost()[1]
            self._written_before += segment.written()[1] - lost
            self._dropped += lost
            segment.close()

    def look(
        self, segment: MetricSegment, now_ns: int, values: "JsonMapping | None" = None
    ) -> None:
        """Once a second, and after every so many bytes: is the file still there, is it full? Never
        raises.
        """
        segment.look_ns = now_ns + LOOK_INTERVAL_NS
        try:
            # before the look: what comes after it is not known to be safe
            written = segment.written()
            size = segment.size()
            if size is None:
                self._file_is_gone(segment)
            else:
                segment.safe = written
                if size >= SEGMENT_BYTES_MAX:
                    self._roll(segment)
            for name, number in (values or {}).items():
                if values_of.is_inexact(number):
                    self.run.note(
                        f"int {name}",
                        f"metric {name!r}: integers beyond 2^53 are kept as the nearest float",
                    )
            if self._gap[0] and now_ns > self._gap_next_ns:
                self.tell_gap()
            self.close_retired()
            self.run.look()
        # P1: an error of ours must not reach training; the record itself is written
        except Exception as error:
            raise_if_signal(error)
            segment.look_ns = now_ns + 10 * LOOK_INTERVAL_NS

    def _file_is_gone(self, segment: MetricSegment) -> None:
        """Somebody removed the file or closed its descriptor: what went there since the last look
        counts as dropped.
        """
        if segment.gone or self.segment is not segment:
            return
        segment.gone = True
        segment.schemas.clear()
        self._retire(segment)
        records, points = segment.lost()
        self._count_gap(
            records,
            points,
            32 * records + 8 * points,
            "the stream's file was removed; some of them may have arrived",
        )
        self.ready()

    def flush(self, durable: bool) -> None:
        if durable and self.segment.fd >= 0:
            self.segment.sync()

    def pause(self) -> None:
        """Close what is open and keep the counts; the next call of `log` opens the next segment."""
        segment = self.segment
        if segment.fd >= 0:
            segment.schemas.clear()
            self._retire(segment)
        self.close_retired(everything=True)

    def close(self) -> None:
        """At the end of the run, and in a forked child. A later call of `log` starts a new stream
        and counts anew.
        """
        segments = [self.segment, *(segment for _, segment in self._retired)]
        self._begin()
        for segment in segments:
            segment.schemas.clear()
            segment.close()


def _parts(points: dict[str, float]) -> "Iterator[tuple[str, ...]]":
    """Names in groups that fit into one record and one schema frame each; nearly always one group."""
    if len(points) <= SMALL_NAMES:
        yield tuple(points)
        return
    group: list[str] = []
    size = 0
    for name in points:
        most = 3 * len(name.encode()) + 4  # of its JSON form, where two bytes may become `\u00e9`
        if len(group) == RECORD_VALUES_MAX or size + most > FRAME_BYTES_MAX - 16:
            yield tuple(group)
            group, size = [], 0
        group.append(name)
        size += most
    yield tuple(group)

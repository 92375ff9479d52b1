"""Losses, accuracies and the like that a program only prints become metrics (capability 24). Called
by `output_watch.py`, which reads the lines and knows the step.

A program that logs metrics of its own is left alone: it says what counts. Values that came before
its first own one are kept apart by the server, as `printed/loss`: the opening says where they are
from.
"""

from __future__ import annotations

import os

from headway.model.limits import SEGMENT_BYTES_MAX
from headway.spool.files import OS_FILES, Files
from headway.spool.stream_names import metrics_name, new_rand
from headway.spool.writer import MetricSegment
from headway.wire.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.agent.clock import Clock
    from headway.agent.ship.tail import Tail

NAMES_MAX = 200  # of one rank; a program that prints a new name each time is no trainer


class PrintedValues:
    """Nothing here raises: what cannot be written now is left out."""

    def __init__(
        self, task_dir: str, tail: "Tail", clock: "Clock", files: Files = OS_FILES
    ) -> None:
        self._task_dir, self._tail, self._clock, self._files = task_dir, tail, clock, files
        self._rand = new_rand()
        self._segments: dict[int, MetricSegment] = {}
        self._last: dict[int, dict[str, tuple[int, str]]] = {}  # of each name: step and value
        self._uncounted: dict[int, int] = {}
        self._logging: set[int] = set()  # ranks that log metrics of their own
        self._looked_at = 0  # how many streams there were then

    def take(self, rank: int, values: "Sequence[tuple[str, float]]", step: int) -> None:
        """Values that stood beside a step. The state of a bar is drawn again and again: what is
        the same as before is one point.
        """
        if self._logs_itself(rank):
            return
        last = self._last.setdefault(rank, {})
        names: list[str] = []
        numbers: list[float] = []
        has_room = len(last) < NAMES_MAX
        for name, value in values:
            if last.get(name) == (step, repr(value)):
                continue
            if name in last or has_room:
                names.append(name)
                numbers.append(value)
        if not names:
            return
        for name, value in zip(names, numbers):
            last[name] = (step, repr(value))
        self._write(rank, tuple(names), step, numbers)

    def next_step(self, rank: int) -> int:
        """For values of a program that prints no count at all."""
        self._uncounted[rank] = self._uncounted.get(rank, -1) + 1
        return self._uncounted[rank]

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()

    def _logs_itself(self, rank: int) -> bool:
        if len(self._tail.streams) != self._looked_at:
            self._looked_at = len(self._tail.streams)
            self._find_loggers()
        if rank in self._logging:
            return True
        return rank not in self._segments and self._has_begun(rank)

    def _find_loggers(self) -> None:
        """Ranks with metrics of their own: not written by us, nor by an agent before us."""
        me = os.getpid()
        for tailed in self._tail.streams.values():
            stream = tailed.stream
            if stream.role != "metrics" or stream.rank is None or stream.pid == me:
                continue
            if (tailed.opening or {}).get("source") != "output":
                self._logging.add(stream.rank)

    def _has_begun(self, rank: int) -> bool:
        """Whether it has logged a metric just now, which the tail has not come to: a first line is
        read this soon.
        """
        try:
            names = self._files.listdir(self._task_dir)
        except OSError:
            return False
        return any(
            name.startswith(f"metrics-{rank}-") and name not in self._tail.streams for name in names
        )

    def _write(self, rank: int, names: tuple[str, ...], step: int, values: list[float]) -> None:
        try:
            segment = self._segments.get(rank)
            if segment is None or (segment.size() or SEGMENT_BYTES_MAX) >= SEGMENT_BYTES_MAX:
                segment = self._open(rank)
            schema = segment.declared.get(names)
            now_ns = self._clock.wall_ns()
            if schema is None:
                segment.append_first(names, step, now_ns, values)
            else:
                segment.append(schema.frame(step, now_ns, values))
        except OSError:
            self._leave(rank)

    def _open(self, rank: int) -> MetricSegment:
        before = self._segments.get(rank)
        number = before.number + 1 if before is not None else 0
        pid = os.getpid()
        opening = {
            "kind": "metrics",
            "rank": rank,
            "pid": pid,
            "start": process_start(),
            "segment": number,
        }
        opening["source"] = "output"
        name = metrics_name(rank, pid, self._rand, number)
        made = MetricSegment(self._task_dir, name, opening, self._files)
        self._leave(rank)
        self._segments[rank] = made
        return made

    def _leave(self, rank: int) -> None:
        segment = self._segments.pop(rank, None)
        if segment is not None:
            segment.close()
            self._rand = new_rand()  # numbers begin anew only under another name

"""What a program says about its use of the machine: checkpoints, and the part that is of interest.
Called by training.

The numbers themselves are taken by the shipper, outside the program; here are only the labels on
their time axis.
"""

from __future__ import annotations

import os

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text
from headway.model.limits import CHECKPOINTS_PROCESS_MAX, TAG_CHARS_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from headway.client.run import Run

TAGS_MAX = 16  # of one checkpoint


class Marks:
    """The checkpoints of one process. Nothing here raises."""

    def __init__(self, run: "Run") -> None:
        self.run, self.is_on, self.count, self._pid = run, not run.is_off, 0, os.getpid()
        self._left_out = 0
        run.parts.append(self)

    def checkpoint(self, tags: tuple[object, ...]) -> None:
        if self.count >= CHECKPOINTS_PROCESS_MAX:
            self._left_out += 1
            self.run.note(
                "checkpoints",
                f"a process keeps {CHECKPOINTS_PROCESS_MAX} checkpoints; the rest is counted",
            )
            return
        try:
            mask = self.run.masker()
            words = [clean_text(mask(str(tag)))[:TAG_CHARS_MAX] for tag in tags[:TAGS_MAX]]
            self.count += 1
            self._say("checkpoint", tags=words)
        except Exception as error:  # P1: a tag whose __str__ raises
            raise_if_signal(error)
            self.run.note("checkpoint", f"a checkpoint is not kept: {type(error).__name__}")

    def turn(self, on: bool) -> None:
        if on != self.is_on and not self.run.is_off:
            self.is_on = on
            self._say("usage_window", open=on)

    def _say(self, kind: str, **fields: object) -> None:
        try:
            self.run.start()
        except OSError as error:
            raise_if_signal(error)  # the fact waits until it can be written
        rank = self.run.place.rank if self.run.place is not None else 0
        self.run.fact(kind, **fields, rank=rank, pid=os.getpid())

    def tell(self) -> None:
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self.run.fact(
                "gap",
                stream="facts",
                records=left_out,
                points=0,
                bytes=0,
                reason="too many checkpoints",
            )

    def close(self) -> None:
        """A forked child counts its own."""
        if self._pid != os.getpid():
            self._pid, self.count, self._left_out = os.getpid(), 0, 0


_marks: list[Marks] = []


def current_marks() -> Marks:
    if not _marks:
        from headway.client.api import current_run

        _marks.append(Marks(current_run()))
    return _marks[0]


class Usage:
    """Labels for the usage of CPU, memory and GPU that is sampled while a job runs:
    `Usage.checkpoint("epoch", 3)`.
    """

    @staticmethod
    def checkpoint(*tags: object) -> None:
        """A vertical bar with these words in `hw usage`. Does nothing while usage is stopped or
        Headway is off.
        """
        marks = _marks[0] if _marks else current_marks()
        if marks.is_on:
            marks.checkpoint(tags)

    @staticmethod
    def start() -> None:
        """From here on it is of interest again."""
        current_marks().turn(True)

    @staticmethod
    def stop() -> None:
        """Until `start`, checkpoints do nothing, and reports leave this process's usage out."""
        current_marks().turn(False)

"""What a diagnosis looks at: the lines of every stream, how the job ended, and what the machine and scheduler say.

`diagnose/reader.py` makes a `Stream` out of bytes, `diagnose/runner.py` reads the whole `Evidence`. Plain data;
nothing here opens a file or asks a clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """One printed line: as it was (`raw`), and without what launchers put before it (`text`)."""

    number: int  # from 1, in its stream
    offset: int  # bytes from the start of the stream
    raw: str
    text: str
    rank: int | None = None
    node: str | None = None
    writer: str = ""  # the prefix of a launcher: lines of one writer belong together
    time_s: float | None = None  # seconds on any clock that all lines of the stream share
    level: str = ""  # "D" "I" "W" "E" "F" where the line says so


@dataclass(slots=True)
class Stream:
    """One log, reduced to the lines worth reading. `line_count` counts those left out, too."""

    name: str
    lines: list[Line]
    rank: int | None = None
    task: str | None = None
    node: str | None = None
    kind: str = "output"  # "output" | "errors" | "kernel" | "events"
    line_count: int = 0
    size: int = 0
    skipped_from: int | None = None  # offset from which on a part was not read
    # When which part was written: offsets, rising, and the second of each.
    clock: tuple[Sequence[int], Sequence[float]] = ((), ())
    # Numbers of the lines that report progress (a step, a loss): the last few of them.
    progress: list[int] = field(default_factory=list)
    loss_nan_from: int | None = (
        None  # number of the line since which every loss printed was not finite
    )


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that our own bootstrap reported: exact, with its time."""

    kind: str  # "torch.OutOfMemoryError"
    message: str
    rank: int | None = None
    task: str | None = None
    time_s: float | None = None
    ended: bool = True  # of the main thread: it ended the rank, or was about to
    place: str = ""  # "train.py:152"


@dataclass(frozen=True, slots=True)
class End:
    """How one rank ended."""

    rank: int | None
    exit_code: int | None
    signal: int | None
    task: str | None = None
    node: str | None = None
    time_s: float | None = None


@dataclass(slots=True)
class Evidence:
    streams: Sequence[Stream] = ()
    exit_code: int | None = None
    signal: int | None = None
    ends: Sequence[End] = ()
    raised: Sequence[Raised] = ()
    reason: str | None = None  # "stop" "walltime" "preempted": why we ended it ourselves
    oom_kills: int = 0  # risen counter of the job's cgroup
    scheduler: str = ""  # its own words: "NODE_FAIL", "OUT_OF_MEMORY"
    memory_bytes: int | None = None  # the limit that was asked for
    memory_peak_bytes: int | None = None
    time_limit_s: float | None = None
    job: str | None = None
    usual_lines: frozenset[str] = (
        frozenset()
    )  # shapes of lines that the last good attempt printed as well
    usage: Mapping[str, float] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.signal is None

    @property
    def failed(self) -> bool:
        """Known to have failed; neither this nor `succeeded` where nobody knows."""
        return self.signal is not None or (self.exit_code is not None and self.exit_code != 0)

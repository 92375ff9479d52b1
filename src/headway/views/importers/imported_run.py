"""A run of another tracker, as every reader hands it on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headway.model.json_types import JsonObject

Point = tuple[int, int, Sequence[float]]  # step, time in ns, values


@dataclass
class PointStream:
    """Points in the order of their source. The same source must give the same points again, or more:
    a second import goes on where the first has ended.
    """

    source: str  # names the file or series within the run; never changes
    names: tuple[str, ...]
    points: Iterable[Point]


@dataclass
class MixedStream:
    """As `PointStream`, where each record has names of its own."""

    source: str
    records: Iterable[tuple[tuple[str, ...], int, int, Sequence[float]]]


@dataclass
class ImportedRun:
    key: str  # what makes it the same run at a second import
    name: str
    source: str
    started_ns: int
    ended_ns: int
    state: str = "succeeded"
    experiment: str | None = None
    command: list[str] = field(default_factory=list)
    cwd: str = "/"
    user: str = ""
    host: str = ""
    tags: list[str] = field(default_factory=list)
    exit_code: int | None = None
    config: JsonObject = field(default_factory=dict)
    summary: JsonObject = field(default_factory=dict)
    definitions: list[JsonObject] = field(default_factory=list)  # fields of the fact `metric`
    streams: list[PointStream | MixedStream] = field(default_factory=list)
    artifacts: list[tuple[str, str]] = field(
        default_factory=list
    )  # (name, path of a folder or file)
    skipped: list[str] = field(default_factory=list)


class NotThisKind(Exception):
    """The path is nothing that this reader reads."""

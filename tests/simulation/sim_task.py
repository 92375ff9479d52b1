"""A simulated task on a node: its spool, its processes, and a log of what really happened to them.

The log is kept by the "kernel" here, apart from every part of Headway, so that checks can compare
what Headway says with what was. The spool remembers every byte ever written, also those that an
agent has freed.
"""

from dataclasses import dataclass, field
from typing import Any

from headway.agent.ship.stream_state import Gap
from headway.model.record import FACT, OPEN, RAW, RECORDS
from headway.wire import frame
from headway.wire.batch import TaskKey
from tests.simulation.sim_world import Violation, World

SIGKILL, SIGTERM = 9, 15
SEGMENT_RECORDS = 40


@dataclass(slots=True)
class Stream:
    name: str
    kind: str
    bulk: bool = False
    whole: bool = False
    data: bytearray = field(default_factory=bytearray)
    gone: list[tuple[int, int]] = field(default_factory=list)  # ranges no longer in the spool
    closed: bool = False
    removed: bool = False

    def read(self, offset: int, length: int) -> bytes:
        for start, end in [*self.gone, *([(0, len(self.data))] if self.removed else [])]:
            if length and start < offset + length and offset < end:
                raise Violation(
                    f"{self.name}: [{offset}, {offset + length}) is read, [{start}, {end}) is gone"
                )
        return bytes(self.data[offset : offset + length])

    def real_end(self) -> int:
        """Zeros at the end of a closed stream of records are no data: they may be the start of a
        torn frame (F14).
        """
        return (
            len(self.data.rstrip(b"\0"))
            if self.kind == RECORDS and self._ends_torn()
            else len(self.data)
        )

    def _ends_torn(self) -> bool:
        data = bytes(self.data)
        return self.closed and frame.scan(data, final=True).end < len(data)

    def freed_prefix(self) -> int:
        first = 0
        for start, end in sorted(self.gone):
            first = max(first, end) if start <= first else first
        return len(self.data) if self.removed else first


@dataclass(slots=True)
class Spool:
    streams: dict[str, Stream] = field(default_factory=dict)
    cursor: dict[str, int] = field(default_factory=dict)
    old_cursor: dict[str, int] = field(default_factory=dict)
    drops: dict[str, list[Gap]] = field(default_factory=dict)
    removed: bool = False  # the server has everything, so the folder went

    def append(
        self, name: str, kind: str, data: bytes, *, bulk: bool = False, whole: bool = False
    ) -> int:
        """Where it was put."""
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Stream(name, kind, bulk, whole)
        offset = len(stream.data)
        stream.data += data
        return offset

    def fact(self, name: str, fact: dict[str, Any]) -> int:
        if name not in self.streams:
            opened = {
                "version": 1,
                "stream": name,
                "kind": "facts",
                "rank": 0,
                "pid": 1,
                "time_ns": fact["time_ns"],
            }
            self.append(name, RECORDS, frame.encode_json(OPEN, opened))
        return self.append(name, RECORDS, frame.encode_json(FACT, fact))

    def facts(self, name: str) -> list[tuple[int, dict[str, Any]]]:
        """(offset, fact) of a stream of facts."""
        stream = self.streams.get(name)
        found, pos = [], 0
        data = bytes(stream.data) if stream is not None else b""
        while pos < len(data):
            step = frame.frame_at(data, pos)
            if step <= 0:
                break
            if data[pos + 6] == FACT:
                found.append((pos, frame.decode_json(data[pos + frame.HEADER_BYTES : pos + step])))
            pos += step
        return found

    def end_fact(self) -> tuple[str, int] | None:
        """Stream and offset of the fact that the task has ended."""
        for name in self.streams:
            if name == "shim" or name.startswith("shipper-"):
                for offset, fact in self.facts(name):
                    if fact["type"] == "task_ended":
                        return name, offset
        return None

    def is_drained(self) -> bool:
        left = [
            s
            for s in self.streams.values()
            if not s.removed and self.cursor.get(s.name, 0) < len(s.data)
        ]
        return all(self.cursor.get(s.name, 0) >= s.real_end() for s in left)


@dataclass(frozen=True, slots=True)
class Point:
    stream: str
    start: int
    end: int
    step: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What the kernel knows about the end of a process."""

    rank: int
    exit_code: int | None
    signal: int | None
    told_to: bool  # the agent had signalled it before
    reaped: bool = False  # by a shim that lived
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Program:
    """What one rank will do by itself."""

    seconds: float
    exit_code: int | None
    signal: int | None
    on_term: str  # "die" | "exit 0" | "exit 1" | "ignore"
    points: int  # per tick
    text: int  # bytes per tick


class Task:
    """One task: folder, processes, and the story of what happened."""

    def __init__(
        self,
        world: World,
        key: TaskKey,
        token: str,
        programs: list[Program],
        limit_s: float | None,
        hold_s: float = 0.0,
        first_rank: int = 0,
    ) -> None:
        self.world, self.key, self.token, self.programs, self.limit_s = (
            world,
            key,
            token,
            programs,
            limit_s,
        )
        self.hold_s, self.first_rank = hold_s, first_rank
        self.peers: list[Task] = [self]  # all tasks of the attempt
        self.spool = Spool()
        self.ranks: list[Rank | None] = [None] * len(programs)
        self.shim: Any = None  # the agent's processes, while they live
        self.shipper: Any = None
        self.begun = False  # shim.json lies there
        self.births = 0  # shims that were started
        self.ended: list[Ended] = []
        # "stop" | "walltime" | "refused" | "preempted" | "others" (another task ended it), in
        # order, beside the ends
        self.story: list[str] = []
        self.shim_killed = False
        # an agent of it was stopped for a while: the order in which it then hears things is open
        self.slept = False
        self.points: dict[int, list[Point]] = {}
        self.not_written = 0  # points that found the disk full: counted, never attempted

    def living(self) -> list["Rank"]:
        return [rank for rank in self.ranks if rank is not None and rank.alive]

    def start_rank(self, index: int) -> "Rank":
        if self.ranks[index] is not None:
            raise Violation(f"rank {index} of {self.key} was started twice")
        if not all(peer.begun for peer in self.peers):
            raise Violation(f"rank {index} of {self.key} was started before every task was there")
        rank = self.ranks[index] = Rank(self, index, self.programs[index])
        return rank


class Rank:
    """A training process: writes, and ends by itself, by a signal, or because a fault kills it."""

    def __init__(self, task: Task, index: int, program: Program) -> None:
        self.task, self.index, self.program, self.world = task, index, program, task.world
        self.number = task.first_rank + index
        self.pid = task.world.new_pid()
        self.alive = True
        self._told_to = False
        self._step = self._records = self._segment = 0
        self._rand = f"{self.world.random.getrandbits(24):06x}"
        self._streams = [self._facts_name()]
        self._fact({"type": "hello", "rank": self.number, "local_rank": index, "pid": self.pid})
        self.world.agenda.after(self.world.between(0.1, 1.0), self._tick)
        self.world.agenda.after(
            program.seconds, lambda: self.end(program.exit_code, program.signal)
        )

    # -- writing

    def _facts_name(self) -> str:
        return f"facts-{self.number}-{self.pid}-{self._rand}"

    def _metrics_name(self) -> str:
        return f"metrics-{self.number}-{self.pid}-{self._rand}.{self._segment}"

    def _fact(self, fact: dict[str, Any]) -> None:
        self.task.spool.fact(self._facts_name(), {"time_ns": self.world.clock.time_ns(), **fact})

    def _tick(self) -> None:
        if not self.alive:
            return
        for _ in range(self.program.points):
            self._log()
        if self.program.text and not self.world.strikes("spool disk full"):
            line = f"rank {self.number} step {self._step} ".encode() * (1 + self.program.text // 16)
            self._append(
                f"stdout-{self.number}", RAW, line[: self.program.text - 1] + b"\n", whole=False
            )
        self.world.agenda.after(self.world.between(0.3, 2.0), self._tick)

    def _append(self, name: str, kind: str, data: bytes, *, whole: bool) -> int:
        if name not in self._streams:
            self._streams.append(name)
        return self.task.spool.append(name, kind, data, bulk=True, whole=whole)

    def _log(self) -> None:
        if self.world.strikes("spool disk full"):
            self.task.not_written += 1
            return
        if self._records == SEGMENT_RECORDS:
            self._roll()
        name = self._metrics_name()
        if self._records == 0:
            opened = {
                "version": 1,
                "stream": name,
                "kind": "metrics",
                "rank": self.number,
                "pid": self.pid,
            }
            head = frame.encode_json(OPEN, {**opened, "segment": self._segment, "time_ns": 0})
            self._append(name, RECORDS, head + frame.encode_schema(1, ("x",)), whole=True)
        data = self._record()
        start = self._append(name, RECORDS, data, whole=True)
        self.task.points.setdefault(self.number, []).append(
            Point(name, start, start + len(data), self._step)
        )
        self._step += 1
        self._records += 1

    def _record(self) -> bytes:
        body = frame.metrics_struct(1).pack(
            *frame.metrics_head(1, 1), self._step, self.world.clock.time_ns(), float(self._step)
        )
        return frame.encode(body[0], body[6:])

    def _roll(self) -> None:
        old = self.task.spool.streams[self._metrics_name()]
        self._segment, self._records = self._segment + 1, 0

        def close() -> None:
            old.closed = True

        self.world.agenda.after(2.0, close)

    # -- ending

    def signal(self, number: int) -> None:
        """The agent signals it."""
        if not self.alive or number not in (SIGKILL, SIGTERM):
            return
        self._told_to = True
        if number == SIGKILL or self.program.on_term == "die":
            self.end(None, number)
        elif self.program.on_term.startswith("exit"):
            code = int(self.program.on_term.split()[1])
            self.world.agenda.after(self.world.between(0.01, 3.0), lambda: self.end(code, None))

    def kill(self) -> None:
        """Somebody kills it, perhaps inside a write (F1, F2)."""
        if self.alive and self.world.strikes("torn write") and self._records:
            data = self._record()
            self._append(
                self._metrics_name(),
                RECORDS,
                data[: self.world.random.randrange(1, len(data))],
                whole=True,
            )
        self.end(None, SIGKILL)

    def end(self, exit_code: int | None, signal: int | None) -> None:
        if not self.alive:
            return
        self.alive = False
        for name in self._streams:
            stream = self.task.spool.streams.get(name)
            if stream is not None:
                stream.closed = True
        shim = self.task.shim
        end = Ended(
            self.index, exit_code, signal, self._told_to, shim is not None, self.world.clock.now_s
        )
        self.task.ended.append(end)
        if shim is not None:
            shim.rank_ended(end)

"""Simulated drivers of the agent's machines: what `shim.py` and `shipper.py` do with files and
sockets, done in memory.

They talk to `agent/shim/machine.py` and `agent/ship/machine.py` only through events and
instructions. Dying is forgetting: a dead agent's machine is gone, and its successor knows what lies
in the spool.
"""

import json
from collections.abc import Callable
from typing import Any

from headway.agent.shim import machine as shim_machine
from headway.agent.ship import events, stream_state
from headway.agent.ship import machine as ship_machine
from headway.agent.ship.orphan import reason_of
from headway.model.limits import GRACE_S, MIB
from headway.model.record import GAP, RAW, RECORDS
from headway.wire import batch, frame
from tests.simulation.sim_task import Ended, Stream, Task
from tests.simulation.sim_world import Reply, Violation

POLL_S = 5.0
SMALL_SPOOL_BYTES = 16 * 1024
SPINS_MAX = 1000


class Driver:
    """A process of the agent: may be stopped for a while, and may die."""

    def __init__(self, task: Task) -> None:
        self.task, self.world = task, task.world
        self.alive = True
        self.pid = task.world.new_pid()
        self._asleep_until_s = 0.0
        self._ticker = task.world.agenda.ticker()
        self._spins = 0

    def sleep(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later (F27)."""
        self._asleep_until_s = self.world.clock.now_s + seconds
        self.task.slept = True

    def _wake_at(self, when_s: float | None, tick: Callable[[], None]) -> None:
        """As the machine asks. One that asks for now, again and again, would keep a core busy for
        nothing.
        """
        if when_s is not None:
            self._spins = self._spins + 1 if when_s <= self.world.clock.now_s else 0
        if self._spins > SPINS_MAX:
            raise Violation(f"an agent of {self.task.key} spins")
        self._ticker.at(when_s, tick)

    def _awake(self, again: Callable[[], None]) -> bool:
        """Whether it can act now; else `again` is called when it can."""
        if not self.alive:
            return False
        left_s = self._asleep_until_s - self.world.clock.now_s
        if left_s > 0:
            self.world.agenda.after(left_s, again)
            return False
        return True

    def _now_fact(self, fact: dict[str, Any]) -> dict[str, Any]:
        return {"time_ns": self.world.clock.time_ns(), **fact}


class Shim(Driver):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        task.births += 1
        task.shim = self
        self.machine = shim_machine.ShimMachine(_plan_of(task))
        self.world.agenda.after(self.world.between(0.01, 0.3), self._begin)

    def _begin(self) -> None:
        if not self._awake(self._begin):
            return
        if self.task.begun or self.world.strikes("shim dies at birth"):
            self.leave()  # refuses where one has begun before (F28)
            return
        self.task.begun = True
        self._write({"type": "task_started", "node": "node", "pid": self.pid, "start": 1})
        self.feed(shim_machine.Begun())

    def _write(self, fact: dict[str, Any]) -> None:
        self.task.spool.fact("shim", self._now_fact(fact))

    def feed(self, event: shim_machine.ShimEvent) -> None:
        if not self._awake(lambda: self.feed(event)):
            return
        for instruction in self.machine.handle(event, self.world.clock.now_s):
            if not self.alive:
                return
            self._do(instruction)
        self._wake_at(
            self.machine.wake_s(self.world.clock.now_s), lambda: self.feed(shim_machine.Tick())
        )

    def _do(self, instruction: shim_machine.ShimInstruction) -> None:
        match instruction:
            case shim_machine.Write():
                self._note(instruction.fact)
                self._write(instruction.fact)
                if self.world.strikes("shim dies"):
                    self.die()
            case shim_machine.StartRank():
                self._start_rank(instruction.index)
            case shim_machine.StartShipper():
                Shipper(self.task)
            case shim_machine.SignalRank():
                rank = self.task.ranks[instruction.index]
                if rank is not None:
                    rank.signal(instruction.signum)
            case shim_machine.LookForLeftovers():
                self.world.agenda.after(0, lambda: self.feed(shim_machine.LeftoversSeen(())))
            case shim_machine.Leave():
                self.leave()

    def _note(self, fact: dict[str, Any]) -> None:
        """What an outsider could see it do."""
        self.task.story += _told_by(fact)

    def _start_rank(self, index: int) -> None:
        if self.world.strikes("rank refused"):
            self.task.story.append("refused")
            self.feed(shim_machine.RankRefused(index, 127, "no such program"))
            return
        rank = self.task.start_rank(index)
        self.feed(shim_machine.RankStarted(index, rank.pid, 1))

    def rank_ended(self, end: Ended) -> None:
        event = shim_machine.RankExited(end.rank, end.exit_code, end.signal)
        self.world.agenda.after(0, lambda: self.feed(event))

    def shipper_ended(self, final: bool) -> None:
        self.world.agenda.after(0.01, lambda: self.feed(shim_machine.ShipperExited(final)))

    def leave(self) -> None:
        self.alive = False
        if self.task.shim is self:
            self.task.shim = None

    def die(self) -> None:
        """kill -9."""
        self.task.shim_killed = True
        self.leave()


class Shipper(Driver):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        if task.shipper is not None:  # it holds the lock (F28)
            self.alive = False
            return
        task.shipper = self
        self._child = task.shim is not None
        limit = SMALL_SPOOL_BYTES if self.world.is_on("small spool") else 64 * MIB
        self.machine = ship_machine.ShipperMachine(ship_machine.ShipperPlan(limit))
        self.life: shim_machine.ShimMachine | None = None  # of the ranks, once there is no shim
        self._life_ticker = self.world.agenda.ticker()
        self._name = f"shipper-{self.pid}-{self.world.random.getrandbits(24):06x}"
        self._packed: dict[int, bytes] = {}
        self._queue: list[int] = []
        self._flying: int | None = None
        self._done: list[int] = []
        self._told_end = False
        self._sizes: dict[str, int] = {}
        self._closed: set[str] = set()
        self._load_cursor()
        self.world.agenda.after(self.world.between(0.05, 0.3), self._scan)
        self.world.agenda.after(self.world.between(0.1, POLL_S), self._poll)

    def _load_cursor(self) -> None:
        """It may be lost, old or garbage (F16)."""
        spool = self.task.spool
        if self.world.strikes("cursor lost"):
            spool.cursor = {}
        elif self.world.strikes("cursor old"):
            spool.cursor = dict(spool.old_cursor)
        spool.old_cursor = dict(spool.cursor)
        self._cursor = dict(spool.cursor)
        if self.world.strikes("cursor garbage"):
            sizes = {name: len(stream.data) for name, stream in spool.streams.items()}
            self._cursor = {
                name: self.world.random.randint(0, 2 * size) for name, size in sizes.items()
            }

    # -- what lies in the spool

    def _scan(self) -> None:
        if not self._awake(self._scan):
            return
        if self.task.shim is None and self.life is None and self.task.begun:
            self._adopt()
        self._watch_ranks()
        end = self.task.spool.end_fact()
        first = end is not None and not self._told_end
        self._told_end = end is not None
        news = [event for stream in self.task.spool.streams.values() for event in self._see(stream)]
        if end is not None and first:
            news.append(events.TaskEnded(*end))
        if news:
            self.feed(events.Seen(tuple(news)))
        if self.alive:
            self.world.agenda.after(self.world.between(0.1, 0.6), self._scan)

    def _see(self, stream: Stream) -> list[events.ShipperEvent]:
        """What is new about a stream."""
        news: list[events.ShipperEvent] = []
        if stream.removed:
            return news
        spool = self.task.spool
        gaps = tuple(spool.drops.get(stream.name, ()))
        acked = self._cursor.get(stream.name, 0)
        size = len(stream.data)
        if self._sizes.get(stream.name) != size:
            self._sizes[stream.name] = size
            first = stream.freed_prefix()
            news.append(
                events.Grown(
                    stream.name, stream.kind, size, stream.bulk, stream.whole, acked, first, gaps
                )
            )
        agents = stream.name == "shim" or stream.name.startswith("shipper-")
        if stream.name not in self._closed and (stream.closed or (agents and self._told_end)):
            self._closed.add(stream.name)
            news.append(events.Closed(stream.name))
        return news

    # -- the machine

    def feed(self, event: events.ShipperEvent) -> None:
        if not self.alive:
            return
        for instruction in self.machine.handle(
            event, self.world.clock.now_s, self.world.random.random()
        ):
            if self.alive:
                self._do(instruction)
        self._pump()
        self._wake_at(self.machine.wake_s(self.world.clock.now_s), self._tick)

    def _tick(self) -> None:
        if self._awake(self._tick):
            self.feed(shim_machine.Tick())

    def _do(self, instruction: events.ShipperInstruction) -> None:
        spool = self.task.spool
        match instruction:
            case events.Pack():
                self._pack(instruction)
            case events.Forget():
                self._queue.clear()
                self._packed.clear()
            case events.Free():
                stream = spool.streams[instruction.stream]
                stream.gone.append((instruction.offset, instruction.offset + instruction.length))
            case events.Remove():
                spool.streams[instruction.stream].removed = True
            case events.Drop():
                self._drop(instruction)
            case events.Finish():
                self._finish(instruction)

    def _drop(self, drop: events.Drop) -> None:
        stream = self.task.spool.streams[drop.stream]
        end = drop.offset + drop.length
        points = (
            [p for p in self._points(stream) if drop.offset <= p[0] < end]
            if stream.kind == RECORDS
            else None
        )
        count = None if points is None else len(points)
        gap = stream_state.Gap(drop.offset, end, drop.reason, count, count)
        self.task.spool.drops.setdefault(drop.stream, []).append(gap)
        stream.gone.append((drop.offset, end))
        self.feed(events.Dropped(drop.stream, drop.offset, count, count))

    def _points(self, stream: Stream) -> list[tuple[int, int]]:
        return [
            (p.start, p.end)
            for points in self.task.points.values()
            for p in points
            if p.stream == stream.name
        ]

    def _finish(self, finish: events.Finish) -> None:
        if finish.refused:
            raise AssertionError(f"streams were refused: {finish.refused}")
        if finish.complete:
            self.task.spool.cursor.update(self.machine.positions())
            self.task.spool.removed = self.task.spool.is_drained()
        self.leave(final=True)

    def leave(self, *, final: bool) -> None:
        self.alive = False
        if self.task.shipper is self:
            self.task.shipper = None
        if self._child and self.task.shim is not None:
            self.task.shim.shipper_ended(final)

    def die(self) -> None:
        self.leave(final=False)

    # -- batches

    def _pack(self, order: events.Pack) -> None:
        parts: list[batch.Part] = []
        pieces: list[events.Piece] = []
        held: list[events.Held] = []
        ends: list[tuple[str, int]] = []
        whole = True
        for span in order.spans:
            if span.last and not whole:
                continue
            taken = self._read(span, parts, pieces)
            if taken == span.length:
                continue
            if (
                span.final
                and span.offset + taken == self.task.spool.streams[span.stream].real_end()
            ):
                ends.append((span.stream, span.offset + taken))
            else:
                whole = False
                held.append(events.Held(span.stream))
        self._packed[order.number] = batch.encode(self.task.key, parts, self.world.clock.time_ns())
        self.feed(events.Packed(order.number, tuple(pieces), tuple(held), tuple(ends)))
        if pieces and order.number in self._packed:
            self._queue.append(order.number)

    def _read(
        self, span: stream_state.Span, parts: list[batch.Part], pieces: list[events.Piece]
    ) -> int:
        """How many bytes of a span came out."""
        if span.gap is not None:
            told = {"bytes": span.length, "reason": span.gap.reason}
            counts = {"records": span.gap.records, "points": span.gap.points}
            parts.append(
                batch.Part(span.stream, GAP, span.offset, json.dumps({**told, **counts}).encode())
            )
            pieces.append(events.Piece(span.stream, span.offset, span.length))
            return span.length
        stream = self.task.spool.streams[span.stream]
        data = stream.read(span.offset, span.length)
        if span.kind == RAW or not data:  # without data it is a question: where is the server?
            parts.append(batch.Part(span.stream, span.kind, span.offset, data))
            pieces.append(events.Piece(span.stream, span.offset, len(data)))
            return len(data)
        final = span.final and span.offset + span.length >= stream.real_end()
        scan = frame.scan(data, final=final or span.boundary)
        pos, stop, damaged = 0, scan.end, list(scan.damaged)
        if span.boundary and stop < len(data) == span.length:
            damaged.append((stop, span.length))
            stop = span.length
        for start, end in [*damaged, (stop, stop)]:
            if start > pos:
                parts.append(batch.Part(span.stream, RECORDS, span.offset + pos, data[pos:start]))
            if end > start:
                told = {"bytes": end - start, "reason": "damaged", "records": 1, "points": None}
                parts.append(
                    batch.Part(span.stream, GAP, span.offset + start, json.dumps(told).encode())
                )
            pos = end
        if stop:
            pieces.append(events.Piece(span.stream, span.offset, stop))
        return stop

    def _pump(self) -> None:
        if self._flying is not None or not self._queue or not self.alive:
            return
        number = self._flying = self._queue.pop(0)
        body, server, token = self._packed.pop(number), self.world.server, self.task.token
        self.world.request(
            lambda: server.ingest(body, token), lambda reply: self._answered(number, reply)
        )

    def _answered(self, number: int, reply: Reply) -> None:
        if not self._awake(lambda: self._answered(number, reply)):
            return
        self._flying = None
        status, answer = reply
        if status == 200:
            acks, refused = answer
            self.world.history.acknowledged(self.task, acks)
            self.feed(events.Acked(number, acks, refused))
            self.task.spool.cursor.update(self.machine.positions())
        else:
            self.feed(events.Failed(number, status or None, f"status {status}"))
        self._pump()

    # -- commands

    def _poll(self) -> None:
        if not self._awake(self._poll):
            return
        done, server = list(self._done), self.world.server
        self.world.request(lambda: server.poll(self.task.key, self.task.token, done), self._polled)

    def _polled(self, reply: Reply) -> None:
        if not self._awake(lambda: self._polled(reply)):
            return
        for command in reply[1] or [] if reply[0] == 200 else []:
            if command["seq"] not in self._done:
                self._done.append(command["seq"])
                self._obey(command)
        self.world.agenda.after(POLL_S, self._poll)

    def _obey(self, command: dict[str, Any]) -> None:
        event: shim_machine.ShimEvent = shim_machine.GoAhead()
        if command["do"] == "stop":
            event = shim_machine.StopAsked(
                "command", grace_s=command["grace_s"], reason=command.get("reason", "stop")
            )
        if self.task.shim is not None:
            self.task.shim.feed(event)
        elif self.life is not None and command["do"] == "stop":
            self._live(event)

    # -- in place of a shim

    def _adopt(self) -> None:
        """The shim is gone. What it wrote down is known; how the rest ends will not be."""
        if self.task.spool.end_fact() is not None:
            return
        started, exited, reason = set(), [], None
        for _, fact in self.task.spool.facts("shim"):
            index = fact.get("rank", 0) - self.task.first_rank
            match fact["type"]:
                case "process_started":
                    started.add(index)
                case "process_exited":
                    exited.append(shim_machine.RankExited(index, fact["exit_code"], fact["signal"]))
                case "start_failed":
                    exited.append(shim_machine.RankExited(index, fact["exit_code"], None))
                case "stop_requested":
                    reason = reason_of(fact)
        told = {event.index for event in exited}
        alive = {
            rank.index: rank.pid for rank in self.task.living() if rank.index in started - told
        }
        plan = shim_machine.ShimPlan(
            len(self.task.programs), self.task.first_rank, GRACE_S, self.task.limit_s
        )
        self.life = shim_machine.ShimMachine(plan, ships=False)
        self._live(shim_machine.Adopted(alive, tuple(exited), reason, 0.0))

    def _live(self, event: shim_machine.ShimEvent) -> None:
        if not self._awake(lambda: self._live(event)):
            return
        assert self.life is not None
        for instruction in self.life.handle(event, self.world.clock.now_s):
            match instruction:
                case shim_machine.Write():
                    self._note(instruction.fact)
                    self.task.spool.fact(self._name, self._now_fact(instruction.fact))
                case shim_machine.SignalRank():
                    rank = self.task.ranks[instruction.index]
                    if rank is not None:
                        rank.signal(instruction.signum)
                case shim_machine.LookForLeftovers():
                    self.world.agenda.after(0, lambda: self._live(shim_machine.LeftoversSeen(())))
        self._life_ticker.at(
            self.life.wake_s(self.world.clock.now_s), lambda: self._live(shim_machine.Tick())
        )

    def _note(self, fact: dict[str, Any]) -> None:
        self.task.story += _told_by(fact)

    def _watch_ranks(self) -> None:
        if self.life is None or not self.alive:
            return
        for index, rank in enumerate(self.life.ranks):
            real = self.task.ranks[index]
            if rank.state == "running" and (real is None or not real.alive):
                self._live(shim_machine.RankExited(index, None, None))


def _plan_of(task: Task) -> shim_machine.ShimPlan:
    barrier = len(task.peers) > 1
    return shim_machine.ShimPlan(
        len(task.programs), task.first_rank, GRACE_S, task.limit_s, barrier, hold_s=task.hold_s
    )


def _told_by(fact: dict[str, Any]) -> list[str]:
    """Who wanted the ranks to end, where it was none of them."""
    if fact["type"] != "stop_requested" or fact["by"].startswith("rank"):
        return []
    if fact["by"] == "walltime":
        return ["walltime"]
    return ["stop" if reason_of(fact) == "stop" else "others"]

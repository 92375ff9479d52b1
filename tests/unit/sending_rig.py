"""A shipper's machine with a spool and a server that are only numbers. Used by the tests of
`agent/ship/machine.py`.
"""

from headway.agent.shim.machine import Tick
from headway.agent.ship.events import (
    Acked,
    Drop,
    Dropped,
    Failed,
    Finish,
    Forget,
    Pack,
    Packed,
    Piece,
    ShipperEvent,
    ShipperInstruction,
)
from headway.agent.ship.machine import ShipperMachine, ShipperPlan


class Rig:
    """A machine with a spool and a server that are only numbers; batches are packed at once,
    answers on request.
    """

    def __init__(self, cap: int = 1 << 40) -> None:
        self.machine = ShipperMachine(ShipperPlan(cap))
        self.now_s = 0.0
        self.out: list[Pack] = []  # packed and not answered
        self.said: list[ShipperInstruction] = []
        self.server: dict[str, int] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}  # what the server was told is missing
        self.dropped: dict[str, list[tuple[int, int]]] = {}
        self.finish: Finish | None = None
        self.chance = 0.5

    def __call__(self, *events: ShipperEvent, after_s: float = 0.0) -> list[ShipperInstruction]:
        self.now_s += after_s
        queue, said = list(events), []
        while queue:
            for instruction in self.machine.handle(queue.pop(0), self.now_s, self.chance):
                said.append(instruction)
                match instruction:
                    case Pack():
                        self.out.append(instruction)
                        pieces = tuple(
                            Piece(s.stream, s.offset, s.length) for s in instruction.spans
                        )
                        queue.append(Packed(instruction.number, pieces))
                    case Forget():
                        del self.out[:]
                    case Drop():
                        span = (instruction.offset, instruction.offset + instruction.length)
                        self.dropped.setdefault(instruction.stream, []).append(span)
                        queue.append(Dropped(instruction.stream, instruction.offset, 1, 2))
                    case Finish():
                        self.finish = instruction
        self.said += said
        return said

    def spans(self, batch: Pack | None = None) -> list[tuple[str, int, int]]:
        return [(s.stream, s.offset, s.length) for s in (batch or self.out[0]).spans]

    def apply(self) -> dict[str, int]:
        """The server takes the first batch that is out, by position, as the protocol says."""
        acks = {}
        for span in self.out[0].spans:
            position = self.server.get(span.stream, 0)
            if span.offset <= position < span.offset + span.length:  # an empty one changes nothing
                if span.gap is not None:
                    self.gaps.setdefault(span.stream, []).append(
                        (position, span.offset + span.length)
                    )
                self.server[span.stream] = span.offset + span.length
            acks[span.stream] = self.server.get(span.stream, 0)
        return acks

    def ack(self) -> list[ShipperInstruction]:
        acks, number = self.apply(), self.out.pop(0).number
        return self(Acked(number, acks))

    def fail(self, status: int | None = None, reason: str = "away") -> list[ShipperInstruction]:
        batch = self.out.pop(0)
        return self(Failed(batch.number, status, reason))

    def drain(self) -> None:
        for _ in range(10_000):
            if self.out:
                self.ack()
            elif (wake := self.machine.wake_s(self.now_s)) is not None and self.finish is None:
                if self.machine.lag_bytes == 0 and self.machine.ending is None:
                    return
                self(Tick(), after_s=max(0.0, wake - self.now_s))
            else:
                return
        raise AssertionError("it never ends")

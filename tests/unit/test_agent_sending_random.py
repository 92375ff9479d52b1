"""The shipper's decisions in any order of events, faults and restarts: everything arrives or is
told (P4, P5).
"""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.agent.shim.machine import Tick
from headway.agent.ship.events import (
    Closed,
    Free,
    Grown,
    Remove,
    Seen,
    ShipperEvent,
    ShipperInstruction,
)
from headway.agent.ship.machine import ShipperMachine, ShipperPlan
from headway.agent.ship.stream_state import Gap
from headway.model.limits import MIB
from headway.model.record import RAW, RECORDS
from tests.unit.sending_rig import Rig

STREAMS = ("shim", "stdout-0", "metrics-0-1-abcdef.0", "metrics-0-1-abcdef.1")
STEPS = st.one_of(
    st.tuples(st.just("grow"), st.sampled_from(STREAMS), st.integers(1, 3 * MIB)),
    st.tuples(st.just("ack"), st.none(), st.none()),
    st.tuples(st.just("lose"), st.none(), st.none()),
    st.tuples(st.just("fail"), st.sampled_from([None, 400, 401, 413, 503]), st.none()),
    st.tuples(st.just("restore"), st.sampled_from(STREAMS), st.floats(0, 1)),
    # with a cursor that is behind, or ahead (F16)
    st.tuples(st.just("restart"), st.floats(0, 3), st.none()),
    st.tuples(st.just("close"), st.sampled_from(["metrics-0-1-abcdef.0", "stdout-0"]), st.none()),
    st.tuples(st.just("wait"), st.floats(0, 30), st.none()),
)


class World(Rig):
    """Steps of a random story; a restart forgets all but the cursor of some earlier time and the
    drops.
    """

    def __init__(self, cap: int) -> None:
        super().__init__(cap)
        self.sizes = dict.fromkeys(STREAMS, 0)
        self.removed: set[str] = set()
        self.closed: set[str] = set()
        self.highest: dict[str, int] = {}  # where the server has ever been
        self.cap = cap

    def __call__(self, *events: ShipperEvent, after_s: float = 0.0) -> list[ShipperInstruction]:
        said = super().__call__(*events, after_s=after_s)
        for one in said:
            if isinstance(one, Free):
                assert one.offset + one.length <= self.highest.get(one.stream, 0), (
                    "given back by the server's word"
                )
        return said

    def apply(self) -> dict[str, int]:
        acks = super().apply()
        self.highest |= {
            name: max(position, self.highest.get(name, 0)) for name, position in acks.items()
        }
        return acks

    def grown(self, name: str, **fields: Any) -> Grown:
        bulk, whole = name != "shim", name.startswith("metrics")
        return Grown(
            name, RAW if name == "stdout-0" else RECORDS, self.sizes[name], bulk, whole, **fields
        )

    def step(self, kind: str, a: Any, b: Any) -> None:
        self.removed |= {i.stream for i in self.said if isinstance(i, Remove)}
        if kind == "grow" and a not in self.removed | self.closed:
            self.sizes[a] += b
            self(self.grown(a))
        elif kind in ("ack", "lose", "fail") and self.out:
            if kind == "ack":
                self.ack()
            else:
                self.apply() if kind == "lose" else None
                self.fail(None if kind == "lose" else a)
        elif kind == "restore" and a not in self.removed:
            self.server[a] = int(self.server.get(a, 0) * b)
        elif kind == "restart":
            self.restart(a)
        elif kind == "close":
            self.closed.add(a)
            self(Closed(a))
        elif kind == "wait":
            self(Tick(), after_s=a)

    def restart(self, share: float) -> None:
        old, self.machine = self.machine, ShipperMachine(ShipperPlan(self.cap))
        del self.out[:]
        events: list[ShipperEvent] = []
        for name in STREAMS:
            entry = old.entries.get(name)
            if name in self.removed or entry is None:
                continue
            gaps = tuple(Gap(s, e, "full", 1, 2) for s, e in self.dropped.get(name, []))
            events.append(
                self.grown(name, acked=int(entry.acked * share), first=entry.first, gaps=gaps)
            )
            if entry.closed:
                events.append(Closed(name))
        self(Seen(tuple(events)))


AHEAD = [
    ("grow", "stdout-0", 2 * MIB),
    ("ack", None, None),
    ("close", "stdout-0", None),
    ("restart", 3.0, None),
]


@example(AHEAD, 4 * MIB)
@settings(max_examples=150)
@given(st.lists(STEPS, max_size=60), st.sampled_from([1 << 40, 4 * MIB]))
def test_whatever_happens_everything_arrives_or_is_told_as_a_gap(
    steps: list[tuple[str, Any, Any]], cap: int
) -> None:
    """P4, P5: at the end the server is at the end of every stream, and only what was dropped or
    freed is a gap.
    """
    world = World(cap)
    for step in steps:
        world.step(*step)
    refused = {name for name, entry in world.machine.entries.items() if entry.refused is not None}
    for name in STREAMS:  # a server that went back tells so with its next answer
        world.closed.discard(name)
        world.step("grow", name, 1)
    world(Tick(), after_s=60)
    world.drain()
    world.removed |= {i.stream for i in world.said if isinstance(i, Remove)}
    for name, size in world.sizes.items():
        if name not in world.removed | refused:
            assert world.server.get(name, 0) >= size, name
    freed = {i.stream for i in world.said if isinstance(i, Free)}
    for name, gaps in world.gaps.items():
        if name not in freed:
            told = {place for start, stop in gaps for place in (start, stop)}
            known = {place for span in world.dropped.get(name, []) for place in span}
            assert name in world.dropped, name
            assert min(told) >= 0 and max(told) <= max(known)
    assert world.machine.lag_bytes == 0
    assert world.machine.used == sum(entry.kept for entry in world.machine.entries.values()) >= 0

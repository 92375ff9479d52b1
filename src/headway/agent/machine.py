"""The decisions of shim and shipper, without any I/O: events in, instructions out. Time and chance are arguments.

`ShimMachine` (`life.py`) is the life of a task's processes; `ShipperMachine` (`sending.py`) is the way of its bytes to
the server. They are driven by `shim.py` and `shipper.py`, and by the seeded simulation in one thread:

    for instruction in machine.handle(event, now_s): ...      # do it; what comes of it is the next event
    machine.wake_s(now_s)                                     # when to send a Tick at the latest, or None

`now_s` is any clock that never steps back; `chance` (shipper only) is a random number in [0, 1) for jitter. Every event
and instruction is a small frozen value whose docstring says what it means.
"""

from headway.agent.ledger import Entry, Gap, Span
from headway.agent.life import (
    Adopted,
    Begun,
    GoAhead,
    Leave,
    LeftoversSeen,
    LookForLeftovers,
    RankExited,
    RankRefused,
    RankStarted,
    RemoveEnvironment,
    ShimEvent,
    ShimInstruction,
    ShimMachine,
    ShimPlan,
    ShipHere,
    ShipperExited,
    SignalAsked,
    SignalLeftovers,
    SignalRank,
    StartRank,
    StartShipper,
    StopAsked,
    Tick,
    Write,
)
from headway.agent.message import (
    Acked,
    Busy,
    Closed,
    Drop,
    Dropped,
    Failed,
    Finish,
    Forget,
    Free,
    Grown,
    Held,
    Log,
    Pack,
    Packed,
    Piece,
    Refused,
    Reload,
    Remove,
    Retry,
    Seen,
    ShipperEvent,
    ShipperInstruction,
    TaskEnded,
)
from headway.agent.sending import ShipperMachine, ShipperPlan

__all__ = [
    "Acked", "Adopted", "Begun", "Busy", "Closed", "Drop", "Dropped", "Entry", "Failed", "Finish", "Forget", "Free",
    "Gap", "GoAhead", "Grown", "Held", "Leave", "LeftoversSeen", "Log", "LookForLeftovers", "Pack", "Packed", "Piece",
    "RankExited", "RankRefused", "RankStarted", "Refused", "Reload", "Remove", "RemoveEnvironment", "Retry", "Seen",
    "ShimEvent", "ShimInstruction", "ShimMachine", "ShimPlan", "ShipHere", "ShipperEvent", "ShipperExited",
    "ShipperInstruction", "ShipperMachine", "ShipperPlan", "SignalAsked", "SignalLeftovers", "SignalRank", "Span",
    "StartRank", "StartShipper", "StopAsked", "TaskEnded", "Tick", "Write",
]  # fmt: skip

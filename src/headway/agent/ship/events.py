"""What goes in and out of `ShipperMachine`: events and instructions."""

from __future__ import annotations

from headway.agent.shim.machine import Tick
from headway.agent.ship.stream_state import Gap, Span
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NOTHING: "Mapping[str, str]" = {}

# -- events


class Grown(Value):
    """A stream is there, or has grown."""

    stream: str
    kind: str
    size: int
    bulk: bool = False
    whole: bool = False
    acked: int = 0  # as the cursor has it; only read at first sight
    first: int = 0  # bytes before it are gone from the spool; only read at first sight
    gaps: tuple[Gap, ...] = ()  # dropped earlier and not yet told; only read at first sight


class Closed(Value):
    """Nobody will write to this stream any more."""

    stream: str


class Piece(Value):
    """A part of a packed batch: this stream moves on by `length` from `offset`."""

    stream: str
    offset: int
    length: int


class Held(Value):
    """Nothing more of this stream can be sent at its present size, or until a time."""

    stream: str
    until_s: float | None = None


class Packed(Value):
    """The answer to Pack: what the batch really holds. One without pieces is not sent."""

    number: int
    pieces: tuple[Piece, ...]
    held: tuple[Held, ...] = ()
    ends: tuple[tuple[str, int], ...] = ()  # (stream, where it really ends)


class Acked(Value):
    """The server has committed the batch: its position per stream, and streams that it refuses."""

    number: int
    acks: "Mapping[str, int]"
    refused: "Mapping[str, str]" = _NOTHING


class Failed(Value):
    """The batch did not get through, as far as one can tell. `status`: of HTTP, None without an
    answer.
    """

    number: int
    status: int | None
    reason: str


class Refused(Value):
    """This stream cannot be read: not a plain file of ours, or of a newer version (B30, P12)."""

    stream: str
    reason: str


class Dropped(Value):
    """The answer to Drop: it is written down and done; what was in it."""

    stream: str
    offset: int
    records: int | None = None
    points: int | None = None


class TaskEnded(Value):
    """All of the task's processes are gone; the fact that says so starts at `offset` of `stream`."""

    stream: str
    offset: int


class Busy(Value):
    """Something that will still write a fact is under way, or is done."""

    busy: bool


class Retry(Value):
    """There is reason to believe that the server can be reached now."""


class Seen(Value):
    """Several events at one time: what to do next is decided once, when all of them are known."""

    events: "tuple[ShipperEvent, ...]"


if TYPE_CHECKING:
    ShipperEvent = (
        Grown
        | Closed
        | Packed
        | Acked
        | Failed
        | Refused
        | Dropped
        | TaskEnded
        | Busy
        | Retry
        | Seen
        | Tick
    )
else:
    ShipperEvent = object  # `X | Y` of classes is newer than Python 3.9


# -- instructions


class Pack(Value):
    """Read these ranges into a batch, answer with Packed, and post it when the one before is
    acknowledged.
    """

    number: int
    spans: tuple[Span, ...]


class Forget(Value):
    """Batches that are packed and not posted are void."""


class Free(Value):
    """Give back the blocks of a range that the server has; the size of the file stays."""

    stream: str
    offset: int
    length: int


class Remove(Value):
    """Delete the file of a closed stream that the server has completely."""

    stream: str


class Drop(Value):
    """Count what is in the range, write the drop down, then free it. Answer with Dropped at once."""

    stream: str
    offset: int
    length: int
    reason: str
    whole: bool  # nothing of the stream is left: delete the file


class Reload(Value):
    """Read the token again: it may have been changed."""


class Log(Value):
    text: str


class Finish(Value):
    """Leave. `complete`: the server has everything, so the folder can go."""

    complete: bool
    refused: tuple[str, ...] = ()


if TYPE_CHECKING:
    ShipperInstruction = Pack | Forget | Free | Remove | Drop | Reload | Log | Finish
else:
    ShipperInstruction = object  # `X | Y` of classes is newer than Python 3.9

"""How one try of a sink went. Made by every sink, read by `server/notify/notifier.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """`again`: the same may succeed later."""

    ok: bool
    detail: str
    again: bool = False

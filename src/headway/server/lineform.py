"""A line of output as JSON: `{time rank task attempt stream text}`. Used by `api/follow.py` and
`api/logs.py`.
"""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from headway.store import form
from headway.store.lines import Line


class LineForm(msgspec.Struct):
    time: str | None
    rank: int | None
    task: str
    attempt: int
    stream: str
    text: str

    @classmethod
    def of(cls, found: Iterable[Line]) -> "list[LineForm]":
        return [
            cls(
                _iso(line.time_us),
                line.output.rank,
                line.output.task,
                line.output.attempt,
                line.output.stream,
                line.text,
            )
            for line in found
        ]


@lru_cache(4096)
def _iso(time_us: int | None) -> str | None:
    """Lines that came together share their time, so this is seldom worked out."""
    return None if time_us is None else form.iso(time_us * 1000)

"""How times and numbers look in the contract's JSON. Called by whatever in the store makes such
objects.
"""

import math
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(ns: int | None) -> str | None:
    """ISO 8601, UTC, microseconds, `Z`."""
    if ns is None:
        return None
    seconds, us = divmod(ns // 1000, 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    minutes, seconds = divmod(seconds, 60)
    return f"{_day(days)}T{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{us:06d}Z"


@lru_cache(maxsize=1024)  # a list of ten thousand jobs has a handful of days and many times
def _day(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).strftime("%Y-%m-%d")


def number(value: float) -> float | str:
    """A value as JSON can carry it (B1)."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def finite(value: object) -> float | None:
    """A number that somebody else wrote, where it is one that can be drawn or added; else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """Likewise an integer that SQLite can hold (B2)."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None

"""Durations, sizes and counts as people write them: `3.5h`, `1h30m`, `32GiB`, `8`.

Called for settings and by the commands for their options. Every error names the field, shows what
was given and which forms are valid (B25). A number without a unit is in the base unit: seconds,
bytes.
"""

import math
import re
from typing import Final, TypeAlias

from headway.model.errors import UsageError
from headway.model.limits import DURATION_S_MAX
from headway.settings.nearest import nearest

COUNT_MAX: Final = 2**31 - 1
SIZE_BYTES_MAX: Final = 2**62

DURATION_UNITS_S: Final[dict[str, float]] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
SIZE_UNITS_BYTES: Final[dict[str, int]] = {
    "b": 1,
    **{f"{p}b": 1000**n for n, p in enumerate("kmgtp", 1)},
    **{f"{p}ib": 1024**n for n, p in enumerate("kmgtp", 1)},
}
DURATION_FORMS: Final = "valid forms: 90s, 15m, 3.5h, 1h30m, 2d; a number alone is seconds"
SIZE_FORMS: Final = "valid forms: 512MiB, 32GiB (powers of 1024), 500MB, 1.5GB (powers of 1000); a number alone is bytes"

_NUMBER: Final = r"[0-9]{1,19}(?:\.[0-9]{1,18})?|\.[0-9]{1,18}"
_PIECE: Final = re.compile(rf"\s*({_NUMBER})\s*([A-Za-zµ]+)\s*")
_PLAIN: Final = re.compile(rf"\s*([+-]?)({_NUMBER})\s*\Z")
_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*\Z")

Given: TypeAlias = str | int | float


def duration_s(value: Given, field: str = "duration", *, allow_zero: bool = False) -> float:
    """Seconds. `duration_s("3.5h", "--max-duration")` is 12600.0."""
    seconds = _plain_number(value, field, DURATION_FORMS)
    if seconds is None:
        seconds = _pieces_s(str(value), field)
    if seconds < 0 or (seconds == 0 and not allow_zero):
        raise _wrong(
            field,
            value,
            "must be more than zero" if not allow_zero else "must not be negative",
            DURATION_FORMS,
        )
    if seconds > DURATION_S_MAX:
        raise _wrong(
            field, value, f"is too long: at most {DURATION_S_MAX / 86_400:g} days", DURATION_FORMS
        )
    return float(seconds)


def size_bytes(value: Given, field: str = "size", *, least_bytes: int = 1) -> int:
    """Whole bytes. `size_bytes("32GiB", "memory")` is 34359738368."""
    number = _plain_number(value, field, SIZE_FORMS)
    if number is None:
        number = _size_with_unit(str(value), field)
    if number < 0 or (number == 0 and least_bytes > 0):
        raise _wrong(
            field,
            value,
            "must be more than zero" if least_bytes > 0 else "must not be negative",
            SIZE_FORMS,
        )
    if number > SIZE_BYTES_MAX:
        raise _wrong(field, value, "is too large", SIZE_FORMS)
    if number < least_bytes:
        raise _wrong(
            field,
            value,
            f"is only {int(number)} bytes; at least {least_bytes} are needed",
            SIZE_FORMS,
        )
    return int(number)


def duration_text(seconds: float) -> str:
    """As a person would write it, and `duration_s` reads it again: `7d`, `30m`, `90s`, `0.5s`."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % length_s == 0:
            return f"{seconds / length_s:g}{unit}"
    return f"{seconds:.12g}s"


def size_text(count: int) -> str:
    """A size for a person: `31.5 GiB`."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def count(value: Given, field: str = "count", *, least: int = 1, most: int = COUNT_MAX) -> int:
    """A whole number from `least` to `most`."""
    forms = f"valid: a whole number from {least} to {most}"
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise _wrong(field, value, "is not a whole number", forms)
    if isinstance(value, str) and not _WHOLE.match(value):
        raise _wrong(field, value, "is not a whole number", forms)
    number = int(value)
    if number < least:
        raise _wrong(field, value, "is too small", forms)
    if number > most:
        raise _wrong(field, value, "is too large", forms)
    return number


def _plain_number(value: Given, field: str, forms: str) -> float | None:
    """The number itself when `value` has no unit, None when it must be read further."""
    if isinstance(value, bool):
        raise _wrong(field, value, "is not a quantity", forms)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(field, value, "is not a finite number", forms)
    if isinstance(value, int | float):
        return value
    plain = _PLAIN.match(value)
    if plain is None:
        if value.strip().startswith("-"):
            raise _wrong(field, value, "must not be negative", forms)
        return None
    # whole numbers stay exact beyond 2^53
    number = int(plain[2]) if plain[2].isdigit() else float(plain[2])
    return -number if plain[1] == "-" else number


def _pieces_s(text: str, field: str) -> float:
    """`1h30m`: units may follow each other from large to small, each once."""
    seconds, position, last_unit_s = 0.0, 0, math.inf
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise _wrong(field, text, "is not a duration", DURATION_FORMS)
        unit_s = DURATION_UNITS_S.get(piece[2].lower())
        if unit_s is None:
            raise _unknown_unit(field, text, piece, tuple(DURATION_UNITS_S), DURATION_FORMS)
        if unit_s >= last_unit_s:
            raise _wrong(field, text, "names its units out of order", DURATION_FORMS)
        seconds, position, last_unit_s = seconds + float(piece[1]) * unit_s, piece.end(), unit_s
    if position == 0:
        raise _wrong(field, text, "is empty", DURATION_FORMS)
    return seconds


def _size_with_unit(text: str, field: str) -> float:
    piece = _PIECE.fullmatch(text)
    if piece is None:
        raise _wrong(field, text, "is not a size", SIZE_FORMS)
    unit = SIZE_UNITS_BYTES.get(piece[2].lower())
    if unit is None and piece[2].lower() in "kmgtp":
        # Slurm and docker read G as 2^30, Kubernetes as 10^9: nobody can know which was meant.
        letter = piece[2].upper()
        raise _wrong(
            field,
            text,
            f"is ambiguous: write {piece[1]}{letter}iB or {piece[1]}{letter}B",
            SIZE_FORMS,
        )
    if unit is None:
        raise _unknown_unit(
            field, text, piece, ("GiB", "MiB", "KiB", "TiB", "GB", "MB", "KB", "TB"), SIZE_FORMS
        )
    return int(piece[1]) * unit if piece[1].isdigit() else float(piece[1]) * unit


def _unknown_unit(
    field: str, text: str, piece: re.Match[str], units: tuple[str, ...], forms: str
) -> UsageError:
    by_lower = {unit.lower(): unit for unit in units}
    guess = nearest(piece[2], by_lower, cutoff=0.5)
    meant = f'; did you mean "{piece[1]}{by_lower[guess]}"?' if guess else ""
    return _wrong(field, text, f'has an unknown unit "{piece[2][:20]}"{meant}', forms)


def _wrong(field: str, value: Given, problem: str, forms: str) -> UsageError:
    if isinstance(value, str):
        shown = f'"{value[:60]}"'
    else:  # Python refuses to print integers of more than 4300 digits
        shown = (
            str(value) if not isinstance(value, int) or value.bit_length() < 200 else "the number"
        )
    return UsageError(f"{field}: {shown} {problem}", forms)

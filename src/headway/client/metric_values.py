"""What a person passes to `log`, turned into names, numbers and a step. Called by client/metric.py,
off the fast path.

A value is anything that is one number: int, float, bool, Decimal, Fraction, a NumPy or torch scalar
(neither is imported). NaN and infinities stay what they are (B1). Everything else is refused with a
reason that names it.
"""

from __future__ import annotations

from headway.client.interrupt import raise_if_signal
from headway.model.limits import (
    LOG_DEPTH_MAX,
    METRIC_NAME_BYTES_MAX,
    METRIC_NAMES_MAX,
    SERIES_TAG_CHARS_MAX,
    SERIES_TAGS_MAX,
    STEP_ABS_MAX,
)

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject

_TAG_SYNTAX = frozenset('{},="\\')
EXACT_INT_MAX = 2**53  # beyond it a float cannot hold every integer


class Refused(Exception):
    """This value, name, step or call cannot be kept; the text says why."""


class Call:
    """One call of `log`, taken apart."""

    __slots__ = ("media", "notes", "points", "refused", "seen")

    def __init__(self) -> None:
        self.points: dict[str, float] = {}
        self.media: list[tuple[str, object]] = []  # images, tables and the like
        self.seen = 0
        self.refused = 0  # values that are not among the points
        self.notes: list[tuple[str, str]] = []  # (what to say only once, the text)

    def refuse(self, key: str, text: str, values: int = 1) -> None:
        self.refused += values
        self.notes.append((key, text))


def take_apart(values: object) -> Call:
    """Flatten, clean and convert. Every value passed in is either a point or counted as refused."""
    call = Call()
    if not hasattr(values, "keys"):
        call.refuse(
            "call", f"log() takes a dictionary of names and numbers, not {type_name(values)}"
        )
        return call
    _take(call, "", values, 1)
    return call


def _take(call: Call, prefix: str, mapping: "Any", depth: int) -> None:
    try:
        items = [(key, mapping[key]) for key in list(mapping.keys())]
    except Exception as error:  # a mapping of somebody else's making may raise anything
        raise_if_signal(error)
        call.refuse(
            f"mapping {prefix}",
            f"the dictionary {prefix or 'passed to log()'} cannot be read: {_say(error)}",
        )
        return
    for key, value in items:
        try:
            _take_one(call, prefix, key, value, depth)
        except Refused as reason:
            shown = _shown(prefix, key)
            call.refuse(f"value {shown}", f"metric {shown} is not kept: {reason}")
        except Exception as error:  # hasattr() on somebody else's object may raise anything
            raise_if_signal(error)
            shown = _shown(prefix, key)
            call.refuse(f"value {shown}", f"metric {shown} is not kept: {_say(error)}")


def _take_one(call: Call, prefix: str, key: object, value: object, depth: int) -> None:
    name = prefix + clean_name(key)
    call.seen += 1
    # also what ends a dictionary that contains itself a hundred times
    if call.seen > METRIC_NAMES_MAX:
        raise Refused(f"one call has at most {METRIC_NAMES_MAX} values")
    if isinstance(value, dict) or (hasattr(value, "keys") and hasattr(value, "__getitem__")):
        if depth >= LOG_DEPTH_MAX:
            raise Refused(f"dictionaries may be {LOG_DEPTH_MAX} deep")
        _take(call, f"{name}/", value, depth + 1)
        return
    if len(name.encode()) > METRIC_NAME_BYTES_MAX:
        raise Refused(f"a name has at most {METRIC_NAME_BYTES_MAX} bytes")
    if type(value) not in (int, float, bool) and not hasattr(value, "__float__"):
        from headway.client.media import as_media

        media = as_media(value)
        if media is not None:
            call.media.append((name, media))
            return
    number = to_number(value)
    if is_inexact(value):
        call.notes.append(
            (f"int {name}", f"metric {name!r}: integers beyond 2^53 are kept as the nearest float")
        )
    # two names that are the same once cleaned: the last one counts
    call.refused += name in call.points
    call.points[name] = number


def tag_suffix(tags: object) -> str:
    """`{split=val}`: tags in the order of their names, so that equal ones make the same series. Refused: why not."""
    if not hasattr(tags, "items"):
        raise Refused(f"tags are a dictionary, not {type_name(tags)}")
    pairs = sorted((clean_tag(key), clean_tag(value)) for key, value in tags.items())
    if len(pairs) > SERIES_TAGS_MAX:
        raise Refused(f"a series has at most {SERIES_TAGS_MAX} tags")
    return "{" + ",".join(f"{key}={value}" for key, value in pairs) + "}" if pairs else ""


def clean_tag(word: object) -> str:
    text = "".join(
        "_" if char in _TAG_SYNTAX or not char.isprintable() else char
        for char in clean_text(str(word))
    )
    return text[:SERIES_TAG_CHARS_MAX] or "_"


def flat(values: "Any", prefix: str = "", depth: int = 1) -> "JsonObject":
    """Nested dictionaries as one; for names that get tags behind them."""
    found: JsonObject = {}
    for key in list(values.keys()):
        value = values[key]
        if isinstance(value, dict) and depth < LOG_DEPTH_MAX:
            found.update(flat(value, f"{prefix}{key}/", depth + 1))
        else:
            found[f"{prefix}{key}"] = value
    return found


def is_inexact(value: object) -> bool:
    """Whether this is an integer that no float is equal to (B2)."""
    return (
        type(value) is int
        and not -EXACT_INT_MAX <= value <= EXACT_INT_MAX
        and int(float(value)) != value
    )


def _shown(prefix: str, key: object) -> str:
    """A name for a message, however odd it is."""
    if not isinstance(key, str):
        return (
            f"{prefix!r} + a key of type {type_name(key)}"
            if prefix
            else f"with a key of type {type_name(key)}"
        )
    text = repr(prefix + str.__str__(key))
    return text if len(text) <= 80 else text[:77] + "…" + text[-1]


def clean_name(name: object) -> str:
    """A metric's name, or Refused. Lone surrogates, which no encoding can carry, become U+FFFD
    (B6).
    """
    if not isinstance(name, str):
        raise Refused("names are text")
    # a subclass (np.str_, StrEnum) may print itself differently
    text = clean_text(str.__str__(name))
    if not text:
        raise Refused("the name is empty")
    if len(text) > METRIC_NAME_BYTES_MAX:
        raise Refused(f"a name has at most {METRIC_NAME_BYTES_MAX} bytes")
    if not text.isprintable() and any(ch < " " or "\x7f" <= ch <= "\x9f" for ch in text):
        raise Refused("the name has control characters")
    return text


def clean_text(text: str) -> str:
    """Text that can be encoded: surrogates that are no pair become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def to_number(value: "Any") -> float:
    """The float of a value that is one number; Refused for everything else."""
    kind = type(value)
    if kind is float:
        return float(value)
    try:
        if isinstance(value, (int, float)):
            return float(value)
        if hasattr(value, "item"):  # NumPy, torch, jax: a scalar or an array with one element
            value = _only_item(value)
        if isinstance(value, (str, bytes, bytearray, complex)) or not hasattr(
            type(value), "__float__"
        ):
            raise Refused(f"a value of type {type_name(value)} is not a number")
        return float(value)
    except OverflowError:
        raise Refused("the integer is larger than any float") from None
    except Refused:
        raise
    except Exception as error:  # float() and item() of somebody else's type may raise anything
        raise_if_signal(error)
        raise Refused(
            f"a value of type {type_name(value)} could not be read: {_say(error)}"
        ) from None


def _only_item(value: "Any") -> "Any":
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
    if isinstance(size, int) and size != 1:
        raise Refused(f"a value of type {type_name(value)} with {size} elements is not one number")
    if getattr(getattr(value, "dtype", None), "kind", "f") in ("m", "M"):
        raise Refused("a date or a duration is not a number")
    return value.item()


def to_step(step: object) -> int:
    """An integer in ±STEP_ABS_MAX: int, bool, integral float, NumPy integer (B12). Refused for
    everything else.
    """
    try:
        if hasattr(step, "item"):
            step = _only_item(step)
        if isinstance(step, float) and step.is_integer():
            number = int(step)
        elif isinstance(step, (str, bytes)) or not hasattr(type(step), "__index__"):
            raise Refused(
                f"step must be an integer, not {step!r}" if type(step) is float else _no_step(step)
            )
        else:
            number = step.__index__()  # type: ignore[attr-defined]  # checked above
    except Refused:
        raise
    except Exception as error:  # __index__ and item() of somebody else's type may raise anything
        raise_if_signal(error)
        raise Refused(f"step could not be read: {_say(error)}") from None
    if not -STEP_ABS_MAX <= number <= STEP_ABS_MAX:
        raise Refused("step must lie within ±2^62")
    return number


def _no_step(step: object) -> str:
    return f"step must be an integer, not a value of type {type_name(step)}"


def type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _say(error: Exception) -> str:
    """The error's type and, if its text can be had, the text."""
    try:
        text = str(error)
    except Exception:  # an exception of somebody else's making may not even print
        text = ""
    return f"{type(error).__name__}: {clean_text(text[:200])}" if text else type(error).__name__

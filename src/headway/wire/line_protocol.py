"""InfluxDB's line protocol: `name,tag=a field=1,step=3i 1700000000000000000`, as Telegraf and its clients write it.

What it means here: the field `value` is the metric NAME itself, `step` or `iteration` its step, every other number is
NAME/FIELD, and tags part series: `loss{split=val}`. Texts are no metrics. Called by the agent and the server.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_FIELDS = ("step", "iteration", "iter", "global_step")
VALUE = "value"
_TRUE = frozenset({"t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"f", "F", "false", "False", "FALSE"})
_TAG_SYNTAX = str.maketrans({"{": "_", "}": "_", ",": "_", "=": "_", '"': "_", "\\": "_"})
TAG_CHARS_MAX = 64
TAGS_MAX = 8
NAME_BYTES_MAX = 256
PRECISIONS = {
    "": 1,
    "n": 1,
    "ns": 1,
    "u": 10**3,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


class Line:
    """One line. `step` and `time_ns` are None where it does not say them."""

    __slots__ = ("step", "tags", "time_ns", "values")

    def __init__(
        self, values: dict[str, float], tags: dict[str, str], step: int | None, time_ns: int | None
    ) -> None:
        self.values, self.tags, self.step, self.time_ns = values, tags, step, time_ns


def parse(text: str, unit_ns: int = 1, apart: tuple[str, ...] = ()) -> Line:
    """Raises ValueError with what is wrong. `apart`: tags that say where a line belongs, and part no series."""
    head, fields, rest = _split(text)
    name, tags = _head(head)
    time_ns = int(rest) * unit_ns if rest else None
    step, numbers = None, dict[str, float]()
    for key, value in fields:
        number = _number(value)
        if number is None:
            continue
        if key in STEP_FIELDS:
            step = int(number)
        else:
            numbers[key] = number
    shown = {key: value for key, value in tags.items() if key not in apart}
    suffix = _suffix(shown) if shown else ""
    values = {
        (f"{name}{suffix}" if key == VALUE else f"{name}/{key}{suffix}"): number
        for key, number in numbers.items()
    }
    for metric in values:
        if len(metric.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"a name has at most {NAME_BYTES_MAX} bytes")
    if step is not None and not -(2**62) <= step <= 2**62:
        raise ValueError("the step is too large")
    return Line(values, tags, step, time_ns)


def _split(text: str) -> "tuple[str, list[tuple[str, str]], str]":
    """(name and tags, fields, time)."""
    if "\\" not in text and '"' not in text:  # nearly always
        words = text.split()
        if not 2 <= len(words) <= 3:
            raise ValueError("a line is NAME[,TAG=VALUE…] FIELD=VALUE[,…] [TIME]")
        pairs = []
        for part in words[1].split(","):
            key, mark, value = part.partition("=")
            if not mark or not key or not value:
                raise ValueError(f"{part[:40]!r} is no FIELD=VALUE")
            pairs.append((key, value))
        return words[0], pairs, words[2] if len(words) == 3 else ""
    parts = [part for part in _cut(text, " ") if part]
    if not 2 <= len(parts) <= 3:
        raise ValueError("a line is NAME[,TAG=VALUE…] FIELD=VALUE[,…] [TIME]")
    found = []
    for part in _cut(parts[1], ","):
        key, value = _pair(part)
        found.append((_plain(key), value))
    return parts[0], found, parts[2] if len(parts) == 3 else ""


def _cut(text: str, mark: str) -> "Iterator[str]":
    """At `mark`, but not where it is escaped or inside quotes."""
    begin, at, quoted, size = 0, 0, False, len(text)
    while at < size:
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == '"':
            quoted = not quoted
        elif char == mark and not quoted:
            yield text[begin:at]
            begin = at + 1
        at += 1
    yield text[begin:]


def _pair(text: str) -> tuple[str, str]:
    parts = list(_cut(text, "="))
    if len(parts) != 2 or not parts[0] or not parts[1]:
        raise ValueError(f"{text[:40]!r} is no NAME=VALUE")
    return parts[0], parts[1]


def _plain(text: str) -> str:
    if "\\" not in text:
        return text
    for mark in (",", "=", " "):
        text = text.replace(f"\\{mark}", mark)
    return text


def _head(text: str) -> "tuple[str, dict[str, str]]":
    if "," not in text:
        name, tags = text, dict[str, str]()
    else:
        name, *rest = list(_cut(text, ",")) if "\\" in text else text.split(",")
        tags = {}
        for part in rest:
            key, value = _pair(part)
            tags[_plain(key)] = _plain(value)
    name = _plain(name)
    if not name or not name.isprintable():
        raise ValueError("the name is empty, or not printable")
    return name, tags


def _number(text: str) -> float | None:
    """None for a text, which is no metric."""
    if text[0] == '"':
        return None
    if text in _TRUE:
        return 1.0
    if text in _FALSE:
        return 0.0
    last = text[-1]
    return float(int(text[:-1])) if last in "iu" else float(text)


def _suffix(tags: "dict[str, str]") -> str:
    pairs = sorted(tags.items())[:TAGS_MAX]
    return "{" + ",".join(f"{_tag(key)}={_tag(value)}" for key, value in pairs) + "}"


def _tag(word: str) -> str:
    return word.translate(_TAG_SYNTAX)[:TAG_CHARS_MAX]


class Steps:
    """Steps of lines that say none: they count on, for each name."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def of(self, line: Line) -> int:
        name = next(iter(line.values), "")
        if line.step is not None:
            self._next[name] = line.step + 1
            return line.step
        step = self._next.get(name, 0)
        self._next[name] = step + 1
        return step

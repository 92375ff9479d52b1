"""A config as a person has it, turned into plain JSON data. Called by client/config.py and nobody's
hot path.

Whatever it is given (tensors, cycles, endless mappings, objects whose repr raises or never ends),
the answer comes in bounded time and size, and never as an exception (B14). Hence no `repr` or `str`
of a type that we do not know, and nothing that is consumed by looking at it, such as a generator.
"""

from __future__ import annotations

import json
import os
import time
from itertools import islice

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text, type_name
from headway.model.limits import (
    CONFIG_BYTES_MAX,
    CONFIG_DEPTH_MAX,
    CONFIG_ITEMS_MAX,
    CONFIG_KEY_CHARS_MAX,
    CONFIG_STRING_CHARS_MAX,
    CONFIG_TIME_MAX_S,
)

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.model.json_types import JsonObject

MASK_MARGIN_CHARS = 4096  # a secret that a cut would split is still seen whole
_MORE = "…"
_INT_MAX = 2**63 - 1
_CLASSES_BY_TEXT = frozenset({  # types whose str() is short and known
    ("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("datetime", "datetime"),
    ("datetime", "date"), ("datetime", "time"), ("datetime", "timedelta"), ("datetime", "timezone"),
    ("builtins", "complex"), ("builtins", "range"), ("torch", "dtype"), ("torch", "device"), ("torch", "Size"),
    ("ipaddress", "IPv4Address"), ("ipaddress", "IPv6Address"),
})  # fmt: skip


def plain(value: object, mask: "Callable[[str], str] | None" = None) -> "tuple[Any, bool]":
    """Plain data, and whether all of `value` is in it. Strings go through `mask` before they are
    cut.
    """
    work = _Work(mask or (lambda text: text))
    return work.convert(value, 0), not work.cut


class _Work:
    """One conversion: what it may still spend, and where it is."""

    def __init__(self, mask: "Callable[[str], str]") -> None:
        self.mask = mask
        self.items = CONFIG_ITEMS_MAX
        self.bytes = CONFIG_BYTES_MAX - 1024
        self.deadline_s = time.monotonic() + CONFIG_TIME_MAX_S
        # ids of the containers that we are in: meeting one again is a cycle
        self.inside: set[int] = set()
        self.cut = False

    def convert(self, value: object, depth: int) -> "Any":
        try:
            return self._convert(value, depth)
        # code of somebody else's types runs in here, and may raise anything
        except Exception as error:
            raise_if_signal(error)
            return self.text(f"<{type_name(value)}>")

    def _convert(self, value: "Any", depth: int) -> "Any":
        self.bytes -= 24  # numbers, commas, braces
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is int:
            return value if -_INT_MAX <= value <= _INT_MAX else self.text(_large(value))
        if kind is float:
            return _float(value)
        if _is_enum(value):
            inner = value.value
            return self.convert(
                inner if isinstance(inner, (str, int, float, bool)) else value.name, depth
            )
        if isinstance(value, (str, int, float)):
            return self._convert(_without_class(value), depth)
        summary = _summary(value)
        if summary is not None:
            return self.text(summary)
        return self._container(value, depth)

    def _container(self, value: object, depth: int) -> "Any":
        if (
            hasattr(value, "item")
            and not hasattr(value, "keys")
            and getattr(value, "shape", None) == ()
        ):
            return self._convert(value.item(), depth)  # a NumPy or torch scalar
        pairs = pairs_of(value)
        several = None if pairs is not None else _several(value)
        if pairs is None and several is None:
            return self.text(f"<{type_name(value)}>")
        if id(value) in self.inside:
            return self.text("<cycle>")
        if depth >= CONFIG_DEPTH_MAX:
            self.cut = True
            return _MORE
        self.inside.add(id(value))
        try:
            if pairs is not None:
                return self._mapping(pairs, depth)
            return self._list(several or iter(()), depth)
        finally:
            self.inside.discard(id(value))

    def _mapping(self, pairs: "Iterator[tuple[object, Any]]", depth: int) -> JsonObject:
        found: JsonObject = {}
        try:
            for key, value in pairs:
                if self.is_spent():
                    found[_MORE] = _MORE
                    break
                name = self.key(key, len(found))
                found[name] = self.convert(value, depth + 1)
        # a mapping that changes or fails under us: what was read so far counts
        except Exception as error:
            raise_if_signal(error)
            self.cut = True
        return found

    def _list(self, values: "Iterator[Any]", depth: int) -> list["Any"]:
        found: list[Any] = []
        try:
            for value in values:
                if self.is_spent():
                    found.append(_MORE)
                    break
                found.append(self.convert(value, depth + 1))
        except Exception as error:  # as above
            raise_if_signal(error)
            self.cut = True
        return found

    def is_spent(self) -> bool:
        self.items -= 1
        if self.items < 0 or self.bytes < 0 or time.monotonic() > self.deadline_s:
            self.cut = True
            return True
        return False

    def key(self, key: object, number: int) -> str:
        if isinstance(key, str) and not _is_enum(key):
            name = clean_text(str.__str__(key)[:CONFIG_KEY_CHARS_MAX])
        elif _is_enum(key):
            name = str(key.name)  # type: ignore[attr-defined]
        elif key is None or type(key) in (int, float, bool):
            name = str(key)[:CONFIG_KEY_CHARS_MAX]
        else:
            name = f"<{type_name(key)} {number}>"
        self.bytes -= len(json.dumps(name))
        return name

    def text(self, text: str) -> str:
        """A string that fits, masked and encodable."""
        whole = len(text)
        text = clean_text(self.mask(text[: CONFIG_STRING_CHARS_MAX + MASK_MARGIN_CHARS]))
        if whole > CONFIG_STRING_CHARS_MAX or len(text) > CONFIG_STRING_CHARS_MAX:
            self.cut = True
            text = f"{text[:CONFIG_STRING_CHARS_MAX]}{_MORE} ({whole} characters)"
        size = len(json.dumps(text))
        if size > self.bytes:
            self.cut = True
            text, size = _MORE, 8
        self.bytes -= size
        return text


def _without_class(value: str | int | float) -> str | int | float:
    """The value of a subclass, without calling what the subclass redefines."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _float(value: float) -> "float | str":
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _large(value: int) -> str:
    """Integers that a JSON reader or a database cannot hold, as text (B2); beyond Python's own
    limit, their size.
    """
    bits = value.bit_length()
    return str(value) if bits < 4096 else f"<int of {bits} bits>"


def _is_enum(value: object) -> bool:
    return any(
        base.__name__ == "Enum" and base.__module__ == "enum" for base in type(value).__mro__
    )


def _summary(value: "Any") -> str | None:
    """Text for a leaf; None for what may be a container."""
    kind = type(value)
    if (kind.__module__, kind.__qualname__) in _CLASSES_BY_TEXT:
        return str(value)
    if kind.__module__.startswith("pathlib"):
        return os.fspath(value)  # type: ignore[no-any-return]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"

    shape = getattr(value, "shape", None)
    if shape is None or shape == () or hasattr(value, "__dataclass_fields__"):
        return None
    sizes = ", ".join(str(int(n)) for n in islice(iter(shape), 16))
    words = f"{type_name(value)} of shape ({sizes})"
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        words += f", {str(dtype)[:64]}"
    return f"<{words}>"


def pairs_of(value: "Any") -> "Iterator[tuple[object, Any]] | None":
    """Keys and values of what has them: mappings of any make, dataclasses, namespaces, named tuples
    and the like.
    """
    kind = type(value)
    if isinstance(value, dict):
        return iter(dict.items(value))
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):
        return ((key, _get(value, key)) for key in value.keys())  # noqa: SIM118  (not every mapping iterates its keys)
    for names in ("__dataclass_fields__", "__pydantic_fields__", "model_fields", "_fields"):
        fields = getattr(kind, names, None)
        if isinstance(fields, (dict, tuple)):
            return ((name, getattr(value, name, f"<no {name}>")) for name in fields)
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return ((field.name, getattr(value, field.name, None)) for field in attributes)
    if any(base.__name__ in ("Namespace", "SimpleNamespace") for base in kind.__mro__):
        return iter(list(vars(value).items()))
    return None


def _get(mapping: "Any", key: "Any") -> "Any":
    """A value that may be missing for reasons of its own, such as OmegaConf's `???`."""
    try:
        return mapping[key]
    except Exception as error:  # a mapping of somebody else's making may raise anything
        raise_if_signal(error)
        return f"<{type(error).__name__}>"


def _several(value: "Any") -> "Iterator[Any] | None":
    """The elements of a list-like; None for anything that looking would consume, or that is not
    one.
    """
    kind = type(value)
    if isinstance(value, (set, frozenset)):
        by_text = len(value) <= CONFIG_ITEMS_MAX and all(type(item) is str for item in value)
        return iter(sorted(value) if by_text else value)  # so that two equal configs look equal
    if isinstance(value, (list, tuple)):
        return iter(value)
    if all(hasattr(kind, name) for name in ("__len__", "__getitem__", "__iter__")) and not hasattr(
        kind, "__next__"
    ):
        elements: Iterator[Any] = iter(value)
        return elements
    return None

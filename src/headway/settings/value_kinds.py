"""Kinds of values in a job file: how each is checked, what it is called in errors, and its JSON
Schema.

Called by `jobschema.py`, whose table is made of these. A check gets the value with its line, so
every error names the file and the line. `words` ends the sentence "… is …" and stands in the
reference.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from headway.model.errors import UsageError
from headway.model.ids import check_name
from headway.model.json_types import JsonObject
from headway.settings import job_fields, quantity
from headway.settings.nearest import did_you_mean
from headway.settings.yamlfile import Node

Schema = JsonObject

# Trackers whose packages `hw run --as NAME` answers for (`headway.compat`).
ANSWERED: Final = ("wandb", "mlflow")


class Kind(Protocol):
    @property
    def words(self) -> str: ...

    def read(self, node: Node, field: str) -> Any:
        """The value in its own type. `field`: what an error calls it, such as `job.yaml, line 3:
        gpus`.
        """

    def schema(self) -> Schema: ...


def wrong(node: Node, field: str, words: str) -> UsageError:
    shown = {dict: "a mapping", list: "a list", type(None): "nothing"}.get(
        type(node.value), f"{node.value!r:.60}"
    )
    return UsageError(f"{field}: {shown} stands here", f"valid: {words}")


@dataclass(frozen=True, slots=True)
class Text:
    words: str = "a text"
    check: Callable[[str], Any] | None = None

    def read(self, node: Node, field: str) -> str:
        if not isinstance(node.value, str):
            raise wrong(node, field, f"{self.words}; write it in quotes if it is meant as one")
        if "\0" in node.value or not node.value:
            raise UsageError(
                f"{field}: the text is empty or has a NUL in it", f"valid: {self.words}"
            )
        if self.check is not None and "{{" not in node.value:
            try:
                self.check(node.value)
            except UsageError as error:
                raise UsageError(f"{field}: {error.message}", error.hint) from None
        return node.value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


NAME: Final = Text("a name of letters, digits, '_', '-' and '.'", check_name)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, or a text that one of the readers of `quantity.py` takes."""

    words: str
    convert: Callable[[quantity.Given, str], Any]
    base: Schema = field(default_factory=dict)

    def read(self, node: Node, field: str) -> Any:
        if isinstance(node.value, dict | list | bool) or node.value is None:
            raise wrong(node, field, self.words)
        return self.convert(node.value, field)

    def schema(self) -> Schema:
        return (
            {"anyOf": [self.base, {"type": "string"}]}
            if self.base.get("type") == "number"
            else dict(self.base)
        )


def count(least: int, most: int) -> Quantity:
    return Quantity(
        f"a whole number from {least} to {most}",
        lambda value, name: quantity.count(value, name, least=least, most=most),
        {"type": "integer", "minimum": least, "maximum": most},
    )


def duration(*, allow_zero: bool = False) -> Quantity:
    return Quantity(
        "a duration such as 90s, 15m or 3.5h",
        lambda value, name: quantity.duration_s(value, name, allow_zero=allow_zero),
        {"type": "number", "minimum": 0},
    )


SIZE: Final = Quantity(
    "a size such as 512MiB or 32GiB", quantity.size_bytes, {"type": "number", "minimum": 1}
)


@dataclass(frozen=True, slots=True)
class Flag:
    words: str = "true or false"

    def read(self, node: Node, field: str) -> bool:
        if not isinstance(node.value, bool):
            raise wrong(node, field, self.words)
        return node.value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice:
    choices: tuple[str, ...]

    @property
    def words(self) -> str:
        return "one of " + ", ".join(self.choices)

    def read(self, node: Node, field: str) -> str:
        if node.value not in self.choices:
            meant = did_you_mean(str(node.value), self.choices)
            raise UsageError(f"{field}: {node.value!r:.60} is not {self.words}{meant}")
        return str(node.value)

    def schema(self) -> Schema:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text, a finite number or a boolean; with `nothing`, also null. For variables: `as_text`."""

    words: str = "a text, a number, true or false"
    nothing: bool = False
    as_text: bool = False

    def read(self, node: Node, field: str) -> Any:
        value = node.value
        if isinstance(value, dict | list) or (value is None and not self.nothing):
            raise wrong(node, field, self.words)
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(
                f"{field}: {value} is not a finite number", f'as text, in quotes: "{value}"'
            )
        return plain_text(value) if self.as_text else value

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean", *(["null"] if self.nothing else [])]}


def plain_text(value: object) -> str:
    """As it stands in a command or an environment: `0.1`, `true`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return str(value)


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Kind
    most: int

    @property
    def words(self) -> str:
        return f"a list; each is {self.item.words}"

    def read(self, node: Node, field: str) -> list[Any]:
        if not isinstance(node.value, list):
            raise wrong(node, field, self.words)
        if len(node.value) > self.most:
            raise UsageError(
                f"{field}: {len(node.value)} entries are too many", f"at most {self.most}"
            )
        return [self.item.read(child, relined(field, child)) for child in node.value]

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema(), "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys the person chooses; `check` refuses keys that cannot be."""

    item: Kind
    what: str  # what its keys are
    most: int
    check: Callable[[str], Any] | None = None

    @property
    def words(self) -> str:
        return f"a mapping of {self.what} to values; each is {self.item.words}"

    def read(self, node: Node, field: str) -> JsonObject:
        if not isinstance(node.value, dict):
            raise wrong(node, field, self.words)
        if len(node.value) > self.most:
            raise UsageError(
                f"{field}: {len(node.value)} entries are too many", f"at most {self.most}"
            )
        found = {}
        for key, child in node.value.items():
            name = f"{relined(field, child)}.{key[:60]}"
            if self.check is not None:
                try:
                    self.check(key)
                except UsageError as error:
                    raise UsageError(f"{name}: {error.message}", error.hint) from None
            found[key] = self.item.read(child, name)
        return found

    def schema(self) -> Schema:
        return {
            "type": "object",
            "additionalProperties": self.item.schema(),
            "maxProperties": self.most,
        }


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping whose keys are ours."""

    name: str
    kind: Kind
    doc: str


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping whose keys are ours: an unknown one is refused with the nearest that exists, and
    its line.
    """

    keys: tuple[Key, ...]
    required: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return "a mapping with " + ", ".join(key.name for key in self.keys)

    def read(self, node: Node, field: str) -> JsonObject:
        if not isinstance(node.value, dict):
            raise wrong(node, field, self.words)
        by_name = {key.name: key for key in self.keys}
        found = {}
        for name, child in node.value.items():
            if name not in by_name:
                where = relined(field, child).partition(": ")[0]
                raise UsageError(
                    f'{where}: unknown key "{name[:60]}"{did_you_mean(name, by_name)}',
                    f"keys: {', '.join(by_name)}",
                )
            found[name] = by_name[name].kind.read(child, below(field, name, child))
        missing = [name for name in self.required if name not in found]
        if missing:
            raise UsageError(f"{field}: {' and '.join(missing)} is missing")
        return found

    def schema(self) -> Schema:
        found: Schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                key.name: {"description": key.doc, **key.kind.schema()} for key in self.keys
            },
        }
        return found | ({"required": list(self.required)} if self.required else {})


@dataclass(frozen=True, slots=True)
class Either:
    """The kind of the given type of YAML value: text, number, list or mapping."""

    kinds: Mapping[type, Kind]

    @property
    def words(self) -> str:
        return "; or ".join(dict.fromkeys(kind.words for kind in self.kinds.values()))

    def read(self, node: Node, field: str) -> Any:
        kind = self.kinds.get(type(node.value))
        if kind is None:
            raise wrong(node, field, self.words)
        return kind.read(node, field)

    def schema(self) -> Schema:
        return {"anyOf": [kind.schema() for kind in self.kinds.values()]}


def relined(field: str, node: Node) -> str:
    """The same field with the line of `node`, which may be another one."""
    file, comma, rest = field.rpartition(", line ")
    if not comma:
        return field
    return (
        f"{file}, line {node.line}:{rest.partition(':')[2]}"
        if ":" in rest
        else f"{file}, line {node.line}"
    )


def below(field: str, name: str, node: Node) -> str:
    """`job.yaml, line 1: retry` and `max` → `job.yaml, line 4: retry.max`; at the top just the
    name.
    """
    head = relined(field, node)
    return f"{head}.{name}" if ": " in head.rpartition(", line ")[2] else f"{head}: {name}"


def of_rule(rule: job_fields.Rule) -> Kind:
    """The kind of a field of `job_fields.py`."""
    if rule.what == "count":
        return count(int(rule.least), int(rule.most))
    if rule.what == "seconds":
        return duration(allow_zero=not rule.least)
    if rule.what == "choice":
        return Choice(rule.choices)
    if rule.what == "tags":
        return ListOf(Text("a tag", job_fields.check_tag), int(rule.most))
    simple: dict[str, Kind] = {
        "bytes": SIZE,
        "flag": Flag(),
        "name": Text("a name", check_name),
        "image": Text("the name of an image", job_fields.check_image),
    }
    return simple[rule.what]

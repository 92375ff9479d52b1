"""A YAML file as data and nothing else: no tags, few aliases, YAML 1.2 words, and the line of every
value.

Called for settings files (and for job files when they come). Built on PyYAML's events, not on its
constructors, so a file cannot make an object (B26): a tag is refused, an alias bomb meets a limit,
`no` is a word and not a boolean.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from headway.model.errors import UsageError
from headway.model.limits import (
    SETTINGS_ALIASES_MAX,
    SETTINGS_BYTES_MAX,
    SETTINGS_DEPTH_MAX,
    SETTINGS_VALUES_MAX,
)

Scalar: TypeAlias = str | int | float | bool | None

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INT: Final = re.compile(r"[-+]?[0-9]{1,19}\Z|0o[0-7]{1,21}\Z|0x[0-9a-fA-F]{1,16}\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?\Z")
_SPECIAL: Final = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the file and the line it stands on, counted from 1."""

    value: "dict[str, Node] | list[Node] | Scalar"
    line: int
    nodes: int = 1  # of this value and all below it

    def plain(self) -> Any:
        """The value without its lines: dict, list, str, int, float, bool or None."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read(path: Path) -> Node:
    """The file's one document. An empty file is an empty mapping."""
    return parse(_text(path), str(path))


def parse(text: str, name: str) -> Node:
    """The document in `text`; `name` stands for the file in errors."""
    import yaml  # here: most homes have no settings file, and start-up should not pay for one

    try:
        return _Builder(name).document(
            list(_limited(yaml.parse(text, Loader=yaml.SafeLoader), name))
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageError(
            f"{name}{where}: not valid YAML: {error.problem or error.context}"
        ) from None
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from None


def _limited(events: Any, name: str) -> Any:
    """The events as they are parsed. Too long or too deep ends the parsing itself, which is slow
    for nested files.
    """
    depth = 0
    for number, event in enumerate(events):
        kind = type(event).__name__
        depth += kind in ("MappingStartEvent", "SequenceStartEvent")
        depth -= kind in ("MappingEndEvent", "SequenceEndEvent")
        if depth > SETTINGS_DEPTH_MAX + 1:
            raise UsageError(
                f"{name}, line {_line(event)}: nested too deeply: at most {SETTINGS_DEPTH_MAX} levels"
            )
        if number > 3 * SETTINGS_VALUES_MAX:
            raise UsageError(f"{name}: too long: at most {SETTINGS_VALUES_MAX} values")
        yield event


def _text(path: Path) -> str:
    try:
        # O_NONBLOCK: a FIFO of that name must not hang the command.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):  # /dev/null means "no settings"
            raise UsageError(f"{path} is not a file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(SETTINGS_BYTES_MAX + 1)
    finally:
        os.close(fd)
    if len(data) > SETTINGS_BYTES_MAX:
        raise UsageError(
            f"{path} is too large for a settings file: at most {SETTINGS_BYTES_MAX} bytes"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not valid UTF-8") from None


class _Builder:
    """Turns a list of parser events into nodes. How many and how deep they are was limited before."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.anchors: dict[str, Node] = {}
        self.aliases = 0
        self.events: list[Any] = []
        self.position = 0

    def document(self, events: list[Any]) -> Node:
        import yaml

        starts = [event for event in events if isinstance(event, yaml.DocumentStartEvent)]
        if not starts:
            return Node({}, 1)
        if len(starts) > 1:
            raise self._wrong(starts[1], "a second document; one file holds one")
        self.events, self.position = events, events.index(starts[0]) + 1
        node = self._node()
        return Node({}, 1) if node.value is None else node

    def _node(self) -> Node:
        import yaml

        event = self.events[self.position]
        self.position += 1
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None:
            raise self._wrong(
                event, f"the tag {str(event.tag)[:60]} is not allowed: values are plain data"
            )
        if isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event)
        else:
            node = Node(self._scalar(event), _line(event))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _mapping(self, start: object) -> Node:
        import yaml

        found: dict[str, Node] = {}
        nodes = 1
        while not isinstance(self.events[self.position], yaml.MappingEndEvent):
            event = self.events[self.position]
            self.position += 1
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise self._wrong(event, "a key must be a plain word")
            if event.value in found:
                raise self._wrong(event, f'the key "{event.value[:60]}" stands here twice')
            value = self._node()
            # The key's own line is the one a person looks for.
            found[event.value] = Node(value.value, _line(event), value.nodes)
            nodes = self._counted(nodes + value.nodes, event)
        self.position += 1
        return Node(found, _line(start), nodes)

    def _sequence(self, start: object) -> Node:
        import yaml

        found: list[Node] = []
        nodes = 1
        while not isinstance(self.events[self.position], yaml.SequenceEndEvent):
            found.append(self._node())
            nodes = self._counted(nodes + found[-1].nodes, start)
        self.position += 1
        return Node(found, _line(start), nodes)

    def _alias(self, event: Any) -> Node:
        self.aliases += 1
        if self.aliases > SETTINGS_ALIASES_MAX:
            raise self._wrong(event, f"too many aliases: at most {SETTINGS_ALIASES_MAX}")
        if event.anchor not in self.anchors:
            raise self._wrong(
                event, f"the alias *{event.anchor[:60]} names nothing that stands before it"
            )
        node = self.anchors[event.anchor]
        return Node(node.value, _line(event), node.nodes)

    def _scalar(self, event: Any) -> Scalar:
        """The YAML 1.2 core schema: `no`, `on` and `12:30` are words."""
        text: str = event.value
        if event.style is not None:  # quoted or a block: always text
            return text
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INT.match(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _FLOAT.match(text) and len(text) <= 64:
            return float(text)
        special = _SPECIAL.match(text)
        if special:
            return float("nan") if special[3] else float(f"{special[1]}inf")
        return text

    def _counted(self, nodes: int, event: object) -> int:
        if nodes > SETTINGS_VALUES_MAX:
            raise self._wrong(
                event, f"too many values once aliases are followed: at most {SETTINGS_VALUES_MAX}"
            )
        return nodes

    def _wrong(self, event: object, problem: str) -> UsageError:
        return UsageError(f"{self.name}, line {_line(event)}: {problem}")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1

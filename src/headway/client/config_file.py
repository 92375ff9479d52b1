"""Reading a config that a person has as a file: JSON, YAML, TOML. Called when a program hands us its path.

The program's own PyYAML is used where it is installed, by its events and never by its constructors: a file cannot make
an object (B26). Raises OSError and ValueError; whoever calls tells that and goes on.
"""

from __future__ import annotations

import json
import os
import sys

from headway.model.limits import CONFIG_BYTES_MAX, CONFIG_DEPTH_MAX, CONFIG_ITEMS_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject

_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


def read_config(path: str) -> "JsonObject":
    with open(path, "rb") as file:
        data = file.read(CONFIG_BYTES_MAX + 1)
    if len(data) > CONFIG_BYTES_MAX:
        raise ValueError(f"{path} is larger than {CONFIG_BYTES_MAX} bytes")
    return parse_config(data.decode("utf-8", "replace"), os.path.splitext(path)[1].lower())


def parse_config(text: str, suffix: str = ".yaml") -> "JsonObject":
    """A mapping; anything else is not a config."""
    if suffix == ".toml":
        import tomllib

        found: Any = tomllib.loads(text)
    elif suffix == ".json" or text.lstrip()[:1] == "{":
        found = _json_or_yaml(text)
    else:
        found = parse_yaml(text)
    if not isinstance(found, dict):
        raise ValueError("a config is a mapping of names to values")
    return {str(key): value for key, value in found.items()}


def _json_or_yaml(text: str) -> "Any":
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        return parse_yaml(text)


def parse_yaml(text: str) -> "Any":
    """With the PyYAML of this environment; without one, ValueError."""
    from importlib import import_module

    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ValueError(f"PyYAML is not installed for {sys.executable}") from None
    try:
        return _Builder(yaml).build(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {str(error).splitlines()[0]}") from None


class _Builder:
    def __init__(self, yaml: "Any") -> None:
        self.yaml = yaml
        self.left = CONFIG_ITEMS_MAX
        self.anchors: JsonObject = {}

    def build(self, text: str) -> "Any":
        events = iter(self.yaml.parse(text, Loader=self.yaml.SafeLoader))
        for event in events:
            if isinstance(event, (self.yaml.ScalarEvent, self.yaml.CollectionStartEvent)):
                return self.value(event, events, 0)
        return {}

    def value(self, event: "Any", events: "Any", depth: int) -> "Any":
        yaml = self.yaml
        self.left -= 1
        if self.left < 0 or depth > CONFIG_DEPTH_MAX:
            raise ValueError("the file is too large or nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            self.left -= 100  # a file that repeats itself ends here soon
            return self.anchors.get(event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            found: Any = event.value if event.style else scalar(event.value)
        elif isinstance(event, yaml.SequenceStartEvent):
            found = []
            while not isinstance(inner := next(events), yaml.SequenceEndEvent):
                found.append(self.value(inner, events, depth + 1))
        else:
            found = {}
            while not isinstance(key := next(events), yaml.MappingEndEvent):
                name = self.value(key, events, depth + 1)
                value = self.value(next(events), events, depth + 1)
                if name == "<<" and isinstance(value, dict):
                    found = {**value, **found}
                else:
                    found[name if isinstance(name, str) else json.dumps(name)] = value
        if event.anchor is not None:
            self.anchors[event.anchor] = found
        return found


def scalar(text: str) -> "Any":
    """A word as YAML 1.2 reads it: null, true, a number, else the word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[:1].isdigit() or text[:1] in "+-.":
        for read in (int, float):
            try:
                if "_" not in text:
                    return read(text)
            except ValueError:
                continue
    return text

"""A job's config as one flat table of keys: what tables compare and conditions of `--where` ask for.

First what the program itself said (`hw.init(config=…)`), nested keys joined by dots; then the
parameters of its job file or sweep; and where there is neither, the options on its command line
(`--lr 0.1`, `--lr=0.1`, `lr=0.1`), as numbers where they are numbers.
"""

import json
from typing import Any

import msgspec

from headway.model.json_types import JsonObject
from headway.model.limits import CONFIG_KEYS_MAX

Config = JsonObject
_DEPTH_MAX = 16
_LIST_CHARS_MAX = 200


class _Spec(msgspec.Struct):
    """What is needed of a stored spec, read past all the rest."""

    command: list[str] = []
    parameters: JsonObject = {}
    gpus: int = 0


_decode_spec = msgspec.json.Decoder(_Spec).decode
_decode = msgspec.json.Decoder().decode


def read_spec(text: str) -> _Spec:
    try:
        return _decode_spec(text)
    except (
        msgspec.MsgspecError
    ):  # NaN, or a text that is not UTF-8, which `json` writes all the same
        values = json.loads(text)
        known = {name: values.get(name) for name in _Spec.__struct_fields__}
        return _Spec(**{name: value for name, value in known.items() if value is not None})


def effective(config: str | None, spec: str) -> Config:
    """`config` and `spec` as the table `jobs` has them."""
    asked = read_spec(spec)
    found = flat(_loaded(config)) if config else {}
    for key, value in asked.parameters.items():
        found.setdefault(str(key), value)
    return found or from_command(asked.command)


def _loaded(text: str) -> object:
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return json.loads(text)


def flat(config: object) -> Config:
    """Nested objects as dotted keys, lists of plain values as their JSON."""
    if not isinstance(config, dict):
        return {}
    if not any(isinstance(value, dict | list) for value in config.values()):
        return (
            config
            if len(config) <= CONFIG_KEYS_MAX
            else dict(list(config.items())[:CONFIG_KEYS_MAX])
        )
    found: Config = {}
    _flatten(config, "", found, 0)
    return found


def _flatten(values: JsonObject, prefix: str, found: Config, depth: int) -> None:
    for key, value in values.items():
        if len(found) >= CONFIG_KEYS_MAX:
            return
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            _flatten(value, f"{name}.", found, depth + 1)
        elif isinstance(value, dict | list):
            text = json.dumps(value, separators=(",", ":"))
            found[name] = text if len(text) <= _LIST_CHARS_MAX else text[:_LIST_CHARS_MAX] + "…"
        else:
            found[name] = value


def from_command(words: list[str]) -> Config:
    """The options of a command line. What it runs, and words without a name, are left out."""
    found: Config = {}
    position = 1
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, text = word.partition("=")
        is_option = name.startswith("--") and len(name) > 2
        if equals and (is_option or name.replace(".", "").replace("_", "").isalnum()):
            found[name.lstrip("-").replace("-", "_")] = plain(text)
        elif is_option:
            key = name[2:].replace("-", "_")
            if position < len(words) and not _is_flag(words[position]):
                found[key] = plain(words[position])
                position += 1
            else:
                found[key] = True
        if len(found) >= CONFIG_KEYS_MAX:
            break
    return found


def _is_flag(word: str) -> bool:
    """`-5` and `-1e-3` are values."""
    return word.startswith("-") and not isinstance(plain(word), int | float)


def plain(text: str) -> Any:
    """A number or a truth where the text is one."""
    lower = text.lower()
    if lower in ("true", "false"):
        return lower == "true"
    for kind in (int, float):
        try:
            return kind(text) if len(text) <= 40 else text
        except ValueError:
            continue
    return text

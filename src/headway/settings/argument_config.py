"""The config that a command line says: `--lr 0.1 --fp16 model.depth=3`. For jobs whose program tells none itself.

Called when a job is stored, so every engine and every kind of job has it. What the program says later replaces it.
"""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import ARGUMENT_CONFIG_ITEMS_MAX, CONFIG_STRING_CHARS_MAX

_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?\Z", re.DOTALL)
_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*)=(.*)\Z", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}\Z")
_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?\Z")
_NEGATIVE = re.compile(r"-\.?\d")
# Programs that run another one: what stands before the script is theirs.
_LAUNCHERS = (
    "python",
    "torchrun",
    "accelerate",
    "deepspeed",
    "mpirun",
    "srun",
    "bash",
    "sh",
    "uv",
    "poetry",
    "env",
    "nice",
)
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def of_command(command: Sequence[str]) -> JsonObject:
    """Nothing where the command line says nothing: `{}`."""
    found: JsonObject = {}
    words = list(_after_program(command))
    at = 0
    while at < len(words) and len(found) < ARGUMENT_CONFIG_ITEMS_MAX:
        word = words[at]
        at += 1
        if word == "--":
            continue
        option = _OPTION.match(word)
        if option is None or _NEGATIVE.match(word):
            pair = _pair(word)
            if pair is not None:
                _put(found, pair[1].replace("/", "."), value_of(pair[2]))
            continue
        name, given = option[1], option[2]
        if given is None:
            values = []
            while at < len(words) and not _is_option(words[at]) and not _pair(words[at]):
                values.append(value_of(words[at]))
                at += 1
            if not values:
                _put(
                    found,
                    name.removeprefix("no-") if name.startswith("no-") else name,
                    not name.startswith("no-"),
                )
            else:
                _put(found, name, values[0] if len(values) == 1 else values)
        else:
            _put(found, name, value_of(given))
    return found


def of_parsed(parsed: JsonObject, rest: Sequence[str]) -> JsonObject:
    """The arguments as the program itself has parsed them, with its defaults; `rest`: the words that
    it left over, which a library may read. A mapping that was packed into a word is unpacked.
    """
    found = of_command(["", *rest])
    for name, value in parsed.items():
        unpacked = None
        if isinstance(value, str) and _BASE64.match(value):
            unpacked = _decoded(value)
        found[name] = value if unpacked is None else unpacked
    return found


def _after_program(command: Sequence[str]) -> Sequence[str]:
    """The arguments of the script itself: those of a launcher in front of it are none of the config."""
    if not command:
        return []
    program = command[0].rpartition("/")[2]
    if not program.startswith(_LAUNCHERS):
        return command[1:]
    for at, word in enumerate(command[1:], 1):
        if word in ("-c", "-lc"):
            return command[at + 2 :]
        if word in ("-m", "--module") and at + 1 < len(command) and program.startswith("python"):
            return command[at + 2 :]
        if word.endswith((".py", ".sh", ".ipynb", ".R", ".jl")) and not word.startswith("-"):
            return command[at + 1 :]
    return []


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NEGATIVE.match(word)


def _pair(word: str) -> "re.Match[str] | None":
    """`name=value`; not a packed word that only ends in `=`."""
    match = _PAIR.match(word)
    return match if match is not None and (match[2].strip("=") or not _BASE64.match(word)) else None


def _put(found: JsonObject, name: str, value: object) -> None:
    """`model.depth` lies in `model`; what cannot lie there keeps its whole name."""
    place, *rest = name.replace("-", "_").split(".")
    if rest and all([place, *rest]):
        top = found.setdefault(place, {})
        inner = top
        for word in rest[:-1]:
            inner = inner.setdefault(word, {}) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[rest[-1]] = value
            return
    found[name.replace("-", "_")] = value


def value_of(text: str) -> Any:
    """A number, a truth value, a list or mapping in JSON, YAML in base64, else the text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.match(text) and "_" not in text:
        try:
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            return text
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if len(text) >= 16 and _BASE64.match(text):
        decoded = _decoded(text)
        if decoded is not None:
            return decoded
    return text[:CONFIG_STRING_CHARS_MAX]


def _decoded(text: str) -> JsonObject | None:
    """A mapping in YAML or JSON that was packed into one word; None where it is none."""
    try:
        plain = b64decode(
            text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True
        ).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    if (
        not any(mark in plain for mark in ":{")
        or not plain.replace("\n", "").replace("\t", "").isprintable()
    ):
        return None
    from headway.settings import yamlfile

    try:
        found = yamlfile.parse(plain, "the argument").plain()
    except UsageError:
        return None
    return found if isinstance(found, dict) and found else None

"""`{{ name }}` in the texts of a job file: found, checked and filled in. Called by `jobfile.py` and
for `--array`.

What stands between the braces is a parameter only if it looks like a name; `{{.ID}}` is left as it
is. A value that is filled in is not looked at again, and never split: it stays one word of a
command, whatever is in it.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping
from headway.settings.value_kinds import plain_text

_SPOT: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_-]*)\s*\}\}")
_OPERATORS: Final = frozenset(("&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>"))


def names(value: object) -> Iterator[str]:
    """Every parameter that a value's texts name."""
    if isinstance(value, str):
        yield from (match[1] for match in _SPOT.finditer(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from names(item)
    elif isinstance(value, list):
        for item in value:
            yield from names(item)


def fill(value: object, parameters: JsonMapping) -> Any:
    """The same value with its texts filled in. What is no parameter stays as it is."""
    if isinstance(value, str):
        if "{{" not in value:
            return value
        return _SPOT.sub(
            lambda m: plain_text(parameters[m[1]]) if m[1] in parameters else m[0], value
        )
    if isinstance(value, Mapping):
        return {key: fill(item, parameters) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, parameters) for item in value]
    return value


def words(command: str | list[str], field: str) -> list[str]:
    """The words of a command. A text is split as a shell would; nothing in it is run or replaced by
    one.
    """
    if isinstance(command, list):
        return command
    text = _SPOT.sub(lambda match: "{{" + match[1] + "}}", command.strip()).replace("\\\n", " ")
    try:
        found = shlex.split(text)
        lines = list(_lexed(text))
    except ValueError as error:
        raise UsageError(
            f"{field}: {error}: {command[:60]!r}", "write the command as a list of words"
        ) from None
    if len(found) != len(lines):
        raise UsageError(
            f"{field}: the command has several lines",
            "end lines with \\, or run a script: [bash, -c, '…']",
        )
    bad = next(
        (word for word in found if word in _OPERATORS or (word.endswith(";") and len(word) > 1)),
        None,
    )
    if bad is not None and bad not in shlex_quoted(text):
        raise UsageError(
            f"{field}: {bad!r} is for a shell, and none runs the command",
            "let one: [bash, -c, 'first && second']",
        )
    return found


def _lexed(text: str) -> Iterator[str]:
    """Words where a line's end is no space, so that a second line shows as other words."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    return iter(lexer)


def shlex_quoted(text: str) -> set[str]:
    """Words that stood in quotes: `';'` for find -exec is meant."""
    plain = shlex.shlex(text, posix=False)
    plain.whitespace_split, plain.commenters = True, ""
    return {
        word[1:-1] for word in plain if len(word) > 1 and word[0] in "'\"" and word[-1] == word[0]
    }


def typed(text: str, like: object, field: str) -> Any:
    """The text of `--set`, in the type of the value that it takes the place of."""
    if like is None:
        from headway.settings import yamlfile  # here: only a parameter without a value needs it

        value = yamlfile.parse(text, field).value
        return value if isinstance(value, int | float | bool) else text
    readers: dict[type, Callable[[str], Any]] = {bool: _flag, int: int, float: float, str: str}
    try:
        return readers[type(like)](text)
    except ValueError:
        raise UsageError(
            f"{field}: {text[:60]!r} is not {kind_words(like)}", f"as in the file: {like}"
        ) from None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def same_type(value: object, like: object) -> bool:
    if like is None or type(value) is type(like):
        return True
    return isinstance(like, float) and type(value) is int


def kind_words(like: object) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[
        type(like)
    ]

"""The filter language of `--where`: one small condition over a job's fields, config and metrics.

    lr < 0.1 and val/acc > 0.9          state = failed or age < 2h
    tag = baseline and not opt ~ "adam"  min(val/loss) <= 0.03

Grammar, loosest binding first:

    condition := all ("or" all)*          all := term ("and" term)*
    term      := "not" term | "(" condition ")" | name OPERATOR value
    OPERATOR  := = == != < <= > >= ~ !~
    name      := WORD | "quoted" | last|min|max|best "(" WORD ")"
    value     := WORD | "quoted" | number | duration such as 2h, for age and elapsed

Used by the server for lists and tables, by the command line to refuse a wrong condition before
anything is asked, and by whoever gets rows of his own. It knows nothing of the database: `matches`
asks a function for the values of a name.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from headway.model.errors import UsageError
from headway.model.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX, FILTER_TERMS_MAX

# What a job itself has. A config key of the same name is reached as `config.name`.
FIELDS: Final = (
    "id", "name", "state", "experiment", "cluster", "engine", "tag", "age", "elapsed", "exit_code",
    "signal", "gpus", "command", "index", "star", "bug", "description",
)  # fmt: skip
_ALIASES: Final = {"tags": "tag", "elapsed_s": "elapsed", "array_index": "index"}
_KINDS: Final = {
    "config": "config",
    "parameters": "config",
    "metric": "metric",
    "metrics": "metric",
}
SUMMARIES: Final = ("last", "min", "max", "best")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_OPERATORS: Final = ("==", "!=", "<=", ">=", "!~", "=", "<", ">", "~")
_SEARCHES: Final = ("~", "!~")
_HINT: Final = "for example: 'lr < 0.1 and state = succeeded'"
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
      | (?P<operator>==|!=|<=|>=|!~|[=<>~])
      | (?P<bracket>[()])
      | (?P<word>[^\s"'`()=<>~!]+)
    )""",
    re.VERBOSE,
)
_DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+)([smhdw])\Z")

Value = str | float | bool | None
Search = Callable[[str, str], bool]  # whether a pattern is found in a text


class Name(NamedTuple):
    """What stands on the left: `kind` is field, config, metric, or any: a key of the config where
    the job has it, else a metric.
    """

    kind: str
    key: str
    summary: str = "last"


class _Test(NamedTuple):
    name: Name
    operator: str
    value: Value


class _Not(NamedTuple):
    part: "_Node"


class _All(NamedTuple):
    parts: "list[_Node]"


class _Any(NamedTuple):
    parts: "list[_Node]"


_Node = _Test | _Not | _All | _Any
Lookup = Callable[[Name], Sequence[Any]]  # values of a name: none, one, or several for tags


def _literal(pattern: str, text: str) -> bool:
    return pattern in text


class Condition:
    def __init__(self, text: str, root: _Node) -> None:
        self.text = text
        self._root = root

    @property
    def names(self) -> set[Name]:
        return {test.name for test in _tests(self._root)}

    @property
    def patterns(self) -> set[str]:
        """What stands behind `~`. A person wrote them: the caller searches where that can be ended."""
        return {str(test.value) for test in _tests(self._root) if test.operator in _SEARCHES}

    def matches(self, lookup: Lookup, search: Search = _literal) -> bool:
        return _holds(self._root, lookup, search)


def parse(text: str) -> Condition:
    """A condition, or UsageError that shows where it stops making sense."""
    if len(text) > FILTER_CHARS_MAX:
        raise UsageError(f"a condition may have {FILTER_CHARS_MAX:,} characters, not {len(text):,}")
    return Condition(text, _Parser(text).whole())


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._split())
        self.position = 0
        self.terms = 0

    def _split(self) -> Iterator[_Token]:
        place = 0
        end = len(self.text.rstrip())
        while place < end:
            match = _TOKEN.match(self.text, place)
            if match is None:
                raise self._wrong("this cannot be read", place)
            kind = match.lastgroup or ""
            yield _Token(kind, match[kind], match.start(kind))
            place = match.end()

    def _wrong(self, what: str, place: int) -> UsageError:
        return UsageError(f'{what}: "{self.text[:place]}" → "{self.text[place:][:60]}"', _HINT)

    def _peek(self) -> _Token:
        if self.position < len(self.tokens):
            return self.tokens[self.position]
        return _Token("end", "", len(self.text))

    def _next(self) -> _Token:
        token = self._peek()
        self.position += 1
        return token

    def _takes(self, word: str) -> bool:
        token = self._peek()
        if token.kind in ("word", "bracket") and token.text.lower() == word:
            self.position += 1
            return True
        return False

    def whole(self) -> _Node:
        if not self.tokens:
            raise UsageError("the condition is empty", _HINT)
        found = self._either(0)
        left = self._peek()
        if left.kind != "end":
            raise self._wrong("expected `and`, `or` or the end", left.place)
        return found

    def _either(self, depth: int) -> _Node:
        parts = [self._both(depth)]
        while self._takes("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else _Any(parts)

    def _both(self, depth: int) -> _Node:
        parts = [self._term(depth)]
        while self._takes("and"):
            parts.append(self._term(depth))
        return parts[0] if len(parts) == 1 else _All(parts)

    def _term(self, depth: int) -> _Node:
        if depth > FILTER_DEPTH_MAX:
            raise UsageError(f"the condition is nested deeper than {FILTER_DEPTH_MAX} levels")
        if self._takes("not"):
            return _Not(self._term(depth + 1))
        if self._takes("("):
            found = self._either(depth + 1)
            if not self._takes(")"):
                raise self._wrong("expected `)`", self._peek().place)
            return found
        return self._test()

    def _test(self) -> _Test:
        self.terms += 1
        if self.terms > FILTER_TERMS_MAX:
            raise UsageError(f"a condition may compare {FILTER_TERMS_MAX} times at most")
        name = self._name()
        operator = self._next()
        if operator.kind != "operator":
            raise self._wrong(f"expected one of {' '.join(_OPERATORS)}", operator.place)
        value = self._next()
        if value.kind not in ("quoted", "word"):
            raise self._wrong("expected a value", value.place)
        return self._made(name, operator.text.replace("==", "="), value)

    def _name(self) -> Name:
        token = self._next()
        if token.kind not in ("quoted", "word"):
            raise self._wrong("expected the name of a config key, a metric or a field", token.place)
        text = _unquoted(token)
        if token.kind == "word" and text in SUMMARIES and self._takes("("):
            inner = self._next()
            if inner.kind not in ("quoted", "word"):
                raise self._wrong("expected the name of a metric", inner.place)
            if not self._takes(")"):
                raise self._wrong("expected `)`", self._peek().place)
            return Name("metric", _unquoted(inner), text)
        return name_of(text)

    def _made(self, name: Name, operator: str, token: _Token) -> _Test:
        text = _unquoted(token)
        if operator in _SEARCHES:
            return _Test(name, operator, text)
        value: Value = text if token.kind == "quoted" else _value(text)
        if name.kind == "field" and name.key in ("age", "elapsed") and value is not None:
            value = _seconds(text)
            if value is None:
                raise self._wrong(f"{name.key} is compared with a time such as 2h", token.place)
        return _Test(name, operator, value)


def name_of(text: str) -> Name:
    """What a name means: `config.lr`, `metric.loss`, a field, or any."""
    prefix, dot, rest = text.partition(".")
    if dot and rest and prefix in _KINDS:
        return Name(_KINDS[prefix], rest)
    key = _ALIASES.get(text, text)
    return Name("field" if key in FIELDS else "any", key)


def _unquoted(token: _Token) -> str:
    if token.kind != "quoted":
        return token.text
    inner = token.text[1:-1]
    # only quotes: every other backslash belongs to a pattern
    return inner if token.text[0] == "`" else re.sub(r"""\\(["'])""", r"\1", inner)


def _value(text: str) -> Value:
    lower = text.lower()
    if lower in ("none", "null"):
        return None
    if lower in ("true", "false"):
        return lower == "true"
    number = as_number(text)
    return text if number is None else number


def _seconds(text: str) -> float | None:
    match = _DURATION.match(text)
    if match is not None:
        return float(match[1]) * _SECONDS[match[2]]
    return as_number(text)


def as_number(value: Any) -> float | None:
    """A number, also one that is written as text, as arguments of commands are; else None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _tests(node: _Node) -> Iterator[_Test]:
    if isinstance(node, _Test):
        yield node
    elif isinstance(node, _Not):
        yield from _tests(node.part)
    else:
        for part in node.parts:
            yield from _tests(part)


def _holds(node: _Node, lookup: Lookup, search: Search) -> bool:
    if isinstance(node, _All):
        return all(_holds(part, lookup, search) for part in node.parts)
    if isinstance(node, _Any):
        return any(_holds(part, lookup, search) for part in node.parts)
    if isinstance(node, _Not):
        return not _holds(node.part, lookup, search)
    values = lookup(node.name)
    # the negations are exactly that: a job that lacks the key is unequal to every value
    if node.operator == "!=":
        return not _is_any(values, node.value)
    if node.operator == "=":
        return _is_any(values, node.value)
    if node.operator in _SEARCHES:
        found = any(search(str(node.value), as_text(value)) for value in values)
        return found if node.operator == "~" else not found
    return any(_compare(value, node.operator, node.value) for value in values)


def _is_any(values: Sequence[Any], wanted: Value) -> bool:
    if wanted is None:
        return all(value is None for value in values)
    return any(_equal(value, wanted) for value in values)


def _equal(value: object, wanted: Value) -> bool:
    if isinstance(wanted, bool):
        return value is wanted or (isinstance(value, str) and value.lower() == str(wanted).lower())
    left, right = as_number(value), as_number(wanted)
    if left is not None and right is not None:
        return left == right or (math.isnan(left) and math.isnan(right))
    return as_text(value) == as_text(wanted)


def _compare(value: object, operator: str, wanted: Value) -> bool:
    left: Any = as_number(value)
    right: Any = as_number(wanted)
    if left is None or right is None:
        if not (isinstance(value, str) and isinstance(wanted, str)):
            return False
        left, right = value, wanted  # dates and versions that are written alike
    if operator == "<":
        return bool(left < right)
    if operator == "<=":
        return bool(left <= right)
    if operator == ">":
        return bool(left > right)
    return bool(left >= right)


def as_text(value: object) -> str:
    """A value as a person would type it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)

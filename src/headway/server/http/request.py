"""One request as a handler sees it, and the reply that it gives. Called by the guard, `app.py` and
`api/`.

JSON comes in strictly: no key twice (B9), no nesting beyond a limit (B5), no number that nobody
could store (B4), no unknown field. It goes out as the contract says: what JSON cannot hold is a
string.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from headway.model.errors import (
    HeadwayError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from headway.model.json_types import JsonObject
from headway.model.limits import JSON_DEPTH_MAX, QUERY_FIELDS_MAX
from headway.server.http.auth import Caller

if TYPE_CHECKING:
    from headway.server.app import Services

T = TypeVar("T")
# what the store can hold; anything else is not a number of ours
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_INTEGER_DIGITS_MAX = 20


class Refusal(Exception):
    """A request that ends here, with its status. Its words go to the caller, so they hold nothing
    that he sent.
    """

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint


class Gone(Exception):
    """The caller hung up before its request was whole."""


@dataclass(slots=True)
class Reply:
    body: bytes | memoryview = b""
    status: int = 200
    content_type: bytes = b"application/json"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """What a handler gets: who calls, the parts of the path, the query, the body, and the server's
    services.
    """

    services: "Services"
    caller: Caller
    params: dict[str, str]
    headers: list[tuple[bytes, bytes]]
    query_string: bytes
    body: bytes

    def read(self, kind: type[T]) -> T:
        """The JSON body as a checked `kind`."""
        return check(parse_json(self.body or b"{}"), kind)

    def query(self, kind: type[T]) -> T:
        """The query as a checked `kind`: fields that are lists may repeat, others may not."""
        return read_query(self.query_string, kind)

    def accepts(self, content_type: bytes) -> bool:
        return any(name == b"accept" and content_type in value for name, value in self.headers)


def check(value: object, kind: type[T]) -> T:
    try:
        # keys of JSON objects are text, also where we mean numbers
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"the request is not valid: {error}") from None
    except UnicodeEncodeError:
        raise UsageError("the request has a name that is not Unicode") from None


def parse_json(body: bytes) -> object:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise UsageError("the request is not UTF-8") from None
    _check_depth(text)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"the request is not JSON: {error.msg} at character {error.pos}") from None


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= JSON_DEPTH_MAX:
        return
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > JSON_DEPTH_MAX:
            raise UsageError(f"the request is nested deeper than {JSON_DEPTH_MAX} levels")


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UsageError("the request has the same key twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > _INTEGER_DIGITS_MAX:
        raise UsageError(f"the request has an integer of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise UsageError("the request has a number that is too large")
    return value


def _constant(text: str) -> float:
    raise UsageError(f"the request has {text}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def read_query(query_string: bytes, kind: type[T]) -> T:
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError:
        raise UsageError("the address has a query that cannot be read") from None
    repeatable = {f.name for f in msgspec.structs.fields(kind) if _is_list(f.type)}  # type: ignore[arg-type]
    found: JsonObject = {}
    for name, value in pairs:
        if name in repeatable:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise UsageError(f"the address says {name[:40]!r} twice")
        elif value != "":
            found[name] = value
    try:
        # a query has only text: "3" is a number here
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the address is not valid: {error}") from None


def _is_list(kind: object) -> bool:
    return getattr(kind, "__origin__", None) is list


def encode(value: object) -> bytes:
    """JSON. A name that is not Unicode (an argument that was not UTF-8) goes out escaped instead of
    failing.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def encode_rows(rows: Iterable[Any]) -> bytes:
    """A list with a line for each of its rows: whoever only passes it on need not read it to lay it
    out.
    """
    return b"[" + b",\n".join(map(encode, rows)) + b"]"


def reply_json(value: object, status: int = 200) -> Reply:
    return Reply(encode(value), status)


def reply_error(
    status: int, code: str, message: str, hint: str = "", candidates: Iterable[str] = ()
) -> Reply:
    error = {"code": code, "message": message, "hint": hint, "candidates": list(candidates)}
    reply = reply_json({"error": error}, status)
    if status in (429, 503):
        reply.headers.append((b"retry-after", b"1"))
    if status == 401:
        reply.headers.append((b"www-authenticate", b"Bearer"))
    return reply


def reply_failure(error: HeadwayError) -> Reply:
    """The reply for an error of ours: status as in `model/errors.py`."""
    candidates = error.candidates if isinstance(error, NotFoundError) else []
    status = 400
    if isinstance(error, NotFoundError):
        status = 409 if candidates else 404
    elif isinstance(error, RefusedError):
        status = 409
    elif isinstance(error, UnreachableError):
        status = 503
    return reply_error(status, error.code, error.message, error.hint, candidates)

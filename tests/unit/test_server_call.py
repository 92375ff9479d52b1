"""Strict JSON in, the contract's JSON out (B1, B4, B5, B9)."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import (
    DamagedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from headway.model.limits import JSON_DEPTH_MAX, QUERY_FIELDS_MAX
from headway.server.http.request import (
    check,
    encode,
    encode_rows,
    parse_json,
    read_query,
    reply_failure,
)


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    points: int | None = None
    rank: list[int] = []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a":1,"a":2}', "same key twice"),
        (b'{"x":{"a":1,"b":2,"a":3}}', "same key twice"),
        (b'{"a":1,"\\u0061":2}', "same key twice"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "nested deeper"),
        (b'["' + b"\\\\" * 50 + b'",' + b"[" * 100_000, "nested deeper"),
        (b"1" * 5_000, "digits"),
        (b'{"a":-' + b"9" * 30 + b"}", "digits"),
        (b"1e999", "too large"),
        (b"NaN", "not JSON"),
        (b'{"a":Infinity}', "not JSON"),
        (b'{"a":-Infinity}', "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b"{'a':1}", "not JSON"),
        (b"{} {}", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'"a\nb"', "not JSON"),
    ],
)
def test_what_is_not_plain_json_is_refused_with_the_reason(body: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_json(body)


def test_brackets_inside_text_are_not_nesting() -> None:
    text = "[{" * 1000 + '\\"['
    assert parse_json(json.dumps({"a": text, "b": ["]" * 500, '"[']}).encode()) == {
        "a": text,
        "b": ["]" * 500, '"['],
    }


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse_json(b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX)
    with pytest.raises(UsageError):
        parse_json(b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1))


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(_PLAIN)
def test_ordinary_json_is_read_as_python_reads_it(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_but_never_crash(body: bytes) -> None:
    try:
        parse_json(body)
    except UsageError:
        pass


def test_a_field_of_the_wrong_type_or_name_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="points"):
        check({"points": "3"}, Asked)
    with pytest.raises(UsageError, match="pionts"):
        check({"pionts": 3}, Asked)
    with pytest.raises(UsageError, match="object"):
        check([], Asked)


def test_a_query_has_numbers_lists_and_no_strange_fields() -> None:
    assert read_query(b"name=a%20b&points=20&rank=1&rank=2", Asked) == Asked("a b", 20, [1, 2])
    assert read_query(b"", Asked) == Asked()
    assert read_query(b"points=&name=", Asked) == Asked()
    many = b"&".join(b"rank=1" for _ in range(QUERY_FIELDS_MAX + 1))
    for bad in (
        b"points=x",
        b"token=abc",
        b"name=a&name=b",
        b"name=%ff",
        b"&&&",
        b"name",
        b"\xff",
        many,
        b"rank=1.5",
    ):
        with pytest.raises(UsageError):
            read_query(bad, Asked)


def test_a_name_that_is_not_unicode_goes_out_escaped() -> None:
    assert json.loads(encode({"argv": ["\udcff.txt"]})) == {"argv": ["\udcff.txt"]}
    assert encode({"a": "é", "b": [1, 2.5, None]}) == '{"a":"é","b":[1,2.5,null]}'.encode()


def test_a_number_that_json_cannot_hold_never_goes_out_as_one() -> None:
    """B1: the store hands such values out as text; one that slipped through must at least stay
    JSON.
    """
    assert json.loads(encode([math.nan, math.inf])) == [None, None]


def test_errors_have_the_status_of_their_kind() -> None:
    def status(error: Any) -> int:
        return reply_failure(error).status

    assert status(UsageError("x")) == 400
    assert status(DamagedError("x")) == 400
    assert status(NotFoundError("x")) == 404
    assert status(NotFoundError("x", candidates=["a", "b"])) == 409
    assert status(RefusedError("x")) == 409
    assert status(UnreachableError("x")) == 503
    assert (b"retry-after", b"1") in reply_failure(UnreachableError("x")).headers
    body = json.loads(reply_failure(NotFoundError("what", "do this", ["a"])).body)
    assert body == {
        "error": {"code": "not_found", "message": "what", "hint": "do this", "candidates": ["a"]}
    }


def test_a_list_has_a_line_for_each_row_whatever_is_in_it() -> None:
    rows = [{"name": "a\nb", "tags": []}, {"value": math.nan}, {}]
    body = encode_rows(rows)
    assert body.count(b"\n") == len(rows) - 1
    assert (
        json.loads(body) == [rows[0], json.loads(encode(rows[1])), {}] and encode_rows([]) == b"[]"
    )

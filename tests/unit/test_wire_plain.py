"""Plain data as JSON (wire/plain_json.py), beside the `json` module."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire import plain_json, redact

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
DATA = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(DATA)
def test_it_gives_what_json_gives(value: object) -> None:
    assert plain_json.dumps(value) == json.dumps(value, allow_nan=False, separators=(",", ":"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [1, math.nan]])
def test_numbers_that_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(ValueError):
        plain_json.dumps(value)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), {b"key": 1}])
def test_what_is_not_plain_data_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        plain_json.dumps(value)


def test_names_of_fields_may_be_numbers_as_with_json() -> None:
    value = {7: "a", 2.5: "b", None: "c", True: "d"}
    assert json.loads(plain_json.dumps(value)) == json.loads(json.dumps(value))


@given(st.text(alphabet="aZbK_-.09é٣", max_size=30))
def test_words_of_a_name_are_those_of_the_pattern(name: str) -> None:
    assert redact.words_of(name) == re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)

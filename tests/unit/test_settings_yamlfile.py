"""A YAML file is data and nothing else (B26)."""

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import UsageError
from headway.model.limits import SETTINGS_BYTES_MAX
from headway.settings.yamlfile import parse, read


def plain(text: str) -> object:
    return parse(text, "f.yaml").plain()


def test_words_follow_yaml_1_2() -> None:
    assert plain("{a: no, b: on, c: yes, d: y, e: 12:30, f: 0o17, g: 017, h: 1_000, i: 2026-01-01}") == {
        "a": "no", "b": "on", "c": "yes", "d": "y", "e": "12:30", "f": 15, "g": 17, "h": "1_000", "i": "2026-01-01",
    }  # fmt: skip


def test_numbers_and_constants_have_their_types() -> None:
    assert plain("[1, -2, 0x1f, 1.5, 1e3, .5, true, False, null, ~, '1', \"true\"]") == [
        1, -2, 31, 1.5, 1000.0, 0.5, True, False, None, None, "1", "true",
    ]  # fmt: skip
    assert math.isnan(plain("a: .nan")["a"])  # type: ignore[index]
    assert plain("[.inf, -.INF]") == [math.inf, -math.inf]


def test_a_number_too_long_to_be_one_is_text() -> None:
    assert plain("a: " + "9" * 5000) == {"a": "9" * 5000}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [true]", "a: !!python/name:os.system", "!!map {a: 1}", "a: !env HOME",
        "a: !!binary aGk=", "!!str a: 1",
    ],
)  # fmt: skip
def test_a_tag_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"f.yaml, line 1: (the tag|a key)"):
        plain(text)


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(UsageError, match="too many"):
        plain("\n".join(lines))


def test_a_few_aliases_are_followed() -> None:
    assert plain("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def test_an_alias_to_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="names nothing"):
        plain("a: &x [*x]")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        plain("[" * 2000 + "]" * 2000)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2", 'line 2: the key "a" stands here twice'), ("a: 1\n---\nb: 2", "second document"),
        ("a: 1\nb: [", "line 2: not valid YAML"), ("a: \x01", "not valid YAML"), ("? [a]\n: 1", "a key must be"),
        ("a: 1\n\tb: 2", "line 2: not valid YAML"), ("a: *nothing", "names nothing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        plain(text)
    assert problem in error.value.message


def test_every_value_knows_its_line() -> None:
    root = parse("# a comment\na: 1\nb:\n  c: [1,\n    2]\n", "f.yaml")
    assert isinstance(root.value, dict)
    inner = root.value["b"].value
    assert isinstance(inner, dict)
    assert [root.value["a"].line, root.value["b"].line, inner["c"].line] == [2, 3, 4]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "---\n...\n", "null"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert plain(text) == {}


def test_a_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="is not a file"):
        read(tmp_path / "fifo")
    with pytest.raises(UsageError, match="is not a file"):
        read(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "absent")


def test_a_file_too_large_or_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"#" * (SETTINGS_BYTES_MAX + 1))
    with pytest.raises(UsageError, match="too large"):
        read(tmp_path / "large.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe4\n")
    with pytest.raises(UsageError, match="line 2: not valid UTF-8"):
        read(tmp_path / "latin.yaml")


@given(st.text(alphabet=st.sampled_from("ab:*&![]{}-?|>#'\"\n ,~0.\\%@`\t\x00é"), max_size=40))
def test_any_text_is_data_or_a_usage_error(text: str) -> None:
    try:
        parse(text, "f.yaml").plain()
    except UsageError as error:
        assert error.message.startswith("f.yaml")

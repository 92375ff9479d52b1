"""The filter language of --where: what conditions hold for, and what is refused with a place."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import UsageError
from headway.model.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX, FILTER_TERMS_MAX
from headway.wire.filter_language import Name, parse

VALUES: dict[str, list[Any]] = {
    "lr": [0.05], "opt": ["adam"], "state": ["succeeded"], "val/acc": [0.93], "seed": ["3"],
    "tag": ["baseline", "wide"], "age": [5400.0], "bad": [math.nan], "amp": [True], "none": [None],
    "note": ["two words"], "min loss": [0.01], "day": ["2026-03-01"],
}  # fmt: skip


def lookup(name: Name) -> list[Any]:
    if name.summary != "last":
        return VALUES.get(f"{name.summary} {name.key}", [])
    return VALUES.get(name.key, [])


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("lr<0.1", True), ("lr < 1e-3", False), ("lr<=0.05", True), ("lr >= 0.05", True), ("lr!=0.05", False),
        ("opt=adam", True), ("opt == sgd", False), ("opt != sgd", True), ('opt ~ "da"', True), ("opt !~ da", False),
        ("seed = 3", True), ("seed < 10", True), ("seed = 3.0", True), ("val/acc > .9", True),
        ("lr<0.1 and opt=sgd or val/acc>0.9", True), ("lr<0.1 and (opt=sgd or val/acc>0.99)", False),
        ("not opt=sgd", True), ("not (lr<0.1 and opt=adam)", False), ("NOT opt=sgd AND lr<1", True),
        ("tag=baseline", True), ("tag = wide and tags = baseline", True), ("tag != wide", False), ("tag ~ ase", True),
        ("age < 2h", True), ("age<1.4h", False), ("age > 60", True), ("state = succeeded", True),
        ("bad = nan", True), ("bad < 1", False), ("bad > 1", False),
        ("amp = true", True), ("amp = false", False), ("missing = none", True), ("lr != none", True),
        ("missing = 3", False), ("missing != 3", True), ("missing < 3", False), ("none = null", True),
        ('note = "two words"', True), ("`note` = 'two words'", True), ("opt < 3", False), ("opt < z", True),
        ("min(loss) < 0.02", True), ("min(lr) < 0.02", False), ("day >= 2026-02-01", True),
        ("config.lr < 0.1", True), ("metric.val/acc > 0.9", True),
    ],
)  # fmt: skip
def test_a_condition_holds_or_not(text: str, holds: bool) -> None:
    assert parse(text).matches(lookup) is holds


def test_names_say_where_their_values_are() -> None:
    found = parse(
        "lr<1 and config.state=x and state=failed and metrics.loss>0 and best(acc)>0"
    ).names
    assert found == {
        Name("any", "lr"), Name("config", "state"), Name("field", "state"), Name("metric", "loss"),
        Name("metric", "acc", "best"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"), ("   ", "empty"), ("lr", "expected one of"), ("lr <", "expected a value"),
        ("lr 3", '"lr " → "3"'), ("(lr<1", "expected `)`"), ("lr<1 opt=adam", "expected `and`"),
        ("lr<1 and", "expected the name"), ("lr ! 3", "cannot be read"), ('lr = "x', "cannot be read"),
        ("age < soon", "a time such as 2h"), ("min(=3", "the name of a metric"), ("min(x = 3", "expected `)`"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert said in error.value.message


def test_long_deep_and_many_conditions_are_refused() -> None:
    deep = FILTER_DEPTH_MAX + 2
    for text in (
        "a=" + "x" * FILTER_CHARS_MAX,
        "(" * deep + "a=1" + ")" * deep,
        "not " * deep + "a=1",
        " or ".join(["a=1"] * (FILTER_TERMS_MAX + 1)),
    ):
        with pytest.raises(UsageError):
            parse(text)


def test_the_search_of_patterns_is_the_callers() -> None:
    condition = parse("opt ~ 'a.*m' and not opt !~ 'x+'")
    assert condition.patterns == {"a.*m", "x+"}
    assert condition.matches(lookup, lambda pattern, text: text == "adam")
    assert not condition.matches(lookup)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text).matches(lookup)
    except UsageError:
        pass

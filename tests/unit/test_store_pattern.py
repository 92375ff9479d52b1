"""People's regular expressions: right answers, ended when they take too long (A-1)."""

import re

import pytest

from headway.model.errors import UsageError
from headway.store.pattern import Matcher

TEXTS = ["train-1", "lr=0.1 wd=0", "eval\nsecond line", "ünï", "\udcff byte", "", "a" * 50]
HANGS = ["(a|aa)*!", "(a|a)*c", "(a+)+$b", "(.*)*x!", "(?:a?){40}a{40}!"]


@pytest.mark.parametrize(
    "pattern",
    ["train", r"^lr=0\.1", "(?i)TRAIN", "a{50}$", "[ü]", "(?m)^second", r"\d", "x|ev", ""],
)
def test_a_pattern_matches_as_re_does(pattern: str) -> None:
    with Matcher(pattern) as matcher:
        assert matcher.many(TEXTS) == [bool(re.search(pattern, text)) for text in TEXTS]
        assert [matcher(text) for text in TEXTS] == matcher.many(TEXTS)


@pytest.mark.parametrize("pattern", HANGS)
def test_a_pattern_that_would_take_forever_is_ended_and_refused(pattern: str) -> None:
    matcher = Matcher(pattern, timeout_s=0.3)
    with matcher, pytest.raises(UsageError, match="was ended"):
        matcher.many(["a" * 71])
    assert matcher._child is None, "no process stays"


def test_rows_are_selected_by_any_of_their_texts_and_only_as_many_as_are_wanted() -> None:
    read: list[int] = []

    def rows() -> object:
        for number in range(10_000):
            read.append(number)
            yield number

    with Matcher("(7|8)$") as matcher:
        chosen = matcher.select(rows(), lambda n: ("no", str(n)))  # type: ignore[arg-type, call-overload]
        assert [next(chosen) for _ in range(3)] == [7, 8, 17]
    assert len(read) < 100


def test_a_simple_pattern_needs_no_process() -> None:
    with Matcher("lr=0.1") as matcher:
        assert matcher.many(TEXTS)[1]
        assert matcher._child is None


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "x" * 1001, "[", r"\1"])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Matcher(pattern)

"""Durations, sizes and counts as people write them (B25)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import UsageError
from headway.settings.quantity import count, duration_s, duration_text, size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3.5h", 12_600), ("90", 90), ("90s", 90), ("15m", 900), ("15 min", 900), ("1h30m", 5_400), ("2d", 172_800),
        ("1d 2h 3m 4.5s", 93_784.5), ("2 Weeks", 1_209_600), (".5h", 1_800), (7, 7), (0.25, 0.25),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_written(text: str | float, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32GiB", 32 * 2**30), ("32gib", 32 * 2**30), ("500MB", 500_000_000), ("1.5GB", 1_500_000_000), ("100 B", 100),
        ("4096", 4096), (2**62, 2**62), (str(2**62), 2**62), ("2TiB", 2 * 2**40), ("1.5KiB", 1536),
    ],
)  # fmt: skip
def test_a_size_is_read_as_written(text: str | int, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-1h", "negative"), (-1, "more than zero"), ("0", "more than zero"), (0, "more than zero"),
        ("400d", "too long"), ("3.5 hous", 'did you mean "3.5hours"'), ("h", "not a duration"), ("", "is empty"),
        ("1m1h", "out of order"), ("1h1h", "out of order"), ("1e3s", "unknown unit"), ("nan", "not a duration"),
        (float("nan"), "finite"), (float("inf"), "finite"), (True, "not a quantity"), ("5 parsecs", "unknown unit"),
        ("9" * 400, "not a duration"), pytest.param(10**5000, "too long", id="huge"), ("1h\x00", "not a duration"),
    ],
)  # fmt: skip
def test_a_wrong_duration_names_the_field_and_the_valid_forms(
    text: str | float, problem: str
) -> None:
    with pytest.raises(UsageError) as error:
        duration_s(text, "--max-duration")
    assert error.value.message.startswith("--max-duration: ")
    assert problem in error.value.message
    assert "3.5h" in error.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-3GB", "negative"), ("0", "more than zero"), ("32G", "write 32GiB or 32GB"), ("32GiBs", 'mean "32GiB"'),
        ("9999999PiB", "too large"), (2**63, "too large"), ("three", "not a size"), ("1GiB2MiB", "not a size"),
        ("", "not a size"), (float("inf"), "finite"), (False, "not a quantity"),
    ],
)  # fmt: skip
def test_a_wrong_size_names_the_field_and_the_valid_forms(text: str | float, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        size_bytes(text, "memory")
    assert error.value.message.startswith("memory: ")
    assert problem in error.value.message
    assert "32GiB" in error.value.hint


def test_a_size_below_what_is_needed_says_so() -> None:
    with pytest.raises(UsageError, match="is only 32 bytes; at least 4096"):
        size_bytes("32", "memory", least_bytes=4096)


def test_zero_is_a_duration_where_it_means_never() -> None:
    assert duration_s("0", allow_zero=True) == 0
    with pytest.raises(UsageError, match="negative"):
        duration_s(-1, allow_zero=True)


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5", "", "x", "1e3", True, 0.5, 2**40, "9" * 5000, float("nan")]
)
def test_a_wrong_count_names_the_field_and_the_range(text: str | float) -> None:
    with pytest.raises(UsageError) as error:
        count(text, "-n", most=1024)
    assert error.value.message.startswith("-n: ")
    assert "from 1 to 1024" in error.value.hint


def test_a_count_is_read_as_written() -> None:
    assert [count("8"), count(8), count(8.0), count(" 8 "), count("0", least=0)] == [8, 8, 8, 8, 0]


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans()))
def test_anything_is_a_quantity_or_a_usage_error(value: str | float) -> None:
    for read in (duration_s, size_bytes, count):
        try:
            assert read(value, "field") > 0
        except UsageError as error:
            assert error.message.startswith("field: ")


@pytest.mark.parametrize("text", ["7d", "1h", "30m", "90s", "0s", "0.5s", "3601s", "36h"])
def test_a_duration_is_written_as_it_can_be_read_again(text: str) -> None:
    seconds = duration_s(text, allow_zero=True)
    assert duration_s(duration_text(seconds), allow_zero=True) == seconds
    assert len(duration_text(seconds)) <= len(text)

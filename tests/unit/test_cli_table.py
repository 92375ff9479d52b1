"""Tables, numbers and times as people read them (capability 9, B32)."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.views.text import format as fmt
from headway.views.text import table
from headway.views.text.table import Column, fit, layout, width

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def test_columns_that_are_equal_for_all_rows_are_said_once() -> None:
    columns = [
        Column("id"),
        Column("cluster", factor=True),
        Column("GPUs", factor=True, said="{} GPUs"),
    ]
    above, lines = layout(columns, [["a", "lab", "8"], ["b", "lab", "8"]])
    assert above == "cluster lab · 8 GPUs"
    assert lines == ["id", "a", "b"]


def test_a_single_row_keeps_its_columns() -> None:
    above, lines = layout([Column("id"), Column("cluster", factor=True)], [["a", "lab"]])
    assert (above, lines) == ("", ["id  cluster", "a   lab"])


def test_columns_without_any_value_are_left_out_and_gaps_are_marked() -> None:
    columns = [Column("id"), Column("x", right=True), Column("y"), Column("z")]
    _, lines = layout(columns, [["a", "", "", ""], ["b", "10", "", "q"]])
    assert lines == ["id   x  z", "a    —", "b   10  q"]


def test_a_narrow_terminal_drops_columns_from_the_right_and_keeps_those_that_matter() -> None:
    columns = [Column("id", keep=2), Column("wide"), Column("state", keep=1)]
    _, lines = layout(columns, [["abcde", "x" * 30, "running"]], 20)
    assert lines == ["id     state", "abcde  running"]


def test_columns_that_most_rows_have_not_and_then_others_go_before_the_note_is_cut_short() -> None:
    columns = [Column("id", keep=2), Column("lr"), Column("submitted"), Column("note", keep=1)]
    rows = [
        ["a", "0.1", "12:00:00", ""],
        ["b", "", "12:01:00", "non-finite loss at step 8123"],
        ["c", "", "12:02:00", ""],
    ]
    assert layout(columns, rows, 43)[1][2] == "b   12:01:00   non-finite loss at step 8123"
    assert layout(columns, rows, 40)[1][2] == "b   non-finite loss at step 8123"


def test_wide_characters_take_two_cells() -> None:
    assert (width("中a"), fit("中文字", 4)) == (3, "中…")


CELL = st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=30)


@given(
    st.lists(st.lists(CELL, min_size=4, max_size=4), min_size=1, max_size=6), st.integers(20, 100)
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], columns_max: int) -> None:
    columns = [
        Column("id", keep=2),
        Column("b", factor=True),
        Column("c", right=True),
        Column("note", keep=1),
    ]
    _, lines = layout(columns, rows, columns_max)
    assert all(width(line) <= columns_max for line in lines)
    assert len(lines) == len(rows) + 1


@pytest.mark.parametrize(
    ("seconds", "words", "clock"),
    [
        (0.04, "40 ms", "0:00"), (1.84, "1.8 s", "0:02"), (9.96, "10 s", "0:10"), (41, "41 s", "0:41"),
        (124, "2 min 04 s", "2:04"),
        (4320, "1 h 12 min", "1:12:00"), (100_000, "1 d 3 h", "1d 03:46"), (-5, "0 ms", "0:00"), (None, "—", "—"),
    ],
)  # fmt: skip
def test_durations_are_told_in_two_units_at_most(
    seconds: float | None, words: str, clock: str
) -> None:
    assert (fmt.duration(seconds), fmt.clock(seconds)) == (words, clock)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.031249, "0.03125"),
        (3.0, "3"),
        (1e-9, "1e-09"),
        ("NaN", "nan"),
        ("-Infinity", "-inf"),
        (2**60, str(2**60)),
        (None, "—"),
    ],
)
def test_numbers_are_short_and_never_hide_nan(value: object, shown: str) -> None:
    assert fmt.number(value) == shown


def test_ranks_are_named_in_few_words() -> None:
    assert fmt.ranks([3]) == "rank 3"
    assert fmt.ranks([3, 1, 0]) == "ranks 0, 1, 3"
    assert fmt.ranks([*range(63), 64]) == "ranks 0–62, 64"


def test_times_are_told_in_the_readers_zone_and_with_the_day_when_it_is_another() -> None:
    zone = timezone(timedelta(hours=2))
    assert fmt.local_time("2026-11-15T09:04:31.500000Z", NOW, zone) == "11:04:31"
    assert fmt.local_time("2026-11-14T09:04:31.500000Z", NOW, zone) == "2026-11-14 11:04:31"
    assert fmt.local_time("rubbish", NOW) == fmt.local_time(None, NOW) == "—"
    times = [
        "2026-11-15T09:04:31.500000Z",
        "2026-11-15T09:04:59Z",
        "2026-11-14T23:59:00.1Z",
        "2026-99-14T23:59:00Z",
    ]
    for some in (times[:3], times, [*times, "rubbish", ""]):
        assert fmt.local_times(some, NOW) == [fmt.local_time(one, NOW) for one in some]


def test_an_age_is_never_negative() -> None:
    """F26: the clock may have gone back."""
    assert fmt.age_s("2026-11-15T13:00:00Z", NOW) == 0.0


def test_how_a_process_ended_is_told_in_words() -> None:
    assert fmt.exit_words(3, None) == "exit code 3"
    assert fmt.exit_words(None, 9) == "killed by signal 9 (SIGKILL)"
    assert fmt.exit_words(None, None) == "exit code not known"


def test_paint_does_not_change_the_layout() -> None:
    _, lines = layout(
        [Column("s"), Column("x")], [["ab", "1"]], 20, {"s": lambda text: f"<{text}>"}
    )
    assert lines == ["s   x", "<ab>  1"]
    assert table.EMPTY == "—"

"""Frames of the console, head-less: golden pictures for 1 to 512 ranks, and what must hold in every
size.

After a change that is meant: `HEADWAY_GOLDEN=write python -m pytest
tests/unit/test_console_frame.py`, and look at the difference.
"""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.views.console.cells import cells, coloured, cut, flow, plain, text_of
from headway.views.console.frame import frame
from headway.views.console.job_model import Model
from headway.views.console.key_actions import press
from headway.views.console.log_buffer import Log
from headway.views.console.painter import Painter
from headway.views.console.theme import Theme
from tests.console_model import NOW, at, job, line, model

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "console"
SIZES = [(80, 24), (120, 40)]
WRITE = os.environ.get("HEADWAY_GOLDEN") == "write"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from headway.views.console.widgets import log_tail

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    log_tail.clock.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    log_tail.clock.cache_clear()


def picture(*arguments: object) -> str:
    return "\n".join(text_of(one).rstrip() for one in frame(*arguments)) + "\n"  # type: ignore[arg-type]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("ranks", [1, 4, 64, 512])
def test_a_frame_looks_as_it_did(ranks: int, size: tuple[int, int]) -> None:
    found = picture(model(ranks), size, Theme())
    file = GOLDEN / f"{ranks}-ranks-{size[0]}x{size[1]}.txt"
    if WRITE:
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.parametrize("ranks", [1, 4, 512])
@pytest.mark.parametrize("mode", ["log", "filter", "rank", "ranks", "curves", "help", "ask"])
def test_no_line_is_wider_than_the_terminal_and_no_row_is_missing(ranks: int, mode: str) -> None:
    made = model(ranks)
    made.place.mode, made.place.typed = mode, "typed text"
    for columns in (40, 41, 57, 80, 120, 300):
        for rows in (8, 12, 24, 60):
            found = frame(made, (columns, rows), Theme())
            assert len(found) == rows
            assert [text_of(one) for one in found if cells(one) > columns] == []


def test_nothing_of_a_job_steers_the_terminal() -> None:
    """Sec7, B16: only colours get through, and without colour not even these."""
    made = model(4)
    made.take(
        {
            "lines": [line("\x1b]0;title\x07\x9b2J \x1b[2J\u202egnp", 1)],
            "metrics": {"\x1b[2Jm": 1.0},
        }
    )
    made.take({"progress": [{"msg": ["\x1b[2J"], "completed": 1, "total": 2, "rank": 0}]})
    made.job["cluster"] = "\x1b]52;c;x\x07"
    for theme in (Theme(), Theme(color=False)):
        for mode in ("log", "ranks"):
            made.place.mode = mode
            for one in frame(made, (120, 40), theme):
                assert all(text.isprintable() for text, _ in one), one


def test_without_colour_the_same_words_stand_there() -> None:
    made = model(4)
    for one in frame(made, (80, 24), Theme()):
        bare = Theme(color=False).shown(one)
        assert "\x1b[3" not in bare and "\x1b[9" not in bare
    assert any("\x1b[3" in Theme().shown(one) for one in frame(made, (80, 24), Theme()))


def test_without_utf_8_all_is_ascii_and_no_wider() -> None:
    """B32."""
    theme = Theme(color=False, ascii_only=True)
    made = model(4)
    made.log.ascii_only = True
    for one in frame(made, (80, 24), theme):
        assert theme.shown(one).isascii()
        assert len(text_of(one).translate({})) <= 80


def test_what_is_not_known_takes_no_room() -> None:
    rich, poor = (
        picture(model(4), (80, 24), Theme()),
        picture(model(4, rich=False), (80, 24), Theme()),
    )
    assert "cpu" in rich and "left 1:12" in rich
    assert "cpu" not in poor and "left" not in poor.splitlines()[1]


def test_a_lost_server_is_said_on_the_first_line() -> None:
    made = model(4)
    made.lost_since = NOW
    assert "no server" in picture(made, (80, 24), Theme()).splitlines()[0]


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ({"waiting": {"ahead": 2}}, "waiting for 0:09, 2 ahead "),
        (
            {"waiting": {"attempt": 2, "next_at": at(50)}},
            "waiting for 0:09, attempt 2 at 12:04:50 ",
        ),
        (
            {"attempts": [{"number": 1}], "retries": {"next_at": at(50)}},
            "waiting for 0:09, attempt 2 at 12:04:50 ",
        ),
        ({"waiting": None, "attempts": []}, "waiting for 0:09 "),
    ],
)
def test_a_job_that_waits_says_why_and_how_long_it_waits_this_time(
    known: dict[str, object], wanted: str
) -> None:
    made = Model(
        job(1) | {"state": "waiting", "state_since": at(32)} | known, Log(), 1, "waiting", NOW
    )
    assert wanted in picture(made, (80, 24), Theme()).split("\n")[0]
    assert "it waits: hw why 7f3c2 says for what" in picture(made, (80, 24), Theme())


def test_what_a_waiting_job_lacks_stands_in_its_view() -> None:
    reason = "2 jobs run, and at most 2 may (max_running)"
    waiting = {"state": "waiting", "state_since": at(32), "waiting": {"ahead": 0, "reason": reason}}
    shown = picture(Model(job(1) | waiting, Log(), 1, "waiting", NOW), (100, 24), Theme())
    assert shown.split("\n")[0].count(reason) == 1 and f"it waits: {reason}" in shown


def test_a_job_that_is_held_says_until_when() -> None:
    made = Model(job(1) | {"state": "held", "hold": {"until": at(120)}}, Log(), 1, "held", NOW)
    assert "held until 12:06:00 " in picture(made, (80, 24), Theme()).split("\n")[0]


def test_steps_that_take_seconds_are_told_in_seconds() -> None:
    made = model(1)
    made.take(
        {
            "progress": [
                {
                    "msg": ["epochs"],
                    "completed": 2,
                    "total": 6,
                    "rate": 0.4,
                    "eta_s": 10.0,
                    "rank": 0,
                }
            ]
        }
    )
    assert "2.5 s/it  left 0:10" in picture(made, (120, 40), Theme())


def test_a_count_in_the_log_gets_no_bar_beside_those_of_the_program() -> None:
    def tracker(name: str, source: str, **more: object) -> dict[str, object]:
        return {
            "msg": [name],
            "completed": 5,
            "total": None,
            "state": "running",
            "rank": 0,
            "source": source,
            **more,
        }

    printed = [
        tracker("step", "output"),
        tracker("iter", "output", eta_s=60.0),
        tracker("bar", "output", total=9),
    ]
    made = Model(job(1), Log(), 1, "running", NOW)
    made.take({"progress": printed})
    assert "  step " in picture(made, (80, 24), Theme())
    made = Model(job(1), Log(), 1, "running", NOW)
    made.take({"progress": [*printed, tracker("train", "api")]})
    shown = picture(made, (80, 24), Theme())
    assert "  step " not in shown and all(
        f"  {name} " in shown for name in ("iter", "bar", "train")
    )


def test_quiet_and_failed_ranks_are_folded_and_named() -> None:
    made = model(64)
    made.take(
        {
            "events": [
                {"type": "process_exited", "rank": 7, "data": {"exit_code": 3, "signal": None}}
            ]
        }
    )
    shown = picture(made, (120, 40), Theme())
    assert "rank 7 failed (exit code 3)" in shown
    assert "ranks 5, 13, 21, 29, 37, 45, 53, 61 quiet for over 30 s" in shown


def test_the_slowest_rank_of_a_tracker_is_named() -> None:
    assert "rank 7 is last of 64; first 50 %" in picture(model(64), (120, 40), Theme())


def test_an_unfinished_total_has_no_percentage() -> None:
    made = model(1)
    made.take(
        {
            "progress": [
                {"msg": "items", "completed": 17, "total": None, "rank": 0, "state": "running"}
            ]
        }
    )
    assert "17 done" in picture(made, (80, 24), Theme())


def test_values_that_are_no_numbers_do_not_break_a_frame() -> None:
    made = model(2)
    made.take(
        {
            "metrics": {"loss": "NaN", "x": "Infinity", "y": None, "z": "word"},
            "usage": {"cpu_percent": "NaN"},
        }
    )
    made.take(
        {
            "progress": [
                {"msg": None, "completed": "NaN", "total": 0, "rate": "Infinity", "eta_s": "NaN"}
            ]
        }
    )
    assert "nan" in picture(made, (80, 24), Theme())


def test_a_paused_view_stands_still_while_lines_come() -> None:
    made = model(4)
    press(made, "space")
    before = picture(made, (80, 24), Theme()).splitlines()
    made.take({"lines": [line(f"new {n}", 1, 40) for n in range(50)]})
    after = picture(made, (80, 24), Theme()).splitlines()
    body = slice(8, 22)
    assert before[body] == after[body]
    assert "50 newer below" in "\n".join(after)


@given(st.text(max_size=60), st.integers(2, 50), st.integers(0, 20))
def test_cutting_never_leaves_a_line_too_wide(text: str, columns: int, skip: int) -> None:
    made = (("front ", "2"), (text, ""), ("図図", "1"))
    assert cells(cut(made, columns, skip)) <= columns


def test_colours_of_a_job_become_spans() -> None:
    assert coloured("a\x1b[31mb\x1b[1mc\x1b[0md") == (
        ("a", ""),
        ("b", "31"),
        ("c", "31;1"),
        ("d", ""),
    )


def test_items_without_room_are_counted() -> None:
    found = flow([plain("x" * 10)] * 9, 40, 1)
    assert text_of(found[0]).endswith("and 7 more") and cells(found[0]) <= 40


def test_usage_is_that_of_all_ranks_and_names_the_one_that_idles() -> None:
    made = model(4)
    used = {
        "cpu_percent": 75.0, "memory_bytes": 1 << 30, "ranks": 4, "peak_memory_bytes": 2 << 30, "peak_rank": 3,
        "spread": {"cpu_percent": {"min": 2.0, "min_rank": 2, "max": 99.0, "max_rank": 0}},
    }  # fmt: skip
    made.take({"usage": used})
    shown = picture(made, (120, 40), Theme())
    assert "cpu 300 %" in shown and "rank 2 only 2 %" in shown
    assert "memory 4.0 GiB" in shown and "rank 3 up to 2.0 GiB" in shown


def test_records_of_logging_stand_among_the_lines_unless_they_were_printed() -> None:
    made = model(4)
    record = {
        "levelno": 30,
        "level": "WARNING",
        "rank": 1,
        "printed": False,
        "time": line("", seconds=40.5)["time"],
    }
    records = [
        {**record, "text": "disk is slow\nsecond line"},
        {**record, "text": "seen already", "printed": True},
    ]
    made.take({"lines": [line("before", 1, 40), line("after", 1, 41)], "records": records})
    last = [entry.text for entry in made.log.shown][-4:]
    assert last == ["before", "WARNING disk is slow", "second line", "after"]
    assert "seen already" not in picture(made, (120, 40), Theme())


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (20, 4), (30, 6)])
def test_a_window_that_was_made_tiny_breaks_nothing(size: tuple[int, int]) -> None:
    made = model(4)
    for mode in ("log", "filter", "rank", "ranks", "ask"):
        made.place.mode = mode
        lines = frame(made, size, Theme())
        assert len(lines) == size[1]
        Painter(Theme()).paint(lines, size)


def test_trackers_of_earlier_epochs_make_room_for_those_that_run() -> None:
    made = model(2)
    done = [
        {"msg": ["data"], "completed": 8, "total": 8, "state": "completed", "rank": rank}
        for rank in (0, 1)
    ] * 9
    old = [
        {"msg": [f"warm-up {n}"], "completed": 8, "total": 8, "state": "completed", "rank": 0}
        for n in range(9)
    ]
    now = [
        {"msg": ["data"], "completed": 2 + rank, "total": 8, "state": "running", "rank": rank}
        for rank in (0, 1)
    ]
    made.take({"progress": [*done, *old, *now]})
    shown = picture(made, (120, 24), Theme())
    assert "25 %  2/8" in shown and "rank 0 is last of 2; first 37 %" in shown
    assert "done: warm-up 0 … warm-up 8 (9)" in shown and "trackers more" not in shown
    made.take({"progress": old})
    assert "warm-up 8  ━" in picture(made, (120, 24), Theme())


def test_a_server_that_lags_makes_nobody_quiet() -> None:
    """Silence is judged by the newest that is known of the job, not by the clock of whoever
    watches.
    """
    made = model(8)
    made.take({"usage": {"time": at(40), "cpu_percent": 1.0, "ranks": 8}})
    for rank in range(8):
        made.take({"lines": [line("here", rank, 39)]})
    made.now = NOW + timedelta(minutes=5)
    assert "quiet" not in picture(made, (120, 40), Theme(False))
    made.take(
        {"usage": {"time": at(80), "cpu_percent": 1.0, "ranks": 8}, "lines": [line("here", 2, 80)]}
    )
    assert "ranks 0, 1, 3–7 quiet for over 30 s" in picture(made, (120, 40), Theme(False))


def test_a_job_whose_usage_nobody_samples_is_judged_by_our_clock_while_the_server_is_there() -> (
    None
):
    made = model(2, rich=False)
    made.now = NOW + timedelta(minutes=5)
    assert "quiet for over 2 min" in picture(
        made, (120, 40), Theme(False)
    ) or "quiet for over 5 min" in picture(made, (120, 40), Theme(False))
    made.lost_since = NOW
    assert "quiet" not in picture(made, (120, 40), Theme(False))


def test_whole_curves_take_the_place_of_what_came_live_and_no_sample_counts_twice() -> None:
    made = model(1)
    samples = [(at(n), 1000.0 * n) for n in range(8)]
    for when, value in samples[:2] + samples[7:]:  # between them nobody was there
        made.take({"usage": {"time": when, "memory_bytes": value}, "metrics": {"loss": value}})
    points = {"time": [when for when, _ in samples], "value": [value for _, value in samples]}
    made.take_curves(
        {"usage": {"memory_bytes": points}, "metrics": {"loss": [points], "new": [points]}}
    )
    made.take({"usage": {"time": at(7), "memory_bytes": 7000.0}})
    # a place is a quarter of a second
    whole = [1000.0 * n for n in range(8) for _ in range(4)][:29]
    assert (
        made.usage_curves["memory_bytes"].values() == whole == made.metrics["loss"].curve.values()
    )
    assert (made.metrics["loss"].last, made.metrics["new"].last) == (7000.0, 7000.0)
    made.take({"usage": {"time": at(8), "memory_bytes": 8000.0}})
    assert made.usage_curves["memory_bytes"].values()[-1] == 8000.0


def test_a_view_that_is_scrolled_back_stays_where_it_is_when_late_lines_find_their_place() -> None:
    made = model(2)
    for number in range(50):
        made.take({"lines": [line(f"line {number}", 0, 50 + number)]})
    made.place.bottom = made.log.end - 10
    made.take({"lines": [line("late", 1, 70.5)]})
    below = made.log.shown[made.place.bottom - made.log.first].text
    made.take_curves({})
    found = [entry.text for entry in made.log.shown]
    assert found.index("line 20") + 1 == found.index("late")
    assert abs(found.index(below) - (made.place.bottom - made.log.first)) <= 1


def test_before_the_first_answer_nobody_is_called_quiet() -> None:
    made = Model(job(8), Log(), 8, "running", NOW + timedelta(minutes=5))
    assert "quiet" not in picture(made, (120, 40), Theme(False))
    made.take({"state": "running"})
    assert "all ranks quiet for over 5 min" in picture(made, (120, 40), Theme(False))

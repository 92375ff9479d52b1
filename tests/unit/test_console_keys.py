"""Keys: from bytes to names, and what each does."""

import pytest

from headway.views.console.cells import REVERSE, cells, text_of
from headway.views.console.frame import frame
from headway.views.console.job_model import Model
from headway.views.console.key_actions import INTERRUPT, LEAVE, TERMINATE, press
from headway.views.console.keys import Keys
from headway.views.console.screen import GONE
from headway.views.console.text_filter import found_in
from headway.views.console.theme import Theme
from tests.console_model import model


def typed(made: Model, *keys: str) -> str | None:
    word = None
    for key in keys:
        frame(made, (80, 24), Theme())
        word = press(made, key)
    return word


def test_bytes_become_keys_however_they_are_cut() -> None:
    data = b"a\x1b[A\x1bOB\x1b[5~\r \x7f\x03\xe5\x9b\xb3q"
    wanted = ["a", "up", "down", "pgup", "enter", "space", "backspace", "ctrl-c", "図", "q"]
    assert Keys().feed(data) == wanted
    one_by_one = Keys()
    assert [key for n in range(len(data)) for key in one_by_one.feed(data[n : n + 1])] == wanted


def test_an_escape_alone_is_a_key_once_nothing_follows() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b") == [] and keys.waits
    assert keys.flush() == ["esc"] and not keys.waits
    assert keys.feed(b"\x1b[") == [] and keys.flush() == []


def test_unknown_sequences_and_garbage_are_nothing() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b[<0;10;10M\x1b[99~\x00\xff\xfex\x1b]11;rgb:0/0/0\x07") == ["x"]
    assert keys.feed(b"\x1b[" + b"1" * 5000 + b"z") != ["never"] and not keys.flush()


def test_ctrl_c_asks_and_a_second_one_interrupts() -> None:
    made = model(4)
    assert typed(made, "ctrl-c") is None and made.place.mode == "ask"
    assert typed(made, "ctrl-c") == INTERRUPT and made.place.mode == "log"


def test_the_next_ctrl_c_after_an_interrupt_terminates_unless_the_job_is_only_watched() -> None:
    made, watched = model(4), model(4)
    watched.watched = True
    assert typed(made, "ctrl-c", "i", "ctrl-c") == TERMINATE
    assert text_of(frame(made, (80, 24), Theme())[-1]).endswith("ctrl-c terminate")
    assert typed(watched, "x", "i") == INTERRUPT and watched.place.mode == "log"


def test_what_headway_says_itself_is_called_so_once() -> None:
    for ranks, wanted in ((1, "│ hw: interrupting"), (2, "hw │ interrupting")):
        made = model(ranks)
        made.log.add("hw: interrupting")
        assert text_of(frame(made, (80, 24), Theme())[-2]).endswith(wanted)


@pytest.mark.parametrize(
    ("key", "word"), [("i", INTERRUPT), ("t", TERMINATE), ("q", LEAVE), ("esc", None)]
)
def test_every_answer_to_the_question_does_what_it_says(key: str, word: str | None) -> None:
    made = model(4)
    assert typed(made, "ctrl-c", "x", key) == word
    assert made.place.mode == "log"


def test_q_leaves_but_not_while_typing() -> None:
    made = model(4)
    assert typed(made, "/", "q") is None and made.place.typed == "q"
    assert typed(made, "enter") is None and made.log.choice.text == "q"
    assert typed(made, "q") == LEAVE


def test_a_filter_is_typed_shown_and_cleared() -> None:
    made = model(4)
    typed(made, "/", *"Lossy", "backspace", "enter")
    assert made.log.choice.text == "Loss" and all("loss" in entry.text for entry in made.log.shown)
    typed(made, "esc")
    assert made.log.choice.text == "" and len(made.log.shown) > 20


def test_one_rank_is_opened_by_number_and_from_the_list() -> None:
    made = model(64)
    typed(made, "r", *"2x", "enter")
    assert made.log.choice.rank == 2
    typed(made, "esc", "enter", "down", "down", "down", "up", "enter")
    assert (made.log.choice.rank, made.place.mode) == (2, "log")
    typed(made, "enter", "end", "enter")
    assert made.log.choice.rank == 63


def test_a_rank_that_is_not_there_is_said_beside_the_question_and_another_may_be_typed() -> None:
    made = model(2)
    typed(made, "r", "9", "enter")
    wanted = " show one rank, 0 to 1:     there is no rank 9"
    assert text_of(frame(made, (80, 24), Theme())[-1]) == wanted and made.log.choice.rank is None
    typed(made, "²", "1")
    assert "there is no rank" not in "".join(text_of(one) for one in frame(made, (80, 24), Theme()))
    typed(made, "enter")
    assert (made.log.choice.rank, made.place.mode) == (1, "log")


def test_levels_go_round() -> None:
    made = model(4)
    assert [typed(made, "l") or made.log.choice.level for _ in range(4)] == [20, 30, 40, 0]


def test_scrolling_back_holds_and_the_end_follows_again() -> None:
    made = model(4)
    typed(made, "pgup")
    assert made.place.bottom is not None and made.place.bottom < made.log.end
    typed(made, "home", "up", "up")
    assert made.place.bottom == made.log.first + made.place.page
    typed(made, "end")
    assert made.place.bottom is None
    typed(made, "up", "down")
    assert made.place.bottom is None


def test_a_short_log_cannot_be_scrolled_away() -> None:
    made = model(1)
    typed(made, "/", *"loading", "enter", "pgup", "up")
    assert made.place.bottom is None
    typed(made, "right")
    assert made.place.pan == 0


@pytest.mark.parametrize("back", ["home", "end", "esc"])
def test_sideways_goes_as_far_as_the_longest_line_in_sight_and_back_with_one_key(back: str) -> None:
    made = model(1)
    made.log.add("y" * 99 + "z", 0)
    made.log.add("short", 0)
    typed(made, "/", *"yz", "enter", *["right"] * 9)
    lines = [text_of(one) for one in frame(made, (80, 24), Theme())]
    assert [one[-2:] for one in lines if " │ y" in one] == ["yz"] and made.place.pan == 100 - (
        80 - len("12:04:39 │ ")
    )
    assert any("from column 32" in one for one in lines)
    typed(made, "left")
    assert made.place.pan == 15
    typed(made, back)
    assert made.place.pan == 0 and not any(
        "from column" in text_of(one) for one in frame(made, (80, 24), Theme())
    )


def test_lines_that_come_while_it_is_scrolled_sideways_are_not_hidden() -> None:
    made = model(1)
    made.log.add("y" * 200, 0)
    typed(made, *["right"] * 9)
    for number in range(50):
        made.log.add(f"line {number}", 0)
    assert text_of(frame(made, (80, 24), Theme())[-2]).endswith("│ line 49")


def test_left_scrolls_back_and_is_not_the_word_for_a_terminal_that_has_gone() -> None:
    assert GONE not in Keys().feed(b"\x1b[D\x1bOD\x1b[C")
    made = model(1)
    made.log.add("x" * 500)
    assert typed(made, "right", "right", "left", "left") is None and made.place.pan == 0


def test_two_ctrl_c_leave_a_viewer_and_never_touch_the_job() -> None:
    made = model(2)
    made.watched = True
    assert typed(made, "ctrl-c") is None and "ctrl-c again leaves" in made.notice
    assert typed(made, "ctrl-c") == LEAVE
    again = model(2)
    again.watched = True
    assert typed(again, "ctrl-c", "down") is None and not again.notice
    assert typed(again, "ctrl-c") is None and typed(again, "x", "ctrl-c") == LEAVE


def test_a_filter_acts_with_each_key_and_marks_what_it_found() -> None:
    made = model(4)
    typed(made, "/", *"los")
    assert made.place.mode == "filter" and all("los" in entry.text for entry in made.log.shown)
    lines = frame(made, (80, 24), Theme())
    assert any(span == ("los", REVERSE) for line in lines for span in line)
    typed(made, "backspace", "backspace", "backspace")
    assert len(made.log.shown) > 20


def test_a_filter_knows_or_anything_and_the_ends_of_a_line() -> None:
    assert found_in("warn|error", "an ERROR") and not found_in("warn|error", "fine")
    assert found_in("^step.*loss", "step 3 loss 0.1") and not found_in("^loss", "step 3 loss")
    assert found_in("0.1$", "loss 0.1") and not found_in("0.1$", "loss 0.12")
    assert found_in("(a|a)*", "x(a") and found_in("", "all") and found_in("|", "all")


def test_a_filter_cannot_be_made_to_backtrack() -> None:
    """A-1: a pattern that takes exponential time would freeze the view."""
    assert not found_in("(a|aa)*!" + ".*a" * 40 + "!", "a" * 4000)


def test_esc_goes_back_step_by_step_and_from_a_listed_job_to_the_list() -> None:
    made = model(2)
    typed(made, "/", *"loss", "enter")
    assert typed(made, "esc") is None and made.log.choice.text == ""
    assert typed(made, "esc") is None
    made.listed = True
    assert typed(made, "esc") == LEAVE


def test_help_shows_all_keys_and_any_key_closes_it() -> None:
    made = model(2)
    typed(made, "?")
    shown = "\n".join(text_of(line) for line in frame(made, (100, 30), Theme()))
    assert "the rest of long lines" in shown and "one step back" in shown
    assert typed(made, "z") is None and made.place.mode == "log"


@pytest.mark.parametrize("size", [(40, 8), (80, 24), (200, 60)])
def test_curves_fill_the_room_of_the_log(size: tuple[int, int]) -> None:
    made = model(2)
    typed(made, "c")
    for theme in (Theme(), Theme(ascii_only=True)):
        lines = frame(made, size, theme)
        assert len(lines) == size[1] and max(cells(line) for line in lines) <= size[0]
    assert typed(made, "esc") is None and made.place.mode == "log"

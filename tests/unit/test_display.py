"""Text for terminals: nothing that a job, a name or a server says can steer the terminal or hide
itself (Sec7).
"""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.limits import DISPLAY_LINE_CHARS_MAX
from headway.wire import display

SGR = re.compile(r"\x1b\[[0-9;:]*m")
# Text that leans towards the dangerous: escape sequences in pieces, C1, bidi, zero-width,
# surrogates.
PIECES = st.sampled_from(
    ["\x1b", "\x1b[", "\x1b[2K", "\x1b[31m", "\x1b[0m", "\x1b[8m", "\x1b]52;c;aGk=\x07", "\x9b31m", "\x9d", "\r", "\n",
     "\t", "\0", "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u2028", "\ud800", "\u3164", "\U000e0041", "\x7f",
     "a", "é", "中"]
)  # fmt: skip
WILD = st.lists(st.one_of(PIECES, st.text(max_size=8), st.characters()), max_size=40).map("".join)


def assert_harmless(text: str, *, color: bool) -> None:
    rest = SGR.sub("", text) if color else text
    for char in rest:
        assert char == "\t" or char.isprintable() or unicodedata.category(char) == "Zs", repr(char)
        assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or char == "\t", (
            repr(char)
        )


@given(WILD, st.booleans(), st.booleans())
def test_no_control_character_ever_passes(text: str, color: bool, ascii_only: bool) -> None:
    shown = display.line(text, color=color, ascii_only=ascii_only)
    assert_harmless(shown, color=color)
    assert "\n" not in shown
    if ascii_only:
        assert shown.isascii()


@given(WILD)
def test_a_block_keeps_its_newlines_and_nothing_else(text: str) -> None:
    shown = display.block(text)
    assert shown.count("\n") == text.count("\n")
    assert_harmless(shown.replace("\n", ""), color=False)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_can_be_shown(data: bytes, color: bool) -> None:
    """B8: what is no UTF-8 is replaced, and only in what is shown."""
    assert_harmless(display.line(display.decode(data), color=color), color=color)


@given(
    st.text(
        alphabet=st.characters(
            categories=("L", "N", "P", "S"), exclude_characters="\u115f\u1160\u3164\uffa0"
        )
    )
)
def test_printable_text_is_shown_as_it_is(text: str) -> None:
    assert display.line(text) == text


@given(WILD)
def test_what_is_safe_stays_as_it_is(text: str) -> None:
    once = display.line(text)
    assert display.line(once, limit=10 * DISPLAY_LINE_CHARS_MAX) == once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),  # clipboard
        ("\x1b]8;;http://x\x1b\\y", "␛]8;;http://x␛\\y"),  # link
        ("\x1b[2J\x1b[H", "␛[2J␛[H"),  # clear screen
        ("\x1b[6n", "␛[6n"),  # device query
        ("\x9b31m", "\\x9b31m"),  # C1
        ("a\0b", "a␀b"),  # B7
        ("abc\u202edef", "abc<U+202E>def"),
        ("zero\u200bwidth", "zero<U+200B>width"),
        ("\ud800", "<U+D800>"),
        ("[/foo] [link=x]", "[/foo] [link=x]"),  # B17: markup is text
        ("a\tb", "a\tb"),
        # a bar of rich
        ("\r\x1b[2K\x1b[1A\x1b[2Kone 5 %\r\x1b[2K\x1b[1A\x1b[2K\x1b[?25lone 6 %", "one 6 %"),
        ("secret\x1b[2Kfine", "secret␛[2Kfine"),  # which would hide what stands before it
        ("\x1b[?1049hx", "␛[?1049hx"),
    ],
)
def test_escape_sequences_are_shown_instead_of_obeyed(text: str, shown: str) -> None:
    """B16, B17."""
    assert display.line(text, color=True) == shown


def test_colour_passes_only_where_colour_is_wanted_and_never_leaks_into_the_next_line() -> None:
    assert display.line("\x1b[1;31mred\x1b[0m") == "red"
    assert display.line("\x1b[1;31mred", color=True) == "\x1b[1;31mred\x1b[0m"
    assert display.line("\x1b[38;5;196mx", color=True) == "\x1b[38;5;196mx\x1b[0m"
    assert display.line("\x1b[38;2;1;2;3mx", color=True) == "\x1b[38;2;1;2;3mx\x1b[0m"


@pytest.mark.parametrize(
    "code", ["8", "5", "6", "31;8", "38;5", "38;5;999", "38;7;1", "999", "1;;8", "11", "51"]
)
def test_concealing_and_unknown_styles_are_no_colour(code: str) -> None:
    assert "\x1b" not in display.line(f"\x1b[{code}mhidden", color=True)


def test_a_progress_bar_collapses_to_its_last_state() -> None:
    """B15."""
    bar = "".join(f"\r{i / 1000:6.1f} %" for i in range(100_001))
    assert display.line(bar) == " 100.0 %"
    assert display.line("text\r") == "text"
    assert display.line("\r\r\r") == ""


def test_a_long_line_is_cut_and_says_so() -> None:
    shown = display.line("x" * 1_000_000)
    assert (
        shown
        == "x" * DISPLAY_LINE_CHARS_MAX
        + f"… ({1_000_000 - DISPLAY_LINE_CHARS_MAX} more characters)"
    )


def test_without_utf_8_every_mark_is_ascii() -> None:
    assert display.line("\x1b[2J\0é中\x7f", ascii_only=True) == "^[[2J^@\\xe9<U+4E2D>^?"

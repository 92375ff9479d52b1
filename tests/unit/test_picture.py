"""The small terminal that pictures are made from shows what a real one would."""

from tools.picture import words
from tools.screen import Screen


def shown(text: str, columns: int = 20) -> list[str]:
    screen = Screen(columns)
    screen.feed(text)
    return ["".join(character for character, _ in row).rstrip() for row in screen.lines()]


def test_lines_wrap_and_return() -> None:
    assert shown("one\r\ntwo\r\n") == ["one", "two"]
    assert shown("abcdef", columns=4) == ["abcd", "ef"]
    assert shown("50 %\r100 %\r\n") == ["100 %"]
    assert shown("a\tb") == ["a       b"]


def test_a_redrawn_block_is_seen_once() -> None:
    assert shown("a\r\nb\r\n\x1b[2A\x1b[Jc\r\nd\r\n") == ["c", "d"]
    assert shown("progress 1\x1b[2K\rdone") == ["done"]
    assert shown("abc\x1b[2Dx\x1b[K") == ["ax"]


def test_colours_belong_to_characters() -> None:
    screen = Screen(20)
    screen.feed("\x1b[1;31mno\x1b[0m \x1b[38;5;200mx\x1b[92my")
    styles = [style for _, style in screen.lines()[0]]
    assert (styles[0].color, styles[0].bold) == (1, True)
    assert (styles[2].color, styles[3].color, styles[4].color) == (None, None, 10)


def test_other_sequences_leave_no_trace() -> None:
    assert shown("\x1b]0;title\x07a\x1b[?25lb\x1b7\x07c") == ["abc"]


def test_words_keep_their_columns_without_the_spaces_between_them() -> None:
    screen = Screen(40)
    screen.feed("  two words   日本 x")
    assert words(screen.lines()[0]) == [(2, 9, "two words"), (14, 6, "日本 x")]

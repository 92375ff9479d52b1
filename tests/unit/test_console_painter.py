"""The painter: what it sends makes the terminal show the frame, and no more than what changed is
sent.
"""

from hypothesis import given
from hypothesis import strategies as st

from headway.views.console.cells import Line, plain
from headway.views.console.frame import frame
from headway.views.console.painter import ENTER, LEAVE, Painter
from headway.views.console.theme import Theme
from headway.views.console.widgets.curve import PLACES, Curve, blocks
from tests.console_model import line, model
from tools.screen import Screen


def rows(screen: Screen) -> list[str]:
    return ["".join(character for character, _ in row).rstrip() for row in screen.lines()]


def test_a_frame_arrives_as_it_was_made() -> None:
    made, painter, screen = model(4), Painter(Theme()), Screen(80)
    screen.feed(ENTER.decode())
    for n in range(5):
        lines = frame(made, (80, 24), Theme())
        screen.feed(painter.paint(lines, (80, 24)).decode())
        wanted = ["".join(text for text, _ in one).rstrip() for one in lines]
        assert [row.replace("図", "") for row in rows(screen)] == [
            row.replace("図", "") for row in wanted
        ]
        made.take({"lines": [line(f"more {n}", n % 4)]})


def test_what_has_not_changed_is_not_sent() -> None:
    painter = Painter(Theme())
    first: list[Line] = [plain(f"row {n}") for n in range(24)]
    assert len(painter.paint(first, (80, 24))) > 200
    assert painter.paint(list(first), (80, 24)) == b""
    second = [*first[:5], plain("other"), *first[6:]]
    sent = painter.paint(second, (80, 24))
    assert b"\x1b[6;1Hother" in sent and b"row" not in sent


def test_another_size_and_ctrl_l_draw_all_of_it() -> None:
    painter, lines = Painter(Theme()), [plain("a"), plain("b")]
    painter.paint(lines, (80, 2))
    assert b"\x1b[2J" in painter.paint(lines, (81, 2))
    painter.forget()
    assert b"\x1b[2J" in painter.paint(lines, (81, 2))


@given(
    st.lists(
        st.lists(st.text("ab図 é", max_size=12), min_size=3, max_size=3), min_size=2, max_size=5
    )
)
def test_any_sequence_of_frames_ends_as_the_last_one(frames: list[list[str]]) -> None:
    painter, screen = Painter(Theme()), Screen(40)
    for texts in frames:
        screen.feed(painter.paint([plain(text) for text in texts], (40, 3)).decode())
    fresh = Screen(40)
    fresh.feed(Painter(Theme()).paint([plain(text) for text in frames[-1]], (40, 3)).decode())
    assert rows(screen) == rows(fresh)


def test_leaving_undoes_every_mode_that_entering_sets() -> None:
    for mode in (b"?1049", b"?25", b"?7"):
        assert (mode in ENTER) and (mode in LEAVE)
    assert LEAVE.index(b"?25h") and LEAVE.endswith(b"?1049l")


def test_a_curve_keeps_its_whole_time_in_few_places() -> None:
    curve = Curve()
    for second in range(100_000):
        curve.add(float(second), float(second))
    values = curve.values()
    assert PLACES // 2 <= len(values) <= PLACES
    assert values == sorted(values) and values[0] < 5000 and values[-1] > 95_000


def test_a_curve_forgives_nan_gaps_and_clocks_that_go_back() -> None:
    curve = Curve()
    for time_s, value in ((5.0, 1.0), (6.0, float("nan")), (2.0, 3.0), (900.0, 5.0)):
        curve.add(time_s, value)
    values = curve.values()
    assert values[0] == 2.0 and values[-1] == 5.0 and len(values) <= PLACES


def test_blocks_go_from_the_smallest_to_the_largest() -> None:
    assert blocks([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert blocks([7, 7, 7], 8) == "" and blocks([1], 8) == ""
    assert len(blocks(list(range(1000)), 10)) == 10

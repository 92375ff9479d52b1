"""Bars that were drawn again and again are their last state, in what `hw logs` and views show."""

from headway.views.console.log_buffer import Log
from headway.views.text import html_log
from headway.views.text.redraw import Redraws, counted, folded
from headway.wire import display

UP = "\r\x1b[2K\x1b[1A\x1b[2K"  # as rich goes one row up


def line(
    text: str, *, rank: int = 0, stream: str = "stdout", open: bool = False
) -> dict[str, object]:
    return {"rank": rank, "stream": stream, "task": "worker-0", "attempt": 1, "text": text, "open": open}  # fmt: skip


def texts(lines: list[dict[str, object]]) -> list[str]:
    return [display.line(str(one["text"])) for one in lines]


def shown(log: Log) -> list[str]:
    return [entry.text for entry in log.shown]


def test_a_bar_without_end_waits_and_is_drawn_meanwhile() -> None:
    redraws = Redraws()
    assert redraws.settled([line("\repoch 0: 10%", open=True)]) == []
    assert texts(redraws.drawn) == ["epoch 0: 10%"]
    assert redraws.settled([line("\repoch 0: 50%", open=True)]) == []
    assert texts(redraws.drawn) == ["epoch 0: 50%"]
    done = redraws.settled([line("\repoch 0: 100%"), line("\repoch 1: 0%", open=True)])
    assert texts(done) == ["epoch 0: 100%"]
    assert texts(redraws.drawn) == ["epoch 1: 0%"]
    assert texts(redraws.settled([], final=True)) == ["epoch 1: 0%"]


def test_the_end_of_an_open_line_alone_adds_no_empty_line() -> None:
    redraws = Redraws()
    redraws.settled([line("\repoch 0: 100%", open=True)])
    assert texts(redraws.settled([line(""), line("next")])) == ["epoch 0: 100%", "next"]


def test_a_line_written_in_pieces_is_one() -> None:
    redraws = Redraws()
    redraws.settled([line("loading ", open=True)])
    assert texts(redraws.settled([line("done")])) == ["loading done"]


def test_rows_that_a_program_goes_up_to_are_drawn_over() -> None:
    frames = [line("train 0%"), line(f"val 0%{UP}train 50%"), line(f"val 50%{UP}step 10")]
    frames += [line("train 100%"), line("val 100%"), line("done")]
    assert texts(folded(frames)) == ["step 10", "train 100%", "val 100%", "done"]


def test_a_drawing_is_kept_back_until_it_is_out_of_reach() -> None:
    redraws = Redraws()
    redraws.settled([line("\x1b[?25l\rtrain 0%"), line(f"val 0%{UP}train 50%")])
    assert texts(redraws.drawn) == ["train 50%"]
    last = redraws.settled([line("val 50%"), line("\x1b[?25hdone")])
    assert texts(last) == ["train 50%", "val 50%", "done"]


def test_ranks_and_streams_draw_over_their_own_rows_only() -> None:
    lines = [line("a", rank=1), line("bar", stream="stderr"), line(f"{UP}bar 2", stream="stderr")]
    assert texts(folded(lines)) == ["a", "bar 2"]


def test_the_same_line_again_and_again_is_counted() -> None:
    lines = [line("x")] * 200 + [line("y")]
    assert texts(counted(lines)) == ["x  ×200", "y"]


def test_the_live_view_keeps_a_finished_bar_when_the_next_one_begins() -> None:
    log = Log()
    for one in (line("\rbar 0: 50%", open=True), line("\rbar 0: 100%"), line("\rbar 1: 0%", open=True)):  # fmt: skip
        log.add_line(one)
    assert shown(log) == ["bar 0: 100%", "bar 1: 0%"]


def test_the_live_view_folds_rows_that_are_drawn_over() -> None:
    log = Log()
    log.add_line(line("train 0%"))
    for share in (25, 50, 75):
        log.add_line(line(f"val{UP}train {share}%"))
    log.add_line(line("val 75%"))
    assert shown(log) == ["train 75%", "val 75%"]
    assert len(log.kept) == 2
    assert log.total == 2


def test_the_live_view_folds_them_also_between_lines_of_other_ranks() -> None:
    log = Log()
    log.add_line(line("train 0%"))
    log.add_line(line("hello", rank=1))
    log.add_line(line(f"val{UP}train 50%"))
    assert sorted(shown(log)) == ["hello", "train 50%"]


def test_lines_that_differ_in_the_clock_of_each_rank_are_one_in_the_live_view() -> None:
    log = Log()
    for rank in range(4):
        log.add_line(line(f"2026-01-01 10:00:00,{rank}65 step 1", rank=rank))
    assert len(log.shown) == 1 and log.shown[0].ranks == [0, 1, 2, 3]
    log.add_line(line("2026-01-01 10:00:09,965 step 1", rank=3))  # a rank's own clock counts
    assert len(log.shown) == 2


def test_a_log_as_a_page_keeps_colours_and_runs_nothing() -> None:
    page = "".join(html_log.render("a<b", ["x"], [line("\x1b[31mred\x1b[0m <script>\x1b]0;t\x07")]))
    assert '<span style="color:#c0392b">red</span>' in page
    assert "&lt;script&gt;" in page and "<script" not in page and "\x1b" not in page

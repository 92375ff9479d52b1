"""Folding, filtering and levels of the console's log."""

from hypothesis import given
from hypothesis import strategies as st

from headway.model.limits import CONSOLE_BURST_LINES_MAX, CONSOLE_LINES_MAX
from headway.views.console.feed import thinned
from headway.views.console.log_buffer import NOBODY, Choice, Log
from headway.views.console.widgets.log_tail import who
from tests.console_model import line, model


def filled(*said: tuple[int, str]) -> Log:
    log = Log()
    for rank, text in said:
        log.add_line(line(text, rank))
    return log


def shown(log: Log) -> list[tuple[list[int], str, int]]:
    return [(entry.ranks, entry.text, entry.count) for entry in log.shown]


def test_the_same_text_of_several_ranks_is_one_entry() -> None:
    log = filled((0, "a"), (1, "a"), (0, "b"), (2, "a"), (1, "b"), (2, "b"))
    assert shown(log) == [([0, 1, 2], "a", 3), ([0, 1, 2], "b", 3)]


def test_a_line_again_and_again_is_counted() -> None:
    assert shown(filled((0, "x"), (0, "x"), (0, "x"), (0, "y"), (0, "x"))) == [
        ([0], "x", 3), ([0], "y", 1), ([0], "x", 1),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=60))
def test_folding_keeps_the_order_of_every_rank_and_loses_no_line(
    said: list[tuple[int, str]],
) -> None:
    log = filled(*said)
    assert sum(entry.count for entry in log.shown) == len(said)
    for rank in range(4):
        wanted = [text for one, text in said if one == rank]
        squeezed = [text for n, text in enumerate(wanted) if n == 0 or wanted[n - 1] != text]
        found = [entry.text for entry in log.shown if rank in entry.ranks]
        assert [text for n, text in enumerate(found) if n == 0 or found[n - 1] != text] == squeezed


def test_a_progress_bar_takes_one_line() -> None:
    """B15: `\\r` states that come one by one replace each other; a whole line before them stays."""
    log = filled((0, "epoch 1"))
    for n in range(100):
        log.add_line({**line(f"\r {n} %", 0), "open": True})
    log.add_line(line("", 0))  # its line end
    log.add_line(line("done", 0))
    assert [text for _, text, _ in shown(log)] == ["epoch 1", " 99 %", "done"]
    assert len(log.kept) == 3


def test_a_filter_of_text_rank_and_level_is_applied_to_what_came_and_what_comes() -> None:
    log = filled((0, "loss 1"), (1, "LOSS 2"), (1, "other"), (1, "ERROR bad"))
    log.choose(Choice(text="loss"))
    assert [text for _, text, _ in shown(log)] == ["loss 1", "LOSS 2"]
    log.add_line(line("loss 3", 0))
    log.choose(Choice(rank=1))
    assert [text for _, text, _ in shown(log)] == ["LOSS 2", "other", "ERROR bad"]
    log.choose(Choice(level=40))
    assert [text for _, text, _ in shown(log)] == ["ERROR bad"]


def test_frames_of_a_traceback_have_its_level() -> None:
    log = filled(
        (0, "Traceback (most recent call last):"),
        (1, "fine"),
        (0, '  File "a.py"'),
        (0, "ValueError: no"),
    )
    assert [said.level for said in log.kept] == [40, 20, 40, 40]


def test_memory_is_bounded_and_numbers_stay() -> None:
    log = Log()
    for n in range(CONSOLE_LINES_MAX * 2):
        log.add_line(line(str(n)))
    assert len(log.kept) == CONSOLE_LINES_MAX and len(log.shown) <= CONSOLE_LINES_MAX * 5 // 4
    assert log.end == log.total and log.shown[-1].text == str(log.total - 1)


def test_an_absurd_rank_is_nobodys() -> None:
    log = filled((10**12, "x"))
    assert shown(log) == [([NOBODY], "x", 1)]


def test_ranks_in_front_of_a_line_are_short() -> None:
    log = filled(
        (0, "a"), (1, "a"), (2, "b"), (0, "c"), (2, "c"), (3, "c"), *((n, "d") for n in range(8))
    )
    assert [who(entry, 8) for entry in log.shown] == ["0–1", "2", "0+2", "all"]
    log.add("hw: said by us")
    assert who(log.shown[-1], 8) == "hw"


def test_a_burst_is_thinned_and_counted() -> None:
    answer = thinned({"lines": [line(f"n {n}") for n in range(CONSOLE_BURST_LINES_MAX + 123)]})
    made = model(1)
    before = made.log.total
    made.take(answer)
    assert made.log.total - before == CONSOLE_BURST_LINES_MAX + 123
    assert "… 123 lines went by too fast; hw logs has them" in [
        entry.text for entry in made.log.shown
    ]
    assert made.log.shown[-1].text == f"n {CONSOLE_BURST_LINES_MAX + 122}"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_lines_that_came_late_find_their_place_and_a_ranks_own_order_stays(
    said: list[tuple[int, int]],
) -> None:
    log, clocks = Log(), dict[int, int]()
    for number, (rank, step) in enumerate(said):
        clocks[rank] = clocks.get(rank, 0) + step
        log.add(f"{rank}:{number}", rank, time=f"2026-11-15T12:{clocks[rank]:04d}Z")
    log.settle()
    times = [one.time or "" for one in log.kept]
    assert times == sorted(times) and not log.settle()
    for rank in clocks:
        mine = [int(one.text.partition(":")[2]) for one in log.kept if one.rank == rank]
        assert mine == [number for number, (whose, _) in enumerate(said) if whose == rank]
    assert sum(entry.count for entry in log.shown) == len(said)

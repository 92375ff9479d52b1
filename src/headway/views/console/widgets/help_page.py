"""The page of keys that `?` shows, of one job and of the list of jobs."""

from typing import Final

from headway.views.console.cells import BOLD, DIM, Line, cut, plain

Row = tuple[str, str]
_SCROLLING: Final[tuple[Row, ...]] = (
    ("↑ ↓ k j  PgUp PgDn b", "scroll back and forth"),
    ("Home g  End G", "to the oldest and the newest line"),
    ("← →", "the rest of long lines"),
    ("space", "pause and go on; nothing is lost meanwhile"),
)
_CHOOSING: Final[tuple[Row, ...]] = (
    ("/", "only lines with this text, as you type: | or, .* anything, ^ $ ends of the line"),
    ("l", "only info and above, warnings and errors, errors; then all"),
    ("r", "only one rank, by its number"),
    ("enter", "the list of ranks; enter opens one"),
    ("c", "the curves in place of the log"),
)
JOB: Final[tuple[Row, ...]] = (
    *_CHOOSING,
    *_SCROLLING,
    ("esc", "one step back: all lines, the newest line, the list"),
    ("x", "stop the job: asks whether to interrupt or to terminate it"),
    ("q", "leave; the job goes on"),
)
CTRL_C_RUN: Final[Row] = ("ctrl-c", "asks what to do with the job; a second one interrupts it")
CTRL_C_WATCH: Final[Row] = ("ctrl-c", "twice leaves; the job goes on")
LIST: Final[tuple[Row, ...]] = (
    ("↑ ↓ k j  PgUp PgDn  Home End", "choose a job"),
    ("enter", "open it; esc or q comes back"),
    ("/", "only jobs with this text in id, name, state, parameters or note"),
    ("s  S", "sort by the next column; the other way round"),
    ("a", "jobs that have ended, too"),
    ("x", "stop the chosen job: asks whether to interrupt or to terminate it"),
    ("esc", "all jobs again"),
    ("q  ctrl-c", "leave; no job is touched"),
)
_END: Final[tuple[Row, ...]] = (
    ("ctrl-z  ctrl-l", "suspend as usual; draw all of it again"),
    ("?  h", "this page; any key closes it"),
)


def page(rows_of_keys: tuple[Row, ...], columns: int, rows: int) -> list[Line]:
    table = (*rows_of_keys, *_END)
    wide = min(max(len(key) for key, _ in table), max(columns // 2, 8))
    lines = [cut((("  ", ""), (f"{key:<{wide}}", BOLD), (f"  {words}", "")), columns)
             for key, words in table]  # fmt: skip
    if len(lines) > rows:
        lines = [*lines[: max(rows - 1, 0)], plain("  a larger window shows the rest", DIM)]
    return lines[:rows]

"""`hw q` on a terminal is about one screen: the lines that fit, ranks that are alike in one row,
long lines cut.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from headway.model.limits import QUERY_TAIL_LINES, QUERY_TAIL_LINES_MIN
from headway.views.cli import query
from headway.views.cli.output import Merged
from headway.views.text import job_text
from headway.views.text.terminal import Output
from tests import fake_api

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def terminal(rows: int | None, columns: int | None = 100) -> Output:
    out = Output(1, color="never", ascii_only=False)
    out.is_tty, out.rows, out.columns = (
        rows is not None,
        rows,
        columns if rows is not None else None,
    )
    return out


@pytest.mark.parametrize(
    ("rows", "others", "alone", "lines"),
    [
        (None, 50, True, QUERY_TAIL_LINES),
        (40, 20, True, 20),
        (24, 30, True, QUERY_TAIL_LINES_MIN),
        (500, 20, True, QUERY_TAIL_LINES),
        (60, 20, False, QUERY_TAIL_LINES_MIN),
    ],
)
def test_as_many_lines_are_shown_as_fit(
    rows: int | None, others: int, alone: bool, lines: int
) -> None:
    assert query._lines_wanted(others, terminal(rows), alone) == lines


def timed(state: str, elapsed_s: float, *spans: tuple[int, int]) -> dict[str, Any]:
    """A job that started at 12:00:00 with attempts of one process each, from and to these seconds."""
    attempts = [
        {"number": n + 1, "tasks": [{"processes": [
            {"rank": 0, "started_at": f"2026-11-16T12:00:{start:02}Z", "ended_at": f"2026-11-16T12:00:{end:02}Z"}]}]}
        for n, (start, end) in enumerate(spans)
    ]  # fmt: skip
    return {"id": "x-00000", "state": state, "started_at": "2026-11-16T12:00:00Z", "elapsed_s": elapsed_s,
            "attempts": attempts}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "elapsed", "state"),
    [
        (timed("succeeded", 20.4, (0, 20)), "20 s", "succeeded after 20 s"),
        (timed("succeeded", 0.4, (0, 0)), "400 ms", "succeeded after 400 ms"),
        (
            timed("failed", 50.0, (0, 20)),
            "50 s since the start · 20 s of it running",
            "failed after 20 s",
        ),
        (
            timed("failed", 50.0, (0, 20), (30, 50)),
            "50 s since the first start · 40 s of it running",
            "failed after 50 s",
        ),
        ({"id": "x-00000", "state": "failed", "elapsed_s": None}, "", "failed"),
    ],
)
def test_elapsed_is_since_the_first_start_and_says_how_much_of_it_was_running(
    found: dict[str, Any], elapsed: str, state: str
) -> None:
    assert query._elapsed_words(found, NOW) == elapsed
    assert job_text._state_words(found, NOW) == state


def test_every_role_has_a_line_with_its_command() -> None:
    roles = [
        {"name": "ps", "instances": 1, "command": ["python", "ps.py"]},
        {"name": "worker", "instances": 2, "command": ["python", "train.py", "--note", "a b"]},
    ]
    assert query._command_facts({"command": ["python", "ps.py"], "roles": roles}) == [
        ("roles", "ps         python ps.py"),
        ("", "worker ×2  python train.py --note 'a b'"),
    ]
    assert query._command_facts({"command": ["true"], "roles": []}) == [("command", "true")]


def test_ranks_share_a_line_of_progress_although_none_is_as_fast_as_another() -> None:
    trackers = [
        {"msg": ["epoch"], "completed": 40 + n % 2, "total": 100, "rate": 1 + n / 8, "eta_s": 60 + n, "rank": n,
         "state": "running"}
        for n in range(4)
    ]  # fmt: skip
    bar = {
        "msg": ["load"],
        "completed": 3,
        "total": None,
        "rate": None,
        "eta_s": None,
        "state": "done",
        "rank": 2,
    }
    assert query._progress_lines([*trackers, bar]) == [
        "epoch 40–41/100 (4 ranks) · 1.188/s · 1 min 03 s left",
        "load 3 (rank 2) · done",
    ]


def job(ranks: int) -> dict[str, Any]:
    processes = [
        {
            "rank": n,
            "pid": n,
            "state": "exited",
            "exit_code": int(n == 3),
            "logs": {"stdout": f"/l/w/stdout-{n}"},
        }
        for n in range(ranks)
    ]
    tasks = [{"name": "worker-0", "node": "a", "processes": processes}]
    return {"id": "x-00000", "state": "failed", "attempts": [{"number": 1, "tasks": tasks}]}


def test_many_ranks_that_are_alike_are_one_row_on_a_terminal_and_a_row_each_elsewhere() -> None:
    rows = query._process_lines(job(40), terminal(30), NOW)
    assert [line.split() for line in rows[2:]] == [
        ["0–2,", "4–39", "exited", "exit", "code", "0"],
        ["3", "exited", "exit", "code", "1"],
    ]
    assert len(query._process_lines(job(40), terminal(None), NOW)) == 42
    assert query._path_lines(job(40), terminal(30))[1:] == ["    /l/w/"]
    assert len(query._path_lines(job(40), terminal(None))) == 41


def test_a_long_line_takes_two_rows_at_most() -> None:
    line = {"text": "x" * 1000}
    assert len(query._brief_line(line, terminal(30, 80))["text"]) == 160
    assert query._brief_line(line, terminal(None)) is line


def test_a_line_without_a_time_came_just_now_where_one_watches() -> None:
    line = {"rank": 0, "text": "a"}
    out = terminal(None)
    assert Merged(out, out, ranks=2).line(line, out) == "--:--:--  0 │ a\n"
    assert "--" not in Merged(out, out, ranks=2, live=True).line(line, out)


@pytest.mark.parametrize(
    ("by", "words"), [("signal 15", "rank 1: told to end soon"), ("signal 10", "wanted for some")]
)
def test_a_notice_by_sigterm_does_not_say_who_wants_the_machine(by: str, words: str) -> None:
    assert words in job_text.event_words({"type": "preempt_notice", "rank": 1, "data": {"by": by}})


def test_a_long_config_takes_a_few_rows_and_says_where_all_of_it_is() -> None:
    told = query._config_words({"config": {"big": "x" * 100_000, "lr": 0.1}})
    assert told == f"big {'x' * 59}… · lr 0.1"
    many = query._config_words({"config": {f"key{i}": i for i in range(1000)}})
    assert (
        many.startswith("key0 0 · key1 1 · ")
        and many.endswith("… (--json has all of it)")
        and len(many) < 900
    )


@pytest.mark.parametrize(
    ("where", "cause", "words"),
    [
        ("main", "code_exception", "ValueError: bad"),
        ("thread", "segfault_or_abort", "crashed"),  # a thread's exception ends no process
        ("thread", "unknown", "ValueError: bad"),  # but it is all that is known
    ],
)
def test_an_exception_is_the_headline_where_it_is_what_ended_the_process(
    where: str, cause: str, words: str
) -> None:
    exception = {"where": where, "exc_type": "builtins.ValueError", "message": "bad"}
    told = {"cause": cause, "class": "user", "text": "crashed", "rank": 0}
    found = fake_api.job(
        "a-7f3c2",
        {**fake_api.process(), "signal": 11, "exception": exception},
        state="failed",
        cause=told,
    )
    assert job_text.verdict(found, job_text.first_failure(found, []))[0] == words


@pytest.mark.parametrize(
    ("ended", "text", "tail"),
    [
        ({"signal": 9}, "killed by SIGKILL; who sent it is not known", "system error · x"),
        (
            {"signal": 9},
            "killed because memory ran out",
            "killed by signal 9 (SIGKILL) · system error · x",
        ),
        (
            {"exit_code": 137},
            "exit code 137: killed by SIGKILL; who sent it is not known",
            "system error · x",
        ),
        ({"exit_code": 3}, "lost the code 31", "exit code 3 · system error · x"),
    ],
)
def test_how_a_process_ended_is_told_once(ended: dict[str, int], text: str, tail: str) -> None:
    how = {"exit_code": None, "signal": None, **ended}
    told = {"cause": "x", "class": "system", "text": text, "rank": 0}
    found = fake_api.job("a-7f3c2", {**fake_api.process(), **how}, state="failed", cause=told) | how
    assert job_text.verdict(found, job_text.first_failure(found, [])) == (text, tail)


def test_a_list_tells_how_far_the_tracker_is_that_runs() -> None:
    ended = {"completed": 10, "total": 10, "state": "completed", "eta_s": 0.0}
    runs = {"completed": 4, "total": 10, "state": "running", "eta_s": 6.0}
    assert (
        job_text.progress_words({"state": "running", "progress": [ended, runs]})
        == " 40 %  left 0:06"
    )
    assert (
        job_text.progress_words(
            {"state": "succeeded", "progress": [ended, {**runs, "state": "closed"}]}
        )
        == "100 %"
    )


def test_of_the_counts_of_each_process_the_last_is_told_where_points_were_refused() -> None:
    """P5: what could not be kept is counted, and shown."""

    def counters(rank: int, pid: int, rejected: object, produced: int) -> dict[str, Any]:
        data = {"pid": pid, "rejected": rejected, "produced": produced}
        return {"type": "counters", "attempt": 1, "rank": rank, "data": data}

    told = [
        counters(0, 7, 20, 41),
        counters(1, 8, 0, 9),
        counters(0, 9, 1, 2),
        counters(0, 7, 500, 1000),
    ]
    assert job_text.told_words([*told, counters(2, 1, "odd", 1)]) == [
        "rank 0: 1 of 2 points was refused, and not kept",
        "rank 0: 500 of 1,000 points were refused, and not kept",
    ]


def test_a_job_whose_retries_were_not_made_says_why_in_one_line() -> None:
    words = "none of the 2 retries asked for was made: code_exception would come again"
    cause = {"cause": "code_exception", "no_retry": words}
    shown = fake_api.job(state="failed", cause=cause, retries={"total": 0, "counted": 0, "max": 2})
    lines = query.page(shown, [], terminal(40), NOW)
    assert [line for line in lines if "retries" in line] == [query._fact("attempts", words)]


def test_of_many_trackers_those_that_run_are_told_then_the_newest() -> None:
    states = {"outer": "running", **{f"inner {n}": "completed" for n in range(12)}}
    trackers = [
        {"msg": [name], "completed": 1, "total": 2, "rank": 0, "state": state}
        for name, state in states.items()
    ]
    told = query._progress_lines(trackers)
    names = [line.partition(" 1/2")[0] for line in told]
    assert names == ["outer", *(f"inner {n}" for n in range(5, 12)), "and 5 more, see --json"]
    assert len(query._progress_lines(trackers[:3])) == 3

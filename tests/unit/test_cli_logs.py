"""`hw logs` against a scripted server: raw bytes or lines, pages, following (capabilities 16, 17)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.views.cli.main import main
from tests.fake_api import FakeApi, Reply, Request, job, process, serving


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        found.on("GET", "/api/jobs/a1", job("x-a1"))
        found.on("GET", "/api/jobs/b2", job("x-b2", process(0), process(1)))
        yield found


def line(rank: int, text: str, stream: str = "stdout") -> dict[str, Any]:
    return {
        "time": "2026-11-15T12:04:31Z",
        "rank": rank,
        "task": "worker-0",
        "stream": stream,
        "text": text,
    }


DATA = b"one\n\xff\x1b[2J two\nthree"


def raw(request: Request) -> Any:
    """Seven bytes at most, and where to go on."""
    offset = int(request.query.get("offset", ["0"])[0])
    return Reply(
        DATA[offset : offset + 7], headers={"x-headway-next": str(min(offset + 7, len(DATA)))}
    )


def test_one_stream_is_raw_bytes_when_stdout_is_no_terminal(api: FakeApi, capfdbinary: Any) -> None:
    api.on("GET", "/api/jobs/.*/logs", raw)
    for words in (
        ["a1", "--stream", "stdout"],
        ["b2", "--stream", "stderr", "--rank", "1"],
        ["a1", "--stream", "agent"],
    ):
        assert main(["logs", *words]) == 0
        assert capfdbinary.readouterr().out == DATA
    assert api.sent("GET", ".*/logs")[-1].query["format"] == ["raw"]


def test_several_streams_are_lines_with_their_rank(api: FakeApi, capfd: Any) -> None:
    api.on(
        "GET",
        "/api/jobs/.*/logs",
        {"lines": [line(0, "a\x1b[2J"), line(1, "b", "stderr")], "more": False},
    )
    for words in (
        ["a1"],
        ["b2"],
        ["b2", "--stream", "stdout"],
        ["b2", "--rank", "0"],
        ["a1", "--grep", "x"],
    ):
        assert main(["logs", *words]) == 0
        out = capfd.readouterr().out.splitlines()
        assert [text.split("  ", 1)[1] for text in out] == ["0 │ a␛[2J", "1 │ b"]
    assert all("format" not in r.query for r in api.sent("GET", ".*/logs"))


def test_a_gap_moves_the_offset_by_more_than_what_was_sent(api: FakeApi, capfdbinary: Any) -> None:
    def gap(request: Request) -> Any:
        offset = int(request.query["offset"][0])
        if offset == 0:
            return Reply(
                b"head\n[headway: 1,000 bytes missing: x]\n", headers={"x-headway-next": "1005"}
            )
        return Reply(b"tail" if offset == 1005 else b"", headers={"x-headway-next": "1009"})

    api.on("GET", "/api/jobs/.*/logs", gap)
    assert main(["logs", "a1", "--stream", "stdout"]) == 0
    assert capfdbinary.readouterr().out == b"head\n[headway: 1,000 bytes missing: x]\ntail"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a1", "b2"], "not: a1 b2"),
        (["a1", "--", "pwd"], "not: a1 -- pwd"),
    ],
)
def test_one_id_is_wanted(api: FakeApi, capfd: Any, words: list[str], told: str) -> None:
    assert main(["logs", *words]) == 2
    assert f"hw logs takes one id of a job, {told}" in capfd.readouterr().err


def test_a_rank_that_an_ended_job_never_had_is_told(api: FakeApi, capfd: Any) -> None:
    assert main(["logs", "b2", "--rank", "9"]) == 3
    said = capfd.readouterr().err
    assert "x-b2 has no rank 9" in said and "it has 0 to 1" in said


def test_a_task_that_an_ended_job_never_had_is_told(api: FakeApi, capfd: Any) -> None:
    assert main(["logs", "b2", "--task", "nope"]) == 3
    said = capfd.readouterr().err
    assert "x-b2 has no task nope" in said and "it has worker-0" in said


def test_of_a_retried_job_it_is_told_which_attempt_is_shown(api: FakeApi, capfd: Any) -> None:
    shown = job("x-c3", process(0))
    (last,) = shown["attempts"]
    api.on(
        "GET",
        "/api/jobs/c3",
        shown | {"attempts": [last, last | {"number": 2}, last | {"number": 3}]},
    )
    api.on("GET", "/api/jobs/.*/logs", {"lines": [line(0, "hello")], "more": False})
    for words, told in (
        ([], "hw: of attempt 3; of those before it: --attempt 1 to 2\n"),
        (["--attempt", "2"], ""),
    ):
        assert main(["logs", "c3", *words]) == 0
        assert capfd.readouterr().err == told


def test_a_search_that_was_stopped_says_so(api: FakeApi, capfd: Any) -> None:
    api.on(
        "GET",
        "/api/jobs/.*/logs",
        {"lines": [line(0, "a")], "more": False, "timed_out": True, "cursor": "1:2"},
    )
    assert main(["logs", "a1", "--grep", "a"]) == 0
    assert "lines may be missing" in capfd.readouterr().err


def test_pages_of_lines_are_joined(api: FakeApi, capfd: Any) -> None:
    def pages(request: Request) -> Any:
        at = int(request.query.get("cursor", ["0"])[0])
        return {"lines": [line(0, f"line {at}")], "more": at < 3, "cursor": str(at + 1)}

    api.on("GET", "/api/jobs/.*/logs", pages)
    assert main(["logs", "a1"]) == 0
    assert [text[-6:] for text in capfd.readouterr().out.splitlines()] == [
        f"line {i}" for i in range(4)
    ]
    assert main(["logs", "a1", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [one["text"] for one in found["lines"]] == [f"line {i}" for i in range(4)]


def test_following_goes_on_where_the_last_answer_ended(api: FakeApi, capfd: Any) -> None:
    asked: list[str | None] = []

    def answer(request: Request) -> Any:
        asked.append(request.query.get("cursor", [None])[0])
        return {"lines": [line(0, f"line {len(asked)}")], "more": False, "cursor": f"c{len(asked)}"}

    def follow(request: Request) -> Any:
        seen = (request.body["cursor"] or {"n": 0})["n"] + 1
        return {
            "cursor": {"n": seen},
            "state": "running",
            "lines": [],
            "events": [],
            "done": job() if seen == 2 else None,
        }

    api.on("GET", "/api/jobs/.*/logs", answer)
    api.on("POST", "/api/jobs/.*/follow", follow)
    assert main(["logs", "-f", "a1", "--tail", "1"]) == 0
    assert asked == [None, "c1", "c2"]
    assert len(capfd.readouterr().out.splitlines()) == 3
    asked.clear()
    assert main(["logs", "-f", "a1", "--json"]) == 0
    assert [json.loads(text)["text"] for text in capfd.readouterr().out.splitlines()] == [
        "line 1",
        "line 2",
        "line 3",
    ]


def test_a_job_that_has_not_started_says_so(api: FakeApi, capfd: Any) -> None:
    waiting = job("x-c3", state="waiting", started_at=None, ended_at=None) | {"attempts": []}
    api.on("GET", "/api/jobs/c3", waiting)
    api.on("GET", "/api/jobs/.*/logs", {"lines": [], "more": False})
    assert main(["logs", "c3"]) == 0
    out, err = capfd.readouterr()
    assert out == "" and "has not started yet" in err and "-f waits for it" in err


@pytest.mark.parametrize(
    "words",
    [
        ["a1", "--rank", "0", "--task", "t"],
        ["a1", "--tail", "1", "--bytes", "1"],
        ["a1", "b2"],
        ["a1", "--attempt", "9"],
    ],
)
def test_selections_that_make_no_sense_are_refused(api: FakeApi, words: list[str]) -> None:
    assert main(["logs", *words]) == 2


# -- records of logging


def entry(seq: int, text: str, level: str = "INFO", logger: str = "root") -> dict[str, Any]:
    return {
        "seq": seq, "time": "2026-11-15T12:04:31Z", "rank": seq % 2, "level": level, "logger": logger, "text": text,
    }  # fmt: skip


def entries(request: Request) -> Any:
    """Two at a time."""
    known = [entry(1, "begin"), entry(2, "a\x1b[2J\ntrace", "ERROR", "x.y"), entry(3, "end")]
    after = int(request.query["after"][0])
    found = [one for one in known if one["seq"] > after][:2]
    return {
        "records": found,
        "after": found[-1]["seq"] if found else after,
        "more": len(found) == 2,
    }


@pytest.mark.cap(18)
def test_records_of_logging_are_lines_with_level_and_logger(api: FakeApi, capfd: Any) -> None:
    api.on("GET", "/api/jobs/.*/records", entries)
    assert (
        main(["logs", "b2", "--stream", "log", "--level", "info", "--tail", "9", "--grep", "x"])
        == 0
    )
    out = capfd.readouterr().out.splitlines()
    assert [text.split("  ", 1)[1] for text in out] == [
        "1 │ INFO: begin", "0 │ ERROR x.y: a␛[2J", "0 │ trace", "1 │ INFO: end",
    ]  # fmt: skip
    first, second = (request.query for request in api.sent("GET", ".*/records"))
    assert first == {"level": ["info"], "grep": ["x"], "tail": ["9"], "after": ["0"]}
    assert second == {"level": ["info"], "grep": ["x"], "after": ["2"]}


@pytest.mark.cap(18)
def test_a_drawing_in_a_record_keeps_its_shape(api: FakeApi, capfd: Any) -> None:
    page = {"records": [entry(1, "┏━┓\n┗━┛")], "after": 1, "more": False}
    api.on("GET", "/api/jobs/.*/records", page)
    assert main(["logs", "a1", "--stream", "log"]) == 0
    assert [text.partition("│ ")[2] for text in capfd.readouterr().out.splitlines()] == [
        "INFO: ",
        "┏━┓",
        "┗━┛",
    ]


@pytest.mark.cap(18)
def test_records_as_json_are_whole(api: FakeApi, capfd: Any) -> None:
    api.on("GET", "/api/jobs/.*/records", entries)
    assert main(["logs", "a1", "--stream", "log", "--json"]) == 0
    assert [one["seq"] for one in json.loads(capfd.readouterr().out)["records"]] == [1, 2, 3]


def test_options_that_do_not_fit_the_stream_are_refused(api: FakeApi, capfd: Any) -> None:
    for words in (
        ["--level", "INFO"],
        ["--stream", "log", "--bytes", "9"],
        ["--stream", "log", "--task", "worker-0"],
    ):
        assert main(["logs", "a1", *words]) == 2
        assert "--stream log" in capfd.readouterr().err


# -- arrays


ARRAY = {
    "id": "x-c3",
    "uuid": "u",
    "jobs": 3,
    "states": {"running": 2},
    "started_at": "2026-11-15T12:04:31Z",
}


@pytest.fixture
def array(api: FakeApi) -> list[dict[str, Any]]:
    """The jobs of an array, as its list tells them; a test may change them."""
    jobs = [
        {"id": f"x-d{n}", "state": "running", "array_index": n, "elapsed_s": 1.0} for n in (10, 9)
    ]
    jobs.append({"id": "x-d11", "state": "waiting", "array_index": 11})
    api.on("GET", "/api/arrays/c3", lambda _: ARRAY)
    api.on("GET", "/api/jobs", lambda _: jobs)
    return jobs


def test_an_array_is_its_jobs_in_order_each_line_with_job_number_and_rank(
    api: FakeApi, array: list[dict[str, Any]], capfd: Any
) -> None:
    def pages(request: Request) -> Any:
        more = "cursor" not in request.query
        return {
            "lines": [line(1, f"{request.path[-8:-5]} {more}\x1b[2J")],
            "more": more,
            "cursor": "1",
        }

    api.on("GET", "/api/jobs/x-d[0-9]+/logs", pages)
    assert main(["logs", "c3", "--rank", "1", "--tail", "5"]) == 0
    said = [text.split("  ", 1)[1] for text in capfd.readouterr().out.splitlines()]
    assert said == [
        "d9 [ 9]  1 │ -d9 True␛[2J",
        "d9 [ 9]  1 │ -d9 False␛[2J",
        "d10 [10]  1 │ d10 True␛[2J",
        "d10 [10]  1 │ d10 False␛[2J",
    ]
    first, second, *_ = api.sent("GET", ".*/logs")
    assert first.query == {"rank": ["1"], "tail": ["5"]} and second.query == {
        "rank": ["1"],
        "cursor": ["1"],
    }
    assert main(["logs", "c3", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)["lines"]
    assert [(one["job"], one["index"], one["rank"]) for one in told] == [("x-d9", 9, 1)] * 2 + [
        ("x-d10", 10, 1)
    ] * 2


def test_an_array_is_followed_until_its_last_job_is_over_and_no_line_comes_twice(
    api: FakeApi, array: list[dict[str, Any]], capfd: Any
) -> None:
    looks: list[str] = []

    def more(request: Request) -> Any:
        """Each look at a job finds one more line; the first job ends after its second, the last one
        starts then.
        """
        looks.append(request.path)
        count = looks.count(request.path)
        if request.path.endswith("d9/logs") and count == 2:
            array[1]["state"] = "failed"
            array[2] |= {"state": "running", "elapsed_s": 0.1}
        if request.path.endswith("d11/logs"):
            array[0]["state"] = array[2]["state"] = "succeeded"
        return {"lines": [line(0, f"{count}")], "more": False, "cursor": str(count)}

    api.on("GET", "/api/jobs/x-d[0-9]+/logs", more)
    assert main(["logs", "-f", "c3"]) == 0
    said = [text.split("  ", 1)[1] for text in capfd.readouterr().out.splitlines()]
    assert [text for text in said if text.startswith("d9 ")] == [
        f"d9 [ 9]  0 │ {n}" for n in (1, 2, 3)
    ]
    assert [text for text in said if text.startswith("d11 ")] == [
        f"d11 [11]  0 │ {n}" for n in (1, 2)
    ]


@pytest.mark.parametrize("option", ["--attempt", "--bytes"])
def test_options_of_one_job_are_refused_for_an_array(
    api: FakeApi, array: list[dict[str, Any]], capfd: Any, option: str
) -> None:
    assert main(["logs", "c3", option, "1"]) == 2
    assert capfd.readouterr().err == (
        f"hw: {option} is for one job, and x-c3 is an array of 3\n    to see its jobs: hw ls --array c3\n"
    )


def test_records_of_an_array_and_one_that_has_not_started(
    api: FakeApi, array: list[dict[str, Any]], capfd: Any
) -> None:
    entry = {
        "time": "2026-11-15T12:04:31Z",
        "rank": 0,
        "level": "INFO",
        "logger": "root",
        "text": "hello",
        "seq": 1,
    }
    api.on("GET", "/api/jobs/x-d[0-9]+/records", {"records": [entry], "after": 1, "more": False})
    assert main(["logs", "c3", "--stream", "log", "--level", "INFO"]) == 0
    said = [text.split("  ", 1)[1] for text in capfd.readouterr().out.splitlines()]
    assert said == ["d9 [ 9]  0 │ INFO: hello", "d10 [10]  0 │ INFO: hello"]
    api.on("GET", "/api/arrays/c3", {**ARRAY, "started_at": None, "states": {"waiting": 3}})
    api.on("GET", "/api/jobs", [])
    assert main(["logs", "c3"]) == 0
    assert capfd.readouterr() == ("", "hw: x-c3 has not started: 3 waiting; -f waits for it\n")

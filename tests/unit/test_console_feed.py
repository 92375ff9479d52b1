"""What the live view asks for: the news, the job until all its processes are known, and whole
curves.
"""

from pathlib import Path
from typing import Any

from headway.model.limits import CONSOLE_LINES_MAX, CONSOLE_PART_LINES
from headway.views.api.source import Source
from headway.views.console import feed
from tests.fake_api import CUT, Request, error, job, process, serving
from tests.waiting import wait_until


def opened() -> feed.JobFeed:
    source = Source.connect()
    source.close()  # the feed has a connection of its own
    return feed.JobFeed(source, "x-a1", lambda: None)


def test_a_job_that_runs_is_asked_for_again_until_all_its_processes_are_known(
    home: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(feed, "_PROCESSES_S", 0.0)
    asked: list[str] = []

    def look(_: Request) -> dict[str, Any]:
        asked.append("job")
        known = [
            process(rank, pid=100 + rank if rank < len(asked) - 1 else None) for rank in range(2)
        ]
        return job("x-a1", *known, state="running", processes=2)

    with serving(home) as api:
        api.on("GET", "/api/jobs/x-a1", look)
        api.on(
            "POST",
            "/api/jobs/x-a1/follow",
            {"state": "running", "cursor": "1", "lines": [], "events": []},
        )
        found = opened()
        found.start()
        answers: list[dict[str, Any]] = []
        news = lambda: [one for one in found.take() if "state" in one]  # noqa: E731  (other answers are curves)
        wait_until(lambda: answers.extend(news()) or len(answers) >= 8, 20, "eight answers")
        found.close()
    assert [bool(answer.get("job")) for answer in answers[:8]] == [True, True, True, *[False] * 5]


def test_what_a_job_waits_for_is_asked_for_again_while_it_waits(
    home: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(feed, "_PROCESSES_S", 0.0)
    ahead = iter([2, 1])

    def rows(_: Request) -> list[dict[str, Any]]:
        return [{"id": "x-a1", "waiting": {"ahead": next(ahead, 0)}}]

    with serving(home) as api:
        api.on("GET", "/api/jobs/x-a1", job("x-a1", state="waiting"))
        api.on("GET", "/api/jobs", rows)
        api.on("POST", "/api/jobs/x-a1/follow", {"state": "waiting", "cursor": "1"})
        found = opened()
        found.start()
        answers: list[dict[str, Any]] = []
        news = lambda: [one for one in found.take() if "state" in one]  # noqa: E731  (other answers are curves)
        wait_until(lambda: answers.extend(news()) or len(answers) >= 3, 20, "three answers")
        found.close()
        assert api.sent("GET", "/api/jobs")[0].query == {
            "state": ["waiting"],
            "match": [r"^x\-a1$"],
        }
    assert [answer["job"]["waiting"]["ahead"] for answer in answers[:3]] == [2, 1, 0]


def test_whole_curves_are_asked_for_at_the_opening_and_again_after_an_outage(
    home: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(feed, "CONSOLE_CURVES_FIRST_S", 1000.0)
    monkeypatch.setattr(feed, "CONSOLE_CURVES_S", 1000.0)
    # an answer that a busy machine delays is no outage
    monkeypatch.setattr(feed, "CONSOLE_LATE_S", 1000.0)
    cut, news = [False], {"state": "running", "cursor": "1", "metrics": {"loss": 1.0}}

    def follow(_: Request) -> Any:
        return CUT if cut[0] else news

    with serving(home) as api:
        api.on(
            "GET", "/api/jobs/x-a1", job("x-a1", process(0, pid=7), state="running", processes=1)
        )
        api.on("GET", "/api/jobs/x-a1/metrics", {"x-a1": {"loss": []}})
        api.on(
            "GET", "/api/jobs/x-a1/usage", {"curves": {"cpu_percent": {"time": [], "value": []}}}
        )
        api.on("POST", "/api/jobs/x-a1/follow", follow)
        found = opened()
        found.start()
        answers: list[dict[str, Any]] = []

        def curves(count: int) -> bool:
            answers.extend(found.take())
            return sum("curves" in one for one in answers) >= count

        wait_until(
            lambda: curves(1) and len(answers) > 20, 20, "the first curves, and news without any"
        )
        assert sum("curves" in one for one in answers) == 1
        cut[0] = True
        wait_until(lambda: curves(1) and {"lost": True} in answers, 20, "the loss")
        cut[0] = False
        wait_until(lambda: curves(2), 20, "curves after the outage")
        found.close()
        assert {"lost": False} in answers
        assert next(one["curves"] for one in answers if "curves" in one) == {
            "metrics": {"loss": []}, "usage": {"cpu_percent": {"time": [], "value": []}},
        }  # fmt: skip
        asked = api.sent("GET", "/api/jobs/x-a1/metrics")
        assert asked[0].query == {"points": ["128"], "rank": ["0"], "name": ["loss"]}


def test_an_older_server_without_curves_of_usage_does_not_end_the_view(home: Path) -> None:
    with serving(home) as api:
        api.on(
            "GET", "/api/jobs/x-a1", job("x-a1", process(0, pid=7), state="running", processes=1)
        )
        api.on("GET", "/api/jobs/x-a1/usage", error(400, "usage", "unknown field points"))
        api.on("POST", "/api/jobs/x-a1/follow", {"state": "running", "cursor": "1"})
        found = opened()
        found.start()
        answers: list[dict[str, Any]] = []
        wait_until(lambda: answers.extend(found.take()) or len(answers) >= 8, 20, "answers")
        found.close()
    assert {"curves": {}} in answers


def test_a_long_answer_comes_in_parts_of_which_the_last_has_all_the_rest() -> None:
    lines = [{"text": str(n)} for n in range(CONSOLE_LINES_MAX + 5)]
    parts = feed.parts_of(
        feed.thinned({"lines": lines, "state": "failed", "done": {}}, CONSOLE_LINES_MAX)
    )
    assert [line for part in parts for line in part["lines"]] == lines[5:]
    assert all(len(part["lines"]) <= CONSOLE_PART_LINES for part in parts)
    assert parts[0]["skipped"] == 5 and not any(part.get("skipped") for part in parts[1:])
    assert [part.get("state") for part in parts] == [None] * (len(parts) - 1) + ["failed"]

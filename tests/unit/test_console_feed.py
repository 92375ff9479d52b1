"""What the live view asks for: a job runs before all its processes are known."""

from pathlib import Path
from typing import Any

from headway.views.console import feed
from headway.views.source import Source
from tests.fake_api import Request, job, process, serving
from tests.waiting import wait_until


def test_a_job_that_runs_is_asked_for_again_until_all_its_processes_are_known(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(feed, "_PROCESSES_S", 0.0)
    asked: list[str] = []

    def look(_: Request) -> dict[str, Any]:
        asked.append("job")
        known = [process(rank, pid=100 + rank if rank < len(asked) - 1 else None) for rank in range(2)]
        return job("x-a1", *known, state="running", processes=2)

    with serving(home) as api:
        api.on("GET", "/api/jobs/x-a1", look)
        api.on("POST", "/api/jobs/x-a1/follow", {"state": "running", "cursor": "1", "lines": [], "events": []})
        source = Source.connect()
        source.close()  # the feed has a connection of its own
        found = feed.JobFeed(source, "x-a1", lambda: None)
        found.start()
        answers: list[dict[str, Any]] = []
        wait_until(lambda: answers.extend(found.take()) or len(answers) >= 8, 20, "eight answers")
        found.close()
    assert [bool(answer.get("job")) for answer in answers[:8]] == [True, True, True, *[False] * 5]

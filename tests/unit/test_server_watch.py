"""What is watched live, over a real socket: `/api/watch`, usage, records, timings, and the news of
`follow`.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.model.job import State
from headway.model.limits import FOLLOW_RECORDS_MAX
from headway.model.record import FACT
from headway.store import catalog
from headway.wire import batch, frame
from headway.wire.batch import Part, TaskKey
from tests.security.harness import Served
from tests.unit.test_store_watch import log, sample, tracker
from tests.waiting import wait_until

NOW_NS = 1_790_000_000_000_000_000


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    server = Served(home).start()
    yield server
    server.stop()


class Sender:
    """Facts of one task, over HTTP, each stream from where it ended."""

    def __init__(self, served: Served, key: TaskKey) -> None:
        self.served, self.key, self.sent = served, key, dict[str, int]()

    def __call__(self, stream: str, *facts: dict[str, Any]) -> None:
        data = b"".join(frame.encode_json(FACT, {"time_ns": NOW_NS, **fact}) for fact in facts)
        part = Part(stream, "records", self.sent.get(stream, 0), data)
        answer = self.served.unix("POST", "/agent/ingest", body=batch.encode(self.key, [part], 1))
        assert answer.status == 200 and not answer.json()["refused"], answer
        self.sent[stream] = answer.json()["acks"][stream]


def get(served: Served, path: str, status: int = 200) -> Any:
    answer = served.unix("GET", path)
    assert answer.status == status, answer
    return answer.json()


def follow(served: Served, job: str, cursor: Any = None, **more: Any) -> Any:
    answer = served.unix("POST", f"/api/jobs/{job}/follow", json={"cursor": cursor, **more})
    assert answer.status == 200, answer
    return answer.json()


# -- one job


def test_usage_comes_with_checkpoints_by_level_and_time(served: Served) -> None:
    job, key = served.job()
    send = Sender(served, key)
    send("usage-1-aaaaaa", *(sample(at_s=n) for n in range(5)), sample(level=1, at_s=4.5))
    send("facts-0-7-aaaaaa", {"type": "checkpoint", "tags": ["loaded"], "rank": 0, "pid": 7})
    found = get(served, f"/api/jobs/{job.id}/usage")
    assert (found["level"], len(found["samples"]), found["next"]) == (0, 5, None)
    assert found["checkpoints"][0]["tags"] == ["loaded"] and found["last"]["cpu_percent"] == 100.0
    assert len(get(served, f"/api/jobs/{job.id}/usage?level=1")["samples"]) == 1
    since = found["samples"][2]["time"].replace("+", "%2B")
    assert len(get(served, f"/api/jobs/{job.id}/usage?since={since}")["samples"]) == 3
    assert len(get(served, f"/api/jobs/{job.id}/usage?until={since}")["samples"]) == 2
    assert len(get(served, f"/api/jobs/{job.id}/usage?since={NOW_NS // 10**9 + 4}")["samples"]) == 1
    curve = get(served, f"/api/jobs/{job.id}/usage?points=64")["curves"]["cpu_percent"]
    assert (
        curve["time"] == [one["time"] for one in found["samples"]] and curve["value"] == [100.0] * 5
    )
    for wrong in (
        "level=3",
        "since=yesterday",
        "until=9e999",
        "since=nan",
        "after=-1",
        "points=1",
        "points=9999999",
    ):
        get(served, f"/api/jobs/{job.id}/usage?{wrong}", 400)


def test_records_are_read_by_level_rank_number_and_pattern(served: Served) -> None:
    job, key = served.job()
    Sender(served, key)(
        "logs-0-7-aaaaaa.0",
        log("one"),
        log("two", levelno=30, level="WARNING"),
        log("three", rank=1),
        log("four"),
    )

    def texts(query: str) -> list[str]:
        return [
            one["text"] for one in get(served, f"/api/jobs/{job.id}/records?{query}")["records"]
        ]

    assert texts("") == ["one", "two", "three", "four"]
    assert texts("level=warning") == texts("level=30") == ["two"]
    assert (
        texts("rank=1") == ["three"]
        and texts("after=2") == ["three", "four"]
        and texts("tail=1") == ["four"]
    )
    assert texts("grep=o") == ["one", "two", "four"] and texts("grep=%5Et&level=INFO") == [
        "two",
        "three",
    ]
    first = get(served, f"/api/jobs/{job.id}/records?limit=3")
    assert (first["after"], first["more"], first["timed_out"]) == (3, True, False)
    for wrong in ("level=loud", "grep=(", "rank=-1", "nothing=1"):
        get(served, f"/api/jobs/{job.id}/records?{wrong}", 400)


def test_timings_are_read_by_name(served: Served) -> None:
    job, key = served.job()
    timing = {
        "type": "timing",
        "count": 3,
        "mean_s": 1.0,
        "std_s": 0.1,
        "min_s": 0.5,
        "max_s": 2.0,
        "rank": 0,
        "pid": 7,
    }
    Sender(served, key)("facts-0-7-aaaaaa", timing | {"name": "step"}, timing | {"name": "data"})
    assert [one["name"] for one in get(served, f"/api/jobs/{job.id}/timings")] == ["data", "step"]


# -- follow


def test_follow_tells_progress_usage_and_records_once(served: Served) -> None:
    job, key = served.job()
    send = Sender(served, key)
    send("shipper-1-aaaaaa", tracker(7, 0, 10), sample(), log("hello"))
    first = follow(served, job.id)
    assert first["progress"][0]["completed"] == 10 and first["usage"]["cpu_percent"] == 100.0
    assert [one["text"] for one in first["records"]] == ["hello"]
    again = follow(served, job.id, first["cursor"])
    assert (again["progress"], again["usage"], again["records"]) == (None, None, [])
    send("shipper-1-aaaaaa", tracker(7, 0, 11, time_ns=NOW_NS + 1), log("world"))
    later = follow(served, job.id, again["cursor"], wait_s=10)
    assert [one["text"] for one in later["records"]] == ["world"]
    if later["progress"] is None:  # told a moment ago: it comes with the next answer
        later = follow(served, job.id, later["cursor"], wait_s=10)
    assert later["progress"][0]["completed"] == 11 and later["usage"] is None


def test_a_cursor_of_an_older_viewer_stays_valid(served: Served) -> None:
    job, key = served.job()
    Sender(served, key)("shipper-1-aaaaaa", tracker(7, 0, 10), log("hello"))
    old = {
        "attempt": 1,
        "at": {},
        "held": {},
        "event": 0,
        "state": "",
        "metrics": 0,
        "metrics_ms": 0,
    }
    assert follow(served, job.id, old)["records"][0]["text"] == "hello"


def test_a_tail_has_the_last_records_and_goes_on_from_there(served: Served) -> None:
    job, key = served.job()
    send = Sender(served, key)
    send("logs-0-7-aaaaaa.0", *(log(str(n)) for n in range(10)))
    first = follow(served, job.id, tail=3)
    assert [one["text"] for one in first["records"]] == ["7", "8", "9"]
    send("logs-0-7-aaaaaa.0", log("10"))
    assert [
        one["text"] for one in follow(served, job.id, first["cursor"], wait_s=10)["records"]
    ] == ["10"]


def test_many_records_come_in_several_answers_and_the_end_after_the_last(served: Served) -> None:
    job, key = served.job()
    send = Sender(served, key)
    for start in range(0, FOLLOW_RECORDS_MAX + 500, 500):
        send("logs-0-7-aaaaaa.0", *(log(str(n)) for n in range(start, start + 500)))
    send("shim", {"type": "task_ended", "exit_code": 0, "signal": None, "lost": False})

    def finish(c: Any) -> None:
        catalog.set_job_state(c, job.pk, State.RUNNING, NOW_NS, started_ns=NOW_NS)
        catalog.set_job_state(c, job.pk, State.SUCCEEDED, NOW_NS, ended_ns=NOW_NS)

    served.store.write(finish).result(30)
    first = follow(served, job.id)
    assert len(first["records"]) == FOLLOW_RECORDS_MAX and first["done"] is None
    second = follow(served, job.id, first["cursor"])
    assert len(second["records"]) == 500 and second["done"]["id"] == job.id
    quiet = follow(served, job.id, records=False)
    assert quiet["records"] == [] and quiet["done"]["id"] == job.id


# -- all jobs


def test_watch_tells_all_open_jobs_and_waits_for_news_of_any(served: Served) -> None:
    job, key = served.job(1)
    other, _ = served.job(2)
    send = Sender(served, key)
    send("shipper-1-aaaaaa", tracker(7, 0, 10), sample())
    first = get(served, "/api/watch")
    rows = {row["id"]: row for row in first["jobs"]}
    assert set(rows) == {job.id, other.id} and rows[job.id]["progress"][0]["completed"] == 10
    assert rows[job.id]["usage"]["cpu_percent"] == 100.0 and rows[other.id]["usage"] is None
    assert sum(first["states"].values()) == 2
    assert get(served, f"/api/watch?cursor={first['cursor']}")["cursor"] == first["cursor"]

    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(get(served, f"/api/watch?cursor={first['cursor']}&wait_s=20"))
    )
    asking.start()
    send("shipper-1-aaaaaa", tracker(7, 0, 20, time_ns=NOW_NS + 1))
    wait_until(lambda: bool(answers), 20)
    asking.join()
    rows = {row["id"]: row for row in answers[0]["jobs"]}
    assert (
        rows[job.id]["progress"][0]["completed"] == 20 and answers[0]["cursor"] != first["cursor"]
    )


def test_a_job_that_has_ended_leaves_the_watch(served: Served) -> None:
    job, _ = served.job(1)
    served.store.write(
        lambda c: catalog.set_job_state(c, job.pk, State.STOPPED, NOW_NS, ended_ns=NOW_NS)
    ).result(30)
    found = get(served, "/api/watch")
    assert found["jobs"] == [] and found["states"] == {"stopped": 1}
    assert get(served, "/api/watch?limit=0")["jobs"] == []
    get(served, "/api/watch?cursor=x", 400)

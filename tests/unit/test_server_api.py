"""The routes over a real store and a real socket: what goes in comes out as
`docs/concepts/protocol.md` says.
"""

import json
import math
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.home.connect import Client
from headway.model.job import State
from headway.model.limits import (
    FOLLOW_BYTES_MAX,
    FOLLOW_METRICS_S,
    LINE_BYTES_MAX,
    LOG_RAW_BYTES_MAX,
)
from headway.model.record import METRICS, OPEN
from headway.server.api import follow as api_follow
from headway.store import catalog
from headway.wire import batch, frame
from headway.wire.batch import Part, TaskKey
from tests.security.harness import UUID, Served
from tests.waiting import wait_until


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    server = Served(home).start()
    yield server
    server.stop()


def post(served: Served, key: TaskKey, *parts: Part) -> Any:
    answer = served.unix("POST", "/agent/ingest", body=batch.encode(key, list(parts), 1))
    assert answer.status == 200, answer
    return answer.json()


def output(data: bytes, offset: int = 0, rank: int = 0, stream: str = "stdout") -> Part:
    return Part(f"{stream}-{rank}", "raw", offset, data)


def index(
    *entries: tuple[int, int], rank: int = 0, stream: str = "stdout", offset: int = 0
) -> Part:
    return Part(
        f"{stream}-{rank}.index",
        "index",
        offset,
        b"".join(struct.pack("<QQ", *entry) for entry in entries),
    )


def points(rank: int, steps: list[int], values: list[float], name: str = "loss") -> Part:
    stream = f"metrics-{rank}-10-abcdef.0"
    opened = {
        "version": 1,
        "stream": stream,
        "kind": "metrics",
        "rank": rank,
        "pid": 10,
        "start": 1,
        "segment": 0,
    }
    data = frame.encode_json(OPEN, opened | {"time_ns": 1}) + frame.encode_schema(1, (name,))
    for step, value in zip(steps, values, strict=True):
        data += frame.encode(
            METRICS, struct.pack("<Iqqd", 1, step, 1_700_000_000_000_000_000 + step * 1000, value)
        )
    return Part(stream, "records", 0, data)


def follow(served: Served, job: str, cursor: Any = None, **more: Any) -> Any:
    answer = served.unix("POST", f"/api/jobs/{job}/follow", json={"cursor": cursor, **more})
    assert answer.status == 200, answer
    return answer.json()


def texts(answer: Any) -> list[str]:
    return [line["text"] for line in answer["lines"]]


# -- jobs


def test_a_job_is_submitted_shown_listed_and_found_by_its_suffix(served: Served) -> None:
    spec = {"command": ["python", "train.py"], "cwd": "/tmp", "name": "digits", "tags": ["a"]}
    answer = served.unix(
        "POST", "/api/jobs", json={"uuid": UUID.format(5), "spec": spec, "env": {"A": "1"}}
    )
    assert answer.status == 201
    job = answer.json()
    assert job["name"] == "digits" and job["state"] == "waiting" and job["tags"] == ["a"]
    assert served.control.calls[-1] == ("submit", UUID.format(5), spec, {"A": "1"})
    assert served.unix("GET", f"/api/jobs/{job['id'][-5:]}").json()["uuid"] == UUID.format(5)
    assert [row["id"] for row in served.unix("GET", "/api/jobs").json()] == [job["id"]]
    assert served.unix("GET", "/api/jobs?state=running&state=failed").json() == []
    assert (
        served.unix("GET", "/api/jobs?since=3600&match=dig&limit=5&state=waiting").json()[0]["id"]
        == job["id"]
    )
    about = served.unix("GET", "/api/server").json()
    assert (about["jobs"], about["role"]) == ({"waiting": 1}, "admin")


def test_a_reference_that_fits_several_jobs_lists_them(served: Served) -> None:
    for number in range(40):
        served.job(number)
    ids = [row["id"] for row in served.unix("GET", "/api/jobs").json()]
    last = next(
        c for c in "0123456789abcdefghjkmnpqrstvwxyz" if sum(i.endswith(c) for i in ids) > 1
    )
    answer = served.unix("GET", f"/api/jobs/{last}")
    assert answer.status == 409
    error = answer.json()["error"]
    assert (
        error["code"] == "not_found"
        and set(error["candidates"]) <= set(ids)
        and len(error["candidates"]) > 1
    )
    assert served.unix("GET", "/api/jobs/zzzzz").status == 404


def test_verbs_reach_control_with_the_job_that_was_meant(served: Served) -> None:
    job, _ = served.job(state=State.SUCCEEDED)
    route = f"/api/jobs/{job.id[-5:]}"
    assert served.unix("POST", f"{route}/abort", json={}).status == 200
    assert served.unix("POST", f"{route}/signal", json={"signal": 2}).status == 200
    body = {"uuid": UUID.format(9), "spec": {"processes": 4}, "env": None}
    again = served.unix("POST", f"{route}/resubmit", json=body)
    assert again.status == 201 and again.json()["parent"] == job.id
    assert served.unix("DELETE", route).status == 200
    assert served.unix("GET", route).status == 404
    assert served.control.calls == [
        ("abort", job.pk),
        ("signal", job.pk, 2),
        ("resubmit", job.pk, UUID.format(9), {"processes": 4}, None),
        ("delete", job.pk),
    ]


@pytest.mark.parametrize(
    ("method", "route", "body"),
    [
        ("POST", "/api/jobs", {}),
        ("POST", "/api/jobs", {"uuid": "x", "spec": [], "env": {}}),
        ("POST", "/api/jobs", {"uuid": "x", "spec": {}, "env": {"A": 1}}),
        ("POST", "/api/jobs", {"uuid": "x", "spec": {}, "envv": {}}),
        ("POST", "/api/jobs/{id}/abort", {"now": True}),
        ("POST", "/api/jobs/{id}/signal", {"signal": "KILL"}),
        ("POST", "/api/jobs/{id}/signal", {"signal": 1000}),
        ("POST", "/api/jobs/{id}/follow", {"cursor": 5}),
        ("POST", "/api/jobs/{id}/follow", {"cursor": {"at": {"x": "y"}}}),
        ("POST", "/api/jobs/{id}/follow", {"tail": "10"}),
        ("POST", "/agent/poll", {"task": {"uuid": "u"}}),
        ("GET", "/api/jobs?limit=x", None),
        ("GET", "/api/jobs?colour=red", None),
        ("GET", "/api/jobs?state=happy", None),
        ("GET", "/api/jobs?match=(", None),
        ("GET", "/api/jobs/{id}/logs?stream=../x", None),
        ("GET", "/api/jobs/{id}/logs?tail=-1", None),
        ("GET", "/api/jobs/{id}/logs?cursor=x", None),
        ("GET", "/api/jobs/{id}/logs?grep=(", None),
        ("GET", "/api/jobs/{id}/logs?format=raw&grep=x", None),
        ("GET", "/api/jobs/{id}/logs?rank=99999999999999999999", None),
        ("GET", "/api/jobs/{id}/logs?offset=-1&format=raw", None),
        ("GET", "/api/jobs?since=-1", None),
        ("GET", "/api/jobs?since=1e300", None),
        ("GET", "/api/jobs?limit=99999999999999999999", None),
        ("POST", "/api/jobs/{id}/follow", {"cursor": {"event": 2**64}}),
        ("POST", "/api/jobs/{id}/follow", {"cursor": {"at": {"1": -1}}}),
        ("POST", "/api/gc", {"older_than_days": 1e30}),
        ("GET", "/api/jobs/{id}/metrics?points=0", None),
        ("GET", "/api/jobs/{id}/metrics?rank=-1", None),
        ("GET", "/api/jobs/{id}/metrics?rank=x", None),
    ],
)
def test_a_request_that_is_not_valid_is_400_with_the_reason(
    served: Served, method: str, route: str, body: Any
) -> None:
    job, _ = served.job()
    answer = served.unix(
        method, route.replace("{id}", job.id), **({} if body is None else {"json": body})
    )
    assert answer.status == 400, answer
    assert answer.json()["error"]["code"] == "usage" and answer.json()["error"]["message"]
    assert not [call for call in served.control.calls if call[0] in ("submit", "abort", "signal")]


def test_names_that_would_act_in_a_browser_come_back_as_json_text(served: Served) -> None:
    """B10, B18: nothing here is HTML, and nothing sniffs it as such."""
    _, key = served.job()
    post(
        served,
        key,
        points(0, [1], [1.0], name="<img onerror=alert(1)></script>__proto__"),
        output(b"</script>\n"),
    )
    for route in ("metrics", "logs", ""):
        answer = served.unix("GET", f"/api/jobs/{key.uuid}/{route}".rstrip("/"))
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


# -- agents


def test_a_batch_is_acknowledged_with_the_position_after_the_commit(served: Served) -> None:
    _, key = served.job()
    assert post(served, key, output(b"hello\n"))["acks"] == {"stdout-0": 6}
    # again: nothing changes (P4)
    assert post(served, key, output(b"hello\n"))["acks"] == {"stdout-0": 6}
    # overlapping: cut
    assert post(served, key, output(b"lo\nworld\n", 3))["acks"] == {"stdout-0": 12}
    assert post(served, key, output(b"far", 100))["acks"] == {"stdout-0": 12}  # beyond: not applied
    assert ("heard", key) in served.control.calls
    answer = post(served, key, Part("shim", "records", 0, b"garbage that is not a frame"))
    assert "shim" in answer["refused"] and isinstance(answer["now_ns"], int)


def test_a_batch_that_is_damaged_or_for_nobody_is_refused(served: Served) -> None:
    _, key = served.job()
    whole = batch.encode(key, [output(b"hello\n")], 1)
    for body in (b"", b"x", whole[:-1], whole + b"x", whole[:-3] + b"xxx", b"HWB1" + b"\xff" * 4):
        assert served.unix("POST", "/agent/ingest", body=body).status == 400
    stranger = TaskKey(UUID.format(77), 1, "worker-0")
    assert (
        served.unix("POST", "/agent/ingest", body=batch.encode(stranger, [output(b"x")], 1)).status
        == 404
    )


def test_an_agent_of_its_task_may_ingest_and_poll(served: Served) -> None:
    _, key = served.job()
    token = served.token("ingest", key)
    body = batch.encode(key, [output(b"hello\n")], 1)
    assert served.unix("POST", "/agent/ingest", token=token, body=body).status == 200
    served.control.commands[str(key)] = [{"seq": 1, "do": "signal", "signal": 2}]
    asked = {
        "task": {"uuid": key.uuid, "attempt": 1, "task": key.task},
        "wait_s": 5,
        "done": [0],
        "news": "from 2027",
    }
    answer = served.unix("POST", "/agent/poll", token=token, json=asked)
    assert answer.json()["commands"] == [{"seq": 1, "do": "signal", "signal": 2}]
    assert served.control.calls[-1] == ("commands_for", key, 5.0, [0])


def test_a_script_that_runs_by_itself_registers_without_a_token(served: Served) -> None:
    answer = served.unix(
        "POST", "/agent/register", json={"uuid": UUID.format(3), "argv": ["x.py"], "later": 1}
    )
    assert answer.json() == {"id": "x-00000", "token": "a.b", "attempt": 1, "task": "worker-0"}


# -- follow


def test_lines_of_all_ranks_come_merged_by_time(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    us = 1_700_000_000_000_000
    post(
        served, key,
        output(b"a1\na2\n"), index((0, us), (3, us + 200_000)),
        output(b"b1\nb2\n", rank=1), index((0, us + 100_000), (3, us + 300_000), rank=1),
        output(b"e1\n", stream="stderr"), index((0, us + 150_000), stream="stderr"),
    )  # fmt: skip
    answer = follow(served, job.id)
    assert texts(answer) == ["a1", "b1", "e1", "a2", "b2"]
    assert answer["lines"][2] == {
        "time": "2023-11-14T22:13:20.150000Z", "rank": 0, "task": "worker-0", "attempt": 1, "stream": "stderr",
        "text": "e1",
    }  # fmt: skip
    assert answer["state"] == "running" and answer["done"] is None
    assert texts(follow(served, job.id, answer["cursor"])) == []


def test_a_line_that_is_committed_while_somebody_waits_is_told_at_once(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    cursor = follow(served, job.id)["cursor"]
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(follow(served, job.id, cursor, wait_s=20))
    )
    thread.start()
    wait_until(lambda: served.watching() == 1)
    post(served, key, output(b"now\n"))
    thread.join(10)
    assert texts(found[0]) == ["now"]


def test_an_unfinished_line_waits_for_its_end_but_not_for_long(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, output(b"whole\nhalf"))
    first = follow(served, job.id)
    assert texts(first) == ["whole"]
    assert texts(follow(served, job.id, first["cursor"], wait_s=10)) == ["half"]


def test_a_new_attempt_that_has_written_nothing_yet_does_not_make_the_one_before_news_again(
    served: Served,
) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, output(b"first\n"))
    first = follow(served, job.id)
    served.write(lambda c: catalog.insert_attempt(c, job.pk, 2, f"{key.uuid}-2", 2))
    between = follow(served, job.id, first["cursor"])
    served.write(lambda c: catalog.insert_task(c, job.pk, 2, "worker-0", "here"))
    post(served, TaskKey(key.uuid, 2, "worker-0"), output(b"second\n"))
    after = follow(served, job.id, between["cursor"])
    assert [texts(answer) for answer in (first, between, after)] == [["first"], [], ["second"]]


def test_what_did_not_fit_into_an_answer_is_told_though_the_next_attempt_has_begun(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that one answer holds LINE_BYTES_MAX
    monkeypatch.setattr(api_follow, "FOLLOW_BYTES_MAX", 1)
    job, key = served.job(state=State.RUNNING)
    written = [f"first {number:0{LINE_BYTES_MAX // 4}}" for number in range(12)]
    post(served, key, output("".join(f"{line}\n" for line in written).encode()))
    served.write(lambda c: catalog.insert_attempt(c, job.pk, 2, f"{key.uuid}-2", 2))
    served.write(lambda c: catalog.insert_task(c, job.pk, 2, "worker-0", "here"))
    post(served, TaskKey(key.uuid, 2, "worker-0"), output(b"second\n"))
    cursor, seen = {"attempt": 1}, list[str]()
    while answer := follow(served, job.id, cursor):
        cursor = answer["cursor"]
        seen += texts(answer)
        if not texts(answer):
            break
    assert sorted(seen) == [*written, "second"]


def test_a_viewer_that_reads_the_bytes_himself_is_told_that_there_are_more_and_no_lines(
    served: Served,
) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, output(b"one\nha"))
    first = follow(served, job.id, lines=False)
    post(served, key, output(b"lf\n", 6))
    second = follow(served, job.id, first["cursor"], lines=False, wait_s=10)
    assert texts(first) == texts(second) == []
    assert [sum(answer["cursor"]["at"].values()) for answer in (first, second)] == [6, 9]


def test_an_unfinished_line_that_is_finished_in_time_is_one_line(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, output(b"ha"))
    first = follow(served, job.id)
    assert texts(first) == []
    post(served, key, output(b"lf\n", 2))
    assert texts(follow(served, job.id, first["cursor"], wait_s=10)) == ["half"]


def test_an_unfinished_line_is_not_starved_by_a_busy_neighbour(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, output(b"prompt> ", rank=1))
    cursor, seen, offset = None, list[str](), 0
    deadline = time.monotonic() + 20
    while "prompt> " not in seen and time.monotonic() < deadline:
        post(served, key, output(b"busy\n", offset))
        offset += 5
        answer = follow(served, job.id, cursor, wait_s=0.02)
        cursor = answer["cursor"]
        seen += texts(answer)
    assert "prompt> " in seen


def test_a_follow_begins_at_the_start_or_at_the_last_lines(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, output(b"".join(b"%d\n" % n for n in range(100))))
    assert len(texts(follow(served, job.id))) == 100
    last = follow(served, job.id, tail=3)
    assert texts(last) == ["97", "98", "99"] and last["events"] == []
    none = follow(served, job.id, tail=0)
    assert texts(none) == []
    post(served, key, output(b"new\n", 290))
    for answer in (last, none):
        assert texts(follow(served, job.id, answer["cursor"], wait_s=5)) == ["new"]


def test_much_output_comes_in_bounded_answers_without_loss(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    line = b"x" * 99 + b"\n"
    total = 2 * FOLLOW_BYTES_MAX // 100
    for start in range(0, total, 20_000):
        count = min(20_000, total - start)
        post(served, key, output(line * count, start * 100))
    cursor, seen, answers = None, 0, 0
    while True:
        answer = follow(served, job.id, cursor)
        if not answer["lines"]:
            break
        cursor, answers = answer["cursor"], answers + 1
        assert sum(len(line["text"]) for line in answer["lines"]) <= FOLLOW_BYTES_MAX
        seen += len(answer["lines"])
    assert seen == total and answers >= 2


def test_states_events_and_last_values_are_told_and_the_end_brings_the_job(served: Served) -> None:
    job, key = served.job()
    first = follow(served, job.id)
    assert first["state"] == "waiting" and [event["type"] for event in first["events"]] == ["state"]
    post(served, key, points(0, [1, 2], [0.5, math.nan]), points(1, [1], [7.0]))
    served.write(
        lambda c: catalog.set_job_state(
            c, job.pk, State.RUNNING, time.time_ns(), started_ns=time.time_ns()
        )
    )
    second = follow(served, job.id, first["cursor"], wait_s=5)
    assert second["state"] == "running" and second["metrics"] == {"loss": "NaN"}
    assert [event["data"]["to"] for event in second["events"]] == ["running"]
    third = follow(served, job.id, second["cursor"], wait_s=0)
    assert third["metrics"] == {} and third["events"] == [] and third["done"] is None
    post(served, key, output(b"last words"))
    now = time.time_ns()
    served.write(
        lambda c: catalog.set_job_state(c, job.pk, State.FAILED, now, exit_code=3, ended_ns=now)
    )
    end = follow(served, job.id, third["cursor"], wait_s=5)
    assert texts(end) == ["last words"] and end["state"] == "failed"
    assert end["done"]["id"] == job.id and end["done"]["exit_code"] == 3


def test_values_that_change_all_the_time_are_told_now_and_then(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    post(served, key, points(0, [1], [1.0]))
    cursor = follow(served, job.id)["cursor"]
    position = len(points(0, [1], [1.0]).data)
    answers, told, begun_s = 0, None, time.monotonic()
    for step in range(2, 52):
        data = frame.encode(
            METRICS, struct.pack("<Iqqd", 1, step, 1_700_000_000_000_000_000, float(step))
        )
        post(served, key, Part("metrics-0-10-abcdef.0", "records", position, data))
        position += len(data)
        answer = follow(served, job.id, cursor, wait_s=0)
        answers += bool(answer["metrics"])
        told = answer["metrics"] or told
        cursor = answer["cursor"]
    assert answers <= (time.monotonic() - begun_s) / FOLLOW_METRICS_S + 1
    last = {"loss": 51.0}
    assert told == last or wait_until(lambda: follow(served, job.id, cursor)["metrics"]) == last


def test_a_viewer_that_never_reads_costs_nothing(served: Served) -> None:
    """F38, P13: no queue, no memory, no effect on ingest."""
    job, key = served.job(state=State.RUNNING)
    cursor = follow(served, job.id)["cursor"]
    body = json.dumps({"cursor": cursor, "wait_s": 20}).encode()
    dead = [served.connect(unix=True) for _ in range(20)]
    try:
        for sock in dead:
            head = f"POST /api/jobs/{job.id}/follow HTTP/1.1\r\nHost: headway\r\nContent-Length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode() + body)
        wait_until(lambda: served.watching() == 20)
        for n in range(50):
            post(served, key, output(b"x" * 1023 + b"\n", n * 1024))
        # each was answered once and waits for its viewer to ask again
        wait_until(lambda: served.watching() == 0)
        assert served.room() == 0
    finally:
        for sock in dead:
            sock.close()
    wait_until(lambda: served.connections() == 0)


def test_a_cursor_of_the_viewers_own_making_does_no_harm(served: Served) -> None:
    job, key = served.job(state=State.RUNNING)
    _, other_key = served.job(2, state=State.RUNNING)
    post(served, key, output(b"mine\n"))
    post(served, other_key, output(b"not yours\n"))
    for cursor in (
        {
            "at": {"1": 10**15, "2": 0, "999999": 3},
            "held": {"1": [0, 0]},
            "event": 10**15,
            "attempt": 10**9,
        },
        {"at": {}, "attempt": 2**62, "held": {"1": [2**62, 2**62]}},
        {"at": {"2": 0}, "metrics_ms": 10**17, "state": "x" * 1000},
    ):
        answer = served.unix(
            "POST", f"/api/jobs/{job.id}/follow", json={"cursor": cursor, "wait_s": 0}
        )
        assert answer.status in (200, 400)
        assert b"not yours" not in answer.body


# -- logs


def test_raw_bytes_of_one_stream_come_back_exactly(served: Served) -> None:
    job, key = served.job()
    data = bytes(range(256)) * 300
    post(
        served,
        key,
        output(data),
        output(b"err", stream="stderr"),
        Part("agent", "raw", 0, b"agent says\n"),
    )
    route = f"/api/jobs/{job.id}/logs?format=raw&stream="
    answer = served.unix("GET", route + "stdout")
    assert answer.body == data and answer.headers["x-headway-next"] == str(len(data))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert served.unix("GET", route + "stdout&offset=76799").body == data[-1:]
    assert served.unix("GET", route + "stdout&offset=999999").body == b""
    assert served.unix("GET", route + "stdout&bytes=10").body == data[-10:]
    assert served.unix("GET", route + "stderr&rank=0").body == b"err"
    assert served.unix("GET", route + "agent").body == b"agent says\n"
    several = served.unix("GET", f"/api/jobs/{job.id}/logs?format=raw")
    assert several.status == 400 and "2 streams fit" in several.json()["error"]["message"]


def test_raw_bytes_of_a_job_that_has_not_begun_are_none(served: Served) -> None:
    job, _ = served.job()
    answer = served.unix("GET", f"/api/jobs/{job.id}/logs?format=raw&stream=stdout&rank=0&offset=0")
    assert (answer.status, answer.body, answer.headers["x-headway-next"]) == (200, b"", "0")
    assert served.unix("GET", f"/api/jobs/{job.id}/logs").json()["lines"] == []


def test_a_long_stream_is_read_answer_by_answer(served: Served) -> None:
    job, key = served.job()
    piece = b"0123456789abcde\n" * (4 * 1024 * 1024 // 16)
    for n in range(5):
        post(served, key, output(piece, n * len(piece)))
    offset, whole = 0, b""
    while True:
        answer = served.unix(
            "GET", f"/api/jobs/{job.id}/logs?format=raw&stream=stdout&offset={offset}"
        )
        assert len(answer.body) <= LOG_RAW_BYTES_MAX
        if not answer.body:
            break
        whole, offset = whole + answer.body, int(answer.headers["x-headway-next"])
    assert whole == piece * 5


def test_a_gap_is_shown_and_skipped(served: Served) -> None:
    job, key = served.job()
    missing = Part(
        "stdout-0", "gap", 6, json.dumps({"bytes": 100, "reason": "spool_bytes_max"}).encode()
    )
    post(served, key, output(b"start\n"), missing)
    post(served, key, output(b"end\n", 106))
    answer = served.unix("GET", f"/api/jobs/{job.id}/logs?format=raw&stream=stdout")
    assert (
        answer.body.startswith(b"start\n")
        and b"100 bytes missing" in answer.body
        and answer.body.endswith(b"end\n")
    )
    assert answer.headers["x-headway-next"] == "110"
    shown = texts(served.unix("GET", f"/api/jobs/{job.id}/logs").json())
    assert shown[0] == "start" and "missing" in shown[1] and shown[2] == "end"


def test_lines_can_be_selected_counted_searched_and_read_on(served: Served) -> None:
    job, key = served.job()
    post(
        served,
        key,
        output(b"".join(b"line %d\n" % n for n in range(50))),
        output(b"other\n", rank=1),
    )
    route = f"/api/jobs/{job.id}/logs"
    assert len(served.unix("GET", route).json()["lines"]) == 51
    assert texts(served.unix("GET", f"{route}?rank=1").json()) == ["other"]
    assert texts(served.unix("GET", f"{route}?rank=0&tail=2").json()) == ["line 48", "line 49"]
    assert texts(served.unix("GET", f"{route}?rank=0&bytes=8").json()) == ["line 49"]
    assert texts(served.unix("GET", f"{route}?grep=line%204%5B01%5D").json()) == [
        "line 40",
        "line 41",
    ]
    assert texts(served.unix("GET", f"{route}?grep=line&tail=1").json()) == ["line 49"]
    searched = served.unix("GET", f"{route}?grep=line%204&rank=0").json()
    assert (
        texts(served.unix("GET", f"{route}?grep=line&rank=0&cursor={searched['cursor']}").json())
        == []
    )
    assert texts(served.unix("GET", f"{route}?task=nobody").json()) == []
    first = served.unix("GET", f"{route}?rank=0").json()
    post(served, key, output(b"later\n", len(b"".join(b"line %d\n" % n for n in range(50)))))
    assert texts(served.unix("GET", f"{route}?rank=0&cursor={first['cursor']}").json()) == ["later"]


def test_streams_are_listed_with_their_plain_files(served: Served) -> None:
    job, key = served.job()
    post(served, key, output(b"hello\n"), index((0, 1)))
    found = {row["name"]: row for row in served.unix("GET", f"/api/jobs/{job.id}/streams").json()}
    assert (
        found["stdout-0"]["position"] == 6
        and found["stdout-0"]["kind"] == "raw"
        and found["stdout-0"]["rank"] == 0
    )
    assert found["stdout-0"]["path"] == str(
        served.paths.logs / key.uuid / "1" / "worker-0" / "stdout-0"
    )


# -- metrics


def test_every_point_comes_back_and_what_json_cannot_hold_is_text(served: Served) -> None:
    """B1: to the JSON and back."""
    job, key = served.job()
    values = [1.5, math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324]
    post(served, key, points(0, list(range(7)), values), points(3, [10], [2.5]))
    found = served.unix("GET", f"/api/jobs/{job.id}/metrics").json()
    assert list(found) == [job.id]
    first, second = found[job.id]["loss"]
    assert first["value"] == [1.5, "NaN", "Infinity", "-Infinity", -0.0, 1e308, 5e-324]
    assert first["step"] == list(range(7)) and first["rank"] == 0 and first["attempt"] == 1
    assert first["time"][1].startswith("2023-11-14T22:13:20.000001") and first["time"][1].endswith(
        "Z"
    )
    assert second["rank"] == 3
    only = served.unix("GET", f"/api/jobs/{job.id}/metrics?name=loss&rank=3").json()[job.id]["loss"]
    assert [row["value"] for row in only] == [[2.5]]
    assert served.unix("GET", f"/api/jobs/{job.id}/metrics?name=nothing").json() == {job.id: {}}


def test_columns_hold_the_same_points(served: Served) -> None:
    job, key = served.job()
    values = [1.5, math.nan, -math.inf]
    post(served, key, points(0, [1, 2, 3], values))
    accept = {"Accept": "application/x-headway-columns"}
    answer = served.unix("GET", f"/api/jobs/{job.id}/metrics", headers=accept)
    assert (
        answer.headers["content-type"] == "application/x-headway-columns"
        and answer.body[:4] == b"HWC1"
    )
    size = int.from_bytes(answer.body[4:8], "little")
    head = json.loads(answer.body[8 : 8 + size])
    assert head == {"series": [{"id": job.id, "name": "loss", "rank": 0, "attempt": 1, "rows": 3}]}
    rest = answer.body[8 + size :]
    assert struct.unpack("<3q", rest[:24]) == (1, 2, 3)
    back = struct.unpack("<3d", rest[48:72])
    assert back[0] == 1.5 and math.isnan(back[1]) and back[2] == -math.inf and len(rest) == 72


def test_a_chart_gets_about_as_many_points_as_it_asks_for(served: Served) -> None:
    job, key = served.job()
    post(served, key, points(0, list(range(5000)), [math.sin(n / 100) for n in range(5000)]))
    found = served.unix("GET", f"/api/jobs/{job.id}/metrics?points=200").json()[job.id]["loss"][0]
    assert 50 <= len(found["value"]) <= 250
    assert found["step"][0] == 0 and found["step"][-1] == 4999


def test_many_requests_share_a_connection(served: Served) -> None:
    job, _ = served.job()
    with Client(served.socket) as client:
        for _ in range(20):
            assert client.request("GET", f"/api/jobs/{job.id}").status == 200
            assert client.request("GET", "/api/jobs/zzzzz").status == 404
    assert served.unix("GET", f"/api/jobs/{job.id}/provenance").json() is None
    assert served.unix("GET", f"/api/jobs/{job.id}/events").json()[0]["type"] == "state"


# -- gc


def test_gc_counts_first_and_removes_what_was_deleted_or_is_old(served: Served) -> None:
    old, key = served.job(1, state=State.SUCCEEDED)
    deleted, _ = served.job(2, state=State.FAILED)
    running, _ = served.job(3, state=State.RUNNING)
    post(served, key, output(b"x" * 300_000))
    served.unix("DELETE", f"/api/jobs/{deleted.id}")
    ask = {"older_than_days": None, "dry_run": True}
    assert served.unix("POST", "/api/gc", json=ask).json()["ids"] == [deleted.id]
    would = served.unix("POST", "/api/gc", json={"older_than_days": 0, "dry_run": True}).json()
    assert would["jobs"] == 2 and would["bytes"] >= 300_000
    assert served.unix("GET", f"/api/jobs/{old.id}").status == 200
    assert served.unix("POST", "/api/gc", json={"older_than_days": 0}).json() == would
    assert [row["id"] for row in served.unix("GET", "/api/jobs").json()] == [running.id]
    assert not (served.paths.logs / key.uuid).exists()
    assert served.unix("POST", "/api/gc", json={"older_than_days": -1}).status == 400

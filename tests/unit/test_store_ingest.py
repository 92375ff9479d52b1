"""Batches into rows: exactly once, in order, fenced by attempt (P3–P6, P11, P12; F16–F18, F27; B1,
B2, B11–B13).
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.errors import NotFoundError
from headway.store import catalog, query, series
from headway.wire import frame
from headway.wire.batch import Part, TaskKey
from tests.storing import (
    NOW_NS,
    Bench,
    bench,
    bits,
    fact,
    gap,
    new_job,
    opening,
    record,
    records,
    schema,
)

METRICS = "metrics-0-100-abcdef.0"


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def values(b: Bench, name: str, **where: Any) -> list[float]:
    found = b.read(series.read_series, b.job.pk, name, **where)
    return [value for one in found for value in one.points.values.tolist()]


# -- positions


def test_a_resend_changes_nothing(b: Bench) -> None:
    """P4, F17, F18"""
    data = (
        schema(0, "loss")
        + records(0, range(100), [range(100)])
        + fact({"type": "note", "text": "once"})
    )
    part = Part(METRICS, "records", 0, data)
    first = b.ingest(part)
    b.clock.now_ns += 86_400 * 10**9
    before = b.object()
    assert b.ingest(part, part) == first.__class__(first.acks, {})
    assert b.object() == before | {"elapsed_s": b.object()["elapsed_s"]}
    assert values(b, "loss") == [float(i) for i in range(100)]
    assert len(b.events("note")) == 1


def test_a_part_beyond_the_position_is_not_applied(b: Bench) -> None:
    data = schema(0, "loss") + record(0, 1, [1.0])
    assert b.ingest(Part(METRICS, "records", 48, record(0, 2, [2.0]))).acks == {METRICS: 0}
    assert b.ingest(Part(METRICS, "records", 0, data)).acks == {METRICS: len(data)}
    assert values(b, "loss") == [1.0]


def test_a_part_that_overlaps_is_cut(b: Bench) -> None:
    first = schema(0, "loss") + record(0, 1, [1.0])
    whole = first + record(0, 2, [2.0]) + record(0, 3, [3.0])
    b.send(METRICS, "records", first)
    assert b.ingest(Part(METRICS, "records", 0, whole)).acks == {METRICS: len(whole)}
    assert b.ingest(Part(METRICS, "records", len(first), whole[len(first) :])).acks == {
        METRICS: len(whole)
    }
    assert values(b, "loss") == [1.0, 2.0, 3.0]


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_batches_cut_doubled_and_out_of_order_give_the_same_store(
    tmp_path_factory: Any, seed: int
) -> None:
    """F18: whatever arrives when, each byte is applied once and in order."""
    b = bench(tmp_path_factory.mktemp("s"))
    rng = random.Random(seed)
    frames = [schema(0, "loss"), *(record(0, i, [float(i)]) for i in range(60))]
    starts = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    text = bytes(rng.randrange(256) for _ in range(500))
    try:
        position: dict[str, int] = {}
        while position.get(METRICS, 0) < starts[-1] or position.get("stdout-0", 0) < len(text):
            i = rng.randrange(len(frames))
            j = rng.randrange(i + 1, len(frames) + 1)
            k = rng.randrange(len(text))
            parts = [
                Part(METRICS, "records", starts[i], b"".join(frames[i:j])),
                Part("stdout-0", "raw", k, text[k : k + rng.randrange(1, 200)]),
            ]
            result = b.ingest(*rng.sample(parts, rng.randint(1, 2)) * rng.randint(1, 2))
            assert not result.refused
            assert all(place >= position.get(name, 0) for name, place in result.acks.items())
            position |= result.acks
        assert values(b, "loss") == [float(i) for i in range(60)]
        (row,) = (s for s in b.read(query.streams, b.job.pk, b.paths) if s["name"] == "stdout-0")
        b.store.tidy()
        assert Path(row["path"]).read_bytes() == text
    finally:
        b.store.close()


def test_a_gap_moves_the_position_and_is_shown(b: Bench) -> None:
    """P5"""
    first = schema(0, "loss") + record(0, 1, [1.0])
    b.send(METRICS, "records", first)
    end = len(first)
    assert b.ingest(gap(METRICS, end + 10, 5)).acks == {METRICS: end}, (
        "beyond the position: nothing happens"
    )
    part = gap(METRICS, end - 4, 100, "disk full", records=3, points=3)
    assert b.ingest(part, part).acks == {METRICS: end + 96}
    later = record(0, 9, [9.0])
    assert b.ingest(Part(METRICS, "records", end + 96, later)).acks == {
        METRICS: end + 96 + len(later)
    }
    assert values(b, "loss") == [1.0, 9.0]
    (shown,) = b.read(query.gaps, b.job.pk)
    assert {k: shown[k] for k in ("stream", "offset", "bytes", "records", "points", "reason")} == {
        "stream": METRICS, "offset": end, "bytes": 96, "records": 3, "points": 3, "reason": "disk full",
    }  # fmt: skip
    assert len(b.events("gap")) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"bytes": 0}',
        b'{"bytes": -1}',
        b'{"bytes": 9e99}',
        b'{"bytes": 1' + b"0" * 30 + b"}",
    ],
)
def test_a_gap_without_a_length_is_refused(b: Bench, payload: bytes) -> None:
    assert METRICS in b.ingest(Part(METRICS, "gap", 0, payload)).refused


def test_an_unknown_task_is_told(b: Bench) -> None:
    for key in (
        TaskKey(b.key.uuid, 2, "worker-0"),
        TaskKey(b.key.uuid, 1, "worker-1"),
        TaskKey("x", 1, "worker-0"),
    ):
        with pytest.raises(NotFoundError):
            b.ingest(Part("shim", "records", 0, b""), key=key)


# -- refusals


def test_a_refused_stream_leaves_no_trace_and_harms_no_other(b: Bench) -> None:
    """P11"""
    bad = (
        schema(0, "loss")
        + record(0, 1, [1.0])
        + fact({"type": "tags", "tags": ["bad"]})
        + record(5, 2, [1.0])
    )
    good = schema(0, "loss") + record(0, 1, [7.0])
    result = b.ingest(
        Part(METRICS, "records", 0, bad),
        Part("metrics-1-5-00ff00.0", "records", 0, good),
        Part("stdout-0", "raw", 0, b"hi\n"),
    )
    assert list(result.refused) == [METRICS]
    assert "schema 5" in result.refused[METRICS]
    assert result.acks == {"metrics-1-5-00ff00.0": len(good), "stdout-0": 3}
    assert values(b, "loss") == [7.0]
    assert b.object()["tags"] == []
    b.ingest(Part(METRICS, "records", 0, bad))
    assert [event["data"]["stream"] for event in b.events("refused")] == [METRICS], "told once"


def test_a_newer_format_is_refused_by_its_version(b: Bench) -> None:
    """P12"""
    data = fact({"type": "tags", "tags": ["x"]}) + opening("shim").replace(
        b'"version":1', b'"version":2'
    )
    refused = b.ingest(Part("shim", "records", 0, data)).refused
    assert "format 2" in refused["shim"]
    assert b.object()["tags"] == []


def test_a_stream_keeps_its_kind(b: Bench) -> None:
    b.send("stdout-0", "raw", b"text")
    assert "stdout-0" in b.ingest(Part("stdout-0", "records", 4, record(0, 1, [1.0]))).refused
    assert "x.index" in b.ingest(Part("x.index", "index", 0, b"short")).refused


def test_more_names_than_allowed_are_refused_and_the_rest_stays(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B11: one name per step."""
    names_max = 4_000
    monkeypatch.setattr("headway.store.ingest.METRIC_NAMES_MAX", names_max)
    stream = "metrics-0-1-aaaaaa."
    names = [f"m{i}" for i in range(names_max + 1)]
    for segment in range(0, names_max, 2000):
        chunk = names[segment : segment + 2000]
        data = b"".join(schema(i, name) + record(i, i, [1.0]) for i, name in enumerate(chunk))
        b.send(f"{stream}{segment}", "records", data)
    one_more = schema(0, names[-1]) + record(0, 1, [1.0])
    assert (
        "metric names" in b.ingest(Part(stream + "9", "records", 0, one_more)).refused[stream + "9"]
    )
    known = schema(0, "m7") + record(0, 5, [5.0])
    b.send(f"{stream}8", "records", known)
    assert len(b.read(series.names, b.job.pk)) == names_max
    b.write(lambda c: b.store.after_rollback())  # a restart forgets what was cached
    assert stream + "9" in b.ingest(Part(stream + "9", "records", 0, one_more)).refused


# -- points


def test_the_last_value_is_of_the_lowest_rank_and_json_can_hold_it(b: Bench) -> None:
    """B1"""
    b.send(
        "metrics-1-5-00ff00.0",
        "records",
        schema(0, "loss", "only") + record(0, 9, [5.0, float("-inf")]),
    )
    b.send(
        METRICS, "records", schema(0, "loss") + record(0, 1, [1.0]) + record(0, 2, [float("nan")])
    )
    assert b.object()["metrics"] == {"loss": "NaN", "only": "-Infinity"}


def test_wrong_clocks_are_replaced_by_the_time_of_receipt_and_told(b: Bench) -> None:
    """B13"""
    wrong = [0, -5, 1_700_000_000, 2**63 - 1]
    data = b"".join(record(0, i, [1.0], t) for i, t in enumerate([NOW_NS - 10**9, *wrong]))
    b.send(METRICS, "records", schema(0, "loss") + data)
    (found,) = b.read(series.read_series, b.job.pk, "loss")
    assert found.points.times_us.tolist() == [(NOW_NS - 10**9) // 1000] + [NOW_NS // 1000] * 4
    (event,) = b.events("clock")
    assert event["data"] == {"stream": METRICS, "points": 4, "first_ns": 0}
    b.send(METRICS, "records", record(0, 9, [1.0], 0))
    assert len(b.events("clock")) == 1, (
        "said once is enough: a wrong clock is wrong with every record"
    )
    b.write(lambda c: b.store.after_rollback())  # a restart forgets what was told
    for step in (10, 11):
        b.send(METRICS, "records", record(0, step, [1.0], 0))
    assert len(b.events("clock")) == 2


def test_names_that_schemas_share_stay_in_order(b: Bench) -> None:
    data = schema(0, "loss", "lr") + schema(1, "loss")
    for i in range(50):
        data += record(0, 2 * i, [2.0 * i, 0.1]) + record(1, 2 * i + 1, [2.0 * i + 1])
    b.send(METRICS, "records", data)
    b.send(METRICS, "records", record(0, 100, [100.0, 0.2]))
    assert values(b, "loss") == [float(i) for i in range(101)]
    assert values(b, "lr") == [0.1] * 50 + [0.2]
    b.end()
    b.store.tidy()
    assert values(b, "loss") == [float(i) for i in range(101)]
    assert b.read(lambda c: c.execute("SELECT count(*) FROM blocks").fetchone()[0]) == 0


def test_names_with_a_nul_are_names_like_others(b: Bench) -> None:
    """B7: ("a", "b") and ("a\\0b",) are not the same."""
    b.send(
        METRICS,
        "records",
        schema(0, "a", "b") + schema(1, "a\0b") + record(0, 1, [1.0, 2.0]) + record(1, 2, [3.0]),
    )
    assert [values(b, name) for name in ("a", "b", "a\0b")] == [[1.0], [2.0], [3.0]]
    b.end()
    b.store.tidy()
    assert [values(b, name) for name in ("a", "b", "a\0b")] == [[1.0], [2.0], [3.0]]


def test_two_processes_of_one_rank_are_one_entry_by_time(b: Bench) -> None:
    b.send("metrics-0-1-aaaaaa.0", "records", schema(0, "x") + records(0, [0, 2], [[0, 2]], NOW_NS))
    b.send("metrics-0-2-bbbbbb.0", "records", schema(0, "x") + record(0, 1, [1.0], NOW_NS + 500))
    (found,) = b.read(series.read_series, b.job.pk, "x")
    assert found.points.values.tolist() == [0.0, 1.0, 2.0]


def test_metrics_have_one_entry_per_rank_and_attempt(b: Bench) -> None:
    job, second = new_job(b.store, attempts=2)
    first = TaskKey(second.uuid, 1, "worker-0")
    for key, ranks in ((first, (1, 0)), (second, (0,))):
        for rank in ranks:
            data = schema(0, "loss") + record(0, rank, [float("inf"), 1.5][rank : rank + 1])
            b.send(f"metrics-{rank}-1-aaaaaa.0", "records", data, key)
    found = b.read(query.metrics_object, job.pk)
    assert [(e["attempt"], e["rank"]) for e in found["loss"]] == [(1, 0), (1, 1), (2, 0)]
    assert found["loss"][1] == {
        "rank": 1, "attempt": 1, "step": [1], "time": ["2026-09-21T14:13:20.000000Z"], "value": [1.5],
    }  # fmt: skip
    assert found["loss"][0]["value"] == ["Infinity"]
    assert b.read(query.metrics_object, job.pk, ["loss"], rank=1) == {"loss": found["loss"][1:2]}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_binary_columns_hold_what_their_header_says(b: Bench) -> None:
    b.send(METRICS, "records", schema(0, "x", "y") + records(0, range(5), [range(5), range(5, 10)]))
    data = query.metrics_columns([("train-abcde", b.read(query.read_metrics, b.job.pk))])
    length = int.from_bytes(data[4:8], "little")
    head = json.loads(data[8 : 8 + length])
    assert data[:4] == b"HWC1" and len(data) == 8 + length + 2 * 5 * 24
    assert head["series"][1] == {
        "id": "train-abcde",
        "name": "y",
        "rank": 0,
        "attempt": 1,
        "rows": 5,
    }
    assert np.frombuffer(data[-40:], "<f8").tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]


# -- facts


def shim_story(b: Bench, key: TaskKey | None = None) -> None:
    b.tell(
        {"type": "task_started", "node": "host7", "pid": 10, "start": 5, "boot_id": "b", "version": "0.1"},
        {"type": "process_started", "rank": 0, "local_rank": 0, "pid": 11, "start": 6},
        {"type": "process_started", "rank": 1, "local_rank": 1, "pid": 12, "start": 6, "time_ns": NOW_NS + 1000},
        {"type": "process_exited", "rank": 1, "pid": 12, "exit_code": None, "signal": 9, "reason": None},
        {"type": "process_exited", "rank": 0, "pid": 11, "exit_code": None, "signal": 15, "reason": "rank 1 failed"},
        {"type": "task_ended", "exit_code": None, "signal": 9, "first_rank": 1, "oom": False, "lost": False},
        key=key,
    )  # fmt: skip


def test_the_shims_story_becomes_tasks_and_processes(b: Bench) -> None:
    shim_story(b)
    (task,) = b.object()["attempts"][0]["tasks"]
    assert (task["name"], task["node"], task["state"]) == ("worker-0", "host7", "ended")
    first, second = task["processes"]
    assert (first["pid"], first["state"], first["signal"], first["reason"]) == (
        11,
        "exited",
        15,
        "rank 1 failed",
    )
    assert (second["rank"], second["exit_code"], second["signal"]) == (1, None, 9)
    assert second["started_at"] == "2026-09-21T14:13:20.000001Z"
    assert second["logs"]["stderr"] == str(
        b.paths.logs / b.key.uuid / "1" / "worker-0" / "stderr-1"
    )
    assert Path(second["logs"]["stderr"]).read_bytes() == b""
    loaded = b.read(catalog.load_job, b.job.pk).attempts[0].tasks[0]
    assert loaded.result is not None and loaded.result["first_rank"] == 1
    assert b.object()["state"] == "waiting", "what state a job is in is not for ingest to say"


def test_the_first_end_of_a_task_stands(b: Bench) -> None:
    shim_story(b)
    b.tell({"type": "task_ended", "exit_code": 0, "lost": True}, stream="shipper-1-aaaaaa")
    task = b.read(catalog.load_job, b.job.pk).attempts[0].tasks[0]
    assert (task.state, task.result and task.result["signal"]) == ("ended", 9)


def test_processes_whose_end_nobody_told_go_with_their_task(b: Bench) -> None:
    b.tell({"type": "process_started", "rank": 0, "local_rank": 0, "pid": 11, "start": 6})
    b.tell({"type": "task_ended", "exit_code": None, "lost": True}, stream="shipper-1-aaaaaa")
    (task,) = b.object()["attempts"][0]["tasks"]
    assert (task["state"], task["processes"][0]["state"]) == ("lost", "lost")
    assert task["processes"][0]["ended_at"] is not None


def test_a_command_that_could_not_start_says_why(b: Bench) -> None:
    b.tell({"type": "start_failed", "rank": 0, "exit_code": 127, "message": "no such file"})
    (process,) = b.object()["attempts"][0]["tasks"][0]["processes"]
    assert (process["state"], process["exit_code"], process["reason"]) == (
        "not started",
        127,
        "no such file",
    )


def test_a_stale_attempt_cannot_touch_a_newer_one(b: Bench) -> None:
    """F27"""
    job, second = new_job(b.store, attempts=2)
    first = TaskKey(second.uuid, 1, "worker-0")
    b.tell({"type": "config", "config": {"lr": 2}}, stream="facts-0-2-bbbbbb", key=second)
    b.tell({"type": "provenance", "python": "new"}, stream="shipper-2-bbbbbb", key=second)
    shim_story(b, first)
    b.tell({"type": "config", "config": {"lr": 1}}, stream="facts-0-1-aaaaaa", key=first)
    b.tell({"type": "provenance", "python": "old"}, stream="shipper-1-aaaaaa", key=first)
    found = b.read(query.job_object, job.pk, b.paths, NOW_NS)
    assert found["config"] == {"lr": 2}
    assert b.read(query.provenance, job.pk) == {"python": "new"}
    old, new = found["attempts"]
    assert (old["tasks"][0]["state"], new["tasks"][0]["state"], new["tasks"][0]["processes"]) == (
        "ended",
        "starting",
        [],
    )


@pytest.mark.cap(27)
def test_the_config_is_the_lowest_ranks_and_the_last_it_told(b: Bench) -> None:
    def config(rank: int, lr: float) -> Any:
        b.tell({"type": "config", "config": {"lr": lr}}, stream=f"facts-{rank}-1-aaaaaa")
        return b.object()["config"]

    assert config(2, 2.0) == {"lr": 2.0}
    assert config(1, 1.0) == {"lr": 1.0}
    assert config(2, 9.0) == {"lr": 1.0}
    assert config(1, 1.5) == {"lr": 1.5}
    assert config(0, 0.5) == {"lr": 0.5}


def test_tags_are_joined(b: Bench) -> None:
    b.tell({"type": "tags", "tags": ["a", "b", 7, None]}, stream="facts-0-1-aaaaaa")
    b.tell(
        {"type": "tags", "tags": ["b", "c"]},
        {"type": "tags", "tags": "no"},
        stream="facts-1-1-aaaaaa",
    )
    assert b.object()["tags"] == ["a", "b", "c"]


@pytest.mark.cap(40, 41)
def test_the_first_exception_of_a_process_stays_with_it_and_the_main_thread_counts_more(
    b: Bench,
) -> None:
    def told(where: str, message: str) -> None:
        error = {
            "type": "exception",
            "where": where,
            "exc_type": "ValueError",
            "message": message,
            "traceback": "T",
        }
        b.tell(error, stream="facts-3-1-aaaaaa")

    told("thread", "first")
    told("main", "second")
    told("main", "third")
    told("thread", "fourth")
    (process,) = b.object()["attempts"][0]["tasks"][0]["processes"]
    assert (
        process["rank"],
        process["exception"]["message"],
        process["exception"]["traceback"],
    ) == (3, "second", "T")
    assert [e["data"]["message"] for e in b.events("exception")] == [
        "first",
        "second",
        "third",
        "fourth",
    ]


def test_a_process_that_no_shim_started_is_known_by_its_own_word(b: Bench) -> None:
    job, key = new_job(b.store, attached=True)
    stream = "facts-1-77-aaaaaa"
    hello = {
        "type": "hello",
        "rank": 1,
        "local_rank": 1,
        "world_size": 2,
        "pid": 77,
        "start": 1,
        "argv": ["x"],
    }
    b.send(stream, "records", opening(stream, pid=77, rank=1) + fact(hello), key)
    b.tell({"type": "bye", "exit_code": 3}, stream=stream, key=key)
    found = b.read(query.job_object, job.pk, b.paths, NOW_NS)
    (process,) = found["attempts"][0]["tasks"][0]["processes"]
    assert (process["rank"], process["pid"], process["state"], process["exit_code"]) == (
        1,
        77,
        "exited",
        3,
    )
    assert process["logs"] == {"stdout": None, "stderr": None}


def test_what_is_not_known_is_kept_unread(b: Bench) -> None:
    """P12"""
    b.send(
        "shim",
        "records",
        fact({"type": "later", "x": [1]}) + frame.encode(77, b"\1\2") + fact({"no": "type"}),
    )
    assert b.events("later")[0]["data"] == {"x": [1]}
    assert b.events("frame")[0]["data"] == {"kind": 77, "bytes": 2, "base64": "AQI="}
    assert b.events("None")[0]["data"] == {"no": "type"}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"a": 1, "a": 2}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a":' * 50_000,
        b"\xff\xfe",
    ],
)
def test_a_fact_that_cannot_be_read_costs_only_itself(b: Bench, payload: bytes) -> None:
    """P11; B4, B5, B9"""
    b.send(
        "shim",
        "records",
        frame.encode(1, payload[:500_000]) + fact({"type": "note", "text": "after"}),
    )
    assert len(b.events("unreadable")) == 1
    assert b.events("note")[0]["data"]["text"] == "after"


def test_facts_hold_values_that_a_database_cannot(b: Bench) -> None:
    """B2, B6, B7: integers beyond 64 bits, lone surrogates, NUL, NaN."""
    b.tell(
        {"type": "process_started", "rank": 2**70, "local_rank": 0, "pid": 1},
        {
            "type": "process_exited",
            "rank": 0,
            "pid": 2**64,
            "exit_code": 2**63,
            "signal": True,
            "reason": "\ud800 \0",
        },
        {"type": "note", "text": "a\0b \udfff", "big": 2**80},
        {"type": "config", "config": {"big": 2**80, "text": "\ud800"}},
        {"type": "tags", "tags": ["\ud800"]},
        stream="facts-0-1-aaaaaa",
    )
    b.send(
        "facts-0-1-aaaaaa",
        "records",
        frame.encode(1, b'{"type":"config","config":{"x":NaN,"y":-Infinity}}'),
    )
    (process,) = b.object()["attempts"][0]["tasks"][0]["processes"]
    assert (process["exit_code"], process["signal"], process["reason"]) == (None, None, "? \0")
    assert b.events("note")[0]["data"] == {"text": "a\0b ?", "big": 2**80}
    assert b.object()["tags"] == ["?"]
    assert b.object()["config"] == {"x": "NaN", "y": "-Infinity"}


def test_events_of_one_job_are_bounded_and_the_rest_is_counted(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7"""
    monkeypatch.setattr("headway.store.fact_rows.EVENTS_MAX", 5)
    b.tell(*({"type": "note", "text": str(i)} for i in range(20)), stream="facts-0-1-aaaaaa")
    known = len(b.read(query.events, b.job.pk)) - 1
    assert b.events("events_dropped")[0]["data"]["count"] == 21 - known
    b.send(METRICS, "records", schema(0, "loss") + record(0, 1, [1.0], 0))
    b.ingest(Part("stdout-0", "gap", 0, b'{"bytes": 5, "reason": "lost"}'))
    assert not b.events("clock") and not b.events("gap")
    assert b.events("events_dropped")[0]["data"]["count"] == 23 - known


def test_listeners_learn_what_changed_after_it_is_committed(b: Bench) -> None:
    heard: list[tuple[int, str]] = []
    b.store.listen(lambda pk, what: heard.append((pk, what)))
    b.store.listen(lambda pk, what: 1 / 0)
    b.send(METRICS, "records", schema(0, "x") + record(0, 1, [1.0]))
    b.send("stdout-0", "raw", b"x")
    b.tell({"type": "tags", "tags": ["t"]}, stream="facts-0-1-aaaaaa")
    b.write(lambda c: None)
    assert heard == [
        (b.job.pk, "metrics"),
        (b.job.pk, "logs"),
        (b.job.pk, "facts"),
        (b.job.pk, "job"),
    ]


def test_bits_of_points_are_those_that_were_sent(b: Bench) -> None:
    odd = [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 0.1, 1e308]
    b.send(
        METRICS, "records", schema(0, "x") + b"".join(record(0, i, [v]) for i, v in enumerate(odd))
    )
    assert bits(values(b, "x")) == bits(odd)


def printed_opening(stream: str) -> bytes:
    return opening(stream, source="output")


@pytest.mark.cap(24)
@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("first", ["printed", "logged"])
def test_a_metric_that_was_printed_stays_apart_from_the_one_that_is_logged(
    b: Bench, first: str, forgets: bool
) -> None:
    """A program prints its loss before it logs it for the first time: that is no point of what it
    logs.
    """
    own, seen = "metrics-0-100-abcdef.0", "metrics-0-7-00ff00.0"
    begin = {
        "logged": (own, opening(own) + schema(0, "loss", "lr") + record(0, 0, [1.0, 0.1])),
        "printed": (
            seen,
            printed_opening(seen) + schema(0, "loss", "norm") + record(0, 10, [0.5, 7.0]),
        ),
    }
    for who in sorted(begin, key=lambda who: who != first):
        b.send(begin[who][0], "records", begin[who][1])
    if forgets:
        b.store._ingester.forget()
    b.send(seen, "records", record(0, 20, [0.25, 8.0]))
    b.send(own, "records", record(0, 1, [0.9, 0.1]))
    follows = "metrics-0-7-00ff00.1"
    b.send(
        follows,
        "records",
        printed_opening(follows) + schema(0, "loss", "norm") + record(0, 30, [0.2, 9.0]),
    )
    assert values(b, "loss") == [1.0, 0.9]
    assert values(b, "printed/loss") == [0.5, 0.25, 0.2]
    assert values(b, "norm") == [7.0, 8.0, 9.0], "of which there is no other"
    assert b.object()["metrics"] == {"loss": 0.9, "lr": 0.1, "norm": 9.0}, "which is news"


def test_printed_metrics_of_other_ranks_and_of_two_agents_keep_their_name(b: Bench) -> None:
    for stream in ("metrics-0-7-00ff00.0", "metrics-0-8-00ff01.0", "metrics-1-7-00ff00.0"):
        b.send(stream, "records", printed_opening(stream) + schema(0, "loss") + record(0, 1, [0.5]))
    logged = "metrics-1-70-00ff00.0"
    b.send(logged, "records", opening(logged) + schema(0, "loss") + record(0, 1, [1.0]))
    assert values(b, "loss", rank=0) == [0.5, 0.5]
    assert values(b, "loss", rank=1) == [1.0]


def test_a_gap_longer_than_any_stream_is_refused_and_not_tried_again(b: Bench) -> None:
    """A-15: it was answered with 503, for ever."""
    told = json.dumps({"bytes": 2**61, "reason": "x"}).encode()
    result = b.ingest(Part("stdout-0", "gap", 0, told))
    assert "stdout-0" in result.refused

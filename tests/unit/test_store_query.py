"""The machine-readable contract: names, times, numbers (capability 15; B1, F26)."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.model.job import State
from headway.store import catalog, jsonform, query
from tests.storing import NOW_NS, Bench, bench, new_job, record, schema

KEYS = (
    "id uuid name experiment state state_since cluster engine engine_id engine_url attach command cwd code gpus "
    "processes multi_process submitted_at started_at ended_at elapsed_s exit_code signal parent tags star bug "
    "description host guest_of monitor "
    "array array_index parameters smoke cause health priority needs retries hold reserved after "
    "output_dir outputs config progress usage metrics page image roles folders definition attempts"
).split()
HEAVY = (
    "cause priority needs retries hold reserved after roles folders output_dir outputs config usage metrics attempts"
).split()
ATTEMPT_KEYS = {"number", "state", "cause", "exit_code", "signal", "tasks"}
PROCESS_KEYS = {
    "rank", "local_rank", "pid", "state", "exit_code", "signal", "started_at", "ended_at", "logs", "exception",
}  # fmt: skip


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


@pytest.mark.cap(15)
def test_a_job_has_every_key_of_the_contract(b: Bench) -> None:
    b.tell({"type": "process_started", "rank": 0, "local_rank": 0, "pid": 7})
    b.write(
        lambda c: catalog.set_attempt(
            c, b.job.pk, 1, cause={"cause": "oom", "class": "user", "text": "t", "rank": 0}
        )
    )
    found = b.object()
    assert list(found) == KEYS
    (attempt,) = found["attempts"]
    assert set(attempt) >= ATTEMPT_KEYS and attempt["cause"]["cause"] == "oom"
    (task,) = attempt["tasks"]
    assert {"name", "node", "state", "processes"} <= set(task)
    assert set(task["processes"][0]) >= PROCESS_KEYS
    assert (found["progress"], found["usage"], found["page"], found["engine"]) == (
        [],
        None,
        None,
        "local",
    )
    assert found["submitted_at"] == "2026-09-21T14:13:20.000000Z"


def test_a_list_row_is_the_same_object_without_the_heavy_parts(b: Bench) -> None:
    b.send(
        "metrics-0-1-aaaaaa.0",
        "records",
        schema(0, *(f"m{i:03}" for i in range(100))) + record(0, 1, [1.0] * 100),
    )
    new_job(b.store, "other")
    rows = b.read(query.job_rows, None, NOW_NS)
    assert [row["name"] for row in rows] == ["other", "train"]
    whole = b.object()
    assert {k: v for k, v in rows[1].items() if k not in ("metrics", "cause", "waiting")} == {
        k: whole[k] for k in KEYS if k not in HEAVY
    }
    assert len(rows[1]["metrics"]) == query.ROW_METRICS_MAX


def test_the_elapsed_time_grows_stops_and_is_never_negative(b: Bench) -> None:
    assert b.object()["elapsed_s"] is None
    b.write(lambda c: catalog.set_job_state(c, b.job.pk, State.RUNNING, NOW_NS, started_ns=NOW_NS))
    b.clock.now_ns = NOW_NS + 1_500_000_000
    assert b.object()["elapsed_s"] == 1.5
    b.clock.now_ns = NOW_NS - 10**12
    assert b.object()["elapsed_s"] == 0.0
    end_ns = NOW_NS + 2_000_000_000
    b.write(
        lambda c: catalog.set_job_state(
            c, b.job.pk, State.FAILED, end_ns, ended_ns=end_ns, signal=9
        )
    )
    b.clock.now_ns = NOW_NS + 10**12
    found = b.object()
    assert (found["elapsed_s"], found["exit_code"], found["signal"]) == (2.0, None, 9)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, None), (0, "1970-01-01T00:00:00.000000Z"), (1_790_000_000_123_456_789, "2026-09-21T14:13:20.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"), (2**63 - 1, "2262-04-11T23:47:16.854775Z"),
    ],
)  # fmt: skip
def test_times_are_iso_8601_in_utc_with_microseconds(ns: int | None, text: str | None) -> None:
    assert jsonform.iso(ns) == text


def test_numbers_that_json_cannot_hold_are_strings() -> None:
    nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    found = [jsonform.number(x) for x in (1.5, float("inf"), float("-inf"), nan)]
    assert found == [1.5, "Infinity", "-Infinity", "NaN"]


def test_events_can_be_read_on_from_the_last_one(b: Bench) -> None:
    b.tell(*({"type": "note", "text": str(i)} for i in range(5)), stream="facts-2-1-aaaaaa")
    first = b.read(query.events, b.job.pk, limit=3)
    rest = b.read(query.events, b.job.pk, after=first[-1]["seq"])
    assert [event["data"].get("text") for event in first + rest] == [None, "0", "1", "2", "3", "4"]
    assert (rest[0]["rank"], rest[0]["attempt"], rest[0]["time"]) == (
        2,
        1,
        "2026-09-21T14:13:20.000000Z",
    )


def test_streams_tell_where_their_plain_files_are(b: Bench) -> None:
    b.send("stdout-3", "raw", b"hello\n")
    b.send("metrics-3-1-aaaaaa.0", "records", schema(0, "x"))
    found = {row["name"]: row for row in b.read(query.streams, b.job.pk, b.paths)}
    out = found["stdout-3"]
    assert (out["task"], out["attempt"], out["kind"], out["rank"], out["position"]) == (
        "worker-0",
        1,
        "raw",
        3,
        6,
    )
    b.store.tidy()
    assert Path(out["path"]).is_absolute() and Path(out["path"]).read_bytes() == b"hello\n"
    assert found["metrics-3-1-aaaaaa.0"]["path"] is None

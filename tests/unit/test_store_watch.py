"""What is watched live, into the store and out of it: progress, records, usage, checkpoints,
timings (18–25, 32).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.model.job import State
from headway.model.limits import TRACKERS_ENDED_MAX
from headway.store import (
    catalog,
    live_read,
    live_write,
    log_records,
    migrate,
    query,
    retention,
    usage_curves,
    usage_stacks,
)
from headway.store.connection import Connection
from headway.store.jsonform import iso
from headway.wire.batch import Part
from tests.storing import NOW_NS, Bench, bench, fact, new_job, record, schema

S = 10**9


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def tracker(pid: int, number: int, completed: float, **more: Any) -> dict[str, Any]:
    return {
        "type": "progress", "rank": 0, "pid": pid, "tracker": number, "msg": ["epoch"], "completed": completed,
        "total": 100, "state": "running", "distributed": False, "source": "api", "rate": 2.0, "eta_s": 5.0,
        "started_ns": NOW_NS, **more,
    }  # fmt: skip


def log(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "log", "rank": 0, "pid": 7, "process": "MainProcess", "thread": "MainThread", "level": "INFO",
        "levelno": 20, "logger": "root", "text": text, "file": "train.py", "line": 3, "func": "main", "printed": False,
        "cut": False, **more,
    }  # fmt: skip


def line(rank: int, pid: int | None, cpu: float, rss: int) -> dict[str, Any]:
    return {
        "rank": rank, "pid": pid, "ppid": None if pid is None else 1, "name": None if pid is None else "python",
        "cpu_percent": cpu, "rss_bytes": rss, "pss_bytes": None, "threads": 4, "fds": 9, "read_bps": 0, "write_bps": 0,
    }  # fmt: skip


def sample(level: int = 0, at_s: float = 0.0, **more: Any) -> dict[str, Any]:
    return {
        "type": "usage", "time_ns": NOW_NS + int(at_s * S), "level": level, "span_s": 1.0,
        "node": {"cpu_percent": 150.0, "memory_bytes": 5, "memory_total_bytes": 10},
        "processes": [line(0, None, 100.0, 300), line(0, 7, 90.0, 200), line(0, 8, 10.0, 100)], "gpus": [], **more,
    }  # fmt: skip


def rows(b: Bench, table: str) -> int:
    return int(b.read(lambda c: c.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))


# -- progress


def test_a_tracker_shows_its_last_position_and_a_late_one_does_not_take_it_back(b: Bench) -> None:
    b.tell(tracker(7, 0, 10), stream="shipper-1-aaaaaa")
    b.tell(
        tracker(7, 0, 40, time_ns=NOW_NS + 2),
        tracker(7, 0, 20, time_ns=NOW_NS + 1),
        stream="shipper-1-aaaaaa",
    )
    (found,) = b.object()["progress"]
    assert (found["msg"], found["completed"], found["total"], found["state"]) == (
        ["epoch"],
        40,
        100,
        "running",
    )
    assert (found["rate"], found["eta_s"], found["rank"], found["source"]) == (2.0, 5.0, 0, "api")
    assert not b.events("progress")


def test_a_shared_tracker_is_the_sum_over_processes_and_a_resend_changes_nothing(b: Bench) -> None:
    """Capability 20."""
    shares = [
        tracker(10 + rank, 0, 10 * (rank + 1), rank=rank, distributed=True) for rank in range(4)
    ]
    data = b"".join(fact(f) for f in shares)
    for _ in range(3):
        b.ingest(Part("shipper-1-aaaaaa", "records", 0, data))
    (found,) = b.object()["progress"]
    assert (found["completed"], found["total"], found["rank"]) == (100, 100, None)
    assert (found["rate"], found["eta_s"]) == (8.0, 0.0)
    b.ingest(
        Part(
            "shipper-1-aaaaaa",
            "records",
            len(data),
            fact(tracker(13, 0, 41, rank=3, distributed=True)),
        )
    )
    assert b.object()["progress"][0]["completed"] == 101


def test_a_name_that_every_process_uses_again_is_two_shared_trackers(b: Bench) -> None:
    for pid in (10, 11):
        b.tell(
            tracker(pid, 0, 50, distributed=True, state="completed"), stream=f"shipper-{pid}-aaaaaa"
        )
        b.tell(
            tracker(pid, 1, 5, distributed=True, started_ns=NOW_NS + S),
            stream=f"shipper-{pid}-aaaaaa",
        )
    assert [(t["completed"], t["state"]) for t in b.object()["progress"]] == [
        (100, "completed"),
        (10, "running"),
    ]


@pytest.mark.parametrize(
    ("states", "joined"),
    [
        (("running", "completed"), "running"), (("completed", "completed"), "completed"),
        (("failed", "running"), "failed"), (("completed", "closed"), "completed"), (("closed", "closed"), "closed"),
    ],
)  # fmt: skip
def test_a_shared_tracker_has_the_state_that_matters_most(
    b: Bench, states: tuple[str, ...], joined: str
) -> None:
    for pid, state in enumerate(states, 1):
        b.tell(tracker(pid, 0, 1, distributed=True, state=state), stream="shipper-1-aaaaaa")
    assert b.object()["progress"][0]["state"] == joined


def test_a_shared_tracker_keeps_a_rate_after_its_end_and_one_share_has_a_time_left(
    b: Bench,
) -> None:
    b.tell(tracker(1, 0, 40, distributed=True, eta_s=None), stream="shipper-1-aaaaaa")
    (alone,) = b.read(lambda c: live_read.progress(c, [b.job.pk]))[b.job.pk]
    assert (alone["rate"], alone["eta_s"]) == (2.0, 30.0)
    for pid, done in ((1, 40), (2, 60)):
        ended = tracker(
            pid, 0, done, distributed=True, state="completed", rate=None, time_ns=NOW_NS + 20 * S
        )
        b.tell(ended, stream=f"shipper-{pid}-bbbbbb")
    (ended,) = b.read(lambda c: live_read.progress(c, [b.job.pk]))[b.job.pk]
    assert (ended["state"], ended["rate"], ended["eta_s"]) == ("completed", 5.0, 0.0)


def test_a_shared_tracker_of_which_one_process_failed_still_has_the_rate_of_the_others(
    b: Bench,
) -> None:
    for pid, state in ((1, "failed"), (2, "running"), (3, "running")):
        b.tell(tracker(pid, 0, 10, distributed=True, state=state), stream="shipper-1-aaaaaa")
    (one,) = b.read(lambda c: live_read.progress(c, [b.job.pk]))[b.job.pk]
    assert (one["state"], one["rate"], one["eta_s"]) == ("failed", 4.0, 17.5)


def test_a_tracker_that_has_ended_stays_when_another_takes_its_place(b: Bench) -> None:
    for number, msg in enumerate(["train", "test", "train"]):
        first = tracker(
            1, 0, 1, msg=[msg], started_ns=NOW_NS + number * 9 * S, time_ns=NOW_NS + number * 9 * S
        )
        ended = first | {
            "completed": 100 + number,
            "state": "completed",
            "time_ns": NOW_NS + (number * 9 + 5) * S,
        }
        b.tell(first, ended, first, stream=f"shipper-1-aaaaa{number}")  # a late one changes nothing
    found = b.read(lambda c: live_read.progress(c, [b.job.pk]))[b.job.pk]
    assert [(one["msg"], one["completed"]) for one in found] == [(["test"], 101), (["train"], 102)]
    assert found[1]["started_at"] == iso(NOW_NS + 18 * S)


def test_a_share_counts_after_its_process_has_begun_another_tracker(b: Bench) -> None:
    for pid in (1, 2):
        b.tell(
            tracker(pid, 0, 50, distributed=True, state="completed"), stream=f"shipper-{pid}-aaaaaa"
        )
    after = tracker(1, 0, 5, msg=["next"], started_ns=NOW_NS + 9 * S, time_ns=NOW_NS + 10 * S)
    b.tell(after, stream="shipper-1-bbbbbb")
    found = b.read(lambda c: live_read.progress(c, [b.job.pk]))[b.job.pk]
    assert [(one["msg"], one["completed"]) for one in found] == [(["epoch"], 100), (["next"], 5)]


def test_of_the_trackers_that_have_ended_the_last_ones_are_kept(b: Bench) -> None:
    for number in range(3 * TRACKERS_ENDED_MAX):
        at_ns = NOW_NS + number * S
        b.tell(
            tracker(
                1,
                0,
                1,
                msg=["epoch", str(number)],
                state="completed",
                started_ns=at_ns,
                time_ns=at_ns,
            ),
            stream=f"shipper-1-{number:06}",
        )
    found = b.read(lambda c: live_read.progress(c, [b.job.pk]))[b.job.pk]
    first = 2 * TRACKERS_ENDED_MAX - 1
    assert [int(one["msg"][1]) for one in found] == list(range(first, 3 * TRACKERS_ENDED_MAX))


def test_only_the_last_attempt_counts_and_an_old_agent_changes_nothing_of_it(b: Bench) -> None:
    """F27."""
    b.tell(tracker(7, 0, 99), sample(), stream="shipper-1-aaaaaa")

    def again(c: Any) -> None:
        catalog.insert_attempt(c, b.job.pk, 2, "again", NOW_NS)
        catalog.insert_task(c, b.job.pk, 2, "worker-0", "node1")

    b.write(again)
    assert b.object()["progress"] == [] and b.object()["usage"] is None
    b.tell(tracker(7, 0, 100, time_ns=NOW_NS + S), stream="shipper-1-aaaaaa")
    assert b.object()["progress"] == []


def test_trackers_are_bounded_and_finished_ones_go_first(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_write, "TRACKERS_MAX", 20)
    b.tell(tracker(7, 0, 1), stream="shipper-1-aaaaaa")
    for number in range(1, 60):
        b.tell(
            tracker(7, number, 1, state="completed", time_ns=NOW_NS + number),
            stream="shipper-1-aaaaaa",
        )
    assert rows(b, "progress") <= 20
    found = b.read(live_read.progress, [b.job.pk])[b.job.pk]
    assert found[0]["state"] == "running" and len(found) > 10


def test_a_list_of_jobs_has_a_few_trackers_of_each_and_those_that_run_come_first(b: Bench) -> None:
    finished = [
        tracker(7, n, 1, state="completed", started_ns=NOW_NS + (n + 1) * S) for n in range(10)
    ]
    b.tell(tracker(7, 100, 1, started_ns=NOW_NS), *finished, stream="shipper-1-aaaaaa")
    new_job(b.store)
    found = {row["id"]: row["progress"] for row in b.read(query.job_rows, None, NOW_NS)}
    assert len(found) == 2 and len(found.pop(b.job.id)) == query.ROW_TRACKERS_MAX
    assert b.read(query.job_rows, None, NOW_NS)[-1]["progress"][0]["state"] == "running"
    assert list(found.values()) == [[]]


# -- records


def test_records_come_back_whole_in_order_and_go_on_from_a_number(b: Bench) -> None:
    table = {"columns": ["a"], "rows": [["1"]]}
    b.tell(
        log("one"), log("two", levelno=30, level="WARNING", table=table), stream="logs-3-7-aaaaaa.0"
    )
    first, second = b.read(log_records.read, b.job.pk)
    assert (first["text"], first["rank"], first["attempt"], first["thread"], first["line"]) == (
        "one", 0, 1, "MainThread", 3,
    )  # fmt: skip
    assert second["table"] == table and second["printed"] is False and second["level"] == "WARNING"
    assert b.read(log_records.read, b.job.pk, after=first["seq"]) == [second]
    assert b.read(log_records.read, b.job.pk, levelno=30) == [second]
    assert b.read(log_records.read, b.job.pk, rank=1) == []
    assert not b.events("log")


def test_a_record_without_a_rank_has_that_of_its_stream(b: Bench) -> None:
    told = log("x")
    del told["rank"]
    b.tell(told, stream="logs-3-7-aaaaaa.0")
    assert b.read(log_records.read, b.job.pk)[0]["rank"] == 3


def test_too_many_records_lose_the_oldest_and_a_gap_tells_how_many(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5."""
    monkeypatch.setattr(live_write, "RECORDS_JOB_MAX", 100)
    for start in range(0, 250, 50):
        b.tell(*(log(f"line {n}") for n in range(start, start + 50)), stream="logs-0-7-aaaaaa.0")
    found = b.read(log_records.read, b.job.pk)
    assert found[-1]["text"] == "line 249" and 95 <= len(found) <= 100
    assert [one["seq"] for one in found] == list(range(found[0]["seq"], 251))
    (gap,) = b.events("gap")
    assert gap["data"]["records"] == 250 - len(found) and "records" in gap["data"]["reason"]


def test_large_records_are_bounded_by_bytes_too(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_write, "RECORDS_JOB_BYTES_MAX", 200_000)
    b.tell(*(log("x" * 1000) for _ in range(300)), stream="logs-0-7-aaaaaa.0")
    found = b.read(log_records.read, b.job.pk)
    assert 100 < len(found) < 200 and found[-1]["seq"] == 300
    b.tell(
        log("y" * 200_000, table={"columns": ["z" * 100_000], "rows": []}),
        stream="logs-0-7-aaaaaa.0",
    )
    last = b.read(log_records.read, b.job.pk)[-1]
    assert (
        len(last["text"]) == 65_536
        and last["cut"] is True
        and "table" not in last
        and last["file"] == "train.py"
    )


def test_records_are_searched_line_by_line(b: Bench) -> None:
    b.tell(
        log("alpha\nloss=3"),
        log("beta"),
        log("loss=4", levelno=10),
        log("loss=5"),
        stream="logs-0-7-aaaaaa.0",
    )
    found, more, late = b.read(log_records.search, b.job.pk, "^loss=", levelno=20)
    assert [one["text"] for one in found] == ["alpha\nloss=3", "loss=5"] and (more, late) == (
        False,
        False,
    )
    assert [one["seq"] for one in b.read(log_records.search, b.job.pk, "loss", after=1)[0]] == [
        3,
        4,
    ]


# -- usage


def test_the_last_sample_in_short_counts_each_tree_once(b: Bench) -> None:
    b.tell(sample(at_s=0), stream="usage-1-aaaaaa")
    b.tell(
        sample(at_s=1, processes=[line(0, None, 50.0, 250), line(0, 7, 50.0, 250)]),
        stream="usage-1-aaaaaa",
    )
    found = b.object()["usage"]
    assert (found["cpu_percent"], found["memory_bytes"], found["peak_memory_bytes"]) == (
        50.0,
        250,
        300,
    )
    assert (found["gpu_percent"], found["gpu_memory_bytes"], found["ranks"], found["spread"]) == (
        None,
        None,
        1,
        {},
    )
    assert found["time"] == "2026-09-21T14:13:21.000000Z"


def test_several_ranks_are_a_mean_with_the_smallest_and_largest_rank(b: Bench) -> None:
    lines = [line(rank, None, 10.0 * rank, 100 * rank) for rank in (1, 2, 3)] + [
        line(1, 71, 10.0, 100)
    ]
    lines += [line(3, 73, 30.0, 300)]
    gpus = [
        {
            "index": 0,
            "load_percent": 20,
            "memory_bytes": 1000,
            "holders": [{"pid": 73, "bytes": 900}],
        },
        {
            "index": 1,
            "load_percent": 60,
            "memory_bytes": 3000,
            "holders": [{"pid": 71, "bytes": 2900}],
        },
    ]
    b.tell(sample(processes=lines, gpus=gpus), stream="usage-1-aaaaaa")
    found = b.object()["usage"]
    assert (found["cpu_percent"], found["memory_bytes"], found["gpu_percent"], found["gpu_memory_bytes"]) == (
        20.0, 200, 40.0, 2000,
    )  # fmt: skip
    assert found["spread"]["cpu_percent"] == {
        "min": 10.0,
        "min_rank": 1,
        "max": 30.0,
        "max_rank": 3,
    }
    assert found["spread"]["gpu_percent"] == {
        "min": 20.0,
        "min_rank": 3,
        "max": 60.0,
        "max_rank": 1,
    }
    assert (found["peak_memory_bytes"], found["peak_rank"]) == (300, 3)


def test_cards_that_others_hold_are_not_in_the_short_form(b: Bench) -> None:
    cards = [
        {"index": n, "load_percent": 10.0 * (n + 1), "memory_bytes": 1, "own": n == 0}
        for n in range(3)
    ]
    b.tell(sample(gpus=cards))
    found = b.read(lambda c: live_read.usage_last(c, [b.job.pk]))[b.job.pk]
    assert (found["gpus"], found["gpu_percent"]) == (1, 10.0)


def test_windows_of_usage_are_told_in_order(b: Bench) -> None:
    for second, is_open in ((1, False), (4, True)):
        turn = {
            "type": "usage_window",
            "open": is_open,
            "rank": 0,
            "pid": 7,
            "time_ns": NOW_NS + second * S,
        }
        b.tell(turn, stream=f"facts-0-7-aaaaa{second}")
    found = b.read(lambda c: live_read.usage_windows(c, b.job.pk))
    assert [(one["time"], one["rank"], one["pid"], one["open"]) for one in found] == [
        (iso(NOW_NS + S), 0, 7, False), (iso(NOW_NS + 4 * S), 0, 7, True),
    ]  # fmt: skip


def test_a_long_span_raises_the_peak_and_leaves_the_last_sample(b: Bench) -> None:
    b.tell(sample(), stream="usage-1-aaaaaa")
    long = line(0, None, 0.0, 0) | {"cpu_percent": [1, 2, 3], "rss_bytes": [100, 200, 900]}
    b.tell(sample(level=1, at_s=9, processes=[long]), stream="usage-1-aaaaaa")
    found = b.object()["usage"]
    assert (found["cpu_percent"], found["memory_bytes"], found["peak_memory_bytes"]) == (
        100.0,
        300,
        900,
    )


def test_a_sample_without_processes_does_not_hide_the_last_one_with_them(b: Bench) -> None:
    b.tell(sample(), sample(at_s=1, processes=[]), stream="usage-1-aaaaaa")
    found = b.object()["usage"]
    assert (found["cpu_percent"], found["ranks"], found["time"][17:19]) == (100.0, 1, "20")


def test_samples_come_back_by_level_and_time_and_go_on_where_they_ended(b: Bench) -> None:
    b.tell(*(sample(at_s=n) for n in range(10)), sample(level=1, at_s=9.5), stream="usage-1-aaaaaa")
    assert len(b.read(live_read.usage, b.job.pk, 1, 0, 2**62)[0]) == 1
    found, after = b.read(live_read.usage, b.job.pk, 0, NOW_NS + 2 * S, NOW_NS + 8 * S, limit=4)
    assert [one["time"][17:19] for one in found] == [
        "22",
        "23",
        "24",
        "25",
    ] and after == NOW_NS + 6 * S
    rest, end = b.read(live_read.usage, b.job.pk, 0, after, NOW_NS + 8 * S)
    assert len(rest) == 2 and end is None
    assert (found[0]["task"], found[0]["host"], found[0]["attempt"], found[0]["span_s"]) == (
        "worker-0",
        "node1",
        1,
        1,
    )
    assert found[0]["processes"][1]["pid"] == 7


def test_usage_is_thinned_by_housekeeping_and_the_longest_spans_stay(b: Bench) -> None:
    for level, at_s in ((0, 0), (0, 5000), (1, 0), (1, 50_000), (2, 0)):
        b.tell(sample(level=level, at_s=at_s), stream="usage-1-aaaaaa")
    b.clock.now_ns = NOW_NS + 5001 * S
    b.store.tidy()
    assert b.read(lambda c: [tuple(r) for r in c.execute("SELECT level, count(*) FROM usage GROUP BY 1")]) == [
        (0, 1), (1, 2), (2, 1),
    ]  # fmt: skip
    b.clock.now_ns = NOW_NS + 100_000 * S
    b.store.tidy()
    assert b.read(lambda c: [tuple(r) for r in c.execute("SELECT level, count(*) FROM usage GROUP BY 1")]) == [
        (1, 1), (2, 1),
    ]  # fmt: skip
    assert b.object()["usage"]["peak_memory_bytes"] == 300


def test_thinning_takes_bounded_steps(b: Bench) -> None:
    b.tell(*(sample(at_s=n) for n in range(20)), stream="usage-1-aaaaaa")
    late = NOW_NS + 10_000 * S
    assert b.write(lambda c: live_write.thin_usage(c, late, rows_max=15)) == 15
    assert b.read(live_write.is_thick, late)
    assert b.write(lambda c: live_write.thin_usage(c, late, rows_max=15)) == 5
    assert not b.read(live_write.is_thick, late)


def test_the_finest_level_that_has_the_beginning_is_chosen(b: Bench) -> None:
    assert b.read(live_read.finest_level, b.job.pk) == 0
    b.tell(*(sample(at_s=n) for n in range(61)), stream="usage-1-aaaaaa")
    b.tell(sample(level=1, at_s=10), sample(level=2, at_s=60), stream="usage-1-aaaaaa")
    assert b.read(live_read.finest_level, b.job.pk) == 0
    b.write(
        lambda c: (
            c.execute("DELETE FROM usage WHERE level = 0 AND time_ns < ?", (NOW_NS + 30 * S,))
            and None
        )
    )
    assert b.read(live_read.finest_level, b.job.pk) == 1


# -- checkpoints, timings, what cannot be read


def test_checkpoints_and_timings_are_kept_and_a_timing_replaces_the_last(b: Bench) -> None:
    stream = "facts-1-7-aaaaaa"
    b.tell({"type": "checkpoint", "tags": ["loaded", "gpu"], "rank": 1, "pid": 7}, stream=stream)
    timing = {
        "type": "timing",
        "name": "data",
        "rank": 1,
        "pid": 7,
        "std_s": 0.1,
        "min_s": 0.2,
        "max_s": 3.0,
    }
    b.tell(
        timing | {"count": 5, "mean_s": 1.0}, timing | {"count": 9, "mean_s": 2.0}, stream=stream
    )
    b.tell(timing | {"count": 5, "mean_s": 1.0}, stream=stream)
    (mark,) = b.read(live_read.checkpoints, b.job.pk)
    assert (mark["tags"], mark["rank"], mark["attempt"]) == (["loaded", "gpu"], 1, 1)
    (found,) = b.read(live_read.timings, b.job.pk)
    assert (found["name"], found["count"], found["mean_s"], found["rank"], found["pid"]) == (
        "data",
        9,
        2.0,
        1,
        7,
    )


@pytest.mark.parametrize(
    "told",
    [
        {"type": "progress", "pid": 1}, {"type": "progress", "pid": 1, "tracker": 0, "completed": "NaN"},
        {"type": "progress", "pid": 10**30, "tracker": 0, "completed": 1}, {"type": "log", "text": 5, "levelno": 20},
        {"type": "log", "text": "x", "levelno": 10**30}, {"type": "usage", "level": 3},
        {"type": "usage", "level": 0, "processes": 5}, {"type": "checkpoint", "tags": "x"},
        {"type": "timing", "name": "x", "pid": 1, "count": 2, "mean_s": None},
    ],
)  # fmt: skip
def test_what_cannot_be_read_stays_an_event(b: Bench, told: dict[str, Any]) -> None:
    """P11, P12."""
    b.tell(told, stream="facts-0-7-aaaaaa")
    assert len(b.events(str(told["type"]))) == 1


def test_odd_values_inside_a_sample_cost_only_themselves(b: Bench) -> None:
    odd = [
        5,
        None,
        {"rank": "x"},
        {"rank": 0, "pid": None, "cpu_percent": 10**400, "rss_bytes": "NaN"},
    ]
    b.tell(
        sample(
            processes=odd,
            gpus=[7, {"holders": 3}, {"holders": [1, {"pid": [2]}], "load_percent": [1]}],
        ),
        stream="usage-1-aaaaaa",
    )
    found = b.object()["usage"]
    assert (found["cpu_percent"], found["memory_bytes"], found["ranks"], found["gpus"]) == (
        None,
        None,
        1,
        2,
    )


def test_what_is_watched_wakes_viewers_and_not_those_who_decide(b: Bench) -> None:
    heard: list[tuple[int, str]] = []
    b.store.listen(lambda job, what: heard.append((job, what)))
    b.tell(tracker(7, 0, 1), log("x"), sample(), stream="shipper-1-aaaaaa")
    assert {what for _, what in heard} == {"progress", "records", "usage"}


# -- the whole


def test_a_deleted_job_leaves_nothing_of_what_was_watched(b: Bench) -> None:
    b.tell(tracker(7, 0, 1), *(log("x") for _ in range(20)), sample(), stream="shipper-1-aaaaaa")
    b.tell({"type": "checkpoint", "tags": []}, stream="facts-0-7-aaaaaa")
    b.end()
    assert b.read(retention.removable, b.paths, NOW_NS + 10 * S)[0].bytes > 20
    b.write(lambda c: catalog.mark_deleted(c, b.job.pk, NOW_NS))
    b.store.gc(None)
    for table in (
        "progress",
        "records",
        "record_totals",
        "usage",
        "usage_last",
        "checkpoints",
        "timings",
    ):
        assert rows(b, table) == 0, table


def test_open_jobs_are_listed_with_what_they_do_and_those_that_run_come_first(b: Bench) -> None:
    b.tell(tracker(7, 0, 1), sample(), stream="shipper-1-aaaaaa")
    waiting, _ = new_job(b.store)
    b.write(lambda c: catalog.set_job_state(c, b.job.pk, State.RUNNING, NOW_NS, started_ns=NOW_NS))
    found = b.read(query.open_rows, 10, NOW_NS)
    assert [row["id"] for row in found] == [b.job.id, waiting.id]
    assert found[0]["usage"]["cpu_percent"] == 100.0 and found[0]["progress"][0]["completed"] == 1
    assert found[1]["usage"] is None
    assert len(b.read(query.open_rows, 1, NOW_NS)) == 1


def test_a_job_tells_its_output_folder_and_the_processes_that_it_asked_for(b: Bench) -> None:
    """Capability 49."""
    found = b.object()
    assert (
        found["output_dir"] == str(b.paths.output.absolute() / b.job.id) and found["processes"] == 1
    )


def with_first_schema(home: Path) -> None:
    """Put what a closed store holds into a database as the first version made it."""
    path = home / "headway.db"
    path.rename(home / "new.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as c:
        for statement in migrate.statements(migrate.migrations()[1]):
            c.execute(statement)
        c.execute("ATTACH ? AS new", (str(home / "new.db"),))
        tables = [
            name
            for (name,) in c.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
        ]
        for name in tables:
            if name != "sqlite_sequence":
                columns = ", ".join(row[1] for row in c.execute(f"PRAGMA main.table_info({name})"))
                c.execute(f"INSERT INTO main.{name} ({columns}) SELECT {columns} FROM new.{name}")
        for pragma in ("application_id", "user_version"):
            value = c.execute(f"PRAGMA new.{pragma}").fetchone()[0]
            c.execute(f"PRAGMA main.{pragma} = {1 if pragma == 'user_version' else value}")
    (home / "new.db").unlink()


def test_a_database_of_the_first_schema_opens_and_keeps_everything(tmp_path: Path) -> None:
    old = bench(tmp_path / "home")
    old.tell(
        {"type": "note", "text": "before"},
        {"type": "config", "config": {"lr": 0.1}},
        stream="facts-0-7-aaaaaa",
    )
    old.send("metrics-0-7-aaaaaa.0", "records", schema(0, "loss") + record(0, 1, [0.5]))
    old.send("stdout-0", "raw", b"hello\n")
    old.store.close()
    with_first_schema(tmp_path / "home")
    with closing(sqlite3.connect(tmp_path / "home" / "headway.db", factory=Connection)) as c:
        before = dump(c)

    old.store.open()
    after = old.read(lambda c: dump(c))
    for name, rows in before.items():  # a later schema only adds columns behind the others
        assert [row[: len(known)] for row, known in zip(after[name], rows, strict=True)] == rows
    assert set(after) - set(before) == {
        "progress", "records", "record_totals", "usage", "usage_last", "checkpoints", "timings", "changes",
        "notices", "arrays", "metric_definitions", "summary_values", "media", "media_pieces", "artifacts",
        "artifact_aliases", "artifact_uses", "artifact_parts", "stacks", "health", "forecasts", "page_layouts",
    }  # fmt: skip
    found = old.object()
    assert (found["metrics"], found["config"], found["progress"], found["usage"]) == (
        {"loss": 0.5},
        {"lr": 0.1},
        [],
        None,
    )
    old.tell(tracker(7, 0, 1), log("x"), sample(), stream="shipper-1-aaaaaa")
    assert old.object()["progress"][0]["completed"] == 1
    # one for all steps: a large database is not copied often
    (copy,) = (tmp_path / "home").glob("headway.db.before-*")
    with sqlite3.connect(copy, factory=Connection) as c:
        assert c.execute("SELECT count(*) FROM jobs").fetchone()[0] == 1
    c.close()
    old.store.close()


def dump(c: sqlite3.Connection) -> dict[str, list[list[str]]]:
    names = [
        r[0]
        for r in c.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
    ]
    return {
        name: [[str(v) for v in row] for row in c.execute(f"SELECT * FROM {name}")]
        for name in names
    }


def test_a_row_prefers_trackers_that_know_where_they_end(b: Bench) -> None:
    b.tell(
        tracker(7, 0, 10),
        *(tracker(7, n, 10, total=None) for n in range(1, 6)),
        stream="shipper-1-aaaaaa",
    )
    found = b.read(lambda c: live_read.progress(c, [b.job.pk], 2))[b.job.pk]
    assert [one["total"] for one in found] == [100, None]


# -- curves of usage


def test_a_curve_of_few_samples_has_each_of_them(b: Bench) -> None:
    lines = [[line(0, None, 10.0 * n, 100), line(1, None, 20.0 * n, 300)] for n in range(1, 9)]
    gpu = {"index": 0, "load_percent": 50.0, "memory_bytes": None}
    told = [
        sample(at_s=n, processes=one, gpus=[gpu] if n > 4 else []) for n, one in enumerate(lines)
    ]
    b.tell(*told, sample(at_s=8, processes=[]), stream="usage-1-aaaaaa")
    found = b.read(usage_curves.usage, b.job.pk, 64)
    assert found["cpu_percent"]["value"] == [15.0 * n for n in range(1, 9)]
    assert found["cpu_percent"]["time"] == [iso(NOW_NS + n * S) for n in range(8)]
    assert found["memory_bytes"]["value"] == [200.0] * 8
    assert found["gpu_percent"] == {
        "time": [iso(NOW_NS + n * S) for n in (5, 6, 7)],
        "value": [50.0] * 3,
    }
    assert set(found) == {"cpu_percent", "memory_bytes", "gpu_percent"}


def test_a_curve_has_the_whole_life_also_where_fine_samples_are_gone(b: Bench) -> None:
    minutes = [
        sample(level=2, at_s=60 * n, processes=[line(0, None, [0.0, float(n), 99.0], 1)])
        for n in range(1, 641)
    ]
    b.tell(*minutes, sample(at_s=640 * 60 + 1), stream="usage-1-aaaaaa")
    found = b.read(usage_curves.usage, b.job.pk, 64)["cpu_percent"]
    assert found["value"] == sorted(found["value"]) and len(found["value"]) == 64
    assert found["value"][0] < 11 and found["value"][-1] > 630


def test_a_curve_of_very_many_samples_reads_few_of_them(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_curves, "CURVE_SAMPLES_MAX", 20)
    b.tell(*(sample(at_s=n) for n in range(200)), stream="usage-1-aaaaaa")
    read: list[Any] = []
    monkeypatch.setattr(
        live_write,
        "short",
        lambda fact: read.append(fact) or {"ranks": [[0, 1.0, 2.0]], "gpus": []},
    )
    assert len(b.read(usage_curves.usage, b.job.pk, 10)["cpu_percent"]["value"]) == 10
    assert len(read) == 20


def test_a_job_without_samples_has_no_curve(b: Bench) -> None:
    assert b.read(usage_curves.usage, b.job.pk, 64) == {}


def test_usage_is_split_by_rank_node_and_card(b: Bench) -> None:
    cards = [{"index": n, "load_percent": 40.0 + n, "memory_bytes": 100 * n} for n in range(2)]
    told = [
        sample(
            at_s=n, processes=[line(0, None, 10.0 * n, 100), line(1, None, 5.0, 300)], gpus=cards
        )
        for n in range(1, 4)
    ]
    b.tell(*told, stream="usage-1-aaaaaa")
    ranks = b.read(usage_stacks.usage, b.job.pk, "rank", None, 64)
    charts = {chart["name"]: chart for chart in ranks["charts"]}
    assert ranks["time"] == [iso(NOW_NS + n * S) for n in (1, 2, 3)]
    assert charts["cpu_percent"]["lines"] == [
        {"label": "rank 0", "values": [10.0, 20.0, 30.0]},
        {"label": "rank 1", "values": [5.0] * 3},
    ]
    assert [one["values"][0] for one in charts["memory_bytes"]["lines"]] == [100.0, 300.0]
    nodes = b.read(usage_stacks.usage, b.job.pk, "node", None, 64)
    assert nodes["charts"][0]["lines"][0]["values"] == [150.0] * 3
    gpus = b.read(usage_stacks.usage, b.job.pk, "gpu", None, 64)
    assert [one["label"] for one in gpus["charts"][0]["lines"]] == ["GPU 0", "GPU 1"]
    assert gpus["charts"][0]["lines"][1]["values"] == [41.0] * 3


def test_a_rank_that_was_not_measured_has_no_value_there(b: Bench) -> None:
    both = [line(0, None, 1.0, 1), line(1, None, 2.0, 1)]
    b.tell(
        sample(at_s=0, processes=both), sample(at_s=1, processes=both[:1]), stream="usage-1-aaaaaa"
    )
    charts = b.read(usage_stacks.usage, b.job.pk, "rank", None, 64)["charts"]
    assert charts[0]["lines"][1]["values"] == [2.0, None]


def test_a_job_without_samples_has_no_charts_of_usage(b: Bench) -> None:
    found = b.read(usage_stacks.usage, b.job.pk, "rank", None, 64)
    assert found["charts"] == [] and found["time"] == []

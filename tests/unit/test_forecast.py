"""When a waiting job starts, from what is known of those that run; and how often that was right."""

import sqlite3
from pathlib import Path
from typing import Any

from headway.engines.protocol import Node
from headway.home.paths import Paths
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.control.forecast import Forecast, History, Length, foresee, record_words, words
from headway.server.control.waiting import explain
from headway.store import forecast_rows
from headway.store.database import Store

S = 1_000_000_000
NOW = 1_000 * S
NODE = [Node("box", 8, 64 << 30, 4)]


def job(pk: int, ran_s: float | None = None, **spec: Any) -> Job:
    made = Job(
        pk, f"job-{pk:05d}", f"u{pk}", JobSpec(["true"], "/", "job", **spec), State.WAITING, pk, pk
    )
    if ran_s is not None:
        made.started_ns = NOW - int(ran_s * S)
        made.attempts.append(Attempt(1, State.RUNNING, f"u{pk}-1"))
    return made


def test_the_next_place_comes_free_when_the_first_running_job_ends() -> None:
    running = [job(1, 100.0), job(2, 10.0)]
    lengths = {1: Length(400.0, "by its progress bar"), 2: Length(130.0, "by its time limit")}
    me = job(9)
    seen = foresee(me, [me], running, NODE, 2, lengths, NOW)
    assert seen == Forecast(NOW + 120 * S, "when job-00002 ends (by its time limit)")
    ahead = job(5)
    lengths[5] = Length(50.0, "jobs of this name took 50s here")
    behind = foresee(me, [ahead, me], running, NODE, 2, lengths, NOW)
    assert behind is not None and behind.start_ns == NOW + 170 * S, "after the one ahead"


def test_resources_count_as_places_do_and_the_unknown_is_said_to_be() -> None:
    running = [job(1, 0.0, cpus=6), job(2, 0.0, cpus=2)]
    lengths = {1: Length(60.0, "x"), 2: Length(20.0, "x")}
    me = job(9, cpus=4)
    seen = foresee(me, [me], running, NODE, 16, lengths, NOW)
    assert seen is not None and seen.start_ns == NOW + 60 * S, "two CPUs are not four"
    assert foresee(me, [me], running, NODE, 16, {}, NOW) is None
    told = explain(me, [*running, me], NODE, 16, now_ns=NOW, lengths={})
    assert told.start_ns is None and "not known" in told.start


def test_what_is_told_is_corrected_by_what_was_and_says_how_often_it_was_right() -> None:
    text, start_ns = words(Forecast(NOW + 600 * S, "when a ends (x)"), History(9, 12, 1.5), NOW)
    assert start_ns == NOW + 900 * S and "in 15m, when a ends (x)" in text
    assert text.endswith("9 of 12 forecasts here were right to a quarter of the wait")
    assert record_words(History()) == "no forecast was put to the test here so far"


def test_a_job_in_the_queue_here_says_what_would_let_it_start_sooner() -> None:
    running = [job(1, 0.0, cpus=6)]
    told = explain(job(9, cpus=4), [*running], NODE, 16)
    assert told.sooner == (f"{'--cpus 2':<30} would start now",)
    assert told.cause == "resources"
    full = explain(job(9), [job(1, 0.0)], NODE, 1)
    assert full.cause == "limit"
    assert "max_running 2" in full.sooner[0]
    ahead = explain(job(9), [job(3, priority=4)], NODE, 8)
    assert "--priority 5" in ahead.sooner[0]
    assert ahead.ahead_words == ("00003 (priority 4)",) and ahead.cause == "queue"
    assert explain(job(9), [], NODE, 8).cause == "starting"


def test_forecasts_are_kept_and_counted_against_the_real_start(home: Path) -> None:
    store = Store(Paths(home))
    store.open()

    def fill(c: sqlite3.Connection) -> None:
        for pk, started_s in ((1, 110), (2, 400), (3, None)):
            started_ns = None if started_s is None else started_s * S
            c.execute(
                """INSERT INTO jobs
                     (pk, id, suffix, uuid, name, cluster, state, submitted_ns, state_since_ns, started_ns, spec)
                   VALUES (?, ?, ?, ?, 'job', 'here', 'running', 0, 0, ?, '{}')""",
                (pk, f"job-{pk}", str(pk), f"u{pk}", started_ns),
            )
            forecast_rows.put(c, pk, "here", 0, 100 * S, 100 * S)
            forecast_rows.put(c, pk, "here", 0, 7 * S, 7 * S)

    store.write(fill).result()
    with store.read() as c:
        right, total, factor = forecast_rows.history(c, "here")
        assert (right, total, factor) == (1, 2, 1.0), "the second forecast of a job does not count"
        assert forecast_rows.history(c, "elsewhere") == (0, 0, 1.0)
    store.close()

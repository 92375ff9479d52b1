"""The writer: one commit for all that waits, no yes too early, no item harmed by another (P3, P7;
F6, F8, F39).
"""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import RefusedError, UnreachableError
from headway.model.limits import LINGER_MAX_S
from headway.store import catalog, series, writer
from headway.store.connection import Connection, open_writer
from headway.store.ingest import Ingester
from headway.store.reader_pool import Pool
from headway.wire.batch import Part
from tests.storing import NOW_NS, Bench, bench, record, records, schema
from tests.waiting import wait_until

METRICS = "metrics-0-100-abcdef.0"


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def note(b: Bench, c: sqlite3.Connection, text: str) -> None:
    catalog.add_event(c, b.job.pk, "note", {"text": text}, NOW_NS)


def notes(b: Bench) -> list[str]:
    return [event["data"]["text"] for event in b.events("note")]


class Gate:
    """Holds the writer inside an item until it is opened, so that others wait together."""

    def __init__(self, b: Bench) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.future = b.store.write(self._work)
        assert self.entered.wait(60)

    def _work(self, c: sqlite3.Connection) -> None:
        self.entered.set()
        assert self.leave.wait(60)

    def open(self) -> None:
        self.leave.set()
        self.future.result(60)


def test_all_that_waits_shares_one_commit(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = []
    monkeypatch.setattr(b.store, "before_commit", lambda: commits.append(1))
    gate = Gate(b)
    waiting = [b.store.write(lambda c, i=i: note(b, c, str(i))) for i in range(50)]
    gate.open()
    for future in waiting:
        future.result(30)
    assert len(commits) == 2
    assert notes(b) == [str(i) for i in range(50)]


def test_one_bad_item_harms_no_other(b: Bench) -> None:
    def bad(c: sqlite3.Connection) -> None:
        note(b, c, "never seen")
        raise RefusedError("no")

    def broken(c: sqlite3.Connection) -> None:
        note(b, c, "never seen either")
        c.execute(
            "INSERT INTO series (job, attempt, rank, process, name) VALUES (99999, 1, 0, 'x', 'y')"
        )

    gate = Gate(b)
    data = schema(0, "x") + record(0, 1, [1.0])
    futures = [
        b.store.write(lambda c: note(b, c, "one")), b.store.write(bad),
        b.store.ingest(b.key, [Part(METRICS, "records", 0, data)]), b.store.write(broken),
        b.store.write(lambda c: note(b, c, "two")),
    ]  # fmt: skip
    gate.open()
    futures[0].result(30)
    with pytest.raises(RefusedError):
        futures[1].result(30)
    assert futures[2].result(30).acks == {METRICS: len(data)}
    with pytest.raises(sqlite3.IntegrityError):
        futures[3].result(30)
    futures[4].result(30)
    assert notes(b) == ["one", "two"]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC])
def test_a_commit_that_fails_tells_nobody_yes_and_the_next_one_works(
    b: Bench, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """F6, F8; the real thing is in tests/fault/test_store_disk.py."""

    def fail() -> None:
        error = sqlite3.OperationalError("disk trouble")
        error.sqlite_errorcode = code
        raise error

    data = schema(0, "x") + record(0, 1, [1.0])
    gate = Gate(b)
    monkeypatch.setattr(b.store, "before_commit", fail)
    futures: list[Any] = [
        b.store.ingest(b.key, [Part(METRICS, "records", 0, data)]), b.store.write(lambda c: note(b, c, "lost")),
    ]  # fmt: skip
    gate.leave.set()
    for future in futures:
        with pytest.raises(UnreachableError):
            future.result(30)
    monkeypatch.undo()
    assert notes(b) == [] and b.store.trouble == "disk trouble"
    assert b.ingest(Part(METRICS, "records", 0, data)).acks == {METRICS: len(data)}
    assert b.store.trouble == ""
    assert b.object()["metrics"] == {"x": 1.0}


def test_after_an_input_output_error_the_log_is_emptied_before_it_is_trusted(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: a page whose sync failed may never have reached the disk, so no commit may rest on it."""
    monkeypatch.setattr(
        b.store, "before_commit", lambda: (_ for _ in ()).throw(OSError(5, "Input/output error"))
    )
    with pytest.raises(UnreachableError):
        b.write(lambda c: note(b, c, "lost"))
    monkeypatch.undo()
    wal = b.paths.db.with_name("headway.db-wal")
    sizes: list[int] = []
    monkeypatch.setattr(b.store, "before_commit", lambda: sizes.append(wal.stat().st_size))
    b.write(lambda c: note(b, c, "kept"))
    assert sizes == [0]


def test_too_much_waiting_data_is_refused_at_once_and_control_is_not(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7"""
    monkeypatch.setattr(writer, "INGEST_QUEUE_BYTES_MAX", 1000)
    gate = Gate(b)
    part = Part("stdout-0", "raw", 0, b"x" * 600)
    first, second = b.store.ingest(b.key, [part]), b.store.ingest(b.key, [part])
    with pytest.raises(UnreachableError):
        second.result(0)
    control = b.store.write(lambda c: note(b, c, "stop"))
    gate.open()
    assert first.result(30).acks == {"stdout-0": 600}
    control.result(30)
    assert b.ingest(Part("stdout-0", "raw", 600, b"y" * 600)).acks == {"stdout-0": 1200}


def test_little_data_waits_for_company_and_facts_do_not(b: Bench) -> None:
    worker = b.store._writer
    assert worker is not None
    worker._linger_s = 3600.0
    b.write(lambda c: note(b, c, "a commit just now"))
    small = [b.store.ingest(b.key, [Part(f"stdout-{i}", "raw", 0, b"x")]) for i in range(5)]
    assert not small[0].done()
    b.tell({"type": "note", "text": "told"}, stream="facts-0-1-aaaaaa")
    assert [future.result(0).acks for future in small] == [{f"stdout-{i}": 1} for i in range(5)], (
        "in the same commit"
    )
    large = b.store.ingest(b.key, [Part("stdout-9", "raw", 0, bytes(writer.LINGER_BYTES))])
    assert large.result(30).acks == {"stdout-9": writer.LINGER_BYTES}


def test_a_cancelled_future_is_not_run(b: Bench) -> None:
    gate = Gate(b)
    future = b.store.write(lambda c: note(b, c, "cancelled"))
    assert future.cancel()
    gate.open()
    b.write(lambda c: note(b, c, "after"))
    assert notes(b) == ["after"]


def test_closing_finishes_what_waits(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    futures = [b.store.write(lambda c, i=i: note(b, c, str(i))) for i in range(20)]
    b.store.close()
    assert all(future.done() and future.exception() is None for future in futures)
    with pytest.raises(UnreachableError):
        b.store.write(lambda c: None).result(1)
    b.store.close()
    b.store.open()
    assert notes(b) == [str(i) for i in range(20)]
    b.store.close()


# -- reading


def test_a_reader_sees_one_moment_and_cannot_write(b: Bench) -> None:
    with b.store.read() as c:
        before = c.execute("SELECT count(*) FROM events").fetchone()[0]
        b.write(lambda c: note(b, c, "meanwhile"))
        assert c.execute("SELECT count(*) FROM events").fetchone()[0] == before
        with pytest.raises(sqlite3.OperationalError):
            c.execute("DELETE FROM events")
    assert notes(b) == ["meanwhile"]


def test_a_query_that_takes_too_long_is_stopped(b: Bench) -> None:
    """F39"""
    pool = Pool(b.paths.db, timeout_s=0.05)
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    with pytest.raises(UnreachableError, match="longer than"), pool.read() as c:
        c.execute(endless).fetchone()
    with pool.read() as c:
        assert c.execute("SELECT 1").fetchone()[0] == 1
    pool.close()


def test_a_reader_that_holds_the_log_stops_data_before_the_log_is_too_large(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F39: the write-ahead log is bounded; control goes on, and data is taken again afterwards."""
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 200_000)
    monkeypatch.setattr(writer, "WAL_BYTES_MAX", 1_000_000)
    wal = b.paths.db.with_name("headway.db-wal")
    data = records(0, range(20_000), [[i + 0.1 for i in range(20_000)]])
    b.send(METRICS, "records", schema(0, "x"))

    def send_until_refused() -> None:
        for _ in range(50):
            b.send(METRICS, "records", data)

    with b.store.read() as c:
        c.execute("SELECT count(*) FROM jobs").fetchone()
        with pytest.raises(UnreachableError, match="long read"):
            send_until_refused()
        assert wal.stat().st_size < 3_000_000
        b.write(lambda c: note(b, c, "control"))
    wait_until(lambda: _accepted(b, data), 20, "data is taken again")
    send_until_refused()
    assert wal.stat().st_size < 3_000_000


def _accepted(b: Bench, data: bytes) -> bool:
    try:
        b.send(METRICS, "records", data)
    except UnreachableError:
        return False
    return True


def test_the_log_does_not_grow_while_data_comes_and_goes(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 200_000)
    data = records(0, range(20_000), [[i + 0.1 for i in range(20_000)]])
    b.send(METRICS, "records", schema(0, "x"))
    for _ in range(30):
        b.send(METRICS, "records", data)
    assert b.paths.db.with_name("headway.db-wal").stat().st_size < 2_000_000


def test_a_log_that_cannot_start_over_does_not_end_the_writer(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def fail(log_bytes: int, all_moved: bool) -> bool:
        failed.append(log_bytes)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(b.store._writer, "_is_held", fail)
        b.write(lambda c: note(b, c, "before"))
        wait_until(lambda: failed)
    b.write(lambda c: note(b, c, "after"))
    assert notes(b) == ["before", "after"]


def test_a_connection_that_cannot_roll_back_is_opened_anew(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(open_writer(b.paths.db))
        return made[-1]

    worker = b.store._writer
    assert worker is not None
    monkeypatch.setattr(worker, "_connect", connect)
    old = worker._connection
    assert old is not None

    def break_it(c: sqlite3.Connection) -> None:
        c.close()
        raise OSError(5, "Input/output error")

    with pytest.raises((UnreachableError, sqlite3.ProgrammingError)):
        b.write(break_it)
    b.write(lambda c: note(b, c, "works"))
    assert len(made) == 1 and notes(b) == ["works"]


def test_a_writer_with_much_to_do_rests_longer_but_never_for_long() -> None:
    assert writer.rest_s(0.05, 0.0) == 0.05
    assert writer.rest_s(0.05, 0.03) == pytest.approx(0.12)
    assert writer.rest_s(0.05, 60.0) == LINGER_MAX_S
    assert writer.rest_s(0.0, 60.0) == 0.0, "where nobody lingers"


def test_rows_of_a_batch_that_failed_halfway_are_not_written_with_the_next(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: a batch's rows are written at its end; one that has no such end leaves none."""
    first = schema(0, "loss") + record(0, 0, [0.0])
    b.send(METRICS, "records", first)
    parts = [
        Part(METRICS, "records", len(first), record(0, 1, [1.0])),
        Part("stdout-0", "raw", 0, b"hello\n"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(Ingester, "_bytes", lambda *_: {}["a mistake of ours"])
        with pytest.raises(KeyError):
            b.ingest(*parts)
    b.send("stdout-0", "raw", b"hello\n")
    assert b.ingest(Part(METRICS, "records", len(first) + 48, b"")).acks == {METRICS: len(first)}
    assert b.ingest(parts[0]).acks == {METRICS: len(first) + len(parts[0].data)}
    assert b.ingest(parts[0]).acks == {METRICS: len(first) + len(parts[0].data)}
    (found,) = b.read(series.read_series, b.job.pk, "loss")
    assert found.points.values.tolist() == [0.0, 1.0]
    assert b.object()["metrics"] == {"loss": 1.0}

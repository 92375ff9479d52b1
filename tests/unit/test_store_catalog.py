"""Jobs, attempts, tasks and tokens as rows (capabilities 4, 5, 9; P8, P9)."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import NotFoundError, RefusedError, UsageError
from headway.model.ids import ALPHABET, SUFFIX_CHARS, new_uuid
from headway.model.job import JobSpec, Retry, Role, State
from headway.store import catalog
from headway.wire.batch import TaskKey
from tests.storing import NOW_NS, Bench, bench, new_job


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def spec(name: str = "train", **fields: Any) -> JobSpec:
    return JobSpec(command=["x"], cwd="/", name=name, **fields)


def test_the_same_uuid_is_the_same_job(b: Bench) -> None:
    uuid = new_uuid()
    first = b.write(lambda c: catalog.insert_job(c, uuid, spec(), NOW_NS))
    again = b.write(lambda c: catalog.insert_job(c, uuid, spec("other"), NOW_NS + 5))
    assert again == first
    assert first.id.startswith("train-") and len(first.id) == len("train-") + SUFFIX_CHARS


@pytest.mark.parametrize(
    "odd", [{"command": ["cat", "\udcff.txt"]}, {"parameters": {"n": 99_999_999_999_999_999_999}}]
)
def test_a_spec_is_stored_whole_whatever_is_in_it(b: Bench, odd: dict[str, Any]) -> None:
    """Bytes that are not UTF-8, and numbers of more than 64 bits."""
    given = replace(
        spec(tags=["a", "b", "a"], retry=Retry(max=3), roles=[Role("ps", ["x"])]), **odd
    )
    made = b.write(lambda c: catalog.insert_job(c, new_uuid(), given, NOW_NS))
    read = b.read(catalog.load_job, made.pk)
    assert made == read and read.spec == given and read.tags == ["a", "b"]


def test_a_suffix_that_is_taken_is_drawn_again(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaaa", "aaaaa", "aaaaa", "bbbbb"])
    monkeypatch.setattr(catalog, "new_suffix", lambda: next(drawn))
    ids = [
        b.write(lambda c: catalog.insert_job(c, new_uuid(), spec(), NOW_NS)).id for _ in range(2)
    ]
    assert ids == ["train-aaaaa", "train-bbbbb"]


@pytest.mark.parametrize(
    "uuid", ["", "../../etc", "A" * 36, "{" + new_uuid() + "}", new_uuid().upper(), "x\0y"]
)
def test_a_uuid_that_could_be_a_path_is_refused(b: Bench, uuid: str) -> None:
    """B20: it becomes a folder's name."""
    with pytest.raises(UsageError):
        b.write(lambda c: catalog.insert_job(c, uuid, spec(), NOW_NS))


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "x\0", "w" * 65])
def test_a_task_name_that_could_be_a_path_is_refused(b: Bench, name: str) -> None:
    with pytest.raises(UsageError):
        b.write(lambda c: catalog.insert_task(c, b.job.pk, 1, name))


@pytest.mark.cap(4)
def test_any_unique_ending_finds_a_job_and_others_list_the_candidates(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no drawn id ends in u, so the bench's own job is never meant
    drawn = iter(["a031u", "bb9eu", "1120u"])
    monkeypatch.setattr(catalog, "new_suffix", lambda: next(drawn))
    jobs = [new_job(b.store, name)[0] for name in ("digits", "digits", "voc20")]
    assert b.read(catalog.resolve, "1u") == jobs[0].pk
    assert (
        b.read(catalog.resolve, "digits-bb9eu")
        == b.read(catalog.resolve, jobs[1].uuid)
        == jobs[1].pk
    )
    with pytest.raises(NotFoundError) as several:
        b.read(catalog.resolve, "u")
    assert several.value.message == (
        '3 jobs end in "u": voc20-1120u (waiting), digits-bb9eu (waiting), digits-a031u (waiting)'
    )
    assert several.value.hint == "type one more character, or use the whole id"
    assert several.value.candidates == ["voc20-1120u", "digits-bb9eu", "digits-a031u"]
    for ref in ("zz", "", "%", "_", "é", "\ud800", "digits-a0317x"):
        with pytest.raises(NotFoundError):
            b.read(catalog.resolve, ref)


def test_a_deleted_job_is_found_no_more(b: Bench) -> None:
    with pytest.raises(RefusedError):
        b.write(lambda c: catalog.mark_deleted(c, b.job.pk, NOW_NS))
    b.end()
    b.write(lambda c: catalog.mark_deleted(c, b.job.pk, NOW_NS))
    with pytest.raises(NotFoundError):
        b.read(catalog.resolve, b.job.id)
    assert b.read(catalog.list_jobs) == []


def test_a_forbidden_change_of_state_tells_the_story(b: Bench) -> None:
    b.end(State.FAILED)
    with pytest.raises(RefusedError, match="waiting → running → failed"):
        b.write(lambda c: catalog.set_job_state(c, b.job.pk, State.RUNNING, NOW_NS))
    assert b.read(catalog.load_job, b.job.pk).state is State.FAILED


def test_every_change_of_state_is_an_event(b: Bench) -> None:
    b.end()
    told = [event["data"] for event in b.events("state")]
    assert [(data.get("from"), data["to"]) for data in told] == [
        (None, "waiting"), ("waiting", "running"), ("running", "succeeded"),
    ]  # fmt: skip


def test_a_terminal_state_of_an_attempt_never_changes(b: Bench) -> None:
    """P8"""
    b.write(lambda c: catalog.set_attempt(c, b.job.pk, 1, state=State.FAILED, exit_code=3))
    b.write(lambda c: catalog.set_attempt(c, b.job.pk, 1, state=State.SUCCEEDED, exit_code=0))
    (attempt,) = b.read(catalog.load_job, b.job.pk).attempts
    assert (attempt.state, attempt.exit_code) == (State.FAILED, 3)


def test_inserting_an_attempt_or_task_again_changes_nothing(b: Bench) -> None:
    def again(c: sqlite3.Connection) -> tuple[int, int]:
        attempt = catalog.insert_attempt(c, b.job.pk, 1, f"{b.job.uuid}-1", NOW_NS + 99)
        return attempt, catalog.insert_task(c, b.job.pk, 1, "worker-0", "elsewhere")

    assert b.write(again) == b.write(again)
    (attempt,) = b.read(catalog.load_job, b.job.pk).attempts
    assert (attempt.created_ns, attempt.tasks[0].node) == (NOW_NS, "node1")


def test_open_jobs_come_by_priority_and_then_age(b: Bench) -> None:
    made = [
        new_job(b.store, name, priority=p)[0] for name, p in (("one", 0), ("two", 5), ("three", 5))
    ]
    b.end()
    assert [job.id for job in b.read(catalog.open_jobs)] == [made[1].id, made[2].id, made[0].id]


@pytest.mark.cap(9)
def test_open_jobs_that_are_to_be_skipped_are_not_read(b: Bench) -> None:
    pks = [
        b.write(lambda c: catalog.insert_job(c, new_uuid(), spec(), NOW_NS)).pk for _ in range(3)
    ]
    assert pks[1] not in {job.pk for job in b.read(catalog.open_jobs, skip={pks[1]})}
    assert {pks[0], pks[2]} <= {job.pk for job in b.read(catalog.open_jobs, skip={pks[1]})}


def test_a_list_can_be_narrowed(b: Bench) -> None:
    other, _ = new_job(b.store, "other", experiment="voc20", cluster="lab")
    b.end()

    def ids(**fields: Any) -> list[str]:
        return [job.id for job in b.read(catalog.list_jobs, catalog.JobFilter(**fields))]

    assert ids() == [other.id, b.job.id]
    assert ids(states=["succeeded"]) == [b.job.id]
    assert ids(states=["waiting", "succeeded"]) == ids(limit=2) == ids()
    assert (
        ids(cluster="lab")
        == ids(experiment="voc20")
        == ids(match="^oth")
        == ids(limit=1)
        == [other.id]
    )
    assert ids(since_ns=NOW_NS + 1) == ids(limit=0) == ids(match="no such word") == []
    assert ids(match=" ".join(b.job.spec.command)) == ids(), "both have this command"
    for fields in (
        {"states": ["no'such"]},
        {"match": "("},
        {"match": "x" * 1001},
    ):
        with pytest.raises(UsageError):
            ids(**fields)


def test_an_agents_sign_of_life_never_goes_back(b: Bench) -> None:
    b.write(lambda c: catalog.heard(c, {b.key: 10}))
    b.write(lambda c: catalog.heard(c, {b.key: 5, TaskKey(b.key.uuid, 7, "worker-0"): 9}))
    assert b.read(catalog.load_job, b.job.pk).attempts[0].tasks[0].heard_ns == 10


def test_tokens_end_with_their_task(b: Bench) -> None:
    other = TaskKey(b.key.uuid, 2, "worker-0")
    b.write(lambda c: catalog.insert_token(c, "one", b"h", "ingest", b.key, NOW_NS))
    b.write(lambda c: catalog.insert_token(c, "two", b"h", "ingest", other, NOW_NS))
    assert b.write(lambda c: catalog.end_tokens(c, b.key, NOW_NS + 1)) == 1
    first, second = b.read(catalog.find_token, "one"), b.read(catalog.find_token, "two")
    assert first is not None and second is not None
    assert (first.ended_ns, second.ended_ns, second.task) == (NOW_NS + 1, None, str(other))
    assert b.read(catalog.find_token, "three") is None
    assert not b.read(catalog.may_send, str(b.key)) and b.read(catalog.any_may_send, b.key.uuid)
    b.write(lambda c: catalog.end_tokens(c, other, NOW_NS + 1))
    assert not b.read(catalog.any_may_send, b.key.uuid)


@pytest.mark.parametrize(
    "which", ["task = 'x' AND ended_ns IS NULL", "task >= 'x-' AND task < 'x.'"]
)
def test_tokens_of_a_task_are_found_without_a_look_at_all_others(b: Bench, which: str) -> None:
    with b.store.read() as c:
        found = c.execute(f"EXPLAIN QUERY PLAN DELETE FROM tokens WHERE {which}").fetchall()
    assert "tokens_by_task" in found[0]["detail"]


def test_the_alphabet_of_ids_has_no_letters_to_misread() -> None:
    assert not set("ilou") & set(ALPHABET)


def test_a_name_is_no_id_and_the_jobs_that_have_it_are_told(b: Bench) -> None:
    ids = [new_job(b.store, "digits")[0].id for _ in range(2)]
    with pytest.raises(NotFoundError, match='"digits" is the name of 2 jobs, not an id') as told:
        b.read(catalog.resolve, "digits")
    assert sorted(told.value.candidates) == sorted(ids) and "last five" in told.value.hint
    with pytest.raises(NotFoundError, match=rf'"train" is the name of {b.job.id} \(waiting\)'):
        b.read(catalog.resolve, "train")
    with pytest.raises(NotFoundError, match='no job ends in "digit"'):
        b.read(catalog.resolve, "digit")


def test_a_job_that_waits_for_its_next_attempt_has_started_although_nobody_saw_it_run(
    b: Bench,
) -> None:
    """An attempt of milliseconds is over when its job is still called waiting."""
    made = b.write(lambda c: catalog.insert_job(c, new_uuid(), spec(), NOW_NS))
    b.write(lambda c: catalog.wait_again(c, made.pk, NOW_NS + 9, NOW_NS + 5))
    b.write(lambda c: catalog.wait_again(c, made.pk, NOW_NS + 30, NOW_NS + 20))
    read = b.read(catalog.load_job, made.pk)
    assert (read.state, read.started_ns, read.state_since_ns) == (
        State.WAITING,
        NOW_NS + 5,
        NOW_NS + 30,
    )

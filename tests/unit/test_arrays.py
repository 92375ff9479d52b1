"""Arrays: many jobs stored, stopped and repeated as one; and a queue that is not read whole."""

import json
import os
from typing import Any

import pytest

from headway.model.errors import NotFoundError, RefusedError, UsageError
from headway.model.ids import new_uuid
from headway.model.job import State
from headway.model.limits import ARRAY_JOBS_MAX, QUEUE_WINDOW
from headway.server.control.array_verbs import Element
from headway.store import arrays, catalog, query
from tests.unit.control_bench import Bench, in_loop, refused

SPEC = {"command": ["true"], "cwd": "/", "name": "sweep"}
ENV = {"PATH": "/bin", "MY_PASSWORD": "hunter22-long"}


def numbered(count: int, **own: Any) -> list[Element]:
    return [Element(index, {"command": ["echo", str(index)], **own}, {}) for index in range(count)]


async def submit(b: Bench, jobs: list[Element], uuid: str | None = None, **spec: Any) -> str:
    return await b.control.submit_array(uuid or new_uuid(), {**SPEC, **spec}, ENV, jobs)


def shown(b: Bench, uuid: str) -> dict[str, Any]:
    with b.store.read() as c:
        return arrays.array_object(c, uuid)


@in_loop
async def test_an_array_is_stored_once_with_one_environment(b: Bench) -> None:
    uuid = new_uuid()
    assert await submit(b, numbered(50), uuid) == uuid
    assert await submit(b, numbered(50), uuid) == uuid  # the answer was lost, and it is sent again
    found = shown(b, uuid)
    assert (found["jobs"], found["states"], found["name"]) == (50, {"waiting": 50}, "sweep")
    assert found["id"].startswith("sweep-")
    assert b.env_files() == [f"{uuid}.json"]
    assert len({job.id for job in b.jobs()}) == 50


@in_loop
async def test_each_job_gets_its_number_its_command_and_its_variables(b: Bench) -> None:
    jobs = [Element(7, {"command": ["echo", "a"]}, {"SEED": "1"}), Element(9, {}, {})]
    await submit(b, jobs)
    await b.look(2)
    given = [
        b.engine.started[f"{job.uuid}-1"].env for job in sorted(b.jobs(), key=lambda job: job.pk)
    ]
    assert [(env["HEADWAY_ARRAY_INDEX"], env.get("SEED"), env["MY_PASSWORD"]) for env in given] == [
        ("7", "1", "hunter22-long"), ("9", None, "hunter22-long"),
    ]  # fmt: skip
    assert [job.spec.command for job in sorted(b.jobs(), key=lambda job: job.pk)] == [
        ["echo", "a"],
        ["true"],
    ]


@in_loop
async def test_secrets_in_commands_are_masked_and_still_reach_the_jobs(b: Bench) -> None:
    jobs = [
        Element(0, {"command": ["echo", "hunter22-long", "0"]}, {}),
        Element(1, {"command": ["echo", "1"]}, {}),
    ]
    await submit(b, jobs)
    first, second = sorted(b.jobs(), key=lambda job: job.pk)
    assert (first.spec.command, first.spec.masked, second.spec.masked) == (
        ["echo", "********", "0"],
        True,
        False,
    )
    private = json.loads((b.paths.env / f"{first.spec.array}.json").read_text())
    assert private["jobs"] == {"0": {"command": ["echo", "hunter22-long", "0"], "roles": {}}}
    assert os.stat(b.paths.env / f"{first.spec.array}.json").st_mode & 0o777 == 0o600


@in_loop
async def test_one_bad_job_keeps_all_of_them_out(b: Bench) -> None:
    for bad in ({"command": []}, {"command": ["a\0b"]}, {"gpuz": 1}, {"name": "a/b"}):
        await refused(UsageError, submit(b, [*numbered(3), Element(3, bad, {})]))
    await refused(UsageError, submit(b, [Element(1, {}, {}), Element(1, {}, {})]))
    await refused(UsageError, submit(b, []))
    await refused(UsageError, submit(b, [Element(n, {}, {}) for n in range(ARRAY_JOBS_MAX + 1)]))
    assert (b.jobs(), b.env_files()) == ([], [])


@in_loop
async def test_an_aborted_array_ends_in_one_look_and_its_environment_goes(b: Bench) -> None:
    uuid = await submit(b, numbered(300))
    assert await b.control.abort_array(uuid) == 300
    assert await b.control.abort_array(uuid) == 0
    await b.look()
    found = shown(b, uuid)
    assert (found["states"], found["ended_at"] is not None) == ({"stopped": 300}, True)
    assert b.env_files() == []
    with b.store.read() as c:
        events = c.execute("SELECT type, count(*) AS n FROM events GROUP BY type").fetchall()
    assert {row["type"]: row["n"] for row in events} == {"state": 600, "stop_requested": 300}


@in_loop
async def test_the_environment_stays_until_the_last_job_is_over(b: Bench) -> None:
    uuid = await submit(b, numbered(2))
    await b.look(2)
    first, second = sorted(b.jobs(), key=lambda job: job.pk)
    await b.run_to_end(first)
    assert b.env_files() == [f"{uuid}.json"]
    await b.restart()
    assert b.env_files() == [f"{uuid}.json"]
    await b.run_to_end(second, exit_code=3)
    assert b.env_files() == []
    assert shown(b, uuid)["states"] == {"failed": 1, "succeeded": 1}


@in_loop
async def test_the_failed_jobs_of_an_array_run_again_as_an_array(b: Bench) -> None:
    uuid = await submit(b, numbered(3))
    await b.look(2)
    for number, job in enumerate(sorted(b.jobs(), key=lambda job: job.pk)):
        await b.run_to_end(job, exit_code=number % 2)
    again = new_uuid()
    assert await b.control.resubmit_array(uuid, again, {"tags": ["x"]}, ENV, ["failed"]) == again
    assert await b.control.resubmit_array(uuid, again, {"tags": ["x"]}, ENV, ["failed"]) == again
    found = shown(b, again)
    assert (found["jobs"], found["parent"]) == (1, shown(b, uuid)["id"])
    (job,) = [job for job in b.jobs() if job.spec.array == again]
    assert (job.spec.array_index, job.spec.command, job.spec.tags) == (1, ["echo", "1"], ["x"])
    await refused(RefusedError, b.control.resubmit_array(again, new_uuid(), {}, ENV, ["failed"]))


@in_loop
async def test_one_job_of_an_array_run_again_keeps_its_number(b: Bench) -> None:
    await submit(b, numbered(2))
    old = max(b.jobs(), key=lambda job: job.pk)
    job = await b.control.resubmit(old.pk, new_uuid(), {}, ENV)
    assert (job.spec.array, job.spec.array_index, job.spec.command) == (None, 1, ["echo", "1"])
    await b.look(3)
    assert b.engine.started[f"{job.uuid}-1"].env["HEADWAY_ARRAY_INDEX"] == "1"


@in_loop
async def test_an_array_is_found_by_its_ending_and_is_no_job(b: Bench) -> None:
    uuid = await submit(b, numbered(2))
    name = shown(b, uuid)["id"]
    with b.store.read() as c:
        assert [arrays.find(c, ref) for ref in (name, name[-5:], name[-3:], uuid)] == [uuid] * 4
        with pytest.raises(NotFoundError, match="is an array of jobs") as told:
            catalog.resolve(c, uuid)
        first = min(b.jobs(), key=lambda job: job.pk)
        way = f"hw ls --array {name[-5:]} lists them; one of them is {first.id} (waiting)"
        assert told.value.hint == way
        with pytest.raises(NotFoundError, match="no job or array"):
            arrays.find(c, "zzzzzzz")


@in_loop
async def test_an_ending_that_a_job_and_an_array_share_means_neither_and_both_are_told(
    b: Bench,
) -> None:
    drawn = iter(["7777u", "11111", "2222u"])  # no drawn id ends in u
    with pytest.MonkeyPatch.context() as patch:
        for module in (catalog, arrays):
            patch.setattr(module, "new_suffix", lambda: next(drawn))
        uuid = await submit(b, numbered(1))
        job = await b.submit("true")
    with b.store.read() as c:
        for find in (catalog.resolve, arrays.find):
            with pytest.raises(NotFoundError, match='2 jobs and arrays end in "u"') as told:
                find(c, "u")
            assert told.value.candidates == ["job-2222u", "sweep-7777u"]
            assert "job-2222u (waiting), sweep-7777u (an array)" in told.value.message
        assert arrays.find(c, "7u") == arrays.find(c, "7777u") == uuid
        assert catalog.resolve(c, "2u") == catalog.resolve(c, "2222u") == job.pk
        with pytest.raises(NotFoundError, match="sweep-7777u is an array"):
            catalog.resolve(c, "7u")
        with pytest.raises(NotFoundError, match="no job or array"):
            arrays.find(c, "2u")


@in_loop
async def test_no_job_takes_the_ending_of_an_array(b: Bench) -> None:
    taken = shown(b, await submit(b, numbered(1)))["id"][-5:]
    drawn = iter([taken, taken, "bbbbb"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "new_suffix", lambda: next(drawn))
        made = await b.submit("true")
    assert made.id == "job-bbbbb"


@in_loop
async def test_a_list_shows_an_array_as_one_row_among_jobs(b: Bench) -> None:
    await b.submit("true", name="before")
    uuid = await submit(b, numbered(20), experiment="e1")
    await b.submit("true", name="later")
    with b.store.read() as c:
        rows = query.folded_rows(c, catalog.JobFilter(), 1)
        assert [(row["name"], row.get("jobs")) for row in rows] == [
            ("later", None),
            ("sweep", 20),
            ("before", None),
        ]
        assert len(query.job_rows(c, catalog.JobFilter(array=uuid), 1)) == 20
        assert len(query.job_rows(c, catalog.JobFilter(), 1)) == 22
        some = query.folded_rows(c, catalog.JobFilter(match="-....[0-9a-m]$", experiment="e1"), 1)
        assert sum(row["jobs"] for row in some) == sum(
            job.id[-1] <= "m" for job in b.jobs() if job.spec.array
        )
        (one,) = query.folded_rows(c, catalog.JobFilter(match="echo 7$"), 1)
        assert (one["name"], one["jobs"]) == ("sweep", 1), "by its command"
        assert query.folded_rows(c, catalog.JobFilter(states=["failed"]), 1) == []


@in_loop
async def test_only_the_head_of_a_long_queue_is_read(b: Bench) -> None:
    await submit(b, numbered(QUEUE_WINDOW * 3))
    with b.store.read() as c:
        assert len(catalog.open_jobs(c, QUEUE_WINDOW)) == QUEUE_WINDOW
        assert len(catalog.open_jobs(c)) == QUEUE_WINDOW * 3
    urgent = await b.submit("true", priority=5)
    await b.look()
    assert f"{urgent.uuid}-1" in b.engine.started


@in_loop
async def test_a_job_behind_many_that_cannot_start_is_found(b: Bench) -> None:
    """They ask for all cores, of which one job has some; the one behind them asks for none."""
    big = await b.submit("true", cpus=8)
    await b.look()
    await submit(b, numbered(QUEUE_WINDOW * 5), cpus=8)
    small = await b.submit("true")
    await b.look(4)
    assert f"{big.uuid}-1" in b.engine.started
    assert f"{small.uuid}-1" in b.engine.started
    assert b.job(small.pk).state in (State.WAITING, State.RUNNING)

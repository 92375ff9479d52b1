"""Attempts with several tasks: one id, each task started once whatever was killed in between."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engines.protocol import EngineId, Given
from headway.model.errors import UnreachableError
from headway.model.job import Job, Role
from tests import container_image
from tests.contract.engine.harness import DockerHarness, LocalHarness
from tests.waiting import wait_until


@pytest.fixture
def harness(home: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(home)
    yield made
    made.close()


@pytest.fixture(params=["local", "docker"])
def either(request: pytest.FixtureRequest, home: Path) -> Iterator[LocalHarness]:
    docker = request.param == "docker"
    made = DockerHarness(home, request.getfixturevalue("docker")) if docker else LocalHarness(home)
    yield made
    made.close()


def job_of(harness: LocalHarness, *command: str) -> Job:
    return harness.job(*command, roles=[Role("a", list(command)), Role("b", list(command), 2)])


def names(job: Job) -> list[str]:
    return [f"{job.uuid}-1-{task}" for task in ("a-0", "b-0", "b-1")]


def starts(harness: LocalHarness, job: Job) -> list[int]:
    return [harness.starts(EngineId(name)) for name in names(job)]


def test_one_id_stands_for_all_tasks(either: LocalHarness) -> None:
    harness = either
    job = job_of(harness, "sleep", "60")
    engine_id = harness.start(job)
    harness.wait_running(engine_id)
    assert engine_id == f"{job.uuid}-1" and harness.start(job) == engine_id
    wait_until(
        lambda: all((harness.paths.spool / name / "shim.json").exists() for name in names(job)),
        what="all starts",
    )
    assert starts(harness, job) == [1, 1, 1]
    assert harness.restart().find(f"{job.uuid}-1") == engine_id
    assert harness.state(engine_id) == "running"
    assert harness.engine.cancel(engine_id)
    wait_until(lambda: harness.state(engine_id) in ("ended", "gone"), what="the end of all")
    ends = [
        f for name in names(job) for f in harness.facts(EngineId(name)) if f["type"] == "task_ended"
    ]
    assert [(end["signal"], end["reason"]) for end in ends] == [(signal.SIGTERM, "stop")] * 3


@pytest.mark.parametrize("started", [0, 1, 2])
def test_a_server_killed_between_two_starts_starts_the_rest_and_none_twice(
    harness: LocalHarness, started: int
) -> None:
    """F23."""
    job = job_of(harness, "sleep", "60")
    real, calls = harness.engine._spawn, 0

    def dying(verb: str, folder: Path, *options: str) -> object:
        nonlocal calls
        calls += 1
        if calls > started:
            raise OSError("killed here")
        return real(verb, folder, *options)

    harness.engine._spawn = dying  # type: ignore[method-assign, assignment]
    with pytest.raises(UnreachableError):
        harness.start(job)
    engine = harness.restart()
    assert engine.find(f"{job.uuid}-1") == f"{job.uuid}-1"
    engine_id = harness.start(job)
    wait_until(
        lambda: all((harness.paths.spool / name / "shim.json").exists() for name in names(job)),
        what="all starts",
    )
    harness.wait_running(engine_id)
    assert starts(harness, job) == [1, 1, 1]


def test_a_task_that_never_began_is_told_by_name(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(harness, "sleep", "60")
    engine_id = harness.start(job)
    harness.wait_running(engine_id)
    wait_until(
        lambda: all((harness.paths.spool / name / "shim.json").exists() for name in names(job)),
        what="all starts",
    )
    lost = harness.paths.spool / names(job)[2]
    harness.kill_agent(EngineId(names(job)[2]))
    os.unlink(lost / "shim.json")  # as if it had never spoken
    monkeypatch.setattr("headway.engines.local.engine.START_TIMEOUT_S", 0.0)
    engine = harness.restart()
    assert engine.observe([engine_id])[engine_id].detail["unstarted"] == ["b-1"]


def test_what_a_killed_server_left_of_containers_is_removed_by_the_next(
    home: Path, docker: list[str]
) -> None:
    harness = DockerHarness(home, docker)
    job = job_of(harness, "sleep", "60")
    harness.engine._networks.make(harness.engine.plan(job))
    labels = ["--label", f"headway.home={home}", "--label", f"headway.task={names(job)[0]}"]
    harness.engine.program.run(
        "create", "--name", names(job)[0], *labels, container_image.PYTHON, "true"
    )
    harness.restart()
    assert harness.engine.tasks() == []
    assert f"{job.uuid}-1" not in harness.engine.program.run("network", "ls")
    assert harness.engine.program.states(names(job)[:1]) == {names(job)[0]: None}
    harness.close()


def test_a_task_that_ended_and_was_sent_is_not_started_again(either: LocalHarness) -> None:
    harness = either
    job = job_of(harness, "sleep", "60")
    engine_id = harness.start(job)
    wait_until(
        lambda: all((harness.paths.spool / name / "shim.json").exists() for name in names(job)),
        what="all starts",
    )
    harness.engine.cancel(EngineId(names(job)[1]))
    wait_until(
        lambda: harness.state(EngineId(names(job)[1])) in ("ended", "gone"), what="the end of one"
    )
    # as its shipper does when everything was acknowledged
    harness.engine.discard(EngineId(names(job)[1]))
    engine = harness.restart()
    plan = engine.plan(job)
    engine.submit(plan, f"{job.uuid}-1", Given({}, {task.name: "t" for task in plan.tasks}))
    assert not (harness.paths.spool / names(job)[1]).exists()
    assert harness.state(engine_id) == "running"

"""Whatever the engine's program refuses, loses or leaves behind, no container stays when its task
is over.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engines.docker import program as programs
from headway.engines.docker import strays
from headway.model.errors import RefusedError, UnreachableError
from headway.model.job import Role
from tests import container, container_image
from tests.contract.engine.harness import DockerHarness
from tests.driver import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(60)

SCRIPT = """#!/bin/sh
if [ -e {folder}/refuse-$1 ]; then echo "Error response from daemon: device or resource busy" >&2; exit 1; fi
if [ -e {folder}/lose-$1 ]; then {docker} "$@" > /dev/null 2>&1; echo "error during connect: EOF" >&2; exit 1; fi
exec {docker} "$@"
"""


class Faulty(DockerHarness):
    """With a program in front of docker that refuses a verb, or does it and loses the answer."""

    def __init__(self, home: Path, docker: list[str], folder: Path) -> None:
        self._faults, self.docker, self.home = folder, docker, home
        script = folder / "docker"
        script.write_text(SCRIPT.format(folder=shlex.quote(str(folder)), docker=shlex.join(docker)))
        script.chmod(0o755)
        super().__init__(home, [str(script)])

    def fault(self, word: str) -> None:
        (self._faults / word).touch()

    def mend(self) -> None:
        for path in self._faults.glob("*-*"):
            path.unlink()

    def there(self) -> list[str]:
        return container.of_home(self.docker, self.home)


@pytest.fixture
def harness(home: Path, docker: list[str], tmp_path: Path) -> Iterator[Faulty]:
    made = Faulty(home, docker, tmp_path)
    yield made
    made.mend()
    made.close()


def test_a_container_that_the_engine_did_not_remove_is_removed_later(harness: Faulty) -> None:
    engine_id = harness.start(harness.job("true"))
    harness.wait_over(engine_id)
    wait_until(lambda: harness.state(engine_id) == "gone", what="the end of its container")
    harness.fault("refuse-rm")
    (harness.folder(engine_id) / "task.json").unlink()  # as an agent does when all was sent
    (harness.folder(engine_id) / "shim.json").unlink()
    assert harness.engine.observe([engine_id])[engine_id].detail["drained"]
    assert harness.engine.tasks() == [] and harness.there() == [engine_id]
    harness.mend()
    assert harness.engine.tasks() == [] and harness.there() == []
    assert not harness.folder(engine_id).exists()


def test_a_container_whose_making_was_not_answered_is_used_or_removed(
    harness: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F24."""
    used, dropped = (harness.job("sleep", "60") for _ in range(2))
    harness.fault("lose-create")
    for job in (used, dropped):
        with pytest.raises(UnreachableError):
            harness.start(job)
    assert len(harness.there()) == 2
    harness.mend()
    engine_id = harness.start(used)
    harness.wait_running(engine_id)
    assert harness.starts(engine_id) == 1
    monkeypatch.setattr("headway.engines.docker.engine.START_TIMEOUT_S", 0.0)
    other = harness.engine.find(f"{dropped.uuid}-1")
    assert other is not None
    harness.engine.discard(other)
    assert harness.there() == [engine_id]


def test_what_could_not_be_started_is_removed_though_that_was_refused_first(
    harness: Faulty,
) -> None:
    job = harness.job("true", roles=[Role("a", ["true"]), Role("b", ["true"])])
    for verb in ("start", "rm"):
        harness.fault(f"refuse-{verb}")
    with pytest.raises(RefusedError, match="device or resource busy"):
        harness.start(job)
    assert harness.there()
    harness.mend()
    assert harness.engine.tasks() == [] and harness.there() == []
    assert container.networks_of(harness.docker, harness.home) == []


def test_a_container_that_does_not_make_room_is_waited_for(harness: Faulty) -> None:
    job = harness.job("sleep", "60")
    name = f"{job.uuid}-1-worker-0"
    harness.fault("lose-create")
    with pytest.raises(UnreachableError):
        harness.start(job)
    harness.mend()
    harness.engine.program.run("rm", name)
    label = f"headway.home={harness.home}"
    # it has ended
    harness.engine.program.run(
        "run", "--name", name, "--label", label, container_image.PYTHON, "true"
    )
    harness.fault("refuse-rm")
    with pytest.raises(UnreachableError, match="does not remove the container of the start before"):
        harness.start(job)
    harness.mend()
    harness.wait_running(harness.start(job))


def test_a_running_container_without_a_task_is_given_time_and_then_ended(
    harness: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = f"headway.home={harness.home}"
    harness.engine.program.run(
        "run", "--detach", "--label", label, container_image.PYTHON, "sleep", "100"
    )
    assert harness.engine.tasks() == [] and len(harness.there()) == 1
    monkeypatch.setattr(strays, "PATIENCE_S", 0.0)
    assert harness.engine.tasks() == [] and harness.there() == []


def test_nothing_is_looked_for_when_nothing_can_be_there(harness: Faulty) -> None:
    assert harness.engine.tasks() == []
    harness.fault("refuse-ps")
    assert harness.engine.tasks() == []  # not asked, so not refused
    harness.engine._strays.expect()
    assert harness.engine.tasks() == [] and harness.engine._strays._may_be


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    path, child = tmp_path / "docker", tmp_path / "child"
    path.write_text(
        f"#!/bin/sh\nsleep 1000 &\necho $! > {child}.new; mv {child}.new {child}; wait\n"
    )
    path.chmod(0o755)
    program = programs.Program([str(path)])

    def until_it_has_one() -> bool:
        program._silent_s = None
        with pytest.raises(UnreachableError, match="did not answer"):
            program.run("rm", "it", timeout_s=0.2)
        return child.exists()

    wait_until(until_it_has_one, what="a child of the program")
    program.close()
    wait_until(lambda: not alive(int(child.read_text())), what="the end of the child")

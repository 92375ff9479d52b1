"""The container engine is away for a while: nothing is concluded from that, and nothing is started
twice.
"""

from pathlib import Path

import pytest

from headway.model.errors import UnreachableError
from tests.contract.engine.harness import DockerHarness


def test_while_the_engine_is_down_nothing_is_concluded_and_nothing_started_twice(
    home: Path, docker: list[str]
) -> None:
    """F22, F24."""
    harness = DockerHarness(home, docker)
    job, other = (harness.job("sleep", "60") for _ in range(2))
    engine_id = harness.start(job)
    harness.wait_running(engine_id)
    plan = harness.engine.plan(other)
    program = harness.restart().program  # type: ignore[attr-defined]
    program.words = [docker[0], "-H", "unix:///nowhere.sock"]
    with pytest.raises(UnreachableError):
        harness.state(engine_id)
    for again in (job, other):
        with pytest.raises(UnreachableError):
            harness.start(again)
    assert (
        harness.engine.cancel(engine_id) is False and harness.engine.find(f"{other.uuid}-1") is None
    )
    program.words = docker
    assert harness.state(engine_id) == "running" and harness.start(job) == engine_id
    assert harness.starts(engine_id) == 1
    assert harness.engine.plan(other) == plan
    harness.close()

"""The container engine goes away and comes back: what ran keeps its true state, and nothing is
started twice.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engines.docker import program as programs
from headway.model.errors import UnreachableError
from tests import container, container_image
from tests.driver import Hw
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(60)

COUNT = "i=0; while [ ! -e go ]; do i=$((i+1)); echo line $i; sleep 0.2; done; echo last; exit 7"


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Iterator[container.Daemon]:
    with container.daemon(*request.param) as made:
        yield made


@pytest.fixture
def hw(home: Path, tmp_path: Path, daemon: container.Daemon) -> Hw:
    cwd = tmp_path / "work"
    cwd.mkdir()
    box = {
        "engine": "docker",
        "command": daemon.client,
        "network": "none",
        "image": container_image.PYTHON,
    }
    (cwd / "headway.yaml").write_text(json.dumps({"clusters": {"box": box}}))
    return Hw(home, cwd)


def _says(hw: Hw, job: str, words: bytes) -> bool:
    return words in hw("logs", job).stdout


@pytest.mark.parametrize("daemon", [("--live-restore",)], indirect=True)
def test_a_job_outlives_its_engine_and_its_end_is_told_without_it(
    hw: Hw, daemon: container.Daemon
) -> None:
    stays, ends = (
        hw.submit("-c", "box", "sh", "-c", COUNT.replace("go", word)) for word in ("stay", "go")
    )
    wait_until(
        lambda: all(_says(hw, job, b"line 1\n") for job in (stays, ends)), what="output of both"
    )
    daemon.stop()
    (hw.cwd / "go").touch()
    found = hw.wait_ended(ends)
    assert (found["state"], found["exit_code"], len(found["attempts"])) == ("failed", 7, 1)
    assert hw.json("q", stays)["state"] == "running"
    daemon.start()
    (hw.cwd / "stay").touch()
    found = hw.wait_ended(stays)
    assert (found["state"], found["exit_code"], len(found["attempts"])) == ("failed", 7, 1)
    words = hw("logs", stays, "--rank", "0", "--stream", "stdout").stdout.decode().splitlines()
    assert words == [*(f"line {number}" for number in range(1, len(words))), "last"]


@pytest.mark.parametrize("daemon", [()], indirect=True)
def test_a_job_that_its_engine_has_ended_is_started_again_with_it(
    hw: Hw, daemon: container.Daemon
) -> None:
    job = hw.submit("-c", "box", "sh", "-c", COUNT)
    wait_until(lambda: _says(hw, job, b"line 1\n"), what="output")
    daemon.stop()
    found = wait_until(
        lambda: (f := hw.json("q", job))["state"] == "waiting" and f,
        what="the end of the first attempt",
    )
    assert found["attempts"][0]["cause"]["cause"] == "preempted"
    daemon.start()
    found = hw.wait_state(job, "running")
    assert len(found["attempts"]) == 2
    (hw.cwd / "go").touch()
    assert hw.wait_ended(job)["exit_code"] == 7
    assert (
        b"line 1\n" in hw("logs", job, "--attempt", "1", "--rank", "0", "--stream", "stdout").stdout
    )


def test_an_engine_that_hangs_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "CONTAINER_ASK_S", 0.2)
    path = tmp_path / "docker"
    path.write_text(
        f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.02; done\necho 'No such object' >&2; exit 1\n"
    )
    path.chmod(0o755)
    program = programs.Program([str(path)])
    with pytest.raises(UnreachableError, match=r"inspect did not answer within 0\.2 s"):
        program.states(["a"])
    real = program._do
    monkeypatch.setattr(
        program,
        "_do",
        lambda args, s: real(args, s) if args == ["version"] else pytest.fail(str(args)),
    )
    with pytest.raises(UnreachableError, match="has not answered for"):
        program.states(["a"])
    monkeypatch.undo()
    (tmp_path / "go").touch()
    wait_until(lambda: program._silent_s is None, what="its answer")
    assert program.states(["a"]) == {"a": None}
    program.close()

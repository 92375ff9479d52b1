"""A container that writes into its task's folder, which it sees: files that are none, links that lead
out of it, and other words than the engine gave. What runs outside believes none of it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headway.carrier.carrier_state import State
from headway.carrier.main import Carrier
from headway.engines.docker import folder_carrier
from headway.engines.docker.engine import ContainerEngine
from headway.engines.protocol import EngineId, Given
from headway.engines.spool import task_folder
from headway.home.paths import Paths
from headway.model.errors import HeadwayError
from headway.model.folder_names import KEPT, PRIVATE, STATE
from headway.model.ids import new_uuid
from headway.model.job import Folder, Job, JobSpec
from headway.model.job import State as JobState
from headway.settings import clusters
from headway.spool.layout import TaskFile
from headway.wire.batch import TaskKey

PROGRAM = """#!/bin/sh
case "$1" in
    info) echo "1 1000000000" ;;
    image) echo sha256:1 ;;
    run) echo 3 11 ;;
    inspect) [ -e {state} ] && cat {state} || {{ echo "Error: No such object: x" >&2; exit 1; }} ;;
esac
"""


class Box:
    def __init__(self, folder: Path) -> None:
        program, self.state = folder / "docker", folder / "state"
        program.write_text(PROGRAM.format(state=self.state))
        program.chmod(0o755)
        self.paths = Paths(folder / "home")
        self.paths.home.mkdir()
        given = {"engine": "docker", "command": [str(program)], "image": "here:1"}
        settings: dict[str, Any] = {"gpus": 4, "spool_bytes_max": 1 << 30, "folder_interval_s": 5.0}
        self.engine = ContainerEngine(
            "box",
            self.paths,
            lambda name: settings.get(name, 1),
            clusters.definition(given, "test"),
        )
        (folder / "data").mkdir()
        folders = [Folder(name="data", source=str(folder / "data"), mode="ro")]
        spec = JobSpec(command=["true"], cwd=str(folder), name="job", folders=folders)
        job = Job(1, "job-1", new_uuid(), spec, JobState.WAITING, 0, 0)
        plan = self.engine.plan(job)
        self.id = self.engine.submit(
            plan, f"{job.uuid}-1", Given({}, {task.name: "id.secret" for task in plan.tasks})
        )
        self.key = TaskKey(job.uuid, 1, "worker-0")
        self.folder = self.paths.spool / str(self.id)

    def tell(self, status: str) -> None:
        self.state.write_text(f"/{self.id}\t{status}\t0\tfalse\n")

    def ask(self) -> None:
        """All that the server asks of an engine about a task."""
        for ask in (
            lambda: self.engine.observe([self.id]), lambda: self.engine.cancel(self.id), self.engine.tasks,
            lambda: self.engine.attach(self.key), lambda: self.engine.explain(self.id),
            lambda: self.engine.salvage(self.id), lambda: task_folder.gpus_held(self.paths.spool),
        ):  # fmt: skip
            self.engine._states.clear()
            try:
                ask()
            except HeadwayError:
                continue


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    monkeypatch.setattr(folder_carrier.Carriers, "keep", lambda self, folder: None)
    found = Box(tmp_path)

    def spawn(verb: str, folder: Path, *options: str) -> "subprocess.Popen[bytes]":
        os.close(task_folder.open_log(folder))
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(found.engine, "_spawn", spawn)
    yield found
    for child in found.engine._children.values():
        child.wait()
    found.engine.close()


NAMES = (
    "task.json",
    "shim.json",
    "shim",
    "shipper-1",
    "cursor.json",
    "agent",
    "shipper.lock",
    STATE,
    "stdout-0",
)


@pytest.mark.parametrize("status", ["running", "exited"])
@pytest.mark.parametrize("kind", ["fifo", "endless", "folder", "huge"])
def test_files_that_are_none_hold_up_nobody(box: Box, kind: str, status: str) -> None:
    box.tell(status)
    for name in NAMES:
        path = box.folder / name
        path.unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "endless":
            path.symlink_to("/dev/zero")
        elif kind == "folder":
            path.mkdir()
        else:
            with path.open("wb") as file:
                file.truncate(1 << 40)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(box.ask).result(60.0)


def test_nothing_is_written_through_a_link(box: Box, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("good")
    box.tell("exited")
    (box.folder / "shim.json").write_text("{}")
    for name in ("agent", f"{STATE}.tmp", STATE, "folders.lock"):
        (box.folder / name).unlink(missing_ok=True)
        (box.folder / name).symlink_to(mine)
    box.ask()
    State(str(box.folder)).tell("ready")
    assert mine.read_text() == "good"


def test_what_the_engine_gave_is_believed_and_not_what_the_container_wrote(box: Box) -> None:
    """Else it would be told where to send, what to mount, and with which variables, outside."""
    task = json.loads((box.folder / "task.json").read_text())
    del task["=check"]  # a container can leave it out, or compute its own
    assert not (box.folder / PRIVATE).exists(), "keys of accounts are no business of a container"
    evil = {
        **task, "inherit_env": False, "argv": ["/bin/evil"], "shell": ["--evil"], "socket": "/evil", "devices": [0, 1],
        "folders": ["x"], "folders_sent": True, "home": "/evil", "container": "",
    }  # fmt: skip
    (box.folder / "task.json").write_text(json.dumps(evil))
    carried = {
        "env": {"LD_PRELOAD": "/evil.so"},
        "folders": [{"name": "x", "mount": "rclone"}],
        "accounts": {},
    }
    (box.folder / PRIVATE).write_text(json.dumps({**carried, "base": "/evil", "interval_s": 1}))
    assert not box.engine._is_outside(str(box.id))
    assert "--evil" not in (box.engine.attach(box.key) or [])
    assert [task_id for task_id, _ in box.engine.tasks()] == [box.id]
    assert task_folder.gpus_held(box.paths.spool) == task["devices"]
    assert TaskFile.load(box.folder).socket == task["socket"]
    carrier = Carrier(str(box.folder))
    assert [folder["name"] for folder in carrier._folders] == ["data"]
    assert os.environ.get("LD_PRELOAD") is None
    assert folder_carrier.needs_carrier(box.folder)


def test_what_was_kept_of_a_task_goes_with_it_and_is_for_its_owner_alone(box: Box) -> None:
    kept = box.paths.home / KEPT / str(box.id)
    assert kept.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept.iterdir())
    task_folder.remove(box.folder)
    assert EngineId(str(box.id)) not in [task_id for task_id, _ in box.engine.tasks()]
    assert not kept.exists()

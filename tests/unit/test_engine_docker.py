"""The container engine with a program that only writes down what it was told: words, users, GPUs,
garbage answers.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from headway.engines.docker import strays
from headway.engines.docker.engine import ContainerEngine
from headway.engines.local.engine import LocalEngine
from headway.engines.local.slots import GpuCount
from headway.engines.protocol import EngineId, Given
from headway.home.paths import Paths
from headway.model.errors import RefusedError, UnreachableError
from headway.model.ids import new_uuid
from headway.model.job import Job, JobSpec, State
from headway.model.record import FACT
from headway.settings import clusters
from headway.wire import frame

SETTINGS: dict[str, Any] = {"gpus": 4, "spool_bytes_max": 1 << 30, "secret_names": []}
PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" END >> {log}
case "$1" in
    info) echo "1 1000000000" ;;
    image) [ "$2" = inspect ] && [ "$5" = gone:1 ] && echo "Error: No such image: gone:1" >&2 && exit 1
           [ "$2" = ls ] && echo here:1 || echo sha256:1 ;;
    run) {run} ;;
    start) {start} ;;
    inspect) {inspect} ;;
    ps) {ps} ;;
    network) if [ "$2" = inspect ]; then
                 echo "Error response from daemon: network $5 not found" >&2
                 echo "Error: see above" >&2
                 exit 1
             elif [ "$2" = create ]; then
                 {create_network}
             fi ;;
esac
"""


class Stub:
    def __init__(
        self,
        folder: Path,
        inspect: str = 'echo "Error: No such object: x" >&2; exit 1',
        start: str = "true",
        run: str = "echo 3 11",
        create_network: str = "true",
        ps: str = "true",
        **options: Any,
    ) -> None:
        self.log, self._program = folder / "log", folder / "docker"
        self._answers = {"start": start, "run": run, "create_network": create_network, "ps": ps}
        self.tell(inspect)
        self._program.chmod(0o755)
        self.paths = Paths(folder / "home")
        self.paths.home.mkdir()
        given = {"engine": "docker", "command": [str(self._program)], "image": "here:1", **options}
        self.engine = ContainerEngine(
            "box", self.paths, SETTINGS.__getitem__, clusters.definition(given, "test")
        )
        self.cwd = folder

    def tell(self, inspect: str) -> None:
        """What `inspect` does from now on."""
        self._program.write_text(PROGRAM.format(log=self.log, inspect=inspect, **self._answers))

    def job(self, **changes: Any) -> Job:
        spec = JobSpec(**{"command": ["true"], "cwd": str(self.cwd), "name": "job", **changes})
        return Job(1, "job-1", new_uuid(), spec, State.WAITING, 0, 0)

    def start(self, job: Job) -> EngineId:
        plan = self.engine.plan(job)
        tokens = {task.name: "id.secret" for task in plan.tasks}
        return self.engine.submit(plan, f"{job.uuid}-1", Given({"KEY": "hunter22"}, tokens))

    def calls(self, *verb: str) -> list[list[str]]:
        calls = [call.split("\n")[:-1] for call in self.log.read_text().split("END\n") if call]
        return [call for call in calls if call[: len(verb)] == list(verb)]

    def words(self, verb: str) -> list[str]:
        return self.calls(verb)[0]


def test_limits_user_gpus_and_folders_are_passed_on_and_no_secret(tmp_path: Path) -> None:
    stub = Stub(
        tmp_path, network="none", mounts=["/etc:/there:ro"], run_options=["--ulimit=core=0"]
    )
    engine_id = stub.start(stub.job(processes=1, gpus=2, cpus=1, memory_bytes=1 << 26))
    words = stub.words("create")
    pairs = list(itertools.pairwise(words))
    assert (
        ("--gpus", '"device=0,1"') in pairs
        and ("--memory", str(1 << 26)) in pairs
        and ("--cpus", "1") in pairs
    )
    assert ("--memory-swap", str(1 << 26)) in pairs and ("--network", "none") in pairs
    assert ("--user", f"{os.getuid()}:{os.getgid()}") in pairs and ("--name", engine_id) in pairs
    assert "type=bind,src=/etc,dst=/there,readonly" in words and "--ulimit=core=0" in words
    assert f"type=bind,src={tmp_path},dst={tmp_path}" in words and words[-2:][0] == "shim"
    assert "hunter22" not in stub.log.read_text() and "id.secret" not in stub.log.read_text()


def test_podman_takes_gpus_as_cdi_devices_and_keeps_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [os.getgid(), 4242])
    docker = Stub(tmp_path)
    docker.start(docker.job(gpus=1))
    assert ("--group-add", "4242") in itertools.pairwise(docker.words("create"))
    (tmp_path / "other").mkdir()
    podman = Stub(tmp_path / "other", engine="podman")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    assert podman.engine._recipe._gpus([2, 3]) == [
        "--device",
        "nvidia.com/gpu=2",
        "--device",
        "nvidia.com/gpu=3",
    ]
    assert podman.engine._recipe._user() == [
        "--userns=keep-id",
        "--user",
        "1000:1000",
        "--env",
        "HOME=/tmp",
    ]


def test_gpus_of_containers_and_of_processes_are_never_the_same(tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    stub.start(stub.job(gpus=2, processes=2))
    local = LocalEngine("here", stub.paths, SETTINGS.__getitem__, gpus=GpuCount(4))
    assert sorted(local._taken()) == [0, 1]
    stub.start(stub.job(gpus=2, processes=2))
    assert sorted(local._taken()) == [0, 1, 2, 3]
    with pytest.raises(UnreachableError, match="no 1 GPUs are free"):
        stub.start(stub.job(gpus=1))


def test_an_image_that_is_missing_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    with pytest.raises(RefusedError, match="there is no image gone:1") as error:
        stub.engine.plan(stub.job(image="gone:1"))
    assert "here:1" in error.value.hint and "pull gone:1" in error.value.hint


def test_a_job_without_an_image_is_told_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="names no image"):
        stub = Stub(tmp_path, image=None)
        stub.engine.plan(stub.job())


@pytest.mark.parametrize(
    "told",
    [
        "Error response from daemon: could not find an available, non-overlapping IPv4 address pool among the defaults",
        "Error: could not find free subnet from subnet pools",  # Podman
    ],
)
def test_a_job_for_which_no_network_is_left_waits_and_starts_later(
    tmp_path: Path, told: str
) -> None:
    stub = Stub(
        tmp_path, create_network=f"[ -e {tmp_path}/free ] || {{ echo '{told}' >&2; exit 1; }}"
    )
    job = stub.job(processes=2, nodes=2)
    for _ in range(2):
        with pytest.raises(UnreachableError, match="no further network can be made now"):
            stub.start(job)
    assert stub.calls("create") == [] and len(list(stub.paths.spool.glob("*-*/task.json"))) == 2
    (tmp_path / "free").touch()
    assert stub.start(job) == f"{job.uuid}-1"
    assert len(stub.calls("create")) == len(stub.calls("start")) == 2


def test_the_engine_is_asked_once_about_the_image_of_a_job_with_many_tasks(tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    stub.start(stub.job(processes=4, nodes=4))
    assert len(stub.calls("create")) == 4
    assert len(stub.calls("image", "inspect")) == 1 and len(stub.calls("run")) == 1


def test_a_network_that_is_not_there_is_told_at_submit_in_the_engines_words(tmp_path: Path) -> None:
    stub = Stub(tmp_path, network="lab")
    with pytest.raises(
        RefusedError, match=r"the network lab cannot be used: .* network lab not found$"
    ):
        stub.engine.plan(stub.job())


@pytest.mark.parametrize("oom", ["true", "false"])
def test_a_container_that_took_its_agent_along_is_told(tmp_path: Path, oom: str) -> None:
    stub = Stub(tmp_path)
    engine_id = stub.start(stub.job())
    folder = stub.paths.spool / engine_id
    (folder / "shim.json").write_text("{}")
    (folder / "stdout-0").write_text("said")
    stub.tell(f"printf '/{engine_id}\\texited\\t137\\t{oom}\\n'")
    seen = stub.engine.observe([engine_id])[engine_id]
    assert seen.detail["end"]["cause"] == ("host_oom" if oom == "true" else "sigkill_unexplained")
    assert seen.detail["salvage"] and seen.detail["end"]["rank"] == 0
    for path in folder.iterdir():  # all of it was sent
        path.unlink()
    stub.engine._states.clear()
    again = stub.engine.observe([engine_id])[engine_id]
    assert again.detail["drained"] and again.detail["end"] == seen.detail["end"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_of_a_job_that_the_engine_refuses_nothing_stays(tmp_path: Path, nodes: int) -> None:
    """Not its environment, and no container that waits for the others."""
    broken = "docker: no such device\n\nRun 'docker start --help' for more information"
    stub = Stub(tmp_path, start=f'case $2 in *-0) printf "{broken}" >&2; exit 1;; esac')
    with pytest.raises(RefusedError, match="no such device"):
        stub.start(stub.job(nodes=nodes))
    assert list(stub.paths.spool.iterdir()) == []
    assert stub.words("rm")[:2] == ["rm", "--force"] and len(stub.words("rm")) == 2 + nodes
    told = stub.log.read_text()
    assert ("network\ncreate\n" in told) == ("network\nrm\n" in told) == (nodes > 1)


def test_an_image_that_cannot_be_run_is_refused_at_submit(tmp_path: Path) -> None:
    stub = Stub(tmp_path, run='echo "docker: no such device" >&2; exit 125')
    with pytest.raises(RefusedError, match="docker cannot run the image: docker: no such device"):
        stub.engine.plan(stub.job())


def test_an_image_without_python_is_none_that_cannot_be_run(tmp_path: Path) -> None:
    missing = 'exec: "python3": executable file not found; exec: "python": likewise'
    stub = Stub(tmp_path, run=f"echo '{missing}' >&2; exit 127")
    assert stub.engine.plan(stub.job()).image == "here:1" and stub.engine._where("here:1") is None


@pytest.mark.parametrize("inspect", ["echo nonsense", "exit 0", "echo 'a\tb\tc\td'"])
def test_an_answer_that_cannot_be_understood_says_nothing(tmp_path: Path, inspect: str) -> None:
    stub = Stub(tmp_path, inspect)
    assert stub.engine.observe([EngineId(f"{new_uuid()}-1-worker-0")]) == {}


@pytest.mark.parametrize(
    "inspect", ["echo boom >&2; exit 1", "echo 'Cannot connect to the Docker daemon' >&2; exit 1"]
)
def test_an_engine_that_is_down_is_not_a_job_that_is_gone(tmp_path: Path, inspect: str) -> None:
    stub = Stub(tmp_path, inspect)
    with pytest.raises(UnreachableError):
        stub.engine.observe([EngineId(f"{new_uuid()}-1-worker-0")])


@pytest.mark.parametrize("status", ["created", "running", "exited"])
def test_a_container_that_answers_a_question_is_given_time_before_it_runs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    stub = Stub(tmp_path, f"printf 'c1\\t/some_name\\t{status}\\t\\n'", ps="echo c1")
    assert stub.engine.tasks() == [] and stub.calls("ps") and stub.calls("rm") == []
    monkeypatch.setattr(strays, "PATIENCE_S", 0.0)
    assert stub.engine.tasks() == [] and stub.calls("rm") == [["rm", "--force", "c1"]]


def test_a_container_of_a_task_that_is_over_gets_no_time_before_it_runs(tmp_path: Path) -> None:
    name = f"{new_uuid()}-1-worker-0"
    stub = Stub(tmp_path, f"printf 'c1\\t/{name}\\tcreated\\t{name}\\n'", ps="echo c1")
    assert stub.engine.tasks() == [] and stub.calls("rm") == [["rm", "--force", "c1"]]


def test_what_an_agent_outside_has_left_is_ended_once_while_the_rest_is_sent(
    tmp_path: Path,
) -> None:
    stub = Stub(tmp_path, ps=f"[ -e {tmp_path}/up ] || {{ echo 'Error: boom' >&2; exit 1; }}")
    engine_id = EngineId(f"{new_uuid()}-1-worker-0")
    folder = stub.paths.spool / engine_id
    folder.mkdir(parents=True)
    (folder / "task.json").write_text('{"container": "docker", "inherit_env": false}')
    (folder / "shim.json").write_text("{}")
    (folder / "shim").write_bytes(frame.encode_json(FACT, {"type": "task_ended"}))
    for asked in (1, 2):  # an engine that refuses is asked again
        assert (
            stub.engine.observe([engine_id])[engine_id].detail["salvage"]
            and len(stub.calls("ps")) == asked
        )
    (tmp_path / "up").touch()
    for _ in range(3):
        assert (
            stub.engine.observe([engine_id])[engine_id].detail["salvage"]
            and len(stub.calls("ps")) == 3
        )
    for path in folder.iterdir():  # all of it was sent
        path.unlink()
    assert (
        stub.engine.observe([engine_id])[engine_id].detail["drained"] and len(stub.calls("ps")) == 4
    )

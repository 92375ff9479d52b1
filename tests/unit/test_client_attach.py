"""A script under plain `python` becomes a job; the ranks of one launch become one job; two launches
never do.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.client import attach, own_rank
from headway.client.attach import Attachment, home_folder
from headway.client.run import Run
from headway.client.spool_path import from_environment
from headway.home import launch
from headway.home import paths as settings_home
from headway.spool.layout import TaskFile
from tests import streams
from tests.waiting import wait_until

MARK = 'import os, sys; open(sys.argv[1], "a").write(" ".join(sys.argv[1:]) + f" {os.getsid(0) == os.getpgid(0)}\\n")'


@pytest.fixture(autouse=True)
def _fake_shipper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Instead of a shipper, a program that says how it was started."""
    monkeypatch.setattr(
        launch,
        "agent_argv",
        lambda verb, folder, *o: [
            sys.executable,
            "-c",
            MARK,
            str(tmp_path / "started"),
            verb,
            str(folder),
            *o,
        ],
    )


def started(tmp_path: Path) -> list[list[str]]:
    path = tmp_path / "started"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        "HEADWAY_HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        "USER": "me",
        **more,
    }


def folders(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "home" / "spool").iterdir())


def test_the_first_call_makes_a_task_that_a_shipper_can_adopt(tmp_path: Path) -> None:
    env = environment(tmp_path)
    run = Run(env, warn=print)
    run.init({"lr": 1}, ["t"], "my-job", "exp")
    run.log({"x": 1.0})
    (folder,) = folders(tmp_path)
    task = TaskFile.load(folder)
    assert (
        task.attached
        and task.argv == sys.orig_argv
        and task.cwd == os.getcwd()
        and task.attempt == 1
    )
    assert (task.home, task.task, folder.name) == (
        env["HEADWAY_HOME"],
        "worker-0",
        f"{task.uuid}-1-worker-0",
    )
    attached: Mapping[str, Any] = task.attach or {}
    assert (attached["name"], attached["experiment"], attached["tags"], attached["user"]) == (
        "my-job",
        "exp",
        ["t"],
        "me",
    )
    assert attached["pid"] == os.getpid() and attached["start"] and attached["boot_id"]
    assert abs(time.time_ns() - attached["started_ns"]) < 3600e9
    assert [p.stat().st_mode & 0o777 for p in (folder.parent.parent, folder.parent, folder)] == [
        0o700
    ] * 3
    assert (folder / "task.json").stat().st_mode & 0o777 == 0o600
    assert not list(folder.glob("*.tmp"))
    words = wait_until(lambda: started(tmp_path), what="the shipper")
    assert words == [[str(tmp_path / "started"), "shipper", str(folder), "--adopt", "True"]]
    run.end(0)


def test_its_children_join_the_same_job(tmp_path: Path) -> None:
    env = environment(tmp_path)
    run = Run(env, warn=print)
    run.log({"x": 1.0})
    place = from_environment(env)
    assert place is not None and Path(place.task_dir) == folders(tmp_path)[0]
    child = Run(dict(env), warn=print)
    child.log({"y": 1.0})
    assert len(folders(tmp_path)) == 1 and {
        p.name for p in streams.points(folders(tmp_path)[0])
    } == {"x", "y"}
    run.end(0)
    child.end(0)


def test_a_second_try_after_an_error_is_the_same_job(tmp_path: Path) -> None:
    env = environment(tmp_path)
    attachment = Attachment(env)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "spool").write_text("in the way")
    with pytest.raises(OSError, match="directory"):
        attachment.make()
    (tmp_path / "home" / "spool").unlink()
    first = attachment.make().task_dir
    assert attachment.make().task_dir == first and len(folders(tmp_path)) == 1


def test_the_shell_that_starts_the_shipper_leaves_no_zombie(tmp_path: Path) -> None:
    attachment = Attachment(environment(tmp_path))
    attachment.make()
    assert attachment.child is not None

    def reaped() -> bool:
        attachment.reap()
        return attachment.child is None

    wait_until(reaped, what="the shell's end")
    wait_until(lambda: started(tmp_path), what="the shipper")


def test_a_name_that_is_not_allowed_is_made_into_one(tmp_path: Path) -> None:
    warned: list[str] = []
    run = Run(environment(tmp_path), warn=warned.append)
    run.init(None, None, "my run/1\n", None)
    task = TaskFile.load(folders(tmp_path)[0])
    assert (
        task.attach is not None
        and task.attach["name"]
        and "/" not in task.attach["name"]
        and len(warned) == 1
    )
    run.end(0)


def test_secrets_in_the_command_line_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """52."""
    monkeypatch.setattr(
        sys, "orig_argv", ["python", "train.py", "--api-key", "abc", "--db=tok-12345678"]
    )
    run = Run(environment(tmp_path, MY_TOKEN="tok-12345678"), warn=print)
    run.log({"x": 1.0})
    folder = folders(tmp_path)[0]
    for path in folder.iterdir():
        assert b"tok-1234" not in path.read_bytes() and b'"abc"' not in path.read_bytes(), path.name
    run.end(0)


def test_a_home_that_cannot_be_written_costs_the_points_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warned: list[str] = []
    run = Run({"HEADWAY_HOME": str(tmp_path / "file" / "home")}, warn=warned.append)
    for _ in range(100):
        run.log({"x": 1.0})
    assert run.metrics.counters() == {"produced": 100, "written": 0, "rejected": 0, "dropped": 100}
    assert 1 <= len(warned) <= 2


@pytest.mark.parametrize(
    "variables",
    [
        {"HEADWAY_HOME": "{tmp}/a"}, {"HEADWAY_HOME": "{tmp}/a/b/"}, {"HEADWAY_HOME": "~/deep/er", "HOME": "{tmp}/u"},
        {"HOME": "{tmp}/u"}, {"HOME": "{tmp}/u", "XDG_DATA_HOME": "{tmp}/xdg"},
        {"HOME": "{tmp}/u", "XDG_DATA_HOME": "relative"},
        {"HEADWAY_HOME": "relative", "HOME": "{tmp}"}, {"HEADWAY_HOME": "{tmp}/x/../y"}, {"HOME": "/"},
    ],
)  # fmt: skip
def test_the_home_is_the_one_that_everybody_else_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """B33. Also without a usable HOME."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    for name in ("HEADWAY_HOME", "HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    ours = home_folder(os.environ)
    assert Path(ours) == settings_home.home() and os.path.isdir(ours)
    assert os.stat(ours).st_mode & 0o777 == 0o700


# -- ranks and launches


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 0, 1)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, (5, 1, 8)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 2, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 1, 2)),
        # hw run mpirun: the inner launcher's rank counts, also srun's
        ({"RANK": "0", "WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 3, 4)),
        ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, (2, 2, 4)),
        # hw run -n 4 in a batch script: the script's own rank 0 of 8 does not
        ({"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (2, 2, 4)),
        ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 0, 1)),
        # torchrun inside srun
        ({"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}, (5, 5, 8)),
        ({"RANK": "x"}, (0, 0, 1)), ({"RANK": "-1"}, (0, 0, 1)), ({"RANK": ""}, (0, 0, 1)), ({"RANK": "²"}, (0, 0, 1)),
        ({"RANK": "9" * 50}, (0, 0, 1)), ({"RANK": "2", "WORLD_SIZE": "no"}, (2, 2, 1)),
    ],
)  # fmt: skip
def test_a_process_knows_its_rank_by_its_own_environment(
    variables: dict[str, str], expected: tuple[int, int, int]
) -> None:
    assert own_rank.ranks(variables) == expected


TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
SLURM = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}
MPI = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-host-12@1",
}


@pytest.mark.parametrize(
    ("launch", "other_rank", "other_launch"),
    [
        (TORCHRUN, {"RANK": "1", "LOCAL_RANK": "1"}, {"MASTER_PORT": "29501"}),
        (SLURM, {"SLURM_PROCID": "1"}, {"SLURM_STEP_ID": "1"}),
        (MPI, {"OMPI_COMM_WORLD_RANK": "1"}, {"PMIX_NAMESPACE": "prterun-host-12@2"}),
    ],
    ids=["torchrun", "slurm", "mpi"],
)
def test_ranks_of_one_launch_share_a_key_and_two_launches_do_not(
    launch: dict[str, str], other_rank: dict[str, str], other_launch: dict[str, str]
) -> None:
    key = own_rank.launch_key(launch)
    assert key is not None and own_rank.launch_key(launch | other_rank) == key
    assert own_rank.launch_key(launch | other_launch) != key


def test_a_process_launched_alone_has_no_key() -> None:
    assert own_rank.launch_key({}) is None
    assert own_rank.launch_key(TORCHRUN | {"WORLD_SIZE": "1"}) is None
    assert (
        own_rank.launch_key({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}) is None
    )  # by hand: nothing to tell launches by


RANK_SCRIPT = """
import os, sys
import headway.home.launch as launch
launch.agent_argv = lambda verb, folder, *options: ["true"]
import headway as hw
hw.log({"rank": int(os.environ["RANK"])})
os.write(1, os.environ["HEADWAY_SPOOL"].encode() + b"\\n")  # one write: four ranks share the pipe
"""
LAUNCHER = """
import os, subprocess, sys
env = dict(os.environ) | {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
def start(n):
    shell = ["sh", "-c", '"$@"; exit $?', "sh"] if n % 2 else []
    own = {"RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "4"}
    return subprocess.Popen([*shell, sys.executable, sys.argv[1]], env=env | own)
ranks = [start(n) for n in range(4)]
sys.exit(max(p.wait() for p in ranks))
"""


def test_four_real_ranks_form_one_job_and_the_next_launch_another(tmp_path: Path) -> None:
    """Some of them behind a shell, with the default ids that every launch has."""
    (tmp_path / "rank.py").write_text(RANK_SCRIPT)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    seen = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path / "rank.py")],
            env=dict(os.environ) | environment(tmp_path), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        spools = set(done.stdout.split())
        assert len(spools) == 1, "four ranks, one spool"
        seen.append(spools.pop())
        assert sorted(p.value for p in streams.points(seen[-1])) == [0.0, 1.0, 2.0, 3.0]
        assert {s.rank for s in streams.streams(seen[-1], "facts")} == {0, 1, 2, 3}
        assert json.loads((Path(seen[-1]) / "task.json").read_text())["world_size"] == 4
    assert seen[0] != seen[1] and len(folders(tmp_path)) == 2


def test_the_uuids_are_well_formed() -> None:
    import uuid

    assert (
        uuid.UUID(attach._uuid_random()).version == 4
        and uuid.UUID(attach._uuid_of("k")).version == 5
    )
    assert attach._uuid_of("k") == attach._uuid_of("k") != attach._uuid_of("l")

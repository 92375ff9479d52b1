"""Several containers of one job: who they are, how they meet, how they end, and what is left of
them: nothing.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import container, container_image, needs
from tests.driver import Hw
from tests.many import lines, tasks
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(2, 3, 45, 60)

MEET = """
import os, socket, time
rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
if rank == 0:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", port))
    server.listen()
    print("sum", sum(int(server.accept()[0].recv(9)) for _ in range(size - 1)))
else:
    until = time.monotonic() + 30
    while True:
        try:
            client = socket.create_connection((os.environ["MASTER_ADDR"], port), 5)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    client.send(str(rank).encode())
    print(os.environ["HEADWAY_TASK"], os.environ["HEADWAY_TASKS"], os.environ["ROLE_RANK"], os.cpu_count() > 0)
"""
GLOO = """
import headway as hw, torch, torch.distributed as dist
hw.distributed.ensure_init_process_group()
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
print("sum", value.item())
dist.destroy_process_group()
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path, docker: list[str]) -> Iterator[Hw]:
    cwd = tmp_path / "work"
    cwd.mkdir()
    box = {
        "engine": "docker",
        "command": docker,
        "network": "none",
        "image": container_image.PYTHON,
    }
    (cwd / "headway.yaml").write_text(json.dumps({"clusters": {"box": box}}))
    driver = Hw(home, cwd)
    yield driver
    driver("abort", "--state", "running,waiting", "--yes")
    container.wait_removed(docker, home)


def _submit(hw: Hw, **job: Any) -> str:
    (hw.cwd / "job.yaml").write_text(json.dumps({"name": "many", "grace": "5s", **job}))
    return hw.submit("-c", "box", "job.yaml")


def test_roles_meet_in_containers_of_their_own_images_and_limits(hw: Hw, docker: list[str]) -> None:
    hw.script(MEET, "meet.py")
    limit = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null"
    roles = {
        "ps": {"command": "python3 meet.py"},
        "worker": {
            "command": ["sh", "-c", f"{limit}; python3 meet.py"],
            "instances": 2,
            "memory": "64MiB",
        },
        "board": {"command": "sleep 60", "completion": "none", "image": container_image.BARE},
    }
    job = _submit(hw, roles=roles)
    found = hw.wait_ended(job)
    assert found["state"] == "succeeded", hw("q", job).stdout.decode()
    assert lines(hw, job, 0) == ["sum 3"]
    names = "ps-0,worker-0,worker-1,board-0"
    assert [lines(hw, job, rank) for rank in (1, 2)] == [
        [str(64 << 20), f"worker-{index} {names} {index} True"] for index in range(2)
    ]
    assert [p["reason"] for p in tasks(found)["board-0"]["processes"]] == [
        "the other tasks are done"
    ]


def test_one_dead_rank_ends_the_other_containers_and_is_named(hw: Hw) -> None:
    script = 'if [ "$RANK" = 1 ]; then exit 9; fi; exec sleep 60'
    found = hw.wait_ended(_submit(hw, command=["sh", "-c", script], nodes=2))
    assert (found["state"], found["exit_code"], found["attempts"][-1]["cause"]["rank"]) == (
        "failed",
        9,
        1,
    )
    assert [p["reason"] for p in tasks(found)["worker-0"]["processes"]] == [
        "rank 1 on worker-1 failed"
    ]


def test_a_container_that_was_removed_is_told_and_ends_the_others(
    hw: Hw, docker: list[str]
) -> None:
    job = _submit(hw, command=["sh", "-c", "echo said $RANK; sleep 60"], nodes=2)
    wait_until(
        lambda: [lines(hw, job, rank) for rank in (0, 1)] == [["said 0"], ["said 1"]],
        what="the output of both",
    )
    second = container.of_home(docker, hw.home, "--filter", "name=worker-1")
    subprocess.run([*docker, "rm", "-f", *second], check=True)
    found = hw.wait_ended(job)
    cause = found["attempts"][-1]["cause"]
    assert (found["state"], cause["rank"]) == ("failed", 1)
    assert cause["text"] == "worker-1: its container was removed from outside"
    assert [p["reason"] for p in tasks(found)["worker-0"]["processes"]] == ["worker-1 is gone"]
    assert lines(hw, job, 1) == ["said 1"]


def test_roles_and_nodes_of_a_simulated_job_run_together_and_meet(hw: Hw) -> None:
    """Capability 45. What no machine here could give does not matter, and is said."""
    hw.script(MEET, "meet.py")
    worker = {"command": "python3 meet.py", "instances": 2, "processes": 8, "memory": "900GiB"}
    job = {
        "name": "many",
        "cluster": "lab",
        "roles": {"ps": {"command": "python3 meet.py"}, "worker": worker},
    }
    (hw.cwd / "job.yaml").write_text(json.dumps(job))
    done = hw("simulate", "job.yaml")
    assert done.returncode == 0 and b"sum 3" in done.stdout, done.stderr.decode()
    assert (
        b"left out here, of worker: memory 900.0 GiB, 8 processes (1 here; -n N for more)\n"
        in done.stderr
    )
    assert len(tasks(hw.json("q", hw.json("ls")[0]["id"]))) == 3
    (hw.cwd / "job.yaml").write_text(
        json.dumps({"command": "python3 meet.py", "gpus": 4, "gpu_per_node": 2})
    )
    done = hw("simulate", "job.yaml")
    assert done.returncode == 0 and b"sum 1" in done.stdout, done.stderr.decode()


def test_a_role_that_fails_ends_a_simulation_and_is_its_exit(hw: Hw) -> None:
    roles = {"ps": {"command": "sleep 60"}, "worker": {"command": ["sh", "-c", "exit 3"]}}
    (hw.cwd / "job.yaml").write_text(json.dumps({"roles": roles, "grace": "5s"}))
    assert hw("simulate", "job.yaml").returncode == 3


def test_two_containers_form_a_real_process_group(hw: Hw) -> None:
    """gloo, with the PyTorch of this machine's test environment and the libraries that it needs."""
    packages = Path(needs.torch_python()).parent.parent / "lib"
    (library,) = [
        path for path in Path("/lib").glob("*-linux-gnu") if (path / "libpthread.so.0").exists()
    ]
    settings = json.loads((hw.cwd / "headway.yaml").read_text())
    settings["clusters"]["box"]["mounts"] = [
        f"{packages}:{packages}:ro",
        f"{library}:/libraries:ro",
    ]
    (hw.cwd / "headway.yaml").write_text(json.dumps(settings))
    hw.script(GLOO, "gloo.py")
    env = {
        "PYTHONPATH": str(next(packages.glob("python3.*")) / "site-packages"),
        "LD_LIBRARY_PATH": "/libraries",
    }
    job = _submit(hw, command="python3 gloo.py", nodes=2, env=env)
    found = hw.wait_ended(job, timeout_s=180.0)
    assert found["state"] == "succeeded", hw("logs", job).stdout.decode()
    assert [lines(hw, job, rank) for rank in (0, 1)] == [["sum 3.0"]] * 2

"""A task that may have only so much memory: the group of the kernel, or our own look."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.agent.shim import memory_limit
from headway.agent.shim.memory_limit import MemoryLimit
from headway.diagnose.exit import Exit, explain_exit
from headway.model.limits import MIB

HOLDER = """
import os, sys, time
held = bytearray(int(sys.argv[1]))
children = [os.fork() for _ in range(int(sys.argv[2]))]
print("ready", flush=True)
time.sleep(60)
"""


def _holder(size: int, forks: int = 0) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(size), str(forks)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None and "ready" in started.stdout.readline()
    return started


@pytest.fixture
def no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "_make_group", lambda name, limit: None)


def _look(limit: MemoryLimit, one: subprocess.Popen[str]) -> None:
    others = {s.session for s in memory_limit.process.everybody()} - {one.pid}
    limit.look(0.0, {one.pid}, others)


def test_a_task_with_too_much_memory_is_killed(no_group: None) -> None:
    limit = MemoryLimit(100 * MIB, "x", lambda text: None)
    with _holder(200 * MIB) as one:
        _look(limit, one)
        assert one.wait(30) == -9
    assert limit.kills() and limit.used_bytes > 200 * MIB and limit.due_s() is None


def test_pages_that_forked_processes_share_count_once(no_group: None) -> None:
    limit = MemoryLimit(300 * MIB, "x", lambda text: None)
    with _holder(150 * MIB, forks=2) as one:
        try:
            _look(limit, one)
            assert one.poll() is None and not limit.kills()
        finally:
            os.killpg(one.pid, 9)


def test_the_kernel_holds_the_limit_where_a_group_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a control group, as far as we use them."""
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    monkeypatch.setattr(memory_limit, "_GROUPS", str(tmp_path))
    monkeypatch.setattr(memory_limit, "_own_group", lambda: "/")
    limit = MemoryLimit(100 * MIB, "headway-x", lambda text: None)
    limit.take_in(1234)
    group = tmp_path / "headway-x"
    assert (group / "memory.max").read_text() == str(100 * MIB)
    assert (group / "cgroup.procs").read_text() == "1234"
    assert limit.due_s() is None and not limit.kills()
    (group / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert limit.kills()


def test_no_group_is_made_where_memory_is_not_handed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    monkeypatch.setattr(memory_limit, "_GROUPS", str(tmp_path))
    monkeypatch.setattr(memory_limit, "_own_group", lambda: "/a/b")
    assert MemoryLimit(MIB, "headway-x", lambda text: None).due_s() == 0.0
    assert not (tmp_path / "headway-x").exists()


def test_a_killed_worker_is_told_and_another_exception_is_not_explained_by_it() -> None:
    worker = {
        "exc_type": "RuntimeError",
        "message": "DataLoader worker (pid 7) is killed by signal: Killed.",
    }
    other = {"exc_type": "ValueError", "message": "shapes differ"}
    told = explain_exit(Exit(1, None, 0, oom=True, exception=worker))
    assert (
        told is not None and told.cause == "host_oom" and "was killed because memory" in told.text
    )
    told = explain_exit(Exit(1, None, 0, oom=True, exception=other))
    assert told is not None and told.text == "ValueError: shapes differ"

"""Processes are known by pid and start time, and a number from a file never becomes a signal to
many (F29).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.agent import process
from headway.agent.process import Identity, Status
from headway.wire.identity import boot_id, process_start
from tests.waiting import wait_until

# others may run this at the same time, and all processes of the machine are looked at
SPOOL = f"/spool/x{os.getpid()}"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        ["sleep", "60"], start_new_session=True, env={"HEADWAY_SPOOL": SPOOL}
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.mark.parametrize("pid", [1, 0, -1, -5])
def test_a_number_that_means_many_processes_is_never_signalled(
    pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill(0), kill(-1) and killpg(1) reach everybody; a damaged record must not."""
    calls: list[object] = []
    for module, name in ((os, "kill"), (os, "killpg"), (signal, "pidfd_send_signal")):
        monkeypatch.setattr(module, name, lambda *args: calls.append(args))
    for start in (None, process_start(1)):
        assert process.send_group(Identity(pid, start), 9) is False
        if pid <= 0:
            assert process.send(Identity(pid, start), 9) is False
            assert process.is_alive(Identity(pid, start)) is False
    assert calls == []


def test_the_first_process_of_a_container_can_be_a_task() -> None:
    assert process.is_alive(Identity(1, process_start(1)))


def test_a_process_is_alive_only_with_its_start_and_boot(child: subprocess.Popen[bytes]) -> None:
    start = process_start(child.pid)
    assert process.is_alive(Identity(child.pid, start, boot_id()))
    assert process.is_alive(Identity(child.pid, start)) and process.is_alive(Identity(child.pid))
    assert not process.is_alive(Identity(child.pid, (start or 0) + 1))
    assert not process.is_alive(Identity(child.pid, start, "another boot"))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_alive(Identity(child.pid, start)), "a zombie is dead"


def test_another_process_under_the_same_number_is_not_signalled(
    child: subprocess.Popen[bytes],
) -> None:
    wrong = Identity(child.pid, (process_start(child.pid) or 0) + 1)
    assert not process.send(wrong, 9) and not process.send_group(wrong, 9)
    assert child.poll() is None
    assert process.send(Identity(child.pid, process_start(child.pid)), 15)
    assert child.wait(10) == -15


def test_a_group_is_signalled_only_through_its_leader() -> None:
    member = subprocess.Popen(["sleep", "60"])  # in our own group: it leads none
    try:
        assert not process.send_group(Identity(member.pid, process_start(member.pid)), 15)
        assert member.poll() is None
    finally:
        member.kill()
        member.wait()


def test_members_of_a_task_are_found_by_their_environment(child: subprocess.Popen[bytes]) -> None:
    # the kernel lets Popen go on a moment before a new program's environment can be read
    found = wait_until(lambda: process.members_of(SPOOL), what="the child in its task")
    assert [status.pid for status in found] == [child.pid]
    assert process.members_of("/spool/") == [] and process.members_of(SPOOL + "y") == []


def test_a_member_that_falls_asleep_while_it_is_looked_at_is_found(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: process.members_of(SPOOL), what="the child in its task")
    running = [
        Status(s.pid, "R", s.parent, s.group, s.session, s.start) for s in process.everybody()
    ]
    monkeypatch.setattr(process, "everybody", lambda: running)
    assert [status.pid for status in process.members_of(SPOOL)] == [child.pid]


def test_descendants_are_found_through_any_number_of_generations() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    try:
        found = {status.pid for status in process.leftovers(os.getpid(), set(), set())}
        assert {parent.pid, grandchild} <= found
        session = os.getsid(0)
        assert parent.pid not in {s.pid for s in process.leftovers(os.getpid(), set(), {session})}
    finally:
        process.send(Identity(grandchild, process_start(grandchild)), 9)
        parent.wait()
        parent.stdout.close()


BELOW = """
import os, subprocess, sys
from headway.agent import process
assert process.become_subreaper()
child = subprocess.Popen(["sh", "-c", "sleep 60 & setsid sleep 60 & exit 0"])
spared = subprocess.Popen(["sleep", "60"], start_new_session=True)
child.wait()
found = process.leftovers_below(os.getpid(), {spared.pid})
every = process.leftovers(os.getpid(), {child.pid}, {spared.pid})
print(len(found), sorted(s.pid for s in found) == sorted(s.pid for s in every))
for status in found:
    os.kill(status.pid, 9)
spared.kill()
spared.wait()
for status in found:
    os.waitpid(status.pid, 0)
print(process.leftovers_below(os.getpid(), set()))
"""


def test_what_a_rank_leaves_behind_is_found_below_its_subreaper_without_reading_every_process() -> (
    None
):
    """Orphans in its group and in a session of their own; not the shipper, and nobody who has
    ended.
    """
    told = subprocess.run([sys.executable, "-c", BELOW], capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[:2] == ["2 True", "[]"]


def test_a_program_name_with_brackets_is_parsed(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    started = subprocess.Popen([str(odd), "60"])
    try:
        status = process.status_of(started.pid)
        assert status is not None and (status.pid, status.parent) == (started.pid, os.getpid())
    finally:
        started.kill()
        started.wait()


def test_kills_for_want_of_memory_are_read_where_the_system_counts_them(tmp_path: Path) -> None:
    """F31: both versions of cgroups write the same word."""
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert process.oom_kills(str(tmp_path / "memory.events")) == 2
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert process.oom_kills(str(tmp_path / "memory.oom_control")) == 5
    assert process.oom_kills(str(tmp_path / "none")) is None and process.oom_kills(None) is None

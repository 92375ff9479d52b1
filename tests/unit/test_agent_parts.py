"""Small parts of the agent: commands, links, drops, secrets, the clock, attached jobs, provenance,
clearing up.
"""

import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headway.agent.agent_log import AgentLog
from headway.agent.clock import Clock
from headway.agent.link import make_links
from headway.agent.observe import provenance
from headway.agent.process import Identity
from headway.agent.ship import cleanup, secret_values, spool_space
from headway.agent.ship.orphan import AdoptedTask, AttachedTask
from headway.agent.ship.shipper_facts import Notebook
from headway.agent.ship.spool_facts import FactTail
from headway.agent.ship.stream_state import Gap
from headway.agent.transport.heartbeat import Commands
from headway.agent.transport.http import Answer, Channel
from headway.model.record import FACT, METRICS, OPEN
from headway.spool.layout import TaskFile
from headway.testing.filesystems import FailingFiles
from headway.wire import frame
from headway.wire.identity import boot_id, process_start
from tests.waiting import wait_until

# -- commands


def told(*commands: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps({"commands": list(commands)}).encode())


def test_a_command_is_done_once_however_often_it_is_sent() -> None:
    done: list[int] = []
    commands = Commands(Channel("/none"), lambda c: done.append(c["seq"]) is None)
    for _ in range(3):
        commands.take(told({"seq": 5, "do": "flush"}, {"seq": 6, "do": "flush"}), 0.0, 0.5)
    assert done == [5, 6]


def test_a_command_that_is_done_later_is_told_later() -> None:
    commands = Commands(Channel("/none"), lambda c: False)
    commands.take(told({"seq": 5, "do": "stop"}), 0.0, 0.5)
    assert commands._done == []
    commands.finish(5)
    assert commands._done == [5]
    commands._told = [5]
    commands.take(told(), 1.0, 0.5)
    assert commands._done == [], "it was told, and the server has forgotten it"


@pytest.mark.parametrize(
    "answer", [Answer(None), Answer(503), Answer(200, b"<html>"), Answer(200, b'{"commands": 3}')]
)
def test_a_server_that_cannot_be_asked_is_asked_later_and_later(answer: Answer) -> None:
    commands, pauses = Commands(Channel("/none"), lambda c: True), []
    for _ in range(5):
        commands.take(answer, 100.0, 0.5)
        pauses.append(commands.next_s - 100.0)
    assert pauses == sorted(pauses) and pauses[0] > 0


def test_rows_that_are_no_commands_are_passed_over() -> None:
    done: list[int] = []
    commands = Commands(Channel("/none"), lambda c: done.append(c["seq"]) is None)
    commands.take(
        told({"do": "x"}, {"seq": "a", "do": "x"}, {"seq": 1}, {"seq": 2, "do": "flush"}), 0.0, 0.5
    )
    assert done == [2]


# -- the link


def test_messages_pass_both_ways_and_the_end_is_seen() -> None:
    shim, shipper = make_links()
    assert shipper.say({"seq": 1}) and shipper.say() and shipper.say({"seq": 2})
    assert shim.hear() == [{"seq": 1}, {"seq": 2}] and not shim.ended
    shim.say({"done": 1})
    assert shipper.hear() == [{"done": 1}]
    shim.close()
    assert shipper.hear() == [] and shipper.ended and not shipper.say({"seq": 3})
    shipper.close()


def test_a_message_in_pieces_and_garbage_are_taken_as_they_come() -> None:
    shim, shipper = make_links()
    os.write(shipper.write_fd, b'nonsense\n[1]\n{"se')
    assert shim.hear() == []
    os.write(shipper.write_fd, b'q": 4}\n')
    assert shim.hear() == [{"seq": 4}]
    shim.close()
    shipper.close()


def test_a_full_pipe_does_not_block_the_shim() -> None:
    shim, shipper = make_links()
    assert not all(shim.say({"x": "y" * 1000}) for _ in range(1000))
    shim.close()
    shipper.close()


# -- drops and secrets


def test_drops_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    drops = {"stdout-0": [Gap(0, 10, "full"), Gap(20, 30, "full", 1, 2)], "done": []}
    spool_space.save(str(tmp_path), drops)
    assert spool_space.load(str(tmp_path)) == {"stdout-0": drops["stdout-0"]}
    for garbage in ("", "[]", '{"a": 3}', '{"a": [[1]]}', "{"):
        (tmp_path / ".drops").write_text(garbage)
        assert spool_space.load(str(tmp_path)) == {}


def test_records_and_points_of_a_range_are_counted(tmp_path: Path) -> None:
    data = frame.encode_json(OPEN, {"version": 1}) + frame.encode(METRICS, bytes(range(1, 37))) * 5
    path = tmp_path / "m"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    assert spool_space.count(fd, 0, len(data)) == (5, 10)
    assert spool_space.count(fd, len(data) - 2 * 48, 2 * 48) == (2, 4)
    os.close(fd)


def test_secrets_are_kept_so_that_a_search_does_not_find_them(tmp_path: Path) -> None:
    values = secret_values.values_of(
        {"MY_TOKEN": "c4n4ry-value", "PLAIN": "visible-value", "X_KEY": "short"},
        ["PLAIN"],
        "i.tok-secret",
    )
    assert set(values) == {b"c4n4ry-value", b"visible-value", b"i.tok-secret", b"tok-secret"}
    secret_values.save(str(tmp_path), values)
    assert (tmp_path / ".secrets").stat().st_mode & 0o777 == 0o600
    assert b"c4n4ry" not in (tmp_path / ".secrets").read_bytes()
    assert secret_values.load(str(tmp_path)) == values
    assert secret_values.load(str(tmp_path / "none")) is None
    (tmp_path / ".secrets").write_text("{}")
    assert secret_values.load(str(tmp_path)) is None


def test_the_environment_of_a_living_process_is_read() -> None:
    child = subprocess.Popen(["sleep", "60"], env={"A": "b=c", "N": ""})
    try:
        found = wait_until(lambda: secret_values.environment_of(child.pid), what="the child's exec")
        assert found == {"A": "b=c", "N": ""}
    finally:
        child.kill()
        child.wait()
    assert secret_values.environment_of(99_999_999) == {}


# -- clock, log, notebook, facts


def test_wall_times_never_go_back_when_the_wall_clock_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F26."""
    clock = Clock()
    before = clock.wall_ns()
    monkeypatch.setattr(time, "time_ns", lambda: before - 3_600 * 10**9)
    after = clock.wall_ns()
    assert before <= after < before + 60 * 10**9


def test_the_log_is_one_line_each_and_bounded(tmp_path: Path) -> None:
    log = AgentLog(str(tmp_path), "shim")
    log.say("one\ntwo\x1b[31m" + "x" * 5000)
    (line,) = (tmp_path / "agent").read_text().splitlines()
    assert "shim: one?two?[31m" in line and len(line) < 2100
    for _ in range(2000):
        log.say("y" * 1500)
    assert (tmp_path / "agent").stat().st_size <= 1_100_000
    AgentLog(str(tmp_path / "none"), "shim").say("nobody hears it")


@pytest.mark.parametrize("operation", ["write", "fsync"])
def test_a_fact_goes_into_a_new_stream_when_the_disk_fails_the_first(
    tmp_path: Path, operation: str
) -> None:
    """F6."""
    files = FailingFiles(1, errno.EIO, only=frozenset({operation}))
    notebook = Notebook(str(tmp_path), files)
    name, offset = notebook.write({"type": "note", "text": "x"})
    notebook.close()
    fd = os.open(tmp_path / name, os.O_RDONLY)
    ((place, fact),) = FactTail(fd).read()
    os.close(fd)
    assert (fact["text"], place) == ("x", offset)


def test_facts_are_read_as_they_come_over_damage_and_reserve(tmp_path: Path) -> None:
    def fact(n: int) -> bytes:
        return frame.encode_json(FACT, {"type": "a", "n": n})

    path = tmp_path / "shim"
    path.write_bytes(
        frame.encode_json(OPEN, {"version": 1, "pid": 4})
        + fact(1)
        + b"garbage!"
        + fact(2)
        + bytes(1000)
    )
    fd = os.open(path, os.O_RDWR)
    tail = FactTail(fd)
    found = tail.read()
    assert [f["n"] for _, f in found] == [1, 2] and tail.opening == {"version": 1, "pid": 4}
    assert tail.read() == []
    os.pwrite(fd, fact(3), tail.position)
    ((offset, third),) = tail.read()
    assert third["n"] == 3 and path.read_bytes()[offset : offset + 2] == b"HW"
    os.close(fd)


# -- attached jobs


def attached(**attach: Any) -> tuple[AttachedTask, list[dict[str, Any]]]:
    written: list[dict[str, Any]] = []
    task = TaskFile("u", 1, "worker-0", "/h", attached=True, attach=attach or None, grace_s=0.2)
    return AttachedTask(task, written.append), written


def ended(watch: AttachedTask) -> dict[str, Any]:
    watch.step(10.0)
    watch.step(20.0)
    assert watch.done
    return watch.result()


def test_an_attached_task_ends_when_all_its_processes_are_gone() -> None:
    child = subprocess.Popen(["sleep", "60"])
    watch, written = attached()
    watch.meet(Identity(child.pid))
    watch.step(1.0)
    watch.step(5.0)
    assert not watch.done
    child.kill()
    child.wait()
    watch.step(6.0)
    assert not watch.done, "another rank may still be on its way"
    watch.step(8.0)
    assert watch.done and written[-1]["type"] == "task_ended"


@pytest.mark.parametrize(
    ("facts", "code", "rank", "lost"),
    [
        ({0: [("bye", 0)]}, 0, None, False),
        ({0: [("bye", 3)]}, 3, 0, False),
        ({0: [("bye", None)]}, None, None, True),
        ({0: []}, None, None, True),
        ({}, None, None, True),
        ({0: [("exception", None)]}, 1, 0, False),
        ({0: [("exception", None), ("bye", None)]}, 1, 0, False),
        ({0: [("exception", None), ("bye", 7)]}, 7, 0, False),
        ({0: [("bye", 0)], 1: [("bye", 0)]}, 0, None, False),
        ({0: [("bye", 0)], 1: []}, None, None, True),
        ({0: [("bye", 2)], 1: [("bye", 4)]}, 2, 0, False),
        ({0: [], 1: [("bye", 4)]}, 4, 1, False),
    ],
)
def test_the_exit_of_an_attached_task_is_what_its_processes_said(
    facts: dict[int, list[tuple[str, int | None]]], code: int | None, rank: int | None, lost: bool
) -> None:
    watch, _ = attached()
    for number, said in facts.items():
        rows = [{"type": t, "exit_code": c, "where": "main", "time_ns": number} for t, c in said]
        watch.hear(rows, number)
    result = ended(watch)
    assert (result["exit_code"], result["first_rank"], result["lost"]) == (code, rank, lost)


def test_an_attached_task_is_stopped_by_signals_to_its_own_processes() -> None:
    deaf = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
    child = subprocess.Popen(["sh", "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.stdout.close()
    watch, written = attached()
    watch.meet(Identity(child.pid))
    watch.stop(0.1, 0.0)
    watch.step(1.0)
    assert child.wait(10) == -9
    assert (
        written[0] == {"type": "stop_requested", "by": "command"}
        and ended(watch)["reason"] == "stop"
    )


# -- a task whose shim is gone

OTHER = "rank 1 on worker-1 failed"


def adopted(
    tmp_path: Path, facts: list[dict[str, Any]]
) -> tuple[AdoptedTask, list[dict[str, Any]]]:
    task = TaskFile("u", 1, "worker-0", "/h", processes=1, grace_s=5.0)
    written: list[dict[str, Any]] = []
    begun = {"type": "task_started", "boot_id": boot_id(), "time_ns": time.time_ns()}
    return AdoptedTask(str(tmp_path), task, [begun, *facts], written.append, 0.0), written


def test_a_task_that_another_one_has_ended_says_so_when_its_shim_was_killed_meanwhile(
    tmp_path: Path,
) -> None:
    watch, written = adopted(
        tmp_path, [{"type": "stop_requested", "by": "command", "reason": OTHER}]
    )
    for now_s in range(20):
        watch.step(float(now_s))
    assert watch.done and written[-1]["type"] == "task_ended" and written[-1]["reason"] == OTHER


def test_a_task_without_its_shim_says_that_another_one_has_ended_it(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    started = {
        "type": "process_started",
        "rank": 0,
        "pid": child.pid,
        "start": process_start(child.pid),
    }
    watch, written = adopted(tmp_path, [started])
    watch.stop(5.0, 0.0, OTHER)
    assert child.wait(10) == -signal.SIGTERM
    for now_s in range(1, 20):
        watch.step(float(now_s))
    assert written[0] == {"type": "stop_requested", "by": "command", "reason": OTHER}
    assert watch.done and written[-1]["reason"] == OTHER


# -- provenance


def test_packages_are_read_from_the_names_of_their_folders(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("numpy-2.1.0.dist-info", "my_pkg-0.1.dist-info", "numpy", "x.egg-info"):
        (site / name).mkdir(parents=True)
    assert provenance.packages_of(str(tmp_path)) == {"my_pkg": "0.1", "numpy": "2.1.0"}
    assert provenance.packages_of(str(tmp_path / "none")) == {}


def test_the_python_of_a_command_is_found_as_the_shell_would(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.touch(mode=0o755)
    assert provenance.find_python(["python3", "x.py"], "/", f"/none:{tmp_path}/bin") == str(python)
    assert provenance.find_python(["bin/python3"], str(tmp_path), "") == str(python)
    assert (
        provenance.find_python(["sh"], "/", "/bin") is None
        and provenance.find_python([], "/", "") is None
    )


def test_a_folder_without_git_has_none_and_secrets_are_masked(tmp_path: Path) -> None:
    about = provenance.About(
        ["sh", "--api-key", "abc", "x" * 5000, "s3cr3t-value"],
        str(tmp_path),
        None,
        "",
        (b"s3cr3t-value",),
    )
    fact = provenance.collect(about)
    assert fact["git"] is None and fact["python"] is None
    assert fact["command"][1:3] == ["--api-key", "********"] and fact["command"][4] == "********"
    assert len(fact["command"][3]) < 1100


def test_the_own_words_of_a_process_say_which_python_it_is(tmp_path: Path) -> None:
    hello = {"python": "3.12.1", "executable": "/v/bin/python", "prefix": str(tmp_path)}
    state = provenance.python_state(provenance.About(["python", "x.py"], "/", hello))
    assert state == {"python": "3.12.1", "executable": "/v/bin/python", "packages": {}}


def test_a_huge_diff_is_cut_and_still_fits_into_a_frame(tmp_path: Path) -> None:
    def run(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=tmp_path, check=True
        )

    run("init", "-q", ".")
    (tmp_path / "f").write_text("a\n")
    run("add", ".")
    run("commit", "-q", "-m", "x")
    (tmp_path / "f").write_text("é\x01\n" * 400_000)
    fact = provenance.collect(provenance.About(["true"], str(tmp_path)))
    assert fact["git"]["dirty"] is True
    assert len(frame.encode_json(FACT, fact)) < 1 << 20


# -- clearing up


def test_a_folder_disappears_in_one_step_with_all_that_is_in_it(tmp_path: Path) -> None:
    task = tmp_path / "task"
    (task / ".refused").mkdir(parents=True)
    (task / ".refused" / "x").touch()
    (task / "stdout-0").touch()
    (task / "link").symlink_to(tmp_path)
    cleanup.remove_folder(str(task))
    assert list(tmp_path.iterdir()) == []


def test_only_drafts_of_our_own_files_are_swept(tmp_path: Path) -> None:
    for name in ("cursor.json.12.tmp", ".drops.9.tmp", "task.json.3.tmp", "stdout-0", "x.tmp"):
        (tmp_path / name).touch()
    cleanup.sweep_drafts(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["stdout-0", "task.json.3.tmp", "x.tmp"]


def test_provenance_that_cannot_be_asked_for_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    task = TaskFile("u", 1, "worker-0", "/h", argv=["python", "x.py"], cwd=str(tmp_path))
    said: list[str] = []
    written: list[dict[str, Any]] = []
    inquiry = provenance.Inquiry(task, {}, list, written.append, said.append)
    hello = {"executable": "/usr/bin/python"}
    assert not inquiry.step(0.0, None, hello, ended=False) and not inquiry.is_over, (
        "nothing has got through yet"
    )
    assert inquiry.step(1.0, 0.5, hello, ended=False) or inquiry.is_over
    assert said == ["the state of the code is not known: Resource temporarily unavailable"]
    assert [(fact["type"], fact["git"], fact["executable"]) for fact in written] == [
        ("provenance", None, "/usr/bin/python")
    ]
    assert not inquiry.step(2.0, 0.5, hello, ended=True)

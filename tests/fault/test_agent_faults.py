"""Agents that are killed, stopped, cut off and starved: nothing is lost, nothing comes twice,
everything is told.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.home.launch import agent_argv
from headway.model.record import FACT, METRICS, OPEN
from headway.testing.proxy import FaultProxy
from headway.wire import frame
from headway.wire.identity import boot_id, process_start
from tests import needs
from tests.driver import alive
from tests.fault.agent_rig import Rig, Task, children, script
from tests.waiting import wait_until

NOBODY = 99_999_999  # larger than any pid can be
COUNT = "import sys, time\nfor i in range(%d):\n    print('line', i, flush=True); time.sleep(%s)"
TALK = (
    "import os, time\ni = 0\nwhile not os.path.exists(%r):\n"
    "    print('line', i, flush=True); i += 1; time.sleep(0.01)\nprint('all', i)"
)


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with Rig(home) as made:
        yield made


def lines(n: int) -> bytes:
    return b"".join(b"line %d\n" % i for i in range(n))


def counting(n: int, pause_s: float) -> list[str]:
    return script(COUNT % (n, pause_s))


def talking(rig: Rig) -> list[str]:
    """A program that prints lines until `let_end`, so that whatever is done to it meanwhile is done
    in time.
    """
    return script(TALK % str(rig.home.parent / "enough"))


def let_end(rig: Rig) -> None:
    (rig.home.parent / "enough").touch()


def check_talk(rig: Rig) -> None:
    """Every line of `talking` is there, once; it says itself how many there were."""
    text = rig.server.text("stdout-0")
    count = text.count(b"line ")
    assert text == lines(count) + b"all %d\n" % count


# -- killing (F3, P10)


def test_a_shipper_killed_again_and_again_loses_nothing_and_sends_nothing_twice(rig: Rig) -> None:
    """F3, P3, P4."""
    task = rig.start(rig.make(*talking(rig)))
    for _ in range(4):
        seen = rig.server.position("stdout-0")
        wait_until(lambda seen=seen: rig.server.position("stdout-0") > seen, what="progress")
        os.kill(task.shipper(), signal.SIGKILL)
    let_end(rig)
    assert rig.finish(task)["exit_code"] == 0
    check_talk(rig)
    assert [f["type"] for f in rig.server.facts()].count("process_exited") == 1


def test_a_killed_shim_costs_the_exit_code_and_nothing_else(rig: Rig) -> None:
    task = rig.start(rig.make(*talking(rig)))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    assert task.shim is not None
    (rank,) = wait_until(task.rank_pids, what="the start")
    task.shim.kill()
    task.shim.wait()
    let_end(rig)
    ended = rig.wait_facts("task_ended")[0]
    assert (ended["exit_code"], ended["signal"], ended["lost"]) == (None, None, True)
    check_talk(rig)
    assert not alive(rank)
    wait_until(lambda: not task.dir.exists(), what="the folder to be cleared")


def test_shim_and_shipper_killed_together_are_salvaged_by_an_adopter(rig: Rig) -> None:
    task = rig.start(rig.make(*talking(rig)))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    assert task.shim is not None
    shipper = task.shipper()
    task.shim.kill()
    os.kill(shipper, signal.SIGKILL)
    task.shim.wait()
    wait_until(lambda: not alive(shipper), what="both to be gone")
    let_end(rig)
    assert rig.adopt(task).wait(60) == 0
    assert rig.server.ended() is not None and rig.server.ended()["lost"] is True  # type: ignore[index]
    check_talk(rig)


def test_an_adopter_can_stop_the_processes_of_a_dead_shim(rig: Rig) -> None:
    """F29: by the pid and start time that the shim wrote down."""
    task = rig.start(rig.make("sleep", "60", grace_s=0.5))
    rig.wait_facts("process_started")
    (rank,) = task.rank_pids()
    assert task.shim is not None
    task.shim.kill()
    task.shim.wait()
    rig.server.order(1, "stop")
    assert rig.wait_facts("task_ended")[0]["reason"] == "stop"
    assert not alive(rank)


def test_a_pid_that_belongs_to_somebody_else_now_is_never_signalled(rig: Rig) -> None:
    """F29: the shim's record names a pid whose start time is another one."""
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        task = rig.make("sleep", "60", grace_s=0.1)
        (task.dir / "shim.json").write_text("{}")
        started = {
            "type": "process_started",
            "rank": 0,
            "local_rank": 0,
            "pid": bystander.pid,
            "start": 1,
        }
        opening = {"version": 1, "stream": "shim", "kind": "shim", "pid": NOBODY, "start": 1}
        (task.dir / "shim").write_bytes(
            frame.encode_json(OPEN, opening) + frame.encode_json(FACT, started) + bytes(4096)
        )
        rig.server.order(1, "stop")
        assert rig.adopt(task).wait(60) == 0
        assert rig.server.ended()["lost"] is True  # type: ignore[index]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "sendmsg", "unlink"])
def test_a_shipper_killed_at_any_system_call_loses_nothing(
    rig: Rig, strace: str, call: str
) -> None:
    """F3: SIGKILL exactly at the Nth call, for N = 1, 2, …, until a run is not hit any more."""
    for nth in range(1, 40):
        task = ended_task(rig, nth)
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={nth}"]
        code = rig.spawn(
            strace,
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            *inject,
            *agent_argv("shipper", task.dir, "--adopt"),
        ).wait(60)
        if code == 0:
            check_sent(rig, task, nth)
            break
        assert code in (-9, 137), code
        # else it was hit after everything was sent, while it removed the folder
        if task.dir.exists():
            assert rig.adopt(task).wait(60) == 0, task.log()
        check_sent(rig, task, nth)
    else:
        pytest.fail(f"{call} is called more than 40 times for a small task")
    assert nth > 1, f"{call} was never hit"


def ended_task(rig: Rig, nth: int) -> Task:
    """A task of which everything is left to send, as a killed agent leaves it."""
    rig.server.streams.clear()
    task = rig.make("true", spool_bytes_max=1 << 30)
    (task.dir / "shim.json").write_text("{}")
    facts = [
        {"type": "task_started", "boot_id": None}, {"type": "process_started", "rank": 0, "pid": NOBODY, "start": 1},
        {"type": "process_exited", "rank": 0, "pid": NOBODY, "exit_code": nth % 7, "signal": None, "reason": None},
    ]  # fmt: skip
    opening = frame.encode_json(
        OPEN, {"version": 1, "stream": "shim", "kind": "shim", "pid": NOBODY, "start": 1}
    )
    (task.dir / "shim").write_bytes(
        opening + b"".join(frame.encode_json(FACT, f) for f in facts) + bytes(10_000)
    )
    (task.dir / "stdout-0").write_bytes(lines(2000))
    place(task.dir / "metrics-0-99999999-abcdef.0", metrics(500))
    return task


def metrics(n: int) -> bytes:
    opening = frame.encode_json(
        OPEN, {"version": 1, "stream": "m", "kind": "metrics", "pid": 99999999, "start": 1}
    )
    body = b"".join(frame.encode(METRICS, i.to_bytes(4, "little") * 9) for i in range(n))
    return opening + frame.encode_schema(0, ("a", "b")) + body


def check_sent(rig: Rig, task: Task, nth: int) -> None:
    assert rig.server.text("stdout-0") == lines(2000), nth
    assert rig.server.text("metrics-0-99999999-abcdef.0") == metrics(500), nth
    ends = rig.server.facts("task_ended")
    assert len(ends) == 1 and ends[0]["exit_code"] == nth % 7, (nth, ends)
    assert not task.dir.exists()


def test_an_attached_job_is_watched_by_its_streams_and_ends_with_their_word(rig: Rig) -> None:
    """Its processes were started by somebody else; `job.json` has what registering gave."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        attach = {
            "name": "x",
            "pid": child.pid,
            "start": process_start(child.pid),
            "boot_id": boot_id(),
        }
        task = rig.make("python", "x.py", attached=True, attach=attach, token="", socket="")
        (task.dir / "env.json").unlink()
        job = {
            "id": "x-1",
            "token": "a.b",
            "attempt": 1,
            "task": "worker-0",
            "socket": str(rig.server.path),
        }
        (task.dir / "job.json").write_text(json.dumps(job))
        name = f"facts-0-{child.pid}-abcdef"
        opening = {
            "version": 1,
            "stream": name,
            "rank": 0,
            "pid": child.pid,
            "start": process_start(child.pid),
        }
        facts = [{"type": "hello", "rank": 0, "python": "3.11"}, {"type": "bye", "exit_code": 0}]
        data = frame.encode_json(OPEN, opening) + b"".join(
            frame.encode_json(FACT, fact) for fact in facts
        )
        (task.dir / name).write_bytes(data)
        adopter = rig.adopt(task)
        rig.wait_facts("hello")
        assert rig.server.ended() is None, "it still runs"
        child.kill()
        child.wait()
        assert adopter.wait(60) == 0
        ended = rig.server.ended()
        assert ended is not None and (ended["exit_code"], ended["lost"]) == (0, False)
        assert "Bearer a.b" in rig.server.tokens and not task.dir.exists()
    finally:
        child.kill()
        child.wait()


# -- the server (F17–F19, F21, F40)


def test_a_lost_reply_is_sent_again_and_applied_once(rig: Rig) -> None:
    """F17, P4."""
    rig.server.lose_replies = 3
    assert rig.run(*counting(20, 0.01))["exit_code"] == 0
    assert rig.server.text("stdout-0") == lines(20) and rig.server.lose_replies == 0


def test_duplicated_and_late_batches_change_nothing(rig: Rig) -> None:
    """F18."""
    with FaultProxy(rig.home.parent / "p", rig.server.path) as proxy:
        proxy.repeat_requests = True
        task = rig.start(rig.make(*talking(rig), socket=str(proxy.path)))
        for _ in range(3):
            passed = proxy.passed
            wait_until(lambda passed=passed: proxy.passed > passed, what="traffic")
            proxy.break_all()
        wait_until(lambda: proxy.repeated > 0, what="a replay")
        let_end(rig)
        rig.finish(task)
        check_talk(rig)


@pytest.mark.parametrize("fault", ["refuse", "cut_reply", "cut_request", "drip", "status"])
def test_a_server_in_trouble_is_waited_for_and_told_about(rig: Rig, fault: str) -> None:
    """F17, F19, F40: one line says why, and it goes on by itself."""
    statuses = iter([503, 500, 401, 404, 413, 400])
    with FaultProxy(rig.home.parent / "p", rig.server.path) as proxy:
        if fault == "status":
            rig.server.status = lambda: next(statuses, 200)
        proxy.refuse = fault == "refuse"
        proxy.cut_reply_after = 10 if fault == "cut_reply" else None
        proxy.cut_request_after = 100 if fault == "cut_request" else None
        proxy.bytes_per_s = 50.0 if fault == "drip" else None
        task = rig.start(rig.make(*counting(30, 0.02), socket=str(proxy.path)))
        if fault not in ("drip", "status"):
            wait_until(
                lambda: "data stays in the spool" in task.log(),
                what="the reason in the agent's log",
            )
            proxy.refuse, proxy.cut_reply_after, proxy.cut_request_after = False, None, None
        assert rig.finish(task)["exit_code"] == 0
    assert rig.server.text("stdout-0") == lines(30)
    if fault != "drip":
        assert "the server takes data again" in rig.server.text("agent").decode()


def test_a_server_that_hangs_does_not_keep_the_spool_from_being_synced(
    rig: Rig, strace: str, tmp_path: Path
) -> None:
    """F19, P2: while a request hangs, records are synced within their second all the same."""
    with FaultProxy(rig.home.parent / "p", rig.server.path) as proxy:
        proxy.black_hole = True
        task = rig.make("sleep", "60", socket=str(proxy.path))
        trace = tmp_path / "trace"
        rig.start(task, strace, "-f", "-qq", "-o", str(trace), "-y", "-e", "trace=fdatasync")
        wait_until(lambda: proxy.path and (task.dir / "shim").exists(), what="the start")
        path = task.dir / "facts-0-1-abcdef"
        path.write_bytes(
            frame.encode_json(
                OPEN, {"version": 1, "stream": path.name, "pid": os.getpid(), "start": 1}
            )
        )
        wait_until(lambda: f"{path.name}>" in trace.read_text(), what="the sync of a record stream")
        assert not rig.server.batches, "the server has seen nothing"
        for process in children(task.shim.pid) if task.shim else []:
            os.kill(process, signal.SIGTERM)
        proxy.black_hole = False
        proxy.break_all()
        rig.wait_facts("task_ended")


def test_a_server_that_dies_and_comes_back_finds_everything(rig: Rig) -> None:
    """P10."""
    task = rig.start(rig.make(*talking(rig)))
    for _ in range(3):
        seen = rig.server.position("stdout-0")
        wait_until(lambda seen=seen: rig.server.position("stdout-0") > seen, what="progress")
        rig.server.stop()
        rig.server.start()
    let_end(rig)
    assert rig.finish(task)["exit_code"] == 0
    check_talk(rig)


def test_a_server_that_is_away_at_the_end_gets_all_later(rig: Rig) -> None:
    """F21: the agent leaves the spool, and a later upload completes the run."""
    rig.server.stop()
    task = rig.start(rig.make(*counting(10, 0)))
    wait_until(
        lambda: any(f["type"] == "task_ended" for f in task.shim_facts()), what="the exit record"
    )
    assert task.shim is not None
    shipper = task.shipper()
    os.kill(shipper, signal.SIGSTOP)
    task.shim.kill()
    task.shim.wait()
    os.kill(shipper, signal.SIGKILL)
    wait_until(lambda: not alive(shipper), what="the agent to be gone")
    rig.server.start()
    assert rig.adopt(task).wait(60) == 0
    assert rig.server.text("stdout-0") == lines(10)
    assert rig.server.ended()["exit_code"] == 0  # type: ignore[index]
    assert not task.dir.exists()


def test_a_token_that_is_changed_during_the_run_is_taken_up(rig: Rig) -> None:
    """F40."""
    task = rig.start(rig.make(*talking(rig)))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    good = ["Bearer id.token-secret"]
    rig.server.status = lambda: 200 if rig.server.tokens[-1] == good[0] else 401
    good[0] = "Bearer id.another-secret"
    wait_until(
        lambda: "does not accept this task's token" in task.log(),
        what="the reason in the agent's log",
    )
    fields = json.loads((task.dir / "task.json").read_text())
    (task.dir / "task.json").write_text(json.dumps({**fields, "token": "id.another-secret"}))
    let_end(rig)
    rig.finish(task)
    check_talk(rig)


def test_a_refused_stream_is_set_aside_and_kept(rig: Rig) -> None:
    """P11: unsent data is never deleted by us."""
    rig.server.refuse["stderr-0"] = "no"
    task = rig.start(rig.make("sh", "-c", "echo out; echo err >&2"))
    assert task.shim is not None
    task.shim.wait(60)
    assert rig.server.text("stdout-0") == b"out\n" and rig.server.ended() is not None
    assert (task.dir / ".refused" / "stderr-0").read_bytes() == b"err\n"
    assert not (task.dir / "stdout-0").exists() and not (task.dir / ".secrets").exists()


# -- the spool (F7, F10, F13, F16, F28, F34, F37, B30)


@pytest.mark.parametrize("cursor", ["lost", "garbage", "old", "ahead"])
def test_a_wrong_cursor_costs_a_resend_and_no_duplicate(rig: Rig, cursor: str) -> None:
    """F16."""
    task = rig.start(rig.make(*talking(rig)))
    wait_until(
        lambda: (task.dir / "cursor.json").exists() and rig.server.position("stdout-0") > 100,
        what="a cursor",
    )
    os.kill(task.shipper(), signal.SIGKILL)
    path = task.dir / "cursor.json"
    if cursor == "lost":
        path.unlink()
    else:
        path.write_text(
            {"garbage": "\0{", "old": '{"stdout-0": 8}', "ahead": '{"stdout-0": 99999999}'}[cursor]
        )
    let_end(rig)
    rig.finish(task)
    check_talk(rig)


def test_damage_in_a_record_stream_costs_one_frame_and_is_a_gap(rig: Rig) -> None:
    """F13, P5, P11."""
    task = rig.start(rig.make("sleep", "60"))
    rig.wait_facts("process_started")
    frames = [
        frame.encode_json(FACT, {"type": "note", "text": f"n{i}", "level": "info"})
        for i in range(5)
    ]
    opening = frame.encode_json(
        OPEN, {"version": 1, "stream": "facts-0-99999999-abcdef", "pid": 99999999, "start": 1}
    )
    broken = bytearray(frames[2])
    broken[20] ^= 4
    (task.dir / "facts-0-99999999-abcdef").write_bytes(
        opening + b"".join(frames[:2]) + broken + b"".join(frames[3:])
    )
    notes = rig.wait_facts("note", 4)
    assert [note["text"] for note in notes] == ["n0", "n1", "n3", "n4"]
    (gap,) = rig.server.streams["facts-0-99999999-abcdef"].gaps
    assert gap["bytes"] == len(broken) and "damaged" in gap["reason"]
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)


def test_what_is_no_stream_of_ours_is_refused_and_the_rest_goes_on(rig: Rig) -> None:
    """B30, P12: a pipe, a link, a newer version, an empty file, one with an opening only."""
    task = rig.start(rig.make("sleep", "60"))
    rig.wait_facts("process_started")
    os.mkfifo(task.dir / "facts-0-1-00000a")
    (task.dir / "facts-0-1-00000b").symlink_to("/etc/passwd")
    (task.dir / "facts-0-1-00000c").write_bytes(
        frame.encode_json(OPEN, {"version": 9, "stream": "x"})
    )
    (task.dir / "facts-0-1-00000d").touch()
    opening = frame.encode_json(
        OPEN, {"version": 1, "stream": "facts-0-99999999-00000e", "pid": 99999999, "start": 1}
    )
    (task.dir / "facts-0-99999999-00000e").write_bytes(opening)
    wait_until(
        lambda: rig.server.position("facts-0-99999999-00000e") == len(opening), what="the good one"
    )
    wait_until(lambda: task.log().count("set aside") == 3, what="three refusals")
    assert (
        "not a regular file" in task.log()
        and "symbolic link" in task.log()
        and "version 9" in task.log()
    )
    assert task.shim is not None
    task.shim.terminate()
    task.shim.wait(60)
    assert rig.server.ended()["signal"] == 15  # type: ignore[index]
    assert not any(name.startswith("facts-0-1-00000b") for name in rig.server.streams)


def test_a_tiny_spool_drops_the_oldest_output_and_counts_exactly(rig: Rig) -> None:
    """F10, P5, P7: server away, small limit; facts stay, and what came plus the gaps is what was
    printed.
    """
    rig.server.stop()
    n = 60_000
    task = rig.start(
        rig.make(
            *script(f"for i in range({n}): print('line', i)\nimport time; time.sleep(0.5)"),
            spool_bytes_max=400_000,
        )
    )
    wait_until(lambda: "dropped" in task.log(), what="a drop")
    wait_until(
        lambda: any(f["type"] == "process_exited" for f in task.shim_facts()), what="the end"
    )
    rig.server.start()
    ended = rig.finish(task)
    assert ended["exit_code"] == 0
    stored = rig.server.streams["stdout-0"]
    whole, gaps = lines(n), [(gap["offset"], gap["bytes"]) for gap in stored.gaps]
    assert stored.position == len(whole) and gaps
    holes = bytearray(whole)
    for offset, length in gaps:
        holes[offset : offset + length] = bytes(length)
    assert bytes(stored.data) == bytes(holes)
    assert all("full" in gap["reason"] for gap in stored.gaps)


def test_a_drop_is_told_by_the_next_shipper_when_the_first_is_killed(rig: Rig) -> None:
    """F10, P5."""
    rig.server.stop()
    task = rig.start(
        rig.make(
            *script("print('x' * 1_000_000)\nimport time; time.sleep(2)"), spool_bytes_max=300_000
        )
    )
    wait_until(lambda: (task.dir / ".drops").exists() and "dropped" in task.log(), what="a drop")
    os.kill(task.shipper(), signal.SIGKILL)
    rig.server.start()
    rig.finish(task)
    stored = rig.server.streams["stdout-0"]
    missing = sum(gap["bytes"] for gap in stored.gaps)
    assert stored.position == 1_000_001 and missing > 0
    assert len(bytes(stored.data).replace(b"\0", b"")) == 1_000_001 - missing
    assert missing < 800_000, "no more than had to be"


def place(path: Path, data: bytes) -> None:
    """At once, as a whole: of a process that is dead, the agent takes what is there for all that
    there will be.
    """
    draft = path.parent / f".{path.name}"
    draft.write_bytes(data)
    draft.rename(path)


def test_metric_segments_that_are_dropped_are_counted_in_records_and_points(rig: Rig) -> None:
    """F10, P5."""
    rig.server.stop()
    task = rig.start(rig.make("sleep", "60", spool_bytes_max=400_000))
    wait_until(task.rank_pids, what="the start")
    for i in range(4):
        place(task.dir / f"metrics-0-99999999-abcdef.{i}", metrics(4000))
    wait_until(
        lambda: len([p for p in task.dir.iterdir() if p.name.startswith("metrics")]) < 3,
        what="drops",
    )
    rig.server.start()
    name = "metrics-0-99999999-abcdef"
    wait_until(
        lambda: all(rig.server.position(f"{name}.{i}") == len(metrics(4000)) for i in range(4)),
        what="all told",
    )
    gaps = [gap for i in range(4) for gap in rig.server.streams[f"{name}.{i}"].gaps]
    assert gaps and all((gap["records"], gap["points"]) == (4000, 8000) for gap in gaps)
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)


def test_an_unfinished_frame_of_a_dead_process_is_ignored(rig: Rig) -> None:
    """F2."""
    task = rig.start(rig.make("sleep", "60"))
    rig.wait_facts("process_started")
    data = metrics(10)
    place(task.dir / "metrics-0-99999999-abcdef.0", data + frame.encode(METRICS, b"z" * 36)[:17])
    wait_until(
        lambda: rig.server.position("metrics-0-99999999-abcdef.0") == len(data),
        what="the whole frames",
    )
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)
    assert rig.server.streams["metrics-0-99999999-abcdef.0"].gaps == []


def test_closed_segments_are_removed_when_the_server_has_them(rig: Rig) -> None:
    task = rig.start(rig.make("sleep", "60"))
    rig.wait_facts("process_started")
    place(task.dir / "metrics-0-99999999-abcdef.0", metrics(10))
    wait_until(
        lambda: not (task.dir / "metrics-0-99999999-abcdef.0").exists(),
        what="the segment to be removed",
    )
    assert rig.server.text("metrics-0-99999999-abcdef.0") == metrics(10)
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)


def test_a_deleted_folder_costs_only_what_comes_later(rig: Rig) -> None:
    """F34: training goes on; what is open still arrives, the exit record too."""
    task = rig.start(rig.make(*talking(rig)))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    rig.wait_facts("process_started")
    while task.dir.exists():
        # its agent may be about to put another file there
        shutil.rmtree(task.dir, ignore_errors=True)
    let_end(rig)
    assert task.shim is not None
    task.shim.wait(60)
    check_talk(rig)
    assert rig.server.ended()["exit_code"] == 0  # type: ignore[index]
    (gap,) = rig.server.facts("gap")
    assert "was removed while it ran" in gap["reason"]


def test_points_go_on_where_the_whole_spool_was_removed(rig: Rig) -> None:
    """F34, A-14: the folder is made again, with the one above it."""
    done = rig.home.parent / "removed"
    code = f"""
        import headway as hw, os, time
        hw.log({{"x": 0.0}})
        print("begun", flush=True)
        while not os.path.exists({str(done)!r}):
            time.sleep(0.01)
        time.sleep(1.1)  # the client looks at its file once a second
        for i in range(1, 30):
            hw.log({{"x": float(i)}})
        hw.finish()
    """
    task = rig.start(rig.make(*script(textwrap.dedent(code))))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    while (rig.home / "spool").exists():
        shutil.rmtree(rig.home / "spool", ignore_errors=True)
    done.touch()
    assert task.shim is not None
    task.shim.wait(60)
    told = rig.server.facts("gap")
    assert any(gap.get("points") for gap in told), told
    counters = rig.server.facts("counters")[-1]
    assert counters["written"] + counters["dropped"] == 30
    assert counters["written"] >= 28


def test_output_without_a_file_of_its_own_is_told_and_kept_in_the_other(rig: Rig) -> None:
    """A-3: where neither can be made, that is a gap, and no silence."""
    task = rig.make(*script("import sys; print('out'); print('err', file=sys.stderr)"))
    (task.dir / "stdout-0").symlink_to("/nowhere")
    rig.start(task)
    assert task.shim is not None
    wait_until(lambda: rig.server.ended(), what="its end")
    (gap,) = rig.server.facts("gap")
    assert gap["stream"] == "stdout-0" and "is in stderr-0" in gap["reason"]
    assert rig.server.text("stderr-0") == b"err\nout\n" or b"out" in rig.server.text("stderr-0")


def test_output_without_any_file_is_a_gap_of_both_streams(rig: Rig) -> None:
    task = rig.make(*script("print('out')"))
    for name in ("stdout-0", "stderr-0"):
        (task.dir / name).symlink_to("/nowhere")
    rig.start(task)
    wait_until(lambda: rig.server.ended(), what="its end")
    gaps = rig.server.facts("gap")
    assert [gap["stream"] for gap in gaps] == ["stdout-0", "stderr-0"]
    assert all("no file could be made" in gap["reason"] for gap in gaps)


def test_a_line_without_an_end_passes_in_bounded_memory(rig: Rig) -> None:
    """F37: 100 MB without a newline."""
    size = 100_000_000
    rig.server.keep = False
    code = f"import os, time\nfor i in range({size // 1_000_000}): os.write(1, b'x' * 1_000_000)\ntime.sleep(60)"
    task = rig.start(rig.make(*script(code)))
    shipper, peak = task.shipper(), 0

    def arrived() -> bool:
        nonlocal peak
        peak = max(peak, rss_kib(shipper))
        return rig.server.position("stdout-0") == size

    wait_until(arrived, 60, "all bytes")
    blocks = (task.dir / "stdout-0").stat().st_blocks * 512
    assert blocks < size, "what the server has is given back while the file is open"
    assert task.shim is not None
    task.shim.terminate()
    assert rig.finish(task)["signal"] == 15
    assert peak < 64 * 1024, f"the shipper took {peak} KiB"


def rss_kib(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("VmRSS")), 0)


def test_an_agent_that_was_stopped_goes_on_where_it_was(rig: Rig) -> None:
    """F27: SIGSTOP and SIGCONT of shim and shipper."""
    task = rig.start(rig.make(*talking(rig)))
    wait_until(lambda: rig.server.position("stdout-0") > 0, what="output")
    assert task.shim is not None
    pids = [task.shim.pid, task.shipper()]
    (rank,) = wait_until(task.rank_pids, what="the start")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    let_end(rig)
    wait_until(
        lambda: Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[0] == "Z",
        what="the end of the rank",
    )
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert rig.finish(task)["exit_code"] == 0
    check_talk(rig)


def test_two_shippers_for_one_task_never_work_at_once(rig: Rig) -> None:
    """F28."""
    task = ended_task(rig, 1)
    codes = sorted(process.wait(60) for process in [rig.adopt(task) for _ in range(4)])
    assert codes[0] == 0
    check_sent(rig, task, 1)
    assert rig.server.streams["stdout-0"].received == len(lines(2000))


def test_a_full_spool_disk_costs_output_but_never_the_exit_record(rig: Rig) -> None:
    """F7, P7: a tmpfs of 1 MiB, filled by the program; the exit record comes from the reserve."""
    needs.mount_namespace()
    task = rig.make(
        "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo more; exit 5", spool_bytes_max=1 << 40,
    )  # fmt: skip
    files = {name: (task.dir / name).read_text() for name in ("task.json", "env.json")}
    write = "".join(
        f"open({str(task.dir / name)!r}, 'w').write({text!r});" for name, text in files.items()
    )
    words = " ".join(f"'{word}'" for word in agent_argv("shim", task.dir))
    inside = f"mount -t tmpfs -o size=1m none '{task.dir}' && '{sys.executable}' -c \"$1\" && exec {words}"
    shim = rig.spawn("unshare", "-rm", "sh", "-c", inside, "sh", write)
    shim.wait(60)
    ended = rig.server.ended()
    assert ended is not None and ended["exit_code"] == 5
    assert 0 < rig.server.position("stdout-0") < 3_000_000

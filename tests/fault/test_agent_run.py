"""A real agent runs real commands: exit codes, signals, ranks, stopping, the time limit, leftovers
(P1, P7, F30).
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.home.launch import agent_argv
from tests.driver import alive
from tests.fault.agent_rig import Rig, script
from tests.waiting import wait_until


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with Rig(home) as made:
        yield made


@pytest.mark.parametrize(
    ("argv", "code", "signum"),
    [
        (["true"], 0, None),
        (["sh", "-c", "exit 7"], 7, None),
        (["sh", "-c", "kill -9 $$"], None, 9),
        (["sh", "-c", "kill -TERM $$"], None, 15),
        (["sh", "-c", "kill -SEGV $$"], None, 11),
    ],
)
def test_the_exit_of_a_command_is_told_as_it_was(
    rig: Rig, argv: list[str], code: int | None, signum: int | None
) -> None:
    ended = rig.run(*argv)
    assert (ended["exit_code"], ended["signal"], ended["lost"], ended["reason"]) == (
        code,
        signum,
        False,
        None,
    )
    assert ended["first_rank"] == (None if code == 0 else 0)
    (exited,) = rig.server.facts("process_exited")
    assert (exited["rank"], exited["exit_code"], exited["signal"]) == (0, code, signum)


def test_output_and_facts_arrive_byte_for_byte(rig: Rig) -> None:
    rig.run(*script("import sys; print('out'); sys.stderr.buffer.write(bytes(range(256)))"))
    assert rig.server.text("stdout-0") == b"out\n"
    assert rig.server.text("stderr-0") == bytes(range(256))
    kinds = [fact["type"] for fact in rig.server.facts()]
    assert [k for k in kinds if k != "provenance"] == [
        "task_started",
        "process_started",
        "process_exited",
        "task_ended",
    ]
    assert len(rig.server.text("stdout-0.index")) == 16


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["/no/such/program"], 127, "no such file"),
        (["no-such-program-here"], 127, "not found in PATH"),
        (["/etc/passwd"], 126, "not executable"),
        (["/"], 126, "not executable"),
        (["sh", "-c", "a\0b"], 126, "NUL"),
        ([], 126, "empty"),
        (["true", "x" * 4_000_000], 126, "too large"),
    ],
)
def test_a_command_that_cannot_be_started_says_why(
    rig: Rig, argv: list[str], code: int, words: str
) -> None:
    """B24."""
    ended = rig.run(*argv)
    assert (ended["exit_code"], ended["first_rank"]) == (code, 0)
    (failed,) = rig.server.facts("start_failed")
    assert failed["exit_code"] == code and words in failed["message"]
    assert words in rig.server.text("stderr-0").decode()


def test_a_script_without_a_first_line_and_a_missing_folder_are_explained(
    rig: Rig, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hi\n")
    plain.chmod(0o755)
    assert rig.run(str(plain))["exit_code"] == 126
    assert "#!" in rig.server.facts("start_failed")[0]["message"]
    rig.server.streams.clear()
    assert rig.run("true", cwd=str(tmp_path / "gone"))["exit_code"] == 126
    assert "working folder" in rig.server.facts("start_failed")[0]["message"]


def test_an_environment_with_a_bad_name_is_explained(rig: Rig) -> None:
    task = rig.make("true", env={"A=B": "x", "N\0": "y"})
    rig.start(task)
    assert rig.finish(task)["exit_code"] == 126


def test_ranks_find_their_place_in_the_environment(rig: Rig) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK HEADWAY_TASK HEADWAY_JOB HEADWAY_ATTEMPT".split()
    names.append("CUDA_VISIBLE_DEVICES")
    show = f"import os, json; print(json.dumps({{k: os.environ[k] for k in {names!r}}}))"
    rig.run(*script(show), processes=2, first_rank=2, world_size=4, node_rank=1, gpus=[5, 7])
    for local, (rank, gpu) in enumerate([(2, "5"), (3, "7")]):
        seen = json.loads(rig.server.text(f"stdout-{rank}"))
        assert seen == {
            "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1",
            "HEADWAY_TASK": "worker-0", "HEADWAY_JOB": "t-00000", "HEADWAY_ATTEMPT": "1", "CUDA_VISIBLE_DEVICES": gpu,
        }  # fmt: skip


def test_a_process_starts_in_its_folder_with_its_umask_limits_and_nothing_open(rig: Rig) -> None:
    code = (
        "import os, resource, signal, sys; print(os.getcwd()); print(oct(os.umask(0)));"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0]);"
        "print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4]);"
        "print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()));"
        "print(signal.getsignal(signal.SIGHUP) == signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    task = rig.make(*script(code), umask=0o027, rlimits={"NOFILE": [123, 4096]})
    rig.start(task)
    rig.finish(task)
    cwd = str(rig.home.parent / "cwd")
    assert rig.server.text("stdout-0").decode().split("\n") == [
        cwd, "0o27", "123", "[0, 1, 2, 3]", "True ''", "True set()", "",
    ]  # fmt: skip


def test_spool_files_are_private_whatever_the_umask(rig: Rig) -> None:
    """B33."""
    task = rig.make("sleep", "30", umask=0)
    rig.start(task)
    rig.wait_facts("process_started")
    modes = {
        name: mode
        for name in os.listdir(task.dir)
        if name != "task.json" and (mode := mode_of(task.dir / name))
    }
    assert set(modes.values()) == {"0o600"}, modes
    assert not (task.dir / "env.json").exists(), "the environment is removed once the processes run"


def mode_of(path: Path) -> str | None:
    """None for a draft that has got its name meanwhile."""
    try:
        return oct(path.stat().st_mode & 0o777)
    except FileNotFoundError:
        return None


def test_the_first_failing_rank_of_four_is_named_and_ends_the_others(rig: Rig) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '2': time.sleep(0.3); sys.exit(5)\ntime.sleep(60)"
    ended = rig.run(*script(code), processes=4)
    assert (ended["exit_code"], ended["first_rank"], ended["reason"]) == (5, 2, None)
    exits = {fact["rank"]: fact for fact in rig.server.facts("process_exited")}
    assert exits[2]["reason"] is None and exits[2]["exit_code"] == 5
    for rank in (0, 1, 3):
        assert (exits[rank]["signal"], exits[rank]["reason"]) == (15, "rank 2 failed")


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_time(rig: Rig) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready'); time.sleep(60)"
    task = rig.start(rig.make(*script(code), grace_s=0.3))
    wait_until(
        lambda: rig.server.text("stdout-0") == b"ready\n", what="the process to ignore SIGTERM"
    )
    assert task.shim is not None
    task.shim.send_signal(signal.SIGTERM)
    ended = rig.finish(task)
    assert (ended["signal"], ended["reason"], ended["first_rank"]) == (9, "stop", None)
    assert rig.server.facts("stop_requested")[0]["by"] == "signal 15"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_is_passed_on_as_it_is(rig: Rig, number: signal.Signals) -> None:
    """F32: that a stop was asked for is synced before the processes are told."""
    code = (
        "import signal, sys, time\n"
        "for n in (2, 15): signal.signal(n, lambda n, f: (print('got', n), sys.exit(3)))\n"
        "print('ready'); time.sleep(60)"
    )
    task = rig.start(rig.make(*script(code)))
    wait_until(lambda: rig.server.text("stdout-0") == b"ready\n", what="the handlers")
    assert task.shim is not None
    task.shim.send_signal(number)
    ended = rig.finish(task)
    assert (ended["exit_code"], ended["reason"]) == (3, "stop")
    assert rig.server.text("stdout-0") == b"ready\ngot %d\n" % number


def test_commands_from_the_server_are_done_once_each(rig: Rig) -> None:
    code = (
        "import signal, time\nsignal.signal(10, lambda n, f: print('usr1'))\nprint('ready')\n"
        "while True: time.sleep(0.05)"
    )
    task = rig.start(rig.make(*script(code)))
    wait_until(lambda: rig.server.text("stdout-0") == b"ready\n", what="the handler")
    rig.server.order(7, "signal", signal=10)
    wait_until(lambda: rig.server.text("stdout-0") == b"ready\nusr1\n", what="the signal")
    wait_until(lambda: not rig.server.commands, what="the command to be told as done")
    rig.server.order(7, "signal", signal=10)  # a server that forgot sends it again
    rig.server.order(8, "flush")
    wait_until(lambda: not rig.server.commands, what="both to be told as done")
    os.kill(task.shipper(), signal.SIGKILL)
    # and a new shipper does not know it, but the shim does
    rig.server.order(7, "signal", signal=10)
    wait_until(lambda: not rig.server.commands, what="it to be told as done again")
    assert rig.server.text("stdout-0") == b"ready\nusr1\n"
    rig.server.order(9, "stop", grace_s=5)
    assert rig.finish(task)["reason"] == "stop"
    assert rig.server.facts("stop_requested")[0]["by"] == "command"


def test_the_time_limit_ends_the_task_and_is_named(rig: Rig) -> None:
    ended = rig.run("sleep", "60", max_duration_s=0.3)
    assert (ended["signal"], ended["reason"]) == (15, "walltime")


def test_leftovers_are_ended_and_reported(rig: Rig) -> None:
    """F30: also one that left its session, and one that ignores SIGTERM."""
    code = (
        "import os, subprocess, sys\n"
        "a = subprocess.Popen(['sleep', '61'])\n"
        "deaf = 'import signal, time; signal.signal(15, 1); print(1, flush=True); time.sleep(62)'\n"
        "b = subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True, stdout=subprocess.PIPE)\n"
        "b.stdout.readline(); print(a.pid, b.pid)"
    )
    task = rig.start(rig.make(*script(code)))
    assert rig.finish(task)["exit_code"] == 0
    pids = [int(word) for word in rig.server.text("stdout-0").split()]
    told = [pid for fact in rig.server.facts("leftovers") for pid in fact["pids"]]
    assert set(pids) <= set(told)
    assert not any(alive(pid) for pid in pids)


def test_a_child_that_ends_by_itself_in_a_moment_is_no_leftover(rig: Rig) -> None:
    assert rig.run("sh", "-c", "true & exit 0")["exit_code"] == 0
    assert rig.server.facts("leftovers") == []


def test_the_shim_survives_closed_stdio_hangup_and_broken_pipes(rig: Rig) -> None:
    task = rig.make("sleep", "1")
    argv = " ".join(f"'{word}'" for word in agent_argv("shim", task.dir))
    task.shim = rig.spawn("sh", "-c", f"exec {argv} <&- >&- 2>&-")
    rig.wait_facts("process_started")
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD) * 300:  # F12: a storm of them
        task.shim.send_signal(number)
    assert rig.finish(task)["exit_code"] == 0


def test_a_task_is_started_once_whatever_is_started_again(rig: Rig) -> None:
    """F28, P9."""
    task = rig.start(rig.make("sh", "-c", "echo started; exec sleep 60"))
    rig.wait_facts("process_started")
    second = rig.spawn(*agent_argv("shim", task.dir))
    third = rig.adopt(task)
    assert (second.wait(30), third.wait(30)) == (3, 3)
    assert task.shim is not None
    task.shim.terminate()
    assert rig.finish(task)["signal"] == 15
    assert rig.server.text("stdout-0") == b"started\n"


def test_a_shim_that_was_killed_before_is_not_started_again(rig: Rig) -> None:
    """F28: `shim.json` says that it was started, and it is never started a second time."""
    task = rig.make("sh", "-c", "echo started")
    (task.dir / "shim.json").write_text("{}")
    assert rig.spawn(*agent_argv("shim", task.dir)).wait(30) == 3
    assert not (task.dir / "stdout-0").exists()


@pytest.mark.parametrize("damage", ["missing", "garbage", "newer", "no environment"])
def test_a_task_that_cannot_be_read_is_refused_and_can_be_started_later(
    rig: Rig, damage: str
) -> None:
    """P12."""
    task = rig.make("true")
    path = task.dir / ("env.json" if damage == "no environment" else "task.json")
    kept = path.read_text()
    path.unlink()
    if damage == "garbage":
        path.write_text("{")
    elif damage == "newer":
        path.write_text(json.dumps({**json.loads(kept), "version": 99}))
    assert rig.spawn(*agent_argv("shim", task.dir)).wait(30) == 1
    assert not (task.dir / "shim.json").exists() and "cannot be started" in task.log()
    path.write_text(kept)
    rig.start(task)
    assert rig.finish(task)["exit_code"] == 0


def test_secrets_do_not_leave_the_node(rig: Rig) -> None:
    """Sec9, P14: exact values across two writes, known shapes, and the task's own token."""
    canary, shaped = "c4n4ry-Zq8vT1-do-not-store", "ghp_" + "a1" * 18
    code = (
        "import os, sys, time\ns = os.environ['MY_API_TOKEN']\n"
        f"print('one', s, s * 2, '{shaped}', 'token-secret')\n"
        "sys.stdout.write(s[:9]); sys.stdout.flush(); time.sleep(0.4); sys.stdout.write(s[9:] + '\\n')\n"
        "print(os.environ['PLAIN_NAME'])"
    )
    rig.run(
        *script(code),
        env={"MY_API_TOKEN": canary, "PLAIN_NAME": "named-secret-1"},
        secret_names=["PLAIN_NAME"],
    )
    everything = b"".join(bytes(stored.data) for stored in rig.server.streams.values())
    for secret in (canary, shaped, "token-secret", "named-secret-1"):
        assert secret.encode() not in everything
    stars = "*" * 26
    assert (
        rig.server.text("stdout-0").decode()
        == f"one {stars} {stars * 2} {'*' * 40} {'*' * 12}\n{stars}\n{'*' * 14}\n"
    )


def test_provenance_is_collected_beside_the_run(rig: Rig, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (repo / "train.py").write_text("print(1)\n")
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=repo, check=True)
    subprocess.run(["git", "add", "."], cwd=repo, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], cwd=repo, check=True)
    (repo / "train.py").write_text("print(1)  # c4n4ry-Zq8vT1-do-not-store\n")
    rig.run(
        "sh",
        "-c",
        "sleep 0.1",
        "--api-key=hunter2hunter2",
        cwd=str(repo),
        env={"MY_TOKEN": "c4n4ry-Zq8vT1-do-not-store"},
    )
    (fact,) = rig.server.facts("provenance")
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repo, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert (
        fact["git"]["commit"] == head
        and fact["git"]["branch"] == "main"
        and fact["git"]["dirty"] is True
    )
    assert "+print(1)  # ********" in fact["git"]["diff"]
    assert fact["command"][-1] == "--api-key=********" and fact["host"] == os.uname().nodename


def test_a_program_that_hangs_in_the_middle_of_a_line_is_seen_so_far(rig: Rig) -> None:
    task = rig.start(
        rig.make(
            *script(
                "import sys, time; sys.stdout.write('50%|xx'); sys.stdout.flush(); time.sleep(60)"
            )
        )
    )
    wait_until(lambda: rig.server.text("stdout-0") == b"50%|xx", what="the unfinished line")
    assert task.shim is not None
    task.shim.terminate()
    rig.finish(task)


def test_the_index_tells_when_output_came_and_never_goes_back(rig: Rig) -> None:
    """F26: a shipper that was restarted goes on behind the times of the one before."""
    # two times of the index are so far apart
    wait = "while [ ! -e %s ]; do sleep 0.02; done; sleep 0.1; echo %s"
    task = rig.start(rig.make("sh", "-c", f"echo a; {wait % ('b', 'b')}; {wait % ('c', 'c')}"))
    cwd = rig.home.parent / "cwd"
    wait_until(lambda: rig.server.text("stdout-0") == b"a\n", what="the first line")
    (cwd / "b").touch()
    wait_until(lambda: rig.server.text("stdout-0") == b"a\nb\n", what="two lines")
    os.kill(task.shipper(), signal.SIGKILL)
    before_us = time.time_ns() // 1000
    (cwd / "c").touch()
    rig.finish(task)
    data = rig.server.text("stdout-0.index")
    entries = [
        (int.from_bytes(data[i : i + 8], "little"), int.from_bytes(data[i + 8 : i + 16], "little"))
        for i in range(0, len(data), 16)
    ]
    offsets = [offset for offset, _ in entries]
    assert offsets[:2] == [0, 2] and offsets == sorted(set(offsets))
    times = [us for _, us in entries]
    assert times == sorted(times) and abs(times[-1] - before_us) < 60_000_000

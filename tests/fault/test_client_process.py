"""The client in real processes: killed, interrupted, forked, out of disk, without a folder (P1, P2,
P5).
"""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs, streams
from tests.waiting import wait_until

PYTHON = sys.executable


class Task:
    """A task's spool without an agent, and scripts that run in it."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.folder = tmp_path, tmp_path / "spool"
        self.folder.mkdir(mode=0o700)
        self.write_task()
        self.env = dict(os.environ) | {
            "HEADWAY_SPOOL": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "RETURNED": str(tmp_path / "returned")
        }  # fmt: skip

    def write_task(self) -> None:
        (self.folder / "task.json").write_text('{"version": 1}')

    def script(self, code: str) -> list[str]:
        path = self.root / "train.py"
        path.write_text(textwrap.dedent(code))
        return [PYTHON, str(path)]

    def start(self, code: str, *before: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*before, *self.script(code)], env=self.env, **options)

    def run(
        self, code: str, *before: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, *self.script(code)],
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=110,
        )

    def returned(self) -> int:
        """How many calls of log() had returned."""
        path = self.root / "returned"
        return path.stat().st_size if path.exists() else 0

    def values(self, name: str = "x") -> list[float]:
        return [p.value for p in streams.points(self.folder, whole=False) if p.name == name]

    def counters(self) -> dict[str, int]:
        """Summed over the processes; each adds up in itself."""
        total = dict.fromkeys(("produced", "written", "rejected", "dropped"), 0)
        for fact in streams.facts(self.folder, "counters"):
            assert fact["produced"] == fact["written"] + fact["rejected"] + fact["dropped"]
            total = {key: total[key] + fact[key] for key in total}
        return total


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


LOOP = """
    import os, sys
    import headway as hw
    said = os.open(os.environ["RETURNED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10**9):
        hw.log({"x": i, f"sometimes{i % 3}": 0.5} if i % 50 == 7 else {"x": i}, step=i)
        os.write(said, b".")
"""


def check_returned(task: Task) -> None:
    values, n = task.values(), task.returned()
    assert n <= len(values) <= n + 1, f"{n} calls had returned, {len(values)} points are there"
    assert values == [float(i) for i in range(len(values))]
    for stream in [
        *streams.streams(task.folder, "metrics"),
        *streams.streams(task.folder, "facts"),
    ]:
        frames = streams.frames_of(task.folder, stream.name, whole=False)
        # what is there starts with an OPEN frame
        assert frames or not (task.folder / stream.name).stat().st_size


def test_a_trainer_killed_at_any_time_loses_no_point_that_log_returned(task: Task) -> None:
    """F1, P2."""
    rng = random.Random(1)
    for _ in range(8):
        shutil.rmtree(task.folder)
        task.folder.mkdir()
        task.write_task()
        (task.root / "returned").unlink(missing_ok=True)
        child = task.start(LOOP)
        wait_until(lambda: task.returned() > 10, what="the first calls")
        time.sleep(rng.random() * 0.2)  # any moment will do: nothing is waited for
        child.send_signal(signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
        check_returned(task)


def test_death_at_any_write_leaves_whole_frames_and_every_returned_point(
    task: Task, strace: str
) -> None:
    """F2: the Nth write of the process, to the spool or elsewhere, never returns."""
    code, killed = LOOP, 0
    for nth in range(1, 40):
        shutil.rmtree(task.folder)
        task.folder.mkdir()
        task.write_task()
        (task.root / "returned").unlink(missing_ok=True)
        inject = [
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=write",
            "-e",
            f"inject=write:signal=SIGKILL:when={nth}",
        ]
        argv = [strace, *inject, *task.script(code), "12"]
        done = subprocess.run(argv, env=task.env, capture_output=True, timeout=60)
        check_returned(task)
        if done.returncode == 0:
            break
        killed += 1
    assert 20 <= killed < 39, "the sweep met every write of the script, and then none"


def test_a_write_cut_at_any_byte_is_made_up_for_in_the_next_segment(task: Task) -> None:
    """F2, F12: the system takes a part of a frame and then no more; a file-size limit does exactly
    that.
    """
    code = """
        import os, resource, sys
        import headway as hw
        hw.log({"x": 0.0}, step=0)
        (stream,) = [n for n in os.listdir(os.environ["HEADWAY_SPOOL"]) if n.startswith("metrics")]
        size = os.path.getsize(os.path.join(os.environ["HEADWAY_SPOOL"], stream))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + int(sys.argv[1]), resource.RLIM_INFINITY))
        for i in range(1, 4): hw.log({"x": float(i)}, step=i)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for i in range(4, 8): hw.log({"x": float(i)}, step=i)
    """
    for cut in (0, 1, 2, 5, 11, 12, 20, 39, 40, 41, 79):
        shutil.rmtree(task.folder)
        task.folder.mkdir()
        task.write_task()
        done = subprocess.run(
            [*task.script(code), str(cut)], env=task.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        counters = task.counters()
        assert counters["produced"] == 8 and counters["written"] == len(task.values())
        assert task.values() == sorted(set(task.values())) and task.values()[-4:] == [
            4.0,
            5.0,
            6.0,
            7.0,
        ]
        assert counters["dropped"] == sum(
            gap["points"] for gap in streams.facts(task.folder, "gap")
        )


def test_a_thousand_signals_a_second_neither_tear_frames_nor_deadlock(task: Task) -> None:
    """F12, and `log` called from a handler that interrupts `log`."""
    done = task.run("""
        import itertools, signal, time
        import headway as hw
        seen, numbers = 0, itertools.count(1)
        def handler(number, frame):  # which may itself be interrupted
            global seen
            mine = next(numbers)
            hw.log({"signal": mine, f"kind{mine % 5}": 1}, step=mine)
            seen = max(seen, mine)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        end = time.monotonic() + 1
        i = 0
        while time.monotonic() < end or seen < 200:
            hw.log({"x": i, f"new{i % 900}": 0.0} if i % 10 == 0 else {"x": i}, step=i)
            hw.config["i"] = i
            i += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(i, next(numbers) - 1)
    """)
    assert done.returncode == 0, done.stderr
    loops, signals = map(int, done.stdout.split())
    assert streams.points(task.folder)  # every frame is whole
    assert task.values() == [float(i) for i in range(loops)] and signals >= 200
    missing = {float(i + 1) for i in range(signals)} - set(task.values("signal"))
    assert not missing and len(task.values("signal")) == signals, (
        missing,
        task.counters(),
        done.stderr,
    )
    assert task.counters()["dropped"] == 0


def test_an_exception_of_the_programs_own_handler_goes_through(task: Task) -> None:
    """A preemption or an alarm that unwinds the program is not ours to swallow, also when it is an
    OSError.
    """
    done = task.run("""
        import signal
        import headway as hw
        class Preempted(Exception): pass
        class Handler:
            def __init__(self, kind): self.kind = kind
            def __call__(self, number, frame): raise self.kind("now")
            def method(self, number, frame): raise self.kind("now")
        through = 0
        hw.log({"x": 0})  # while it imports, Python itself swallows an OSError
        for n in range(400):
            kind = (Preempted, TimeoutError, KeyError, ValueError)[n % 4]
            signal.signal(signal.SIGALRM, Handler(kind) if n % 2 else Handler(kind).method)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + n * 1e-6)
                while True:
                    hw.log({"x": n, "y": {"z": 1}} if n % 3 == 0 else {"x": n})
            except kind:
                through += 1
        print(through)
    """)
    assert done.returncode == 0 and done.stdout == "400\n", done.stderr
    assert streams.points(task.folder)


def test_ctrl_c_in_a_loop_of_log_is_not_swallowed(task: Task) -> None:
    child = task.start(LOOP, stderr=subprocess.DEVNULL)
    wait_until(lambda: task.returned() > 100, what="some calls")
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == -signal.SIGINT
    assert streams.facts(task.folder, "exception")[0]["exc_type"] == "KeyboardInterrupt"
    assert streams.facts(task.folder, "bye")[0]["exit_code"] == 130


# -- children


def test_forked_children_have_streams_of_their_own(task: Task) -> None:
    done = task.run("""
        import os, sys, threading
        import headway as hw
        hw.log({"x": 0}, step=0)
        stop = threading.Event()
        def busy():
            while not stop.is_set(): hw.log({"thread": 1.0})
        threads = [threading.Thread(target=busy) for _ in range(3)]
        for t in threads: t.start()
        pids = []
        for n in range(20):  # while other threads are inside log()
            pid = os.fork()
            if pid == 0:
                for i in range(50): hw.log({f"child{n}": i, "x": 1}, step=i)
                os._exit(0)
            pids.append(pid)
            hw.log({"x": 2})
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
        stop.set()
        for t in threads: t.join()
        print(codes == [0] * 20)
    """)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    by_name: dict[str, list[Any]] = {}
    for point in streams.points(task.folder):
        by_name.setdefault(point.name, []).append(point)
    for n in range(20):
        found = by_name[f"child{n}"]
        assert [p.value for p in found] == [float(i) for i in range(50)]
        assert len({p.stream for p in found}) == 1
    pids = {s.pid for s in streams.streams(task.folder, "metrics")}
    assert len(pids) == 21 and all(
        len(streams.facts(task.folder, "hello", pid=pid)) == 1 for pid in pids if pid
    )


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_children_of_multiprocessing_log_and_say_goodbye(task: Task, method: str) -> None:
    done = task.run(f"""
        import multiprocessing, sys
        import headway as hw
        def work(n):
            for i in range(100): hw.log({{"child": i, f"of{{n}}": 1}}, step=i)
            if n == 3: sys.exit(7)
        if __name__ == "__main__":
            hw.log({{"x": 1}})
            context = multiprocessing.get_context("{method}")
            children = [context.Process(target=work, args=(n,)) for n in range(4)]
            for child in children: child.start()
            for child in children: child.join()
            print([child.exitcode for child in children])
    """)
    assert (done.returncode, done.stdout) == (0, "[0, 0, 0, 7]\n"), done.stderr
    assert len(task.values("child")) == 400
    assert task.counters() == {"produced": 801, "written": 801, "rejected": 0, "dropped": 0}
    assert len(streams.facts(task.folder, "bye")) == 5


def test_a_forked_child_that_does_not_log_writes_nothing(task: Task) -> None:
    done = task.run("""
        import os, sys
        import headway as hw
        hw.log({"x": 1}); hw.config["a"] = 1
        if os.fork() == 0: sys.exit(0)
        os.wait()
    """)
    assert done.returncode == 0, done.stderr
    assert (
        len(streams.streams(task.folder, "facts")) == 1
        and len(streams.facts(task.folder, "bye")) == 1
    )


def test_os_exit_right_after_log_loses_nothing(task: Task) -> None:
    done = task.run(
        "import os, headway as hw\nfor i in range(1000): hw.log({'x': i})\nos._exit(5)\n"
    )
    assert done.returncode == 5 and task.values() == [float(i) for i in range(1000)]


def test_importing_without_using_leaves_nothing_behind(task: Task) -> None:
    done = task.run("import headway, headway.client.api\n1 / 0\n")
    assert done.returncode == 1 and [p.name for p in task.folder.iterdir()] == ["task.json"]


def test_logging_in_destructors_at_the_very_end_does_no_harm(task: Task) -> None:
    done = task.run("""
        import atexit
        import headway as hw
        atexit.register(lambda: hw.log({"late": 1}))
        hw.log({"x": 1})
        class Last:
            def __del__(self, hw=hw): hw.log({"x": 2}); hw.log({"new": 1, "bad": "text"}); hw.finish()
        keep = Last()
        import builtins
        builtins.keep = keep
    """)
    assert (
        done.returncode == 0
        and "Traceback" not in done.stderr
        and "Exception ignored" not in done.stderr
    ), done.stderr
    # in streams of their own, after the goodbye
    assert 1.0 in task.values() and task.values("late") == [1.0]


# -- disk


def test_a_full_disk_costs_the_points_that_found_no_room_and_nothing_else(task: Task) -> None:
    """F7: a small tmpfs, filled by the program's own ballast, freed again while it runs."""
    needs.mount_namespace()
    code = f"""
        import os, shutil, sys
        import headway as hw
        spool = os.environ["HEADWAY_SPOOL"]
        hw.init(config={{"lr": 0.1}})
        for i in range(100): hw.log({{"x": i}}, step=i)
        ballast = open(os.path.join(spool, "ballast"), "wb")
        try:
            while True: ballast.write(b"x" * 4096); ballast.flush()
        except OSError: pass
        for i in range(100, 3000): hw.log({{"x": i, "y": 1.0, f"n{{i % 7}}": 2.0}}, step=i)
        os.truncate(ballast.fileno(), 0)
        for i in range(3000, 3100): hw.log({{"x": i}}, step=i)
        hw.finish()
        os.unlink(os.path.join(spool, "ballast"))
        shutil.copytree(spool, {str(task.root / "copy")!r})
        try: ballast.close()
        except OSError: pass
        print("trained")
    """
    mount = f"mount -t tmpfs -o size=256k none {task.folder} && echo '{{\"version\": 1}}' > {task.folder}/task.json"
    done = task.run(code, "unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("headway:") == 1 and "No space left" in done.stderr
    task.folder = task.root / "copy"
    counters = task.counters()
    assert counters["produced"] == 200 + 2900 * 3 and counters["dropped"] > 5000
    assert counters["written"] == len(streams.points(task.folder, whole=False))
    assert task.values()[:100] == [float(i) for i in range(100)]
    assert task.values()[-100:] == [float(i) for i in range(3000, 3100)]
    assert (
        sum(gap["points"] for gap in streams.facts(task.folder, "gap", whole=False))
        == counters["dropped"]
    )


def test_a_spool_that_is_removed_while_training_runs_is_made_again(task: Task) -> None:
    """F34."""
    child = task.start("""
        import os, time
        import headway as hw
        i = 0
        while not os.path.exists(os.environ["RETURNED"] + ".stop"):
            hw.log({"x": i}, step=i)
            i += 1
            time.sleep(0.002)
        print(i)
    """, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    wait_until(lambda: streams.streams(task.folder, "metrics"), what="the first stream")
    shutil.rmtree(task.folder)
    wait_until(
        lambda: task.folder.exists() and streams.streams(task.folder, "metrics"),
        what="a new stream",
    )
    wait_until(lambda: len(task.values()) > 50, what="points in it")
    (task.root / "returned.stop").touch()
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err.decode()
    counters = task.counters()
    assert counters["produced"] == int(out) and 0 < counters["dropped"] < 5000
    assert sum(gap["points"] for gap in streams.facts(task.folder, "gap")) == counters["dropped"]
    assert err.count(b"headway:") == 1


@pytest.fixture
def open_task() -> Iterator[Task]:
    """In a folder that another user may enter."""
    root = Path(tempfile.mkdtemp(prefix="hw", dir="/tmp"))
    root.chmod(0o711)
    yield Task(root)
    shutil.rmtree(root)


def test_a_spool_that_may_not_be_entered_any_more_does_not_stop_training(open_task: Task) -> None:
    """F34: as another user than root, for whom permissions hold. What is open stays open; what is
    new must wait.
    """
    task = open_task
    done = task.run("""
        import os
        import headway as hw
        import headway.client.api, headway.wire.redact  # everything, while we may still read it
        from headway.client import metric
        metric.SCHEMAS_MAX = 3
        spool = os.environ["HEADWAY_SPOOL"]
        if os.getuid() == 0:
            for path in (spool, os.path.join(spool, "task.json")): os.chown(path, 65534, 65534)
            os.setgid(65534); os.setuid(65534)
        for i in range(100): hw.log({"x": i}, step=i)
        os.chmod(spool, 0)
        for i in range(100, 200): hw.log({"x": i, f"n{i}": 1.0}, step=i)  # would need new segments
        os.chmod(spool, 0o700)
        for i in range(200, 300): hw.log({"x": i, f"n{i}": 1.0}, step=i)
        print("trained")
    """)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert task.values() == [float(i) for i in range(300)]
    assert task.counters()["dropped"] == 0 and len(streams.streams(task.folder, "metrics")) > 3

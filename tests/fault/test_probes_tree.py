"""The sampler over real processes: trees that compute, allocate, fork and are killed. Bounds are
wide on purpose.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.agent.probes.sampler import Sampler
from headway.agent.probes.usage_stream import UsageStream
from headway.agent.ship.spool_facts import FactTail
from headway.wire.identity import process_start
from tests.waiting import wait_until

MIB = 1 << 20
Fact = dict[str, Any]
Line = dict[str, Any]

TREE = """
import os, sys, threading, time
block = bytearray(os.urandom(1 << 20)) * 40
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
files = [open(os.devnull) for _ in range(20)]
if os.fork() == 0:
    while True:
        sum(range(1000))
def from_a_thread():
    if os.fork() == 0:
        time.sleep(600)
thread = threading.Thread(target=from_a_thread)
thread.start()
thread.join()
print("ready", flush=True)
time.sleep(600)
"""

WRITER = """
import os
block = os.urandom(1 << 20)
with open('{}', "r+b", 0) as file:
    while True:
        file.seek(0)
        file.write(block)
        os.fsync(file)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a Python program as the leader of a group, and ends the group."""
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(child)
        return child

    yield run
    for child in started:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it has ended
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


class Watched:
    """A sampler in real time, asked a few times a second."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.sampler = Sampler(0.25, self.facts.append, time.monotonic())

    def lines(self) -> dict[tuple[int, int | None], Line]:
        """The newest sample."""
        before = len(self.facts)
        while len(self.facts) == before:
            time.sleep(max(0.0, self.sampler.due_s() - time.monotonic()))
            self.sampler.step(time.monotonic())
        newest = [fact for fact in self.facts if fact["level"] == 0][-1]
        return {(line["rank"], line["pid"]): line for line in newest["processes"]}


def open_files() -> list[str]:
    places = []
    for name in os.listdir("/proc/self/fd"):
        try:
            places.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the folder itself, while it was listed
    return places


@pytest.fixture
def watched() -> Iterator[Watched]:
    before = open_files()
    watched = Watched()
    yield watched
    watched.sampler.close(time.monotonic())
    left = [
        place
        for place in open_files()
        if place.startswith(("/proc/", "/sys/")) and "/fd" not in place
    ]
    assert set(left) <= set(before)


def test_a_real_tree_is_seen_as_it_is(
    start: Callable[[str], subprocess.Popen[bytes]], watched: Watched
) -> None:
    root = start(TREE)
    assert root.stdout is not None
    assert root.stdout.readline() == b"ready\n"
    watched.sampler.follow(4, root.pid, process_start(root.pid))
    found: dict[tuple[int, int | None], Line] = {}

    def whole() -> bool:
        found.clear()
        found.update(watched.lines())
        return len(found) == 4 and all(line["pss_bytes"] is not None for line in found.values())

    wait_until(whole, 60.0, "the rank, its first process and two children, all of them weighed")
    tree, first = found[4, None], found[4, root.pid]
    others = [line for (_, pid), line in found.items() if pid not in (None, root.pid)]
    assert [line["ppid"] for line in others] == [root.pid, root.pid]
    assert 40 * MIB < first["rss_bytes"] < 200 * MIB
    assert first["threads"] == 2
    assert first["fds"] >= 23
    assert tree["processes"] == 3
    assert tree["rss_bytes"] == first["rss_bytes"] + sum(line["rss_bytes"] for line in others)
    assert 40 * MIB < tree["pss_bytes"] < tree["rss_bytes"], (
        "forked children share their parent's memory"
    )
    assert first["uss_bytes"] <= first["pss_bytes"] <= first["rss_bytes"] + 4 * MIB


def test_cpu_of_a_busy_process_is_near_what_the_kernel_gave_it(
    start: Callable[[str], subprocess.Popen[bytes]], watched: Watched
) -> None:
    root = start("while True: sum(range(1000))")
    watched.sampler.follow(0, root.pid, None)
    wait_until(
        lambda: (watched.lines().get((0, root.pid)) or {}).get("cpu_percent"), what="some CPU"
    )
    for _ in range(8):
        watched.lines()
    samples = [fact for fact in watched.facts if fact["level"] == 0]
    found = [
        (fact, line) for fact in samples for line in fact["processes"] if line["pid"] == root.pid
    ]
    assert 0 < mean([(fact["span_s"], line["cpu_percent"]) for fact, line in found]) <= 150


def mean(found: list[tuple[float, float | None]]) -> float:
    """Over the spans. Of a single sample on a busy machine nothing can be said: what is read late
    counts too much, and in the next one too little.
    """
    known = [(span_s, percent) for span_s, percent in found if percent is not None]
    return sum(span_s * percent for span_s, percent in known) / sum(span_s for span_s, _ in known)


def test_writing_shows_as_a_disk_rate(
    start: Callable[[str], subprocess.Popen[bytes]], watched: Watched, tmp_path: Path
) -> None:
    target = tmp_path / "written"
    target.touch()
    root = start(WRITER.format(target))
    watched.sampler.follow(0, root.pid, None)
    if not os.access(f"/proc/{root.pid}/io", os.R_OK):
        pytest.skip("this kernel does not count what processes write")
    wait_until(
        lambda: (watched.lines().get((0, None)) or {}).get("write_bps"), 60.0, "bytes written"
    )


def test_a_killed_tree_leaves_no_lines(
    start: Callable[[str], subprocess.Popen[bytes]], watched: Watched
) -> None:
    root = start("import os, time\nos.fork()\ntime.sleep(600)")
    watched.sampler.follow(0, root.pid, None)
    wait_until(lambda: len(watched.lines()) == 3, what="two processes")
    os.killpg(root.pid, signal.SIGKILL)
    wait_until(lambda: watched.lines() == {}, what="no processes")


def test_an_orphan_is_still_the_ranks(
    start: Callable[[str], subprocess.Popen[bytes]], watched: Watched
) -> None:
    code = "import os, sys, time\npid = os.fork()\nif pid == 0: time.sleep(600)\nprint(pid, flush=True)\ntime.sleep(600)"
    root = start(code)
    assert root.stdout is not None
    orphan = int(root.stdout.readline())
    watched.sampler.follow(2, root.pid, None)
    wait_until(lambda: (2, orphan) in watched.lines(), what="the child")
    os.kill(root.pid, signal.SIGKILL)
    root.wait()
    wait_until(lambda: set(watched.lines()) == {(2, None), (2, orphan)}, what="the orphan alone")


def test_the_node_of_this_machine_makes_sense(watched: Watched) -> None:
    for _ in range(8):
        watched.lines()
    node = watched.facts[0]["node"]
    assert 0 < node["memory_bytes"] <= node["memory_total_bytes"]
    samples = [
        (fact["span_s"], fact["node"]["cpu_percent"])
        for fact in watched.facts
        if fact["level"] == 0
    ]
    assert 0 <= mean(samples) <= 100 * (os.cpu_count() or 1) * 1.5
    assert 0 < node["cores"] <= (os.cpu_count() or 1)


def test_facts_have_the_agreed_fields(
    start: Callable[[str], subprocess.Popen[bytes]], watched: Watched
) -> None:
    root = start("import time; time.sleep(600)")
    watched.sampler.follow(0, root.pid, None)
    wait_until(lambda: (0, root.pid) in watched.lines(), what="the process")
    fact = watched.facts[-1]
    node = "cpu_percent memory_bytes memory_total_bytes net_rx_bps net_tx_bps disk_read_bps disk_write_bps psi"
    line = "rank pid ppid name cpu_percent rss_bytes pss_bytes threads fds read_bps write_bps"
    assert {"type", "level", "span_s", "node", "processes", "gpus"} == set(fact)
    assert set(node.split()) <= set(fact["node"])
    assert set(fact["node"]["psi"]) == {"cpu", "io", "memory"}
    assert all(set(line.split()) <= set(one) for one in fact["processes"])
    assert fact["gpus"] == []


# -- the stream


def test_a_stream_that_has_grown_goes_on_in_another(tmp_path: Path) -> None:
    stream = UsageStream(str(tmp_path), bytes_max=MIB)
    for number in range(40):
        assert stream.write({"type": "usage", "number": number, "filler": "x" * (MIB // 16)})
    stream.close()
    files = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert len(files) == 3
    assert all(file.name.startswith(f"usage-{os.getpid()}-") for file in files)
    numbers = []
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        tail = FactTail(fd)
        numbers += [fact["number"] for _, fact in tail.read()]
        assert tail.opening is not None
        assert (tail.opening["kind"], tail.opening["pid"]) == ("usage", os.getpid())
        os.close(fd)
    assert numbers == list(range(40))


def test_a_folder_that_is_gone_costs_the_sample_only(tmp_path: Path) -> None:
    stream = UsageStream(str(tmp_path / "spool"))
    assert not stream.write({"type": "usage"})
    (tmp_path / "spool").mkdir()
    assert stream.write({"type": "usage"})
    stream.close()

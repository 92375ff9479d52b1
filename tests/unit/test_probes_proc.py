"""Processes and node read from made-up /proc trees: parsing, pid reuse, trees, and files that are
missing (B33).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.agent.probes.node import Node
from headway.agent.probes.proc_file import Budget, Kept, Rate
from headway.agent.probes.process_stat import PAGE_BYTES, TICKS_S, Member
from headway.agent.probes.process_tree import Forest
from headway.agent.probes.sampler import Sampler
from headway.model.limits import USAGE_PSS_RSS_BYTES_MAX


class FakeProc:
    """Below `root/proc` what the kernel would show."""

    def __init__(self, root: Path) -> None:
        self.root, self.forks = root / "proc", 0
        self.root.mkdir()
        self.fork()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def fork(self) -> None:
        self.forks += 1
        self.write("loadavg", f"0.1 0.2 0.3 1/100 {self.forks}\n")

    def process(
        self, pid: int, ppid: int = 1, *, start: int = 500, ticks: int = 0, waited: int = 0, state: str = "S",
        name: str = "python", pages: int = 100, io: tuple[int, int] | None = (0, 0), children: str | None = "",
    ) -> None:  # fmt: skip
        fields = [
            state,
            ppid,
            pid,
            pid,
            0,
            -1,
            0,
            0,
            0,
            0,
            0,
            ticks,
            0,
            waited,
            0,
            20,
            0,
            3,
            0,
            start,
            1,
            pages,
        ]
        self.write(f"{pid}/stat", f"{pid} ({name}) {' '.join(map(str, fields))} 0 0 0\n")
        self.write(f"{pid}/statm", f"{pages * 5} {pages} 10 1 0 50 0\n")
        (self.root / f"{pid}/fd").mkdir(exist_ok=True)
        if io is not None:
            rest = f"read_bytes: {io[0]}\nwrite_bytes: {io[1]}\ncancelled_write_bytes: 0\n"
            self.write(f"{pid}/io", f"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n{rest}")
        if children is not None:
            self.write(f"{pid}/task/{pid}/children", children)

    def end(self, pid: int) -> None:
        for file in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            if file.is_file():
                file.write_text("")  # what a kept descriptor reads of a process that is gone
                file.unlink()
            else:
                file.rmdir()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


class Clocked:
    """A forest with a clock of its own."""

    def __init__(self, proc: FakeProc) -> None:
        self.budget, self.now_s = Budget(), 100.0
        self.forest = Forest(str(proc.root), self.budget, lambda: self.now_s * TICKS_S, cores=8)

    def sample(self, after_s: float = 1.0) -> dict[tuple[int, int | None], dict[str, object]]:
        self.now_s += after_s
        self.forest.sample(self.now_s)
        return {(line["rank"], line["pid"]): line for line in self.forest.lines()}


@pytest.fixture
def clocked(proc: FakeProc) -> Iterator[Clocked]:
    clocked = Clocked(proc)
    yield clocked
    clocked.forest.close()
    assert clocked.budget.left == Budget().left, "a descriptor was left open"


# -- processes


def test_a_process_is_told_with_all_its_values(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(42, ppid=7, name="a) b (c", pages=1000, io=(0, 1000))
    (proc.root / "42/fd/0").touch()
    proc.write("42/smaps_rollup", "55-7f ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss: 7 kB\nPrivate_Clean: 1 kB\n"
               "Private_Dirty: 4 kB\n")  # fmt: skip
    clocked.forest.follow(3, 42, 500)
    clocked.sample()
    proc.process(42, ppid=7, name="a) b (c", pages=2000, ticks=TICKS_S // 2, io=(4096, 2000))
    clocked.sample(2.0)
    line = clocked.sample(0.0)[3, 42]
    assert line["name"] == "a) b (c"
    assert (line["ppid"], line["threads"], line["rss_bytes"]) == (7, 3, 2000 * PAGE_BYTES)
    assert (line["pss_bytes"], line["uss_bytes"]) == (7 * 1024, 5 * 1024)


def test_rates_are_taken_over_the_time_that_has_passed(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(42, io=(0, 1000))
    clocked.forest.follow(0, 42, None)
    clocked.sample()
    proc.process(42, ticks=TICKS_S, io=(4096, 2000))
    lines = clocked.sample(2.0)
    assert (lines[0, 42]["cpu_percent"], lines[0, 42]["read_bps"], lines[0, 42]["write_bps"]) == (
        50.0,
        2048,
        500,
    )
    assert lines[0, None]["cpu_percent"] == 50.0


def test_a_process_that_has_not_moved_uses_nothing_and_no_byte_of_it_is_lost(
    proc: FakeProc, clocked: Clocked
) -> None:
    proc.process(50, ticks=7, io=(1000, 0))
    clocked.forest.follow(0, 50, 500)
    clocked.sample()
    proc.process(50, ticks=7, io=(4000, 0))  # with less than a tick of CPU
    still = clocked.sample()[0, 50]
    assert (still["cpu_percent"], still["read_bps"], still["rss_bytes"]) == (
        0.0,
        0,
        100 * PAGE_BYTES,
    )
    proc.process(50, ticks=8, io=(5000, 0))
    moved = clocked.sample()[0, 50]
    assert (moved["cpu_percent"], moved["read_bps"]) == (round(100 / TICKS_S, 1), 4000)


def test_the_line_of_a_process_that_has_not_moved_is_the_one_before(
    proc: FakeProc, clocked: Clocked
) -> None:
    """By which those who fold and write lines know it. Whatever changes in it makes another."""
    for pid in (50, 51):
        proc.process(pid, ticks=pid)
    proc.process(52, 51)
    proc.process(51, ticks=51, children="52")
    clocked.forest.follow(0, 50, 500)
    clocked.forest.follow(1, 51, 500)
    for _ in range(3):
        before = clocked.sample()
    after = clocked.sample()
    assert len(after) == 5
    assert all(after[key] is before[key] for key in after)
    (proc.root / "50/fd").rmdir()
    before, after = after, clocked.sample(11.0)
    assert before[0, 50]["fds"] is not None
    assert (after[0, 50]["fds"], after[0, None]["fds"]) == (None, None)
    assert after[1, 51] is before[1, 51]
    clocked.forest.follow(2, 52, 500)
    before, after = after, clocked.sample()
    assert set(after) == {(0, None), (0, 50), (1, None), (1, 51), (2, None), (2, 52)}
    assert (before[1, None]["processes"], after[1, None]["processes"]) == (2, 1)
    proc.process(52, 51, ticks=TICKS_S)
    before, after = after, clocked.sample()
    assert (before[2, 52]["cpu_percent"], after[2, 52]["cpu_percent"]) == (0.0, 100.0)
    assert (after[2, None]["cpu_percent"], clocked.sample()[2, None]["cpu_percent"]) == (100.0, 0.0)


def test_a_number_that_was_given_anew_is_not_the_rank(proc: FakeProc, clocked: Clocked) -> None:
    """F29: known by pid and start time."""
    proc.process(42, start=500)
    clocked.forest.follow(0, 42, 500)
    assert (0, 42) in clocked.sample()
    proc.process(42, start=900)
    assert clocked.sample() == {}
    clocked.forest.follow(1, 42, 500)
    assert clocked.sample() == {}


def test_a_process_that_is_gone_is_let_go(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(42)
    proc.process(43)
    clocked.forest.follow(0, 42, 500)
    clocked.forest.follow(1, 43, 500)
    assert set(clocked.sample()) == {(0, None), (0, 42), (1, None), (1, 43)}
    proc.end(42)
    assert set(clocked.sample()) == {(1, None), (1, 43)}


def test_children_belong_to_the_nearest_rank_above_them(proc: FakeProc, clocked: Clocked) -> None:
    """torchrun is rank 0's first process; the ranks below it are known by their own streams."""
    proc.process(10, children="20 30")
    proc.process(20, 10, children="21")
    proc.process(30, 10, children="31")
    proc.process(21, 20)
    proc.process(31, 30)
    clocked.forest.follow(0, 10, None)
    clocked.forest.follow(1, 30, 500)
    lines = clocked.sample()
    assert {pid for rank, pid in lines if rank == 0} == {None, 10, 20, 21}
    assert {pid for rank, pid in lines if rank == 1} == {None, 30, 31}
    assert lines[0, None]["rss_bytes"] == 300 * PAGE_BYTES
    assert (lines[0, None]["processes"], lines[0, None]["threads"]) == (3, 9)


def test_a_process_that_turns_out_to_be_a_rank_changes_sides(
    proc: FakeProc, clocked: Clocked
) -> None:
    proc.process(10, children="20")
    proc.process(20, 10)
    clocked.forest.follow(0, 10, None)
    assert (0, 20) in clocked.sample()
    clocked.forest.follow(5, 20, 500)
    assert (5, 20) in clocked.sample()


def test_an_orphan_stays_with_its_rank(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(10, children="20")
    proc.process(20, 10)
    clocked.forest.follow(0, 10, None)
    clocked.sample()
    proc.end(10)
    proc.process(20, 1)
    lines = clocked.sample()
    assert set(lines) == {(0, None), (0, 20)}


@pytest.mark.parametrize("listed", ["", None])
def test_children_of_other_threads_are_found_by_looking_at_all_numbers(
    proc: FakeProc, clocked: Clocked, listed: str | None
) -> None:
    """Neither is there a list of children on every kernel, nor does the main thread's hold all."""
    proc.process(10, children=listed)
    proc.process(99, 1)
    clocked.forest.follow(0, 10, None)
    assert set(clocked.sample()) == {(0, None), (0, 10)}
    proc.process(20, 10, children=listed)
    proc.process(15, 20, children=listed)
    proc.fork()
    found = [set(clocked.sample()) for _ in range(10)]
    assert found[-1] == {(0, None), (0, 10), (0, 20), (0, 15)}


def test_where_nothing_was_started_nobody_is_asked_for_children(
    proc: FakeProc, clocked: Clocked
) -> None:
    proc.process(10)
    clocked.forest.follow(0, 10, None)
    clocked.sample()
    proc.process(20, 10)
    proc.process(10, children="20")
    assert (0, 20) not in clocked.sample()
    proc.fork()
    assert (0, 20) in clocked.sample()


def test_short_children_count_for_the_tree(proc: FakeProc, clocked: Clocked) -> None:
    """A compiler that ran between two samples shows in the time that its parent waited for."""
    proc.process(10)
    clocked.forest.follow(0, 10, None)
    clocked.sample()
    proc.process(10, ticks=TICKS_S // 10, waited=TICKS_S // 2)
    lines = clocked.sample()
    assert lines[0, 10]["cpu_percent"] == 10.0
    assert lines[0, None]["cpu_percent"] == 60.0


def test_the_life_of_a_child_is_not_counted_again_when_it_ends(
    proc: FakeProc, clocked: Clocked
) -> None:
    proc.process(10, children="20 30")
    proc.process(20, 10, ticks=1000 * TICKS_S)
    proc.process(30, 10, ticks=1000 * TICKS_S)
    clocked.forest.follow(0, 10, None)
    clocked.forest.follow(1, 30, None)
    clocked.sample()
    clocked.sample()
    proc.end(20)
    proc.end(30)
    proc.process(10, waited=2000 * TICKS_S + TICKS_S // 5)
    assert clocked.sample()[0, None]["cpu_percent"] == 20.0


def test_a_new_process_has_its_cpu_at_once(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(10)
    clocked.forest.follow(0, 10, None)
    clocked.sample()
    proc.process(20, 10, start=int(clocked.now_s * TICKS_S) + 10, ticks=TICKS_S // 4)
    proc.process(10, children="20")
    proc.fork()
    lines = clocked.sample()
    assert lines[0, 20]["cpu_percent"] == 25.0
    assert lines[0, None]["cpu_percent"] == 25.0


def test_a_zombie_is_not_told(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(10, children="20")
    proc.process(20, 10, state="Z")
    clocked.forest.follow(0, 10, None)
    assert set(clocked.sample()) == {(0, None), (0, 10)}


def test_what_may_not_be_read_is_none_and_the_rest_stands(proc: FakeProc, clocked: Clocked) -> None:
    """B33: a container that hides io, statm, fd and the like."""
    proc.process(10, io=None, children=None)
    (proc.root / "10/statm").unlink()
    (proc.root / "10/fd").rmdir()
    clocked.forest.follow(0, 10, None)
    for _ in range(5):
        line = clocked.sample()[0, 10]
    assert line["cpu_percent"] == 0.0
    names = ("rss_bytes", "pss_bytes", "uss_bytes", "fds", "read_bps", "write_bps")
    assert [line[name] for name in names] == [None] * 6


def test_a_sum_of_pss_is_told_only_when_it_is_whole(proc: FakeProc, clocked: Clocked) -> None:
    proc.process(10, children="20")
    proc.process(20, 10)
    for pid in (10, 20):
        proc.write(
            f"{pid}/smaps_rollup",
            "55-7f [rollup]\nPss: 7 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 4 kB\n",
        )
    clocked.forest.follow(0, 10, None)
    told = [clocked.sample()[0, None]["pss_bytes"] for _ in range(6)]
    assert set(told) == {None, 14 * 1024}
    assert told[-1] == 14 * 1024


def test_pages_that_forked_processes_share_count_once_in_the_memory_of_a_rank(
    proc: FakeProc, clocked: Clocked
) -> None:
    proc.process(10, children="20")
    proc.process(20, 10)
    clocked.forest.follow(0, 10, None)
    first = clocked.sample()
    rss = first[0, None]["rss_bytes"] // 2
    assert first[0, None]["memory_bytes"] == rss, "before they are weighed, the larger one counts"
    for pid in (10, 20):
        proc.write(f"{pid}/smaps_rollup", f"55-7f [rollup]\nPss: {rss // 2048} kB\n")
    told = [clocked.sample()[0, None] for _ in range(6)][-1]
    assert told["rss_bytes"] == 2 * rss and abs(told["memory_bytes"] - rss) <= 2048


def test_what_is_dear_is_looked_at_now_and_then(
    proc: FakeProc, clocked: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PSS makes the kernel walk all memory of a process; a large one is not weighed at all."""
    looked: list[tuple[str, int]] = []
    for name in ("weigh", "count_fds"):
        monkeypatch.setattr(Member, name, lambda self, name=name: looked.append((name, self.pid)))
    proc.process(10)
    proc.process(20, pages=USAGE_PSS_RSS_BYTES_MAX // PAGE_BYTES + 1)
    clocked.forest.follow(0, 10, None)
    clocked.forest.follow(1, 20, None)
    for _ in range(200):
        clocked.sample()
    assert 1 <= looked.count(("weigh", 10)) <= 4
    assert looked.count(("weigh", 20)) == 0
    assert 2 <= looked.count(("count_fds", 10)) <= 21


@pytest.mark.parametrize(
    "text", ["", "garbage", "42 (x) R 1", "42 x) " + "1 " * 30, ")", "42 (x) R " + "z " * 30]
)
def test_a_damaged_stat_is_no_process_and_no_error(proc: FakeProc, text: str) -> None:
    proc.write("42/stat", text)
    facts: list[dict[str, object]] = []
    sampler = Sampler(1.0, facts.append, 0.0, proc=str(proc.root), sys=str(proc.root))
    sampler.follow(0, 42, None)
    sampler.step(1.0)
    sampler.close(2.0)
    assert all(not fact["processes"] for fact in facts)


def test_more_files_than_may_be_kept_are_read_all_the_same(proc: FakeProc) -> None:
    budget, now = Budget(3), [0.0]
    forest = Forest(str(proc.root), budget, lambda: now[0])
    for pid in range(10, 20):
        proc.process(pid)
        forest.follow(pid, pid, None)
    forest.sample(1.0)
    assert len(forest.lines()) == 20
    assert budget.left == 0
    forest.close()
    assert budget.left == 3


def test_a_file_that_is_gone_is_not_opened_again(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "none"), Budget())
    assert kept.read() == b""
    assert kept.gone
    (tmp_path / "none").write_text("here")
    assert kept.read() == b""


def test_a_long_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    kept = Kept(str(tmp_path / "long"), Budget())
    assert [len(kept.read_all()), len(kept.read_all()), len(kept.read(10))] == [
        100_000,
        100_000,
        10,
    ]
    kept.close()


def test_a_counter_that_goes_back_has_no_rate() -> None:
    rate = Rate()
    assert [rate.take(v, t) for v, t in ((5, 1.0), (9, 3.0), (1, 4.0), (2, 5.0), (None, 6.0), (7, 7.0), (8, 7.0))] == [
        None, 2.0, None, 1.0, None, None, None,
    ]  # fmt: skip


# -- the node

NET = "Inter-| Receive | Transmit\n face |bytes |bytes\n"


def node_files(proc: FakeProc, ticks: int, net: int, sectors: int, stalled_us: int) -> None:
    proc.write("stat", f"cpu  {ticks} 0 {ticks} 999 7 0 0 0 0 0\ncpu0 1 2 3\n")
    proc.write("meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n")
    rows = "".join(
        f"{name}: {net} 1 0 0 0 0 0 0 {2 * net} 1 0 0 0 0 0 0\n" for name in ("lo", "eth0", "veth1")
    )
    proc.write("net/dev", NET + rows)
    disks = "".join(
        f"8 0 {name} 1 0 {sectors} 0 1 0 {2 * sectors} 0 0 0 0\n"
        for name in ("sda", "sda1", "loop0")
    )
    proc.write("diskstats", disks)
    for name in ("cpu", "io", "memory"):
        proc.write(
            f"pressure/{name}",
            f"some avg10=9.00 avg60=0 avg300=0 total={stalled_us}\nfull total=0\n",
        )


def test_the_node_is_told_with_all_its_values(proc: FakeProc, tmp_path: Path) -> None:
    sys = tmp_path / "sys"
    for name in (
        "class/net/eth0/device",
        "class/net/veth1",
        "class/block/sda",
        "class/block/sda1/partition",
    ):
        (sys / name).mkdir(parents=True)
    node_files(proc, 0, 0, 0, 0)
    node = Node(str(proc.root), str(sys))
    node.sample(10.0)
    node_files(proc, TICKS_S, 1000, 4, 500_000)
    found = node.sample(12.0)
    node.close()
    cores = found.pop("cores")
    assert cores == len(os.sched_getaffinity(0))
    assert found == {
        "cpu_percent": 100.0, "memory_bytes": 600 * 1024, "memory_total_bytes": 1000 * 1024,
        "net_rx_bps": 500, "net_tx_bps": 1000, "disk_read_bps": 1024, "disk_write_bps": 2048,
        "psi": {"cpu": 25.0, "io": 25.0, "memory": 25.0},
    }  # fmt: skip


def test_a_container_counts_the_interface_that_it_was_given(proc: FakeProc, tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    node_files(proc, 0, 0, 0, 0)
    node = Node(str(proc.root), str(tmp_path / "sys"))
    node.sample(0.0)
    node_files(proc, 0, 1000, 0, 0)
    assert node.sample(1.0)["net_rx_bps"] == 1000
    node.close()


def test_a_system_that_tells_nothing_gives_none_and_no_facts(tmp_path: Path) -> None:
    """B33: no /proc at all."""
    node = Node(str(tmp_path / "none"), str(tmp_path / "none"))
    assert node.sample(1.0)["psi"] == {"cpu": None, "io": None, "memory": None}
    facts: list[dict[str, object]] = []
    sampler = Sampler(
        1.0, facts.append, 0.0, proc=str(tmp_path / "none"), sys=str(tmp_path / "none")
    )
    sampler.follow(0, os.getpid(), None)
    for second in range(1, 70):
        sampler.step(float(second))
    sampler.close(70.0)
    assert facts == []


def cgroup_files(proc: FakeProc, root: Path, version: int, files: dict[str, str]) -> None:
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,{}"
    if version == 2:
        proc.write("self/cgroup", "0::/a/b\n")
        proc.write("self/mountinfo", f"1 2 0:3 / /sys/fs/cgroup rw - {kind}\n")
    else:
        names = ("memory", "cpu", "cpuacct")
        proc.write(
            "self/cgroup", "".join(f"{n}:{name}:/a/b\n" for n, name in enumerate(names)) + "0::/\n"
        )
        proc.write(
            "self/mountinfo",
            "".join(f"1 2 0:3 / /sys/fs/cgroup/{n} rw - {kind.format(n)}\n" for n in names),
        )
    for path, text in files.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_limits_of_a_cgroup_of_version_2_are_respected(proc: FakeProc, tmp_path: Path) -> None:
    """The tightest limit stands on the group above ours; then use and pressure are that group's."""
    node_files(proc, 0, 0, 0, 0)
    files = {
        "a/memory.max": "512000\n", "a/memory.current": "300000\n", "a/memory.stat": "anon 5\ninactive_file 100000\n",
        "a/memory.pressure": "some total=0\n", "a/cpu.pressure": "some total=0\n", "a/io.pressure": "some total=0\n",
        "a/cpu.max": "50000 100000\n", "a/cpu.stat": "usage_usec 0\nuser_usec 1\n", "a/b/memory.max": "max\n",
        "a/b/cpu.max": "max 100000\n", "memory.max": "900000\n",
    }  # fmt: skip
    cgroup_files(proc, tmp_path, 2, files)
    node = Node(str(proc.root), str(tmp_path / "sys"))
    node.sample(0.0)
    node_files(proc, 999, 0, 0, 999_999)
    cgroup_files(
        proc,
        tmp_path,
        2,
        {"a/cpu.stat": "usage_usec 250000\n", "a/io.pressure": "some total=100000\n"},
    )
    found = node.sample(1.0)
    node.close()
    assert (found["memory_bytes"], found["memory_total_bytes"]) == (200_000, 512_000)
    assert (found["cpu_percent"], found["cores"]) == (25.0, 0.5)
    assert found["psi"] == {"cpu": 0.0, "io": 10.0, "memory": 0.0}


def test_limits_of_a_cgroup_of_version_1_are_respected(proc: FakeProc, tmp_path: Path) -> None:
    node_files(proc, 0, 0, 0, 0)
    files = {
        "memory/a/b/memory.limit_in_bytes": "512000\n", "memory/a/b/memory.usage_in_bytes": "300000\n",
        "memory/a/b/memory.stat": "inactive_file 1\ntotal_inactive_file 100000\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "cpu/a/b/cpu.cfs_quota_us": "100000\n", "cpu/a/b/cpu.cfs_period_us": "100000\n",
        "cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n", "cpuacct/a/b/cpuacct.usage": "1\n",
    }  # fmt: skip
    cgroup_files(proc, tmp_path, 1, files)
    node = Node(str(proc.root), str(tmp_path / "sys"))
    node.sample(0.0)
    cgroup_files(proc, tmp_path, 1, {"cpuacct/a/b/cpuacct.usage": "500000001\n"})
    found = node.sample(1.0)
    node.close()
    assert (found["memory_bytes"], found["memory_total_bytes"]) == (200_000, 512_000)
    assert (found["cpu_percent"], found["cores"]) == (50.0, 1.0)


@pytest.mark.parametrize(
    ("limit", "used"),
    [("max", "5"), ("garbage", "5"), ("", ""), ("512000", "garbage"), ("-1", "5"), ("0", "0")],
)
def test_a_limit_that_means_nothing_leaves_the_node_as_it_is(
    proc: FakeProc, tmp_path: Path, limit: str, used: str
) -> None:
    node_files(proc, 0, 0, 0, 0)
    files = {
        "a/b/memory.max": limit,
        "a/b/memory.current": used,
        "a/b/cpu.max": limit,
        "a/b/memory.stat": "x",
    }
    cgroup_files(proc, tmp_path, 2, files)
    node = Node(str(proc.root), str(tmp_path / "sys"))
    found = node.sample(1.0)
    node.close()
    assert (found["memory_bytes"], found["memory_total_bytes"]) == (600 * 1024, 1000 * 1024)

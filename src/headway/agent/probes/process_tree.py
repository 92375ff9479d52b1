"""The processes of a task: from each rank's first process down, and what each tree uses. Called by
`sampler`.

A process belongs to the nearest process above it that is known as a rank's, and stays there when
its parent ends. New ones are found as children of the main threads, and with a look at all new
numbers in /proc every few seconds, which also sees the children of other threads and works where
the kernel does not list children.
"""

from __future__ import annotations

import os
import time

from headway.agent.probes.launched_rank import Launched, LaunchedRanks
from headway.agent.probes.proc_file import Budget, Kept
from headway.agent.probes.process_stat import TICKS_S, Member
from headway.model.limits import USAGE_LINES_MAX, USAGE_PROCESSES_MAX, USAGE_PSS_RSS_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headway.model.json_types import JsonObject

    Line = JsonObject

SCAN_S = 5.0
SCAN_ALL_S = 60.0  # then numbers that were seen before are looked at again
SCAN_COST_MAX = 0.002  # share of a core that looking at all numbers may take
BORN_SLACK_S = 0.5  # a process that started so shortly before a sample counts as started after it
FDS_S = 10.0
PSS_S = 60.0
PSS_FIRST_S = 2.0  # a process that ends at once is not worth it
PSS_COST_MAX = 0.0002  # share of a core, but for first looks ten times as much
_SUMMED = (
    "cpu_percent",
    "rss_bytes",
    "pss_bytes",
    "uss_bytes",
    "threads",
    "fds",
    "read_bps",
    "write_bps",
)


def boot_ticks() -> float:
    """Now, in the unit of start times."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock) * TICKS_S


class Forest:
    def __init__(
        self,
        proc: str,
        budget: Budget,
        ticks: "Callable[[], float]" = boot_ticks,
        cores: int | None = None,
    ) -> None:
        self.members: dict[int, Member] = {}
        self._proc, self._budget, self._ticks = proc, budget, ticks
        self._percent_max = 100.0 * (cores or os.cpu_count() or 1)
        self._roots: dict[int, tuple[int, int | None]] = {}  # pid -> rank, start
        self._loadavg = Kept(f"{proc}/loadavg", budget)
        self._last_pid = b""
        self._at_s: float | None = None
        self._at_ticks: float | None = None
        self._seen: set[str] = set()
        self._scan_s = self._scan_all_s = self._pss_s = self._pss_first_s = float("-inf")
        self._launched: LaunchedRanks | None = None
        # (pid, start, rank) of processes that a launcher in the task has started as ranks
        self.found_ranks: list[tuple[int, int, Launched]] = []
        self._unseen = True  # something was started since the last look at all numbers
        self._without_children = False
        self._before: dict[int, int] = {}  # rank -> ticks that its tree had used at the last sample
        self._percent: dict[int, float] = {}
        # rank -> what it was told of, and as what
        self._trees: dict[int, tuple[list[Line], float | None, Line]] = {}

    def follow(self, rank: int, pid: int, start: int | None) -> None:
        """A rank's first process. It may be below another rank's, as those of torchrun are."""
        if pid <= 1 or self._roots.get(pid) == (rank, start):
            return
        self._roots[pid] = (rank, start)
        member = self.members.get(pid)
        if member is not None and start in (None, member.start):
            member.belong(rank)

    def look_for_launched(self) -> None:
        """Ranks that a launcher in the task starts are ranks of their own."""
        self._launched = LaunchedRanks(self._proc)

    # -- a sample

    def sample(self, now_s: float) -> None:
        span_s = None if self._at_s is None else now_s - self._at_s
        self._before = {}
        self._look_at_known()
        self._add_roots()
        self._find(now_s)
        self._find_launched()
        running = [m for m in self.members.values() if m.is_running]
        for member in running:
            member.measure(span_s)
        self._sum_cpu(span_s)
        self._look_closer(running, now_s)
        self._at_s, self._at_ticks = now_s, self._ticks() - BORN_SLACK_S * TICKS_S

    def _look_at_known(self) -> None:
        gone = [m for m in self.members.values() if not m.look(self._at_ticks)]
        for member in gone:
            del self.members[member.pid]
            member.close()
        for member in gone:  # what it used comes back as its parent's, if that waited for it
            above = self.members.get(member.ppid)
            if above is not None:
                self._before[above.rank] = self._before.get(above.rank, 0) + member.family_ticks

    def _add_roots(self) -> None:
        for pid, (rank, start) in list(self._roots.items()):
            if pid in self.members:
                continue
            member = self._add(pid, rank)
            if member is not None and start not in (None, member.start):
                self._forget(member)
                member = None
            if member is None:
                del self._roots[pid]  # gone, or another process has its number

    def _add(self, pid: int, rank: int) -> Member | None:
        if len(self.members) >= USAGE_PROCESSES_MAX or pid in self.members:
            return None
        rank = self._roots.get(pid, (rank, None))[0]
        member = Member(self._proc, pid, rank, self._budget)
        if not member.look(self._at_ticks) or member.start < 0:
            member.close()
            return None
        self.members[pid] = member
        if self._launched is not None:
            self._launched.add(pid)
        return member

    def _forget(self, member: Member) -> None:
        self.members.pop(member.pid, None)
        member.close()

    # -- finding

    def _find_launched(self) -> None:
        if self._launched is None:
            return
        parent_of = {pid: member.ppid for pid, member in self.members.items()}
        for pid, told in self._launched.look(parent_of):
            start = self.members[pid].start
            self.follow(told.rank, pid, start)
            self._hand_down(pid, told.rank)
            self.found_ranks.append((pid, start, told))

    def _hand_down(self, top: int, rank: int) -> None:
        """What a rank had started before it was known as one belongs to it."""
        for member in self.members.values():
            if member.ppid == top and member.pid not in self._roots and member.rank != rank:
                member.belong(rank)
                self._hand_down(member.pid, rank)

    def _find(self, now_s: float) -> None:
        if not self.members:
            return
        last_pid = self._loadavg.read(128).rpartition(b" ")[2]
        # no process or thread was started on this machine
        quiet = bool(last_pid) and last_pid == self._last_pid
        self._last_pid = last_pid
        if not quiet:
            self._unseen = True
            self._ask_parents()
        if self._unseen and now_s >= self._scan_s + (1.0 if self._without_children else SCAN_S):
            self._unseen = False
            self._scan(now_s)

    def _ask_parents(self) -> None:
        waiting = list(self.members.values())
        while waiting:
            parent = waiting.pop()
            found = parent.children() if parent.is_running else []
            if found is None:
                self._without_children = self._without_children or os.path.exists(
                    f"{parent.folder}/stat"
                )
                continue
            for pid in found:
                child = self._add(pid, parent.rank)
                if child is not None:
                    waiting.append(child)

    def _scan(self, now_s: float) -> None:
        begun_s = time.thread_time()
        if now_s >= self._scan_all_s + SCAN_ALL_S:
            self._scan_all_s = now_s
            self._seen.clear()
        try:
            names = {name for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            names = set()
        parents = {
            pid: parent
            for name in names - self._seen
            if (parent := self._parent_of(pid := int(name)))
        }
        self._seen = names
        grew = True
        while grew:  # a child may have a smaller number than its parent
            grew = False
            for pid, parent in list(parents.items()):
                above = self.members.get(parent)
                if above is not None:
                    del parents[pid]
                    grew = self._add(pid, above.rank) is not None or grew
        self._scan_s = now_s + (time.thread_time() - begun_s) / SCAN_COST_MAX

    def _parent_of(self, pid: int) -> int | None:
        if pid in self.members:
            return None
        kept = Kept(f"{self._proc}/{pid}/stat", Budget(0))
        data = kept.read(512)
        fields = data[data.rfind(b")") + 2 :].split(None, 2)
        return int(fields[1]) if len(fields) > 2 and fields[1].isdigit() else None

    # -- sums

    def _sum_cpu(self, span_s: float | None) -> None:
        """CPU of each tree. Children that lived between two samples show in the time that their
        parent waited for; those that nobody in the tree waited for do not. So it is the larger of
        the two ways to count.
        """
        own: dict[int, int] = {}  # of ranks of which something is known
        family: dict[int, int] = {}
        for m in self.members.values():
            if m.used_ticks is not None:
                own[m.rank] = own.get(m.rank, 0) + m.used_ticks
            if m.family_ticks != m.family_before:
                family[m.rank] = family.get(m.rank, 0) + m.family_ticks - m.family_before
        self._percent = {}
        if not span_s:
            return
        for rank, ticks in own.items():
            more = family.get(rank, 0) - self._before.get(rank, 0)
            self._percent[rank] = round(
                min(100 * max(ticks, more) / TICKS_S / span_s, self._percent_max), 1
            )

    def _look_closer(self, running: "Iterable[Member]", now_s: float) -> None:
        """What is dear: open files of those that are due, PSS of one process at a time."""
        chosen: Member | None = None
        for member in running:
            if now_s >= member.fds_due_s:
                member.fds_due_s = now_s + FDS_S
                member.count_fds()
            if member.pss_due_s == 0.0:
                member.pss_due_s = now_s + PSS_FIRST_S
            small = (member.rss_bytes or 0) <= USAGE_PSS_RSS_BYTES_MAX
            if (
                small
                and now_s >= member.pss_due_s
                and (chosen is None or member.pss_due_s < chosen.pss_due_s)
            ):
                chosen = member
        if chosen is None or now_s < (
            self._pss_first_s if chosen.pss_bytes is None else self._pss_s
        ):
            return
        begun_s = time.thread_time()
        chosen.weigh()
        chosen.pss_due_s = now_s + PSS_S
        pause_s = (time.thread_time() - begun_s) / PSS_COST_MAX
        self._pss_s, self._pss_first_s = now_s + pause_s, now_s + pause_s / 10

    def lines(self) -> "list[Line]":
        """A line for each rank (without pid), then one for each process, those of the ranks
        themselves first.
        """
        running = [m for m in self.members.values() if m.is_running]
        told = running
        if len(running) > USAGE_LINES_MAX:
            told = sorted(running, key=lambda m: (m.pid not in self._roots, -(m.rss_bytes or 0)))[
                :USAGE_LINES_MAX
            ]
        trees: dict[int, list[Line]] = {}
        for member in running:
            trees.setdefault(member.rank, []).append(member.line())
        before, self._trees = self._trees, {}
        for rank, tree in sorted(trees.items()):
            percent, known = self._percent.get(rank), before.get(rank)
            same = known is not None and known[0] == tree and known[1] == percent
            self._trees[rank] = (
                known if known and same else (tree, percent, self._tree_line(rank, tree))
            )
        return [known[2] for known in self._trees.values()] + [
            m.line() for m in sorted(told, key=lambda m: (m.rank, m.pid))
        ]

    def _tree_line(self, rank: int, tree: "list[Line]") -> "Line":
        line: Line = {"rank": rank, "pid": None, "ppid": None, "name": None, "processes": len(tree)}
        if len(tree) == 1:
            for name in _SUMMED:
                line[name] = tree[0][name]
            line["cpu_percent"] = self._percent.get(rank)
            return line

        for name in _SUMMED:
            known = [member[name] for member in tree if member[name] is not None]
            # shared pages make a sum over half of the processes worthless; of the others a part is
            # better than nothing
            needs_all = name in ("pss_bytes", "uss_bytes")
            if needs_all and len(known) < len(tree):
                known = []
            line[name] = sum(known) if known else None
        line["cpu_percent"] = self._percent.get(rank)
        line["memory_bytes"] = self._memory(rank)
        return line

    def _memory(self, rank: int) -> int | None:
        """What the processes of a rank use together. Forked ones share pages, which a sum of RSS
        counts once for each: every process counts with the share that PSS gave it last, one that
        was not weighed yet with the mean of the others, and before any was, only the largest does.
        """
        tree = [m for m in self.members.values() if m.is_running and m.rank == rank]
        sizes = [(m.rss_bytes, m.share) for m in tree if m.rss_bytes is not None]
        if not sizes:
            return None
        shares = [share for _, share in sizes if share is not None]
        if not shares:
            return max(size for size, _ in sizes)

        mean = sum(shares) / len(shares)
        total = 0.0
        for size, share in sizes:
            total += size * (mean if share is None else share)
        return round(total)

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        self.members.clear()
        self._loadavg.close()

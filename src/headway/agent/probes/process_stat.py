"""One process of a job: what /proc says about it, read with little effort. Called by `forest`.

Known by pid and start time: a number that was given anew is not this process (F29). What is dear
(PSS, open files) is read now and then, and its last value stands meanwhile. So does all of a
process that has not moved: where its `stat` is the same to the byte it got no page and no tick of
CPU, and bytes of a disk that came with less show with the next. Its line is then the very object of
the sample before, by which those who fold it and write it know that it is the same.
"""

from __future__ import annotations

import os

from headway.agent.probes.proc_file import Budget, Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

TICKS_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_BYTES = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
NAME_CHARS_MAX = 64
_ENDED = (b"Z", b"X", b"x")  # still counts for what it has used, but uses nothing any more
_FIELDS = 20  # of /proc/<pid>/stat behind the name, as far as they are needed


class Member:
    def __init__(self, proc: str, pid: int, rank: int, budget: Budget) -> None:
        self.pid, self.rank, self.folder = pid, rank, f"{proc}/{pid}"
        self.start = self.ppid = self.threads = -1
        self.name, self.is_running = "", False
        # of itself; of itself and the children that it has waited for
        self.own_ticks = self.family_ticks = 0
        self.used_ticks: int | None = None  # since the last sample
        self.family_before = 0
        self.rss_bytes: int | None = None
        self.pss_bytes: int | None = None
        self.uss_bytes: int | None = None
        # PSS over RSS, when it was weighed: how much of its memory is its own share
        self.share: float | None = None
        self.fds: int | None = None
        self.read_bps: int | None = None
        self.write_bps: int | None = None
        self.cpu_percent: float | None = None
        self.pss_due_s = self.fds_due_s = 0.0
        self._fresh, self._raw_name = True, b""
        self._seen, self._moved = b"", True
        self._disk: tuple[int, int] | None = None  # bytes read and written so far
        self._line: JsonObject | None = None  # as it was told, for as long as that is true
        self._stat = Kept(f"{self.folder}/stat", budget)
        self._statm = Kept(f"{self.folder}/statm", budget)
        self._io = Kept(f"{self.folder}/io", budget)
        self._children = Kept(f"{self.folder}/task/{pid}/children", budget)

    # -- each sample

    def look(self, born_ticks: float | None) -> bool:
        """Read who and how it is. False when it is gone, or not the process that it was.

        A process that started at `born_ticks` or later was not there at the last sample.
        """
        data = self._stat.read(1024)
        if not data:
            return not self._stat.is_no_process(data)  # short of descriptors: what was known stands
        if data == self._seen:
            if self._moved:
                self._moved, self._line = False, None
                self.used_ticks, self.family_before = 0, self.family_ticks
            return True
        self._moved, self._line = True, None
        begin, close = data.find(b"("), data.rfind(b")")
        fields = data[close + 2 :].split(None, _FIELDS)
        if not 0 < begin < close or len(fields) < _FIELDS or not fields[19].isdigit():
            return False
        start = int(fields[19])
        if self.start not in (-1, start):
            return False
        self.is_running = fields[0] not in _ENDED
        self.ppid, self.threads = int(fields[1]), int(fields[17])
        own = int(fields[11]) + int(fields[12])
        family = own + int(fields[13]) + int(fields[14])
        self._call(data[begin + 1 : close])
        if self._fresh:
            self._begin(start, own, family, born_ticks)
        else:
            self.used_ticks, self.family_before = max(0, own - self.own_ticks), self.family_ticks
        self.own_ticks, self.family_ticks, self._seen = own, family, data
        return True

    def _call(self, name: bytes) -> None:
        """It gets another name when it runs another program."""
        if name == self._raw_name:
            return
        self._raw_name = name
        text = name.decode("utf-8", "replace")[:NAME_CHARS_MAX]
        self.name = "".join(c if c.isprintable() else "?" for c in text)

    def _begin(self, start: int, own: int, family: int, born_ticks: float | None) -> None:
        self._fresh, self.start = False, start
        new = born_ticks is not None and start >= born_ticks
        self.used_ticks, self.family_before = (own, 0) if new else (None, family)

    def measure(self, span_s: float | None) -> None:
        """Memory, CPU and disk, over the time since the last sample."""
        if self._line is not None:
            return
        if self.used_ticks is not None and span_s:
            self.cpu_percent = round(100 * self.used_ticks / TICKS_S / span_s, 1)
        before = self._disk
        if self._moved:
            self._read_memory()
            self._read_disk()
        self.read_bps = None
        self.write_bps = None
        if before is not None and self._disk is not None and span_s:
            self.read_bps = _bps(before[0], self._disk[0], span_s)
            self.write_bps = _bps(before[1], self._disk[1], span_s)

    def _read_memory(self) -> None:
        pages = self._statm.read(128).split(None, 2)
        self.rss_bytes = int(pages[1]) * PAGE_BYTES if len(pages) > 2 else None

    def _read_disk(self) -> None:
        """`… read_bytes: N write_bytes: N …`: the fifth and sixth pair."""
        words = self._io.read(512).split(None, 12)
        if len(words) > 11 and words[8] == b"read_bytes:":
            self._disk = (int(words[9]), int(words[11]))
        else:
            self._disk = None

    def children(self) -> list[int] | None:
        """Those of its main thread. None where the kernel does not say."""
        data = self._children.read_all()
        if not data and self._children.gone:
            return None
        return [int(word) for word in data.split()]

    def belong(self, rank: int) -> None:
        self.rank, self._line = rank, None

    # -- now and then

    def count_fds(self) -> None:
        try:
            count = os.stat(f"{self.folder}/fd").st_size  # newer kernels count here
            fds: int | None = count or len(os.listdir(f"{self.folder}/fd"))
        except OSError:
            fds = None
        if fds != self.fds:
            self.fds, self._line = fds, None

    def weigh(self) -> None:
        """Shared memory divided among its users (PSS), and what is its own alone (USS): the kernel
        walks all of it.
        """
        try:
            with open(f"{self.folder}/smaps_rollup", "rb", buffering=0) as file:
                rows = file.read(4096).splitlines()[1:]
        except OSError:  # an old kernel, or not ours to see
            rows = []
        sizes = {row.partition(b":")[0]: row.split() for row in rows}
        clean, dirty = _kib(sizes, b"Private_Clean"), _kib(sizes, b"Private_Dirty")
        weights = _kib(sizes, b"Pss"), None if clean is None or dirty is None else clean + dirty
        if weights != (self.pss_bytes, self.uss_bytes):
            (self.pss_bytes, self.uss_bytes), self._line = weights, None
        if self.pss_bytes is not None and self.rss_bytes:
            self.share = min(self.pss_bytes / self.rss_bytes, 1.0)

    # -- telling

    def line(self) -> "JsonObject":
        if self._line is None:
            self._line = self._tell()
        return self._line

    def _tell(self) -> "JsonObject":
        return {
            "rank": self.rank, "pid": self.pid, "ppid": self.ppid, "name": self.name, "cpu_percent": self.cpu_percent,
            "rss_bytes": self.rss_bytes, "pss_bytes": self.pss_bytes, "uss_bytes": self.uss_bytes,
            "threads": self.threads, "fds": self.fds, "read_bps": self.read_bps,
            "write_bps": self.write_bps,
        }  # fmt: skip

    def close(self) -> None:
        for kept in (self._stat, self._statm, self._io, self._children):
            kept.close()


def _kib(sizes: dict[bytes, list[bytes]], name: bytes) -> int | None:
    row = sizes.get(name, [])
    return int(row[1]) * 1024 if len(row) > 1 and row[1].isdigit() else None


def _bps(before: int, now: int, span_s: float) -> int | None:
    return None if now < before else round((now - before) / span_s)

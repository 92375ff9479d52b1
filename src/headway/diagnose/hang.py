"""Whether a silent job hangs, and who waits for whom. Pure; called by the look at what runs.

A job is hung when it has been silent for long enough and none of its ranks moves: in several samples
one second apart nobody comes to another function of the person's own code, uses the CPU, reads or
writes. What looks like waiting and is none: a compile, an evaluation or a checkpoint (the CPU or a
disk moves). What looks like work and is none: a loop that polls (it uses little), a collective that
spins (its stack does not move), a stopped process (it does not answer).
"""

from collections.abc import Mapping, Sequence

import msgspec

from headway.diagnose import stacks
from headway.diagnose.stacks import Group, Merged, missing_words, place_words
from headway.model.json_types import JsonMapping
from headway.model.limits import (
    HANG_CPU_SHARE_MAX,
    HANG_DEVICE_FACTOR,
    HANG_FAULTS_MAX,
    HANG_INTERVALS,
    HANG_IO_BPS_MAX,
    HANG_PAUSES,
    HANG_SPIN_FACTOR,
    HANG_START_FACTOR,
)
from headway.model.rank_set import ranks_text

Facts = Mapping[str, JsonMapping]
CAUSES = ("hang", "collective_stall", "collective_divergence", "dataloader_hang")
_SPINS = ("collective", "device")  # waits that may use a whole core


class Pause(msgspec.Struct):
    """How long a job has been silent, against what it usually does."""

    silent_s: float
    least_s: float  # the shortest silence that counts: the setting hang.after_s
    interval_s: float | None = None  # between two steps or lines; None: it never made two
    longest_s: float = 0.0  # the longest pause after which it went on
    stepped: bool = False  # it has logged a step, or moved a progress tracker
    last_sign_ns: int | None = None
    last_step_ns: int | None = None

    def limit_s(self) -> float:
        """The silence from which on it may be hung."""
        if self.interval_s is None:
            return self.least_s * HANG_START_FACTOR
        return max(self.least_s, HANG_INTERVALS * self.interval_s, HANG_PAUSES * self.longest_s)


class Rank(msgspec.Struct):
    """One rank in one sample: where it stands, and what its processes have used so far."""

    rank: int
    kind: str | None
    path: tuple[tuple[str, str], ...]  # the person's own functions, oldest last
    whole: tuple[tuple[str, str], ...]  # all functions
    silent: bool
    seen: bool  # it has a stack
    cpu_s: float
    io_bytes: int
    faults: int


class Verdict(msgspec.Struct):
    """`moving`: why it is no hang. Otherwise the finding."""

    moving: str | None = None
    cause: str = "hang"
    cls: str = "system"
    confidence: float = 0.0
    rank: int | None = None
    text: str = ""
    evidence: list[str] = []
    merged: Merged | None = None


def usual_interval(gaps: Sequence[float]) -> float | None:
    """Of the gaps between signs of life: one that nine of ten do not pass, so that bursts of lines
    do not make it look short.
    """
    if len(gaps) < 2:
        return None
    ordered = sorted(gaps)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]


def ranks_of(facts: Facts) -> dict[int, Rank]:
    """What one sample says of each rank; the use of helper processes counts for their rank."""
    found: dict[int, Rank] = {}
    used: dict[int, list[float]] = {}
    for fact in facts.values():
        frames = fact.get("frames") or ()
        source = fact.get("source") or {}
        for process in fact["processes"]:
            rank = int(process["rank"])
            if not process.get("launcher"):
                total = used.setdefault(rank, [0.0, 0.0, 0.0])
                for place, name in enumerate(("cpu_s", "io_bytes", "faults")):
                    total[place] += process.get(name) or 0
            if not process.get("lead"):
                continue
            threads = process.get("threads") or ()
            numbers = threads[0]["frames"] if threads else []
            stack = [(str(f[0]), int(f[1]), str(f[2])) for f in (frames[n] for n in numbers)]
            text = source.get(str(numbers[0])) if numbers else None
            wait = stacks.wait_of(stack, text)
            stuck = process.get("state") in stacks.STUCK_STATES
            found[rank] = Rank(
                rank=rank,
                kind=None if wait is None else wait[0],
                path=tuple((f[0], f[2]) for f in stack if not stacks.is_library(f[0])),
                whole=tuple((f[0], f[2]) for f in stack),
                silent=not threads and (bool(process.get("silent")) or stuck),
                seen=bool(threads),
                cpu_s=0.0,
                io_bytes=0,
                faults=0,
            )
    for rank, one in found.items():
        cpu_s, io_bytes, faults = used[rank]
        one.cpu_s, one.io_bytes, one.faults = cpu_s, int(io_bytes), int(faults)
    return found


def judge(samples: Sequence[Facts], pause: Pause) -> Verdict:
    """`samples`: at least two, a second or so apart, the oldest first."""
    times = [_time_s(facts) for facts in samples]
    looks = [ranks_of(facts) for facts in samples]
    span_s = max(0.1, times[-1] - times[0])
    last = looks[-1]
    if not last:
        return Verdict(moving="none of its agents answered")
    merged = stacks.merge(samples[-1])
    busy: list[int] = []
    for rank in last:
        history = [look[rank] for look in looks if rank in look]
        words, spins = _moves(history, span_s, pause)
        if spins:
            busy.append(rank)
        elif words:
            return Verdict(moving=f"rank {rank} {words}", merged=merged)
    if busy and not _may_spin(busy, last, pause):
        return Verdict(moving=f"{ranks_text(busy)} computes", merged=merged)
    if pause.interval_s is None and _only_sleeps(last):
        return Verdict(moving="it sleeps, and has not begun to make steps", merged=merged)
    cpu = sum(last[r].cpu_s - looks[0][r].cpu_s for r in last if r in looks[0]) / span_s
    return _verdict(merged, samples[-1], pause, cpu, len(samples), busy)


def _moves(history: Sequence[Rank], span_s: float, pause: Pause) -> tuple[str | None, bool]:
    """(what moves, whether it is only the CPU while the stack stays as it is)."""
    if len(history) < 2:
        return "has just begun", False
    first, last = history[0], history[-1]
    if last.silent:
        return None, False
    if (last.io_bytes - first.io_bytes) / span_s > HANG_IO_BPS_MAX:
        return f"reads or writes {(last.io_bytes - first.io_bytes) / span_s / 1e3:.0f} kB/s", False
    if (last.faults - first.faults) / span_s > HANG_FAULTS_MAX:
        return "reads pages from disk", False
    if last.cpu_s < first.cpu_s:
        return "has lost a process", False
    if len({one.path for one in history if one.seen}) > 1:
        return "comes to other functions", False
    share = (last.cpu_s - first.cpu_s) / span_s
    if share <= HANG_CPU_SHARE_MAX:
        return None, False
    unchanged = last.seen and len({one.whole for one in history}) == 1
    if unchanged and last.kind == "collective":
        return None, False
    if unchanged and last.kind == "device":
        patient = pause.silent_s >= HANG_DEVICE_FACTOR * pause.limit_s()
        return (None if patient else "waits for its GPU"), False
    if unchanged:
        return None, True
    return f"uses {100 * share:.0f} % of a core", False


def _may_spin(busy: Sequence[int], ranks: Mapping[int, Rank], pause: Pause) -> bool:
    """A rank that computes at one place for very long, while all others wait for it in a
    collective, is taken for a loop without end; alone it is taken for work.
    """
    others = [one for rank, one in ranks.items() if rank not in busy]
    waiting = [one for one in others if one.kind == "collective"]
    long = pause.silent_s >= HANG_SPIN_FACTOR * pause.limit_s()
    return long and pause.stepped and len(waiting) == len(others) and len(waiting) >= len(busy)


def _only_sleeps(ranks: Mapping[int, Rank]) -> bool:
    return all(one.kind == "sleep" or not (one.seen or one.silent) for one in ranks.values())


# -- the finding


def _verdict(
    merged: Merged, facts: Facts, pause: Pause, cpu: float, samples: int, busy: Sequence[int]
) -> Verdict:
    cause, rank, lead = _name_cause(merged)
    text = lead or merged.verdict or "no rank moves"
    helpers = _helper_words(merged, merged.odd or merged.ranks)
    if helpers:
        text = f"{text}; {helpers}"
    where = f"stacks unchanged in {samples} samples"
    evidence = [f"{where}; CPU {100 * max(0.0, cpu):.0f} % of one core, nothing read or written"]
    if busy:
        evidence = [f"{where}; {ranks_text(busy)} computes there without coming any further"]
    nodes = {task: fact.get("node") for task, fact in facts.items()}
    evidence += [_group_line(group, nodes) for group in merged.groups[:4]]
    evidence += [f"rank {one.rank}  {missing_words(one)}" for one in merged.missing[:4]]
    evidence += _blocked_lines(facts)
    cls = {"collective_divergence": "user", "dataloader_hang": "user"}.get(cause, "system")
    confidence = 0.9
    if rank is None and len(merged.ranks) > 1:
        confidence = 0.7
    if busy or pause.interval_s is None:
        confidence = 0.6
    return Verdict(
        cause=cause,
        cls=cls,
        confidence=confidence,
        rank=rank,
        text=text,
        evidence=evidence,
        merged=merged,
    )


def _name_cause(merged: Merged) -> tuple[str, int | None, str | None]:
    """(cause, the odd rank, words where those of the merged stacks do not fit)."""
    odd_groups = [g for g in merged.groups if set(merged.odd).issuperset(g.ranks)]
    crowd = [g for g in merged.groups if not set(merged.odd).issuperset(g.ranks)]
    only = merged.ranks[0] if len(merged.ranks) == 1 else None
    rank = merged.odd[0] if merged.odd else only
    collective = [g for g in merged.groups if g.kind == "collective"]
    if any(g.kind == "data" for g in odd_groups) or (
        not odd_groups and crowd and all(g.kind == "data" for g in crowd)
    ):
        return "dataloader_hang", rank, None
    if not collective or len(merged.ranks) == 1:
        return "hang", rank, None
    places = {place_words(group) for group in collective}
    elsewhere = any(group.kind != "collective" for group in odd_groups) or merged.missing
    if len(places) > 1 and not elsewhere:
        return "collective_divergence", rank, None
    if merged.odd:
        return "collective_stall", rank, None
    if all(g.kind == "collective" for g in merged.groups):
        place = place_words(merged.groups[0])
        text = f"all {len(merged.ranks)} ranks wait in {place}, and none is missing: the network?"
        return "collective_stall", None, text
    return "hang", rank, None


def _helper_words(merged: Merged, ranks: Sequence[int]) -> str:
    """Where the helper processes stand that a rank may wait for."""
    wanted = set(ranks)
    for one in merged.stuck_helpers:
        if one.rank in wanted:
            return f"its child process {one.name or ''} {missing_words(one)}"
    found = [
        group
        for group in merged.others
        if group.thread.startswith("child")
        and group.helper not in ("resource tracker", "fork server")
        and wanted.intersection(group.ranks)
    ]
    waiting = {g.kind for g in merged.groups if wanted.intersection(g.ranks)}
    if not found or not waiting & {"data", "join", "queue", "read"}:
        return ""
    # an idle worker waits for work in its own loop: those that are in the person's code come first
    found.sort(key=lambda g: (not _in_own_code(g), g.helper is None))
    group = found[0]
    name = group.helper or "child process"
    return f"its {name} (pid {group.pids[0]}) is in {place_words(group)}"


def _in_own_code(group: Group) -> bool:
    """Whether a helper process runs the person's code; a forked one has its parent's below."""
    for frame in group.frames:
        if not stacks.is_library(frame.file):
            return True
        if frame.function in ("_bootstrap", "_worker_loop"):
            return False
    return False


def _group_line(group: Group, nodes: JsonMapping) -> str:
    names = sorted({str(nodes.get(task)) for task in group.tasks if nodes.get(task)})
    where = f"  {', '.join(names[:3])}" if names else ""
    own = [f for f in group.frames if not stacks.is_library(f.file)][:3]
    path = " ← ".join(f"{stacks.short_path(f.file)}:{f.line}" for f in own)
    what = group.waits or (group.frames[0].function if group.frames else "?")
    return f"{ranks_text(group.ranks)}{where}  {what}  {path}"


def _blocked_lines(facts: Facts) -> list[str]:
    """Threads in uninterruptible I/O."""
    lines: list[str] = []
    for fact in facts.values():
        for process in fact["processes"]:
            for one in process.get("blocked") or ():
                where = f" in {one['wchan']}" if one.get("wchan") else ""
                lines.append(
                    f"rank {process['rank']}  thread {one['thread']} waits for a disk{where}"
                )
    return lines[:4]


def _time_s(facts: Facts) -> float:
    times = [float(fact.get("time_ns") or 0) / 1e9 for fact in facts.values()]
    return min(times) if times else 0.0

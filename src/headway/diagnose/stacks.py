"""Merges the stacks of all ranks: equal ones once, who stands elsewhere, and what each waits in.
Pure; called by the API and by the look at what runs.

Input are the `stacks` facts of the tasks, as agents write them. Stacks are equal when they go
through the same functions and stand at the same lines of the person's own code; lines inside
libraries do not count, so that a loop which polls is one place.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from headway.diagnose.wait_table import FRAMES, HELPERS, KINDS, OWN_COLLECTIVES, SOURCES
from headway.model.json_types import JsonMapping
from headway.model.rank_set import rank_set, ranks_text

Fact = JsonMapping
RawFrame = tuple[str, int, str]  # file, line, function

_LIBRARY = re.compile(r"^<frozen|/lib(?:64)?/python\d[^/]*/|/(?:site|dist)-packages/|\.so(?:\.|$)")
_HEADWAY = re.compile(r"/headway/client/")
STUCK_STATES = ("stopped", "stopped by a tracer", "in uninterruptible I/O")
_OWN_COLLECTIVE = re.compile(OWN_COLLECTIVES)
_OWN_FRAMES = 3  # of the person's own code that may be such a function
_LOOK_FRAMES = 30  # of the newest, for what is waited in


class Frame(msgspec.Struct, frozen=True):
    file: str
    line: int
    function: str


class Group(msgspec.Struct):
    """Ranks with the same stack."""

    ranks: list[int]
    thread: str  # main, the name of another thread, or `child PID` for a helper process
    frames: list[Frame]  # newest first
    waits: str | None = None  # what it waits in: `queue.get`
    kind: str | None = None  # of the table of waits
    at: str | None = None  # the newest line of the person's own code: `loader.py:88`
    source: str | None = None  # the text of that line, where it is the newest
    tasks: list[str] = []
    helper: str | None = None  # `DataLoader worker`
    pids: list[int] = []


class Missing(msgspec.Struct):
    """A rank without a stack, and what the kernel says of it."""

    rank: int
    pid: int
    why: str
    name: str | None = None
    state: str | None = None
    wchan: str | None = None
    task: str | None = None
    silent: bool = False  # it was asked; others cannot be, and that says nothing about them


class Merged(msgspec.Struct):
    """All ranks of one moment."""

    groups: list[Group]  # of main threads: the odd ones first, then by size
    others: list[Group]  # of other threads and helper processes
    odd: list[int]
    missing: list[Missing]
    stuck_helpers: list[Missing] = []  # helper processes that were asked and did not answer
    verdict: str | None = None  # who waits for whom, in words
    split: bool = False  # nobody is a majority
    ranks: list[int] = []
    took_s: float = 0.0
    native: bool = False
    how: list[str] = []


def is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None or _HEADWAY.search(file) is not None


def short_path(file: str) -> str:
    """The last part, with its folder where the name alone says little."""
    parts = file.rsplit("/", 2)
    if parts[-1] in ("__init__.py", "__main__.py", "main.py") and len(parts) > 1:
        return "/".join(parts[-2:])
    return parts[-1]


# -- what a stack waits in


@lru_cache(maxsize=16_384)
def _frame_wait(file: str, function: str) -> tuple[str, str] | None:
    for kind, word, file_pattern, function_pattern in _COMPILED:
        if function_pattern.fullmatch(function) and file_pattern.search(file):
            return kind, word.replace("{}", function)
    return None


_COMPILED = [
    (kind, word, re.compile(rf"(?:^|/)(?:{file})$"), re.compile(function))
    for kind, word, file, function in FRAMES
]
_COMPILED_SOURCES = [(kind, word, re.compile(pattern)) for kind, word, pattern in SOURCES]


@lru_cache(maxsize=4_096)
def source_wait(text: str) -> tuple[str, str] | None:
    """What a line of source waits in, where the call itself is C."""
    for kind, word, pattern in _COMPILED_SOURCES:
        match = pattern.search(text)
        if match is not None:
            names = [group for group in match.groups() if group]
            return kind, word.replace("{}", names[0] if names else "")
    return None


def wait_of(frames: Sequence[RawFrame], source: str | None) -> tuple[str, str] | None:
    """(kind, word): the kind that says most among the frames above the person's own code, and of
    these the one nearest to it. The newest line's text counts where no frame says anything.
    """
    best: tuple[str, str] | None = None
    own = 0
    for file, _, function in frames[:_LOOK_FRAMES]:
        if not is_library(file):
            if _OWN_COLLECTIVE.fullmatch(function):
                return "collective", function
            own += 1
            if own == _OWN_FRAMES:
                break
            continue
        if own:
            continue  # below the person's code a library calls it, and waits for nothing
        found = _frame_wait(file, function)
        if found is not None and (best is None or KINDS.index(found[0]) <= KINDS.index(best[0])):
            best = found
    if best is None and source:
        best = source_wait(source)
    return best


def own_frame(frames: Sequence[RawFrame]) -> RawFrame | None:
    """The newest frame of the person's own code."""
    for frame in frames:
        if not is_library(frame[0]):
            return frame
    return frames[0] if frames else None


# -- merging


class _Table:
    """Frames of all tasks under one numbering, and what makes two of them equal."""

    def __init__(self) -> None:
        self.frames: list[RawFrame] = []
        self.keys: list[int] = []  # equal for frames that count as equal
        self._numbers: dict[RawFrame, int] = {}
        self._key_numbers: dict[tuple[str, int, str], int] = {}

    def add(self, rows: Iterable[Any]) -> list[int]:
        """The numbers of one fact's frames."""
        numbers: list[int] = []
        for row in rows:
            frame = (str(row[0]), int(row[1]), str(row[2]))
            number = self._numbers.get(frame)
            if number is None:
                number = self._numbers[frame] = len(self.frames)
                self.frames.append(frame)
                same = (frame[0], 0 if is_library(frame[0]) else frame[1], frame[2])
                self.keys.append(self._key_numbers.setdefault(same, len(self._key_numbers)))
            numbers.append(number)
        return numbers


def merge(facts: Mapping[str, Fact]) -> Merged:
    """`facts`: by the name of the task."""
    table = _Table()
    groups: dict[tuple[Any, ...], Group] = {}
    others: dict[tuple[Any, ...], Group] = {}
    missing: list[Missing] = []
    stuck: list[Missing] = []
    ranks: set[int] = set()
    for task, fact in facts.items():
        numbers = table.add(fact.get("frames") or ())
        texts = {numbers[int(k)]: str(v) for k, v in (fact.get("source") or {}).items()}
        # most ranks have one of a few stacks: each is looked at once
        known: dict[tuple[int, ...], tuple[list[int], tuple[int, ...]]] = {}
        for process in fact["processes"]:
            if process.get("launcher"):
                continue
            rank, is_lead = int(process["rank"]), bool(process.get("lead"))
            if is_lead:
                ranks.add(rank)
                if not process.get("threads"):
                    missing.append(_missing(task, process))
            elif not process.get("threads") and process.get("silent"):
                stuck.append(_missing(task, process))
            for place, thread in enumerate(process.get("threads") or ()):
                is_main = bool(thread.get("main"))
                raw = tuple(thread["frames"])
                pair = known.get(raw)
                if pair is None:
                    stack = [numbers[index] for index in raw]
                    pair = known[raw] = stack, tuple([table.keys[number] for number in stack])
                stack, key = pair
                if is_lead and is_main:
                    group = groups.get(key)
                    if group is None:
                        group = groups[key] = _group(table, stack, texts, "main")
                else:
                    label = _thread_label(process, thread, place, is_lead)
                    whole = (label if is_lead else "", *key)
                    group = others.get(whole)
                    if group is None:
                        group = others[whole] = _group(table, stack, texts, label)
                group.ranks.append(rank)
                group.pids.append(int(process["pid"]))
                group.tasks.append(task)
    found = list(groups.values())
    for group in (*found, *others.values()):
        group.ranks = sorted(set(group.ranks))
        group.tasks = sorted(set(group.tasks))
    odd, split = find_odd(found, missing)
    lost = set(odd)
    found.sort(key=lambda g: (not lost.issuperset(g.ranks), -len(g.ranks), g.ranks[:1]))
    missing.sort(key=lambda one: one.rank)
    merged = Merged(
        groups=found,
        others=sorted(others.values(), key=lambda g: (-len(g.ranks), g.thread)),
        odd=odd,
        missing=missing,
        stuck_helpers=stuck,
        split=split,
        ranks=sorted(ranks),
        took_s=max((float(fact.get("took_s") or 0) for fact in facts.values()), default=0.0),
        native=any(fact.get("native") for fact in facts.values()),
        how=sorted(
            {
                str(process["how"])
                for fact in facts.values()
                for process in fact["processes"]
                if process.get("how")
            }
        ),
    )
    merged.verdict = in_words(merged)
    return merged


def _missing(task: str, process: Fact) -> Missing:
    return Missing(
        rank=int(process["rank"]),
        pid=int(process["pid"]),
        why=str(process.get("missing") or "it did not answer"),
        silent=bool(process.get("silent")) or process.get("state") in STUCK_STATES,
        name=process.get("name"),
        state=process.get("state"),
        wchan=process.get("wchan"),
        task=task,
    )


def _thread_label(process: Fact, thread: Fact, place: int, is_lead: bool) -> str:
    if not is_lead:
        return f"child {process['pid']}"
    return str(thread.get("name") or f"thread {place}")


def _group(table: _Table, stack: list[int], texts: Mapping[int, str], thread: str) -> Group:
    frames = [table.frames[number] for number in stack]
    source = texts.get(stack[0]) if stack else None
    wait = wait_of(frames, source)
    own = own_frame(frames)
    helper = None
    if thread.startswith("child"):
        helper = helper_of(frames)
    return Group(
        ranks=[],
        thread=thread,
        frames=[Frame(*frame) for frame in frames],
        waits=None if wait is None else wait[1],
        kind=None if wait is None else wait[0],
        at=None if own is None else f"{short_path(own[0])}:{own[1]}",
        source=source,
        tasks=[],
        helper=helper,
        pids=[],
    )


def helper_of(frames: Sequence[RawFrame]) -> str | None:
    for words, pattern in HELPERS:
        if any(re.search(rf"(?:^|/){pattern}$", file) for file, _, _ in frames):
            return words
    return None


# -- who is odd


def find_odd(groups: Sequence[Group], missing: Sequence[Missing]) -> tuple[list[int], bool]:
    """(ranks that stand elsewhere, whether there is no majority). The majority is never odd: those
    who wait in a collective wait for whoever is not there.
    """
    gone = [one.rank for one in missing if one.silent]
    total = sum(len(group.ranks) for group in groups) + len(gone)
    if total <= 1:
        return gone, False
    waiting = [group for group in groups if group.kind == "collective"]
    elsewhere = [group for group in groups if group.kind != "collective"]
    if waiting and (elsewhere or gone):
        # whoever is not in a collective is waited for, however many they are on either side
        apart = [rank for group in elsewhere for rank in group.ranks] + gone
        if len(apart) <= total - len(apart) or not elsewhere:
            return sorted(apart), False
        return sorted(gone), not gone
    largest = max((len(group.ranks) for group in groups), default=0)
    if gone and largest + len(gone) == total:
        return sorted(gone), False
    if len(groups) <= 1:
        return sorted(gone), False
    if largest * 2 <= total:
        return sorted(gone), True
    rest = [rank for group in groups if len(group.ranks) < largest for rank in group.ranks]
    return sorted(rest + gone), False


# -- words


def place_words(group: Group) -> str:
    """`queue.get at loader.py:88`, `train_step at train.py:12`."""
    at = f" at {group.at}" if group.at else ""
    if group.waits:
        return f"{group.waits}{at}"
    name = group.frames[0].function if group.frames else "no Python code"
    return f"{name}{at}"


def missing_words(one: Missing) -> str:
    where = f", in {one.wchan}" if one.wchan and one.state != "stopped" else ""
    state = f" ({one.state}{where})" if one.state else ""
    if one.state == "stopped":
        return f"is stopped (pid {one.pid})"
    return f"does not answer{state}" if one.silent else f"has no stack: {one.why}{state}"


def in_words(merged: Merged) -> str | None:
    """Who waits for whom; None where all stand at the same place and wait for nothing."""
    total = len(merged.ranks)
    groups = merged.groups
    if total == 0:
        return None
    parts: list[str] = []
    lost = set(merged.odd)
    crowd = [group for group in groups if not lost.issuperset(group.ranks)]
    if merged.split:
        places = [f"{ranks_text(g.ranks)} in {place_words(g)}" for g in crowd[:4]]
        more = f" and {len(crowd) - 4} more places" if len(crowd) > 4 else ""
        parts.append("split, no majority: " + "; ".join(places) + more)
    elif crowd:
        parts.append(_crowd_words(crowd, total))
    for group in groups:
        if lost.issuperset(group.ranks):
            verb = "is" if len(group.ranks) == 1 else "are"
            parts.append(f"{ranks_text(group.ranks)} {verb} in {place_words(group)}")
    for one in merged.missing:
        if one.rank in lost or total == 1:
            parts.append(f"rank {one.rank} {missing_words(one)}")
    if merged.odd and total > 1:
        parts[-1] += ": look there"
    return "; ".join(parts) if parts else None


def _crowd_words(crowd: Sequence[Group], total: int) -> str:
    count = sum(len(group.ranks) for group in crowd)
    places = list(dict.fromkeys(place_words(group) for group in crowd))
    do_wait = all(group.waits for group in crowd)
    one_verb = "waits" if do_wait else "is"
    many_verb = "wait" if do_wait else "are"
    if total == 1:
        return f"it {one_verb} in {places[0]}"
    where = " and in ".join(places[:3])
    if count == 1:
        return f"{ranks_text(crowd[0].ranks)} {one_verb} in {where}"
    if count < total:
        return f"{count} of {total} ranks {many_verb} in {where}"
    return f"all {total} ranks {many_verb} in {where}"


# -- the tree


class Node(msgspec.Struct):
    """A call that these ranks have in common; `below` are the calls that it made."""

    function: str
    file: str
    line: int
    ranks: str
    below: list["Node"] = []
    waits: str | None = None


def tree(groups: Sequence[Group]) -> list[Node]:
    """The prefix tree of the stacks, oldest call first; odd groups come first at every fork."""
    roots: list[Node] = []
    members: dict[int, set[int]] = {}
    for group in groups:
        level = roots
        node: Node | None = None
        for frame in reversed(group.frames):
            line = 0 if is_library(frame.file) else frame.line
            node = next(
                (
                    one
                    for one in level
                    if (one.function, one.file) == (frame.function, frame.file)
                    and (line == 0 or one.line == frame.line)
                ),
                None,
            )
            if node is None:
                node = Node(frame.function, frame.file, frame.line, "")
                level.append(node)
            members.setdefault(id(node), set()).update(group.ranks)
            level = node.below
        if node is not None:
            node.waits = group.waits
    _name_ranks(roots, members)
    return roots


def _name_ranks(nodes: Sequence[Node], members: Mapping[int, set[int]]) -> None:
    for node in nodes:
        node.ranks = rank_set(members[id(node)])
        _name_ranks(node.below, members)

"""What a waiting job needs of each node, and why what is free does not fit together. Pure. Called
by `waiting`.

    8 GPUs are free, but on four nodes two each; you ask for two nodes of four

Numbers are those that the nodes report; a node that takes no jobs has nothing free.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.engines.protocol import Node
from headway.engines.slurm import parse
from headway.engines.slurm.parse import JobLine
from headway.settings.quantity import size_text

MIB = 1024 * 1024
NAMED_MAX = 6  # nodes named in one sentence
_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()


@dataclass(frozen=True, slots=True)
class Need:
    """Of each of its nodes."""

    nodes: int
    gpus: int
    cpus: int
    memory_bytes: int
    time_s: float | None = None
    kind: str = ""  # of GPU: a100
    exclusive: bool = False  # it shares its nodes with nobody

    @classmethod
    def of(cls, job: JobLine) -> "Need":
        told = job.fields
        nodes = max(1, parse.number_of(told.get("NumNodes", "1")))
        whole = parse.read_tres(told.get("ReqTRES") or told.get("TRES", ""))
        per_node = parse.read_gpus(told.get("TresPerNode", "") or told.get("Gres", ""))
        kinds = (
            per_node
            or parse.read_gpus(told.get("TresPerJob", ""))
            or parse.read_gpus(told.get("TresPerTask", ""))
        )
        gpus = sum(per_node.values()) or -(-(parse.gpus_of(whole) or sum(kinds.values())) // nodes)
        cpus = -(-parse.number_of(told.get("NumCPUs", "1")) // nodes)
        memory = parse.mebibytes(told.get("MinMemoryNode", ""))
        if not memory:
            memory = parse.mebibytes(told.get("MinMemoryCPU", "")) * cpus
        kind = next(iter(kinds)) if len(kinds) == 1 else ""
        limit_s, alone = parse.seconds(told.get("TimeLimit", "")), _is_exclusive(told)
        return cls(nodes, gpus, cpus, memory * MIB, limit_s, kind, alone)

    def words(self) -> str:
        """`8 GPUs = 2 nodes × 4, 4 CPUs and 64 GiB each, 4 h`."""
        each = [plural(self.cpus, "CPU")] + (
            [size_text(self.memory_bytes)] if self.memory_bytes else []
        )
        nodes = plural(self.nodes, "node")
        shape = f"{nodes} × {self.gpus}" if self.nodes > 1 else "1 node"
        kind = f" of kind {self.kind}" if self.kind else ""
        first = f"{plural(self.nodes * self.gpus, 'GPU')}{kind} = {shape}" if self.gpus else nodes
        first += (
            f", {'each' if self.nodes > 1 else 'all of it'} to itself" if self.exclusive else ""
        )
        parts = [first, f"{' and '.join(each)} each" if self.nodes > 1 else " and ".join(each)]
        return ", ".join(parts + ([duration_text(self.time_s)] if self.time_s is not None else []))

    def lacks(self, node: Node) -> list[str]:
        """What a node does not have of it now."""
        gpus, cpus = self.gpus - node.gpus, self.cpus - (node.cpus or 0)
        memory = self.memory_bytes - (node.memory_bytes or 0)
        found = [f"{number_word(gpus)} GPU{'' if gpus == 1 else 's'}"] if gpus > 0 else []
        found += [f"{number_word(cpus)} CPU{'' if cpus == 1 else 's'}"] if cpus > 0 else []
        return found + ([f"{size_text(memory)} of memory"] if memory > 0 else [])


def _is_exclusive(told: Mapping[str, str]) -> bool:
    """Slurm 26.05 has a word of its own for it; before, OverSubscribe said OK for all others."""
    return told["Exclusive"] == "NODE" if "Exclusive" in told else told.get("OverSubscribe") == "NO"


def fitting(need: Need, free: Sequence[Node]) -> list[Node]:
    return [node for node in free if not need.lacks(node)]


def explain(need: Need, free: Sequence[Node]) -> str:
    """Why what is free does not do. Empty: no node is known."""
    if not free:
        return ""
    ready = fitting(need, free)
    if len(ready) >= need.nodes:
        names = _names([node.name for node in ready[: need.nodes]])
        return f"what it needs is free on {names}: it is not room that it waits for"
    if need.exclusive:
        few = (
            f"only {_nodes(len(ready))} of the {number_word(need.nodes)} that it needs"
            if ready
            else "no node"
        )
        return f"it shares its nodes with nobody, and {few} {_are(len(ready) or 1)} empty"
    what, each = ("GPU", need.gpus) if need.gpus else ("CPU", need.cpus)
    have = [(node.name, node.gpus if need.gpus else node.cpus or 0) for node in free]
    total, wanted = sum(count for _, count in have), need.nodes * each
    if total < wanted:
        more = _lacking(need, [node for node in free if _has(node, need, each)])
        return f"{_free_of(total, wanted, what)}{f', and {more}' if more else ''}"
    start = f"{plural(total, what)} {_are(total)} free, but "
    asked = f"you ask for {_nodes(need.nodes)} of {number_word(each)}"
    if sum(count >= each for _, count in have) < need.nodes:
        more = _lacking(need, [node for node in free if _has(node, need, each)])
        return f"{start}{_spread(have)}; {asked}{f'; {more}' if more else ''}"
    together = " and ".join(
        [plural(each, what)] + ([plural(need.cpus, "CPU")] if need.gpus else [])
        + ([size_text(need.memory_bytes)] if need.memory_bytes else [])
    )  # fmt: skip
    short = _lacking(need, [node for node in free if _has(node, need, 1)])
    return f"{start}not on {_nodes(need.nodes)} with {together} together: {short}"


def _free_of(total: int, wanted: int, what: str) -> str:
    if wanted == 1:
        return f"the {what} that it needs is not free"
    return f"{number_word(total) if total else 'none'} of the {plural(wanted, what)} that it needs {_are(total)} free"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _has(node: Node, need: Need, least: int) -> bool:
    return (node.gpus if need.gpus else node.cpus or 0) >= least


def _lacking(need: Need, nodes: Iterable[Node]) -> str:
    short = [(node.name, need.lacks(node)) for node in nodes]
    found = [f"{name} lacks {' and '.join(what)}" for name, what in short if what]
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


def _spread(have: Sequence[tuple[str, int]]) -> str:
    """`on four nodes two each`; `3 on node1, 4 on node2 and 1 on node4`."""
    some = [(name, count) for name, count in have if count]
    groups: dict[int, list[str]] = {}  # the largest count first
    for name, count in sorted(some, key=lambda pair: -pair[1]):
        groups.setdefault(count, []).append(name)

    if len(groups) == 1:
        [(count, names)] = groups.items()
        if len(names) == 1:
            return f"on {names[0]} {number_word(count)}"
        return f"on {_nodes(len(names))} {number_word(count)} each"
    if len(some) <= NAMED_MAX:
        return _join([f"{count} on {name}" for name, count in some])

    parts = []
    for count, names in groups.items():
        each_of = "each of " if len(names) > 1 else ""
        parts.append(f"{number_word(count)} on {each_of}{_nodes(len(names))}")
    return _join(parts)


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _names(names: Sequence[str]) -> str:
    shown = list(names[:NAMED_MAX])
    return _join(shown) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")


def _nodes(count: int) -> str:
    return f"{number_word(count)} node{'' if count == 1 else 's'}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def number_word(count: int) -> str:
    return _NUMBERS[count] if 0 <= count < len(_NUMBERS) else str(count)


def duration_text(seconds: float) -> str:
    """`90 s`, `20 min`, `4 h`, `1 h 30 min`, `2 d 3 h`."""
    whole = round(seconds)
    if whole < 120 and whole % 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86_400
    parts = [
        f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if count
    ]
    return " ".join(parts[:2]) or f"{whole} s"

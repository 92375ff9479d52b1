"""What a cluster could ever give, what is free, and which smaller request would start now. Called
by the engine.

The arithmetic is pure; whether Slurm agrees is asked with `sbatch --test-only`, which starts
nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from headway.engines.protocol import Node, Plan
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.parse import (
    Holder,
    JobLine,
    NodeLine,
    expand_hosts,
    is_word,
    number_of,
    seconds,
)
from headway.engines.slurm.script import MARGIN_S, MIB, duration
from headway.engines.slurm.why import reservation
from headway.engines.slurm.why.fit import Need, fitting
from headway.engines.slurm.why.reservation import Reservation
from headway.model.errors import HeadwayError, RefusedError
from headway.settings.nearest import did_you_mean
from headway.settings.quantity import size_text

TRIES_MAX: Final = 6
NOW_S: Final = 60.0  # a start within this time is one now
# some have a word between
NOW: Final = re.compile(r"to start at (\d[\dT:-]+\d)(?:.*? on nodes (\S+))?")


def check_ever(plan: Plan, nodes: Sequence[NodeLine]) -> None:
    """RefusedError, naming the resource, for what this cluster could never give, however long one
    waits.
    """
    if not nodes:
        return  # it could not be asked, or the partition is empty: Slurm itself will say
    kind = str(plan.options.get("gpu_type") or "")
    need, count = max(task.gpus for task in plan.tasks), len(plan.tasks)
    what = f"{kind} GPUs" if kind else "GPUs"
    able = _with_gpus(need, kind, nodes)
    if count > len(able):
        enough = f"nodes with {need} {what}" if need else "nodes"
        total = sum(_gpus_of(node, kind) for node in nodes)
        raise RefusedError(
            f"the job needs {count} {enough}, and there {'is' if len(able) == 1 else 'are'} {len(able)}",
            f"there are {total} {what} in all; ask for fewer"
            if need
            else f"use at most {len(able)}",
        )
    memory = (
        max((task.memory_bytes or 0 for task in plan.tasks), default=0)
        or (plan.memory_bytes or 0) // count
    )
    cpus = max((task.cpus or 0 for task in plan.tasks), default=0) or -(-(plan.cpus or 0) // count)
    most, most_cpus = max(node.memory_mib for node in able) * MIB, max(node.cpus for node in able)
    if memory > most:
        told = f"a task asks for {size_text(memory)} of memory, and no node has more than {size_text(most)}"
        raise RefusedError(told, "ask for less")
    if cpus > most_cpus:
        raise RefusedError(
            f"a task asks for {cpus} CPUs, and no node has more than {most_cpus}", "ask for fewer"
        )
    ready = [node for node in able if node.memory_mib * MIB >= memory and node.cpus >= cpus]
    if count > len(ready):
        parts = (
            [f"{need} {what}"] * bool(need)
            + [f"{cpus} CPUs"] * bool(cpus)
            + [size_text(memory)] * bool(memory)
        )
        raise RefusedError(
            f"the job needs {count} nodes with {' and '.join(parts)} each, and there are {len(ready)}",
            "ask for fewer nodes, or for less on each",
        )


def _with_gpus(need: int, kind: str, nodes: Sequence[NodeLine]) -> list[NodeLine]:
    """The nodes that have so many; RefusedError where none has."""
    most = max(_gpus_of(node, kind) for node in nodes)
    if need <= most:
        return [node for node in nodes if _gpus_of(node, kind) >= need]

    if kind and not most:
        kinds = sorted({one for node in nodes for one in node.kinds})
        there = "the nodes tell no kinds of theirs: leave gpu_type out"
        if kinds:
            there = f"there are: {', '.join(kinds)}"
        raise RefusedError(f"no node has GPUs of kind {kind!r}{did_you_mean(kind, kinds)}", there)
    what = f"{kind} GPUs" if kind else "GPUs"
    raise RefusedError(
        f"a task asks for {need} {what}, and no node has more than {most}",
        f"use at most {most} a node",
    )


def _gpus_of(node: NodeLine, kind: str) -> int:
    return node.kinds.get(kind, (0, 0))[0] if kind else node.gpus


def free_of(node: NodeLine, kind: str = "", *, whole: bool = False) -> Node:
    """What is left of a node; nothing of one that takes no jobs. `kind`: of these GPUs alone;
    `whole`: for a job that shares it with nobody.
    """
    if not node.is_usable:
        return Node(node.name, 0, 0, 0, "slurm", f"{node.state.lower()} {node.reason}".strip())
    if whole and (node.cpus_used or node.gpus_used):
        return Node(node.name, 0, 0, 0, "slurm", "others run there")
    memory = max(0, node.memory_mib - node.memory_used_mib) * MIB
    all_gpus, used = node.kinds.get(kind, (0, 0)) if kind else (node.gpus, node.gpus_used)
    return Node(node.name, max(0, node.cpus - node.cpus_used), memory, max(0, all_gpus - used), "slurm",
                node.state.lower())  # fmt: skip


def capacity_of(node: NodeLine) -> Node:
    """What it has in all, and what is left of that."""
    free = free_of(node)
    return Node(
        node.name, node.cpus, node.memory_mib * MIB, node.gpus, "slurm", free.state_word, free.cpus, free.memory_bytes,
        free.gpus,
    )  # fmt: skip


def given_back(node: Node, holder: Holder) -> Node:
    """The node after a job has ended there."""
    memory = (node.memory_bytes or 0) + holder.memory_bytes
    return replace(
        node, cpus=(node.cpus or 0) + holder.cpus, memory_bytes=memory, gpus=node.gpus + holder.gpus
    )


def suggest(
    job: JobLine, need: Need, free: Sequence[Node], commands: Commands, now: datetime | None, own_s: float,
    held: Sequence[Reservation] = (),
) -> tuple[str, ...]:  # fmt: skip
    """Smaller or shorter requests that Slurm itself would start sooner, each asked for with
    `--test-only`.

    Slurm adds `own_s` for the job itself, which is in the queue: a smaller one would take its
    place.
    """
    found: dict[str, str] = {}
    tries = dict([*_before(need, held, now), *smaller(need, free)])
    for words, asked in list(tries.items())[:TRIES_MAX]:
        if words.startswith("--max-") and any(
            w.startswith("--max-") and "now" in said for w, said in found.items()
        ):
            continue  # a longer one would start now
        told, where = _starts(commands, _options(job, asked))
        when = None if told is None else _likely(told, where, own_s, asked, held)
        if when is None:
            continue
        soon = now is not None and (when - now).total_seconds() < NOW_S
        if not soon and job.start is not None and when >= datetime.fromisoformat(job.start):
            continue
        found[words] = (
            f"would start {'now' if soon else f'at {when.isoformat()}'}{f' on {where}' if where else ''}"
        )
    width = max(map(len, found), default=0)
    return tuple(f"{words:<{width}}  {what} (sbatch --test-only)" for words, what in found.items())


def _before(
    need: Need, held: Sequence[Reservation], now: datetime | None
) -> Iterator[tuple[str, Need]]:
    """As long as fits in front of a maintenance."""
    shorter = reservation.shorter_s(held, now, need.time_s) if now is not None else None
    if shorter is not None:
        yield f"--max-duration {shorter / 60:.0f}m", replace(need, time_s=shorter + MARGIN_S)


def _likely(
    told: str, where: str, own_s: float, asked: Need, held: Sequence[Reservation]
) -> datetime | None:
    """When it would start without the job itself in the queue, unless a reservation has the nodes
    then. None: it has them even when Slurm says.
    """
    nodes = expand_hosts(where)
    for when in (
        datetime.fromisoformat(told) - timedelta(seconds=own_s),
        datetime.fromisoformat(told),
    ):
        if not reservation.in_the_way(held, nodes, when.isoformat(), asked.time_s):
            return when
    return None


def own_delay_s(need: Need, partition: Mapping[str, str]) -> float:
    """By how much `--test-only` puts off another job because this one waits: Slurm spreads its
    whole time over all CPUs of the partition.
    """
    cpus, nodes = (
        number_of(partition.get("TotalCPUs", "")),
        number_of(partition.get("TotalNodes", "")),
    )
    limit_s = need.time_s if need.time_s is not None else seconds(partition.get("MaxTime", ""))
    if not cpus or not nodes or limit_s is None:
        return 0.0
    size = max(need.nodes * need.cpus, need.nodes * (cpus // nodes if cpus > nodes else 1))
    return 60.0 * (size * int(limit_s // 60) // cpus)


def smaller(need: Need, free: Sequence[Node]) -> Iterator[tuple[str, Need]]:
    """Requests that what is free could do, the least change first; then the same for a shorter
    time.
    """
    ready = len(fitting(need, free))
    with_gpus = [node for node in free if node.gpus >= need.gpus]
    if ready < need.nodes <= len(with_gpus):
        yield from _less_of_each(need, with_gpus)

    if 0 < ready < need.nodes:
        asked = f"-n {ready * need.gpus}" if need.gpus else f"--nodes {ready}"
        yield asked, replace(need, nodes=ready)
    if need.gpus:
        yield from _fewer_gpus(need, free)

    for limit_s, words in ((4 * 3600, "4h"), (3600, "1h"), (600, "10m")):
        shorter_s = limit_s + MARGIN_S
        if need.time_s is None or need.time_s > shorter_s:
            yield f"--max-duration {words}", replace(need, time_s=shorter_s)


def _less_of_each(need: Need, nodes: Sequence[Node]) -> Iterator[tuple[str, Need]]:
    """Enough GPUs are on enough nodes, and memory or CPUs are not: what the best of them have."""
    by_memory = sorted(nodes, key=lambda node: node.memory_bytes or 0, reverse=True)
    best = by_memory[: need.nodes]
    memory = min(node.memory_bytes or 0 for node in best)
    cpus = min(node.cpus or 0 for node in best)
    words = []
    asked = need
    if memory < need.memory_bytes:
        words.append(f"--memory {memory * need.nodes // MIB}MiB")
        asked = replace(asked, memory_bytes=memory)
    if cpus < need.cpus:
        words.append(f"--cpus {cpus * need.nodes}")
        asked = replace(asked, cpus=cpus)
    if words and asked.memory_bytes and asked.cpus:
        yield " ".join(words), asked


def _fewer_gpus(need: Need, free: Sequence[Node]) -> Iterator[tuple[str, Need]]:
    """The same number on more nodes; or as many as one node has."""
    shares = sorted({node.gpus for node in free if 0 < node.gpus < need.gpus}, reverse=True)
    for share in shares:
        total = need.nodes * need.gpus
        wide = replace(need, nodes=total // share, gpus=share)
        if total % share == 0 and len(fitting(wide, free)) >= wide.nodes:
            yield f"-n {total} --nodes {wide.nodes}", wide
            break
    for share in shares[:1]:
        one = replace(need, nodes=1, gpus=share)
        if fitting(one, free):
            yield f"-n {share}", one


def _options(job: JobLine, need: Need) -> list[str]:
    """What sbatch is asked with: the job's own place and rights, and another size."""
    names = {
        "Partition": "--partition", "Account": "--account", "QOS": "--qos", "Features": "--constraint",
        "Reservation": "--reservation", "ReqNodeList": "--nodelist", "ExcNodeList": "--exclude",
    }  # fmt: skip
    found = [
        f"{flag}={job.fields[name]}"
        for name, flag in names.items()
        if is_word(job.fields.get(name, ""))
    ]
    found += [
        f"--nodes={need.nodes}",
        f"--ntasks={need.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={need.cpus}",
    ]
    found += (
        [f"--gres=gpu:{need.kind}:{need.gpus}" if need.kind else f"--gres=gpu:{need.gpus}"]
        if need.gpus
        else []
    )
    found += ["--exclusive"] if need.exclusive else []
    found += [f"--mem={need.memory_bytes // MIB}M"] if need.memory_bytes else []
    return found + ([f"--time={duration(need.time_s)}"] if need.time_s is not None else [])


def _starts(commands: Commands, options: list[str]) -> tuple[str | None, str]:
    """When it would start and where; None when Slurm does not say. sbatch tells it on its error
    output, so a shell joins both.
    """
    try:
        said = commands.run(
            ["sh", "-c", 'sbatch --test-only "$@" --wrap true 2>&1', "sh", *options]
        )
    except HeadwayError:
        return None, ""
    told = NOW.search(said)
    return (told[1], told[2] or "") if told else (None, "")

"""What a cluster could ever give, what is free, and which smaller request would start now. Called by the engine.

The arithmetic is pure; whether Slurm agrees is asked with `sbatch --test-only`, which starts nothing.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from headway.engines.protocol import Node, Plan
from headway.engines.slurm.answer import JobLine, NodeLine, count_gpus
from headway.engines.slurm.command import Commands
from headway.engines.slurm.script import MIB
from headway.model.errors import HeadwayError, RefusedError

TRIES_MAX: Final = 4
_NOW: Final = re.compile(r"to start at (\S+)")


def check_ever(plan: Plan, nodes: Sequence[NodeLine]) -> None:
    """RefusedError, naming the resource, for what this cluster could never give, however long one waits."""
    if not nodes:
        return  # it could not be asked, or the partition is empty: Slurm itself will say
    need = max(task.gpus for task in plan.tasks)
    if need > max(node.gpus for node in nodes):
        most = max(node.gpus for node in nodes)
        raise RefusedError(
            f"a task asks for {need} GPUs, and no node has more than {most}", f"use at most {most} a node"
        )
    fitting = [node for node in nodes if node.gpus >= need]
    if len(plan.tasks) > len(fitting):
        what = f"nodes with {need} GPUs" if need else "nodes"
        total = sum(node.gpus for node in nodes)
        raise RefusedError(
            f"the job needs {len(plan.tasks)} {what}, and there are {len(fitting)}",
            f"the cluster has {total} GPUs in all; ask for fewer" if need else f"use at most {len(fitting)}",
        )
    memory = max((task.memory_bytes or 0 for task in plan.tasks), default=0) or (plan.memory_bytes or 0) // len(
        plan.tasks
    )
    if memory > max(node.memory_mib for node in fitting) * MIB:
        raise RefusedError(
            f"a task asks for {memory / MIB:.0f} MiB of memory, and no node has more than "
            f"{max(node.memory_mib for node in fitting)} MiB",
            "ask for less",
        )
    cpus = max((task.cpus or 0 for task in plan.tasks), default=0)
    if cpus > max(node.cpus for node in fitting):
        raise RefusedError(
            f"a task asks for {cpus} CPUs, and no node has more than {max(node.cpus for node in fitting)}",
            "ask for fewer",
        )


def free_of(node: NodeLine) -> Node:
    """What is left of a node; nothing of one that takes no jobs."""
    if not node.is_usable:
        return Node(node.name, 0, 0, 0, "slurm", f"{node.state.lower()} {node.reason}".strip())
    memory = max(0, node.memory_mib - node.memory_used_mib) * MIB
    cpus, gpus = max(0, node.cpus - node.cpus_used), max(0, node.gpus - node.gpus_used)
    return Node(node.name, cpus, memory, gpus, "slurm", node.state.lower())


def suggest(job: JobLine | None, nodes: Sequence[NodeLine], commands: Commands) -> tuple[str, ...]:
    """Smaller requests that Slurm itself would start now."""
    if job is None:
        return ()
    found = []
    for words, options in list(_smaller(job, [free_of(node) for node in nodes]))[:TRIES_MAX]:
        when = _starts(commands, options)
        if when is not None and (job.start is None or when < job.start):
            found.append(f"{words}: would start at {when}")
    return tuple(found)


def _smaller(job: JobLine, free: Sequence[Node]) -> Iterator[tuple[str, list[str]]]:
    count = int(job.fields.get("NumNodes", "1").partition("-")[0] or 1)
    gpus = count_gpus(job.fields.get("TresPerNode", "") or job.fields.get("Gres", ""))
    best = max((node.gpus for node in free), default=0)
    partition = job.fields.get("Partition")
    base = ["-p", partition] if partition else []
    if gpus:
        ready = sum(1 for node in free if node.gpus >= gpus)
        if 0 < ready < count:
            yield f"{ready} nodes with {gpus} GPUs (-n {ready * gpus})", [*base, f"-N{ready}", f"--gres=gpu:{gpus}"]
        if 0 < best < gpus:
            yield f"1 node with {best} GPUs (-n {best})", [*base, "-N1", f"--gres=gpu:{best}"]
    elif count > 1:
        idle = sum(1 for node in free if node.cpus)
        if 0 < idle < count:
            yield f"{idle} nodes", [*base, f"-N{idle}"]
    shape = [*base, f"-N{count}", *([f"--gres=gpu:{gpus}"] if gpus else [])]
    yield "the same for 10 minutes (--max-duration 10m)", [*shape, "--time=10"]


def _starts(commands: Commands, options: list[str]) -> str | None:
    """When it would start; None when Slurm does not say. sbatch tells it on its error output, so a shell joins both."""
    try:
        said = commands.run(["sh", "-c", 'sbatch --test-only "$@" --wrap true 2>&1', "sh", *options])
    except HeadwayError:
        return None
    told = _NOW.search(said)
    return told[1] if told else None

"""How a job becomes tasks: nodes (`model/spread.py`), roles → instances, and who has which rank. Pure.

Called by every engine's `plan`, so that a job has the same tasks and ranks wherever it runs (capabilities 2 and 3).
"""

from dataclasses import replace

from headway.engines.protocol import PlannedTask
from headway.model.errors import UsageError
from headway.model.job import JobSpec, Role
from headway.model.limits import PROCESSES_MAX, TASKS_MAX
from headway.model.spread import count_of, spread

WORKER = "worker"


def tasks_of(spec: JobSpec, *, gpu_per_node: int | None = None, has_gpus: bool = False) -> list[PlannedTask]:
    """All tasks, in order of rank. `gpu_per_node`: the cluster's own; `has_gpus`: `-n` then counts GPUs.

    Helpers (completion none) come last: their ranks lie behind the world of those that the job waits for.
    """
    roles = spec.roles or [_worker(spec, spec.gpu_per_node or gpu_per_node, has_gpus)]
    order = [role for role in roles if role.completion != "none"] + [r for r in roles if r.completion == "none"]
    tasks: list[PlannedTask] = []
    rank = 0
    for role in order:
        for index in range(role.instances):
            tasks.append(_task(spec, role, index, rank, len(tasks)))
            rank += role.processes
    if not 1 <= len(tasks) <= TASKS_MAX:
        raise UsageError(f"{len(tasks)} tasks: a job has 1 to {TASKS_MAX}")
    if not 1 <= rank <= PROCESSES_MAX:
        raise UsageError(f"-n {rank}: a job has 1 to {PROCESSES_MAX} processes here")
    return tasks


def world_size(spec: JobSpec, tasks: list[PlannedTask]) -> int:
    """Processes that form one world: those of all tasks but helpers; of helpers, when there is nothing else."""
    helpers = {role.name for role in spec.roles if role.completion == "none"}
    return sum(t.processes for t in tasks if t.role not in helpers) or sum(t.processes for t in tasks)


def _task(spec: JobSpec, role: Role, index: int, rank: int, node_rank: int) -> PlannedTask:
    return PlannedTask(
        f"{role.name}-{index}",
        tuple(role.command or spec.command),
        spec.cwd,
        role.processes,
        rank,
        role.gpus,
        role=role.name,
        role_index=index,
        role_first_rank=index * role.processes,
        role_processes=role.instances * role.processes,
        node_rank=node_rank,
        cpus=role.cpus,
        memory_bytes=role.memory_bytes,
        image=role.image or spec.image,
    )


def _worker(spec: JobSpec, gpu_per_node: int | None, has_gpus: bool) -> Role:
    """The one role of a job that names none."""
    if not 1 <= spec.processes <= PROCESSES_MAX:
        raise UsageError(f"-n {spec.processes}: a job has 1 to {PROCESSES_MAX} processes here")
    count = count_of(spec.processes, spec.nodes)
    shape = spread(count, per_node=gpu_per_node, nodes=spec.nodes, multi_process=spec.multi_process)
    gpus = spec.gpus or (shape.share * shape.nodes if has_gpus else 0)
    each = -(-gpus // shape.nodes)
    alone = shape.nodes == 1
    return Role(
        WORKER,
        list(spec.command),
        shape.nodes,
        shape.processes,
        each,
        spec.cpus if alone else None,
        spec.memory_bytes if alone else None,
    )


def on_node(tasks: list[PlannedTask], node: str) -> tuple[PlannedTask, ...]:
    """The same tasks, all of them on that machine."""
    return tuple(replace(task, node=node) for task in tasks)

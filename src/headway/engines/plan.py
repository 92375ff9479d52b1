"""How a job becomes a plan with tasks: nodes (`model/spread.py`), roles → instances, and who has
which rank. Pure.

Called by every engine's `plan`, so that a job has the same tasks and ranks wherever it runs
(capabilities 2 and 3).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from headway.engines.protocol import Given, Node, Plan, PlannedTask
from headway.model.errors import RefusedError, UsageError
from headway.model.job import Job, JobSpec, Role
from headway.model.json_types import JsonObject
from headway.model.limits import PROCESSES_MAX, TASKS_MAX
from headway.model.spread import count_of, spread
from headway.settings.quantity import size_text

WORKER = "worker"
_CARRIED: Final = frozenset(
    {"HOME", "PATH", "TMPDIR", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
_CARRIED_OF: Final = (
    "AWS_",
    "AZURE_",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
)


def tasks_of(
    spec: JobSpec, *, gpu_per_node: int | None = None, has_gpus: bool = False
) -> list[PlannedTask]:
    """All tasks, in order of rank. `gpu_per_node`: the cluster's own; `has_gpus`: `-n` then counts
    GPUs.

    Where a cluster has none, roles run without theirs, as `-n` does; `spec.gpus` are those that
    were planned at submit. Helpers (completion none) come last: their ranks lie behind the world of
    those that the job waits for.
    """
    roles = spec.roles or [_worker(spec, spec.gpu_per_node or gpu_per_node, has_gpus)]
    if not has_gpus and not spec.gpus:
        roles = [replace(role, gpus=0) for role in roles]
    order = [role for role in roles if role.completion != "none"] + [
        r for r in roles if r.completion == "none"
    ]
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
    """Processes that form one world: those of all tasks but helpers; of helpers, when there is
    nothing else.
    """
    helpers = {role.name for role in spec.roles if role.completion == "none"}
    return sum(t.processes for t in tasks if t.role not in helpers) or sum(
        t.processes for t in tasks
    )


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
    shape = spread(
        count,
        per_node=gpu_per_node,
        nodes=spec.nodes,
        multi_process=spec.multi_process,
        one_node=spec.one_node,
    )
    gpus = spec.gpus or (shape.share * shape.nodes if has_gpus else 0)
    each = -(-gpus // shape.nodes)
    alone = shape.nodes == 1
    command = list(spec.command)
    processes = shape.processes
    if spec.launcher == "mpirun":
        if not alone:
            raise UsageError(
                f"launcher mpirun starts its ranks on one node, and these are {shape.nodes} nodes",
                "use the launcher ranks, or a command that starts mpirun over the nodes by itself",
            )
        command = ["mpirun", "-n", str(processes), *command]
        processes = 1
    return Role(
        WORKER,
        command,
        shape.nodes,
        processes,
        each,
        spec.cpus if alone else None,
        spec.memory_bytes if alone else None,
    )


def plan_of(
    engine: str, cluster: str, job: Job, attempt: int, tasks: Sequence[PlannedTask], **own: object
) -> Plan:
    """The plan of a job as every engine has it; `own` is what this one has otherwise."""
    spec = job.spec
    values: JsonObject = {
        "cpus": spec.cpus, "memory_bytes": spec.memory_bytes, "max_duration_s": spec.max_duration_s,
        "monitoring_interval_s": spec.monitoring_interval_s, "grace_s": spec.grace_s, "hold_s": spec.hold_s,
        "pty": spec.pty, "ranked": spec.ranked, "stdin": spec.stdin,
        "umask": spec.umask, "rlimits": spec.rlimits, "env_set": spec.env_set, "code": spec.code,
        "code_cwd": spec.code_cwd, "code_commit": spec.code_commit, "folders": tuple(spec.folders), **own,
    }  # fmt: skip
    size = world_size(spec, list(tasks))
    return Plan(engine, cluster, job.id, job.uuid, attempt, tuple(tasks), size, **values)


def task_file(plan: Plan, task: PlannedTask, given: Given, **own: object) -> JsonObject:
    """`task.json`, as `docs/concepts/protocol.md` has it. `own`: home, socket, output_dir,
    spool_bytes_max, address, gpus, and what else this engine has otherwise.
    """
    return {
        "version": 1, "uuid": plan.uuid, "id": plan.job, "attempt": plan.attempt, "task": task.name, "node": task.node,
        "token": given.tokens[task.name], "argv": list(task.argv), "cwd": task.cwd, "umask": plan.umask,
        "rlimits": {name: list(pair) for name, pair in plan.rlimits.items()}, "processes": task.processes,
        "first_rank": task.first_rank, "world_size": plan.world_size, "gpus": None, "grace_s": plan.grace_s,
        "max_duration_s": plan.max_duration_s, "hold_s": plan.hold_s, "pty": plan.pty,
        "ranked": plan.ranked, "stdin": plan.stdin, "memory_limit_bytes": None,
        "monitoring_interval_s": plan.monitoring_interval_s, "secret_names": list(given.secret_names),
        "role": task.role, "role_first_rank": task.role_first_rank, "role_processes": task.role_processes,
        "node_rank": task.node_rank, "tasks": len(plan.tasks), "barrier": len(plan.tasks) > 1,
        "env_set": list(plan.env_set), "code": plan.code, "code_cwd": plan.code_cwd, "code_commit": plan.code_commit,
        "folders": [folder.name for folder in plan.folders],
        "folders_sent": any(folder.target or folder.mount for folder in plan.folders),
        "attached": False, **own,
    }  # fmt: skip


def folders_file(
    plan: Plan, given: Given, base: Path, get: Callable[[str], Any]
) -> JsonObject | None:
    """`folders.json`, for the carrier; None where there is nothing to carry. `base`: where folders
    lie on a node. The cloud's own variables and proxies of the submission count for the carrier
    too.
    """
    if not plan.folders:
        return None
    env = {
        name: value
        for name, value in given.env.items()
        if name in _CARRIED or name.startswith(_CARRIED_OF)
    }
    return {
        "folders": [asdict(folder) for folder in plan.folders], "accounts": dict(given.accounts), "base": str(base),
        "interval_s": get("send_interval_s"), "env": env,
    }  # fmt: skip


def on_node(tasks: list[PlannedTask], node: str) -> tuple[PlannedTask, ...]:
    """The same tasks, all of them on that machine."""
    return tuple(replace(task, node=node) for task in tasks)


def check_machine(
    spec: JobSpec, tasks: Sequence[PlannedTask], node: Node
) -> tuple[int | None, int | None]:
    """CPUs and memory that all of it needs; RefusedError where this one machine could never give
    that.
    """
    cpus, memory_bytes = spec.cpus, spec.memory_bytes
    if spec.roles:
        cpus = sum(task.cpus or 0 for task in tasks) or None
        memory_bytes = sum(task.memory_bytes or 0 for task in tasks) or None
    _check_fits("GPUs", sum(task.gpus for task in tasks), node.gpus, _gpu_hint(spec, node.gpus))
    _check_fits("CPUs", cpus, node.cpus, "ask for fewer")
    _check_fits("memory", memory_bytes, node.memory_bytes, "ask for less")
    return cpus, memory_bytes


def _gpu_hint(spec: JobSpec, there: int) -> str:
    if not there:  # it was planned with some
        return "no GPU is seen here any more: look with nvidia-smi; hw resubmit runs it without"
    return (
        "ask for fewer: instances, or gpus of a role" if spec.roles else f"use -n {there} or fewer"
    )


def _check_fits(what: str, asked: int | None, there: int | None, hint: str) -> None:
    """RefusedError for what a machine could never give. Memory is told as a person writes it."""
    if asked is None or there is None or asked <= there:
        return
    if what == "memory":
        raise RefusedError(
            f"the job asks for {size_text(asked)} of memory, this machine has {size_text(there)}",
            hint,
        )
    raise RefusedError(f"the job asks for {asked} {what}, this machine has {there}", hint)

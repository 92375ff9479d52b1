"""The environment of a rank: who it is, how many there are, where the others are. Called by
`rank.py`, before exec.

A job without `-n`, nodes or roles gets none of the variables of a launcher: nanoGPT, Lightning and
HF Trainer take them as a proof that they were started as one of many. Otherwise names are those of
torchrun (RANK … MASTER_PORT, ROLE_…), of OpenMPI (OMPI_COMM_WORLD_…, only where there are several
processes, and none of the variables by which an MPI library finds its launcher), and ours. No
SLURM_ variable is set: too many programs take one as a proof that `srun` started them; on Slurm,
`srun` sets them itself.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headway.model.json_types import JsonMapping, JsonObject
    from headway.spool.layout import TaskFile

# a person's own --env wins over these
YIELDING = ("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
# what `_launcher_variables` sets
LAUNCHER_NAMES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK",
)  # fmt: skip
# what srun tells each task of a step; a batch script that starts its program without it has none
_SLURM_STEP = (
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE",
    "SLURM_TASK_PID", "SLURM_GTIDS", "SLURM_TASKS_PER_NODE", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT",
)  # fmt: skip
_FOREIGN = (
    "TORCHELASTIC_RUN_ID",
    "GROUP_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
)


def world_variables(task: "TaskFile", index: int, peers: "Sequence[JsonMapping]") -> dict[str, str]:
    """Everything but CUDA_VISIBLE_DEVICES. `peers`: every task of the job, in order of rank."""
    ours = {
        "HEADWAY_ROLE": task.role or "worker",
        "HEADWAY_NODES": str(task.tasks),
        "HEADWAY_LOCAL_RANK": str(index),
        **_places(task, peers),
    }
    return ours | _launcher_variables(task, index, peers) if task.ranked else ours


def _launcher_variables(
    task: "TaskFile", index: int, peers: "Sequence[JsonMapping]"
) -> dict[str, str]:
    rank, size = task.first_rank + index, task.world_size
    values: JsonObject = {
        "RANK": rank, "LOCAL_RANK": index, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": task.processes,
        "NODE_RANK": task.node_rank, "GROUP_RANK": task.node_rank,
        "ROLE_RANK": task.role_first_rank + index, "ROLE_WORLD_SIZE": max(task.role_processes, task.processes),
    }  # fmt: skip
    if size > 1 and rank < size:
        values |= {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "OMPI_COMM_WORLD_LOCAL_RANK": index,
            "OMPI_COMM_WORLD_LOCAL_SIZE": task.processes, "OMPI_COMM_WORLD_NODE_RANK": task.node_rank,
        }  # fmt: skip
    first = next((peer for peer in peers if peer.get("master_port")), None)
    if first is not None:
        values |= {"MASTER_ADDR": first.get("address"), "MASTER_PORT": first["master_port"]}
    return {name: str(value) for name, value in values.items()}


def _places(task: "TaskFile", peers: "Sequence[JsonMapping]") -> dict[str, str]:
    """Where every task is: `HEADWAY_HOSTS`, `HEADWAY_WORKER_HOSTS`, with ports too."""
    out = {"HEADWAY_TASKS": ",".join(str(peer.get("task")) for peer in peers)}
    groups: dict[str, list[JsonMapping]] = {"": list(peers)}
    for peer in peers:
        role = str(peer.get("role") or "worker").upper().replace("-", "_")
        groups.setdefault(f"{role}_", []).append(peer)
        if peer.get("task") == task.task and peer.get("port"):
            out["HEADWAY_TASK_PORT"] = str(peer["port"])

    for group, members in groups.items():
        hosts = [str(peer.get("address")) for peer in members]
        addresses = [f"{peer.get('address')}:{peer.get('port') or ''}" for peer in members]
        out[f"HEADWAY_{group}HOSTS"] = ",".join(hosts)
        out[f"HEADWAY_{group}ADDRESSES"] = ",".join(addresses)
    return out


def kept(task: "TaskFile", environ: "Mapping[str, str]") -> dict[str, str]:
    """What the scheduler set for this task on its node; the submitter's own, if it has some, is of
    another job.
    """
    left_out = () if task.ranked else _SLURM_STEP
    beginnings = tuple(name for name in task.keep_env if name.endswith("_"))
    return {
        k: v
        for k, v in environ.items()
        if (k in task.keep_env or (beginnings and k.startswith(beginnings))) and k not in left_out
    }


def slurm_variables(task: "TaskFile", index: int) -> dict[str, str]:
    """Slurm has started one shim per node; to a program each rank is a task of Slurm's."""
    each = {
        "PROCID": task.first_rank + index,
        "LOCALID": index,
        "NTASKS": task.world_size,
        "NPROCS": task.world_size,
    }
    each |= {"NTASKS_PER_NODE": task.processes, "NODEID": task.node_rank}
    return {f"SLURM_{name}": str(value) for name, value in each.items()}


def mpirun_variables(env: "Mapping[str, str]") -> dict[str, str]:
    """So that OpenMPI starts as many ranks as were asked for, in a container too. What the
    submitter has set stays.
    """
    values = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # OpenMPI 4
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # OpenMPI 5
    }
    if os.geteuid() == 0:
        values |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        values |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {name: value for name, value in values.items() if name not in env}


def replaced(env: "Mapping[str, str]", env_set: "Sequence[str]") -> list[str]:
    """What a person may have meant for this job, and did not say so: told, since ours stands in its
    place. Inside another job of ours it is that job's own.
    """
    return (
        []
        if "HEADWAY_UUID" in env
        else [name for name in YIELDING[:2] if name in env and name not in env_set]
    )


def merge(
    env: "Mapping[str, str]",
    ours: "Mapping[str, str]",
    env_set: "Sequence[str]",
    ranked: bool = True,
) -> dict[str, str]:
    """The submitter's environment with ours over it.

    With ranks of ours, what the environment says of another launcher is left out. Without, it
    stays as a plain start would have it, but for what a job of ours around this one has set.
    """
    foreign: tuple[str, ...] = _FOREIGN
    if not ranked:
        foreign = (*_FOREIGN, *LAUNCHER_NAMES) if "HEADWAY_UUID" in env else ()
    merged = {}
    for name, value in env.items():
        if name not in foreign or name in env_set:
            merged[name] = value
    merged.update(ours)
    for name in YIELDING:
        if name in env_set and name in env:
            merged[name] = env[name]
    return merged

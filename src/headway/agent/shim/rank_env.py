"""The environment of a rank: who it is, how many there are, where the others are. Called by
`rank.py`, before exec.

Names are those of torchrun (RANK … MASTER_PORT, ROLE_…), of OpenMPI (OMPI_COMM_WORLD_…, only where
there are several processes, and none of the variables by which an MPI library finds its launcher),
and ours. No SLURM_ variable is set: too many programs take one as a proof that `srun` started them;
on Slurm, `srun` sets them itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from headway.spool.layout import TaskFile

# a person's own --env wins over these
YIELDING = ("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
_FOREIGN = (
    "TORCHELASTIC_RUN_ID",
    "GROUP_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
)


def world_variables(
    task: "TaskFile", index: int, peers: "Sequence[Mapping[str, Any]]"
) -> dict[str, str]:
    """Everything but CUDA_VISIBLE_DEVICES. `peers`: every task of the job, in order of rank."""
    rank, size = task.first_rank + index, task.world_size
    values: dict[str, Any] = {
        "RANK": rank, "LOCAL_RANK": index, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": task.processes,
        "NODE_RANK": task.node_rank, "GROUP_RANK": task.node_rank,
        "ROLE_RANK": task.role_first_rank + index, "ROLE_WORLD_SIZE": max(task.role_processes, task.processes),
        "HEADWAY_ROLE": task.role or "worker", "HEADWAY_NODES": task.tasks,
    }  # fmt: skip
    if size > 1 and rank < size:
        values |= {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "OMPI_COMM_WORLD_LOCAL_RANK": index,
            "OMPI_COMM_WORLD_LOCAL_SIZE": task.processes, "OMPI_COMM_WORLD_NODE_RANK": task.node_rank,
        }  # fmt: skip
    return {**{name: str(value) for name, value in values.items()}, **_places(task, peers)}


def _places(task: "TaskFile", peers: "Sequence[Mapping[str, Any]]") -> dict[str, str]:
    """Where rank 0 may listen, and where every task is: `HEADWAY_HOSTS`, `HEADWAY_WORKER_HOSTS`,
    with ports too.
    """
    out = {"HEADWAY_TASKS": ",".join(str(peer.get("task")) for peer in peers)}
    groups: dict[str, list[Mapping[str, Any]]] = {"": list(peers)}
    for peer in peers:
        groups.setdefault(
            f"{str(peer.get('role') or 'worker').upper().replace('-', '_')}_", []
        ).append(peer)
        if peer.get("task") == task.task and peer.get("port"):
            out["HEADWAY_TASK_PORT"] = str(peer["port"])
    for group, members in groups.items():
        out[f"HEADWAY_{group}HOSTS"] = ",".join(str(peer.get("address")) for peer in members)
        out[f"HEADWAY_{group}ADDRESSES"] = ",".join(
            f"{peer.get('address')}:{peer.get('port') or ''}" for peer in members
        )
    first = next((peer for peer in peers if peer.get("master_port")), None)
    if first is not None:
        out |= {"MASTER_ADDR": str(first.get("address")), "MASTER_PORT": str(first["master_port"])}
    return out


def kept(task: "TaskFile", environ: "Mapping[str, str]") -> dict[str, str]:
    """What the scheduler set for this task on its node; the submitter's own, if it has some, is of
    another job.
    """
    beginnings = tuple(name for name in task.keep_env if name.endswith("_"))
    return {
        k: v
        for k, v in environ.items()
        if k in task.keep_env or (beginnings and k.startswith(beginnings))
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
    env: "Mapping[str, str]", ours: "Mapping[str, str]", env_set: "Sequence[str]"
) -> dict[str, str]:
    """The submitter's environment with ours over it. What it may say of a launcher that is not ours
    is left out, but for what the person set for this very job.
    """
    wins = [name for name in YIELDING if name in env_set and name in env]
    kept = {name: value for name, value in env.items() if name not in _FOREIGN or name in env_set}
    return {**kept, **ours, **{name: env[name] for name in wins}}

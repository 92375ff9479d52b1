"""The vocabulary of causes: class, headline, and what retrying unchanged is worth.

A table; rules name a cause, and everything that depends on the cause alone stands here once. What `hw why` says of
retrying and what the server does (`server/control/retry.py`) are read from the same rows.
"""

from dataclasses import dataclass
from typing import Final

from headway.model.limits import RETRIES_UNCOUNTED_MAX

AGAIN: Final = "again"
OTHER_NODE: Final = "other_node"
WHEN_ROOM: Final = "when_room"


@dataclass(frozen=True, slots=True)
class Policy:
    """What retrying is worth. `tries`: how often this cause may be tried again; None: as often as
    `retry.max` says.
    """

    tries: int | None
    # it takes one of `retry.max`, and so is done only where that was asked for
    counted: bool = True
    do: str = AGAIN
    # the count begins anew with an attempt that came further than all before it
    resets: bool = False

    def words(self) -> str:
        """The answer to "would a retry help?"."""
        if self.tries == 0:
            return "no: unchanged it would fail again"
        if self.tries is None:
            return "as often as --retry asks for"
        if self.do == WHEN_ROOM:
            return "when there is room"
        place = " on another node" if self.do == OTHER_NODE else ""
        if self.tries == 1:
            return f"once{place}, to see whether it comes again"
        if not self.counted and self.tries > 3:
            return f"yes{place}: the failure was not the job's"
        return f"yes, up to {self.tries} times with a pause" + (f",{place}" if place else "")


NEVER: Final = Policy(0)
ONCE: Final = Policy(1)
ONCE_ELSEWHERE: Final = Policy(1, do=OTHER_NODE)
THREE: Final = Policy(3, resets=True)
ALWAYS: Final = Policy(RETRIES_UNCOUNTED_MAX, counted=False)
ELSEWHERE: Final = Policy(RETRIES_UNCOUNTED_MAX, counted=False, do=OTHER_NODE)
ROOM: Final = Policy(RETRIES_UNCOUNTED_MAX, counted=False, do=WHEN_ROOM)
AS_ASKED: Final = Policy(None)


@dataclass(frozen=True, slots=True)
class Cause:
    cls: str  # "user" "system" "transient" "resource" "unknown"
    title: str  # completes "failed: …"
    retry: Policy
    advice: str = ""


CAUSES: dict[str, Cause] = {
    "host_oom": Cause(
        "resource", "ran out of memory", NEVER, "ask for more memory, or load less at once"
    ),
    "sigkill_unexplained": Cause(
        "system",
        "killed by SIGKILL; who sent it is not known",
        ONCE,
        "look for an out-of-memory kill: dmesg -T | grep -i 'killed process'",
    ),
    "shm_or_loader_worker": Cause(
        "resource",
        "a data loader worker died, most often for lack of shared memory",
        NEVER,
        "fewer loader workers, or more shared memory (docker run --shm-size=8g; df -h /dev/shm)",
    ),
    "gpu_oom": Cause(
        "resource",
        "GPU memory ran out",
        NEVER,
        "a smaller batch, gradient checkpointing, or more GPUs; nvidia-smi shows who else is on it",
    ),
    "import_error": Cause(
        "user", "a Python module is missing", NEVER, "install it in this job's environment"
    ),
    "shared_library": Cause(
        "user",
        "a shared library is missing or does not fit",
        NEVER,
        "install the library, or put its folder on LD_LIBRARY_PATH",
    ),
    "version_conflict": Cause(
        "user",
        "versions of packages do not fit together",
        NEVER,
        "install versions that belong together; pip check",
    ),
    "code_exception": Cause("user", "the program raised an exception", NEVER),
    "bad_argument": Cause(
        "user", "the command line was refused by the program", NEVER, "correct the arguments"
    ),
    "config_error": Cause("user", "the configuration was refused", NEVER, "correct the value"),
    "command_not_found": Cause(
        "user", "the command could not be started", NEVER, "correct the command or its PATH"
    ),
    "missing_file": Cause(
        "user", "a file is missing", ONCE, "check the path on the node of the job"
    ),
    "permission_or_credentials": Cause(
        "user", "access was refused", NEVER, "renew the login or correct the permissions"
    ),
    "bad_sample": Cause(
        "user", "a sample of the data could not be read", ONCE, "check or skip this sample"
    ),
    "disk_full": Cause(
        "resource", "the disk is full or the quota is used up", NEVER, "free space: df -h; quota -s"
    ),
    "storage_io": Cause("transient", "the storage failed", THREE),
    "remote_service": Cause(
        "transient",
        "a remote service could not be reached or refused",
        THREE,
        "retry later, or work offline (WANDB_MODE=offline, HF_HUB_OFFLINE=1)",
    ),
    "checkpoint_mismatch": Cause(
        "user",
        "the checkpoint does not fit the model",
        NEVER,
        "load the checkpoint with the configuration it was saved with",
    ),
    "checkpoint_truncated": Cause(
        "user",
        "the checkpoint file is damaged or was not written to its end",
        ONCE,
        "use the checkpoint before it",
    ),
    "nonfinite_loss": Cause(
        "user",
        "the loss is not finite",
        ONCE_ELSEWHERE,
        "a lower learning rate, gradient clipping, or fp32",
    ),
    "segfault_or_abort": Cause(
        "system", "crashed in native code", ONCE, "run with PYTHONFAULTHANDLER=1 to see where"
    ),
    "illegal_instruction": Cause(
        "system",
        "built for another CPU (illegal instruction)",
        NEVER,
        "install a build for this CPU, or choose another kind of node",
    ),
    "cuda_fault": Cause(
        "system",
        "a CUDA kernel failed",
        ONCE,
        "run with CUDA_LAUNCH_BLOCKING=1 to see where; try another node",
    ),
    "driver_mismatch": Cause(
        "system",
        "the GPU driver is missing, too old, or shows no device",
        Policy(1, counted=False, do=OTHER_NODE),
        "another node, or a build for this driver: nvidia-smi",
    ),
    "gpu_ecc": Cause(
        "system", "GPU memory error (ECC)", ELSEWHERE, "avoid this node and have it drained"
    ),
    "gpu_off_bus": Cause(
        "system", "a GPU was lost", ELSEWHERE, "avoid this node and have it drained"
    ),
    "nvlink": Cause("system", "NVLink error", ELSEWHERE, "avoid this node and have it drained"),
    "fabric_network": Cause(
        "system",
        "the network between the nodes failed",
        THREE,
        "if it comes again: avoid the node",
    ),
    "rendezvous": Cause(
        "transient",
        "the processes did not find each other",
        THREE,
        "another port (MASTER_PORT), and check the address of rank 0",
    ),
    "mpi_launcher": Cause("system", "the launcher of the processes failed", THREE),
    "collective_divergence": Cause(
        "user",
        "ranks called different collective operations",
        NEVER,
        "compare what the ranks do: hw stacks, TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "collective_cascade": Cause(
        "system",
        "another rank or node went away first; its log is needed",
        THREE,
        "look at the logs of the other ranks",
    ),
    "collective_stall": Cause(
        "transient",
        "a collective operation never completed",
        Policy(3, do=OTHER_NODE, resets=True),
        "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 records what every rank did",
    ),
    "dataloader_hang": Cause(
        "user", "the data loader stopped giving data", ONCE, "num_workers=0 shows where it waits"
    ),
    "hang": Cause("system", "hung", ONCE),
    "preempted": Cause(
        "transient",
        "its place was wanted for something else",
        ALWAYS,
        "resubmit from the checkpoint",
    ),
    "node_lost": Cause("system", "its node failed", ELSEWHERE, "resubmit from the checkpoint"),
    "walltime": Cause(
        "resource",
        "ran longer than its time limit",
        NEVER,
        "ask for more time, or resume from the checkpoint",
    ),
    "cancelled": Cause("user", "stopped from outside", NEVER),
    "image_pull": Cause(
        "user", "the container image could not be got", NEVER, "check name, tag and login"
    ),
    "unschedulable": Cause(
        "resource", "no node can take it", ROOM, "ask for less, or for another partition"
    ),
    "declared_transient": Cause("transient", "the program calls this failure transient", ALWAYS),
    "declared_conflict": Cause(
        "transient",
        "the program met a conflict, such as a port in use",
        Policy(3, counted=False, do=OTHER_NODE),
    ),
    "declared_permanent": Cause("user", "the program calls this failure permanent", NEVER),
    "agent_lost": Cause("system", "its agent was killed", NEVER),
    "agent_not_started": Cause("system", "its agent could not be started", NEVER),
    "launch_failed": Cause("system", "it could not be started", NEVER),
    "start_lost": Cause("transient", "the scheduler lost that it had started it", ALWAYS),
    # the program is done, and would be run for nothing: what is missing can be sent without it
    "output_not_sent": Cause("system", "what it wrote could not be brought home", NEVER),
    "unknown": Cause("unknown", "the cause is not known", AS_ASKED),
}


def cause_of(name: str) -> Cause:
    return CAUSES.get(name) or CAUSES["unknown"]

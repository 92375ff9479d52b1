"""What a container of a task is made of, as words for `create` and `run`: limits, folders, user,
network, GPUs.

Called by `engines/docker/engine.py`. Docker and Podman take the same words, but for GPUs and users.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from headway.engines.docker import folder_carrier
from headway.engines.docker.network import HOME_LABEL, Networks
from headway.engines.docker.program import mount
from headway.engines.docker.strays import TASK_LABEL
from headway.engines.protocol import Given, Plan, PlannedTask
from headway.home.paths import Paths, agent_socket_path
from headway.model.folder_names import variable
from headway.model.json_types import JsonMapping

# What an agent outside puts into the environment of a rank, beside the task's own: it goes by name.
_RANK = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK",
)  # fmt: skip
_OURS = (
    "JOB",
    "UUID",
    "ATTEMPT",
    "TASK",
    "ROLE",
    "OUTPUT_DIR",
    "NODES",
    "TASKS",
    "TASK_PORT",
    "HOSTS",
    "ADDRESSES",
)


class Recipe:
    def __init__(self, engine: str, options: JsonMapping, paths: Paths, networks: Networks) -> None:
        self._engine, self._options, self._paths, self._networks = engine, options, paths, networks

    def create(
        self,
        name: str,
        plan: Plan,
        task: PlannedTask,
        devices: Sequence[int],
        agent: Path,
        links: Sequence[Sequence[str]] = (),
    ) -> list[str]:
        """All but the program. `agent`: the file that it is in, which the container may read.
        `links`: what links in the working folder lead to (`engines/docker/folder_carrier.py`).
        """
        options = self._options
        output, folder = self._paths.output / plan.job, self._paths.spool / name
        words = [
            "--pull=never",
            "--label",
            f"{TASK_LABEL}={name}",
            "--label",
            f"headway.job={plan.job}",
        ]
        words += ["--label", f"{HOME_LABEL}={self._paths.home}"]
        words += ["--shm-size", str(options["shm"]), "--workdir", task.cwd]
        code = self._paths.home / "checkouts" / plan.uuid if plan.code is not None else task.cwd
        for path in dict.fromkeys((str(code), str(output), str(folder))):
            words += mount(path, path)
        for source, target, way in dict.fromkeys(tuple(link) for link in links):
            words += mount(
                source,
                target,
                read_only=way == folder_carrier.READ,
                follow=way == folder_carrier.FOLLOW,
            )
        here = str(agent_socket_path(self._paths.home).parent)
        words += [*mount(here, here), *mount(str(agent), str(agent), read_only=True)]
        for given in options["mounts"]:
            source, target, *mode = given.split(":")
            words += mount(source, target, read_only=bool(mode))
        words += [*_limits(plan, task), *self._networks.words(plan, task)]
        return [*words, *self._user(), *self._gpus(devices), *options["run_options"]]

    def run(
        self,
        name: str,
        plan: Plan,
        task: PlannedTask,
        devices: Sequence[int],
        agent: Path,
        given: Given,
        links: Sequence[Sequence[str]] = (),
    ) -> list[str]:
        """One rank for an agent outside. Variables go by name alone, so that no value stands on a
        command line.
        """
        roles = (
            {other.role.upper().replace("-", "_") for other in plan.tasks}
            if len(plan.tasks) > 1
            else set()
        )
        ours = [f"HEADWAY_{word}" for word in _OURS]
        ours += [
            f"HEADWAY_{role}_{word}" for role in sorted(roles) for word in ("HOSTS", "ADDRESSES")
        ]
        ours += [variable(folder.name) for folder in plan.folders]
        variables = [word for one in (*given.env, *_RANK, *ours) for word in ("--env", one)]
        # its own: the one that the agent made ends at the engine's program
        terminal = ["--tty"] if plan.pty else []
        words = [
            "run",
            "--rm",
            "--init",
            *terminal,
            *self.create(name, plan, task, devices, agent, links),
        ]
        return [*words, *variables, "--entrypoint", task.argv[0], str(task.image), *task.argv[1:]]

    def _user(self) -> list[str]:
        user = self._options["user"]
        if user == "image":
            return []
        if user != "submitter":
            return ["--user", user]
        keep = ["--userns=keep-id"] if self._engine == "podman" and os.getuid() else []
        # an account that the image does not know has no home
        home = ["--env", "HOME=/tmp"] if os.getuid() else []
        return [*keep, "--user", f"{os.getuid()}:{os.getgid()}", *self._groups(), *home]

    def _groups(self) -> list[str]:
        """Folders that a group shares are open to its members in a container, too. Podman without
        root knows only the groups of its own small world.
        """
        if self._engine == "podman" and os.getuid():
            return []
        others = sorted(set(os.getgroups()) - {os.getgid()})
        return [word for number in others for word in ("--group-add", str(number))]

    def _gpus(self, devices: Sequence[int]) -> list[str]:
        if not devices:
            return []
        if self._engine == "podman":
            return [word for gpu in devices for word in ("--device", f"nvidia.com/gpu={gpu}")]
        return ["--gpus", f'"device={",".join(map(str, devices))}"']


def _limits(plan: Plan, task: PlannedTask) -> list[str]:
    """Of this container: its role's own, or its share of what the job asks for."""
    cpus: float | None = task.cpus
    memory = task.memory_bytes
    roles_have_cpus = any(other.cpus for other in plan.tasks)
    if cpus is None and plan.cpus and not roles_have_cpus:
        cpus = plan.cpus / len(plan.tasks)
    roles_have_memory = any(other.memory_bytes for other in plan.tasks)
    if memory is None and plan.memory_bytes and not roles_have_memory:
        memory = plan.memory_bytes // len(plan.tasks)

    words = []
    if cpus:
        words += ["--cpus", f"{cpus:g}"]
    if memory:  # no swap on top: a job that needs more is told so at once
        words += ["--memory", str(memory), "--memory-swap", str(memory)]
    return words

"""The local engine: tasks as processes of this machine, each under a shim that outlives the server.

A task is its spool folder. `submit` makes the folder in one step and starts the shim; the shim
writes `shim.json` once and refuses to start where one lies, so whatever is killed and repeated in
between, a key is started once (F23). Of a job with several tasks all folders are made before the
first shim is started. The id of an attempt with one task is that task's folder; of one with several
it is the attempt's key, and `engines/spool/task_group.py` makes one answer of theirs. Made by
`registry.py`, called by `server/control/loop.py`, from threads.
"""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headway.engines.local import agent_start, slots, zygote
from headway.engines.plan import check_machine, folders_file, on_node, plan_of, task_file, tasks_of
from headway.engines.protocol import EngineId, Given, Node, Observation, Plan, PlannedTask, Waiting
from headway.engines.spool import task_folder as folders
from headway.engines.spool import task_group
from headway.home.launch import agent_argv
from headway.home.paths import Paths, socket_path
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.wire import file_lock, identity
from headway.wire.batch import TaskKey

ADDRESS = "127.0.0.1"  # all tasks are on this machine
WARM_AFTER_S = 5.0  # a second start within this time makes a warm launcher
START_TIMEOUT_S = 10.0  # a shim that has not said that it runs by then never will
RUNNING = Observation("running", "shim alive", {"started": True})

Argv = Callable[..., list[str]]  # settings.launch.agent_argv, or a test's own shim


class LocalEngine:
    name = "local"
    queues = False

    def __init__(
        self,
        cluster: str,
        paths: Paths,
        get: Callable[[str], Any],
        *,
        argv: Argv = agent_argv,
        gpus: slots.GpuCount | None = None,
    ) -> None:
        self.cluster, self.paths, self._argv = cluster, paths, argv
        self._get = get
        self._gpus = gpus or slots.GpuCount(get("gpus"))
        self._lock = threading.Lock()
        self._children: dict[str, zygote.Child] = {}  # shims, until they are reaped
        self._salvagers: list[subprocess.Popen[bytes]] = []
        self._launcher: zygote.Launcher | None = None
        self._starts_s = -WARM_AFTER_S  # when a shim was started last
        self._held: dict[str, tuple[int, ...]] = {}  # GPUs of tasks that may still run
        self._shims: dict[str, identity.Identity] = {}  # of those tasks, once they have been seen
        self._seen_s: dict[str, float] = {}  # first sight of a folder whose shim has not spoken
        self._groups = task_group.Groups(paths.spool)
        folders.sweep(paths.spool)

    # -- planning

    def capacity(self) -> list[Node]:
        count, source = self._gpus.get()
        return [Node(socket.gethostname(), slots.cpu_count(), slots.memory_bytes(), count, source)]

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec, node = job.spec, self.capacity()[0]
        # `spec.gpus` is fixed at submit, should a driver fail later
        tasks = tasks_of(spec, has_gpus=node.gpus > 0)
        cpus, memory_bytes = check_machine(spec, tasks, node)
        placed = on_node(tasks, node.name)
        return plan_of(
            self.name, self.cluster, job, attempt, placed, cpus=cpus, memory_bytes=memory_bytes
        )

    # -- starting

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        if key != f"{plan.uuid}-{plan.attempt}":
            raise UsageError(f"the key {key!r} is not this attempt's")
        names = [str(plan.task_key(task.name)) for task in plan.tasks]
        try:
            with self._lock:
                self._make_all(names, plan, given)
                for name in names:
                    folder = self._folder(name)
                    if (
                        folder.is_dir()
                        and not (folder / "shim.json").exists()
                        and not self._has_child(name)
                    ):
                        self._children[name] = self._start_shim(folder)
        except OSError as error:
            raise UnreachableError(
                f"the task could not be started: {error}", "it is tried again"
            ) from error
        if len(names) == 1:
            return EngineId(names[0])
        self._groups.keep(key, names)
        return EngineId(key)

    def _make_all(self, names: list[str], plan: Plan, given: Given) -> None:
        """Every folder before the first start. So where one was started, the others were made: one
        of these that is not there has ended and was sent, and must not begin again.
        """
        if any((self._folder(name) / "shim.json").exists() for name in names):
            return
        missing = [
            task
            for name, task in zip(names, plan.tasks, strict=True)
            if not self._is_made(self._folder(name))
        ]
        for task in missing:
            if not os.path.isdir(task.cwd):
                raise RefusedError(
                    f"the folder {task.cwd} does not exist", "make it, or submit from another one"
                )
        asked = sum(task.gpus for task in missing)
        gpus = slots.pick(self._gpus.get()[0], self._taken(), asked)
        if gpus is None:
            raise UnreachableError(f"no {asked} GPUs are free yet", "it is tried again")
        output = self.paths.output / plan.job
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        for task in missing:
            mine, gpus = gpus[: task.gpus], gpus[task.gpus :]
            folder = self._folder(str(plan.task_key(task.name)))
            folders.make(
                folder,
                self._task_file(plan, task, given, mine if task.gpus else None, output),
                given.env,
            )
            self._held[folder.name] = tuple(mine)

    def _is_made(self, folder: Path) -> bool:
        if folders.load_json(folder / "task.json") is not None:
            return True
        if folder.is_dir() and not (folder / "shim.json").exists():
            folders.remove(folder)  # a power cut took its files before anything was started
        return folder.is_dir()

    def _task_file(
        self, plan: Plan, task: PlannedTask, given: Given, gpus: list[int] | None, output: Path
    ) -> JsonObject:
        return task_file(
            plan, task, given, home=str(self.paths.home), socket=str(socket_path(self.paths.home)),
            output_dir=str(output), spool_bytes_max=self._get("spool_bytes_max"), address=ADDRESS, gpus=gpus,
            memory_limit_bytes=task.memory_bytes,
            carried=folders_file(plan, given, self.paths.home / "folders", self._get),
        )  # fmt: skip

    def _start_shim(self, folder: Path) -> zygote.Child:
        """Forked by the warm launcher where there is one. The first start is cold, so that a job
        alone waits for nobody; where a second one follows soon, a launcher is made for those that
        come.
        """
        now_s, before_s = time.monotonic(), self._starts_s
        self._starts_s = now_s
        if self._launcher is not None and self._launcher.ended:
            self._launcher = None
        if self._launcher is not None:
            child = self._launcher.start(folder)
            if child is not None:
                return child
        elif self._argv is agent_argv and now_s - before_s < WARM_AFTER_S:
            self._launcher = zygote.Launcher(
                agent_argv("warm", self.paths.home), agent_start.environment(self.paths.home)
            )
        return self._spawn("shim", folder)

    def _spawn(self, verb: str, folder: Path, *options: str) -> subprocess.Popen[bytes]:
        return agent_start.spawn(
            self._argv(verb, folder, *options), folder, agent_start.environment(self.paths.home)
        )

    def find(self, key: str) -> EngineId | None:
        return self._groups.find(key)

    # -- looking

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        self._reap()
        return {engine_id: self._look_at(engine_id) for engine_id in ids}

    def _look_at(self, engine_id: str) -> Observation:
        if not task_group.KEY.match(engine_id):
            return self._look(engine_id)
        names = self._groups.members(engine_id)
        if not any(self._folder(name).is_dir() for name in names):
            self._groups.forget(engine_id)
            return Observation("gone", "no spool", {"started": None})
        return task_group.join(
            {name.removeprefix(f"{engine_id}-"): self._look(name) for name in names}
        )

    def _look(self, name: str) -> Observation:
        folder = self._folder(name)
        known = self._shims.get(name)
        if known is not None and (folder / "shim.json").exists() and identity.is_alive(known):
            return RUNNING
        task = folders.load_json(folder / "task.json")
        if task is None and not (folder / "shim.json").exists():
            return Observation("gone", "no spool", {"started": None})
        if task is not None and name not in self._held and isinstance(task.get("gpus"), list):
            self._held[name] = tuple(task["gpus"])
        attached = bool(task and task.get("attached"))
        if not attached and not (folder / "shim.json").exists():
            seen = self._before_start(name)
            # else it began and ended in between
            if seen.state != "gone" or not (folder / "shim.json").exists():
                return seen
        shim = None if attached else identity.Identity.load(folders.load_json(folder / "shim.json"))
        if shim is not None and name in self._held:
            self._shims[name] = shim
        if shim is not None and identity.is_alive(shim):
            return RUNNING
        return self._without_shim(folder, attached)

    def _before_start(self, name: str) -> Observation:
        """The folder is there and the shim has not spoken. Its lock is not tried: that could get in
        its way.
        """
        if self._is_starting(name):
            return Observation("starting", "starting", {"started": None})
        child = self._children.get(name)
        code = None if child is None else child.returncode
        why = (
            "the agent did not start"
            if code is None
            else f"the agent ended with {code} before it had started"
        )
        if reason := folders.last_words(self._folder(name)):
            why = f"{why}: {reason}"
        return Observation("gone", why, {"started": False})

    def _has_child(self, name: str) -> bool:
        child = self._children.get(name)
        return child is not None and child.poll() is None

    def _is_starting(self, name: str) -> bool:
        if name in self._children:
            return self._has_child(name)
        first = self._seen_s.setdefault(name, time.monotonic())
        return time.monotonic() - first < START_TIMEOUT_S

    def _without_shim(self, folder: Path, attached: bool) -> Observation:
        ended = folders.has_end(folder)
        if file_lock.is_held(folder / "shipper.lock"):
            word = "ended, still sending" if ended else "shipper alive"
            return Observation("ended" if ended else "running", word, {"started": True})
        left = folders.unsent(folder)
        if ended and not left:
            return Observation("ended", "ended", {"started": True, "drained": True})
        word = f"ended, {len(left)} streams unsent" if ended else "agent gone"
        return Observation("gone", word, {"started": True, "salvage": True, "attached": attached})

    def _taken(self) -> list[int]:
        """GPUs of tasks whose processes may still run: also those whose agent was killed (F30)."""
        for name in list(self._held):
            if not self._may_run(name):
                del self._held[name]
                self._shims.pop(name, None)
        in_containers = (
            folders.gpus_held(self.paths.spool, in_containers=True) if self._gpus.get()[0] else []
        )
        return [*in_containers, *(gpu for gpus in list(self._held.values()) for gpu in gpus)]

    def _may_run(self, name: str) -> bool:
        seen = self._look(name)
        if (self._folder(name)).is_dir():
            return seen.state != "ended" and seen.detail.get("started") is not False
        # sent, or removed under a running task
        return name in self._shims and identity.is_alive(self._shims[name])

    def _reap(self) -> None:
        """Forget those that have ended; not one that never started, whose end is told while its
        folder lies there.
        """
        for name, child in list(self._children.items()):
            if child.poll() is None:
                continue
            folder = os.path.join(self.paths.spool, name)
            if os.path.exists(os.path.join(folder, "shim.json")) or not os.path.exists(folder):
                self._children.pop(name, None)
        self._salvagers = [child for child in self._salvagers if child.poll() is None]

    def explain(self, engine_id: EngineId) -> Waiting:
        """The queue here is the server's; the engine knows only what the machine has."""
        seen = self.observe([engine_id])[engine_id]
        return Waiting(seen.state_word, free=tuple(self.capacity()))

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        """A shell in the task's folder with its environment, for a person of this account on this
        machine.
        """
        folder = self._folder(str(task))
        return (
            self._argv("shell", folder)
            if folders.load_json(folder / "task.json") is not None
            else None
        )

    # -- ending

    def cancel(self, engine_id: EngineId) -> bool:
        # all of them, not up to the first
        asked = [self._cancel(name) for name in self._groups.names(engine_id)]
        return any(asked)

    def _cancel(self, name: str) -> bool:
        shim = identity.Identity.load(folders.load_json(self._folder(name) / "shim.json"))
        return shim is not None and identity.send(shim, signal.SIGTERM)

    def salvage(self, engine_id: EngineId) -> bool:
        left = [
            name for name in self._groups.names(engine_id) if self._look(name).detail.get("salvage")
        ]
        try:
            self._salvagers += [
                self._spawn("shipper", self._folder(name), "--adopt") for name in left
            ]
        except OSError as error:
            raise UnreachableError(
                f"no shipper could be started for {engine_id}: {error}"
            ) from error
        return bool(left)

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        self._reap()  # asked for now and then, also when no job is open
        try:
            found = [
                match
                for name in os.listdir(self.paths.spool)
                if (match := task_group.ID.match(name))
            ]
        except FileNotFoundError:
            return []
        return [(EngineId(m[0]), TaskKey(m["uuid"], int(m["attempt"]), m["task"])) for m in found]

    def discard(self, engine_id: EngineId) -> None:
        for name in self._groups.names(engine_id):
            seen = self._look(name)
            # else a shipper is still at work there
            if seen.state == "gone" or seen.detail.get("drained"):
                folders.remove(self._folder(name))

    def close(self) -> None:
        """Let go of the shims: they go on without us."""
        for child in [*self._children.values(), *self._salvagers]:
            if child.poll() is None:
                child.returncode = 0  # it is meant to outlive us, so its handle shall not complain
        self._children.clear()
        self._salvagers.clear()
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    def _folder(self, name: str) -> Path:
        if not task_group.ID.match(name):
            raise UsageError(f"{name[:80]!r} is not the id of a task here")
        return self.paths.spool / name

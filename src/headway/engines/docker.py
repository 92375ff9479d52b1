"""Docker and Podman on this machine: a task is a container, and its spool a folder that both sides see.

The agent runs inside the container, from one file (`settings/zipapp.py`), so output goes straight to the spool and
nobody here needs to live. An image without Python 3.11 has the agent outside: an ordinary shim on this machine, whose
processes are `docker run`. A container has the name of its task, so a key is started once, whatever was killed in
between (F23). Called by `server/loop.py`, from threads.
"""

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.code import checkout
from headway.engines import folder as folders
from headway.engines import process, slots
from headway.engines.container import Container, Failed, Program, mount
from headway.engines.protocol import EngineId, Given, Node, Observation, Plan, PlannedTask, Waiting
from headway.engines.tasks import check_fits, on_node, plan_of, task_file, tasks_of
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.model.job import Job
from headway.settings import zipapp
from headway.settings.home import Paths, agent_socket_path, socket_path
from headway.settings.launch import agent_argv
from headway.wire.batch import TaskKey

ADDRESS = "127.0.0.1"  # a job is one container
START_TIMEOUT_S = 20.0  # a container whose agent has not said that it runs by then is started again
STATES_S = 0.5  # what the engine said is believed for so long: facts may come a hundred times a second
CAPACITY_S = 5.0
LABEL = "headway.task"
_ID = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<attempt>[0-9]{1,9})-(?P<task>[a-z][a-z0-9-]{0,40})\Z"
)
_VERSION = "import sys; print(*sys.version_info[:2])"
_KEEP_ENV = ("DOCKER_HOST", "DOCKER_CONTEXT", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER",
             "XDG_RUNTIME_DIR")  # fmt: skip

Argv = Callable[..., list[str]]  # (verb, task folder) -> what runs behind the Python of the image


class ContainerEngine:
    """`name` is docker or podman: they take the same words, but for GPUs and users."""

    queues = False

    def __init__(
        self,
        cluster: str,
        paths: Paths,
        get: Callable[[str], Any],
        definition: Mapping[str, Any],
        *,
        argv: Argv | None = None,
    ) -> None:
        self.name = str(definition["engine"])
        self.cluster, self.paths, self._get, self._options = cluster, paths, get, definition
        self.program = Program(definition["command"])
        self._argv = argv or self._agent_argv
        self._gpus = slots.GpuCount(definition["gpus"] if definition["gpus"] is not None else get("gpus"))
        self._lock = threading.Lock()
        self._states: dict[str, tuple[float, Container | None]] = {}
        self._capacity: tuple[float, Node] | None = None
        self._pythons: dict[str, str | None] = {}  # image id -> its Python, None where it has none for us
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # agents outside, and shippers for what was left
        self._seen_s: dict[str, float] = {}  # first sight of a task whose agent has not spoken

    # -- planning -------------------------------------------------------------------------------------

    def capacity(self) -> list[Node]:
        """What this machine has; asked through the engine, so that one that does not answer has none."""
        known = self._capacity
        if known is None or time.monotonic() - known[0] > CAPACITY_S:
            form = "{{.NCPU}} {{.MemTotal}}" if self.name == "docker" else "{{.Host.CPUs}} {{.Host.MemTotal}}"
            try:
                cpus, memory = (int(word) for word in self.program.run("info", "--format", form).split())
            except (ValueError, Failed) as error:
                raise UnreachableError(f"{self.program.words[0]} info cannot be understood: {error}") from None
            count, source = self._gpus.get()
            node = Node(socket.gethostname(), min(cpus, slots.cpu_count()), memory, count, source)
            known = self._capacity = (time.monotonic(), node)
        return [known[1]]

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec, node = job.spec, self.capacity()[0]
        tasks = tasks_of(spec, has_gpus=node.gpus > 0)
        if len(tasks) > 1:
            raise RefusedError(f"cluster {self.cluster}: a job has one container here, so no roles and one node")
        image = tasks[0].image or spec.image or self._options["image"]
        if not image:
            raise RefusedError(
                f"cluster {self.cluster} runs containers, and the job names no image",
                "give one: --image NAME, or `image:` of the cluster in headway.yaml",
            )
        image_id = self.program.image_id(image)
        if self._options["agent"] == "inside":
            self._check_python(image, image_id)
        check_fits("GPUs", tasks[0].gpus, node.gpus, f"use -n {node.gpus} or fewer")
        check_fits("CPUs", spec.cpus, node.cpus, "ask for fewer")
        check_fits("memory", spec.memory_bytes, node.memory_bytes, "ask for less")
        return plan_of(
            self.name, self.cluster, job, attempt, on_node(tasks, node.name), image=image, rlimits={},
            cpus=tasks[0].cpus if spec.roles else spec.cpus,
            memory_bytes=tasks[0].memory_bytes if spec.roles else spec.memory_bytes,
        )  # fmt: skip

    def _check_python(self, image: str, image_id: str) -> None:
        if self._python(image_id) is None:
            raise RefusedError(
                f"the image {image} has no Python 3.11 or newer, which `agent: inside` needs",
                "name it with `python:`, or leave `agent:` out: the agent then runs beside the container",
            )

    def _python(self, image_id: str) -> str | None:
        """The Python of an image that can run the agent. Asked once per image, by running it."""
        if image_id not in self._pythons:
            found = None
            for name in [self._options["python"]] if self._options["python"] else ["python3", "python"]:
                try:
                    words = ("run", "--rm", "--pull=never", "--network=none", *self._options["run_options"])
                    told = self.program.run(*words, "--entrypoint", name, image_id, "-I", "-S", "-c", _VERSION)
                    version = tuple(int(word) for word in told.split())
                except (Failed, ValueError):
                    continue
                if version >= zipapp.PYTHON_MIN:
                    found = name
                    break
            self._pythons[image_id] = found
        return self._pythons[image_id]

    # -- starting -------------------------------------------------------------------------------------

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        task = plan.tasks[0]
        name = str(plan.task_key(task.name))
        if not name.startswith(f"{key}-"):
            raise UsageError(f"the key {key!r} is not this attempt's")
        folder = self._folder(name)
        python = self._where(plan)
        try:
            if plan.code is not None:  # laid out here, so that the container has no business with the store of code
                root = checkout.prepare(str(self.paths.home), plan.code, plan.uuid)
                task = replace(task, cwd=os.path.normpath(os.path.join(root, plan.code_cwd)))
            with self._lock:
                if not self._is_there(folder):
                    folders.remove(folder)  # empty, or what a power cut left of it
                    self._make(folder, plan, task, given, inside=python is not None)
                if not (folder / "shim.json").exists():
                    self._begin(name, plan, task, python)
        except OSError as error:
            raise UnreachableError(f"the task could not be started: {error}", "it is tried again") from error
        except Failed as error:
            raise RefusedError(f"{self.name} does not start it: {error}") from None
        return EngineId(name)

    def _where(self, plan: Plan) -> str | None:
        """The Python that runs the agent inside; None: the agent runs outside."""
        return None if self._options["agent"] == "outside" else self._python(self.program.image_id(str(plan.image)))

    def _make(self, folder: Path, plan: Plan, task: PlannedTask, given: Given, inside: bool) -> None:
        if not os.path.isdir(task.cwd):
            raise RefusedError(f"the folder {task.cwd} does not exist", "make it, or submit from another one")
        if task.cwd == "/":
            raise RefusedError("the folder / cannot be given to a container", "submit from the folder of your code")
        gpus = slots.pick(self._gpus.get()[0], self._taken(), task.gpus)
        if gpus is None:
            raise UnreachableError(f"no {task.gpus} GPUs are free yet", "it is tried again")
        output = self.paths.output / plan.job
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        values = self._task_file(plan, task, given, gpus, output)
        env = dict(given.env)
        if not inside:
            values |= {"argv": self._run_words(folder.name, plan, task, gpus, given), "inherit_env": False, "cwd": "/"}
            values |= {"socket": str(socket_path(self.paths.home)), "gpus": None}
            env = {**{name: os.environ[name] for name in _KEEP_ENV if name in os.environ}, **env}
        folders.make(folder, values, env)

    def _task_file(self, plan: Plan, task: PlannedTask, given: Given, gpus: list[int], output: Path) -> dict[str, Any]:
        """`task.json`. The cards that a container gets are numbered from 0 in it; `devices` are their real numbers.
        The engine lays the code out before the container is made, so the agent has none to lay out."""
        return task_file(
            plan, task, given, home=str(self.paths.home), socket=str(agent_socket_path(self.paths.home)),
            output_dir=str(output), spool_bytes_max=self._get("spool_bytes_max"), address=ADDRESS,
            gpus=list(range(len(gpus))) if task.gpus else None, devices=gpus, inherit_env=True, container=self.name,
            code=None, code_cwd="",
        )  # fmt: skip

    def _taken(self) -> list[int]:
        """GPUs of every task with a spool here that has not ended, also of those that are not in containers."""
        taken: list[int] = []
        for path in self.paths.spool.glob("*-*/task.json"):
            task = folders.load_json(path) or {}
            held = task.get("devices", task.get("gpus"))
            if isinstance(held, list) and held and not folders.has_end(path.parent):
                taken += held
        return taken

    def _begin(self, name: str, plan: Plan, task: PlannedTask, python: str | None) -> None:
        """Make the container or find it made; a container that ended before its agent had begun makes room."""
        folder = self._folder(name)
        self._states.pop(name, None)
        self._seen_s[name] = time.monotonic()
        if python is None:
            if name not in self._children or self._children[name].poll() is not None:
                self._children[name] = self._spawn("shim", folder)
            return
        state = self.program.states([name]).get(name)
        if state is not None and not state.runs and state.status not in ("created", "configured", "initialized"):
            self.program.run("rm", name)
            state = None
        if state is None:
            devices = (folders.load_json(folder / "task.json") or {}).get("devices") or []
            words = ["create", "--name", name, *self._create_words(name, plan, task, devices)]
            words += ["--entrypoint", python, str(plan.image), *self._argv("shim", folder)]
            try:
                self.program.run(*words)
            except Failed as error:
                if "already in use" not in str(error):  # another thread, or a submit whose answer was lost
                    raise
        self.program.run("start", name)

    def _agent_argv(self, verb: str, folder: Path) -> list[str]:
        return ["-I", "-S", str(self._zip()), verb, str(folder)]

    def _zip(self) -> Path:
        return zipapp.cached(self.paths.home / "agent")

    def _create_words(self, name: str, plan: Plan, task: PlannedTask, devices: Sequence[int]) -> list[str]:
        """Limits, folders, user and network: all but the program."""
        options = self._options
        output, folder = self.paths.output / plan.job, self._folder(name)
        words = ["--pull=never", "--label", f"{LABEL}={name}", "--label", f"headway.job={plan.job}"]
        words += ["--shm-size", str(options["shm"]), "--workdir", task.cwd]
        code = self.paths.home / "checkouts" / plan.uuid if plan.code is not None else task.cwd
        for path in dict.fromkeys((str(code), str(output), str(folder))):
            words += mount(path, path)
        here = str(agent_socket_path(self.paths.home).parent)
        words += [*mount(here, here), *mount(str(self._zip()), str(self._zip()), read_only=True)]
        for given in options["mounts"]:
            source, target, *mode = given.split(":")
            words += mount(source, target, read_only=bool(mode))
        words += ["--cpus", str(plan.cpus)] if plan.cpus else []
        if plan.memory_bytes:  # no swap on top: a job that needs more is told so at once
            words += ["--memory", str(plan.memory_bytes), "--memory-swap", str(plan.memory_bytes)]
        words += ["--network", options["network"]] if options["network"] else []
        return [*words, *self._user_words(), *self._gpu_words(devices), *options["run_options"]]

    def _user_words(self) -> list[str]:
        user = self._options["user"]
        if user == "image":
            return []
        if user != "submitter":
            return ["--user", user]
        keep = ["--userns=keep-id"] if self.name == "podman" and os.getuid() else []
        home = ["--env", "HOME=/tmp"] if os.getuid() else []  # an account that the image does not know has no home
        return [*keep, "--user", f"{os.getuid()}:{os.getgid()}", *home]

    def _gpu_words(self, devices: Sequence[int]) -> list[str]:
        if not devices:
            return []
        if self.name == "podman":
            return [word for gpu in devices for word in ("--device", f"nvidia.com/gpu={gpu}")]
        return ["--gpus", f'"device={",".join(map(str, devices))}"']

    def _run_words(self, name: str, plan: Plan, task: PlannedTask, devices: Sequence[int], given: Given) -> list[str]:
        """One rank for an agent outside. Variables go by name alone, so that no value stands on a command line."""
        ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")
        ours = tuple(f"HEADWAY_{word}" for word in ("JOB", "UUID", "ATTEMPT", "TASK", "OUTPUT_DIR"))
        variables = [word for one in (*given.env, *ranks, *ours) for word in ("--env", one)]
        words = [*self.program.words, "run", "--rm", "--init", *self._create_words(name, plan, task, devices)]
        return [*words, *variables, "--entrypoint", task.argv[0], str(plan.image), *task.argv[1:]]

    def _spawn(self, verb: str, folder: Path, *options: str) -> "subprocess.Popen[bytes]":
        """An agent on this machine: its own session, nothing of the server's descriptors or folder."""
        env = {name: os.environ[name] for name in _KEEP_ENV if name in os.environ}
        env["HEADWAY_HOME"] = str(self.paths.home)
        log = os.open(folder / "agent", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                agent_argv(verb, folder, *options), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                cwd="/", env=env, start_new_session=True, close_fds=True,
            )  # fmt: skip
        finally:
            os.close(log)

    def find(self, key: str) -> EngineId | None:
        found = [path for path in self.paths.spool.glob(f"{key}-*") if _ID.match(path.name) and self._is_there(path)]
        return EngineId(found[0].name) if found else None

    def _is_there(self, folder: Path) -> bool:
        """Whether it holds a task. The folder itself stays when an agent inside has removed what was in it: it is
        mounted there."""
        return (folder / "shim.json").exists() or folders.load_json(folder / "task.json") is not None

    # -- looking --------------------------------------------------------------------------------------

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        states = self._look_at([name for name in ids if not self._is_outside(name)])
        found = {}
        for name in ids:
            if name in states:
                found[name] = self._inside(name, states[name])
            elif self._is_outside(name):
                found[name] = self._outside(name)
        self._tidy([name for name, seen in found.items() if seen.detail.get("drained") and states.get(name)])
        return found

    def _is_outside(self, name: str) -> bool:
        task = folders.load_json(self._folder(name) / "task.json")
        return task is not None and not task.get("inherit_env")

    def _look_at(self, names: Sequence[str]) -> dict[str, Container | None]:
        now_s = time.monotonic()
        old = [name for name in names if name not in self._states or now_s - self._states[name][0] > STATES_S]
        if old:
            for name, state in self.program.states(old).items():
                self._states[name] = (now_s, state)
        return {name: self._states[name][1] for name in names if name in self._states}

    def _inside(self, name: str, state: Container | None) -> Observation:
        folder = self._folder(name)
        begun, there = (folder / "shim.json").exists(), self._is_there(folder)
        if state is not None and state.runs:
            if begun or not there:
                return Observation("running", state.word, {"started": True})
            return Observation("starting", state.word, {"started": None})
        if not there:  # everything was sent, and the agent has removed it
            return Observation("gone", state.word if state else "no container", {"started": None, "drained": True})
        if not begun:
            return self._before_start(name, state)
        return self._after(folder, state.word if state else "no container")

    def _before_start(self, name: str, state: Container | None) -> Observation:
        waits = time.monotonic() - self._seen_s.setdefault(name, time.monotonic()) < START_TIMEOUT_S
        if waits and (state is None or state.status in ("created", "configured", "initialized")):
            return Observation("starting", state.word if state else "no container yet", {"started": None})
        word = state.word if state else "no container"
        return Observation("gone", f"{word}{self._last_words(name) if state else ''}", {"started": False})

    def _last_words(self, name: str) -> str:
        """What a container that could not start the agent said."""
        try:
            done = self.program.call(["logs", "--tail", "2", name])
        except UnreachableError:
            return ""
        text = " ".join(f"{done.stdout} {done.stderr}".split())[:300]
        return f": {text}" if text else ""

    def _outside(self, name: str) -> Observation:
        folder = self._folder(name)
        if not (folder / "shim.json").exists():
            child = self._children.get(name)
            alive = child is not None and child.poll() is None
            if alive or time.monotonic() - self._seen_s.setdefault(name, time.monotonic()) < START_TIMEOUT_S:
                return Observation("starting", "agent starting", {"started": None})
            return Observation("gone", "the agent did not start", {"started": False})
        shim = process.Identity.load(folders.load_json(folder / "shim.json"))
        if shim is not None and process.is_alive(shim):
            return Observation("running", "agent alive", {"started": True})
        return self._after(folder, "agent gone")

    def _after(self, folder: Path, word: str) -> Observation:
        """It runs no more: what is left of it is in the spool."""
        ended = folders.has_end(folder)
        if folders.lock_is_held(folder / "shipper.lock"):
            return Observation("ended" if ended else "running", f"{word}, still sending", {"started": True})
        left = folders.unsent(folder)
        if ended and not left:
            return Observation("ended", word, {"started": True, "drained": True})
        return Observation("gone", word, {"started": True, "salvage": True})

    def _tidy(self, names: Sequence[str]) -> None:
        """Remove containers of which everything is known and sent."""
        for name in names:
            self._states.pop(name, None)
            if not self._is_there(self._folder(name)):
                folders.remove(self._folder(name))
        try:
            if names:
                self.program.run("rm", *names)
        except (Failed, UnreachableError):
            return  # it runs again, or is gone already; `tasks` looks for it later
        finally:
            for name in [name for name, child in self._children.items() if child.poll() is not None]:
                del self._children[name]

    def explain(self, engine_id: EngineId) -> Waiting:
        """The queue here is the server's; the engine knows only what the machine has."""
        seen = self.observe([engine_id])[engine_id]
        return Waiting(seen.state_word, free=tuple(self.capacity()))

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        return None if self._is_outside(str(task)) else [*self.program.words, "exec", "-it", str(task), "sh"]

    # -- ending ---------------------------------------------------------------------------------------

    def cancel(self, engine_id: EngineId) -> bool:
        folder = self._folder(engine_id)
        if self._is_outside(engine_id):
            shim = process.Identity.load(folders.load_json(folder / "shim.json"))
            return shim is not None and process.send(shim, 15)
        if not (folder / "shim.json").exists() or folders.has_end(folder):
            return False
        self._states.pop(engine_id, None)
        try:
            self.program.run("kill", "--signal", "TERM", engine_id)
        except Failed:
            return False  # it runs no more, or not yet
        return True

    def salvage(self, engine_id: EngineId) -> bool:
        self._states.pop(engine_id, None)
        if not self.observe([engine_id]).get(engine_id, Observation("unknown", "")).detail.get("salvage"):
            return False
        folder = self._folder(engine_id)
        try:
            self._children[f"{engine_id} salvage"] = self._spawn("shipper", folder, "--adopt")
        except OSError as error:
            raise UnreachableError(f"no shipper could be started for {engine_id}: {error}") from error
        return True

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        found = [match for path in self.paths.spool.glob("*-*/task.json") if (match := _ID.match(path.parent.name))]
        ours = [m for m in found if (folders.load_json(self._folder(m[0]) / "task.json") or {}).get("container")]
        return [(EngineId(m[0]), TaskKey(m["uuid"], int(m["attempt"]), m["task"])) for m in ours]

    def discard(self, engine_id: EngineId) -> None:
        self._states.pop(engine_id, None)
        seen = self.observe([engine_id]).get(engine_id)
        if seen is None or not (seen.state == "gone" or seen.detail.get("drained")):
            return  # something is still at work there
        self._tidy([engine_id] if not self._is_outside(engine_id) else [])
        folders.remove(self._folder(engine_id))

    def close(self) -> None:
        """The server ends; containers go on, and so do agents outside."""
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # it is meant to outlive us, so its handle shall not complain
        self._children.clear()

    def _folder(self, name: str) -> Path:
        if not _ID.match(name):
            raise UsageError(f"{name[:80]!r} is not the id of a task here")
        return self.paths.spool / name

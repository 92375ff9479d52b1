"""Docker and Podman on this machine: a task is a container, and its spool a folder that both sides
see.

The agent runs inside the container, from one file (`home/zipapp.py`), so output goes straight to
the spool and nobody here needs to live. An image without Python 3.11 has the agent outside: an
ordinary shim on this machine, whose processes are `docker run`. A container has the name of its
task, so a key is started once, whatever was killed in between (F23). Of a job with several tasks
all folders are made before the first container, and a network for them
(`engines/docker/network.py`). Made by `registry.py`, called by `server/control/loop.py`, from
threads.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.code import checkout
from headway.engines.docker import folder_carrier
from headway.engines.docker.create_args import Recipe
from headway.engines.docker.network import HOME_LABEL, Networks
from headway.engines.docker.program import Container, Failed, Program
from headway.engines.docker.strays import Strays
from headway.engines.local import agent_start, slots
from headway.engines.plan import check_machine, folders_file, on_node, plan_of, task_file, tasks_of
from headway.engines.protocol import (
    UNSEEN,
    EngineId,
    Given,
    Node,
    Observation,
    Plan,
    PlannedTask,
    Waiting,
)
from headway.engines.spool import task_folder as folders
from headway.engines.spool import task_group
from headway.home import zipapp
from headway.home.launch import agent_argv
from headway.home.paths import Paths, agent_socket_path, socket_path
from headway.model import folder_names
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.model.job import Job, JobSpec
from headway.model.json_types import JsonMapping, JsonObject
from headway.wire import file_lock, identity
from headway.wire.batch import TaskKey

START_TIMEOUT_S = 20.0  # a container whose agent has not said that it runs by then is started again
# what the engine said is believed for so long: facts may come a hundred times a second
STATES_S = 0.5
CAPACITY_S = 5.0  # and what the machine and its images are
STARTS_AT_ONCE = 4  # containers of one job
DEATHS_MAX = 1_000  # ends of containers that are remembered for jobs which still wait for them
_VERSION = "import sys; print(*sys.version_info[:2])"
_OF_THE_PROGRAM = ("DOCKER_HOST", "DOCKER_CONTEXT")  # where its engine is
_NOT_BEGUN = ("created", "configured", "initialized")

Argv = Callable[..., list[str]]  # (verb, task folder) -> what runs behind the Python of the image


class ContainerEngine:
    """`name` is docker or podman: they take the same words, but for GPUs and users."""

    queues = False

    def __init__(
        self,
        cluster: str,
        paths: Paths,
        get: Callable[[str], Any],
        definition: JsonMapping,
        *,
        argv: Argv | None = None,
    ) -> None:
        self.name = str(definition["engine"])
        self.cluster, self.paths, self._get, self._options = cluster, paths, get, definition
        self.program = Program(definition["command"])
        self._networks = Networks(self.program, str(paths.home), definition["network"])
        self._recipe = Recipe(self.name, definition, paths, self._networks)
        self._groups = task_group.Groups(paths.spool)
        self._argv = argv or self._agent_argv
        self._gpus = slots.GpuCount(
            definition["gpus"] if definition["gpus"] is not None else get("gpus")
        )
        self._lock = threading.Lock()
        self._states: dict[str, tuple[float, Container | None]] = {}
        self._capacity: tuple[float, Node] | None = None
        self._image_ids: dict[str, tuple[float, str]] = {}
        # image id -> its Python, None where it has none for us
        self._pythons: dict[str, str | None] = {}
        # agents outside, and shippers for what was left
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._seen_s: dict[str, float] = {}  # first sight of a task whose agent has not spoken
        # task -> how the engine says that it ended, its agent with it
        self._deaths: dict[str, JsonObject] = {}
        self._agent: Path | None = None
        self._carriers = folder_carrier.Carriers()
        self._carried = paths.home / "folders"
        self._strays = Strays(
            self.program,
            str(paths.home),
            self._is_task,
            lambda key: bool(self._groups.members(key)),
        )
        # tasks whose agent is outside -> whether its containers were ended after it
        self._beside: dict[str, bool] = {}

    # -- planning

    def capacity(self) -> list[Node]:
        """What this machine has; asked through the engine, so that one that does not answer has
        none.
        """
        known = self._capacity
        if known is None or time.monotonic() - known[0] > CAPACITY_S:
            form = (
                "{{.NCPU}} {{.MemTotal}}"
                if self.name == "docker"
                else "{{.Host.CPUs}} {{.Host.MemTotal}}"
            )
            try:
                cpus, memory = (
                    int(word) for word in self.program.run("info", "--format", form).split()
                )
            except (ValueError, Failed) as error:
                raise UnreachableError(
                    f"{self.program.words[0]} info cannot be understood: {error}"
                ) from None
            count, source = self._gpus.get()
            node = Node(socket.gethostname(), min(cpus, slots.cpu_count()), memory, count, source)
            known = self._capacity = (time.monotonic(), node)
        return [known[1]]

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec, node = job.spec, self.capacity()[0]
        tasks = [self._with_image(task, spec) for task in tasks_of(spec, has_gpus=node.gpus > 0)]
        self._check_images(tasks)
        self._networks.check()
        cpus, memory_bytes = check_machine(spec, tasks, node)
        folder_carrier.check_mounts(spec.folders, str(self._carried), self._options["user"])
        images = {task.image for task in tasks}
        return plan_of(
            self.name, self.cluster, job, attempt, on_node(tasks, node.name), rlimits={}, cpus=cpus,
            memory_bytes=memory_bytes, image=images.pop() if len(images) == 1 else None,
        )  # fmt: skip

    def _with_image(self, task: PlannedTask, spec: JobSpec) -> PlannedTask:
        image = task.image or spec.image or self._options["image"]
        if not image:
            raise RefusedError(
                f"cluster {self.cluster} runs containers, and the job names no image",
                "give one: --image NAME, or `image:` of the cluster in headway.yaml",
            )
        return replace(task, image=image)

    def _check_images(self, tasks: Sequence[PlannedTask]) -> None:
        for image in dict.fromkeys(str(task.image) for task in tasks):
            image_id = self._image_id(image)
            most = max(task.processes for task in tasks if task.image == image)
            if self._options["agent"] == "inside":
                self._check_python(image, image_id)
            elif (
                self._where(image) is None
                and len(tasks) > 1
                and most > 1
                and not self._networks.is_shared
            ):
                raise RefusedError(
                    f"the image {image} has no Python 3.11 or newer, so each of its {most} processes would be a"
                    " container with a network of its own, which the other tasks cannot find",
                    "use an image with Python, one process per task, or `network: host`",
                )

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
            for name in (
                [self._options["python"]] if self._options["python"] else ["python3", "python"]
            ):
                try:
                    self._strays.expect()
                    words = [
                        "run",
                        "--rm",
                        "--pull=never",
                        "--network=none",
                        *self._options["run_options"],
                    ]
                    words += ["--label", f"{HOME_LABEL}={self.paths.home}"]
                    told = self.program.run(
                        *words, "--entrypoint", name, image_id, "-I", "-S", "-c", _VERSION
                    )
                    version = tuple(int(word) for word in told.split())
                except ValueError:
                    continue
                except Failed as error:
                    if name not in str(error):  # it is not the Python that is missing
                        raise RefusedError(f"{self.name} cannot run the image: {error}") from None
                    continue
                if version >= zipapp.PYTHON_MIN:
                    found = name
                    break
            self._pythons[image_id] = found
        return self._pythons[image_id]

    # -- starting

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        if key != f"{plan.uuid}-{plan.attempt}":
            raise UsageError(f"the key {key!r} is not this attempt's")
        names = [str(plan.task_key(task.name)) for task in plan.tasks]
        try:
            plan = self._lay_out(plan)
            with self._lock:
                self._make_all(names, plan, given)
                self._begin_all(names, plan)
        except OSError as error:
            raise UnreachableError(
                f"the task could not be started: {error}", "it is tried again"
            ) from error
        except Failed as error:
            self._abandon(names, key)
            raise RefusedError(f"{self.name} does not start it: {error}") from None
        if len(names) == 1:
            return EngineId(names[0])
        self._groups.keep(key, names)
        return EngineId(key)

    def _abandon(self, names: Sequence[str], key: str) -> None:
        """It will never start: nothing of it stays, neither what it was given nor containers that
        wait for the rest. No process of it has begun, since all of them wait for the last agent.
        """
        for name in names:
            if self._is_outside(name):
                self._cancel(name)
        # what is left then has no task any more: `Strays` finds it
        with contextlib.suppress(UnreachableError):
            self.program.call(["rm", "--force", *names])
        for name in names:
            folders.remove(self._folder(name))
            folders.forget_kept(self._folder(name))
            folder_carrier.release(str(self._carried), name)
        if len(names) > 1:
            self._networks.remove(key)

    def _lay_out(self, plan: Plan) -> Plan:
        """Its code, here, so that a container has no business with the store of code."""
        if plan.code is None:
            return plan
        root = checkout.prepare(str(self.paths.home), plan.code, plan.uuid)
        cwd = os.path.normpath(os.path.join(root, plan.code_cwd))
        return replace(plan, tasks=tuple(replace(task, cwd=cwd) for task in plan.tasks))

    def _where(self, image: str) -> str | None:
        """The Python that runs the agent inside; None: the agent runs outside."""
        return None if self._options["agent"] == "outside" else self._python(self._image_id(image))

    def _image_id(self, image: str) -> str:
        """Asked several times for one job, and answered once: a name seldom gets another image."""
        known = self._image_ids.get(image)
        if known is None or time.monotonic() - known[0] > CAPACITY_S:
            known = self._image_ids[image] = (time.monotonic(), self.program.image_id(image))
        return known[1]

    def _make_all(self, names: Sequence[str], plan: Plan, given: Given) -> None:
        """Every folder before the first start. So where one was started, the others were made: one
        of these that is not there has ended and was sent, and must not begin again.
        """
        if any((self._folder(name) / "shim.json").exists() for name in names):
            return
        pairs = zip(names, plan.tasks, strict=True)
        missing = [(name, task) for name, task in pairs if not folders.is_task(self._folder(name))]
        for _, task in missing:
            if not os.path.isdir(task.cwd):
                raise RefusedError(
                    f"the folder {task.cwd} does not exist", "make it, or submit from another one"
                )
            if task.cwd == "/":
                raise RefusedError(
                    "the folder / cannot be given to a container",
                    "submit from the folder of your code",
                )
        asked = sum(task.gpus for _, task in missing)
        taken = folders.gpus_held(self.paths.spool)  # also by tasks that are not in containers
        gpus = slots.pick(self._gpus.get()[0], taken, asked)
        if gpus is None:
            raise UnreachableError(f"no {asked} GPUs are free yet", "it is tried again")
        output = self.paths.output / plan.job
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, task in missing:
            mine, gpus = gpus[: task.gpus], gpus[task.gpus :]
            folders.remove(self._folder(name))  # empty, or what a power cut left of it
            folders.forget_kept(self._folder(name))
            self._make(self._folder(name), plan, task, given, mine)

    def _make(
        self, folder: Path, plan: Plan, task: PlannedTask, given: Given, gpus: list[int]
    ) -> None:
        values, env = self._task_file(plan, task, given, gpus), dict(given.env)
        carried = folders_file(plan, given, self._carried, self._get)
        links = folder_carrier.links(carried, folder.name, task.cwd) if carried is not None else []
        carried = carried and folder_carrier.given(carried, task.cwd, links)
        python = self._where(str(task.image))
        if python is not None:
            values["shell"] = [python, *self._argv("shell", folder)]
        else:
            argv = self._recipe.run(folder.name, plan, task, gpus, self._zip(), given, links)
            values |= {"folders_outside": False}
            values |= {
                "argv": [*self.program.words, *argv],
                "inherit_env": False,
                "cwd": "/",
                "by_number": False,
            }
            values |= {"socket": str(socket_path(self.paths.home)), "gpus": None}
            values |= {
                "address": self._networks.address(plan) or self._networks.name_of(plan, task)
            }
            env = {**agent_start.environment(self.paths.home, _OF_THE_PROGRAM), **env}
        folders.keep(folder, values, carried)
        folders.make(folder, values, env)

    def _task_file(
        self, plan: Plan, task: PlannedTask, given: Given, gpus: list[int]
    ) -> JsonObject:
        """`task.json`. The cards that a container gets are numbered from 0 in it; `devices` are
        their real numbers. The engine lays the code out before the container is made, so the agent
        has none to lay out.
        """
        address = self._networks.address(plan)
        return task_file(
            plan, task, given, home=str(self.paths.home), socket=str(agent_socket_path(self.paths.home)),
            output_dir=str(self.paths.output / plan.job), spool_bytes_max=self._get("spool_bytes_max"),
            address=address, by_number=not address, gpus=list(range(len(gpus))) if task.gpus else None, devices=gpus,
            inherit_env=True, container=self.name, code=None, code_cwd="", folders_outside=True,
        )  # fmt: skip

    def _begin_all(self, names: Sequence[str], plan: Plan) -> None:
        pairs = zip(names, plan.tasks, strict=True)
        fresh = [
            (name, task)
            for name, task in pairs
            if folders.is_task(self._folder(name))
            and not (self._folder(name) / "shim.json").exists()
        ]
        if not fresh:
            return
        self._networks.make(plan)
        if len(fresh) == 1:
            self._begin(fresh[0][0], plan, fresh[0][1])
            return
        with ThreadPoolExecutor(STARTS_AT_ONCE) as pool:
            list(pool.map(lambda pair: self._begin(pair[0], plan, pair[1]), fresh))

    def _begin(self, name: str, plan: Plan, task: PlannedTask) -> None:
        """Make the container or find it made; a container that ended before its agent had begun
        makes room.
        """
        folder, python = self._folder(name), self._where(str(task.image))
        self._states.pop(name, None)
        self._seen_s[name] = time.monotonic()
        self._strays.expect()
        if python is None:
            if name not in self._children or self._children[name].poll() is not None:
                self._children[name] = self._spawn("shim", folder)
            return
        state = self.program.states([name]).get(name)
        if state is not None and not state.runs and state.status not in _NOT_BEGUN:
            self._make_room(name)
            state = None
        if state is None:
            kept = Path(folder_names.kept(str(folder)))
            devices = folders.given(folder).get("devices") or []
            links = (folders.load_json(kept / folder_names.PRIVATE) or {}).get("links") or []
            try:
                self.program.run(*self._create(name, plan, task, python, devices, links))
            except Failed as error:
                # another thread, or a submit whose answer was lost
                if "already in use" not in str(error):
                    raise
        self.program.run("start", name)
        self._carriers.keep(folder)

    def _create(
        self,
        name: str,
        plan: Plan,
        task: PlannedTask,
        python: str,
        devices: Sequence[int],
        links: Sequence[Any] = (),
    ) -> list[str]:
        words = [
            "create",
            "--name",
            name,
            *self._recipe.create(name, plan, task, devices, self._zip(), links),
        ]
        return [
            *words,
            "--entrypoint",
            python,
            str(task.image),
            *self._argv("shim", self._folder(name)),
        ]

    def script(self, plan: Plan) -> str:
        """A container for each task, or, with the agent outside, one for each rank."""
        lines = []
        for task in plan.tasks:
            name, cards, python = (
                str(plan.task_key(task.name)),
                range(task.gpus),
                self._where(str(task.image)),
            )
            if python is None:
                words = self._recipe.run(name, plan, task, cards, self._zip(), Given({}, {}))
            else:
                words = self._create(name, plan, task, python, cards)
            lines.append(shlex.join([*self.program.words, *words]))
        return "\n".join(lines)

    def _make_room(self, name: str) -> None:
        try:
            self.program.run("rm", name)
        except Failed as error:  # its files are busy, or it is being removed: neither lasts
            raise UnreachableError(
                f"{self.name} does not remove the container of the start before: {error}"
            ) from None

    def _agent_argv(self, verb: str, folder: Path) -> list[str]:
        return ["-I", "-S", str(self._zip()), verb, str(folder)]

    def _zip(self) -> Path:
        if self._agent is None or not self._agent.exists():
            self._agent = zipapp.cached(self.paths.home / "agent")
        return self._agent

    def _spawn(self, verb: str, folder: Path, *options: str) -> "subprocess.Popen[bytes]":
        """An agent on this machine, beside the container."""
        env = agent_start.environment(self.paths.home, _OF_THE_PROGRAM)
        return agent_start.spawn(agent_argv(verb, folder, *options), folder, env)

    def find(self, key: str) -> EngineId | None:
        return self._groups.find(key)

    # -- looking

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        names = {engine_id: self._groups.names(engine_id) for engine_id in ids}
        every = [name for members in names.values() for name in members]
        states = self._look_at([name for name in every if not self._is_outside(name)])
        seen = {}
        for name in every:
            if name in states:
                seen[name] = self._inside(name, states[name])
            elif self._is_outside(name):
                seen[name] = self._outside(name)
        drained = []
        for name, observation in seen.items():
            if observation.detail.get("drained") and states.get(name):
                drained.append(name)
        self._tidy(drained)

        observed = {}
        for engine_id, members in names.items():
            if all(name in seen for name in members):
                of_members = {name: seen[name] for name in members}
                observed[engine_id] = self._join(engine_id, of_members)
        return observed

    def _join(self, engine_id: str, seen: Mapping[str, Observation]) -> Observation:
        if not task_group.KEY.match(engine_id):
            return seen[engine_id]
        if not seen:
            return Observation("gone", "no container", {"started": None})
        found = task_group.join(
            {name.removeprefix(f"{engine_id}-"): one for name, one in seen.items()}
        )
        if found.detail.get("drained"):
            self._networks.remove(engine_id)
            self._groups.forget(engine_id)
        return found

    def _is_outside(self, name: str) -> bool:
        folder = self._folder(name)
        if not folders.is_task(folder):  # it is over, and its agent has removed it
            return False
        task = folders.given(folder)
        return bool(task) and not task.get("inherit_env")

    def _look_at(self, names: Sequence[str]) -> dict[str, Container | None]:
        now_s = time.monotonic()
        old = [
            name
            for name in names
            if name not in self._states or now_s - self._states[name][0] > STATES_S
        ]
        if old:
            for name, state in self.program.states(old).items():
                self._states[name] = (now_s, state)
        # another thread may forget one meanwhile
        known = {name: self._states.get(name) for name in names}
        return {name: state[1] for name, state in known.items() if state is not None}

    def _inside(self, name: str, state: Container | None) -> Observation:
        folder = self._folder(name)
        begun, there = (folder / "shim.json").exists(), folders.is_task(folder)
        if state is not None and state.runs:
            self._carriers.keep(folder)
            if begun or not there:
                return Observation("running", state.word, {"started": True})
            return Observation("starting", state.word, {"started": None})
        word = state.word if state else "no container"
        if not there:  # everything was sent, and the agent has removed it
            if name in self._beside and self._strays.end(name):
                self._beside.pop(name, None)
            return Observation(
                "gone", word, {"started": None, "drained": True, **self._death(name)}
            )
        if not begun:
            return self._before_start(name, state)
        if not folders.has_end(folder):
            self._note_death(name, state)
        # also while another shipper sends the rest: it only knows that it is over
        seen = self._after(folder, word)
        return replace(seen, detail={**seen.detail, **self._death(name)})

    def _note_death(self, name: str, state: Container | None) -> None:
        """The engine is sure that the container is over, and its agent could not say how."""
        if state is not None and state.oom:
            end = ("host_oom", "resource", "memory ran out, and its whole container was killed")
        elif state is not None:
            end = (
                "sigkill_unexplained",
                "system",
                f"its container ended from outside: {state.word}",
            )
        else:
            end = ("sigkill_unexplained", "system", "its container was removed from outside")
        if name not in self._deaths:
            rank = folders.given(self._folder(name)).get("first_rank")
            self._deaths[name] = {"cause": end[0], "class": end[1], "text": end[2], "rank": rank}
        while len(self._deaths) > DEATHS_MAX:
            del self._deaths[next(iter(self._deaths))]

    def _death(self, name: str) -> JsonObject:
        return {"end": self._deaths[name]} if name in self._deaths else {}

    def _before_start(self, name: str, state: Container | None) -> Observation:
        waits = time.monotonic() - self._seen_s.setdefault(name, time.monotonic()) < START_TIMEOUT_S
        if waits and (state is None or state.status in _NOT_BEGUN):
            return Observation(
                "starting", state.word if state else "no container yet", {"started": None}
            )
        word = state.word if state else "no container"
        return Observation(
            "gone", f"{word}{self._last_words(name) if state else ''}", {"started": False}
        )

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
            if (
                alive
                or time.monotonic() - self._seen_s.setdefault(name, time.monotonic())
                < START_TIMEOUT_S
            ):
                return Observation("starting", "agent starting", {"started": None})
            return Observation("gone", "the agent did not start", {"started": False})
        cleared = self._beside.setdefault(name, False)
        shim = identity.Identity.load(folders.load_json(folder / "shim.json"))
        if shim is not None and identity.is_alive(shim):
            return Observation("running", "agent alive", {"started": True})
        # a program that had to be killed has left what it ran
        if not cleared and folders.has_end(folder):
            self._beside[name] = self._strays.end(name)
        return self._after(folder, "agent gone")

    def _after(self, folder: Path, word: str) -> Observation:
        """It runs no more: what is left of it is in the spool."""
        ended = folders.has_end(folder)
        if file_lock.is_held(folder / "shipper.lock"):
            return Observation(
                "ended" if ended else "running", f"{word}, still sending", {"started": True}
            )
        left = folders.unsent(folder)
        if ended and not left:
            return Observation("ended", word, {"started": True, "drained": True})
        return Observation("gone", word, {"started": True, "salvage": True})

    def _tidy(self, names: Sequence[str]) -> None:
        """Remove containers of which everything is known and sent."""
        for name in names:
            self._forget(name)
        try:
            if names:
                self.program.run("rm", *names)
        except (Failed, UnreachableError):
            return  # it runs again, or is gone already; `Strays` looks for it later
        finally:
            self._reap()

    def _forget(self, name: str) -> None:
        self._states.pop(name, None)
        self._seen_s.pop(name, None)
        folder_carrier.release(str(self._carried), name)
        if not folders.is_task(self._folder(name)):
            folders.remove(self._folder(name))
            folders.forget_kept(self._folder(name))

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            if child.poll() is not None:
                self._children.pop(name, None)

    def explain(self, engine_id: EngineId) -> Waiting:
        """The queue here is the server's; the engine knows only what the machine has."""
        seen = self.observe([engine_id]).get(engine_id, UNSEEN)
        return Waiting(seen.state_word, free=tuple(self.capacity()))

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        """With the environment of the job, by the agent's own file: the one that this container was
        made with.
        """
        if self._is_outside(str(task)):
            return None
        shell = folders.given(self._folder(str(task))).get("shell") or ["sh"]
        return [*self.program.words, "exec", "-it", str(task), *shell]

    # -- ending

    def cancel(self, engine_id: EngineId) -> bool:
        # all of them, not up to the first
        asked = [self._cancel(name) for name in self._groups.names(engine_id)]
        return any(asked)

    def _cancel(self, name: str) -> bool:
        folder = self._folder(name)
        if self._is_outside(name):
            shim = identity.Identity.load(folders.load_json(folder / "shim.json"))
            return shim is not None and identity.send(shim, 15)
        if not (folder / "shim.json").exists() or folders.has_end(folder):
            return False
        self._states.pop(name, None)
        try:
            self.program.run("kill", "--signal", "TERM", name)
        except (Failed, UnreachableError):
            return False  # it runs no more, or not yet; or its agent has to be told in another way
        return True

    def salvage(self, engine_id: EngineId) -> bool:
        begun = [self._salvage(name) for name in self._groups.names(engine_id)]
        return any(begun)

    def _salvage(self, name: str) -> bool:
        self._states.pop(name, None)
        if (
            not self.observe([EngineId(name)])
            .get(EngineId(name), Observation("unknown", ""))
            .detail.get("salvage")
        ):
            return False
        try:
            self._children[f"{name} salvage"] = self._spawn(
                "shipper", self._folder(name), "--adopt"
            )
        except OSError as error:
            raise UnreachableError(f"no shipper could be started for {name}: {error}") from error
        return True

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        for name in filter(task_group.ID.match, self._strays.sweep(self._networks)):
            self._forget(name)
        self._sweep_kept()
        spools = [path.parent.name for path in self.paths.spool.glob("*-*/task.json")]
        found = [match for name in spools if (match := task_group.ID.match(name))]
        ours = [m for m in found if folders.given(self._folder(m[0])).get("container")]
        return [(EngineId(m[0]), TaskKey(m["uuid"], int(m["attempt"]), m["task"])) for m in ours]

    def _sweep_kept(self) -> None:
        """Of tasks that are over: also where a server was ended before it could see to it."""
        if not self._lock.acquire(blocking=False):
            return  # a task is being started, whose folder may not be there yet; the next look will do
        try:
            for path in (self.paths.home / folder_names.KEPT).glob("*"):
                if not (self.paths.spool / path.name).exists():
                    shutil.rmtree(path, ignore_errors=True)
        finally:
            self._lock.release()

    def discard(self, engine_id: EngineId) -> None:
        for name in self._groups.names(engine_id):
            self._discard(name)

    def _discard(self, name: str) -> None:
        self._states.pop(name, None)
        seen = self.observe([EngineId(name)]).get(EngineId(name))
        if seen is None or not (seen.state == "gone" or seen.detail.get("drained")):
            return  # something is still at work there
        self._tidy([name] if not self._is_outside(name) else [])
        folder_carrier.release(str(self._carried), name)
        folders.remove(self._folder(name))
        folders.forget_kept(self._folder(name))

    def close(self) -> None:
        """The server ends; containers go on, and so do agents outside."""
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # it is meant to outlive us, so its handle shall not complain
        self._children.clear()
        self._carriers.close()
        self.program.close()

    def _is_task(self, name: str) -> bool:
        return task_group.ID.match(name) is not None and folders.is_task(self._folder(name))

    def _folder(self, name: str) -> Path:
        if not task_group.ID.match(name):
            raise UsageError(f"{name[:80]!r} is not the id of a task here")
        return self.paths.spool / name

"""The Slurm engine: an attempt is one batch job with one shim per node. Called by `server/loop.py`, from threads.

Task folders lie on a file system that this machine and the nodes share. Slurm is asked once for all jobs, and less
often while nothing changes; what a job says itself comes through its agent and is believed first. Same key, same job:
the key is the batch job's comment, so an answer of sbatch that was lost is found again (F24), and a shim refuses to
start where one has started before.
"""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headway.engines import folder as folders
from headway.engines import joined
from headway.engines.protocol import EngineId, Given, Node, Observation, Plan, PlannedTask, Waiting
from headway.engines.slurm import answer, reason, script, sooner
from headway.engines.slurm.answer import JobLine
from headway.engines.slurm.command import Commands
from headway.engines.tasks import plan_of, task_file, tasks_of
from headway.model.errors import HeadwayError, RefusedError, UnreachableError
from headway.model.job import Job
from headway.settings.home import Paths, socket_path
from headway.settings.launch import agent_argv
from headway.wire.batch import TaskKey

POLL_FIRST_S: Final = 1.0
POLL_MAX_S: Final = 15.0
NODES_KEPT_S: Final = 30.0
KILL_AFTER_S: Final = 2.0  # beyond the grace time, in which the shim itself kills
_FOLDER: Final = re.compile(
    r"(?P<key>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]{1,9})-(?P<task>[a-z][a-z0-9-]{0,40})\Z"
)
_KEEP: Final = ("SLURM_", "SLURMD_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES")
# Slurm's word for an end that the agent could not tell -> (cause, class)
_CAUSES: Final = {
    "NODE_FAIL": ("node_lost", "transient"), "BOOT_FAIL": ("node_lost", "transient"), "REVOKED": ("cancelled", "user"),
    "PREEMPTED": ("preempted", "transient"), "TIMEOUT": ("walltime", "resource"), "DEADLINE": ("walltime", "resource"),
    "OUT_OF_MEMORY": ("host_oom", "resource"), "CANCELLED": ("cancelled", "user"),
    "FAILED": ("launch_failed", "system"),
}  # fmt: skip


class SlurmEngine:
    name = "slurm"
    queues = True

    def __init__(
        self,
        cluster: str,
        paths: Paths,
        get: Callable[[str], Any],
        definition: Mapping[str, Any],
        *,
        argv: Callable[..., list[str]] = agent_argv,
        commands: Commands | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster, self.paths, self._get, self._options = cluster, paths, get, dict(definition)
        folder = self._options.get("folder")
        self.spool = Path(folder) / "spool" if folder else paths.home / "clusters" / cluster / "spool"
        self._commands = commands or Commands(self._options.get("host"))
        self._argv, self._clock_s = argv, clock_s
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._lines: dict[str, JobLine] = {}  # the last answer of squeue
        self._polled_s = -POLL_MAX_S
        self._poll_s = POLL_FIRST_S
        self._keys: dict[str, str] = {}  # Slurm's id -> key
        self._salvagers: list[subprocess.Popen[bytes]] = []
        self._asked_s: dict[str, float] = {}  # when an id was asked to stop gently
        self._nodes: tuple[float, list[answer.NodeLine]] = (-NODES_KEPT_S, [])
        folders.sweep(self.spool)

    # -- planning -----------------------------------------------------------------------------------------------------

    def capacity(self) -> list[Node]:
        return [
            Node(n.name, n.cpus, n.memory_mib * script.MIB, n.gpus, "slurm", n.state.lower())
            for n in self._known_nodes()
        ]

    def _known_nodes(self) -> list[answer.NodeLine]:
        """The nodes of the partition, asked for now and then."""
        asked_s, nodes = self._nodes
        if self._clock_s() - asked_s >= NODES_KEPT_S:
            nodes = answer.read_nodes(self._commands.run(["scontrol", "show", "node", "-d", "-o"]))
            self._nodes = (self._clock_s(), nodes)
        partition = self._options.get("partition")
        return [n for n in nodes if not partition or partition in n.partitions]

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec, nodes = job.spec, self._known_nodes()
        has_gpus = any(node.gpus for node in nodes)
        per_node = self._options.get("gpu_per_node") or max((node.gpus for node in nodes), default=0) or None
        tasks = tasks_of(spec, gpu_per_node=per_node, has_gpus=has_gpus)
        plan = plan_of(self.name, self.cluster, job, attempt, tasks, rlimits={}, options=self._asked(job))
        sooner.check_ever(plan, nodes)
        text = script.render(plan, f"{plan.uuid}-{attempt}", plan.options, self.spool, self._agent())
        return replace(plan, script=text)

    def _asked(self, job: Job) -> dict[str, Any]:
        """The cluster's options under the job's own; nodes that have failed it are left out from now on."""
        options = {**self._options, **job.spec.options}
        exclude = [*filter(None, [options.get("exclude")]), *job.avoided()]
        return {**options, "exclude": ",".join(exclude) or None}

    def _agent(self) -> list[str]:
        """argv of the agent on a node, up to its verb."""
        argv = self._argv("shim", "")[:-2]
        python = self._options.get("python")
        return [python, *argv[1:]] if python else argv

    # -- starting -----------------------------------------------------------------------------------------------------

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        with self._starting:  # never two of one key, should a call that hung be repeated
            return self.find(key) or self._submit(plan, key, given)

    def _submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        try:
            for task in plan.tasks:
                folder = self.spool / f"{key}-{task.name}"
                if folders.load_json(folder / "task.json") is None:
                    folders.make(folder, self._task_file(plan, task, given), given.env)
        except OSError as error:
            raise UnreachableError(f"the shared folder {self.spool} cannot be written: {error}") from error
        text = script.render(plan, key, plan.options, self.spool, self._agent())
        said = self._commands.run(["sbatch", "--parsable"], text)
        job_id = said.strip().splitlines()[-1].partition(";")[0] if said.strip() else ""
        if not job_id.isdigit():
            raise UnreachableError(f"sbatch answered {said.strip()[:200]!r}, which is not the number of a job")
        self._remember(key, job_id)
        self._soon()
        return EngineId(job_id)

    def _remember(self, key: str, job_id: str) -> None:
        self._keys[job_id] = key
        try:
            (self.spool / f"{key}.id").write_text(job_id)
        except OSError:
            pass  # Slurm itself knows it by its comment

    def _task_file(self, plan: Plan, task: PlannedTask, given: Given) -> dict[str, Any]:
        output = self.paths.output / plan.job
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        return task_file(
            plan, task, given, home=str(self.paths.home), socket=str(socket_path(self.paths.home)), address="",
            output_dir=str(output), spool_bytes_max=self._get("spool_bytes_max"), keep_env=list(_KEEP),
        )  # fmt: skip

    def find(self, key: str) -> EngineId | None:
        """By the file that `submit` left, or else by the comment that Slurm keeps."""
        try:
            job_id = (self.spool / f"{key}.id").read_text().strip()
        except OSError:
            job_id = ""
        if not job_id.isdigit():
            self._soon()
            mine = script.comment(key)
            job_id = next((line.id for line in self._poll().values() if line.comment == mine), "")
            if not job_id:
                return None
            self._remember(key, job_id)
        self._keys[job_id] = key
        return EngineId(job_id)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        """Something was changed: the next look asks Slurm."""
        self._poll_s = POLL_FIRST_S
        self._polled_s = -POLL_MAX_S

    def _poll(self) -> dict[str, JobLine]:
        """One question for all jobs of this user; asked less often while its answer stays the same."""
        with self._lock:
            if self._clock_s() - self._polled_s < self._poll_s:
                return self._lines
            argv = ["squeue", "-h", "-t", "all", "--me", "-o", answer.SQUEUE_FORMAT]
            try:
                said = self._commands.run(argv)
            except RefusedError:  # `--me` came with Slurm 20.02
                said = self._commands.run([*argv[:4], "-u", str(os.getuid()), *argv[5:]])
            lines = answer.read_squeue(said)
            same = {i: line.word for i, line in lines.items()} == {i: line.word for i, line in self._lines.items()}
            self._poll_s = min(POLL_MAX_S, self._poll_s * 1.5) if same else POLL_FIRST_S
            self._lines, self._polled_s = lines, self._clock_s()
            return lines

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        lines = self._poll()
        return {engine_id: self._look(engine_id, lines.get(engine_id)) for engine_id in ids}

    def _look(self, job_id: str, line: JobLine | None) -> Observation:
        if line is None or line.state in ("ended", "unknown"):
            try:
                line = self._ask_for(job_id) or line
            except UnreachableError as error:
                return Observation("unknown", str(error))
        if line is None:
            return self._after(job_id, "no longer known to Slurm", None)
        word = f"{line.word} ({line.reason})" if line.reason else line.word
        if line.state == "starting":
            return Observation("starting", word, {"started": None, "nodes": line.nodes})
        if line.state == "running":
            names = self._names(job_id)
            begun = not names or any((self.spool / name / "shim.json").exists() for name in names)
            return Observation(
                "running" if begun else "starting", word, {"started": begun or None, "nodes": line.nodes}
            )
        if line.state == "unknown":
            return Observation("unknown", word)
        return self._after(job_id, word, line)

    def _ask_for(self, job_id: str) -> JobLine | None:
        """All about one job: the controller knows it for some minutes, the accounting, if there is one, for longer."""
        try:
            said = self._commands.run(["scontrol", "show", "job", "-o", job_id])
            found = answer.read_job(said)
            if found is None:  # from what cannot be read nothing follows (F22)
                raise UnreachableError(f"scontrol answered {said.strip()[:80]!r}")
            return found
        except RefusedError:
            pass  # it has forgotten the job
        fields = "JobIDRaw,State,ExitCode,NodeList,Start,Reason,Comment"
        try:
            return answer.read_sacct(self._commands.run(["sacct", "-n", "-P", "-X", "-j", job_id, "-o", fields])).get(
                job_id
            )
        except HeadwayError:
            return None  # many clusters have no accounting

    def _after(self, job_id: str, word: str, line: JobLine | None) -> Observation:
        """Slurm is done with it. What its agents wrote tells the rest."""
        names = self._names(job_id)
        if not names:
            return Observation("gone", word, {"started": None, **_end(line)})
        seen = {name: self._look_in(self.spool / name, word) for name in names}
        one = joined.join(seen)
        return replace(one, state_word=word, detail={**one.detail, **_end(line)})

    def _look_in(self, folder: Path, word: str) -> Observation:
        if not (folder / "shim.json").exists():
            return Observation("gone", word, {"started": False})
        ended = folders.has_end(folder)
        if folders.lock_is_held(folder / "shipper.lock"):
            return Observation("ended" if ended else "running", f"{word}, still sending", {"started": True})
        if ended and not folders.unsent(folder):
            return Observation("ended", word, {"started": True, "drained": True})
        return Observation("gone", word, {"started": True, "salvage": True})

    def _names(self, job_id: str) -> list[str]:
        key = self._keys.get(job_id) or self._key_of(job_id)
        try:
            return sorted(n for n in os.listdir(self.spool) if key and n.startswith(f"{key}-") and _FOLDER.match(n))
        except OSError:
            return []

    def _key_of(self, job_id: str) -> str | None:
        """After a restart: the files that `submit` left."""
        for path in self.spool.glob("*.id"):
            try:
                self._keys.setdefault(path.read_text().strip(), path.stem)
            except OSError:
                continue
        return self._keys.get(job_id)

    # -- why it waits -------------------------------------------------------------------------------------------------

    def explain(self, engine_id: EngineId) -> Waiting:
        self._soon()
        line = self._poll().get(engine_id) or self._ask_for(engine_id)
        if line is None:
            return Waiting("Slurm does not know it")
        told = reason.explain(line.reason)
        queue = answer.read_squeue(
            self._commands.run(["squeue", "-h", "-t", "PD", "--sort=-p,i", "-o", answer.SQUEUE_FORMAT])
        )
        before = list(queue)[: list(queue).index(engine_id)] if engine_id in queue else []
        nodes = self._fresh_nodes()
        free = tuple(sooner.free_of(node) for node in nodes)
        text = told.text + (f"; {told.hint}" if told.hint else "")
        if line.start:
            text += f"; Slurm expects it to start at {line.start} (its own clock)"
        plan_of = self._ask_for(engine_id)
        return Waiting(f"{told.word}: {text}", tuple(before), free, sooner.suggest(plan_of, nodes, self._commands))

    def _fresh_nodes(self) -> list[answer.NodeLine]:
        self._nodes = (-NODES_KEPT_S, [])
        return self._known_nodes()

    def attach(self, task: TaskKey) -> list[str] | None:
        """From what is known: nothing is asked, so it answers also while Slurm does not."""
        key = f"{task.uuid}-{task.attempt}"
        try:
            job_id = (self.spool / f"{key}.id").read_text().strip()
        except OSError:
            return None
        line = self._lines.get(job_id)
        hosts = answer.expand_hosts(line.nodes) if line else []
        names = [name.removeprefix(f"{key}-") for name in self._names(job_id)]
        where = ["-w", hosts[names.index(task.task)]] if task.task in names and len(hosts) == len(names) else []
        return ["srun", f"--jobid={job_id}", "--overlap", *where, "--pty", "bash", "-i"]

    # -- ending -------------------------------------------------------------------------------------------------------

    def cancel(self, engine_id: EngineId) -> bool:
        """First the shims are asked, who end their ranks in order; when their time is over, Slurm ends the job."""
        self._soon()
        line = self._poll().get(engine_id)
        if line is not None and line.state == "ended":
            return False
        asked_s = self._asked_s.setdefault(engine_id, self._clock_s())
        running = line is not None and line.state == "running"
        gently = running and self._clock_s() - asked_s < self._grace_s(engine_id) + KILL_AFTER_S
        try:
            if not (gently and self._ask_agents(engine_id)):
                self._commands.run(["scancel", *(["--signal=TERM"] if gently else []), engine_id])
        except RefusedError:
            return False  # it is not there any more
        self._soon()
        return True

    def _ask_agents(self, job_id: str) -> bool:
        """SIGTERM to the shims alone. scancel would signal their ranks as well, and those would seem to die by
        themselves. False: it cannot be done this way."""
        told = [folders.load_json(self.spool / name / "shim.json") for name in self._names(job_id)]
        pids = [str(who["pid"]) for who in told if who and isinstance(who.get("pid"), int)]
        if not pids or len(pids) != len(told):
            return False
        count = len(pids)
        step = [
            "srun",
            f"--jobid={job_id}",
            "--overlap",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
        ]
        step += ["--mem=0", "sh", "-c", 'shift "$SLURM_PROCID"; kill -TERM "$1"', "headway", *pids]
        try:
            self._commands.run(step)
        except HeadwayError:
            return False
        return True

    def _grace_s(self, job_id: str) -> float:
        told = [folders.load_json(self.spool / name / "task.json") for name in self._names(job_id)]
        return max((float(task["grace_s"]) for task in told if task and "grace_s" in task), default=0.0)

    def salvage(self, engine_id: EngineId) -> bool:
        """The folders are shared, so what dead agents left can be sent from here."""
        left = [name for name in self._names(engine_id) if self._look_in(self.spool / name, "").detail.get("salvage")]
        self._salvagers = [child for child in self._salvagers if child.poll() is None]
        try:
            for name in left:
                self._salvagers.append(self._adopt(self.spool / name))
        except OSError as error:
            raise UnreachableError(f"no shipper could be started for {engine_id}: {error}") from error
        return bool(left)

    def _adopt(self, folder: Path) -> subprocess.Popen[bytes]:
        with (folder / "agent").open("ab") as log:
            return subprocess.Popen(
                self._argv("shipper", folder, "--adopt"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        try:
            found = [match for name in os.listdir(self.spool) if (match := _FOLDER.match(name))]
        except OSError:
            return []
        out = []
        for match in found:
            job_id = self.find(match["key"])
            uuid, _, attempt = match["key"].rpartition("-")
            if job_id is not None:
                out.append((job_id, TaskKey(uuid, int(attempt), match["task"])))
        return out

    def discard(self, engine_id: EngineId) -> None:
        line = self._poll().get(engine_id)
        if line is not None and line.state in ("starting", "running"):
            return
        key = self._keys.get(engine_id) or self._key_of(engine_id)
        for name in self._names(engine_id):
            seen = self._look_in(self.spool / name, "")
            if seen.state == "gone" or seen.detail.get("drained"):
                folders.remove(self.spool / name)
        if key and not self._names(engine_id):
            for suffix in (".id", ".slurm"):
                (self.spool / f"{key}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing of a job runs here; shippers that send for dead agents go on."""
        for child in self._salvagers:
            child.returncode = child.returncode or 0
        self._salvagers.clear()


def _end(line: JobLine | None) -> dict[str, Any]:
    """How Slurm says it ended, for an agent that could not say it any more."""
    if line is None or line.word not in _CAUSES:
        return {}
    cause, kind = _CAUSES[line.word]
    by = f" by uid {line.by_uid}" if line.by_uid is not None else ""
    where = f" on {line.nodes}" if line.nodes else ""
    text = f"Slurm: {line.word}{by}{f' ({line.reason})' if line.reason else ''}{where}"
    return {"end": {"cause": cause, "class": kind, "text": text, "nodes": answer.expand_hosts(line.nodes)}}

"""The engine of the simulation: starts simulated tasks, and sees them as the local one would. May be blind or deaf."""

from collections.abc import Sequence

from headway.agent.machine import StopAsked
from headway.engines.protocol import EngineId, Given, Node, Observation, Plan, PlannedTask, Waiting
from headway.model.errors import UnreachableError
from headway.model.job import Job
from headway.testing import sim_agent
from headway.testing.sim_task import Program, Task
from headway.testing.sim_world import World
from headway.wire.batch import TaskKey

TASK = "worker-0"


class SimEngine:
    name = "local"
    cluster = "here"
    queues = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: dict[str, Task] = {}  # by engine id
        self.programs: dict[
            str, list[list[Program]]
        ] = {}  # by uuid: what each attempt will do; the last one for all more
        self.limits_s: dict[str, float | None] = {}  # by uuid

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec = job.spec
        task = PlannedTask(TASK, tuple(spec.command), spec.cwd, spec.processes, node="node")
        return Plan(self.name, self.cluster, job.id, job.uuid, attempt, (task,), spec.processes, hold_s=spec.hold_s)

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        if self.world.strikes("submit not heard"):
            raise UnreachableError("the engine could not be reached")
        name = f"{key}-{TASK}"
        if name not in self.made:
            known = self.programs[plan.uuid]
            programs, limit_s = known[min(plan.attempt, len(known)) - 1], self.limits_s[plan.uuid]
            self.made[name] = Task(self.world, plan.task_key(TASK), given.tokens[TASK], programs, limit_s, plan.hold_s)
        task = self.made[name]
        if not task.begun and task.shim is None:
            sim_agent.Shim(task)
        if self.world.strikes("submit unanswered"):
            raise UnreachableError("the engine's answer was lost")
        return EngineId(name)

    def task_of(self, uuid: str, attempt: int) -> Task | None:
        return self.made.get(f"{uuid}-{attempt}-{TASK}")

    def attempts_of(self, uuid: str) -> list[int]:
        return sorted(task.key.attempt for task in self.made.values() if task.key.uuid == uuid)

    def find(self, key: str) -> EngineId | None:
        self._look()
        name = f"{key}-{TASK}"
        return EngineId(name) if name in self.made else None

    def _look(self) -> None:
        if self.world.strikes("engine blind"):
            raise UnreachableError("the engine does not answer")

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        self._look()
        return {engine_id: self._observe(engine_id) for engine_id in ids}

    def _observe(self, name: str) -> Observation:
        task = self.made.get(name)
        if task is None or task.spool.removed:
            return Observation("gone", "no spool")
        if not task.begun:
            alive = task.shim is not None
            return Observation("starting", "starting") if alive else Observation("gone", "dead", {"started": False})
        if task.shim is not None:
            return Observation("running", "shim alive", {"started": True})
        ended = task.spool.end_fact() is not None
        if task.shipper is not None:
            return Observation("ended" if ended else "running", "shipper alive", {"started": True})
        if ended and task.spool.is_drained():
            return Observation("ended", "ended", {"started": True, "drained": True})
        return Observation("gone", "agent gone", {"started": True, "salvage": True})

    def cancel(self, engine_id: EngineId) -> bool:
        task = self.made.get(engine_id)
        if task is None or not task.begun or task.shim is None:
            return False
        task.shim.feed(StopAsked("signal 15"))
        return True

    def explain(self, engine_id: EngineId) -> Waiting:
        return Waiting("simulated")

    def capacity(self) -> list[Node]:
        return [Node("node", 8, 1 << 34, 0)]

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        return None

    def close(self) -> None: ...

    def salvage(self, engine_id: EngineId) -> bool:
        if not self._observe(engine_id).detail.get("salvage"):
            return False
        sim_agent.Shipper(self.made[engine_id])
        return True

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        return [(EngineId(name), task.key) for name, task in self.made.items() if not task.spool.removed]

    def discard(self, engine_id: EngineId) -> None:
        self.made[engine_id].spool.removed = True

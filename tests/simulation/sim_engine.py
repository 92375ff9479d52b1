"""The engine of the simulation: starts simulated tasks, and sees them as the local one would. May
be blind or deaf.
"""

from collections.abc import Callable, Sequence

from headway.agent.shim.machine import StopAsked
from headway.engines.plan import on_node, plan_of, tasks_of
from headway.engines.protocol import EngineId, Given, Node, Observation, Plan, Waiting
from headway.engines.spool import task_group
from headway.model.errors import UnreachableError
from headway.model.job import Job
from headway.wire.batch import TaskKey
from tests.simulation import sim_agent
from tests.simulation.sim_task import Program, Task
from tests.simulation.sim_world import World


class SimEngine:
    name = "local"
    cluster = "here"
    queues = False

    def __init__(self, world: World, cut_short: Callable[[], bool]) -> None:
        """`cut_short`: whether it fails between the starts of two tasks of a job."""
        self.world, self.cut_short = world, cut_short
        self.made: dict[str, Task] = {}  # by engine id
        # by uuid: what each attempt will do, by task and rank; the last one for all more
        self.programs: dict[str, list[list[list[Program]]]] = {}
        self.limits_s: dict[str, float | None] = {}  # by uuid

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        return plan_of(self.name, self.cluster, job, attempt, on_node(tasks_of(job.spec), "node"))

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        if self.world.strikes("submit not heard"):
            raise UnreachableError("the engine could not be reached")
        tasks = self.tasks_of(plan.uuid, plan.attempt) or self._make(plan, given)
        for task in tasks:
            if not task.begun and task.shim is None:
                sim_agent.Shim(task)
            if len(tasks) > 1 and self.cut_short():
                raise UnreachableError("the engine could not be reached any more")
        if self.world.strikes("submit unanswered"):
            raise UnreachableError("the engine's answer was lost")
        return self._id_of(tasks)

    def _make(self, plan: Plan, given: Given) -> list[Task]:
        """All folders, before the first start."""
        known = self.programs[plan.uuid]
        programs, limit_s = known[min(plan.attempt, len(known)) - 1], self.limits_s[plan.uuid]
        tasks = [
            Task(
                self.world,
                plan.task_key(t.name),
                given.tokens[t.name],
                ranks,
                limit_s,
                plan.hold_s,
                t.first_rank,
            )
            for t, ranks in zip(plan.tasks, programs, strict=True)
        ]
        for task in tasks:
            task.peers = tasks
            self.made[str(task.key)] = task
        return tasks

    def _id_of(self, tasks: Sequence[Task]) -> EngineId:
        """As the engines with spool folders have it (`engines/spool/task_group.py`)."""
        key = tasks[0].key
        return EngineId(str(key) if len(tasks) == 1 else f"{key.uuid}-{key.attempt}")

    def _named(self, engine_id: str) -> list[Task]:
        if engine_id in self.made:
            return [self.made[engine_id]]
        uuid, _, attempt = engine_id.rpartition("-")
        return self.tasks_of(uuid, int(attempt))

    def tasks_of(self, uuid: str, attempt: int) -> list[Task]:
        return [
            task
            for task in self.made.values()
            if (task.key.uuid, task.key.attempt) == (uuid, attempt)
        ]

    def attempts_of(self, uuid: str) -> list[int]:
        return sorted({task.key.attempt for task in self.made.values() if task.key.uuid == uuid})

    def find(self, key: str) -> EngineId | None:
        self._look()
        uuid, _, attempt = key.rpartition("-")
        tasks = self.tasks_of(uuid, int(attempt))
        return self._id_of(tasks) if tasks else None

    def _look(self) -> None:
        if self.world.strikes("engine blind"):
            raise UnreachableError("the engine does not answer")

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        self._look()
        return {
            engine_id: task_group.join(
                {task.key.task: self._observe(task) for task in self._named(engine_id)}
            )
            for engine_id in ids
        }

    def _observe(self, task: Task) -> Observation:
        if task.spool.removed:
            return Observation("gone", "no spool")
        if not task.begun:
            alive = task.shim is not None
            return (
                Observation("starting", "starting")
                if alive
                else Observation("gone", "dead", {"started": False})
            )
        if task.shim is not None:
            return Observation("running", "shim alive", {"started": True})
        ended = task.spool.end_fact() is not None
        if task.shipper is not None:
            return Observation("ended" if ended else "running", "shipper alive", {"started": True})
        if ended and task.spool.is_drained():
            return Observation("ended", "ended", {"started": True, "drained": True})
        return Observation("gone", "agent gone", {"started": True, "salvage": True})

    def cancel(self, engine_id: EngineId) -> bool:
        asked = [task for task in self._named(engine_id) if task.begun and task.shim is not None]
        for task in asked:
            task.shim.feed(StopAsked("signal 15"))
        return bool(asked)

    def explain(self, engine_id: EngineId) -> Waiting:
        return Waiting("simulated")

    def capacity(self) -> list[Node]:
        return [Node("node", 8, 1 << 34, 0)]

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        return None

    def close(self) -> None: ...

    def salvage(self, engine_id: EngineId) -> bool:
        left = [
            task for task in self._named(engine_id) if self._observe(task).detail.get("salvage")
        ]
        for task in left:
            sim_agent.Shipper(task)
        return bool(left)

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        return [
            (EngineId(name), task.key) for name, task in self.made.items() if not task.spool.removed
        ]

    def discard(self, engine_id: EngineId) -> None:
        for task in self._named(engine_id):
            task.spool.removed = True

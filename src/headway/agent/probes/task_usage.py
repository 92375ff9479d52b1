"""Usage of one task: the sampler, whom it watches, and the stream it writes to. All that the
shipper sees of probes.
"""

from __future__ import annotations

import os

from headway.agent.probes.gpu import LIBRARY_VARIABLE, Gpus
from headway.agent.probes.sampler import Sampler
from headway.agent.probes.tensorboard_usage import VARIABLE, EventFile
from headway.agent.probes.usage_stream import UsageStream
from headway.spool.files import OS_FILES, Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.agent.clock import Clock
    from headway.agent.ship.tail import Tail
    from headway.model.json_types import JsonObject
    from headway.spool.layout import TaskFile

    Fact = JsonObject

# what the job's environment says about its GPUs
_OF_THE_JOB = ("CUDA_VISIBLE_DEVICES", LIBRARY_VARIABLE)


class Usage:
    """`facts` are those of the shim, as they come; `tail` knows the streams of the processes."""

    def __init__(
        self,
        task: "TaskFile",
        tail: "Tail",
        facts: "list[Fact]",
        clock: "Clock",
        say: "Callable[[str], None]",
        env: "Mapping[str, str] | None" = None,
        files: Files = OS_FILES,
        tell: "Callable[[Fact], None] | None" = None,
    ) -> None:
        """`tell` writes a fact of the agent's own."""
        self._tell = tell
        self._tail, self._facts, self._clock, self._say = tail, facts, clock, say
        self._task, self._env = task, env
        self._events: EventFile | None = None
        self._wants_events = True  # until it is known that nobody does, or that it cannot be
        self._read = 0  # facts that were looked at
        self._met: set[str] = set()  # streams whose process is known
        self._stream = UsageStream(tail.task_dir, files)
        job = os.environ if env is None else env
        whole = {**os.environ, **{name: job[name] for name in _OF_THE_JOB if name in job}}
        now_s = clock.steady_s()
        gpus = Gpus(now_s, whole, task.gpus, say)
        self._sampler: Sampler | None = Sampler(
            task.monitoring_interval_s, self._write, now_s, gpus
        )
        # with ranks of ours in one task, those of launchers below them have numbers of their own
        if not task.ranked or task.processes == 1:
            self._sampler.look_for_launched()

    def due_s(self) -> float:
        return float("inf") if self._sampler is None else self._sampler.due_s()

    def step(self, now_s: float) -> None:
        if self._sampler is None or now_s < self._sampler.due_s():
            return
        try:
            self._meet(self._sampler)
            self._sampler.step(now_s)
            self._tell_found(self._sampler)
        # whatever a strange system does to a probe, the data of the task must go on
        except Exception as error:
            self._say(f"usage is no longer sampled: {type(error).__name__}: {error}")
            self._sampler.release()
            self._sampler = None
            self._close()

    def _meet(self, sampler: Sampler) -> None:
        """Who the ranks are: as the shim says that it started them, and as processes sign their
        streams.
        """
        for fact in self._facts[self._read :]:
            if fact.get("type") == "process_started" and isinstance(fact.get("pid"), int):
                sampler.follow(int(fact.get("rank") or 0), fact["pid"], fact.get("start"))
        self._read = len(self._facts)
        for name, tailed in self._tail.streams.items():
            if tailed.stream.role != "facts" or name in self._met or tailed.opening is None:
                continue
            self._met.add(name)
            who = self._tail.writer_of(tailed)
            if who is not None:
                sampler.follow(tailed.stream.rank or 0, who.pid, who.start)

    def _tell_found(self, sampler: Sampler) -> None:
        found, sampler.forest.found_ranks = sampler.forest.found_ranks, []
        for pid, start, told in found:
            if self._tell is not None:
                self._tell({
                    "type": "rank_found", "rank": told.rank, "local_rank": told.local_rank,
                    "world_size": told.world_size, "pid": pid, "start": start,
                })  # fmt: skip

    def _write(self, fact: "Fact") -> None:
        before = self._stream.name
        whole = {"time_ns": self._clock.wall_ns(), **fact}
        self._stream.write(whole)
        if before is not None and self._stream.name != before:
            self._tail.left.add(before)
        if self._wants_events:
            self._write_event(whole)

    def _write_event(self, fact: "Fact") -> None:
        try:
            if self._events is None:
                self._events = self._open_events()
            if self._events is not None:
                self._events.write(fact)
        except (OSError, ValueError) as error:
            self._say(f"usage is not written for TensorBoard any more: {error}")
            self._wants_events = False

    def _open_events(self) -> "EventFile | None":
        """Where the job's own environment says; a shipper that was started later reads it from a
        process of the job.
        """
        starts = [fact for fact in self._facts if fact.get("type") == "process_started"]
        env = self._env
        if env is None:
            from headway.agent.ship.secret_values import environment_of

            pids = [fact["pid"] for fact in starts if isinstance(fact.get("pid"), int)]
            env = (
                os.environ
                if self._task.attached
                else next((e for p in pids if (e := environment_of(p))), None)
            )
        if env is None:
            return None  # no process is known yet
        folder = env.get(VARIABLE)
        if not folder:
            self._wants_events = False
            return None
        begun_ns = min(
            (fact["time_ns"] for fact in starts if "time_ns" in fact), default=self._clock.wall_ns()
        )
        base = os.path.join(self._task.cwd, os.path.expanduser(folder))
        return EventFile(
            os.path.join(base, self._task.id or self._task.uuid),
            self._task.node or "node",
            begun_ns,
        )

    def close(self, now_s: float) -> None:
        """The task is over: tell what is left. Nothing is sampled afterwards."""
        if self._sampler is not None:
            self._sampler.close(now_s)
            self._sampler = None
            self._close()

    def _close(self) -> None:
        self._stream.close()
        if self._events is not None:
            self._events.close()

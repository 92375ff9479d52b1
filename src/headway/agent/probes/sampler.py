"""The sampler: each interval one `usage` fact, and with it those of longer spans (`levels`). Driven
by the shipper.

`due_s` says when `step` is wanted; a step never waits. A late step is one sample, not several:
rates are taken over the time that has really passed.
"""

from __future__ import annotations

from headway.agent.probes.gpu import Gpus
from headway.agent.probes.levels import Levels
from headway.agent.probes.node import Node
from headway.agent.probes.proc_file import Budget
from headway.agent.probes.process_tree import Forest
from headway.model.limits import USAGE_INTERVAL_S_MIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.model.json_types import JsonObject

    Fact = JsonObject

ASK_AHEAD_S = 0.2  # the GPU driver gets so long to answer before a sample is due


class Sampler:
    """`write` takes each fact. Parts are given by tests; the shipper leaves them out."""

    def __init__(
        self,
        interval_s: float,
        write: "Callable[[Fact], object]",
        now_s: float,
        gpus: Gpus | None = None,
        proc: str = "/proc",
        sys: str = "/sys",
    ) -> None:
        self._interval_s, self._write = max(USAGE_INTERVAL_S_MIN, interval_s), write
        budget = Budget()
        self.forest, self._node = Forest(proc, budget), Node(proc, sys, budget)
        self._gpus = gpus
        self._levels = Levels(now_s)
        self._asked = False
        self._at_s = now_s
        self._next_s = now_s + self._interval_s
        self._measure_node(now_s)  # rates need a beginning
        self._measure_forest(now_s)

    def follow(self, rank: int, pid: int, start: int | None) -> None:
        """A rank's process is known: it and all below it count as that rank's."""
        self.forest.follow(rank, pid, start)

    def look_for_launched(self) -> None:
        self.forest.look_for_launched()

    def due_s(self) -> float:
        if self._asked or self._gpus is None or not self._gpus.is_asked:
            return self._next_s
        return self._next_s - min(ASK_AHEAD_S, self._interval_s / 2)

    def step(self, now_s: float) -> None:
        if now_s < self.due_s():
            return
        if self._gpus is not None and not self._asked:
            self._asked = True
            self._gpus.ask(now_s)
        if now_s >= self._next_s:
            self._sample(now_s)

    def _sample(self, now_s: float) -> None:
        self._asked = False
        span_s, self._at_s = now_s - self._at_s, now_s
        late = now_s - self._next_s
        self._next_s += self._interval_s if late < self._interval_s else late + self._interval_s
        node, processes = self._measure_node(now_s), self._measure_forest(now_s)
        gpus = [] if self._gpus is None else self._gpus.take(now_s, self.forest.members)
        if node is None and not processes and not gpus:
            return  # a system that tells nothing
        sample: Fact = {"node": node, "processes": processes, "gpus": gpus}
        self._tell(0, round(span_s, 3), sample)
        for level, long_s, folded in self._levels.add(sample, now_s):
            self._tell(level, long_s, folded)

    def _tell(self, level: int, span_s: float, sample: "Fact") -> None:
        self._write({"type": "usage", "level": level, "span_s": span_s, **sample})

    def _measure_node(self, now_s: float) -> "Fact | None":
        try:
            node = self._node.sample(now_s)
        # a kernel that words a file differently costs the value, not the agent (B33)
        except (OSError, ValueError):
            return None
        return None if node["memory_bytes"] is None and node["cpu_percent"] is None else node

    def _measure_forest(self, now_s: float) -> "list[Fact]":
        try:
            self.forest.sample(now_s)
            return self.forest.lines()
        except (OSError, ValueError):  # likewise
            return []

    def close(self, now_s: float) -> None:
        """Tell what is left of the longer spans, and let everything go."""
        for level, span_s, folded in self._levels.flush(now_s):
            self._tell(level, span_s, folded)
        self.release()

    def release(self) -> None:
        """Let go of files and of the process that asks for GPUs."""
        self.forest.close()
        self._node.close()
        if self._gpus is not None:
            self._gpus.close()

"""Watching a task without its shim: because the shim was killed, or because there never was one
(attached jobs).

Called by the shipper. `AdoptedTask` goes on where a dead shim stopped, by what that wrote down;
`AttachedTask` waits for the processes of a plain `python train.py`. Both end with a `task_ended`
fact; exit codes that nobody could collect are told as lost.
"""

from __future__ import annotations

import time

from headway.agent import process
from headway.agent.process import Identity
from headway.agent.shim.machine import (
    REASON_CHARS_MAX,
    Adopted,
    LeftoversSeen,
    LookForLeftovers,
    RankExited,
    ShimMachine,
    ShimPlan,
    SignalAsked,
    SignalLeftovers,
    SignalRank,
    StopAsked,
    TellCarrier,
    Tick,
    Write,
)
from headway.wire.identity import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headway.agent.shim.folders import Carrier
    from headway.agent.shim.machine import ShimEvent
    from headway.model.json_types import JsonMapping, JsonObject
    from headway.spool.layout import TaskFile

    Fact = JsonObject
    WriteFact = Callable[[Fact], None]

ATTACHED_SETTLE_S = 1.0  # another rank of the launch may still be on its way
LOOK_S = 0.1


class AdoptedTask:
    """Drives a ShimMachine over processes that somebody else started."""

    def __init__(
        self,
        task_dir: str,
        task: "TaskFile",
        facts: "Iterable[Fact]",
        write: "WriteFact",
        now_s: float,
        say: "Callable[[str], None]" = lambda text: None,
    ) -> None:
        self._task_dir = task_dir
        plan = ShimPlan(
            max(1, task.processes),
            task.first_rank,
            task.grace_s,
            task.max_duration_s,
            sends=task.folders_sent,
        )
        self._carrier = _carrier(task_dir, task, say)
        self._machine, self._write, self._boot = ShimMachine(plan, ships=False), write, boot_id()
        self._ranks: dict[int, Identity] = {}  # local rank -> process that may live
        self._leftovers: list[process.Status] = []
        self._next_s = 0.0
        self._do(self._take_over(list(facts), task), now_s)

    @property
    def done(self) -> bool:
        return self._machine.phase == "left"

    def _take_over(self, facts: "list[Fact]", task: "TaskFile") -> Adopted:
        boot: str | None = None
        exited: list[RankExited] = []
        reason: str | None = None
        begun_ns = time.time_ns()
        for fact in facts:
            kind = fact.get("type")
            index = int(fact.get("rank") or 0) - task.first_rank
            is_ours = 0 <= index < task.processes
            if kind == "task_started":
                boot = fact.get("boot_id")
                begun_ns = int(fact.get("time_ns") or begun_ns)
            elif kind == "process_started" and is_ours:
                self._ranks[index] = Identity(int(fact["pid"]), fact.get("start"), boot)
            elif kind in ("process_exited", "start_failed") and is_ours:
                exited.append(RankExited(index, fact.get("exit_code"), fact.get("signal")))
                self._ranks.pop(index, None)
            elif kind == "stop_requested":
                reason = reason_of(fact)

        running = {index: who.pid for index, who in self._ranks.items()}
        elapsed_s = max(0.0, (time.time_ns() - begun_ns) / 1e9)
        return Adopted(running, tuple(exited), reason, elapsed_s)

    def step(self, now_s: float) -> None:
        """Look whether the processes live, and go on."""
        if self.done or now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        for index, who in list(self._ranks.items()):
            if not process.is_alive(who, self._boot):
                del self._ranks[index]
                self._do(RankExited(index, None, None), now_s)
        seen = None if self._carrier is None else self._carrier.look(now_s)
        if seen is not None:
            self._do(seen, now_s)
        self._do(Tick(), now_s)

    def stop(self, grace_s: float | None, now_s: float, reason: str | None = None) -> None:
        """`reason`: what happened in another task, where that is why."""
        self._do(
            StopAsked("command", grace_s=grace_s, reason=str(reason or "stop")[:REASON_CHARS_MAX]),
            now_s,
        )

    def signal(self, signum: int, now_s: float) -> None:
        self._do(SignalAsked(signum), now_s)

    def _do(self, event: "ShimEvent", now_s: float) -> None:
        for instruction in self._machine.handle(event, now_s):
            if isinstance(instruction, Write):
                self._write(instruction.fact)
            elif isinstance(instruction, TellCarrier) and self._carrier is not None:
                self._carrier.tell(instruction.do, now_s)
            elif isinstance(instruction, SignalRank):
                who = self._ranks.get(instruction.index)
                if who is not None:
                    process.send_group(who, instruction.signum)
            elif isinstance(instruction, LookForLeftovers):
                self._leftovers = process.members_of(self._task_dir)
                self._do(LeftoversSeen(tuple(s.pid for s in self._leftovers)), now_s)
            elif isinstance(instruction, SignalLeftovers):
                for status in self._leftovers:
                    process.send(Identity(status.pid, status.start), instruction.signum)
            else:
                pass  # nothing is started here


def _carrier(task_dir: str, task: "TaskFile", say: "Callable[[str], None]") -> "Carrier | None":
    """Of a task that has folders to send: where the old carrier is gone, another one goes on. What
    is left of a container is sent from outside.
    """
    if not task.folders_sent:
        return None
    from headway.agent.shim.folders import Carrier
    from headway.home.launch import IS_ZIP

    return Carrier(task_dir, task.folders_outside and IS_ZIP, sends=True, say=say)


def reason_of(fact: "JsonMapping") -> str:
    """What the ranks are told: `stop_requested` says who asked, and why where that was another
    task.
    """
    by = str(fact.get("by"))
    if by == "walltime":
        return "walltime"
    return f"{by} failed" if by.startswith("rank ") else str(fact.get("reason") or "stop")


class AttachedTask:
    """Waits until every process that signed a stream of this task is gone, or has said that its run
    is over.
    """

    def __init__(self, task: "TaskFile", write: "WriteFact") -> None:
        self._write, self._boot, self._grace_s = write, boot_id(), task.grace_s
        self._known: dict[tuple[int, int | None], Identity] = {}
        self._ends: dict[int, tuple[int, int | None]] = {}  # rank -> (time_ns, exit code)
        # processes that have finished this run and live on: a notebook, or a loop of several runs
        self._left: set[tuple[int, int | None]] = set()
        self._ranks: set[int] = set()
        self._gone_s: float | None = None
        self._kill_s: float | None = None
        self._stopped = False
        self._next_s = 0.0
        self.done = False
        first = task.attach or {}
        if isinstance(first.get("pid"), int):
            self.meet(Identity(first["pid"], first.get("start"), first.get("boot_id")))

    def meet(self, who: Identity) -> None:
        """A process has signed a stream."""
        self._known.setdefault((who.pid, who.start), who)

    def hear(self, facts: "Iterable[JsonMapping]", rank: int) -> None:
        """Facts of one process: how it says that it ends."""
        self._ranks.add(rank)
        for fact in facts:
            time_ns = int(fact.get("time_ns") or 0)
            if fact.get("type") == "exception" and fact.get("where") == "main":
                self._ends[rank] = (time_ns, 1)
            elif fact.get("type") == "bye":
                self._hear_bye(fact, rank, time_ns)

    def _hear_bye(self, fact: "JsonMapping", rank: int, time_ns: int) -> None:
        code = fact.get("exit_code")
        if code is None and rank in self._ends:
            return
        self._ends[rank] = (time_ns, code)
        if fact.get("over") and isinstance(fact.get("pid"), int):
            self._left.add((fact["pid"], fact.get("start")))

    def step(self, now_s: float) -> None:
        if self.done or now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        if self._is_any_alive():
            self._gone_s = None
            if self._kill_s is not None and now_s >= self._kill_s:
                self.signal(9, now_s)
            return
        if self._gone_s is None:
            self._gone_s = now_s
        if now_s >= self._gone_s + ATTACHED_SETTLE_S:
            self.done = True
            self._write(self.result())

    def _is_any_alive(self) -> bool:
        members = [who for key, who in self._known.items() if key not in self._left]
        return any(process.is_alive(who, self._boot) for who in members)

    def result(self) -> "Fact":
        codes = [self._ends.get(rank, (0, None))[1] for rank in self._ranks]
        unknown = not codes or None in codes
        exit_code: int | None = None
        first_rank: int | None = None
        if not unknown:
            exit_code = 0
        failed = sorted((when, rank, code) for rank, (when, code) in self._ends.items() if code)
        if failed:
            _, first_rank, exit_code = failed[0]

        result: Fact = {
            "type": "task_ended",
            "exit_code": exit_code,
            "signal": None,
            "first_rank": first_rank,
            "reason": "stop" if self._stopped else None,
            "oom": False,
            "lost": unknown and not failed,
        }
        if not unknown:
            # by the processes' own word: we notice it a moment later
            result["time_ns"] = max(when for when, _ in self._ends.values())
        return result

    def stop(self, grace_s: float | None, now_s: float, reason: str | None = None) -> None:
        """It has no other tasks that could be the reason."""
        if not self._stopped:
            self._write({"type": "stop_requested", "by": "command"})
        self._stopped = True
        self._kill_s = now_s + (self._grace_s if grace_s is None else grace_s)
        self.signal(15, now_s)

    def signal(self, signum: int, now_s: float) -> None:
        for who in self._known.values():
            process.send(who, signum)

"""The life of a task's processes, decided without any I/O: first failure, stopping, the time limit,
leftovers.

Events in, instructions out; time is an argument. Driven by `shim.py`, by the shipper of a task
whose shim is gone, and by the simulation.
"""

from __future__ import annotations

from headway.model.limits import (
    FLUSH_AT_END_S,
    GRACE_S,
    LEFTOVER_GIVE_UP_S,
    LEFTOVER_GRACE_S,
    SHIPPER_RESTART_FIRST_S,
    SHIPPER_RESTART_MAX_S,
)
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.model.json_types import JsonMapping, JsonObject

# plain numbers: what a stored decision says does not hang on this system
SIGKILL, SIGTERM, SIGCONT = 9, 15, 18

SETTLE_S = 0.2  # children of a rank that has just ended may end by themselves
SETTLE_STEP_S = 0.02
KILL_AGAIN_S = 1.0
SHIPPER_PROVEN_S = 60.0  # a shipper that lived so long starts the backoff anew
LEFTOVERS_TOLD_MAX = 1000
REASON_CHARS_MAX = 200  # of a stop


class ShimPlan(Value):
    processes: int
    first_rank: int = 0
    grace_s: float = GRACE_S
    max_duration_s: float | None = None
    # the ranks wait for `GoAhead`, which comes when every task of the job is there
    barrier: bool = False
    hold_s: float = 0.0  # how long the task is kept after its command has failed
    # a shipper is started so long after the ranks; a task that ends before needs none
    ships_after_s: float = 0.0
    fetches: bool = False  # the ranks wait until a carrier has brought the folders
    sends: bool = False  # the task ends when the carrier has sent them


class Begun(Value):
    """Everything is ready to start."""


class GoAhead(Value):
    """Every task of the job has an agent that runs: the ranks may start."""


class Adopted(Value):
    """Somebody else started the ranks and is gone; their exit codes cannot be had any more."""

    running: "Mapping[int, int]"  # local rank -> pid
    exited: tuple["RankExited", ...] = ()  # as the old shim wrote it down
    reason: str | None = None  # of a stop that the old shim had begun
    elapsed_s: float = 0.0  # since the ranks were started


class FoldersSeen(Value):
    """What the carrier says: its folders are there, or sent; or they cannot be."""

    ok: bool
    cause: "JsonMapping | None" = None
    notes: tuple[str, ...] = ()  # for a person


class RankStarted(Value):
    index: int  # local rank
    pid: int
    start: int | None


class RankRefused(Value):
    """It could not be started at all."""

    index: int
    exit_code: int  # 126 or 127
    message: str


class RankExited(Value):
    index: int
    exit_code: int | None  # both None: it is gone, how is not known
    signal: int | None
    oom: bool = False


class StopAsked(Value):
    by: str  # "signal 15", "command"
    signum: int = SIGTERM
    grace_s: float | None = None
    reason: str = "stop"  # or what happened in another task: "rank 5 on worker-1 failed"


class SignalAsked(Value):
    """Pass a signal on. A notice comes from outside: the machine will soon be wanted for something
    else.
    """

    signum: int
    notice: bool = False
    heard: bool = False  # the processes have got it, too


class LeftoversSeen(Value):
    pids: tuple[int, ...]


class ShipperExited(Value):
    final: bool  # it had done its work, or given up as it should


class Tick(Value):
    """Time has passed."""


if TYPE_CHECKING:
    ShimEvent = (
        Begun
        | GoAhead
        | Adopted
        | FoldersSeen
        | RankStarted
        | RankRefused
        | RankExited
        | StopAsked
        | SignalAsked
        | LeftoversSeen
        | ShipperExited
        | Tick
    )
else:
    ShimEvent = object  # `X | Y` of classes is newer than Python 3.9


class StartRank(Value):
    index: int


class StartShipper(Value):
    pass


class ShipHere(Value):
    """The task is over before it had a shipper: its own process sends what there is. Answer with
    ShipperExited.
    """


class TellCarrier(Value):
    # "start": bring the folders; "stop": no longer; "end": send what is left, and say when it is
    # done
    do: str


class Write(Value):
    """Write down a fact, synced before anything else is done. The driver adds the time."""

    fact: "JsonObject"


class SignalRank(Value):
    """Signal the process group of a rank that lives."""

    index: int
    signum: int


class RemoveEnvironment(Value):
    """The ranks run, so the environment is no longer needed on disk."""


class LookForLeftovers(Value):
    """Answer with LeftoversSeen: children and group members of the ranks that still live."""


class SignalLeftovers(Value):
    signum: int


class Leave(Value):
    """Nothing is left to do."""


if TYPE_CHECKING:
    ShimInstruction = (
        StartRank
        | StartShipper
        | ShipHere
        | TellCarrier
        | Write
        | SignalRank
        | RemoveEnvironment
        | LookForLeftovers
        | SignalLeftovers
        | Leave
    )
else:
    ShimInstruction = object  # `X | Y` of classes is newer than Python 3.9


class _Rank:
    __slots__ = ("exit_code", "pid", "signal", "skipped", "state")

    def __init__(
        self,
        state: str = "waiting",
        exit_code: int | None = None,
        signal: int | None = None,
        pid: int | None = None,
    ) -> None:
        self.state = state  # "waiting" | "running" | "ended"
        self.exit_code, self.signal, self.pid = exit_code, signal, pid
        self.skipped = False  # it was never meant to start any more

    def failed(self) -> bool:
        return self.exit_code not in (None, 0) or self.signal is not None

    def unknown(self) -> bool:
        return self.exit_code is None and self.signal is None and not self.skipped


class ShimMachine:
    """Ranks, the first failure, stopping, the time limit, leftovers, and keeping a shipper alive."""

    def __init__(self, plan: ShimPlan, *, ships: bool = True) -> None:
        self.plan = plan
        self.ranks = [_Rank() for _ in range(plan.processes)]
        self.reason: str | None = None  # why the living ranks are being ended
        self.first: int | None = None  # local rank that failed first by itself
        # "running" | "settling" | "holding" | "sending" | "flushing" | "left"
        self.phase = "running"
        self.cause: JsonMapping | None = None  # why folders could not be brought or sent
        self._at_barrier = plan.barrier
        self._fetching = plan.fetches
        self._brought = False  # the folders are there, and may have to be sent
        self._ships = ships  # False: the shipper itself drives this machine
        self._oom = False
        self._notice_s: float | None = None  # when it was told last that the machine will be wanted
        self._noticed = False  # the first failure followed such a notice
        self._kill_s: float | None = None
        self._walltime_s: float | None = None
        self._settle_s = self._sweep_s = self._flush_s = self._hold_s = 0.0
        self._told: set[int] = set()
        self._shipper_alive = False
        # no shipper was started yet, and none will be if the task is short
        self._ships_late = False
        self._shipper_since_s = 0.0
        self._restart_s: float | None = None
        self._restart_pause_s = SHIPPER_RESTART_FIRST_S

    def handle(self, event: ShimEvent, now_s: float) -> list[ShimInstruction]:
        if isinstance(event, Begun):
            return self._begin(now_s)
        elif isinstance(event, GoAhead):
            return self._pass_barrier(now_s)
        elif isinstance(event, Adopted):
            return self._adopt(event, now_s)
        elif isinstance(event, FoldersSeen):
            return self._hear_carrier(event, now_s)
        elif isinstance(event, RankStarted):
            return self._started(event)
        elif isinstance(event, RankRefused):
            return self._refused(event, now_s)
        elif isinstance(event, RankExited):
            return self._exited(event, now_s)
        elif isinstance(event, StopAsked):
            return self._stop(event.by, event.reason, event.signum, event.grace_s, now_s)
        elif isinstance(event, SignalAsked):
            return self._pass_on(event, now_s)
        elif isinstance(event, LeftoversSeen):
            return self._sweep(event.pids, now_s)
        elif isinstance(event, ShipperExited):
            return self._shipper_exited(event.final, now_s)
        elif isinstance(event, Tick):
            return self._tick(now_s)

    def wake_s(self, now_s: float) -> float | None:
        times = [self._kill_s, self._walltime_s, self._restart_s]
        if self.phase == "settling":
            times.append(now_s + SETTLE_STEP_S)
        if self.phase in ("holding", "flushing"):
            times.append(self._hold_s if self.phase == "holding" else self._flush_s)
        return min((t for t in times if t is not None), default=None)

    def _living(self) -> list[int]:
        return [i for i, rank in enumerate(self.ranks) if rank.state == "running"]

    def _rank(self, index: int) -> int:
        return self.plan.first_rank + index

    def _begin(self, now_s: float) -> list[ShimInstruction]:
        out: list[ShimInstruction] = []
        if self._ships and self.plan.ships_after_s > 0 and not self._at_barrier:
            self._restart_s, self._ships_late = now_s + self.plan.ships_after_s, True
        elif self._ships:
            out += self._start_shipper(now_s)
        if self._fetching:
            return [*out, TellCarrier("start")]
        return out if self._at_barrier else out + self._start_ranks(now_s)

    def _hear_carrier(self, event: FoldersSeen, now_s: float) -> list[ShimInstruction]:
        """Once before the ranks start, and once when they are over."""
        out: list[ShimInstruction] = [
            Write({"type": "note", "level": "warning", "text": t}) for t in event.notes
        ]
        if self.phase == "sending":
            self.cause = None if event.ok else event.cause
            return [*out, *self._end(now_s)]
        if not self._fetching or self.phase != "running":
            return out
        self._fetching = False
        if not event.ok:
            self.cause = event.cause
            return out + self._skip_ranks(now_s)
        self._brought = True
        out.append(Write({"type": "folders_ready"}))
        return out if self._at_barrier else out + self._start_ranks(now_s)

    def _start_ranks(self, now_s: float) -> list[ShimInstruction]:
        self._limit_time(0.0, now_s)
        return [StartRank(i) for i in range(self.plan.processes)]

    def _pass_barrier(self, now_s: float) -> list[ShimInstruction]:
        """May be told again, by a server that has restarted."""
        if not self._at_barrier or self.phase != "running":
            return []
        self._at_barrier = False
        return [] if self._fetching else self._start_ranks(now_s)

    def _limit_time(self, elapsed_s: float, now_s: float) -> None:
        if self.plan.max_duration_s is not None:
            self._walltime_s = now_s + max(0.0, self.plan.max_duration_s - elapsed_s)

    def _adopt(self, event: Adopted, now_s: float) -> list[ShimInstruction]:
        for index, pid in event.running.items():
            self.ranks[index] = _Rank("running", pid=pid)
        for old in event.exited:
            rank = _Rank("ended", old.exit_code, old.signal)
            self.ranks[old.index] = rank
            # a stop for another reason made the others fail
            by_itself = event.reason in (None, f"rank {self._rank(old.index)} failed")
            if self.first is None and rank.failed() and by_itself:
                self.first = old.index
        for rank in self.ranks:
            if rank.state == "waiting":
                rank.state = "ended"  # never started, or its start was not written down

        self._brought = bool(event.running or event.exited)
        self._limit_time(event.elapsed_s, now_s)
        self.reason = event.reason
        if event.reason is not None:
            self._kill_s = now_s + self.plan.grace_s
        elif self.first is not None and self._living():
            return self._end_others(now_s)
        return self._check_end(now_s)

    def _started(self, event: RankStarted) -> list[ShimInstruction]:
        rank = self.ranks[event.index]
        rank.state, rank.pid = "running", event.pid
        number = self._rank(event.index)
        fact = {
            "type": "process_started",
            "rank": number,
            "local_rank": event.index,
            "pid": event.pid,
            "start": event.start,
        }
        out: list[ShimInstruction] = [Write(fact), *self._all_up()]
        if self.reason is not None:  # a stop came while it was being started
            out.append(SignalRank(event.index, SIGTERM))
        return out

    def _all_up(self) -> list[ShimInstruction]:
        """A task that may be held keeps its environment until its end: a person who enters it shall
        have the same.
        """
        waits = any(rank.state == "waiting" for rank in self.ranks)
        return [] if waits or self.plan.hold_s > 0 else [RemoveEnvironment()]

    def _refused(self, event: RankRefused, now_s: float) -> list[ShimInstruction]:
        number = self._rank(event.index)
        fact = {
            "type": "start_failed",
            "rank": number,
            "exit_code": event.exit_code,
            "message": event.message,
        }
        self.ranks[event.index] = _Rank("ended", event.exit_code)
        return [Write(fact), *self._all_up(), *self._after_end(event.index, now_s)]

    def _exited(self, event: RankExited, now_s: float) -> list[ShimInstruction]:
        rank = self.ranks[event.index]
        if rank.state != "running":
            return []
        self._oom = self._oom or event.oom
        rank.state, rank.exit_code, rank.signal = "ended", event.exit_code, event.signal
        fact = {
            "type": "process_exited", "rank": self._rank(event.index), "pid": rank.pid,
            "exit_code": event.exit_code, "signal": event.signal, "reason": self.reason,
        }  # fmt: skip
        return [Write(fact), *self._after_end(event.index, now_s)]

    def _after_end(self, index: int, now_s: float) -> list[ShimInstruction]:
        if self.ranks[index].failed() and self.reason is None:
            self.first = index
            self._noticed = (
                self._notice_s is not None and now_s <= self._notice_s + self.plan.grace_s
            )
            if any(rank.state != "ended" for rank in self.ranks):
                return self._end_others(now_s)
        return self._check_end(now_s)

    def _end_others(self, now_s: float) -> list[ShimInstruction]:
        assert self.first is not None
        number = self._rank(self.first)
        return self._stop(f"rank {number}", f"rank {number} failed", SIGTERM, None, now_s)

    def _pass_on(self, event: SignalAsked, now_s: float) -> list[ShimInstruction]:
        out: list[ShimInstruction] = [
            SignalRank(i, event.signum) for i in self._living() if not event.heard
        ]
        if event.notice and self.phase == "running":
            self._notice_s = now_s
            out.insert(0, Write({"type": "preempt_notice", "by": f"signal {event.signum}"}))
        return out

    def _stop(
        self, by: str, reason: str, signum: int, grace_s: float | None, now_s: float
    ) -> list[ShimInstruction]:
        """Signal what lives, and kill it after the grace time. A second request may only shorten
        it.
        """
        if self.phase == "holding":
            return self._finish(now_s)
        if self.phase != "running":
            return []
        out: list[ShimInstruction] = []
        if self.reason is None:
            self.reason = reason
            why = {"reason": reason} if by == "command" and reason != "stop" else {}
            out.append(Write({"type": "stop_requested", "by": by, **why}))
        kill_s = now_s + (self.plan.grace_s if grace_s is None else max(0.0, grace_s))
        self._kill_s = kill_s if self._kill_s is None else min(self._kill_s, kill_s)
        self._walltime_s = None
        if self._fetching:
            return [*out, TellCarrier("stop"), *self._skip_ranks(now_s)]
        if self._at_barrier:
            return out + self._skip_ranks(now_s)
        for index in self._living():
            # one that is stopped must wake to hear it
            out += [SignalRank(index, signum), SignalRank(index, SIGCONT)]
        return out

    def _skip_ranks(self, now_s: float) -> list[ShimInstruction]:
        """Stopped before the other tasks or the folders were there: nothing of this one runs, or
        ever will.
        """
        self._at_barrier = self._fetching = False
        for rank in self.ranks:
            rank.state, rank.skipped = "ended", True
        return [RemoveEnvironment(), *self._check_end(now_s)]

    def _tick(self, now_s: float) -> list[ShimInstruction]:
        out: list[ShimInstruction] = []
        if self.phase == "running" and _is_due(self._walltime_s, now_s):
            out += self._stop("walltime", "walltime", SIGTERM, None, now_s)
        if _is_due(self._kill_s, now_s):
            living = self._living()
            self._kill_s = None
            if living:
                self._kill_s = now_s + KILL_AGAIN_S
                out += [SignalRank(i, SIGKILL) for i in living]
        if _is_due(self._restart_s, now_s):
            out += self._start_shipper(now_s)

        # each of these may end its phase, and the next one then looks at the new one
        if self.phase == "settling":
            out.append(LookForLeftovers())
        if self.phase == "holding" and now_s >= self._hold_s:
            out += self._finish(now_s)
        if self.phase == "flushing" and now_s >= self._flush_s:
            out += self._leave()
        return out

    # -- the end

    def _check_end(self, now_s: float) -> list[ShimInstruction]:
        if self.phase != "running" or any(rank.state != "ended" for rank in self.ranks):
            return []
        self.phase, self._settle_s, self._sweep_s = "settling", now_s, 0.0
        self._kill_s = self._walltime_s = None
        return [LookForLeftovers()]

    def _sweep(self, pids: tuple[int, ...], now_s: float) -> list[ShimInstruction]:
        """Leftovers get a moment to end by themselves, then SIGTERM, then SIGKILL; the task ends
        without them.
        """
        if self.phase != "settling":
            return []
        gave_up = self._sweep_s and now_s >= self._sweep_s + LEFTOVER_GIVE_UP_S
        if not pids or gave_up:
            return self._hold(now_s) if self._is_to_hold() else self._finish(now_s)
        if now_s < self._settle_s + SETTLE_S:
            return []

        out: list[ShimInstruction] = []
        room = max(0, LEFTOVERS_TOLD_MAX - len(self._told))
        fresh = sorted(set(pids) - self._told)[:room]
        if fresh:
            self._told.update(fresh)
            out.append(Write({"type": "leftovers", "pids": fresh}))

        is_first = not self._sweep_s
        if is_first:
            self._sweep_s = now_s
        if now_s >= self._sweep_s + min(self.plan.grace_s, LEFTOVER_GRACE_S):
            out.append(SignalLeftovers(SIGKILL))
        elif is_first or fresh:
            out.append(SignalLeftovers(SIGTERM))
        return out

    def _is_to_hold(self) -> bool:
        """A command that failed by itself is worth a look; one that was stopped or preempted has no
        secret.
        """
        return self._ships and self.plan.hold_s > 0 and self.first is not None and not self._noticed

    def _hold(self, now_s: float) -> list[ShimInstruction]:
        """Stay, so that a person can enter: whatever ends the task from here on, its result is this
        one.
        """
        self.phase, self._hold_s = "holding", now_s + self.plan.hold_s
        return [Write({**self._result(), "type": "task_held", "hold_s": self.plan.hold_s})]

    def _finish(self, now_s: float) -> list[ShimInstruction]:
        """The task ends when its folders are sent."""
        if not self.plan.sends or not self._brought:
            return self._end(now_s)
        self.phase = "sending"
        return [TellCarrier("end")]

    def _end(self, now_s: float) -> list[ShimInstruction]:
        self.phase, self._flush_s = "flushing", now_s + FLUSH_AT_END_S
        out: list[ShimInstruction] = [Write(self._result())]
        if self.plan.hold_s > 0:
            out.append(RemoveEnvironment())
        if not self._ships:
            return [*out, *self._leave()]
        if self._ships_late:
            self._restart_s, self._ships_late = None, False
            self._shipper_alive, self._shipper_since_s = True, now_s
            return [*out, ShipHere()]
        if not self._shipper_alive:
            out += self._start_shipper(now_s)
        return out

    def _result(self) -> "JsonObject":
        # the rank whose end is the task's: the first that failed, else one that the stop made fail
        chosen = None
        if self.first is not None:
            chosen = self.ranks[self.first]
        elif self.reason is not None:
            chosen = next((rank for rank in self.ranks if rank.failed()), None)
        lost = chosen is None and any(rank.unknown() for rank in self.ranks)
        reason = None
        if self.first is None:
            reason = self.reason
        cause = None
        if chosen is None and reason is None and not lost:
            cause = self.cause

        exit_code: int | None = 0
        if chosen is not None:
            exit_code = chosen.exit_code
        elif lost or cause is not None or all(rank.skipped for rank in self.ranks):
            exit_code = None
        result: JsonObject = {
            "type": "task_ended",
            "exit_code": exit_code,
            "signal": None if chosen is None else chosen.signal,
            "first_rank": None if self.first is None else self._rank(self.first),
            "reason": "preempted" if self._noticed else reason,
            "oom": self._oom,
            "lost": lost,
        }
        if cause is not None:
            result["cause"] = dict(cause)
        return result

    def _leave(self) -> list[ShimInstruction]:
        self.phase, self._restart_s = "left", None
        return [Leave()]

    # -- the shipper

    def _start_shipper(self, now_s: float) -> list[ShimInstruction]:
        self._restart_s, self._shipper_alive, self._shipper_since_s = None, True, now_s
        self._ships_late = False
        return [StartShipper()]

    def _shipper_exited(self, final: bool, now_s: float) -> list[ShimInstruction]:
        self._shipper_alive = False
        if self.phase == "left" or (final and self.phase == "flushing"):
            return self._leave()
        if now_s - self._shipper_since_s >= SHIPPER_PROVEN_S:
            self._restart_pause_s = SHIPPER_RESTART_FIRST_S
        self._restart_s = now_s + self._restart_pause_s
        self._restart_pause_s = min(2 * self._restart_pause_s, SHIPPER_RESTART_MAX_S)
        return []


def _is_due(time_s: float | None, now_s: float) -> bool:
    return time_s is not None and now_s >= time_s

"""The shim: starts a task's processes, waits for them, writes down how they ended, and keeps a
shipper alive.

Started by an engine as `shim TASK_DIR`, once per task: where `shim.json` lies, a task was started
and is never started again (F28). It talks to no network and imports little. What to do is decided
by `ShimMachine`; here it is done.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from headway import __version__
from headway.agent import process
from headway.agent.agent_log import AgentLog
from headway.agent.clock import Clock
from headway.agent.link import ShimLink, make_links
from headway.agent.process import name_process
from headway.agent.shim.exit_record import ExitRecord
from headway.agent.shim.machine import (
    REASON_CHARS_MAX,
    Begun,
    FoldersSeen,
    GoAhead,
    Leave,
    LeftoversSeen,
    LookForLeftovers,
    RankExited,
    RankRefused,
    RankStarted,
    RemoveEnvironment,
    ShimMachine,
    ShimPlan,
    ShipHere,
    ShipperExited,
    SignalAsked,
    SignalLeftovers,
    SignalRank,
    StartRank,
    StartShipper,
    StopAsked,
    TellCarrier,
    Tick,
    Write,
)
from headway.agent.shim.ports import Ports, own_address
from headway.agent.shim.rank import CANNOT_RUN, Start, read_environment, start_rank
from headway.agent.shim.rank_env import replaced
from headway.agent.task_locks import take_lock
from headway.model.errors import HeadwayError
from headway.model.limits import PROCESSES_MAX, PTY_DRAIN_S
from headway.spool.files import OS_FILES, Files, replace_file
from headway.spool.layout import TaskFile
from headway.wire.identity import boot_id, process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.agent.shim.folders import Carrier
    from headway.agent.shim.machine import ShimEvent, ShimInstruction
    from headway.agent.shim.memory_limit import MemoryLimit
    from headway.model.json_types import JsonObject

EXIT_OK, EXIT_ERROR, EXIT_LOCKED, EXIT_GAVE_UP, EXIT_TAKEN = 0, 1, 3, 4, 5
SHIM_JSON = "shim.json"
SHIPS_AFTER_S = 0.05  # a task that is over by then never has a shipper of its own
# so long the shim itself tries to send a short task; then a shipper of its own does
SHIP_HERE_S = 5.0
# adopting orphans is arranged when the ranks are under way: it costs some milliseconds
REAPER_S = 0.03
SEQS_MAX = 1024
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Shim:
    """`warm`: forked by the warm launcher, so that all code is loaded and nothing is started ahead
    of its use.
    """

    def __init__(self, task_dir: str, files: Files = OS_FILES, *, warm: bool = False) -> None:
        self.task_dir, self.files, self._warm = task_dir, files, warm
        self._adopts = False  # whatever the ranks leave behind becomes our child
        self.clock, self.log = Clock(), AgentLog(task_dir, "shim")
        self._lock: int | None = None
        self._link: ShimLink | None = None
        self._starting: dict[int, Start] = {}  # pipe -> rank on its way
        self._told: dict[int, bytearray] = {}  # pipe -> what it has said so far
        self._pids: dict[int, int] = {}  # pid -> local rank
        self._living: dict[int, int] = {}  # local rank -> pid, not reaped
        self._groups: set[int] = set()
        # all that were ever forked; each leads a session of its own
        self._shippers: set[int] = set()
        self._shipper: int | None = None
        self._copiers: dict[
            int, tuple[int, int]
        ] = {}  # pid -> (pipe, rank); of terminals, that live; each leads a session of its own
        self._drain_s: float | None = None  # until then the end waits for what terminals still hold
        self._leftovers: list[process.Status] = []
        self._memory: MemoryLimit | None = None  # where the task may have only so much
        self._seqs: dict[int, None] = {}
        self._reaper_s: float | None = None
        self._started: JsonObject | None = None  # the task_started fact, until it is written
        self._left = False
        self._taken = False  # somebody on another machine speaks for this task now
        self._ports = Ports()
        self._carrier: Carrier | None = None  # of a task with folders
        # tasks of the job with their addresses, once they are known
        self._peers: list[JsonObject] = []

    # -- starting

    def run(self) -> int:
        os.umask(0o077)
        name_process("hw-shim")
        refusal = self._prepare()
        if refusal is not None:
            self.log.say(refusal)
            os.write(2, f"headway: {refusal}\n".encode(errors="replace"))
            return EXIT_LOCKED if self._lock is None or self._was_started() else EXIT_ERROR
        self._catch_signals()
        self._adopts = self._warm and process.become_subreaper()
        if self.task.barrier and self._carrier is None:
            self._tell_started()  # with folders: when they are there
        self._handle([Begun()])
        while not self._left:
            self._turn()
        return EXIT_OK

    def _prepare(self) -> str | None:
        """Everything that must stand before a process may be started; a reason when it cannot."""
        try:
            self._lock = take_lock(os.path.join(self.task_dir, "shim.lock"))
            if self._lock is None:
                return "another agent holds this task"
            if self._was_started():
                return "this task was started before; it is not started again"
            self.task = TaskFile.load(self.task_dir, self.files)
            if not 1 <= self.task.processes <= PROCESSES_MAX:
                return f"a task has 1 to {PROCESSES_MAX} processes, not {self.task.processes}"
            self.env = read_environment(self.task_dir, self.files)
            if self.env.get("HEADWAY_TELEGRAF"):  # bound before the first process can send to it
                from headway.agent.observe import line_listener

                line_listener.prepare(self.env["HEADWAY_TELEGRAF"])
            if self.task.inherit_env:
                self.env = {**os.environ, **self.env}
            for name in replaced(self.env, self.task.env_set) if self.task.ranked else ():
                self.log.say(
                    f"{name} of the submitter's shell is not used; to set it for a job: --env {name}=…"
                )
            me = {"pid": os.getpid(), "start": process_start(), "boot_id": boot_id()}
            here = self._reserve()
            opening = {"rank": None, "pid": me["pid"], "start": me["start"], "segment": None}
            self._record = ExitRecord(
                self.task_dir, opening, self.task.processes, self.clock.wall_ns(), self.files
            )
            replace_file(
                self.files, os.path.join(self.task_dir, SHIM_JSON), json.dumps(me).encode()
            )
        except OSError as error:
            return (
                f"the task cannot be started: {error.filename or self.task_dir}: {error.strerror}"
            )
        except HeadwayError as error:
            return f"the task cannot be started: {error.message}"
        task = self.task
        if task.folders:
            from headway.agent.shim.folders import Carrier

            self._carrier = Carrier(
                self.task_dir, task.folders_outside, task.folders_sent, self.log.say
            )
        ships_after_s = SHIPS_AFTER_S if self._warm and not task.folders else 0.0
        limits = (task.grace_s, task.max_duration_s, task.barrier, task.hold_s, ships_after_s)
        plan = ShimPlan(
            task.processes, task.first_rank, *limits, bool(task.folders), task.folders_sent
        )
        self._machine = ShimMachine(plan)
        if task.memory_limit_bytes is not None:
            from headway.agent.shim.memory_limit import MemoryLimit

            name = f"headway-{os.path.basename(self.task_dir)}"
            self._memory = MemoryLimit(task.memory_limit_bytes, name, self.log.say)
        self._oom_file = process.oom_file()
        self._oom_kills = process.oom_kills(self._oom_file)
        version = ".".join(str(part) for part in sys.version_info[:3])
        self._started = {
            "type": "task_started",
            "node": self.task.node or os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
            **me,
            **here,
            "version": __version__,
            "python": version,
        }
        return None

    def _reserve(self) -> "JsonObject":
        """This task's address, with a port for the program and one where rank 0 may listen for the
        others.
        """
        address = self.task.address or own_address(os.uname().nodename, self.task.by_number)
        here = {"address": address, "port": self._ports.take(address)}
        if self.task.first_rank == 0:
            here["master_port"] = self._ports.take(address)
        self._peers = [{"task": self.task.task, "role": self.task.role, **here}]
        return here

    def _was_started(self) -> bool:
        return os.path.lexists(os.path.join(self.task_dir, SHIM_JSON))

    def _catch_signals(self) -> None:
        self._wake, far = os.pipe()
        for fd in (self._wake, far):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(far, warn_on_full_buffer=False)
        self._wake_far = far
        for signum in (*_STOPS, *_PASSED_ON, signal.SIGCHLD):
            signal.signal(signum, _noted)
        signal.signal(signal.SIGHUP, _noted)  # not ignored: programs would inherit that
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    # -- the loop

    def _turn(self) -> None:
        ready = self._wait()
        events: list[ShimEvent] = []
        if self._wake in ready:
            events += self._take_signals()
        for pipe in [fd for fd in self._starting if fd in ready]:
            events += self._learn_start(pipe)
        if self._link is not None and self._link.fileno() in ready:
            events += self._take_orders()
        events += self._reap()
        if self._carrier is not None:
            carried = self._carrier.look(time.monotonic())
            if carried is not None:
                events.append(carried)
        if self._memory is not None and self._living:
            memory_s = self._memory.due_s()
            now_s = time.monotonic()
            if memory_s is not None and now_s >= memory_s:
                self._memory.look(now_s, self._groups, self._our_sessions())
        if self._reaper_s is not None and time.monotonic() >= self._reaper_s:
            self._reaper_s = None
            process.become_subreaper()
        events.append(Tick())
        self._handle(events)

    def _wait(self) -> set[int]:
        now_s = time.monotonic()
        poll = select.poll()
        for fd in [
            self._wake,
            *self._starting,
            *([self._link.fileno()] if self._link is not None else []),
        ]:
            poll.register(fd, select.POLLIN)
        carrier_s = None if self._carrier is None else self._carrier.due_s()
        memory_s = self._memory.due_s() if self._memory is not None and self._living else None
        times = [
            t
            for t in (self._machine.wake_s(now_s), self._reaper_s, carrier_s, memory_s)
            if t is not None
        ]
        timeout_ms = None if not times else max(0.0, (min(times) - now_s) * 1000)
        return {fd for fd, _ in poll.poll(timeout_ms)}

    def _handle(self, events: "list[ShimEvent]") -> None:
        """Decide and do. Facts are synced together, before anything is done that somebody else
        could notice.
        """
        now_s = time.monotonic()
        facts: list[JsonObject] = []
        queue = list(events)
        while queue:
            instructions: list[ShimInstruction] = []
            for event in queue:
                instructions += self._machine.handle(event, now_s)
            queue = []
            for instruction in _once(instructions):
                if isinstance(instruction, Write):
                    facts.append({"time_ns": self.clock.wall_ns(), **instruction.fact})
                    continue
                if not isinstance(instruction, (LookForLeftovers, RemoveEnvironment)):
                    self._write(facts)
                    facts = []
                queue += self._obey(instruction, now_s)
        self._write(facts)

    def _obey(self, instruction: "ShimInstruction", now_s: float) -> "list[ShimEvent]":
        if isinstance(instruction, StartShipper):
            self._start_shipper()
        elif isinstance(instruction, ShipHere):
            return [ShipperExited(self._ship_here() in (EXIT_OK, EXIT_GAVE_UP))]
        elif isinstance(instruction, TellCarrier) and self._taken and instruction.do == "end":
            return [FoldersSeen(True)]
        elif isinstance(instruction, TellCarrier) and self._carrier is not None:
            self._carrier.tell(instruction.do, now_s)
        elif isinstance(instruction, StartRank):
            return self._start_rank(instruction.index, now_s)
        elif isinstance(instruction, SignalRank):
            self._signal_rank(instruction.index, instruction.signum)
        elif isinstance(instruction, RemoveEnvironment):
            self._remove_environment()
        elif isinstance(instruction, LookForLeftovers):
            self._leftovers = self._look_for_leftovers()
            if not self._leftovers and self._drains(now_s):
                return []
            return [LeftoversSeen(tuple(s.pid for s in self._leftovers))]
        elif isinstance(instruction, SignalLeftovers):
            for status in self._leftovers:
                process.send(process.Identity(status.pid, status.start), instruction.signum)
        elif isinstance(instruction, Leave):
            self._left = True
        else:
            pass
        return []

    def _drains(self, now_s: float) -> bool:
        """Nobody holds a terminal any more, so its copier is about to end; what it still writes
        belongs to the task.
        """
        self._drain_s = self._drain_s or now_s + PTY_DRAIN_S
        return bool(self._copiers) and now_s < self._drain_s

    def _our_sessions(self) -> set[int]:
        """Of processes below us that do not belong to the task."""
        ours = self._shippers | set(self._copiers)
        return ours | (set() if self._carrier is None else self._carrier.sessions)

    def _look_for_leftovers(self) -> list[process.Status]:
        ours = self._our_sessions()
        found = process.leftovers_below(os.getpid(), ours) if self._adopts else None
        return process.leftovers(os.getpid(), self._groups, ours) if found is None else found

    def _write(self, facts: "list[JsonObject]") -> None:
        if not facts:
            return
        self._append(facts)

    def _tell_started(self) -> None:
        """Before the barrier, and not with the first rank's start: it is what the others wait for."""
        self._append([])

    def _append(self, facts: "list[JsonObject]") -> None:
        if self._taken:
            return
        if self._started is not None:
            now_ns = facts[0]["time_ns"] if facts else self.clock.wall_ns()
            facts = [{"time_ns": now_ns, **self._started}, *facts]
            self._started = None
        if any(fact["type"] == "task_ended" for fact in facts) and self._record.is_removed():
            reason = "its folder in the spool was removed while it ran; what is not here is lost"
            gap = {"type": "gap", "time_ns": self.clock.wall_ns(), "stream": "all streams"}
            facts = [{**gap, "reason": reason}, *facts]
        self._record.append(facts)
        if self._record.trouble is not None:
            self.log.say(self._record.trouble)
            self._record.trouble = None
        if self._link is not None:
            self._link.say()

    # -- ranks

    def _start_rank(self, index: int, now_s: float) -> "list[ShimEvent]":
        try:
            start = start_rank(self.task, self.env, index, self.task_dir, self._peers)
        except OSError as error:
            return [RankRefused(index, CANNOT_RUN, f"no process can be started: {error.strerror}")]
        if start.lost:
            now_ns = self.clock.wall_ns()
            self._append(
                [
                    {"type": "gap", "time_ns": now_ns, "stream": stream, "reason": why}
                    for stream, why in start.lost
                ]
            )
        self._starting[start.pipe] = start
        self._pids[start.pid] = index
        self._living[index] = start.pid
        self._groups.add(start.pid)
        if self._memory is not None:
            self._memory.take_in(start.pid)
        if start.copier is not None:
            self._copiers[start.copier] = (start.copier_pipe, self.task.first_rank + index)
        self._reaper_s = None if self._adopts else now_s + REAPER_S
        return []

    def _learn_start(self, pipe: int) -> "list[ShimEvent]":
        """The pipe has ended empty: the program runs. Or it holds the reason why not."""
        told = self._told.setdefault(pipe, bytearray())
        try:
            while part := os.read(pipe, 1 << 16):
                told += part
        except BlockingIOError:
            return []
        start = self._starting.pop(pipe)
        del self._told[pipe]
        os.close(pipe)
        if not told:
            return [RankStarted(start.index, start.pid, process_start(start.pid))]
        code, _, message = told.decode(errors="replace").partition(" ")
        return [RankRefused(start.index, int(code), message)]

    def _reap(self) -> "list[ShimEvent]":
        """Take the exit of everything that has ended: ranks, the shipper, and orphans that became
        ours.
        """
        events: list[ShimEvent] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            self._copier_ended(pid)
            if pid == self._shipper:
                self._shipper = None
                events += self._lose() if code == EXIT_TAKEN else []
                events.append(ShipperExited(code in (EXIT_OK, EXIT_GAVE_UP, EXIT_TAKEN)))
            elif pid in self._pids:
                events += self._rank_exited(self._pids.pop(pid), code)
        return events

    def _copier_ended(self, pid: int) -> None:
        """What it could not write is told as a gap (P5)."""
        if pid not in self._copiers:
            return
        pipe, rank = self._copiers.pop(pid)
        told = os.read(pipe, 32)
        os.close(pipe)
        if told.isdigit() and int(told):
            gap = {"type": "gap", "time_ns": self.clock.wall_ns(), "stream": f"stdout-{rank}"}
            self._append([{**gap, "bytes": int(told), "reason": "it could not be written"}])

    def _lose(self) -> "list[ShimEvent]":
        """The task may have been started anew elsewhere: its processes end here, and nothing more
        is written down.
        """
        self._taken = True
        return [StopAsked("another machine", reason="taken over")]

    def _rank_exited(self, index: int, code: int) -> "list[ShimEvent]":
        events: list[ShimEvent] = []
        for pipe, start in list(self._starting.items()):
            if start.index == index:  # how it started is known before how it ended
                os.set_blocking(pipe, True)
                events += self._learn_start(pipe)
        self._living.pop(index, None)
        if code >= 0:
            return [*events, RankExited(index, code, None, oom=code != 0 and self._was_oom())]
        # another signal than SIGKILL: a launcher that aborts because its child was killed
        return [*events, RankExited(index, None, -code, oom=self._was_oom())]

    def _was_oom(self) -> bool:
        """Whether something of the task, or of our cgroup, was killed for want of memory since we
        started.
        """
        if self._memory is not None and self._memory.kills():
            return True
        now = process.oom_kills(self._oom_file)
        return now is not None and self._oom_kills is not None and now > self._oom_kills

    def _signal_rank(self, index: int, signum: int) -> None:
        """A rank that we have not reaped keeps its number, so this can hit nobody else (F29)."""
        pid = self._living.get(index)
        if pid is None:
            return
        for call in (os.killpg, os.kill):  # before its setsid it has no group yet
            try:
                call(pid, signum)
                return
            except (ProcessLookupError, PermissionError):
                continue

    def _remove_environment(self) -> None:
        try:
            self.files.unlink(os.path.join(self.task_dir, "env.json"))
        except FileNotFoundError:
            return
        except OSError as error:
            self.log.say(f"env.json could not be removed: {error.strerror}")

    # -- signals and orders

    def _take_signals(self) -> "list[ShimEvent]":
        try:
            numbers = os.read(self._wake, 4096)
        except BlockingIOError:
            return []
        events: list[ShimEvent] = [
            StopAsked(f"signal {n}", n) for n in dict.fromkeys(numbers) if n in _STOPS
        ]
        heard = self.task.signals_all
        return events + [
            SignalAsked(n, n == signal.SIGUSR1, heard) for n in numbers if n in _PASSED_ON
        ]

    def _take_orders(self) -> "list[ShimEvent]":
        assert self._link is not None
        events: list[ShimEvent] = []
        for order in self._link.hear():
            events += self._order(order)
        if self._link.ended:
            self._link.close()
            self._link = None
        return events

    def _order(self, order: "JsonObject") -> "list[ShimEvent]":
        """Each order once, also if a shipper that was restarted hands it on again."""
        assert self._link is not None
        seq, signum, grace_s = order.get("seq"), order.get("signal"), order.get("grace_s")
        if not isinstance(seq, int):
            return []
        self._link.say({"done": seq})
        if seq in self._seqs:
            return []
        self._seqs[seq] = None
        if len(self._seqs) > SEQS_MAX:
            self._seqs.pop(next(iter(self._seqs)))
        if order.get("do") == "stop":
            reason = str(order.get("reason") or "stop")[:REASON_CHARS_MAX]
            grace_s = float(grace_s) if isinstance(grace_s, (int, float)) else None
            return [StopAsked("command", grace_s=grace_s, reason=reason)]
        if order.get("do") == "go":
            peers = order.get("peers")
            self._peers = peers if isinstance(peers, list) and peers else self._peers
            return [GoAhead()]
        if isinstance(signum, int) and signum in signal.valid_signals():
            return [SignalAsked(signum)]
        return []

    # -- the shipper

    def _start_shipper(self) -> None:
        if self._taken:
            self._handle([ShipperExited(final=True)])
            return
        ours, theirs = make_links()
        if self._link is not None:
            self._link.close()
        try:
            pid = os.fork()
        except OSError as error:
            self.log.say(f"no shipper can be started: {error.strerror}")
            for link in (ours, theirs):
                link.close()
            self._link = None
            self._handle([ShipperExited(final=False)])
            return
        if pid == 0:
            self._become_shipper(ours, theirs)
        theirs.close()
        self._link, self._shipper = ours, pid
        self._shippers.add(pid)

    def _ship_here(self) -> int:
        """The task was so short that it has no shipper: this process sends what there is. One that
        comes to nothing is as one that was killed, and the next is a process of its own.
        """
        from headway.agent.main import ship_here

        try:
            return ship_here(self.task_dir, self.task, self.env, SHIP_HERE_S)
        # the exit is written down; whatever it was, another shipper may do better
        except Exception as error:
            self.log.say(f"the shipper failed: {type(error).__name__}: {error}")
            return EXIT_ERROR
        finally:
            name_process("hw-shim")

    def _become_shipper(self, ours: ShimLink, theirs: ShimLink) -> None:
        """In the forked child; never returns. What belongs to the shim is let go first."""
        code = EXIT_ERROR
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for signum in (*_STOPS, *_PASSED_ON, signal.SIGCHLD):
                signal.signal(signum, signal.SIG_DFL)
            ours.close()
            self._record.close()
            self._ports.close()
            for fd in (self._wake, self._wake_far, self._lock, *self._starting):
                if fd is not None:
                    os.close(fd)
            from headway.agent.main import run_shipper

            code = run_shipper(self.task_dir, theirs, self.env)
        except BaseException as error:  # a forked child must end here; the shim starts another one
            self.log.say(f"the shipper failed: {type(error).__name__}: {error}")
        finally:
            os._exit(code)


def _once(instructions: "list[ShimInstruction]") -> "list[ShimInstruction]":
    """A second look for leftovers in one turn would see the same: it reads every process of the
    machine.
    """
    out: list[ShimInstruction] = []
    for instruction in instructions:
        if not isinstance(instruction, LookForLeftovers) or instruction not in out:
            out.append(instruction)
    return out


def _noted(signum: int, frame: object) -> None:
    """The wake-up pipe has the number; a handler must stand for it to be written."""

"""The shipper: tails a task's streams and sends them to the server. Forked by the shim, or started
to adopt a task.

One loop over a few descriptors; everything that could block is either without blocking (the
server), in a thread (the disk) or in a child (git, registering). What to do is decided by
`ShipperMachine`; here it is done.
"""

from __future__ import annotations

import os
import select

from headway.agent import process
from headway.agent.agent_log import AgentLog
from headway.agent.clock import Clock
from headway.agent.observe.progress_facts import ProgressWatch
from headway.agent.observe.provenance import Inquiry
from headway.agent.shim.machine import Tick
from headway.agent.ship import secret_values, spool_space
from headway.agent.ship.answer import read_acks, reason_of
from headway.agent.ship.batcher import Batch, Packer
from headway.agent.ship.cleanup import keep_refused, remove_folder, sweep_drafts
from headway.agent.ship.events import (
    Busy,
    Drop,
    Failed,
    Finish,
    Forget,
    Free,
    Log,
    Pack,
    Reload,
    Remove,
    Retry,
    Seen,
    TaskEnded,
)
from headway.agent.ship.fsync_thread import Keeper
from headway.agent.ship.machine import ShipperMachine, ShipperPlan
from headway.agent.ship.orphan import AdoptedTask, AttachedTask
from headway.agent.ship.shipper_facts import Notebook
from headway.agent.ship.spool_facts import FactTail
from headway.agent.ship.spool_space import Room
from headway.agent.ship.tail import Tail
from headway.agent.ship.takeover import Claim, was_taken
from headway.agent.ship.wakeup import Bell
from headway.agent.transport.heartbeat import Commands
from headway.agent.transport.http import Answer, TaskName, open_channels
from headway.agent.transport.register import Registrar
from headway.model.errors import HeadwayError
from headway.model.limits import (
    SEND_TIMEOUT_S,
    SYNC_INTERVAL_S,
    TAIL_INTERVAL_ACTIVE_S,
    TAIL_INTERVAL_ARMED_S,
    TAIL_INTERVAL_IDLE_S,
)
from headway.spool import cursor
from headway.spool.files import OS_FILES, Files
from headway.spool.layout import TaskFile
from headway.wire.batch_head import encode_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.agent.link import ShimLink
    from headway.agent.observe.event_files import EventFiles
    from headway.agent.observe.line_listener import LineListener
    from headway.agent.observe.stacks import StackRequests
    from headway.agent.probes.task_usage import Usage
    from headway.agent.ship.events import ShipperEvent, ShipperInstruction
    from headway.agent.ship.mask import Mask
    from headway.model.json_types import JsonObject

    Fact = JsonObject

EXIT_DONE, EXIT_ERROR, EXIT_LOCKED, EXIT_GAVE_UP, EXIT_TAKEN = 0, 1, 3, 4, 5
ACTIVE_S = 2.0  # after growth, streams are looked at more often for so long
# the second while only samples of usage move: a save costs more than a sample
CURSOR_S, CURSOR_QUIET_S = 0.5, 10.0
POLL_FIRST_S = 0.2  # the first question for commands may wait: a short task never asks
USAGE_FIRST_S = 0.2
EVENT_FILES_FIRST_S = 1.0  # TensorBoard's files are looked for after this; at the end in any case


class Shipper:
    """`link` is the way to the shim that forked us; without it the task is adopted. `over`: the
    task has ended, and this is the process that ran it.
    """

    def __init__(
        self,
        task_dir: str,
        task: TaskFile,
        link: "ShimLink | None" = None,
        env: "Mapping[str, str] | None" = None,
        files: Files = OS_FILES,
        *,
        over: bool = False,
    ) -> None:
        self.task_dir, self.task, self.link, self.files = task_dir, task, link, files
        self.clock, self.log = Clock(), AgentLog(task_dir, "shipper")
        self.exit_code: int | None = None
        self._env, self._over = env, over
        sweep_drafts(task_dir, files)
        self._cursor = cursor.load(task_dir, files)
        self.tail = Tail(task_dir, self.clock, self._cursor, files)
        self.tail.drops = spool_space.load(task_dir, files)
        self.machine = ShipperMachine(ShipperPlan(task.spool_bytes_max))
        self._room = Room(task_dir, self.tail, self.log.say, files)
        self._packer = Packer(self.tail, self._get_mask, self.log.say, files)
        self._keeper, self._notebook = Keeper(task_dir, files), Notebook(task_dir, files)
        self._mask: Mask | None = None
        self._secrets: list[bytes] | None = None
        self._channel, asking = open_channels(task_dir, task, self.log.say, files)
        self._commands = Commands(asking, self._do_command)
        self._key = None if task.attached else TaskName(task.uuid, task.attempt, task.task)
        self._registrar = Registrar(task_dir, task) if task.attached else None
        self._watch: AdoptedTask | AttachedTask | None = None
        self._pending: dict[int, Fact] = {}  # commands that the shim has not confirmed
        self._queue: list[ShipperEvent] = []
        self._packed: list[Batch] = []
        self._posted: Batch | None = None
        self._facts: dict[str, FactTail] = {}
        self._shim_facts: list[Fact] = []
        self._hello: Fact | None = None
        self._ended = False
        self._inquiry = Inquiry(
            task, env, self._get_secrets, self._write_fact, self.log.say, over=over
        )
        self._usage: Usage | None = None
        self._event_files: EventFiles | None = None
        self._lines = self._listen(env)
        self._stacks: StackRequests | None = None
        self._progress = ProgressWatch(
            task_dir, self.tail, self.clock, self._get_secrets, self.log.say, files
        )
        self._bell, self._claim = Bell(task_dir), Claim(task_dir, bool(task.tray))
        self._begun_s = self.clock.steady_s()
        self._first_ack_s: float | None = None
        self._look_s = self._active_s = self._sync_s = self._cursor_s = self._begun_s
        self._commands.next_s = self._begun_s + POLL_FIRST_S

    # -- the loop

    def run(self, limit_s: float | None = None) -> int:
        """Until everything is sent, or given up; with a limit, EXIT_ERROR after so long: another
        shipper goes on.
        """
        now_s = self.clock.steady_s()
        if self._over:
            self._inquire(now_s)  # so that it goes with all the rest
        self._look(now_s, names=True)
        self._read_earlier(now_s)
        self._feed(Busy(not self._inquiry.is_over), now_s)
        if self.link is None:
            self._adopt(now_s)
        while self.exit_code is None and (
            limit_s is None or self.clock.steady_s() < now_s + limit_s
        ):
            self._turn()
        self._close()
        return EXIT_ERROR if self.exit_code is None else self.exit_code

    def _turn(self) -> None:
        ready = self._wait(self.clock.steady_s())
        now_s = self.clock.steady_s()
        if self._claim.is_lost(now_s):
            self.log.say(
                "somebody on another machine speaks for this task now; this agent sends nothing more"
            )
            self.exit_code = EXIT_TAKEN
            return
        self._serve(ready, now_s)
        if now_s >= self._look_s:
            self._look(now_s)
        if self._watch is not None:
            self._watch.step(now_s)
        self._sample(now_s)
        if self._stacks is not None:
            self._stacks.step(now_s)
        self._introduce(now_s)
        self._feed(Tick(), now_s)
        if self.exit_code is not None:
            return
        self._ask(now_s)
        self._keep(now_s)
        self._inquire(now_s)

    def _wait(self, now_s: float) -> set[int]:
        """Sleep until a descriptor is ready or something is due."""
        poll = select.poll()
        for channel in (self._channel, self._commands.channel):
            if channel.busy and channel.fileno() >= 0:
                events = select.POLLIN
                if channel.wants_write:
                    events |= select.POLLOUT
                poll.register(channel.fileno(), events)
        for source in (self.link, self._inquiry, self._bell, self._lines):
            if source is not None and source.fileno() >= 0:
                poll.register(source.fileno(), select.POLLIN)

        due = [self._look_s, self.machine.wake_s(now_s)]
        if self._usage is not None:
            due.append(self._usage.due_s())
        if self._stacks is not None:
            due.append(self._stacks.due_s(now_s))
        until_s = min(time_s for time_s in due if time_s is not None)
        return {fd for fd, _ in poll.poll(max(0.0, (until_s - now_s) * 1000))}

    def _serve(self, ready: set[int], now_s: float) -> None:
        if self._lines is not None and self._lines.fileno() in ready:
            self._lines.look()
        if self._bell.fileno() in ready:
            self._bell.hear()
            self._look_s = now_s

        posting = self._channel
        if posting.busy and (posting.fileno() in ready or posting.is_due(now_s)):
            self._take_answer(posting.step(now_s), now_s)
        asking = self._commands.channel
        if asking.busy and (asking.fileno() in ready or asking.is_due(now_s)):
            answer = asking.step(now_s)
            if answer is not None:
                self._commands.take(answer, now_s, _chance())

        if self.link is not None and self.link.fileno() in ready:
            self._hear_shim(now_s)

    def _feed(self, event: "ShipperEvent", now_s: float) -> None:
        """Hand an event to the machine and do what it says; what comes of that is queued behind it."""
        self._queue.append(event)
        if len(self._queue) > 1:
            return
        while self._queue:
            for instruction in self.machine.handle(self._queue[0], now_s, _chance()):
                self._obey(instruction, now_s)
            self._queue.pop(0)
        self._post(now_s)

    def _obey(self, instruction: "ShipperInstruction", now_s: float) -> None:
        if isinstance(instruction, Pack):
            batch = self._packer.pack(instruction.number, instruction.spans, now_s)
            if batch.parts:
                self._packed.append(batch)
            self._queue.append(batch.event())
        elif isinstance(instruction, Forget):
            self._forget_packed()
        elif isinstance(instruction, Log):
            self.log.say(instruction.text)
        elif isinstance(instruction, Free):
            self._room.punch(instruction.stream, instruction.offset, instruction.length)
        elif isinstance(instruction, Remove):
            self._room.remove(instruction.stream)
        elif isinstance(instruction, Drop):
            self._queue.append(self._room.drop(instruction))
        elif isinstance(instruction, Reload):
            self._reload()
        elif isinstance(instruction, Finish):
            self._finish(instruction)

    # -- looking

    def _look(self, now_s: float, *, names: bool = False) -> None:
        # armed before the look: a write between would be missed
        armed = now_s >= self._active_s + ACTIVE_S and self._bell.arm()
        if self._event_files is not None:
            self._event_files.look(now_s)
        grown = self.tail.look(now_s, names=names)
        # before any of it is sent, and freed once it has arrived
        self._progress.look(now_s)
        events: list[ShipperEvent] = list(grown)
        if any(not event.stream.startswith(("usage-", "tracks-")) for event in grown):
            self._active_s = now_s
        events += self._read_shim(now_s)
        self._read_facts()

        active = now_s < self._active_s + ACTIVE_S
        if active:
            self._look_s = now_s + TAIL_INTERVAL_ACTIVE_S
        elif armed:
            self._look_s = now_s + TAIL_INTERVAL_ARMED_S
        else:
            self._look_s = now_s + TAIL_INTERVAL_IDLE_S
        if events:
            self._feed(Seen(tuple(events)), now_s)
        elif not active and not self._posted and self._packer.shrink():
            process.give_back_memory()

    def _read_shim(self, now_s: float) -> "list[ShipperEvent]":
        """What the shim wrote down since the last look; its stream is allocated ahead, so its size
        says nothing.
        """
        tailed = self.tail.streams.get("shim")
        if tailed is None:
            return []
        reader = self._facts.setdefault("shim", FactTail(tailed.fd, self.files))
        reader.fd = tailed.fd  # the shim may have had to write its stream anew
        end: int | None = None
        try:
            for offset, fact in reader.read():
                self._shim_facts.append(fact)
                end = offset if fact.get("type") == "task_ended" else end
        except OSError:
            return []
        events: list[ShipperEvent] = []
        if end is not None:
            events = self._end_events("shim", end, now_s)
        return [*events, *self.tail.advance(tailed, reader.position, now_s)]

    def _end_events(self, stream: str, offset: int, now_s: float) -> "list[ShipperEvent]":
        """The task is over: all streams have their last size now."""
        if self._ended:
            return []
        self._ended = True
        if self._usage is not None:
            self._usage.close(now_s)
        self._progress.look(now_s, last=True)
        self._read_event_files(now_s)
        if self._lines is not None:
            self._lines.close()
            self._lines = None
        return [*self.tail.close_all(now_s), TaskEnded(stream, offset)]

    def _listen(self, env: "Mapping[str, str] | None") -> "LineListener | None":
        """For line protocol, where the job was started with `--telegraf`."""
        if not env or not env.get("HEADWAY_TELEGRAF"):
            return None
        from headway.agent.observe.line_listener import LineListener, prepare

        prepared = prepare(env["HEADWAY_TELEGRAF"])
        if prepared is None:
            return None

        def note(text: str) -> None:
            self.log.say(text)
            self._write_fact({"type": "note", "level": "warning", "text": text})

        return LineListener(
            self.task_dir, self.task.first_rank, prepared, self.log.say, note, self.files
        )

    def _read_event_files(self, now_s: float) -> None:
        """The rest of TensorBoard's event files; of a short task, all of them."""
        if self._event_files is None and self._root_pids():
            self._watch_event_files()
        if self._event_files is not None:
            self._event_files.look(now_s, last=True)
            self._event_files = None

    def _watch_event_files(self) -> None:
        from headway.agent.observe.event_files import EventFiles

        self._event_files = EventFiles(
            self.task_dir, self._cwd(), self._root_pids, self.log.say, self.files
        )

    def _cwd(self) -> str:
        told = (self._hello or {}).get("cwd")  # of a snapshot or an attached script
        return told if isinstance(told, str) and told else self.task.cwd

    def _root_pids(self) -> dict[int, int]:
        """The first process of each rank."""
        found: dict[int, int] = {}
        for fact in self._shim_facts:
            if fact.get("type") == "process_started" and fact.get("pid"):
                found[int(fact["pid"])] = int(fact["rank"])
        if self.task.attached:  # a script that nobody started
            for tailed in self.tail.streams.values():
                stream = tailed.stream
                if stream.role == "facts" and stream.pid is not None:
                    found[stream.pid] = stream.rank or 0
        return found

    def _read_facts(self) -> None:
        """Facts of the processes: who they are, and for attached jobs how they end."""
        attached = None
        if isinstance(self._watch, AttachedTask):
            attached = self._watch
        if self._hello is not None and attached is None:
            return
        for name, tailed in list(self.tail.streams.items()):
            role = tailed.stream.role
            is_facts = role == "facts"
            if not is_facts and (role != "metrics" or attached is None):
                continue
            who = self.tail.writer_of(tailed)
            if attached is not None and who is not None:
                attached.meet(who)
            if is_facts:
                self._hear_process(name, tailed.fd, tailed.size, tailed.stream.rank or 0, attached)

    def _hear_process(
        self, name: str, fd: int, size: int, rank: int, attached: AttachedTask | None
    ) -> None:
        reader = self._facts.setdefault(name, FactTail(fd, self.files))
        if reader.position >= size:
            return
        try:
            facts = [fact for _, fact in reader.read()]
        except OSError:
            return
        self._hello = self._hello or next(
            (fact for fact in facts if fact.get("type") == "hello"), None
        )
        if attached is not None:
            attached.hear(facts, rank)

    # -- the shim

    def _hear_shim(self, now_s: float) -> None:
        assert self.link is not None
        for message in self.link.hear():
            seq = message.get("done")
            if isinstance(seq, int):
                self._pending.pop(seq, None)
                self._commands.finish(seq)
        self._look(now_s, names=True)
        if self.link.ended:
            self.link.close()
            self.link = None
            self._adopt(now_s)

    def _adopt(self, now_s: float) -> None:
        """There is no shim, or no longer: watch the processes ourselves."""
        if self._ended:
            return
        if self.task.attached:
            self._watch = AttachedTask(self.task, self._write_fact)
            self._facts.clear()  # what was read before is heard by the watch, too
            self._read_facts()
            return
        self.log.say(
            "the shim is gone; its processes are watched without it, and exit codes that it did not see are lost"
        )
        self._watch = AdoptedTask(
            self.task_dir, self.task, self._shim_facts, self._write_fact, now_s, self.log.say
        )
        for seq, command in list(self._pending.items()):
            self._command_watch(command, now_s)
            self._commands.finish(seq)
        self._pending.clear()

    def _read_earlier(self, now_s: float) -> None:
        """What shippers before us wrote down: the end of the task, and whether provenance was
        collected.
        """
        for name, tailed in list(self.tail.streams.items()):
            if tailed.stream.role != "shipper":
                continue
            try:
                facts = FactTail(tailed.fd, self.files).read()
            except OSError:
                continue
            for offset, fact in facts:
                if fact.get("type") == "task_ended" and not self._ended:
                    self._feed(Seen(tuple(self._end_events(name, offset, now_s))), now_s)
                self._inquiry.is_over = self._inquiry.is_over or fact.get("type") == "provenance"

    def _sample(self, now_s: float) -> None:
        if (
            self._event_files is None
            and not self._ended
            and now_s >= self._begun_s + EVENT_FILES_FIRST_S
        ):
            self._watch_event_files()
        self._sample_usage(now_s)

    def _sample_usage(self, now_s: float) -> None:
        """What the processes use, from when the start is over: a short task does not pay for it."""
        if self._usage is not None:
            self._usage.step(now_s)
        elif (
            self.task.monitoring_interval_s > 0
            and not self._ended
            and now_s >= self._begun_s + USAGE_FIRST_S
        ):
            from headway.agent.probes.task_usage import Usage

            facts, say = self._shim_facts, self.log.say
            self._usage = Usage(
                self.task,
                self.tail,
                facts,
                self.clock,
                say,
                self._env,
                self.files,
                self._write_fact,
            )

    def _write_fact(self, fact: "Fact") -> None:
        now_s = self.clock.steady_s()
        try:
            # a lost one is collected again, or is no loss
            sync = fact.get("type") not in ("provenance", "rank_found")
            stream, offset = self._notebook.write(
                {"time_ns": self.clock.wall_ns(), **fact}, sync=sync
            )
        except OSError as error:
            self.log.say(f"a fact could not be written: {fact.get('type')}: {error.strerror}")
            return
        if fact.get("type") == "task_ended":
            self._feed(Seen(tuple(self._end_events(stream, offset, now_s))), now_s)
        else:
            self._look(now_s, names=True)

    # -- commands

    def _ask(self, now_s: float) -> None:
        if self._key is None or self._commands.channel.busy or now_s < self._commands.next_s:
            return
        self._commands.start(
            self._key, self.machine.lag_bytes, self.clock.wall_ns(), now_s, _chance()
        )

    def _do_command(self, command: "Fact") -> bool:
        now_s = self.clock.steady_s()
        if command["do"] == "flush":
            self._feed(Retry(), now_s)
            self._look(now_s, names=True)
            return True
        if command["do"] == "stacks":
            self._ask_stacks(command, now_s)
            return True
        if command["do"] not in ("stop", "signal", "go"):
            self.log.say(
                f"the server asks for something that this agent cannot do: {command['do']!r}"
            )
            return True
        if self.link is None:
            self._command_watch(command, now_s)
            return True
        self._pending[command["seq"]] = command
        self.link.say(command)
        return False

    def _ask_stacks(self, command: "Fact", now_s: float) -> None:
        """Collected in later turns of the loop; the answer is a fact of its own."""
        if self._ended:
            return
        if self._stacks is None:
            from headway.agent.observe.stacks import StackRequests
            from headway.agent.probes.usage_stream import UsageStream

            stream = UsageStream(self.task_dir, self.files)

            def write(fact: "Fact") -> None:
                before = stream.name
                stream.write({"time_ns": self.clock.wall_ns(), **fact})
                if before is not None and stream.name != before:
                    self.tail.left.add(before)
                self._look(self.clock.steady_s(), names=True)

            self._stacks = StackRequests(self._roots, self._told_ranks, write, self.log.say)
        request = command.get("request")
        if isinstance(request, int):
            self._stacks.ask(request, bool(command.get("native")), now_s)

    def _roots(self) -> dict[int, int]:
        """pid → rank of the processes that were started, or that attached themselves."""
        alive: dict[int, int] = {}
        for fact in self._shim_facts:
            if fact.get("type") == "process_started" and isinstance(fact.get("pid"), int):
                alive[int(fact["pid"])] = int(fact.get("rank") or 0)
        for fact in self._shim_facts:
            if fact.get("type") == "process_exited":
                alive.pop(int(fact.get("pid") or 0), None)
        return alive or self._told_ranks()

    def _told_ranks(self) -> dict[int, int]:
        """pid → rank, as processes that log have signed their streams."""
        return {
            tailed.stream.pid: tailed.stream.rank
            for tailed in self.tail.streams.values()
            if tailed.stream.role == "facts"
            and tailed.stream.pid is not None
            and tailed.stream.rank is not None
        }

    def _command_watch(self, command: "Fact", now_s: float) -> None:
        if self._watch is None or self._ended:
            return
        if command["do"] == "stop":
            grace_s, why = command.get("grace_s"), command.get("reason")
            self._watch.stop(
                float(grace_s) if isinstance(grace_s, (int, float)) else None, now_s, why
            )
        elif isinstance(command.get("signal"), int):
            self._watch.signal(command["signal"], now_s)

    # -- sending

    def _post(self, now_s: float) -> None:
        if self._posted is not None or not self._packed:
            return
        batch = self._posted = self._packed.pop(0)
        if self._key is None:
            self._fail(batch, None, "the job is not registered with a server yet", now_s)
            return
        head = encode_head(self._key, batch.parts, self.clock.wall_ns())
        body = [head, *(part.data for part in batch.parts)]
        self._take_answer(
            self._channel.start("/agent/ingest", body, now_s, SEND_TIMEOUT_S, "batch"), now_s
        )

    def _take_answer(self, answer: Answer | None, now_s: float) -> None:
        batch = self._posted
        if answer is None or batch is None:
            return
        acked = read_acks(answer, batch.number)
        if acked is None:
            self._fail(batch, answer.status, reason_of(answer), now_s)
            return
        self._done_posting(batch)
        if self._first_ack_s is None:
            self._first_ack_s = now_s
        self._feed(acked, now_s)

    def _fail(self, batch: Batch, status: int | None, reason: str, now_s: float) -> None:
        self._channel.close()
        self._done_posting(batch)
        self._feed(Failed(batch.number, status, reason), now_s)

    def _done_posting(self, batch: Batch) -> None:
        self._posted = None
        self._packer.release(batch)

    def _forget_packed(self) -> None:
        for batch in self._packed:
            self._packer.release(batch)
        self._packed.clear()

    def _reload(self) -> None:
        """The token may have been changed, or the server may have forgotten an attached job."""
        if self._registrar is not None:
            self._registrar.again()
            return
        try:
            fresh = TaskFile.load(self.task_dir, self.files)
        except (OSError, HeadwayError):
            return
        self._use(fresh)

    def _use(self, task: TaskFile) -> None:
        for channel in (self._channel, self._commands.channel):
            channel.renew(task)

    def _introduce(self, now_s: float) -> None:
        """An attached job that is not registered yet, or again."""
        if self._registrar is None:
            return
        job = self._registrar.step(now_s, _chance())
        if job is not None and (job.get("token") != self._channel.token or self._key is None):
            fresh = {
                **self.task.__dict__,
                "socket": str(job.get("socket") or self.task.socket),
                "token": job["token"],
            }
            self._use(TaskFile(**fresh))
            self._key = TaskName(
                self.task.uuid, int(job.get("attempt") or 1), str(job.get("task") or self.task.task)
            )
            self._feed(Retry(), now_s)

    # -- the spool

    def _get_mask(self) -> "Mask":
        if self._mask is None:
            from headway.agent.ship.mask import Mask

            self._mask = Mask(self._get_secrets())
            if self._over:
                secret_values.try_save(self.task_dir, self._get_secrets(), self.files)
        return self._mask

    def _get_secrets(self) -> list[bytes]:
        """From the environment that the shim handed us, else what an earlier shipper kept, else a
        living process.
        """
        if self._secrets is None:
            pids = [
                fact["pid"] for fact in self._shim_facts if fact.get("type") == "process_started"
            ]
            names, token = self.task.secret_names, self.task.token
            # of a task that is over they are kept with the first output that is masked, and most
            # have none
            keep = not self._over
            self._secrets = secret_values.find(
                self.task_dir, self._env, pids, names, token, self.files, keep=keep
            )
        return self._secrets

    def _keep(self, now_s: float) -> None:
        """Sync records and save the cursor now and then, without waiting for the disk (P2)."""
        while self._keeper.errors:
            self.log.say(self._keeper.errors.pop(0))
        if self._keeper.busy:
            return

        dirty = []
        if now_s >= self._sync_s + SYNC_INTERVAL_S:
            dirty = self.tail.unsynced()
        if dirty:
            self._sync_s = now_s

        was_active = now_s < self._active_s + 2 * ACTIVE_S
        save_s = self._cursor_s + (CURSOR_S if was_active else CURSOR_QUIET_S)
        positions = None
        if now_s >= save_s:
            positions = self._fresh_positions()
        if positions is not None:
            self._cursor_s = now_s

        if not dirty and positions is None:
            return
        for tailed in dirty:
            tailed.dirty = False
        self._keeper.start([tailed.fd for tailed in dirty], positions)

    def _fresh_positions(self) -> dict[str, int] | None:
        positions = self.machine.positions()
        if positions == self._cursor:
            return None
        self._cursor = positions
        return positions

    # -- provenance and the end

    def _inquire(self, now_s: float) -> None:
        if self._inquiry.step(now_s, self._first_ack_s, self._hello, ended=self._ended):
            self._feed(Busy(False), now_s)

    def _finish(self, end: Finish) -> None:
        self._keeper.settle()
        if not end.complete:
            self._keeper.save(self.machine.positions())
            self.exit_code = EXIT_GAVE_UP
            return
        self.exit_code = EXIT_DONE
        if end.refused:
            done = [name for name in self.tail.streams if name not in end.refused]
            self._keeper.save(self.machine.positions())
            keep_refused(self.task_dir, end.refused, done, self.files)
        # what its processes still write comes later; the engine removes it
        elif was_taken(self.task_dir):
            self._keeper.save(self.machine.positions())
        else:
            remove_folder(self.task_dir, self.files)

    def _close(self) -> None:
        if self._usage is not None:
            self._usage.close(self.clock.steady_s())
        if self._stacks is not None:
            self._stacks.close()
        self._progress.close()
        self._inquiry.close()
        for channel in (self._channel, self._commands.channel):
            channel.close()
        self._bell.close()
        self._notebook.close()
        self.tail.close()


def _chance() -> float:
    """A random number in [0, 1); the random module takes longer to load than a short task to run."""
    return int.from_bytes(os.urandom(4), "little") / 2**32

"""Sends what is in the outbox to one monitor, tells it the states of the jobs, and does what is
asked for there.

Two threads per monitor: one sends, one asks for commands, which is also the sign of life. Both go
on for ever: a monitor that is away, a wrong token or another certificate costs a pause and a line
in the log, nothing else (F40).
"""

import asyncio
import hashlib
import json
import logging
import random
import threading
import time
from concurrent.futures import TimeoutError as LateError
from dataclasses import asdict
from typing import TYPE_CHECKING

from headway.home import remote_server
from headway.home.connect import Response
from headway.home.paths import Paths
from headway.model.errors import DamagedError, HeadwayError, RefusedError, UnreachableError
from headway.model.job import ENDED, Attempt, Job, State
from headway.model.json_types import JsonObject
from headway.model.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S, OUTBOX_LOOK_S, SEND_TIMEOUT_S
from headway.model.record import GAP
from headway.server.control.drain import is_over
from headway.store import catalog, jsonform
from headway.wire import batch

if TYPE_CHECKING:
    from headway.server.control.control import Control
    from headway.server.monitor.monitor_queue import Entry, Outbox

log = logging.getLogger("headway.monitor")
_IDLE_S = 5.0  # between two looks when nothing wakes us
_UNBORN_S = 60.0  # an entry whose job is not stored by then never will be
_COMMAND_S = 30.0
_GLANCE_S = 0.5  # how often a pause looks whether it may end
# one question for commands waits so long; jobs that are told meanwhile are in the next
_ASK_S = 2.0


class Forwarder:
    def __init__(
        self, outbox: "Outbox", address: remote_server.Address, paths: Paths, control: "Control",
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._outbox, self._address, self._control, self._loop = outbox, address, control, loop
        self._home = paths.home
        self._client = remote_server.RemoteClient(paths.home, address, "ingest", SEND_TIMEOUT_S)
        self._asking = remote_server.RemoteClient(
            paths.home, address, "ingest", _ASK_S + SEND_TIMEOUT_S
        )
        self.wake, self.dirty = threading.Event(), True
        self._stopped = threading.Event()
        self._told: dict[str, str] = {}  # uuid -> digest of what the monitor was told last
        self._done: list[int] = []  # commands that were done and are to be told
        self._seen: dict[int, None] = {}
        self._error, self._since_ns = "", 0
        names = (("send", self._send_all), ("ask", self._ask_all))
        self._threads = [
            threading.Thread(target=work, name=f"headway-monitor-{n}", daemon=True)
            for n, work in names
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Without waiting: whatever was not acknowledged is sent again by the next server."""
        self._stopped.set()
        self.wake.set()

    def condition(self) -> JsonObject:
        return {"state": "waiting" if self._error else "sending", "error": self._error or None,
                "since": jsonform.iso(self._since_ns or None)}  # fmt: skip

    # -- sending

    def _send_all(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self.wake.clear()
            try:
                self._round()
                failures = 0
                self._well()
                pause_s = OUTBOX_LOOK_S
            # whatever goes wrong, the next try may succeed, and nobody else would make it
            except Exception as error:
                failures = min(failures + 1, 20)
                pause_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**failures) * (
                    0.5 + random.random() / 2
                )
                self._failed(error)
            if failures:
                self._pause(pause_s)
            else:
                self._stopped.wait(pause_s)
                self.wake.wait(_IDLE_S)

    def _pause(self, pause_s: float) -> None:
        """Before the next try; at once when somebody has joined the monitor again, with another
        token or pin.
        """
        known, until_s = self._changed_ns(), time.monotonic() + pause_s
        while (
            time.monotonic() < until_s
            and known == self._changed_ns()
            and not self._stopped.is_set()
        ):
            self._stopped.wait(min(_GLANCE_S, pause_s))

    def _changed_ns(self) -> int:
        try:
            return (self._home / remote_server.KNOWN_FILE).stat().st_mtime_ns
        except OSError:
            return 0

    def _round(self) -> None:
        dirty = self.dirty
        # only then: a change that is told between these lines is seen now or in the next round
        if dirty:
            self.dirty = False
        for entry in self._outbox.entries(str(self._address)):
            waiting = self._outbox.waiting(entry)
            if not (dirty or waiting or entry.uuid not in self._told):
                continue
            try:
                self._send_job(entry, waiting)
            except (RefusedError, DamagedError) as error:  # this job alone; the others go on
                log.error("the monitor %s refuses the job %s: %s", self._address, entry.uuid, error)
            except HeadwayError:
                self.dirty = True
                raise

    def _send_job(self, entry: "Entry", waiting: list[int]) -> None:
        job, sending = self._look_up(entry)
        if job is None:
            if time.time() - entry.folder.stat().st_mtime > _UNBORN_S:
                self._outbox.finish(entry)  # it was never stored, or is deleted
            return
        self._tell(job, still_open=bool(waiting))
        for number in waiting:
            self._send_batch(entry, job, number)
            if self._stopped.is_set():
                return
        if is_over(job) and not sending and not self._outbox.waiting(entry):
            self._tell(job)
            self._outbox.finish(entry)
            self._told.pop(entry.uuid, None)
        elif waiting:
            # its state may have been told as open because of these: look again at once
            self.dirty = True
            self.wake.set()
        elif is_over(job):
            # agents of it may still send, and nobody tells when they no longer may
            self.dirty = True

    def _look_up(self, entry: "Entry") -> tuple[Job | None, bool]:
        """The job as it is stored here, and whether agents of it may still send."""
        with self._outbox.store.read() as c:
            pk = catalog.find_uuid(c, entry.uuid)
            if pk is None:
                return None, False
            return catalog.load_job(c, pk), catalog.any_may_send(c, entry.uuid)

    def _tell(self, job: Job, still_open: bool = False) -> None:
        """The job as it stands. While batches of it wait, its end is not told: it would come before
        its last words.
        """
        told = document(job, still_open)
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        if self._told.get(job.uuid) == digest:
            return
        answer = self._post("/agent/guests", json=told).json()
        self._told[job.uuid] = digest
        if answer.get("stop") and not is_over(job) and job.stop_requested_ns is None:
            self._do(job.uuid, {"do": "stop"})

    def _send_batch(self, entry: "Entry", job: Job, number: int) -> None:
        body = self._outbox.read(entry, number)
        try:
            answer = self._ingest(job, body)
            self._fill_gaps(body, answer.json())
        except DamagedError as error:
            log.error(
                "the monitor %s refuses a batch of %s, it is kept: %s", self._address, job.id, error
            )
            self._outbox.set_aside(entry, number)
            return
        self._outbox.sent(entry, number)

    def _ingest(self, job: Job, body: bytes) -> Response:
        try:
            return self._post("/agent/ingest", body=body)
        except LookupError:  # it does not know the task: a new attempt, or it has been restarted
            self._told.pop(job.uuid, None)
            self._tell(job, still_open=True)
        try:
            return self._post("/agent/ingest", body=body)
        except LookupError as error:
            raise UnreachableError(f"the monitor does not know {job.id}: {error}") from None

    def _fill_gaps(self, body: bytes, answer: JsonObject) -> None:
        """A monitor that went back to an older copy of its data lacks what we no longer have: that
        is told (P5).
        """
        acks = answer.get("acks") or {}
        task, _, parts = batch.decode(body)
        missing = {
            p.stream: p for p in reversed(parts) if int(acks.get(p.stream, p.offset)) < p.offset
        }
        if not missing:
            return
        gaps = []
        for stream, part in missing.items():
            told = {"bytes": part.offset - int(acks[stream]), "reason": "the monitor had lost it"}
            gaps.append(batch.Part(stream, GAP, int(acks[stream]), json.dumps(told).encode()))
        self._post("/agent/ingest", body=batch.encode(task, gaps, time.time_ns()))
        self._post("/agent/ingest", body=body)

    # -- commands

    def _ask_all(self) -> None:
        pause_s = BACKOFF_FIRST_S
        while not self._stopped.is_set():
            jobs = list(self._told)
            if not jobs:
                self._stopped.wait(OUTBOX_LOOK_S * 5)
                continue
            try:
                self._ask(jobs)
                pause_s = BACKOFF_FIRST_S
            # as above; the sender tells the person why
            except Exception as error:
                log.debug("no commands from the monitor %s: %s", self._address, error)
                self._asking.close()
                self._stopped.wait(pause_s * (0.5 + random.random() / 2))
                pause_s = min(pause_s * 2, BACKOFF_MAX_S)

    def _ask(self, jobs: list[str]) -> None:
        done = list(self._done)
        asked = {"jobs": jobs, "done": done, "wait_s": _ASK_S}
        answer = self._post("/agent/guests/poll", json=asked, client=self._asking).json()
        self._done = [seq for seq in self._done if seq not in done]
        for uuid in answer.get("again") or []:
            self._told.pop(str(uuid), None)
            self.wake.set()
        for command in answer.get("commands") or []:
            if not isinstance(command, dict) or not isinstance(command.get("seq"), int):
                continue  # a command that is none keeps no other from being done
            seq = command["seq"]
            if seq not in self._seen:
                self._do(str(command.get("uuid")), command)
                self._seen[seq] = None
            self._done.append(seq)
        while len(self._seen) > 1024:
            self._seen.pop(next(iter(self._seen)))

    def _do(self, uuid: str, command: JsonObject) -> None:
        """As if it had been typed here; for jobs that are shown there, and for no other."""
        shown = {entry.uuid for entry in self._outbox.entries(str(self._address))}
        with self._outbox.store.read() as c:
            pk = catalog.find_uuid(c, uuid)
        if pk is None or uuid not in shown or command.get("do") not in ("stop", "signal"):
            return
        stop = command["do"] == "stop"
        signum = command.get("signal")
        if not stop and not isinstance(signum, int):
            return
        work = self._control.abort(pk) if stop else self._control.signal(pk, int(signum or 0))
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(_COMMAND_S)
            log.info("%s of %s, as asked for at the monitor %s", command["do"], uuid, self._address)
        except (HeadwayError, LateError) as error:
            log.warning(
                "%s of %s, asked for at the monitor %s: %s",
                command["do"],
                uuid,
                self._address,
                error,
            )

    # -- the wire

    def _post(
        self, route: str, client: remote_server.RemoteClient | None = None, **more: object
    ) -> Response:
        answer: Response = (client or self._client).request("POST", route, **more)
        if answer.status == 200:
            return answer
        try:
            said = str(answer.json()["error"]["message"])[:200]
        except (ValueError, KeyError, TypeError):
            said = "no reason given"
        (client or self._client).close()  # the next try looks up pin and token anew
        if answer.status == 404:
            raise LookupError(said)
        if answer.status in (400, 413):
            raise DamagedError(said)
        if answer.status == 409:
            raise RefusedError(said)
        join = f"; type: hw monitor join {self._address}" if answer.status in (401, 403) else ""
        raise UnreachableError(f"it answered {answer.status}: {said}{join}")

    def _failed(self, error: Exception) -> None:
        self._client.close()
        text = (
            f"{error.message} {error.hint}".strip()
            if isinstance(error, HeadwayError)
            else repr(error)
        )
        if text != self._error:
            self._error, self._since_ns = text, self._since_ns or time.time_ns()
            log.warning(
                "the monitor %s cannot be sent to; everything is kept and sent later: %s",
                self._address,
                text,
            )

    def _well(self) -> None:
        if self._error:
            log.info("the monitor %s can be sent to again", self._address)
        self._error, self._since_ns = "", 0


def document(job: Job, still_open: bool) -> JsonObject:
    """What a monitor is told of a job. Its processes, exceptions and output come with the batches."""
    spec = asdict(job.spec) | {"monitor": None, "guest_of": None, "rlimits": {}}
    state = State.RUNNING if still_open and is_over(job) else job.state
    ended = None if still_open else job.ended_ns
    return {
        "uuid": job.uuid, "id": job.id, "spec": spec, "state": str(state), "state_since_ns": job.state_since_ns,
        "submitted_ns": job.submitted_ns, "started_ns": job.started_ns, "ended_ns": ended,
        "exit_code": job.exit_code if not still_open else None, "signal": job.signal if not still_open else None,
        "attempts": [_attempt(attempt, still_open) for attempt in job.attempts],
    }  # fmt: skip


def _attempt(attempt: Attempt, still_open: bool) -> JsonObject:
    ended = attempt.state in ENDED
    found = asdict(attempt)
    kept = (
        "number",
        "state",
        "engine_word",
        "cause",
        "exit_code",
        "signal",
        "created_ns",
        "started_ns",
        "ended_ns",
    )
    told = {name: found[name] for name in kept} | {"state": str(attempt.state)}
    told["tasks"] = [{"name": task.name, "node": task.node} for task in attempt.tasks]
    if still_open and ended:
        told |= {
            "state": str(State.RUNNING),
            "ended_ns": None,
            "exit_code": None,
            "signal": None,
            "cause": None,
        }
    return told

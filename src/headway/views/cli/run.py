"""`hw run COMMAND…`: submit, show the output live, tell how it ended, exit as the job does.

On a terminal that can show it, a live view (`views/console`) and at the end its last lines.
Elsewhere plain lines: output goes where it belongs (stdout, stderr); what we say ourselves goes to
stderr.
"""

import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import FOLLOW_WAIT_S
from headway.views.api.follow import Follow
from headway.views.api.source import Source, job_route
from headway.views.cli import submission
from headway.views.cli.dispatch import EXIT_INTERRUPTED, EXIT_OWN_FAILURE, Call, complain
from headway.views.cli.output import Exact, Merged
from headway.views.cli.signals import Leave, Signals
from headway.views.text import best, job_text
from headway.views.text.terminal import Terminal

_PATIENCE_S: Final = 1.0  # a job that has not started by then is said to wait
_TOLD_STATES: Final = ("waiting", "running", "stopping", "held", "unknown")
_EXIT_FAILED: Final = 1
# refusals of server/control/program_check.py, with the exit code of a shell that would say the same
_REFUSALS: Final = (
    (r"the program .* (does not exist|was not found)", 127),
    (r"the job file .* does not exist", 127),
    (r"the program .* cannot be executed|.* is a folder, not a program", 126),
    (r"the file .* does not exist", 2),
)
_KEPT_EVENTS: Final = ("exception", "process_exited")
_EVENTS_MAX: Final = 10_000


def command(call: Call) -> int:
    if submission.job_file(call.words) is None:
        submission.checked_command(call.words)
    if call.get("dry_run"):
        from headway.views.cli.dry_run import show

        return show(call, call.source())
    if submission.makes_array(call):
        return _array(call)
    return submit_and_attend(call, call.source())


def _array(call: Call) -> int:
    """Of a sweep the list of its jobs, as with `hw submit --wait`."""
    from headway.views.cli import arrays

    call.values["wait"] = True
    source = call.source()
    return arrays.submitted(call, source, submission.submit(source, call))


def submit_and_attend(
    call: Call, source: Source, submit: Callable[[], JsonObject] | None = None
) -> int:
    """Submit, follow to the end, and exit as the job does. From here on, Ctrl-C and other signals
    are for the job.
    """
    signals = Signals(source, call.terminal.say)
    try:
        with signals.handled():
            try:
                job = submit() if submit else submission.submit(source, call, attend=True)
            except UsageError as error:
                code = _not_startable(error.message)
                if code is None:
                    raise
                complain(call.terminal, error)
                return code
            signals.aim(str(job["id"]))
            if call.get("tensorboard") is True:
                from headway.views.cli.tensorboard import start_beside

                start_beside(call, str(job["id"]))
            job = _attend(call, source, job, signals)
    except Leave as leaving:
        known = signals.job_id
        again = (
            "hw watch" if call.terminal.out.is_tty and call.terminal.err.is_tty else "hw logs -f"
        )
        call.terminal.say(
            f"hw: left {known} as it is; to see it again: {again} {known}" if known else "hw: left"
        )
        return leaving.code
    if call.as_json:
        call.terminal.put_json(job)
    return exit_code(job)


def _not_startable(refusal: str) -> int | None:
    """The exit code that a shell, or the interpreter, has for a command that cannot be started; None
    for any other refusal.
    """
    for words, code in _REFUSALS:
        if re.match(words, refusal):
            return code
    return None


def _attend(call: Call, source: Source, job: JsonObject, signals: Signals) -> JsonObject:
    """The job object of the end. A person who leaves the live view leaves as by a signal: its exit
    is not known yet.
    """
    if call.get("plain"):
        return Plain(call, source, job, silent=True).to_the_end()
    if call.as_json or not (call.terminal.out.is_tty and call.terminal.err.is_tty):
        return Plain(call, source, job).to_the_end()
    from headway.views.console import screen
    from headway.views.console.live_job import Attendance

    if not screen.is_possible(call.terminal):
        return Plain(call, source, job).to_the_end()
    ranks = int(job.get("processes") or 1)
    attendance = Attendance(source, call.terminal, job, lambda deed: _stop(deed, signals), ranks)
    try:
        ended = attendance.to_the_end(partial(setattr, signals, "say"))
    finally:
        signals.say = call.terminal.say
    if ended is None:
        raise Leave(EXIT_INTERRUPTED)
    return ended


def _stop(deed: str, signals: Signals) -> None:
    """As Ctrl-C does without a live view: the first interrupts, the next one terminates."""
    if deed == "terminate":
        signals.interrupts = max(signals.interrupts, 1)
    signal.raise_signal(signal.SIGINT)


class Plain:
    """The job as plain lines. Also for `watch`, which has no command line of a job: `ranks` are
    those of the job. `silent`: the program's lines and nothing else (`--plain`).
    """

    def __init__(
        self, call: Call, source: Source, job: JsonObject, *, silent: bool = False
    ) -> None:
        self.terminal: Terminal = call.terminal
        self.silent = silent
        self.job, self.job_id = job, str(job["id"])
        self.told_state = ""
        self.told_closed = False
        self.patient_until = time.monotonic() + _PATIENCE_S
        self.events: list[JsonObject] = []
        self.ranks = max(job_text.count_processes(job), int(job.get("processes") or 1))
        several = self.ranks > 1
        self.follow = Follow(
            source, self.job_id, records=True, lines=several, lost=self._lost, found=self._found
        )
        out = call.terminal.err if call.as_json else call.terminal.out
        err = call.terminal.err
        self.output: Exact | Merged = (
            Merged(out, err, ranks=self.ranks, live=True, bare=silent)
            if several
            else Exact(self.follow, out, err)
        )

    def to_the_end(self) -> JsonObject:
        for answer in self.follow.answers(self._wait_s):
            state = str(answer.get("state"))
            # what it writes comes after that; every other state after what it wrote
            if state == "running":
                self._tell_state(state)
            self.output.take(answer)
            self._tell_records(answer.get("records") or [])
            self._tell_events(answer.get("events") or [])
            self._tell_state(state)
            self._tell_closed()
            if answer.get("done"):
                self.job = answer["done"]
        self._finish()
        # where the program itself has not ended, its exit code does not tell what happened
        if self.silent and (self.job.get("exit_code") is not None or self.job.get("signal")):
            return self.job
        found = best.ask(self.job, self.follow.ask)
        for line in job_text.end_lines(self.job, self.events, self.terminal.err, found):
            self.terminal.say(line)
        return self.job

    def _finish(self) -> None:
        """The end of the output, before words of our own."""
        if isinstance(self.output, Merged):
            self.output.finish()
        if not self.silent:
            self.output.end_line()

    def _say(self, text: str) -> None:
        if not self.silent:
            self.output.end_line()
            self.terminal.say(text)

    def _wait_s(self) -> float:
        """Up to the moment at which waiting is worth a line, then as long as the server allows."""
        left_s = self.patient_until - time.monotonic()
        return FOLLOW_WAIT_S if left_s <= 0 else left_s

    def _tell_state(self, state: str) -> None:
        """A line for each state that lasts; the end has lines of its own."""
        if state == self.told_state or state not in _TOLD_STATES:
            return
        if state == "waiting" and time.monotonic() < self.patient_until:
            return
        self.told_state = state
        job = self.job
        # since when and for what matters then: only the server knows it
        if state in ("waiting", "held", "unknown"):
            job = self.follow.ask(lambda source: source.get(job_route(self.job_id)))
        if state == "waiting":
            job["waiting"] = {**job_text.waiting_of(job), "reason": self.follow.ask(self._why)}
        job = {**job, "state": state, "processes": self.ranks}
        # a person who waits for a place must know it, also where only the program may speak
        if self.silent and state == "waiting" and self.terminal.err.is_tty:
            self.terminal.say(job_text.state_line(job, self.terminal.err, datetime.now(UTC)))
        self._say(job_text.state_line(job, self.terminal.err, datetime.now(UTC)))

    def _why(self, source: Source) -> str | None:
        """What it waits for, in words."""
        told = source.get(job_route(self.job_id, "why"))
        return told.get("verdict") if told.get("state") == "waiting" else None

    def _tell_events(self, events: list[JsonObject]) -> None:
        for event in events:
            if event.get("type") in _KEPT_EVENTS and len(self.events) < _EVENTS_MAX:
                self.events.append(event)
            words = job_text.event_words(event, output_seen=job_text.has_output(self.job))
            if words:
                self._say(f"hw: {self.terminal.err.safe(words)}")

    def _tell_records(self, records: list[JsonObject]) -> None:
        """Records of `logging` that the program keeps to itself; what it prints is in its output."""
        from headway.views.cli import log_records

        several = self.ranks > 1
        for line in log_records.unprinted(records):
            rank = f"{line.get('rank')} │ " if several and line.get("rank") is not None else ""
            self._say(self.terminal.err.safe(f"{rank}{line['text']}"))

    def _tell_closed(self) -> None:
        if self.output.closed and not self.told_closed:
            self.told_closed = True
            self._say(f"hw: nobody reads the output any more; waiting for {self.job_id} to end")

    def _lost(self) -> None:
        self._say(f"hw: the server is gone; {self.job_id} goes on. Looking for the server")

    def _found(self) -> None:
        self._say("hw: the server is back")


def exit_code(job: JsonObject) -> int:
    """The job's exit as a shell would tell it. What is not known, or never ran, is our own failure."""
    if job.get("signal") is not None:
        return 128 + int(job["signal"])
    if job.get("exit_code") is None:
        return 0 if job["state"] == "succeeded" else EXIT_OWN_FAILURE
    code = int(job["exit_code"])
    return _EXIT_FAILED if code == 0 and job["state"] == "failed" else code

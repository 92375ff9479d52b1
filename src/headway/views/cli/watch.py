"""`hw watch [ID…]`: a live view of one job, of those of an array, or of all open ones. Leaving it
changes no job.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import CONSOLE_LINES_MAX
from headway.views.api.source import Source, job_route, until_reached
from headway.views.cli import arrays, references
from headway.views.cli.dispatch import Call
from headway.views.cli.signals import Leave
from headway.views.console.event_loop import show
from headway.views.console.feed import OPEN, JobsFeed, of_array
from headway.views.console.jobs_view import JobsView, ListPlace
from headway.views.console.live_job import Attendance
from headway.views.console.machine_load import MachineLoad
from headway.views.console.screen import Stage, is_possible
from headway.views.console.theme import Theme
from headway.views.text import format as fmt
from headway.views.text import job_text

_TAIL_LINES: Final = 1_000
Job = JsonObject


def command(call: Call) -> int:
    if call.after:
        raise UsageError("hw watch takes ids of jobs only", f"usage: {call.command.usage}")
    source = call.source()
    refs = references.several(call, source) if call.words else []
    jobs, whole = _named(source, refs)
    if call.as_json or not is_possible(call.terminal):
        jobs += [job for array in whole for job in of_array(source, array)]
    if call.as_json:
        call.terminal.put_json(
            jobs if call.words else source.get("/api/jobs", [("state", list(OPEN))])
        )
        return 0
    if not is_possible(call.terminal):
        return _plainly(call, source, jobs)
    try:
        with _leaving_signals():
            if len(jobs) == 1 and not whole:
                _job(call, source, jobs[0])
            else:
                _jobs(call, source, [str(job["id"]) for job in jobs], whole)
    except Leave as leaving:
        return leaving.code
    return 0


def show_array(call: Call, source: Source, uuid: str) -> None:
    """The list of an array's jobs, until the person leaves or the last of them is over."""
    with _leaving_signals():
        _jobs(call, source, [], [uuid], until_over=True)


def _named(source: Source, refs: list[str]) -> tuple[list[Job], list[str]]:
    """The jobs that are meant, and the arrays, by their uuid."""
    jobs, found = [], []
    for ref in refs:
        try:
            jobs.append(source.get(job_route(ref)))
        except NotFoundError:
            if (array := arrays.found(source, ref)) is None:
                raise
            found.append(str(array["uuid"]))
    return jobs, found


def _job(call: Call, source: Source, job: Job, *, listed: bool = False) -> None:
    """Until the job ends, which is told as `hw run` tells it, or the person leaves. One that has
    ended before, or is opened from the list, stays until the person leaves.
    """
    stop = partial(_stop, source, str(job["id"]))
    tail = CONSOLE_LINES_MAX if fmt.is_over(job) else _TAIL_LINES
    ranks = job_text.count_processes(job)
    Attendance(source, call.terminal, job, stop, ranks, tail, listed).to_the_end()


def _jobs(
    call: Call, source: Source, refs: list[str], whole: list[str], *, until_over: bool = False
) -> None:
    """The list, and from it into one job and back."""
    theme = Theme(call.terminal.out.color, call.terminal.out.ascii_only)
    place, notice = ListPlace(), ""
    load = None if source.monitor else MachineLoad()
    with_ended = False
    while True:
        with Stage(call.terminal.out.fd, theme) as stage:
            feed = JobsFeed(source, stage.wake, refs, whole)
            feed.with_ended = with_ended
            view = JobsView(feed, stop=partial(_stop, source), load=load)
            view.place, view.notice, view.until_over = place, notice, until_over
            feed.start()
            try:
                word = show(stage, view)
            finally:
                feed.close()
        if word in ("leave", "over"):
            return
        with_ended, notice = feed.with_ended, ""
        try:
            job = until_reached(partial(_again, source, view.opened), lambda _: None)
            _job(call, source, job, listed=True)
        except NotFoundError:
            notice = f"{view.opened} was deleted"


def _again(source: Source, job_id: str) -> Job:
    source.reconnect()
    found: Job = source.get(job_route(job_id))
    return found


def _stop(source: Source, job_id: str, deed: str) -> None:
    """Told by a thread: a server that is away must not hold up the view."""
    route, body = (
        ("signal", {"signal": int(signal.SIGINT)}) if deed == "interrupt" else ("abort", {})
    )

    def tell() -> None:
        own = source.again()
        try:
            own.post(job_route(job_id, route), body)
        finally:
            own.close()

    def work() -> None:
        try:
            until_reached(tell, lambda _: None)
        except HeadwayError:
            return  # it has ended meanwhile, which the view tells

    threading.Thread(target=work, name="stop", daemon=True).start()


def _plainly(call: Call, source: Source, jobs: list[Job]) -> int:
    """Without a live view: one job's output as it comes, several as a list."""
    from headway.views.cli import ls, run

    if len(jobs) == 1:
        run.Plain(call, source, jobs[0]).to_the_end()
        return 0
    from datetime import UTC, datetime

    found = jobs or [
        job for job in source.get("/api/jobs", [("state", list(OPEN))]) if not fmt.is_over(job)
    ]
    if found:
        call.terminal.out.write(
            "\n".join(ls.listing(found, call.terminal.out, datetime.now(UTC))) + "\n"
        )
    else:
        call.terminal.say("no open jobs; to run one: hw run python train.py")
    return 0


@contextmanager
def _leaving_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the view, not the process: the terminal is given back on the way out."""

    def leave(number: int, _: object) -> None:
        raise Leave(128 + number)

    numbers = [
        n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

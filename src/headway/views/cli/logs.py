"""`hw logs ID`: what a job wrote. All ranks merged by time with the rank in front, or one stream
byte by byte. What the jobs of an array wrote: `array_logs`.

One stream is selected when the options leave only one: `--stream`, and `--rank` where there are
several processes. Its raw bytes come out when stdout is not a terminal; a terminal gets safe text
only (Sec7).
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.follow import Follow
from headway.views.api.source import Source, job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.cli.output import JsonLines, Merged, Sink, read_raw
from headway.views.text import format as fmt
from headway.views.text import job_text

if TYPE_CHECKING:
    from headway.views.cli.log_records import Beside

Job = JsonObject


def command(call: Call) -> int:
    _check(call)
    source = call.source()
    ref = references.one(call, source)
    try:
        job = source.get(job_route(ref))
    except NotFoundError as error:
        return _array(call, source, ref, error)
    if call.get("stream") == "log":
        from headway.views.cli import log_records

        log_records.show(call, source, job)
        return 0
    _check_attempt(call, job)
    _check_rank(call, job)
    _check_task(call, job)
    _tell_attempt(call, job)
    if not job.get("started_at"):
        _tell_not_started(call, job)
    elif not job_text.has_output(job, call.get("attempt")) and call.get("stream") != "agent":
        call.terminal.say(
            f"hw: {job['id']} was started without hw: its output went where it was started"
        )
    if call.get("html"):
        _write_html(call, source, job)
        return 0
    if call.as_json and not call.get("follow"):
        lines = [
            line
            for answer in _pages(Follow(source, job["id"]), _query(call))
            for line in answer["lines"]
        ]
        call.terminal.put_json({"lines": lines, "more": False})
    elif (
        not call.as_json
        and selects_one(call, job)
        and not call.terminal.out.is_tty
        and call.get("grep") is None
    ):
        _raw(call, source, job)
    else:
        _lines(call, source, job)
    return 0


def _write_html(call: Call, source: Source, job: Job) -> None:
    """All lines as one page that opens offline."""
    from headway.views.cli.log_records import Beside
    from headway.views.text import html_log
    from headway.views.text.redraw import Redraws

    follow = Follow(source, job["id"], tail=0)
    beside, redraws = Beside(call, follow), Redraws()
    path = str(call.get("html"))

    def lines() -> Iterator[JsonObject]:
        for answer in _pages(follow, _query(call)):
            laid = beside.laid_in(answer.get("lines") or [], is_last=not answer.get("more"))
            yield from redraws.settled(laid)
        yield from redraws.settled([], final=True)

    words = [f"{job['state']} · {fmt.shell_words(job.get('command') or [])}"]
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(html_log.render(str(job["id"]), words, lines()))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    call.terminal.put(call.terminal.out.safe(path))


def _array(call: Call, source: Source, ref: str, error: NotFoundError) -> int:
    from headway.views.cli import array_logs, arrays

    array = arrays.found(source, ref)
    if array is None:
        raise error
    array_logs.show(call, source, array)
    return 0


def _check(call: Call) -> None:
    for one, other in (("rank", "task"), ("tail", "bytes"), ("html", "follow")):
        if call.get(one) is not None and call.get(other) is not None:
            raise UsageError(f"--{one} and --{other} do not go together", "leave one of them out")

    of_log = call.get("stream") == "log"
    for name in ("task", "bytes", "attempt") if of_log else ("level",):
        if call.get(name) is not None:
            raise UsageError(
                f"--{name} {'does not go with' if of_log else 'goes with'} --stream log",
                call.command.usage,
            )


def _check_attempt(call: Call, job: Job) -> None:
    numbers = [attempt["number"] for attempt in job.get("attempts") or []]
    if call.get("attempt") is not None and call.get("attempt") not in numbers:
        known = f"it has {', '.join(map(str, numbers))}" if numbers else "it has not started"
        raise UsageError(f"{job['id']} has no attempt {call.get('attempt')}", known)


def _check_rank(call: Call, job: Job) -> None:
    """Of an ended job only: while it runs, a process may still come."""
    ranks = sorted({process["rank"] for process in job_text.processes(job, call.get("attempt"))})
    if (
        job["state"] in fmt.ENDED
        and ranks
        and call.get("rank") is not None
        and call.get("rank") not in ranks
    ):
        known = f"it has {ranks[0]}" + (f" to {ranks[-1]}" if len(ranks) > 1 else "")
        raise NotFoundError(f"{job['id']} has no rank {call.get('rank')}", known)


def _check_task(call: Call, job: Job) -> None:
    """Of an ended job only, likewise."""
    tasks = sorted(
        {str(process["task"]) for process in job_text.processes(job, call.get("attempt"))}
    )
    if (
        job["state"] in fmt.ENDED
        and tasks
        and call.get("task") is not None
        and call.get("task") not in tasks
    ):
        raise NotFoundError(
            f"{job['id']} has no task {call.get('task')}", f"it has {', '.join(tasks)}"
        )


def _tell_attempt(call: Call, job: Job) -> None:
    """That there is more than what follows."""
    numbers = [attempt["number"] for attempt in job.get("attempts") or []]
    if len(numbers) > 1 and call.get("attempt") is None:
        before = "--attempt 1" if len(numbers) == 2 else f"--attempt 1 to {numbers[-2]}"
        call.terminal.say(f"hw: of attempt {numbers[-1]}; of those before it: {before}")


def _tell_not_started(call: Call, job: Job) -> None:
    ended = job["state"] in fmt.ENDED
    words = "never started" if ended else "has not started yet, so there is no output"
    hint = "" if ended or call.get("follow") else "; -f waits for it"
    call.terminal.say(f"hw: {job['id']} ({job['state']}) {words}{hint}")


def selects_one(call: Call, job: Job) -> bool:
    """Whether the options leave one stream, whatever has been written so far."""
    if call.get("stream") is None:
        return False
    found = job_text.processes(job, call.get("attempt"))
    if call.get("task") is not None:
        found = [process for process in found if process["task"] == call.get("task")]
    if call.get("stream") == "agent":
        return len({process["task"] for process in found}) <= 1
    return call.get("rank") is not None or len(found) <= 1


def _query(call: Call) -> list[tuple[str, object]]:
    keys = ("attempt", "task", "rank", "stream", "tail", "bytes", "grep")
    return [(key, call.get(key)) for key in keys]


def _raw(call: Call, source: Source, job: Job) -> None:
    follow = Follow(source, job["id"], records=False, lines=False)
    sink = Sink(call.terminal.out)
    query = [("format", "raw"), *_query(call)]
    offset = 0
    if call.get("tail") is not None or call.get("bytes") is not None:
        data, offset = read_raw(source, job["id"], query)
        sink.feed(data)
        query = [(key, value) for key, value in query if key not in ("tail", "bytes")]
    offset = _copy(follow, sink, query, offset)
    for _ in follow.answers() if call.get("follow") else ():
        offset = _copy(follow, sink, query, offset)


def _copy(follow: Follow, sink: Sink, query: list[tuple[str, object]], offset: int) -> int:
    """All that there is from `offset` on; where it ends."""
    while True:
        asked = [*query, ("offset", offset)]
        data, after = follow.ask(partial(read_raw, job_id=follow.job_id, query=asked))
        if after <= offset:
            return offset
        sink.feed(data)
        offset = after
        if sink.closed:
            raise BrokenPipeError


def _lines(call: Call, source: Source, job: Job) -> None:
    """Lines with their rank in front. While following, the server's news only say when to look
    again.
    """
    out = call.terminal.out
    live, ranks = bool(call.get("follow")), job_text.count_processes(job)
    fold = call.get("grep") is None
    merged = JsonLines(out) if call.as_json else Merged(out, out, ranks=ranks, live=live, fold=fold)
    from headway.views.cli.log_records import Beside

    follow = Follow(source, job["id"], tail=0, records=live and not call.as_json)
    beside = None if call.as_json else Beside(call, follow)
    cursor = _show(call, follow, merged, beside, None)
    for _ in follow.answers() if call.get("follow") else ():
        cursor = _show(call, follow, merged, beside, cursor)
    merged.finish()


def _show(
    call: Call,
    follow: Follow,
    merged: Merged | JsonLines,
    beside: "Beside | None",
    cursor: str | None,
) -> str | None:
    cut = False
    for answer in _pages(follow, _query(call), cursor):
        if beside is not None:
            lines = answer.get("lines") or []
            answer["lines"] = beside.laid_in(lines, is_last=not answer.get("more"))
        merged.take(answer)
        cut, cursor = bool(answer.get("timed_out")), answer.get("cursor", cursor)
        if merged.closed:
            raise BrokenPipeError
    if cut:
        call.terminal.say(
            "hw: the search took too long and was stopped: lines may be missing; --rank or --stream help"
        )
    return cursor


def _lines_from(job_id: str, query: list[tuple[str, object]], source: Source) -> JsonObject:
    found: JsonObject = source.get(job_route(job_id, "logs"), query)
    return found


def _pages(
    follow: Follow, query: list[tuple[str, object]], cursor: str | None = None
) -> Iterator[JsonObject]:
    """Answers from the cursor on, until the server has no more for now."""
    more = True
    while more:
        answer = follow.ask(partial(_lines_from, follow.job_id, [*query, ("cursor", cursor)]))
        yield answer
        more, cursor = (
            bool(answer.get("more")) and answer.get("cursor") != cursor,
            answer.get("cursor"),
        )

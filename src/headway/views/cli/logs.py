"""`hw logs ID`: what a job wrote. All ranks merged by time with the rank in front, or one stream byte by byte.

One stream is selected when the options leave only one: `--stream`, and `--rank` where there are several processes. Its
raw bytes come out when stdout is not a terminal; a terminal gets safe text only (Sec7).
"""

from functools import partial
from typing import Any

from headway.model.errors import UsageError
from headway.views import format as fmt
from headway.views import summary
from headway.views.cli.dispatch import Call, one_word
from headway.views.cli.output import Merged, Sink, read_raw
from headway.views.follow import Follow
from headway.views.source import Source, job_route

Job = dict[str, Any]


def command(call: Call) -> int:
    ref = one_word(call, "id of a job")
    _check(call)
    source = call.source()
    job = source.get(job_route(ref))
    _check_attempt(call, job)
    if not job.get("started_at"):
        _tell_not_started(call, job)
    if call.as_json:
        call.terminal.put_json(source.get(job_route(job["id"], "logs"), _query(call)))
    elif selects_one(call, job) and not call.terminal.out.is_tty and call.get("grep") is None:
        _raw(call, source, job)
    elif call.get("follow"):
        _follow(call, source, job)
    else:
        _lines(call, source, job)
    return 0


def _check(call: Call) -> None:
    for one, other in (("rank", "task"), ("tail", "bytes"), ("follow", "grep"), ("follow", "json")):
        if call.get(one) is not None and call.get(other) is not None:
            raise UsageError(f"--{one} and --{other} do not go together", "leave one of them out")


def _check_attempt(call: Call, job: Job) -> None:
    numbers = [attempt["number"] for attempt in job.get("attempts") or []]
    if call.get("attempt") is not None and call.get("attempt") not in numbers:
        known = f"it has {', '.join(map(str, numbers))}" if numbers else "it has not started"
        raise UsageError(f"{job['id']} has no attempt {call.get('attempt')}", known)


def _tell_not_started(call: Call, job: Job) -> None:
    ended = job["state"] in fmt.ENDED
    words = "never started" if ended else "has not started yet, so there is no output"
    hint = "" if ended or call.get("follow") else "; -f waits for it"
    call.terminal.say(f"hw: {job['id']} ({job['state']}) {words}{hint}")


def selects_one(call: Call, job: Job) -> bool:
    """Whether the options leave one stream, whatever has been written so far."""
    if call.get("stream") is None:
        return False
    found = summary.processes(job, call.get("attempt"))
    if call.get("task") is not None:
        found = [process for process in found if process["task"] == call.get("task")]
    if call.get("stream") == "agent":
        return len({process["task"] for process in found}) <= 1
    return call.get("rank") is not None or len(found) <= 1


def _query(call: Call) -> list[tuple[str, Any]]:
    keys = ("attempt", "task", "rank", "stream", "tail", "bytes", "grep")
    return [(key, call.get(key)) for key in keys]


def _raw(call: Call, source: Source, job: Job) -> None:
    follow = Follow(source, job["id"])
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


def _copy(follow: Follow, sink: Sink, query: list[tuple[str, Any]], offset: int) -> int:
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


def _merged(call: Call, job: Job) -> Merged:
    return Merged(call.terminal.out, call.terminal.out, ranks=summary.count_processes(job))


def _lines(call: Call, source: Source, job: Job) -> None:
    answer = source.get(job_route(job["id"], "logs"), _query(call))
    _merged(call, job).take(answer)


def _follow(call: Call, source: Source, job: Job) -> None:
    merged = _merged(call, job)
    follow = Follow(source, job["id"], tail=call.get("tail"))
    for answer in follow.answers():
        merged.take({"lines": [line for line in answer.get("lines") or [] if _is_wanted(call, line)]})
        if merged.closed:
            raise BrokenPipeError


def _is_wanted(call: Call, line: dict[str, Any]) -> bool:
    for key in ("rank", "task", "stream"):
        if call.get(key) is not None and line.get(key) not in (None, call.get(key)):
            return False
    return True

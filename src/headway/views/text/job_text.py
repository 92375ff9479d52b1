"""How a job stands and how it ended, in a few lines: the answer, the evidence, the next command.

Pure: from the job object of the contract and the job's events to lines of text. Called by the verbs
that show jobs.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headway.model.engine_words import queue_word
from headway.model.json_types import JsonObject
from headway.model.limits import DISPLAY_METRICS_MAX
from headway.views.text import format as fmt
from headway.views.text.table import fit, width
from headway.views.text.terminal import BOLD, DIM, Output

if TYPE_CHECKING:
    from headway.views.text.best import Best

Job = JsonObject
Event = JsonObject
_SOURCE_LINE_CHARS_MAX: Final = 200
_AFTER_SHOWN: Final = 5
_REASON_STOPPED: Final = ("stop", "walltime")
# how an agent reaches the server -> in words
WAYS: Final = {
    "socket": "over the server's socket",
    "network": "over the network (TLS)",
    "folder": "through the cluster's folder",
}


def state_line(job: Job, out: Output, now: datetime) -> str:
    """`● digits-7f3c2  running 00:41   here · 4 processes`. An unknown state always has its age."""
    state = str(job["state"])
    head = f"{_mark(state, out)} {out.style(out.safe(str(job['id'])), BOLD)}"
    return f"{head}  {out.safe(_state_words(job, now))}   {out.safe(' · '.join(_place(job)))}"


def _mark(state: str, out: Output) -> str:
    return out.style(fmt.STATE_MARKS.get(state, "?"), fmt.STATE_COLOURS.get(state, "35"))


def _state_words(job: Job, now: datetime) -> str:
    state = str(job["state"])
    if state == "unknown":
        since = fmt.local_time(job.get("state_since"), now)
        heard = fmt.duration(fmt.age_s(heard_at(job), now))
        return f"unknown since {since}, last heard {heard} ago"
    if state == "waiting":
        why = waiting_words(waiting_of(job), now)
        if not why:
            why = f"in the queue (hw why {fmt.suffix(str(job['id']))})"
        return f"waiting for {fmt.duration(waited_s(job, now))}, {why}"
    if state == "held" and (job.get("hold") or {}).get("until"):
        return f"held until {fmt.local_time(job['hold']['until'], now)}"
    if state in fmt.ENDED:
        if job.get("started_at"):
            return f"{state} after {fmt.duration(lasted_s(job))}"
        return state

    words = state
    if job.get("elapsed_s"):
        words += f" {fmt.clock(job['elapsed_s'])}"
    carried = fmt.carried(job.get("progress"))
    if carried:
        words += f", {carried}"
    return words


def waiting_words(waiting: JsonObject, now: datetime) -> str:
    """`attempt 2 at 12:04:31`, `after 7f3c2, a0317`, `Resources` as an engine puts it, or `2 ahead`
    in our queue.
    """
    if waiting.get("next_at"):
        when = fmt.moment(waiting["next_at"])
        if when is None or when <= now:
            return f"attempt {waiting.get('attempt')} is due"
        return f"attempt {waiting.get('attempt')} at {fmt.local_time(waiting['next_at'], now)}"
    names = [fmt.suffix(str(name)) for name in waiting.get("after") or []]
    if names:
        words = f"after {', '.join(names[:_AFTER_SHOWN])}"
        if len(names) > _AFTER_SHOWN:
            words += f" and {len(names) - _AFTER_SHOWN} more"
        return words
    if waiting.get("reason"):
        return str(waiting["reason"])
    ahead = waiting.get("ahead")
    if isinstance(ahead, int):
        return f"{ahead:,} ahead" if ahead else "next"
    return str(waiting.get("word") or "")


def progress_words(job: Job) -> str:
    """`37 %  left 1:12`: how far the job is, by a tracker of its outermost loop with a known total,
    of those that run if any does. A loop inside another, whose outer one nobody knows, is told as
    such and while it runs: `epoch 3: 75 %`; its time left is not the job's.
    """
    is_over = fmt.is_over(job)
    inner = ""
    for tracker in sorted(
        job.get("progress") or [], key=lambda one: one.get("state", "running") != "running"
    ):
        completed, total = _real(tracker.get("completed")), _real(tracker.get("total"))
        if tracker.get("source") == "folder" and tracker.get("state") != "running":
            continue  # it is there; what counts is how far the program is
        if completed is None or total is None or total <= 0:
            continue
        share = f"{int(100 * min(completed / total, 1.0)):>3} %"
        if tracker.get("inner"):
            name = " ".join(str(word) for word in tracker.get("msg") or [])
            if not is_over and tracker.get("state") == "running":
                inner = f"{name}: {share.strip()}" if name else ""
            continue
        left_s = _real(tracker.get("eta_s"))
        if left_s is None or is_over or tracker.get("stalled_since"):
            return share
        return f"{share}  left {fmt.clock(left_s)}"
    return inner


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def heard_words(job: Job, now: datetime) -> str:
    """An unknown state always has its age (P8)."""
    return f"last heard {fmt.duration(fmt.age_s(job.get('heard_at') or job.get('state_since'), now))} ago"


def waiting_of(job: Job) -> JsonObject:
    """Of a whole job object; rows of a list bring it with them."""
    if job.get("waiting"):
        return dict(job["waiting"])
    left = [one["id"] for one in job.get("after") or [] if one.get("state") != "succeeded"]
    number = len(job.get("attempts") or []) + 1
    word = queue_word(last_attempt(job).get("engine_word"))
    return {
        "attempt": number,
        "next_at": (job.get("retries") or {}).get("next_at"),
        "after": left,
        "word": word,
    }


def heard_at(job: Job) -> str | None:
    """When an agent of the job last spoke, as far as is known; else since when the state is what it
    is.
    """
    heard = [
        str(task["heard_at"])
        for task in last_attempt(job).get("tasks") or []
        if task.get("heard_at")
    ]
    return max(heard, default=job.get("state_since"))


def _place(job: Job) -> Iterator[str]:
    yield fmt.place(job)
    gpus = job.get("gpus")
    yield fmt.plural(count_processes(job), "process")
    if gpus:
        yield fmt.plural(int(gpus), "GPU")
    if job.get("smoke"):
        yield "smoke"
    if job.get("page"):
        yield str(job["page"])


def count_processes(job: Job) -> int:
    """Processes of the last attempt; before there is one, those asked for."""
    found = len(processes(job))
    if found and job.get("multi_process") is False:
        return found  # what was asked for are GPUs then
    asked = job.get("processes")
    return max(found, int(asked) if isinstance(asked, int) else 1)


def last_attempt(job: Job, number: int | None = None) -> JsonObject:
    """The last attempt, or the one of that number; empty when there is none."""
    attempts = [a for a in job.get("attempts") or [] if number is None or a.get("number") == number]
    return dict(attempts[-1]) if attempts else {}


def processes(job: Job, attempt: int | None = None) -> list[JsonObject]:
    """Processes of the last attempt, or of that one, in order of rank, each with its task's name
    and node.
    """
    found = [
        {**process, "task": task.get("name"), "node": task.get("node")}
        for task in last_attempt(job, attempt).get("tasks") or []
        for process in task.get("processes") or []
    ]
    return sorted(found, key=lambda p: int(p.get("rank") or 0))


def has_output(job: Job, attempt: int | None = None) -> bool:
    """Whether its output is ours. That of a script that was started without us went to its own
    terminal.
    """
    found = processes(job, attempt)
    return not found or any(
        path for process in found for path in (process.get("logs") or {"": "?"}).values()
    )


def metrics_words(job: Job, out: Output, limit: int = DISPLAY_METRICS_MAX) -> str:
    """`loss 0.031   accuracy 0.91`: last values, the lowest rank's."""
    return "   ".join(_metrics(job, out, limit, {}))


def _metrics(job: Job, out: Output, limit: int, best: "Mapping[str, Best]") -> list[str]:
    """One by one: `loss 0.031 (best 0.03 at step 9400)`."""
    metrics = job.get("metrics") or {}
    shown = [
        f"{out.safe(str(name))} {fmt.number(_value(found))}{_best_words(_value(found), best.get(name))}"
        for name, found in list(metrics.items())[:limit]
    ]
    return [*shown, f"and {len(metrics) - limit} more"] if len(metrics) > limit else shown


def _packed(words: list[str], columns: int) -> list[str]:
    """Side by side on as many lines as they need."""
    lines: list[str] = []
    for word in words:
        if lines and width(f"{lines[-1]}   {word}") <= columns:
            lines[-1] += f"   {word}"
        else:
            lines.append(f"  {word}")
    return lines


def _best_words(last: object, best: "Best | None") -> str:
    """Nothing where the last value is the best, as far as can be seen."""
    if best is None or fmt.number(best.value) == fmt.number(last):
        return ""
    return f" (best {fmt.number(best.value)}" + (
        ")" if best.step is None else f" at step {best.step})"
    )


def _value(found: object) -> object:
    return found.get("value") if isinstance(found, dict) else found


def event_words(event: Event, *, output_seen: bool = False) -> str:
    """What of an event a person should know: warnings, and what was lost (P5). Empty for all
    others. `output_seen`: warnings of a process are left out, which are in its stderr already.
    """
    data = event.get("data") or {}
    who = f"rank {event['rank']}: " if event.get("rank") is not None else ""
    if event.get("type") == "note" and data.get("level") == "hint":
        return str(data.get("text", ""))
    if event.get("type") == "note" and output_seen and who:
        return ""
    if event.get("type") == "note" and str(data.get("level", "warning")).lower() != "debug":
        return f"{who}{data.get('text', '')}"
    if event.get("type") == "gap":
        kinds = ("points", "records", "bytes")
        counts = [
            f"{data[kind]:,} {kind}"
            for kind in kinds
            if isinstance(data.get(kind), int) and data[kind]
        ]
        return (
            f"{who}lost {', '.join(counts) or 'data'} of {data.get('stream')}: {data.get('reason')}"
        )
    if event.get("type") == "leftovers":
        count = len(data.get("pids") or ())
        return (
            f"{count} of its processes still ran when it had ended, and were ended" if count else ""
        )
    if event.get("type") == "counters":
        return (
            f"{who}{words}"
            if (words := _refused_words(data.get("rejected"), data.get("produced")))
            else ""
        )
    if event.get("type") == "retry":
        return retry_words(event.get("attempt"), data.get("because"), data)
    if event.get("type") in ("hung", "slow"):
        return f"{event['type']}: {data.get('text')}"
    if event.get("type") == "preempt_notice":
        if data.get("by") == "signal 15":  # also how hw abort and --max-duration end it
            return f"{who}told to end soon by SIGTERM; its hw.on_preempt is called"
        return f"its machine will be wanted for something else ({data.get('by')})"
    return ""


def told_words(events: list[Event]) -> list[str]:
    """What of all events a person should know; of the counts of a process, which grow, only the
    last.
    """
    counts = {_counted(event): event for event in events if event.get("type") == "counters"}
    kept = (e for e in events if e.get("type") != "counters" or counts[_counted(e)] is e)
    return [words for words in map(event_words, kept) if words]


def _counted(event: Event) -> tuple[Any, ...]:
    return event.get("attempt"), event.get("rank"), str((event.get("data") or {}).get("pid"))


def _refused_words(refused: object, produced: object) -> str:
    """`500 of 1,000 points were refused, and not kept`."""
    if not (isinstance(refused, int) and isinstance(produced, int) and refused > 0):
        return ""
    return f"{refused:,} of {produced:,} points {'was' if refused == 1 else 'were'} refused, and not kept"


def retry_words(number: object, because: object, retry: JsonObject) -> str:
    """`attempt 1 failed: exited with code 1; retry 1 of 3 in 8 s`."""
    where = {"other_node": " on another node", "when_room": " when there is room"}.get(
        str(retry.get("do")), ""
    )
    wait = f" in {fmt.duration(retry.get('wait_s'))}" if retry.get("wait_s") else ""
    return f"attempt {number} failed: {because or 'no reason is known'}; {retry.get('text')}{where}{wait}"


def end_lines(
    job: Job, events: list[Event], out: Output, best: "Mapping[str, Best] | None" = None
) -> list[str]:
    """The end of a run, good or bad."""
    short = fmt.suffix(str(job["id"]))
    head = f"{_mark(str(job['state']), out)} {out.style(out.safe(str(job['id'])), BOLD)}"
    took = fmt.duration(lasted_s(job))
    if job["state"] == "succeeded":
        told = [*_metrics(job, out, DISPLAY_METRICS_MAX, best or {}), *_peak_words(job)]
        whole = "   ".join(told)
        fits = (
            out.columns is None
            or width(f"x {job['id']} succeeded in {took}    {whole}") <= out.columns
        )
        lines = [f"{head} succeeded in {took}" + (f"    {whole}" if whole and fits else "")]
        lines += [] if fits else _packed(told, out.columns or 0)
        return [
            *lines,
            "  " + out.style(" · ".join(_ways_on(job, f"hw logs {short}")), DIM),
        ]
    first = first_failure(job, events)
    held = str(job["state"]) == "held"
    verb = {"failed": "failed", "stopped": "was stopped", "held": "failed"}.get(
        str(job["state"]), str(job["state"])
    )
    after = f"after {took}" if job.get("started_at") else "before it started"
    text, tail = verdict(job, first)
    lines = [f"{head} {verb} {after}: {out.safe(text)}"]
    plain = f"x {job['id']} {verb} {after}: {text}    {tail}"
    if tail and (out.columns is None or width(plain) <= out.columns):
        lines[0] += f"    {out.safe(tail)}"
    elif tail:
        lines.append(fact("", out.safe(tail)))
    lines += evidence_lines(job, first, out)
    refused = str((last_attempt(job).get("cause") or {}).get("no_retry") or "")
    if refused.endswith("would come again"):
        refused += "; --retry-on any tries it all the same"
    if refused:
        lines.append(fact("retry", out.safe(refused)))
    rank = f" --rank {first['rank']}" if first and count_processes(job) > 1 else ""
    if held:
        lines += [
            fact("held", hold_words(job)),
            fact("", f"hw shell {short} enters it · hw release {short} frees it"),
        ]
    return [*lines, fact("next", " · ".join(_ways_on(job, f"hw logs {short}{rank}")))]


def _ways_on(job: Job, logs: str) -> Iterator[str]:
    """Commands to go on with, and the page."""
    short = fmt.suffix(str(job["id"]))
    yield from (f"hw q {short}", logs, f"hw resubmit {short}")
    if job.get("page"):
        yield str(job["page"])


def _peak_words(job: Job) -> list[str]:
    """`peak 1.9 GiB`: the most memory that one process has used; of several, whose it was."""
    used = job.get("usage") or {}
    peak, rank = used.get("peak_memory_bytes"), used.get("peak_rank")
    if not isinstance(peak, int | float):
        return []
    return [
        f"peak {fmt.size(peak)}"
        + (f" (rank {rank})" if rank is not None and count_processes(job) > 1 else "")
    ]


APART_S: Final = 1.0  # two times that are nearer are told as one


def lasted_s(job: Job) -> float | None:
    """From its first start to the end of its processes: a job that failed and was then held failed
    before that.
    """
    started = fmt.moment(job.get("started_at"))
    ends = [fmt.moment(process.get("ended_at")) for process in processes(job)]
    known = [end for end in ends if end is not None]
    elapsed_s: float | None = job.get("elapsed_s")
    if started is None or elapsed_s is None or not known or len(known) < len(ends):
        return elapsed_s
    lasted = max(0.0, (max(known) - started).total_seconds())
    return lasted if elapsed_s - lasted >= APART_S else elapsed_s


def ran_s(job: Job, now: datetime) -> float:
    """How long its processes ran, in all attempts: without what lies between them, and without a
    hold.
    """
    total = 0.0
    for attempt in job.get("attempts") or []:
        starts = []
        ends = []
        for task in attempt.get("tasks") or []:
            for process in task.get("processes") or []:
                started = fmt.moment(process.get("started_at"))
                if started:
                    starts.append(started)
                    ends.append(fmt.moment(process.get("ended_at")) or now)
        if starts:
            total += max(0.0, (max(ends) - min(starts)).total_seconds())
    return total


def waited_s(job: Job, now: datetime) -> float | None:
    """How long it waits this time: between two attempts, since the last one."""
    return fmt.age_s(job.get("state_since") or job.get("submitted_at"), now)


def hold_words(job: Job) -> str:
    """`until 14:20 · keeps 4 GPUs and its place · 0.2 GPU hours so far`."""
    hold = job.get("hold") or {}
    if not hold:
        return ""
    until, gpus = fmt.moment(hold.get("until")), int(hold.get("gpus") or 0)
    when = until.astimezone().strftime("%H:%M:%S") if until else "?"
    keeps = f"keeps {fmt.plural(gpus, 'GPU')} and its place" if gpus else "keeps its place"
    cost = f" · {fmt.number(hold.get('gpu_hours'))} GPU hours so far" if gpus else ""
    return f"until {when} · {keeps}{cost}"


def fact(label: str, text: str, cells: int = 8) -> str:
    """A line of a page: what it is about, then the words."""
    return f"  {label:<{cells}}{text}".rstrip()


def verdict(job: Job, first: JsonObject | None) -> tuple[str, str]:
    """Why it ended, in one line, and what else is known of it: `("ValueError: bad", "exit code 1 ·
    user error")`.
    """
    # of an end that no attempt had
    own = job.get("cause") if job.get("state") == "stopped" else None
    cause = own or last_attempt(job).get("cause") or {}
    exception = None if own else (first or {}).get("exception")
    text = exception_words(exception) if exception else str(cause.get("text") or "")
    ended = fmt.exit_words(job.get("exit_code"), job.get("signal"))
    never_ran = job.get("started_at") is None and job.get("exit_code") is None
    if never_ran or (not exception and _says_end(text, job)):
        ended = ""  # there is none, or it is said already
    known = _known_of(cause)
    if ended and text:
        known.insert(0, ended)
    return text or ended or "no reason is known", " · ".join(known)


def _known_of(cause: JsonObject) -> list[str]:
    """Whose error it was, and its name: `user error`, `missing_file`."""
    if cause.get("cause") == "cancelled":
        return []  # somebody wanted it so: that is nobody's error
    words = [_class_words(cause), cause.get("cause")]
    return [str(word) for word in words if word and word != "unknown"]


def _says_end(text: str, job: Job) -> bool:
    """Whether the words of a cause hold the exit code, or the signal by its name."""
    signal = job.get("signal")
    told = fmt.signal_name(signal) if signal is not None else f"code {job.get('exit_code')}"
    return re.search(rf"\b{re.escape(told)}\b", text) is not None


def _class_words(cause: JsonObject) -> str:
    found = str(cause.get("class") or "")
    if cause.get("cause") == "code_exception":  # whose fault it is nobody knows
        return "raised by the program"
    return f"{found} error" if found in ("user", "system") else found


def exception_words(exception: JsonObject) -> str:
    """`ValueError: bad batch`, on one line."""
    message = " ".join(str(exception.get("message") or "").split())
    name = str(exception.get("exc_type") or "Exception").removeprefix("builtins.")
    return f"{name}: {message}" if message else name


def evidence_lines(job: Job, first: JsonObject | None, out: Output, cells: int = 8) -> list[str]:
    """Which process failed first, when and where in its source, and which others were stopped
    because of it.
    """
    if first is None:
        return []
    exception = first.get("exception") or {}
    ended = fmt.moment(exception.get("time") or first.get("ended_at"))
    where = [f"rank {first['rank']}"] if count_processes(job) > 1 else []
    where += [str(first["task"])] if first.get("task") else []
    where += [ended.astimezone().strftime("%H:%M:%S.%f")[:-3]] if ended else []
    line = exception.get("line")
    if exception.get("file"):
        file = str(exception["file"]).removeprefix(f"{job.get('cwd')}/")
        where.append(f"{file}:{line}" if line else file)
    # then there is nothing to tell of it that is not said
    alone = count_processes(job) == 1 and not exception
    lines = [] if alone else [fact("first", out.safe(", ".join(where)), cells)]
    source = " ".join(str(exception.get("source") or "").split())[:_SOURCE_LINE_CHARS_MAX]
    if source and line:
        shown = fact("", f"{line} │ {out.safe(source)}", cells)
        lines.append(shown if out.columns is None else fit(shown, out.columns))
    others = _others_words(job, first)
    return [*lines, fact("others", others, cells)] if others else lines


def _others_words(job: Job, first: JsonObject) -> str:
    stopped = [
        int(p["rank"])
        for p in processes(job)
        if p.get("rank") != first["rank"]
        and str(p.get("reason") or "").endswith("failed")
        and p.get("exit_code") != 0
    ]
    if not stopped:
        return ""
    return f"{fmt.ranks(stopped)} {'was' if len(stopped) == 1 else 'were'} stopped because of it"


def first_failure(job: Job, events: list[Event]) -> JsonObject | None:
    """The process that failed first by itself (capability 40), with its uncaught exception if it
    told of one.
    """
    attempt = last_attempt(job)
    cause = attempt.get("cause") or {}
    if job.get("state") == "stopped" and cause.get("cause") == "cancelled":
        return None  # how its processes took the request is no failure
    of_attempt = [
        event for event in events if event.get("attempt") in (None, attempt.get("number"))
    ]
    known = _with_exits(processes(job), of_attempt)

    rank = cause.get("rank")
    if rank is None:
        failed = [process for process in known if _failed_by_itself(process)]
        if not failed:
            return None
        # one whose end is not known comes after all others
        first = min(failed, key=lambda process: str(process.get("ended_at") or "~"))
        rank = first["rank"]
    if rank is None:
        return None

    found = next((process for process in known if process.get("rank") == rank), {"rank": rank})
    exception = found.get("exception") or _exception_of(of_attempt, rank)
    if not _counts(exception, cause):
        exception = None
    return {**found, "exception": exception}


def _counts(exception: JsonObject | None, cause: JsonObject) -> bool:
    """One of another thread ends no process: it counts where nothing else is known."""
    where = (exception or {}).get("where", "main")
    return where == "main" or cause.get("cause") in (None, "unknown")


def _with_exits(found: list[JsonObject], events: list[Event]) -> list[JsonObject]:
    """Processes with the reason of their end, which the contract's object leaves to the events."""
    reasons = {
        e.get("rank"): (e.get("data") or {}).get("reason")
        for e in events
        if e.get("type") == "process_exited"
    }
    for process in found:
        process.setdefault("reason", reasons.get(process.get("rank")))
    return found


def _failed_by_itself(process: JsonObject) -> bool:
    bad = process.get("signal") is not None or process.get("exit_code") not in (None, 0)
    reason = str(process.get("reason") or "")
    return bad and reason not in _REASON_STOPPED and not reason.endswith("failed")


def _exception_of(events: list[Event], rank: object) -> JsonObject | None:
    """The first exception of the main thread; of any thread if there is none."""
    told = [e for e in events if e.get("type") == "exception" and e.get("rank") == rank]
    told.sort(key=lambda e: (e.get("data") or {}).get("where") != "main")
    return {**(told[0].get("data") or {}), "time": told[0].get("time")} if told else None

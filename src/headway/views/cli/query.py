"""`hw q ID…`: all about a job on one page: state, command, times, processes, exception, metrics,
last lines, logs.

With `--assets` the new bytes of each log are fetched to `./assets/<id>/` as well (capability 15).
"""

import os
from datetime import UTC, datetime
from typing import Any

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import QUERY_TAIL_LINES, QUERY_TAIL_LINES_MIN
from headway.views.api.source import Source, job_route
from headway.views.cli import arrays, log_records, references
from headway.views.cli.dispatch import Call, complain
from headway.views.cli.output import Merged
from headway.views.text import format as fmt
from headway.views.text import health_text, job_text, redraw, table
from headway.views.text.terminal import DIM, RED, Output
from headway.wire import display

_LABEL_CELLS = 12
_NOTES_MAX = 10
_USAGE_POINTS = 64  # that the means over a life are made of
_TRACKERS_MAX = 8
_ATTEMPTS_MAX = 10
_CONFIG_CHARS_MAX = 800  # of the config: ten rows of a terminal
_VALUE_CHARS_MAX = 60  # of one value of it
_PROCESSES_MAX = 8  # a line each; of more, a line for all that are alike
_AROUND_LOG = 4  # two rulers, and the prompt with a line to spare
_OUTPUT_FILES_MAX = 10_000  # that are counted
_READ_FOR_EACH = 5  # lines read for each that is shown


def command(call: Call) -> int:
    source = call.source()
    refs = references.several(call, source)
    found: list[JsonObject] = []
    worst = 0
    for ref in refs:
        try:
            job = source.get(job_route(ref))
            job["provenance"] = _provenance(source, job["id"])
            if not call.as_json:
                _show(call, source, job, first=not found, alone=len(refs) == 1)
            if call.get("assets"):
                _fetch(call, source, job)
            found.append(job)
        except NotFoundError as error:  # the others are still answered
            array = arrays.found(source, ref)
            if array is not None:
                arrays.show(call, array, first=not found)
                found.append(array)
                continue
            complain(call.terminal, error)
            worst = max(worst, error.exit_code)
    if call.as_json and (found or not worst):
        call.terminal.put_json(found[0] if len(refs) == 1 else found)
    return worst


def _provenance(source: Source, job_id: str) -> JsonObject | None:
    """Where code and environment come from (capability 30); collected after the start, so it may
    not be there yet.
    """
    try:
        found: JsonObject | None = source.get(job_route(job_id, "provenance"))
    except NotFoundError:  # a server older than this command
        return None
    return found


def _show(call: Call, source: Source, job: JsonObject, *, first: bool, alone: bool) -> None:
    events = source.get(job_route(job["id"], "events"))
    if fmt.is_over(job) and job.get("usage"):
        job["usage"] = _whole_usage(source, job)
    out = call.terminal.out
    lines = [] if first else [""]
    lines += page(job, events, out, datetime.now(UTC))
    paths = _path_lines(job, out)
    tail = call.get("tail")
    if tail is None:
        tail = _lines_wanted(len(lines) + len(paths) + _AROUND_LOG, out, alone)
    lines += [*_log_lines(source, job, out, tail), *paths]
    out.write("\n".join(lines) + "\n")


def _lines_wanted(others: int, out: Output, alone: bool) -> int:
    """Of the log: on a terminal what fits on the screen, with a few at least; the rest is a command
    away.
    """
    if out.rows is None:
        return QUERY_TAIL_LINES
    room = out.rows - others if alone else 0
    return min(max(room, QUERY_TAIL_LINES_MIN), QUERY_TAIL_LINES)


def page(job: JsonObject, events: list[JsonObject], out: Output, now: datetime) -> list[str]:
    """The part of the page that needs no log."""
    lines = [job_text.state_line(job, out, now)]
    if job["state"] in ("failed", "stopped", "unknown", "held"):
        lines += _failure_lines(job, events, out)
    if hung := health_text.health_words(job, now):
        lines += [_fact("health", out.safe(hung)), _fact("", f"hw why {fmt.suffix(job['id'])}")]
    lines += _fact_lines(job, out, now)
    lines += _process_lines(job, out, now)
    told = job_text.told_words(events)
    lines += [
        _fact("" if number else "notes", out.safe(words))
        for number, words in enumerate(told[-_NOTES_MAX:])
    ]
    return lines


def _fact(label: str, text: str) -> str:
    return job_text.fact(label, text, _LABEL_CELLS)


def _fact_lines(job: JsonObject, out: Output, now: datetime) -> list[str]:
    times = [("submitted", "submitted_at"), ("started", "started_at"), ("ended", "ended_at")]
    told = " · ".join(
        f"{word} {fmt.local_time(job[key], now)}" for word, key in times if job.get(key)
    )
    facts = [
        *_command_facts(job),
        ("folder", job.get("cwd")),
        *(
            ("" if number else "folders", _folder_words(one))
            for number, one in enumerate(job.get("folders") or [])
        ),
        ("experiment", job.get("experiment")),
        ("about", job.get("description")),
        ("marked", " · ".join(mark for mark in ("star", "bug") if job.get(mark))),
        ("tags", ", ".join(str(tag) for tag in job.get("tags") or [])),
        ("parent", job.get("parent")),
        ("times", told),
        ("elapsed", _elapsed_words(job, now)),
        *(
            ("" if number else "attempts", words)
            for number, words in enumerate(_attempt_lines(job, now))
        ),
        ("held", job_text.hold_words(job)),
        (
            "after",
            " · ".join(f"{one['id']} ({one['state'] or 'gone'})" for one in job.get("after") or []),
        ),
        ("engine", _engine_words(job)),
        ("attach", _attach_words(job)),
        ("reserved", _reserved_words(job)),
        ("sent", _way_words(job)),
        ("outputs", job.get("outputs")),
        ("output", _output_words(job.get("output_dir"))),
        ("code", _code_words(job.get("provenance") or {}, job.get("code"))),
        ("on", _surroundings_words(job.get("provenance") or {})),
        ("config", _config_words(job)),
        *(("progress", words) for words in _progress_lines(job.get("progress") or [])),
        ("needs", _needs_words(job.get("needs") or {})),
        ("usage", _usage_words(job.get("usage") or {})),
    ]
    lines = [_fact(label, out.safe(str(text))) for label, text in facts if text]
    metrics = job_text.metrics_words(job, out)
    return [*lines, _fact("metrics", metrics)] if metrics else lines


def _command_facts(job: JsonObject) -> list[tuple[str, str]]:
    """The command; of roles a line for each, `worker ×2  python train.py`."""
    roles = job.get("roles") or []
    if not roles:
        return [("command", fmt.shell_words([str(word) for word in job.get("command") or []]))]
    names = []
    for role in roles:
        name = role["name"]
        if role["instances"] > 1:
            name += f" ×{role['instances']}"
        names.append(name)
    cells = max(map(len, names))
    facts: list[tuple[str, str]] = []
    for name, role in zip(names, roles, strict=True):
        head = "" if facts else "roles"  # above the first alone
        facts.append((head, f"{name:<{cells}}  {fmt.shell_words(role['command'])}"))
    return facts


def _elapsed_words(job: JsonObject, now: datetime) -> str:
    """`1 h 12 min since the first start · 40 min of it running`; the second where a hold or a retry
    parts them.
    """
    if not job.get("started_at"):
        return ""
    total_s, ran_s = job.get("elapsed_s") or 0.0, job_text.ran_s(job, now)
    retried = len(job.get("attempts") or []) > 1
    if not retried and (not ran_s or total_s - ran_s < job_text.APART_S):
        return fmt.duration(total_s)
    return f"{fmt.duration(total_s)} since the {'first ' * retried}start · {fmt.duration(ran_s)} of it running"


def _way_words(job: JsonObject) -> str:
    """How the agents of the last attempt reach the server, where it is not simply its socket."""
    tasks = job_text.last_attempt(job).get("tasks") or []
    ways = {str(task["way"]) for task in tasks if task.get("way")}
    if not ways or ways == {"socket"}:
        return ""
    words = " and ".join(job_text.WAYS.get(way, way) for way in sorted(ways))
    troubles = [str(task["way_trouble"]) for task in tasks if task.get("way_trouble")]
    if troubles:
        words += f"; {min(troubles)}"
    return words


def _folder_words(folder: JsonObject) -> str:
    """`./data from az://datasets/voc20, read only`."""
    words = f"./{folder['name']}"
    words += f" from {folder['source']}" if folder.get("source") else ""
    words += f" to {folder['target']}" if folder.get("target") else ""
    words += ", read only" if folder.get("mode") == "ro" else ""
    return words + (f", mounted with {folder['mount']}" if folder.get("mount") else "")


def _attempt_lines(job: JsonObject, now: datetime) -> list[str]:
    """The story of every attempt with its cause, once there is more than one or another is to come."""
    attempts = job.get("attempts") or []
    retries = job.get("retries") or {}
    if len(attempts) < 2 and not retries.get("total"):
        return [words for words in map(_no_retry_words, attempts) if words]

    head = f"{_retries_words(retries.get('total') or 0)}, {retries.get('counted')} counted"
    if retries.get("max"):
        head += f" of {retries['max']}"
    lines = [head]
    if len(attempts) > _ATTEMPTS_MAX:
        lines.append(f"the first {len(attempts) - _ATTEMPTS_MAX} are in --json")
    lines += [_attempt_words(attempt, now) for attempt in attempts[-_ATTEMPTS_MAX:]]

    if retries.get("next_at") and job["state"] == "waiting":
        when = fmt.local_time(retries["next_at"], now)
        number = len(attempts) + 1
        lines.append(f"{number}  next try {when}: {retries.get('text')}")
    return lines


def _retries_words(count: int) -> str:
    return "1 retry" if count == 1 else f"{count} retries"


def _attempt_words(attempt: JsonObject, now: datetime) -> str:
    """`1  failed after 3 s on node1: exited with code 1 → retry 1 of 3`."""
    words = f"{attempt['number']}  {attempt['state']}"
    started = fmt.moment(attempt.get("started_at"))
    ended = fmt.moment(attempt.get("ended_at"))
    if started and ended:
        words += f" after {fmt.duration((ended - started).total_seconds())}"

    tasks = attempt.get("tasks") or []
    nodes = {str(task["node"]) for task in tasks if task.get("node")}
    if nodes:
        words += f" on {', '.join(sorted(nodes))}"

    cause = (attempt.get("cause") or {}).get("text")
    if cause:
        words += f": {cause}"

    then = (attempt.get("retry") or {}).get("text") or _no_retry_words(attempt)
    if then:
        words += f" → {then}"
    return words


def _no_retry_words(attempt: JsonObject) -> str:
    """Why no retry followed, where some were asked for."""
    return str((attempt.get("cause") or {}).get("no_retry") or "")


def _engine_words(job: JsonObject) -> str:
    """The engine's own words (capability 60), where it has any to say."""
    if job.get("engine") in (None, "local"):
        return ""
    last = (job.get("attempts") or [{}])[-1]
    word = last.get("engine_word")
    if str(word).lower() == "running" and job["state"] in fmt.ENDED:
        word = None  # the last that it said, before its agent told the end
    words = [job.get("engine"), job.get("engine_id"), job.get("image"), word, job.get("engine_url")]
    return " · ".join(str(word) for word in words if word)


def _attach_words(job: JsonObject) -> str:
    """The way in; where an engine has one of its own, that one (capability 60)."""
    words, short = job.get("attach"), fmt.suffix(job["id"])
    if not words:
        return ""
    if job.get("engine") == "local":
        return f"hw shell {short}"
    # a plain shell is easier to type
    if job.get("engine") in ("docker", "podman") and "exec" in words:
        return (
            f"hw shell {short}   or: {fmt.shell_words([*words[: words.index('exec') + 3], 'sh'])}"
        )
    return f"hw ssh {short}   runs: {fmt.shell_words(words)}"


def _needs_words(needs: JsonObject) -> str:
    """What it asked for, above what it uses."""
    words = [f"memory {fmt.size(needs['memory_bytes'])}"] if needs.get("memory_bytes") else []
    words += [fmt.plural(needs["cpus"], "core")] if needs.get("cpus") else []
    words += (
        [f"at most {fmt.duration(needs['max_duration_s'])}"] if needs.get("max_duration_s") else []
    )
    return " · ".join(words)


def _reserved_words(job: JsonObject) -> str:
    if not job.get("reserved") or job["state"] in fmt.ENDED:
        return ""
    return f"it only holds its nodes, for a shell; to free them: hw release {fmt.suffix(job['id'])}"


def _code_words(provenance: JsonObject, snapshot: str | None) -> str:
    git = provenance.get("git") or {}
    commit = str(git.get("commit") or "")
    if not commit and not snapshot:
        return ""
    words = []
    if snapshot:
        words.append(f"snapshot {snapshot[:12]}")
    if commit:
        words.append(commit[:12])
    words += [str(git[key]) for key in ("branch", "author", "message") if git.get(key)]
    if git.get("dirty"):
        words.append("with uncommitted changes")
    return " · ".join(words)


def _surroundings_words(provenance: JsonObject) -> str:
    packages = len(provenance.get("packages") or {})
    python = f"Python {provenance['python']}" if provenance.get("python") else ""
    who = "@".join(str(provenance[key]) for key in ("user", "host") if provenance.get(key))
    return " · ".join(
        word for word in (who, python, f"{packages} packages" if packages else "") if word
    )


def _output_words(folder: str | None) -> str:
    """`/…/output/digits-7f3c2 · 3 files · 1.5 GiB`; nothing where there is none, or it is on another
    machine.
    """
    count, size = 0, 0
    for where, _, names in os.walk(folder or ""):
        for name in names[: _OUTPUT_FILES_MAX - count]:
            try:
                size += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # it was removed meanwhile
                continue
            count += 1
        if count >= _OUTPUT_FILES_MAX:
            return f"{folder} · over {count} files"
    return f"{folder} · {fmt.plural(count, 'file')} · {fmt.size(size)}" if count else ""


def _config_value(value: Any) -> str:
    """As it was given: 0.0 is no 0."""
    return repr(value) if isinstance(value, float) else _brief(value)


def _config_words(job: JsonObject) -> str:
    config = job.get("config") or {}
    if not isinstance(config, dict):
        return str(config)
    words = " · ".join(f"{_brief(key)} {_config_value(value)}" for key, value in config.items())
    return (
        words
        if len(words) <= _CONFIG_CHARS_MAX
        else f"{words[:_CONFIG_CHARS_MAX]}… (--json has all of it)"
    )


def _progress_lines(trackers: list[JsonObject]) -> list[str]:
    """`epoch 40/100 (rank 0) · 2/s · 30 s left`; `epoch 40–41/100 (8 ranks) · …`: ranks share a
    line. In the order they started; of many those that run, then the newest.
    """
    alike: dict[tuple[Any, ...], list[JsonObject]] = {}
    for tracker in trackers:
        own = (
            (_position_words([tracker]),)
            if tracker.get("source") == "folder"
            else (tracker.get("total"),)
        )
        alike.setdefault((_tracker_name(tracker), *own, tracker.get("state")), []).append(tracker)
    ranks = {
        key: [one["rank"] for one in group if one.get("rank") is not None]
        for key, group in alike.items()
    }
    telling = sorted(enumerate(alike), key=lambda one: (one[1][-1] != "running", -one[0]))
    shown = [key for _, key in sorted(telling[:_TRACKERS_MAX])]
    lines = [
        f"{_position_words(alike[key])}{_ranks_words(ranks[key])}{_speed_words(alike[key])}"
        for key in shown
    ]
    return lines + (
        [f"and {len(alike) - len(shown)} more, see --json"] if len(alike) > len(shown) else []
    )


def _tracker_name(tracker: JsonObject) -> str:
    return " ".join(str(word) for word in tracker.get("msg") or []) or "progress"


def _ranks_words(ranks: list[int]) -> str:
    if not ranks:
        return ""
    return f" (rank {ranks[0]})" if len(ranks) == 1 else f" ({len(ranks)} ranks)"


def _position_words(group: list[JsonObject]) -> str:
    """Of several ranks, from the last to the first of them."""
    first = group[0]
    if first.get("source") == "folder":
        return fmt.carried_words(first)
    total = f"/{fmt.number(first['total'])}" if first.get("total") is not None else ""
    reached = sorted(one["completed"] for one in group if one.get("completed") is not None) or [
        None
    ]
    ends = dict.fromkeys(fmt.number(end) for end in (reached[0], reached[-1]))
    return f"{_tracker_name(first)} {'–'.join(ends)}{total}"


def _speed_words(group: list[JsonObject]) -> str:
    """The mean speed of the ranks, and the time that the slowest of them needs."""
    state = group[0].get("state")
    if state != "running":
        return f" · {state}"
    since = [rank["stalled_since"] for rank in group if rank.get("stalled_since")]
    if since:
        return f" · no step since {fmt.local_time(min(since), datetime.now().astimezone())}"

    words = ""
    rates = [rank["rate"] for rank in group if rank.get("rate") is not None]
    if rates:
        mean = sum(rates) / len(rates)
        is_bytes = group[0].get("source") == "folder"
        text = fmt.size(mean) if is_bytes else fmt.number(mean)
        words += f" · {text}/s"

    left = [rank["eta_s"] for rank in group if rank.get("eta_s") is not None]
    if left:
        words += f" · {fmt.duration(max(left))} left"
    return words


def _whole_usage(source: Source, job: JsonObject) -> JsonObject:
    """Of a job that is over: means over its life, not its last sample, when it did nothing any
    more.
    """
    try:
        curves = (
            source.get(job_route(job["id"], "usage"), [("points", _USAGE_POINTS)]).get("curves")
            or {}
        )
    # an older server has no such answer: the peak alone is told
    except (NotFoundError, UsageError):
        curves = {}
    last = job["usage"]
    means = {
        name: sum(curve["value"]) / len(curve["value"])
        for name, curve in curves.items()
        if curve["value"]
    }
    kept = {key: last.get(key) for key in ("ranks", "peak_memory_bytes", "peak_rank")}
    return {**kept, **means, "whole": True}


def _usage_words(found: JsonObject) -> str:
    """The last sample, or means over the job's life: of one rank where there are several."""
    has_ranks = (found.get("ranks") or 0) > 1
    each = " each" if has_ranks else ""
    words = []
    if found.get("cpu_percent") is not None:
        words.append(f"cpu {found['cpu_percent']:.0f} %{each}")
    if found.get("memory_bytes"):
        words.append(f"memory {fmt.size(found['memory_bytes'])}{each}")
    if found.get("gpu_percent") is not None:
        words.append(f"gpu {found['gpu_percent']:.0f} %")
    if words and found.get("whole"):
        words[0] = f"on average {words[0]}"

    if found.get("peak_memory_bytes"):
        peak = f"peak {fmt.size(found['peak_memory_bytes'])}"
        if has_ranks and found.get("peak_rank") is not None:
            peak += f" (rank {found['peak_rank']})"
        words.append(peak)
    return " · ".join(words)


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_brief(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_brief(v) for v in value) + "]"
    text = fmt.number(value)
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[: _VALUE_CHARS_MAX - 1]}…"


def _failure_lines(job: JsonObject, events: list[JsonObject], out: Output) -> list[str]:
    """The verdict of the end, then the traceback of the rank that failed first (capability 40)."""
    first = job_text.first_failure(job, events)
    text, tail = job_text.verdict(job, first)
    lines = [_fact("reason", out.style(out.safe(text), RED))]
    lines += [_fact("", out.safe(tail))] if tail else []
    lines += job_text.evidence_lines(job, first, out, _LABEL_CELLS)
    trace = str(((first or {}).get("exception") or {}).get("traceback") or "").rstrip()
    return (
        [*lines, *(f"    {line}" for line in out.safe_block(trace).split("\n"))] if trace else lines
    )


def _process_lines(job: JsonObject, out: Output, now: datetime) -> list[str]:
    found = job_text.processes(job)
    if not found:
        return [_fact("processes", "none" if job["state"] in fmt.ENDED else "none yet")]
    columns = [
        table.Column("rank", right=True, keep=table.ALWAYS),
        table.Column("task", factor=True),
        table.Column("node", factor=True),
        table.Column("pid", right=True),
        table.Column("started", factor=True),
        table.Column("took", right=True),
        table.Column("state", keep=table.ALWAYS),
        table.Column("end", keep=1),
    ]
    cells = [_process_cells(process, now) for process in found]
    if len(cells) > _PROCESSES_MAX and out.is_tty:
        columns, cells = _alike(columns, found, cells)

    rows = [[out.safe(cell) for cell in row] for row in cells]
    width = out.columns - 4 if out.columns else None
    above, lines = table.layout(columns, rows, width)
    return [_fact("processes", above), *(f"    {line}" for line in lines)]


def _alike(
    columns: list[table.Column], found: list[JsonObject], cells: list[list[str]]
) -> tuple[list[table.Column], list[list[str]]]:
    """A row for all processes of one task that are in one state and ended in one way; pids and
    times are left out.
    """
    kept = [1, 2, 6, 7]  # task, node, state, end
    groups: dict[tuple[str, ...], list[int]] = {}
    for process, row in zip(found, cells, strict=True):
        groups.setdefault(tuple(row[number] for number in kept), []).append(int(process["rank"]))
    named = [table.Column("ranks", keep=table.ALWAYS), *(columns[number] for number in kept)]
    return named, [
        [fmt.ranks(ranks).partition(" ")[2], *shared] for shared, ranks in groups.items()
    ]


def _process_cells(process: JsonObject, now: datetime) -> list[str]:
    started = fmt.moment(process.get("started_at"))
    ended = fmt.moment(process.get("ended_at"))
    took = None
    if started:
        took = ((ended or now) - started).total_seconds()
    end = ""
    if process.get("exit_code") is not None or process.get("signal") is not None:
        end = fmt.exit_words(process.get("exit_code"), process.get("signal"))
    if process.get("reason") and end != fmt.exit_words(0, None):
        end += f", because: {process['reason']}"
    return [
        str(process["rank"]),
        str(process.get("task") or ""),
        str(process.get("node") or ""),
        str(process.get("pid") or ""),
        fmt.local_time(process.get("started_at"), now),
        fmt.clock(took),
        str(process.get("state")),
        end,
    ]


def _log_lines(source: Source, job: JsonObject, out: Output, tail: int) -> list[str]:
    if not job.get("started_at") and job["state"] in fmt.ENDED:
        return [
            _fact(
                "log",
                f"it never started; hw logs {fmt.suffix(job['id'])} --stream agent may say more",
            )
        ]
    if not job.get("started_at"):
        return [_fact("log", "the job has not started, so there is none yet")]
    if not job_text.has_output(job):
        return [
            _fact(
                "log",
                "not kept: the script was started without hw, and its output went where it was started",
            )
        ]
    every = len(job.get("roles") or []) > 1  # one rank stands for its like, not for another role
    rank = (job.get("cause") or {}).get("rank") or 0  # the one that failed first, where one did
    whose = "all ranks" if every else f"rank {rank}"
    # of bars and of the same line again and again little is left, so more is asked for than shown
    asked = [("rank", None if every else rank), ("tail", tail * _READ_FOR_EACH)]
    try:
        answer = source.get(job_route(job["id"], "logs"), asked)
    except HeadwayError as error:
        return [_fact("log", out.safe(error.message))]
    try:
        records = source.get(job_route(job["id"], "records"), asked)
    except HeadwayError:
        records = {}  # the lines are worth more than what nobody printed
    kept = log_records.unprinted(records.get("records") or [])
    lines = redraw.folded(answer.get("lines") or [])
    if kept:
        lines = sorted([*lines, *kept], key=lambda line: str(line.get("time") or ""))
    lines = redraw.counted(lines)[-tail:] if tail else []
    if not lines:
        return (
            [_fact("log", "nothing has been written" if every else f"{whose} has written nothing")]
            if tail
            else []
        )
    merged = Merged(out, out, ranks=job_text.count_processes(job) if every else 1)
    last = "the last line" if len(lines) == 1 else f"the last {len(lines)} lines"
    ruler = out.style(
        f"─ log · {whose} · {last} · all: hw logs {fmt.suffix(job['id'])} ".ljust(60, "─"), DIM
    )
    return [
        ruler,
        *(merged.line(_brief_line(line, out), out).rstrip("\n") for line in lines),
        out.style("─" * 60, DIM),
    ]


def _brief_line(line: JsonObject, out: Output) -> JsonObject:
    """Two rows of a terminal at most: one long line must not push the rest of the page away."""
    text = display.collapse(str(line.get("text", "")))
    if out.columns is None or len(text) <= 2 * out.columns:
        return line
    return {**line, "text": text[: 2 * out.columns - 1] + "…"}


def _path_lines(job: JsonObject, out: Output) -> list[str]:
    """Where every rank's log lies; on a terminal, of many ranks the folders only."""
    lines = []
    folders: dict[str, None] = {}
    for process in job_text.processes(job):
        for name, path in (process.get("logs") or {}).items():
            if path:
                lines.append(f"{process['rank']:>4}  {name}  {path}")
                folders[str(path).rpartition("/")[0] + "/"] = None
    if not lines:
        return []
    if len(lines) > 2 * _PROCESSES_MAX and out.is_tty:
        lines = list(folders)
    return [_fact("logs", ""), *(f"    {out.safe(line)}" for line in lines)]


def _fetch(call: Call, source: Source, job: JsonObject) -> None:
    from headway.views.cli.assets import fetch

    for path, new in fetch(source, job):
        call.terminal.say(f"  {call.terminal.err.safe(str(path))}   {fmt.size(new)} new")

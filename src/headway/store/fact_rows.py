"""Facts → rows: what processes and agents told, applied to tasks, processes, config, tags,
provenance and events.

Called by `ingest` for every frame that is not points. A fact touches only the rows of its own
attempt's task, so an agent that was stopped and continued cannot touch a newer attempt (F27).
States of jobs and attempts are not ours to change.
"""

import base64
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway.model.errors import DamagedError, UsageError, VersionError
from headway.model.ids import check_name, name_from_command
from headway.model.json_types import JsonObject
from headway.model.limits import EVENTS_MAX, JSON_DEPTH_MAX
from headway.model.record import FACT, FORMAT_VERSION, OPEN
from headway.settings import argument_config
from headway.store import artifacts, catalog, live_write, notice_queue, stack_rows, tracked
from headway.store.connection import touch
from headway.store.jsonform import whole

TIME_NS_MIN = 946_684_800 * 10**9  # 2000-01-01: earlier clocks are wrong, or count in seconds (B13)
TIME_NS_MAX = 7_258_118_400 * 10**9  # 2200-01-01
_UNREAD_BYTES = 4096  # of a frame that nobody here can read
_TEXT_CHARS = 16_384
Fact = JsonObject


@dataclass(slots=True)
class Context:
    """Where facts come from and where their rows are."""

    job: int
    attempt: int  # its number
    task: int
    stream: int
    stream_name: str
    rank: int | None
    now_ns: int
    events: int  # of this job so far
    offset: int = 0  # of the frame in its stream
    ended: bool = False  # the task's end was told
    # processes that the shim started: their output has files from now on
    started_ranks: list[int] | None = None


def read_fact(payload: memoryview) -> Fact:
    """Strict JSON: no repeated keys (B9), no NaN, not too deep (B5). Raises ValueError."""
    try:
        value = json.loads(bytes(payload), object_pairs_hook=_distinct, parse_constant=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict) or not _shallow(value, JSON_DEPTH_MAX):
        raise ValueError("a fact is an object that is not nested too deeply")
    cleaned: Fact = _clean(value) if b"\\ud" in bytes(payload).lower() else value
    return cleaned


def _distinct(pairs: list[tuple[str, object]]) -> Fact:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _clean(value: object) -> Any:
    """Lone surrogates, which no UTF-8 can hold, become question marks (B6)."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _shallow(value: object, depth: int) -> bool:
    if depth == 0:
        return False
    if isinstance(value, dict):
        return all(_shallow(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return all(_shallow(item, depth - 1) for item in value)
    return True


def check_open(payload: memoryview) -> None:
    """Refuse a stream of a newer format by its version, before anything of it is applied (P12)."""
    try:
        told = read_fact(payload).get("version")
    except ValueError as error:
        raise DamagedError(f"the stream's first frame cannot be read: {error}") from None
    version = whole(told)
    if version is None or not 1 <= version <= FORMAT_VERSION:
        raise VersionError(
            f"written by another Headway: format {told}, this server reads up to {FORMAT_VERSION}"
        )


def apply(c: sqlite3.Connection, x: Context, kind: int, payload: memoryview) -> None:
    """One frame. What cannot be read costs only itself: it is kept as an event (P11, P12)."""
    if kind not in (FACT, OPEN):
        data = base64.b64encode(payload[:_UNREAD_BYTES]).decode()
        event(c, x, "frame", {"kind": kind, "bytes": len(payload), "base64": data}, x.now_ns)
        return
    try:
        fact = read_fact(payload)
    except ValueError as error:
        text = bytes(payload[:_UNREAD_BYTES]).decode("utf-8", "replace")
        event(c, x, "unreadable", {"error": str(error), "text": text}, x.now_ns)
        return
    if kind == OPEN:
        c.execute(
            "UPDATE streams SET opened = :opened WHERE pk = :pk",
            {"opened": json.dumps(fact), "pk": x.stream},
        )
        return
    type_ = str(fact.get("type"))
    if type_ in _WATCHED and _watch(c, x, fact, *_WATCHED[type_]):
        return
    handler = _HANDLERS.get(type_, tell)
    handler(c, x, fact)
    touch(c, x.job, "facts")


# -- values


def text(value: object) -> str | None:
    """A string that SQLite can hold, bounded (B6)."""
    if not isinstance(value, str):
        return None
    return value[:_TEXT_CHARS].encode("utf-8", "replace").decode()


def time_ns(x: Context, fact: Fact) -> int:
    """When it happened; the time of receipt where the sender's clock cannot be right (B13)."""
    told = whole(fact.get("time_ns"))
    return told if told is not None and TIME_NS_MIN <= told < TIME_NS_MAX else x.now_ns


def _rank(x: Context, fact: Fact) -> int | None:
    rank = whole(fact.get("rank"))
    return rank if rank is not None else x.rank


def event(
    c: sqlite3.Connection, x: Context, type_: str, data: Fact, when_ns: int, rank: int | None = None
) -> None:
    """Tell it with the job, if there is room for more."""
    x.events += 1
    if x.events > EVENTS_MAX:
        _count_dropped(c, x)
        return
    rank = x.rank if rank is None else rank
    catalog.add_event(
        c, x.job, text(type_) or "", data, when_ns, attempt=x.attempt, rank=rank, what="facts"
    )


def _count_dropped(c: sqlite3.Connection, x: Context) -> None:
    row = c.execute(  # from the end, where it lies, and not past as many as there may be
        "SELECT pk, data FROM events WHERE job = ? AND type = 'events_dropped' ORDER BY pk DESC LIMIT 1",
        (x.job,),
    ).fetchone()
    if row is None:
        catalog.add_event(
            c, x.job, "events_dropped", {"count": 1, "limit": EVENTS_MAX}, x.now_ns, what="facts"
        )
        return
    data = json.loads(row["data"])
    data["count"] += 1
    c.execute(
        "UPDATE events SET data = :data WHERE pk = :pk", {"data": json.dumps(data), "pk": row["pk"]}
    )


def tell(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """Keep a fact as an event, whatever its type."""
    when_ns = time_ns(x, fact)
    same = when_ns == fact.get("time_ns")
    data = {
        k: v for k, v in fact.items() if k not in ("type", "rank") and not (same and k == "time_ns")
    }
    event(c, x, str(fact.get("type"))[:64], data, when_ns, _rank(x, fact))


# -- one function per type


def _task_started(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    agent = {k: fact.get(k) for k in ("pid", "start", "boot_id", "version", "python")}
    agent |= {k: fact[k] for k in ("address", "port", "master_port") if k in fact}
    c.execute(
        """UPDATE tasks SET node = coalesce(:node, node), agent = :agent,
             state = CASE state WHEN 'starting' THEN 'running' ELSE state END WHERE pk = :task""",
        {"node": text(fact.get("node")), "agent": json.dumps(agent), "task": x.task},
    )
    tell(c, x, fact)


def _process_started(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    rank = _rank(x, fact)
    if rank is None:
        tell(c, x, fact)
        return
    c.execute(
        """INSERT INTO processes (task, rank, local_rank, pid, state, started_ns)
           VALUES (:task, :rank, :local_rank, :pid, 'running', :now)
           ON CONFLICT (task, rank) DO UPDATE SET local_rank = excluded.local_rank, pid = excluded.pid,
             started_ns = excluded.started_ns""",
        {**_process(x, fact, rank), "now": time_ns(x, fact)},
    )
    x.started_ranks = [*(x.started_ranks or []), rank]


def _process(x: Context, fact: Fact, rank: int) -> Fact:
    local_rank = whole(fact.get("local_rank"))
    return {
        "task": x.task, "rank": rank, "local_rank": rank if local_rank is None else local_rank,
        "pid": whole(fact.get("pid")),
    }  # fmt: skip


def _hello(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """A process that the shim did not start (torchrun's children, a plain script) becomes known by
    its own word.
    """
    _rank_found(c, x, fact)
    tell(c, x, fact)


def _rank_found(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """A process that a launcher in the task has started as a rank, seen by the agent."""
    rank = _rank(x, fact)
    if rank is not None:
        c.execute(
            """INSERT INTO processes (task, rank, local_rank, pid, state, started_ns)
               VALUES (:task, :rank, :local_rank, :pid, 'running', :now) ON CONFLICT (task, rank) DO NOTHING""",
            {**_process(x, fact, rank), "now": time_ns(x, fact)},
        )


def _start_failed(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    _end_process(c, x, fact, "not started", text(fact.get("message")))
    tell(c, x, fact)


def _process_exited(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    _end_process(c, x, fact, "exited", text(fact.get("reason")))
    tell(c, x, fact)


def _end_process(
    c: sqlite3.Connection, x: Context, fact: Fact, state: str, reason: str | None
) -> None:
    rank = _rank(x, fact)
    if rank is None:
        return
    c.execute(
        """INSERT INTO processes (task, rank, local_rank, pid, state, exit_code, signal, ended_ns, reason)
           VALUES (:task, :rank, :local_rank, :pid, :state, :exit_code, :signal, :now, :reason)
           ON CONFLICT (task, rank) DO UPDATE SET state = excluded.state, exit_code = excluded.exit_code,
             signal = excluded.signal, ended_ns = excluded.ended_ns, reason = excluded.reason,
             pid = coalesce(excluded.pid, pid)""",
        {
            **_process(x, fact, rank), "state": state, "exit_code": whole(fact.get("exit_code")),
            "signal": whole(fact.get("signal")), "now": time_ns(x, fact), "reason": reason,
        },
    )  # fmt: skip


def _bye(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """A client's own end: counts for a process that no shim watches, and is overruled by a shim."""
    opened = c.execute("SELECT opened FROM streams WHERE pk = :pk", {"pk": x.stream}).fetchone()[
        "opened"
    ]
    pid = whole(json.loads(opened).get("pid")) if opened else None
    c.execute(
        """UPDATE processes SET state = 'exited', exit_code = :exit_code, ended_ns = :now
           WHERE task = :task AND rank = :rank AND pid = :pid AND state = 'running'
             AND EXISTS (SELECT 1 FROM jobs WHERE pk = :job AND json_extract(spec, '$.attached'))""",
        {
            "task": x.task, "rank": x.rank, "pid": pid, "exit_code": whole(fact.get("exit_code")), "job": x.job,
            "now": time_ns(x, fact),
        },
    )  # fmt: skip
    tell(c, x, fact)


def _task_ended(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """The first end stands (P8). Processes whose end nobody told go with their task."""
    lost = bool(fact.get("lost"))
    cursor = c.execute(
        "UPDATE tasks SET result = :result, state = :state WHERE pk = :task AND result IS NULL",
        {"result": json.dumps(fact), "state": "lost" if lost else "ended", "task": x.task},
    )
    if cursor.rowcount:
        c.execute(
            "UPDATE processes SET state = :state, ended_ns = :now WHERE task = :task AND state = 'running'",
            {"state": "lost" if lost else "exited", "now": time_ns(x, fact), "task": x.task},
        )
    x.ended = True
    tell(c, x, fact)


def _task_held(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """Its command failed and the task is kept: the result is known, its end is not there yet."""
    c.execute(
        "UPDATE tasks SET held = :held, state = 'held' WHERE pk = :task AND result IS NULL AND held IS NULL",
        {"held": json.dumps(fact), "task": x.task},
    )
    tell(c, x, fact)


def _config(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """The newest attempt's, and there the lowest rank's; a later one of the same rank replaces it."""
    if not isinstance(fact.get("config"), dict):
        tell(c, x, fact)
        return
    config = fact["config"]
    if isinstance(fact.get("rest"), list):
        config = argument_config.of_parsed(config, [str(word) for word in fact["rest"]])
    c.execute(
        """UPDATE jobs SET config = :config, config_attempt = :attempt, config_rank = :rank WHERE pk = :job AND
             (config IS NULL OR :attempt > config_attempt OR (:attempt = config_attempt AND :rank <= config_rank))""",
        {
            "config": json.dumps(config),
            "attempt": x.attempt,
            "rank": x.rank or 0,
            "job": x.job,
        },
    )
    touch(c, x.job, "job")


def _tags(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    tags = fact.get("tags")
    catalog.add_tags(c, x.job, [t for t in map(text, tags if isinstance(tags, list) else []) if t])


def _exception(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """The first one of a process stays with it; one of the main thread is worth more than others."""
    if x.rank is not None:
        kept = ("where", "exc_type", "message", "traceback", "file", "line", "source", "thread")
        shown = {name: fact.get(name) for name in kept} | {"time_ns": time_ns(x, fact)}
        c.execute(
            """INSERT INTO processes (task, rank, local_rank, state, exception)
               VALUES (:task, :rank, :rank, 'running', :exception)
               ON CONFLICT (task, rank) DO UPDATE SET exception = excluded.exception WHERE exception IS NULL
                 OR (:is_main AND coalesce(json_extract(exception, '$.where'), '') <> 'main')""",
            {
                "task": x.task,
                "rank": x.rank,
                "exception": json.dumps(shown),
                "is_main": fact.get("where") == "main",
            },
        )
    tell(c, x, fact)


def _gap(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """Something that was never written or is gone, told by the one who knows (P5)."""
    c.execute(
        """INSERT INTO gaps (stream, offset, about, bytes, records, points, reason, time_ns)
           VALUES (:stream, :offset, :about, :bytes, :records, :points, :reason, :now)
           ON CONFLICT (stream, offset) DO NOTHING""",
        {
            "stream": x.stream, "offset": x.offset, "about": text(fact.get("stream")) or x.stream_name,
            "bytes": whole(fact.get("bytes")) or 0, "records": whole(fact.get("records")),
            "points": whole(fact.get("points")), "reason": text(fact.get("reason")) or "unknown",
            "now": time_ns(x, fact),
        },
    )  # fmt: skip
    tell(c, x, fact)


def _provenance(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """Of the newest attempt; an older one that comes late changes nothing."""
    data = {k: v for k, v in fact.items() if k not in ("type", "time_ns")}
    c.execute(
        """UPDATE jobs SET provenance = :data WHERE pk = :job AND
             :attempt = (SELECT max(number) FROM attempts WHERE job = :job)""",
        {"data": json.dumps(data), "job": x.job, "attempt": x.attempt},
    )
    touch(c, x.job, "job")


def _describe(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """What the program calls itself. The command line's word counts more: only what it left open is filled in."""
    experiment = text(fact.get("experiment"))
    if experiment:
        try:
            name = check_name(experiment)
        except UsageError:
            name = name_from_command([experiment])
        row = c.execute(
            """SELECT spec, spec_crc, json_set(spec, '$.experiment', :name) AS fresh FROM jobs
               WHERE pk = :job AND json_extract(spec, '$.experiment') IS NULL""",
            {"name": name, "job": x.job},
        ).fetchone()
        # a damaged spec gets no checksum of its own: whoever reads it tells of it
        if row is not None and row["spec_crc"] in (None, catalog.spec_crc(row["spec"])):
            c.execute(
                "UPDATE jobs SET spec = ?, spec_crc = ?, experiment = ? WHERE pk = ?",
                (row["fresh"], catalog.spec_crc(row["fresh"]), name, x.job),
            )
    tell(c, x, fact)
    touch(c, x.job, "job")


def _alert(c: sqlite3.Connection, x: Context, fact: Fact) -> None:
    """The program itself asks to tell people something; `server/notifier.py` does."""
    notice_queue.note_alert(
        c,
        x.job,
        x.attempt,
        text(fact.get("title")) or "",
        text(fact.get("text")) or "",
        time_ns(x, fact),
    )
    tell(c, x, fact)
    touch(c, x.job, "job")


def _watch(c: sqlite3.Connection, x: Context, fact: Fact, put: "Put", what: str) -> bool:
    """What is watched live says nothing of a job's state: it wakes viewers, not those who decide.
    False: unreadable.
    """
    origin = live_write.Origin(x.job, x.attempt, x.task, _rank(x, fact), time_ns(x, fact))
    if not put(c, origin, fact):
        return False
    touch(c, x.job, what)
    return True


Put = Callable[[sqlite3.Connection, live_write.Origin, Fact], bool]
_WATCHED: dict[str, tuple[Put, str]] = {
    "progress": (live_write.put_progress, "progress"),
    "log": (live_write.put_record, "records"),
    "usage": (live_write.put_usage, "usage"),
    "checkpoint": (live_write.put_checkpoint, "usage"),
    "timing": (live_write.put_timing, "usage"),
    "stacks": (stack_rows.put_stacks, "stacks"),
    "metric": (tracked.put_definition, "metrics"),
    "summary": (tracked.put_summary, "metrics"),
    "media": (tracked.put_media, "media"),
    "media_piece": (tracked.put_piece, "media"),
    "artifact": (artifacts.put, "artifacts"),
    "artifact_used": (artifacts.put_use, "artifacts"),
}
_HANDLERS: dict[str, Callable[[sqlite3.Connection, Context, Fact], None]] = {
    "task_started": _task_started,
    "process_started": _process_started,
    "start_failed": _start_failed,
    "process_exited": _process_exited,
    "task_ended": _task_ended,
    "task_held": _task_held,
    "hello": _hello,
    "rank_found": _rank_found,
    "bye": _bye,
    "config": _config,
    "tags": _tags,
    "exception": _exception,
    "gap": _gap,
    "provenance": _provenance,
    "alert": _alert,
    "describe": _describe,
}  # stop_requested, leftovers, note, counters and whatever comes later are events as they are

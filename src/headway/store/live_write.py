"""What is watched live goes in: progress, log records, usage, checkpoints and timings. Called by
`fact` and `keeper`.

Each writer says whether it could read its fact; what it could not read stays an event. Positions
and totals are absolute, so a fact that is applied again changes nothing (capability 20). Everything
is bounded.
"""

import json
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Any

from headway.model.json_types import JsonObject
from headway.model.limits import (
    CHECKPOINTS_MAX,
    RECORD_BYTES_MAX,
    RECORDS_JOB_BYTES_MAX,
    RECORDS_JOB_MAX,
    TIMINGS_MAX,
    TRACKERS_ENDED_MAX,
    TRACKERS_MAX,
    USAGE_FULL_S,
    USAGE_MEDIUM_S,
)
from headway.store.connection import count_written
from headway.store.jsonform import finite, whole

Fact = JsonObject
STATES = ("running", "completed", "failed", "closed")
THIN_ROWS = 2_000  # of usage in one step
_WORD_CHARS, _WORDS = 200, 8
_TAGS = 16
# old records go a hundredth at a time, so that not every new one costs a deletion
_DROP_SHARE = 100
_KNOWN = ("type", "time_ns", "text", "levelno", "printed", "rank")


@dataclass(slots=True)
class Origin:
    """Whose fact it is, and when it happened."""

    job: int
    attempt: int  # its number
    task: int
    rank: int | None
    when_ns: int


def _words(value: object, most: int) -> list[str]:
    return [str(word)[:_WORD_CHARS] for word in value[:most]] if isinstance(value, list) else []


# -- progress


def put_progress(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    completed, pid, tracker = (
        finite(fact.get("completed")),
        whole(fact.get("pid")),
        whole(fact.get("tracker")),
    )
    if completed is None or pid is None or tracker is None:
        return False
    key = {
        "task": o.task, "pid": pid, "tracker": tracker,
        "source": str(fact["source"]) if fact.get("source") in ("output", "folder") else "api",
    }  # fmt: skip
    words, started_ns = json.dumps(_words(fact.get("msg"), _WORDS)), whole(fact.get("started_ns"))
    row = c.execute(
        """SELECT msg, state, started_ns FROM progress
           WHERE task = :task AND pid = :pid AND tracker = :tracker AND source = :source""",
        key,
    ).fetchone()
    if row is None:
        _make_room(c, o.task)
    elif (
        row["state"] != "running"
        and row["msg"] != words
        and (started_ns or 0) > (row["started_ns"] or 0)
    ):
        _set_aside(c, key, words)
    c.execute(
        """INSERT INTO progress (task, pid, tracker, source, rank, msg, completed, total, state, distributed, rate, eta_s,
             started_ns, updated_ns, inner, gap_s)
           VALUES (:task, :pid, :tracker, :source, :rank, :msg, :completed, :total, :state,
             :distributed, :rate, :eta_s, :started_ns, :updated_ns, :inner, :gap_s)
           ON CONFLICT (task, pid, tracker, source) DO UPDATE SET msg = excluded.msg, completed = excluded.completed,
             total = excluded.total, state = excluded.state, distributed = excluded.distributed, rate = excluded.rate,
             eta_s = excluded.eta_s, started_ns = coalesce(excluded.started_ns, started_ns), rank = excluded.rank,
             inner = excluded.inner, gap_s = excluded.gap_s,
             updated_ns = excluded.updated_ns WHERE excluded.updated_ns >= updated_ns""",
        {
            **key, "rank": o.rank, "msg": words, "completed": completed,
            "total": finite(fact.get("total")), "distributed": bool(fact.get("distributed")),
            "state": fact["state"] if fact.get("state") in STATES else "running", "rate": finite(fact.get("rate")),
            "eta_s": finite(fact.get("eta_s")), "started_ns": started_ns, "updated_ns": o.when_ns,
            "inner": bool(fact.get("inner")), "gap_s": finite(fact.get("gap_s")),
        },
    )  # fmt: skip
    return True


def _set_aside(c: sqlite3.Connection, key: JsonObject, words: str) -> None:
    """A tracker that has ended stays, under a number below zero, when another takes its place; the
    last few of a process, and of the same words only one: a loop in a loop is one bar.
    """
    ours = "task = :task AND pid = :pid AND source = :source"
    lowest = c.execute(f"SELECT min(tracker) FROM progress WHERE {ours}", key).fetchone()[0]  # noqa: S608  (our words)
    aside = min(int(lowest), 0) - 1
    c.execute(
        f"UPDATE progress SET tracker = :aside WHERE {ours} AND tracker = :tracker",  # noqa: S608  (our words)
        key | {"aside": aside},
    )
    c.execute(
        f"DELETE FROM progress WHERE {ours} AND tracker < 0 AND (msg = :msg OR tracker >= :first)",  # noqa: S608  (our words)
        key | {"msg": words, "first": aside + TRACKERS_ENDED_MAX},
    )


def _make_room(c: sqlite3.Connection, task: int) -> None:
    """A program may make a tracker for every step: beyond the limit finished ones go first, then
    the oldest.
    """
    count = c.execute(
        "SELECT count(*) FROM progress WHERE task = :task", {"task": task}
    ).fetchone()[0]
    if count >= TRACKERS_MAX:
        c.execute(
            """DELETE FROM progress WHERE task = :task AND (pid, tracker, source) IN (SELECT pid, tracker, source
                 FROM progress WHERE task = :task ORDER BY state = 'running', updated_ns LIMIT :n)""",
            {"task": task, "n": TRACKERS_MAX // _DROP_SHARE + 1},
        )


# -- records


def put_record(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    text, levelno = fact.get("text"), whole(fact.get("levelno"))
    if not isinstance(text, str) or levelno is None:
        return False
    rest = {k: v for k, v in fact.items() if k not in _KNOWN}
    data = json.dumps(rest)
    if len(text) > RECORD_BYTES_MAX or len(data) > RECORD_BYTES_MAX:
        text = text[:RECORD_BYTES_MAX]
        kept = {
            k: v
            for k, v in rest.items()
            if isinstance(v, int | None) or (isinstance(v, str) and len(v) < 1000)
        }
        data = json.dumps(kept | {"cut": True})
    size = len(text) + len(data)
    totals = c.execute(
        """INSERT INTO record_totals VALUES (:job, 1, 1, :size) ON CONFLICT (job) DO UPDATE
             SET last_seq = last_seq + 1, bytes = bytes + :size RETURNING first_seq, last_seq, bytes""",
        {"job": o.job, "size": size},
    ).fetchone()
    c.execute(
        """INSERT INTO records (job, seq, attempt, rank, time_ns, levelno, printed, text, data)
           VALUES (:job, :seq, :attempt, :rank, :now, :levelno, :printed, :text, :data)""",
        {
            "job": o.job, "seq": totals["last_seq"], "attempt": o.attempt, "rank": o.rank, "now": o.when_ns,
            "levelno": max(0, min(levelno, 1000)), "printed": bool(fact.get("printed")), "text": text, "data": data,
        },
    )  # fmt: skip
    count_written(c, size)
    count = totals["last_seq"] - totals["first_seq"] + 1
    if count > RECORDS_JOB_MAX or totals["bytes"] > RECORDS_JOB_BYTES_MAX:
        _drop_oldest(c, o, count, totals["bytes"])
    return True


def _drop_oldest(c: sqlite3.Connection, o: Origin, count: int, size: int) -> None:
    """The oldest records go until a hundredth is free, and an event says how many that were so far
    (P5).
    """
    count_max = RECORDS_JOB_MAX - RECORDS_JOB_MAX // _DROP_SHARE
    size_max = RECORDS_JOB_BYTES_MAX - RECORDS_JOB_BYTES_MAX // _DROP_SHARE
    last = 0
    rows = c.execute(
        "SELECT seq, length(text) + length(data) AS size FROM records WHERE job = :job ORDER BY seq",
        {"job": o.job},
    )
    for row in rows:
        if count <= count_max and size <= size_max:
            break
        last, count, size = row["seq"], count - 1, size - row["size"]
    rows.close()
    gone = c.execute(
        "DELETE FROM records WHERE job = :job AND seq <= :last", {"job": o.job, "last": last}
    ).rowcount
    c.execute(
        "UPDATE record_totals SET first_seq = :first, bytes = :size WHERE job = :job",
        {"job": o.job, "first": last + 1, "size": max(0, size)},
    )
    _tell_dropped(c, o, gone)


def _tell_dropped(c: sqlite3.Connection, o: Origin, gone: int) -> None:
    row = c.execute(
        "SELECT pk, data FROM events WHERE job = ? AND type = 'gap' AND json_extract(data, '$.stream') = 'records'",
        (o.job,),
    ).fetchone()
    known = json.loads(row["data"])["records"] if row else 0
    reason = f"more than {RECORDS_JOB_MAX:,} log records, or {RECORDS_JOB_BYTES_MAX >> 20} MiB of them: the oldest go"
    data = json.dumps({"stream": "records", "records": known + gone, "reason": reason})
    if row:
        c.execute("UPDATE events SET data = :data WHERE pk = :pk", {"data": data, "pk": row["pk"]})
    else:
        c.execute(
            "INSERT INTO events (job, time_ns, type, data) VALUES (:job, :now, 'gap', :data)",
            {"job": o.job, "now": o.when_ns, "data": data},
        )


# -- usage


def put_usage(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    level = whole(fact.get("level"))
    if level not in (0, 1, 2) or not isinstance(fact.get("processes", []), list):
        return False
    kept = {k: v for k, v in fact.items() if k not in ("type", "level", "time_ns")}
    data = zlib.compress(json.dumps(kept, separators=(",", ":")).encode())
    c.execute(
        "INSERT INTO usage VALUES (:task, :level, :now, :data) ON CONFLICT DO NOTHING",
        {"task": o.task, "level": level, "now": o.when_ns, "data": data},
    )
    count_written(c, len(data))
    _keep_last(c, o, fact, level)
    return True


def _keep_last(c: sqlite3.Connection, o: Origin, fact: Fact, level: int) -> None:
    """The sample in short, and the highest memory so far. Longer spans only tell of that height,
    and a sample that was taken when the processes were gone does not take the place of the last one
    that saw them.
    """
    ranks, told = rank_lines(fact), short(fact)
    high = max(
        ((_high(memory_of(one)), one["rank"]) for one in ranks),
        default=(0, None),
        key=lambda h: h[0],
    )
    c.execute(
        """INSERT INTO usage_last VALUES (:task, :now, :data, :peak, :rank) ON CONFLICT (task) DO UPDATE SET
             data = CASE WHEN :is_last AND :now >= time_ns THEN :data ELSE data END,
             time_ns = CASE WHEN :is_last THEN max(time_ns, :now) ELSE time_ns END,
             peak_rank = CASE WHEN coalesce(:peak, 0) > coalesce(peak_bytes, 0) THEN :rank ELSE peak_rank END,
             peak_bytes = nullif(max(coalesce(peak_bytes, 0), coalesce(:peak, 0)), 0)""",
        {
            "task": o.task, "now": o.when_ns, "data": json.dumps(told), "peak": int(min(high[0], 2.0**62)) or None,
            "rank": high[1], "is_last": level == 0 and bool(ranks or told["gpus"]),
        },
    )  # fmt: skip


def memory_of(line: Fact) -> object:
    """Of a rank's processes together: without what they share counted twice, where the agent says
    so; of one process, or from an older agent, its RSS.
    """
    return line["memory_bytes"] if line.get("memory_bytes") is not None else line.get("rss_bytes")


def short(sample: Fact) -> dict[str, list[list[Any]]]:
    """A sample for lists and curves: `[rank, CPU, memory]` of each rank, `[rank, load, memory]` of
    each card.
    """
    return {
        "ranks": [
            [one["rank"], mean_of(one.get("cpu_percent")), mean_of(memory_of(one))]
            for one in rank_lines(sample)
        ],
        "gpus": [
            [
                holder(gpu, sample),
                mean_of(gpu.get("load_percent")),
                mean_of(gpu.get("memory_bytes")),
            ]
            for gpu in gpus(sample)
            if gpu.get("own") is not False  # a card of the node that somebody else works on
        ],
    }


def dicts(value: object) -> list[Fact]:
    """The objects in a list that somebody else wrote."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def rank_lines(sample: Fact) -> list[Fact]:
    """The line of each rank's whole tree. A sample that has none of these: the ranks' own
    processes.
    """
    found = [line for line in dicts(sample.get("processes")) if whole(line.get("rank")) is not None]
    return [line for line in found if line.get("pid") is None] or found


def gpus(sample: Fact) -> list[Fact]:
    return dicts(sample.get("gpus"))


def holder(gpu: Fact, sample: Fact) -> int | None:
    """The rank whose process holds most of a GPU."""
    lines = [line for line in dicts(sample.get("processes")) if whole(line.get("pid")) is not None]
    ranks = {whole(line["pid"]): whole(line.get("rank")) for line in lines}
    held = [
        (_high(one.get("bytes")), ranks.get(whole(one.get("pid"))))
        for one in dicts(gpu.get("holders"))
    ]
    return max(
        (pair for pair in held if pair[1] is not None), default=(0, None), key=lambda pair: pair[0]
    )[1]


def mean_of(value: object) -> float | None:
    return finite(value[1]) if isinstance(value, list) and len(value) == 3 else finite(value)


def _high(value: object) -> float:
    return finite(value[2] if isinstance(value, list) and len(value) == 3 else value) or 0.0


def is_thick(c: sqlite3.Connection, now_ns: int) -> bool:
    """Whether there are samples that `thin_usage` would remove."""
    limits = {
        "full": now_ns - int(USAGE_FULL_S * 1e9),
        "medium": now_ns - int(USAGE_MEDIUM_S * 1e9),
    }
    row = c.execute(
        """SELECT EXISTS (SELECT 1 FROM usage WHERE level = 0 AND time_ns < :full)
             OR EXISTS (SELECT 1 FROM usage WHERE level = 1 AND time_ns < :medium)""",
        limits,
    ).fetchone()
    return bool(row[0])


def thin_usage(c: sqlite3.Connection, now_ns: int, rows_max: int = THIN_ROWS) -> int:
    """One step of thinning: full rate for the last hour, 10 s for the last day, a minute for ever.
    Rows removed.
    """
    gone = 0
    for level, kept_s in ((0, USAGE_FULL_S), (1, USAGE_MEDIUM_S)):
        gone += c.execute(
            """DELETE FROM usage WHERE (task, level, time_ns) IN (SELECT task, level, time_ns FROM usage
                 WHERE level = :level AND time_ns < :before ORDER BY time_ns LIMIT :n)""",
            {"level": level, "before": now_ns - int(kept_s * 1e9), "n": rows_max - gone},
        ).rowcount
    return gone


# -- checkpoints and timings


def put_checkpoint(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    if not isinstance(fact.get("tags"), list):
        return False
    count = c.execute(
        "SELECT count(*) FROM checkpoints WHERE job = :job", {"job": o.job}
    ).fetchone()[0]
    if count >= CHECKPOINTS_MAX:
        return False
    c.execute(
        "INSERT INTO checkpoints (job, attempt, rank, time_ns, tags) VALUES (:job, :attempt, :rank, :now, :tags)",
        {
            "job": o.job, "attempt": o.attempt, "rank": o.rank, "now": o.when_ns,
            "tags": json.dumps(_words(fact["tags"], _TAGS)),
        },
    )  # fmt: skip
    return True


def put_timing(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    numbers = {key: finite(fact.get(key)) for key in ("mean_s", "std_s", "min_s", "max_s")}
    name, pid, count = fact.get("name"), whole(fact.get("pid")), whole(fact.get("count"))
    if not isinstance(name, str) or pid is None or count is None or None in numbers.values():
        return False
    row = {
        "task": o.task,
        "pid": pid,
        "name": name[:_WORD_CHARS],
        "rank": o.rank,
        "count": count,
        **numbers,
    }
    cursor = c.execute(
        """UPDATE timings SET count = :count, mean_s = :mean_s, std_s = :std_s, min_s = :min_s, max_s = :max_s
           WHERE task = :task AND pid = :pid AND name = :name AND :count >= count""",
        row,
    )
    if cursor.rowcount:
        return True
    known = c.execute("SELECT count(*) FROM timings WHERE task = :task", row).fetchone()[0]
    if known >= TIMINGS_MAX:
        return False
    c.execute(
        """INSERT INTO timings VALUES (:task, :pid, :name, :rank, :count, :mean_s, :std_s, :min_s, :max_s)
           ON CONFLICT DO NOTHING""",
        row,
    )
    return True

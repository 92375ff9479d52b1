"""What is watched live comes out: progress, usage, checkpoints and timings as the contract's JSON.

Plain functions on a read connection, called by `query` and by the server's API. What goes in:
`watch`.
"""

import json
import sqlite3
import time
import zlib
from collections.abc import Iterator
from typing import Any

from headway.model.json_types import JsonObject
from headway.model.limits import (
    CHECKPOINTS_MAX,
    TRACKERS_SHOWN_MAX,
    USAGE_BYTES_MAX,
    USAGE_SAMPLES_MAX,
)
from headway.store.jsonform import iso

LEVELS = (0, 1, 2)
_KEYS_AT_ONCE = 1_000
_TASKS = "SELECT t.pk FROM tasks t JOIN attempts a ON a.pk = t.attempt WHERE a.job = :job"
Object = JsonObject


def _of_last_attempts(c: sqlite3.Connection, table: str, jobs: list[int]) -> Iterator[sqlite3.Row]:
    """Rows of a table with tasks, of the last attempt of each job, with the job's key."""
    for start in range(0, len(jobs), _KEYS_AT_ONCE):
        keys = jobs[start : start + _KEYS_AT_ONCE]
        marks = ", ".join("?" * len(keys))
        yield from c.execute(
            f"""SELECT a.job, x.* FROM attempts a JOIN tasks t ON t.attempt = a.pk JOIN {table} x ON x.task = t.pk
                WHERE a.job IN ({marks}) AND a.number = (SELECT max(number) FROM attempts WHERE job = a.job)""",  # noqa: S608  (our own words, values are parameters)
            keys,
        )


STALLED_S_MIN = 30.0  # a bar that stood still for less may be saving a checkpoint
STALLED_GAPS = 5.0  # and for less than so many times its usual step
_STALL_GRAIN_S = 10.0


# -- progress


def progress(
    c: sqlite3.Connection, jobs: list[int], trackers_max: int = TRACKERS_SHOWN_MAX
) -> dict[int, list[Object]]:
    """Of each job `[{msg completed total rate eta_s state rank source started_at updated_at inner
    stalled_since}]`, of its last attempt. `inner`: of a loop inside another, so not the job's.

    A shared tracker is one entry with rank null. Where there are too many, those that run come
    first, with a total.
    """
    rows: dict[int, list[sqlite3.Row]] = {}
    for row in _of_last_attempts(c, "progress", jobs):
        rows.setdefault(row["job"], []).append(row)
    return {job: _chosen(_trackers(found), trackers_max) for job, found in rows.items()}


def _chosen(trackers: list[Object], most: int) -> list[Object]:
    if len(trackers) <= most:
        return trackers
    newest = sorted(range(len(trackers)), key=lambda i: _rank_of(trackers[i], -i))[:most]
    return [trackers[i] for i in sorted(newest)]


def _rank_of(tracker: Object, age: int) -> tuple[bool, bool, int]:
    """Those that run come first, and of these the ones that know where they end."""
    return tracker["state"] != "running", tracker["total"] is None, age


def _trackers(rows: list[sqlite3.Row]) -> list[Object]:
    """One entry per tracker. The first tracker of a name that a process shares belongs to the first
    ones of that name of the others, the second to the second ones: a name that is used again for
    every epoch is not one large tracker.
    """
    found: dict[Any, list[sqlite3.Row]] = {}
    counts: dict[Any, int] = {}
    for row in sorted(rows, key=lambda r: (r["task"], r["pid"], r["tracker"])):
        key: Any = (row["task"], row["pid"], row["tracker"], row["source"])
        if row["distributed"]:
            mine = (row["task"], row["pid"], row["msg"])
            counts[mine] = counts.get(mine, 0) + 1
            key = (row["msg"], counts[mine])
        found.setdefault(key, []).append(row)
    trackers = [
        _joined(shares) if shares[0]["distributed"] else _tracker(shares[0])
        for shares in found.values()
    ]
    return sorted(
        trackers,
        key=lambda one: (one["started_at"] or "", -1 if one["rank"] is None else one["rank"]),
    )


def _tracker(row: sqlite3.Row) -> Object:
    return {
        "msg": json.loads(row["msg"]), "completed": row["completed"], "total": row["total"], "rate": row["rate"],
        "eta_s": row["eta_s"], "state": row["state"], "rank": None if row["distributed"] else row["rank"],
        "source": row["source"], "started_at": iso(row["started_ns"]), "updated_at": iso(row["updated_ns"]),
        "inner": bool(row["inner"]), **_stall(row),
    }  # fmt: skip


def _stall(row: sqlite3.Row) -> Object:
    """Of a tracker that runs and has not moved for several times as long as usual: since when, and
    what is left of its rate. A rate without an end would be a promise.
    """
    gap_s = row["gap_s"]
    if row["state"] != "running" or gap_s is None or not row["rate"]:
        return {"stalled_since": None}
    quiet_s = (time.time_ns() - row["updated_ns"]) / 1e9
    if quiet_s < max(STALLED_S_MIN, STALLED_GAPS * gap_s):
        return {"stalled_since": None}
    quiet_s -= quiet_s % _STALL_GRAIN_S  # so that a view is not told of it all the time
    rate = min(row["rate"], max(row["rate"] * gap_s, 1.0) / quiet_s)
    left_s = None
    if row["total"] is not None and not row["distributed"]:
        left_s = max(row["total"] - row["completed"], 0.0) / rate
    return {"stalled_since": iso(row["updated_ns"]), "rate": rate, "eta_s": left_s}


def _joined(shares: list[sqlite3.Row]) -> Object:
    """The processes' shares of one tracker: positions and rates add up, the total is the same for
    all. Once none of them runs, the rate is that of the whole.
    """
    completed = sum(share["completed"] for share in shares)
    total = max((share["total"] for share in shares if share["total"] is not None), default=None)
    running = [share["rate"] for share in shares if share["state"] == "running"]
    started_ns = min(
        (share["started_ns"] for share in shares if share["started_ns"] is not None), default=None
    )
    updated_ns = max(share["updated_ns"] for share in shares)
    rate = sum(known) if (known := [one for one in running if one is not None]) else None
    if not running and started_ns is not None and updated_ns > started_ns:
        rate = completed / ((updated_ns - started_ns) / 1e9)
    left_s = None
    if total is not None and completed >= total:
        left_s = 0.0
    elif total is not None and running and rate:
        left_s = (total - completed) / rate
    states = {share["state"] for share in shares}
    return _tracker(shares[0]) | {
        "completed": completed, "total": total, "rate": rate, "eta_s": left_s,
        "state": next(state for state in ("failed", "running", "completed", "closed") if state in states),
        "started_at": iso(started_ns), "updated_at": iso(updated_ns),
    }  # fmt: skip


# -- usage


def usage_last(c: sqlite3.Connection, jobs: list[int]) -> dict[int, Object]:
    """Of each job the last sample in short. With several ranks the values are means, and `spread`
    says whose are the smallest and the largest; `peak_memory_bytes` is the most that one rank has
    used.
    """
    rows: dict[int, list[sqlite3.Row]] = {}
    for row in _of_last_attempts(c, "usage_last", jobs):
        rows.setdefault(row["job"], []).append(row)
    return {job: _summary(found) for job, found in rows.items()}


def _summary(rows: list[sqlite3.Row]) -> Object:
    samples = [json.loads(row["data"]) for row in rows]
    ranks = [line for sample in samples for line in sample["ranks"]]
    gpus = [line for sample in samples for line in sample["gpus"]]
    known = {
        "cpu_percent": _known(ranks, 1),
        "memory_bytes": _known(ranks, 2),
        "gpu_percent": _known(gpus, 1),
        "gpu_memory_bytes": _known(gpus, 2),
    }
    means = {name: _mean(pairs) for name, pairs in known.items()}
    for name in ("memory_bytes", "gpu_memory_bytes"):
        mean = means[name]
        if mean is not None:
            means[name] = int(mean)
    highest = max(rows, key=lambda row: row["peak_bytes"] or 0)
    return {
        "time": iso(max(row["time_ns"] for row in rows)),
        "ranks": len(ranks),
        "gpus": len(gpus),
        **means,
        "peak_memory_bytes": highest["peak_bytes"] or None,
        "peak_rank": highest["peak_rank"],
        "spread": {name: _spread(pairs) for name, pairs in known.items() if len(pairs) > 1},
    }


def _known(lines: list[list[Any]], place: int) -> list[tuple[float, int | None]]:
    """(value, whose) of the lines that have one."""
    return [(line[place], line[0]) for line in lines if line[place] is not None]


def _mean(pairs: list[tuple[float, int | None]]) -> float | None:
    if not pairs:
        return None
    return sum(value for value, _ in pairs) / len(pairs)


def _spread(pairs: list[tuple[float, int | None]]) -> Object:
    low, high = min(pairs, key=lambda pair: pair[0]), max(pairs, key=lambda pair: pair[0])
    return {"min": low[0], "min_rank": low[1], "max": high[0], "max_rank": high[1]}


def finest_level(c: sqlite3.Connection, job: int) -> int:
    """The finest level that still has the job's beginning and fits into one answer."""
    begun = {}
    for level in LEVELS:
        row = c.execute(
            f"SELECT count(*) AS n, min(time_ns) AS first FROM usage WHERE task IN ({_TASKS}) AND level = :level",  # noqa: S608  (our own words)
            {"job": job, "level": level},
        ).fetchone()
        if row["n"]:
            begun[level] = (row["first"], row["n"])
    for level, (first, count) in begun.items():
        # a sample of a longer span ends later than the first one of a shorter span, unless that is
        # gone
        if count <= USAGE_SAMPLES_MAX and all(first <= other for other, _ in begun.values()):
            return level
    return max(begun, default=0)


def usage(
    c: sqlite3.Connection,
    job: int,
    level: int,
    since_ns: int,
    until_ns: int,
    limit: int = USAGE_SAMPLES_MAX,
) -> tuple[list[Object], int | None]:
    """Samples of all tasks of all attempts, oldest first, and where to go on if these are not all."""
    rows = c.execute(
        f"""SELECT a.number AS attempt, t.name AS task, t.node, u.time_ns, u.data FROM usage u
            JOIN tasks t ON t.pk = u.task JOIN attempts a ON a.pk = t.attempt WHERE u.task IN ({_TASKS})
              AND u.level = :level AND u.time_ns >= :since AND u.time_ns < :until ORDER BY u.time_ns""",  # noqa: S608  (our own words)
        {"job": job, "level": level, "since": since_ns, "until": until_ns},
    )
    found: list[Object] = []
    size, last_ns = 0, -1
    for row in rows:
        if row["time_ns"] != last_ns and (len(found) >= limit or size >= USAGE_BYTES_MAX):
            return found, int(row["time_ns"])
        data = zlib.decompress(row["data"])
        size, last_ns = size + len(data), row["time_ns"]
        found.append(
            {
                "time": iso(last_ns),
                "attempt": row["attempt"],
                "task": row["task"],
                "host": row["node"],
            }
            | json.loads(data)
        )
    return found, None


def checkpoints(c: sqlite3.Connection, job: int) -> list[Object]:
    rows = c.execute(
        "SELECT * FROM checkpoints WHERE job = :job ORDER BY time_ns LIMIT :n",
        {"job": job, "n": CHECKPOINTS_MAX},
    )
    return [
        {
            "time": iso(r["time_ns"]),
            "attempt": r["attempt"],
            "rank": r["rank"],
            "tags": json.loads(r["tags"]),
        }
        for r in rows
    ]


def usage_windows(c: sqlite3.Connection, job: int) -> list[Object]:
    """Where programs have said that their usage is of no interest, or again is: `[{time attempt
    rank pid open}]`.
    """
    rows = c.execute(
        """SELECT time_ns, attempt, rank, data FROM events WHERE job = :job AND type = 'usage_window'
           ORDER BY time_ns, pk LIMIT :n""",
        {"job": job, "n": CHECKPOINTS_MAX},
    )
    found = []
    for row in rows:
        data = json.loads(row["data"])
        known = {"time": iso(row["time_ns"]), "attempt": row["attempt"], "rank": row["rank"]}
        found.append(known | {"pid": data.get("pid"), "open": bool(data.get("open"))})
    return found


def timings(c: sqlite3.Connection, job: int) -> list[Object]:
    """`[{name attempt rank pid count mean_s std_s min_s max_s}]`, by name and rank."""
    names = ("name", "attempt", "rank", "pid", "count", "mean_s", "std_s", "min_s", "max_s")
    rows = c.execute(
        """SELECT a.number AS attempt, x.* FROM attempts a JOIN tasks t ON t.attempt = a.pk
           JOIN timings x ON x.task = t.pk WHERE a.job = :job ORDER BY x.name, a.number, x.rank, x.pid""",
        {"job": job},
    )
    return [{name: row[name] for name in names} for row in rows]

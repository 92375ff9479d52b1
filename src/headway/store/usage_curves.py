"""Usage over the whole life of a job's last attempt in a few points, for the small curves of live
views.

Read anew by a view when it opens, after an outage and now and then, so it must cost little however
long the job is and however many tasks it has: each place of the curve is read from a bounded number
of samples. Called by the server's API.
"""

import json
import sqlite3
import zlib
from typing import Any

from headway.model.limits import CURVE_SAMPLES_MAX, CURVE_TASKS_MAX
from headway.store import live_write
from headway.store.jsonform import iso

# the coarsest level first, and the time that one of its samples stands for
_LEVEL_S = ((2, 60.0), (1, 10.0), (0, 0.0))
_NAMES = (("cpu_percent", "memory_bytes"), ("gpu_percent", "gpu_memory_bytes"))


def usage(c: sqlite3.Connection, job: int, points: int) -> dict[str, dict[str, list[Any]]]:
    """`{name: {time: […], value: […]}}`: means over ranks or cards, at most `points`, each at its
    last sample.
    """
    tasks = _tasks(c, job)
    spans = [span for task in tasks if (span := _span(c, task)) is not None]
    if not spans:
        return {}
    first_ns, last_ns = min(span[0] for span in spans), max(span[1] for span in spans)
    place_ns = max((last_ns - first_ns) // points + 1, 1)
    level = _level(c, tasks, place_ns / 1e9)
    most = max(CURVE_SAMPLES_MAX // (points * len(tasks)), 1)
    found: dict[str, dict[str, list[Any]]] = {}
    for start_ns in range(first_ns, last_ns + 1, place_ns):
        for name, (time_ns, value) in _place(
            c, tasks, level, (start_ns, start_ns + place_ns), most
        ).items():
            curve = found.setdefault(name, {"time": [], "value": []})
            curve["time"].append(iso(time_ns))
            curve["value"].append(value)
    return found


def _tasks(c: sqlite3.Connection, job: int) -> list[int]:
    """Of the last attempt; of very many every second, third …: a mean changes little by it."""
    rows = c.execute(
        """SELECT t.pk FROM tasks t JOIN attempts a ON a.pk = t.attempt WHERE a.job = :job
             AND a.number = (SELECT max(number) FROM attempts WHERE job = :job) ORDER BY t.pk""",
        {"job": job},
    ).fetchall()
    return [row["pk"] for row in rows[:: len(rows) // CURVE_TASKS_MAX + 1]]


def _span(c: sqlite3.Connection, task: int) -> tuple[int, int] | None:
    """When its first and last sample were taken, of any level: old ones of the finer levels are
    gone.
    """
    found = [
        edge
        for level, _ in _LEVEL_S
        for order in ("ASC", "DESC")
        if (edge := _edge(c, task, level, order)) is not None
    ]
    return (min(found), max(found)) if found else None


def _edge(c: sqlite3.Connection, task: int, level: int, order: str) -> int | None:
    wanted = (
        f"SELECT time_ns FROM usage WHERE task = ? AND level = ? ORDER BY time_ns {order} LIMIT 1"  # noqa: S608  (our own words)
    )
    row = c.execute(wanted, (task, level)).fetchone()
    return None if row is None else int(row["time_ns"])


def _level(c: sqlite3.Connection, tasks: list[int], place_s: float) -> int:
    """The coarsest whose samples are no longer than a place: it is there from the beginning, and
    the least to read.
    """
    for level, span_s in _LEVEL_S:
        if span_s <= place_s and any(_edge(c, task, level, "ASC") is not None for task in tasks):
            return level
    return 0


def _place(
    c: sqlite3.Connection, tasks: list[int], level: int, between_ns: tuple[int, int], most: int
) -> dict[str, tuple[int, float]]:
    """The mean of each value, and when the last sample of it was taken."""
    values: dict[str, list[float]] = {}
    times: dict[str, int] = {}
    for task in tasks:
        rows = c.execute(
            """SELECT time_ns, data FROM usage WHERE task = ? AND level = ? AND time_ns >= ? AND time_ns < ?
               ORDER BY time_ns LIMIT ?""",
            (task, level, *between_ns, most),
        )
        for row in rows:
            short = live_write.short(json.loads(zlib.decompress(row["data"])))
            for names, lines in zip(_NAMES, (short["ranks"], short["gpus"]), strict=True):
                for name, known in zip(
                    names, zip(*(line[1:] for line in lines), strict=True), strict=False
                ):
                    fresh = [value for value in known if value is not None]
                    values.setdefault(name, []).extend(fresh)
                    if fresh:
                        times[name] = max(times.get(name, 0), row["time_ns"])
    return {name: (times[name], sum(found) / len(found)) for name, found in values.items() if found}

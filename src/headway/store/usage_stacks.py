"""Usage of one attempt split by who used it: each rank, node or GPU as a line of its own, on one
axis of time. Called by the server's API for the page's usage tab.

However long the job is, a bounded number of samples is read: of many, every second, third …
"""

import json
import sqlite3
import zlib
from dataclasses import dataclass, field
from typing import Literal

from headway.model.json_types import JsonObject
from headway.model.limits import CURVE_SAMPLES_MAX, USAGE_LINES_MAX
from headway.store import live_read, live_write
from headway.store.jsonform import iso

By = Literal["rank", "node", "gpu"]
_LEVEL_S = ((2, 60.0), (1, 10.0), (0, 0.0))  # the coarsest first

# What is drawn of each, with its name on the chart and the unit of its values. Stacked where a sum
# means something.
CHARTS: dict[By, tuple[tuple[str, str, str, bool], ...]] = {
    "rank": (
        ("cpu_percent", "CPU", "percent", True),
        ("memory_bytes", "Memory", "bytes", True),
        ("read_bps", "Read", "bytes/s", True),
        ("write_bps", "Written", "bytes/s", True),
    ),
    "node": (
        ("cpu_percent", "CPU of the node", "percent", False),
        ("memory_bytes", "Memory of the node", "bytes", False),
        ("net_rx_bps", "Received", "bytes/s", False),
        ("net_tx_bps", "Sent", "bytes/s", False),
        ("disk_read_bps", "Disk, read", "bytes/s", False),
        ("disk_write_bps", "Disk, written", "bytes/s", False),
    ),
    "gpu": (
        ("load_percent", "GPU", "percent", False),
        ("memory_bytes", "GPU memory", "bytes", True),
        ("power_w", "Power", "watt", True),
        ("temperature_c", "Temperature", "°C", False),
    ),
}


@dataclass(slots=True)
class _Places:
    """Sums and counts of one line, by place on the axis of time."""

    sums: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, place: int, value: float) -> None:
        self.sums[place] = self.sums.get(place, 0.0) + value
        self.counts[place] = self.counts.get(place, 0) + 1

    def mean(self, place: int) -> float | None:
        if place not in self.counts:
            return None
        return round(self.sums[place] / self.counts[place], 3)


def usage(c: sqlite3.Connection, job: int, by: By, attempt: int | None, points: int) -> JsonObject:
    """`{attempt, time, charts: [{name title unit stacked lines: [{label values}] left_out}],
    checkpoints}`; one value per time, null where nothing was measured.
    """
    number = attempt if attempt is not None else _last_attempt(c, job)
    tasks = c.execute(
        """SELECT t.pk, t.name, t.node FROM tasks t JOIN attempts a ON a.pk = t.attempt
           WHERE a.job = :job AND a.number = :attempt ORDER BY t.pk""",
        {"job": job, "attempt": number},
    ).fetchall()
    marks = [one for one in live_read.checkpoints(c, job) if one["attempt"] == number]
    found: JsonObject = {"attempt": number, "time": [], "charts": [], "checkpoints": marks}
    span = _span(c, [row["pk"] for row in tasks])
    if span is None:
        return found
    first_ns, last_ns = span
    place_ns = max((last_ns - first_ns) // points + 1, 1)
    lines: dict[str, dict[str, _Places]] = {}
    ends: dict[int, int] = {}
    level = _level(c, [row["pk"] for row in tasks], place_ns / 1e9)
    for task in tasks:
        for time_ns, sample in _samples(c, task["pk"], level, CURVE_SAMPLES_MAX // len(tasks)):
            place = (time_ns - first_ns) // place_ns
            ends[place] = max(ends.get(place, 0), time_ns)
            for label, values in _split(sample, by, task["node"] or task["name"], len(tasks) > 1):
                for name, value in values.items():
                    lines.setdefault(name, {}).setdefault(label, _Places()).add(place, value)
    places = sorted(ends)
    found["time"] = [iso(ends[place]) for place in places]
    for name, title, unit, stacked in CHARTS[by]:
        if name in lines:
            chosen = dict(list(lines[name].items())[:USAGE_LINES_MAX])
            found["charts"].append(
                {
                    "name": name, "title": title, "unit": unit, "stacked": stacked,
                    "lines": [
                        {"label": label, "values": [line.mean(place) for place in places]}
                        for label, line in chosen.items()
                    ],
                    "left_out": len(lines[name]) - len(chosen),
                }
            )  # fmt: skip
    return found


def _last_attempt(c: sqlite3.Connection, job: int) -> int:
    row = c.execute("SELECT max(number) FROM attempts WHERE job = :job", {"job": job}).fetchone()
    return row[0] or 1


def _span(c: sqlite3.Connection, tasks: list[int]) -> tuple[int, int] | None:
    keys = json.dumps(tasks)
    row = c.execute(
        "SELECT min(time_ns), max(time_ns) FROM usage WHERE task IN (SELECT value FROM json_each(?))",
        (keys,),
    ).fetchone()
    return None if row[0] is None else (row[0], row[1])


def _level(c: sqlite3.Connection, tasks: list[int], place_s: float) -> int:
    """The coarsest whose samples are no longer than a place of the axis."""
    keys = json.dumps(tasks)
    for level, span_s in _LEVEL_S:
        known = c.execute(
            """SELECT EXISTS (SELECT 1 FROM usage WHERE level = ?
                 AND task IN (SELECT value FROM json_each(?)))""",
            (level, keys),
        ).fetchone()[0]
        if known and span_s <= place_s:
            return level
    return 0


def _samples(
    c: sqlite3.Connection, task: int, level: int, most: int
) -> list[tuple[int, JsonObject]]:
    """Of one task, at most about `most`, spread over its life."""
    count = c.execute(
        "SELECT count(*) FROM usage WHERE task = ? AND level = ?", (task, level)
    ).fetchone()[0]
    every = count // max(most, 2) + 1
    rows = c.execute(
        """SELECT time_ns, data FROM (
             SELECT time_ns, data, row_number() OVER (ORDER BY time_ns) AS n FROM usage
             WHERE task = ? AND level = ?) WHERE n % ? = 0""",
        (task, level, every),
    )
    return [(row["time_ns"], json.loads(zlib.decompress(row["data"]))) for row in rows]


def _split(
    sample: JsonObject, by: By, node: str, several: bool
) -> list[tuple[str, dict[str, float]]]:
    """What one sample says of each rank, node or card: its label, and values by name."""
    if by == "rank":
        parts = [
            (f"rank {line['rank']}", line | {"memory_bytes": live_write.memory_of(line)})
            for line in live_write.rank_lines(sample)
        ]
    elif by == "node":
        told = sample.get("node")
        parts = [(node, told)] if isinstance(told, dict) else []
    else:
        parts = [
            (f"{node} GPU {card.get('index')}" if several else f"GPU {card.get('index')}", card)
            for card in live_write.gpus(sample)
            if card.get("own") is not False
        ]
    names = [name for name, *_ in CHARTS[by]]
    found = []
    for label, part in parts:
        values = {name: live_write.mean_of(part.get(name)) for name in names}
        found.append((label, {name: one for name, one in values.items() if one is not None}))
    return found

"""Jobs of a search in groups: by experiment, cluster, name, state, or by settings; of each group how
many there are, in which states, and mean and spread of metrics. Called by `server/api/live.py`.

`!seed` in place of names of settings means: by every setting that differs, but not by the seed.
"""

import json
import math
import sqlite3
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import PAGE_GROUP_JOBS_MAX, PAGE_GROUPS_MAX
from headway.store import job_table

_COLUMNS = ("experiment", "cluster", "name", "state")


@dataclass(slots=True)
class _Group:
    keys: list[int] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    newest_ns: int = 0
    sample: str = ""  # the id of its newest job


def read(c: sqlite3.Connection, text: str, by: list[str], metrics: list[str]) -> JsonObject:
    """`{by, groups: [{values, jobs, states, newest, metrics: {name: {mean deviation min max jobs}}}],
    total, left_out}`, the group with the newest job first.
    """
    if not by or len(by) > 8:
        raise UsageError("by names what to group by", "such as experiment, config.lr, !seed")
    found = job_table.condition(c, text)
    rows = c.execute(
        f"""SELECT j.pk, j.id, j.name, j.experiment, j.cluster, j.state, j.submitted_ns, j.config,
              json_extract(j.spec, '$.parameters') AS parameters
            FROM jobs j WHERE {found.sql} ORDER BY j.submitted_ns DESC LIMIT :most""",  # noqa: S608  (our own words, values are parameters)
        found.values | {"most": PAGE_GROUP_JOBS_MAX + 1},
    ).fetchall()
    cut = len(rows) > PAGE_GROUP_JOBS_MAX
    jobs = [(row, _config(row)) for row in rows[:PAGE_GROUP_JOBS_MAX]]
    names = _names(by, [config for _, config in jobs])
    groups: dict[tuple[str, ...], _Group] = {}
    values: dict[tuple[str, ...], list[Any]] = {}
    for row, config in jobs:
        own = [_value(row, config, name) for name in names]
        key = tuple(json.dumps(one, sort_keys=True) for one in own)
        group = groups.setdefault(key, _Group())
        values.setdefault(key, own)
        group.keys.append(row["pk"])
        group.states[row["state"]] = group.states.get(row["state"], 0) + 1
        if not group.sample:
            group.sample = row["id"]
            group.newest_ns = row["submitted_ns"]
    shown = sorted(groups, key=lambda key: -groups[key].newest_ns)[:PAGE_GROUPS_MAX]
    measured = {name: _last_values(c, [row["pk"] for row, _ in jobs], name) for name in metrics}
    told = []
    for key in shown:
        group = groups[key]
        spreads = {name: _spread(measured[name], group.keys) for name in metrics}
        told.append(
            {
                "values": values[key], "jobs": len(group.keys), "states": group.states,
                "newest": group.sample,
                "metrics": {name: one for name, one in spreads.items() if one is not None},
            }
        )  # fmt: skip
    return {
        "by": names, "groups": told, "total": len(jobs), "cut": cut,
        "left_out": len(groups) - len(shown),
    }  # fmt: skip


def _config(row: sqlite3.Row) -> JsonObject:
    known = {**json.loads(row["parameters"] or "{}"), **json.loads(row["config"] or "{}")}
    return job_table.flatten(known)


def _names(by: list[str], configs: list[JsonObject]) -> list[str]:
    """`!seed` becomes the settings that it stands for."""
    left_out = {name.removeprefix("!").removeprefix("config.") for name in by if name[:1] == "!"}
    names = [name for name in by if name[:1] != "!"]
    if not left_out:
        return names
    seen: dict[str, set[str]] = defaultdict(set)
    for config in configs:
        for key, value in config.items():
            seen[key].add(json.dumps(value, sort_keys=True))
    differing = [
        key
        for key, known in sorted(seen.items())
        if (len(known) > 1 or sum(key in config for config in configs) < len(configs))
        and key not in left_out
    ]
    return [*names, *(f"config.{key}" for key in differing[:8])]


def _value(row: sqlite3.Row, config: JsonObject, name: str) -> object:
    if name in _COLUMNS:
        return row[name]
    if name.startswith("config."):
        return config.get(name.removeprefix("config."))
    raise UsageError(
        f'jobs cannot be grouped by "{name[:40]}"', f"by: {' '.join(_COLUMNS)} config.NAME !NAME"
    )


def _last_values(c: sqlite3.Connection, keys: list[int], name: str) -> dict[int, float]:
    """Of each job the last value of its last attempt, of the lowest rank: as the table shows it."""
    rows = c.execute(
        """SELECT s.job, l.value FROM series s JOIN latest l ON l.series = s.pk
           WHERE s.name = :name AND s.job IN (SELECT value FROM json_each(:keys))
           ORDER BY s.attempt, s.rank DESC, l.time_ns""",
        {"name": name, "keys": json.dumps(keys)},
    )
    return {row["job"]: struct.unpack("<d", row["value"])[0] for row in rows}


def _spread(values: dict[int, float], keys: list[int]) -> JsonObject | None:
    known = [values[pk] for pk in keys if pk in values and math.isfinite(values[pk])]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in known) / len(known))
    return {
        "mean": mean, "deviation": deviation, "min": min(known), "max": max(known),
        "jobs": len(known),
    }  # fmt: skip

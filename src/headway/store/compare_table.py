"""Many jobs side by side: what differs in their configs, what is equal, and the summary of each
metric. What `hw compare`, `hw best` and the page's table read; answers `/api/compare`.

No points are read: summaries are kept as points come in. Without names of metrics, those that most
of the jobs have are chosen, validation first; of more than `_SAMPLE_FROM` jobs an even sample says
which these are.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from headway.model.errors import RefusedError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import COMPARE_JOBS_MAX, COMPARE_METRICS_MAX
from headway.model.metric_direction import Direction, direction
from headway.store import (
    arrays,
    catalog,
    effective_config,
    importance,
    job_reference,
    series,
    summaries,
    tracked,
)
from headway.store.jsonform import iso, number
from headway.store.summaries import Summary

_SOME = 1_000
_SAMPLE_FROM, _SAMPLE_JOBS = 200, 32
_APART = ("printed/", "tensorboard/")  # in front of names that the program also logs itself
_HELD_OUT = ("val", "test", "eval", "dev")  # words that make a metric the one a person looks at


class ComparedMetric(msgspec.Struct):
    """`best` and `step` are of the extreme that is wanted; where nobody says which, `best` is null
    and `step` the last one. Numbers that JSON cannot hold are text.
    """

    last: float | str
    min: float | None
    max: float | None
    best: float | None
    step: int


class ComparedJob(msgspec.Struct):
    id: str
    name: str
    state: str
    config: JsonObject
    metrics: dict[str, ComparedMetric]
    experiment: str | None
    tags: list[str]
    submitted_at: str | None
    elapsed_s: float | None


class CompareTable(msgspec.Struct):
    jobs: list[ComparedJob]
    equal: JsonObject
    differs: list[str]
    metrics: list[str]  # those that the jobs below have, in their order
    directions: dict[str, Direction | None]
    defined: list[str]  # metrics whose direction the program has said (`define_metric`)
    metrics_left_out: int  # further ones of these jobs; -m names them
    jobs_left_out: int


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs, by id or by a selection, and which metrics."""

    ids: list[str] = []
    state: list[str] = []
    cluster: str | None = None
    experiment: str | None = None
    since: float | None = None
    match: str | None = None
    where: str | None = None
    name: list[str] = []
    want: Direction | None = None  # for the metrics named, where their names do not say
    metrics_max: int = COMPARE_METRICS_MAX
    limit: int = COMPARE_JOBS_MAX


def table(
    c: sqlite3.Connection, asked: Asked, filters: catalog.JobFilter, now_ns: int
) -> CompareTable:
    keys, left_out = chosen(c, asked, filters)
    rows = job_rows(c, keys)
    configs = [effective_config.effective(row["config"], row["spec"]) for row in rows]
    equal, differs = split(configs)
    names, names_left_out = metric_names(c, keys, asked, {*equal, *differs})
    known = summaries.read(c, keys, names) if names else {}
    goals = tracked.goals(c, keys, names)
    directions = {name: asked.want or goals.get(name) or direction(name) for name in names}
    jobs = []
    for row, config in zip(rows, configs, strict=True):
        of_job = known.get(row["pk"], {})
        jobs.append(
            ComparedJob(
                row["id"], row["name"], row["state"], config,
                {name: _metric(of_job[name], directions[name]) for name in names if name in of_job},
                row["experiment"], json.loads(row["tags"]), iso(row["submitted_ns"]),
                elapsed_s(row, now_ns),
            )
        )  # fmt: skip
    defined = [name for name in names if name in goals and not asked.want]
    return CompareTable(jobs, equal, differs, names, directions, defined, names_left_out, left_out)


def chosen(
    c: sqlite3.Connection, asked: Asked, filters: catalog.JobFilter
) -> tuple[list[int], int]:
    """Keys of the jobs, in the order named or newest first, and how many more there are. A
    condition narrows named ones, too.
    """
    if asked.ids:
        keys = list(dict.fromkeys(key for ref in asked.ids for key in _meant(c, ref)))
        passing = catalog.passing_of(c, filters)
        if passing is not None:
            keys = [key for key in keys if key in passing]
        return keys, 0
    keys = catalog.job_keys(c, filters)
    most = min(asked.limit, COMPARE_JOBS_MAX)
    return keys[:most], max(0, len(keys) - most)


def _meant(c: sqlite3.Connection, ref: str) -> list[int]:
    """A job, or all jobs of an array."""
    found, groups = job_reference.find(c, ref)
    if len(groups) == 1 and not found:
        rows = c.execute(
            "SELECT pk FROM jobs WHERE array = ? AND deleted_ns IS NULL ORDER BY array_index",
            (arrays.find(c, ref),),
        )
        return [int(row["pk"]) for row in rows]
    return [catalog.resolve(c, ref)]


def job_rows(c: sqlite3.Connection, keys: Sequence[int]) -> list[sqlite3.Row]:
    """In the order of `keys`."""
    found: dict[int, sqlite3.Row] = {}
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        rows = c.execute(
            f"""SELECT pk, id, name, state, experiment, tags, config, spec, submitted_ns, started_ns, ended_ns
                FROM jobs WHERE pk IN ({marks})""",  # noqa: S608  (our own words, values are parameters)
            some,
        )
        found |= {row["pk"]: row for row in rows}
    return [found[key] for key in keys if key in found]


def elapsed_s(row: sqlite3.Row, now_ns: int) -> float | None:
    if row["started_ns"] is None:
        return None
    end_ns = now_ns if row["ended_ns"] is None else row["ended_ns"]
    return float(round(max(0, end_ns - row["started_ns"]) / 1e9, 3))


def metric_names(
    c: sqlite3.Connection, keys: Sequence[int], asked: Asked, known: Collection[str] = ()
) -> tuple[list[str], int]:
    """The metrics to show, and how many more the jobs have. One that has the name of a config key
    (`lr`) says what is `known` already.
    """
    if asked.name:
        return list(dict.fromkeys(asked.name)), 0
    looked_at = keys
    if len(keys) > _SAMPLE_FROM:
        looked_at = keys[:: max(1, len(keys) // _SAMPLE_JOBS)]
    counts = Counter(name for key in looked_at for name in series.names(c, key))
    names = [name for name in counts if name not in known and not _is_repeated(name, counts)]
    goals = tracked.goals(c, looked_at, names)
    names.sort(key=lambda name: (-_interest(name, goals), -counts[name], name))
    most = max(0, min(asked.metrics_max, COMPARE_METRICS_MAX))
    return names[:most], max(0, len(names) - most)


def _is_repeated(name: str, names: Collection[str]) -> bool:
    """What was printed, or read from event files, where the program logs that name itself."""
    head, slash, rest = name.partition("/")
    return f"{head}{slash}" in _APART and rest in names


def _interest(name: str, goals: Collection[str]) -> int:
    """Results first: 3 for what the program gave a goal, 2 for `val/acc`, 1 for `train/loss`, 0
    for `lr`.
    """
    if name in goals:
        return 3
    if direction(name) is None:
        return 0
    words = name.lower().replace("_", "/").replace("-", "/").replace(".", "/").split("/")
    return 2 if any(word.startswith(_HELD_OUT) for word in words) else 1


def _metric(found: Summary, wanted: Direction | None) -> ComparedMetric:
    best, step = found.best(wanted)
    return ComparedMetric(number(found.last), found.low, found.high, best, step)


def split(configs: Sequence[JsonObject]) -> tuple[JsonObject, list[str]]:
    """Keys that are equal in all of them with their value, and those that differ or that some
    lack, in the order in which they first appear.
    """
    if not configs:
        return {}, []
    keys = dict.fromkeys(key for config in configs for key in config)
    first = configs[0]
    equal: JsonObject = {}
    differs: list[str] = []
    for key in keys:
        value = first.get(key)
        if key in first and all(key in config and same(config[key], value) for config in configs):
            equal[key] = value
        else:
            differs.append(key)
    return equal, differs


def same(a: object, b: object) -> bool:
    """Equal, and of one kind: `True` is not `1`. NaN equals itself."""
    if isinstance(a, bool) is not isinstance(b, bool):
        return False
    return bool(a == b) or (a != a and b != b)


class Importance(msgspec.Struct):
    metric: str
    direction: Direction
    jobs: int  # those that have a finite value of the metric
    keys: list[importance.KeyImportance]
    equal: list[str]


def importances(
    c: sqlite3.Connection, asked: Asked, filters: catalog.JobFilter, now_ns: int
) -> Importance:
    """Which config keys mattered for the one metric that is named."""
    if len(asked.name) != 1:
        raise UsageError("importance is asked for one metric", "for example: -m val/acc")
    name = asked.name[0]
    found = table(c, asked, filters, now_ns)
    wanted = found.directions[name] or "max"
    configs = []
    values = []
    for job in found.jobs:
        if name not in job.metrics:
            continue
        metric = job.metrics[name]
        value = metric.max if wanted == "max" else metric.min
        if value is not None:
            configs.append(job.config)
            values.append(value)
    keys = importance.rank(configs, found.differs, values, wanted)
    return Importance(name, wanted, len(values), keys, list(found.equal))


def check(asked: Asked) -> None:
    if len(asked.ids) > COMPARE_JOBS_MAX:
        raise RefusedError(
            f"that is {len(asked.ids):,} jobs; at most {COMPARE_JOBS_MAX:,} in one table",
            "choose fewer, by -e or --where",
        )
    if not 0 <= asked.metrics_max <= COMPARE_METRICS_MAX:
        raise UsageError(
            f"metrics_max is {asked.metrics_max}", f"valid: 0 to {COMPARE_METRICS_MAX}"
        )

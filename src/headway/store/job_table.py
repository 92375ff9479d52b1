"""The page's table of jobs: filtered, sorted and cut to a window by the database. Called by `server/api/live.py`.

What is searched for is one line of text, which is also in the page's address bar:

    digits state:failed,running exp:voc20 tag:baseline since:2d config.lr>0.01 metric.loss<0.3 -cluster:lab

Words without a colon or comparison are looked for in id, name, experiment and command. A minus in front means: not.
After ` where ` comes a condition in the language of `hw ls --where`.
"""

import json
import re
import shlex
import sqlite3
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from headway.model.errors import UsageError
from headway.model.job import State
from headway.model.json_types import JsonObject
from headway.model.limits import PAGE_QUERY_CHARS_MAX, PAGE_ROWS_MAX
from headway.store import catalog, job_conditions, query
from headway.wire import filter_language

_COMPARISON = re.compile(
    r"(config|metric|c|m)\.([^<>=!~]{1,200})(<=|>=|!=|<|>|=|~)(.*)\Z", re.DOTALL
)
_SINCE = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)\Z")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TERMS_MAX = 32
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.=:/-]+\Z")
_LOSS = re.compile(r"loss|ppl|perplex|mse|mae", re.IGNORECASE)
_SCORE = re.compile(r"acc|f1|auc|reward|score|map$", re.IGNORECASE)
_COLUMNS = {
    "submitted": "j.submitted_ns", "name": "j.name", "id": "j.id", "state": "j.state", "cluster": "j.cluster",
    "experiment": "j.experiment", "started": "j.started_ns", "ended": "j.ended_ns",
    "elapsed": "coalesce(j.ended_ns, :now) - j.started_ns",
}  # fmt: skip
_KEYS = {
    "exp": "experiment",
    "experiment": "experiment",
    "cluster": "cluster",
    "name": "name",
    "array": "array",
}
_HELP = "such as: digits state:failed exp:voc20 tag:base since:2d config.lr>0.01 metric.loss<0.3 -cluster:lab"
_KEPT = (
    "id", "name", "experiment", "state", "state_since", "cluster", "engine", "command", "gpus", "processes",
    "submitted_at", "started_at", "ended_at", "elapsed_s", "exit_code", "signal", "parent", "tags", "cause", "health",
    "array", "array_index", "star", "bug", "description",
)  # fmt: skip


@dataclass(slots=True)
class Condition:
    """A condition in SQL on `jobs j`, with its values."""

    terms: list[str] = field(default_factory=lambda: ["j.deleted_ns IS NULL"])
    values: JsonObject = field(default_factory=dict)

    def bind(self, value: object) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    @property
    def sql(self) -> str:
        return " AND ".join(self.terms)


# -- what is searched for ----------------------------------------------------------------------------------------------


def parse(text: str, now_ns: int) -> Condition:
    if len(text) > PAGE_QUERY_CHARS_MAX:
        raise UsageError(f"the search has more than {PAGE_QUERY_CHARS_MAX} characters")
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()  # a quote that is not closed yet: somebody is typing
    found = Condition()
    for word in words[:_TERMS_MAX]:
        negated = len(word) > 1 and word.startswith("-")
        term = _term(found, word[1:] if negated else word, now_ns)
        found.terms.append(f"NOT ifnull({term}, 0)" if negated else term)
    return found


def _term(found: Condition, word: str, now_ns: int) -> str:
    comparison = _COMPARISON.match(word)
    if comparison:
        kind, key, operator, value = comparison.groups()
        return _compare(found, _value_of(found, kind, key), operator, value)
    key, colon, value = word.partition(":")
    if not colon or not value:
        return _words(found, word)
    if key in ("state", "s"):
        return _states(found, value)
    if key in _KEYS:
        choices = [f"{found.bind(choice)}" for choice in value.split(",") if choice]
        return f"j.{_KEYS[key]} IN ({', '.join(choices)})"
    if key == "tag":
        return f"EXISTS (SELECT 1 FROM json_each(j.tags) WHERE value = {found.bind(value)})"  # noqa: S608  (as below)
    if key == "since":
        match = _SINCE.match(value)
        if not match:
            raise UsageError(f'"since:{value[:40]}" is not a time', "such as since:30m, since:2d")
        return f"j.submitted_ns >= {found.bind(now_ns - int(float(match[1]) * _UNIT_S[match[2]] * 1e9))}"
    return _words(found, word)


def _states(found: Condition, value: str) -> str:
    wanted = [state for state in value.split(",") if state]
    expanded = (
        ["waiting", "running", "stopping", "held", "unknown"] if wanted == ["open"] else wanted
    )
    unknown = [state for state in expanded if state not in set(State)]
    if unknown:
        raise UsageError(
            f'there is no state "{unknown[0][:40]}"', "states: open " + " ".join(State)
        )
    return f"j.state IN ({', '.join(found.bind(state) for state in expanded)})"


def _words(found: Condition, word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    like = f"LIKE {found.bind(f'%{escaped}%')} ESCAPE '\\'"
    command = "(SELECT group_concat(value, ' ') FROM json_each(j.spec, '$.command'))"
    if _PLAIN_WORD.match(word):  # stands in the JSON as it is, so most jobs need not be parsed
        command = f"j.spec {like} AND {command}"
    return (
        f"(j.id {like} OR ifnull(j.experiment, '') {like} OR j.tags {like} OR ({command} {like}))"
    )


def _value_of(found: Condition, kind: str, key: str) -> str:
    if kind in ("metric", "m"):
        return (
            "(SELECT f64(l.value) FROM series s JOIN latest l ON l.series = s.pk WHERE s.job = j.pk AND"  # noqa: S608  (as below)
            f" s.name = {found.bind(key)} ORDER BY s.attempt DESC, s.rank, l.time_ns DESC LIMIT 1)"
        )
    flat = found.bind('$."' + key.replace('"', "") + '"')
    nested = found.bind("$" + "".join(f'."{part}"' for part in key.replace('"', "").split(".")))
    return (
        f"coalesce(json_extract(j.config, {flat}), json_extract(j.config, {nested}),"
        f" json_extract(j.spec, '$.parameters' || substr({flat}, 2)))"
    )


def _compare(found: Condition, left: str, operator: str, text: str) -> str:
    if operator == "~":
        return f"instr(lower({left}), {found.bind(text.lower())}) > 0"
    value: Any = text
    try:
        value = float(text)
    except ValueError:
        if text in ("true", "false"):  # json_extract gives them as 1 and 0
            value = int(text == "true")
    return f"{left} {operator} {found.bind(value)}"


def prepare(c: sqlite3.Connection) -> None:
    c.create_function("f64", 1, _f64, deterministic=True)


def _f64(value: bytes | None) -> float | None:
    """A stored value as a number that SQLite can compare; NaN is none."""
    if value is None:
        return None
    number: float = struct.unpack("<d", value)[0]
    return None if number != number else number


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Window:
    total: int
    keys: list[int]


def condition(c: sqlite3.Connection, text: str, now_ns: int | None = None) -> Condition:
    """What a search chooses, as a condition on `jobs j`."""
    prepare(c)
    now_ns = time.time_ns() if now_ns is None else now_ns
    words, _, where = f" {text}".partition(" where ")
    found = parse(words, now_ns)
    if where.strip():
        _add_condition(c, found, filter_language.parse(where), now_ns)
    return found


def window(c: sqlite3.Connection, text: str, sort: str, offset: int, limit: int) -> Window:
    """How many jobs fit, and which of them are in this part of the list."""
    now_ns = time.time_ns()
    found = condition(c, text, now_ns)
    values = found.values | {"now": now_ns}
    total = c.execute(f"SELECT count(*) FROM jobs j WHERE {found.sql}", values).fetchone()[0]  # noqa: S608  (our own words, values are parameters)
    order = _order(found, sort)
    rows = c.execute(
        f"SELECT j.pk FROM jobs j WHERE {found.sql} ORDER BY {order}"  # noqa: S608  (likewise)
        " LIMIT :limit OFFSET :offset",
        found.values | {"now": now_ns, "limit": min(limit, PAGE_ROWS_MAX), "offset": offset},
    )
    return Window(total, [row[0] for row in rows])


def _add_condition(
    c: sqlite3.Connection, found: Condition, condition: filter_language.Condition, now_ns: int
) -> None:
    """The language of `--where`, for what the words before it have left."""
    rows = c.execute(f"SELECT j.pk FROM jobs j WHERE {found.sql}", found.values)  # noqa: S608  (our own words)
    passing = job_conditions.chosen(c, [row[0] for row in rows], condition, now_ns)
    keys = found.bind(json.dumps(passing))
    found.terms.append(f"j.pk IN (SELECT value FROM json_each({keys}))")  # noqa: S608  (likewise)


def _order(found: Condition, sort: str) -> str:
    """`submitted`, `-elapsed`, `metric.loss`, `config.lr`; a minus in front: largest first. Unknown ones come last."""
    down = sort.startswith("-")
    key = sort.removeprefix("-")
    direction = "DESC" if down else "ASC"
    if key == "submitted":  # never empty, and there is an index in just this order
        return f"j.submitted_ns {direction}, j.pk {direction}"
    column = _COLUMNS.get(key)
    if column is None:
        kind, dot, name = key.partition(".")
        if kind not in ("metric", "config") or not dot:
            known = " ".join(_COLUMNS)
            raise UsageError(f'the table cannot be sorted by "{key[:40]}"', f"by: {known}")
        column = _value_of(found, kind, name)
    return f"({column}) IS NULL, {column} {direction}, j.submitted_ns DESC, j.pk DESC"


def rows(
    c: sqlite3.Connection, keys: list[int], config: list[str], metrics: list[str], now_ns: int
) -> list[JsonObject]:
    """What the table shows of these jobs, in this order; without fields that are empty."""
    by_key = {job.pk: job for job in catalog.load_light(c, keys)}
    jobs = [by_key[pk] for pk in keys if pk in by_key]
    found = []
    for job, row in zip(jobs, query.rows_of(c, jobs, now_ns), strict=True):
        told = {name: row[name] for name in _KEPT if not _is_empty(row.get(name))}
        told["progress"] = _tracker(row["progress"])
        told["waiting"] = row["waiting"]
        told["heard_at"] = row.get("heard_at")
        told["command"] = _short_command(row["command"])
        told["metrics"] = _chosen(c, job.pk, row["metrics"], metrics)
        told["config"] = _config(c, job.pk, row["parameters"], config)
        found.append({name: value for name, value in told.items() if value not in (None, {})})
    return found


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ([], {}, "")


def _short_command(command: list[str]) -> str:
    return shlex.join(command)[:300]


def _tracker(trackers: list[JsonObject]) -> JsonObject | None:
    """The one bar that a row has room for: what runs and knows its end, else the last."""
    known = [one for one in trackers if one["total"]]
    if not known:
        return None
    running = [one for one in known if one["state"] == "running"]
    best = (running or known)[0]
    return {name: best[name] for name in ("msg", "completed", "total", "rate", "eta_s", "state")}


def _interest(name: str) -> tuple[int, str]:
    """Losses and scores before the rest, what was only printed last."""
    if name.startswith("printed/"):
        return 3, name
    for place, pattern in enumerate((_LOSS, _SCORE)):
        if pattern.search(name):
            return place, name
    return 2, name


def _chosen(c: sqlite3.Connection, pk: int, shown: JsonObject, wanted: list[str]) -> JsonObject:
    """Metrics that are columns, and the first few others for the row's own summary."""
    names = sorted(shown, key=_interest)[:4]
    found = {name: shown[name] for name in names}
    for name in wanted:
        if name in shown:
            found[name] = shown[name]
            continue
        value = query.latest_metric(c, pk, name)
        if value is not None:
            found[name] = value
    return found


def _config(
    c: sqlite3.Connection, pk: int, parameters: JsonObject | None, wanted: list[str]
) -> JsonObject:
    if not wanted:
        return {}
    row = c.execute("SELECT config FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
    known = flatten(
        {**(parameters or {}), **(json.loads(row["config"]) if row and row["config"] else {})}
    )
    return {key: known[key] for key in wanted if key in known}


def flatten(config: JsonObject, prefix: str = "") -> JsonObject:
    """Nested settings as one level, with dots."""
    found: JsonObject = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def columns(c: sqlite3.Connection, text: str, jobs_max: int) -> dict[str, list[str]]:
    """Names of config and metrics among the newest jobs that fit: what can be a column."""
    keys = window(c, text, "-submitted", 0, jobs_max).keys
    config: dict[str, None] = {}
    metrics: dict[str, None] = {}
    for pk in keys:
        row = c.execute("SELECT config, spec FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
        known = {
            **(json.loads(row["spec"]).get("parameters") or {}),
            **json.loads(row["config"] or "{}"),
        }
        config |= dict.fromkeys(flatten(known))
        metrics |= dict.fromkeys(list(query.latest_metrics(c, pk, 200)))
    return {"config": sorted(config)[:2000], "metrics": sorted(metrics)[:2000]}

"""Which jobs a condition of `--where` means: the fields, config keys and metrics that it names, read
for many jobs at once. The language itself is `wire/filter_language`; called for lists and tables.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from headway.model.json_types import JsonObject
from headway.model.metric_direction import Direction
from headway.store import effective_config, summaries, tracked
from headway.store.pattern import Matcher
from headway.wire.filter_language import Condition, Name, Search

_SOME = 1_000
_COLUMNS = """pk, id, name, state, experiment, cluster, engine, tags, submitted_ns, started_ns, ended_ns,
  exit_code, signal, spec, config, array_index, star, bug, description"""


def chosen(
    c: sqlite3.Connection, keys: Sequence[int], condition: Condition, now_ns: int
) -> list[int]:
    """Those of the jobs `keys` that it holds for, in their order."""
    metrics = {name.key for name in condition.names if name.kind in ("any", "metric")}
    with ExitStack() as stack:
        matchers = {text: stack.enter_context(Matcher(text)) for text in condition.patterns}

        def search(pattern: str, text: str) -> bool:
            return matchers[pattern](text)

        return _chosen(c, keys, condition, metrics, search, now_ns)


def _chosen(
    c: sqlite3.Connection,
    keys: Sequence[int],
    condition: Condition,
    metrics: set[str],
    search: Search,
    now_ns: int,
) -> list[int]:
    found: list[int] = []
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        rows = c.execute(f"SELECT {_COLUMNS} FROM jobs WHERE pk IN ({marks})", some)  # noqa: S608  (our own words, values are parameters)
        jobs = {row["pk"]: row for row in rows}
        logged = summaries.read(c, some, metrics) if metrics else {}
        goals = tracked.goals(c, some, metrics) if metrics else {}
        for pk in some:
            if pk not in jobs:
                continue
            values = _Values(jobs[pk], logged.get(pk, {}), goals, now_ns)
            if condition.matches(values.of, search):
                found.append(pk)
    return found


class _Values:
    """The values of one job by name; its config is read when it is asked for."""

    def __init__(
        self,
        row: sqlite3.Row,
        metrics: dict[str, summaries.Summary],
        goals: dict[str, Direction],
        now_ns: int,
    ) -> None:
        self._row = row
        self._metrics = metrics
        self._goals = goals
        self._now_ns = now_ns
        self._config: JsonObject | None = None

    def of(self, name: Name) -> Sequence[Any]:
        if name.kind == "field":
            return self._field(name.key)
        if name.kind != "metric":
            if self._config is None:
                self._config = effective_config.effective(self._row["config"], self._row["spec"])
            if name.key in self._config:
                return [self._config[name.key]]
        if name.kind != "config" and name.key in self._metrics:
            goal = self._goals.get(name.key)
            value = self._metrics[name.key].value(name.summary, name.key, goal)
            return [] if value is None else [value]
        return []

    def _field(self, key: str) -> Sequence[Any]:
        row = self._row
        if key == "tag":
            tags: list[str] = json.loads(row["tags"])
            return tags
        if key == "age":
            return [(self._now_ns - row["submitted_ns"]) / 1e9]
        if key == "elapsed":
            return self._elapsed_s()
        if key == "command":
            return [" ".join(effective_config.read_spec(row["spec"]).command)]
        if key == "gpus":
            return [effective_config.read_spec(row["spec"]).gpus]
        if key in ("star", "bug"):
            return [bool(row[key])]
        value = row["array_index"] if key == "index" else row[key]
        return [] if value is None else [value]

    def _elapsed_s(self) -> list[float]:
        started_ns = self._row["started_ns"]
        ended_ns = self._row["ended_ns"]
        if started_ns is None:
            return []
        if ended_ns is None:
            ended_ns = self._now_ns
        return [(ended_ns - started_ns) / 1e9]

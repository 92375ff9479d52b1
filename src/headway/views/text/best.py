"""The best value of a metric and its step, for the end of a run: `loss 0.031 (best 0.03 at step
9400)`.

Only of metrics whose name says which way is better. The server thins a series so that its extremes
stay, so a few points are enough to know them. Called by `run` and `console.attend`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from headway.model.errors import HeadwayError
from headway.model.json_types import JsonObject
from headway.model.limits import DISPLAY_METRICS_MAX
from headway.model.metric_direction import direction
from headway.views.api.source import Source, job_route

_POINTS: Final = 16
Job = JsonObject


class Best(NamedTuple):
    value: float
    step: int | None


def better(name: str) -> Callable[..., float] | None:
    """`min` or `max`, by the words of a metric's name; None where they do not say."""
    wanted = direction(name)
    if wanted is None:
        return None
    return min if wanted == "min" else max


def ask(job: Job, get: Callable[[Callable[[Source], Any]], Any]) -> dict[str, Best]:
    """Of the metrics that the end of a run tells of. `get` puts a question to the server; without
    an answer, none.
    """
    names = [name for name in list(job.get("metrics") or {})[:DISPLAY_METRICS_MAX] if better(name)]
    if job.get("state") != "succeeded" or not names:
        return {}
    query = [("name", names), ("rank", 0), ("points", _POINTS), ("joined", "true")]
    try:
        answer = get(lambda source: source.get(job_route(str(job["id"]), "metrics"), query))
    except HeadwayError:
        return {}
    if not isinstance(answer, dict):
        return {}

    found: dict[str, Best] = {}
    series: JsonObject = next(iter(answer.values()), {})
    for name, attempts in series.items():
        best = _best(name, attempts)
        if best is not None:
            found[name] = best
    return found


def _best(name: str, attempts: list[JsonObject]) -> Best | None:
    choose = better(name)
    known = [point for attempt in attempts for point in _points(attempt)]
    if choose is None or not known:
        return None
    best = choose(point.value for point in known)
    return next(point for point in known if point.value == best)  # the first of equals


def _points(attempt: JsonObject) -> Iterator[Best]:
    values = attempt.get("value") or []
    steps = attempt.get("step") or []
    for value, step in zip(values, steps, strict=False):
        if isinstance(value, int | float) and math.isfinite(value):
            yield Best(float(value), step)

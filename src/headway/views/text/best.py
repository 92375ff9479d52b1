"""The best value of a metric and its step, for the end of a run: `loss 0.031 (best 0.03 at step
9400)`.

Only of metrics whose name says which way is better. The server thins a series so that its extremes
stay, so a few points are enough to know them. Called by `run` and `console.attend`.
"""

import math
from collections.abc import Callable
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
        found = get(lambda source: source.get(job_route(str(job["id"]), "metrics"), query))
    except HeadwayError:
        return {}
    series: JsonObject = next(iter(found.values()), {}) if isinstance(found, dict) else {}
    return {
        name: best
        for name, attempts in series.items()
        if (best := _best(name, attempts)) is not None
    }


def _best(name: str, attempts: list[JsonObject]) -> Best | None:
    choose = better(name)
    known = [
        Best(float(value), step)
        for one in attempts
        for value, step in zip(one.get("value") or [], one.get("step") or [], strict=False)
        if isinstance(value, int | float) and math.isfinite(value)
    ]
    if choose is None or not known:
        return None
    found = choose(one.value for one in known)
    return next(one for one in known if one.value == found)  # the first of equals

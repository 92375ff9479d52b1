"""What a program says about its metrics and its outcome: `hw.define_metric`, `hw.summary`, `hw.alert`. For training.

Nothing here raises into training or waits for a network (P1): each call is a fact in the spool.
"""

from __future__ import annotations

from _collections_abc import (
    Iterator,
    MutableMapping,
)  # loaded by every Python; `collections` itself is not

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import Refused, clean_name, clean_text
from headway.model.limits import MESSAGE_CHARS_MAX, SUMMARY_VALUES_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from headway.client.run import Run
    from headway.model.json_types import JsonObject

GOALS = {"min": "min", "max": "max", "minimize": "min", "maximize": "max"}


def define_metric(
    name: str,
    x: "str | None" = None,
    goal: "str | None" = None,
    summary: "str | list[str] | None" = None,
) -> None:
    """Say how metrics are meant: `hw.define_metric("val/*", x="epoch", goal="max")`.

    `name` may have a `*`. `x`: the metric that they are drawn over in place of the step; its value at a point is the
    one that was logged with it, else the last one before. `goal`: `min` or `max`, which is the best value. `summary`:
    which values stand for the whole run: `last`, `min`, `max`, `mean`, `best`.
    """
    run = _run()
    try:
        said = [summary] if isinstance(summary, str) else list(summary or [])
        words = [str(word) for part in said for word in str(part).split(",")]
        over = clean_name(x) if x is not None else None
        wanted = GOALS.get(str(goal).lower()) if goal is not None else None
        if goal is not None and wanted is None:
            run.note(
                f"goal {goal}",
                f"define_metric({name!r}): goal is {goal!r}; it may be 'min' or 'max'",
            )
        run.fact("metric", name=clean_name(name), x=over, goal=wanted, summary=words)
    except Refused as reason:
        run.note(f"define {name}", f"define_metric({name!r}) is not kept: {reason}")
    except Exception as error:  # P1: no call of ours raises into training
        raise_if_signal(error)
        run.note("define", f"define_metric() failed: {type(error).__name__}: {error}")


def alert(title: str, text: str = "", level: str = "info") -> None:
    """Tell people something now, by the ways that `hw notify` knows: `hw.alert("loss is NaN", level="error")`."""
    run = _run()
    try:
        mask = run.masker()
        said = [clean_text(mask(str(part)))[:MESSAGE_CHARS_MAX] for part in (title, text)]
        run.fact("alert", title=said[0], text=said[1], level=str(level).lower()[:16])
    except Exception as error:  # P1: as above
        raise_if_signal(error)
        run.note("alert", f"alert() failed: {type(error).__name__}: {error}")


class Summary(MutableMapping[str, "Any"]):
    """`hw.summary["test/acc"] = 0.93`: the outcome in the program's own words, beside what is read from its metrics."""

    __slots__ = ("_get_run", "_values")

    def __init__(self, get_run: "Any") -> None:
        self._get_run = get_run
        self._values: JsonObject = {}

    def __getitem__(self, key: str) -> "Any":
        return self._values[key]

    def __setitem__(self, key: str, value: "Any") -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._tell({key: None})

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"headway.summary({self._values!r})"

    def update(self, *args: "Any", **values: "Any") -> None:
        changed: JsonObject = {}
        for arg in args:
            changed.update(arg)
        changed.update(values)
        self._values.update(changed)
        self._tell(changed)

    def _tell(self, changed: "JsonObject") -> None:
        run = self._get_run()
        try:
            from headway.client.config_plain import plain

            told: JsonObject = {}
            for key, value in list(changed.items())[:SUMMARY_VALUES_MAX]:
                told[clean_name(str(key))] = plain(value, run.masker())[0]
            run.fact("summary", values=told)
        except Refused as reason:
            run.note("summary", f"a value of the summary is not kept: {reason}")
        except Exception as error:  # P1: values of somebody else's making may raise anything
            raise_if_signal(error)
            run.note("summary", f"the summary could not be kept: {type(error).__name__}")


def _run() -> "Run":
    from headway.client.api import current_run

    return current_run()


summary = Summary(_run)

"""Columns of `hw ls` beyond the usual ones: what sets jobs apart, figures of usage, metrics and config
keys; and the order by any of them. Pure; called by `ls`.
"""

import math
from collections.abc import Callable
from typing import Any, Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.views.text import format as fmt

Job = JsonObject
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_WORDS_SHOWN: Final = 8


def _used(name: str, counted: str | None) -> Callable[[Job], float | None]:
    """Of all ranks together, or the mean of the cards."""

    def value(job: Job) -> float | None:
        used = job.get("usage") or {}
        mean = used.get(name)
        if not isinstance(mean, int | float):
            return None
        return mean * max(used.get(counted) or 1, 1) if counted else mean

    return value


def _speed(job: Job) -> float | None:
    """Steps a second of the first tracker that has a rate."""
    for tracker in job.get("progress") or []:
        if isinstance(tracker.get("rate"), int | float):
            return float(tracker["rate"])
    return None


NUMBERS: Final[dict[str, Callable[[Job], float | None]]] = {
    "cpu": _used("cpu_percent", "ranks"),
    "memory": _used("memory_bytes", "ranks"),
    "gpu": _used("gpu_percent", None),
    "gpu_memory": _used("gpu_memory_bytes", "gpus"),
    "speed": _speed,
    "elapsed": lambda job: job.get("elapsed_s"),
    "gpus": lambda job: job.get("gpus"),
    "index": lambda job: job.get("array_index"),
}
_TEXTS: Final[dict[str, Callable[[Job], Any]]] = {
    "command": lambda job: fmt.shell_words(job.get("command") or []),
    "submitted": lambda job: job.get("submitted_at"),
}
_FIELDS: Final = ("id", "name", "state", "experiment", "cluster", "description")


def value_of(name: str) -> Callable[[Job], Any]:
    """A job's value by the name of a column, a metric or a key of the config; None: it has none."""

    def value(job: Job) -> Any:
        if name in NUMBERS:
            return NUMBERS[name](job)
        if name in _TEXTS:
            return _TEXTS[name](job)
        if name in _FIELDS:
            return job.get(name)
        for part in ("metrics", "parameters", "config"):
            found = job.get(part) or {}
            if name in found:
                text = found[name]
                return _SPECIAL.get(text, text) if isinstance(text, str) else text
        return None

    return value


def shown(name: str, job: Job) -> str:
    value = value_of(name)(job)
    if value is None:
        return ""
    if name in ("memory", "gpu_memory"):
        return fmt.size(value)
    if name in ("cpu", "gpu"):
        return f"{value:.0f} %"
    if name == "speed":
        return f"{value:.3g}/s"
    if name == "elapsed":
        return fmt.clock(value)
    if isinstance(value, float):
        return fmt.number(value)
    return str(value)


def ordered(jobs: list[Job], sort: str) -> list[Job]:
    """By a column; with `-` the largest first. Jobs without a value, and NaN, come last."""
    descending = sort.startswith("-")
    name = sort.removeprefix("-")
    value = value_of(name)

    known = []
    without: list[Job] = []
    for job in jobs:
        key = value(job)
        if key is None or key != key:  # NaN is not itself
            without.append(job)
        else:
            known.append((key, job))
    if jobs and not known:
        raise _no_column(jobs, name)

    if any(isinstance(key, str) for key, _ in known):
        known = [(str(key), job) for key, job in known]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [job for _, job in known] + without


def _no_column(jobs: list[Job], name: str) -> UsageError:
    names: set[str] = set()
    for job in jobs:
        names.update(job.get("metrics") or {}, job.get("config") or {})
    there = [*_FIELDS[:4], *NUMBERS, *sorted(names)]
    return UsageError(
        f'no job has a column, a metric or a config key "{name[:60]}"',
        f"there are: {', '.join(there[:20])}",
    )


def differences(jobs: list[Job]) -> dict[str, str]:
    """What sets each job apart from the others of its name: keys of config and parameters whose
    values differ, or else the words of its command that not all have.
    """
    by_name: dict[str, list[Job]] = {}
    for job in jobs:
        if not job.get("is_array"):
            by_name.setdefault(str(job.get("name")), []).append(job)
    found: dict[str, str] = {}
    for group in by_name.values():
        found |= _of_group(group)
    return found


def _of_group(group: list[Job]) -> dict[str, str]:
    settings = [{**(job.get("config") or {}), **(job.get("parameters") or {})} for job in group]
    keys = _all_keys(settings)
    if len(group) > 1:
        keys = [key for key in keys if _differs(settings, key)]

    texts: dict[str, str] = {}
    for job, of_job in zip(group, settings, strict=True):
        words = [f"{key}={of_job[key]}" for key in keys if key in of_job]
        if not words and len(group) > 1:
            words = _own_words(job, group)[:_WORDS_SHOWN]
        texts[str(job["id"])] = " ".join(words)
    return texts


def _own_words(job: Job, group: list[Job]) -> list[str]:
    """The words of its command that not all of them have."""
    commands = [set(other.get("command") or []) for other in group]
    in_all = set.intersection(*commands)
    return [word for word in job.get("command") or [] if word not in in_all]


def _all_keys(settings: list[JsonObject]) -> list[str]:
    """In the order in which they are first seen."""
    keys: dict[str, None] = {}
    for of_job in settings:
        keys.update(dict.fromkeys(of_job))
    return list(keys)


def _differs(settings: list[JsonObject], key: str) -> bool:
    first = settings[0].get(key)
    return any(key not in of_job or of_job[key] != first for of_job in settings)

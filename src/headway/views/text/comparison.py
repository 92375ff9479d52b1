"""The table of `hw compare` as columns and cells of text: order, groups, marks of the best. Pure;
the commands of the same verb lay it out for a terminal, as CSV, Markdown or a page.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.settings.nearest import did_you_mean
from headway.views.text import format as fmt

Job = JsonObject
Answer = JsonObject  # of /api/compare
FIELDS: Final = ("id", "name", "state", "experiment", "submitted_at", "elapsed_s")
ARROWS: Final = {"max": "↑", "min": "↓"}
MARK: Final = "*"


class Cell(NamedTuple):
    text: str
    is_best: bool = False


class Grid(NamedTuple):
    """`titles` and `rows` of one table; `numeric` columns stand to the right, `kept` ones stay
    longest on a narrow terminal.
    """

    titles: list[str]
    rows: list[list[Cell]]
    numeric: list[bool]
    kept: list[bool]


# -- values


def value_of(metric: JsonObject | None, *, last: bool) -> float | None:
    """What is shown and compared of a job's metric: its best value, or its last where there is no
    best. None: nothing finite.
    """
    if metric is None:
        return None
    shown = metric["last"] if last or metric["best"] is None else metric["best"]
    return finite(shown)


def finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def config_text(value: object) -> str:
    if isinstance(value, float):
        return fmt.number(value) if abs(value) < 1e15 else repr(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def metric_text(metric: JsonObject | None, *, last: bool) -> str:
    if metric is None:
        return ""
    return fmt.number(metric["last"] if last or metric["best"] is None else metric["best"])


def title_of(name: str, answer: Answer, *, last: bool) -> str:
    arrow = "" if last else ARROWS.get(answer["directions"].get(name) or "", "")
    return f"{name} {arrow}".rstrip()


# -- order


def sort(answer: Answer, key: str | None, *, last: bool) -> list[Job]:
    """The jobs by a metric (best first), a config key or a field (rising), `-key` the other way
    round; without a key by the first metric that has a best. Jobs without a value come last.
    """
    jobs: list[Job] = list(answer["jobs"])
    if key is None:
        key = _first_directed(answer)
    if key is None:
        return jobs
    name = key.removeprefix("-")
    reverse = key.startswith("-")
    if name in answer["metrics"] and answer["directions"].get(name) == "max":
        reverse = not reverse

    read = _reader(answer, name, last=last)
    known = [job for job in jobs if read(job) is not None]
    unknown = [job for job in jobs if read(job) is None]
    known.sort(key=lambda job: _order(read(job)), reverse=reverse)
    return known + unknown


def _first_directed(answer: Answer) -> str | None:
    """The first metric of which is known whether more or less of it is better."""
    for name in answer["metrics"]:
        if answer["directions"].get(name):
            return str(name)
    return None


def _reader(answer: Answer, name: str, *, last: bool) -> Callable[[Job], Any]:
    if name in answer["metrics"]:
        return lambda job: value_of(job["metrics"].get(name), last=last)
    if name in answer["differs"] or name in answer["equal"]:
        return lambda job: job["config"].get(name)
    if name in FIELDS:
        return lambda job: job.get(name)
    names = [*answer["metrics"], *answer["differs"], *answer["equal"], *FIELDS]
    raise UsageError(
        f'--sort: the jobs have no metric, config key or field "{name[:60]}"'
        + did_you_mean(name, names),
        "they have " + ", ".join(names[:12]) + (" …" if len(names) > 12 else ""),
    )


def _order(value: object) -> tuple[int, Any]:
    """Numbers before texts, so that a column of both can be sorted."""
    number = finite(value)
    if number is not None:
        return 0, number
    return 1, str(value)


# -- tables


def jobs_grid(answer: Answer, jobs: Sequence[Job], *, short: bool, last: bool) -> Grid:
    """One row per job."""
    keys = answer["differs"]
    names = answer["metrics"]
    best = {name: _best(answer, name, jobs, last=last) for name in names}
    has_names = len({job["name"] for job in jobs}) > 1
    lead = ["id", *(["name"] if short and has_names else []), "state"]
    rows: list[list[Cell]] = []
    for job in jobs:
        row = [Cell(fmt.suffix(job["id"]) if short else job["id"])]
        if short and has_names:
            row.append(Cell(job["name"]))
        row.append(Cell(job["state"]))
        row += [Cell(config_text(job["config"].get(key))) for key in keys]
        for name in names:
            metric = job["metrics"].get(name)
            value = value_of(metric, last=last)
            is_best = value is not None and value == best[name] and len(jobs) > 1
            row.append(Cell(metric_text(metric, last=last), is_best))
        rows.append(row)
    titles = [*lead, *keys, *(title_of(name, answer, last=last) for name in names)]
    config_numeric = [
        all(finite(job["config"].get(key)) is not None for job in jobs if key in job["config"])
        for key in keys
    ]
    numeric = [*(False for _ in lead), *config_numeric, *(True for _ in names)]
    kept = [*(True for _ in lead), *(False for _ in keys), *(i < 3 for i in range(len(names)))]
    return Grid(titles, rows, numeric, kept)


def _best(answer: Answer, name: str, jobs: Sequence[Job], *, last: bool) -> float | None:
    wanted = answer["directions"].get(name)
    values = [value_of(job["metrics"].get(name), last=last) for job in jobs]
    known = [value for value in values if value is not None]
    if wanted is None or not known:
        return None
    return max(known) if wanted == "max" else min(known)


# -- groups


class Spread(NamedTuple):
    mean: float
    std: float | None  # of a sample; None of one value
    low: float
    high: float
    jobs: int


class Group(NamedTuple):
    by: JsonObject
    jobs: list[Job]
    metrics: dict[str, Spread]


def group_keys(answer: Answer, text: str) -> list[str]:
    """`lr,opt`, or `!seed,host`: every key that differs but these."""
    words = [word.strip() for word in text.removeprefix("!").split(",")]
    keys = [word for word in words if word]
    if not keys:
        raise UsageError("--group needs config keys", "for example: --group lr or --group '!seed'")
    known = [*answer["differs"], *answer["equal"]]
    for key in keys:
        if key not in known:
            raise UsageError(
                f'--group: no job has the config key "{key[:60]}"' + did_you_mean(key, known),
                "keys that differ: " + (", ".join(answer["differs"][:12]) or "none"),
            )
    if text.startswith("!"):
        return [key for key in answer["differs"] if key not in keys]
    return keys


def grouped(answer: Answer, keys: Sequence[str], jobs: Sequence[Job], *, last: bool) -> list[Group]:
    """In the order in which their first job stands in `jobs`."""
    members: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        label = tuple(repr(job["config"].get(key)) for key in keys)
        members.setdefault(label, []).append(job)

    groups = []
    for group in members.values():
        metrics: dict[str, Spread] = {}
        for name in answer["metrics"]:
            found = [value_of(job["metrics"].get(name), last=last) for job in group]
            values = [value for value in found if value is not None]
            if values:
                metrics[name] = _spread(values)
        config = {key: group[0]["config"].get(key) for key in keys}
        groups.append(Group(config, group, metrics))
    return groups


def _spread(values: list[float]) -> Spread:
    std = None
    if len(values) > 1:
        std = statistics.stdev(values)
    return Spread(statistics.fmean(values), std, min(values), max(values), len(values))


def sort_groups(answer: Answer, groups: list[Group], key: str | None) -> list[Group]:
    name = (key or _first_directed(answer) or "").removeprefix("-")
    if name not in answer["metrics"]:
        return groups  # as their first jobs were sorted
    highest_first = answer["directions"].get(name) == "max"
    if key is not None and key.startswith("-"):
        highest_first = not highest_first
    known = [group for group in groups if name in group.metrics]
    unknown = [group for group in groups if name not in group.metrics]
    known.sort(key=lambda group: group.metrics[name].mean, reverse=highest_first)
    return known + unknown


def spread_text(spread: Spread | None) -> str:
    """`0.931 ± 0.004`: the deviation with two digits, the mean as exactly as that allows."""
    if spread is None:
        return ""
    if not spread.std:
        return fmt.number(spread.mean)
    digits = max(0, 1 - math.floor(math.log10(spread.std)))
    if digits > 9:
        return f"{spread.mean:.4g} ± {spread.std:.2g}"
    return f"{spread.mean:.{digits}f} ± {spread.std:.{digits}f}"


def groups_grid(
    answer: Answer, keys: Sequence[str], groups: Sequence[Group], *, last: bool
) -> Grid:
    names = answer["metrics"]
    best: dict[str, float] = {}
    for name in names:
        means = [group.metrics[name].mean for group in groups if name in group.metrics]
        wanted = answer["directions"].get(name)
        if wanted is not None and means:
            best[name] = max(means) if wanted == "max" else min(means)
    rows: list[list[Cell]] = []
    for group in groups:
        row = [Cell(config_text(group.by[key])) for key in keys]
        row.append(Cell(str(len(group.jobs))))
        for name in names:
            spread = group.metrics.get(name)
            is_best = spread is not None and spread.mean == best.get(name) and len(groups) > 1
            row.append(Cell(spread_text(spread), is_best))
        rows.append(row)
    titles = [*keys, "jobs", *(title_of(name, answer, last=last) for name in names)]
    key_numeric = [
        all(finite(group.by[key]) is not None or group.by[key] is None for group in groups)
        for key in keys
    ]
    numeric = [*key_numeric, True, *(True for _ in names)]
    kept = [*(True for _ in keys), True, *(i < 3 for i in range(len(names)))]
    return Grid(titles, rows, numeric, kept)


def group_object(group: Group) -> JsonObject:
    return {
        "by": group.by,
        "ids": [job["id"] for job in group.jobs],
        "metrics": {
            name: {
                "mean": spread.mean, "std": spread.std, "min": spread.low, "max": spread.high,
                "jobs": spread.jobs,
            }
            for name, spread in group.metrics.items()
        },
    }  # fmt: skip


# -- forms


def jobs_csv(answer: Answer, jobs: Sequence[Job]) -> list[list[str]]:
    """For programs: every digit, and last and best apart."""
    names = answer["metrics"]
    head = ["id", "name", "state", *answer["differs"]]
    for name in names:
        head += [name, f"{name}.best"] if answer["directions"].get(name) else [name]
    rows = [head]
    for job in jobs:
        row = [job["id"], job["name"], job["state"]]
        row += [_exact(job["config"].get(key)) for key in answer["differs"]]
        for name in names:
            metric = job["metrics"].get(name) or {}
            row.append(_exact(metric.get("last")))
            if answer["directions"].get(name):
                row.append(_exact(metric.get("best")))
        rows.append(row)
    return rows


def groups_csv(answer: Answer, keys: Sequence[str], groups: Sequence[Group]) -> list[list[str]]:
    names = answer["metrics"]
    head = [*keys, "jobs"]
    for name in names:
        head += [f"{name}.mean", f"{name}.std"]
    rows = [head]
    for group in groups:
        row = [*(_exact(group.by[key]) for key in keys), str(len(group.jobs))]
        for name in names:
            spread = group.metrics.get(name)
            row += [_exact(spread.mean), _exact(spread.std)] if spread else ["", ""]
        rows.append(row)
    return rows


def _exact(value: object) -> str:
    return "" if value is None else str(value)


def markdown(grid: Grid) -> str:
    def safe(text: str) -> str:
        return (
            text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
        )

    lines = [
        "| " + " | ".join(safe(title) for title in grid.titles) + " |",
        "| " + " | ".join("---:" if right else "---" for right in grid.numeric) + " |",
    ]
    for row in grid.rows:
        cells = [f"**{safe(cell.text)}**" if cell.is_best else safe(cell.text) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
